#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/CONFIG.md, docs/AUDIT-LOG.md and docs/REFUSALS.md are what the program prints from its tables (--write puts them there), and every command of the
program, with each of its options, stands in its manual page and its completion."""
import os
import re
import subprocess
import sys

import tree

EXE = os.environ.get("OUTGATE_EXE") or os.path.join(tree.ROOT, "build", "outgate")
PRINTED = {"docs/CONFIG.md": "config", "docs/AUDIT-LOG.md": "audit-log", "docs/REFUSALS.md": "refusals"}


def printed(*args):
    return subprocess.run([EXE, *args], capture_output=True, timeout=30, check=True).stdout.decode()


def main():
    if not os.path.exists(EXE):
        print(f"no {EXE}: build first, or set OUTGATE_EXE", file=sys.stderr)
        return 2
    faults, looked_at = [], 0
    for name, what in PRINTED.items():
        wanted, path = printed("internal-docs", what), os.path.join(tree.ROOT, name)
        if "--write" in sys.argv[1:]:
            with open(path, "w", encoding="utf-8") as f:
                f.write(wanted)
        looked_at += 1
        if not os.path.exists(path) or tree.text(name) != wanted:
            faults.append(f"{name} is not what `outgate internal-docs {what}` prints: tests/tree/generated.py --write")
    manual = re.sub(r'\\f[A-Z]|\\fP|"', "", tree.text("docs/outgate.1").replace("\\-", "-"))
    completion = tree.text("deploy/outgate.bash-completion")
    for line in printed("--help").split("\n"):
        m = re.match(r"  ([a-z]+(?: [a-z]+)?)  +\S", line)
        if not m:
            continue
        looked_at += 1
        for word in m.group(1).split():
            if not re.search(rf"\b{word}\b", manual):
                faults.append(f"docs/outgate.1 does not name `outgate {m.group(1)}`")
            if not re.search(rf"\b{word}\b", completion):
                faults.append(f"deploy/outgate.bash-completion does not name `outgate {m.group(1)}`")
        for option in re.findall(r"^  .*?(--[a-z]+)", printed(*m.group(1).split(), "--help"), re.M):
            for where, text in (("docs/outgate.1", manual), ("deploy/outgate.bash-completion", completion)):
                if not re.search(rf"{option}\b", text):
                    faults.append(f"{where} does not name {option} (of `outgate {m.group(1)}`)")
    return tree.end("generated", faults, looked_at)


sys.exit(main())
