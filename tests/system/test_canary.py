#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The canary: much traffic of many kinds, then every output there is, searched for the real values in every shape. ARCHITECTURE: promise 2;
THREATS: the leak oracle, L2-L4, M5, M13. With controls: the search finds a value that is planted, and one that leaks by permission."""
import base64
import glob
import json
import os
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import time

import faults as F
import h2_frames as H
import h2_origin as O
import lab as L
import test_h2_websocket as HW
import test_websocket as W
from faults import Sidecar, stamp
from lab import wait_for

ENV_VALUE = L.secret_value("canary env")
EXEC_VALUE = L.secret_value("canary exec")
WS_VALUE = L.secret_value("canary websocket")
TOKEN = "canary-token-0123456789abcdef0123"
CREDENTIALS = """  - {name: by-env, agents: [coder], hosts: [env.test], ports: [PORT], slots: ["header:x-key"], env: BY_ENV, source: {env: LAB_CANARY}}
  - {name: by-exec, agents: [coder], hosts: [exec.test], ports: [PORT], slots: ["header:authorization"], env: BY_EXEC, source: {exec: [EXECPATH]}}
  - {name: by-side, agents: [coder], hosts: [side.test], ports: [PORT], slots: ["header:authorization", "basic:password"], env: BY_SIDE, source: {sidecar: local}}
  - {name: lying, agents: [coder], hosts: [lie.test], ports: [PORT], slots: ["header:authorization"], env: LYING, source: {sidecar: local}}
  - {name: denying, agents: [coder], hosts: [no.test], ports: [PORT], slots: ["header:authorization"], env: DENYING, source: {sidecar: local}}
  - {name: by-ws, agents: [coder], hosts: [ws.test], ports: [PORT], slots: [websocket, "header:authorization"], env: BY_WS, source: {env: LAB_WS}}
  - {name: others, agents: [logged], hosts: [api.test], ports: [PORT], slots: ["header:x-other"], env: OTHERS, source: {file: REAL2}}"""
SOURCES = {"LAB_CANARY": ENV_VALUE, "LAB_WS": WS_VALUE}
AGENTS = """  - {name: coder, identify: [{source: 127.0.0.1/32}]}
  - {name: logged, identify: [{source: 127.0.0.8/32}, {login: {user: logged, token_file: logged.token}}]}
"""
HELPER = """#!/bin/sh
read -r question
id=${question#*\\"request_id\\":\\"}
id=${id%%\\"*}
echo "minting VALUE" >&2
printf '{"request_id":"%s","lease_id":"exec-1","value":"VALUE","expires_at":"EXPIRES"}' "$id"
"""


class Watched(L.Client):
    """A client whose bytes are kept, also when the connection is refused."""

    all = []

    def __init__(self, *a, **k):
        Watched.all.append(self)
        super().__init__(*a, **k)


def canary_lab():
    names = ["env.test", "exec.test", "side.test", "lie.test", "no.test"]
    lab = L.Lab(hosts={n: "127.0.0.2" for n in names} | {"meta.test": "169.254.169.254", "ws.test": "127.0.0.6", "raw.test": "127.0.0.7"}, workers=2, agents=AGENTS,
                rules="""  - {name: more, hosts: [env.test, exec.test, side.test, lie.test, no.test, meta.test, ws.test], ports: [PORT], action: allow}
  - {name: unread, hosts: [raw.test], ports: [PORT], action: tunnel}
  - {name: clear, hosts: [raw.test], ports: [PLAINPORT], action: tunnel, tls: none}""",
                credentials=CREDENTIALS, start=False, env=SOURCES)
    lab.ws, lab.raw, lab.clear = lab.origin("ws.test"), lab.origin("raw.test"), lab.origin("raw.test", tls=False)
    lab.extra["credentials"] = lab.extra["credentials"].replace("EXECPATH", lab.path("helper"))
    lab.extra["tail"] = f"sidecars:\n  - {{name: local, socket: {lab.path('mint.sock')}, timeout: 700ms}}\nlimits: {{body_bytes: 100000, head_bytes: 8192}}\n"
    lab.secrets += [ENV_VALUE, EXEC_VALUE, WS_VALUE]
    with open(lab.path("helper"), "w") as f:
        f.write(HELPER.replace("VALUE", EXEC_VALUE).replace("EXPIRES", stamp(600)))
    os.chmod(lab.path("helper"), 0o755)
    with open(lab.path("logged.token"), "w") as f:
        f.write(TOKEN)
    os.chmod(lab.path("logged.token"), 0o600)
    lab.side = Sidecar(lab)
    os.chmod(lab.side.path, 0o666)
    lab.side.act["lying"] = lambda q, n: {"value": lab.side.value("lying", n) + "\r\nX: 1"}
    lab.side.act["denying"] = lambda q, n: (403, [("X-Why", lab.side.value("denying", n))], json.dumps({"error": lab.side.value("denying", n)}))
    lab.patched()
    lab.outputs = {}
    return lab


# ---------------------------------------------------------------- traffic


def run(lab, *args, code=0):
    r = lab.run(*args, "-c", lab.path("outgate.yaml"))
    lab.outputs[f"command {len(lab.outputs)}: {' '.join(args)}"] = r.stdout + b"\n" + r.stderr
    assert code is None or r.returncode == code, (args, r.returncode, r.stderr)
    return r.stdout.decode()


def get(lab, name, target="/", method="GET", headers=(), body=None, host=None, **kw):
    """Status and code, or None where the connection ended."""
    try:
        c = lab.client(name, **kw)
        m = c.ask(method, target, headers, body, host)
        c.close()
        return m.status, m.code
    except L.Refused as e:
        return e.message.status, e.message.code
    except (L.Closed, ssl.SSLError, ValueError, TimeoutError):
        return None, None


def basic(user, password):
    return ("Authorization", "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())


def swaps(lab, of):
    for scheme in ("Bearer ", "token ", "bearer ", ""):
        assert get(lab, "api.test", "/swap", headers=[("Authorization", scheme + lab.placeholder)])[0] == 200
    for user in ("", "x", "xx"):
        assert get(lab, "git.test", "/basic", headers=[basic(user, lab.placeholder)])[0] == 200
        assert get(lab, "side.test", "/basic", headers=[basic(user, of["BY_SIDE"])])[0] == 200
    assert get(lab, "env.test", "/x", headers=[("X-Key", of["BY_ENV"])])[0] == 200
    assert get(lab, "exec.test", "/x", headers=[("Authorization", "Bearer " + of["BY_EXEC"])])[0] == 200
    assert get(lab, "side.test", "/x", headers=[("Authorization", "Bearer " + of["BY_SIDE"])])[0] == 200
    assert get(lab, "api.test", "/body", "POST", [lab.bearer()], f"quoting {lab.placeholder}".encode())[0] == 200
    seen = [v for m in lab.api.requests for k, v in m.headers if k.lower() in ("authorization", "x-key")]
    for real in (lab.real, ENV_VALUE, EXEC_VALUE, lab.side.value("by-side", lab.side.count("by-side"))):
        assert any(real in v for v in seen), "the control: the real values did reach the origin"
    login = [("Proxy-Authorization", "Basic " + base64.b64encode(f"logged:{TOKEN}".encode()).decode())]
    c = lab.client("api.test", source="127.0.0.8", headers=login)
    assert c.ask(headers=[("X-Other", lab.of_logged["OTHERS"])]).status == 200
    assert any(lab.real2 in v for v in lab.api.last.all("x-other"))
    c.close()
    for token in (TOKEN + "x", lab.real, lab.placeholder):
        wrong = [("Proxy-Authorization", "Basic " + base64.b64encode(f"logged:{token}".encode()).decode())]
        try:
            lab.client("api.test", source="127.0.0.8", headers=wrong)
            assert False, "a wrong token was taken"
        except L.Refused as e:
            assert e.message.code == "unknown_agent", e


def keep(lab, what, *parts):
    """What a client makes of bytes in which a value could not be found as they are: header blocks, inflated messages."""
    lab.outputs[what] = b"\n".join([lab.outputs.get(what, b""), *(x if isinstance(x, bytes) else repr(x).encode() for x in parts)])


def keep_streams(lab, c):
    for s in c.streams.values():
        keep(lab, "HTTP/2 as its client reads it", *(k + b": " + v for k, v in (*s.fields, *(s.trailers or ()))), bytes(s.body))
    c.close()


def http2(lab, of):
    """Both sides, one by one and together: swapped, echoed in every place, refused, and broken off."""
    real, login = lab.real.encode(), ("authorization", "Bearer " + lab.placeholder)

    def everywhere(peer):
        n = 0
        while True:
            s = peer.whole(n, timeout=60)
            n += 1
            peer.answer(s, O.seen(s) + real + base64.b64encode(b"ab" + real) + real.hex().encode(), fields=[("x-echo", real.decode()), ("x-" + real.hex(), "1")],
                        trailers=[("x-trailer", real.decode())])

    def broken(peer):
        s = peer.whole(0, timeout=60)
        peer.send(peer.fields(s, 200, [("X-Bad", real.decode())]) or b"")

    def gone(peer):
        s = peer.whole(0, timeout=60)
        peer.send(H.goaway(0, H.NO_ERROR, real) + H.rst(s.number))

    for serve in (None, everywhere, gone):
        if serve:
            O.speak(lab.api, serve)
        c = H.connect(lab, "api.test")
        numbers = [c.request("POST", "/h2", [login], body=b"quoting " + lab.placeholder.encode()) for _ in range(3)]
        for n in numbers:
            assert c.wait(n).status == (200 if serve is not gone else 502), (serve, c.stream(n))
        wrong = [([("x-other", lab.placeholder)], "placeholder_wrong_slot"), ([("authorization", "Bearer " + lab.real)], "exfiltration"), ([("cookie", "a=" + lab.real)], "exfiltration")]
        for fields, code in wrong:
            s = c.ask(path="/h2", more=fields)
            assert s.code == code, (fields, s)
        c.request(path="/h2?" + lab.real, more=[("Upper", lab.real)])  # malformed
        c.request(fields=[(":method", lab.real), (":scheme", "https"), (":path", "/" + lab.real)])
        c.send(H.ping())
        c.ending(2) if c.gone else None
        keep_streams(lab, c)
        seen = [m.get("authorization") for m in lab.api.requests] if not serve else [dict(s.fields).get(b"authorization", b"").decode() for x in lab.api.peers for s in x.streams.values()]
        assert "Bearer " + lab.real in seen, "the control: the real value did reach the origin"
    lab.api.ctx = lab.origin_context(lab.api)
    lab.fresh()


def websocket(lab, of):
    p = of["BY_WS"]
    texts = (p, json.dumps({"token": p}), f"Bearer {p} and more")
    for how in ("HTTP/1.1", "deflate", "HTTP/2"):
        extra = W.PMD_ALONE if how == "deflate" else ""
        lab.ws.reset(W.echoes(extra, ahead=W.frame(f"welcome {WS_VALUE}" if how != "deflate" else "welcome", masked=False)))
        if how == "HTTP/2":
            c = HW.opened(lab, "ws.test", more=[("authorization", "Bearer " + p)])
        else:
            c = W.opened(lab, "ws.test", extra=[("Authorization", "Bearer " + p)] + ([W.PMD] if extra else []))
        assert lab.ws.last.get("authorization") == "Bearer " + WS_VALUE
        assert W.read_frame(c).payload == (b"welcome " + p.encode() if not extra else b"welcome"), how
        for text in texts:
            c.send(W.frame(W.deflated(text), rsv1=True) if extra else W.frame(text))
            f = W.read_frame(c)
            back = W.inflated(f.payload) if f.rsv1 else f.payload
            keep(lab, "messages of WebSockets", back)
            assert back == text.encode(), (how, back)
            last = lab.ws.frames[-1]
            assert WS_VALUE.encode() in (W.inflated(last.payload) if last.rsv1 else last.payload), "the control: the real value did reach the host"
        c.send(W.frame("a" + WS_VALUE))
        f = W.read_frame(c)
        assert f.op == W.CLOSE and f.reason == "exfiltration", f
        keep(lab, "messages of WebSockets", f.payload)
    for ahead in (W.frame(struct.pack(">H", 1000) + WS_VALUE.encode(), W.CLOSE, masked=False), W.frame(WS_VALUE, W.PING, masked=False), b"\x8f" + WS_VALUE.encode(),
                  W.frame(WS_VALUE, masked=False)[:20]):
        lab.ws.reset(lambda conn, origin: W.switch(conn, origin, ahead=ahead))
        c = W.opened(lab, "ws.test")
        keep(lab, "messages of WebSockets", c.rest()[0])
        c.close()


def tunnels(lab, of):
    """Nothing is swapped in them; in clear text nothing real goes through, either way."""
    c = lab.client("raw.test", tls=False)
    c.start_tls(ssl.create_default_context(cafile=lab.path("ca.pem")), name="raw.test")
    assert c.ask(headers=[lab.bearer()]).status == 200 and lab.raw.last.get("authorization") == "Bearer " + lab.placeholder
    c.close()
    lab.clear.reset(lambda conn, origin: (conn.until(b"\n"), conn.send(b"it is " + lab.real.encode())))
    for said in (b"a placeholder " + lab.placeholder.encode() + b"\n", b"x" + lab.real.encode() + b"\n"):
        mark = lab.mark()
        c = lab.client("raw.test", lab.http_port, tls=False)
        with L.contextlib.suppress(OSError, L.Closed):
            c.send(said)
            c.rest()
        c.close()
        e = lab.event(lambda e: e.get("host") == "raw.test" and e["port"] == lab.http_port, ("close",), mark)
        assert e["end"] == "exfiltration", e
    for name in (lab.real, lab.placeholder):
        c = lab.client("raw.test", tls=False)
        c.send(hello(name))
        keep(lab, "refused tunnels", c.rest()[0])
        c.close()
    lab.event(lambda e: e.get("host") == "raw.test" and e["end"] == "sni_mismatch", ("conn",))


def hello(name):
    """A ClientHello by hand, for names that no library would send."""
    sni = struct.pack(">HBH", len(name) + 3, 0, len(name)) + name.encode()
    body = b"\x03\x03" + bytes(32) + b"\0\0\x02\x13\x01\x01\0" + struct.pack(">HHH", len(sni) + 4, 0, len(sni)) + sni
    return b"\x16\x03\x01" + struct.pack(">HBBH", len(body) + 4, 1, 0, len(body)) + body


def socks(lab, of):
    def ask(host, port, user=None, password=None):
        c = lab.proxy()
        c.send(b"\x05\x01" + (b"\x02" if user else b"\x00"))
        if c.exactly(2)[1] == 2:
            c.send(b"\x01" + bytes([len(user)]) + user.encode() + bytes([len(password)]) + password.encode())
            if c.exactly(2)[1]:
                return c, 255
        c.send(b"\x05\x01\x00\x03" + bytes([len(host)]) + host.encode() + struct.pack(">H", port))
        return c, c.exactly(10)[1]

    c, said = ask("api.test", lab.tls_port)
    assert said == 0
    c.start_tls(lab.client_context(), name="api.test")
    c.name, c.to_port = "api.test", str(lab.tls_port)
    for headers, code in (([lab.bearer()], None), ([("X-Wrong", lab.placeholder)], "placeholder_wrong_slot"), ([("Authorization", "Bearer " + lab.real)], "exfiltration")):
        m = c.ask(target="/socks", headers=headers)
        assert m.code == code and m.status == (403 if code else 200), m
    assert lab.api.requests[-1].target == "/socks" and "Bearer " + lab.real in lab.api.requests[-1].all("authorization"), "the control"
    c.close()
    for host, *login in ((lab.real, ), (lab.real + ".evil.test", ), ("api.test", lab.real, lab.real), ("api.test", "coder", lab.placeholder)):
        with L.contextlib.suppress(OSError, L.Closed):
            c, said = ask(host, lab.tls_port + 1, *login)
            assert said, (host, login)
            c.close()


def ca_stores(lab):
    """As an operator runs it: with the sources in the environment."""
    if not shutil.which("certutil"):
        return
    os.makedirs(lab.path("home"), exist_ok=True)
    for verb in ("install", "install", "uninstall", "install"):
        r = subprocess.run([L.EXE, "ca", verb, "-c", lab.path("outgate.yaml"), "--store", "nss"], capture_output=True, timeout=50,
                           env={**os.environ, **SOURCES, "HOME": lab.path("home")})
        assert r.returncode == 0, r.stderr
        lab.outputs[f"command {len(lab.outputs)}: ca {verb}"] = r.stdout + b"\n" + r.stderr
    assert os.path.exists(lab.path("home", ".pki", "nssdb", "cert9.db"))  # and is looked through with the lab's other files


def protocols(lab, of):
    http2(lab, of)
    websocket(lab, of)
    tunnels(lab, of)
    socks(lab, of)
    ca_stores(lab)


def echoes(lab):
    real = lab.real.encode()
    chunks = lambda text, n: b"".join(b"%x\r\n%s\r\n" % (len(text[i : i + n]), text[i : i + n]) for i in range(0, len(text), n))
    shapes = [real, base64.b64encode(b"u:" + real), base64.b64encode(b"uu:" + real), base64.urlsafe_b64encode(b"x" + real), real.hex().encode(),
              real.hex().upper().encode(), b"".join(b"%%%02X" % b for b in real), json.dumps({"a": lab.real}).encode()]
    head = b"HTTP/1.1 200 OK\r\n"
    answers = []
    for s in shapes:
        answers += [head + b"Content-Length: %d\r\n\r\n" % len(s) + s, head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks(s, 5) + b"0\r\n\r\n"]
        answers += [head + b"X-Echo: " + s + b"\r\nLocation: https://x.test/?t=" + s + b"\r\nContent-Length: 0\r\n\r\n"]
        answers += [head + b"Transfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n0\r\nX-T: " + s + b"\r\n\r\n"]
    answers += [b"HTTP/1.1 418 " + real + b"\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 103 Early\r\nLink: <" + real + b">\r\n\r\n" + head + b"Content-Length: 0\r\n\r\n",
                head + real + b": x\r\nContent-Length: 0\r\n\r\n", head + b"X-A: " + real + b"\x01\r\nContent-Length: 0\r\n\r\n",
                b"HTTP/9.9 200 " + real + b"\r\n\r\n", real + b"\r\n\r\n", head + b"Content-Length: 1\r\nContent-Length: 2\r\nX: " + real + b"\r\n\r\n",
                head + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd", head + b"Transfer-Encoding: chunked\r\n\r\n" + real + b"\r\n",
                head + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab" + real, head + b"Content-Length: 500\r\n\r\n" + real[:20],
                b"HTTP/1.1 500 Oops\r\nConnection: close\r\n\r\n<pre>" + real + b"</pre>", b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n" + real]
    for a in answers:
        lab.api.reset(L.say(a))
        get(lab, "api.test", "/echo", headers=[lab.bearer()])
        get(lab, "git.test", "/echo-unswapped")
    for cut in range(1, len(real), 7):
        lab.api.reset(L.say(head + b"Content-Length: %d\r\n\r\n" % len(real) + real[:cut], 0.01, real[cut:]))
        get(lab, "api.test", "/cut", headers=[lab.bearer()])
    lab.fresh()


def refusals(lab, of):
    p, real = lab.placeholder, lab.real
    wanted = {
        ("evil.test", "host_denied"): {}, ("deny.test", "host_denied"): {}, ("ask.test", "approval_required"): {},
        ("narrow.test", "path_denied"): dict(target="/x?t=" + p), ("narrow.test", "method_denied"): dict(target="/ok/x", method="PUT"),
        ("open.test", "placeholder_wrong_host"): dict(headers=[("Authorization", "Bearer " + p)]),
        ("api.test", "placeholder_wrong_slot"): dict(headers=[("Cookie", "t=" + p)]),
        ("api.test ", "placeholder_wrong_slot"): dict(target="/?t=" + p), ("api.test  ", "placeholder_wrong_slot"): dict(headers=[basic(p, "x")]),
        ("api.test", "unknown_placeholder"): dict(headers=[("X-Other", lab.of_logged["OTHERS"])]),
        ("api.test", "exfiltration"): dict(headers=[("Authorization", "Bearer " + real)]), ("api.test ", "exfiltration"): dict(target="/?q=" + real),
        ("api.test  ", "exfiltration"): dict(headers=[("X-" + real, "1")]), ("api.test   ", "exfiltration"): dict(method=real),
        ("open.test ", "exfiltration"): dict(target="/" + real), ("meta.test", "address_denied"): {},
        ("api.test", "bad_request"): dict(target="/a/../b?" + p), ("api.test ", "bad_request"): dict(method="TRACE", headers=[lab.bearer()]),
        ("api.test", "misdirected"): dict(headers=[lab.bearer()], host="open.test"), ("api.test", "too_large"): dict(method="POST", body=b"x" * 100001, headers=[lab.bearer()]),
        ("api.test", "head_too_large"): dict(headers=[lab.bearer(), ("X", "x" * 9000)]),
        ("lie.test", "credential_unavailable"): dict(headers=[("Authorization", "Bearer " + of["LYING"])]),
        ("no.test", "credential_denied"): dict(headers=[("Authorization", "Bearer " + of["DENYING"])]),
    }
    got = set()
    for (name, code), kw in wanted.items():
        got.add(get(lab, name.strip(), **kw)[1])
    return {code for _, code in wanted} - got


def bad_requests(lab):
    p, real = lab.placeholder.encode(), lab.real.encode()
    for raw in (b"\x00\x01" + real, b"GET / HTTP/1.1\r\nHost: api.test\r\nX\r\n\r\n" + p, b"GET  / HTTP/1.1\r\n\r\n", real + b"\r\n\r\n", b"CONNECT " + real + b":443 HTTP/1.1\r\n\r\n",
                b"CONNECT %s.open.test:443 HTTP/1.1\r\nHost: x\r\n\r\n" % real, b"GET http://%s/ HTTP/1.1\r\n\r\n" % p, b"GET http://u:%s@plain.test/ HTTP/1.1\r\nHost: plain.test\r\n\r\n" % real,
                b"\x05\x01\x00", b"\x16\x03\x01\x00\x05hello", b"POST http://plain.test:%d/ HTTP/1.1\r\nHost: plain.test:%d\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" % (lab.http_port, lab.http_port) + real):
        c = lab.proxy(timeout=2)
        with L.contextlib.suppress(OSError, L.Closed):
            c.send(raw)
            c.half_close()
            c.rest()
        c.close()
    for raw in (b"GET / HTTP/1.1\r\nHost: api.test\r\nHost: b\r\nAuthorization: Bearer %s\r\n\r\n" % real, b"GET / HTTP/1.1\r\nAuthorization: Bearer %s\r\nA b: c\r\n\r\n" % p,
                b"POST / HTTP/1.1\r\nHost: api.test:%d\r\nTransfer-Encoding: chunked\r\n\r\n%s\r\n" % (lab.tls_port, real)):
        c = lab.client("api.test", timeout=2)
        with L.contextlib.suppress(OSError, L.Closed, ssl.SSLError):
            c.send(raw)
            c.half_close()
            c.rest()
        c.close()
    for kw in (dict(sni="open.test"), dict(sni=lab.placeholder.replace("_", "-") + ".test")):
        with L.contextlib.suppress(ssl.SSLError, OSError, L.Closed, L.Refused):
            lab.client("api.test", **kw)
    c = lab.client("api.test", tls=False)
    with L.contextlib.suppress(ssl.SSLError, OSError, L.Closed):  # a client that does not trust the CA
        c.start_tls(ssl.create_default_context(), name="api.test")
    # a real value in a body is cut before it leaves
    c = lab.client("api.test", timeout=3)
    with L.contextlib.suppress(OSError, L.Closed, ssl.SSLError):
        c.send(b"POST / HTTP/1.1\r\nHost: api.test:%d\r\nContent-Length: %d\r\n\r\n%s" % (lab.tls_port, len(real), real))
        L.read_response(c)


def origins_that_fail(lab):
    assert get(lab, "down.test")[1] == "origin_connect"
    stranger = L.Origin(lab, lab.hosts["badcert.test"], lab.tls_port)
    stranger.ctx = lab.origin_context(stranger, "stranger")
    assert get(lab, "badcert.test")[1] == "origin_tls"
    stranger.close()
    lab.api.reset(lambda conn, origin: (L.read_request(conn), conn.reset()))
    get(lab, "api.test", headers=[lab.bearer()])
    lab.fresh()


def commands(lab, of):
    run(lab, "status")
    run(lab, "status", "--json")
    listed = run(lab, "lease", "list")
    assert "github" in listed and "by-side" in listed, listed
    run(lab, "lease", "list", "--json")
    run(lab, "check")
    for fmt in ("sh", "docker", "json"):
        run(lab, "env", "--agent", "coder", "--format", fmt)
    for host, headers in (("api.test", [lab.bearer()]), ("open.test", [lab.bearer()]), ("side.test", [("Authorization", "Bearer " + of["BY_SIDE"])])):
        args = [x for k, v in headers for x in ("-H", f"{k}: {v}")]
        run(lab, "explain", "--agent", "coder", "GET", f"https://{host}:{lab.tls_port}/x", *args, code=None)
        run(lab, "explain", "--agent", "coder", "GET", f"https://{host}:{lab.tls_port}/x", *args, "--json", code=None)
    r = lab.run("placeholder", "--like", "github")
    lab.outputs["command placeholder"] = r.stdout + r.stderr
    run(lab, "ca", "show")
    run(lab, "ca", "export")
    run(lab, "audit", "tail", "-n", "100000")
    run(lab, "audit", "tail", "-n", "100000", "--json")
    run(lab, "audit", "verify")
    run(lab, "lease", "revoke", "--credential", "github")
    run(lab, "lease", "revoke", "nobody", code=1)
    text = lab.config()
    F.write(lab, text.replace("version: 1", "version: one"))
    run(lab, "check", code=1)
    run(lab, "reload", code=1)
    F.write(lab, text)
    run(lab, "reload")


def deaths(lab):
    """Each role ends by a fault of its own while leases live: no core, no trace."""
    for sig in (signal.SIGABRT, signal.SIGKILL):
        for name in F.ROLE_NAMES:
            F.must_work(lab, "a request before")
            F.kill(F.pid_of(lab, name), sig)
            F.must_work(lab, f"a request after {name} died", 20)


# ---------------------------------------------------------------- what came out


def outputs(lab):
    """name -> bytes of everything that anybody may see."""
    out = dict(lab.outputs)
    out["bytes to clients"] = b"\n".join(bytes(c.received) for c in Watched.all)
    out["output of serve"] = lab.log_bytes()
    sources = {lab.path(n) for n in ("real", "real2", "helper", "logged.token")}
    for root, _, files in os.walk(lab.dir):
        for name in files:
            p = os.path.join(root, name)
            if p not in sources and os.path.isfile(p):
                with open(p, "rb") as f:
                    out["file " + os.path.relpath(p, lab.dir)] = f.read()
    for p in glob.glob(os.path.join(lab.dir, "**", "core*"), recursive=True) + glob.glob("/core*"):
        out["core " + p] = b"" if os.path.isdir(p) else open(p, "rb").read()
    pids = {"supervisor": lab.proc.pid} | {f"{k[0]} {k[1]}": r["pid"] for k, r in F.roles(lab).items()}
    for name, pid in pids.items():
        for what in ("cmdline", "environ", "comm", "status"):
            try:
                with open(f"/proc/{pid}/{what}", "rb") as f:
                    out[f"{what} of {name}"] = f.read()
            except PermissionError:
                pass
    return out


def found(out, secrets):
    return {f"{name}: {x}" for name, blob in out.items() for x in L.leaks_in(blob, secrets)}


def test_canary():
    plain_client, L.Client = L.Client, Watched
    Watched.all.clear()
    lab = canary_lab()
    try:
        def env_of(agent):
            return json.loads(lab.run("env", "-c", lab.path("outgate.yaml"), "--agent", agent, "--format", "json").stdout)

        of, lab.of_logged = env_of("coder"), env_of("logged")
        swaps(lab, of)
        echoes(lab)
        missing = refusals(lab, of)
        assert not missing, f"refusals that did not come: {missing}"
        bad_requests(lab)
        origins_that_fail(lab)
        swaps(lab, of)
        protocols(lab, of)
        commands(lab, of)
        deaths(lab)
        swaps(lab, of)
        protocols(lab, of)
        commands(lab, of)
        out = outputs(lab)
        assert len(Watched.all) > 150 and len(out["bytes to clients"]) > 20000
        assert len(lab.secrets) >= 6
        leaked = found(out, lab.secrets)
        assert not leaked, sorted(leaked)[:5]
        the_log(lab, out, of)
        controls(lab, out)
    finally:
        L.Client = plain_client
        lab.side.stop()
        lab.close()


def the_log(lab, out, of):
    """Placeholders and logins never stand in the log, nor in what serve says."""
    words = [lab.placeholder, *(of[k] for k in ("BY_ENV", "BY_EXEC", "BY_SIDE", "LYING", "DENYING")), lab.of_logged["OTHERS"], TOKEN,
             base64.b64encode(f"logged:{TOKEN}".encode()).decode().rstrip("=")]
    logs = {k: v for k, v in out.items() if k.startswith(("file state/audit", "output of serve", "command")) and " env " not in k}
    assert sum(len(v) for k, v in logs.items() if k.startswith("file state/audit")) > 50000
    for name, blob in logs.items():
        for w in words:
            if "explain" in name or "placeholder" in name:
                continue
            assert w.encode() not in blob, (name, w)
    tokens = {k for k, v in out.items() if TOKEN.encode() in v and " env " not in k}
    assert not tokens, tokens
    text = b"".join(v for k, v in logs.items() if k.startswith("file state/audit"))
    assert b"[CRED:github]" in text, "the control: there were placeholders to hide"


def controls(lab, out):
    """A value that is planted is found, in each output and in each shape; and one that leaks by permission is."""
    for name in out:
        for how, needle in L.shapes(lab.real).items():
            planted = dict(out)
            planted[name] = out[name][: len(out[name]) // 2] + needle + out[name][len(out[name]) // 2 :]
            if name.startswith("file") and how not in ("raw", "hex"):
                continue
            assert L.leaks_in(planted[name], [lab.real]), (name, how)
    for place in ("run", "state", os.path.join("state", "audit")):
        p = lab.path(place, "planted")
        with open(p, "wb") as f:
            f.write(b"x" * 1000 + base64.b64encode(b"ab" + lab.real2.encode() + b"tail"))
        try:
            assert any(x.startswith("file " + os.path.join(place, "planted")) for x in found(outputs(lab), lab.secrets)), place
        finally:
            os.unlink(p)
    # No lease of this host: what it says is its own business, and reaches the client.
    lab.open.reset(L.always(L.answer(200, lab.real)))
    assert get(lab, "open.test")[0] == 200
    assert any(x.startswith("bytes to clients") for x in found(outputs(lab), lab.secrets))
    Watched.all.pop()


if __name__ == "__main__":
    L.main()
