#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A role that ends at the worst moment: the logger while the server drains or writes its last lines, the keeper between a change of a
source and the revocation, two reloads at once. PRODUCT: Signals, Reload, Durability, Leases."""
import ctypes
import os
import signal
import socket
import struct
import threading
import time

import faults as F
import lab as L
from lab import Skip, wait_for


class Slow:
    """An origin's handler that answers when it is told to."""

    def __init__(self):
        self.go, self.asked = threading.Event(), threading.Event()

    def __call__(self, conn, origin):
        while True:
            m = L.read_request(conn)
            origin.requests.append(m)
            self.asked.set()
            self.go.wait(L.WAIT)
            conn.send(L.answer(200, "late"))


def gone(pid):
    return not os.path.exists(f"/proc/{pid}") or F.field(pid, "State")[0] == "Z"


def ends(lab):
    proc, lab.proc = lab.proc, None
    assert proc.wait(15) == 0
    return proc


def in_thread(fn):
    out = []
    t = threading.Thread(target=lambda: out.append(fn()))
    t.start()
    return t, out


def test_logger_killed_in_drain():
    """What exchanges write while the server drains is in the log, though the logger died when nothing was restarted any more."""
    lab = L.Lab()
    try:
        slow = Slow()
        lab.api.reset(slow)
        t, out = in_thread(lambda: F.ask(lab, "api.test", "/slow", headers=[lab.bearer()]))
        assert slow.asked.wait(L.WAIT)
        logger = F.pid_of(lab, "logger")
        lab.proc.terminate()
        lab.event(lambda e: e.get("what") == "draining", ("lifecycle",))
        L.kill(logger, signal.SIGKILL)
        wait_for(lambda: gone(logger), "the logger's end")
        slow.go.set()
        t.join(L.WAIT)
        assert out == [(200, None)], out
        ends(lab)
        e = lab.event(lambda e: e.get("path") == "/slow", timeout=0)
        assert e["end"] == "ok" and e["status"] == 200, e
        lab.event(lambda e: e.get("what") == "stopped", ("lifecycle",), timeout=0)
        F.verify(lab)
    finally:
        lab.close()


def test_logger_killed_in_flush():
    """Everybody else is gone; the logger dies with the last records unread in its rings: another reads them."""
    lab = L.Lab()
    try:
        assert F.ask(lab, "api.test", "/before", headers=[lab.bearer()]) == (200, None)
        logger, worker = F.pid_of(lab, "logger"), F.pid_of(lab, "worker")
        L.kill(logger, signal.SIGSTOP)
        assert F.ask(lab, "api.test", "/last", headers=[lab.bearer()]) == (200, None)
        lab.proc.terminate()
        wait_for(lambda: gone(worker), "the worker's end")
        wait_for(lambda: not [p for p in children(lab.proc.pid) if p != logger], "the others' end")
        L.kill(logger, signal.SIGKILL)
        ends(lab)
        assert lab.event(lambda e: e.get("path") == "/last", timeout=0)["end"] == "ok"
        lab.event(lambda e: e.get("what") == "stopped", ("lifecycle",), timeout=0)
        F.verify(lab)
    finally:
        lab.close()


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        return [int(p) for p in f.read().split()]


def test_source_changes_while_the_keeper_dies():
    """The supervisor asked the keeper to revoke, and the keeper died unread: its successor is asked again, and tells the workers,
    which end what uses the old value."""
    lab = L.Lab()
    try:
        slow = Slow()
        lab.api.reset(slow)
        c = lab.client("api.test")
        c.write("GET", "/slow", headers=[lab.bearer()])
        assert slow.asked.wait(L.WAIT)
        assert lab.api.last.get("authorization") == f"Bearer {lab.real}"
        keeper = F.pid_of(lab, "keeper")
        L.kill(keeper, signal.SIGSTOP)
        new = L.secret_value("github, changed")
        lab.secrets.append(new)
        with open(lab.path("real"), "w") as f:
            f.write(new)
        wait_for(lambda: b"its source file changed" in lab.log_bytes(), "that the change is seen")
        L.kill(keeper, signal.SIGKILL)
        wait_for(lambda: F.pid_of(lab, "keeper") not in (0, keeper) and F.all_ready(lab), "another keeper")
        assert lab.event(lambda e: e.get("path") == "/slow", timeout=4)["end"] == "revoked"
        slow.go.set()
        c.close()
        lab.api.reset()
        assert F.ask(lab, "api.test", "/2", headers=[lab.bearer()]) == (200, None)
        assert lab.api.last.get("authorization") == f"Bearer {new}"
    finally:
        lab.close()


def test_who_reloads():
    """Two ask for a reload at once: each event names its own."""
    lab = L.Lab(workers=2)
    try:
        mark, worker = lab.mark(), F.pid_of(lab, "worker", 1)
        L.kill(worker, signal.SIGSTOP)  # the first reload lasts until its deadline
        L.kill(lab.proc.pid, signal.SIGHUP)
        time.sleep(0.2)  # not for a race: the second must come while the first runs, which takes two seconds
        r = F.reload(lab)
        assert r.returncode == 0, r.stderr

        def who():
            return [e["who"] for e in lab.events()[mark:] if e["type"] == "config" and e["who"] != "start"]

        wait_for(lambda: len(who()) >= 2, "both events")
        events = who()
        assert events[0] == "signal HUP" and events[1].startswith("uid "), events
    finally:
        lab.close()


def test_slow_at_every_reload():
    """A worker that is too slow for reload after reload is renewed each time; that is no crash loop, and nobody is turned away."""
    lab = L.Lab(workers=1)
    try:
        for i in range(6 if F.FULL else 5):  # as many deaths would be a crash loop
            worker = F.pid_of(lab, "worker")
            L.kill(worker, signal.SIGSTOP)
            assert F.reload(lab).returncode == 0
            wait_for(lambda: F.pid_of(lab, "worker") not in (0, worker) and F.all_ready(lab), f"another worker ({i})")
        assert b"crash loop" not in lab.log_bytes()
        assert F.ask(lab)[0] == 200
    finally:
        lab.close()


SYS_PIDFD_GETFD, ROLE_FD, MSG_MAGIC, PREPARE, PREPARED = 438, 3, 0x4f47, 17, 66


def channel_of(pid):
    """The role's end of its channel to the supervisor."""
    pidfd = os.pidfd_open(pid)
    fd = ctypes.CDLL(None, use_errno=True).syscall(SYS_PIDFD_GETFD, pidfd, ROLE_FD, 0)
    os.close(pidfd)
    if fd < 0:
        raise Skip("needs the right to look into another process: " + os.strerror(ctypes.get_errno()))
    return socket.socket(fileno=fd)


def say_prepared(ch, good, why=b""):
    """Reads up to the PREPARE, and answers it."""
    ch.settimeout(L.WAIT)
    while True:
        data, fds, _, _ = socket.recv_fds(ch, 1 << 18, 16)
        for fd in fds:
            os.close(fd)
        magic, kind, _, _ = struct.unpack_from("<HHIQ", data)
        assert magic == MSG_MAGIC
        if kind == PREPARE:
            break
    body = struct.pack("<BQI", good, struct.unpack_from("<Q", data, 16)[0], len(why)) + why
    ch.send(struct.pack("<HHIQ", MSG_MAGIC, PREPARED, len(body), 0) + body)


def test_no_role_can_veto():
    """A broken worker says that it cannot use the new snapshot: the others go over to it, and the worker is started anew on it."""
    lab = L.Lab(workers=2)
    try:
        worker, text = F.pid_of(lab, "worker", 1), lab.config()
        assert F.ask(lab)[0] == 200
        with channel_of(worker) as ch:
            L.kill(worker, signal.SIGSTOP)  # we speak in its place
            F.write(lab, text.replace('hosts: [open.test, "*.wild.test"', 'hosts: ["*.wild.test"'))
            L.kill(lab.proc.pid, signal.SIGHUP)
            say_prepared(ch, False, b"no")
        lab.event(lambda e: e.get("what") == "reload" and e["result"] == "ok", ("config",), timeout=1.5)
        wait_for(lambda: F.pid_of(lab, "worker", 1) not in (0, worker) and F.all_ready(lab), "another worker")
        for _ in range(8):
            assert F.ask(lab)[1] == "port_denied"  # a rule for plain HTTP names it still
    finally:
        lab.close()


def test_a_reload_waits_for_the_last_worker():
    """A worker that has prepared and does not go on still listens where a listener was removed: the reload is answered when that is
    over, and the port may be had again at once."""
    lab = L.Lab(workers=2)
    try:
        text, port = lab.config(), L.free_port(["127.0.0.1"])
        with_it = text.replace(f"proxy: [127.0.0.1:{lab.port}]", f"proxy: [127.0.0.1:{lab.port}, 127.0.0.1:{port}]")
        F.write(lab, with_it)
        assert F.reload(lab).returncode == 0
        worker, mark = F.pid_of(lab, "worker", 1), lab.mark()
        with channel_of(worker) as ch:
            L.kill(worker, signal.SIGSTOP)  # we speak in its place
            F.write(lab, text)
            t, out = in_thread(lambda: F.reload(lab).returncode)
            say_prepared(ch, True)
            lab.event(lambda e: e.get("what") == "reload" and e["result"] == "ok", ("config",), after=mark, timeout=1.5)
            t.join(0.3)
            assert not out, "answered while a worker listens there"
        L.kill(worker, signal.SIGKILL)
        t.join(L.WAIT)
        assert out == [0], out
        F.write(lab, with_it)
        r = F.reload(lab)
        assert r.returncode == 0, r.stderr
        assert F.ask(lab)[0] == 200
    finally:
        lab.close()


def test_a_worker_that_never_takes_the_snapshot():
    """It says that it has prepared and does nothing more: it would go on by the old rules, and is started anew on the new ones."""
    lab = L.Lab(workers=2)
    try:
        worker, text = F.pid_of(lab, "worker", 1), lab.config()
        with channel_of(worker) as ch:
            L.kill(worker, signal.SIGSTOP)  # we speak in its place
            F.write(lab, text.replace('hosts: [open.test, "*.wild.test"', 'hosts: ["*.wild.test"'))
            t, out = in_thread(lambda: F.reload(lab).returncode)
            say_prepared(ch, True)
            t.join(L.WAIT)
        assert out == [0], out
        wait_for(lambda: F.pid_of(lab, "worker", 1) not in (0, worker) and F.all_ready(lab), "another worker")
        for _ in range(8):
            assert F.ask(lab)[1] == "port_denied"  # a rule for plain HTTP names it still
    finally:
        lab.close()


def test_retired_worker_hears_of_a_reload():
    """A worker that is no longer wanted still carries a stream: a host denied meanwhile ends it within a second."""
    lab = L.Lab(workers=2)
    try:
        slow, first = Slow(), F.pid_of(lab, "worker", 0)
        lab.open.reset(slow)
        L.kill(first, signal.SIGKILL)  # so that the one that will go gets the connection
        wait_for(lambda: gone(first), "the first worker's end")
        c = lab.client("open.test")
        c.write("GET", "/slow")
        assert slow.asked.wait(L.WAIT)
        wait_for(lambda: F.all_ready(lab), "the first worker's return")
        text = lab.config()
        F.write(lab, text.replace("workers: 2", "workers: 1"))
        assert F.reload(lab).returncode == 0
        F.write(lab, text.replace("workers: 2", "workers: 1").replace('hosts: [open.test, "*.wild.test"', 'hosts: ["*.wild.test"'))
        assert F.reload(lab).returncode == 0
        assert lab.event(lambda e: e.get("path") == "/slow", timeout=4)["end"] == "revoked"
        slow.go.set()
        c.close()
    finally:
        lab.close()


if __name__ == "__main__":
    L.main()
