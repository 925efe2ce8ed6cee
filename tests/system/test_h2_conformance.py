#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What RFC 9113 and RFC 7541 ask of a server, section by section, as tables: the frames that a client sends, and what must come of it. The
rows cover what the known conformance tools ask, and more. Through the proxy's CONNECT to an HTTP/1.1 origin; with OUTGATE_H2_REFERENCE=1 the
same rows go to nghttpd instead: a row that a known good server fails is a wrong row, or says why in `ref`.

What counts (RFC 9113 section 5.4): a connection error is GOAWAY with one of the codes and then the end of the connection; the end alone is
allowed. A stream error is RST_STREAM with one of the codes, and everything else on the connection goes on; a connection error with that code
is allowed. A malformed request (8.1.1) may get a 400 first, but the stream is reset all the same: that is what tools look for. Where only
what reaches the origin matters the row says REFUSED: an answer of 4xx is as good."""
import os
import shutil
import socket
import subprocess
import tempfile

import h2_frames as H
from h2_frames import (ACK, COMPRESSION_ERROR, END_HEADERS, END_STREAM, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE,
                       PADDED, PROTOCOL_ERROR, REFUSED_STREAM, STREAM_CLOSED, WITH_PRIORITY, block, continuation, data, frame, goaway, headers, indexed,
                       integer, literal, ping, priority, rst, settings, string, table_size, window_update)
from lab import Closed, Lab, Skip, free_port, main, openssl, wait_for

REFERENCE = os.environ.get("OUTGATE_H2_REFERENCE") == "1"
WAIT = 4.0  # seconds for what must come of a row
BIG = 0x7FFFFFFF


# ---------------------------------------------------------------- whom is asked


class Reference:
    """nghttpd on loopback, in a lab's place."""

    def __init__(self):
        exe = shutil.which("nghttpd")
        if not exe:
            raise Skip("nghttpd is not installed")
        self.dir, self.port = tempfile.mkdtemp(prefix="outgate-h2-"), free_port(["127.0.0.1"])
        openssl(self.dir, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "3", "-keyout", "key", "-out", "cert",
                "-subj", "/CN=open.test", "-addext", "subjectAltName=DNS:open.test")
        with open(os.path.join(self.dir, "index.html"), "w") as f:
            f.write("x" * 300)
        self.proc = subprocess.Popen([exe, "-a", "127.0.0.1", "-d", self.dir, str(self.port), os.path.join(self.dir, "key"), os.path.join(self.dir, "cert")],
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(self.listens, "nghttpd")

    def listens(self):
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0

    def connect(self, **kw):
        import ssl

        from lab import Conn

        ctx = ssl.create_default_context(cafile=os.path.join(self.dir, "cert"))
        ctx.set_alpn_protocols(["h2"])
        c = Conn(socket.create_connection(("127.0.0.1", self.port), 10))
        c.start_tls(ctx, name="open.test")
        return H.H2(c, f"open.test:{self.port}", **kw)

    def fresh(self):
        pass

    def log_bytes(self):
        return b""

    def close(self, check=True):
        self.proc.terminate()
        self.proc.wait(5)
        shutil.rmtree(self.dir, ignore_errors=True)


def make_lab():
    return Reference() if REFERENCE else Lab()


def connect(lab, **kw):
    return lab.connect(**kw) if REFERENCE else H.connect(lab, **kw)


# ---------------------------------------------------------------- what must come of it


def reads(h, seen):
    """Reads until seen() says something (not None): that. The end of the connection: "end"; nothing for too long: "nothing"."""
    import time

    until = time.monotonic() + WAIT
    while True:
        got = seen()
        if got is not None:
            return got
        left = until - time.monotonic()
        if left <= 0:
            return "nothing"
        try:
            if h.next(left) is None:
                return "nothing"
        except Closed:
            got = seen()
            return "end" if got is None else got


def names(codes):
    return " or ".join(H.code_name(c) for c in codes)


class Dead:
    """A connection error."""

    def __init__(self, *codes):
        self.codes = codes

    def check(self, h):
        got = reads(h, lambda: h.gone)
        if got == "end":
            return None
        if got == "nothing":
            return f"no GOAWAY {names(self.codes)}; the last frames: {h.frames[-5:]}"
        if self.codes and got.number(4) not in self.codes:
            return f"{got} instead of {names(self.codes)}"
        try:
            h.ending(WAIT)
        except AssertionError as e:
            return f"{got}, but {e}"
        return None


class Broken:
    """A stream error on stream n."""

    def __init__(self, *codes, n=1):
        self.codes, self.n = codes, n

    def check(self, h):
        s = h.stream(self.n)

        def seen():
            return h.gone or (s.reset if s.reset is not None else None) or (s if s.ended else None)

        got = reads(h, seen)
        if isinstance(got, H.Stream):  # an answer first; is the stream reset behind it?
            try:
                h.alive(b"behind: ")
            except (Closed, AssertionError):
                pass
            got = h.gone or s.reset
            if got is None:
                return f"answered {s.status}, not reset with {names(self.codes)}"
        if got == "end":
            return None
        if got == "nothing":
            return f"no RST_STREAM {names(self.codes)}; the last frames: {h.frames[-5:]}"
        if isinstance(got, H.Frame):
            return None if got.number(4) in self.codes else f"{got} instead of {names(self.codes)}"
        if got not in self.codes:
            return f"RST_STREAM {H.code_name(got)} instead of {names(self.codes)}"
        return Alive().check(h)  # and nothing but the stream


class Refused:
    """No answer of the origin: a 4xx of ours, or a stream or connection error."""

    def __init__(self, n=1):
        self.n = n

    def check(self, h):
        s = h.stream(self.n)
        got = reads(h, lambda: h.gone or (s if s.ended or s.reset is not None else None))
        if got == "nothing":
            return f"neither refused nor answered; the last frames: {h.frames[-5:]}"
        if got is s and s.status is not None and s.reset is None and not 400 <= s.status < 500:
            return f"answered {s.status}"
        return None


class Answered:
    """Stream n is answered; seen: a function of the answer."""

    def __init__(self, n=1, status=(200,), seen=None):
        self.n, self.status, self.seen = n, status, seen

    def check(self, h):
        try:
            s = h.wait(self.n, WAIT)
        except (H.Reset, H.GoneAway, Closed, AssertionError) as e:
            return f"{type(e).__name__}: {e}"
        if s.status not in self.status:
            return f"answered {s.status} {bytes(s.body[:120])!r}"
        if self.seen and not REFERENCE:  # nghttpd does not tell what it saw
            return self.seen(h, s)
        return None


class Alive:
    """Nothing is wrong: no GOAWAY, and a PING is answered."""

    def check(self, h):
        if h.gone and h.gone.number(4):
            return repr(h.gone)
        try:
            h.alive(timeout=WAIT)
        except (Closed, AssertionError) as e:
            return f"{type(e).__name__}: {e}"
        return repr(h.gone) if h.gone and h.gone.number(4) else None


class Seen:
    """A frame comes for which holds(frame), before any other of the same kind."""

    def __init__(self, kind, holds):
        self.kind, self.holds = kind, holds

    def check(self, h):
        got = reads(h, lambda: next((f for f in h.frames if f.kind == self.kind), None))
        if not isinstance(got, H.Frame):
            return f"{got}; the last frames: {h.frames[-5:]}"
        return None if self.holds(got) else f"{got}"


class Ended:
    """The connection ends, whatever is said before."""

    def check(self, h):
        try:
            h.ending(WAIT)
        except AssertionError as e:
            return str(e)
        except ValueError as e:
            return str(e)
        return None


def rows(lab, *table):
    """(name, steps, what must come of it, more). steps: bytes, or functions of the connection that give bytes or wait for something; what
    stands together is sent in one write. more: handshake (False: none, the steps begin with nothing), pairs: our SETTINGS, manual: windows are
    not given back, ref: why nghttpd fails the row."""
    bad = []
    for name, steps, want, *more in table:
        more = dict(more[0]) if more else {}
        ref = more.pop("ref", None)
        if REFERENCE and ref:
            print(f"      not asked of nghttpd: {name}: {ref}", flush=True)
            continue
        h = connect(lab, **more)
        try:
            out = b""
            for step in steps:
                if callable(step) and not hasattr(step, "makes_bytes") and out:  # it waits for what comes of that
                    h.send(out)
                    out = b""
                out += (step(h) if callable(step) else step) or b""
            h.send(out)
            why = want.check(h)
        except (H.Reset, H.GoneAway, Closed, AssertionError, ValueError) as e:
            why = f"{type(e).__name__}: {e}"
        finally:
            h.conn.close(notify=False)
        if why:
            bad.append(name)
            print(f"      {name}: {why[:400]}", flush=True)
    assert not bad, f"{len(bad)} of {len(table)}: {'; '.join(bad)}"


# ---------------------------------------------------------------- steps


def made(make):
    make.makes_bytes = True
    return make


def fields(more=(), method="GET", path="/", drop=(), first=(), scheme="https"):
    """The block of a request. drop: names left out; first: fields that stand before the pseudo-headers."""
    def make(h):
        return block([*first, *[(k, v) for k, v in h.head(method, path, scheme=scheme) if k not in drop], *more])

    return make


def req(n=1, more=(), flags=END_HEADERS | END_STREAM, tail=b"", pad=None, prio=None, **kw):
    """HEADERS of a request; tail: bytes behind the block."""
    return made(lambda h: headers(n, fields(more, **kw)(h) + tail, flags, pad, prio))


GET = req()
OPEN = req(method="POST", flags=END_HEADERS)  # more comes
BEGUN = req(flags=END_STREAM)  # its block goes on


def wait(n=1):
    return lambda h: h.wait(n, WAIT) and None


def cut(parts, n=1, flags=END_STREAM, more=(), last=END_HEADERS):
    """A request whose block comes in so many frames."""
    def make(h):
        raw = fields(more)(h)
        at = [len(raw) * i // parts for i in range(parts + 1)]
        out = headers(n, raw[: at[1]], flags)
        for i in range(1, parts):
            out += continuation(n, raw[at[i] : at[i + 1]], last if i == parts - 1 else 0)
        return out

    return made(make)


def rest(n=1, flags=END_HEADERS):
    return made(lambda h: continuation(n, block([("x-rest", "1")]), flags))


def frame_size(h):
    return h.peer.get(MAX_FRAME_SIZE, 16384)


def came(name, value):
    """The origin saw the field, once."""
    def seen(_h, s):
        values = [v for k, v in s.json()["headers"] if k.lower() == name]
        return None if values == [value] else f"{name}: {values} instead of {value!r}"

    return seen


def got_body(text):
    return lambda _h, s: None if s.json()["body"] == text else f"the origin got {s.json()['body'][:80]!r}"


# ---------------------------------------------------------------- RFC 9113


def test_3_4_preface(lab):
    rows(
        lab,
        ("the server's first frame is SETTINGS", [H.PREFACE + settings()], Answers_first(), dict(handshake=False)),
        ("a preface that is none", [b"INVALID CONNECTION PREFACE\r\n\r\n"], Ended(), dict(handshake=False)),
        ("HTTP/1.1 where HTTP/2 was agreed", [b"GET / HTTP/1.1\r\nHost: open.test\r\n\r\n"], Ended(), dict(handshake=False)),
        ("its last byte is wrong", [H.PREFACE[:-1] + b"\r" + settings()], Ended(), dict(handshake=False)),
        ("the first frame is PING", [H.PREFACE + ping()], Dead(PROTOCOL_ERROR), dict(handshake=False)),
        ("the first frame is HEADERS", [H.PREFACE, GET], Dead(PROTOCOL_ERROR), dict(handshake=False)),
        ("the first frame is an ACK", [H.PREFACE + settings(flags=ACK)], Dead(PROTOCOL_ERROR), dict(handshake=False)),
        ("SETTINGS and a request at once", [H.PREFACE + settings(), GET], Answered(), dict(handshake=False)),
        ("in pieces", [lambda h: h.send(H.PREFACE + settings(), range(1, 33, 8)) and None, GET], Answered(), dict(handshake=False)),
    )


class Answers_first:
    def check(self, h):
        got = reads(h, lambda: h.frames[0] if h.frames else None)
        fine = isinstance(got, H.Frame) and got.kind == H.SETTINGS and not got.flags & ACK and got.stream == 0
        return None if fine else repr(got)


def test_4_1_frame_format(lab):
    rows(
        lab,
        ("an unknown type", [frame(0xFF, 0, 0, b"x" * 8)], Alive()),
        ("an unknown type with all flags on a stream", [OPEN, frame(0x16, 0xFF, 1, b"x" * 100), data(1, b"", END_STREAM)], Answered()),
        ("an unknown type as long as may be", [made(lambda h: frame(0xEE, 0, 0, b"x" * frame_size(h)))], Alive()),
        ("undefined flags on PING", [ping(b"flagged!", 0x16)], Seen(H.PING, lambda f: f.flags & ACK and f.payload == b"flagged!")),
        ("undefined flags on HEADERS", [req(flags=END_HEADERS | END_STREAM | 0x40 | 0x80 | 0x10)], Answered()),
        ("the reserved bit on PING", [ping(b"reserved", 0, 1 << 31)], Seen(H.PING, lambda f: f.flags & ACK and f.stream == 0)),
        ("the reserved bit on HEADERS", [made(lambda h: headers(1 | 1 << 31, fields()(h)))], Answered()),
        ("the reserved bit on WINDOW_UPDATE's increment", [window_update(0, 1 | 1 << 31)], Alive()),
    )


def test_4_2_frame_size(lab):
    size = frame_size
    rows(
        lab,
        ("DATA of 2^14", [OPEN, data(1, b"a" * 16384, END_STREAM)], Answered(seen=got_body("a" * 16384))),
        ("DATA that is too long", [OPEN, made(lambda h: data(1, b"a" * (size(h) + 1), END_STREAM))], Broken(FRAME_SIZE_ERROR)),
        ("HEADERS that is too long", [made(lambda h: headers(1, fields()(h) + literal("x-long", "a" * size(h))))], Dead(FRAME_SIZE_ERROR)),
        ("CONTINUATION that is too long", [BEGUN, made(lambda h: continuation(1, literal("x-long", "a" * size(h))))], Dead(FRAME_SIZE_ERROR),
         dict(ref="nghttp2 does not look at the size of CONTINUATION")),
        ("an unknown type that is too long", [made(lambda h: frame(0xEE, 0, 0, b"x" * (size(h) + 1)))], Dead(FRAME_SIZE_ERROR)),
        ("a length of 2^24 - 1", [frame(H.DATA, 0, 1, b"x" * 100, length=(1 << 24) - 1)], Dead(FRAME_SIZE_ERROR, PROTOCOL_ERROR)),
    )


def uint(n):
    return integer(n, 7)


def test_4_3_field_blocks(lab):
    rows(
        lab,
        ("nonsense", [headers(1, b"\x00\x00\x01\x11\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")], Dead(COMPRESSION_ERROR)),
        ("a name that ends behind the block", [req(tail=b"\x00\x7fabc")], Dead(COMPRESSION_ERROR)),
        ("a value that ends behind the block", [req(tail=b"\x00\x01a\x7fabc")], Dead(COMPRESSION_ERROR)),
        ("a block that ends in a number", [req(tail=b"\xff\x80")], Dead(COMPRESSION_ERROR)),
        ("a number of 2^60", [req(tail=b"\xff" + b"\xff" * 8 + b"\x0f")], Dead(COMPRESSION_ERROR)),
        ("a length of 2^40", [req(tail=b"\x00" + integer(1 << 40, 7) + b"a")], Dead(COMPRESSION_ERROR)),
        ("PRIORITY within a block", [BEGUN, priority(1), rest()], Dead(PROTOCOL_ERROR)),
        ("PING within a block", [BEGUN, ping(), rest()], Dead(PROTOCOL_ERROR)),
        ("SETTINGS within a block", [BEGUN, settings(), rest()], Dead(PROTOCOL_ERROR)),
        ("WINDOW_UPDATE within a block", [BEGUN, window_update(0, 1), rest()], Dead(PROTOCOL_ERROR)),
        ("HEADERS of another stream within a block", [BEGUN, req(3)], Dead(PROTOCOL_ERROR)),
        ("a block in two frames", [cut(2)], Answered()),
        ("a representation that is cut anywhere", [cut(5)], Answered()),
        ("an empty CONTINUATION at the end", [BEGUN, continuation(1, b"")], Answered()),
        ("HEADERS without a byte, all in CONTINUATION", [headers(1, b"", END_STREAM), made(lambda h: continuation(1, fields()(h)))], Answered()),
        ("the table stands after a refused request",
         [req(more=[("X-Bad", "1")], tail=literal("x-kept", "value", "indexed")), req(3, tail=indexed(62))], Answered(3, seen=came("x-kept", "value"))),
        ("the table stands after a stream that was reset",
         [req(flags=END_HEADERS, method="POST", tail=literal("x-kept", "value", "indexed")), rst(1), req(3, tail=indexed(62))],
         Answered(3, seen=came("x-kept", "value"))),
    )


def test_5_1_stream_states(lab):
    rows(
        lab,
        ("idle: DATA", [data(1, b"test", END_STREAM)], Dead(PROTOCOL_ERROR)),
        ("idle: RST_STREAM", [rst(1)], Dead(PROTOCOL_ERROR)),
        ("idle: WINDOW_UPDATE", [window_update(1, 100)], Dead(PROTOCOL_ERROR)),
        ("idle: CONTINUATION", [made(lambda h: continuation(1, fields()(h)))], Dead(PROTOCOL_ERROR)),
        ("idle: PUSH_PROMISE", [made(lambda h: frame(H.PUSH_PROMISE, END_HEADERS, 1, b"\0\0\0\2" + fields()(h)))], Dead(PROTOCOL_ERROR)),
        ("idle: PRIORITY", [priority(1)], Alive()),
        ("half-closed: DATA", [GET, data(1, b"test", END_STREAM)], Broken(STREAM_CLOSED)),
        ("half-closed: HEADERS", [GET, GET], Broken(STREAM_CLOSED)),
        ("half-closed: CONTINUATION", [GET, rest()], Broken(STREAM_CLOSED, PROTOCOL_ERROR)),
        ("half-closed: WINDOW_UPDATE", [GET, window_update(1, 100)], Answered()),
        ("half-closed: PRIORITY", [GET, priority(1)], Answered()),
        ("half-closed: RST_STREAM", [GET, rst(1)], Alive()),
        ("closed by RST_STREAM: DATA", [OPEN, rst(1), data(1, b"test", END_STREAM)], Broken(STREAM_CLOSED)),
        ("closed by RST_STREAM: HEADERS", [OPEN, rst(1), GET], Broken(STREAM_CLOSED)),
        ("closed by RST_STREAM: CONTINUATION", [OPEN, rst(1), rest()], Broken(STREAM_CLOSED, PROTOCOL_ERROR)),
        ("closed by RST_STREAM: PRIORITY", [OPEN, rst(1), priority(1)], Alive()),
        ("closed: DATA", [GET, wait(), data(1, b"test", END_STREAM)], Broken(STREAM_CLOSED)),
        ("closed: HEADERS", [GET, wait(), GET], Dead(STREAM_CLOSED)),
        ("closed: CONTINUATION", [GET, wait(), rest()], Dead(STREAM_CLOSED, PROTOCOL_ERROR)),
        ("closed: PRIORITY", [GET, wait(), priority(1)], Alive()),
        ("closed: WINDOW_UPDATE", [GET, wait(), window_update(1, 100)], Alive()),
        ("closed: RST_STREAM", [GET, wait(), rst(1)], Alive()),
    )


SMALLER = "nghttp2 passes over HEADERS of a stream that was left out; it is what nghttpd fails with the known tools, too"


def test_5_1_1_stream_identifiers(lab):
    rows(
        lab,
        ("an even number", [req(2)], Dead(PROTOCOL_ERROR)),
        ("a smaller number", [req(5), req(3)], Dead(PROTOCOL_ERROR), dict(ref=SMALLER)),
        ("a smaller number later", [req(5), wait(5), req(3)], Dead(PROTOCOL_ERROR), dict(ref=SMALLER)),
        ("numbers that are left out", [req(1), req(5), req(101), wait(1), wait(5)], Answered(101)),
        ("the last number there is", [req(BIG)], Answered(BIG)),
        ("a number below the last there is", [req(BIG), wait(BIG), req(1)], Dead(PROTOCOL_ERROR, STREAM_CLOSED), dict(ref=SMALLER)),
    )


def test_5_1_2_concurrency(lab):
    def limit(h):
        assert H.MAX_CONCURRENT_STREAMS in h.peer, "the server sets no limit"
        return h.peer[H.MAX_CONCURRENT_STREAMS]

    def many(more):
        return made(lambda h: b"".join(headers(1 + 2 * i, fields(method="POST")(h), END_HEADERS) for i in range(limit(h) + more)))

    def last(h):
        h.over = 1 + 2 * limit(h)

    class OverIsRefused:
        def check(self, h):
            return Broken(REFUSED_STREAM, PROTOCOL_ERROR, n=h.over).check(h)

    rows(
        lab,
        ("one stream too many", [last, many(1)], OverIsRefused()),
        ("as many as may be, and one in the place of another", [last, many(0), made(lambda h: rst(1) + headers(h.over, fields()(h))), lambda h: setattr(
            h, "got", h.wait(h.over, WAIT))], Alive()),
    )


def test_5_3_1_priority(lab):
    rows(
        lab,
        ("HEADERS depends on itself", [req(prio=(1, 255, False))], Broken(PROTOCOL_ERROR)),
        ("PRIORITY depends on itself", [OPEN, priority(1, 1)], Broken(PROTOCOL_ERROR)),
        ("weight 1", [req(prio=(0, 1, False))], Answered()),
        ("weight 256", [req(prio=(0, 256, False))], Answered()),
        ("exclusive", [req(1), req(3, prio=(1, 16, True)), wait(1)], Answered(3)),
        ("on a stream that is none yet", [req(prio=(7, 16, False))], Answered()),
        ("of a later stream, then a stream below it", [priority(5, 3), req(1)], Answered()),
        ("PRIORITY of weights and dependencies", [priority(1, 0, 1), priority(3, 1, 256), priority(5, 3, 16, True), req(1), req(3), wait(1)], Answered(3)),
    )


def test_5_4_1_connection_errors(lab):
    class GoawayThenEnd:
        def check(self, h):
            got = reads(h, lambda: h.gone)
            if not isinstance(got, H.Frame) or got.number(4) != PROTOCOL_ERROR:
                return f"{got}"
            if got.number() != 1:
                return f"{got}: the last stream was 1"
            return Ended().check(h)

    rows(
        lab,
        ("GOAWAY names the last stream, then the end", [GET, wait(), ping(stream=1)], GoawayThenEnd()),
    )


def test_5_5_extensions(lab):
    rows(
        lab,
        ("an unknown frame", [frame(0x20, 0, 0, b"x" * 5)], Alive()),
        ("an unknown frame on an idle stream", [frame(0x20, 0, 1, b"x" * 5), GET], Answered()),
        ("an unknown frame within a block", [BEGUN, frame(0x20, 0, 1, b"x" * 5), rest()], Dead(PROTOCOL_ERROR)),
        ("PRIORITY_UPDATE, ORIGIN, ALTSVC", [frame(0x10, 0, 0, b"\0\0\0\1u=1"), frame(0xC, 0, 0, b""), frame(0xA, 0, 0, b"\0\0"), GET], Answered()),
    )


def test_6_1_data(lab):
    rows(
        lab,
        ("DATA", [OPEN, data(1, b"test", END_STREAM)], Answered(seen=got_body("test"))),
        ("several DATA", [OPEN, data(1, b"te"), data(1, b"st", END_STREAM)], Answered(seen=got_body("test"))),
        ("empty DATA at the end", [OPEN, data(1, b"test"), data(1, b"", END_STREAM)], Answered(seen=got_body("test"))),
        ("padding", [OPEN, data(1, b"test", END_STREAM, 6)], Answered(seen=got_body("test"))),
        ("padding of 255", [OPEN, data(1, b"test", END_STREAM, 255)], Answered(seen=got_body("test"))),
        ("padding of none", [OPEN, data(1, b"test", END_STREAM, 0)], Answered(seen=got_body("test"))),
        ("nothing but padding", [OPEN, data(1, b"", 0, 9), data(1, b"test", END_STREAM)], Answered(seen=got_body("test"))),
        ("on stream 0", [data(0, b"test")], Dead(PROTOCOL_ERROR)),
        ("on a closed stream", [GET, wait(), data(1, b"test")], Broken(STREAM_CLOSED)),
        ("padding as long as the frame", [OPEN, data(1, b"test", END_STREAM, (5, b""))], Dead(PROTOCOL_ERROR)),
        ("padding longer than the frame", [OPEN, data(1, b"test", END_STREAM, (200, b"\0\0"))], Dead(PROTOCOL_ERROR)),
        ("padded without a length", [OPEN, frame(H.DATA, PADDED | END_STREAM, 1)], Dead(PROTOCOL_ERROR, FRAME_SIZE_ERROR)),
    )


def test_6_2_headers(lab):
    rows(
        lab,
        ("padding", [req(pad=9)], Answered()),
        ("priority", [req(prio=(0, 256, False))], Answered()),
        ("padding and priority", [req(pad=255, prio=(0, 1, True))], Answered()),
        ("a block that goes on, and PRIORITY", [BEGUN, priority(1)], Dead(PROTOCOL_ERROR)),
        ("a block that goes on, and HEADERS elsewhere", [BEGUN, req(3)], Dead(PROTOCOL_ERROR)),
        ("on stream 0", [req(0)], Dead(PROTOCOL_ERROR)),
        ("padding longer than the frame", [made(lambda h: headers(1, b"", pad=(8, b"\0\0\0")))], Dead(PROTOCOL_ERROR)),
        ("padding that leaves no room for the priority", [frame(H.HEADERS, PADDED | WITH_PRIORITY | END_HEADERS, 1, b"\3\0\0\0\0\0\0")], Dead(
            PROTOCOL_ERROR, FRAME_SIZE_ERROR)),
        ("priority that is cut", [frame(H.HEADERS, WITH_PRIORITY | END_HEADERS, 1, b"\0\0\0")], Dead(FRAME_SIZE_ERROR, PROTOCOL_ERROR)),
        ("an empty block", [headers(1, b"")], Refused()),
    )


def test_6_3_priority(lab):
    rows(
        lab,
        ("on stream 0", [priority(0)], Dead(PROTOCOL_ERROR)),
        ("of 4 bytes", [OPEN, frame(H.PRIORITY, 0, 1, b"\0" * 4)], Broken(FRAME_SIZE_ERROR)),
        ("of 6 bytes", [OPEN, frame(H.PRIORITY, 0, 1, b"\0" * 6)], Broken(FRAME_SIZE_ERROR)),
    )


def test_6_4_rst_stream(lab):
    rows(
        lab,
        ("of an open stream", [OPEN, rst(1)], Alive()),
        ("on stream 0", [rst(0)], Dead(PROTOCOL_ERROR)),
        ("of an idle stream", [rst(1)], Dead(PROTOCOL_ERROR)),
        ("of 3 bytes", [OPEN, frame(H.RST_STREAM, 0, 1, b"\0" * 3)], Dead(FRAME_SIZE_ERROR)),
        ("of 5 bytes", [OPEN, frame(H.RST_STREAM, 0, 1, b"\0" * 5)], Dead(FRAME_SIZE_ERROR)),
        ("twice", [OPEN, rst(1), rst(1)], Alive()),
        ("another stream goes on", [OPEN, req(3), rst(1)], Answered(3)),
    )


def test_6_5_settings(lab):
    def acks(n):
        def check(h):
            got = reads(h, lambda: True if h.acked >= n else None)
            return None if got is True else f"{h.acked} of {n} ACKs: {h.frames[-5:]}"

        return type("Acks", (), {"check": staticmethod(check)})()

    rows(
        lab,
        ("each is acknowledged", [settings() * 5], acks(6)),
        ("ACK with a payload", [settings((1, 1), flags=ACK)], Dead(FRAME_SIZE_ERROR)),
        ("on a stream", [settings((3, 100), stream=1)], Dead(PROTOCOL_ERROR)),
        ("of 3 bytes", [frame(H.SETTINGS, 0, 0, b"\0\3\0")], Dead(FRAME_SIZE_ERROR)),
        ("of 7 bytes", [frame(H.SETTINGS, 0, 0, b"\0\3\0\0\0\1\0")], Dead(FRAME_SIZE_ERROR)),
        ("ENABLE_PUSH 2", [settings((H.ENABLE_PUSH, 2))], Dead(PROTOCOL_ERROR)),
        ("ENABLE_PUSH 0 and 1", [settings((H.ENABLE_PUSH, 0)), settings((H.ENABLE_PUSH, 1)), GET], Answered()),
        ("INITIAL_WINDOW_SIZE 2^31", [settings((INITIAL_WINDOW_SIZE, BIG + 1))], Dead(FLOW_CONTROL_ERROR)),
        ("INITIAL_WINDOW_SIZE 2^31 - 1", [settings((INITIAL_WINDOW_SIZE, BIG)), GET], Answered()),
        ("MAX_FRAME_SIZE 2^14 - 1", [settings((MAX_FRAME_SIZE, 16383))], Dead(PROTOCOL_ERROR)),
        ("MAX_FRAME_SIZE 0", [settings((MAX_FRAME_SIZE, 0))], Dead(PROTOCOL_ERROR)),
        ("MAX_FRAME_SIZE 2^24", [settings((MAX_FRAME_SIZE, 1 << 24))], Dead(PROTOCOL_ERROR)),
        ("MAX_FRAME_SIZE 2^24 - 1", [settings((MAX_FRAME_SIZE, (1 << 24) - 1)), GET], Answered()),
        ("MAX_CONCURRENT_STREAMS 0", [settings((H.MAX_CONCURRENT_STREAMS, 0)), GET], Answered()),
        ("an unknown one", [settings((0xFF, 1), (0x4242, 0xFFFFFFFF)), GET], Answered()),
        ("HEADER_TABLE_SIZE 0", [settings((H.HEADER_TABLE_SIZE, 0)), lambda h: setattr(h.hpack, "limit", 0), GET, wait(), req(3)], Answered(3)),
        ("HEADER_TABLE_SIZE 2^32 - 1", [settings((H.HEADER_TABLE_SIZE, 0xFFFFFFFF)), lambda h: setattr(h.hpack, "limit", 1 << 32), GET], Answered()),
        ("MAX_HEADER_LIST_SIZE 1", [settings((H.MAX_HEADER_LIST_SIZE, 1))], Alive()),
        ("the last of several values holds", [settings((INITIAL_WINDOW_SIZE, 100), (INITIAL_WINDOW_SIZE, 1)), GET],
         Seen(H.DATA, lambda f: len(f.payload) == 1), dict(manual=True)),
    )


def test_6_6_push_promise(lab):
    rows(
        lab,
        ("of a client", [GET, made(lambda h: frame(H.PUSH_PROMISE, END_HEADERS, 1, b"\0\0\0\2" + fields()(h)))], Dead(PROTOCOL_ERROR)),
        ("on stream 0", [frame(H.PUSH_PROMISE, END_HEADERS, 0, b"\0\0\0\2")], Dead(PROTOCOL_ERROR)),
    )


def test_6_7_ping(lab):
    rows(
        lab,
        ("PING", [ping(b"12345678")], Seen(H.PING, lambda f: f.flags & ACK and f.payload == b"12345678")),
        ("PING with ACK", [ping(b"no reply", ACK), ping(b"a reply!")], Seen(H.PING, lambda f: f.flags & ACK and f.payload == b"a reply!")),
        ("on a stream", [ping(stream=1)], Dead(PROTOCOL_ERROR)),
        ("of 6 bytes", [ping(b"123456")], Dead(FRAME_SIZE_ERROR)),
        ("of 9 bytes", [ping(b"123456789")], Dead(FRAME_SIZE_ERROR)),
        ("of none", [ping(b"")], Dead(FRAME_SIZE_ERROR)),
        ("an ACK of 4 bytes", [ping(b"1234", ACK)], Dead(FRAME_SIZE_ERROR)),
    )


def test_6_8_goaway(lab):
    rows(
        lab,
        ("on a stream", [goaway(stream=1)], Dead(PROTOCOL_ERROR)),
        ("of 7 bytes", [frame(H.GOAWAY, 0, 0, b"\0" * 7)], Dead(FRAME_SIZE_ERROR, PROTOCOL_ERROR)),
        ("open streams are answered", [GET, goaway()], Answered()),
        ("with text", [GET, goaway(0, 0, b"bye" * 100)], Answered()),
    )


def test_6_9_window_update(lab):
    big = settings((INITIAL_WINDOW_SIZE, BIG))
    rows(
        lab,
        ("by 0", [window_update(0, 0)], Dead(PROTOCOL_ERROR)),
        ("by 0 on a stream", [OPEN, window_update(1, 0)], Broken(PROTOCOL_ERROR)),
        ("by 0 and the reserved bit", [window_update(0, 1 << 31)], Dead(PROTOCOL_ERROR)),
        ("of 3 bytes", [frame(H.WINDOW_UPDATE, 0, 0, b"\0\0\1")], Dead(FRAME_SIZE_ERROR)),
        ("of 5 bytes on a stream", [OPEN, frame(H.WINDOW_UPDATE, 0, 1, b"\0\0\0\1\0")], Dead(FRAME_SIZE_ERROR)),
        ("both", [OPEN, window_update(0, 100), window_update(1, 100), data(1, b"", END_STREAM)], Answered()),
        ("a window of 1", [settings((INITIAL_WINDOW_SIZE, 1)), GET], Seen(H.DATA, lambda f: len(f.payload) == 1), dict(manual=True)),
        ("beyond 2^31 - 1", [window_update(0, BIG), window_update(0, BIG)], Dead(FLOW_CONTROL_ERROR)),
        ("beyond 2^31 - 1 on a stream", [OPEN, window_update(1, BIG), window_update(1, BIG)], Broken(FLOW_CONTROL_ERROR)),
        ("beyond 2^31 - 1 by SETTINGS", [OPEN, window_update(1, 1), big], Broken(FLOW_CONTROL_ERROR)),  # 6.9.2 wants a connection error; nghttp2 resets the stream
        ("as large as may be", [window_update(0, BIG - 65535), GET], Answered()),
        ("0, then 1 by SETTINGS", [settings((INITIAL_WINDOW_SIZE, 0)), GET, lambda h: h.alive() and None, settings((INITIAL_WINDOW_SIZE, 1))],
         Seen(H.DATA, lambda f: len(f.payload) == 1), dict(manual=True)),
        ("below 0, then above",
         [settings((INITIAL_WINDOW_SIZE, 3)), GET, lambda h: h.until(lambda: len(h.stream(1).body) == 3), settings((INITIAL_WINDOW_SIZE, 2)), window_update(1, 2),
          lambda h: h.until(lambda: len(h.stream(1).body) > 3)], Seen(H.DATA, lambda f: len(f.payload) == 3), dict(manual=True)),
        ("below 0 stays silent", [settings((INITIAL_WINDOW_SIZE, 3)), GET, lambda h: h.until(lambda: len(h.stream(1).body) == 3),
                                  settings((INITIAL_WINDOW_SIZE, 0)), window_update(1, 3), lambda h: h.alive() and None], Exactly(3), dict(manual=True)),
        ("of the connection alone", [settings((INITIAL_WINDOW_SIZE, 0)), window_update(0, 1000), GET, lambda h: h.alive() and None], Exactly(0), dict(manual=True)),
    )


class Exactly:
    """So many bytes came on stream 1, and no more."""

    def __init__(self, n):
        self.n = n

    def check(self, h):
        h.alive()
        got = len(h.stream(1).body)
        return None if got == self.n else f"{got} bytes instead of {self.n}"


def test_6_10_continuation(lab):
    rows(
        lab,
        ("one", [cut(2)], Answered()),
        ("two", [cut(3)], Answered()),
        ("and then DATA", [BEGUN, rest(flags=0), data(1, b"test", END_STREAM)], Dead(PROTOCOL_ERROR)),
        ("on stream 0", [BEGUN, rest(0)], Dead(PROTOCOL_ERROR)),
        ("on another stream", [BEGUN, rest(3)], Dead(PROTOCOL_ERROR)),
        ("behind the end of a block", [req(flags=END_HEADERS, method="POST"), rest()], Dead(PROTOCOL_ERROR)),
        ("behind the end of a block in CONTINUATION", [req(flags=0, method="POST"), rest(), rest()], Dead(PROTOCOL_ERROR)),
        ("behind DATA", [OPEN, data(1, b"test"), rest()], Dead(PROTOCOL_ERROR)),
        ("of trailers", [OPEN, data(1, b"test"), headers(1, b"", END_STREAM), rest()], Answered(seen=got_body("test"))),
        ("a block that goes on for ever is no answer", [BEGUN, rest(flags=0), lambda h: None], Silent()),
    )


class Silent:
    """No answer and no error for a while, and the connection is open."""

    def check(self, h):
        while (f := h.next(0.2)) is not None:
            if f.kind in (H.HEADERS, H.DATA, H.RST_STREAM, H.GOAWAY):
                return repr(f)
        return None


def test_7_error_codes(lab):
    rows(
        lab,
        ("GOAWAY with an unknown code", [GET, wait(), goaway(0, 0xFF)], QuietOrEnd()),
        ("RST_STREAM with an unknown code", [OPEN, rst(1, 0xFF), req(3)], Answered(3)),
    )


class QuietOrEnd:
    """A PING is answered, or the connection ends: both are fine behind GOAWAY."""

    def check(self, h):
        try:
            h.alive(timeout=WAIT)
        except Closed:
            pass
        return repr(h.gone) if h.gone and h.gone.number(4) else None


def test_8_1_exchanges(lab):
    trailers = block([("x-sum", "7")])
    rows(
        lab,
        ("GET", [GET], Answered()),
        ("HEAD", [req(method="HEAD")], Answered()),
        ("POST", [OPEN, data(1, b"test", END_STREAM)], Answered()),
        ("POST with trailers", [OPEN, data(1, b"test"), headers(1, trailers)], Answered(seen=lambda h, s: None if s.json()["trailers"] == [["x-sum", "7"]] else s.json())),
        ("POST of nothing with trailers", [OPEN, headers(1, trailers)], Answered()),
        ("trailers that do not end the stream", [OPEN, data(1, b"test"), headers(1, trailers, END_HEADERS)], Broken(PROTOCOL_ERROR)),
        ("a second head", [OPEN, OPEN, data(1, b"test", END_STREAM)], Broken(PROTOCOL_ERROR)),
        ("DATA behind trailers", [OPEN, headers(1, trailers), data(1, b"test", END_STREAM)], Broken(STREAM_CLOSED)),
        ("trailers behind trailers", [OPEN, headers(1, trailers), headers(1, trailers)], Broken(STREAM_CLOSED)),
    )


def test_8_1_1_malformed(lab):
    def sized(*lengths, **kw):
        return req(more=[("content-length", v) for v in lengths], **{**dict(method="POST", flags=END_HEADERS), **kw})

    rows(
        lab,
        ("content-length that is right", [sized("4"), data(1, b"test", END_STREAM)], Answered(seen=got_body("test"))),
        ("content-length 0", [sized("0", flags=END_HEADERS | END_STREAM)], Answered()),
        ("content-length too small", [sized("1"), data(1, b"test", END_STREAM)], Broken(PROTOCOL_ERROR)),
        ("content-length too small for several DATA", [sized("1"), data(1, b"te"), data(1, b"st", END_STREAM)], Broken(PROTOCOL_ERROR)),
        ("content-length too large", [sized("5"), data(1, b"test", END_STREAM)], Broken(PROTOCOL_ERROR)),
        ("content-length too large, then trailers", [sized("5"), data(1, b"test"), headers(1, block([("x-sum", "7")]))], Broken(PROTOCOL_ERROR)),
        ("content-length and no DATA", [sized("5", flags=END_HEADERS | END_STREAM)], Broken(PROTOCOL_ERROR)),
        ("content-length twice, different", [sized("4", "5"), data(1, b"test", END_STREAM)], Broken(PROTOCOL_ERROR)),
        ("content-length that is no number", [sized("4x"), data(1, b"test", END_STREAM)], Broken(PROTOCOL_ERROR)),
        ("content-length below 0", [sized("-4"), data(1, b"test", END_STREAM)], Broken(PROTOCOL_ERROR)),
        ("content-length with a sign", [sized("+4"), data(1, b"test", END_STREAM)], Broken(PROTOCOL_ERROR)),
        ("content-length of nothing", [sized(""), data(1, b"test", END_STREAM)], Broken(PROTOCOL_ERROR)),
        ("content-length beyond 2^64", [sized("18446744073709551620"), data(1, b"test", END_STREAM)], Broken(PROTOCOL_ERROR)),
        ("content-length as a list", [sized("4, 4"), data(1, b"test", END_STREAM)], Broken(PROTOCOL_ERROR)),
    )


def field(name, value="1"):
    return req(more=[(name, value)])


def test_8_2_1_field_validity(lab):
    bad = Broken(PROTOCOL_ERROR)
    rows(
        lab,
        ("an upper-case name", [field("X-TEST")], bad),
        ("one upper-case letter", [field("x-tesT")], bad),
        ("a blank in a name", [field("x test")], bad),
        ("a colon in a name", [field("x:test")], bad),
        ("a colon behind a name", [field("x-test:")], bad),
        ("an empty name", [field("")], bad),
        ("NUL in a name", [field("x\0test")], bad),
        ("LF in a name", [field("x\ntest")], bad),
        ("DEL in a name", [field("x\x7ftest")], bad),
        ("a byte above 0x7f in a name", [field("x\xe4test")], bad),
        ("NUL in a value", [field("x-test", "a\0b")], bad),
        ("LF in a value", [field("x-test", "a\nb")], bad),
        ("CR in a value", [field("x-test", "a\rb")], bad),
        ("a blank before a value", [field("x-test", " a")], bad),
        ("a blank behind a value", [field("x-test", "a ")], bad),
        ("a tab before a value", [field("x-test", "\ta")], bad),
        ("a tab behind a value", [field("x-test", "a\t")], bad),
        ("a value of a blank", [field("x-test", " ")], bad),
        ("an empty value", [field("x-test", "")], Answered(seen=came("x-test", ""))),
        ("blanks and tabs within a value", [field("x-test", "a \t b")], Answered(seen=came("x-test", "a \t b"))),
        ("bytes above 0x7f in a value", [field("x-test", "a\xe4\xff")], Answered(seen=came("x-test", "a\xe4\xff"))),
        ("every character of a token in a name", [field("!#$%&'*+-.^_`|~09az")], Answered(seen=came("!#$%&'*+-.^_`|~09az", "1"))),
        ("upper case in trailers", [OPEN, data(1, b"test"), headers(1, block([("X-Sum", "7")]))], bad),
        ("LF in trailers", [OPEN, data(1, b"test"), headers(1, block([("x-sum", "7\nx: y")]))], bad),
    )


def test_8_2_2_connection_fields(lab):
    rows(
        lab,
        *((name, [field(name, value)], Broken(PROTOCOL_ERROR)) for name, value in (
            ("connection", "keep-alive"), ("connection", "close"), ("keep-alive", "timeout=5"), ("proxy-connection", "keep-alive"), ("transfer-encoding", "chunked"),
            ("upgrade", "foo/1"))),
        ("transfer-encoding with a body", [req(more=[("transfer-encoding", "chunked")], method="POST", flags=END_HEADERS), data(1, b"0\r\n\r\n", END_STREAM)],
         Broken(PROTOCOL_ERROR)),
        ("te of something else", [field("te", "trailers, deflate;q=0.5")], Broken(PROTOCOL_ERROR)),
        ("te: gzip", [field("te", "gzip")], Broken(PROTOCOL_ERROR)),
        ("te: trailers", [field("te", "trailers")], Answered()),
        ("http2-settings is nothing special", [field("http2-settings", "AAMAAABkAARAAAAAAAIAAAAA")], Answered()),
    )


def test_8_2_3_cookies(lab):
    rows(
        lab,
        ("one", [req(more=[("cookie", "a=1")])], Answered(seen=came("cookie", "a=1"))),
        ("several are one to HTTP/1.1", [req(more=[("cookie", "a=1"), ("x-between", "1"), ("cookie", "b=2"), ("cookie", "c=3; d=4")])],
         Answered(seen=came("cookie", "a=1; b=2; c=3; d=4"))),
    )


def test_8_3_1_pseudo_headers(lab):
    bad = Broken(PROTOCOL_ERROR)

    def without(*names, **kw):
        return req(drop=names, **kw)

    def twice(name, value):
        return made(lambda h: headers(1, block([*h.head(), (name, value)][:4] + [(name, value)])))

    def authority(*values, **kw):
        return made(lambda h: headers(1, block([(":method", "GET"), (":scheme", "https"), (":path", "/"), *((":authority", v) for v in values), *kw.get("more", ())])))

    rows(
        lab,
        ("an unknown one", [made(lambda h: headers(1, block([*h.head(), (":test", "ok")])))], bad),
        (":status in a request", [made(lambda h: headers(1, block([*h.head(), (":status", "200")])))], bad),
        ("behind a field", [made(lambda h: headers(1, block([*h.head()[:3], ("x-test", "ok"), h.head()[3]])))], bad),
        ("first a field", [req(first=[("x-test", "ok")])], bad),
        ("in trailers", [OPEN, data(1, b"test"), headers(1, block([(":method", "POST")]))], bad),
        (":path in trailers", [OPEN, data(1, b"test"), headers(1, block([("x-sum", "1"), (":path", "/other")]))], bad),
        ("an empty :path", [req(path="")], bad),
        ("no :method", [without(":method")], bad),
        ("no :scheme", [without(":scheme")], bad),
        ("no :path", [without(":path")], bad),
        (":method twice", [twice(":method", "GET")], bad),
        (":scheme twice", [twice(":scheme", "https")], bad),
        (":path twice", [twice(":path", "/")], bad),
        (":path twice, different", [twice(":path", "/other")], bad),
        (":authority twice", [made(lambda h: headers(1, block([*h.head(), (":authority", h.authority)])))], bad),
        ("an empty :method", [req(method="")], Refused(), dict(ref="it takes it")),
        ("an empty :scheme", [req(scheme="")], Refused(), dict(ref="it takes it")),
        ("a blank in :method", [req(method="GET /x HTTP/1.1")], Refused()),
        (":path without a slash", [req(path="x")], Refused()),
        (":path of a whole URL", [req(path="https://evil.test/")], Refused()),
        (":path * with GET", [req(path="*")], Refused()),
        (":path with a blank", [req(path="/a b")], Refused(), dict(ref="it takes it")),
        (":path with a fragment", [req(path="/a#b")], Refused(), dict(ref="it takes it")),
        (":path with LF", [req(path="/a\nb")], Refused()),
        ("another :scheme", [req(scheme="http")], Refused(), dict(ref="it takes it")),
        ("a :scheme nobody knows", [req(scheme="gopher")], Refused(), dict(ref="it takes it")),
        ("no :authority, but Host", [made(lambda h: headers(1, block([(":method", "GET"), (":scheme", "https"), (":path", "/"), ("host", h.authority)])))], Answered()),
        ("neither :authority nor Host", [without(":authority")], Refused()),
        (":authority and the same Host", [made(lambda h: headers(1, fields([("host", h.authority)])(h)))],
         Answered(seen=lambda h, s: came("host", h.authority)(h, s))),
        (":authority and another Host", [field("host", "evil.test")], Refused(), dict(ref="it takes it")),
        ("Host twice", [made(lambda h: headers(1, fields([("host", h.authority), ("host", "evil.test")])(h)))], Refused()),
        ("another :authority", [authority("evil.test")], Refused(), dict(ref="it serves any name")),
        ("an empty :authority", [authority("")], Refused()),
        (":authority with a user", [made(lambda h: headers(1, block([(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "u:p@" + h.authority)])))],
         Refused(), dict(ref="it takes it")),
        (":authority with a blank", [made(lambda h: headers(1, block([(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", h.authority + " x")])))],
         Refused()),
        ("in another order", [made(lambda h: headers(1, block(h.head()[::-1])))], Answered()),
        ("OPTIONS *", [req(method="OPTIONS", path="*")], Answered(status=(200, 400, 403, 404))),
    )


def test_8_5_connect(lab):
    def connect_to(*more, authority=True):
        return made(lambda h: headers(1, block([(":method", "CONNECT"), *([(":authority", h.authority)] if authority else []), *more]), END_HEADERS))

    rows(
        lab,
        ("with :path", [connect_to((":path", "/"))], Broken(PROTOCOL_ERROR)),
        ("with :scheme and :path", [connect_to((":scheme", "https"), (":path", "/"))], Broken(PROTOCOL_ERROR)),
        ("without :authority", [connect_to(authority=False)], Broken(PROTOCOL_ERROR)),
        ("a tunnel in the tunnel", [connect_to()], Refused(), dict(ref="it answers a CONNECT like a GET")),
        (":protocol that was not offered", [connect_to((":protocol", "odd"), (":scheme", "https"), (":path", "/"))], Refused()),
        (":protocol without CONNECT", [made(lambda h: headers(1, block([*h.head(), (":protocol", "websocket")])))], Broken(PROTOCOL_ERROR)),
    )


# ---------------------------------------------------------------- RFC 7541


def test_hpack_representations(lab):
    def one(raw, value="value"):
        return [req(tail=raw)], Answered(seen=came("x-test", value))

    agent = Answered(seen=came("user-agent", "value"))
    rows(
        lab,
        ("6.1: indexed", [made(lambda h: headers(1, indexed(2) + indexed(7) + indexed(4) + literal(1, h.authority)))], Answered()),
        *((f"6.2: {how}, a name of the table{', Huffman' if coded else ''}", [req(tail=literal(58, "value", how, coded))], agent)
          for how in H.FIRST for coded in (False, True)),
        *((f"6.2: {how}, a new name{', Huffman' if coded else ''}", *one(literal("x-test", "value", how, coded))) for how in H.FIRST for coded in (False, True)),
        ("6.2: a name of the dynamic table", [req(tail=literal("x-test", "one", "indexed")), wait(), req(3, tail=literal(62, "two"))],
         Answered(3, seen=came("x-test", "two"))),
        ("6.1: of the dynamic table, later", [req(tail=literal("x-test", "one", "indexed")), wait(), req(3, tail=indexed(62))], Answered(3, seen=came("x-test", "one"))),
        ("4.3: the table is emptied by a smaller size", [req(tail=literal("x-test", "one", "indexed")), wait(), made(
            lambda h: headers(3, table_size(0) + fields()(h) + indexed(62)))], Dead(COMPRESSION_ERROR)),
        ("4.4: an entry that is larger than the table", [req(tail=literal("x-test", "v" * 5000, "indexed")), wait(), req(3, tail=indexed(62))], Dead(COMPRESSION_ERROR)),
        ("4.4: the oldest goes first", [req(tail=literal("x-test", "a" * 3000, "indexed") + literal("x-test", "b" * 3000, "indexed") + indexed(62))], Answered()),
        ("4.4: what went is gone", [req(tail=literal("x-a", "a" * 3000, "indexed") + literal("x-b", "b" * 3000, "indexed") + indexed(63))], Dead(COMPRESSION_ERROR)),
        ("6.3: a size update", [made(lambda h: headers(1, table_size(1024) + fields()(h)))], Answered()),
        ("6.3: two size updates", [made(lambda h: headers(1, table_size(0) + table_size(4096) + fields()(h)))], Answered()),
        ("5.1: a number in more bytes than it needs", [req(tail=b"\x00\x7f\x81\x00" + b"x" * 128 + b"\x01a")], Answered()),
    )


def test_hpack_errors(lab):
    dead = Dead(COMPRESSION_ERROR)

    def coded(text, **kw):
        raw = H.huffman(text, **kw)
        return b"\x00\x06x-test" + integer(len(raw), 7, 0x80) + raw

    rows(
        lab,
        ("2.3.3: an index of no table", [req(tail=indexed(70))], dead),
        ("2.3.3: an index far beyond", [req(tail=indexed(1 << 20))], dead),
        ("2.3.3: a name's index of no table", [req(tail=literal(70, "x"))], dead),
        ("2.3.3: a name's index of no table, indexed", [req(tail=literal(70, "x", "indexed"))], dead),
        ("4.2: a size update at the end of a block", [req(tail=table_size(100))], dead),
        ("4.2: a size update within a block", [req(tail=literal("x-test", "1") + table_size(100) + literal("x-more", "1"))], dead),
        ("5.2: padding of more than 7 bits", [req(tail=coded(b"aaa", pad="1" * (8 - 15 % 8 + 8)))], dead),
        ("5.2: padding of zeros", [req(tail=coded(b"aaa", pad="0" * (8 - 15 % 8)))], dead),
        ("5.2: EOS", [req(tail=coded(b"aaa", tail=[256]))], dead),
        ("5.2: EOS alone", [req(tail=coded(b"", tail=[256]))], dead),
        ("6.1: index 0", [req(tail=indexed(0))], dead),
        ("6.3: a size beyond the limit", [made(lambda h: headers(1, table_size(h.peer.get(H.HEADER_TABLE_SIZE, 4096) + 1) + fields()(h)))], dead),
        ("6.3: a size of 2^32", [made(lambda h: headers(1, table_size(1 << 32) + fields()(h)))], dead),
        ("on a stream that is refused anyway", [made(lambda h: headers(1, block([("X-Bad", "1")]) + indexed(0)))], dead),
        ("in trailers", [OPEN, data(1, b"test"), headers(1, indexed(0))], dead),
    )


if __name__ == "__main__":
    main()
