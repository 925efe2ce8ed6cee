#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 through the proxy: messages of every framing both ways, and every way a connection can end."""
import hashlib
import re
import threading
import time

from lab import (Client, Closed, Lab, always, answer, echo, main, read_body, read_head, read_request, read_response, sanitized, say,
                 wait_for)


def test_keep_alive(lab):
    c = lab.client()
    for i in range(3):
        m = c.ask(target=f"/{i}")
        assert m.status == 200 and m.json()["line"] == f"GET /{i} HTTP/1.1"
    assert len(lab.open.requests) == 3 and len(lab.open.conns) == 1


def test_origin_connection_is_pooled_across_clients(lab):
    for _ in range(3):
        assert lab.get().status == 200
    assert len(lab.open.conns) == 1, f"{len(lab.open.conns)} connections for 3 requests"


def test_pipelining(lab):
    c = lab.client()
    raw = b"".join(b"GET /%d HTTP/1.1\r\nHost: open.test:%d\r\n\r\n" % (i, lab.tls_port) for i in range(100))
    c.send(raw)
    for i in range(100):
        assert read_response(c).json()["line"] == f"GET /{i} HTTP/1.1"
    assert [m.target for m in lab.open.requests] == [f"/{i}" for i in range(100)]


def test_pipelining_behind_a_body(lab):
    c = lab.client()
    c.send(b"POST /1 HTTP/1.1\r\nHost: open.test:%d\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
           b"GET /2 HTTP/1.1\r\nHost: open.test:%d\r\n\r\n" % (lab.tls_port, lab.tls_port))
    assert read_response(c).json()["body"] == "abc"
    assert read_response(c).json()["line"] == "GET /2 HTTP/1.1"


def test_request_line_and_headers_come_through_unchanged(lab):
    m = lab.get(target="/a%2Fb//c;d=1?x=%20+y&z", headers=[("x-b", "1"), ("X-A", "2 \t 3"), ("x-b", "4"), ("X-Empty", ""), ("X-8", "caf\xe9")])
    assert m.status == 200
    seen = lab.open.last
    assert seen.line == "GET /a%2Fb//c;d=1?x=%20+y&z HTTP/1.1"
    assert [h for h in seen.headers if h[0].lower().startswith("x-")] == [
        ("x-b", "1"), ("X-A", "2 \t 3"), ("x-b", "4"), ("X-Empty", ""), ("X-8", "caf\xe9")]
    assert seen.all("host") == [f"open.test:{lab.tls_port}"]


def test_hop_by_hop_fields_stay_here(lab):
    m = lab.get(headers=[("Connection", "X-Drop, keep-alive"), ("X-Drop", "1"), ("Keep-Alive", "timeout=5"), ("Proxy-Connection", "keep-alive"),
                         ("Proxy-Authorization", "Basic c2Vzczp0b2s="), ("Proxy-Foo", "x"), ("TE", "trailers"), ("X-Keep", "2")])
    assert m.status == 200
    names = {k.lower() for k, _ in lab.open.last.headers}
    assert "x-keep" in names
    assert not names & {"x-drop", "keep-alive", "proxy-connection", "proxy-authorization", "proxy-foo", "via"}, names
    assert lab.open.last.raw.find(b"c2Vzczp0b2s") < 0


def test_answer_fields(lab):
    lab.open.reset(always(answer(200, "x", [("Alt-Svc", 'h3=":443"'), ("NEL", "{}"), ("Report-To", "{}"), ("X-One", "1"), ("x-two", "2"),
                                             ("Set-Cookie", "a=b"), ("Set-Cookie", "c=d"), ("Connection", "X-Gone"), ("X-Gone", "1"), ("Proxy-X", "1")])))
    m = lab.get()
    names = [k for k, _ in m.headers]
    assert [k for k in names if k.lower().startswith("x-")] == ["X-One", "x-two"], names
    assert m.all("set-cookie") == ["a=b", "c=d"]
    assert not {k.lower() for k in names} & {"alt-svc", "nel", "report-to", "x-gone", "proxy-x", "via"}, names


def test_chunked_request_with_trailers(lab):
    c = lab.client()
    c.send(b"POST /up HTTP/1.1\r\nHost: open.test:%d\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
           b"5;ext=1\r\nhello\r\n6\r\n world\r\n0\r\nX-Sum: 7\r\nContent-Length: 3\r\nAuthorization: x\r\nHost: evil.test\r\n\r\n" % lab.tls_port)
    m = read_response(c).json()
    assert m["body"] == "hello world"
    assert m["trailers"] == [["X-Sum", "7"]], m["trailers"]
    head = lab.open.last
    assert head.all("transfer-encoding") == ["chunked"] and not head.all("content-length") and b"ext=1" not in bytes(lab.open.conns[0].received)
    assert c.ask().status == 200


def test_chunked_request_cut_anywhere(lab):
    raw = (b"POST /up HTTP/1.1\r\nHost: open.test:%d\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\nX: y\r\n\r\n" % lab.tls_port)
    c = lab.client()
    start = raw.index(b"\r\n\r\n") - 2
    for cut in range(start, len(raw), 2):
        c.send(raw, [cut])
        assert read_response(c).json()["body"] == "hello!", cut


def test_a_body_in_records_that_come_together(lab):
    """Head and body are TLS records of their own in one write: what the TLS layer has read already is not forgotten."""
    head = b"POST / HTTP/1.1\r\nHost: open.test:%d\r\n" % lab.tls_port
    for parts in ([b"5\r\nhello\r\n", b"0\r\n\r\n"], [b"5\r\nhel", b"lo\r\n1\r\n!\r\n0\r\n\r\n"]):
        c = lab.client(timeout=3)
        c.send_together(head + b"Transfer-Encoding: chunked\r\n\r\n", *parts)
        assert read_response(c).json()["body"].startswith("hello")
    c.send_together(head + b"Content-Length: 5\r\n\r\n", b"hel", b"lo")
    assert read_response(c).json()["body"] == "hello"


def test_many_small_records_that_come_together(lab):
    """More of them in one read of the socket than one turn of the loop takes, both ways."""
    c = lab.client(timeout=3)
    raw = b"POST / HTTP/1.1\r\nHost: open.test:%d\r\nContent-Length: 100\r\n\r\n" % lab.tls_port + b"x" * 100
    c.send_together(*[bytes([b]) for b in raw])
    assert read_response(c).json()["body"] == "x" * 100

    def handler(conn, origin):
        read_request(conn)
        conn.send_together(*[bytes([b]) for b in answer(200, "y" * 100)])
        conn.rest()

    lab.open.reset(handler)
    assert lab.client(timeout=3).ask().body == b"y" * 100


def test_requests_in_records_that_come_together(lab):
    c = lab.client(timeout=3)
    c.send_together(*[b"GET /%d HTTP/1.1\r\nHost: open.test:%d\r\n\r\n" % (i, lab.tls_port) for i in range(5)])
    for i in range(5):
        assert read_response(c).json()["line"] == f"GET /{i} HTTP/1.1"


def test_head_one_byte_at_a_time(lab):
    c = lab.client()
    for b in b"GET /slow HTTP/1.1\r\nHost: open.test:%d\r\nX: y\r\n\r\n" % lab.tls_port:
        c.send(bytes([b]))
    assert read_response(c).json()["line"] == "GET /slow HTTP/1.1"


def test_chunked_answer_with_trailers(lab):
    lab.open.reset(always(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5;a=b\r\nhello\r\n", 0.05,
                          b"6\r\n world\r\n0\r\nX-Sum: 7\r\nContent-Length: 1\r\n\r\n"))
    c = lab.client()
    for _ in range(2):
        m = c.ask(headers=[("TE", "trailers")])
        assert m.body == b"hello world" and m.trailers == [("X-Sum", "7")], m.trailers
    assert b"a=b" not in bytes(c.received)


def test_bodies_are_bit_identical(lab):
    data = b"".join(hashlib.sha256(b"%d" % i).digest() for i in range(32768))  # 1 MiB of every byte
    got = {}

    def handler(conn, origin):
        m = read_request(conn)
        got["up"] = hashlib.sha256(m.body).hexdigest()
        conn.send(answer(200, m.body))
        conn.rest()

    for name, o in (("open.test", lab.open), ("api.test", lab.api)):
        o.reset(handler)
        m = lab.get(name, "/x", "PUT", [lab.bearer()] if o is lab.api else [], body=data)
        assert got["up"] == hashlib.sha256(data).hexdigest(), name
        assert m.body == data, name


def test_expect_continue(lab):
    for value in ("100-continue", "100-Continue"):
        c = lab.client()
        start = time.monotonic()
        c.send(b"PUT /up HTTP/1.1\r\nHost: open.test:%d\r\nContent-Length: 5\r\nExpect: %s\r\n\r\n" % (lab.tls_port, value.encode()))
        assert read_head(c).status == 100
        assert time.monotonic() - start < 0.8
        c.send(b"hello")
        m = read_response(c)
        assert m.status == 200 and m.json()["body"] == "hello" and not m.interim


def test_expect_continue_chunked_with_trailers(lab):
    c = lab.client()
    c.send(b"PUT /up HTTP/1.1\r\nHost: open.test:%d\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\nTrailer: X-Sum\r\n\r\n" % lab.tls_port)
    assert read_head(c).status == 100
    c.send(b"5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n")
    m = read_response(c).json()
    assert m["body"] == "hello" and m["trailers"] == [["X-Sum", "1"]]


def test_expect_continue_final_answer_first(lab):
    def handler(conn, origin):
        origin.requests.append(read_head(conn))
        conn.send(answer(417, "no", [("Connection", "close")], "Expectation Failed"))
        conn.close()

    lab.open.reset(handler)
    c = lab.client()
    c.send(b"PUT /up HTTP/1.1\r\nHost: open.test:%d\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n" % lab.tls_port)
    m = read_response(c)
    assert m.status == 417 and m.body == b"no"


def test_expect_without_waiting(lab):
    c = lab.client()
    c.send(b"PUT /up HTTP/1.1\r\nHost: open.test:%d\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello" % lab.tls_port)
    assert read_response(c).json()["body"] == "hello"


def test_early_hints(lab):
    lab.open.reset(always(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 0.05, answer(200, "ok")))
    c = lab.client()
    for i in range(2):
        m = c.ask(target=f"/{i}")
        assert m.status == 200 and m.body == b"ok"
        assert all(x.status == 103 for x in m.interim)
    assert c.silent_for(0.1)


def test_too_many_interim_answers(lab):
    lab.open.reset(always(b"HTTP/1.1 103 X\r\n\r\n" * 5, answer(200, "ok")))
    assert lab.get().status == 200  # the control
    lab.open.reset(always(b"HTTP/1.1 103 X\r\n\r\n" * 50, answer(200, "ok")))
    c = lab.client()
    try:
        m = c.ask()
        assert m.status == 502 and m.code == "origin_protocol", m
        assert len(m.interim) <= 9
    except Closed:
        pass  # an interim answer had gone out: the exchange is cut
    lab.event(lambda e: e.get("code") == "origin_protocol" or e.get("end") == "origin_protocol")


def test_early_answer_ends_the_upload(lab):
    def handler(conn, origin):
        origin.requests.append(read_head(conn))
        conn.exactly(1024)
        conn.send(answer(413, "big", [("Connection", "close")], "Too Large"))
        conn.close()

    lab.open.reset(handler)
    c = lab.client()

    def upload():
        try:
            c.write("PUT", "/up", body=b"x" * (8 << 20))
        except OSError:
            pass

    t = threading.Thread(target=upload, daemon=True)
    t.start()
    m = read_response(c)
    assert m.status == 413 and m.body == b"big", m
    c.close()
    t.join(5)


def test_head(lab):
    lab.open.reset(always(b"HTTP/1.1 200 OK\r\nContent-Length: 1488324\r\n\r\n"))
    c = lab.client()
    for _ in range(2):
        m = c.ask("HEAD")
        assert m.status == 200 and m.all("content-length") == ["1488324"], m
    lab.open.handler = echo
    assert c.silent_for(0.1)


def test_answers_without_a_body(lab):
    for status in (204, 304):
        head = b"HTTP/1.1 %d X\r\n%s\r\n" % (status, b"Content-Length: 77\r\nETag: \"a\"\r\n" if status == 304 else b"")
        lab.open.reset(always(head))
        c = lab.client()
        for _ in range(2):
            m = c.ask()
            assert m.status == status and not m.all("transfer-encoding")
            if status == 304:
                assert m.get("etag") == '"a"'
        assert c.silent_for(0.1)


def test_close_delimited_answer(lab):
    for head in (b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n", b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"):
        lab.open.reset(say(head, b"load", 0.05, b"ed"))
        m = lab.get()
        assert m.status == 200 and m.body == b"loaded", m
        assert m.line.startswith("HTTP/1.1 ")
        lab.plain.reset(say(head, b"load", 0.05, b"ed"))
        c = lab.proxy()
        m = c.ask(target=f"http://plain.test:{lab.http_port}/", host=f"plain.test:{lab.http_port}")
        assert m.body == b"loaded", m


TRUNCATED = {
    "a length": (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", b"world", True),
    "chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", b"0\r\n\r\n", True),
    "a chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", b"lo\r\n0\r\n\r\n", True),
    "until close, without close_notify": (b"HTTP/1.1 200 OK\r\n\r\nhello", None, False),
}


def test_a_truncated_answer_is_seen_as_one(lab):
    for what, (part, rest, notify) in TRUNCATED.items():
        lab.open.reset(say(part, notify=notify))
        try:
            m = lab.get(target="/cut/" + what.replace(" ", "-"))
            assert m.status == 502, f"{what}: a clean end: {m}"
        except Closed:
            pass
        e = lab.event(lambda e: e.get("path") == "/cut/" + what.replace(" ", "-"))
        assert e["end"] != "ok", (what, e["end"])
        lab.open.reset(say(part, rest or b"", notify=True))  # the control
        assert lab.get().status == 200, what


def test_a_chunked_answer_cut_off_is_no_clean_end_in_tls(lab):
    lab.open.reset(say(TRUNCATED["until close, without close_notify"][0], notify=False))
    c = lab.client()
    c.write()
    data, clean = c.rest()
    complete = data.endswith(b"0\r\n\r\n")
    assert not complete and (not clean or b"transfer-encoding: chunked" in data.lower()), (data, clean)


def test_a_truncated_request_is_seen_as_one(lab):
    got = {}

    def handler(conn, origin):
        m = read_head(conn)
        try:
            read_body(conn, m)
            got["end"] = "complete"
        except Closed as e:
            got["end"] = "clean" if e.clean else "cut"

    for framing, part in ((b"Content-Length: 10", b"hello"), (b"Transfer-Encoding: chunked", b"5\r\nhello\r\n")):
        got.clear()
        lab.open.reset(handler)
        c = lab.client()
        c.send(b"PUT / HTTP/1.1\r\nHost: open.test:%d\r\n%s\r\n\r\n%s" % (lab.tls_port, framing, part))
        wait_for(lambda: lab.open.conns and bytes(lab.open.conns[-1].received).endswith(part[-5:]), "the first part")
        c.close()
        start = time.monotonic()
        wait_for(lambda: "end" in got, "the origin to see the end")
        assert got["end"] != "complete" and time.monotonic() - start < 1.5, got


def test_half_close(lab):
    def handler(conn, origin):
        m = read_request(conn)
        time.sleep(0.3)
        conn.send(answer(200, m.body))
        conn.rest()

    lab.open.reset(handler)
    c = lab.client()
    c.write("POST", "/", body=b"last words")
    c.half_close()
    m = read_response(c)
    assert m.status == 200 and m.body == b"last words"


def test_half_close_plain(lab):
    lab.plain.reset(say(0.3, answer(200, "late")))
    c = lab.proxy()
    c.write(target=f"http://plain.test:{lab.http_port}/", host=f"plain.test:{lab.http_port}")
    c.half_close()
    assert read_response(c).body == b"late"


def sse_delays(lab, name, origin, headers):
    sent = []

    def handler(conn, _origin):
        read_request(conn)
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for i in range(8):
            event = b"data: event %d gh\n\n" % i  # "gh" begins a real value: it must not be held back past its line
            sent.append(time.monotonic())
            conn.send(b"%x\r\n%s\r\n" % (len(event), event))
            time.sleep(0.1)
        conn.send(b"0\r\n\r\n")

    origin.reset(handler)
    c = lab.client(name)
    c.write("GET", "/sse", headers)
    assert read_head(c).status == 200
    delays = []
    for i in range(8):
        c.until(b"event %d gh\n\n" % i)
        delays.append(time.monotonic() - sent[i])
    c.until(b"0\r\n\r\n")
    return delays


def test_server_sent_events_are_not_held_back(lab):
    for name, origin, headers in (("open.test", lab.open, []), ("api.test", lab.api, [lab.bearer()])):
        delays = sse_delays(lab, name, origin, headers)
        assert sorted(delays)[-2] < 0.05, f"{name}: {[round(d * 1000) for d in delays]} ms"  # one hiccup of the machine is forgiven


def test_connect_http10_without_host(lab):
    c = lab.client(version="1.0", host=False)
    assert c.ask().status == 200


def test_early_bytes_after_connect(lab):
    """A ClientHello in the same write as CONNECT, and one in pieces."""
    c = lab.client(tls=False)
    ctx = lab.client_context()
    import ssl

    bio_in, bio_out = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = ctx.wrap_bio(bio_in, bio_out, server_hostname="open.test")
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        pass
    hello = bio_out.read()
    c2 = Client(lab)
    c2.send(b"CONNECT open.test:%d HTTP/1.1\r\nHost: open.test:%d\r\n\r\n" % (lab.tls_port, lab.tls_port) + hello)
    assert read_response(c2, "CONNECT").status == 200
    assert c2.exactly(3)[:1] == b"\x16", "no ServerHello"
    for i in range(0, len(hello), 64):
        c.send(hello[i : i + 64])
        time.sleep(0.002)
    assert c.exactly(3)[:1] == b"\x16", "no ServerHello to a ClientHello in pieces"


def test_tls12_client(lab):
    c = lab.client(tls12=True)
    assert c.tls.version() == "TLSv1.2" and c.ask().status == 200


def test_plain_http_absolute_form(lab):
    c = lab.proxy()
    for i in range(2):
        m = c.ask(target=f"http://plain.test:{lab.http_port}/{i}?q", host=f"plain.test:{lab.http_port}")
        assert m.json()["line"] == f"GET /{i}?q HTTP/1.1", m
    assert lab.plain.last.all("host") == [f"plain.test:{lab.http_port}"]


def test_every_request_of_a_plain_connection_is_judged_alone(lab):
    c = lab.proxy()
    port = lab.http_port
    assert c.ask(target=f"http://plain.test:{port}/1", host=f"plain.test:{port}").status == 200
    m = c.ask(target=f"http://deny.test:{port}/2", host=f"deny.test:{port}")
    assert m.status == 403 and m.code == "host_denied", m
    assert c.ask(target=f"http://plain.test:{port}/3", host=f"plain.test:{port}").status == 200
    assert [m.target for m in lab.plain.requests] == ["/1", "/3"]


def test_absolute_form_https_on_loopback(lab):
    c = lab.proxy()
    m = c.ask(target=f"https://open.test:{lab.tls_port}/x", host=f"open.test:{lab.tls_port}")
    assert m.status == 200 and m.json()["line"] == "GET /x HTTP/1.1", m
    m = c.ask(target=f"https://evil.test:{lab.tls_port}/x", host=f"evil.test:{lab.tls_port}")
    assert m.status == 403 and m.code == "host_denied", m


def test_plain_http_inside_connect(lab):
    c = lab.client("plain.test", port=lab.http_port, tls=False)
    m = c.ask(target="/in", host=f"plain.test:{lab.http_port}")
    assert m.status == 200 and m.json()["line"] == "GET /in HTTP/1.1"
    assert lab.event(lambda e: e.get("path") == "/in")["scheme"] == "http"


def upload(lab, origin, name, size, headers):
    got = {}

    def handler(conn, _origin):
        m = read_head(conn)
        h, n, left = hashlib.sha256(), 0, int(m.get("content-length"))
        while left:
            if not conn.buf:
                conn._more()
            part = bytes(conn.buf[:left])
            conn.buf.clear()
            conn.received.clear()
            h.update(part)
            left -= len(part)
            n += len(part)
            if n // (8 << 20) != (n - len(part)) // (8 << 20):
                got.setdefault("rss", []).append(lab.worker_rss_kib())
        got["digest"], got["auth"] = h.hexdigest(), m.get("authorization")
        conn.send(answer(200, "thanks"))
        conn.rest()

    origin.reset(handler)
    c = lab.client(name, timeout=60)
    block = hashlib.sha256(b"block").digest() * 2048  # 64 KiB
    want = hashlib.sha256()
    head = f"PUT /big HTTP/1.1\r\nHost: {name}:{lab.tls_port}\r\nContent-Length: {size}\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers)
    c.send(head.encode() + b"\r\n")
    for _ in range(size // len(block)):
        c.send(block)
        want.update(block)
    m = read_response(c)
    assert m.status == 200 and got["digest"] == want.hexdigest()
    return got


def test_big_upload_keeps_memory_flat(lab):
    lab.get()
    before = lab.worker_rss_kib()
    got = upload(lab, lab.open, "open.test", 64 << 20, [])
    assert sanitized() or max(got["rss"]) - before < 8192, f"{before} KiB before, {got['rss']} during"


def test_big_upload_is_swapped_and_streams(lab):
    got = upload(lab, lab.api, "api.test", 16 << 20, [lab.bearer()])
    assert got["auth"] == f"Bearer {lab.real}"


def test_a_slow_reader_pushes_back(lab):
    size = 48 << 20
    sent = {"n": 0}

    def handler(conn, _origin):
        read_request(conn)
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        block = b"x" * 65536
        for _ in range(size // len(block)):
            conn.send(block)
            sent["n"] += len(block)

    lab.open.reset(handler)
    lab.get("api.test")
    before = lab.worker_rss_kib()
    c = lab.client(timeout=30)
    c.write()
    read_head(c)
    last = -1
    while sent["n"] != last:  # until it stands still
        last = sent["n"]
        time.sleep(0.3)
    assert last < size, "the sender was never slowed"
    assert sanitized() or lab.worker_rss_kib() - before < 8192
    n = len(c.buf)
    while n < size:
        n += len(c.recv())
    assert n == size


def test_a_pooled_connection_that_died_is_replaced(lab):
    def handler(conn, origin):
        origin.requests.append(read_request(conn))
        conn.send(answer(200, "once"))
        conn.close()

    for method in ("GET", "POST"):
        lab.open.reset(handler)
        c = lab.client()
        for i in range(4):
            m = c.ask(method, f"/{i}", body=b"x" if method == "POST" else None)
            assert m.status == 200 and m.body == b"once", m
            time.sleep(0.05)
        assert len(lab.open.requests) == 4


def test_a_pooled_connection_that_dies_under_a_request_is_replaced_once(lab):
    """The origin closes a kept connection when the next request arrives: no byte of an answer came, so a GET goes again."""
    seen = []

    def handler(conn, origin):
        read_request(conn)
        conn.send(answer(200, "first"))
        m = read_request(conn)
        seen.append(m.target)
        conn.close()

    lab.open.reset(handler)
    c = lab.client()
    assert c.ask(target="/1").body == b"first"
    m = c.ask(target="/2")
    assert m.status == 200 and m.body == b"first" and seen == ["/2"], (m, seen)


def test_a_fresh_connection_that_dies_is_not_tried_again(lab):
    count = []

    def handler(conn, origin):
        count.append(read_request(conn).target)
        conn.close()

    lab.open.reset(handler)
    m = lab.get(target="/x", method="POST", body=b"x")
    assert m.status == 502, m
    assert len(count) == 1, count


def test_client_that_goes_away_cancels_the_origin(lab):
    ended = []

    def handler(conn, origin):
        read_request(conn)
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nstart")
        conn.rest()
        ended.append(time.monotonic())

    lab.open.reset(handler)
    c = lab.client()
    c.write()
    c.until(b"start")
    start = time.monotonic()
    c.reset()
    wait_for(lambda: ended, "the origin to be let go")
    assert ended[0] - start < 1.5
    assert lab.event(lambda e: e.get("end") == "client_closed")


def test_unsolicited_bytes_on_a_kept_connection(lab):
    def handler(conn, origin):
        origin.requests.append(read_request(conn))
        conn.send(answer(200, "good"))
        time.sleep(0.1)
        conn.send(answer(200, "poison"))
        conn.rest()

    lab.open.reset(handler)
    c = lab.client()
    for i in range(3):
        m = c.ask(target=f"/{i}")
        assert m.body == b"good", m
        time.sleep(0.25)


def test_an_answer_longer_than_it_says_poisons_nobody(lab):
    lab.open.reset(always(answer(200, "good") + answer(200, "poison")))
    c = lab.client()
    for i in range(3):
        assert c.ask(target=f"/{i}").body == b"good"
        time.sleep(0.05)


def test_connection_close_is_answered(lab):
    c = lab.client()
    m = c.ask(headers=[("Connection", "close")])
    assert m.status == 200 and (m.get("connection") or "").lower() == "close"
    data, clean = c.rest()
    assert data == b"" and clean


def test_http10_client_inside_the_tunnel(lab):
    c = lab.client()
    c.send(b"GET /old HTTP/1.0\r\nHost: open.test:%d\r\n\r\n" % lab.tls_port)
    m = read_response(c)
    assert m.status == 200 and not m.all("transfer-encoding")
    data, _ = c.rest()
    assert data == b""
    lab.open.reset(always(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"))
    c = lab.client()
    c.send(b"GET /old HTTP/1.0\r\nHost: open.test:%d\r\n\r\n" % lab.tls_port)
    m = read_response(c)
    assert not m.all("transfer-encoding") and m.body == b"abc", m  # HTTP/1.0 knows no chunks (RFC 9112 6.1)


def websocket_frame(payload):
    return b"\x81" + bytes([0x80 | len(payload)]) + b"\0\0\0\0" + payload


UPGRADE = ("GET /ws HTTP/1.1\r\nHost: open.test:{}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
           "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")


def test_websocket(lab):
    def handler(conn, origin):
        origin.requests.append(read_head(conn))
        conn.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                  b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
        while True:  # each frame back, without its mask of zeros
            head = conn.exactly(6)
            conn.send(bytes([head[0], head[1] & 127]) + conn.exactly(head[1] & 127))

    frame = websocket_frame(b"hello")
    for cuts in (None, [len(UPGRADE.format(lab.tls_port))]):  # the first frame in the same write, and in a later one
        lab.open.reset(handler)
        c = lab.client()
        c.send(UPGRADE.format(lab.tls_port).encode() + frame, cuts)
        m = read_response(c)
        assert m.status == 101, m
        assert c.exactly(7) == b"\x81\x05hello"
        c.send(websocket_frame(b"more"))
        assert c.exactly(6) == b"\x81\x04more"


def test_the_proxy_port_answers_for_itself(lab):
    c = lab.proxy()
    assert c.ask(target="/healthz", host=f"127.0.0.1:{lab.port}").status == 200
    m = c.ask(target="/ca.pem", host=f"127.0.0.1:{lab.port}")
    with open(lab.path("outgate-ca.pem"), "rb") as f:
        assert m.status == 200 and m.body.strip() == f.read().strip()
    for host, said in ((f"127.0.0.1:{lab.port}", f"PROXY 127.0.0.1:{lab.port}"), ("proxy.test", "PROXY proxy.test:80")):
        assert f'return "{said}";'.encode() in c.ask(target="/proxy.pac", host=host).body, said


def test_the_pac_says_what_is_advertised():
    for url, said in (("http://proxy.test:8080/", "PROXY proxy.test:8080"), ("https://proxy.test", "HTTPS proxy.test:3128")):
        agents = f"  - {{name: coder, identify: [{{source: 127.0.0.1/32}}], advertise: {{proxy: '{url}'}}}}\n"
        with Lab(agents=agents) as lab:
            body = lab.proxy().ask(target="/proxy.pac", host=f"127.0.0.1:{lab.port}").body
            assert f'return "{said}";'.encode() in body, body


def test_one_open_and_one_close_for_each_exchange(lab):
    mark = lab.mark()
    c = lab.client()
    for i in range(3):
        c.ask("POST", f"/ev{i}", body=b"12345")
    closes = [lab.event(lambda e, i=i: e.get("path") == f"/ev{i}", after=mark) for i in range(3)]
    opens = [e for e in lab.events("open")[0:] if str(e.get("path")).startswith("/ev")]
    assert len(opens) == 3 and {e["request_id"] for e in opens} == {e["request_id"] for e in closes}
    for e in closes:
        assert (e["verdict"], e["status"], e["end"], e["rule"], e["method"], e["scheme"]) == ("allow", 200, "ok", "open", "POST", "https"), e
        assert e["bytes_in"] == 5 and e["bytes_out"] > 20 and e["host"] == "open.test" and e["port"] == lab.tls_port, e
        assert re.fullmatch(r"127\.0\.0\.3:%d" % lab.tls_port, e["origin_addr"]) and e["tls"]["version"].startswith("TLS"), e


if __name__ == "__main__":
    main()
