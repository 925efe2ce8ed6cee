#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 as real clients speak it, through the proxy to origins that speak HTTP/1.1: every kind of message both ways, placeholders, refusals;
curl, nghttp, h2load, git, httpx, Go, node, gRPC. A client that is not installed is skipped; nothing leaves loopback. FIELD-CASES: E01, E03, E05.
With OUTGATE_TEST_FULL also those that take long."""
import base64
import contextlib
import hashlib
import json
import os
import random
import re
import socket
import ssl
import subprocess
import sys
import threading
import time

import h2_frames as H
from faults import FULL
from h2_frames import END_STREAM, data
from lab import Closed, Conn, Lab, Skip, always, answer, free_port, main, read_body, read_head, read_request, sanitized, say, wait_for
from test_clients import Session, git_in, git_server, tool


def make_lab():
    return Lab()


def bearer(lab, placeholder=None):
    return ("authorization", "Bearer " + (placeholder or lab.placeholder))


@contextlib.contextmanager
def h2(lab, name="api.test", **kw):
    h = H.connect(lab, name, **kw)
    try:
        yield h
    finally:
        lab.blobs.append(bytes(h.conn.received))
        h.close()


# ---------------------------------------------------------------- by hand: which protocol


def test_alpn(lab):
    """E01: h2 where the client wants it, HTTP/1.1 where it does not, and none where it can do neither."""
    for offer, wanted in ((("h2", "http/1.1"), "h2"), (("http/1.1", "h2"), "h2"), (("h2",), "h2"), (("http/1.1",), "http/1.1"), ((), None),
                          (("http/1.0", "http/1.1"), "http/1.1"), (("h2c", "http/1.1"), "http/1.1")):
        c = lab.client(alpn=offer)
        assert c.tls.selected_alpn_protocol() == wanted, (offer, c.tls.selected_alpn_protocol())
        c.close()
    try:
        lab.client(alpn=("h3", "spdy/3"))
        raise AssertionError("a handshake for a protocol that is not served")
    except (ssl.SSLError, Closed):
        pass
    with h2(lab, tls12=True) as h:
        assert h.ask().status == 200


def test_prior_knowledge(lab):
    """HTTP/2 without TLS in a CONNECT to a plain port: the same rules as for plain HTTP; not on the proxy's own port."""
    c = lab.client("plain.test", port=lab.http_port, tls=False)
    h = H.H2(c, c.default_host())
    s = h.wait(h.request(fields=h.head("GET", "/known", scheme="http")))
    assert s.status == 200 and lab.plain.last.line == "GET /known HTTP/1.1" and lab.plain.last.all("host") == [c.default_host()]
    s = h.ask("GET", "/https")  # the scheme is not what it came by
    assert s.status == 400 and lab.plain.last.target == "/known", s
    h.close()
    c = lab.client("api.test", port=lab.http_port, tls=False)
    h = H.H2(c, c.default_host())
    s = h.wait(h.request(fields=h.head("GET", "/", [bearer(lab)], scheme="http")))
    assert s.status == 403 and s.code == "placeholder_out_of_scope", s
    h.close()
    c = lab.proxy()
    c.send(H.PREFACE + H.settings())
    assert c.rest()[0].startswith(b"HTTP/1.1 400 ")


def test_a_tls_listener_speaks_http_1():
    """The proxy itself is spoken to in HTTP/1.1, whatever a client offers for its connection to it; h2 is for what is inside."""
    lab = Lab(start=False)
    port, config = free_port(["127.0.0.1"]), lab.config
    lab.config = lambda: config().replace(f"proxy: [127.0.0.1:{lab.port}]", f"proxy: [127.0.0.1:{lab.port}, 'tls:127.0.0.1:{port}']")
    with lab:
        lab.start()
        for offer, wanted in ((("h2", "http/1.1"), "http/1.1"), (("http/1.1",), "http/1.1"), (("h2",), None)):
            ctx = ssl.create_default_context(cafile=lab.path("outgate-ca.pem"))
            ctx.set_alpn_protocols(list(offer))
            c = Conn(socket.create_connection(("127.0.0.1", port), 10))
            try:
                c.start_tls(ctx, name="127.0.0.1")
                assert c.tls.selected_alpn_protocol() == wanted, offer
            except ssl.SSLError:
                assert wanted is None, offer
            c.close()


def test_a_refused_host_is_refused_in_h2(lab):
    with h2(lab, "evil.test", port=443) as h:
        for n in range(3):
            s = h.ask("GET", f"/{n}")
            assert s.status == 403 and s.code == "host_denied" and s.json()["error"]["hint"], s
            assert s.get("cache-control") == "no-store" and s.get("proxy-status", "").startswith("outgate"), s
    assert not lab.open.requests


def test_sni_and_authority(lab):
    with h2(lab) as h:
        s = h.ask(authority="open.test")
        assert s.status == 421 and s.code == "misdirected", s
        s = h.ask(authority=h.authority.upper())
        assert s.status == 200 and lab.api.last.get("host") == h.authority.lower(), s
        assert h.ask(authority="api.test.:" + h.authority.split(":")[1]).status == 200
        s = h.ask(authority="api.test:1")
        assert s.status == 421, s


# ---------------------------------------------------------------- by hand: what HTTP/1.1 makes of it


def test_a_request_in_full(lab):
    """The head that the origin sees: one Host, origin form, fields in order, nothing of HTTP/2."""
    with h2(lab, "open.test") as h:
        s = h.ask("GET", "/a%2Fb//c;d=1?x=%20+y&z", [("x-b", "1"), ("x-a", "2 \t 3"), ("x-b", "4"), ("te", "trailers"), ("accept", "*/*"), ("x-8", "caf\xe9")])
        assert s.status == 200 and s.ended
        m = lab.open.last
        assert m.line == "GET /a%2Fb//c;d=1?x=%20+y&z HTTP/1.1"
        assert [x for x in m.headers if x[0].startswith("x-")] == [("x-b", "1"), ("x-a", "2 \t 3"), ("x-b", "4"), ("x-8", "caf\xe9")]
        assert m.all("host") == [h.authority] and not m.all("transfer-encoding") and not [k for k, _ in m.headers if k.startswith(":")]
        e = lab.event(lambda e: e.get("path", "").startswith("/a%2Fb"))
        assert e["http_version"] == "2" or "2" in str(e["http_version"]), e
        assert e["method"] == "GET" and e["host"] == "open.test" and e["status"] == 200 and e["end"] == "ok"


def test_cookies(lab):
    with h2(lab) as h:
        h.ask(more=[("cookie", "a=1"), ("cookie", "b=2"), ("accept", "*/*"), ("cookie", "c=3")])
        assert lab.api.last.all("cookie") == ["a=1; b=2; c=3"]


def test_bodies(lab):
    body = random.Random(2).randbytes(300_000)
    with h2(lab, "open.test") as h:
        for n, (more, parts) in enumerate((([], [body]), ([("content-length", "300000")], [body]), ([], [body[:1], body[1:2], body[2:]]), ([], [b""]),
                                           ([("content-length", "0")], [b""]))):
            whole = b"".join(parts)
            s = h.request("POST", f"/{n}", more, end=False)
            for i, part in enumerate(parts):
                h.send_body(s, part, end=i == len(parts) - 1)
            assert h.wait(s).status == 200
            m = lab.open.last
            assert hashlib.sha256(m.body).digest() == hashlib.sha256(whole).digest(), n
            assert len(m.all("content-length")) + len(m.all("transfer-encoding")) == 1 or not whole, m
            if more:
                assert m.all("content-length") == [more[0][1]]
        s = h.ask("GET", "/none")
        assert not lab.open.last.all("content-length") and not lab.open.last.all("transfer-encoding")


def test_trailers_both_ways(lab):
    lab.api.reset(always(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 9\r\nX-Real: " + lab.real.encode() + b"\r\n\r\n"))
    with h2(lab) as h:
        s = h.wait(h.request("POST", "/t", [bearer(lab)], body=b"body", trailers=[("x-sum", "7")]))
        assert bytes(s.body) == b"hello" and dict(s.trailers)[b"x-sum"] == b"9", s.trailers
        assert dict(s.trailers).get(b"x-real", lab.placeholder.encode()) == lab.placeholder.encode()
        assert lab.api.last.trailers == [("x-sum", "7")] and lab.api.last.body == b"body"


def test_answers_of_every_kind(lab):
    """HEAD, 204, 304, until close, of no length, of nothing; fields that HTTP/2 does not have stay behind."""
    one = "Connection: X-Gone, keep-alive\r\nX-Gone: 1\r\nKeep-Alive: timeout=5\r\nX-Kept: 1\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\n"
    for method, raw, status, body, length in (
        ("GET", f"HTTP/1.1 200 OK\r\n{one}Content-Length: 5\r\n\r\nhello", 200, b"hello", "5"),
        ("GET", f"HTTP/1.1 200 OK\r\n{one}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 200, b"hello", None),
        ("GET", f"HTTP/1.1 200 OK\r\n{one}\r\nhello", 200, b"hello", None),
        ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, b"", "0"),
        ("GET", "HTTP/1.1 204 No Content\r\nX-Kept: 1\r\n\r\n", 204, b"", None),
        ("GET", 'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\nContent-Length: 99\r\n\r\n', 304, b"", "99"),
        ("HEAD", f"HTTP/1.1 200 OK\r\n{one}Content-Length: 12345\r\n\r\n", 200, b"", "12345"),
        ("HEAD", f"HTTP/1.1 200 OK\r\n{one}Transfer-Encoding: chunked\r\n\r\n", 200, b"", None),
        ("GET", "HTTP/1.1 404 Not Found At All\r\nContent-Length: 2\r\n\r\nno", 404, b"no", "2"),
        ("POST", "HTTP/1.1 303 See Other\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", 303, b"", "0"),
    ):
        closes = "200 OK" in raw and "ength" not in raw and "chunked" not in raw
        lab.open.reset(lambda conn, origin, raw=raw, closes=closes: (read_request(conn), conn.send(raw.encode()), conn.close() if closes else conn.rest()))
        with h2(lab, "open.test") as h:
            s = h.ask(method, "/kinds")
            assert s.status == status and bytes(s.body) == body and s.ended, (raw, s)
            assert length is None or s.all("content-length") in ([length], []), (raw, s)
            assert length is not None or not s.all("content-length"), (raw, s)
            if "X-Gone" in raw:
                assert not s.all("x-gone") and s.all("x-kept") == ["1"] and s.all("set-cookie") == ["a=b", "c=d"], s


def test_interim_answers(lab):
    lab.open.reset(always(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", b"HTTP/1.1 102 Processing\r\n\r\n", answer(200, "x")))
    with h2(lab, "open.test") as h:
        s = h.ask()
        assert s.status == 200 and [c for c, _ in s.interim] == [103, 102] and s.interim[0][1] == [(b"link", b"</a>")], s.interim
    lab.open.reset()
    with h2(lab, "open.test") as h:
        n = h.request("POST", "/expects", [("expect", "100-continue"), ("content-length", "4")], end=False)
        h.until(lambda: h.stream(n).interim or h.stream(n).ended, "100 Continue")
        assert h.stream(n).interim[0][0] == 100
        h.send(data(n, b"body", END_STREAM))
        assert h.wait(n).json()["body"] == "body"


def test_what_has_no_place_in_an_answer(lab):
    """More interim answers than may be, a 101 that nobody asked for, an end that is none, framing in trailers."""
    with h2(lab, "open.test") as h:
        for raw, status, code in (((b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 20, answer(200, "x")), 502, "origin_protocol"),
                                  ((b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",), 502, "origin_protocol"),
                                  ((b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 3, answer(200, "x")), 200, None)):
            lab.open.reset(always(*raw))
            s = h.ask()
            assert (s.status, s.code) == (status, code), (raw, s)
        lab.open.reset(say(b"HTTP/1.1 200 OK\r\n\r\nhello", notify=False))
        try:
            raise AssertionError(f"an answer that was cut off is whole: {h.ask()}")
        except H.Reset:
            pass
        lab.open.reset(say(b"HTTP/1.1 200 OK\r\n\r\nhello"))
        assert bytes(h.ask().body) == b"hello"  # the control
        lab.open.reset(always(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 9\r\nContent-Length: 3\r\n\r\n"))
        s = h.ask()
        assert bytes(s.body) == b"hello" and s.trailers == [(b"x-sum", b"9")], s


def test_heads_that_are_too_large(lab):
    """431 or 400, and the next request on the connection is none the worse."""
    with h2(lab, "open.test") as h:
        for status, code, path, more in ((431, "head_too_large", "/", [(f"x-{i}", "1") for i in range(200)]),
                                         (431, "head_too_large", "/", [(f"x-{i}", "v" * 1000) for i in range(100)]), (400, "bad_request", "/" + "a" * 40000, []),
                                         (200, None, "/" + "a" * 10000, [(f"x-{i}", "v" * 400) for i in range(100)])):
            n, raw = h.take_id(), H.block(h.head("GET", path, more))
            h.send(H.headers(n, raw[:16384], END_STREAM | (H.END_HEADERS if len(raw) <= 16384 else 0)) + b"".join(
                H.continuation(n, raw[at : at + 16384], H.END_HEADERS if at + 16384 >= len(raw) else 0) for at in range(16384, len(raw), 16384)))
            s = h.wait(n)
            assert (s.status, s.code) == (status, code), s
            assert h.ask("GET", "/next").status == 200


def test_what_is_refused_says_why(lab):
    """A request that HTTP/2 calls malformed, or that no HTTP/1.1 request may be: 400 with the sentence, and a log that says the same."""
    with h2(lab, "open.test") as h:
        for what, kw in (("a fragment", dict(path="/a#b")), ("bytes above 0x7f", dict(path="/\xe4")), ("dots", dict(path="/a/../b")), ("%00", dict(path="/a%00b")),
                         ("TRACE", dict(method="TRACE")), ("Expect", dict(more=[("expect", "odd")])), ("a method of 300 letters", dict(method="A" * 300))):
            mark = lab.mark()
            n = h.request(**kw)
            s = h.stream(n)
            h.until(lambda: s.ended or s.reset is not None, what)
            assert (s.status, s.code) == (400, "bad_request") and len(s.json()["message"]) > 20, (what, s)
            e = lab.event(lambda e: e.get("code") == "bad_request", after=mark)
            assert e["status"] == 400 and e["end"] == "bad_request" and e["http_version"] == "2", (what, e)
            h.alive()
        assert h.ask("GET", "/fine").status == 200 and [m.target for m in lab.open.requests] == ["/fine"]


def test_a_refused_upload(lab):
    """The refusal comes at once, what the client still sends of the body is no harm, and the connection goes on."""
    with h2(lab, "deny.test", port=443) as h:
        n = h.request("POST", "/up", end=False)
        s = h.stream(n)
        h.until(lambda: s.ended, "the refusal")
        assert s.status == 403 and s.code == "host_denied", s
        for _ in range(10):
            h.send(data(n, bytes(4096)))
        h.send(data(n, b"", END_STREAM))
        assert h.ask("GET", "/next").status == 403 and not h.gone
        assert s.reset in (None, H.NO_ERROR), H.code_name(s.reset)


def test_fields_that_stay_here(lab):
    with h2(lab, "open.test") as h:
        more = [("proxy-authorization", "Basic eDp5"), ("proxy-foo", "x"), ("te", "trailers"), ("x-a", "1"), ("content-length", "4")]
        n = h.request("GET", "/body", more, body=b"test", trailers=[("x-sum", "7")])  # trailers have no place beside a length in HTTP/1.1
        assert h.wait(n).status == 200 and lab.open.last.body == b"test"
        names = {k.lower() for k, _ in lab.open.last.headers}
        assert not names & {"proxy-authorization", "proxy-foo", "via"} and "x-a" in names, names
        assert h.ask("GET", "/next").status == 200 and lab.open.last.body == b""


def test_an_answer_before_the_request_is_whole(lab):
    """A final answer while the upload goes on: it is delivered, and then the stream is at its end."""
    def early(conn, origin):
        origin.requests.append(read_head(conn))
        conn.send(answer(413, "enough", [("Connection", "close")]))
        conn.rest()

    lab.open.reset(early)
    with h2(lab, "open.test") as h:
        n = h.request("POST", "/early", end=False)
        h.send(data(n, b"x" * 1000))
        s = h.stream(n)
        h.until(lambda: s.ended or s.reset is not None, "the answer")
        assert s.status == 413 and bytes(s.body) == b"enough", s
        h.send(data(n, b"x" * 1000))
        assert h.ask("GET", "/next").status in (200, 413)


def test_events_as_they_come(lab):
    """SSE: each event arrives when it was sent, several streams at once."""
    gates = {f"/sse/{i}": threading.Event() for i in range(3)}

    def sse(conn, origin):
        m = read_request(conn)
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n")
        gates[m.target].wait(20)
        conn.send(b"9\r\ndata: 2\n\n\r\n0\r\n\r\n")
        conn.rest()

    lab.open.reset(sse)
    with h2(lab, "open.test") as h:
        ids = {h.request("GET", path): path for path in gates}
        for n in ids:
            h.until(lambda: bytes(h.stream(n).body) == b"data: 1\n\n", "the first event")
        for n in reversed(ids):
            gates[ids[n]].set()
            assert bytes(h.wait(n).body) == b"data: 1\n\ndata: 2\n\n"


def test_ten_megabytes(lab):
    whole = random.Random(3).randbytes(10_000_000)
    digest = hashlib.sha256(whole).hexdigest()

    def handler(conn, origin):
        while True:
            m = read_request(conn)
            conn.send(answer(200, whole if m.method == "GET" else hashlib.sha256(m.body).hexdigest()))

    lab.open.reset(handler)
    with h2(lab, "open.test") as h:
        n = h.request("POST", "/up", end=False)
        h.send_body(n, whole, timeout=50)
        assert bytes(h.wait(n).body).decode() == digest
        assert hashlib.sha256(h.ask("GET", "/down").body).hexdigest() == digest
        h.conn.received.clear()


def test_streams_side_by_side(lab):
    """100 requests on one connection, to an origin that answers in its own time; each gets its own answer and its own close."""
    with h2(lab, "open.test") as h:
        ids = {h.request("POST", f"/side/{i}", body=b"%d" % i): i for i in range(100)}
        for n, i in ids.items():
            s = h.wait(n)
            assert s.status == 200 and s.json()["line"] == f"POST /side/{i} HTTP/1.1" and s.json()["body"] == str(i)
    paths = [m.target for m in lab.open.requests]
    assert len(paths) == 100 == len(set(paths))
    wait_for(lambda: len([e for e in lab.events("close") if e.get("path", "").startswith("/side/")]) == 100, "a close for each")


def test_large_answers_side_by_side(lab):
    """40 streams of half a megabyte and their uploads, mixed: not a byte goes to another stream. Windows of every size."""
    bodies = {f"/{i}": random.Random(i).randbytes(400_000 + 1000 * i) for i in range(40)}

    def handler(conn, origin):
        while True:
            m = read_request(conn)
            ok = m.body in (b"", bodies[m.target][:100_000])
            conn.send(answer(200 if ok else 500, bodies[m.target]))

    lab.open.reset(handler)
    for window in (65535, 1000, 1 << 20):
        if window == 1000 and not FULL:
            continue
        with h2(lab, "open.test", pairs=[(H.INITIAL_WINDOW_SIZE, window)]) as h:
            ids = {}
            for i, path in enumerate(bodies):
                n = h.request("POST" if i % 3 == 0 else "GET", path, end=i % 3 != 0)
                if i % 3 == 0:
                    h.send_body(n, bodies[path][:100_000])
                ids[n] = path
            for n, path in ids.items():
                s = h.wait(n, 30)
                assert s.status == 200 and bytes(s.body) == bodies[path], (path, s.status, len(s.body))
            h.conn.received.clear()


def test_real_values_in_many_answers(lab):
    """Scrubbed in every stream, wherever the pieces are cut; the streams' scrubbers know nothing of each other."""
    def handler(conn, origin):
        while True:
            m = read_request(conn)
            text = b"".join(b"%d " % i + lab.real.encode() + b" " for i in range(int(m.target[1:])))
            conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            step = 7 + int(m.target[1:])
            conn.send(b"".join(b"%x\r\n%s\r\n" % (len(text[at : at + step]), text[at : at + step]) for at in range(0, len(text), step)) + b"0\r\n\r\n")

    lab.api.reset(handler)
    with h2(lab) as h:
        ids = {h.request("GET", f"/{i}", [bearer(lab)] if i % 2 else []): i for i in range(10, 40)}
        for n, i in ids.items():
            assert bytes(h.wait(n).body) == b"".join(b"%d " % k + lab.placeholder.encode() + b" " for k in range(i)), i


def test_an_origin_that_fails(lab):
    """Each failure is one stream's: 502 before the head, a reset after it; the connection goes on."""
    def handler(conn, origin):
        m = read_request(conn)
        if m.target == "/fine":
            conn.send(answer(200, "fine"))
            conn.rest()
        elif m.target == "/bad":
            conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx")
        elif m.target == "/cut":
            conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegin")
            conn.close(notify=False)
        elif m.target == "/chunk":
            conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n")
        elif m.target == "/none":
            conn.close()

    lab.open.reset(handler)
    with h2(lab, "open.test") as h:
        for path in ("/bad", "/none"):
            s = h.ask("GET", path)
            assert s.status == 502 and s.code in ("origin_protocol", "origin_connect"), (path, s)
        for path in ("/cut", "/chunk"):
            n = h.request("GET", path)
            try:
                raise AssertionError(f"{path}: a cut answer is whole: {h.wait(n)}")
            except H.Reset as e:
                assert e.code in (H.INTERNAL_ERROR, H.CANCEL, H.PROTOCOL_ERROR, H.CONNECT_ERROR), e
        assert bytes(h.ask("GET", "/fine").body) == b"fine"


def test_a_stream_that_is_taken_back(lab):
    """RST_STREAM of the client ends the origin's side too, with its close."""
    ended = threading.Event()

    def handler(conn, origin):
        read_request(conn)
        conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegin\r\n")
        conn.rest()
        ended.set()

    lab.open.reset(handler)
    with h2(lab, "open.test") as h:
        n = h.request("GET", "/back")
        h.until(lambda: bytes(h.stream(n).body) == b"begin", "its begin")
        h.send(H.rst(n))
        assert ended.wait(5), "the origin's connection goes on"
        assert lab.event(lambda e: e.get("path") == "/back")["end"] == "client_closed"
        lab.open.reset()
        assert h.ask().status == 200


# ---------------------------------------------------------------- by hand: placeholders


def test_placeholders(lab):
    """Swapped in its slot, scrubbed from what comes back in every place, refused elsewhere; each stream for itself."""
    lab.api.reset(lambda conn, origin: echo_real(lab, conn, origin))
    with h2(lab) as h:
        s = h.ask("GET", "/swap", [bearer(lab)])
        assert s.status == 200 and lab.api.last.get("authorization") == "Bearer " + lab.real
        assert lab.placeholder in s.get("x-back") and lab.placeholder.encode() in bytes(s.body), s
        basic = base64.b64encode(f"x:{lab.placeholder}".encode()).decode()
        assert h.ask("GET", "/basic", [("authorization", "Basic " + basic)]).status == 200
        assert lab.api.last.get("authorization") == "Basic " + base64.b64encode(f"x:{lab.real}".encode()).decode()
        for how in H.FIRST:  # however the client writes it
            n = h.request("GET", "/how", fields=h.head("GET", "/how", [bearer(lab)]), how=how)
            assert h.wait(n).status == 200 and lab.api.last.get("authorization") == "Bearer " + lab.real, how
        before = len(lab.api.requests)
        for more, path in (([("x-other", lab.placeholder)], "/"), ([], "/" + lab.placeholder), ([("cookie", "t=" + lab.placeholder)], "/")):
            s = h.ask("GET", path, more)
            assert s.status == 403 and s.code == "placeholder_wrong_slot", s
        s = h.ask("GET", "/", [("authorization", "Bearer " + lab.real)])
        assert s.status == 403 and s.code == "exfiltration", s
        assert len(lab.api.requests) == before
        assert h.ask("GET", "/none").status == 200 and not lab.api.last.get("authorization"), "nothing stays of another stream"
    with h2(lab, "open.test") as h:
        s = h.ask("GET", "/", [bearer(lab)])
        assert s.status == 403 and s.code == "placeholder_wrong_host", s
    lab.blobs.append(lab.open.requests and lab.open.last.raw or b"")


def echo_real(lab, conn, origin):
    while True:
        m = read_request(conn)
        origin.requests.append(m)
        body = f"begin {lab.real} and {base64.b64encode(lab.real.encode()).decode()} end"
        conn.send(answer(200, body, [("X-Back", lab.real)]))


def test_a_real_value_leaves_in_no_place(lab):
    """In pieces of DATA with padding and other frames between, in trailers, in a head, whole or in base64: to no host, and nothing of it is a whole
    request there. The control: the same with another word of that length."""
    lab.get("api.test", headers=[lab.bearer()])  # the lease is live

    def ways(word):
        raw = word.encode()

        def pieces(h):
            n = h.request("POST", "/pieces", end=False)
            h.send(data(n, b"begin " + raw[:9]) + data(n, b"", 0, 5) + data(n, raw[9:20], 0, 7) + H.window_update(n, 5) + data(n, raw[20:] + b" end", END_STREAM))
            return n

        def bytes_alone(h):
            n = h.request("POST", "/bytes", end=False)
            h.send(b"".join(data(n, raw[i : i + 1]) for i in range(len(raw))) + data(n, b"", END_STREAM))
            return n

        return {"pieces": pieces, "byte by byte": bytes_alone, "a length": lambda h: h.request("POST", "/len", [("content-length", str(len(raw)))], body=raw),
                "trailers": lambda h: h.request("POST", "/tr", body=b"x", trailers=[("x-a", word)]), "the path": lambda h: h.request("GET", "/x/" + word),
                "a field": lambda h: h.request("GET", "/f", [("x-a", word)]), "the method": lambda h: h.request(word, "/m"), "a cookie": lambda h: h.request(
                    "GET", "/c", [("cookie", "a=1"), ("cookie", "b=" + word)]), "base64": lambda h: h.request(
                    "GET", "/b", [("x-a", base64.b64encode(b"u:" + raw).decode())])}

    for word, status, code in (("y" * len(lab.real), 200, None), (lab.real, 403, "exfiltration")):
        for what, way in ways(word).items():
            lab.open.reset()
            with h2(lab, "open.test") as h:
                s = h.wait(way(h))
                assert (s.status, s.code) == (status, code), (what, s)
                assert len(lab.open.requests) == (status == 200), (what, lab.open.requests)


def test_a_cookie_crumb_is_no_hiding_place(lab):
    """What is in several cookie fields is judged as the one field that it becomes."""
    half = len(lab.placeholder) // 2
    with h2(lab) as h:
        s = h.ask("GET", "/", [("cookie", "a=1"), ("cookie", "b=" + lab.placeholder), ("cookie", "c=3")])
        assert s.status == 403, s
        s = h.ask("GET", "/halves", [("cookie", lab.placeholder[:half]), ("cookie", lab.placeholder[half:])])
        assert s.status == 200 and lab.api.last.get("cookie") == lab.placeholder[:half] + "; " + lab.placeholder[half:]


def test_a_refusal_of_a_request_whose_body_is_not_sent_yet(lab):
    """The answer ends the stream; the rest of the body is thrown away, without a reset that some clients take for a failure; one that never
    ends is reset in the end, and the connection goes on."""
    with h2(lab, "narrow.test") as h:
        n = h.request("PUT", "/no", end=False)
        h.until(lambda: h.stream(n).ended, "the refusal")
        assert h.stream(n).status == 403 and h.stream(n).reset is None
        h.send(H.data(n, b"x" * 1000, H.END_STREAM))
        h.alive()
        assert h.stream(n).reset is None
        n = h.request("PUT", "/no", end=False)
        h.until(lambda: h.stream(n).reset is not None, "its end")
        assert h.stream(n).reset == H.NO_ERROR and h.stream(n).status == 403
        h.alive()


def test_curl_shows_a_refusal_of_an_upload(lab):
    curl, s = tool("curl"), Session(lab)
    put = os.path.join(s.home, "put")
    for size in (4, 3000000):
        with open(put, "wb") as f:
            f.write(b"x" * size)
        for _ in range(10):
            code, out, err = s.run(curl, "-sS", "--http2", "-T", put, "-w", "\n%{http_code} %{http_version}", s.url("narrow.test", "/no"))
            assert code == 0 and out.endswith("\n403 2") and "method_denied" in out, (code, out, err)


# ---------------------------------------------------------------- curl, nghttp, h2load


def test_curl(lab):
    curl, s = tool("curl"), Session(lab)
    if b"HTTP2" not in subprocess.run([curl, "-V"], capture_output=True).stdout:
        raise Skip("this curl has no HTTP/2")
    auth = ["-H", f"Authorization: Bearer {s.vars['GITHUB_TOKEN']}"]
    said = ["-sS", "--http2", "-o", "out", "-w", "%{http_version} %{http_code} %{size_download}"]
    for n, (args, wanted) in enumerate((([], "2 200"), (["-I"], "2 200"), (["-d", "x=1"], "2 200"), (["-X", "DELETE"], "2 200"), (["-b", "a=1; b=2"], "2 200"),
                                        (["--tls-max", "1.2"], "2 200"), (["--http1.1"], "1.1 200"))):
        code, out, err = s.run(curl, *said, *args, *auth, s.url(path=f"/c{n}"))
        assert code == 0 and out.startswith(wanted), (args, out, err)
        assert [m.get("authorization") for m in lab.api.requests if m.target == f"/c{n}"] == ["Bearer " + lab.real], args
    code, out, err = s.run(curl, *said, "-p", "--http2-prior-knowledge", s.url("plain.test", "/plain", "http"))
    assert code == 0 and out.startswith("2 200") and lab.plain.last.target == "/plain", (out, err)
    code, out, err = s.run(curl, "-sS", "--http2", "-w", " %{http_version} %{http_code}", f"https://evil.test/")
    assert code == 0 and "host_denied" in out and out.endswith("2 403"), (out, err)
    code, out, err = s.run(curl, "-sS", "--http2", "-Z", "-w", "%{http_version}|%{http_code}\n", *auth, *[s.url(path=f"/z{i}") for i in range(30)], timeout=50)
    assert out.count("2|200") == 30 and code == 0, (code, out[-300:], err)
    assert not lab.leaks(s.said)


def test_curl_transfers(lab):
    """Uploads with and without a length, with Expect; megabytes both ways; trailers."""
    curl, s = tool("curl"), Session(lab)
    whole = random.Random(1).randbytes(10_000_000 if FULL else 3_000_000)
    with open(os.path.join(s.home, "f"), "wb") as f:
        f.write(whole)

    def handler(conn, origin):
        while True:
            m = read_head(conn)
            if m.get("expect"):
                conn.send(b"HTTP/1.1 100 Continue\r\n\r\n")
            read_body(conn, m)
            origin.requests.append(m)
            conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % len(m.body) + m.body + b"\r\n0\r\nX-Sum: 1\r\n\r\n" if m.body else answer(200, whole))

    lab.api.reset(handler)
    for n, args in enumerate((["-T", "f"], ["-T", "-"], ["--data-binary", "@f"], ["-H", "Expect: 100-continue", "-T", "f"], [])):
        code, out, err = s.run(curl, "-sS", "--http2", "-o", "out", "-w", "%{http_version} %{http_code}", "-H", f"Authorization: Bearer {s.vars['GITHUB_TOKEN']}", *args,
                               s.url(path=f"/u{n}"), text=whole if "-" in args else None)
        assert code == 0 and out == "2 200", (args, out, err)
        with open(os.path.join(s.home, "out"), "rb") as f:
            assert hashlib.sha256(f.read()).digest() == hashlib.sha256(whole).digest(), args
    lab.blobs.clear()


class Shim:
    """For clients without a proxy option: a port whose connections are a CONNECT to one name."""

    def __init__(self, lab, name, port=None):
        self.lab, self.to = lab, f"{name}:{port or lab.tls_port}"
        self.sock = socket.socket()
        self.sock.bind(("127.0.0.1", 0))
        self.sock.listen(64)
        self.port = self.sock.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                c, _ = self.sock.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(c,), daemon=True).start()

    def serve(self, c):
        p = socket.create_connection(("127.0.0.1", self.lab.port), 10)
        p.sendall(f"CONNECT {self.to} HTTP/1.1\r\nHost: {self.to}\r\n\r\n".encode())
        head = b""
        while b"\r\n\r\n" not in head:
            head += p.recv(1)
        p.settimeout(None)
        threading.Thread(target=self.copy, args=(p, c), daemon=True).start()
        self.copy(c, p)

    @staticmethod
    def copy(a, b):
        with contextlib.suppress(OSError):
            while part := a.recv(65536):
                b.sendall(part)
        with contextlib.suppress(OSError):
            b.shutdown(socket.SHUT_WR)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()


def test_nghttp(lab):
    """E03, E05: crumbs of cookies, one Host, and a Host that disagrees."""
    nghttp = tool("nghttp")
    with Shim(lab, "api.test") as shim:
        def ask(*fields, path="/"):
            r = subprocess.run([nghttp, "-v", "--no-verify-peer", *[x for f in fields for x in ("-H", f)], f"https://127.0.0.1:{shim.port}{path}"],
                               capture_output=True, timeout=20)
            lab.blobs.append(r.stdout)
            status = re.search(rb":status: (\d+)", r.stdout)
            assert status, r.stdout[-500:] + r.stderr[-300:]
            return int(status[1])

        name = f":authority: api.test:{lab.tls_port}"
        assert ask(name, "cookie: a=1", "cookie: b=2", path="/echo") == 200
        m = lab.api.last
        assert m.all("cookie") == ["a=1; b=2"] and m.all("host") == [f"api.test:{lab.tls_port}"] and m.line == "GET /echo HTTP/1.1", m
        assert ask(name, f"host: api.test:{lab.tls_port}", path="/same") == 200
        assert lab.api.last.all("host") == [f"api.test:{lab.tls_port}"]
        assert ask(name, f"authorization: Bearer {lab.placeholder}", path="/swap") == 200 and lab.api.last.get("authorization") == "Bearer " + lab.real
        before = len(lab.api.requests)
        assert ask(name, "host: deny.test") in (400, 421)
        assert len(lab.api.requests) == before


def test_h2load(lab):
    h2load = tool("h2load")
    with Shim(lab, "open.test") as shim:
        n = 20000 if FULL else 400
        r = subprocess.run([h2load, f"--connect-to=127.0.0.1:{shim.port}", "-n", str(n), "-c", "4", "-m", "10", f"https://open.test:{lab.tls_port}/load"], capture_output=True,
                           timeout=300)
        out = r.stdout.decode()
        assert "Application protocol: h2" in out and f"{n} succeeded, 0 failed, 0 errored" in out, out[-800:] + r.stderr.decode()[-300:]
    assert len([m for m in lab.open.requests if m.target == "/load"]) == n


# ---------------------------------------------------------------- git, python, Go, node


def test_git(lab):
    """A clone and a push; git chooses HTTP/2 by itself."""
    git, s = tool("git"), Session(lab)
    server = git_server(lab, s, 5)
    url = f"https://x-access-token:{s.vars['GITHUB_TOKEN']}@git.test:{lab.tls_port}/srv.git"
    code, out, err = git_in(s, s.home, "clone", "-q", url, "clone2", GIT_TRACE_CURL="1", GIT_TRACE_CURL_NO_DATA="1")
    assert code == 0, err[-600:]
    assert re.search(r"(?i)using http/?2|HTTP/2 200", err), "git did not speak HTTP/2"
    work = os.path.join(s.home, "clone2")
    with open(work + "/big", "wb") as f:
        f.write(random.Random(5).randbytes(3_000_000))
    for args in (("checkout", "-q", "-b", "mine"), ("add", "big"), ("commit", "-q", "-m", "big"), ("push", "-q", "origin", "mine")):
        code, out, err = git_in(s, work, *args)
        assert code == 0, (args, err[-600:])
    assert [x for x in server.seen if x[0] == "POST" and "receive-pack" in x[1] and x[4] > 3_000_000], server.seen
    assert not lab.leaks(s.said)


def python_with(module):
    for python in ("/usr/bin/python3", sys.executable):
        if os.path.exists(python) and subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode == 0:
            return python
    raise Skip(f"python's {module} is not installed")


HTTPX = """
import hashlib, httpx, os, sys
url, token = sys.argv[1], os.environ["GITHUB_TOKEN"]
with httpx.Client(http2=True) as c:
    for i in range(20):
        r = c.get(url + "/x%d" % i, headers={"Authorization": "Bearer " + token})
        assert r.http_version == "HTTP/2" and r.status_code == 200, r
    r = c.post(url + "/up", content=b"x" * 1000000)
    assert r.status_code == 200 and len(r.json()["body"]) == 1000000
    with c.stream("GET", url + "/stream") as r:
        assert sum(len(p) for p in r.iter_bytes()) > 10
print("fine")
"""


def test_httpx(lab):
    python_with("h2")
    python, s = python_with("httpx"), Session(lab)
    code, out, err = s.run(python, "-c", HTTPX, s.url().rstrip("/"))
    assert code == 0 and "fine" in out, err[-600:]
    got = [m.get("authorization") for m in lab.api.requests if m.target.startswith("/x")]
    assert got == ["Bearer " + lab.real] * 20
    assert not lab.leaks(s.said)


GO = """package main
import ("bytes"; "fmt"; "io"; "net/http"; "os"; "sync")
func main() {
    url, token := os.Args[1], os.Getenv("GITHUB_TOKEN")
    var wait sync.WaitGroup
    for i := 0; i < 50; i++ {
        wait.Add(1)
        go func(i int) {
            defer wait.Done()
            var body io.Reader
            method := "GET"
            if i % 2 == 1 { method, body = "POST", io.MultiReader(bytes.NewReader(make([]byte, 100000))) }
            r, _ := http.NewRequest(method, fmt.Sprintf("%s/go/%d", url, i), body)
            r.Header.Set("Authorization", "Bearer " + token)
            if body != nil { r.Trailer = http.Header{"X-Sum": {"7"}} }
            a, err := http.DefaultClient.Do(r)
            if err != nil { fmt.Println(err); os.Exit(1) }
            if a.Proto != "HTTP/2.0" || a.StatusCode != 200 { fmt.Println(a.Proto, a.StatusCode); os.Exit(1) }
            n, err := io.Copy(io.Discard, a.Body)
            if err != nil || n == 0 { fmt.Println(n, err); os.Exit(1) }
        }(i)
    }
    wait.Wait()
    fmt.Println("fine")
}
"""


def test_go(lab):
    go, s = tool("go"), Session(lab)
    with open(os.path.join(s.home, "m.go"), "w") as f:
        f.write(GO)
    code, out, err = s.run(go, "run", "m.go", s.url().rstrip("/"), timeout=300, GOCACHE=s.home + "/cache", GOFLAGS="", GO111MODULE="off")
    assert code == 0 and "fine" in out, out + err[-600:]
    got = [m for m in lab.api.requests if m.target.startswith("/go/")]
    assert len(got) == 50 and {m.get("authorization") for m in got} == {"Bearer " + lab.real}
    assert {m.trailers and tuple(m.trailers) or () for m in got if m.method == "POST"} == {(("X-Sum", "7"),)} or {
        len(m.trailers) for m in got if m.method == "POST"} == {1}, [m.trailers for m in got]


NODE = """
const http2 = require('http2'), net = require('net'), tls = require('tls'), fs = require('fs');
const [host, port, proxy, ca] = process.argv.slice(1);
const s = net.connect(proxy, '127.0.0.1', () => s.write(`CONNECT ${host}:${port} HTTP/1.1\\r\\nHost: ${host}:${port}\\r\\n\\r\\n`));
s.once('data', () => {
  const t = tls.connect({ socket: s, servername: host, ca: fs.readFileSync(ca), ALPNProtocols: ['h2'] }, () => {
    const c = http2.connect(`https://${host}:${port}`, { createConnection: () => t });
    let left = 20;
    for (let i = 0; i < 20; i++) {
      const r = c.request({ ':method': 'POST', ':path': '/node/' + i, authorization: 'Bearer ' + process.env.GITHUB_TOKEN });
      let status, size = 0;
      r.on('response', h => status = h[':status']).on('data', d => size += d.length);
      r.on('end', () => { if (status != 200 || !size) { console.log(status, size); process.exit(1); } if (!--left) { console.log('fine'); c.close(); } });
      r.on('error', e => { console.log(e); process.exit(1); });
      r.end('x'.repeat(50000));
    }
  });
});
"""


def test_node(lab):
    node, s = tool("node"), Session(lab)
    code, out, err = s.run(node, "-e", NODE, "api.test", str(lab.tls_port), str(lab.port), lab.path("outgate-ca.pem"))
    assert code == 0 and "fine" in out, out + err[-600:]
    got = [m for m in lab.api.requests if m.target.startswith("/node/")]
    assert len(got) == 20 and {m.get("authorization") for m in got} == {"Bearer " + lab.real} and {len(m.body) for m in got} == {50000}
    assert not lab.leaks(s.said)


# ---------------------------------------------------------------- gRPC


class Grpc:
    """A server of the methods below, whose HTTP/1.1 carries what gRPC needs: chunks both ways at once, and trailers."""

    def __init__(self):
        self.seen = []

    def __call__(self, conn, origin):
        while True:
            m = read_head(conn)
            origin.requests.append(m)
            self.seen.append(m)
            self.method(conn, m)

    def messages(self, conn, m):
        """The request's messages, each as soon as it is whole."""
        buf = b""
        while True:
            while len(buf) >= 5 and len(buf) >= 5 + int.from_bytes(buf[1:5], "big"):
                n = int.from_bytes(buf[1:5], "big")
                yield buf[5 : 5 + n]
                buf = buf[5 + n :]
            if m.all("content-length"):
                if getattr(m, "taken", False):
                    return
                m.taken, buf = True, conn.exactly(int(m.get("content-length")))
                continue
            n = int(conn.until(b"\r\n")[:-2].split(b";")[0], 16)
            if n == 0:
                while conn.until(b"\r\n") != b"\r\n":
                    pass
                return
            buf += conn.exactly(n)
            conn.exactly(2)

    def method(self, conn, m):
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\n"

        def say(message):
            raw = b"\0" + len(message).to_bytes(4, "big") + message
            conn.send(b"%x\r\n" % len(raw) + raw + b"\r\n")

        def end(status=0, text=b""):
            conn.send(b"0\r\nGrpc-Status: %d\r\n" % status + (b"Grpc-Message: " + text + b"\r\n" if text else b"") + b"\r\n")

        if m.target == "/t.T/Fails":  # trailers only
            list(self.messages(conn, m))
            conn.send(head + b"Content-Length: 0\r\nGrpc-Status: 5\r\nGrpc-Message: no such thing\r\n\r\n")
            return
        if m.target == "/t.T/Slow":
            list(self.messages(conn, m))
            with contextlib.suppress(Closed, OSError):
                conn.rest()
            raise Closed(True)
        conn.send(head + b"Transfer-Encoding: chunked\r\n\r\n")
        if m.target == "/t.T/Many":
            list(self.messages(conn, m))
            for i in range(5):
                say(b"%d" % i)
        elif m.target == "/t.T/Sum":
            say(b"%d" % sum(len(x) for x in self.messages(conn, m)))
        else:  # Echo, Chat: each message is answered before the next is sent
            for message in self.messages(conn, m):
                say(message)
        end(9 if m.target == "/t.T/Late" else 0, b"too late" if m.target == "/t.T/Late" else b"")


GRPC = """
import grpc, os, sys
target, free, ca, token = sys.argv[1], sys.argv[2], sys.argv[3], os.environ["GITHUB_TOKEN"]
trust = grpc.ssl_channel_credentials(open(ca, "rb").read())
channel, other = grpc.secure_channel(target, trust), grpc.secure_channel(free, trust)
same = lambda b: b
meta = [("authorization", "Bearer " + token)]
def fails(call):
    try: call()
    except grpc.RpcError as e: return e.code().name, e.details()
    return "OK", None
echo = channel.unary_unary("/t.T/Echo", same, same)
assert echo(b"hello", metadata=meta, timeout=20) == b"hello"
assert echo(b"x" * 3000000, metadata=meta, timeout=20) == b"x" * 3000000
assert list(channel.unary_stream("/t.T/Many", same, same)(b"", metadata=meta, timeout=20)) == [b"0", b"1", b"2", b"3", b"4"]
assert channel.stream_unary("/t.T/Sum", same, same)(iter([b"abc"] * 100), metadata=meta, timeout=20) == b"300"
def chat(channel, meta, words):
    import queue
    q = queue.Queue()
    said = channel.stream_stream("/t.T/Chat", same, same)(iter(q.get, None), metadata=meta, timeout=20)
    for w in words:
        q.put(w)
        assert next(said) == w
    q.put(None)
    assert list(said) == []
chat(other, [], [bytes([b]) for b in range(256)])
chat(channel, meta, [b"%d\\n" % i for i in range(10)])
print(fails(lambda: channel.unary_unary("/t.T/Fails", same, same)(b"", metadata=meta, timeout=20)))
print(fails(lambda: channel.unary_unary("/t.T/Slow", same, same)(b"", metadata=meta, timeout=0.5)))
print(fails(lambda: channel.unary_unary("/t.T/Echo", same, same)(b"", metadata=[("x-wrong", token)], timeout=20)))
futures = [echo.future(b"%d" % i, metadata=meta, timeout=20) for i in range(50)]
assert [f.result() for f in futures] == [b"%d" % i for i in range(50)]
print("fine")
"""
GRPC_LONG = """
import grpc, queue, sys
same = lambda b: b
channel = grpc.secure_channel(sys.argv[1], grpc.ssl_channel_credentials(open(sys.argv[2], "rb").read()))
q = queue.Queue()
said = channel.stream_stream("/t.T/Chat", same, same)(iter(q.get, None), timeout=100)
for i in range(int(sys.argv[3])):
    q.put(b"%d\\n" % i)
    assert next(said) == b"%d\\n" % i, i
q.put(None)
echo = channel.unary_unary("/t.T/Echo", same, same)
for i in range(int(sys.argv[3]) // 4): assert echo(b"x" * 100, timeout=20) == b"x" * 100
for i in range(60): echo.future(b"x", timeout=20).cancel()
assert echo(b"y", timeout=20) == b"y"
print("fine")
"""
GRPC_CHAT = """
import grpc, os, sys
channel = grpc.secure_channel(sys.argv[1], grpc.ssl_channel_credentials(open(sys.argv[2], "rb").read()))
import queue
q = queue.Queue()
said = channel.stream_stream("/t.T/Chat", lambda b: b, lambda b: b)(iter(q.get, None), metadata=[("authorization", "Bearer " + os.environ["GITHUB_TOKEN"])], timeout=3)
for b in range(256):
    q.put(bytes([b]))
    try: assert next(said) == bytes([b])
    except grpc.RpcError as e: print("held", hex(b), e.code().name); sys.exit()
q.put(None)
print("fine")
"""
GRPC_REFUSED = """
import grpc, sys
channel = grpc.secure_channel(sys.argv[1], grpc.ssl_channel_credentials(open(sys.argv[2], "rb").read()))
try: channel.unary_unary("/t.T/Echo", lambda b: b, lambda b: b)(b"", timeout=20)
except grpc.RpcError as e: print(e.code().name, "|", e.details())
"""


def grpc_session(lab):
    python, s = python_with("grpc"), Session(lab)
    proxy = f"http://127.0.0.1:{lab.port}"
    return python, s, dict(https_proxy=proxy, http_proxy=proxy, grpc_proxy=proxy, no_proxy="", no_grpc_proxy="", GRPC_VERBOSITY="ERROR")


def test_grpc(lab):
    """Unary, streaming each way and both, a message of megabytes, a deadline, an error of the server, many at once: the real client."""
    python, s, env = grpc_session(lab)
    server = Grpc()
    lab.api.reset(server)
    lab.open.reset(server)
    code, out, err = s.run(python, "-c", GRPC, f"api.test:{lab.tls_port}", f"open.test:{lab.tls_port}", lab.path("outgate-ca.pem"), **env)
    assert code == 0 and "fine" in out, out + err[-800:]
    assert "('NOT_FOUND', 'no such thing')" in out and "DEADLINE_EXCEEDED" in out, out
    wrong = [x for x in out.splitlines() if "PERMISSION_DENIED" in x]
    assert len(wrong) == 1 and "placeholder" in wrong[0], out
    assert {m.get("authorization") for m in lab.api.requests} == {"Bearer " + lab.real}
    assert {m.get("te") for m in server.seen} <= {"trailers", None} and {m.get("content-type") for m in server.seen} == {"application/grpc"}
    wait_for(lambda: [e for e in lab.events("close") if e.get("path") == "/t.T/Slow"], "the close of what met its deadline")
    assert [e["end"] for e in lab.events("close") if e.get("path") == "/t.T/Slow"] == ["client_closed"]
    assert not lab.leaks(s.said)


def test_grpc_of_many_messages(lab):
    """Thousands of small messages as fast as they go, with the PINGs and WINDOW_UPDATEs by which the client measures the way; calls taken back."""
    python, s, env = grpc_session(lab)
    lab.open.reset(Grpc())
    code, out, err = s.run(python, "-c", GRPC_LONG, f"open.test:{lab.tls_port}", lab.path("outgate-ca.pem"), "20000" if FULL else "900", timeout=110, **env)
    assert code == 0 and "fine" in out, out + err[-500:]


def test_grpc_messages_are_not_held(lab):
    """On a host with a live value too: a message whose end could begin a value goes out when it is whole, or the two sides would wait for
    each other."""
    python, s, env = grpc_session(lab)
    lab.api.reset(Grpc())
    code, out, err = s.run(python, "-c", GRPC_CHAT, f"api.test:{lab.tls_port}", lab.path("outgate-ca.pem"), **env)
    assert code == 0 and "fine" in out, out + err[-500:]


def test_grpc_refusals(lab):
    """A refusal is a status that the client shows, with the sentence: 7 for what is denied, 14 for what may come back."""
    python, s, env = grpc_session(lab)
    for target, status in (("evil.test:443", "PERMISSION_DENIED"), (f"down.test:{lab.tls_port}", "UNAVAILABLE")):
        code, out, err = s.run(python, "-c", GRPC_REFUSED, target, lab.path("outgate-ca.pem"), **env)
        assert out.startswith(status) and len(out.split("|")[1].strip()) > 10, (target, out, err[-300:])
    with h2(lab, "evil.test", port=443) as h:
        a = h.ask("POST", "/t.T/Echo", [("content-type", "application/grpc"), ("te", "trailers")], body=b"\0\0\0\0\0")
        assert a.status == 200 and a.get("content-type", "").startswith("application/grpc") and a.get("grpc-status", dict(a.trailers).get(b"grpc-status")) in ("7", b"7"), a


# ---------------------------------------------------------------- origins that speak HTTP/2

GRPC_SERVER = """
import grpc, hashlib, os, sys, time
from concurrent import futures
def logged(context):
    told = dict(context.invocation_metadata())
    os.write(1, hashlib.sha256(told.get("authorization", "").encode()).hexdigest().encode() + b"\\n")  # whole lines: there are many threads
def echo(request, context): logged(context); return request
def fails(request, context): logged(context); context.abort(grpc.StatusCode.NOT_FOUND, "no such thing")
def slow(request, context):
    logged(context)
    while context.is_active(): time.sleep(0.02)
    os.write(1, b"slow ended\\n")
    return b""
def many(request, context):
    logged(context)
    for i in range(5): yield b"%d" % i
def total(requests, context): logged(context); return b"%d" % sum(len(r) for r in requests)
def chat(requests, context):
    logged(context)
    for r in requests: yield r
unary, out, into, both = (grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler, grpc.stream_unary_rpc_method_handler,
                          grpc.stream_stream_rpc_method_handler)
methods = {"Echo": unary(echo), "Fails": unary(fails), "Slow": unary(slow), "Many": out(many), "Sum": into(total), "Chat": both(chat)}
server = grpc.server(futures.ThreadPoolExecutor(60), options=[("grpc.max_receive_message_length", -1)])
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.T", methods),))
cred = grpc.ssl_server_credentials([(open(sys.argv[2], "rb").read(), open(sys.argv[3], "rb").read())])
assert server.add_secure_port(sys.argv[1], cred)
server.start()
print("ready", flush=True)
server.wait_for_termination()
"""


def wants_h2_of_origins(lab):
    """Skip where the proxy offers its origins nothing but HTTP/1.1."""
    spoken = []
    lab.open.ctx.set_alpn_protocols(["h2", "http/1.1"])
    lab.open.reset(lambda conn, origin: spoken.append(conn.tls.selected_alpn_protocol()))
    with h2(lab, "open.test") as h:
        h.ask()
    if "h2" not in spoken:
        raise Skip("HTTP/2 is not offered to origins")


def h2_origin_lab():
    return Lab(start=False, hosts={"grpc.test": "127.0.0.6"}, rules="  - {name: grpc, hosts: [grpc.test], ports: [PORT], action: allow}\n", credentials="""  - name: grpc
    agents: [coder]
    hosts: [grpc.test]
    ports: [PORT]
    slots: ["header:authorization"]
    env: GRPC_TOKEN
    source: {file: REAL2}
""").patched()


@contextlib.contextmanager
def server_of(lab, argv, log):
    """A server of its own process; ended by its pid."""
    with open(lab.path(log), "wb") as f:
        proc = subprocess.Popen(argv, stdout=f, stderr=f)
    try:
        def listens():
            assert proc.poll() is None, open(lab.path(log), "rb").read()[-500:]
            with socket.socket() as s:
                return s.connect_ex((lab.hosts["grpc.test"], lab.tls_port)) == 0

        wait_for(listens, "the server")
        yield lambda: open(lab.path(log)).read()
    finally:
        proc.terminate()
        proc.wait(5)


def test_grpc_end_to_end():
    """The real client, the real server, HTTP/2 on both sides: the same calls as above, and what the server saw."""
    with h2_origin_lab() as lab:
        python, s, env = grpc_session(lab)
        wants_h2_of_origins(lab)
        argv = [python, "-c", GRPC_SERVER, f"{lab.hosts['grpc.test']}:{lab.tls_port}", lab.path("origin.key"), lab.path("origin.pem")]
        with server_of(lab, argv, "grpc.log") as said:
            target = f"grpc.test:{lab.tls_port}"
            code, out, err = s.run(python, "-c", GRPC.replace("other, []", "channel, []").replace("bytes([b]) for b in range(256)", "b'%d\\n' % b for b in range(256)"),
                                   target, target, lab.path("outgate-ca.pem"), GITHUB_TOKEN=s.vars["GRPC_TOKEN"], **env)
            assert code == 0 and "fine" in out, out + err[-800:]
            assert "('NOT_FOUND', 'no such thing')" in out and "DEADLINE_EXCEEDED" in out, out
            wanted = hashlib.sha256(("Bearer " + lab.real2).encode()).hexdigest()
            none = hashlib.sha256(b"").hexdigest()
            got = set(re.findall("^[0-9a-f]{64}$", said(), re.M))
            assert got == {wanted, none}, (got, wanted, none)
            wait_for(lambda: "slow ended" in said(), "the server's notice that the call is over")
        assert not lab.leaks(s.said)


def test_grpc_end_to_end_of_many_messages():
    if not FULL:
        raise Skip("the same as of an HTTP/1.1 origin: OUTGATE_TEST_FULL=1 runs it")
    with h2_origin_lab() as lab:
        python, s, env = grpc_session(lab)
        wants_h2_of_origins(lab)
        argv = [python, "-c", GRPC_SERVER, f"{lab.hosts['grpc.test']}:{lab.tls_port}", lab.path("origin.key"), lab.path("origin.pem")]
        with server_of(lab, argv, "grpc.log"):
            code, out, err = s.run(python, "-c", GRPC_LONG, f"grpc.test:{lab.tls_port}", lab.path("outgate-ca.pem"), "20000", timeout=110, **env)
            assert code == 0 and "fine" in out, out + err[-500:]


def test_nghttpd():
    """Files of a real server, up and down, many at once; HTTP/1.1 and HTTP/2 clients side by side."""
    nghttpd, curl = tool("nghttpd"), tool("curl")
    with h2_origin_lab() as lab:
        s = Session(lab)
        wants_h2_of_origins(lab)
        whole = random.Random(9).randbytes(10_000_000 if FULL else 2_000_000)
        os.makedirs(lab.path("files"))
        for name, content in (("big", whole), ("small", b"small")):
            with open(lab.path("files", name), "wb") as f:
                f.write(content)
        argv = [nghttpd, "-a", lab.hosts["grpc.test"], "-d", lab.path("files"), "--echo-upload", "--trailer", "x-sum: 7", str(lab.tls_port), lab.path("origin.key"),
                lab.path("origin.pem")]
        with server_of(lab, argv, "nghttpd.log"):
            for version in ("--http2", "--http1.1"):
                for args, name, status in (([], "big", "200"), (["-T", lab.path("files", "big")], "big", "200"), (["-I"], "small", "200"), ([], "none", "404")):
                    code, out, err = s.run(curl, "-sS", version, "-o", "out", "-w", "%{http_code}", *args, s.url("grpc.test", "/" + name))
                    assert code == 0 and out == status, (version, args, out, err)
                    if name == "big":
                        with open(os.path.join(s.home, "out"), "rb") as f:
                            assert f.read() == whole, (version, args)
            with h2(lab, "grpc.test") as h:
                ids = [h.request("GET", "/small") for _ in range(90)]
                for n in ids:
                    a = h.wait(n)
                    assert a.status == 200 and bytes(a.body) == b"small" and a.trailers == [(b"x-sum", b"7")], a
            before = lab.worker_rss_kib()
            with h2(lab, "grpc.test", pairs=[(H.INITIAL_WINDOW_SIZE, 0)], manual=True) as h:  # 60 that are not taken, one beside them, one of them at last
                ids = [h.request("GET", "/big") for _ in range(60)]
                h.until(lambda: all(h.stream(n).status == 200 for n in ids), "the heads")
                n = h.request("GET", "/small")
                h.send(H.window_update(n, 100))
                assert bytes(h.wait(n).body) == b"small"
                grown = lab.worker_rss_kib() - before
                assert sanitized() or grown < 32 * 1024, f"{grown} KiB for 60 streams that are not taken"
                h.send(H.window_update(0, 1 << 24) + H.window_update(ids[7], 1 << 24))
                assert bytes(h.wait(ids[7]).body) == whole
                h.conn.received.clear()
        lab.blobs.clear()


if __name__ == "__main__":
    main()
