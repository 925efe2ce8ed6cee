#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every outside-sized thing has a cap: time for a head, connections, bytes, descriptors; memory stays flat under idle connections.
ARCHITECTURE: promises 4 and 7; THREATS: K1, K2, K11."""
import os
import resource
import socket
import subprocess
import sys
import time

import faults as F
import lab as L
from faults import FULL, ask, must_work
from lab import Skip, wait_for

LIMITS = "limits: {head_timeout: 400ms, first_byte_timeout: 600ms, handshake_timeout: 700ms, head_bytes: 4096, header_fields: 20, body_bytes: 1000, connections_per_agent: 40, pool_idle_timeout: 300ms}\n"


def make_lab():
    return L.Lab(workers=1, tail=LIMITS)


def ends_in(c, least, most, start=None):
    """The peer closes, within these seconds of `start`; what it said before."""
    start = start or time.monotonic()
    got, _ = c.rest()
    took = time.monotonic() - start
    assert least <= took <= most, f"{took:.2f} s, wanted {least} to {most}"
    return got


# ---------------------------------------------------------------- time


def test_slow_head(lab):
    """A head that never ends costs limits.head_timeout, however many bytes trickle in; the same head in time passes."""
    for open_it in (lambda: lab.proxy(), lambda: lab.client("open.test")):
        c = open_it()
        c.send(b"GET / HTTP/1.1\r\nHost: open.test\r\n")
        start, ended = time.monotonic(), False
        try:
            while time.monotonic() - start < 3:
                c.send(b"X-A: b\r\n")
                if not c.silent_for(0.05):
                    ended = True
                    break
        except (OSError, L.ssl.SSLError):
            ended = True
        took = time.monotonic() - start
        assert ended and 0.3 <= took < 1.5, took
        c.close()
    c = lab.client("open.test")
    c.send(b"GET /slowly HTTP/1.1\r\nHost: open.test:%d\r\nX-A: b\r\n\r\n" % lab.tls_port, cuts=[5, 20, 35])
    assert L.read_response(c).status == 200


def test_silence(lab):
    """No first byte, no ClientHello, half a ClientHello."""
    start = time.monotonic()
    silent = lab.proxy()
    tunnel = lab.client("open.test", tls=False)
    half = lab.client("open.test", tls=False)
    half.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    assert ends_in(silent, 0.4, 2, start) == b""
    ends_in(tunnel, 0.4, 2, start)
    ends_in(half, 0.5, 2, start)
    for c in (silent, tunnel, half):
        c.close()


def test_slow_body_is_no_slow_head(lab):
    """A body may take its time."""
    c = lab.client("open.test")
    c.send(b"POST /body HTTP/1.1\r\nHost: open.test:%d\r\nContent-Length: 3\r\n\r\na" % lab.tls_port)
    assert c.silent_for(0.8)
    c.send(b"bc")
    assert L.read_response(c).status == 200 and lab.open.last.body == b"abc"


# ---------------------------------------------------------------- sizes


def test_body(lab):
    """By its length before anything is sent; chunked, the byte over the limit never leaves."""
    assert ask(lab, method="POST", body=b"x" * 1000) == (200, None)
    n = len(lab.open.requests)
    assert ask(lab, method="POST", body=b"x" * 1001) == (413, "too_large")
    assert len(lab.open.requests) == n
    for sizes, want in (([500, 500], 200), ([500, 501], 413)):
        lab.open.reset()
        c = lab.client("open.test")
        c.send(b"POST /chunked HTTP/1.1\r\nHost: open.test:%d\r\nTransfer-Encoding: chunked\r\n\r\n" % lab.tls_port)
        for s in sizes:
            c.send(b"%x\r\n%s\r\n" % (s, b"x" * s))
        c.send(b"0\r\n\r\n")
        assert L.read_response(c).status == want
        assert sum(bytes(x.received).count(b"x") for x in lab.open.conns) <= 1000 + 20  # chunk sizes and headers have none but "Transfer"
        c.close()


def test_head(lab):
    for name, kw, want in (("long", dict(headers=[("X-A", "a" * 3700)]), 200), ("too long", dict(headers=[("X-A", "a" * 4096)]), 431),
                           ("many", dict(headers=[("X", "1")] * 18), 200), ("too many", dict(headers=[("X", "1")] * 20), 431)):
        lab.open.reset()
        s, code = ask(lab, **kw)
        assert s == want and (code == "head_too_large" if want == 431 else code is None), (name, s, code)
        assert len(lab.open.requests) == (want == 200)


def test_connections(lab):
    """The one over the limit is answered; when one goes, the next is welcome. Other agents are not meant."""
    held = [lab.client("open.test", tls=False) for _ in range(40)]
    try:
        m = lab.client("open.test", tls=False, refused_ok=True).connected
        assert (m.status, m.code) == (429, "rate_limited") and m.get("retry-after"), m
    finally:
        for c in held:
            c.close()
    wait_for(lambda: ask(lab)[0] == 200, "a place")


# ---------------------------------------------------------------- many


def more_files(n):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < n:
        if hard < n:
            raise Skip(f"needs {n} descriptors, the limit is {hard}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (n, hard))


def idle_connections(n, tls):
    more_files(n * 2 + 500)
    lab = L.Lab(workers=1, tail="limits: {first_byte_timeout: 120s}\n")
    try:
        for _ in range(5):
            assert lab.get("open.test").status == 200
        pid = F.pid_of(lab, "worker")
        fds, before = F.descriptors(pid), F.rss_kib(pid)
        held, marks = [], []

        def more(k):
            for _ in range(k):
                c = lab.client("open.test", tls=tls)
                if tls:
                    assert c.ask().status == 200
                held.append(c)
            marks.append((len(held), F.rss_kib(pid)))

        more(n // 3)
        more(n // 3)
        more(n - len(held))
        each = (marks[-1][1] - before) / n
        print(f"      {n} idle {'TLS connections' if tls else 'tunnels'}: {each:.1f} KiB each in the worker", flush=True)
        assert F.sanitized() or each < (60 if tls else 8), each
        late = (marks[2][1] - marks[1][1]) / (n / 3)
        assert late < each * 1.5 + 1, f"the last third costs {late:.1f} KiB each, all {each:.1f}"
        assert lab.get("open.test").status == 200
        for c in held:
            c.sock.close()
        wait_for(lambda: F.descriptors(pid) <= fds, f"descriptors of before ({fds})", 20)
        assert lab.get("open.test").status == 200
    finally:
        lab.close()


def test_idle_tunnels():
    idle_connections(3000, False)


def test_idle_tls_connections():
    idle_connections(3000 if FULL else 300, True)


# ---------------------------------------------------------------- no descriptors left


def soft_limit(pid, n):
    """Sets it (None: does not); the one before. As the process's own user, who may."""
    uid = int(F.field(pid, "Uid")[0])
    code = f"""import os, resource
if os.geteuid() != {uid}: os.setgroups([]); os.setgid({uid}); os.setuid({uid})
soft, hard = resource.prlimit({pid}, resource.RLIMIT_NOFILE)
if {n!r} is not None: resource.prlimit({pid}, resource.RLIMIT_NOFILE, ({n!r}, hard))
print(soft)"""
    r = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=10)
    if r.returncode:
        raise Skip("the limit of another process: " + r.stderr.strip().splitlines()[-1])
    return int(r.stdout)


def test_no_descriptors_left():
    """The worker cannot accept: whoever said nothing makes room, without spinning, and it goes on with everything it had."""
    lab = L.Lab(workers=1, tail="limits: {pool_idle_timeout: 300ms}\n")
    try:
        must_work(lab, "a request before")
        pid = F.pid_of(lab, "worker")
        kept = lab.client("open.test")
        assert kept.ask().status == 200
        usual = soft_limit(pid, F.descriptors(pid) + 10)
        held = [socket.create_connection(("127.0.0.1", lab.port)) for _ in range(60)]
        wait_for(lambda: b"short of descriptors" in lab.log_bytes(), "the worker notices")
        cpu, start = F.cpu_seconds(pid), time.monotonic()
        wait_for(lambda: time.monotonic() - start > 1.5, "time to spin in", 5)
        assert F.cpu_seconds(pid) - cpu < 0.3, "it spins"
        assert lab.log_bytes().count(b"short of descriptors") < 10, "it floods its output"
        m = kept.ask(target="/needs-a-dial", headers=[])  # no descriptor for the origin either, unless one is pooled
        assert m.status in (200, 502), m
        for s in held:
            s.close()
        wait_for(lambda: ask(lab)[0] == 200, "service by itself, also with new connections to origins", 5)
        must_work(lab, "a swapped request")
        assert kept.ask().status == 200
        assert F.pid_of(lab, "worker") == pid
        kept.close()
        F.verify(lab)
    finally:
        lab.close()


def test_dial_without_a_descriptor():
    """The origin's connection comes from the resolver as a descriptor. When there is no room for it, that request fails, and no more."""
    lab = L.Lab(workers=1, tail="limits: {pool_idle_timeout: 100ms}\n")
    try:
        must_work(lab, "a request before", swapped=False)
        pid = F.pid_of(lab, "worker")
        kept = lab.client("open.test")
        lab.event(lambda e: e.get("end") == "ok")
        usual = soft_limit(pid, None)
        lab.open.reset()  # nothing is pooled
        wait_for(lambda: not lab.open.conns, "no connection")
        base = F.settled_descriptors(pid)
        soft_limit(pid, base)
        for i in range(3):
            m = kept.ask(target=f"/{i}")
            assert (m.status, m.code) == (502, "origin_connect"), m
        soft_limit(pid, usual)
        wait_for(lambda: kept.ask().status == 200, "service by itself", 5)
        assert F.pid_of(lab, "worker") == pid and F.descriptors(pid) <= base + 1
        kept.close()
    finally:
        lab.close()


def test_room_is_kept_for_origins():
    """Idle clients do not take the last descriptors: those who are served still reach their origins."""
    lab = L.Lab(workers=1, start=False, tail="limits: {pool_idle_timeout: 100ms}\n")
    exe, L.EXE = L.EXE, lab.path("few-files")
    try:
        with open(L.EXE, "w") as f:
            f.write(f'#!/bin/sh\nulimit -n 400\nexec "{exe}" "$@"\n')
        os.chmod(L.EXE, 0o755)
        lab.start()
        must_work(lab, "a request before", swapped=False)
        served = [lab.client("open.test") for _ in range(20)]
        lab.open.reset(L.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na", close=False))  # a connection for each
        held = [socket.create_connection(("127.0.0.1", lab.port)) for _ in range(500)]
        wait_for(lambda: b"short of descriptors" in lab.log_bytes(), "all the clients that may be")
        for i, c in enumerate(served):
            c.write(target=f"/{i}")
            m = L.read_head(c)
            assert m.status == 200, (i, m)
        for s in [*held, *served]:
            s.close()
        lab.open.reset()
        wait_for(lambda: ask(lab)[0] == 200, "service for new ones", 5)
    finally:
        L.EXE = exe
        lab.close()


if __name__ == "__main__":
    L.main()
