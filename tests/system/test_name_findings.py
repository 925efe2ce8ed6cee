#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a finding about a name says, and what joins it with the other lines about the same name: by every way that a name can take. PRODUCT: Events."""
import base64
import json
import random
import re
import socket
import struct

import h2_frames as H
from dns_wire import Client
from lab import Refused, main
from test_name_guard import coded, guarded

OBSERVE = "mode: observe\n"


def through_connect(lab, name):
    try:
        return lab.get(name, alpn=("http/1.1",)).code
    except Refused as e:
        return e.message.code


def through_h2(lab, name):
    try:
        c = H.connect(lab, name)
    except Refused as e:
        return e.message.code
    answer = c.ask()
    c.close()
    return answer.code


def through_plain(lab, name):
    c = lab.proxy()
    m = c.ask("GET", f"http://{name}/", host=name)
    c.close()
    return m.code


def through_socks(lab, name):
    """A plain request through a SOCKS5 tunnel to port 80."""
    with socket.create_connection(("127.0.0.1", lab.port), 10) as s:
        s.sendall(b"\x05\x01\x00")
        assert s.recv(2) == b"\x05\x00"
        s.sendall(b"\x05\x01\x00\x03" + bytes([len(name)]) + name.encode() + struct.pack("!H", 80))
        reply = s.recv(10)
        if reply[1] != 0:
            return f"socks {reply[1]}"
        s.sendall(f"GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
        got = b""
        while piece := s.recv(65536):
            got += piece
        return "exfiltration" if b'"exfiltration"' in got else "other"


WAYS = {"connect": through_connect, "h2": through_h2, "plain": through_plain, "socks": through_socks}


def whole(f):
    """Every field that PRODUCT names."""
    assert all(f.get(k) for k in ("class", "severity", "score", "evidence", "sentence", "subjects", "host", "agent")), f
    x = f["features"]
    assert {"rule", "score", "characters", "alphabet", "blocked"} <= set(x), f
    m = re.search(r" bits=(\d+) spent=(\d+)/(\d+) of=(\S+) distinct=(\d+)", f["sentence"])  # the same numbers in both, or in neither
    same = (int(m[1]), int(m[2]), int(m[3]), m[4], int(m[5])) if m else (None,) * 5
    assert tuple(x.get(k) for k in ("bits", "spent", "limit", "of", "distinct")) == same, f


def joined(lab, at, finding_class, refused):
    """The one finding since then, beside the dns event and the close that speak of the same; all three."""
    f = lab.event(lambda e: e["class"] == finding_class, ("finding",), at)
    c = lab.event(lambda e: e.get("request_id") == f["request_id"], after=at)
    d = lab.event(lambda e: e.get("dns_id") == f["dns_id"], ("dns",), at)
    assert f["agent"] == c["agent"] == d["agent"] == "coder" and f["client"] == c["client"] == d["client"] == "127.0.0.1", (f, c, d)
    assert f["conn_id"] == c["conn_id"] == d["conn_id"] and d["request_id"] == c["request_id"], (f, c, d)
    assert c["findings"] == [finding_class] and c["dns_id"] == f["dns_id"], (f, c)
    assert set(f["subjects"]) == {f["request_id"], f["dns_id"]}, f
    whole(f)
    assert (d["verdict"] == "deny") == (c.get("code") == "exfiltration") == refused, (d, c)
    return f, c, d


def test_dials():
    """A dial that the resolver refuses, and the control: one that it flags and lets through. In both the close lists the finding."""
    for action, refused in (("block", True), ("flag", False)):
        with guarded(f"dns_tunnel: {{action: {action}}}", mode=OBSERVE) as lab:
            for way, go in WAYS.items():
                at, name = lab.mark(), f"{coded()}.evil-zone.org"
                assert (go(lab, name) == "exfiltration") == refused, way
                joined(lab, at, "host_label", refused)
            at = lab.mark()
            for way, go in WAYS.items():  # nothing is found in a name that says nothing
                go(lab, f"{way}.good-zone.org")
                c = lab.event(lambda e: e.get("host") == f"{way}.good-zone.org", after=at)
                assert c["findings"] == [], (way, c)


def test_refused_by_policy():
    """No rule and no dial: the worker's own finding has the same names on it, and no dns event, for nobody was to be asked."""
    with guarded() as lab:
        for way, go in WAYS.items():
            at, name = lab.mark(), f"{coded()}.evil-zone.org"
            go(lab, name)
            f = lab.event(lambda e: e["class"] == "host_label", ("finding",), at)
            c = lab.event(lambda e: e.get("request_id") == f["request_id"], after=at)
            assert f["client"] == c["client"] == "127.0.0.1" and f["conn_id"] == c["conn_id"] and c["findings"] == ["host_label"], (way, f, c)
            assert "dns_id" not in f and c["code"] == "host_denied" and f["subjects"] == [f["request_id"]], (way, f, c)
            whole(f)
        assert not lab.up.asked


def test_questions():
    """On the DNS port: a question that is refused, one that is flagged and goes upstream, one that no rule lets through, and one that asks for text."""
    rules = '  - {name: up, hosts: ["*.up.test"], dns_types: [A, AAAA, TXT], action: allow}'
    with guarded("dns_tunnel: {action: flag}", rules=rules) as lab:
        piece = lab.placeholder[11:23]
        rows = ((f"{coded()}.up.test", "A", "dns_tunnel", "allow"), (f"{piece}.up.test", "A", "dns_placeholder", "deny"), (f"{coded()}.up.test", "TXT", "dns_tunnel", "allow"),
                (f"{coded()}.evil-zone.org", "A", "dns_tunnel", "deny"), (f"{coded()}.evil-zone.org", "TXT", "dns_tunnel", "deny"))
        for name, kind, cls, verdict in rows:
            at = lab.mark()
            lab.dns.ask(name, kind)
            f = lab.event(lambda e: e["class"] == cls, ("finding",), at)
            d = lab.event(lambda e: e.get("dns_id") == f["dns_id"] and e.get("rcode"), ("dns",), at)
            assert f["client"] == d["client"] == "127.0.0.1" and f["agent"] == "coder" and f["subjects"] == [f["dns_id"]], (name, f, d)
            assert (d["verdict"], d["qtype"]) == (verdict, kind), (name, d)
            assert "conn_id" not in f and "request_id" not in f, f
            whole(f)
            assert ("credential" in f) == (cls == "dns_placeholder") and (f["features"].get("placeholder_of") == "coder") == (cls == "dns_placeholder"), f
        at = lab.mark()
        lab.dns.ask(rows[0][0])  # known by now: the same look-up
        d = lab.event(lambda e: e["qtype"] == "A" and e["verdict"] == "allow", ("dns",), at)
        assert d["dns_id"] == lab.event(lambda e: e["class"] == "dns_tunnel", ("finding",))["dns_id"], d


# ---------------------------------------------------------------- what stands in the log


def carried_whole(lab, needle):
    """Lines of the log, and of the server's own output, in which that stands, in whatever case."""
    lines = [line for e in lab.events() for line in [json.dumps(e)] if needle.lower() in line.lower()]
    return lines + [line for line in lab.log_bytes().decode(errors="replace").splitlines() if needle.lower() in line.lower()]


def test_nothing_is_carried_on_by_the_log():
    """A placeholder and somebody's key, in every place of a name and by every way: no line has either of them whole, in any event, and yet each names the zone and
    what it was. The control: other words in the same places are in the log as they are."""
    rules = '  - {name: up, hosts: ["*.up.test", exact.up.test], dns_types: [A, AAAA, TXT], action: allow}\n  - {name: elsewhere, hosts: ["*.other.test"], ports: [PORT], action: allow}'
    key = "sk-ant-api03-" + "".join(random.Random(3).choices("ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789", k=24))
    for mode in ("", OBSERVE):
        with guarded("dns_tunnel: {action: flag}", rules=rules, mode=mode) as lab:
            placeholder = lab.placeholder
            forms = {"placeholder": placeholder.lower().replace("_", "-"), "its piece": placeholder[12:24].lower(), "reversed": placeholder[4:][::-1].lower(),
                     "its hex": placeholder[4:20].encode().hex(), "key as base32": base64.b32encode(key.encode()).decode().rstrip("=").lower(), "key as hex": key[7:].encode().hex()}
            word = "ordinary-words-of-a-service"
            for how, form in {**forms, "control": word}.items():
                places = [f"{form}.up.test", f"www.{form}.org", f"{form}.evil-zone.org", f"{form}.other.test", f"a.{form}.b.evil-zone.org"]
                for name in places:
                    for kind in ("A", "TXT"):
                        lab.dns.ask(name, kind)
                    Client(lab.dns_port, source="127.0.0.99").ask(name)  # nobody's question
                    for go in WAYS.values():
                        go(lab, name)
                lab.event(lambda e: e.get("host", "").endswith(".b.evil-zone.org" if how == "control" else "evil-zone.org"))
            for how, form in forms.items():
                assert not carried_whole(lab, form), (mode, how, carried_whole(lab, form)[:3])
                assert not carried_whole(lab, form[: len(form) // 2 + 1]), (mode, how, carried_whole(lab, form[: len(form) // 2 + 1])[:3])
            assert len(carried_whole(lab, word)) > 10, "the control"
            shown = [e.get("qname") or e.get("host") or "" for e in lab.events()]
            for suffix in ("up.test", "evil-zone.org", "other.test", "org"):
                assert f"[CRED:github].{suffix}" in shown, (mode, suffix)
                assert any("sha256:" in name and name.endswith("." + suffix) for name in shown), (mode, suffix)
            assert any(e["host"] == f"{word}.other.test" and e["end"] for e in lab.events("close")), "the control"


if __name__ == "__main__":
    main()
