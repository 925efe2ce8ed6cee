# SPDX-License-Identifier: Apache-2.0
"""An HTTP/2 origin by hand for tests/system/test_h2_*.py: what a lab.Origin does once ALPN chose h2.

  speak     makes an origin offer h2 (and http/1.1) and be served by a function of a Peer
  Peer      the origin's end of a connection: requests put together, answers in any shape, and every frame an h2_frames can write
"""
import json

import h2_frames as F
import lab as L


class Peer(F.H2):
    """conn: a lab.Conn on which h2 was chosen. Sends its SETTINGS first, or `first` instead."""

    def __init__(self, conn, pairs=(), first=None):
        super().__init__(conn, "", handshake=False)
        preface = conn.exactly(len(F.PREFACE))
        if preface != F.PREFACE:
            raise ValueError(f"no preface but {preface!r}")
        self.heads = []  # streams in the order of their heads
        self.send(F.settings(*pairs) if first is None else first)

    def _head(self, s, fields, end):
        """As F.H2._head, for requests, and as strict."""
        for k, v in fields:
            if k.lower() != k or b"\r" in v or b"\n" in v or b"\0" in v or v.strip(b" \t") != v:
                raise ValueError(f"a bad field {k!r}: {v!r}")
            if k in (b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"proxy-connection", b"host", b"http2-settings"):
                raise ValueError(f"a field of another protocol: {k!r}")
        pseudo = [k for k, _ in fields if k.startswith(b":")]
        if s.status is not None:
            if pseudo or not end:
                raise ValueError(f"bad trailers: {fields}")
            s.trailers = fields
        else:
            if sorted(pseudo) != [b":authority", b":method", b":path", b":scheme"] or [k for k, _ in fields[:4]] != pseudo:
                raise ValueError(f"bad pseudo-fields: {fields}")
            s.status, s.fields, s.how = 0, fields, dict(zip([k for k, _ in fields], self.hpack.how))
            self.heads.append(s)
        s.ended |= bool(end)

    def head_of(self, k=0, timeout=L.WAIT):
        """The k-th request, as soon as its head is here."""
        self.until(lambda: len(self.heads) > k, f"request {k}", timeout)
        return self.heads[k]

    def whole(self, k=0, timeout=L.WAIT):
        s = self.head_of(k, timeout)
        self.until(lambda: s.ended, f"the end of request {k}", timeout)
        return s

    def fields(self, s, status=200, fields=(), end=False, how="plain"):
        return F.headers(s.number, F.block([(":status", str(status)), *fields], how), F.END_HEADERS | (F.END_STREAM if end else 0))

    def answer(self, s, body=b"", status=200, fields=(), trailers=None):
        """A whole answer, as the windows allow. The length is said, unless there are trailers."""
        more = [("content-length", str(len(body)))] if trailers is None and body else []
        if not body and trailers is None:
            self.send(self.fields(s, status, fields, end=True))
            return
        self.send(self.fields(s, status, [*fields, *more]))
        self.give(s, body, end=trailers is None)
        if trailers is not None:
            self.send(F.headers(s.number, F.block(trailers)))

    def give(self, s, body, end=True):
        """Body, as the windows allow. What comes meanwhile is read."""
        at = 0
        while at < len(body):
            room = min(self.window, self.room(s), 16384, len(body) - at)
            if room <= 0:
                if s.reset is not None:
                    raise F.Reset(s.reset, s.number)
                self.next()
                continue
            self.send(F.data(s.number, body[at : at + room], F.END_STREAM if end and at + room == len(body) else 0))
            at, self.window, s.window = at + room, self.window - room, s.window - room
        if end and not body:
            self.send(F.data(s.number, b"", F.END_STREAM))


def seen(s):
    """A request as JSON, as lab.echo shows one."""
    text = lambda pairs: [[k.decode("latin1"), v.decode("latin1")] for k, v in pairs]
    return json.dumps({"fields": text(s.fields), "body": bytes(s.body).decode("latin1"), "trailers": text(s.trailers), "stream": s.number}).encode()


def echo(peer):
    """Answers each request, when it is whole, with what it was."""
    answered = 0
    while True:
        s = peer.whole(answered, timeout=60)
        answered += 1
        method = dict(s.fields)[b":method"]
        peer.answer(s, b"" if method == b"HEAD" else seen(s), fields=[("content-type", "application/json")])


def speak(origin, serve=echo, pairs=(), alpn=("h2",), first=None):
    """From the next connection on, `origin` speaks h2 with whoever takes it; origin.peers are those. A client that took http/1.1 gets the
    lab's own echo."""
    peers = []

    def handler(conn, o):
        if conn.tls.selected_alpn_protocol() != "h2":
            L.echo(conn, o)
            return
        peer = Peer(conn, pairs, first)
        peers.append(peer)
        serve(peer)

    origin.reset(handler)
    origin.ctx = origin.lab.origin_context(origin)
    origin.ctx.set_alpn_protocols(list(alpn))
    origin.peers = peers
    return peers
