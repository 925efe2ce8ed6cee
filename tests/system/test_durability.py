#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No byte of a request leaves before the log has it, whoever is killed when; what died comes back; a log that cannot be written stops
traffic and lets it go on by itself. PRODUCT: Durability; ARCHITECTURE: promise 3; THREATS: N1, N2, N4, K9."""
import os
import random
import signal
import subprocess
import threading
import time

import faults as F
import lab as L
from faults import FULL, Books, Load, all_ready, ask, must_work, roles, verify
from lab import Skip, wait_for

TAIL = "limits: {pool_idle_timeout: 300ms, event_lag: 400ms}\n"


def stopped(lab):
    try:
        return lab.stop()
    finally:
        lab.close(check=False)


# ---------------------------------------------------------------- killed at the first byte


class Killer:
    """An origin's handler: the first byte of a request kills the given processes."""

    def __init__(self):
        self.pids, self.lock, self.heads, self.killed = [], threading.Lock(), [], 0

    def strike(self):
        with self.lock:
            victims, self.pids = self.pids, []
        for kill, pid in victims:
            kill(pid, signal.SIGKILL)
            self.killed += 1

    def __call__(self, conn, origin):
        try:
            while True:  # on whichever connection it comes
                if not conn.buf:
                    first = conn.recv()
                    if not first:
                        return
                    conn.buf += first
                self.strike()
                m = L.read_request(conn)
                origin.requests.append(m)
                self.heads.append(m.target)
                conn.send(L.answer(200, "ok"))
        except L.Closed as e:
            if e.got:
                self.heads.append(e.got.split(b" ")[1].decode() if b" " in e.got else None)


def killed_at_first_byte(workers, times):
    lab = L.Lab(workers=workers, tail=TAIL)
    try:
        killer = Killer()
        lab.api.reset(killer)
        slowest = 0.0
        for i in range(times):
            must_work(lab, "a request before")
            path = f"/kill/{workers}/{i}"
            c = lab.client("api.test")
            lab.api.reset(killer)  # no pooled connection: the request's first byte is the connection's
            wait_for(lambda: all_ready(lab), "every worker")
            killer.pids = [(L.kill, r["pid"]) for k, r in roles(lab).items() if k[0] == "worker"]
            try:
                c.ask("GET", path, [lab.bearer()])
                assert False, "answered by a dead worker"
            except (L.Closed, OSError):
                pass
            start = time.monotonic()
            must_work(lab, f"service after kill {i}")
            slowest = max(slowest, time.monotonic() - start)
            e = lab.event(lambda e: e.get("path") == path, ("close",))
            assert e["end"] == "worker_died" and e["credentials"] == ["github"], e
        books = Books(lab)
        books.seen_are_opened([p for p in killer.heads if p])
        for i in range(times):
            assert books.open_paths[f"/kill/{workers}/{i}"] == 1 and books.close_of(f"/kill/{workers}/{i}")["end"] == "worker_died"
        assert killer.killed == workers * times
        assert slowest < 1.0, f"back after {slowest:.2f} s"
        verify(lab)
    finally:
        lab.close()


def test_worker_killed_at_first_byte_1():
    killed_at_first_byte(1, 30 if FULL else 10)


def test_worker_killed_at_first_byte_2():
    killed_at_first_byte(2, 30 if FULL else 10)


def test_all_killed_at_first_byte_sync_always():
    """The whole process group at once: what an origin saw was on the disk before."""
    lab = L.Lab(workers=2, tail=TAIL + "audit: {sync: always}\n")
    try:
        killer = Killer()
        for i in range(20 if FULL else 5):
            lab.api.reset(killer)
            must_work(lab, "a request before")
            load = Load(lab, clients=3, tag=f"g{i}")
            wait_for(lambda: load.count() > 5, "some requests")
            killer.pids = [(os.killpg, lab.proc.pid)]
            wait_for(lambda: lab.proc.poll() is not None, "the end of the server")
            L.group_gone(lab.proc)
            load.stop()
            lab.proc = None
            lab.api.reset(killer)
            lab.start()
            must_work(lab, "a request after the new start")
            books = Books(lab, 15)
            books.seen_are_opened([p for p in killer.heads if p])
            verify(lab)
        assert sum(1 for e in lab.events("close") if e["end"] == "worker_died") > 0, "the control: something was under way"
    finally:
        lab.close()


# ---------------------------------------------------------------- chaos


def chaos(kills, seed):
    lab = L.Lab(workers=3, tail=TAIL)
    rng = random.Random(seed)
    print(f"      seed {seed}", flush=True)
    try:
        must_work(lab, "a request before")
        names = {k: r["name"] for k, r in roles(lab).items()}
        counts = fd_counts(lab)
        counts[("logger", 0)] += 1  # a later logger watches the first one's eventfd besides its own
        load = Load(lab, clients=3, pause=0.005)
        done = {}
        for i in range(kills):
            now = roles(lab)
            name = rng.choice(F.ROLE_NAMES)
            victim = rng.choice([r for k, r in now.items() if k[0] == name])
            if victim["pid"]:
                F.kill(victim["pid"])
                done[name] = done.get(name, 0) + 1
            if rng.random() < 0.3:  # a second one while the first is not back
                other = rng.choice([r for r in now.values() if r["pid"]])
                F.kill(other["pid"])
                done[other["name"]] = done.get(other["name"], 0) + 1
            before = load.count()
            wait_for(lambda: load.count() > before, f"service after kill {i} ({name})", 20)
        assert load.count() > kills
        load.stop()
        wait_for(lambda: all_ready(lab), "every role", 30)
        must_work(lab, "a request after")
        assert {k: r["name"] for k, r in roles(lab).items()} == names
        seen = [m.target for m in lab.api.requests if any(lab.real in v for v in m.all("authorization"))]
        assert len(seen) > kills
        books = Books(lab, 15)
        books.seen_are_opened(seen)
        verify(lab)
        wait_for(lambda: all(n <= counts[k] for k, n in fd_counts(lab).items()), "the descriptors of before", 10)
    except AssertionError as e:
        raise AssertionError(f"{e}; descriptors before {counts}, after {fd_counts(lab)}; kills {done}") from None
    finally:
        lab.close()


def fd_counts(lab):
    out = {k: F.descriptors(r["pid"]) for k, r in roles(lab).items() if r["pid"]}
    out["supervisor"] = F.descriptors(lab.proc.pid)
    return out


def test_chaos():
    chaos(200 if FULL else 40, int(os.environ.get("OUTGATE_TEST_SEED", "0")) or random.randrange(1, 1 << 30))


# ---------------------------------------------------------------- a log that does not go on


def test_logger_stopped():
    """SIGSTOP: new work is refused once the logger made no progress for limits.event_lag; nothing is lost, and it goes on by itself."""
    lab = L.Lab(workers=1, tail=TAIL)
    try:
        must_work(lab, "a request before")
        pid = F.pid_of(lab, "logger")
        n, codes = 0, {}
        L.kill(pid, signal.SIGSTOP)
        try:
            start = time.monotonic()
            while "audit_unavailable" not in codes:
                n += 1
                s, code = ask(lab, "api.test", f"/s/{n}", headers=[lab.bearer()])
                assert (s, code) in ((200, None), (503, "audit_unavailable")), (s, code)
                codes.setdefault(code, time.monotonic() - start)
                assert time.monotonic() - start < 5, "not refused"
            assert codes["audit_unavailable"] >= 0.4, "limits.event_lag"
            seen = len(lab.api.requests)
            for _ in range(20):
                n += 1
                assert ask(lab, "api.test", f"/s/{n}", headers=[lab.bearer()]) == (503, "audit_unavailable")
            assert len(lab.api.requests) == seen, "a request left"
            m = lab.get("api.test", f"/s/{n + 1}", headers=[lab.bearer()])
            assert m.get("retry-after"), m
            n += 1
        finally:
            L.kill(pid, signal.SIGCONT)
        must_work(lab, "service by itself", 2)
        books = Books(lab)
        books.seen_are_opened([m.target for m in lab.api.requests])
        for i in range(1, n + 1):
            books.close_of(f"/s/{i}")
        assert F.pid_of(lab, "logger") == pid
        verify(lab)
    finally:
        lab.close()


class Tmpfs:
    """state/audit on a file system of its own, so small that it fills."""

    def __init__(self, lab, size):
        if os.geteuid():
            raise Skip("needs root: mount")
        self.at = lab.path("state", "audit")
        st = os.stat(self.at)
        r = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode={st.st_mode & 0o7777:o},uid={st.st_uid},gid={st.st_gid}", "tmpfs", self.at],
                           capture_output=True, text=True)
        if r.returncode:
            raise Skip("mount: " + r.stderr.strip())

    def grow(self, size):
        subprocess.run(["mount", "-o", f"remount,size={size}", self.at], check=True)

    def close(self):
        subprocess.run(["umount", "-l", self.at], check=False)


def disk_full(audit, free):
    lab = L.Lab(workers=1, tail=TAIL + f"audit: {{{audit}}}\n" if audit else TAIL, start=False)
    disk = None
    try:
        lab.start()  # makes the folders
        lab.stop()
        disk = Tmpfs(lab, "3m")
        for name in os.listdir(lab.path("state", "keys", "log")):
            if "anchor" in name or "head" in name:  # the log begins anew on the new file system
                os.unlink(lab.path("state", "keys", "log", name))
        lab.start()
        must_work(lab, "a request before")
        c, n, long = lab.client("api.test"), 0, "x" * 1900
        hold = threading.Event()
        lab.open.reset(lambda conn, origin: (L.read_request(conn), hold.wait(30), conn.send(L.answer(200, "late"))))
        slow = lab.client("open.test")  # one that is open while the disk fills
        slow.write("GET", "/slow")
        lab.event(lambda e: e.get("path") == "/slow", ("open",))
        while True:
            n += 1
            m = c.ask("GET", f"/f/{n}/{long}", [lab.bearer()])
            if m.status != 200:
                break
            assert n < 4000, "3 MiB hold no 4000 such requests"
        assert (m.status, m.code) == (503, "audit_unavailable") and m.get("retry-after"), m
        assert n > 100
        seen = len(lab.api.requests)
        for i in range(20):
            assert ask(lab, "api.test", f"/full/{i}", headers=[lab.bearer()]) == (503, "audit_unavailable")
        assert len(lab.api.requests) == seen
        assert F.status(lab)["audit"]["blocked"] is True
        hold.set()  # what was open ends, and its close has its room, on the disk or until there is some
        assert L.read_response(slow).body == b"late"
        free(disk)
        must_work(lab, "service by itself", 2)
        assert lab.event(lambda e: e.get("path") == "/slow", ("close",))["end"] == "ok"
        books = Books(lab)
        books.seen_are_opened([m.target for m in lab.api.requests if not m.target.startswith("/f/")])
        assert len([p for p in books.open_paths if p.startswith("/f/")]) == n - 1
        for i in range(20):
            books.close_of(f"/full/{i}")
        lab.event(lambda e: e.get("what") == "audit_resumed", ("lifecycle",))
        verify(lab)
        lab.stop()
        verify(lab)
        lab.start()
        must_work(lab, "a request after a restart")
        verify(lab)
    finally:
        try:
            lab.close()
        finally:
            if disk:
                disk.close()
                L.shutil.rmtree(lab.dir, ignore_errors=True)


def test_disk_full():
    disk_full("", lambda disk: disk.grow("16m"))


def test_disk_full_small_segments_sync_always():
    disk_full("segment_bytes: 1MiB, sync: always", lambda disk: disk.grow("16m"))


if __name__ == "__main__":
    L.main()
