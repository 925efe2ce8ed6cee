#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The DNS port with `answer: forward`: what is asked upstream, what of the answer is believed and passed on, and what never leaves."""
import contextlib
import random
import socket
import struct
import time

from dns_wire import Answer, Client, Record, Upstream, address, alias, name, query, read_name, read_tcp, send_tcp, soa
from lab import main, wait_for
from test_dns import EACH_EVENT, dns_event, dns_port, make, reload

RULES = """  - {name: up, hosts: ["*.up.test", "*.ask-up.test"], action: allow}
  - {name: typed, hosts: ["*.typed.test"], dns_types: [A, TXT, MX, SRV], action: allow}
  - {name: narrow-type, hosts: ["*.v4.test"], dns_types: [A], action: allow}
  - {name: label, hosts: [svc], action: allow}
  - {name: open-private, hosts: [private.exempt.test], allow_addresses: [10.0.0.0/8], action: allow}"""
FORWARD = "  answer: forward"
ZONE = {
    ("www.up.test", 1): (0, [address("www.up.test", "127.0.0.50", 300)], []),
    ("www.up.test", 28): (0, [], [soa(60)]),
    ("six.up.test", 1): (0, [], [soa(60)]),
    ("alias.up.test", 1): (0, [alias("alias.up.test", "a.cdn.test"), alias("a.cdn.test", "b.cdn.test"), address("b.cdn.test", "127.0.0.51", 20)], []),
    ("chain.up.test", 1): (0, [alias(f"c{i}.up.test" if i else "chain.up.test", f"c{i + 1}.up.test") for i in range(9)] + [address("c9.up.test", "127.0.0.52")], []),
    ("loop.up.test", 1): (0, [alias("loop.up.test", "pool.up.test"), alias("pool.up.test", "loop.up.test")], []),
    ("mixed.up.test", 1): (0, [address("mixed.up.test", "10.9.9.9"), address("mixed.up.test", "127.0.0.53"), address("mixed.up.test", "169.254.169.254")], []),
    ("private.up.test", 1): (0, [address("private.up.test", "10.9.9.9")], []),
    ("private.exempt.test", 1): (0, [address("private.exempt.test", "10.9.9.9")], []),
    ("inner.up.test", 1): (0, [alias("inner.up.test", "db.corp.test"), address("db.corp.test", "10.1.1.1")], []),
    ("other.up.test", 1): (0, [address("www.up.test", "127.0.0.66", 3600), address("other.up.test", "127.0.0.54")], []),
    ("big.up.test", 1): (0, [address("big.up.test", f"127.0.1.{i}") for i in range(128)], []),
    ("huge.up.test", 1): (0, [address("huge.up.test", f"127.0.{i >> 8}.{i & 255}") for i in range(257)], []),
    ("short.up.test", 1): (0, [address("short.up.test", "127.0.0.55", 1)], []),
    ("long.up.test", 1): (0, [address("long.up.test", "127.0.0.56", 2**31 - 1)], []),
    ("zero.up.test", 1): (0, [address("zero.up.test", "127.0.0.61", 0)], []),
    ("negative.up.test", 1): (0, [address("negative.up.test", "127.0.0.62", 2**31)], []),
    ("all-ones.up.test", 1): (0, [address("all-ones.up.test", "127.0.0.63", 2**32 - 1)], []),
    ("svc", 1): (0, [address("svc", "127.0.0.64")], []),
    ("broken.up.test", 1): (2, [], []),
    ("www.v4.test", 1): (0, [address("www.v4.test", "127.0.0.57")], []),
    ("www.typed.test", 1): (0, [address("www.typed.test", "127.0.0.60")], []),
    ("www.typed.test", 16): (0, [Record("www.typed.test", 16, 77, b"\5hello\0\3abc"), Record("www.typed.test", 16, 99, b"\1X")], []),
    ("www.typed.test", 15): (0, [Record("www.typed.test", 15, 60, b"\0\x0a\xc0\x0c"), Record("www.typed.test", 15, 60, b"\0\x14" + name("Mail.Other.Test"))], []),
    ("www.typed.test", 33): (0, [Record("www.typed.test", 33, 60, b"\0\1\0\2\x14\x3a" + name("a.b.test"))], []),
    ("alias.typed.test", 16): (0, [alias("alias.typed.test", "t.other.test"), Record("t.other.test", 16, 60, b"\2ok")], []),
    ("big.typed.test", 16): (0, [Record("big.typed.test", 16, 60, bytes([200]) + bytes([65 + i]) * 200) for i in range(20)], []),
    ("huge.typed.test", 16): (0, [Record("huge.typed.test", 16, 60, bytes([250]) + bytes([65 + i]) * 250) for i in range(40)], []),
    ("bad.typed.test", 16): (0, [Record("bad.typed.test", 16, 60, b"\5hell")], []),
    ("empty.typed.test", 16): (0, [Record("empty.typed.test", 16, 60, b"")], []),
    ("lies.typed.test", 15): (0, [Record("lies.typed.test", 15, 60, b"\0\x0a\xff\xff")], []),
    ("cut.typed.test", 33): (0, [Record("cut.typed.test", 33, 60, b"\0\1\0\2")], []),
    ("api.test", 1): (0, [address("api.test", "127.0.0.99")], []),
}


def script(qname, kind):
    if qname.startswith("silent"):
        return None
    return ZONE.get((qname, kind), (0, [], [soa(60)]) if (qname, 1) in ZONE else (3, [], [soa(60)]))


def forwarding(tail="", **kw):
    """What names may carry out is another test's."""
    up = Upstream(script)
    lab = make(resolver=FORWARD, rules=RULES, upstreams=f"127.0.0.1:{up.port}", tail='exfiltration: {exempt: ["*"]}\n' + tail, **kw)
    lab.up = up
    return lab


def make_lab():
    return forwarding(tail=EACH_EVENT)


def asked(lab, qname):
    return [q for q in lab.up.asked if q[0].lower() == qname]


# ---------------------------------------------------------------- what is asked, and what comes back


def test_forwarded(lab):
    a = lab.dns.ask("wWw.Up.test", edns=4096, dnssec=True, options=struct.pack("!HHHBB4s", 8, 8, 1, 32, 0, b"\xc0\0\2\1"))
    assert a.code == "NOERROR" and a.addresses == ["127.0.0.50"] and 290 <= a.answers[0].ttl <= 300, a
    assert a.answers[0].owner == "wWw.Up.test" and not a.authentic
    assert [q[1] for q in asked(lab, "www.up.test")] == [1], "more was asked than the client did"
    for qname, kind, tcp, _, m in asked(lab, "www.up.test"):
        assert not tcp
        assert struct.unpack("!6H", m[:12])[1:] == (0x0100, 1, 0, 0, 0), m  # one question and no option, whatever the client sent
        assert read_name(m, 12)[1] + 4 == len(m)
    lab.dns.ask("www.up.test", "AAAA")
    assert [q[1] for q in asked(lab, "www.up.test")] == [1, 28]
    for tcp in (False, True):
        assert lab.dns.ask("www.up.test", tcp=tcp).addresses == ["127.0.0.50"]
        a = lab.dns.ask("www.up.test", "AAAA", tcp=tcp)
        assert a.code == "NOERROR" and not a.answers and a.authority[0].ttl <= 60, a
    assert len(asked(lab, "www.up.test")) == 2, "asked again what is known"
    e = dns_event(lab, "www.up.test", client="127.0.0.1", qtype="A", rcode="NOERROR")
    assert (e["verdict"], e["rule"], e["agent"], e["answers"], e["rcode"]) == ("allow", "up", "coder", ["127.0.0.50"], "NOERROR"), e
    def lines_of(*types):
        return [o for o in lab.events("dns") if o["qname"] == "www.up.test" and o["qtype"] in types]
    wait_for(lambda: len(lines_of("A")) >= 3 and len(lines_of("AAAA")) >= 3, "the lines")
    lines = lines_of("A", "AAAA")
    assert len(lines) == 6 and {o["dns_id"] for o in lines if o["qtype"] == "A"} == {e["dns_id"]}, lines  # one for each question, whoever was asked for it


def test_letter_case_is_ours(lab):
    for i in range(12):
        lab.dns.ask(f"longer-name-for-chance-{i}.up.test")
    sent = [q[0] for i in range(12) for q in asked(lab, f"longer-name-for-chance-{i}.up.test")]
    assert len(sent) == 12 and all(s != s.lower() and s != s.upper() for s in sent), sent


def test_nothing_leaves(lab):
    lab.dns.ask("www.v4.test")
    assert asked(lab, "www.v4.test")  # the control: it can leave
    denied = ("evil.test", "deny.test", "up.test", "www.example.com", "x.svc.cluster.local", "1.0.0.10.in-addr.arpa", "ask.test", "www.up.test.evil.test")
    for qname in denied:
        for qtype in ("A", "AAAA", "TXT", "HTTPS"):
            assert lab.dns.ask(qname, qtype).code in ("REFUSED", "NXDOMAIN"), qname
    for qtype in ("TXT", "HTTPS", "SVCB", "MX", "NULL", "CNAME", "ANY", "SRV"):  # neither for names that pass
        a = lab.dns.ask("www2.up.test", qtype)
        assert a.code == "NOERROR" and not a.answers and a.authority, (qtype, a)
    assert lab.dns.ask("www.v4.test", "AAAA").code == "NOERROR"
    assert not {q[0].lower() for q in lab.up.asked} & {*denied, "www2.up.test"}, lab.up.asked
    assert {q[1] for q in lab.up.asked} <= {1, 28}
    assert dns_event(lab, "ask.test")["code"] == "approval_required"
    assert lab.dns.ask("www.v4.test").addresses == ["127.0.0.57"]


def test_negative(lab):
    for qname, code in (("nowhere.up.test", "NXDOMAIN"), ("six.up.test", "NOERROR")):
        a = lab.dns.ask(qname)
        assert a.code == code and not a.answers and [r.type for r in a.authority] == [6] and a.authority[0].ttl <= 60, a
        before = len(asked(lab, qname))
        assert lab.dns.ask(qname).code == code
        assert len(asked(lab, qname)) == before, "a negative answer is not kept"
    e = dns_event(lab, "six.up.test", qtype="A")
    assert e["message"] == "the name has no IPv4 address", e  # it has one of the other family
    a = lab.dns.ask("long.up.test", "AAAA")
    assert a.code == "NOERROR" and not a.answers and lab.dns.ask("long.up.test").addresses, a
    e = dns_event(lab, "long.up.test", qtype="AAAA")
    assert e["message"] == "the name has no IPv6 address", e
    a = lab.dns.ask("broken.up.test")
    assert a.code == "SERVFAIL" and not a.authority, a
    assert dns_event(lab, "broken.up.test", client="127.0.0.1", code="origin_dns")["verdict"] == "deny"


def test_aliases(lab):
    a = lab.dns.ask("alias.up.test")
    assert a.addresses == ["127.0.0.51"] and [r.owner for r in a.answers] == ["alias.up.test"] and a.answers[0].ttl <= 20, a
    for qname in ("chain.up.test", "loop.up.test"):
        assert lab.dns.ask(qname).code == "SERVFAIL", qname
    e = lab.event(lambda e: e.get("qname") == "alias.up.test" and "alias" in e.get("message", ""), types=("dns",))
    assert e["message"] == "an alias of a.cdn.test, b.cdn.test", e


def test_bad_addresses(lab):
    a = lab.dns.ask("mixed.up.test")
    assert a.addresses == ["127.0.0.53"], a
    e = dns_event(lab, "mixed.up.test", rcode="NOERROR")
    assert e["answers"] == ["127.0.0.53"] and "is refused" in e["message"] and "left out" in e["message"], e
    for qname in ("private.up.test", "inner.up.test"):
        a = lab.dns.ask(qname)
        assert a.code == "REFUSED" and not a.answers, (qname, a)
        e = dns_event(lab, qname, client="127.0.0.1", rcode="REFUSED")
        assert (e["verdict"], e["code"], e["answers"]) == ("deny", "address_denied", []) and "rebind: " in e["message"], e
    assert lab.dns.ask("private.exempt.test").addresses == ["10.9.9.9"]  # the control: a rule opens it


def test_only_what_was_asked(lab):
    """Records about other names are not believed: they would be an answer for www.up.test that nobody asked for."""
    assert lab.dns.ask("other.up.test").addresses == ["127.0.0.54"]
    assert lab.dns.ask("www.up.test").addresses == ["127.0.0.50"]


def test_sizes(lab):
    for kw, most in ((dict(), 512), (dict(edns=512), 512), (dict(edns=1232), 1232), (dict(edns=4096), 1232), (dict(edns=700), 700)):
        a = lab.dns.ask("big.up.test", **kw)
        assert a.cut and len(a.raw) <= most and len(a.raw) > most - 40, (kw, len(a.raw))
    a = lab.dns.ask("big.up.test", tcp=True)
    assert not a.cut and len(a.addresses) == 128
    assert lab.dns.ask("huge.up.test", tcp=True).code == "SERVFAIL"  # more than are vetted


def test_ttl(lab):
    assert lab.dns.ask("long.up.test").answers[0].ttl <= 3600  # limits.dns_ttl_max
    assert lab.dns.ask("short.up.test").answers[0].ttl == 1
    before = len(asked(lab, "short.up.test"))
    wait_for(lambda: lab.dns.ask("short.up.test").addresses and len(asked(lab, "short.up.test")) > before, "a second question after a second")


def test_ttl_that_is_none(lab):
    """0, and those with the first bit set, which count as 0 (RFC 2181, 8): a second, and no more."""
    for qname in ("zero.up.test", "negative.up.test", "all-ones.up.test"):
        a = lab.dns.ask(qname)
        assert len(a.addresses) == 1 and a.answers[0].ttl <= 1, (qname, a)
        before = len(asked(lab, qname))
        wait_for(lambda: lab.dns.ask(qname).addresses and len(asked(lab, qname)) > before, f"{qname}: a second question after a second")


def test_nothing_stale(lab):
    """An address that moved is the new one after its TTL; when the server then fails, the old one is not kept in its place."""
    for said, want in ((address("moves.up.test", "127.0.0.70", 1), ["127.0.0.70"]), (address("moves.up.test", "127.0.0.71", 1), ["127.0.0.71"]), (None, "SERVFAIL")):
        ZONE[("moves.up.test", 1)] = (0, [said], []) if said else (2, [], [])
        wait_for(lambda: (lambda a: (a.addresses or a.code) == want)(lab.dns.ask("moves.up.test")), want)
    for _ in range(3):
        assert lab.dns.ask("moves.up.test").code == "SERVFAIL"


def test_asked_as_it_is(lab):
    """No search list of this machine is appended, to a single label neither."""
    assert lab.dns.ask("svc").addresses == ["127.0.0.64"] and lab.dns.ask("svc", tcp=True).addresses == ["127.0.0.64"]
    assert {q[0].lower() for q in lab.up.asked if "svc" in q[0].lower()} == {"svc"}, lab.up.names()
    assert lab.dns.ask("svc.corp.lan").code == "NXDOMAIN" and lab.dns.ask("vcs").code == "REFUSED"


def test_one_family_is_enough():
    """By CONNECT: A is there, AAAA fails or is never answered. Where neither is, the refusal names the step."""
    def half(qname, kind):
        if qname.startswith("none") or kind == 28 and qname.startswith("failed"):
            return 2, [], []
        if kind == 28 and qname.startswith("silent"):
            return None
        return (0, [address(qname, "127.0.0.3")], []) if kind == 1 else (0, [], [soa(60)])

    up = Upstream(half)
    with make(resolver=FORWARD, rules="", upstreams=f"127.0.0.1:{up.port}", start=False) as lab:
        lab.patched()
        for qname in ("failed.wild.test", "silent.wild.test", "both.wild.test"):
            assert lab.get(qname).status == 200, qname
            e = lab.event(lambda e: e.get("host") == qname)
            assert e["ms"]["resolve"] < 900, (qname, e["ms"])  # no try of the missing family was waited for
        m = lab.get("none.wild.test")
        assert (m.status, m.code) == (502, "origin_dns") and "DNS" in m.json()["error"]["message"], m


def test_fixed_hosts(lab):
    assert lab.dns.ask("api.test").addresses == ["127.0.0.2"]
    a = lab.dns.ask("api.test", "AAAA")
    assert a.code == "NOERROR" and not a.answers and a.authority, a
    assert lab.dns.ask("evil.test").code == "REFUSED"
    assert not asked(lab, "api.test") and not asked(lab, "evil.test")


def test_other_types(lab):
    """What a rule lists is asked of upstream and given as it came, names in it written out; nothing else of it leaves."""
    a = lab.dns.ask("WWW.typed.test", "TXT")
    assert [(r.owner, r.type, r.data) for r in a.answers] == [("WWW.typed.test", 16, b"\5hello\0\3abc"), ("WWW.typed.test", 16, b"\1X")], a
    assert all(r.ttl == 77 for r in a.answers), a
    a = lab.dns.ask("www.typed.test", "MX")
    assert [r.data for r in a.answers] == [b"\0\x0a" + name("www.typed.test"), b"\0\x14" + name("mail.other.test")], a
    a = lab.dns.ask("www.typed.test", "SRV")
    assert [r.data for r in a.answers] == [b"\0\1\0\2\x14\x3a" + name("a.b.test")], a
    a = lab.dns.ask("alias.typed.test", "TXT")
    assert [(r.owner, r.type, r.data) for r in a.answers] == [("alias.typed.test", 16, b"\2ok")], a
    assert lab.dns.ask("www.typed.test").addresses == ["127.0.0.60"]
    e = dns_event(lab, "www.typed.test", client="127.0.0.1", qtype="TXT")
    assert (e["verdict"], e["rule"], e["rcode"], e["answers"]) == ("allow", "typed", "NOERROR", ['"hello" "" "abc"', '"X"']), e
    assert dns_event(lab, "www.typed.test", qtype="MX")["answers"] == ["10 www.typed.test", "20 mail.other.test"]
    assert dns_event(lab, "www.typed.test", qtype="SRV")["answers"] == ["1 2 5178 a.b.test"]
    for qtype in ("AAAA", "HTTPS", "NS", "CAA", "NULL", "ANY"):  # not listed
        a = lab.dns.ask("www.typed.test", qtype)
        assert a.code == "NOERROR" and not a.answers and a.authority, (qtype, a)
    assert {q[1] for q in asked(lab, "www.typed.test")} == {1, 15, 16, 33}


def test_other_types_negative_and_bad(lab):
    a = lab.dns.ask("none.typed.test", "TXT")
    assert a.code == "NXDOMAIN" and a.authority, a
    a = lab.dns.ask("big.typed.test", "MX")
    assert a.code == "NXDOMAIN" or (a.code == "NOERROR" and a.authority), a
    for qname, qtype in (("bad.typed.test", "TXT"), ("empty.typed.test", "TXT"), ("lies.typed.test", "MX"), ("cut.typed.test", "SRV"), ("huge.typed.test", "TXT")):
        a = lab.dns.ask(qname, qtype)
        assert a.code == "SERVFAIL" and not a.answers, (qname, a)
    a = lab.dns.ask("big.typed.test", "TXT", edns=4096)
    assert a.cut and len(a.raw) <= 1232 and all(len(r.data) == 201 for r in a.answers), a
    a = lab.dns.ask("big.typed.test", "TXT", tcp=True)
    assert not a.cut and len(a.answers) == 20, a


def test_other_types_for_many(lab):
    with contextlib.closing(lab.dns.udp()) as s:
        for i in range(50):
            s.send(query("silent-txt.typed.test", "TXT", ident=i))
        got = [Answer(s.recv(4096)) for _ in range(50)]
    assert {a.ident for a in got} == set(range(50)) and {a.code for a in got} == {"SERVFAIL"}
    assert len(asked(lab, "silent-txt.typed.test")) <= 4, len(asked(lab, "silent-txt.typed.test"))


# ---------------------------------------------------------------- forgers


def test_forged_answers(lab):
    """Other ids, other letter case, other questions: all before the true answer, from the true server's own address and port."""
    def forge(sock, m, client):
        bad = struct.pack("!6H", 0, 0x8180, 1, 1, 0, 0)
        lie = m[12:] + b"\xc0\x0c\0\1\0\1\0\0\x0e\x10\0\4\x7f\0\0\x42"
        for ident in random.sample(range(65536), 200):
            if ident != struct.unpack("!H", m[:2])[0]:
                sock.sendto(struct.pack("!H", ident) + bad[2:] + lie, client)
        swapped = m[12:-4].swapcase() + m[-4:]
        sock.sendto(m[:2] + bad[2:] + swapped + b"\xc0\x0c\0\1\0\1\0\0\x0e\x10\0\4\x7f\0\0\x42", client)
        sock.sendto(m[:2] + bad[2:] + query("x.up.test")[12:] + b"\xc0\x0c\0\1\0\1\0\0\x0e\x10\0\4\x7f\0\0\x42", client)
        sock.sendto(m, client)  # the question itself
    ZONE[("forged.up.test", 1)] = (0, [address("forged.up.test", "127.0.0.58")], [])
    lab.up.before = forge
    try:
        assert lab.dns.ask("forged.up.test").addresses == ["127.0.0.58"]
    finally:
        lab.up.before = None
    assert lab.dns.ask("forged.up.test").addresses == ["127.0.0.58"]


def test_ports_and_ids(lab):
    for i in range(100):
        lab.dns.ask(f"p{i}.up.test")
        lab.dns.ask(f"p{i}.up.test", "AAAA")
    sent = [q for q in lab.up.asked if q[0].lower().startswith("p") and q[0].lower().endswith(".up.test")]
    ports, ids = {q[3] for q in sent}, {q[4][:2] for q in sent}
    assert len(sent) >= 200 and len(ports) > 190 and len(ids) > 190, (len(sent), len(ports), len(ids))
    steps = {abs(a[3] - b[3]) for a, b in zip(sent, sent[1:])}
    assert len(steps) > 50, "ports follow one another"


def test_other_sources_are_not_heard(lab):
    """An answer right in every bit, but from elsewhere."""
    ZONE[("elsewhere.up.test", 1)] = (0, [address("elsewhere.up.test", "127.0.0.59")], [])

    def forge(sock, m, client):
        lie = m[:2] + struct.pack("!5H", 0x8180, 1, 1, 0, 0) + m[12:] + b"\xc0\x0c\0\1\0\1\0\0\x0e\x10\0\4\x7f\0\0\x42"
        for host in ("127.0.0.1", "127.0.0.2"):
            with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as s:
                s.bind((host, 0))
                s.sendto(lie, client)
    lab.up.before = forge
    try:
        assert lab.dns.ask("elsewhere.up.test").addresses == ["127.0.0.59"]
    finally:
        lab.up.before = None


# ---------------------------------------------------------------- many, slow, gone


def test_slow_names_hold_up_nobody(lab):
    with contextlib.closing(lab.dns.tcp()) as s:
        start = time.monotonic()
        for i, qname in enumerate(("silent-one.up.test", "www.up.test", "silent-two.up.test", "nowhere.up.test")):
            send_tcp(s, query(qname, ident=i))
        got = [Answer(read_tcp(s)) for _ in range(2)]
        assert {a.ident for a in got} == {1, 3} and time.monotonic() - start < 2, got
        late = [Answer(read_tcp(s)) for _ in range(2)]
        assert {(a.ident, a.code) for a in late} == {(0, "SERVFAIL"), (2, "SERVFAIL")}, late
        assert time.monotonic() - start < 7


def test_one_question_for_many(lab):
    """What many ask for at once is asked once: each more in flight would make forging easier."""
    with contextlib.closing(lab.dns.udp()) as s:
        for i in range(50):
            s.send(query("silent-many.up.test", ident=i))
        wait_for(lambda: asked(lab, "silent-many.up.test"), "a question upstream")
        got = [Answer(s.recv(4096)) for _ in range(50)]
    assert {a.ident for a in got} == set(range(50)) and {a.code for a in got} == {"SERVFAIL"}
    # tried again where nothing comes: a handful, not fifty
    assert len(asked(lab, "silent-many.up.test")) <= 4, len(asked(lab, "silent-many.up.test"))


def test_gone_clients(lab):
    for i in range(20):
        s = lab.dns.tcp()
        send_tcp(s, query(f"silent-gone{i}.up.test"))
        s.close()
        with contextlib.closing(lab.dns.udp()) as u:
            u.send(query(f"silent-gone{i}.up.test"))
    assert lab.dns.ask("www.up.test").addresses == ["127.0.0.50"]


def test_waiting_is_shared():
    agents = "  - {name: coder, identify: [{source: 127.0.0.1/32}]}\n  - {name: other, identify: [{source: 127.0.0.21/32}]}\n"
    with forwarding(agents=agents, tail="limits: {dns_waiting: 16}") as lab:
        with contextlib.closing(lab.dns.udp()) as s:
            def crowd():
                for i in range(64):
                    s.send(query(f"silent-w{random.randrange(1 << 30)}.up.test", ident=i))

            crowd()
            first = Answer(s.recv(4096))
            assert first.code == "SERVFAIL" and first.ident >= 8, first  # beyond its share: told at once

            def served_all_the_same():
                crowd()
                return Client(lab.dns_port, source="127.0.0.21").ask("www.up.test").addresses == ["127.0.0.50"]
            wait_for(served_all_the_same, "an answer for another agent while one has all its share", 40)
        e = lab.event(lambda e: e.get("code") == "rate_limited", types=("dns",))
        assert "dns_waiting" in e["message"], e


def test_reload_while_waiting():
    with forwarding() as lab:
        with contextlib.closing(lab.dns.udp()) as s:
            s.send(query("silent-reload.up.test", ident=5))
            wait_for(lambda: asked(lab, "silent-reload.up.test"), "a question upstream")
            lab.extra["resolver"] = "  answer: synthetic\n  synthetic: {v4: 10.77.0.1}"
            reload(lab)
            wait_for(lambda: lab.dns.ask("www.up.test").addresses == ["10.77.0.1"], "the new answers")
            a = Answer(s.recv(4096))
            assert a.ident == 5 and a.code == "SERVFAIL", a


def test_upstream_dead():
    with make(resolver=FORWARD, rules=RULES, upstreams="127.0.0.1:1") as lab:
        start = time.monotonic()
        assert lab.dns.ask("www.up.test").code == "SERVFAIL" and time.monotonic() - start < 6
        assert lab.dns.ask("api.test").addresses == ["127.0.0.2"]
        e = dns_event(lab, "www.up.test", rcode="SERVFAIL")
        assert (e["verdict"], e["code"]) == ("deny", "origin_dns") and "127.0.0.1:1 (Connection refused)" in e["message"], e


def test_upstream_dead_for_a_dial():
    """The event and the operator's log say which server and why; the client, that it is the name servers and not the name."""
    with make(resolver=FORWARD, rules="", upstreams='127.0.0.1:1", "tcp://127.0.0.2:1', start=False) as lab:
        lab.patched()
        for i in range(3):
            m = lab.get(f"www{i}.wild.test")
            error = m.json()["error"]
            assert (m.status, m.code) == (502, "origin_dns") and "name servers" in error["message"] and "the name may be right" in error["hint"], m
            assert "127.0.0." not in m.body.decode(), m
        for kind in ("A", "AAAA"):
            e = dns_event(lab, "www0.wild.test", qtype=kind)
            assert (e["verdict"], e["code"], e["rcode"]) == ("deny", "origin_dns", "SERVFAIL"), e
            assert "127.0.0.1:1 (Connection refused), tcp://127.0.0.2:1 (Connection refused)" in e["message"], e
        close = lab.event(lambda e: e.get("host") == "www0.wild.test")
        assert close["code"] == "origin_dns" and close["dns_id"] == e["dns_id"], close
        for server in (b"DNS server 127.0.0.1:1: ", b"DNS server tcp://127.0.0.2:1: "):
            said = [x for x in lab.log_bytes().splitlines() if server in x]
            assert len(said) == 1 and b"Connection refused" in said[0], said  # once a minute
    up = Upstream(lambda qname, kind: (3, [], [soa(60)]))  # the control: servers that answer, and a name that is not there
    with make(resolver=FORWARD, rules="", upstreams=f"127.0.0.1:{up.port}", start=False) as lab:
        lab.patched()
        m = lab.get("www.wild.test")
        error = m.json()["error"]
        assert (m.status, m.code) == (502, "origin_dns") and "does not resolve" in error["message"] and error["hint"] == "check the name", m
        assert dns_event(lab, "www.wild.test", qtype="A", rcode="NXDOMAIN")["verdict"] == "allow"
        assert b"DNS server" not in lab.log_bytes()


def test_upstream_silent():
    """One that says nothing is named too, where the next one helped and where nobody did."""
    silent, good = Upstream(lambda qname, kind: None), Upstream(lambda qname, kind: (0, [address(qname, "127.0.0.3")], []) if kind == 1 else (0, [], [soa(60)]))
    with make(resolver=FORWARD, rules=RULES, upstreams=f'127.0.0.1:{silent.port}", "127.0.0.1:{good.port}') as lab:
        assert lab.dns.ask("www.up.test").addresses == ["127.0.0.3"]
        wait_for(lambda: f"DNS server 127.0.0.1:{silent.port}: it did not answer in time".encode() in lab.log_bytes(), "the line about the silent server")
        assert f"DNS server 127.0.0.1:{good.port}".encode() not in lab.log_bytes()
        lab.extra["upstreams"] = f"127.0.0.1:{silent.port}"
        reload(lab)
        assert lab.dns.ask("other.up.test").code == "SERVFAIL"
        e = dns_event(lab, "other.up.test", rcode="SERVFAIL")
        assert f"127.0.0.1:{silent.port} (it did not answer in time)" in e["message"], e


def test_said_by_a_server():
    """A name server may be the agent's own, and know a placeholder: what it answers stands in no line."""
    with forwarding(tail=EACH_EVENT) as lab:
        piece = lab.placeholder
        told = {("told.typed.test", 16): [Record("told.typed.test", 16, 60, bytes([len(piece)]) + piece.encode())],
                ("told.typed.test", 15): [Record("told.typed.test", 15, 60, b"\0\1" + name(f"{piece[:20]}.{piece[20:]}.evil.test"))],
                ("told.up.test", 1): [alias("told.up.test", f"{piece}.evil.test"), address(f"{piece}.evil.test", "127.0.0.50")],
                ("far.up.test", 1): [r for i in range(8) for r in [alias(f"{'far' if not i else f'{i}.' + 'x' * 60}.up.test", f"{i + 1}.{'x' * 60}.up.test")]]
                + [alias(f"8.{'x' * 60}.up.test", f"{piece}.evil.test"[-250:]), address(f"{piece}.evil.test", "127.0.0.50")]}
        lab.up.script = lambda qname, kind: (0, told.get((qname, kind), []), [])
        for (qname, kind), _ in told.items():
            assert lab.dns.ask(qname, kind).code in ("NOERROR", "SERVFAIL")
            dns_event(lab, qname, qtype={1: "A", 15: "MX", 16: "TXT"}[kind])
        lines = "\n".join(str(e) for e in lab.events("dns"))
        assert "e54a96d3522425" not in lines.replace(".", ""), lines
        assert lines.count("[CRED:github]") >= 3, lines


def test_not_behind_another():
    """An agent that fills its own share with names nobody answers, and asks for another's names just when they are forgotten, keeps nobody waiting behind it."""
    mine, others = dns_port(), dns_port()
    agents = "".join(f'  - {{name: {who}, identify: [{{listener: "127.0.0.1:{port}"}}]}}\n' for who, port in (("coder", mine), ("mallory", others)))
    with forwarding(listen=f'  dns: ["127.0.0.1:{mine}", "127.0.0.1:{others}"]', agents=agents) as lab:
        coder, mallory = Client(mine, timeout=4), Client(others)
        with contextlib.closing(mallory.udp()) as s:
            for i in range(400):
                s.send(query(f"silent{i}.up.test"))
                s.send(query(f"silent{i}.up.test", "AAAA"))
            for qname, qtype in (("www.up.test", "A"), ("www.up.test", "AAAA"), ("www.typed.test", "TXT")):
                s.send(query(qname, qtype))
            wait_for(lambda: len(lab.up.asked) >= 48, "its share")
            time.sleep(0.3)
            assert not asked(lab, "www.up.test"), "it waits behind its own"
            start = time.monotonic()
            assert coder.ask("www.up.test").addresses == ["127.0.0.50"]
            assert coder.ask("www.up.test", "AAAA").code == "NOERROR"
            assert len(coder.ask("www.typed.test", "TXT").answers) == 2
            assert time.monotonic() - start < 1


def test_the_order_of_servers_is_each_agents_own():
    """What one agent asks, the first server may not know and the second may: that sends no name of another's to the second."""
    def inner(qname, kind):
        return None if qname.endswith(".typed.test") else script(qname, kind)

    mine, others, second = dns_port(), dns_port(), Upstream(lambda qname, kind: (0, [address(qname, "127.0.0.51")], []) if qname.endswith(".typed.test") else (3, [], [soa(60)]))
    agents = "".join(f'  - {{name: {who}, identify: [{{listener: "127.0.0.1:{port}"}}]}}\n' for who, port in (("coder", mine), ("mallory", others)))
    up = Upstream(inner)
    with make(resolver=FORWARD, rules=RULES, upstreams=f'127.0.0.1:{up.port}", "127.0.0.1:{second.port}', agents=agents,
              listen=f'  dns: ["127.0.0.1:{mine}", "127.0.0.1:{others}"]', tail='exfiltration: {exempt: ["*"]}\n'):
        coder, mallory = Client(mine), Client(others)
        assert mallory.ask("a.typed.test").addresses == ["127.0.0.51"]
        assert coder.ask("www.up.test").addresses == ["127.0.0.50"]
        assert mallory.ask("b.typed.test").addresses == ["127.0.0.51"]
        assert second.names() == ["a.typed.test", "b.typed.test"] and "b.typed.test" not in up.names(), (up.names(), second.names())


if __name__ == "__main__":
    main()
