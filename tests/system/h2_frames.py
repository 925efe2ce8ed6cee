# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 by hand (RFC 9113, RFC 7541) for tests/system/test_h2_*.py: writers that write whatever they are told, also what no library would
write, and a strict reader. Standard library only.

  frame, data, headers, …   one frame as bytes; nothing is checked
  literal, indexed, block   HPACK as bytes, in any representation; nothing is checked
  Hpack                     a decoder, strict
  H2                        a connection of a client over a lab.Conn: frames out, frames in, answers put together
"""
import contextlib
import socket
import ssl
import struct
import time

from lab import WAIT, Closed

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
TYPES = "DATA HEADERS PRIORITY RST_STREAM SETTINGS PUSH_PROMISE PING GOAWAY WINDOW_UPDATE CONTINUATION".split()
END_STREAM, ACK, END_HEADERS, PADDED, WITH_PRIORITY = 1, 1, 4, 8, 32
CODES = """NO_ERROR PROTOCOL_ERROR INTERNAL_ERROR FLOW_CONTROL_ERROR SETTINGS_TIMEOUT STREAM_CLOSED FRAME_SIZE_ERROR REFUSED_STREAM CANCEL
COMPRESSION_ERROR CONNECT_ERROR ENHANCE_YOUR_CALM INADEQUATE_SECURITY HTTP_1_1_REQUIRED""".split()
(NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, SETTINGS_TIMEOUT, STREAM_CLOSED, FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL,
 COMPRESSION_ERROR, CONNECT_ERROR, ENHANCE_YOUR_CALM, INADEQUATE_SECURITY, HTTP_1_1_REQUIRED) = range(14)
(HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE, ENABLE_CONNECT_PROTOCOL) = (
    1, 2, 3, 4, 5, 6, 8)


def code_name(code):
    return CODES[code] if code < len(CODES) else f"code {code:#x}"


# ---------------------------------------------------------------- frames out


def frame(kind, flags=0, stream=0, payload=b"", length=None):
    n = len(payload) if length is None else length
    return struct.pack(">BHBBI", n >> 16, n & 0xFFFF, kind, flags, stream) + payload


def padded(payload, pad):
    """pad None: none; an int: so many zeros; (length said, bytes): as it is."""
    if pad is None:
        return payload, 0
    said, zeros = pad if isinstance(pad, tuple) else (pad, b"\0" * pad)
    return bytes([said]) + payload + zeros, PADDED


def data(stream, payload=b"", flags=0, pad=None):
    payload, more = padded(payload, pad)
    return frame(DATA, flags | more, stream, payload)


def priority_fields(depends=0, weight=16, exclusive=False):
    return struct.pack(">IB", depends | (exclusive << 31), weight - 1)


def headers(stream, fragment, flags=END_HEADERS | END_STREAM, pad=None, priority=None):
    """priority: (depends on, weight, exclusive)"""
    if priority is not None:
        fragment, flags = priority_fields(*priority) + fragment, flags | WITH_PRIORITY
    fragment, more = padded(fragment, pad)
    return frame(HEADERS, flags | more, stream, fragment)


def continuation(stream, fragment, flags=END_HEADERS):
    return frame(CONTINUATION, flags, stream, fragment)


def priority(stream, depends=0, weight=16, exclusive=False):
    return frame(PRIORITY, 0, stream, priority_fields(depends, weight, exclusive))


def rst(stream, code=CANCEL):
    return frame(RST_STREAM, 0, stream, struct.pack(">I", code))


def settings(*pairs, flags=0, stream=0):
    return frame(SETTINGS, flags, stream, b"".join(struct.pack(">HI", k, v) for k, v in pairs))


def ping(payload=b"outgate!", flags=0, stream=0):
    return frame(PING, flags, stream, payload)


def goaway(last=0, code=NO_ERROR, text=b"", stream=0):
    return frame(GOAWAY, 0, stream, struct.pack(">II", last, code) + text)


def window_update(stream, by):
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", by))


# ---------------------------------------------------------------- HPACK out


def integer(value, bits, first=0):
    top = (1 << bits) - 1
    if value < top:
        return bytes([first | value])
    out = bytearray([first | top])
    value -= top
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


# RFC 7541 appendix B: the code is canonical, so the length of each symbol's code says all. One letter a symbol, '<' is 0 bits.
_LENGTHS = [ord(c) - 60 for c in (
    "ISXXXXXXXTZXXZXXXXXXXXZXXXXXXXXXBFFHIBDGFFDGDBBBAAABBBBBBBCDKBHFIBCCCCCCCCCCCCCCCCCCCCCCDCDIOIJBKABABABBBACCBBBABCBAABCCCCCKGJIXPRPPRRR"
    "SRSSSSSTSTTRSTSSSSQRSRSSTRQPRRSSQSRRTQRSSQQRQSRSSPRRRSRRSVVPORSRUVVVWWVTUOQVWWVWTQQVVXWWWPTPQRQQSRRUUTTVSVWVVWWWWWXWWWWWVZ")]
HUFFMAN, _HUFFMAN_BACK = {}, {}


def _huffman():
    code, before = 0, 0
    for symbol in sorted(range(257), key=lambda s: (_LENGTHS[s], s)):
        n = _LENGTHS[symbol]
        code <<= n - before if before else 0
        before = n
        HUFFMAN[symbol] = (code, n)
        _HUFFMAN_BACK[(code, n)] = symbol
        code += 1


_huffman()


def huffman(text, pad=None, tail=()):
    """pad: the bits put behind it (a string of 0 and 1) instead of ones up to the byte; tail: symbols behind it, 256 is EOS."""
    bits = "".join(format(HUFFMAN[s][0], f"0{HUFFMAN[s][1]}b") for s in [*text, *tail])
    bits += "1" * (-len(bits) % 8) if pad is None else pad
    assert len(bits) % 8 == 0, "whole bytes"
    return bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8))


def string(text, coded=False):
    if coded:
        text = huffman(text)
    return integer(len(text), 7, 0x80 if coded else 0) + text


def as_bytes(x):
    return x.encode("latin1") if isinstance(x, str) else x


FIRST = {"plain": (4, 0x00), "never": (4, 0x10), "indexed": (6, 0x40)}  # without indexing, never indexed, with incremental indexing


def literal(name, value, how="plain", coded=False):
    """name: a string, or a number of an index."""
    bits, first = FIRST[how]
    out = integer(name, bits, first) if isinstance(name, int) else bytes([first]) + string(as_bytes(name), coded)
    return out + string(as_bytes(value), coded)


def indexed(n):
    return integer(n, 7, 0x80)


def table_size(n):
    return integer(n, 5, 0x20)


def block(fields, how="plain", coded=False):
    return b"".join(literal(k, v, how, coded) for k, v in fields)


# ---------------------------------------------------------------- HPACK in

STATIC = [(k.encode(), v.encode()) for k, v in (
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"), (":scheme", "http"),
    (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"), (":status", "304"), (":status", "400"),
    (":status", "404"), (":status", "500"), ("accept-charset", ""), ("accept-encoding", "gzip, deflate"), *((name, "") for name in """
accept-language accept-ranges accept access-control-allow-origin age allow authorization cache-control content-disposition content-encoding
content-language content-length content-location content-range content-type cookie date etag expect expires from host if-match
if-modified-since if-none-match if-range if-unmodified-since last-modified link location max-forwards proxy-authenticate proxy-authorization
range referer refresh retry-after server set-cookie strict-transport-security transfer-encoding user-agent vary via www-authenticate""".split()))]


class Hpack:
    def __init__(self, limit=4096):
        self.table, self.limit, self.size = [], limit, limit

    def _evict(self):
        while sum(len(k) + len(v) + 32 for k, v in self.table) > self.size:
            self.table.pop()

    def _entry(self, i):
        if i < 1 or i > len(STATIC) + len(self.table):
            raise ValueError(f"index {i} is in no table")
        return STATIC[i - 1] if i <= len(STATIC) else self.table[i - 1 - len(STATIC)]

    def decode(self, raw):
        """[(name, value)]; self.how: for each the representation it came in."""
        at, out, self.how = 0, [], []

        def number(bits):
            nonlocal at
            top = (1 << bits) - 1
            value, at = raw[at] & top, at + 1
            if value < top:
                return value
            shift = 0
            while True:
                b, at = raw[at], at + 1
                value += (b & 127) << shift
                shift += 7
                if not b & 128:
                    return value

        def text():
            nonlocal at
            coded = raw[at] & 0x80
            n = number(7)
            s, at = raw[at : at + n], at + n
            if len(s) != n:
                raise ValueError("a string ends behind the block")
            return unhuffman(s) if coded else bytes(s)

        while at < len(raw):
            b = raw[at]
            if b & 0x80:
                out.append(self._entry(number(7)))
                self.how.append("index")
            elif b & 0xE0 == 0x20:
                self.size = number(5)
                if out or self.size > self.limit:
                    raise ValueError("a table size update where none may be")
                self._evict()
            else:
                how = "indexed" if b & 0x40 else "never" if b & 0x10 else "plain"
                i = number(FIRST[how][0])
                name = self._entry(i)[0] if i else text()
                out.append((name, text()))
                self.how.append(how)
                if how == "indexed":
                    self.table.insert(0, out[-1])
                    self._evict()
        return out


def unhuffman(raw):
    out, code, n = bytearray(), 0, 0
    for b in raw:
        for i in range(7, -1, -1):
            code, n = code << 1 | b >> i & 1, n + 1
            symbol = _HUFFMAN_BACK.get((code, n))
            if symbol == 256:
                raise ValueError("EOS in a string")
            if symbol is not None:
                out.append(symbol)
                code, n = 0, 0
    if n > 7 or code != (1 << n) - 1:
        raise ValueError("a string's padding is wrong")
    return bytes(out)


# ---------------------------------------------------------------- a connection


class Frame:
    def __init__(self, kind, flags, stream, payload):
        self.kind, self.flags, self.stream, self.payload = kind, flags, stream, payload

    def number(self, at=0):
        return struct.unpack_from(">I", self.payload, at)[0]

    def __repr__(self):
        name = TYPES[self.kind] if self.kind < len(TYPES) else f"type {self.kind}"
        more = ""
        if self.kind == GOAWAY:
            more = f" last={self.number()} {code_name(self.number(4))} {self.payload[8:80]!r}"
        elif self.kind == RST_STREAM:
            more = " " + code_name(self.number())
        elif self.kind == WINDOW_UPDATE:
            more = f" {self.number()}"
        elif self.kind == DATA:
            more = f" {len(self.payload)} bytes"
        return f"<{name} flags={self.flags:#x} stream={self.stream}{more}>"


class Reset(Exception):
    """The stream was reset."""

    def __init__(self, code, stream=None):
        super().__init__(code_name(code))
        self.code, self.stream = code, stream


class GoneAway(Exception):
    """GOAWAY that says an error, or that leaves our stream out."""

    def __init__(self, f):
        super().__init__(repr(f))
        self.code, self.last = f.number(4), f.number()


class Stream:
    """What came on one stream. fields: the final head; status: an int."""

    def __init__(self, number):
        self.number, self.status, self.fields, self.body, self.trailers, self.interim = number, None, [], bytearray(), [], []
        self.ended, self.reset, self.window = False, None, None

    def all(self, name):
        return [v.decode("latin1") for k, v in self.fields if k == name.encode()]

    def get(self, name, dflt=None):
        v = self.all(name)
        return v[0] if v else dflt

    def json(self):
        import json

        return json.loads(bytes(self.body))

    @property
    def code(self):
        """The code of a refusal, or None."""
        try:
            return self.json()["error"]["code"]
        except Exception:
            return None

    def __repr__(self):
        return f"stream {self.number}: {self.status} {self.fields} {bytes(self.body[:200])!r} ended={self.ended} reset={self.reset}"


class H2:
    """The client's end of a connection. conn: a lab.Conn on which h2 was agreed. Windows for what comes are given back at once unless
    `manual`; what goes out is bounded by the peer's windows only in send_body."""

    def __init__(self, conn, authority, handshake=True, pairs=(), manual=False):
        self.conn, self.authority, self.manual = conn, authority, manual
        self.hpack, self.streams, self.peer, self.acked, self.gone, self.next_id = Hpack(), {}, {}, 0, None, 1
        self.window, self.initial, self.frames, self.pongs, self.open_block = 65535, 65535, [], [], None
        if handshake:
            self.send(PREFACE + settings(*pairs))
            while not (self.peer_spoke and self.acked):
                if self.next() is None:
                    raise AssertionError(f"no SETTINGS, or no ACK of ours: {self.frames}")

    peer_spoke = False

    # --- out
    def send(self, raw, cuts=None):
        """False when the peer has closed."""
        try:
            self.conn.send(raw, cuts)
            return True
        except (OSError, ssl.SSLError):
            return False

    def head(self, method="GET", path="/", more=(), scheme="https", authority=None):
        return [(":method", method), (":scheme", scheme), (":authority", self.authority if authority is None else authority), (":path", path), *more]

    def take_id(self):
        n, self.next_id = self.next_id, self.next_id + 2
        return n

    def request(self, method="GET", path="/", more=(), body=None, end=True, trailers=None, authority=None, fields=None, how="plain"):
        """Sends a request (a body that fits into the windows); its stream's number."""
        n = self.take_id()
        rest = body is not None or trailers is not None
        raw = headers(n, block(fields or self.head(method, path, more, authority=authority), how), END_HEADERS | (END_STREAM if end and not rest else 0))
        if body is not None:
            for at in range(0, len(body) or 1, 16384):
                last = at + 16384 >= len(body) and end and trailers is None
                raw += data(n, body[at : at + 16384], END_STREAM if last else 0)
        if trailers is not None:
            raw += headers(n, block(trailers))
        self.send(raw)
        return n

    def send_body(self, n, body, end=True, timeout=WAIT):
        """As the peer's windows allow."""
        s, at, until = self.stream(n), 0, time.monotonic() + timeout
        while at < len(body):
            room = min(self.window, self.room(s), 16384, len(body) - at)
            if room <= 0:
                if s.reset is not None or s.ended:
                    raise Reset(s.reset or NO_ERROR, n)
                assert time.monotonic() < until, f"no window after {at} bytes"
                self.next(until - time.monotonic())
                continue
            self.send(data(n, body[at : at + room], END_STREAM if end and at + room == len(body) else 0))
            at, self.window, s.window = at + room, self.window - room, s.window - room
        if end and not body:
            self.send(data(n, b"", END_STREAM))

    def room(self, s):
        if s.window is None:
            s.window = self.initial
        return s.window

    # --- in
    def stream(self, n):
        return self.streams.setdefault(n, Stream(n))

    def read_frame(self, timeout=WAIT):
        """The next frame as it came, or None when none comes in time. Closed at the end."""
        until = time.monotonic() + timeout
        old = self.conn.sock.gettimeout()

        def need(n):
            while len(self.conn.buf) < n:
                self.conn.sock.settimeout(max(0.001, until - time.monotonic()))
                self.conn._more()

        try:
            need(9)
            high, low, kind, flags, stream = struct.unpack_from(">BHBBI", self.conn.buf)
            need(9 + (high << 16 | low))
        except (TimeoutError, socket.timeout):
            return None
        except ConnectionError:
            raise Closed(False, bytes(self.conn.buf)) from None
        except ssl.SSLError as e:
            raise Closed(False, str(e).encode()) from None
        finally:
            with contextlib.suppress(OSError):
                self.conn.sock.settimeout(old)
        raw = self.conn.exactly(9 + (high << 16 | low))
        return Frame(kind, flags, stream & 0x7FFFFFFF, raw[9:])

    def next(self, timeout=WAIT):
        """The next frame, after what it asks of us was done."""
        f = self.read_frame(timeout)
        if f is None:
            return None
        self.frames.append(f)
        if self.open_block is not None and (f.kind != CONTINUATION or f.stream != self.open_block[0]):
            raise ValueError(f"{f} within a header block")
        if f.kind == SETTINGS:
            if f.flags & ACK:
                self.acked += 1
            else:
                self.peer_spoke = True
                for at in range(0, len(f.payload), 6):
                    k, v = struct.unpack_from(">HI", f.payload, at)
                    self.peer[k] = v
                    if k == INITIAL_WINDOW_SIZE:
                        for s in self.streams.values():
                            if s.window is not None:
                                s.window += v - self.initial
                        self.initial = v
                self.send(settings(flags=ACK))
        elif f.kind == PING:
            if f.flags & ACK:
                self.pongs.append(f.payload)
            else:
                self.send(ping(f.payload, ACK))
        elif f.kind == WINDOW_UPDATE:
            if f.stream:
                s = self.stream(f.stream)
                s.window = self.room(s) + f.number()
            else:
                self.window += f.number()
        elif f.kind == GOAWAY:
            self.gone = f
        elif f.kind == RST_STREAM:
            self.stream(f.stream).reset = f.number()
        elif f.kind == DATA:
            s, payload = self.stream(f.stream), f.payload
            if f.flags & PADDED:
                payload = payload[1 : len(payload) - payload[0]]
            s.body += payload
            s.ended |= bool(f.flags & END_STREAM)
            if f.payload and not self.manual:
                self.send(window_update(0, len(f.payload)) + (b"" if s.ended else window_update(f.stream, len(f.payload))))
        elif f.kind == HEADERS:
            payload = f.payload
            if f.flags & PADDED:
                payload = payload[1 : len(payload) - payload[0]]
            if f.flags & WITH_PRIORITY:
                payload = payload[5:]
            self.open_block = [f.stream, bytes(payload), f.flags & END_STREAM]
        elif f.kind == CONTINUATION:
            if self.open_block is None:
                raise ValueError("CONTINUATION of nothing")
            self.open_block[1] += f.payload
        elif f.kind == PUSH_PROMISE:
            raise ValueError("a push")
        if f.kind in (HEADERS, CONTINUATION) and f.flags & END_HEADERS:
            (n, raw, end), self.open_block = self.open_block, None
            self._head(self.stream(n), self.hpack.decode(raw), end)
        return f

    def _head(self, s, fields, end):
        for k, v in fields:
            if k.lower() != k or b"\r" in v or b"\n" in v or b"\0" in v or v.strip(b" \t") != v:
                raise ValueError(f"a bad field {k!r}: {v!r}")
            if k in (b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"proxy-connection"):
                raise ValueError(f"a field of another protocol: {k!r}")
        status = [v for k, v in fields if k == b":status"]
        plain = [(k, v) for k, v in fields if not k.startswith(b":")]
        if s.status is not None:
            if status or not end:
                raise ValueError(f"bad trailers: {fields}")
            s.trailers = plain
        elif len(status) != 1 or fields[0][0] != b":status" or len(plain) != len(fields) - 1:
            raise ValueError(f"no or a bad :status: {fields}")
        elif int(status[0]) < 200:
            s.interim.append((int(status[0]), plain))
            if end:
                raise ValueError("an interim answer ends the stream")
        else:
            s.status, s.fields = int(status[0]), plain
        s.ended |= bool(end)

    def until(self, holds, what="that", timeout=WAIT):
        """Reads until holds(). AssertionError when it does not come, Closed when the connection ends before."""
        end = time.monotonic() + timeout
        while not holds():
            left = end - time.monotonic()
            if left <= 0 or self.next(left) is None:
                raise AssertionError(f"{what} did not come within {timeout} s; the last frames: {self.frames[-6:]}")

    def wait(self, n, timeout=WAIT):
        """The whole answer of a stream. Reset, GoneAway, Closed."""
        s = self.stream(n)

        def done():
            if s.ended:
                return True
            if s.reset is not None:
                raise Reset(s.reset, n)
            if self.gone and (self.gone.number(4) or self.gone.number() < n):
                raise GoneAway(self.gone)
            return False

        self.until(done, f"the answer on stream {n}", timeout)
        return s

    def ask(self, *args, **kw):
        return self.wait(self.request(*args, **kw))

    def alive(self, payload=b"are you?", timeout=WAIT):
        """A PING is answered."""
        self.send(ping(payload))
        self.until(lambda: payload in self.pongs, "the answer to a PING", timeout)
        self.pongs.remove(payload)
        return True

    def ending(self, timeout=WAIT):
        """Reads to the end of the connection: the GOAWAY that came, or None. AssertionError when it stays open."""
        end = time.monotonic() + timeout
        try:
            while True:
                left = end - time.monotonic()
                if left <= 0 or self.next(left) is None:
                    raise AssertionError(f"the connection stays open: {self.frames[-6:]}")
        except Closed:
            return self.gone

    def close(self):
        self.conn.close()


def connect(lab, name="open.test", handshake=True, pairs=(), manual=False, **kw):
    """Through the proxy's CONNECT and TLS."""
    conn = lab.client(name, alpn=kw.pop("alpn", ("h2",)), **kw)
    spoken = conn.tls.selected_alpn_protocol()
    assert spoken == "h2", f"the proxy chose {spoken}"
    return H2(conn, conn.default_host(), handshake, pairs, manual)
