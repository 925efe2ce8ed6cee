#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Floods: while one agent does its worst, another agent's requests are answered in time; afterwards memory and descriptors are back.
THREATS: K1 to K11, I3.

After a flood every role may hold FIRST_KIB more than before: caches are full (the lab's are small) and the allocator keeps part of its
peak. With OUTGATE_TEST_FULL each flood comes twice, and the second, which finds all of that in place, may add SECOND_KIB (the peaks are
hundreds of MiB, and which part of one is kept is chance): what a flood leaks, it leaks each time. Descriptors must be back to what they were but for two (an origin's connection in the pool, one that is being
closed)."""
import contextlib
import os
import socket
import ssl
import struct
import threading
import time

import faults as F
import lab as L
from faults import FULL
from lab import Closed, Refused, wait_for

FIRST_KIB, SECOND_KIB, SPARE_FDS = 24 * 1024, 16 * 1024, 2
DEADLINE = 10.0 if F.sanitized() else 4.0  # for each of the victim's requests; they take milliseconds on an idle machine
ATTACKER = "127.0.0.66"
LIMITS = """limits: {connections_per_agent: 400, head_timeout: 1s, first_byte_timeout: 3s, handshake_timeout: 2s, pool_idle_timeout: 300ms,
  leaf_cache: 64, session_cache: 64, dns_cache: 64, leaf_rate: 10, lease_rate: 10, dials: 64, connect_timeout: 3s}
"""
FLOODS = (("the first flood", FIRST_KIB), ("the second flood", SECOND_KIB))


def size(small, full):
    return full if FULL else small


def flood_lab(upstream=None, files=None, tail=LIMITS, hosts=()):
    """coder (the victim) at 127.0.0.1, mallory at ATTACKER, nobody elsewhere. files: the roles' limit of descriptors."""
    tail += 'exfiltration: {exempt: ["*.wild.test"]}\n'  # the victim's names are new ones as well, by the hundred
    lab = L.Lab(workers=1, start=False, tail=tail, hosts={"hole.test": "127.0.0.12", **dict(hosts)}, agents=f"""  - {{name: coder, identify: [{{source: 127.0.0.1/32}}]}}
  - {{name: mallory, identify: [{{source: {ATTACKER}/32}}]}}
""", rules="""  - {name: hole, hosts: [hole.test], ports: [PORT], action: allow}
  - {name: wild-plain, hosts: ["*.wild.test"], ports: [PLAINPORT], schemes: [http], action: allow}
""", credentials="""  - name: wild
    agents: [coder, mallory]
    hosts: ["*.wild.test"]
    ports: [PORT]
    slots: ["header:authorization"]
    env: WILD_TOKEN
    source: {file: REAL2}
""")
    exe = L.EXE
    if upstream:
        config = lab.config
        lab.config = lambda: config().replace('"127.0.0.1:1"', f'"{upstream}"')
    if files:
        L.EXE = lab.path("few-files")
        with open(L.EXE, "w") as f:
            f.write(f'#!/bin/sh\nulimit -n {files}\nexec "{exe}" "$@"\n')
        os.chmod(L.EXE, 0o755)
    try:
        lab.patched()
    finally:
        L.EXE = exe
    return lab


class Victim:
    """Asks again and again, on connections of its own, with a placeholder; each answer must be a 200 within DEADLINE."""

    def __init__(self, lab, ask=None, pause=0.02):
        self.lab, self.ask, self.pause, self.n, self.bad = lab, ask or self.swapped, pause, 0, []
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def swapped(self, n):
        c = self.lab.client("api.test", timeout=DEADLINE)
        try:
            return c.ask("GET", f"/victim/{n}", [self.lab.bearer()])
        finally:
            c.close(notify=False)

    def run(self):
        while not self.stopping.is_set():
            start, what = time.monotonic(), None
            try:
                m = self.ask(self.n)
                if m.status != 200:
                    what = repr(m)[:300]
            except Refused as e:
                what = repr(e.message)[:300]
            except (Closed, OSError, ValueError) as e:
                what = repr(e)[:300]
            took = time.monotonic() - start
            self.n += 1
            if what or took > DEADLINE:
                self.bad.append((self.n, round(took, 2), what))
            self.stopping.wait(self.pause)

    def end(self, least=5):
        """It goes on until it has asked often enough."""
        wait_for(lambda: self.n >= least or self.bad, "the victim's requests", least * DEADLINE)
        self.stopping.set()
        self.thread.join(3 * DEADLINE)
        assert not self.thread.is_alive() and not self.bad, f"{len(self.bad)} of {self.n} requests: {self.bad[:3]}"


def measured(lab):
    return {k: (F.rss_kib(r["pid"]), F.descriptors(r["pid"])) for k, r in F.roles(lab).items()}


def back(lab, before, kib, which):
    pids = {k: r["pid"] for k, r in F.roles(lab).items()}
    wait_for(lambda: all(F.descriptors(p) <= before[k][1] + SPARE_FDS for k, p in pids.items()), f"{which}: the descriptors of before ({before})", 15)

    def grown():
        return {k: n[0] - before[k][0] for k, n in measured(lab).items() if n[0] - before[k][0] > kib}

    # What the allocator keeps is given back by the second. A sanitizer keeps what was freed.
    wait_for(lambda: F.sanitized() or not grown(), lambda: f"{which}: the memory of before; KiB more: {grown()}", 15)


def withstands(lab, attack, ask=None, pause=0.02, least=5, settles=True, more_kib=0):
    """attack(hold): makes its connections, and appends those to close to `hold`; what it returns last is returned."""
    for _ in range(10):
        assert F.works(lab)
    pids = {k: r["pid"] for k, r in F.roles(lab).items()}
    before = measured(lab)
    for which, kib in FLOODS if FULL else FLOODS[:1]:
        hold, victim = [], Victim(lab, ask, pause)
        try:
            result = attack(hold)
            victim.end(least)
        finally:
            victim.stopping.set()
            for s in hold:
                s.close()
        lab.fresh()
        if settles:
            back(lab, before, kib + more_kib, which)
        before = {k: (n[0], before[k][1]) for k, n in measured(lab).items()}
    assert {k: r["pid"] for k, r in F.roles(lab).items()} == pids, "a role ended"
    F.must_work(lab, "a request after it", DEADLINE)
    return result


def make_lab():
    return flood_lab()


def raw(lab, data=b"", source=ATTACKER, rcvbuf=None):
    s = socket.socket()
    s.settimeout(L.WAIT)
    if rcvbuf:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
    s.bind((source, 0))
    s.connect(("127.0.0.1", lab.port))
    if data:
        s.sendall(data)
    return s


def connect(lab, name="open.test"):
    return f"CONNECT {name}:{lab.tls_port} HTTP/1.1\r\nHost: {name}:{lab.tls_port}\r\n\r\n".encode()


def tunnel(lab, name="open.test", **kw):
    """As the attacker. None when it was refused."""
    try:
        return lab.client(name, source=ATTACKER, **kw)
    except (Refused, Closed, OSError):
        return None


def drip(socks, data, seconds):
    """A byte to each, again and again."""
    end, i = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        for s in socks:
            try:
                s.send(data[i % len(data) : i % len(data) + 1])
            except OSError:
                pass
        i += 1
        time.sleep(0.05)


# ---------------------------------------------------------------- slow ones


def slow_heads(lab, hold):
    """K1: a byte at a time."""
    socks = [raw(lab, b"CONNECT open.test:443 HTTP/1.1\r\nX: ") for _ in range(size(60, 3000))]
    hold += socks
    drip(socks, b"y", size(1, 5))


def slow_hellos(lab, hold):
    """Tunnels whose ClientHello never ends."""
    socks = []
    for _ in range(size(60, 390)):
        s = raw(lab, connect(lab))
        assert b" 200 " in s.recv(1000)
        s.sendall(b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03")
        socks.append(s)
    hold += socks
    drip(socks, b"\0", size(1, 5))


def plain(lab, path, method="GET", more=""):
    return f"{method} http://plain.test:{lab.http_port}{path} HTTP/1.1\r\nHost: plain.test:{lab.http_port}\r\n{more}\r\n".encode()


def slow_bodies(lab, hold):
    socks = [raw(lab, plain(lab, "/slow", "POST", "Content-Length: 100000\r\n")) for _ in range(size(60, 390))]
    hold += socks
    drip(socks, b"z", size(1, 5))


def slow_readers(lab, hold):
    """A big answer that nobody takes: what waits for one client is bounded."""
    pid, n = F.pid_of(lab, "worker"), size(40, 200)
    base, mine = F.rss_kib(pid), []

    def again():
        """Those that were refused meanwhile, because of dials in progress there is a limit, ask once more."""
        for k, s in enumerate(mine):
            with contextlib.suppress(BlockingIOError):
                if s.recv(10, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b"HTTP/1.1 4":
                    s.close()
                    mine[k] = raw(lab, plain(lab, "/big"), rcvbuf=4096)

    for i in range(n):
        mine.append(raw(lab, plain(lab, "/big"), rcvbuf=4096))
        if i % 20 == 19:  # the origin is slow to accept meanwhile
            wait_for(lambda: again() or sum(m.target == "/big" for m in lab.plain.requests) > i, "every request at the origin", 30)
    hold += mine
    time.sleep(1)  # time to read in as much as it will
    each = (F.rss_kib(pid) - base) // n
    assert F.sanitized() or each < 512, f"{each} KiB for each"


def pipelined(lab, hold):
    """Requests by the thousand on each connection, and nobody reads the answers."""
    one, socks = plain(lab, "/p") * size(200, 5000), []
    for _ in range(size(20, 100)):
        s = raw(lab, rcvbuf=4096)
        s.setblocking(False)
        socks.append(s)
    hold += socks
    end = time.monotonic() + size(1, 10)
    while time.monotonic() < end:
        for s in socks:
            with contextlib.suppress(OSError):
                s.send(one)
        time.sleep(0.02)


def never_answered(lab, hold):
    for _ in range(size(60, 390)):
        hold.append(raw(lab, plain(lab, "/never")))
    time.sleep(0.5)


def by_path(conn, origin):
    part = b"x" * 65536
    while True:
        m = L.read_request(conn)
        origin.requests.append(m)
        if m.target == "/never":
            conn.rest()
            return
        if m.target == "/big":
            conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (1 << 30))
            while True:
                conn.send(part)
        conn.send(L.answer(200, "ok"))


SLOW = (slow_heads, slow_hellos, slow_bodies, slow_readers, pipelined, never_answered)


def test_slow_ones(lab):
    """All at once; with OUTGATE_TEST_FULL each alone and at its full size."""
    for ones in ([[f] for f in SLOW] if FULL else [SLOW]):
        failed = []

        def run(f, hold):
            try:
                f(lab, hold)
            except BaseException as e:
                failed.append((f.__name__, repr(e)))

        def attack(hold):
            lab.plain.reset(by_path)
            threads = [threading.Thread(target=run, args=(f, hold)) for f in ones]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            assert not failed, failed

        withstands(lab, attack)


def hole(lab):
    """An address whose connections are never made: its queue is full."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((lab.hosts["hole.test"], lab.tls_port))
    s.listen(0)
    held = [s]
    for _ in range(4):
        c = socket.socket()
        c.setblocking(False)
        c.connect_ex(s.getsockname())
        held.append(c)
    return held


def test_dials_that_never_end(lab):
    """More dials than limits.dials (64), to where no connection is made: the victim's, each to an origin not in the pool, still are."""
    held = hole(lab)

    def fresh(n):
        c = lab.client("open.test", timeout=DEADLINE)
        try:
            return c.ask("GET", f"/fresh/{n}", [("Connection", "close")])
        finally:
            c.close(notify=False)

    def attack(hold):
        for _ in range(size(90, 390)):
            c = tunnel(lab, "hole.test")
            c.write("GET", "/")
            hold.append(c)
        time.sleep(0.5)

    try:
        lab.open.reset(L.say(L.answer(200, "ok")))
        withstands(lab, attack, fresh)
    finally:
        for s in held:
            s.close()


# ---------------------------------------------------------------- many


def test_connections_over_the_limit(lab):
    """limits.connections_per_agent (400) counts mallory's alone."""

    def attack(hold):
        refused = 0
        for _ in range(size(450, 2000)):
            s = raw(lab, connect(lab))
            refused += b" 429 " in s.recv(1000)
            hold.append(s)
        return refused

    assert withstands(lab, attack) >= 50


def test_connections_that_come_and_go(lab):
    def attack(hold):
        for i in range(size(500, 20000)):
            s = raw(lab, (b"", b"GET", connect(lab))[i % 3])
            if i % 2:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.close()

    withstands(lab, attack)


def silent(lab, hold, source=ATTACKER):
    """K2: more than the worker has descriptors, from one address, and they say nothing: the oldest of them go."""
    for _ in range(size(300, 1000)):
        hold.append(raw(lab, source=source))
    time.sleep(0.3)


def silent_ones_of_nobody(lab, hold):
    """The same from where no agent is."""
    silent(lab, hold, "127.0.0.77")


def idle_tunnels(lab, hold):
    """Of an agent that is known: it has its share, and the rest is refused with an answer."""
    answers = set()
    for _ in range(size(200, 1000)):
        s = raw(lab, connect(lab))
        answers.add(s.recv(1000)[9:12])
        hold.append(s)
    assert answers == {b"200", b"429"}, answers


def requests_that_hang(lab, hold):
    """Each with an origin's connection: both ends count."""
    lab.plain.reset(by_path)
    for _ in range(size(200, 600)):
        hold.append(raw(lab, plain(lab, "/never")))
    time.sleep(0.3)


def test_over_the_descriptors():
    """More connections than the worker has descriptors (256): the victim still gets in, and to its origin."""
    lab = flood_lab(files=256, tail="limits: {pool_idle_timeout: 300ms}\n")
    try:
        for attack in (silent, silent_ones_of_nobody, idle_tunnels, requests_that_hang):
            withstands(lab, lambda hold: attack(lab, hold))
        assert b"short of descriptors" in lab.log_bytes()
        gone = [e for e in lab.events("conn") if e.get("code") == "rate_limited"]
        assert gone and not [e for e in gone if e.get("client") == "127.0.0.1" or e.get("agent") == "coder"], "none of the victim's was closed"
    finally:
        lab.close()


def test_idle_origins_over_the_descriptors():
    """One connection that asks a new host each time leaves an idle origin connection behind for each: they make room. The victim stays on
    a connection that it had before, so that nothing is accepted meanwhile."""
    names = [f"p{i}.wild.test" for i in range(170)]
    lab = flood_lab(files=160, tail="limits: {pool_idle_timeout: 60s}\n", hosts=[(n, "127.0.0.4") for n in names])
    lab.open.reset(L.say(L.answer(200, "ok")))  # a connection for each request
    kept = lab.client("open.test", timeout=DEADLINE)
    pid = F.pid_of(lab, "worker")
    try:
        s, most = L.Conn(raw(lab)), 0
        for i, name in enumerate(names):
            s.send(f"GET http://{name}:{lab.http_port}/ HTTP/1.1\r\nHost: {name}:{lab.http_port}\r\n\r\n".encode())
            m = L.read_response(s)
            assert m.status == 200, (i, m)
            most = max(most, F.descriptors(pid))
            if i % 10 == 0:
                m = kept.ask("GET", f"/victim/{i}")
                assert m.status == 200, (i, m)
        assert 60 < most < 130, most
        s.close()
        kept.close()
    finally:
        lab.close()


# ---------------------------------------------------------------- names


def fresh_leaf(lab, seen):
    """A name that never was: a leaf for it, and a request that ends at the look-up (which is not what is tried)."""

    def ask(n):
        c = lab.client(f"v{len(seen)}.wild.test", timeout=DEADLINE)
        seen.append(n)
        c.close(notify=False)
        return c.connected

    return ask


def test_names_never_seen_allowed(lab):
    """K11: leaves are signed at a limited rate (limits.leaf_rate, 10 here, a hundred at once); another agent's new names still get theirs."""
    made = [0]

    def attack(hold):
        for i in range(size(130, 50000)):
            made[0] += 1
            c = tunnel(lab, f"m{made[0]}.wild.test", timeout=DEADLINE)
            if c:
                c.close(notify=False)

    withstands(lab, attack, fresh_leaf(lab, []), 0.15 if not FULL else 0.35)  # for longer than the burst: less than its share of ten a second


def test_names_never_seen_denied(lab):
    """I3: the refusals move to CONNECT."""
    made, inside = [0], [0]

    def attack(hold):
        for i in range(size(300, 50000)):
            made[0] += 1
            s = raw(lab, connect(lab, f"m{made[0]}.evil.test"))
            inside[0] += b" 200 " in s.recv(1000)
            s.close()

    withstands(lab, attack)
    assert inside[0] < 60 + made[0] / 50, inside


def test_names_with_a_placeholder(lab):
    """A lease for each name (limits.lease_rate, 10 here): another agent's still come."""
    made = [0]
    token = {}
    for agent in ("coder", "mallory"):
        r = lab.run("env", "-c", lab.path("outgate.yaml"), "--agent", agent, "--format", "json")
        token[agent] = L.json.loads(r.stdout)["WILD_TOKEN"]

    def lease_of(c, agent, host):
        """Whether the lease came: without one the code is another than the look-up's."""
        m = c.ask("GET", "/", [("Authorization", "Bearer " + token[agent])])
        c.close(notify=False)
        return m

    def fresh(n):
        fresh.n += 1
        c = lab.proxy(timeout=DEADLINE)
        c.send(connect(lab, f"l{fresh.n}.wild.test"))
        L.read_response(c, "CONNECT")
        c.start_tls(lab.client_context(), name=f"l{fresh.n}.wild.test")
        c.name, c.to_port = f"l{fresh.n}.wild.test", str(lab.tls_port)
        m = lease_of(c, "coder", c.name)
        assert m.code in ("origin_dns", "rate_limited"), m
        if m.code == "origin_dns":
            m.line = "HTTP/1.1 200 the lease was there"
        return m

    fresh.n = 0

    def attack(hold):
        codes = set()
        for i in range(size(120, 2000)):
            made[0] += 1
            c = tunnel(lab, f"m{made[0]}.wild.test", timeout=DEADLINE)
            if c:
                codes.add(lease_of(c, "mallory", c.name).code)
        return codes

    # A name costs the victim two of the ten a second (its lease, and the values to scrub): however long this takes, it stays below its half.
    withstands(lab, attack, fresh, 0.15 if not FULL else 0.8)


class Dns:
    """A server that answers A for names of the victim, and nothing to the others'."""

    def __init__(self):
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self.sock.bind(("127.0.0.1", 0))
        self.at = "127.0.0.1:%d" % self.sock.getsockname()[1]
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                q, peer = self.sock.recvfrom(2000)
            except OSError:
                return
            if not q[13:14].lower() == b"v":
                continue
            end = q.index(b"\0", 12) + 5
            is_a = q[end - 4 : end - 2] == b"\0\1"
            answer = b"\xc0\x0c\0\1\0\1\0\0\0\1\0\4" + socket.inet_aton("127.0.0.3") if is_a else b""
            self.sock.sendto(q[:2] + b"\x81\x80\0\1" + struct.pack(">H", 1 if is_a else 0) + b"\0\0\0\0" + q[12:end] + answer, peer)

    def close(self):
        self.sock.close()


def test_names_whose_server_is_silent():
    """Every look-up of mallory's waits for its last try; the victim's names, never seen either, are looked up meanwhile."""
    dns = Dns()
    lab = flood_lab(dns.at, tail="limits: {leaf_rate: 1000, pool_idle_timeout: 300ms, dns_cache: 64, leaf_cache: 64, connect_timeout: 3s}\n")
    made, seen = [0], [0]

    def fresh(n):
        seen[0] += 1
        c = lab.client(f"v{seen[0]}.wild.test", timeout=DEADLINE)
        try:
            return c.ask("GET", f"/fresh/{n}")
        finally:
            c.close(notify=False)

    def attack(hold):
        for i in range(size(140, 2000)):
            made[0] += 1
            c = tunnel(lab, f"m{made[0]}.wild.test")
            if c:
                c.write("GET", "/")
                hold.append(c)

    try:
        # The questions go on for ten seconds. What is remembered of a host's credentials for a minute may keep a page each.
        withstands(lab, attack, fresh, settles=FULL, more_kib=size(140, 2000) * 4)
    finally:
        lab.close()
        dns.close()


# ---------------------------------------------------------------- refusals


def test_refusals(lab):
    """Refusals by the thousand: the log grows by limits.refusals_per_second lines a second and agent, and says how many there were."""
    n = size(500, 50000)
    one = f"GET http://deny.test:{lab.http_port}/r HTTP/1.1\r\nHost: deny.test:{lab.http_port}\r\n\r\n".encode()

    def attack(hold):
        mark, start = lab.mark(), time.monotonic()
        s, got, tail = raw(lab), 0, b""
        hold.append(s)
        sender = threading.Thread(target=lambda: s.sendall(one * n), daemon=True)
        sender.start()
        while got < n:
            data = tail + s.recv(65536)
            assert len(data) > len(tail), f"closed after {got}"
            got += data.count(b"HTTP/1.1 403 ")
            tail = data[-12:]  # shorter than what is counted
        took = time.monotonic() - start

        def told():
            mine = [e for e in lab.events()[mark:] if e["type"] == "close" and e.get("agent") == "mallory"]
            return len(mine), sum(e.get("count", 1) for e in mine)

        wait_for(lambda: told()[1] >= n, "a count of all refusals")
        lines, counted = told()
        assert counted == n and lines <= 51 * (took + 2), (lines, counted, took)

    withstands(lab, attack)


if __name__ == "__main__":
    L.main()
