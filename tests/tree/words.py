#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What may stand in no file: paths of somebody's machine, hosts of package registries, the marks of a merge; and what must stand in each source: its
licence, in one of the first five lines. Certificates and the like have no licence line; test data in tests/corpus has nothing at all."""
import re
import sys

import tree

SOURCES = (".c", ".h", ".def", ".py", ".sh", ".cmake", "CMakeLists.txt", ".service", ".bash-completion", ".1")
# Written in pieces, so that this file holds none of them.
REGISTRIES = ["registry" + r"\.npmjs", "pypi" + r"\.org", "pythonhosted" + r"\.org", "crates" + r"\.io", "rubygems" + r"\.org", "proxy" + r"\.golang",
              "sum" + r"\.golang", "deb" + r"\.debian", "security" + r"\.debian", "repo1?" + r"\.maven", "yarnpkg" + r"\.com", "packagist" + r"\.org",
              "archive" + r"\.ubuntu", "registry-1" + r"\.docker", "auth" + r"\.docker"]
MERGES = [r"^<{7} ", r"^>{7} "]
PLACES = [r"(?<![\w.-])/" + w + r"/\w" for w in ("work", "workspace", "root", "Users")] + [r"\.\./" + "shared"]
BANNED = re.compile("|".join(f"(?:{p})" for p in [*REGISTRIES, *PLACES, *MERGES]))
# A path that a test of paths is about, or that the absence of is what is told.
ALLOWED = {}


def faults_of(name, text):
    out = []
    for number, line in enumerate(text.split("\n"), 1):
        m = BANNED.search(line)
        if m and m.group(0) not in ALLOWED.get(name, ()):
            out.append(f"{name}:{number}: {m.group(0)!r} has no place in the tree")
    if name.endswith(SOURCES) and "SPDX-License-Identifier: Apache-2.0" not in "\n".join(text.split("\n")[:5]):
        out.append(f"{name}:1: no SPDX-License-Identifier: Apache-2.0 in the first five lines")
    return out


def main():
    assert faults_of("x.py", "# SPDX-License-Identifier: Apache-2.0\nfetch('https://" + "pypi" + ".org/simple')\n")
    assert faults_of("x.c", "int x;\n") and not faults_of("x.c", "/* SPDX-License-Identifier: Apache-2.0 */\nint network;\n")
    assert faults_of("README.md", "see /" + "work/x\n") and not faults_of("README.md", "paper/work/x\n")
    assert faults_of("README.md", "<" * 7 + " HEAD\n") and not faults_of("README.md", "a " + "<" * 7 + " b\n")
    names = [n for n in tree.files() if not n.startswith("tests/corpus/")]
    faults = [f for n in names for f in faults_of(n, tree.text(n))]
    return tree.end("words", faults, len(names))


sys.exit(main())
