#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Names that carry data out: by questions that are forwarded and by CONNECT, under a wildcard rule and in observe mode; what they may carry in all
survives whoever dies; pieces of placeholders carry nothing. Each beside its control. PRODUCT: Exfiltration; THREATS: J, K."""
import base64
import os
import random
import signal

from dns_wire import Upstream, address, soa
from faults import pid_of
from lab import Refused, kill, main, wait_for
from test_dns import EACH_EVENT, make

FORWARD = "  answer: forward"
RULES = '  - {name: up, hosts: ["*.up.test", exact.up.test], action: allow}\n  - {name: elsewhere, hosts: ["*.other.test"], ports: [PORT], action: allow}'
BUDGET_BYTES = 1024 // 8


def script(qname, kind):
    return (0, [address(qname, "127.0.0.3", 60)] if kind == 1 else [], [] if kind == 1 else [soa(60)])


def guarded(exfiltration="", mode="", **kw):
    up = Upstream(script)
    lab = make(resolver=FORWARD, rules=RULES, upstreams=f"127.0.0.1:{up.port}", start=False,
               tail=EACH_EVENT + "\n" + (f"exfiltration: {{{exfiltration}}}\n" if exfiltration else "") + mode, **kw)
    lab.up = up
    lab.patched()
    return lab


def coded(n=16, encode=lambda b: base64.b32encode(b).decode().rstrip("=").lower()):
    return encode(os.urandom(n))


def carried(lab, zone):
    """Different names of a zone that came to the server."""
    return {q[0].lower() for q in lab.up.asked if q[0].lower().endswith("." + zone)}


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
            assert len(came) * (16 if how != "words" else 12) <= 2 * BUDGET_BYTES, (how, len(came))  # words carry six bits each
            e = finding(lab, **{"class": "dns_tunnel"}, agent="coder")
            assert e["client"] == "127.0.0.1" and e["severity"] in ("medium", "critical") and "zone=up.test" in e["sentence"], e
            e = lab.event(lambda e: e.get("code") == "exfiltration", ("dns",))
            assert e["verdict"] == "deny" and e["rcode"] == "REFUSED" and e["rule"] == "up", e
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


# ---------------------------------------------------------------- observe


def test_observe_mode_cuts_before_data():
    """No rule lets the zone through, `mode: observe` does; the first name that looks encoded is not sent. The control: action flag."""
    with guarded(mode="mode: observe\n") as lab:
        assert lab.dns.ask("www.evil.example.org").code in ("NOERROR", "REFUSED")
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
        got = 0
        for _ in range(600):
            got += lab.dns.ask(f"{random.choice(words)}.slow-zone.org").code == "NOERROR"
        assert 0 < got <= 256, got  # a byte each


# ---------------------------------------------------------------- canary


def test_pieces_of_placeholders():
    """Ten characters of one, in whatever shape, in any name, also one that a rule allows: nothing leaves, and the finding says whose it is."""
    with guarded() as lab:
        body = lab.placeholder[4:]
        piece = body[7:19]
        shapes = {"plain": piece, "upper": piece.upper(), "reversed": piece[::-1], "hex": piece.encode().hex(), "base32": base64.b32encode(piece.encode()).decode().rstrip("=").lower(),
                  "dotted": piece[:6] + "." + piece[6:]}
        for how, shape in shapes.items():
            at, name = lab.mark(), f"{shape.lower()}.up.test"
            assert lab.dns.ask(name).code == "REFUSED" and name not in carried(lab, "up.test"), how
            e = finding(lab, at, **{"class": "dns_placeholder"})
            assert e["severity"] == "critical" and e["score"] == 100 and "github" in e["sentence"] and piece not in e["sentence"], (how, e)
        assert lab.dns.ask("q7w2e9r4t8y1.up.test").code == "NOERROR"  # the control: as long, and nobody's
        assert code_of(lab, f"{piece}.other.test") == "exfiltration" and f"{piece}.other.test" not in lab.up.names()
        e = finding(lab, **{"class": "placeholder_elsewhere"})
        assert e["severity"] == "critical" and e["request_id"], e


# ---------------------------------------------------------------- what was spent survives


def spend(lab, zone="up.test"):
    for _ in range(40):
        if lab.dns.ask(f"{coded()}.{zone}").code == "REFUSED":
            return
    raise AssertionError("it is never spent")


def test_spent_survives_whoever_dies():
    """The resolver killed, the whole server killed, the server stopped and started: what was spent stays spent. The control: another zone, and a file that is gone."""
    with guarded() as lab:
        spend(lab)
        def refused():
            return lab.dns.ask(f"{coded()}.up.test").code == "REFUSED"
        kill(pid_of(lab, "resolver"))
        wait_for(lambda: lab.dns.ask("exact.up.test").code == "NOERROR", "a new resolver")
        assert refused()
        os.killpg(lab.proc.pid, signal.SIGKILL)
        lab.proc.wait()
        lab.proc = None
        lab.start()
        assert refused()
        lab.stop()
        lab.start()
        assert refused()
        assert lab.dns.ask(f"{coded()}.other.test").code == "NOERROR", "the control: another zone"
        lab.stop()
        lab.start()  # killed before the first save of its own: what may have gone since is charged all the same
        assert lab.dns.ask(f"{coded()}.third.test").code in ("NOERROR", "REFUSED")
        os.killpg(lab.proc.pid, signal.SIGKILL)
        lab.proc.wait()
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
        spend(lab)
        assert len(carried(lab, "up.test")) > 0


if __name__ == "__main__":
    main()
