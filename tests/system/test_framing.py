#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What two parsers could read differently does not pass, in either direction: the cases of tests/http1 sent raw through CONNECT
and TLS, each refused one with its control. Nothing of a refused request reaches the origin."""
import base64
import json
import os
import re
import time

from lab import ROOT, Closed, Skip, always, answer, main, read_request, read_response, say


def unescape(text):
    out, i = b"", 0
    while i < len(text):
        c = text[i]
        i += 1
        if c != "\\":
            out += c.encode("latin1")
            continue
        c = text[i]
        i += 1
        if c in "rnt0\\s":
            out += {"r": b"\r", "n": b"\n", "t": b"\t", "0": b"\0", "\\": b"\\", "s": b" "}[c]
        elif c == "x":
            out += bytes([int(text[i : i + 2], 16)])
            i += 2
        elif c == "{":
            end = text.index("}", i)
            n, _, what = text[i:end].partition("*")
            out += unescape(what) * int(n)
            i = end + 1
        elif c != "-":
            raise ValueError(c)
    return out


def cases(name):
    """name, raw, outcome, words, fixes, settings of tests/http1/NAME.txt."""
    current = None
    with open(os.path.join(ROOT, "tests", "http1", name + ".txt"), encoding="latin1") as f:
        for line in f.read().split("\n") + ["= "]:
            if line.startswith("= "):
                if current:
                    yield current
                current = {"name": line[2:], "raw": b"", "fixes": [], "settings": {}}
            elif not line or line[0] == "#" or current is None:
                continue
            elif line.startswith(">> ") or line == ">>":
                current["raw"] += unescape(line[3:])
            elif line.startswith("> ") or line == ">":
                current["raw"] += unescape(line[2:]) + b"\r\n"
            elif line.startswith("fix: "):
                a, _, b = line[5:].partition(" => ")
                current["fixes"].append((unescape(a), unescape(b)))
            elif re.match(r"[a-z_]+: ", line):
                k, _, v = line.partition(": ")
                current["settings"][k] = v
            else:
                current["outcome"], _, current["words"] = line.partition(" ")


def fixed(case):
    raw = case["raw"]
    for a, b in case["fixes"]:
        raw = raw.replace(a, b, 1)
    return raw


def for_here(lab, raw):
    """The cases speak of a.test without a port."""
    return re.sub(rb"a\.test(?![:.\w])", b"open.test:%d" % lab.tls_port, raw)


def refused(lab, raw, what, expect=("bad_request",)):
    """Sends raw through a tunnel to open.test; it must be refused, and nothing may reach the origin."""
    lab.open.reset()
    c = lab.client()
    try:
        c.send(raw)
        c.half_close()
        m = read_response(c)
        assert m.status in (400, 431, 421), f"{what}: {m}"
        assert m.code in expect, f"{what}: {m}"
        rest, _ = c.rest()
        assert not rest, f"{what}: another answer: {rest[:100]!r}"
    except (Closed, OSError):
        pass  # closed without a word: as good
    assert not lab.open.requests and not any(x.received for x in lab.open.conns), f"{what}: reached the origin: {lab.open.conns[0].received[:200]!r}"


def passes(lab, raw, what):
    lab.open.reset()
    c = lab.client()
    c.send(raw)
    m = read_response(c, raw.lstrip(b"\r\n").split(b" ")[0].decode("latin1"))
    assert m.status == 200, f"{what}: its control: {m}"
    c.half_close()
    c.rest()  # some controls are two requests
    assert lab.open.requests and not lab.open.errors, what
    c.close()


LARGE = ("large",)
# Refused by policy's rule for paths (`\`) rather than by the codec; the control of some is no request to this origin.
NOT_HERE = re.compile(rb"^(CONNECT|OPTIONS \*)|HTTP/1\.0|http")


def test_requests_that_are_refused(lab):
    n = controls = 0
    for case in cases("requests"):
        raw, good = for_here(lab, case["raw"]), for_here(lab, fixed(case))
        if case["outcome"] != "bad" or case["settings"] or raw.startswith(b"CONNECT"):
            continue
        refused(lab, raw, case["name"])
        n += 1
        if not NOT_HERE.search(good) and not re.search(rb"(?i)expect:|content-length: [1-9]|chunked", good):
            passes(lab, good, case["name"])
            controls += 1
    assert n > 80 and controls > 50, (n, controls)




def test_chunked_bodies_that_are_refused(lab):
    """The head is sound, the body is not: the origin must never see a complete request, nor a second one."""
    n = 0
    for case in cases("bodies"):
        if case["outcome"] != "bad" or case["settings"]:
            continue
        head = b"POST /b HTTP/1.1\r\nHost: open.test:%d\r\nTransfer-Encoding: chunked\r\n\r\n" % lab.tls_port
        lab.open.reset()
        c = lab.client()
        c.send(head + case["raw"] + b"GET /smuggled HTTP/1.1\r\nHost: open.test:%d\r\n\r\n" % lab.tls_port)
        try:
            m = read_response(c)
            assert m.status == 400 and m.code == "bad_request", f"{case['name']}: {m}"
            rest, _ = c.rest()
            assert not rest, f"{case['name']}: another answer {rest[:100]!r}"
        except (Closed, OSError):
            pass
        c.close()
        assert not lab.open.requests and not lab.open.errors, f"{case['name']}: {lab.open.requests} {lab.open.errors}"
        lab.open.reset()
        c = lab.client()
        c.send(head + fixed(case))
        assert read_response(c).status == 200, f"{case['name']}: its control"
        assert len(lab.open.requests) == 1 and not lab.open.errors
        c.close()
        n += 1
    assert n > 25, n


def test_answers_that_are_refused(lab):
    n = 0
    for case in cases("responses"):
        if case["outcome"] != "bad" or case["settings"].keys() - {"to"} or case["settings"].get("to") == "CONNECT":
            continue
        method = case["settings"].get("to", "GET")
        lab.open.reset(say(case["raw"] + b"body!", notify=True))
        c = lab.client()
        m = c.ask(method, "/bad")
        assert m.status == 502 and (method == "HEAD" or m.code == "origin_protocol"), f"{case['name']}: {m}"
        assert b"body!" not in bytes(c.received), case["name"]
        # the client's connection is fine, and so is the next request
        lab.open.reset()
        assert c.ask(target="/next").status == 200, f"{case['name']}: the next request"
        c.close()
        n += 1
    assert n > 35, n


def test_answers_that_pass(lab):
    n = 0
    for case in cases("responses"):
        words = dict(w.split("=", 1) for w in case["words"].split(" ") if "=" in w) if case["outcome"] == "ok" else {}
        method, status = case["settings"].get("to", "GET"), int(words.get("status", 200))
        if case["outcome"] != "ok" or method == "CONNECT" or status < 200 or " 10" in case["raw"][:12].decode("latin1"):
            continue
        raw = case["raw"]
        tail = {"chunked": b"3\r\nabc\r\n0\r\n\r\n", "close": b"abc"}.get(words.get("body"), b"")
        if b"chunked" in raw.lower() and words.get("body") != "none":
            tail = b"3\r\nabc\r\n0\r\n\r\n"
        length = re.search(rb"(?i)\ncontent-length: *(\d+)", raw)
        if length and words.get("body") != "none":
            tail = b"a" * int(length.group(1))
        if words.get("left", "0") != "0":
            raw = raw[: -int(words["left"])]
        lab.open.reset(say(raw + tail, notify=True))
        m = lab.get(method=method)
        want = int(re.match(rb"HTTP/1\.. (\d+)", raw).group(1))
        assert m.status == want, f"{case['name']}: {m}"
        if words.get("body") != "none" and method != "HEAD":
            assert m.body == (b"abc" if b"abc" in tail else tail), f"{case['name']}: {m}"
        n += 1
    assert n > 20, n


def smuggled(lab, raw, what):
    """However the first request is taken, /smuggled is never seen as a request of its own."""
    lab.open.reset()
    c = lab.client()
    c.send(raw.replace(b"PORT", b"%d" % lab.tls_port))
    c.half_close()
    c.rest()
    time.sleep(0.02)
    assert not any("/smuggled" in m.target for m in lab.open.requests), what
    for m in lab.open.requests:
        assert len(m.all("content-length")) + len(m.all("transfer-encoding")) <= 1, (what, m)
    assert not lab.open.errors, (what, lab.open.errors)


SMUGGLE = {
    "CL.TE": b"POST / HTTP/1.1\r\nHost: open.test:PORT\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: open.test:PORT\r\n\r\n",
    "TE.CL": b"POST / HTTP/1.1\r\nHost: open.test:PORT\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n5c\r\nGET /smuggled HTTP/1.1\r\nHost: open.test:PORT\r\n\r\n0\r\n\r\n",
    "TE.TE": b"POST / HTTP/1.1\r\nHost: open.test:PORT\r\nTransfer-Encoding: chunked\r\nTransfer-encoding: x\r\nContent-Length: 4\r\n\r\n5c\r\nGET /smuggled HTTP/1.1\r\n\r\n",
    "CL.CL": b"POST / HTTP/1.1\r\nHost: open.test:PORT\r\nContent-Length: 0\r\nContent-Length: 50\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: open.test:PORT\r\n\r\n",
    "alias": b"POST / HTTP/1.1\r\nHost: open.test:PORT\r\nContent_Length: 5\r\nTransfer_Encoding: chunked\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: open.test:PORT\r\n\r\n",
    "bare LF": b"GET / HTTP/1.1\r\nHost: open.test:PORT\r\nX: y\n\nGET /smuggled HTTP/1.1\r\nHost: open.test:PORT\r\n\r\n",
    "bare CR": b"GET / HTTP/1.1\r\nHost: open.test:PORT\r\nX: y\r\r\nGET /smuggled HTTP/1.1\r\nHost: open.test:PORT\r\n\r\n",
    "hop by hop length": b"POST / HTTP/1.1\r\nHost: open.test:PORT\r\nConnection: Content-Length\r\nContent-Length: 50\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: open.test:PORT\r\n\r\n",
    "absolute-form and Host": b"GET https://evil.test/smuggled HTTP/1.1\r\nHost: open.test:PORT\r\n\r\n",
}


def test_smuggling(lab):
    for what, raw in SMUGGLE.items():
        smuggled(lab, raw, what)


# What a corpus calls compliant and we refuse all the same (RFC 9112 lets a server refuse the first; the others it forbids).
DELIBERATE = ("a Transfer-Encoding other than chunked", "a fragment in the request target", "more than one space after the method")


def corpus(folder):
    """id, class, raw of other projects' smuggling requests."""
    for name in ("guardian.jsonl", "smuggler.jsonl"):
        path = os.path.join(folder, "http1", name)
        if os.path.exists(path):
            with open(path) as f:
                for case in map(json.loads, f):
                    yield case["id"], case["class"], base64.b64decode(case["raw_b64"])


def answers_to(lab, raw):
    """All that comes back for raw, in a tunnel; then the connection is gone."""
    c = lab.client()
    try:
        c.send(raw)
        c.half_close()
        return c.rest()[0]
    except (Closed, OSError):
        return b""
    finally:
        c.close(notify=False)


def test_requests_of_other_projects(lab):
    """Each is refused or is one request, well formed and framed as we say, to an origin that reads strictly; the compliant ones pass."""
    folder = os.environ.get("OUTGATE_CORPORA")
    if not folder:
        raise Skip("OUTGATE_CORPORA is not set (a folder with http1/guardian.jsonl and http1/smuggler.jsonl)")
    n = passed = refused_ones = 0
    for name, kind, raw in corpus(folder):
        lab.open.reset()
        got = answers_to(lab, raw.replace(b"@HOST@", b"open.test:%d" % lab.tls_port))
        answers = re.findall(rb"(?:^|\n)HTTP/1\.1 (\d+)", got)
        assert not lab.open.errors, (name, lab.open.errors)
        assert len(lab.open.requests) <= 1 and len(answers) <= 1, (name, lab.open.requests, got)
        if lab.open.requests:
            assert answers == [b"200"], (name, got)
        else:
            assert not answers or answers[0] in (b"400", b"403", b"421", b"431"), (name, got)
        if kind == "Compliant" and not any(why.encode() in got for why in DELIBERATE):
            assert lab.open.requests or not answers, (name, raw, got)  # some break off in their body
        n += 1
        passed += len(lab.open.requests)
        refused_ones += bool(answers) and answers[0] == b"400"
    assert n > 100 and passed > 5 and refused_ones > 100, (n, passed, refused_ones)


def test_a_body_stays_a_body(lab):
    """The control of the one above: the same bytes as a properly framed body do pass, as a body."""
    inner = b"GET /smuggled HTTP/1.1\r\nHost: open.test\r\n\r\n"
    m = lab.get(target="/outer", method="POST", body=inner)
    assert m.status == 200 and m.json()["body"] == inner.decode()
    assert [r.target for r in lab.open.requests] == ["/outer"]
    m = lab.get(target="/outer", method="GET", body=inner)
    assert m.status == 200 and m.json()["body"] == inner.decode()


def test_head_too_large(lab):
    big = [("X-%d" % i, "v" * 1000) for i in range(70)]
    c = lab.client()
    try:
        m = c.ask(headers=big)
        assert m.status == 431 and m.code == "head_too_large", m
    except OSError:
        raise AssertionError("the refusal was lost in a reset")
    assert not lab.open.requests
    assert lab.get(headers=big[:50]).status == 200
    many = [("X-%d" % i, "v") for i in range(200)]
    m = lab.get(headers=many)
    assert m.status == 431 and m.code == "head_too_large", m
    assert lab.get(headers=many[:100]).status == 200
    lab.open.reset(always(b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: %s\r\n" % (i, b"v" * 1000) for i in range(70)) + b"Content-Length: 0\r\n\r\n"))
    m = lab.get()
    assert m.status == 502 and m.code == "origin_protocol", m


def test_paths_that_are_refused(lab):
    for target in ("/a/../b", "/a/./b", "/a/%2e%2e/b", "/a/.%2E/b", "/..", "/a\\b", "/a%5c..%5cb", "/a%00b", "/a%zz", "/a%2", "/a%"):
        c = lab.client()
        m = c.ask(target=target)
        assert m.status == 400 and m.code == "bad_request", (target, m)
    assert not lab.open.requests
    for target in ("/a/..b", "/a/b..", "/...", "/a%2Fb", "/a%2e", "/a?x=../y", "/a%20b"):
        assert lab.get(target=target).status == 200, target
        assert lab.open.last.target == target


def test_trace_is_refused(lab):
    for method in ("TRACE", "TRACK"):
        m = lab.get(method=method)
        assert m.status == 400 and m.code == "bad_request", m
    assert not lab.open.requests
    assert lab.get(method="PROPFIND").status == 200


def test_every_refusal_is_an_event(lab):
    """One that is not counted together with others: the tests before may have used up this second's."""
    for _ in range(20):
        mark = lab.mark()
        refused(lab, b"GET / HTTP/1.1\r\nHost: open.test:%d\r\nX : y\r\n\r\n" % lab.tls_port, "space before the colon")
        e = lab.event(lambda e: e.get("code") == "bad_request", after=mark)
        if "count" not in e:
            break
    assert "count" not in e and e["verdict"] == "deny" and e["status"] == 400 and e["end"] == "bad_request" and e["hint"], e


if __name__ == "__main__":
    main()
