#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads every #include and every link line against the order of the folders (docs/ARCHITECTURE.md: Folders).

The linker holds the same order for functions; this also holds it for types, constants and macros."""
import re
import sys

import tree

ORDER = {
    "base": set(),
    "policy": {"base"},
    "audit": {"base"},
    "ca": {"base"},
    "mint": {"base", "policy", "audit"},
    "dns": {"base", "policy", "audit"},
    "proxy": {"base", "policy", "audit", "ca", "mint", "dns"},
    "console": {"base", "policy", "audit"},
    "daemon": {"base", "policy", "audit", "ca", "mint", "dns", "proxy", "console"},
}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]*)"', re.M)
LINK = re.compile(r"\boutgate_([a-z]+)\b")
ANY = {"tests"}  # may include anything
NOT_LIBRARIES = {"library", "doc"}


def faults_of(name, source):
    folder = name.split("/")[0]
    out = []
    if name.endswith("CMakeLists.txt"):
        for other in set(LINK.findall(source)) - NOT_LIBRARIES:
            if folder in ORDER and other != folder and other not in ORDER[folder]:
                out.append(f"{name}: {folder} may not be linked to {other}")
        return out
    for included in INCLUDE.findall(source):
        other, slash, _ = included.partition("/")
        if folder in ANY:
            continue
        if not slash:
            out.append(f'{name}: #include "{included}": an include names its folder')
        elif folder not in ORDER:
            out.append(f"{name}: the folder {folder} has no place in the order")
        elif other != folder and other not in ORDER[folder]:
            out.append(f'{name}: #include "{included}": {folder} may not know {other}')
    return out


def main():
    # The check can fail: what must be found is found.
    assert faults_of("base/x.c", '#include "policy/rule.h"\n') and not faults_of("policy/x.c", '#include "base/str.h"\n')
    assert faults_of("mint/x.c", '#include "dns/wire.h"\n') and faults_of("ca/x.c", '#include "ca.h"\n')
    assert faults_of("ca/CMakeLists.txt", "outgate_library(ca outgate_base outgate_mint)")
    names = [n for n in tree.files() if n.endswith((".c", ".h", ".def")) or n.endswith("/CMakeLists.txt")]
    faults = [f for n in names for f in faults_of(n, tree.text(n))]
    return tree.end("folder order", faults, len(names))


sys.exit(main())
