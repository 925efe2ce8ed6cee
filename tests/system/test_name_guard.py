#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Names that carry data out: by questions that are forwarded and by CONNECT, under a wildcard rule and in observe mode; what they may carry in all
survives whoever dies; pieces of placeholders carry nothing. Each beside its control. PRODUCT: Exfiltration; THREATS: J, K."""
import base64
import contextlib
import ctypes
import os
import random

from dns_wire import Answer, Client, Upstream, address, query, soa
from faults import pid_of
from lab import Refused, Skip, kill, kill_group, main, wait_for
from test_dns import EACH_EVENT, make

FORWARD = "  answer: forward"
RULES = '  - {name: up, hosts: ["*.up.test", exact.up.test], action: allow}\n  - {name: elsewhere, hosts: ["*.other.test"], ports: [PORT], action: allow}\n  - {name: third, hosts: ["*.third.test"], action: allow}'
BUDGET_BYTES = 1024 // 8


def script(qname, kind):
    return (0, [address(qname, "127.0.0.3", 60)] if kind == 1 else [], [] if kind == 1 else [soa(60)])


def guarded(exfiltration="", mode="", rules=RULES, limits="", **kw):
    up = Upstream(script)
    lab = make(resolver=FORWARD, rules=rules, upstreams=f"127.0.0.1:{up.port}", start=False,
               tail=EACH_EVENT.replace("}", f", {limits}}}" if limits else "}") + "\n" + (f"exfiltration: {{{exfiltration}}}\n" if exfiltration else "") + mode, **kw)
    lab.up = up
    lab.patched()
    return lab


def coded(n=16, encode=lambda b: base64.b32encode(b).decode().rstrip("=").lower()):
    return encode(os.urandom(n))


def carried(lab, zone, since=0):
    """Different names of a zone that came to the server, after so many questions."""
    return {q[0].lower() for q in lab.up.asked[since:] if q[0].lower().endswith("." + zone)}


def code_of(lab, name):
    """Of the refusal that a request to that host gets; None: it was answered."""
    try:
        return lab.get(name).code
    except Refused as e:
        return e.message.code


def finding(lab, after=0, **want):
    return lab.event(lambda e: all(e.get(k) == v for k, v in want.items()), ("finding",), after)


# ---------------------------------------------------------------- a wildcard rule


def test_what_a_wildcard_may_carry():
    """Two configurations that differ in dns_tunnel.action alone: with `block` no more than the budget leaves, whatever the encoding; with `flag` all of it."""
    encoders = {"hex": bytes.hex, "base32": lambda b: base64.b32encode(b).decode().rstrip("=").lower(),
                "digits": lambda b: str(int.from_bytes(b, "big")), "words": lambda b: ".".join(["mail", "api", "www", "cdn"][x & 3] + str(x >> 2) for x in b[:12])}
    for how, encode in encoders.items():
        with guarded() as lab:
            sent = [f"{coded(16, encode)}.up.test" for _ in range(40)]
            codes = [lab.dns.ask(q).code for q in sent]
            came = carried(lab, "up.test")
            assert codes[0] == "NOERROR" and codes[-1] == "REFUSED", (how, codes)
            assert came == {q for q, c in zip(sent, codes) if c == "NOERROR"}, how
            assert 0 < len(came) * (16 if how != "words" else 12) <= BUDGET_BYTES, (how, len(came))
            e = finding(lab, **{"class": "dns_tunnel"}, agent="coder")
            assert e["client"] == "127.0.0.1" and e["severity"] in ("medium", "critical") and "zone=up.test" in e["sentence"], e
            e = lab.event(lambda e: e.get("code") == "exfiltration", ("dns",))
            assert e["verdict"] == "deny" and e["rcode"] == "REFUSED" and e["rule"] == "up", e
            assert "needs more bits than its zone has left (exfiltration.dns_tunnel.bits)" in e["message"], e
            e = lab.event(lambda e: "rule=budget" in e.get("sentence", ""), ("finding",))
            assert "exfiltration.exempt" in e["hint"] and "exfiltration.dns_tunnel.bits" in e["hint"] and "still passes" in e["hint"], e
            assert lab.dns.ask("exact.up.test").code == "NOERROR"  # a name that a rule writes out costs nothing, and is not refused with the others
    with guarded("dns_tunnel: {action: flag}") as lab:
        sent = [f"{coded()}.up.test" for _ in range(40)]
        assert all(lab.dns.ask(q).code == "NOERROR" for q in sent) and carried(lab, "up.test") == set(sent)
        assert finding(lab, **{"class": "dns_tunnel"}, severity="medium")
    with guarded('exempt: ["*.up.test"]') as lab:
        sent = [f"{coded()}.up.test" for _ in range(40)]
        assert all(lab.dns.ask(q).code == "NOERROR" for q in sent) and not lab.events("finding")


def test_ordinary_names_pass():
    """What a day's work asks, again and again."""
    with guarded() as lab:
        for _ in range(30):
            for label in ("www", "api", "cdn", "static", "raw", "objects", "auth"):
                assert lab.dns.ask(f"{label}.up.test").code == "NOERROR", label
        assert not lab.events("finding")


def test_connect():
    """By CONNECT instead of questions: the same purse, a refusal that says so, and a finding with the request. The control: another action."""
    for action, refused in (("block", True), ("flag", False)):
        with guarded(f"dns_tunnel: {{action: {action}}}") as lab:
            codes = [code_of(lab, f"{coded()}.other.test") for _ in range(40)]
            assert codes[0] != "exfiltration" and ("exfiltration" in codes) == refused, (action, codes)
            assert (len(carried(lab, "other.test")) < 40) == refused
            e = finding(lab, **{"class": "host_label"}, agent="coder")
            c = lab.event(lambda c: c["request_id"] == e["request_id"])
            assert c["host"].endswith(".other.test") and e["conn_id"] == c["conn_id"], (e, c)
            if refused:
                c = lab.event(lambda c: c.get("code") == "exfiltration")
                assert c["verdict"] == "deny" and c["rule"] == "elsewhere", c
                assert "exfiltration.exempt" in c["hint"] and "exfiltration.dns_tunnel.bits" in c["message"], c


def test_written_in_another_rule():
    """A pattern decides, and another rule writes the name out: it costs nothing, whichever comes first, by questions and by CONNECT; and it may be a special
    name. The control: the same without that rule."""
    names = [f"{coded()}.up.test" for _ in range(40)] + [f"{coded()}.other.test" for _ in range(40)]
    pattern = '  - {name: pattern, hosts: ["*.up.test", "*.other.test", "*"], ports: [443, PORT], action: allow}\n'
    exact = f"  - {{name: exact, hosts: [{', '.join(names)}, printer.internal], ports: [443, PORT], action: allow}}\n"
    for rules, free in ((pattern + exact, True), (exact + pattern, True), (pattern, False)):
        with guarded(rules=rules) as lab:
            codes = [lab.dns.ask(q).code for q in names[:40]] + [code_of(lab, q) for q in names[40:]]
            assert ("REFUSED" not in codes and "exfiltration" not in codes) == free, codes
            assert (carried(lab, "up.test") | carried(lab, "other.test") == set(names)) == free
            assert (lab.dns.ask("printer.internal").code == "NOERROR") == free
            if free:
                assert not lab.events("finding")
            else:
                finding(lab, agent="coder", **{"class": "dns_tunnel"})


# ---------------------------------------------------------------- observe


def test_observe_mode_cuts_before_data():
    """No rule lets the zone through, `mode: observe` does; the first name that looks encoded is not sent. The control: action flag."""
    with guarded(mode="mode: observe\n") as lab:
        for _ in range(20):
            assert lab.dns.ask(f"{coded()}.evil-zone.org").code == "REFUSED"
        assert not carried(lab, "evil-zone.org")
        assert finding(lab, **{"class": "dns_tunnel"}, agent="coder")["severity"] == "medium"
        assert lab.dns.ask("www.good-zone.org").code == "NOERROR", "the control: an ordinary name of an unknown zone"
    with guarded("dns_tunnel: {action: flag}", mode="mode: observe\n") as lab:
        sent = [f"{coded()}.evil-zone.org" for _ in range(20)]
        assert all(lab.dns.ask(q).code == "NOERROR" for q in sent) and carried(lab, "evil-zone.org") == set(sent)


def test_observe_mode_has_a_bound():
    """A patient encoder that never looks encoded (one short word at a time) is bounded by bits: at most 256 bytes a zone in a day."""
    words = [w + str(i) for w in ("mail", "app", "dev", "shop", "blog", "news", "data", "test") for i in range(32)]
    with guarded(mode="mode: observe\n") as lab:
        codes = [lab.dns.ask(f"{word}.slow-zone.org").code for word in random.sample(words, len(words))]
        assert "REFUSED" in codes and 0 < len(carried(lab, "slow-zone.org")) <= 256, len(carried(lab, "slow-zone.org"))  # a byte each


STAR = '  - {name: exact, hosts: [exact.up.test], action: allow}\n  - {name: any, hosts: ["*"], ports: [443, PORT], action: allow}'
TWO = "  - {name: coder, identify: [{source: 127.0.0.1/32}]}\n  - {name: other, identify: [{source: 127.0.0.21/32}]}\n"


def test_star_has_a_bound_over_all_zones():
    """A new zone for each name, each far below its bits: under `*` all together have theirs, by questions and by CONNECT; what is known, what a rule writes and another
    agent go on. The controls: the default, and a rule that writes the zones."""
    def ask_all(lab):
        codes = [lab.dns.ask(f"www.{coded(8, bytes.hex)}.org").code for _ in range(40)]
        return codes + [code_of(lab, f"www.{coded(8, bytes.hex)}.org") for _ in range(20)]
    with guarded("agent: {any_bits: 2048/d}", rules=STAR, agents=TWO) as lab:
        other = Client(lab.dns_port, source="127.0.0.21")
        assert lab.dns.ask("www.known-zone.org").code == "NOERROR"
        codes = ask_all(lab)
        assert codes[0] == "NOERROR" and codes[39] == "REFUSED" and codes[59] == "exfiltration", codes
        assert 0 < len({q[0].lower() for q in lab.up.asked}) * 64 <= 2048, codes
        e = finding(lab, **{"class": "dns_tunnel"}, agent="coder")
        e = lab.event(lambda e: "of=any" in e.get("sentence", "") and "block" in e["sentence"], ("finding",))
        assert e["agent"] == "coder" and "/2048" in e["sentence"], e
        assert "any_bits" in lab.event(lambda e: e.get("code") == "exfiltration", ("dns",))["message"]
        assert lab.dns.ask("www.known-zone.org").code == "NOERROR" and lab.dns.ask("exact.up.test").code == "NOERROR"
        assert other.ask("www.another-zone.org").code == "NOERROR"
    with guarded(rules=STAR, agents=TWO) as lab:
        codes = ask_all(lab)
        assert codes[:40] == ["NOERROR"] * 40 and "exfiltration" not in codes, codes
    zones = [f"{coded(8, bytes.hex)}.org" for _ in range(40)]
    with guarded("agent: {any_bits: 2048/d}", rules=STAR + f"\n  - {{name: written, hosts: [{', '.join(chr(34) + '*.' + z + chr(34) for z in zones)}], action: allow}}", agents=TWO) as lab:
        assert all(lab.dns.ask(f"www.{z}").code == "NOERROR" for z in zones)


class Stopped:
    """One thread of a process, stopped by the tracer: what a disk that never answers does to it."""

    def __init__(self, tid):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.tid = tid

    def _ptrace(self, request):
        assert self.libc.ptrace(ctypes.c_long(request), ctypes.c_long(self.tid), None, None) == 0, os.strerror(ctypes.get_errno())

    def __enter__(self):
        self._ptrace(0x4206)  # PTRACE_SEIZE
        self._ptrace(0x4207)  # PTRACE_INTERRUPT
        os.waitpid(self.tid, 0x40000000)  # __WALL
        return self

    def __exit__(self, *_):
        self._ptrace(17)  # PTRACE_DETACH


def test_a_disk_that_hangs():
    """The resolver's saver never comes back from the disk: names that a rule writes out and names that are known go on, at once and by CONNECT; new ones that
    cost more than may be unsaved wait, are refused, and pass when the disk is back."""
    if os.geteuid() != 0:
        raise Skip("stopping a thread of a role needs root")
    with guarded(rules=STAR, limits="name_wait: 500ms", agents=TWO) as lab:
        pid = pid_of(lab, "resolver")
        threads = [int(t) for t in os.listdir(f"/proc/{pid}/task") if int(t) != pid]
        assert len(threads) == 1, threads
        other = Client(lab.dns_port, source="127.0.0.21")
        assert other.ask("www.known-zone.org").code == "NOERROR"
        with Stopped(threads[0]):
            at, codes = lab.mark(), []
            for i in range(20):
                codes.append(lab.dns.ask(f"w{i}.zone{i}.org").code)
                assert lab.dns.ask("exact.up.test").code == "NOERROR" and other.ask("www.known-zone.org").code == "NOERROR"
            assert codes[-1] == "SERVFAIL" and codes.count("NOERROR") <= 6, codes  # 128 bits
            e = lab.event(lambda e: e.get("code") == "audit_unavailable", ("dns",), at)
            assert e["agent"] == "coder" and "saved" in e["message"], e
            assert code_of(lab, "w100.zone100.org") == "audit_unavailable"
            assert code_of(lab, "exact.up.test") != "audit_unavailable"
        wait_for(lambda: lab.dns.ask("w200.zone200.org").code == "NOERROR", "the disk")


def test_new_names_do_not_own_the_disk():
    """Under `hosts: ["*"]` every zone is new and costs a little: an agent may have so many that wait for the disk. Names that a rule writes go on meanwhile,
    and so do another agent's."""
    with guarded(rules=STAR, limits="dns_rate: 100000, name_saves: 1, names_unsaved: 64, name_wait: 4s", agents=TWO) as lab:
        other, codes = Client(lab.dns_port, source="127.0.0.21"), []
        with contextlib.closing(lab.dns.udp()) as s:
            for i in range(100):
                s.send(query(f"w{i}.zone{i}.org", ident=i))
            assert lab.dns.ask("exact.up.test").code == "NOERROR"
            assert other.ask("www.zone-of-another.org").code == "NOERROR"
            codes = [Answer(s.recv(65536)).code for _ in range(100)]
        e = lab.event(lambda e: e.get("code") == "rate_limited", ("dns",))
        assert "names_unsaved" in e["message"] and e["agent"] == "coder", e
        assert 48 <= codes.count("NOERROR") < 100 and codes.count("SERVFAIL") == 100 - codes.count("NOERROR"), codes
        assert lab.dns.ask("w200.zone200.org").code == "NOERROR"  # the control: with room it passes


# ---------------------------------------------------------------- canary


def test_pieces_of_placeholders():
    """Ten characters of one, in whatever shape, in any name, also one that a rule allows: nothing leaves, and the finding says whose it is."""
    with guarded() as lab:
        body = lab.placeholder[4:]
        piece = body[7:19]
        shapes = {"plain": piece, "upper": piece.upper(), "reversed": piece[::-1], "hex": piece.encode().hex(), "base32": base64.b32encode(piece.encode()).decode().rstrip("=").lower(),
                  "dotted": piece[:6] + "." + piece[6:]}
        for how, shape in shapes.items():
            at, name = lab.mark(), f"{shape}.up.test"
            assert lab.dns.ask(name).code == "REFUSED" and name.lower() not in carried(lab, "up.test"), how
            e = finding(lab, at, **{"class": "dns_placeholder"})
            assert e["severity"] == "critical" and e["score"] == 100 and "github" in e["sentence"] and piece not in e["sentence"], (how, e)
        assert lab.dns.ask("q7w2e9r4t8y1.up.test").code == "NOERROR"  # the control: as long, and nobody's
        assert code_of(lab, f"{piece}.other.test") == "exfiltration" and f"{piece}.other.test" not in lab.up.names()
        e = finding(lab, **{"class": "placeholder_elsewhere"})
        assert e["severity"] == "critical" and e["request_id"], e


def test_what_a_rule_writes_is_no_piece():
    """A literal placeholder with words in it that hosts have too: the hosts that rules write go on, what the agent puts in front is looked at."""
    literal = "token-up-test-and-exact-" + "x9" * 8
    with guarded(credentials=f'''  - name: worded
    agents: [coder]
    hosts: [exact.up.test]
    slots: ["header:x-worded"]
    placeholder: {literal}
    source: {{file: REAL2}}
''') as lab:
        assert lab.dns.ask("exact.up.test").code == "NOERROR" and lab.dns.ask("www.up.test").code == "NOERROR"
        assert lab.dns.ask("tokenuptestand.up.test").code == "REFUSED"  # the control
        assert finding(lab, **{"class": "dns_placeholder"})["severity"] == "critical"


def test_long_placeholders():
    """A literal of 1,024 characters (a JWT may have as many): the server starts, and a piece of its middle is known."""
    literal = "".join(random.Random(5).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=1024))
    with guarded(credentials=f'''  - name: long
    agents: [coder]
    hosts: [exact.up.test]
    slots: ["header:x-long"]
    placeholder: {literal}
    source: {{file: REAL2}}
''') as lab:
        assert lab.dns.ask(f"{literal[700:715]}.up.test").code == "REFUSED" and lab.dns.ask(f"{literal[1012:]}.up.test").code == "REFUSED"
        assert lab.dns.ask("abcdefgh-ijklmno.up.test").code == "NOERROR"  # the control


# ---------------------------------------------------------------- what policy refuses anyway


def test_refused_names_are_looked_at():
    """An attempt is in the log, by CONNECT and by a request to the proxy; it costs nothing, and no packet leaves. The controls: an ordinary
    name, and a placeholder's length of letters."""
    with guarded() as lab:
        piece = lab.placeholder[11:23]
        rows = [(f"{coded()}.evil-zone.org", "host_label", "medium"), (f"{bytes.hex(os.urandom(16))}.evil-zone.org", "host_label", "medium"),
                (f"{piece}.evil-zone.org", "placeholder_elsewhere", "critical"), ("www.evil-zone.org", None, None), ("status-page.evil-zone.org", None, None)]
        for name, cls, severity in rows:
            at = lab.mark()
            c = lab.proxy()
            m = c.ask("GET", f"http://{name}/", host=name)
            c.close()
            assert (m.status, m.code) == (403, "host_denied"), m
            e = lab.event(lambda e: e["host"].endswith(".evil-zone.org"), after=at)
            assert (e["host"] == name) == (not cls), (name, e)
            assert e["findings"] == ([cls] if cls else []), (name, e)
            if cls:
                f = finding(lab, at, **{"class": cls}, request_id=e["request_id"])
                assert f["severity"] == severity and f["agent"] == "coder" and "block" in f["sentence"] and piece not in f["sentence"], f
            at = lab.mark()
            try:
                lab.get(name)
            except Refused as r:
                assert r.message.code == "host_denied"
            e = lab.event(lambda e: e["host"].endswith(".evil-zone.org"), after=at)
            assert (e["host"] == name) == (not cls), (name, e)
            assert e["findings"] == ([cls] if cls else []), (name, e)
        assert not lab.up.asked, lab.up.names()


# ---------------------------------------------------------------- what was spent survives


def spend(lab, zone="up.test"):
    """How many names it took."""
    for n in range(40):
        if lab.dns.ask(f"{coded()}.{zone}").code == "REFUSED":
            return n
    raise AssertionError("it is never spent")


def test_spent_survives_whoever_dies():
    """The resolver killed, the whole server killed, the server stopped and started: what was spent stays spent. The control: another zone, and a file that is gone."""
    with guarded() as lab:
        fresh = spend(lab)

        def refused():
            return lab.dns.ask(f"{coded()}.up.test").code == "REFUSED"
        kill(pid_of(lab, "resolver"))
        wait_for(lambda: lab.dns.ask("exact.up.test").code == "NOERROR", "a new resolver")
        assert refused()
        kill_group(lab.proc)
        lab.proc = None
        lab.start()
        assert refused()
        lab.stop()
        lab.start()
        assert refused()
        assert lab.dns.ask(f"{coded()}.other.test").code == "NOERROR", "the control: another zone"
        lab.stop()
        lab.start()  # killed before the first save of its own: what may have gone since is charged all the same
        assert lab.dns.ask(f"{coded(8)}.third.test").code == "NOERROR"
        kill_group(lab.proc)
        lab.proc = None
        lab.start()
        assert refused()
        lab.stop()
        path = lab.path("state", "budgets")
        assert os.stat(path).st_mode & 0o777 == 0o600
        os.remove(path)
        lab.start()
        assert not refused(), "the control: nothing is known of it"
        lab.stop()
        with open(path, "r+b") as f:  # damaged: half of everything is spent, and it is said
            f.seek(0, 2)
            n = f.tell()
            for at in range(8, n, 4096):
                f.seek(at)
                f.write(os.urandom(8))
        lab.start()
        assert b"half spent" in lab.log_bytes()
        assert 0 < spend(lab) <= fresh // 2 + 1 < fresh, fresh


if __name__ == "__main__":
    main()
