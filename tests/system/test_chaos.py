#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Everything at once: under steady load with placeholders roles are killed and stopped, the disk of the log is full for a while, and
reloads take a host out of the credential's scope and put it back. Whatever happened: no real value was seen by an origin without its
`open`, none went to a host that was out of scope by then, the log verifies, service came back in time, nothing is left behind.
PRODUCT: Durability, Reload; ARCHITECTURE: promises 1 and 3; THREATS: N1 to N4.

A few seconds as an ordinary test, a hundred kills and more with OUTGATE_TEST_FULL. OUTGATE_TEST_SEED repeats a run's choices."""
import os
import random
import signal
import subprocess
import threading
import time

import faults as F
import lab as L
from faults import FULL, Books, Load
from lab import wait_for

TAIL = "limits: {pool_idle_timeout: 300ms, event_lag: 400ms}\naudit: {segment_bytes: 1MiB}\n"
BACK = 20.0     # seconds within which service must be back after a fault has ended
SETTLE = 1.0    # after a reload was answered: what began before may still be on its way ("closed within 1 s")
SCOPE_A, SCOPE_B = "hosts: [api.test, git.test]\n    ports:", "hosts: [api.test]\n    ports:"


class Seen:
    """An origin's handler that answers everything, and keeps when it saw which request with which real value."""

    def __init__(self, real):
        self.real, self.lock, self.list = real, threading.Lock(), []

    def __call__(self, conn, origin):
        while True:
            m = L.read_request(conn)
            real = any(self.real in v for v in m.all("authorization"))
            with self.lock:
                self.list.append((time.monotonic(), m.get("host").partition(":")[0], m.target, real))
            conn.send(L.answer(200, "ok"))


class Disk:
    """state/audit on a file system of its own that can be filled. Without the right to mount: never full."""

    def __init__(self, lab, size="64m"):
        self.at, self.filler = lab.path("state", "audit"), None
        st = os.stat(self.at)
        self.mounted = os.geteuid() == 0 and subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size},mode={st.st_mode & 0o7777:o},uid={st.st_uid},gid={st.st_gid}", "tmpfs", self.at],
            capture_output=True).returncode == 0
        if not self.mounted:
            print("      the disk is never full: mounting needs root", flush=True)

    def fill(self):
        """By a file that has no name, so that the log's folder holds nothing but the log."""
        fd = os.open(self.at, os.O_TMPFILE | os.O_RDWR, 0o600)
        self.filler = fd
        step = 1 << 22
        while step >= 4096:
            try:
                os.posix_fallocate(fd, os.fstat(fd).st_size, step)
            except OSError:
                step //= 2

    def free(self):
        if self.filler is not None:
            os.close(self.filler)
            self.filler = None

    def close(self):
        self.free()
        if self.mounted:
            subprocess.run(["umount", "-l", self.at], check=False)


class Chaos:
    def __init__(self, rng, workers):
        self.rng = rng
        self.lab = lab = L.Lab(workers=workers, tail=TAIL, start=False)
        lab.start()
        lab.stop()  # the folders are there now
        self.disk = Disk(lab)
        for name in os.listdir(lab.path("state", "keys", "log")) if self.disk.mounted else []:
            if "anchor" in name or "head" in name:  # the log begins anew on the new file system
                os.unlink(lab.path("state", "keys", "log", name))
        lab.start()
        self.text = {"A": lab.config(), "B": lab.config().replace(SCOPE_A, SCOPE_B)}
        assert self.text["A"] != self.text["B"]
        self.scope, self.out_of_scope = "A", []  # [(from, to)]: when git.test was certainly out of it
        self.done, self.slowest = {}, 0.0
        self.seen = Seen(lab.real)
        lab.api.reset(self.seen)

    # --- faults; each ends before it returns

    def victim(self):
        """A role's process, each kind as likely as another."""
        rows = [r for r in F.roles(self.lab).values() if r["pid"]]
        name = self.rng.choice(sorted({r["name"] for r in rows}))
        return self.rng.choice([r for r in rows if r["name"] == name])

    def kill(self):
        for _ in range(self.rng.choice((1, 1, 1, 2))):  # now and then a second one while the first is not back
            F.kill(self.victim()["pid"])

    def stop(self):
        pid = self.victim()["pid"]
        F.kill(pid, signal.SIGSTOP)
        time.sleep(self.rng.choice((0.05, 0.3, 0.6)))  # the fault itself, no wait for anything
        F.kill(pid, signal.SIGCONT)

    def stop_and_kill(self):
        """Another one dies, and a reload runs, while one does not answer."""
        pid = self.victim()["pid"]
        F.kill(pid, signal.SIGSTOP)
        F.kill(self.victim()["pid"])
        self.reload()
        F.kill(pid, signal.SIGCONT)

    def full(self):
        if not self.disk.mounted:
            return
        self.disk.fill()
        time.sleep(self.rng.choice((0.1, 0.5)))
        if self.rng.random() < 0.5:
            self.kill()
        self.disk.free()

    def reload(self):
        scope = "B" if self.scope == "A" else "A"
        start = time.monotonic()
        F.write(self.lab, self.text[scope])
        if scope == "A" and self.out_of_scope:
            self.out_of_scope[-1][1] = start
        r = F.reload(self.lab)
        assert r.returncode == 0, r.stderr
        if scope == "B":
            self.out_of_scope.append([time.monotonic() + SETTLE, float("inf")])
        self.scope = scope

    def reload_and_kill(self):
        """Whoever is told of the new scope dies over it."""
        pid = self.victim()["pid"]
        t = threading.Timer(self.rng.random() * 0.02, F.kill, (pid,))
        t.start()
        self.reload()
        t.join()

    FAULTS = ("kill",) * 4 + ("stop", "stop_and_kill", "full", "reload", "reload", "reload_and_kill", "reload_and_kill")

    # --- the run

    def run(self, rounds):
        lab = self.lab
        F.must_work(lab, "a request before")
        names = sorted(F.roles(lab))
        fds = self.descriptors()
        fds[("logger", 0)] += 1  # a later logger watches the first one's eventfd besides its own
        for k in (("keeper", 0), ("minter", 0)):
            fds[k] += 2  # connections between them that are kept: one for each question that was asked at once
        loads = [Load(lab, clients=2, pause=0.01, name="api.test", tag="api"), Load(lab, clients=2, pause=0.01, name="git.test", tag="git")]
        for _ in range(rounds):
            self.step(loads, self.rng.choice(self.FAULTS))
        for what in sorted(set(self.FAULTS)):  # each at least once
            if not self.done.get(what):
                self.step(loads, what)
        if self.scope == "A":
            self.step(loads, "reload")
        time.sleep(SETTLE + 0.3)  # B holds for a while, under load
        results = [r for load in loads for r in load.stop()]
        wait_for(lambda: F.all_ready(lab), "every role", 30)
        self.step_back()
        F.must_work(lab, "a request after")
        assert sorted(F.roles(lab)) == names, "other roles than before"
        self.judge(results)
        try:
            wait_for(lambda: all(n <= fds[k] for k, n in self.descriptors().items()), "the descriptors of before", 15)
        except AssertionError as e:
            after = {k: (fds[k], n) for k, n in self.descriptors().items() if n > fds[k]}
            raise AssertionError(f"{e}: (before, after) {after}") from None
        assert not self.zombies(), self.zombies()

    def step(self, loads, what):
        getattr(self, what)()
        self.done[what] = self.done.get(what, 0) + 1
        start, before = time.monotonic(), loads[0].count()
        wait_for(lambda: loads[0].count() > before, f"service after {what}", BACK)
        self.slowest = max(self.slowest, time.monotonic() - start)

    def step_back(self):
        if self.scope == "B":
            self.reload()

    def judge(self, results):
        real = [s for s in self.seen.list if s[3]]
        books = Books(self.lab, 15)
        books.seen_are_opened([path for _, _, path, _ in real])
        late = [s for s in real if s[1] == "git.test" and any(a <= s[0] <= b for a, b in self.out_of_scope)]
        assert not late, f"a real value went to a host out of scope: {late[:3]}"
        F.verify(self.lab)
        # The controls: in scope the host saw real values, out of it the same requests were refused.
        assert [s for s in real if s[1] == "git.test"] and [s for s in real if s[1] == "api.test"]
        assert [r for r in results if r[0].startswith("/git/") and r[2] == "placeholder_wrong_host"], {r[2] for r in results}
        codes = {r[2] for r in results if r[0].startswith("/api/")}
        assert codes <= {None, "audit_unavailable", "credential_unavailable", "origin_connect", "origin_timeout", "origin_dns", "rate_limited",
                         "draining"}, codes

    def descriptors(self):
        out = {k: F.descriptors(r["pid"]) for k, r in F.roles(self.lab).items() if r["pid"]}
        out["supervisor"] = F.descriptors(self.lab.proc.pid)
        return out

    def zombies(self):
        with open(f"/proc/{self.lab.proc.pid}/task/{self.lab.proc.pid}/children") as f:
            return [p for p in f.read().split() if F.field(int(p), "State")[0] == "Z"]

    def close(self):
        try:
            self.lab.close()
        finally:
            self.disk.close()
            L.shutil.rmtree(self.lab.dir, ignore_errors=True)


def test_chaos():
    seed = int(os.environ.get("OUTGATE_TEST_SEED", "0")) or random.randrange(1, 1 << 30)
    print(f"      seed {seed}", flush=True)
    chaos = Chaos(random.Random(seed), 3 if FULL else 2)
    try:
        chaos.run(160 if FULL else 3)
        print(f"      {chaos.done}, {len(chaos.seen.list)} requests, the longest without service {chaos.slowest:.1f} s", flush=True)
    except AssertionError as e:
        raise AssertionError(f"{e}; seed {seed}; {chaos.done}") from None
    finally:
        chaos.close()


if __name__ == "__main__":
    L.main()
