# SPDX-License-Identifier: Apache-2.0
"""DNS by hand for tests/system/test_dns*.py: messages written and read with nothing but struct, a client over UDP and TCP, and an
upstream server that answers what a table says and remembers what it was asked."""
import collections
import contextlib
import random
import socket
import struct
import threading

TYPES = {"A": 1, "NS": 2, "CNAME": 5, "SOA": 6, "NULL": 10, "PTR": 12, "MX": 15, "TXT": 16, "AAAA": 28, "SRV": 33, "OPT": 41, "SVCB": 64,
         "HTTPS": 65, "IXFR": 251, "AXFR": 252, "ANY": 255, "CAA": 257, "PRIVATE": 65399}
CODES = {0: "NOERROR", 1: "FORMERR", 2: "SERVFAIL", 3: "NXDOMAIN", 4: "NOTIMP", 5: "REFUSED", 16: "BADVERS"}
Record = collections.namedtuple("Record", "owner type ttl data")


def name(text):
    """A name on the wire; text may be bytes, a list of labels as bytes, or dotted text."""
    if isinstance(text, bytes):
        return text
    labels = text if isinstance(text, list) else [p.encode() for p in text.split(".") if p]
    return b"".join(bytes([len(p)]) + p for p in labels) + b"\0"


def query(qname, qtype="A", ident=None, flags=0x0100, qclass=1, edns=None, version=0, options=b"", dnssec=False, tail=b""):
    """edns: what the client takes over UDP; None: no OPT."""
    ident = random.randrange(65536) if ident is None else ident
    kind = TYPES[qtype] if isinstance(qtype, str) else qtype
    opt = b"" if edns is None else struct.pack("!BHHBBHH", 0, 41, edns, 0, version, 0x8000 if dnssec else 0, len(options)) + options
    return struct.pack("!6H", ident, flags, 1, 0, 0, 1 if opt else 0) + name(qname) + struct.pack("!HH", kind, qclass) + opt + tail


def read_name(m, at):
    out, end, jumps = [], None, 0
    while m[at]:
        if m[at] & 0xC0 == 0xC0:
            end = end or at + 2
            at = (m[at] & 0x3F) << 8 | m[at + 1]
            jumps += 1
            assert jumps < 64, "a name that loops"
            continue
        out.append(m[at + 1 : at + 1 + m[at]])
        at += 1 + m[at]
    return b".".join(out).decode("latin-1"), end or at + 1


class Answer:
    """A reply, read whole: every byte belongs to something."""

    def __init__(self, m):
        self.raw = m
        self.ident, flags, questions, *counts = struct.unpack("!6H", m[:12])
        self.is_answer, self.cut, self.recursion = bool(flags & 0x8000), bool(flags & 0x0200), bool(flags & 0x0080)
        self.desired, self.opcode, self.checking_off = bool(flags & 0x0100), flags >> 11 & 15, bool(flags & 0x0010)
        self.authentic, self.authoritative = bool(flags & 0x0020), bool(flags & 0x0400)
        rcode, at = flags & 15, 12
        self.question = b""
        for _ in range(questions):
            _, at = read_name(m, at)
            at += 4
        self.question = m[12:at]
        self.sections, self.edns, self.dnssec = [], None, False
        for count in counts:
            records = []
            for _ in range(count):
                owner, at = read_name(m, at)
                kind, klass, ttl, n = struct.unpack("!HHIH", m[at : at + 10])
                at += 10
                if kind == 41:
                    self.edns, self.dnssec = klass, bool(ttl & 0x8000)
                    rcode |= ttl >> 24 << 4
                    assert n == 0 and owner == "", "an option in the answer"
                else:
                    assert klass == 1, klass
                    records.append(Record(owner, kind, ttl, m[at : at + n]))
                at += n
            self.sections.append(records)
        assert at == len(m), "bytes behind the answer"
        self.answers, self.authority, self.additional = self.sections
        self.code = CODES.get(rcode, str(rcode))

    @property
    def addresses(self):
        return [socket.inet_ntop(socket.AF_INET if len(r.data) == 4 else socket.AF_INET6, r.data) for r in self.answers if r.type in (1, 28)]

    def __repr__(self):
        return f"<{self.code} {self.addresses} authority={self.authority} cut={self.cut}>"


def exactly(sock, n):
    got = b""
    while len(got) < n:
        more = sock.recv(n - len(got))
        if not more:
            raise ConnectionError(f"closed after {len(got)} of {n} bytes")
        got += more
    return got


def send_tcp(sock, message):
    sock.sendall(struct.pack("!H", len(message)) + message)


def read_tcp(sock):
    return exactly(sock, struct.unpack("!H", exactly(sock, 2))[0])


class Client:
    """Asks one server. `source`: the address it comes from."""

    def __init__(self, port, host="127.0.0.1", source=None, timeout=8.0):
        self.at, self.source, self.timeout = (host, port), source, timeout
        self.family = socket.AF_INET6 if ":" in host else socket.AF_INET

    def udp(self):
        s = socket.socket(self.family, socket.SOCK_DGRAM)
        if self.source:
            s.bind((self.source, 0))
        s.settimeout(self.timeout)
        s.connect(self.at)  # an answer from another address than the one asked never comes in
        return s

    def tcp(self):
        s = socket.socket(self.family, socket.SOCK_STREAM)
        if self.source:
            s.bind((self.source, 0))
        s.settimeout(self.timeout)
        s.connect(self.at)
        return s

    def raw(self, message, tcp=False):
        """The bytes that come back; b"" when a TCP connection is closed instead."""
        with contextlib.closing(self.tcp() if tcp else self.udp()) as s:
            if not tcp:
                s.send(message)
                return s.recv(65536)
            send_tcp(s, message)
            try:
                return read_tcp(s)
            except ConnectionError:
                return b""

    def ask(self, qname, qtype="A", tcp=False, **kw):
        q = query(qname, qtype, **kw)
        a = Answer(self.raw(q, tcp))
        assert a.is_answer and a.ident == struct.unpack("!H", q[:2])[0] and q[12:].startswith(a.question), (q, a.raw)
        return a


def soa(ttl=30, owner="test"):
    return Record(owner, 6, ttl, name("ns.test") + name("root.test") + struct.pack("!5I", 1, 3600, 600, 86400, ttl))


def address(owner, ip, ttl=60):
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    return Record(owner, 28 if ":" in ip else 1, ttl, socket.inet_pton(family, ip))


def alias(owner, target, ttl=60):
    return Record(owner, 5, ttl, name(target))


class Upstream:
    """A server on loopback, UDP and TCP. script(qname, qtype) gives (rcode, answers, authority), None for silence; qname is lower case.
    asked: (qname as it came, type, over TCP, source port, message)."""

    def __init__(self, script, host="127.0.0.1"):
        self.script, self.asked = script, []
        while True:
            self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.udp.bind((host, 0))
            self.port = self.udp.getsockname()[1]
            self.tcp = socket.socket()
            self.tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                self.tcp.bind((host, self.port))
                break
            except OSError:
                self.udp.close()
                self.tcp.close()
        self.tcp.listen(64)
        self.before = None  # called with (socket, message, client) before the answer goes: for forgeries
        for loop in (self._udp, self._tcp):
            threading.Thread(target=loop, daemon=True).start()

    def names(self):
        return [q[0].lower() for q in self.asked]

    def reply(self, m, tcp, port):
        qname, at = read_name(m, 12)
        kind = struct.unpack("!H", m[at : at + 2])[0]
        self.asked.append((qname, kind, tcp, port, m))
        said = self.script(qname.lower(), kind)
        if said is None:
            return None
        rcode, answers, authority = said
        body = b"".join(name(r.owner) + struct.pack("!HHIH", r.type, 1, r.ttl, len(r.data)) + r.data for r in [*answers, *authority])
        whole = m[:2] + struct.pack("!5H", 0x8180 | rcode, 1, len(answers), len(authority), 0) + m[12 : at + 4] + body
        if not tcp and len(whole) > 512:
            return m[:2] + struct.pack("!5H", 0x8380, 1, 0, 0, 0) + m[12 : at + 4]
        return whole

    def _udp(self):
        with contextlib.suppress(OSError):
            while True:
                m, client = self.udp.recvfrom(65536)
                r = self.reply(m, False, client[1])
                if self.before:
                    self.before(self.udp, m, client)
                if r:
                    self.udp.sendto(r, client)

    def _tcp(self):
        with contextlib.suppress(OSError):
            while True:
                s, client = self.tcp.accept()
                threading.Thread(target=self._serve, args=(s, client), daemon=True).start()

    def _serve(self, s, client):
        with contextlib.suppress(OSError), contextlib.closing(s):
            while True:
                r = self.reply(read_tcp(s), True, client[1])
                if r:
                    send_tcp(s, r)

    def close(self):
        for s in (self.udp, self.tcp):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
            s.close()
