#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Virtual addresses: the DNS port gives each name one of its own, and whoever connects to it by CONNECT, SOCKS5 or an absolute-form target has named
the host. Whose address is whose, across reloads, deaths and floods."""
import contextlib
import ipaddress
import socket
import struct
import threading

from dns_wire import Answer, Client, query
from faults import pid_of
from h2_frames import H2
from lab import Client as Proxy
from lab import Lab, Refused, free_port, kill, main, read_response, wait_for
from test_dns import dns_port, reload

POOL = ipaddress.ip_network("10.78.0.0/16")
POOL6 = ipaddress.ip_network("fd78::/64")
SYNTHETIC = f'  synthetic: {{v4: 10.77.0.1, pool: ["{POOL}", "{POOL6}"]}}'
OTHER = "127.0.0.77"
AGENTS = f"""  - {{name: coder, identify: [{{source: 127.0.0.1/32}}]}}
  - {{name: other, identify: [{{source: {OTHER}/32}}]}}
"""
EACH_EVENT = "limits: {refusals_per_second: 100000}"  # none is counted together with others


def make(resolver=SYNTHETIC, tail=EACH_EVENT, agents=AGENTS, **kw):
    port = dns_port()
    lab = Lab(listen=f'  dns: ["127.0.0.1:{port}"]', resolver=resolver, agents=agents, tail=tail, **kw)
    lab.dns, lab.others = Client(port), Client(port, source=OTHER)
    return lab


def make_lab():
    return make()


def given(client, name, qtype="A"):
    a = client.ask(name, qtype)
    assert a.code == "NOERROR" and len(a.addresses) == 1, (name, a)
    return a.addresses[0]


def get(lab, at, name, source=None):
    """The name is only in the client's TLS and HTTP: the proxy is told the address."""
    at = f"[{at}]" if ":" in at else at
    c = Proxy(lab, f"{at}:{lab.tls_port}", sni=name, source=source)
    try:
        return c.ask(host=f"{name}:{lab.tls_port}")
    finally:
        lab.blobs.append(bytes(c.received))
        c.close()


def refused(lab, at, name="open.test", source=None):
    """Why, in the event and in the answer."""
    after = lab.mark()
    try:
        get(lab, at, name, source)
    except Refused as r:
        m = r.message
    else:
        raise AssertionError(f"{at} as {name} was let through")
    e = lab.event(lambda e: e.get("host") == at, after=after)
    assert m.status == 403 and m.code == e["code"], (m, e)
    return e


# ---------------------------------------------------------------- what is answered


def test_answers(lab):
    names = ("api.test", "open.test", "a.wild.test", "b.wild.test", "a.b.wild.test", "plain.test")
    seen = {}
    for qtype, pool in (("A", POOL), ("AAAA", POOL6)):
        for who in (lab.dns, lab.others):
            for n in names:
                a = who.ask(n, qtype)
                assert 0 < a.answers[0].ttl <= 60 and len(a.addresses) == 1, a
                assert ipaddress.ip_address(a.addresses[0]) in pool, a
                seen[who, n, qtype] = a.addresses[0]
    assert len(set(seen.values())) == len(seen)  # of each name and each agent
    for (who, n, qtype), at in seen.items():
        assert who.ask(n.upper(), qtype, tcp=True).addresses == [at], (n, qtype)
    for who in (lab.dns, lab.others):  # both addresses of a name are one place
        for n in names:
            assert int(ipaddress.ip_address(seen[who, n, "A"])) & 0xFFFF == int(ipaddress.ip_address(seen[who, n, "AAAA"])) & 0xFFFF
    assert lab.dns.ask("deny.test").code == "REFUSED" and lab.dns.ask("nobody.test").code == "REFUSED"
    e = lab.event(lambda e: e.get("qname") == "api.test" and e.get("qtype") == "A", types=("dns",))
    assert e["answers"] == [seen[lab.dns, "api.test", "A"]] and e["verdict"] == "allow", e


def test_one_family():
    with make(resolver=f"  synthetic: {{v4: 10.77.0.1, v6: \"fd77::1\", pool: {POOL}}}") as lab:
        assert ipaddress.ip_address(given(lab.dns, "api.test")) in POOL
        assert given(lab.dns, "api.test", "AAAA") == "fd77::1"
    with make(resolver=f"  synthetic: {{pool: {POOL}}}") as lab:
        assert ipaddress.ip_address(given(lab.dns, "api.test")) in POOL
        a = lab.dns.ask("api.test", "AAAA")
        assert a.code == "NOERROR" and not a.answers and len(a.authority) == 1, a


# ---------------------------------------------------------------- who connects


def test_connect(lab):
    for qtype in ("A", "AAAA"):
        at = given(lab.dns, "open.test", qtype)
        after = lab.mark()
        lab.fresh()
        assert get(lab, at, "open.test").status == 200
        assert lab.open.requests[-1].get("host") == f"open.test:{lab.tls_port}" and lab.open.snis[-1] == "open.test"
        e = lab.event(lambda e: e.get("host") == "open.test", after=after)
        assert (e["verdict"], e["rule"], e["host_addr"], e["end"]) == ("allow", "open", at, "ok"), e
    after = lab.mark()
    assert lab.get("open.test").status == 200  # by its name
    assert "host_addr" not in lab.event(lambda e: e.get("host") == "open.test", after=after)
    at = given(lab.dns, "open.test")
    for host, status in ((f"{at}:{lab.tls_port}", 200), (f"open.test:{lab.tls_port}", 200), (f"api.test:{lab.tls_port}", 400)):  # of the CONNECT itself
        c = Proxy(lab, f"{at}:{lab.tls_port}", host=False, headers=[("Host", host)], refused_ok=True, tls=False)
        assert c.connected.status == status, (host, c.connected)
        c.close()
    for form in (f"::ffff:{at}", f"::ffff:{int(ipaddress.ip_address(at)) >> 16:x}:{int(ipaddress.ip_address(at)) & 0xFFFF:x}", str(int(ipaddress.ip_address(at)))):
        assert get(lab, form, "open.test").status == 200, form


def test_never_given(lab):
    given(lab.dns, "open.test")
    used = {given(who, n) for who in (lab.dns, lab.others) for n in ("open.test", "api.test", "plain.test")}
    free = next(str(a) for a in POOL.hosts() if str(a) not in used)
    for at in (free, "10.78.0.0", "10.78.255.255", "fd78::", "fd78::1:0:1", "fd78::ffff:ffff:ffff:ffff"):
        e = refused(lab, at)
        assert e["code"] == "address_denied" and e["verdict"] == "deny" and "DNS port" in e["hint"], e
    e = refused(lab, "10.79.0.1")  # the control: no address of the pool is judged by the rules
    assert e["code"] in ("host_denied", "port_denied"), e


def test_of_another_agent(lab):
    """The same bytes from the agent whose address it is, and from another."""
    mine, theirs = given(lab.dns, "open.test"), given(lab.others, "open.test")
    assert mine != theirs
    assert get(lab, mine, "open.test").status == 200 and get(lab, theirs, "open.test", source=OTHER).status == 200
    a, b = refused(lab, theirs), refused(lab, mine, source=OTHER)
    assert (a["agent"], b["agent"], a["code"], b["code"]) == ("coder", "other", "address_denied", "address_denied")
    nobodys = next(str(a) for a in POOL.hosts() if str(a) not in (mine, theirs))  # is refused in the same words
    assert refused_words(lab, theirs).replace(theirs, "ADDR") == refused_words(lab, nobodys).replace(nobodys, "ADDR")


def refused_words(lab, at):
    try:
        get(lab, at, "open.test")
    except Refused as r:
        e = r.message.json()["error"]
        return f"{e['code']}: {e['message']}: {e['hint']}"
    raise AssertionError("let through")


def test_rules_hold(lab):
    """Of the name, not of the address: paths, methods, server name, Host."""
    at = given(lab.dns, "narrow.test")
    c = Proxy(lab, f"{at}:{lab.tls_port}", sni="narrow.test")
    m = c.ask(target="/elsewhere", host=f"narrow.test:{lab.tls_port}")
    assert m.status == 403 and m.code == "path_denied", m
    c.close()
    at = given(lab.dns, "open.test")
    for host, status in ((f"open.test:{lab.tls_port}", 200), (f"{at}:{lab.tls_port}", 200), (f"api.test:{lab.tls_port}", 421), (f"10.78.0.0:{lab.tls_port}", 421)):
        c = Proxy(lab, f"{at}:{lab.tls_port}", sni="open.test")
        lab.fresh()
        m = c.ask(host=host)
        assert m.status == status, (host, m)
        if status == 200:  # what was decided on is what is sent
            assert lab.open.requests[-1].get("host") == f"open.test:{lab.tls_port}"
        c.close()
    with contextlib.suppress(OSError):
        Proxy(lab, f"{at}:{lab.tls_port}", sni="api.test").close()
        raise AssertionError("another server name was let through")
    after = lab.mark()
    other_port = Proxy(lab, f"{at}:1", refused_ok=True)
    assert other_port.connected.status == 403 and other_port.connected.code == "port_denied", other_port.connected
    e = lab.event(lambda e: e.get("host") == "open.test" and e.get("code") == "port_denied", after=after)
    assert e["host_addr"] == at, e
    other_port.close()


def test_swap(lab):
    """Credentials go by the name too."""
    at = given(lab.dns, "api.test")
    c = Proxy(lab, f"{at}:{lab.tls_port}", sni="api.test")
    lab.fresh()
    assert c.ask(host=f"api.test:{lab.tls_port}", headers=[lab.bearer()]).status == 200
    assert lab.api.requests[-1].get("authorization") == "Bearer " + lab.real
    c.close()


def test_http2(lab):
    """Its :authority is the name or the address that the connection was asked for."""
    at = given(lab.dns, "open.test")
    for said in (f"open.test:{lab.tls_port}", f"{at}:{lab.tls_port}", f"api.test:{lab.tls_port}"):
        lab.fresh()
        h = H2(Proxy(lab, f"{at}:{lab.tls_port}", sni="open.test", alpn=("h2",)), said)
        m = h.ask()
        assert m.status == (421 if said.startswith("api") else 200), (said, m)
        assert [r.get("host") for r in lab.open.requests] == ([f"open.test:{lab.tls_port}"] if m.status == 200 else []), said
        h.close()


def test_absolute(lab):
    at = given(lab.dns, "plain.test")
    for host in (f"{at}:{lab.http_port}", f"plain.test:{lab.http_port}"):
        lab.fresh()
        p = lab.proxy()
        p.send(f"GET http://{at}:{lab.http_port}/x HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert read_response(p).status == 200, host
        assert lab.plain.requests[-1].get("host") == f"plain.test:{lab.http_port}", lab.plain.requests[-1]
        p.close()
    e = lab.event(lambda e: e.get("host") == "plain.test" and e.get("host_addr") == at)
    assert e["rule"] == "plain", e
    theirs = given(lab.others, "plain.test")
    for source, status in ((None, 403), (OTHER, 200)):
        p = lab.proxy(source=source)
        p.send(f"GET http://{theirs}:{lab.http_port}/x HTTP/1.1\r\nHost: {theirs}:{lab.http_port}\r\n\r\n".encode())
        assert read_response(p).status == status, source
        p.close()


def socks(lab, at, port, source=None):
    """A connected socket, or the reply that is none."""
    s = socket.create_connection(("127.0.0.1", lab.port), 10, source_address=(source, 0) if source else None)
    ip = ipaddress.ip_address(at)
    s.sendall(b"\5\1\0" + b"\5\1\0" + (b"\1" if ip.version == 4 else b"\4") + ip.packed + struct.pack("!H", port))
    got = b""
    while len(got) < 12:
        more = s.recv(12 - len(got))
        if not more:
            break
        got += more
    if got[3] == 0:
        return s
    s.close()
    return got[3]


class Echo:
    """A server that is no web server: says what it hears, in capitals."""

    def __init__(self, addr):
        self.port = free_port([addr])
        self.listener = socket.create_server((addr, self.port))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                c, _ = self.listener.accept()
                with c:
                    while data := c.recv(4096):
                        c.sendall(data.upper())

    def close(self):
        self.listener.close()


def test_tunnel():
    """A protocol of its own through a rule with tls: none, by SOCKS5 and CONNECT to an address; both families."""
    echo = Echo("127.0.0.9")
    rules = f"  - {{name: db, hosts: [db.test], ports: [{echo.port}], tls: none, action: tunnel}}"
    with contextlib.closing(echo), make(rules=rules, hosts={"db.test": "127.0.0.9"}) as lab:
        for qtype in ("A", "AAAA"):
            at = given(lab.dns, "db.test", qtype)
            after = lab.mark()
            with socks(lab, at, echo.port) as s:
                s.sendall(b"select")
                assert s.recv(100) == b"SELECT"
            e = lab.event(lambda e: e.get("host") == "db.test", after=after)
            assert (e["rule"], e["host_addr"], e["http_version"], e["end"]) == ("db", at, "socks5", "ok"), e
        assert socks(lab, at, echo.port, source=OTHER) == 2  # "not allowed by ruleset"; the control: its own
        with socks(lab, given(lab.others, "db.test"), echo.port, source=OTHER) as s:
            s.sendall(b"x")
            assert s.recv(100) == b"X"
        c = Proxy(lab, f"{given(lab.dns, 'db.test')}:{echo.port}", tls=False)
        c.send(b"by connect")
        assert c.exactly(10) == b"BY CONNECT"
        c.close()


# ---------------------------------------------------------------- what lasts


def test_reload():
    """The same pool: the same names. Another: addresses of the old one are nobody's; and what a rule no longer allows is refused by the name."""
    with make() as lab:
        at = given(lab.dns, "open.test")
        lab.extra["tail"] = EACH_EVENT.replace("{", "{connections_per_agent: 1000, ")
        reload(lab)
        assert get(lab, at, "open.test").status == 200 and given(lab.dns, "open.test") == at
        lab.extra["rules"] = "  - {name: closed, hosts: [open.test], action: deny}"
        reload(lab)
        after = lab.mark()
        c = Proxy(lab, f"{at}:{lab.tls_port}", refused_ok=True, tls=False)
        e = lab.event(lambda e: e.get("host") == "open.test" and e.get("code") == "host_denied", after=after)
        assert c.connected.status == 403 and e["rule"] == "closed" and e["host_addr"] == at, e
        c.close()
        lab.extra["rules"] = ""
        lab.extra["resolver"] = SYNTHETIC.replace(str(POOL), "10.80.0.0/16")
        reload(lab)
        assert refused(lab, at)["code"] in ("host_denied", "port_denied")  # no address of any pool
        new = given(lab.dns, "open.test")
        assert new.startswith("10.80.") and get(lab, new, "open.test").status == 200
        lab.extra["resolver"] = SYNTHETIC.replace(str(POOL), "10.78.0.0/20")  # shares addresses with the first
        reload(lab)
        inside = [a for a in (at,) if ipaddress.ip_address(a) in ipaddress.ip_network("10.78.0.0/20")]
        for a in inside:
            assert refused(lab, a)["code"] == "address_denied"
        new = given(lab.dns, "open.test")
        assert get(lab, new, "open.test").status == 200
        lab.extra["resolver"] = "  synthetic: {v4: 10.77.0.1}"
        reload(lab)
        assert given(lab.dns, "open.test") == "10.77.0.1" and refused(lab, new)["code"] in ("host_denied", "port_denied")


def test_start_again():
    """Another server on the same state: the same names have the same addresses, and nobody is taken for another before."""
    with make() as lab:
        names = [f"n{i}.wild.test" for i in range(20)]
        before = [given(lab.dns, n) for n in names]
        lab.stop()
        lab.start()
        assert refused(lab, before[0])["code"] == "address_denied"  # until it is asked for anew
        assert [given(lab.dns, n) for n in names] == before


def dies(lab, role):
    pid = pid_of(lab, role)
    kill(pid)
    wait_for(lambda: pid_of(lab, role) not in (None, 0, pid), f"a new {role}")


def test_deaths():
    """Who dies takes nothing along: the writer, and a reader."""
    with make() as lab:
        names = ["open.test", *(f"n{i}.wild.test" for i in range(200))]
        before = {n: given(lab.dns, n) for n in names}
        for role in ("resolver", "worker", "resolver"):
            dies(lab, role)
            wait_for(lambda: answers(lab, before["open.test"]), "answers")
            wait_for(lambda: comes_through(lab, before["open.test"]), "a request")
            assert {n: given(lab.dns, n) for n in names} == before, role
            assert refused(lab, given(lab.others, "open.test"))["code"] == "address_denied"


def answers(lab, at):
    try:
        return Client(lab.dns.at[1], timeout=0.5).ask("open.test").addresses == [at]
    except OSError:
        return False


def comes_through(lab, at):
    try:
        return get(lab, at, "open.test").status == 200
    except (OSError, Refused):
        return False


# ---------------------------------------------------------------- shares


def test_flood():
    """One agent asks for more names than there is room for: it gets three quarters, and then SERVFAIL with a reason; another agent goes on, and no address changes
    its name."""
    tail = "limits: {refusals_per_second: 100000, virtual_bytes: 65536}"  # under 200 names
    with make(tail=tail) as lab:
        mine = given(lab.others, "open.test")
        got, failed = {}, 0
        with contextlib.closing(lab.dns.udp()) as s:
            for i in range(400):
                s.send(query(f"f{i}.wild.test", ident=i))
                a = Answer(s.recv(4096))
                assert a.ident == i and a.code in ("NOERROR", "SERVFAIL"), a
                if a.code == "NOERROR":
                    got[f"f{i}.wild.test"] = a.addresses[0]
                failed += a.code == "SERVFAIL"
        assert 100 < len(got) < 160 and failed == 400 - len(got), (len(got), failed)
        assert len(set(got.values())) == len(got) and mine not in got.values()
        e = lab.event(lambda e: e.get("rcode") == "SERVFAIL", types=("dns",))
        assert (e["agent"], e["code"], e["verdict"]) == ("coder", "rate_limited", "deny") and "resolver.synthetic.pool" in e["message"], e
        assert get(lab, mine, "open.test", source=OTHER).status == 200 and given(lab.others, "open.test") == mine
        for i in range(20):  # there is room for what another agent asks
            given(lab.others, f"g{i}.wild.test")
        for n in list(got)[::10]:
            assert given(lab.dns, n) == got[n]


def test_check():
    """What the pool must not overlap is said with its place in the file."""
    with make(start=False) as lab:
        lab.files()
        path = lab.path("outgate.yaml")
        with open(path) as f:
            text = f.read()
        for pool, words in (("8.8.0.0/16", "a private network"), ("127.0.0.0/8", "a private network"), ("10.77.0.0/16", "synthetic.v4"), ("10.78.0.1/16", "host bits"),
                            ("10.78.0.0/31", "a private network"), ("[10.78.0.0/16, 10.79.0.0/16]", "one network of each family")):
            with open(path, "w") as f:
                f.write(text.replace(SYNTHETIC, f"  synthetic: {{v4: 10.77.0.1, pool: {pool}}}"))
            r = lab.run("check", "-c", path)
            line = next(i for i, t in enumerate(open(path).read().split("\n"), 1) if "synthetic:" in t)
            said = r.stderr + r.stdout
            assert r.returncode == 1 and f"outgate.yaml:{line}:".encode() in said and words.encode() in said and b"resolver.synthetic.pool: expected" in said, (pool, said)
        with open(path, "w") as f:
            f.write(text)
        assert lab.run("check", "-c", path).returncode == 0
        for host, told in (("10.78.0.9", True), ("10.79.0.9", False)):
            r = lab.run("explain", "-c", path, "--agent", "coder", "GET", f"https://{host}/")
            said = [t for t in r.stdout.split(b"\n") if b"a virtual address" in t]
            assert len(said) == told and all(f"outgate.yaml:{line}:".encode() in t for t in said), r


if __name__ == "__main__":
    main()
