# SPDX-License-Identifier: Apache-2.0
"""Runs Outgate between clients and origins of our own on loopback, for tests/system/test_*.py.

Standard library only, and the openssl command. Nothing leaves loopback; root is not needed: every name has an address in
127.0.0.0/8 (resolver.hosts) and a port that was free when the lab was made.

  Lab       a folder, a test PKI, origins, one `outgate serve`; its events and its leaks
  Origin    a TLS or plain server on one address whose handler is a plain function of a Conn; the default handler echoes
  Conn      one accepted connection, or one of the client's: bytes in, bytes out, every way of ending it
  Client    a Conn through the proxy: CONNECT, TLS with any SNI and ALPN
"""
import base64
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EXE = os.environ.get("OUTGATE_EXE") or os.path.join(ROOT, "build", "outgate")
WAIT = 10.0  # seconds that anything may take before a test fails

for _name in [k for k in os.environ if k.lower().endswith("_proxy")]:
    del os.environ[_name]


class Skip(Exception):
    """This test cannot run here; the text says why."""


class Closed(Exception):
    """The peer closed before what was wanted came. `clean`: by FIN (plain) or close_notify (TLS)."""

    def __init__(self, clean, got=b""):
        super().__init__(("closed" if clean else "cut off") + f" after {len(got)} bytes: {got[:120]!r}")
        self.clean, self.got = clean, got


# ---------------------------------------------------------------- bytes


class Conn:
    """A connection, plain or TLS, with a read buffer. TLS runs over memory BIOs, so that records can be cut, close_notify can be
    sent alone or left out, and reading goes on after it."""

    def __init__(self, sock, timeout=WAIT):
        self.sock, self.buf, self.tls, self.received, self.sent = sock, bytearray(), None, bytearray(), 0
        # one thread may send while another receives: `lock` for the TLS object, `order` (outside it) for what goes out
        self.lock, self.order = threading.RLock(), threading.RLock()
        sock.settimeout(timeout)
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    # --- TLS
    def start_tls(self, ctx, server_side=False, name=None):
        self.bio_in, self.bio_out = ssl.MemoryBIO(), ssl.MemoryBIO()
        if self.buf:
            self.bio_in.write(bytes(self.buf))
            self.buf.clear()
        self.tls = ctx.wrap_bio(self.bio_in, self.bio_out, server_side=server_side, server_hostname=name)
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._flush()
                data = self.sock.recv(65536)
                if not data:
                    raise Closed(False)
                self.bio_in.write(data)
            except ssl.SSLError:
                with contextlib.suppress(OSError):
                    self._flush()  # the alert
                raise
        self._flush()
        return self

    def _flush(self, cuts=0):
        with self.order:
            with self.lock:
                data = self.bio_out.read()
            for at in range(0, len(data), cuts or len(data) or 1):
                self.sock.sendall(data[at : at + (cuts or len(data))])

    # --- out
    def send(self, data, cuts=None):
        """cuts: offsets where a new write (and TLS record) begins, 20 ms apart."""
        at = 0
        for cut in [*(cuts or []), len(data)]:
            part = data[at:cut]
            at = cut
            if not part:
                continue
            if self.tls:
                with self.order:
                    with self.lock:
                        self.tls.write(part)
                    self._flush()
            else:
                self.sock.sendall(part)
            self.sent += len(part)
            if cut != len(data):
                time.sleep(0.02)
        return self

    def send_together(self, *parts):
        """Each part a TLS record of its own, all in one write."""
        if not self.tls:
            return self.send(b"".join(parts))
        for part in parts:
            self.tls.write(part)
            self.sent += len(part)
        self._flush()
        return self

    def half_close(self):
        """No more from here (close_notify and FIN); reading goes on."""
        self._notify()
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)

    def _notify(self):
        if self.tls:
            with contextlib.suppress(ssl.SSLError):
                while data := self.tls.read(65536):  # what lies here already: a shutdown would trip over it
                    self.received += data
                    self.buf += data
            try:
                self.tls.unwrap()
            except (ssl.SSLError, OSError, ValueError):
                pass
            with contextlib.suppress(OSError):
                self._flush()

    def close(self, notify=True):
        """notify=False: FIN without close_notify, which a TLS peer must take for a truncation."""
        if notify:
            self._notify()
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)
        with contextlib.suppress(OSError):
            self.sock.close()

    def reset(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    # --- in
    def recv(self):
        """Some bytes, b"" at a clean end; Closed when it was cut off."""
        while True:
            if self.tls:
                try:
                    with self.lock:
                        data = self.tls.read(65536)
                    if data:
                        self.received += data
                        return data
                    return b""
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLZeroReturnError:
                    return b""
                try:
                    raw = self.sock.recv(65536)
                except ConnectionResetError:
                    raise Closed(False, bytes(self.buf)) from None
                if not raw:
                    raise Closed(False, bytes(self.buf))
                with self.lock:
                    self.bio_in.write(raw)
            else:
                try:
                    data = self.sock.recv(65536)
                except ConnectionResetError:
                    raise Closed(False, bytes(self.buf)) from None
                self.received += data
                return data

    def _more(self):
        data = self.recv()
        if not data:
            raise Closed(True, bytes(self.buf))
        self.buf += data

    def until(self, mark):
        while True:
            at = self.buf.find(mark)
            if at >= 0:
                out = bytes(self.buf[: at + len(mark)])
                del self.buf[: at + len(mark)]
                return out
            self._more()

    def exactly(self, n):
        while len(self.buf) < n:
            self._more()
        out = bytes(self.buf[:n])
        del self.buf[:n]
        return out

    def rest(self):
        """Everything to the end. (bytes, clean)"""
        clean = True
        try:
            while True:
                data = self.recv()
                if not data:
                    break
                self.buf += data
        except Closed:
            clean = False
        out = bytes(self.buf)
        self.buf.clear()
        return out, clean

    def silent_for(self, seconds):
        """True when nothing (and no end) comes for so long."""
        if self.buf:
            return False
        old = self.sock.gettimeout()
        self.sock.settimeout(seconds)
        try:
            self._more()
            return False
        except (TimeoutError, socket.timeout):
            return True
        except Closed:
            return False
        finally:
            self.sock.settimeout(old)


class Message:
    """One HTTP/1.1 message, read strictly (CRLF only); `raw` is its head as it came."""

    def __init__(self, raw):
        self.raw = raw
        lines = raw[:-4].decode("latin1").split("\r\n")
        self.line = lines[0]
        self.headers = []
        for l in lines[1:]:
            name, colon, value = l.partition(":")
            if not colon or name != name.strip() or not name:
                raise ValueError(f"a bad header line: {l!r}")
            self.headers.append((name, value.strip(" \t")))
        if "\n" in "".join(lines) or "\r" in "".join(lines):
            raise ValueError(f"a stray CR or LF: {raw!r}")
        self.body, self.trailers, self.chunks, self.interim = b"", [], [], []

    def all(self, name):
        return [v for k, v in self.headers if k.lower() == name.lower()]

    def get(self, name, dflt=None):
        v = self.all(name)
        return v[0] if v else dflt

    @property
    def status(self):
        return int(self.line.split(" ")[1])

    @property
    def reason(self):
        return (self.line.split(" ", 2) + [""])[2]

    @property
    def method(self):
        return self.line.split(" ")[0]

    @property
    def target(self):
        return self.line.split(" ")[1]

    def json(self):
        return json.loads(self.body)

    @property
    def code(self):
        """The code of a refusal in any of its three shapes, or None."""
        try:
            return self.json()["error"]["code"]
        except Exception:
            m = re.search(r"\b(" + "|".join(CODES) + r")\b", self.body.decode("latin1"))
            return m.group(1) if m else None

    def __repr__(self):
        return f"{self.line!r} {dict(self.headers)} {self.body[:200]!r}"


CODES = """unknown_agent bad_request host_denied port_denied method_denied path_denied address_denied approval_required
approval_denied misdirected upgrade_denied protocol_denied placeholder_wrong_host placeholder_wrong_slot
placeholder_out_of_scope unknown_placeholder foreign_credential exfiltration credential_denied credential_unavailable
credential_expired origin_dns origin_connect origin_tls origin_protocol origin_timeout too_large head_too_large
rate_limited audit_unavailable draining""".split()


def read_chunked(conn, m):
    while True:
        size = conn.until(b"\r\n")[:-2]
        if not re.fullmatch(rb"[0-9A-Fa-f]+", size.split(b";")[0]):
            raise ValueError(f"a bad chunk size {size!r}")
        n = int(size.split(b";")[0], 16)
        if n == 0:
            break
        data = conn.exactly(n)
        if conn.exactly(2) != b"\r\n":
            raise ValueError("chunk data is not followed by CRLF")
        m.chunks.append(data)
    m.body = b"".join(m.chunks)
    while True:
        line = conn.until(b"\r\n")
        if line == b"\r\n":
            return
        k, _, v = line.decode("latin1").partition(":")
        m.trailers.append((k, v.strip()))


def read_head(conn):
    return Message(conn.until(b"\r\n\r\n"))


def read_request(conn, head_only=False):
    m = read_head(conn)
    if head_only:
        return m
    return read_body(conn, m)


def read_body(conn, m):
    lengths, codings = m.all("content-length"), m.all("transfer-encoding")
    if len(lengths) + len(codings) > 1:
        raise ValueError(f"ambiguous framing: {m.raw!r}")
    if codings:
        read_chunked(conn, m)
    elif lengths:
        m.body = conn.exactly(int(lengths[0]))
    return m


def read_response(conn, method="GET"):
    """The final response; interim ones are in .interim. Until close: to the end (Closed when that was no clean one)."""
    interim = []
    while True:
        m = read_head(conn)
        if m.status >= 200 or m.status == 101:
            break
        interim.append(m)
    m.interim = interim
    if method == "HEAD" or m.status in (101, 204, 304) or (method == "CONNECT" and m.status < 300):
        return m
    if m.all("transfer-encoding") or m.all("content-length"):
        return read_body(conn, m)
    m.body, clean = conn.rest()
    if not clean:
        raise Closed(False, m.body)
    return m


# ---------------------------------------------------------------- origins


def answer(status=200, body=b"", headers=(), reason="OK", length=True):
    if isinstance(body, str):
        body = body.encode()
    head = f"HTTP/1.1 {status} {reason}\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers)
    if length:
        head += f"Content-Length: {len(body)}\r\n"
    return head.encode("latin1") + b"\r\n" + body


def echo(conn, origin):
    """The default handler: keeps the connection, answers each request with what it saw, as JSON."""
    while True:
        m = read_request(conn, head_only=True)
        if (m.get("expect") or "").lower() == "100-continue":
            conn.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        read_body(conn, m)
        origin.requests.append(m)
        body = json.dumps({"line": m.line, "headers": m.headers, "body": m.body.decode("latin1"), "trailers": m.trailers}).encode()
        conn.send(answer(200, b"" if m.method == "HEAD" else body, [("Content-Type", "application/json")], length=m.method != "HEAD"))


def say(*parts, close=True, notify=True):
    """A handler: reads one request, sends the parts (bytes, or seconds to wait), then closes (or waits for the peer's end)."""

    def handler(conn, origin):
        m = read_request(conn)
        origin.requests.append(m)
        for p in parts:
            if isinstance(p, (int, float)):
                time.sleep(p)
            else:
                conn.send(p)
        if close:
            conn.close(notify=notify)
        else:
            conn.rest()

    return handler


def always(*parts):
    """A handler: the same answer to every request of a connection that is kept."""

    def handler(conn, origin):
        while True:
            origin.requests.append(read_request(conn))
            for p in parts:
                if isinstance(p, (int, float)):
                    time.sleep(p)
                else:
                    conn.send(p)

    return handler


class Origin:
    """Listens on addr:port. `requests`: every request read; `conns`: every connection (conn.received: its bytes)."""

    def __init__(self, lab, addr, port, tls=True, handler=None):
        self.lab, self.addr, self.port, self.handler = lab, addr, port, handler or echo
        self.requests, self.conns, self.errors, self.snis = [], [], [], []
        self.ctx = lab.origin_context(self) if tls else None
        self.sock = socket.socket()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.sock.bind((addr, port))
        self.sock.listen(128)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                s, _ = self.sock.accept()
            except OSError:
                return
            conn = Conn(s, timeout=60)
            self.conns.append(conn)
            threading.Thread(target=self._serve, args=(conn,), daemon=True).start()

    def _serve(self, conn):
        try:
            if self.ctx:
                conn.start_tls(self.ctx, server_side=True)
            self.handler(conn, self)
            conn.close()
        except (Closed, OSError, ssl.SSLError):
            conn.close()
        except Exception as e:  # a malformed request that reached us: tests look at it
            self.errors.append(e)
            conn.close()

    def reset(self, handler=None):
        """For the next test: forget what came, drop open connections (so that no pooled one is used), set the handler."""
        self.handler = handler or echo
        for c in self.conns:
            with contextlib.suppress(OSError):
                c.sock.shutdown(socket.SHUT_RDWR)
        self.requests, self.conns, self.errors, self.snis = [], [], [], []
        return self

    def close(self):
        # Wakes the thread in accept(). Closing alone leaves it there, and a signal makes the kernel call accept again with the
        # descriptor's number, which may be the next origin's by then: its connections would be served with our certificate.
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()

    @property
    def last(self):
        return self.requests[-1]


# ---------------------------------------------------------------- the client


class Client(Conn):
    """Through the proxy. connect: "host:port" (None: talks to the proxy itself). tls: then TLS with server name `sni` (default: the
    host of connect; False: none). `connected` is the answer to CONNECT; a refusal raises Refused unless refused_ok."""

    def __init__(self, lab, connect=None, tls=True, sni=None, alpn=("http/1.1",), version="1.1", headers=(), host=True, refused_ok=False,
                 tls12=False, early=b"", source=None, timeout=WAIT):
        sock = socket.create_connection(("127.0.0.1", lab.port), timeout, source_address=(source, 0) if source else None)
        super().__init__(sock, timeout)
        self.lab, self.connected = lab, None
        self.name, _, self.to_port = (connect or "").rpartition(":")
        if not connect:
            return
        head = f"CONNECT {connect} HTTP/{version}\r\n" + (f"Host: {connect}\r\n" if host else "")
        head += "".join(f"{k}: {v}\r\n" for k, v in headers)
        self.send(head.encode("latin1") + b"\r\n" + early)
        self.connected = read_response(self, "CONNECT")
        if self.connected.status != 200:
            if refused_ok:
                return
            raise Refused(self.connected)
        if tls:
            ctx = lab.client_context(alpn, tls12)
            name = self.name if sni is None else sni
            if not name:
                ctx.check_hostname = False
            self.start_tls(ctx, name=name or None)

    def ask(self, method="GET", target="/", headers=(), body=None, host=None, raw=None, cuts=None):
        """One request (Host: the name of the CONNECT with its port), then its final response."""
        self.write(method, target, headers, body, host, raw, cuts)
        return read_response(self, method)

    def write(self, method="GET", target="/", headers=(), body=None, host=None, raw=None, cuts=None):
        if raw is None:
            host = self.default_host() if host is None else host
            head = f"{method} {target} HTTP/1.1\r\n" + (f"Host: {host}\r\n" if host else "")
            head += "".join(f"{k}: {v}\r\n" for k, v in headers)
            if body is not None and not any(k.lower() == "transfer-encoding" for k, _ in headers):
                head += f"Content-Length: {len(body)}\r\n"
            raw = head.encode("latin1") + b"\r\n" + (body or b"")
        self.send(raw, cuts)

    def default_host(self):
        return self.name if self.to_port == "443" else f"{self.name}:{self.to_port}"


class Refused(Exception):
    def __init__(self, m):
        super().__init__(repr(m))
        self.message = m


def sanitized():
    """Is this a build whose memory is the sanitizer's? It keeps what was freed: how much memory a process has says nothing there."""
    with open(EXE, "rb") as f:
        return b"__asan_init" in f.read()


# ---------------------------------------------------------------- leaks


def shapes(secret):
    """name -> bytes under which a value is looked for."""
    s = secret.encode()
    out = {
        "raw": s,
        "reversed": s[::-1],
        "hex": s.hex().encode(),
        "HEX": s.hex().upper().encode(),
        "percent": b"".join(b"%%%02X" % c for c in s),
        "percent lower": b"".join(b"%%%02x" % c for c in s),
    }
    for k in range(3):
        # what does not depend on the neighbours: skip the first group and the last
        out[f"base64+{k}"] = base64.b64encode(b"x" * k + s + b"x" * 3)[4 : 4 + (len(s) - 3) // 3 * 4]
        out[f"base64url+{k}"] = base64.urlsafe_b64encode(b"x" * k + s + b"x" * 3)[4 : 4 + (len(s) - 3) // 3 * 4]
    return out


def leaks_in(blob, secrets):
    return [f"{how} of …{s[-4:]}" for s in secrets for how, needle in shapes(s).items() if needle in blob]


# ---------------------------------------------------------------- the lab


def openssl(cwd, *args, text=None):
    r = subprocess.run(["openssl", *args], cwd=cwd, input=text, capture_output=True, timeout=30)
    if r.returncode:
        raise RuntimeError(f"openssl {args[0]}: {r.stderr.decode(errors='replace')[-300:]}")
    return r.stdout


def free_port(addrs):
    """A port that is free on every one of the addresses."""
    for _ in range(200):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        try:
            for a in addrs:
                with socket.socket() as s:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    s.bind((a, port))
            return port
        except OSError:
            continue
    raise RuntimeError("no free port")


HOSTS = {
    "api.test": "127.0.0.2",  # a credential belongs here
    "git.test": "127.0.0.2",
    "open.test": "127.0.0.3",  # allowed, no credential
    "deny.test": "127.0.0.3",  # an explicit deny
    "evil.test": "127.0.0.3",  # in no rule
    "a.wild.test": "127.0.0.3",
    "wild.test": "127.0.0.3",
    "down.test": "127.0.0.9",  # allowed, nobody listens
    "narrow.test": "127.0.0.3",  # only GET and POST under /ok
    "ask.test": "127.0.0.3",
    "plain.test": "127.0.0.4",  # http is allowed
    "badcert.test": "127.0.0.5",  # a certificate of nobody we know
}


def secret_value(label):
    """A value that looks real, is different for each label and the same in every run."""
    return "ghs_REAL" + hashlib.sha256(("outgate tests " + label).encode()).hexdigest()[:32]


class Lab:
    """with Lab() as lab: nothing it does leaves loopback (the resolver's upstream is a closed port). … `extra` is put into the configuration as it is, by section: rules, credentials, agents, tail."""

    def __init__(self, hosts=None, rules="", credentials="", agents=None, tail="", listen="", workers=1, refuse_at="tunnel", start=True, env=None,
                 resolver="", upstreams="127.0.0.1:1"):
        if not os.path.exists(EXE):
            raise SystemExit(f"no {EXE}: build first, or set OUTGATE_EXE")
        self.dir = tempfile.mkdtemp(prefix="outgate-lab-")
        os.chmod(self.dir, 0o755)  # roles may run as other users
        self.hosts = {**HOSTS, **(hosts or {})}
        addrs = sorted({a for a in self.hosts.values() if a.startswith("127.")})
        ports = set()
        while len(ports) < 3:
            ports.add(free_port(["127.0.0.1", *addrs]))
        self.port, self.tls_port, self.http_port = ports
        self.proc, self.blobs, self.origins, self.workers = None, [], {}, workers
        self.real, self.real2 = secret_value("github"), secret_value("other")
        self.secrets = [self.real, self.real2]
        self.placeholder = "ghp_" + hashlib.sha256(b"outgate placeholder").hexdigest()[:36]
        self.placeholder2 = "ghp_" + hashlib.sha256(b"outgate placeholder 2").hexdigest()[:36]
        self.env = {**os.environ, **(env or {})}
        self.extra = dict(rules=rules, credentials=credentials, agents=agents, tail=tail, listen=listen, refuse_at=refuse_at, resolver=resolver, upstreams=upstreams)
        self._pki()
        for name, value in (("real", self.real), ("real2", self.real2)):
            with open(self.path(name), "w") as f:
                f.write(value)
            os.chmod(self.path(name), 0o600)
        self.api = self.origin("api.test")
        self.open = self.origin("open.test")
        self.plain = self.origin("plain.test", tls=False)
        if start:
            self.start()

    def patched(self):
        """Starts with PORT, PLAINPORT and PLACEHOLDER2 of the extra configuration filled in (they are known only now)."""
        for k, v in self.extra.items():
            for word, value in (("PLAINPORT", self.http_port), ("PORT", self.tls_port), ("PLACEHOLDER2", self.placeholder2),
                                ("REAL2", self.path("real2"))):
                if isinstance(v, str):
                    v = v.replace(word, str(value))
            self.extra[k] = v
        return self.start()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.close(check=kind is None)

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    # --- PKI
    def _pki(self):
        openssl(self.dir, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "3", "-keyout", "ca.key",
                "-out", "ca.pem", "-subj", "/CN=lab", "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign")
        names = ",".join(f"DNS:{n}" for n in self.hosts) + ",DNS:*.wild.test,IP:127.0.0.2"
        self._leaf("origin", names, "ca")
        openssl(self.dir, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "3", "-keyout",
                "stranger.key", "-out", "stranger.pem", "-subj", "/CN=stranger", "-addext", f"subjectAltName={names}")

    def _leaf(self, name, names, ca):
        with open(self.path("ext"), "w") as f:
            f.write(f"subjectAltName={names}\nextendedKeyUsage=serverAuth\n")
        openssl(self.dir, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr",
                "-subj", f"/CN={name}")
        openssl(self.dir, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key", "-CAcreateserial", "-days", "3",
                "-extfile", "ext", "-out", f"{name}.pem")

    def origin_context(self, origin, cert="origin"):
        ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ctx.load_cert_chain(self.path(f"{cert}.pem"), self.path(f"{cert}.key"))
        ctx.sni_callback = lambda _sock, name, _ctx: origin.snis.append(name)
        return ctx

    def client_context(self, alpn=("http/1.1",), tls12=False):
        ctx = ssl.create_default_context(cafile=self.path("outgate-ca.pem"))
        ctx.verify_flags |= ssl.VERIFY_X509_STRICT
        if tls12:
            ctx.maximum_version = ssl.TLSVersion.TLSv1_2
        if alpn:
            ctx.set_alpn_protocols(list(alpn))
        return ctx

    def origin(self, name, tls=True, handler=None, cert=None):
        o = Origin(self, self.hosts[name], self.tls_port if tls else self.http_port, tls, handler)
        if cert:
            o.ctx = self.origin_context(o, cert)
        self.origins[name] = o
        return o

    # --- configuration
    def config(self):
        e, tls, http = self.extra, self.tls_port, self.http_port
        hosts = ", ".join(f"{k}: [{v}]" for k, v in self.hosts.items())
        agents = e["agents"] or "  - name: coder\n    identify:\n      - source: 127.0.0.1/32\n"
        return f"""version: 1
state_dir: {self.path('state')}
runtime_dir: {self.path('run')}
workers: {self.workers}
listen:
  proxy: [127.0.0.1:{self.port}]
{e['listen']}
resolver:
  upstreams: ["{e['upstreams']}"]
  hosts: {{{hosts}}}
{e['resolver']}
origin:
  ca_file: [{self.path('ca.pem')}]
  allow_addresses: [127.0.0.0/8]
agents:
{agents}
rules:
  - {{name: denied, hosts: [deny.test], action: deny}}
  - {{name: ask, hosts: [ask.test], ports: [{tls}], action: ask}}
  - {{name: narrow, hosts: [narrow.test], ports: [{tls}], methods: [GET, POST], paths: ["/ok/**"], action: allow}}
{e['rules']}
  - {{name: api, hosts: [api.test, git.test], ports: [{tls}], action: allow}}
  - {{name: open, hosts: [open.test, "*.wild.test", down.test, badcert.test], ports: [{tls}], action: allow}}
  - {{name: plain, hosts: [plain.test, open.test, api.test, down.test], ports: [{http}], schemes: [http], action: allow}}
credentials:
  - name: github
    agents: [coder]
    hosts: [api.test, git.test]
    ports: [{tls}]
    slots: ["header:authorization", "basic:password"]
    placeholder: {self.placeholder}
    env: GITHUB_TOKEN
    source: {{file: {self.path('real')}}}
{e['credentials']}
refuse_at: {e['refuse_at']}
{e['tail']}
"""

    # --- the server
    def files(self):
        """What `outgate serve` needs, without starting it."""
        with open(self.path("outgate.yaml"), "w") as f:
            f.write(self.config())
        if not os.path.exists(self.path("state")):
            r = self.run("init", self.path("fresh"))
            if r.returncode:
                raise RuntimeError("outgate init: " + r.stderr.decode(errors="replace").strip()[-400:])
            os.rename(self.path("fresh", "state"), self.path("state"))  # moved, not copied: files may belong to other users

    def start(self):
        self.files()
        log = open(self.path("serve.log"), "ab")
        at = log.tell()
        self.proc = subprocess.Popen([EXE, "serve", "-c", self.path("outgate.yaml")], stdout=log, stderr=log, env=self.env, start_new_session=True)
        log.close()
        end = time.monotonic() + 15
        while b"outgate: ready" not in self.log_bytes()[at:]:
            if self.proc.poll() is not None:
                raise RuntimeError("outgate serve ended: " + self.log_bytes()[at:].decode(errors="replace")[-800:])
            if time.monotonic() > end:
                raise RuntimeError("outgate serve is not ready: " + self.log_bytes()[at:].decode(errors="replace")[-800:])
            time.sleep(0.02)
        r = self.run("ca", "export", "-c", self.path("outgate.yaml"))
        if b"BEGIN CERTIFICATE" not in r.stdout:
            raise RuntimeError("outgate ca export: " + r.stderr.decode(errors="replace"))
        with open(self.path("outgate-ca.pem"), "wb") as f:
            f.write(r.stdout)
        return self

    def run(self, *args, timeout=20, text=None):
        return subprocess.run([EXE, *args], capture_output=True, timeout=timeout, input=text, cwd=self.dir)

    def log_bytes(self):
        try:
            with open(self.path("serve.log"), "rb") as f:
                return f.read()
        except FileNotFoundError:
            return b""

    def stop(self):
        """TERM to our own server by its pid, KILL to its session when it does not end. The exit status."""
        if not self.proc:
            return None
        proc, self.proc = self.proc, None
        if proc.poll() is None:
            proc.terminate()
            try:
                proc.wait(5)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(OSError):
                    proc.terminate()  # the second one ends now
                try:
                    proc.wait(5)
                except subprocess.TimeoutExpired:
                    with contextlib.suppress(OSError):
                        os.killpg(proc.pid, signal.SIGKILL)
                    proc.wait(5)
        return proc.returncode

    def close(self, check=True):
        try:
            self.stop()
            if check:
                leaked = self.leaks()
                assert not leaked, f"real values leaked: {leaked}"
                broken = [x for x in self.log_bytes().splitlines() if b"broken invariant" in x or b"ERROR: AddressSanitizer" in x]
                assert not broken, f"a role broke: {broken[:3]}"
        finally:
            for o in self.origins.values():
                o.close()
            if os.environ.get("OUTGATE_LAB_KEEP"):
                print("kept", self.dir, file=sys.stderr)
            else:
                shutil.rmtree(self.dir, ignore_errors=True)

    def workers_pids(self):
        r = self.run("status", "--json", "-c", self.path("outgate.yaml"))
        roles = json.loads(r.stdout)["roles"]
        return [x["pid"] for x in roles if x["name"].startswith("worker")]

    def worker_rss_kib(self):
        total = 0
        for pid in self.workers_pids():
            with open(f"/proc/{pid}/status") as f:
                total += int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))
        return total

    # --- what it wrote
    def events(self, *types):
        out = []
        folder = self.path("state", "audit")
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            if name.endswith(".jsonl"):
                with open(os.path.join(folder, name), "rb") as f:
                    for line in f.read().split(b"\n")[:-1]:
                        e = json.loads(line)
                        if not types or e.get("type") in types:
                            out.append(e)
        return out

    def event(self, wanted, types=("close",), after=0, timeout=WAIT):
        """The first event past `after` (a count from mark()) for which wanted(e) holds; waits for it."""
        end = time.monotonic() + timeout
        while True:
            for e in self.events()[after:]:
                if e["type"] in types and wanted(e):
                    return e
            if time.monotonic() > end:
                tail = [{k: v for k, v in e.items() if k in ("type", "host", "code", "end", "path", "sni", "class", "status")}
                        for e in self.events()[after:]][-12:]
                raise AssertionError(f"no such event; the last ones: {tail}")
            time.sleep(0.02)

    def mark(self):
        return len(self.events())

    def leaks(self, *also):
        """Where a real value stands, in any of its shapes: every file the server wrote, its output, and the blobs given or kept."""
        bad = []
        for root in ("state", "run"):
            for folder, _, files in os.walk(self.path(root)):
                for name in files:
                    p = os.path.join(folder, name)
                    if not os.path.isfile(p):
                        continue
                    with open(p, "rb") as f:
                        bad += [f"{p}: {x}" for x in leaks_in(f.read(), self.secrets)]
        bad += [f"serve.log: {x}" for x in leaks_in(self.log_bytes(), self.secrets)]
        for i, blob in enumerate([*self.blobs, *also]):
            bad += [f"blob {i}: {x}" for x in leaks_in(blob, self.secrets)]
        return bad

    # --- clients
    def client(self, name="open.test", port=None, **kw):
        return Client(self, f"{name}:{port or self.tls_port}", **kw)

    def proxy(self, **kw):
        """A connection to the proxy itself."""
        return Client(self, None, **kw)

    def get(self, name="open.test", target="/", method="GET", headers=(), body=None, **kw):
        """One request on its own connection through CONNECT and TLS."""
        c = self.client(name, **kw)
        try:
            return c.ask(method, target, headers, body)
        finally:
            self.blobs.append(bytes(c.received))
            c.close()

    def bearer(self, placeholder=None):
        return ("Authorization", f"Bearer {placeholder or self.placeholder}")

    def fresh(self, *origins):
        """Origins as new, for a test that shares the lab."""
        for o in origins or self.origins.values():
            o.reset()


# ---------------------------------------------------------------- running


def kill(pid, sig=signal.SIGKILL):
    """os.kill for a process that runs: a role that is down has pid 0, which would be the tests' own group."""
    assert pid > 1, f"no process to signal: pid {pid}"
    os.kill(pid, sig)


def kill_group(proc):
    """KILL to a server and all of its roles, and waits until none of them is left: a role dies a little after its supervisor."""
    os.killpg(proc.pid, signal.SIGKILL)
    proc.wait()
    group_gone(proc)


def group_gone(proc):
    def gone():
        try:
            os.killpg(proc.pid, 0)
        except ProcessLookupError:
            return True
        return False

    wait_for(gone, "the end of every role")


def wait_for(holds, what="that", timeout=WAIT):
    end = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < end, f"{what() if callable(what) else what} did not happen within {timeout} s"
        time.sleep(0.01)


class _Timeout(Exception):
    pass


def _alarm(_signal, _frame):
    raise _Timeout


def run_module(module, only="", timeout=0):
    """Runs test_* of a module in the order written, one shared lab unless a test takes none. (passed, failed, skipped)"""
    timeout = timeout or int(os.environ.get("OUTGATE_TEST_TIMEOUT", "60"))
    tests = [(n, f) for n, f in vars(module).items() if n.startswith("test_") and callable(f) and only in n]
    counts, lab = [0, 0, 0], None
    signal.signal(signal.SIGALRM, _alarm)
    for name, test in tests:
        label = f"{module.__name__}.{name[5:]}"
        start = time.monotonic()
        try:
            signal.alarm(timeout)
            if test.__code__.co_argcount:
                if lab and lab.proc and lab.proc.poll() is not None:
                    raise AssertionError("the server is gone: " + lab.log_bytes().decode(errors="replace")[-400:])
                lab = lab or getattr(module, "make_lab", Lab)()
                lab.fresh()
                test(lab)
            else:
                test()
            signal.alarm(0)
            counts[0] += 1
            print(f"ok    {label} ({time.monotonic() - start:.2f} s)", flush=True)
        except Skip as e:
            signal.alarm(0)
            counts[2] += 1
            print(f"skip  {label}: {e}", flush=True)
        except (Exception, SystemExit) as e:
            signal.alarm(0)
            counts[1] += 1
            why = "took too long" if isinstance(e, _Timeout) else f"{type(e).__name__}: {e}"
            frames = [f for f in traceback.extract_tb(e.__traceback__) if os.path.basename(f.filename).startswith("test_")]
            where = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}: {frames[-1].line}" if frames else ""
            print(f"FAIL  {label}: {why[:600]}\n      {where}", flush=True)
            if lab and lab.proc and lab.proc.poll() is not None:
                print("      the server ended: " + lab.log_bytes().decode(errors="replace")[-400:], flush=True)
                lab.close(check=False)
                lab = None
            if isinstance(e, SystemExit):
                break
    if lab:
        try:
            lab.close()
        except AssertionError as e:
            counts[1] += 1
            print(f"FAIL  {module.__name__}: {e}", flush=True)
    return counts


def main():
    """For `python3 tests/system/test_x.py [PART OF A TEST'S NAME]`."""
    module = sys.modules["__main__"]
    module.__name__ = os.path.splitext(os.path.basename(sys.argv[0]))[0]
    p, f, s = run_module(module, sys.argv[1] if len(sys.argv) > 1 else "")
    print(f"{p} passed, {f} failed, {s} skipped")
    sys.exit(1 if f else 0)
