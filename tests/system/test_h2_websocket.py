#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""WebSocket over HTTP/2 (RFC 8441): extended CONNECT from the client, the handshake of RFC 6455 towards the host. Frames and their
rules are test_websocket.py's; here is what one stream of many makes of them."""
import h2_frames as F
import test_websocket as W
from lab import main, read_head, wait_for

make_lab = W.make_lab


class Stream:
    """One stream as a connection that test_websocket's readers can read."""

    def __init__(self, c, n):
        self.c, self.n, self.at = c, n, 0
        self.s = c.stream(n)

    def send(self, data, end=False):
        self.c.send_body(self.n, data, end=end)

    def exactly(self, n):
        self.c.until(lambda: len(self.s.body) >= self.at + n or self.s.ended or self.s.reset is not None, f"{n} bytes")
        assert len(self.s.body) >= self.at + n, (bytes(self.s.body[self.at :]), self.s.ended, self.s.reset)
        self.at += n
        return bytes(self.s.body[self.at - n : self.at])


def ask(c, path="/ws", protocol="websocket", more=(), behind=b""):
    n = c.take_id()
    fields = [(":method", "CONNECT"), (":protocol", protocol), (":scheme", "https"), (":authority", c.authority), (":path", path),
              ("sec-websocket-version", "13"), *more]
    c.send(F.headers(n, F.block(fields), F.END_HEADERS) + (F.data(n, behind) if behind else b""))
    return Stream(c, n)


def opened(lab, name="open.test", c=None, **kw):
    c = c or F.connect(lab, name)
    ws = ask(c, **kw)
    c.until(lambda: ws.s.status is not None or ws.s.reset is not None, "the answer")
    assert ws.s.status == 200, (ws.s.status, ws.s.reset, bytes(ws.s.body))
    assert not ws.s.all("content-length") and not ws.s.all("sec-websocket-accept"), ws.s.fields
    return ws


def refused(lab, name="open.test", **kw):
    c = F.connect(lab, name)
    ws = ask(c, **kw)
    c.wait(ws.n)
    return ws.s


def test_it_is_offered(lab):
    c = F.connect(lab, "open.test")
    assert c.peer[8] == 1, c.peer  # SETTINGS_ENABLE_CONNECT_PROTOCOL


def test_both_ways(lab):
    lab.open.reset(W.echoes(ahead=W.frame("first", masked=False)))
    ws = opened(lab, behind=W.frame("sent ahead"))
    assert W.read_frame(ws).payload == b"first" and W.read_frame(ws).payload == b"sent ahead"
    for size in (0, 1, 125, 126, 65535, 65536, 300000):
        ws.send(W.frame(b"x" * size, W.BINARY))
        assert W.read_frame(ws).payload == b"x" * size
    ws.send(W.frame("are you?", W.PING))
    assert W.read_frame(ws).op == W.PONG
    m = lab.open.last
    assert m.method == "GET" and m.get("upgrade") == "websocket" and m.get("connection") == "Upgrade" and len(m.get("sec-websocket-key")) == 24, m
    ws.send(W.frame(b"\x03\xe8bye", W.CLOSE))
    assert W.read_frame(ws).op == W.CLOSE
    ws.c.until(lambda: ws.s.ended, "the end of the stream")
    e = lab.event(lambda e: e.get("http_version") == "2" and e["path"] == "/ws")
    assert e["method"] == "GET" and e["status"] == 101 and e["end"] == "ok" and e["verdict"] == "allow", e


def test_the_swap_and_what_comes_back(lab):
    lab.api.reset(W.echoes())
    ws = opened(lab, "ws.test", more=[("authorization", "Bearer " + lab.placeholder2)])
    assert lab.api.last.get("authorization") == "Bearer " + lab.real2
    ws.send(W.frame(W.identify(lab)))
    assert W.read_frame(ws).payload == W.identify(lab).encode()
    assert lab.api.frames[-1].payload == W.identify(lab, lab.real2).encode()
    lab.blobs.append(bytes(ws.s.body))


def test_many_beside_other_streams(lab):
    lab.open.reset(W.echoes())
    c = F.connect(lab, "open.test")
    many = [opened(lab, c=c, path=f"/ws/{i}") for i in range(20)]
    for k in range(3):
        for i, ws in enumerate(many):
            ws.send(W.frame(f"{i}.{k}"))
    for i, ws in enumerate(many):
        for k in range(3):
            assert W.read_frame(ws).payload == f"{i}.{k}".encode()


def test_what_is_refused(lab):
    lab.open.reset(W.echoes())
    for kw, status, code in ((dict(protocol="connect-udp"), 403, "upgrade_denied"), (dict(more=[("sec-websocket-key", W.KEY)]), 403, "upgrade_denied"),
                             (dict(name="narrow.test"), 403, "path_denied")):
        s = refused(lab, **kw)
        assert s.status == status and s.code == code, (kw, s.status, bytes(s.body))
    s = refused(lab, "ws.test", more=[("authorization", "Bearer " + lab.placeholder)])  # of another host
    assert s.status == 403 and s.code == "placeholder_wrong_host", bytes(s.body)
    c = F.connect(lab, "open.test")
    n = c.request(fields=[(":method", "GET"), (":protocol", "websocket"), (":scheme", "https"), (":authority", c.authority), (":path", "/")])
    c.until(lambda: c.stream(n).reset is not None, "a reset")
    assert c.stream(n).reset == F.PROTOCOL_ERROR


def test_another_answer_than_101_is_an_ordinary_one(lab):
    def no(conn, origin):
        origin.requests.append(read_head(conn))
        conn.send(b"HTTP/1.1 404 No\r\nContent-Length: 5\r\n\r\nno ws")

    lab.open.reset(no)
    s = refused(lab)
    assert s.status == 404 and bytes(s.body) == b"no ws", (s.status, bytes(s.body))


def test_success_that_opens_nothing(lab):
    """To the client any success would say that there is a WebSocket."""
    lab.open.reset(lambda conn, origin: (read_head(conn), conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")))
    s = refused(lab)
    assert s.status == 502 and s.code == "origin_protocol", (s.status, bytes(s.body))
    s = refused(lab, "narrow.test", more=[("content-type", "application/grpc")])  # nor does a refusal look like it
    assert s.status == 403 and s.code == "path_denied", (s.status, bytes(s.body))


def test_a_client_that_ends_in_the_middle_of_a_frame(lab):
    lab.open.reset(W.echoes())
    ws = opened(lab)
    ws.c.send(F.data(ws.n, W.frame("cut short")[:5], F.END_STREAM))
    ws.c.until(lambda: ws.s.ended or ws.s.reset is not None, "the end of the stream")
    ws.c.alive()
    wait_for(lambda: not [e for e in lab.events("open") if e["request_id"] not in {x["request_id"] for x in lab.events("close")}], "its close")


def test_a_frame_that_may_not_be(lab):
    lab.open.reset(W.echoes())
    ws = opened(lab)
    ws.send(W.frame("not masked", masked=False))
    f = W.read_frame(ws)
    assert f.op == W.CLOSE and f.code == 1002, f
    ws.c.until(lambda: ws.s.ended or ws.s.reset is not None, "the end")
    ws.c.alive()  # the others go on


def test_either_side_goes_away(lab):
    lab.open.reset(W.echoes())
    ws = opened(lab)
    ws.c.send(F.rst(ws.n, F.CANCEL))
    e = lab.event(lambda e: e.get("http_version") == "2" and e["end"] == "client_closed")
    assert "without a close frame" in e["message"], e
    wait_for(lambda: not lab.open.conns[-1].sock or lab.open.conns[-1].sock.fileno() < 0, "the host's end")

    def goes(conn, origin):
        W.switch(conn, origin)
        conn.send(W.frame("x", masked=False))

    lab.open.reset(goes)
    ws = opened(lab, c=ws.c)
    assert W.read_frame(ws).payload == b"x"
    ws.c.until(lambda: ws.s.ended or ws.s.reset is not None, "the end")
    ws.c.alive()


if __name__ == "__main__":
    main()
