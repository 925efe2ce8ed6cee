#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs tests/system/test_*.py one after the other: run.py [PART OF A FILE'S NAME[:PART OF A TEST'S NAME]]...

Prints a line for each test and `N passed, N failed, N skipped` at the end; exit status 1 when one failed, 2 without a binary.
OUTGATE_EXE names the binary (default build/outgate), OUTGATE_TEST_TIMEOUT the seconds that one test may take (default 60)."""
import glob
import importlib
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import lab  # noqa: E402


def apart(path, test):
    """A module with ISOLATED set runs in namespaces of its own, and so in a process of its own."""
    p = subprocess.Popen([sys.executable, path, *([test] if test else [])], stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
    last = ""
    for line in p.stdout:
        if re.fullmatch(r"\d+ passed, \d+ failed, \d+ skipped\n", line):
            last = line
        else:
            print(line, end="", flush=True)
    if p.wait() not in (0, 1) or not last:
        print(f"FAIL  {path}: it did not come to its end", flush=True)
        return [0, 1, 0]
    return [int(n) for n in re.findall(r"\d+", last)]


def main():
    if not os.path.exists(lab.EXE):
        print(f"no {lab.EXE}: build first, or set OUTGATE_EXE", file=sys.stderr)
        return 2
    wanted = [w.partition(":") for w in sys.argv[1:]] or [("", "", "")]
    total = [0, 0, 0]
    for path in sorted(glob.glob(os.path.join(HERE, "test_*.py"))):
        name = os.path.splitext(os.path.basename(path))[0]
        for part, _, test in wanted:
            if part in name:
                module = importlib.import_module(name)
                counts = apart(path, test) if getattr(module, "ISOLATED", False) else lab.run_module(module, test)
                total = [a + b for a, b in zip(total, counts)]
                break
    print("%d passed, %d failed, %d skipped" % tuple(total))
    return 1 if total[1] else 0


if __name__ == "__main__":
    sys.exit(main())
