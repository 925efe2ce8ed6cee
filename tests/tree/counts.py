#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts what ctest ran: counts.py JUNIT.xml prints "PASSED FAILED SKIPPED", a cmocka program counting as its tests, anything else as one;
then a line for each failure (with its last lines) and each skip with its reason."""
import re
import sys
import xml.etree.ElementTree as ET


def count(case):
    """(passed, failed, skipped) of one program."""
    out = (case.findtext("system-out") or "") + (case.findtext("system-err") or "")
    number = lambda word: sum(int(n) for n in re.findall(rf"^\[  {word} *\] (\d+) test\(s\)", out, re.M))
    passed, failed, skipped = number("PASSED"), number("FAILED"), number("SKIPPED")
    if case.get("status") != "run" or case.find("failure") is not None:
        return passed, failed or 1, skipped
    return (passed, failed, skipped) if passed or skipped else (1, 0, 0)


def main():
    total, notes = [0, 0, 0], []
    for case in ET.parse(sys.argv[1]).getroot().iter("testcase"):
        counts = count(case)
        total = [a + b for a, b in zip(total, counts)]
        out = case.findtext("system-out") or ""
        if counts[1]:
            notes += [f"FAIL  {case.get('name')}"] + ["      " + l for l in out.strip().split("\n")[-25:]]
        why = [w.removeprefix("skipped: ") for w in re.findall(r"^(?!\[)(.+)\n\[  SKIPPED \] \w+$", out, re.M)]
        for i in range(counts[2]):
            notes.append(f"skip  {case.get('name')}: {why[i] if i < len(why) else 'it does not say why'}")
    print(*total)
    print(*notes, sep="\n", end="\n" if notes else "")


main()
