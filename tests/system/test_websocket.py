#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""WebSocket through the proxy: the handshake, frames of every kind both ways, the swap in text messages, the scrubber, and every end.
Frames are written by hand on both sides, but for the last test."""
import base64
import hashlib
import json
import os
import struct
import subprocess
import sys
import threading
import time
import zlib

from lab import EXE as L_EXE
from lab import Lab, Skip, kill, main, read_head, read_response, sanitized, wait_for

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


def make_lab():
    return make_lab_stopped().patched()


def make_lab_stopped():
    return Lab(
        hosts={"ws.test": "127.0.0.2", "peer.test": "127.0.0.6"},
        rules="""  - {name: ws, hosts: [ws.test, peer.test], ports: [PORT], action: allow}
  - {name: ws-plain, hosts: [ws.test], ports: [PLAINPORT], schemes: [http], action: allow}
""",
        credentials="""  - name: gateway
    agents: [coder]
    hosts: [ws.test, peer.test]
    ports: [PORT]
    slots: [websocket, "header:authorization"]
    placeholder: PLACEHOLDER2
    env: WS_TOKEN
    source: {file: REAL2}
""",
        tail="limits: {ws_message_bytes: 1MiB, ws_frame_bytes: 64MiB}\n",
        start=False,
    )


# ---------------------------------------------------------------- frames


def mask(data, key):
    n = len(data)
    return (int.from_bytes(data, "big") ^ int.from_bytes((key * (n // 4 + 1))[:n], "big")).to_bytes(n, "big")


def frame(payload, op=TEXT, fin=True, rsv1=False, masked=True, key=None):
    if isinstance(payload, str):
        payload = payload.encode()
    n = len(payload)
    head = bytes([(0x80 if fin else 0) | (0x40 if rsv1 else 0) | op])
    bit = 0x80 if masked else 0
    head += bytes([bit | n]) if n < 126 else bytes([bit | 126]) + struct.pack(">H", n) if n < 65536 else bytes([bit | 127]) + struct.pack(">Q", n)
    if not masked:
        return head + payload
    key = os.urandom(4) if key is None else key
    return head + key + mask(payload, key)


class Frame:
    def __init__(self, op, fin, rsv1, masked, payload, raw):
        self.op, self.fin, self.rsv1, self.masked, self.payload, self.raw = op, fin, rsv1, masked, payload, raw

    @property
    def code(self):
        return struct.unpack(">H", self.payload[:2])[0] if len(self.payload) >= 2 else None

    @property
    def reason(self):
        return self.payload[2:].decode()

    def __repr__(self):
        return f"<op {self.op} fin {self.fin} rsv1 {self.rsv1} {self.payload[:80]!r}>"


def read_frame(conn):
    head = conn.exactly(2)
    n, raw = head[1] & 127, head
    if n == 126:
        raw += conn.exactly(2)
        n = struct.unpack(">H", raw[2:])[0]
    elif n == 127:
        raw += conn.exactly(8)
        n = struct.unpack(">Q", raw[2:])[0]
    key = conn.exactly(4) if head[1] & 0x80 else None
    payload = conn.exactly(n)
    raw += (key or b"") + payload
    return Frame(head[0] & 15, bool(head[0] & 0x80), bool(head[0] & 0x40), key is not None, mask(payload, key) if key else payload, raw)


def read_message(conn):
    """A data message of one or more frames, joined (control frames would be a mistake): (op, payload, rsv1, frames)."""
    first = f = read_frame(conn)
    payload, n = f.payload, 1
    while not f.fin:
        f = read_frame(conn)
        assert f.op == 0, f
        payload, n = payload + f.payload, n + 1
    return first.op, payload, first.rsv1, n


def deflated(text, z=None):
    z = z or zlib.compressobj(wbits=-15)
    text = text if isinstance(text, bytes) else text.encode()
    return (z.compress(text) + z.flush(zlib.Z_SYNC_FLUSH))[:-4]


def inflated(payload, z=None):
    return (z or zlib.decompressobj(wbits=-15)).decompress(payload + b"\0\0\xff\xff")


# ---------------------------------------------------------------- both sides


def accept_of(key):
    return base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()


def switch(conn, origin, extra="", ahead=b"", accept=None):
    m = read_head(conn)
    origin.requests.append(m)
    conn.send(("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
               f"{accept or accept_of(m.get('sec-websocket-key'))}\r\n{extra}\r\n").encode() + ahead)
    return m


def echoes(extra="", ahead=b""):
    """A handler: 101, then each data frame back, unmasked, otherwise as it came; pongs; a close for a close."""

    def handler(conn, origin):
        switch(conn, origin, extra, ahead)
        frames = origin.frames = []  # this connection's: one before it may still be at its end
        while True:
            f = read_frame(conn)
            frames.append(f)
            if f.op == PING:
                conn.send(frame(f.payload, PONG, masked=False))
            elif f.op == CLOSE:
                conn.send(frame(f.payload, CLOSE, masked=False))
                return
            elif f.op < CLOSE:
                conn.send(frame(f.payload, f.op, f.fin, f.rsv1, masked=False))

    return handler


def handshake(lab, name="open.test", extra=(), key=KEY, path="/ws", version="13"):
    port = lab.tls_port
    fields = [("Host", f"{name}:{port}"), ("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", version),
              ("Sec-WebSocket-Key", key), *extra]
    return (f"GET {path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in fields) + "\r\n").encode()


def opened(lab, name="open.test", extra=(), behind=b"", **kw):
    c = lab.client(name)
    c.send(handshake(lab, name, extra, **kw) + behind)
    m = read_response(c)
    assert m.status == 101, m
    assert m.get("upgrade") == "websocket" and m.get("connection") == "Upgrade" and m.get("sec-websocket-accept") == ACCEPT, m
    assert not m.all("content-length") and not m.all("transfer-encoding"), m
    c.answer = m
    return c


def ended(c, code, reason):
    """The next frame is this close, and then the end."""
    f = read_frame(c)
    assert f.op == CLOSE and not f.masked and (f.code, f.reason) == (code, reason), (f, f.code)
    rest, clean = c.rest()
    assert rest == b"" and clean, (rest, clean)


PMD = ("Sec-WebSocket-Extensions", "permessage-deflate; client_max_window_bits")
PMD_ON = "Sec-WebSocket-Extensions: permessage-deflate\r\n"
PMD_ALONE = "Sec-WebSocket-Extensions: permessage-deflate; client_no_context_takeover; server_no_context_takeover\r\n"


# ---------------------------------------------------------------- the handshake


def test_the_first_frames_on_both_sides_are_not_lost(lab):
    lab.open.reset(echoes(ahead=frame("welcome", masked=False)))
    for behind in (frame("hello"), b""):  # in one write with the request, and in a later one
        c = opened(lab, behind=behind)
        if not behind:
            c.send(frame("hello"))
        assert read_frame(c).payload == b"welcome"
        assert read_frame(c).payload == b"hello"
        c.send(frame(b"\x03\xe8", CLOSE))
        f = read_frame(c)
        assert f.op == CLOSE and f.code == 1000
        assert c.rest() == (b"", True)
    e = lab.event(lambda e: e["host"] == "open.test" and e.get("status") == 101)
    assert e["end"] == "ok" and e["verdict"] == "allow" and e["rule"] == "open", e
    assert e["bytes_in"] == len(frame("hello")) + 8 and e["bytes_out"] == len(frame("hello", masked=False)) + 4 + len("welcome") + 2, e


def test_frames_behind_the_request_wait_for_the_answer(lab):
    """They are no second request, and a half-close behind them ends nothing early."""
    def handler(conn, origin):
        m = read_head(conn)
        time.sleep(0.2)
        conn.send(f"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept_of(m.get('sec-websocket-key'))}\r\n\r\n".encode())
        f = read_frame(conn)
        conn.send(frame(f.payload, masked=False))
        origin.after = conn.rest()

    lab.open.reset(handler)
    c = lab.client("open.test")
    c.send(handshake(lab) + frame("hello"))
    c.half_close()
    assert read_response(c).status == 101
    assert read_frame(c).payload == b"hello"
    assert c.rest()[0] == b""
    wait_for(lambda: hasattr(lab.open, "after"), "the origin's end")
    assert lab.open.after == (b"", True), lab.open.after


def test_requests_that_are_refused(lab):
    ok = dict(h.split(": ") for h in handshake(lab).decode().split("\r\n")[1:-2])
    for change, code in [({}, None), ({"Sec-WebSocket-Version": "12"}, "upgrade_denied"), ({"Sec-WebSocket-Version": None}, "upgrade_denied"),
                         ({"Sec-WebSocket-Key": None}, "upgrade_denied"), ({"Sec-WebSocket-Key": "c2hvcnQ="}, "upgrade_denied"),
                         ({"Sec-WebSocket-Key": KEY[:-1] + "!"}, "upgrade_denied"), ({"Upgrade": "h2c, websocket"}, "upgrade_denied"),
                         ({"Upgrade": "foo"}, "upgrade_denied"), ({"Content-Length": "3"}, "bad_request")]:
        lab.open.reset(echoes())
        fields = {k: v for k, v in {**ok, **change}.items() if v is not None}
        c = lab.client("open.test")
        c.send(("GET /ws HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in fields.items()) + "\r\n").encode())
        m = read_response(c)
        if code is None:
            assert m.status == 101, m
        else:
            assert m.code == code, (change, m)
            assert not lab.open.requests
        c.close()
    c = lab.client("open.test")
    c.send(handshake(lab).replace(b"GET", b"POST", 1))
    assert read_response(c).code == "upgrade_denied"


def test_h2c_is_stripped_and_nothing_switches(lab):
    lab.open.reset()
    m = lab.get(headers=[("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AAMAAABkAARAAAAAAAIAAAAA")])
    assert m.status == 200
    names = {k.lower() for k, _ in lab.open.last.headers}
    assert not names & {"upgrade", "http2-settings", "connection"}, names


def test_answers_that_are_refused(lab):
    good = f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {ACCEPT}\r\n"
    for head, status in [
        (good, 101),
        (good.replace("s3p", "s3q"), 502),
        (good.replace(f"Sec-WebSocket-Accept: {ACCEPT}\r\n", ""), 502),
        (good + f"Sec-WebSocket-Accept: {ACCEPT}\r\n", 502),
        (good.replace("Upgrade: websocket", "Upgrade: foo"), 502),
        (good.replace("Connection: Upgrade\r\n", ""), 502),
        (good + "Sec-WebSocket-Protocol: chat\r\n", 101),
        (good + "Sec-WebSocket-Protocol: other\r\n", 502),
        (good + "Sec-WebSocket-Extensions: permessage-deflate\r\n", 502),  # not offered
        (good + "Sec-WebSocket-Extensions: x-foo\r\n", 502),
        (good + "Content-Length: 5\r\n", 502),
    ]:
        def handler(conn, origin):
            origin.requests.append(read_head(conn))
            conn.send(f"HTTP/1.1 101 Switching\r\n{head}\r\n".encode())
            conn.rest()

        lab.open.reset(handler)
        c = lab.client("open.test")
        c.send(handshake(lab, extra=[("Sec-WebSocket-Protocol", "superchat, chat"), ("Sec-WebSocket-Extensions", "x-foo")]))
        m = read_response(c)
        assert m.status == status, (head, m)
        assert status == 101 or m.code == "origin_protocol", m
        assert not lab.open.last.all("sec-websocket-extensions"), "an extension that we cannot read was offered"
        c.close()


def test_another_answer_than_101_is_an_ordinary_one(lab):
    lab.open.reset()
    c = lab.client("open.test")
    c.send(handshake(lab))
    m = read_response(c)
    assert m.status == 200 and "Upgrade" in dict(m.json()["headers"])
    assert c.ask(target="/next").json()["line"] == "GET /next HTTP/1.1"  # and the connection goes on


def test_the_handshake_is_sent_on_as_it_came(lab):
    lab.api.reset(echoes())
    c = opened(lab, "api.test", [lab.bearer(), ("Sec-WebSocket-Extensions", "mux, permessage-deflate; foo, permessage-deflate"), ("Origin", "https://x.test")])
    seen = lab.api.last
    assert seen.get("authorization") == f"Bearer {lab.real}"
    assert seen.get("upgrade") == "websocket" and seen.get("connection") == "Upgrade" and seen.get("sec-websocket-key") == KEY
    assert seen.all("sec-websocket-extensions") == ["permessage-deflate"] and seen.get("origin") == "https://x.test"
    c.send(frame("x"))
    assert read_frame(c).payload == b"x"
    c.close()
    assert len(lab.api.conns) == 1
    assert lab.get("api.test", headers=[]).status in (101, 502)  # the switched connection is not in the pool
    assert len(lab.api.conns) == 2


def test_clear_text_by_absolute_form_and_in_a_tunnel(lab):
    """Verdict, frames and log are the same whichever way it comes."""
    lab.plain.reset(echoes())
    seen = []
    for target in (f"http://plain.test:{lab.http_port}/ws", None):
        at = lab.mark()
        head = handshake(lab, "plain.test").replace(b":%d" % lab.tls_port, b":%d" % lab.http_port)
        c = lab.proxy() if target else lab.client("plain.test", lab.http_port, tls=False)
        c.send(head.replace(b"/ws", target.encode(), 1) if target else head)
        assert read_response(c).status == 101
        c.send(frame(f"my token is {lab.placeholder}"))
        assert read_frame(c).payload == f"my token is {lab.placeholder}".encode()
        c.send(frame(b"", CLOSE))
        assert read_frame(c).op == CLOSE
        assert c.rest() == (b"", True)
        e = lab.event(lambda e: e["host"] == "plain.test", after=at)
        seen.append({k: e.get(k) for k in ("verdict", "rule", "scheme", "path", "status", "end", "findings", "bytes_in", "bytes_out")})
    assert seen[0] == seen[1] and seen[0]["findings"] == ["placeholder_elsewhere"], seen


# ---------------------------------------------------------------- frames


def test_frames_pass_as_they_came(lab):
    lab.open.reset(echoes())
    c = opened(lab)
    sizes = [0, 1, 125, 126, 127, 65535, 65536, 300000]
    got = []
    t = threading.Thread(target=lambda: got.extend(read_frame(c) for _ in sizes))
    t.start()
    sent = [frame(os.urandom(n), BINARY) for n in sizes]
    for f in sent:
        c.send(f)
    t.join()
    assert [len(f.payload) for f in got] == sizes
    assert [f.raw for f in lab.open.frames] == sent  # also their masks and fragments
    parts = [frame("frag", fin=False), frame("p", PING), frame("men", 0, fin=False), frame("ted \u20ac", 0)]
    c.send(b"".join(parts), cuts=[1, 3, 8, 11])
    got = [read_frame(c) for _ in parts]
    assert [(f.op, f.fin, f.payload) for f in got] == [(TEXT, False, b"frag"), (PONG, True, b"p"), (0, False, b"men"), (0, True, "ted \u20ac".encode())]
    c.close()


def test_what_a_client_may_not_send(lab):
    ok = frame("ok")
    for bad, code in [
        (frame("x", masked=False), 1002), (bytes([0xC1]) + frame("x")[1:], 1002), (bytes([0x91]) + frame("x")[1:], 1002),
        (frame("x", 3), 1002), (frame("x", 11), 1002), (frame("x", 0), 1002), (frame("x", PING, fin=False), 1002),
        (bytes([0x89, 0xFE, 0, 126]) + b"\0" * 130, 1002), (b"\x81\xfe\0\x05\0\0\0\0hello", 1002), (b"\x81\xff\0\0\0\0\0\0\0\x05\0\0\0\0hello", 1002),
        (b"\x81\xff\x80\0\0\0\0\0\0\0\0\0\0\0", 1002), (b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0", 1009),
        (frame("a", fin=False) + frame("b"), 1002), (frame(b"\xff"), 1007), (frame(b"\xe2\x82"), 1007),
        (frame(b"\x03", CLOSE), 1002), (frame(b"\x03\xe8\xff", CLOSE), 1007), (frame(b"\x03\xed", CLOSE), 1002),
    ]:
        lab.open.reset(echoes())
        c = opened(lab)
        c.send(ok)
        assert read_frame(c).payload == b"ok"
        c.send(bad)
        f = read_frame(c)
        while f.op != CLOSE:  # of a message whose first fragment was right
            f = read_frame(c)
        assert f.code == code, (bad[:20], f, f.code)
        assert c.rest()[1]
    lab.event(lambda e: e.get("end") == "too_large")
    lab.event(lambda e: e.get("end") == "bad_request")


def test_what_a_host_may_not_send(lab):
    for bad, code in [(frame("x"), 1002), (frame("x", 3, masked=False), 1002), (b"\x81\x7e\0\x01x", 1002), (b"\xc1\x01x", 1002),
                      (frame("x", PING, fin=False, masked=False), 1002), (b"\x82\x7f\x7f" + b"\xff" * 7, 1009), (frame("x", 0, masked=False), 1002)]:
        def handler(conn, origin):
            switch(conn, origin, ahead=frame("fine", masked=False) + bad)
            conn.rest()

        for name, origin in (("open.test", lab.open), ("api.test", lab.api)):
            origin.reset(handler)
            at = lab.mark()
            c = opened(lab, name)
            assert read_frame(c).payload == b"fine"
            ended(c, code, "origin_protocol")
            lab.event(lambda e: e["host"] == name and e["end"] == "origin_protocol", after=at)


def test_ends(lab):
    def closes_first(conn, origin):
        switch(conn, origin)
        conn.send(frame(b"\x03\xe9bye", CLOSE, masked=False))
        origin.answer = read_frame(conn)

    lab.open.reset(closes_first)
    at = lab.mark()
    c = opened(lab)
    f = read_frame(c)
    assert f.op == CLOSE and f.code == 1001 and f.reason == "bye"
    c.send(frame(f.payload, CLOSE) + frame("too late"))
    assert c.rest() == (b"", True)
    assert lab.open.answer.op == CLOSE
    assert lab.event(lambda e: e["host"] == "open.test", after=at)["end"] == "ok"

    def leaves(conn, origin):
        switch(conn, origin, ahead=frame("last", masked=False))

    lab.open.reset(leaves)  # without a close frame, properly: the end is passed on as it is
    at = lab.mark()
    c = opened(lab)
    assert read_frame(c).payload == b"last"
    assert c.rest() == (b"", True)
    assert lab.event(lambda e: e["host"] == "open.test", after=at)["end"] == "origin_closed"

    def breaks(conn, origin):
        switch(conn, origin, ahead=frame("0123456789", masked=False)[:-3])
        conn.close()

    lab.open.reset(breaks)  # in mid frame: cut
    at = lab.mark()
    c = opened(lab)
    assert c.rest() == (b"\x81\x0a0123456", False)
    assert lab.event(lambda e: e["host"] == "open.test", after=at)["end"] == "origin_closed"

    lab.open.reset(echoes())
    at = lab.mark()
    c = opened(lab)
    c.send(frame("0123456789")[:-3])
    c.close()
    assert lab.event(lambda e: e["host"] == "open.test", after=at)["end"] == "client_closed"

    at = lab.mark()
    c = opened(lab)
    c.send(frame("whole"))
    assert read_frame(c).payload == b"whole"
    c.reset()
    e = lab.event(lambda e: e["host"] == "open.test", after=at)
    assert e["end"] == "client_closed" and "without a close frame" in e["message"] and e["hint"], e


def test_either_side_may_be_slow(lab):
    """Neither a host nor a client that reads nothing makes us keep what the other sends."""
    size, hold = 64 * 1024 * 1024, threading.Event()

    def floods(conn, origin):
        switch(conn, origin)
        read_frame(conn)
        for _ in range(size // 1048576):
            conn.send(frame(b"s" * 1048576, BINARY, masked=False))
        hold.wait(20)
        while True:
            if read_frame(conn).op == CLOSE:
                conn.send(frame(b"", CLOSE, masked=False))
                return

    for name, origin in (("open.test", lab.open), ("api.test", lab.api)):
        hold.clear()
        origin.reset(floods)
        c = opened(lab, name)
        c.send(frame("go"))
        time.sleep(0.5)
        before = lab.worker_rss_kib()
        if not sanitized():
            assert before < 120 * 1024, before
        for _ in range(size // 1048576):
            assert len(read_message(c)[1]) == 1048576
        sent = threading.Event()

        def push():
            for _ in range(size // 1048576):
                c.send(frame(b"c" * 1048576, BINARY, key=b"abcd"))
            c.send(frame(b"", CLOSE))
            sent.set()

        threading.Thread(target=push, daemon=True).start()
        time.sleep(0.5)
        assert not sent.is_set(), "all was taken from the client though the host reads nothing"
        if not sanitized():
            assert lab.worker_rss_kib() < 120 * 1024, lab.worker_rss_kib()
        hold.set()
        assert read_frame(c).op == CLOSE


def test_idle(lab):
    with Lab(rules="  - {name: brief, hosts: [open.test], ports: [PORT], action: allow, timeouts: {idle: 1s}}\n", start=False).patched() as brief:
        brief.open.reset(echoes())
        c = opened(brief)
        for _ in range(4):  # control: what moves stays
            time.sleep(0.5)
            c.send(frame("p", PING))
            assert read_frame(c).op == PONG
        ended(c, 1001, "timeout")


# ---------------------------------------------------------------- the swap


def identify(lab, token=None):
    return json.dumps({"op": 2, "d": {"token": token or lab.placeholder2}})


def swapping(lab, extra=()):
    lab.api.reset(echoes())
    return opened(lab, "ws.test", extra)


def test_swap_in_a_text_message(lab):
    c = swapping(lab)
    want = identify(lab, lab.real2).encode()
    text = identify(lab)
    for k, sent in enumerate([frame(text), frame(text[:20], fin=False) + frame(text[20:], 0),
                              b"".join(frame(ch, TEXT if i == 0 else 0, fin=i == len(text) - 1) for i, ch in enumerate(text)),
                              frame(text[:30], fin=False) + frame("ping", PING) + frame(text[30:], 0), frame("a" * 200000 + " " + text)]):
        c.send(sent)
        op, echoed, rsv1, _ = read_message(c) if k != 3 else (read_frame(c) and read_message(c))
        assert (op, rsv1) == (TEXT, False) and echoed.endswith(text.encode()), echoed[-100:]  # scrubbed on its way back
        f = [f for f in lab.api.frames if f.op == TEXT][-1]
        assert f.fin and f.masked and f.payload.endswith(want), f
    c.send(frame("plain"))
    assert read_message(c)[1] == b"plain"
    raws = [f.raw for f in lab.api.frames]
    assert len(set(r[2:6] for r in raws)) > 1
    lab.blobs.append(bytes(c.received))
    at = lab.mark()
    c.send(frame(b"", CLOSE))
    assert read_frame(c).op == CLOSE
    e = lab.event(lambda e: e["host"] == "ws.test")
    assert e["credentials"] == ["gateway"] and e["scrubbed"] >= 5 and e["end"] == "ok" and not set(e["findings"]) & {"placeholder_elsewhere"}, e
    assert at >= 0


def test_without_the_slot_a_placeholder_is_inert(lab):
    for name, origin in (("open.test", lab.open), ("api.test", lab.api)):
        for text in (lab.placeholder2, lab.placeholder):
            for cut in (None, 10):
                origin.reset(echoes())
                at = lab.mark()
                c = opened(lab, name)
                c.send(frame(text) if cut is None else frame(text[:cut], fin=False) + frame(text[cut:], 0))
                assert read_message(c)[1].decode() == text
                assert b"".join(f.payload for f in origin.frames).decode() == text
                c.close()
                e = lab.event(lambda e: e["host"] == name, after=at)
                assert e["findings"] == ["placeholder_elsewhere"] and e["credentials"] == [], e


def test_placeholders_that_are_refused(lab):
    never = lab.placeholder[:-6] + "zzzzzz"
    for text, reason in [(lab.placeholder2 + " " + lab.placeholder2, "placeholder_wrong_slot"), ("x" + lab.placeholder2, "placeholder_wrong_slot"),
                         (lab.placeholder, None), (never, None), (lab.placeholder2, None)]:
        at = lab.mark()
        c = swapping(lab)
        c.send(frame(text))
        if reason:
            ended(c, 1008, reason)
            assert not lab.api.frames
            e = lab.event(lambda e: e["host"] == "ws.test", after=at)
            assert e["end"] == reason and e["findings"] == ["placeholder_elsewhere"], e
        else:  # control, and what is inert here as in any body
            assert read_message(c)[1].decode() == text
            c.close()


def test_another_agents_placeholder(lab):
    two = """  - name: coder
    identify:
      - source: 127.0.0.1/32
  - name: other
    identify:
      - source: 127.0.0.8/32
"""
    creds = """  - {name: theirs, agents: [other], hosts: [open.test], ports: [PORT], slots: [websocket], placeholder: PLACEHOLDER2, source: {file: REAL2}}
  - {name: ours, agents: [coder], hosts: [open.test], ports: [PORT], slots: [websocket], placeholder: "ours-0123456789-abcdefghij", source: {file: REAL2}}
"""
    with Lab(agents=two, credentials=creds, start=False).patched() as lab2:
        for text, reason in (("ours-0123456789-abcdefghij", None), (lab2.placeholder2, "unknown_placeholder")):
            lab2.open.reset(echoes())
            c = opened(lab2)
            c.send(frame(text))
            if reason:
                ended(c, 1008, reason)
                e = lab2.event(lambda e: e["host"] == "open.test" and e["end"] == reason)
                assert e["findings"] == ["placeholder_elsewhere"], e
            else:
                assert read_message(c)[1].decode() == text and lab2.open.frames[0].payload.decode() == lab2.real2
                c.close()


def test_a_real_value_never_leaves_in_a_frame(lab):
    for name, origin in (("open.test", lab.open), ("ws.test", lab.api)):
        lab.api.reset(echoes())
        w = opened(lab, "ws.test")
        w.send(frame(lab.placeholder2))  # a lease is live from here on
        read_message(w)
        for parts in ([lab.real2], [lab.real2[:9], lab.real2[9:]], ["x" * 100000 + lab.real2]):
            for op in (TEXT, BINARY):
                origin.reset(echoes())
                at = lab.mark()
                c = opened(lab, name)
                c.send(frame("before"))  # control
                assert read_message(c)[1] == b"before"
                for i, p in enumerate(parts):
                    c.send(frame(p, op if i == 0 else 0, fin=i == len(parts) - 1))
                f = read_frame(c)
                while f.op != CLOSE:
                    f = read_frame(c)
                assert (f.code, f.reason) == (1008, "exfiltration"), f
                assert lab.real2.encode() not in b"".join(f.payload for f in origin.frames)
                e = lab.event(lambda e: e["host"] == name and e["end"] == "exfiltration", after=at)
                assert e["findings"] == ["exfiltration"], e
        w.close()


def test_values_are_escaped_for_json(lab):
    with open(lab.path("quoted"), "w") as f:
        f.write('pass"word\\0123456789')
    os.chmod(lab.path("quoted"), 0o600)
    creds = f"""  - {{name: quoted, agents: [coder], hosts: [open.test], ports: [PORT], slots: [websocket], placeholder: "quoted-0123456789-abcdef", max_occurrences: 2, source: {{file: {lab.path('quoted')}}}}}
"""
    with Lab(credentials=creds, start=False).patched() as lab2:
        lab2.open.reset(echoes())
        c = opened(lab2)
        for text, want in (('{"p":"quoted-0123456789-abcdef","q":"\\nquoted-0123456789-abcdef"}', '{"p":"pass\\"word\\\\0123456789","q":"\\npass\\"word\\\\0123456789"}'),
                           ('42["login",{"p":"quoted-0123456789-abcdef"}]', '42["login",{"p":"pass\\"word\\\\0123456789"}]'),
                           ("login quoted-0123456789-abcdef", 'login pass"word\\0123456789')):
            c.send(frame(text))
            assert read_message(c)[1].decode() == text
            assert lab2.open.frames[-1].payload.decode() == want
        n = len(lab2.open.frames)
        c.send(frame('["{\\"p\\":\\"quoted-0123456789-abcdef\\"}"]'))  # twice escaped it could not be found again
        ended(c, 1008, "credential_unavailable")
        assert not [f for f in lab2.open.frames[n:] if b"word" in f.payload]


def test_a_lease_that_is_not_to_be_had_ends_it(lab):
    creds = """  - {name: gone, agents: [coder], hosts: [open.test], ports: [PORT], slots: [websocket], placeholder: "gone-0123456789-abcdefgh", source: {exec: [/bin/false]}}
"""
    with Lab(credentials=creds, start=False).patched() as lab2:
        lab2.open.reset(echoes())
        c = opened(lab2)
        c.send(frame("before"))
        assert read_message(c)[1] == b"before"
        c.send(frame("gone-0123456789-abcdefgh") + frame("behind it"))
        ended(c, 1008, "credential_unavailable")
        assert [f.payload for f in lab2.open.frames] == [b"before"]


def test_revoked(lab):
    lab.api.reset(echoes())
    c, bystander = opened(lab, "ws.test"), opened(lab, "ws.test")
    c.send(frame(lab.placeholder2))
    read_message(c)
    start = time.monotonic()
    r = lab.run("lease", "revoke", "-c", lab.path("outgate.yaml"), "--credential", "gateway")
    assert r.returncode == 0, r
    ended(c, 1008, "revoked")
    assert time.monotonic() - start < 1.5
    bystander.send(frame("still here"))  # control: it holds none
    assert read_message(bystander)[1] == b"still here"
    bystander.send(frame(identify(lab)))  # and the next swap gets a new one
    assert read_message(bystander)[1].decode() == identify(lab)
    bystander.close()


def test_it_ends_with_its_run():
    """And with the login that opened it, as a tunnel does; by HTTP/2 too. The control: the agent's own login goes on."""
    import test_h2_websocket as H

    lab = Lab(hosts={"ws.test": "127.0.0.2"}, agents="  - name: coder\n    identify:\n      - login: {user: bot, token_file: bot.token}\n",
              rules="  - {name: ws, hosts: [ws.test], ports: [PORT], action: allow}\n", start=False)
    own = "5f0e1d2c3b4a59687786950a1b2c3d4e"
    with open(lab.path("bot.token"), "w") as f:
        f.write(own + "\n")
    lab.patched()
    with lab:
        lab.api.reset(echoes())
        args = ["run", "-c", lab.path("outgate.yaml"), "--agent", "coder", "--", "sh", "-c", 'printf "%s\\n" "$HTTPS_PROXY"; read line']
        run = subprocess.Popen([L_EXE, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            login = run.stdout.readline().split("//")[1].split("@")[0]

            def headers(who):
                return [("Proxy-Authorization", "Basic " + base64.b64encode(who.encode()).decode())]

            opens = {}
            for name, who in (("run", login), ("own", "bot:" + own)):
                c = lab.client("ws.test", headers=headers(who))
                c.send(handshake(lab, "ws.test"))
                assert read_response(c).status == 101
                opens[name] = c
            two = H.opened(lab, c=H.F.connect(lab, "ws.test", headers=headers(login)))
            run.communicate("\n", timeout=20)
            ended(opens["run"], 1008, "revoked")
            two.c.until(lambda: two.s.ended or two.s.reset is not None, "the end of the stream")
            opens["own"].send(frame("still here"))
            assert read_frame(opens["own"]).payload == b"still here"
        finally:
            run.kill()
            run.wait()


def test_a_reload_that_forbids_it(lab):
    with Lab(start=False, rules="  - {name: was, hosts: [open.test], ports: [PORT], action: allow}\n").patched() as lab2:
        lab2.open.reset(echoes())
        lab2.plain.reset(echoes())
        c = opened(lab2)
        other = lab2.client("plain.test", lab2.http_port, tls=False)
        other.send(handshake(lab2, "plain.test").replace(b":%d" % lab2.tls_port, b":%d" % lab2.http_port))
        assert read_response(other).status == 101
        c.send(frame("x"))
        assert read_message(c)[1] == b"x"
        lab2.extra["rules"] = "  - {name: no, hosts: [open.test], action: deny}\n"
        with open(lab2.path("outgate.yaml"), "w") as f:
            f.write(lab2.config())
        assert lab2.run("reload", "-c", lab2.path("outgate.yaml")).returncode == 0
        ended(c, 1008, "revoked")
        other.send(frame("y"))
        assert read_message(other)[1] == b"y"


def test_a_reload_that_takes_the_slot_away(lab):
    """Nothing is swapped any more in what a new one would not swap. The control: a reload that leaves the slot leaves it open."""
    with make_lab() as lab2:
        def reloaded(**changed):
            lab2.extra.update({k: lab2.extra[k].replace(*v) for k, v in changed.items()})
            with open(lab2.path("outgate.yaml"), "w") as f:
                f.write(lab2.config())
            assert lab2.run("reload", "-c", lab2.path("outgate.yaml")).returncode == 0

        lab2.api.reset(echoes())
        c = opened(lab2, "ws.test")
        for changed in (dict(tail=("1MiB", "2MiB")), dict(credentials=("slots: [websocket, ", "slots: ["))):
            c.send(frame(identify(lab2)))
            assert read_message(c)[1] == identify(lab2).encode()
            assert lab2.api.frames[-1].payload == identify(lab2, lab2.real2).encode()
            reloaded(**changed)
        ended(c, 1008, "revoked")


def test_a_reload_that_narrows_one_of_two_credentials(lab):
    """... ends it too, though the other one is swapped as before. The control: a reload that changes nothing of the two."""
    second = """  - name: second
    agents: [coder]
    hosts: [ws.test]
    ports: [PORT]
    slots: [websocket]
    env: SECOND_TOKEN
    source: {file: REAL2}
"""
    lab2 = make_lab_stopped()
    lab2.extra["credentials"] += second
    with lab2.patched() as lab2:
        def reloaded(**changed):
            lab2.extra.update({k: lab2.extra[k].replace(*v) for k, v in changed.items()})
            with open(lab2.path("outgate.yaml"), "w") as f:
                f.write(lab2.config())
            assert lab2.run("reload", "-c", lab2.path("outgate.yaml")).returncode == 0

        lab2.api.reset(echoes())
        c = opened(lab2, "ws.test")
        for changed in (dict(tail=("1MiB", "2MiB")), dict(credentials=("hosts: [ws.test]", "hosts: [peer.test]"))):
            c.send(frame(identify(lab2)))
            assert read_message(c)[1] == identify(lab2).encode()
            reloaded(**changed)
        ended(c, 1008, "revoked")


def test_a_use_is_in_the_log_before_it_leaves(lab):
    """Whatever happens to the worker afterwards. Once for each credential of a WebSocket, however many messages follow."""
    for tail in ("", "audit: {sync: always}\n"):
        lab2 = make_lab_stopped()
        lab2.extra["tail"] += tail
        with lab2.patched() as lab2:
            killed = threading.Event()

            def kills(conn, origin):
                switch(conn, origin)
                while True:
                    f = read_frame(conn)
                    origin.frames.append(f.payload)
                    if len(origin.frames) < 3:
                        conn.send(frame("again", masked=False))
                        continue
                    kill(lab2.workers_pids()[0])
                    killed.set()
                    return

            lab2.api.frames = []
            lab2.api.reset(kills)
            c = opened(lab2, "ws.test")
            before = lab2.mark()
            for text in ("nothing in it", identify(lab2)):
                c.send(frame(text))
                assert read_message(c)[1] == b"again"
            c.send(frame(identify(lab2)))
            assert killed.wait(20)
            assert lab2.api.frames == [b"nothing in it", *[identify(lab2, lab2.real2).encode()] * 2]
            closed = lab2.event(lambda e: e["host"] == "ws.test" and e["end"] == "worker_died", after=before)
            used = [e for e in lab2.events("lease") if e["result"] == "used"]
            assert [(e["credential"], e["host"], e["request_id"], e["agent"]) for e in used] == [("gateway", "ws.test", closed["request_id"], "coder")], used
            assert used[0]["seq"] < closed["seq"] and used[0]["lease_id"] and used[0]["expires_at"]


def test_a_rule_that_expires_ends_it(lab):
    lasts = 10 if sanitized() else 6
    until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + lasts))
    with Lab(rules=f"  - {{name: brief, hosts: [open.test], ports: [PORT], action: allow, expires: {until}}}\n", start=False).patched() as brief:
        brief.open.reset(echoes())
        c = opened(brief)
        c.send(frame("x"))  # control: it is open
        assert read_message(c)[1] == b"x"
        ended(c, 1008, "revoked")
        assert "expired" in brief.event(lambda e: e["host"] == "open.test" and e["rule"] == "brief")["message"]


# ---------------------------------------------------------------- permessage-deflate


def test_deflate_passes_and_is_watched(lab):
    for on in (PMD_ON, PMD_ALONE):
        lab.open.reset(echoes(on))
        c = opened(lab, extra=[PMD])
        assert "permessage-deflate" in c.answer.get("sec-websocket-extensions")
        z, back = zlib.compressobj(wbits=-15), zlib.decompressobj(wbits=-15)
        for text in ("Hello", "Hello", "Hello " * 20000):
            if on == PMD_ALONE:
                z, back = zlib.compressobj(wbits=-15), zlib.decompressobj(wbits=-15)
            c.send(frame(deflated(text, z), rsv1=True))
            op, payload, rsv1, _ = read_message(c)
            assert rsv1 and inflated(payload, back).decode() == text
        c.send(frame("not compressed"))
        assert read_message(c)[1:3] == (b"not compressed", False)
        at = lab.mark()
        c.send(frame(deflated("secret " + lab.placeholder2, zlib.compressobj(wbits=-15)), rsv1=True))
        read_message(c)
        c.close()
        e = lab.event(lambda e: e["host"] == "open.test" and e["status"] == 101, after=at)
        assert e["findings"] == ["placeholder_elsewhere"], e


def test_deflate_with_the_swap(lab):
    for on, alone in ((PMD_ON, False), (PMD_ALONE, True), (PMD_ON.replace("\r\n", "; client_max_window_bits=8\r\n"), False),
                      (PMD_ON.replace("\r\n", "; client_max_window_bits=10\r\n"), False)):
        lab.api.reset(echoes(on))
        c = opened(lab, "ws.test", [PMD])
        z, seen = zlib.compressobj(wbits=-9), zlib.decompressobj(wbits=-15)
        texts = [identify(lab), "between", identify(lab), "between, with more text, between", "b" * 100000, identify(lab)]
        for text in texts:
            if alone:
                z, seen = zlib.compressobj(wbits=-9), zlib.decompressobj(wbits=-15)
            payload = deflated(text, z)
            c.send(frame(payload[:7], rsv1=True, fin=False) + frame(payload[7:], 0))
            op, got, rsv1, _ = read_message(c)
            assert (op, got.decode(), rsv1) == (TEXT, text, False)  # read and scrubbed, so it comes uncompressed
            f = lab.api.frames[-1]
            assert f.rsv1 and f.fin and inflated(f.payload, seen).decode() == text.replace(lab.placeholder2, lab.real2), f
        c.send(frame(deflated(b"\xff\x00binary", z if not alone else None), BINARY, rsv1=True))
        assert read_message(c)[:2] == (BINARY, b"\xff\x00binary")
        lab.blobs.append(bytes(c.received))
        c.send(frame(b"", CLOSE))
        assert read_frame(c).op == CLOSE


def test_bombs(lab):
    for name, origin in (("open.test", lab.open), ("ws.test", lab.api)):
        origin.reset(echoes(PMD_ON))
        c = opened(lab, name, [PMD])
        c.send(frame(deflated("a" * (1024 * 1024)), rsv1=True))  # control: exactly as much as may be
        assert len(read_message(c)[1]) > 0
        before = lab.worker_rss_kib()
        c.send(frame(deflated("b" * (64 * 1024 * 1024)), rsv1=True))
        ended(c, 1009, "too_large")
        c = opened(lab, name, [PMD])
        c.send(frame(b"\x07\xff\xff", rsv1=True))
        ended(c, 1007, "bad_request")
        if not sanitized():
            assert lab.worker_rss_kib() < before + 20 * 1024

    def bomb(conn, origin):
        switch(conn, origin, PMD_ON)
        while read_frame(conn):
            conn.send(frame(deflated("b" * (64 * 1024 * 1024)), rsv1=True, masked=False))

    lab.api.reset(bomb)
    c = opened(lab, "api.test", [PMD])
    c.send(frame("go"))
    n = 0
    while (f := read_frame(c)).op != CLOSE:
        n += len(f.payload)
    assert f.code == 1009 and f.reason == "origin_protocol" and n <= 1024 * 1024, (f, n)


# Another client, in a process of its own: the median of what an answer of the proxy itself takes.
PROBE = """
import socket, statistics, sys, time
took = []
for _ in range(31):
    start = time.monotonic()
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as s:
        s.sendall(b"GET /healthz HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
        assert s.recv(4096).startswith(b"HTTP/1.1 200"), "healthz"
    took.append(time.monotonic() - start)
    time.sleep(0.03)  # so that they meet all kinds of moments
print(statistics.median(took))
"""


def test_what_messages_inflate_to_keeps_nobody_waiting(lab):
    """A worker inflates and compresses a little at a time: others have their turn while a message of 16 MiB is on its way."""
    if sanitized():
        raise Skip("how long others wait is measured without sanitizers")
    most = 16 * 1024 * 1024
    with make_lab() as big:
        big.extra["tail"] = "limits: {ws_message_bytes: 16MiB}\n"
        with open(big.path("outgate.yaml"), "w") as f:
            f.write(big.config())
        assert big.run("reload", "-c", big.path("outgate.yaml")).returncode == 0
        sent = frame(deflated("a" * most), rsv1=True)

        def takes(conn, origin):
            switch(conn, origin, PMD_ON)
            while (f := read_frame(conn)).op != CLOSE:
                origin.taken += 1
                conn.send(frame("next", masked=False))

        def gives(conn, origin):
            switch(conn, origin, PMD_ON)
            while read_frame(conn).op != CLOSE:
                conn.send(frame(deflated("a" * most), rsv1=True, masked=False))

        for name, origin, handler in (("ws.test", big.api, takes), ("open.test", big.open, takes), ("ws.test", big.api, gives)):
            origin.taken, stop, done, broken = 0, threading.Event(), [0], []

            def bombs():
                try:
                    c = opened(big, name, [PMD])
                    while not stop.is_set():
                        c.send(sent if handler is takes else frame("go"))
                        read_message(c)
                        c.received.clear()
                        done[0] += 1
                except Exception as e:  # said where the test can see it
                    broken.append(e)

            origin.reset(handler)
            threads = [threading.Thread(target=bombs) for _ in range(3)]
            for t in threads:
                t.start()
            wait_for(lambda: done[0] or broken, "a message that went through")
            before, r = done[0], subprocess.run([sys.executable, "-c", PROBE, str(big.port)], capture_output=True, text=True, timeout=50)
            wait_for(lambda: done[0] > before or broken, "another one")  # the control: they went on meanwhile
            stop.set()
            for t in threads:
                t.join()
            assert not broken and r.returncode == 0, (broken, r.stderr)
            assert float(r.stdout) < 0.05, (name, handler, r.stdout)


# ---------------------------------------------------------------- the scrubber


def test_real_values_do_not_come_back(lab):
    """Raw, in base64, in fragments, compressed, in pings and in a close's reason: from any host that some credential covers."""
    real, z = lab.real2.encode(), zlib.compressobj(wbits=-15)
    says = [
        frame(real, masked=False), frame(b"x" * 70000 + real, BINARY, masked=False), frame(base64.b64encode(b"ab:" + real), masked=False),
        frame(real[:7], fin=False, masked=False) + frame(b"p", PING, masked=False) + frame(real[7:20], 0, fin=False, masked=False) + frame(real[20:], 0, masked=False),
        frame(deflated(real, z), rsv1=True, masked=False), frame(deflated(b"again " + real, z), rsv1=True, masked=False),
        frame(real, PING, masked=False), frame(b"\x03\xe8" + real, CLOSE, masked=False),
    ]

    def handler(conn, origin):
        switch(conn, origin, PMD_ON)
        read_frame(conn)
        for s in says:
            conn.send(s)

    lab.api.reset(handler)
    at = lab.mark()
    c = opened(lab, "ws.test", [PMD])
    c.send(frame(identify(lab)))
    fake = lab.placeholder2.encode()
    assert read_message(c)[1] == fake
    assert read_message(c)[:2] == (BINARY, b"x" * 70000 + fake)
    assert fake[:20] in base64.b64decode(read_message(c)[1])
    f, got = read_frame(c), b""
    while True:
        got += f.payload if f.op != PING else b""
        if f.fin and f.op != PING:
            break
        f = read_frame(c)
    assert got == fake
    assert read_message(c)[1:3] == (fake, False)
    assert read_message(c)[1] == b"again " + fake
    f = read_frame(c)
    assert f.op == PING and f.payload == fake
    f = read_frame(c)
    assert f.op == CLOSE and f.payload == b"\x03\xe8" + fake
    c.close()
    lab.blobs.append(bytes(c.received))
    assert not lab.leaks()
    e = lab.event(lambda e: e["host"] == "ws.test" and e["status"] == 101, after=at)
    assert "credential_reflected" in e["findings"], e
    assert e["scrubbed"] >= 8, e


# ---------------------------------------------------------------- an implementation that is not ours

PEERS = """
import asyncio, json, socket, ssl, sys, websockets
name, addr, port, proxy, ca, cert, key, token, compression = sys.argv[1:]

async def main():
    seen = []

    async def echo(ws, path=None):
        async for m in ws:
            seen.append(m if isinstance(m, str) else len(m))
            await ws.send(m)

    sctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    sctx.load_cert_chain(cert, key)
    compression_ = "deflate" if compression == "deflate" else None
    async with websockets.serve(echo, addr, int(port), ssl=sctx, compression=compression_):
        sock = socket.create_connection(("127.0.0.1", int(proxy)))
        sock.sendall(f"CONNECT {name}:{port} HTTP/1.1\\r\\nHost: {name}:{port}\\r\\n\\r\\n".encode())
        got = b""
        while not got.endswith(b"\\r\\n\\r\\n"):
            got += sock.recv(1)
        sock.setblocking(False)
        sent, back = ["hello", token, "x" * 300000, b"binary" * 5000, json.dumps({"t": token}), "hello"], []
        async with websockets.connect(f"wss://{name}:{port}/ws", sock=sock, ssl=ssl.create_default_context(cafile=ca), server_hostname=name,
                                      compression=compression_) as ws:
            for m in sent:
                await ws.send(m)
                back.append(await ws.recv())
            await (await ws.ping())
            extensions = [e.name for e in ws.extensions]
        print(json.dumps({"same": back == sent, "extensions": extensions, "code": ws.close_code, "seen": [m for m in seen if m != "x" * 300000]}))

asyncio.run(main())
"""


def test_python_websockets(lab):
    if subprocess.run(["/usr/bin/python3", "-c", "import websockets"], capture_output=True).returncode:
        raise Skip("python3-websockets is not installed")
    for compression in ("none", "deflate"):
        r = subprocess.run(["/usr/bin/python3", "-c", PEERS, "peer.test", "127.0.0.6", str(lab.tls_port), str(lab.port), lab.path("outgate-ca.pem"),
                            lab.path("origin.pem"), lab.path("origin.key"), lab.placeholder2, compression], capture_output=True, timeout=30, text=True)
        assert r.returncode == 0, r.stderr[-600:]
        got = json.loads(r.stdout)
        assert got["same"] and got["code"] == 1000 and got["extensions"] == (["permessage-deflate"] if compression == "deflate" else []), got
        assert got["seen"] == ["hello", lab.real2, 30000, json.dumps({"t": lab.real2}), "hello"], got["seen"]


if __name__ == "__main__":
    main()
