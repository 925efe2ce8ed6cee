#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs tests/system/test_*.py one after the other: run.py [PART OF A FILE'S NAME[:PART OF A TEST'S NAME]]...

Prints a line for each test and `N passed, N failed, N skipped` at the end; exit status 1 when one failed, 2 without a binary.
OUTGATE_EXE names the binary (default build/outgate), OUTGATE_TEST_TIMEOUT the seconds that one test may take (default 60)."""
import glob
import importlib
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import lab  # noqa: E402


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
                counts = lab.run_module(importlib.import_module(name), test, int(os.environ.get("OUTGATE_TEST_TIMEOUT", "60")))
                total = [a + b for a, b in zip(total, counts)]
                break
    print("%d passed, %d failed, %d skipped" % tuple(total))
    return 1 if total[1] else 0


if __name__ == "__main__":
    sys.exit(main())
