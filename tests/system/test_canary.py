#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The canary: much traffic of many kinds, then every output there is, searched for the real values in every shape. ARCHITECTURE: promise 2;
THREATS: the leak oracle, L2-L4, M5, M13. With controls: the search finds a value that is planted, and one that leaks by permission."""
import base64
import glob
import json
import os
import signal
import socket
import ssl
import time

import faults as F
import lab as L
from faults import Sidecar, stamp
from lab import wait_for

ENV_VALUE = L.secret_value("canary env")
EXEC_VALUE = L.secret_value("canary exec")
TOKEN = "canary-token-0123456789abcdef0123"
CREDENTIALS = """  - {name: by-env, agents: [coder], hosts: [env.test], ports: [PORT], slots: ["header:x-key"], env: BY_ENV, source: {env: LAB_CANARY}}
  - {name: by-exec, agents: [coder], hosts: [exec.test], ports: [PORT], slots: ["header:authorization"], env: BY_EXEC, source: {exec: [EXECPATH]}}
  - {name: by-side, agents: [coder], hosts: [side.test], ports: [PORT], slots: ["header:authorization", "basic:password"], env: BY_SIDE, source: {sidecar: local}}
  - {name: lying, agents: [coder], hosts: [lie.test], ports: [PORT], slots: ["header:authorization"], env: LYING, source: {sidecar: local}}
  - {name: denying, agents: [coder], hosts: [no.test], ports: [PORT], slots: ["header:authorization"], env: DENYING, source: {sidecar: local}}
  - {name: others, agents: [logged], hosts: [api.test], ports: [PORT], slots: ["header:x-other"], env: OTHERS, source: {file: REAL2}}"""
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
    lab = L.Lab(hosts={n: "127.0.0.2" for n in names} | {"meta.test": "169.254.169.254"}, workers=2, agents=AGENTS,
                rules="  - {name: more, hosts: [env.test, exec.test, side.test, lie.test, no.test, meta.test], ports: [PORT], action: allow}",
                credentials=CREDENTIALS, start=False, env={"LAB_CANARY": ENV_VALUE})
    lab.extra["credentials"] = lab.extra["credentials"].replace("EXECPATH", lab.path("helper"))
    lab.extra["tail"] = f"sidecars:\n  - {{name: local, socket: {lab.path('mint.sock')}, timeout: 700ms}}\nlimits: {{body_bytes: 100000, head_bytes: 8192}}\n"
    lab.secrets += [ENV_VALUE, EXEC_VALUE]
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
        commands(lab, of)
        deaths(lab)
        swaps(lab, of)
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
