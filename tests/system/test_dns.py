#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The DNS port with synthetic answers: who gets which answer, over UDP and TCP, from real clients too; nothing goes upstream."""
import contextlib
import os
import shutil
import socket
import struct
import subprocess
import time

from dns_wire import Answer, Client, Upstream, query, read_tcp, send_tcp
from faults import FULL, pid_of, roles, works
from lab import EXE, Closed, Lab, Refused, Skip, free_port, kill, main, wait_for

RULES = """  - {name: here, hosts: [here.internal, "*.corp.lan"], action: allow}
  - {name: v4only, hosts: [v4.test], dns_types: [A], action: allow}
  - {name: ssh, hosts: [ssh.test], ports: [22], tls: none, action: tunnel}"""
SYNTHETIC = '  synthetic: {v4: 10.77.0.1, v6: "fd77::1"}'
EACH_EVENT = "limits: {refusals_per_second: 100000}"  # none is counted together with others
V4ONLY = "  synthetic: {v4: 10.77.0.1, v6: null}"


def dns_port(host="127.0.0.1"):
    """Free for UDP and TCP."""
    for _ in range(200):
        port = free_port([host])
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.bind((host, port))
            return port
    raise RuntimeError("no free port")


def make(resolver=SYNTHETIC, rules=RULES, listen=None, **kw):
    port = dns_port()
    lab = Lab(listen=listen or f'  dns: ["127.0.0.1:{port}"]', rules=rules, resolver=resolver, **kw)
    lab.dns_port, lab.dns = port, Client(port)
    return lab


def make_lab():
    up = Upstream(lambda qname, qtype: None)
    lab = make(upstreams=f"127.0.0.1:{up.port}", tail=EACH_EVENT)
    lab.up = up
    return lab


def dns_event(lab, qname, after=0, **want):
    return lab.event(lambda e: e.get("qname") == qname and all(e.get(k) == v for k, v in want.items()), types=("dns",), after=after)


# ---------------------------------------------------------------- what is answered


def test_allowed(lab):
    for tcp in (False, True):
        for qname in ("api.test", "open.test", "a.wild.test", "a.b.wild.test", "narrow.test", "ask.test", "ssh.test", "here.internal", "x.corp.lan"):
            a, b = lab.dns.ask(qname, "A", tcp), lab.dns.ask(qname, "AAAA", tcp)
            assert (a.code, a.addresses, b.addresses) == ("NOERROR", ["10.77.0.1"], ["fd77::1"]), (qname, a, b)
            assert a.answers[0].owner == qname and 0 < a.answers[0].ttl <= 60 and a.recursion and not a.authentic
        for qtype in ("TXT", "MX", "HTTPS", "SVCB", "CNAME", "SOA", "NS", "ANY", "NULL", "PRIVATE", "SRV"):
            a = lab.dns.ask("api.test", qtype, tcp)
            assert a.code == "NOERROR" and not a.answers and [r.type for r in a.authority] == [6], (qtype, a)
    e = dns_event(lab, "api.test", qtype="HTTPS")
    assert (e["agent"], e["client"], e["verdict"], e["rule"], e["rcode"], e["answers"]) == ("coder", "127.0.0.1", "allow", "api", "NOERROR", []), e
    e = dns_event(lab, "a.b.wild.test", qtype="A")
    assert e["answers"] == ["10.77.0.1"] and e["ms"] == 0, e
    assert dns_event(lab, "ask.test")["verdict"] == "ask"
    assert not lab.up.asked, lab.up.names()


def test_types_of_a_rule(lab):
    assert lab.dns.ask("v4.test", "A").addresses == ["10.77.0.1"]
    a = lab.dns.ask("v4.test", "AAAA")  # api.test is its control
    assert a.code == "NOERROR" and not a.answers and len(a.authority) == 1, a


def test_denied(lab):
    after = lab.mark()
    for qname in ("evil.test", "deny.test", "wild.test", "api.test.evil.test", "xapi.test", "www.example.com", "single", "test"):
        for qtype in ("A", "AAAA", "TXT", "HTTPS", "NULL", "ANY", "PRIVATE", "AXFR"):
            for tcp in (False, True):
                a = lab.dns.ask(qname, qtype, tcp)
                assert a.code == "REFUSED" and not a.answers and not a.authority, (qname, qtype, a)
    e = dns_event(lab, "evil.test", after=after)
    assert (e["verdict"], e["code"], e["rule"], e["rcode"], e["agent"]) == ("deny", "host_denied", None, "REFUSED", "coder"), e
    assert dns_event(lab, "deny.test", after=after)["rule"] == "denied"
    assert not lab.up.asked, lab.up.names()


def test_absent(lab):
    """What search lists append, and addresses asked backwards: clients go on only at NXDOMAIN."""
    for qname in ("api.test.svc.cluster.local", "api.test.internal", "x.lan", "1.0.0.10.in-addr.arpa", "b.a.ip6.arpa", "localhost", "x.onion", ".".join(["a" * 63] * 3 + ["a" * 61])):
        for qtype in ("A", "PTR", "TXT"):
            a = lab.dns.ask(qname, qtype)
            assert a.code == "NXDOMAIN" and not a.answers and [r.type for r in a.authority] == [6], (qname, a)
            assert qname.endswith(a.authority[0].owner) and a.authority[0].owner != qname or "." not in qname, a
    assert dns_event(lab, "x.lan")["rcode"] == "NXDOMAIN"
    assert not lab.up.asked, lab.up.names()


def test_case_and_flags(lab):
    a = lab.dns.ask("ApI.TeSt", flags=0x0010)  # asked without recursion, with CD
    assert a.addresses == ["10.77.0.1"] and a.answers[0].owner == "ApI.TeSt" and a.checking_off and not a.desired
    assert dns_event(lab, "api.test")["qname"] == "api.test"
    a = lab.dns.ask("api.test", edns=4096, dnssec=True, options=struct.pack("!HH", 10, 8) + b"01234567")
    assert a.edns == 1232 and a.dnssec and a.addresses == ["10.77.0.1"]
    assert lab.dns.ask("api.test").edns is None


def test_odd_names(lab):
    for qname in ([b"a.b", b"test"], [b"api\0", b"test"], [b"*", b"wild", b"test"], [b"\xc3\xa4", b"wild", b"test"], [b"a b", b"wild", b"test"],
                  [b"10", b"0", b"0", b"1"], []):
        a = lab.dns.ask(qname)
        assert a.code == "REFUSED" and not a.answers, (qname, a)
    assert dns_event(lab, "\\195\\164.wild.test")["verdict"] == "deny"
    assert lab.dns.ask("a_b.wild.test").addresses == ["10.77.0.1"]  # the control: only its bytes differ


# ---------------------------------------------------------------- what is no question


def test_malformed(lab):
    good = query("api.test", ident=7)
    rows = [
        ("two questions", good[:5] + b"\2" + good[6:] + good[12:], "FORMERR"),
        ("no question", good[:5] + b"\0" + good[6:12], "FORMERR"),
        ("a pointer to itself", good[:12] + b"\xc0\x0c\0\1\0\1", "FORMERR"),
        ("cut short", good[:-1], "FORMERR"),
        ("a byte too many", good + b"\0", "FORMERR"),
        ("an answer in it", good[:7] + b"\1" + good[8:], "FORMERR"),
        ("a label of 64", good[:12] + b"\x40" + b"a" * 64 + b"\0\0\1\0\1", "FORMERR"),
        ("a name of 256", good[:12] + (b"\x3f" + b"a" * 63) * 4 + b"\0\0\1\0\1", "FORMERR"),
        ("two OPT", query("api.test", ident=7, edns=512)[:11] + b"\2" + query("api.test", edns=512)[12:] + query("", edns=512)[17:], "FORMERR"),
        ("OPT that lies", query("api.test", ident=7, edns=512)[:-1] + b"\7", "FORMERR"),
        ("version 1", query("api.test", ident=7, edns=512, version=1), "BADVERS"),
        ("class CHAOS", query("version.bind", "TXT", ident=7, qclass=3), "REFUSED"),
        ("class ANY", query("api.test", ident=7, qclass=255), "REFUSED"),
        ("NOTIFY", query("api.test", ident=7, flags=0x2000), "NOTIMP"),
        ("UPDATE", query("api.test", ident=7, flags=0x2800), "NOTIMP"),
        ("a transfer", query("api.test", "AXFR", ident=7), "REFUSED"),
        ("a part of one", query("api.test", "IXFR", ident=7), "REFUSED"),
    ]
    for what, message, code in rows:
        for tcp in (False, True):
            a = Answer(lab.dns.raw(message, tcp))
            assert a.code == code and a.ident == 7 and a.is_answer and not a.answers, (what, a)
            assert len(a.raw) <= len(message) + 11, what
    assert lab.dns.ask("api.test").addresses == ["10.77.0.1"]


def test_odd_but_good(lab):
    """Id 0, the same id for two questions at once, options by the kilobyte: answered like any other, and nothing of the options comes back."""
    with contextlib.closing(lab.dns.udp()) as s:
        for qname in ("api.test", "open.test", "api.test"):
            s.send(query(qname, ident=0, edns=1232))
        got = [Answer(s.recv(4096)) for _ in range(3)]
        assert sorted(a.answers[0].owner for a in got) == ["api.test", "api.test", "open.test"] and all(a.ident == 0 for a in got), got
    for n, tcp in ((100, False), (1000, False), (3900, True)):
        options = b"".join(struct.pack("!HH", 65001 + i % 7, 6) + b"secret" for i in range(n // 10))
        a = lab.dns.ask("api.test", tcp=tcp, edns=4096, options=options)
        assert a.addresses == ["10.77.0.1"] and a.edns == 1232 and b"secret" not in a.raw, (n, a)


def test_other_resolvers_are_hosts(lab):
    """DNS over HTTPS or TLS is a connection like any: no rule, no host; a rule for any host opens the ports that it lists, and 853 is none of them. The
    control: a rule that names the resolver and its port."""
    for host, port, code in (("dns.resolver-of-all.org", 443, "host_denied"), ("dns.resolver-of-all.org", 853, "host_denied"), ("a.wild.test", 853, "port_denied"),
                             ("a.wild.test", 53, "port_denied")):
        at = lab.mark()
        with contextlib.suppress(Refused, Closed):
            lab.get(host, "/dns-query?dns=AAABAAABAAAAAAAAA3d3dwdleGFtcGxlA2NvbQAAAQAB", port=port, headers=[("Accept", "application/dns-message")])
        e = lab.event(lambda e: e.get("host") == host and e.get("port") == port, after=at)
        assert e["code"] == code and e["verdict"] == "deny", e
    assert not lab.up.asked, lab.up.names()
    assert lab.get("a.wild.test", "/dns-query?dns=AAAB").status == 200


def test_never_answered(lab):
    """An answer, and what is too short to have an id: the next question on the same socket gets the next answer."""
    for junk in (b"", b"\0", query("api.test")[:11], query("api.test", flags=0x8180), Answer(lab.dns.raw(query("api.test"))).raw):
        with contextlib.closing(lab.dns.udp()) as s:
            s.send(junk)
            s.send(query("open.test", ident=77))
            assert Answer(s.recv(4096)).ident == 77, junk
    with contextlib.closing(lab.dns.tcp()) as s:
        send_tcp(s, query("api.test", flags=0x8180))
        assert s.recv(10) == b""


def test_unknown_source(lab):
    stranger = Client(lab.dns_port, source="127.0.0.77")
    for edns in (None, 4096):
        for qname in ("api.test", "evil.test"):
            message = query(qname, edns=edns)
            a = Answer(stranger.raw(message))
            assert a.code == "REFUSED" and not a.answers and len(a.raw) <= len(message) + 11, a
    e = lab.event(lambda e: e.get("client") == "127.0.0.77", types=("dns",))
    assert (e["verdict"], e["code"], e.get("agent")) == ("deny", "unknown_agent", None), e
    assert lab.dns.ask("api.test").addresses == ["10.77.0.1"]  # the control: an agent's address


# ---------------------------------------------------------------- transport


def test_tcp_pipelined(lab):
    with contextlib.closing(lab.dns.tcp()) as s:
        names = [f"n{i}.wild.test" for i in range(300)]
        s.sendall(b"".join(struct.pack("!H", len(q)) + q for q in (query(n, ident=i) for i, n in enumerate(names))))
        got = [Answer(read_tcp(s)) for _ in names]
        assert sorted(a.ident for a in got) == list(range(300)) and all(a.addresses == ["10.77.0.1"] for a in got)
        assert all(a.answers[0].owner == names[a.ident] for a in got)
        s.shutdown(socket.SHUT_WR)
        assert s.recv(1) == b""


def test_tcp_in_pieces(lab):
    message = query("api.test", ident=9)
    whole = struct.pack("!H", len(message)) + message
    with contextlib.closing(lab.dns.tcp()) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in whole + whole:
            s.sendall(bytes([byte]))
        assert [Answer(read_tcp(s)).ident for _ in range(2)] == [9, 9]
    for length in (0, 1, 11, 4097, 65535):
        with contextlib.closing(lab.dns.tcp()) as s:
            s.sendall(struct.pack("!H", length) + message)
            assert s.recv(10) == b"", length
    with contextlib.closing(lab.dns.tcp()) as s:  # gone before the answer
        s.sendall(whole)
    assert lab.dns.ask("api.test", tcp=True).code == "NOERROR"


def test_tcp_limits():
    tail = "limits: {dns_connections: 6, dns_connections_per_client: 4, dns_idle_timeout: 1s}"
    agents = "  - name: coder\n    identify: [{source: 127.0.0.0/8}]\n"
    with make(tail=tail, agents=agents) as lab:
        mine = [lab.dns.tcp() for _ in range(4)]
        for s in mine:
            send_tcp(s, query("api.test"))
            assert Answer(read_tcp(s)).code == "NOERROR"
        with contextlib.closing(lab.dns.tcp()) as s:  # a fifth from one address
            assert s.recv(1) == b""
        others = [Client(lab.dns_port, source=f"127.0.0.{i}").tcp() for i in range(20, 23)]
        for s in others:  # a seventh in all: the one idle longest goes
            send_tcp(s, query("api.test"))
            assert Answer(read_tcp(s)).code == "NOERROR"
        assert mine[0].recv(1) == b""
        slow, start = others[0], time.monotonic()
        slow.settimeout(5)
        message = query("api.test")
        slow.sendall(struct.pack("!H", len(message)))
        closed = False
        for byte in message * 40:  # dripping does not keep it open
            try:
                slow.sendall(bytes([0]))
                slow.settimeout(0.1)
                closed = slow.recv(1) == b""
            except TimeoutError:
                continue
            except OSError:
                closed = True
            if closed:
                break
        assert closed and time.monotonic() - start < 4
        for s in mine + others:
            s.close()
        wait_for(lambda: lab.dns.ask("api.test", tcp=True).code == "NOERROR", "room for a new connection")


def test_wildcard():
    """The answer comes from the address that was asked: the client's socket is connected to it and takes no other."""
    port = dns_port("0.0.0.0")
    with make(listen=f'  dns: ["0.0.0.0:{port}", "[::]:{port}"]', agents='  - name: coder\n    identify: [{source: 127.0.0.0/8}, {source: "::1/128"}]\n') as lab:
        for host in ("127.0.0.1", "127.0.0.8", "127.7.7.7"):
            for tcp in (False, True):
                assert Client(port, host).ask("api.test", tcp=tcp).addresses == ["10.77.0.1"], host
        try:
            Client(port, "::1").udp().close()
        except OSError:
            return  # no IPv6 here; IPv4 has been tried
        for tcp in (False, True):
            assert Client(port, "::1").ask("api.test", "AAAA", tcp=tcp).addresses == ["fd77::1"]
        assert lab.event(lambda e: e.get("client") == "::1", types=("dns",))["agent"] == "coder"


def test_listener_claim():
    """An agent known by the DNS port it asks, as by a listener of the proxy."""
    one, two = dns_port(), dns_port()
    agents = f'  - name: coder\n    identify: [{{listener: "127.0.0.1:{one}"}}]\n  - name: other\n    identify: [{{listener: "127.0.0.1:{two}"}}]\n'
    rules = "  - {name: mine, agents: [coder], hosts: [mine.test], action: allow}"
    with make(listen=f'  dns: ["127.0.0.1:{one}", "127.0.0.1:{two}"]', agents=agents, rules=rules) as lab:
        assert Client(one).ask("mine.test").addresses == ["10.77.0.1"]
        assert Client(two).ask("mine.test").code == "REFUSED"
        assert Client(two).ask("open.test").addresses == ["10.77.0.1"]
        assert dns_event(lab, "mine.test", verdict="deny")["agent"] == "other"


# ---------------------------------------------------------------- events


def test_flood_is_counted():
    with make(tail="limits: {refusals_per_second: 5}") as lab:
        def flood(names):
            with contextlib.closing(lab.dns.udp()) as s:
                for i, n in enumerate(names):
                    s.send(query(n, ident=i))
                    assert Answer(s.recv(4096)).code == "REFUSED"

        def told(part):
            found = [e for e in lab.events("dns") if part in e.get("qname", "") and e["verdict"] == "deny"]
            return len(found), sum(e.get("count", 1) for e in found)

        flood([f"x{i}.one.evil-zone.com" for i in range(400)])  # of one domain
        wait_for(lambda: told("evil-zone.com")[1] == 400, "every question in the log, alone or counted")
        assert told("evil-zone.com")[0] < 100, told("evil-zone.com")
        flood([f"www.evil{i}.com" for i in range(400)])  # of ever new ones
        wait_for(lambda: told("www.evil")[1] == 400, "every question in the log, alone or counted")
        assert told("www.evil")[0] < 300, told("www.evil")
        assert lab.run("audit", "verify", "-c", lab.path("outgate.yaml")).returncode == 0


def test_rate():
    with make(tail="limits: {dns_rate: 10}") as lab:  # a burst of 100
        with contextlib.closing(lab.dns.udp()) as s:
            for i in range(400):
                s.send(query("api.test", ident=i))
            s.settimeout(1)
            got = 0
            with contextlib.suppress(TimeoutError):
                while got < 400:
                    s.recv(4096)
                    got += 1
        assert 0 < got < 400, got
        e = lab.event(lambda e: e.get("code") == "rate_limited", types=("dns",))
        assert e["verdict"] == "deny" and "dns_rate" in e["message"], e
        wait_for(lambda: sum(e.get("count", 1) for e in lab.events("dns")) >= 400, "every question in the log, alone or counted")


def test_logger_gone():
    """No record, no answer; and it comes back by itself."""
    with make(tail="limits: {event_lag: 200ms}") as lab:
        assert lab.dns.ask("api.test").code == "NOERROR"
        pid = pid_of(lab, "logger")
        kill(pid, 19)
        try:
            wait_for(lambda: lab.dns.ask("api.test").code == "SERVFAIL", "a refusal while nothing is written")
            a = lab.dns.ask("api.test")
            assert a.code == "SERVFAIL" and not a.answers
        finally:
            kill(pid, 18)
        wait_for(lambda: lab.dns.ask("api.test").addresses == ["10.77.0.1"], "answers again")


# ---------------------------------------------------------------- reload, restart


def test_reload():
    with make() as lab:
        second = dns_port()
        assert lab.dns.ask("new.test").code == "REFUSED"
        held = lab.dns.tcp()
        lab.extra["rules"] = RULES + "\n  - {name: new, hosts: [new.test], action: allow}"
        lab.extra["listen"] = f'  dns: ["127.0.0.1:{lab.dns_port}", "127.0.0.1:{second}"]'
        lab.extra["resolver"] = V4ONLY
        reload(lab)
        wait_for(lambda: lab.dns.ask("new.test").addresses == ["10.77.0.1"], "the new rule")
        a = lab.dns.ask("new.test", "AAAA")
        assert a.code == "NOERROR" and not a.answers and a.authority, a
        assert Client(second).ask("new.test", tcp=True).addresses == ["10.77.0.1"]
        send_tcp(held, query("new.test"))  # a connection from before asks under the new rules
        assert Answer(read_tcp(held)).addresses == ["10.77.0.1"]
        lab.extra["listen"] = f'  dns: ["127.0.0.1:{second}"]'
        reload(lab)
        wait_for(lambda: held.recv(1) == b"", "the connections of a listener that went")
        assert Client(second).ask("api.test").addresses == ["10.77.0.1"]
        try:
            Client(lab.dns_port, timeout=0.5).ask("api.test")
            raise AssertionError("the old port still answers")
        except OSError:
            pass
        # a port that is taken changes nothing
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            taken.bind(("127.0.0.1", 0))
            lab.extra["listen"] = f'  dns: ["127.0.0.1:{taken.getsockname()[1]}"]'
            r = reload(lab, ok=False)
            assert r.returncode == 1 and b"listen.dns" in r.stderr + r.stdout, r
        assert Client(second).ask("api.test").addresses == ["10.77.0.1"]


def reload(lab, ok=True):
    with open(lab.path("outgate.yaml"), "w") as f:
        f.write(lab.config())
    r = lab.run("reload", "-c", lab.path("outgate.yaml"))
    assert (r.returncode == 0) == ok, r
    return r


def test_resolver_restarts():
    with make() as lab:
        pid = pid_of(lab, "resolver")
        kill(pid)
        wait_for(lambda: pid_of(lab, "resolver") not in (None, 0, pid), "a new resolver")
        wait_for(lambda: answers(lab), "answers again")
        assert lab.dns.ask("api.test", tcp=True).addresses == ["10.77.0.1"]


def answers(lab):
    try:
        return Client(lab.dns_port, timeout=0.5).ask("api.test").addresses == ["10.77.0.1"]
    except OSError:
        return False


def test_workers_crash_loop():
    """When every worker is in a crash loop all listeners are closed, and opened again with the workers: also those that another role serves."""
    if not FULL:
        raise Skip("takes most of a minute: OUTGATE_TEST_FULL=1 runs it")
    with make() as lab:
        mark = lab.mark()
        def ready():
            row = roles(lab)[("worker", 0)]
            return row["pid"] if row["state"] == "ready" else 0

        for _ in range(5):  # deaths, as many as make a crash loop
            wait_for(ready, "a worker", 20)
            kill(ready(), 11)
            wait_for(lambda: not ready(), "its end")
        lab.event(lambda e: e.get("what") == "listeners_closed", types=("lifecycle",), after=mark)
        wait_for(lambda: not answers(lab), "a DNS port that is closed")
        wait_for(lambda: works(lab, swapped=False), "the workers", 45)
        wait_for(lambda: answers(lab), "answers again")
        assert lab.dns.ask("api.test", tcp=True).addresses == ["10.77.0.1"]


def test_not_through_the_proxy():
    """The DNS port is ours: nobody reaches it by a tunnel. The control: another port of the same address."""
    with make(rules='  - {name: self, hosts: [self.test], ports: [DNSPORT, PORT], schemes: [http, https], action: allow}', hosts={"self.test": "127.0.0.1"},
              start=False) as lab:
        lab.extra["rules"] = lab.extra["rules"].replace("DNSPORT", str(lab.dns_port))
        lab.patched()
        assert lab.get("self.test", port=lab.dns_port).status == 403
        e = lab.event(lambda e: e.get("host") == "self.test" and e.get("port") == lab.dns_port)
        assert e["code"] == "address_denied", e


# ---------------------------------------------------------------- real clients


def tool(name, *args, env=None, timeout=20):
    if not shutil.which(name):
        raise Skip(f"{name} is not installed")
    return subprocess.run([name, *args], capture_output=True, text=True, timeout=timeout, env=env or {"PATH": "/usr/sbin:/usr/bin:/bin"})


def test_dig(lab):
    at = ["@127.0.0.1", "-p", str(lab.dns_port), "+tries=1", "+time=5"]
    assert tool("dig", *at, "api.test", "+short").stdout == "10.77.0.1\n"
    assert tool("dig", *at, "api.test", "AAAA", "+tcp", "+short").stdout == "fd77::1\n"
    out = tool("dig", *at, "api.test", "TYPE65").stdout
    assert "status: NOERROR" in out and "ANSWER: 0, AUTHORITY: 1" in out and "WARNING" not in out and "malformed" not in out, out
    assert "status: REFUSED" in tool("dig", *at, "evil.test", "TXT").stdout
    assert "status: BADVERS" in tool("dig", *at, "api.test", "+edns=1", "+noednsneg").stdout
    assert "status: NXDOMAIN" in tool("dig", *at, "-x", "10.1.2.3").stdout
    out = tool("dig", *at, "+cookie", "+subnet=192.0.2.0/24", "+dnssec", "api.test").stdout
    assert "10.77.0.1" in out and "COOKIE" not in out and "SUBNET" not in out, out


def test_nslookup(lab):
    r = tool("nslookup", f"-port={lab.dns_port}", "-timeout=5", "api.test", "127.0.0.1")
    assert r.returncode == 0 and "10.77.0.1" in r.stdout and "fd77::1" in r.stdout, r
    r = tool("nslookup", f"-port={lab.dns_port}", "-timeout=5", "evil.test", "127.0.0.1")
    assert r.returncode == 1 and "REFUSED" in r.stdout, r


def test_node(lab):
    script = ("const {Resolver} = require('dns'); const r = new Resolver({timeout: 5000, tries: 1}); r.setServers(['127.0.0.1:%d']);"
              "r.resolve4('api.test', (e, a) => { console.log(e ? e.code : a.join());"
              "r.resolveTxt('api.test', (e, a) => { console.log(e ? e.code : a.join());"
              "r.resolve4('evil.test', (e, a) => { console.log(e ? e.code : a.join()); }); }); });") % lab.dns_port
    r = tool("node", "-e", script)
    assert r.stdout.split() == ["10.77.0.1", "ENODATA", "EREFUSED"], r


SANDBOX = """set -e
ip link set lo up
ip addr add 10.77.0.2/32 dev lo
printf 'nameserver 127.0.0.1\\noptions timeout:3 attempts:1 ndots:5\\nsearch ns.svc.cluster.local svc.cluster.local cluster.local\\n' > "$LAB/resolv.conf"
mount --bind "$LAB/resolv.conf" /etc/resolv.conf
printf 'hosts: files dns\\n' > "$LAB/nsswitch.conf"
mount --bind "$LAB/nsswitch.conf" /etc/nsswitch.conf
"$EXE" serve -c "$LAB/outgate.yaml" 2> "$LAB/serve.log" &
server=$!
until grep -q 'outgate: ready' "$LAB/serve.log"; do kill -0 $server; done
try() { echo "== $*"; "$@" 2>&1 || echo "exit $?"; }
try getent ahostsv4 api.test
try getent hosts evil.test
try curl -sS -m 5 -o /dev/null https://evil.test/
try curl -sS -m 5 -o /dev/null --connect-to ::127.0.0.1:1 https://api.test/
try curl -sS -m 5 -o /dev/null http://api.test:1/
command -v node > /dev/null && try node -e "require('dns').lookup('api.test', {family: 4}, (e, a) => console.log('node', e ? e.code : a))"
command -v python3 > /dev/null && try python3 -c "import socket; print('python', socket.gethostbyname('api.test'), socket.getaddrinfo('api.test', 1, socket.AF_INET6)[0][4][0])"
kill $server
wait $server || true
"""


def test_sandbox():
    """Port 53 and resolv.conf as a sandbox has them, with the search list of a cluster, in a network and mount namespace of its own."""
    for t in ("unshare", "ip", "getent", "curl"):
        if not shutil.which(t):
            raise Skip(f"{t} is not installed")
    if os.geteuid() != 0 or subprocess.run(["unshare", "-n", "-m", "true"], capture_output=True, timeout=20).returncode:
        raise Skip("no right to make a network namespace")
    with make(listen='  dns: ["127.0.0.1:53"]', resolver=SYNTHETIC.replace("10.77.0.1", "127.0.0.88").replace("fd77::1", "::1"), start=False) as lab:
        lab.files()
        r = subprocess.run(["unshare", "-n", "-m", "sh", "-c", SANDBOX], capture_output=True, text=True, timeout=50,
                           env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LAB": lab.dir, "EXE": EXE, "HOME": lab.dir})
        out = r.stdout
        said = {part.split("\n", 1)[0]: part.split("\n", 1)[1] for part in out.split("== ")[1:]}
        assert "127.0.0.88" in said["getent ahostsv4 api.test"], (out, r.stderr)
        assert said["getent hosts evil.test"] == "exit 2\n", out
        assert "Could not resolve host: evil.test" in out, out
        assert "127.0.0.88" in out.split("http://api.test:1/")[1] or "Failed to connect to api.test port 1" in out, out
        assert "node" not in out.replace("== node", "") or "node 127.0.0.88" in out, out
        assert "python 127.0.0.88 ::1" in out, out
        asked = {e.get("qname") for e in lab.events("dns")}
        assert {"api.test", "evil.test"} <= asked, asked
        searched = [e for e in lab.events("dns") if e.get("qname", "").endswith("cluster.local")]
        assert searched and all(e["rcode"] == "NXDOMAIN" for e in searched), searched


def test_tcp_of_another_listener():
    """Agents that are known by their listeners may come from one address: one's connections take no places of the other's."""
    mine, others = dns_port(), dns_port()
    agents = "".join(f'  - {{name: {who}, identify: [{{listener: "127.0.0.1:{port}"}}]}}\n' for who, port in (("coder", mine), ("mallory", others)))
    with make(listen=f'  dns: ["127.0.0.1:{mine}", "127.0.0.1:{others}"]', agents=agents, tail="limits: {dns_connections_per_client: 4}") as lab, contextlib.ExitStack() as held:
        greedy = Client(others)
        for _ in range(4):
            s = held.enter_context(contextlib.closing(greedy.tcp()))
            send_tcp(s, query("api.test"))
            assert Answer(read_tcp(s)).addresses
        assert greedy.raw(query("api.test"), tcp=True) == b""  # the control
        assert Client(mine).ask("api.test", tcp=True).addresses == ["10.77.0.1"]


if __name__ == "__main__":
    main()
