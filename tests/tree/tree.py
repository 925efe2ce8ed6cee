# SPDX-License-Identifier: Apache-2.0
"""What the checks of this folder share: the tree's root, its files, and how a check ends."""
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def files():
    """Every file of the project, relative to the root: what git tracks, or without git everything but builds."""
    try:
        r = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-z"], cwd=ROOT, capture_output=True, timeout=30)
        names = [n for n in r.stdout.decode().split("\0") if n]
        if r.returncode == 0 and names:
            return sorted(n for n in names if os.path.isfile(os.path.join(ROOT, n)))
    except OSError:
        pass
    out = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [f for f in folders if f not in (".git", "__pycache__", "build") and not f.startswith("build-")]
        out += [os.path.relpath(os.path.join(folder, n), ROOT) for n in names if not n.endswith(".pyc")]
    return sorted(out)


def text(name):
    with open(os.path.join(ROOT, name), encoding="utf-8", errors="replace") as f:
        return f.read()


def end(what, faults, looked_at):
    """Prints the faults and one line; the exit status."""
    if looked_at == 0:
        faults = [*faults, "nothing was looked at"]
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{what}: {len(faults)} faults, {looked_at} looked at")
    return 1 if faults else 0
