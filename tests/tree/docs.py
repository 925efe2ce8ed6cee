#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The written word against the tree: paths and tests that README.md and docs/ name are there, links lead somewhere, the configurations
printed in them pass `outgate check`, and docs/GLOSSARY.md has one entry for each of the field's words, in order."""
import os
import re
import subprocess
import sys
import tempfile

import tree

EXE = os.environ.get("OUTGATE_EXE") or os.path.join(tree.ROOT, "build", "outgate")
FOLDERS = ("base", "policy", "audit", "ca", "mint", "dns", "proxy", "daemon", "tests", "deploy", "docs", r"\.ci")
PATH = re.compile(r"`((?:" + "|".join(FOLDERS) + r")/[A-Za-z0-9_./-]*[A-Za-z0-9_/])(?::([a-z0-9_]+))?`")
LINK = re.compile(r"\[[^\]]*\]\(([^)#:]+)(?:#[^)]*)?\)")
# One word for each thing, in code, configuration, log, documents and commands.
WORDS = ("agent", "origin", "placeholder", "credential", "lease", "rule", "verdict", "exchange", "leaf", "event", "slot", "supervisor", "worker", "keeper",
         "minter", "resolver", "logger", "ca", "snapshot", "finding", "scrub", "swap", "guard", "ring", "segment", "checkpoint", "sidecar", "refusal")


def markdown(names):
    return [n for n in names if n.endswith(".md")]


def path_faults(name, text, there, source):
    out = []
    for m in PATH.finditer(text):
        path, test = m.group(1), m.group(2)
        if "FOLDER_NOUN" in path:  # a pattern
            continue
        if path.rstrip("/") not in there:
            out.append(f"{name}: {path} is not there")
        elif test and not re.search(rf"\b{test}\b", source(path)):
            out.append(f"{name}: {path} has no {test}")
    for m in LINK.finditer(text):
        target = os.path.normpath(os.path.join(os.path.dirname(name), m.group(1)))
        if target not in there:
            out.append(f"{name}: the link to {m.group(1)} leads nowhere")
    return out


def glossary_faults(text):
    entries = re.findall(r"^\*\*([^*]+)\*\*", text, re.M)
    out = [f"docs/GLOSSARY.md: {w} has no entry" for w in WORDS if w not in entries]
    out += [f"docs/GLOSSARY.md: {e} has two entries" for e in {e for e in entries if entries.count(e) > 1}]
    if entries != sorted(entries, key=str.lower):
        out.append("docs/GLOSSARY.md: the entries are not in order")
    return out


def config_faults(name, text):
    """Each YAML block that begins with `version: 1` and has a `state_dir` is a whole outgate.yaml."""
    out, count = [], 0
    for block in re.findall(r"^```yaml\n(version: 1\n.*?)^```", text, re.M | re.S):
        if "state_dir:" not in block:
            continue
        count += 1
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "outgate.yaml")
            with open(path, "w", encoding="utf-8") as f:
                f.write(block)
            for side in re.findall(r"(?:token_file|file|login_file): ([\w./-]+)", block):
                with open(os.path.join(folder, side), "w", encoding="ascii") as f:
                    f.write("0123456789abcdef0123456789abcdef")
            r = subprocess.run([EXE, "check", "-c", path], capture_output=True, timeout=30)
            if r.returncode:
                out.append(f"{name}: a configuration in it is wrong: " + (r.stdout + r.stderr).decode(errors="replace").strip())
    return out, count


def main():
    names = tree.files()
    there = set(names) | {n[:i] for n in names for i, c in enumerate(n) if c == "/"}
    assert path_faults("x.md", "`base/nothing.c`, [a](gone.md)", there, tree.text) and glossary_faults("**agent**\n")
    faults, looked_at = [], 0
    for name in markdown(names):
        faults += path_faults(name, tree.text(name), there, tree.text)
        bad, configs = config_faults(name, tree.text(name)) if os.path.exists(EXE) else ([], 0)
        faults += bad
        looked_at += 1 + configs
    faults += glossary_faults(tree.text("docs/GLOSSARY.md"))
    return tree.end("docs", faults, looked_at + len(WORDS))


sys.exit(main())
