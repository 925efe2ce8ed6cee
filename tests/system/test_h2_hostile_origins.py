#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Origins that speak HTTP/2 badly, or against us. THREATS: E13, the mirror of E2-E9 and E12. Each row is what an origin does once a request is
there; beside it stands a control that differs in one thing and is answered."""
import socket
import struct

import h2_frames as F
import h2_origin as O
import lab as L

OK = [(":status", "200")]


def head(s, fields=(), flags=F.END_HEADERS, status="200"):
    return F.headers(s.number, F.block([(":status", status), *fields]), flags)


def whole(s):
    return head(s, flags=F.END_HEADERS | F.END_STREAM)


def raw_head(s, block, end=True):
    return F.headers(s.number, block, F.END_HEADERS | (F.END_STREAM if end else 0))


def attacked(lab, attack, first=None, name="open.test", request=None):
    """What the client got (a Message, or the Closed of an answer that was cut), and the GOAWAY that the origin got, if any."""
    origin = lab.origins[name]

    def serve(peer):
        s = peer.head_of(0)
        out = attack(peer, s)
        if out:
            peer.send(out)
        try:
            while peer.next(5):
                pass
        except (L.Closed, ValueError):
            pass

    peers = O.speak(origin, serve, first=first)
    c = lab.client(name)
    try:
        got = request(c) if request else c.ask()
    except L.Closed as e:
        got = e
    finally:
        c.close()
    wanted = [p for p in peers if p.gone]
    if not wanted and peers:
        try:
            L.wait_for(lambda: any(p.gone for p in peers), timeout=0.05)
        except AssertionError:
            pass
    return got, next((p.gone.number(4) for p in peers if p.gone), None)


def table(lab, rows):
    """(what, attack, control): the attack is a 502, the control 200."""
    for what, attack, control in rows:
        got, _ = attacked(lab, attack)
        assert isinstance(got, L.Message) and got.status == 502 and got.code == "origin_protocol", (what, got)
        if control:
            got, _ = attacked(lab, control)
            assert isinstance(got, L.Message) and got.status == 200, (what, "the control", got)


def send(make):
    """make(s): bytes."""
    return lambda peer, s: make(s)


# --- heads


def test_heads_that_are_none(lab):
    def fields(*more, status="200"):
        return send(lambda s: head(s, more, F.END_HEADERS | F.END_STREAM, status))

    def block(*pairs):
        return send(lambda s: raw_head(s, F.block(pairs)))

    good = fields(("x-a", "b"))
    table(lab, [
        ("no :status", block(("x-a", "b")), good),
        ("two", block((":status", "200"), (":status", "200")), None),
        ("behind a field", block(("x-a", "b"), (":status", "200")), None),
        ("a pseudo-field of requests", block((":status", "200"), (":path", "/")), None),
        ("an unknown one", block((":status", "200"), (":x", "y")), None),
        ("a word", fields(status="abc"), None),
        ("four digits", fields(status="2000"), None),
        ("two digits", fields(status="20"), None),
        ("a switch of protocols", send(lambda s: head(s, status="101")), None),
        ("an interim answer that ends", fields(status="103"), None),
        ("nothing but an end", send(lambda s: F.data(s.number, b"", F.END_STREAM)), None),
        ("a body without a head", send(lambda s: F.data(s.number, b"x", F.END_STREAM)), None),
        ("an empty block", send(lambda s: raw_head(s, b"")), None),
    ])


def test_fields_that_would_split_a_head(lab):
    def fields(*more):
        return send(lambda s: head(s, more, F.END_HEADERS | F.END_STREAM))

    rows = [("upper case", fields(("X-A", "b")), fields(("x-a", "b")))]
    rows += [(f"{name} in an answer", fields((name, value)), None) for name, value in (
        ("connection", "close"), ("keep-alive", "5"), ("proxy-connection", "close"), ("transfer-encoding", "chunked"), ("upgrade", "h2c"))]
    for c in (b"\r", b"\n", b"\0", b"\x01", b"\x7f"):
        rows.append((f"{c!r} in a value", send(lambda s, c=c: raw_head(s, F.block([*OK, ("x-a", b"b" + c + b"d")]))), None))
    for c in (b"\r", b"\n", b"\0", b" ", b":", b"\x80", b"(", b"\x7f", b"\t"):
        rows.append((f"{c!r} in a name", send(lambda s, c=c: raw_head(s, F.block([*OK, (b"x" + c + b"a", "b")]))), None))
    rows.append(("an empty name", send(lambda s: raw_head(s, F.block([*OK, (b"", "b")]))), None))
    table(lab, rows)
    got, _ = attacked(lab, fields(("x-a", "b\t caf\xe9"), ("x-b", " padded\t")))
    assert got.status == 200 and got.get("x-a") == "b\t caf\xe9" and got.get("x-b") == "padded", got


def test_lengths_that_disagree(lab):
    def said(n, body, more=()):
        return send(lambda s: head(s, [("content-length", n), *more]) + F.data(s.number, body, F.END_STREAM))

    table(lab, [
        ("no number", said("3x", b"abc"), said("3", b"abc")),
        ("a sign", said("+3", b"abc"), None),
        ("twice", said("3", b"abc", [("content-length", "3")]), None),
        ("a list", said("3, 3", b"abc"), None),
        ("too large a number", said("99999999999999999999", b"abc"), None),
        ("with 204", send(lambda s: head(s, [("content-length", "3")], F.END_HEADERS | F.END_STREAM, "204")), None),
        ("with an end", send(lambda s: head(s, [("content-length", "3")], F.END_HEADERS | F.END_STREAM)), None),
    ])
    mark = lab.mark()
    for n, body in (("4", b"abc"), ("2", b"abc")):  # the head has gone on by then: cut, so that the client sees it
        got, _ = attacked(lab, said(n, body))
        assert isinstance(got, L.Closed) or got.status == 502, (n, got)
        e = lab.event(lambda e: e.get("host") == "open.test", after=mark)
        assert e["end"] in ("origin_closed", "origin_protocol"), e
    got, _ = attacked(lab, send(lambda s: head(s) + F.data(s.number, b"x", F.END_STREAM)), request=lambda c: c.ask("HEAD"))
    assert isinstance(got, L.Closed) or got.status in (200, 502), got  # a body to HEAD reaches nobody
    assert not (isinstance(got, L.Message) and got.body)


def test_what_follows_an_answer(lab):
    """A stream that ended stays ended; the connection is given up."""
    for tail in (lambda s: F.data(s.number, b"more"), lambda s: head(s, status="200"), lambda s: F.data(s.number + 2, b"of nobody's"),
                 lambda s: F.headers(2, F.block(OK))):
        def serve(peer, tail=tail):
            s = peer.whole(0)
            peer.answer(s, b"whole")
            peer.send(tail(s))
            while peer.next(5):
                pass

        O.speak(lab.open, serve)
        assert lab.get().body == b"whole"
        O.speak(lab.open)
        assert b"fields" in lab.get().body


def test_trailers_that_are_none(lab):
    def trailers(fields, flags=F.END_HEADERS | F.END_STREAM):
        return send(lambda s: head(s) + F.data(s.number, b"body") + F.headers(s.number, F.block(fields), flags))

    got, _ = attacked(lab, trailers([("x-sum", "1")]))
    assert got.body == b"body" and got.trailers == [("x-sum", "1")], got
    for what, attack in (("a pseudo-field", trailers([(":status", "200")])), ("no end", trailers([("x-sum", "1")], F.END_HEADERS)),
                         ("upper case", trailers([("X-Sum", "1")])), ("a line feed", trailers([("x-sum", "1\n2")])),
                         ("too many", trailers([(f"x-{i}", "1") for i in range(200)])), ("too long", trailers([("x-long", "1" * 20000)]))):
        got, _ = attacked(lab, attack)
        assert isinstance(got, L.Closed), (what, got)


# --- sizes


def test_large_heads(lab):
    def n_fields(n):
        return send(lambda s: head(s, [(f"x-{i}", "1") for i in range(n)], F.END_HEADERS | F.END_STREAM))

    def continued(n, end=True, size=10):
        def make(s):
            block = F.block([*OK, *[(f"x-{i}", "v" * size) for i in range(n)]])
            step = len(block) // (n + 1) + 1
            parts = [block[at : at + step] for at in range(0, len(block), step)]
            assert len(parts) == n + 1
            return F.headers(s.number, parts[0], F.END_STREAM) + b"".join(
                F.continuation(s.number, p, F.END_HEADERS if end and i == n - 1 else 0) for i, p in enumerate(parts[1:]))

        return send(make)

    def bomb(times):
        """One entry of 4,000 bytes, named again and again by one byte each."""
        return send(lambda s: raw_head(s, F.block(OK) + F.literal("x-bomb", "b" * 3900, "indexed") + F.indexed(62) * times))

    table(lab, [
        ("fields", n_fields(128), n_fields(127)),
        ("a bomb", bomb(10000), bomb(10)),
        ("values", continued(7, size=10000), continued(7, size=1000)),
        ("frames of a head", continued(9), continued(8)),
        ("a head without an end", send(lambda s: F.headers(s.number, F.block(OK), 0) + b"".join(
            F.continuation(s.number, F.block([("x-a", "b")]), 0) for _ in range(2000))), None),
    ])
    got, code = attacked(lab, continued(9))
    assert code in (F.ENHANCE_YOUR_CALM, None), code


def test_hpack_that_is_none(lab):
    good = send(whole)
    for what, block in (("index 0", F.indexed(0)), ("an index of nothing", F.indexed(99)), ("a table larger than agreed", F.table_size(5000)),
                        ("a string that goes on", b"\x00\x05x-"), ("EOS in a string", F.literal("x-a", "", "plain")[:-1] + b"\x84\xff\xff\xff\xff")):
        got, code = attacked(lab, send(lambda s, block=block: raw_head(s, F.block(OK) + block)))
        assert isinstance(got, L.Message) and got.status == 502, (what, got)
        assert code in (F.COMPRESSION_ERROR, None), (what, F.code_name(code))
    assert attacked(lab, good)[0].status == 200


# --- floods


def floods():
    pair = struct.pack(">HI", 99, 1)
    return [
        ("PING", lambda s, i: F.ping(struct.pack(">Q", i))),
        ("SETTINGS", lambda s, i: F.settings((99, i))),
        ("empty SETTINGS", lambda s, i: F.settings()),
        ("PRIORITY", lambda s, i: F.priority(s.number, 0, 1 + i % 256)),
        ("WINDOW_UPDATE of the connection", lambda s, i: F.window_update(0, 1)),
        ("WINDOW_UPDATE of the stream", lambda s, i: F.window_update(s.number, 1)),
        ("empty DATA", lambda s, i: F.data(s.number)),
        ("padding alone", lambda s, i: F.data(s.number, b"", pad=i % 40)),
        ("unknown frames", lambda s, i: F.frame(0x55, 0, 0, pair)),
    ]


def test_floods(lab):
    for what, one in floods():
        body = what in ("empty DATA", "padding alone")

        def flood(n, end, one=one, body=body):
            return send(lambda s: (head(s) if body else b"") + b"".join(one(s, i) for i in range(n)) + (end(s) if end else b""))

        got, code = attacked(lab, flood(4000, None))
        assert isinstance(got, L.Closed) or got.status == 502, (what, got)
        assert code in (F.ENHANCE_YOUR_CALM, None), (what, F.code_name(code))
        got, code = attacked(lab, flood(500, (lambda s: F.data(s.number, b"x", F.END_STREAM)) if body else whole))
        assert isinstance(got, L.Message) and got.status == 200 and code is None, (what, "the control", got, code)


def test_a_flood_about_a_stream_that_is_over(lab):
    for n, status, frame in ((4000, 502, F.rst(1)), (500, 200, F.rst(1)), (4000, 502, F.data(1, b"x")), (500, 200, F.data(1, b"x"))):
        def serve(peer, n=n, frame=frame):
            if len(lab.open.peers) > 1:
                O.echo(peer)
            peer.answer(peer.whole(0), b"first")
            peer.send(frame * n + whole(peer.head_of(1)))
            while peer.next(5):
                pass

        O.speak(lab.open, serve)
        c = lab.client()
        assert c.ask().body == b"first"
        assert c.ask("POST", body=b"x").status == status, n


def test_an_upload_pays_for_its_credit(lab):
    """WINDOW_UPDATEs that a body asked for are no flood, however many."""

    def serve(peer):
        s = peer.head_of(0)
        while not s.ended:
            peer.next()
        for _ in range(3):
            peer.send(F.ping())
        peer.answer(s, b"%d" % len(s.body))
        peer.whole(1)

    O.speak(lab.open, serve)
    size = 60 * 1024 * 1024  # 3,840 frames, twice as many updates
    m = lab.get(method="POST", body=b"u" * size, timeout=60)
    assert m.body == b"%d" % size, m


# --- frames that may not be


def test_frames_that_break_the_protocol(lab):
    cases = [
        ("PUSH_PROMISE", lambda s: F.frame(F.PUSH_PROMISE, F.END_HEADERS, s.number, struct.pack(">I", 2) + F.block([(":method", "GET")])), F.PROTOCOL_ERROR),
        ("a frame that is too large", lambda s: F.frame(F.DATA, 0, s.number, b"x" * 16385), F.FRAME_SIZE_ERROR),
        ("SETTINGS on a stream", lambda s: F.settings((4, 1), stream=s.number), F.PROTOCOL_ERROR),
        ("SETTINGS of five bytes", lambda s: F.frame(F.SETTINGS, 0, 0, b"12345"), F.FRAME_SIZE_ERROR),
        ("a window that is too large", lambda s: F.settings((F.INITIAL_WINDOW_SIZE, 1 << 31)), F.FLOW_CONTROL_ERROR),
        ("frames that are too small", lambda s: F.settings((F.MAX_FRAME_SIZE, 100)), F.PROTOCOL_ERROR),
        ("a push of ours", lambda s: F.settings((F.ENABLE_PUSH, 1)), F.PROTOCOL_ERROR),
        ("PING of seven bytes", lambda s: F.frame(F.PING, 0, 0, b"1234567"), F.FRAME_SIZE_ERROR),
        ("PING on a stream", lambda s: F.ping(stream=s.number), F.PROTOCOL_ERROR),
        ("GOAWAY on a stream", lambda s: F.goaway(stream=s.number), F.PROTOCOL_ERROR),
        ("WINDOW_UPDATE of 0", lambda s: F.window_update(0, 0), F.PROTOCOL_ERROR),
        ("WINDOW_UPDATE of an idle stream", lambda s: F.window_update(99, 5), F.PROTOCOL_ERROR),
        ("the connection's window over 2^31", lambda s: F.window_update(0, 0x7FFFFFFF) * 2, F.FLOW_CONTROL_ERROR),
        ("RST_STREAM of three bytes", lambda s: F.frame(F.RST_STREAM, 0, s.number, b"123"), F.FRAME_SIZE_ERROR),
        ("RST_STREAM of an idle stream", lambda s: F.rst(99), F.PROTOCOL_ERROR),
        ("DATA on stream 0", lambda s: F.data(0, b"x"), F.PROTOCOL_ERROR),
        ("HEADERS on stream 0", lambda s: F.headers(0, F.block(OK)), F.PROTOCOL_ERROR),
        ("CONTINUATION of nothing", lambda s: F.continuation(s.number, F.block(OK)), F.PROTOCOL_ERROR),
        ("DATA within a head", lambda s: F.headers(s.number, F.block(OK), 0) + F.data(s.number, b"x"), F.PROTOCOL_ERROR),
        ("more padding than there is", lambda s: head(s)[:0] + F.frame(F.HEADERS, F.END_HEADERS | F.PADDED, s.number, b"\xff" + F.block(OK)), F.PROTOCOL_ERROR),
        ("another protocol", lambda s: b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" * 2, F.FRAME_SIZE_ERROR),
    ]
    for what, make, code in cases:
        got, said = attacked(lab, send(make))
        assert isinstance(got, L.Message) and got.status == 502 and got.code == "origin_protocol", (what, got)
        assert said in (code, F.PROTOCOL_ERROR, None), (what, F.code_name(said))
    got, said = attacked(lab, send(lambda s: F.settings((F.INITIAL_WINDOW_SIZE, 100000)) + F.ping() + F.window_update(0, 5) + whole(s)))
    assert got.status == 200 and said is None, got


def test_a_stream_that_is_wrong_ends_alone(lab):
    """The other stream of the connection is answered."""
    for what, wrong in (("a window over 2^31", lambda s: F.window_update(s.number, 0x7FFFFFFF)), ("a bad field", lambda s: head(s, [("X-A", "b")])), ("a reset", lambda s: F.rst(s.number, F.INTERNAL_ERROR))):
        def serve(peer, wrong=wrong):
            a, b = peer.head_of(0), peer.head_of(1)
            peer.send(wrong(a))
            peer.until(lambda: a.reset is not None or wrong(a)[3] == F.RST_STREAM, "the reset")
            peer.answer(b, b"fine")
            peer.whole(2)

        O.speak(lab.open, serve)
        one, two = lab.client(), lab.client()
        one.write(target="/1")
        L.wait_for(lambda: lab.open.peers and lab.open.peers[0].heads, "the first request")
        two.write(target="/2")
        m = L.read_response(one)
        assert m.status == 502 and m.code == "origin_protocol", (what, m)
        assert L.read_response(two).body == b"fine", what
        assert len(lab.open.peers) == 1, what


def test_before_its_settings(lab):
    for what, first in (("a PING", F.ping()), ("an answer", F.headers(1, F.block(OK), F.END_HEADERS | F.END_STREAM)), ("an ACK", F.settings(flags=F.ACK)),
                        ("nothing of it", b"\0" * 50)):
        got, _ = attacked(lab, send(whole), first=first)
        assert isinstance(got, L.Message) and got.status == 502, (what, got)
    got, _ = attacked(lab, send(whole), first=F.settings())
    assert got.status == 200, got


def test_more_than_its_window(lab):
    """A client that takes nothing, an origin that does not wait: the stream is reset, and nothing piles up."""

    def serve(peer):
        peer.manual = True
        s = peer.head_of(0)
        peer.send(head(s))
        for _ in range(2000):
            if not peer.send(F.data(s.number, b"x" * 16384)):
                break
        try:
            while peer.next(5):
                pass
        except L.Closed:
            pass

    O.speak(lab.open, serve)
    c = lab.client()
    c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    c.write()
    mark = lab.mark()
    e = lab.event(lambda e: e.get("host") == "open.test", after=mark, timeout=20)
    assert e["end"] == "origin_closed", e
    assert e["bytes_out"] < 8 * 1024 * 1024, e


def test_resets_in_mid_answer(lab):
    for code in (F.NO_ERROR, F.CANCEL, F.INTERNAL_ERROR):
        got, _ = attacked(lab, send(lambda s, code=code: head(s) + F.data(s.number, b"half") + F.rst(s.number, code)))
        assert isinstance(got, L.Closed), (code, got)
    got, _ = attacked(lab, send(lambda s: head(s) + F.data(s.number, b"whole", F.END_STREAM) + F.rst(s.number, F.NO_ERROR)))
    assert got.status == 200 and got.body == b"whole"


if __name__ == "__main__":
    L.main()
