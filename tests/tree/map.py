#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/MAP.md names every file and folder of the project with one line, and nothing that is not there.

A line is "- `PATH`: what it is". Folders of data (DATA) have one line for all they hold. --add puts a line for each missing file behind
its neighbours, made of the file's own first sentence: read it, it may need a better one."""
import os
import re
import sys

import tree

MAP = "docs/MAP.md"
DATA = ("tests/corpus/", "tests/config/")
LINE = re.compile(r"^- `([^`]+)`(?:, `([^`]+)`)?: (.*)$", re.M)


def wanted(names):
    """Files with a line of their own, and every folder with a '/' behind it."""
    out = set()
    for name in names:
        data = [d for d in DATA if name.startswith(d)]
        out.add(data[0] if data else name)
        parts = name.split("/")[:-1]
        for i in range(1, len(parts) + 1):
            folder = "/".join(parts[:i]) + "/"
            if not any(folder.startswith(d) and folder != d for d in DATA):
                out.add(folder)
    return out - {MAP}


def read(text):
    lines, faults = {}, []
    for m in LINE.finditer(text):
        for path in filter(None, m.group(1, 2)):
            if path in lines:
                faults.append(f"{MAP}: {path} has two lines")
            lines[path] = m.group(3)
            if len(m.group(3)) < 8:
                faults.append(f"{MAP}: {path}: the line says nothing")
    return lines, faults


def check(names, text):
    lines, faults = read(text)
    need = wanted(names)
    faults += [f"{MAP} has no line for {p} (tests/tree/map.py --add writes one)" for p in sorted(need - set(lines))]
    faults += [f"{MAP}: {p} is not there" for p in sorted(set(lines) - need - {MAP})]
    return faults, len(need)


def first_sentence(name):
    """Of the comment at the top: "noun: what it is" without the noun."""
    if name.endswith("/"):
        return "a folder"
    head = tree.text(name)[:3000]
    comment = re.search(r"/\*(.*?)\*/", head, re.S) or re.search(r'"""(.*?)"""', head, re.S)
    body = comment.group(1) if comment else "\n".join(re.findall(r"^#(.*)$", head, re.M))
    body = re.sub(r"SPDX-License-Identifier: \S+", "", body)
    body = " ".join(re.sub(r"^\s*[*#!] ?", "", body, flags=re.M).split())
    body = re.sub(r"^/bin/\S+ |^!?/usr/bin/env \S+ ", "", body)
    body = re.sub(r"^[a-zA-Z0-9_./-]+(\.[ch])?: ", "", re.sub(r" \([A-Z][^)]*\)", "", body))
    m = re.match(r"(.{20,}?)(?:\. |; |\.$|$)", body)
    body = m.group(1) if m else body
    return (body[0].lower() + body[1:] if body[1:2].islower() else body)[:170] if body else "?"


def add(names):
    """foo.h and foo.c share a line, which says what foo is."""
    path = os.path.join(tree.ROOT, MAP)
    lines = tree.text(MAP).split("\n")
    have, _ = read("\n".join(lines))
    need = wanted(names) - set(have)
    for missing in sorted(need):
        pair = re.sub(r"\.h$", ".c", missing)
        if missing.endswith(".c") and (header := missing[:-1] + "h") in need | set(have):
            for i, line in enumerate(lines):  # the header has its line already, from before
                if line.startswith(f"- `{header}`: "):
                    lines[i] = line.replace(f"- `{header}`", f"- `{header}`, `{missing}`", 1)
            continue
        both = f"`{missing}`, `{pair}`" if pair != missing and pair in need else f"`{missing}`"
        folder = missing.rstrip("/").rpartition("/")[0]
        near = [i for i, l in enumerate(lines) if (m := LINE.match(l)) and m.group(1).rstrip("/").rpartition("/")[0] == folder and m.group(1) < missing]
        near = near or [i for i, l in enumerate(lines) if l.startswith(f"- `{folder}/`")] or [len(lines) - 2]
        lines.insert(near[-1] + 1, f"- {both}: {first_sentence(missing)}")
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(lines))


def main():
    names = tree.files()
    bad, _ = check(["base/a.c"], "- `base/`: the lowest folder\n- `base/b.c`: something that left\n")
    assert len(bad) == 2, bad
    assert not check(["base/a.c"], "- `base/`: the lowest folder\n- `base/a.c`: something there\n")[0]
    if "--add" in sys.argv[1:]:
        add(names)
    faults, looked_at = check(names, tree.text(MAP))
    return tree.end("map", faults, looked_at)


sys.exit(main())
