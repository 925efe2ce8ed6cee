#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A sidecar that is away, slow, says no or lies: that credential is refused, nothing leaves, nothing of what it said is shown; what is
revoked ends at once. PRODUCT: Leases and the minting protocol; THREATS: M9-M12, N9."""
import json
import os
import socket
import subprocess
import threading
import time

import faults as F
import lab as L
from faults import Sidecar, status, stamp
from lab import Skip, wait_for

LIES = {
    "no-echo": {"request_id": None},
    "other-echo": {"request_id": "01AAAAAAAAAAAAAAAAAAAAAAAA"},
    "empty-echo": {"request_id": ""},
    "crlf": lambda q, n, v: {"value": v + "\r\nX-Injected: 1"},
    "lf-at-end": lambda q, n, v: {"value": v + "\n"},
    "nul": lambda q, n, v: {"value": v + "\0"},
    "short": {"value": "short-value-15b"},
    "no-value": {"value": None},
    "number-value": {"value": 1234567890123456789},
    "past": {"expires_at": "2020-01-01T00:00:00Z"},
    "now": lambda q, n, v: {"expires_at": stamp(20)},  # within the 30 s of skew
    "no-expiry": {"expires_at": None},
    "bad-expiry": {"expires_at": "tomorrow"},
    "number-expiry": {"expires_at": 4102444800},
    "bad-id": {"lease_id": "../../etc"},
    "no-id": {"lease_id": None},
    "bad-scope": {"scope": {"hosts": "api.test"}},
    "odd-scope": {"scope": {"verbs": ["GET"]}},
    "big": lambda q, n, v: {"padding": "x" * 70000},
    "status-500": lambda q, n, v: (500, [], json.dumps({"error": v})),
    "status-302": lambda q, n, v: (302, [("Location", "http://" + v)], ""),
    "status-204": lambda q, n, v: (204, [], ""),
    "not-json": lambda q, n, v: (200, [], f"value={v}"),
    "twice": lambda q, n, v: (200, [], json.dumps({"request_id": q["request_id"], "lease_id": "x", "expires_at": stamp(600)})[:-1]
                              + f', "value": "{v}", "value": "{v}"}}'),
    "cut": lambda q, n, v: (200, [], json.dumps({"request_id": q["request_id"], "lease_id": "x", "expires_at": stamp(600), "value": v})[:-1]),
}
OTHERS = ["good", "denied", "busy", "slow", "years", "brief", "stream", "listed", "narrow", "flight", "stranger", "same"]


def host(name):
    return f"{name}.side.test"


def make_lab(workers=1, start=True):
    names = [*LIES, *OTHERS]
    lab = L.Lab(
        hosts={host(n): "127.0.0.2" for n in names},
        rules="  - {name: side, hosts: [\"*.side.test\"], ports: [PORT], action: allow}",
        credentials="\n".join(f"  - {{name: {n}, agents: [coder], hosts: [{host(n)}], ports: [PORT], slots: [\"header:authorization\"], "
                              f"env: {n.replace('-', '_').upper()}_KEY, source: {{sidecar: {'stranger' if n == 'stranger' else 'local'}}}}}" for n in names),
        start=False, workers=workers)
    lab.extra["tail"] = (f"sidecars:\n  - {{name: local, socket: {lab.path('mint.sock')}, timeout: 700ms}}\n"
                         f"  - {{name: stranger, socket: {lab.path('stranger.sock')}, timeout: 700ms, peer_uid: 12345}}\n")
    lab.side = Sidecar(lab)
    os.chmod(lab.side.path, 0o666)
    # every answer names a value, so that it is looked for in all outputs
    for name, lie in LIES.items():
        lab.side.act[name] = (lambda lie: lambda q, n: lie(q, n, lab.side.value(q["credential"], n)) if callable(lie) else lie)(lie)
    if start:
        lab.patched()
        placeholders(lab)
    return lab


def placeholders(lab):
    r = lab.run("env", "-c", lab.path("outgate.yaml"), "--agent", "coder", "--format", "json")
    env = json.loads(r.stdout)
    lab.of = {n: env[f"{n.replace('-', '_').upper()}_KEY"] for n in [*LIES, *OTHERS]}


def ask(lab, name, target="/x", **kw):
    return lab.get(host(name), target, headers=[("Authorization", f"Bearer {lab.of[name]}")], **kw)


def sent(lab, name):
    return [m for m in lab.api.requests if host(name) in (m.get("host") or "")]


def refused(lab, name, code="credential_unavailable", http=503):
    mark = lab.mark()
    m = ask(lab, name)
    assert m.status == http and m.code == code, (name, m)
    assert not sent(lab, name), f"{name}: a request left without its credential"
    e = lab.event(lambda e: e.get("credential") == name and e.get("result") == "refused", ("lease",), mark)
    return m, e


def good(lab, name):
    m = ask(lab, name)
    assert m.status == 200, (name, m)
    return sent(lab, name)[-1].get("authorization")


def wait_good(lab, name, timeout=5):
    wait_for(lambda: ask(lab, name).status == 200, f"{name} again", timeout)


# ---------------------------------------------------------------- away


def test_down_at_start():
    lab = make_lab(start=False)
    try:
        lab.side.stop()
        lab.patched()
        placeholders(lab)
        m, _ = refused(lab, "good")
        assert m.get("retry-after"), m
        assert lab.get("open.test").status == 200, "other work goes on"
        lab.side.start()
        os.chmod(lab.side.path, 0o666)
        wait_good(lab, "good")
        assert sent(lab, "good")[-1].get("authorization") == f"Bearer {lab.side.values[-1]}"
    finally:
        lab.side.stop()
        lab.close()


def test_good(lab):
    assert good(lab, "good") == f"Bearer {lab.side.value('good', 1)}"
    q = [q for q in lab.side.asked if q["credential"] == "good"][0]
    assert (q["version"], q["agent"], q["host"], q["port"], q["method"], q["path"], q["reason"]) == (
        1, "coder", host("good"), lab.tls_port, "GET", "/x", "first") and q["request_id"] and q["min_ttl_s"] > 0, q
    for _ in range(5):
        good(lab, "good")
    assert lab.side.count("good") == 1, "one lease serves many requests"


def test_away_later(lab):
    """A valid lease is used to its expiry, which is 30 s before what the sidecar said, and not longer."""
    lab.side.act["brief"] = lambda q, n: {"expires_at": stamp(34)}
    good(lab, "brief")
    start = time.monotonic()
    lab.side.stop()
    try:
        while True:
            m = ask(lab, "brief")
            at = time.monotonic() - start
            if m.status != 200:
                break
            assert at < 5, "used past its expiry"
            time.sleep(0.02)
        assert m.status == 503 and m.code == "credential_expired", m
        assert at > 2.5, f"given up after {at:.1f} s, though it was valid"
        n = len(sent(lab, "brief"))
        assert ask(lab, "brief").status == 503 and len(sent(lab, "brief")) == n
        lab.event(lambda e: e.get("credential") == "brief" and e.get("result") == "expired", ("lease",))
    finally:
        lab.side.start()
        os.chmod(lab.side.path, 0o666)
    wait_good(lab, "brief", 10)


def test_denied(lab):
    lab.side.act["denied"] = lambda q, n: (403, [], json.dumps({"error": "because of " + lab.side.value("denied", n)}))
    m, e = refused(lab, "denied", "credential_denied", 403)
    assert "because of" not in m.body.decode() and "because of" not in str(e)
    refused(lab, "denied", "credential_denied", 403)
    assert lab.side.count("denied") == 1, "a 403 is remembered"


def test_busy(lab):
    lab.side.act["busy"] = lambda q, n: (429, [("Retry-After", "2")], "{}") if n == 1 else {}
    start = time.monotonic()
    m, _ = refused(lab, "busy")
    assert m.get("retry-after") in ("1", "2"), m
    refused(lab, "busy")
    assert lab.side.count("busy") == 1, "Retry-After is honoured"
    wait_good(lab, "busy")
    assert time.monotonic() - start >= 1.9 and lab.side.count("busy") == 2


def test_slow(lab):
    lab.side.act["slow"] = lambda q, n: None
    start = time.monotonic()
    refused(lab, "slow")
    assert 0.6 < time.monotonic() - start < 2
    assert good(lab, "good"), "a slow credential holds up nobody else"


# ---------------------------------------------------------------- lies


def test_lies(lab):
    for name in LIES:
        m, e = refused(lab, name)
        assert "X-Injected" not in m.body.decode() + str(e), (name, m, e)


def test_ten_years_is_clamped(lab):
    """Ten years become max_ttl."""
    lab.side.act["years"] = lambda q, n: {"expires_at": "2099-01-01T00:00:00Z"}
    mark = lab.mark()
    good(lab, "years")
    e = lab.event(lambda e: e.get("credential") == "years" and e.get("result") == "given", ("lease",), mark)
    end = time.mktime(time.strptime(e["expires_at"][:19], "%Y-%m-%dT%H:%M:%S")) - time.timezone
    assert abs(end - time.time() - 900) < 5, e
    r = lab.run("lease", "list", "--json", "-c", lab.path("outgate.yaml"))
    listed = [x for x in json.loads(r.stdout) if x["credential"] == "years"]
    assert listed and listed[0]["expires_at"] < "2099", listed


def test_scope_that_excludes(lab):
    """One more call, then placeholder_out_of_scope; a scope that fits is used, and only where it fits."""
    lab.side.act["narrow"] = lambda q, n: {"scope": {"paths": ["/only/**"]}}
    m = ask(lab, "narrow", "/x")
    assert m.status == 403 and m.code == "placeholder_out_of_scope" and not sent(lab, "narrow"), m
    assert lab.side.count("narrow") == 2
    assert ask(lab, "narrow", "/only/x").status == 200


def test_stranger(lab):
    """Whoever listens on the socket must be who he should be: before a byte of the question goes out."""
    other = Sidecar(lab, "stranger.sock")
    os.chmod(other.path, 0o666)
    try:
        m, e = refused(lab, "stranger")
        assert not other.asked and not any(c.received for c in other.conns)
    finally:
        other.stop()


def test_single_flight():
    lab = make_lab(workers=2)
    try:
        lab.side.act["flight"] = lambda q, n: time.sleep(0.4) or {}
        out = []
        threads = [threading.Thread(target=lambda: out.append(ask(lab, "flight").status)) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert out == [200] * 8 and lab.side.count("flight") == 1, (out, lab.side.count("flight"))
    finally:
        lab.side.stop()
        lab.close()


# ---------------------------------------------------------------- withdrawn


def trickle(stop):
    """An answer without end: a chunk every 20 ms until the peer goes."""

    def handler(conn, origin):
        origin.requests.append(L.read_request(conn))
        conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not stop.is_set():
            conn.send(b"4\r\ntick\r\n")
            time.sleep(0.02)

    return handler


def revoke(lab, what, uid=None):
    """POST /v1/revoke on keeper.sock. (status, body)"""
    body = json.dumps(what)
    code = f"""import os,socket,sys
uid={uid!r}
if uid is not None: os.setgroups([]); os.setgid(uid); os.setuid(uid)
s=socket.socket(socket.AF_UNIX); s.settimeout(5); s.connect({lab.path('run', 'keeper.sock')!r})
s.sendall({f'POST /v1/revoke HTTP/1.1{chr(13)}{chr(10)}Host: x{chr(13)}{chr(10)}Content-Type: application/json{chr(13)}{chr(10)}Content-Length: {len(body)}{chr(13)}{chr(10)}{chr(13)}{chr(10)}{body}'!r}.encode())
d=b''
while True:
    x=s.recv(65536)
    if not x: break
    d+=x
sys.stdout.write(d.decode())"""
    r = subprocess.run(["python3", "-c", code], capture_output=True, timeout=20)
    assert r.returncode == 0, r.stderr
    head, _, text = r.stdout.decode().partition("\r\n\r\n")
    return int(head.split(" ")[1]), text


def streaming(lab, name):
    c = lab.client(host(name))
    c.write("GET", "/stream", [("Authorization", f"Bearer {lab.of[name]}")])
    assert L.read_head(c).status == 200
    c.until(b"tick")
    return c


def ends_within(c, seconds):
    start = time.monotonic()
    c.rest()
    assert time.monotonic() - start < seconds, f"ended after {time.monotonic() - start:.2f} s"


def withdrawn(lab, act):
    stop, mark = threading.Event(), lab.mark()
    lab.api.reset(trickle(stop))
    try:
        c = streaming(lab, "stream")
        before = lab.api.last.get("authorization")
        bystander = lab.client("open.test")
        assert bystander.ask().status == 200
        act()
        ends_within(c, 1.0)
        e = lab.event(lambda e: e.get("path") == "/stream", ("close",), mark)
        assert e["end"] == "revoked", e
        assert bystander.ask().status == 200, "others go on"
        lab.event(lambda e: e.get("credential") == "stream" and e.get("result") == "revoked", ("lease",), mark)
    finally:
        stop.set()
    lab.api.reset()
    after = good(lab, "stream")
    assert after != before and after.startswith("Bearer ghs_"), "a new lease"


def test_revoked_by_the_sidecar(lab):
    def by_credential():
        s, body = revoke(lab, {"credential": "stream"})
        assert s == 200 and json.loads(body) == {"revoked": 1}, (s, body)

    def by_id():
        s, body = revoke(lab, {"lease_id": f"stream-{lab.side.count('stream')}"})
        assert s == 200 and json.loads(body) == {"revoked": 1}, (s, body)

    withdrawn(lab, by_credential)
    withdrawn(lab, by_id)
    s, body = revoke(lab, {"lease_id": "nobody-knows-it"})
    assert s == 200 and json.loads(body) == {"revoked": 0}
    for bad in ({}, {"lease_id": "a", "credential": "b"}, {"lease_id": 7}, {"credential": ["x"]}, []):
        s, _ = revoke(lab, bad)
        assert s == 400, (bad, s)


def test_revoked_by_a_person(lab):
    def command():
        r = lab.run("lease", "list", "--json", "-c", lab.path("outgate.yaml"))
        ids = [x["lease_id"] for x in json.loads(r.stdout) if x["credential"] == "stream"]
        assert len(ids) == 1, r.stdout
        r = lab.run("lease", "revoke", ids[0], "-c", lab.path("outgate.yaml"))
        assert r.returncode == 0, r.stderr
        wait_for(lambda: ids[0] in lab.side.deleted, "DELETE at the sidecar")

    withdrawn(lab, command)
    r = lab.run("lease", "revoke", "nobody-knows-it", "-c", lab.path("outgate.yaml"))
    assert r.returncode == 1, "the answer is no"
    r = lab.run("lease", "list", "-c", lab.path("outgate.yaml"))
    assert r.returncode == 0 and b"stream" in r.stdout and not L.leaks_in(r.stdout, lab.secrets)


def test_revoked_after_the_keeper_died(lab):
    """A keeper that starts knows no lease of the one before; what workers hold of those is still withdrawn."""
    def after_death(act):
        def both():
            pid = F.pid_of(lab, "keeper")
            F.kill(pid)
            wait_for(lambda: F.pid_of(lab, "keeper") not in (0, pid) and F.all_ready(lab), "the next keeper")
            act()

        return both

    def withdrawn_unlogged(act):
        stop, mark = threading.Event(), lab.mark()
        lab.api.reset(trickle(stop))
        try:
            c, other = streaming(lab, "stream"), streaming(lab, "same")
            act()
            ends_within(c, 1.0)
            assert lab.event(lambda e: e.get("path") == "/stream" and e.get("credentials") == ["stream"], ("close",), mark)["end"] == "revoked"
            other.buf.clear()
            other.until(b"tick")  # the control: another credential's exchange goes on
            other.close()
        finally:
            stop.set()
        lab.api.reset()
        good(lab, "stream")

    lab.side.act.pop("same", None)
    withdrawn_unlogged(after_death(lambda: revoke(lab, {"credential": "stream"})))
    withdrawn_unlogged(after_death(lambda: revoke(lab, {"lease_id": f"stream-{lab.side.count('stream')}"})))

    # and what is used from now on, the new one knows
    before = good(lab, "stream")
    after_death(lambda: None)()
    assert good(lab, "stream") != before, "asked anew"
    r = lab.run("lease", "list", "--json", "-c", lab.path("outgate.yaml"))
    assert "stream" in [x["credential"] for x in json.loads(r.stdout)]


def test_expiry_closes_nothing(lab):
    """The natural end of a lease is no revocation."""
    stop = threading.Event()
    lab.api.reset(trickle(stop))
    lab.side.act["same"] = lambda q, n: {"expires_at": stamp(32)}
    try:
        c = streaming(lab, "same")
        lab.event(lambda e: e.get("credential") == "same" and e.get("result") in ("expired", "refreshed"), ("lease",))
        c.buf.clear()
        c.until(b"tick")
        c.close()
    finally:
        stop.set()


def test_revoke_by_a_stranger(lab):
    if os.geteuid():
        raise Skip("needs root: another uid")
    good(lab, "stream")
    path = lab.path("run", "keeper.sock")
    assert os.stat(path).st_mode & 0o777 == 0o660, oct(os.stat(path).st_mode)
    os.chmod(path, 0o666)  # past the mode, the peer's uid still counts
    try:
        n = len(sent(lab, "stream"))
        s, _ = revoke(lab, {"credential": "stream"}, uid=4302)
        assert s == 403
        value = good(lab, "stream")
        assert value == sent(lab, "stream")[n - 1].get("authorization"), "nothing was revoked"
        s, body = revoke(lab, {"credential": "stream"})  # the control
        assert s == 200 and json.loads(body)["revoked"] == 1
    finally:
        os.chmod(path, 0o660)


def test_nothing_was_shown(lab):
    assert status(lab)["ok"] is True
    assert not lab.leaks()
    F.verify(lab)
    lab.side.stop()


if __name__ == "__main__":
    L.main()
