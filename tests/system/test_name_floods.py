#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""New names from one agent by the hundred thousand a second, over UDP and TCP: denied, answered here, forwarded. No role grows, and another agent is answered as
before. THREATS: J9, J11, K15.

The agents have a listener each, as sandboxes do: questions of one socket share its buffer. What a second of the flood was here is printed."""
import contextlib
import statistics
import subprocess
import sys
import time

import faults as F
from dns_wire import Answer, Client, query
from faults import FULL
from lab import free_port, main, wait_for
from test_dns import SYNTHETIC, dns_port, make

SECONDS, WANTED = (8.0, 100000) if FULL else (0.8, 100000)
FIRST_KIB, SECOND_KIB = 24 * 1024, 8 * 1024  # what a role may keep of a first flood (tables and buffers that are made once), and of a second
PATIENCE = 4.0  # for one answer of the victim's
UNHARMED = 0.5  # the slowest but one in a hundred, where it was milliseconds before; or fifty times what it was, where that is more

# A process of its own. argv: udp or tcp, port, seconds, name behind the part that counts. Says how many it sent; over TCP how many were answered,
# for buffers take in a million more.
SENDER = """
import select, socket, sys, time
way, port, seconds, tail = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
wire = b"".join(bytes([len(p)]) + p.encode() for p in tail.split(".")) + b"\\0\\0\\1\\0\\1"
head, label = b"\\0\\1\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0", b"\\x0d"
n, start = int(time.time() * 1e6) % (1 << 40) << 8, time.monotonic()
first = n
if way == "udp":
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setblocking(False)
    s.connect(("127.0.0.1", port))
    while time.monotonic() - start < seconds:
        for n in range(n, n + 256):
            try:
                s.send(head + label + b"n%012x" % n + wire)
            except OSError:
                pass
        n += 1
else:
    socks = []
    for _ in range(16):
        s = socket.create_connection(("127.0.0.1", port))
        s.setblocking(False)
        socks.append([s, b""])
    size, got, one = (12 + 14 + len(wire)).to_bytes(2, "big"), 0, 0
    while time.monotonic() - start < seconds:
        readable, writable, _ = select.select([s for s, _ in socks], [s for s, _ in socks], [], 1)
        for row in socks:
            s, left = row
            if s in readable:
                data = s.recv(1 << 20)
                one = one or 2 + int.from_bytes(data[:2], "big")
                got += len(data)
            if s in writable:
                if not left:
                    left = b"".join(size + head + label + b"n%012x" % i + wire for i in range(n, n + 256))
                    n += 256
                row[1] = left[s.send(left):]
    first, n = 0, got // one
print(n - first, time.monotonic() - start)
"""

# A name server that has an address for every name. argv: port.
SERVER = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
s.bind(("127.0.0.1", int(sys.argv[1])))
print("listens", flush=True)
while True:
    q, who = s.recvfrom(2048)
    end = q.index(b"\\0", 12) + 5
    v4 = q[end - 4 : end - 2] == b"\\0\\1"
    s.sendto(q[:2] + b"\\x81\\x80\\0\\1\\0" + bytes([v4]) + b"\\0\\0\\0\\0" + q[12:end] + (b"\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\x3c\\0\\4\\x7f\\0\\0\\x32" if v4 else b""), who)
"""


@contextlib.contextmanager
def flooded_lab(resolver, more=""):
    """coder and mallory, each at a port of their own; a name server, if it is asked."""
    at, mine = free_port(["127.0.0.1"]), dns_port()
    server = subprocess.Popen([sys.executable, "-c", SERVER, str(at)], stdout=subprocess.PIPE)
    try:
        assert server.stdout.readline() == b"listens\n"
        agents = "".join(f'  - {{name: {name}, identify: [{{listener: "127.0.0.1:{port}"}}]}}\n' for name, port in (("coder", mine), ("mallory", dns_port())))
        other = int(agents.rsplit(":", 1)[1].split('"')[0])
        with make(resolver=resolver, listen=f'  dns: ["127.0.0.1:{mine}", "127.0.0.1:{other}"]', agents=agents, upstreams=f"127.0.0.1:{at}",
                  rules='  - {name: up, hosts: ["*.up.test"], action: allow}', tail="limits: {dns_rate: 10000000, dns_cache: 1024}\n" + more) as lab:
            lab.victim, lab.attacked = Client(mine, timeout=PATIENCE), other
            yield lab
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


def ask_until(lab, done, pause=0.004):
    """How long each of the victim's questions took; one that is lost is asked again after a second, as a client would."""
    took = []
    with contextlib.closing(lab.victim.udp()) as s:
        s.settimeout(1)
        while not done() or len(took) < 50:
            start, ident = time.monotonic(), len(took) + 1
            while True:
                s.send(query("www.up.test", ident=ident))
                with contextlib.suppress(TimeoutError):
                    a = Answer(s.recv(4096))
                    while a.ident != ident:
                        a = Answer(s.recv(4096))
                    break
                assert time.monotonic() - start < PATIENCE, f"no answer for {PATIENCE} s"
            assert a.code == "NOERROR" and a.addresses, a
            took.append(time.monotonic() - start)
            time.sleep(pause)
    return took


def p99(took):
    return statistics.quantiles(took, n=100)[98]


def flood(lab, way, tail):
    """Returns what the victim's questions took, and how many names a second were sent, over TCP answered."""
    with subprocess.Popen([sys.executable, "-c", SENDER, way, str(lab.attacked), str(SECONDS), tail], stdout=subprocess.PIPE, text=True) as p:
        took = ask_until(lab, lambda: p.poll() is not None)
        sent, seconds = p.stdout.read().split()
    assert p.returncode == 0
    return took, int(sent) / float(seconds)


def measured(lab):
    return {k: (F.rss_kib(r["pid"]), r["pid"]) for k, r in F.roles(lab).items()}


def withstands(what, resolver, tail, more="", check=None):
    for way in ("udp", "tcp"):
        with flooded_lab(resolver, more) as lab:
            quiet = ask_until(lab, lambda: True)
            before, slow = measured(lab), []
            for kib in (FIRST_KIB, SECOND_KIB):
                took, rate = flood(lab, way, tail)
                slow += took
                wait_for(lambda: F.sanitized() or all(now[0] - before[k][0] <= kib for k, now in measured(lab).items()), lambda: (what, way, before, measured(lab)), 15)
                after = measured(lab)
                assert {k: v[1] for k, v in after.items()} == {k: v[1] for k, v in before.items()}, "a role ended"
                before = after
            few = "" if rate >= WANTED else f" ({WANTED} were not reached here)"
            print(f"      {what}, {way}: {rate:.0f} names a second{few}; p99 {p99(quiet) * 1000:.1f} ms before, {p99(slow) * 1000:.1f} ms meanwhile", flush=True)
            assert F.sanitized() or p99(slow) <= max(UNHARMED, 50 * p99(quiet)), (what, way, p99(quiet), p99(slow))
            if check:
                check(lab)


def events_of_mallory(lab):
    return [e for e in lab.events("dns") if e.get("agent") == "mallory"]


def test_denied():
    def check(lab):
        e = events_of_mallory(lab)
        assert e and all(x["verdict"] == "deny" for x in e) and sum(x.get("count", 1) for x in e) > 100

    withstands("denied names", SYNTHETIC, "flood-zone.org", check=check)


def test_synthetic():
    """Names that a wildcard lets through and that are answered here."""
    withstands("allowed names, answered here", SYNTHETIC, "up.test")


def test_forwarded():
    """As far as the zone's bits go; then refused, which the findings say, counted."""
    def check(lab):
        wait_for(lambda: [e for e in lab.events("finding") if e.get("agent") == "mallory" and e["class"] == "dns_tunnel"], "a finding")

    withstands("allowed names, forwarded as far as they may", "  answer: forward", "up.test", check=check)


def test_forwarded_all():
    """Where nothing is charged each goes upstream: as many wait as may, and the victim's are among those that are asked. (Over TCP no more is read while so
    many wait.)"""
    withstands("allowed names, all forwarded", "  answer: forward", "up.test", 'exfiltration: {exempt: ["*.up.test"]}\n')


if __name__ == "__main__":
    main()
