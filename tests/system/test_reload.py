#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reload, drain, sources and sidecars, seen from outside. PRODUCT: Reload, Signals, Leases; THREATS: N7, N8, N10."""
import json
import os
import signal
import socket
import threading
import time

import lab as L
from lab import Skip, wait_for


def make_lab():
    return L.Lab(workers=2)


def status(lab):
    r = lab.run("status", "--json", "-c", lab.path("outgate.yaml"))
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def write(lab, text):
    with open(lab.path("outgate.yaml"), "w") as f:
        f.write(text)


def reloads(lab):
    return sum(e.get("what") == "reload" for e in lab.events("config"))


def reload(lab):
    """Asks for a reload, and waits for its event too: the answer may come before the event is in the log."""
    before = reloads(lab)
    r = lab.run("reload", "-c", lab.path("outgate.yaml"))
    if r.returncode == 0:
        wait_for(lambda: reloads(lab) > before, "the event of the reload")
    return r


def pids(lab):
    return {(r["name"], r["index"]): r["pid"] for r in status(lab)["roles"]}


def supervisor_fds(lab):
    return len(os.listdir(f"/proc/{lab.proc.pid}/fd"))


def refusal(lab, name):
    try:
        return lab.get(name).code
    except L.Refused as e:
        return e.message.code


def test_reload_changes_rules(lab):
    text, before = lab.config(), status(lab)["snapshot"]
    roles = pids(lab)
    assert lab.get("open.test").status == 200
    mark = lab.mark()
    write(lab, text.replace("hosts: [open.test, \"*.wild.test\"", "hosts: [\"*.wild.test\""))
    assert reload(lab).returncode == 0
    after = status(lab)["snapshot"]
    assert after != before and pids(lab) == roles, "nobody was restarted"
    assert refusal(lab, "open.test") == "port_denied"  # a rule for plain HTTP names it still
    e = lab.event(lambda e: e.get("what") == "reload", ("config",), mark)
    assert e["before"] == before and e["after"] == after and e["result"] == "ok"
    write(lab, text)
    assert reload(lab).returncode == 0
    assert status(lab)["snapshot"] == before and lab.get("open.test").status == 200


def test_bad_file_changes_nothing(lab):
    text, before = lab.config(), status(lab)["snapshot"]
    for bad, word in (("bogus: 1\n", "bogus"), ("rules: []\n", "rules"), ("\t\n", ":")):
        mark = lab.mark()
        write(lab, text + bad)
        r = reload(lab)
        assert r.returncode == 1 and word.encode() in r.stderr and b"outgate.yaml:" in r.stderr, r.stderr
        e = lab.event(lambda e: e.get("what") == "reload_failed", ("config",), mark)
        assert e["before"] == before and e["result"] == "refused"
        assert status(lab)["snapshot"] == before and lab.get("open.test").status == 200
    write(lab, text)
    assert reload(lab).returncode == 0


def test_fixed_keys(lab):
    text = lab.config()
    write(lab, text.replace(lab.path("state"), lab.path("fresh")))
    r = reload(lab)
    assert r.returncode == 1 and b"state_dir" in r.stderr and b"restart" in r.stderr, r.stderr
    write(lab, text)
    assert reload(lab).returncode == 0


def test_hup(lab):
    text, before = lab.config(), status(lab)["snapshot"]
    write(lab, text + "ask_hold: 7s\n")
    lab.proc.send_signal(signal.SIGHUP)
    wait_for(lambda: status(lab)["snapshot"] != before, "the new snapshot")
    write(lab, text)
    assert reload(lab).returncode == 0


def test_listeners_come_and_go(lab):
    text, port = lab.config(), L.free_port(["127.0.0.1"])

    def connects():
        with socket.socket() as s:
            s.settimeout(2)
            return s.connect_ex(("127.0.0.1", port)) == 0

    assert not connects()
    old = lab.client("open.test")
    assert old.ask().status == 200
    write(lab, text.replace(f"proxy: [127.0.0.1:{lab.port}]", f"proxy: [127.0.0.1:{lab.port}, 127.0.0.1:{port}]"))
    assert reload(lab).returncode == 0 and connects()
    assert old.ask().status == 200, "an open connection lives on"
    was, lab.port = lab.port, port
    assert lab.get("open.test").status == 200
    lab.port = was
    write(lab, text)
    assert reload(lab).returncode == 0
    assert not connects(), "answered before the listener was closed"
    assert old.ask().status == 200 and lab.get("open.test").status == 200
    old.close()


def test_port_in_use_refuses_the_reload(lab):
    text, before = lab.config(), status(lab)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port, free = s.getsockname()[1], L.free_port(["127.0.0.1"])
        write(lab, text.replace(f"proxy: [127.0.0.1:{lab.port}]", f"proxy: [127.0.0.1:{lab.port}, 127.0.0.1:{free}, 127.0.0.1:{port}]"))
        r = reload(lab)
        assert r.returncode == 1 and f"127.0.0.1:{port}".encode() in r.stderr, r.stderr
        assert status(lab)["listeners"] == before["listeners"]
        with socket.socket() as t:  # the one that could be bound was let go
            t.bind(("127.0.0.1", free))
    assert reload(lab).returncode == 0  # the control: free now
    write(lab, text)
    assert reload(lab).returncode == 0


def test_nobody_can_veto(lab):
    """A role that is stuck is replaced; the new rules hold within the deadline."""
    text = lab.config()
    for name in ("resolver", "keeper", "worker"):
        before = pids(lab)
        stuck = before[(name, 0)]
        L.kill(stuck, signal.SIGSTOP)
        write(lab, text + f"ask_hold: {len(name)}s\n")
        start = time.monotonic()
        assert reload(lab).returncode == 0
        assert time.monotonic() - start < 4
        wait_for(lambda: all(r["state"] == "ready" for r in status(lab)["roles"]), f"a new {name}")
        after = pids(lab)
        assert after[(name, 0)] != stuck and {k for k in before if before[k] != after[k]} == {(name, 0)}
        wait_for(lambda: lab.get("open.test").status == 200, "a request")
    write(lab, text)
    assert reload(lab).returncode == 0


def test_reload_storm(lab):
    """Asked many times while one runs, one more follows; every caller hears how it ended."""
    text = lab.config()
    stuck, mark, before = pids(lab)[("resolver", 0)], lab.mark(), reloads(lab)
    L.kill(stuck, signal.SIGSTOP)  # holds the first one up to its deadline
    first = threading.Thread(target=reload, args=(lab,))
    first.start()
    wait_for(lambda: lab.log_bytes().count(b"control: reload") > 0, "the first one")
    write(lab, text + "ask_hold: 3s\n")
    socks = []
    for _ in range(12):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(10)
        s.connect(lab.path("run", "control.sock"))
        s.sendall(b'{"v":1,"command":"reload"}\n')
        socks.append(s)
    assert [json.loads(s.makefile().readline())["ok"] for s in socks] == [True] * 12
    first.join()
    lab.event(lambda e: e.get("what") == "role_restarted", ("lifecycle",), mark)
    wait_for(lambda: reloads(lab) >= before + 2, "the events of both")
    write(lab, text)
    assert reload(lab).returncode == 0
    assert reloads(lab) == before + 3


def test_reload_under_load(lab):
    """No request fails and nothing leaks."""
    text, bad = lab.config(), []
    assert reload(lab).returncode == 0
    fds = supervisor_fds(lab)
    stop = threading.Event()

    def asks():
        while not stop.is_set():
            m = lab.get("api.test", headers=[lab.bearer()])
            if m.status != 200:
                bad.append(m)

    asker = threading.Thread(target=asks)
    asker.start()
    try:
        for i in range(10):
            write(lab, text + f"ask_hold: {i + 1}s\n")
            assert reload(lab).returncode == 0
    finally:
        stop.set()
        asker.join()
    assert not bad, bad[:2]
    write(lab, text)
    assert reload(lab).returncode == 0
    wait_for(lambda: supervisor_fds(lab) <= fds, f"{supervisor_fds(lab)} descriptors, {fds} before")


def test_worker_count(lab):
    text = lab.config()

    def workers():
        return sorted(r["index"] for r in status(lab)["roles"] if r["name"] == "worker" and r["state"] == "ready")

    for n in (4, 1, 2):
        write(lab, text.replace("workers: 2", f"workers: {n}"))
        assert reload(lab).returncode == 0
        wait_for(lambda: workers() == list(range(n)), f"{n} workers")
        wait_for(lambda: lab.get("open.test").status == 200, "a request")
    write(lab, text)
    assert reload(lab).returncode == 0


def test_removed_credential_is_refused(lab):
    text = lab.config()
    assert lab.get("api.test", headers=[lab.bearer()]).status == 200
    head, _, rest = text.partition("credentials:\n")
    write(lab, head + "refuse_at: tunnel\n")
    assert "refuse_at" in rest and reload(lab).returncode == 0
    seen = len(lab.api.requests)
    m = lab.get("api.test", headers=[lab.bearer()])
    assert m.status != 200 or lab.api.last.get("authorization") == f"Bearer {lab.placeholder}"
    assert not any(lab.real in str(r.all("authorization")) for r in lab.api.requests[seen:])
    write(lab, text)
    assert reload(lab).returncode == 0
    wait_for(lambda: lab.get("api.test", headers=[lab.bearer()]).status == 200, "swapped again")
    assert lab.api.last.get("authorization") == f"Bearer {lab.real}"


def test_new_source_after_reload(lab):
    """Sources changed: another minter, and the value from the new place."""
    text = lab.config()
    assert lab.get("api.test", headers=[lab.bearer()]).status == 200
    write(lab, text.replace(lab.path("real") + "}", lab.path("real2") + "}"))
    assert reload(lab).returncode == 0

    def new_value():
        lab.get("api.test", headers=[lab.bearer()])
        return lab.api.last.get("authorization") == f"Bearer {lab.real2}"

    wait_for(new_value, "the new value")
    wait_for(lambda: [r["state"] for r in status(lab)["roles"] if r["name"] == "minter"] == ["ready"], "one minter", 12)
    write(lab, text)
    assert reload(lab).returncode == 0


def test_changed_file_revokes(lab):
    """A file source that changes: its leases end at once, the next request has the new value."""
    lab.get("api.test", headers=[lab.bearer()])
    r = lab.run("lease", "list", "--json", "-c", lab.path("outgate.yaml"))
    assert r.returncode == 0 and [x["credential"] for x in json.loads(r.stdout)] and lab.real.encode() not in r.stdout
    mark = lab.mark()
    fresh = L.secret_value("changed file")
    lab.secrets.append(fresh)
    with open(lab.path("real.new"), "w") as f:
        f.write(fresh)
    os.chmod(lab.path("real.new"), 0o600)
    os.rename(lab.path("real.new"), lab.path("real"))
    lab.event(lambda e: e.get("result") == "revoked", ("lease",), mark)

    def new_value():
        lab.get("api.test", headers=[lab.bearer()])
        return lab.api.last.get("authorization") == f"Bearer {fresh}"

    wait_for(new_value, "the new value")
    r = lab.run("lease", "revoke", "--credential", "github", "-c", lab.path("outgate.yaml"))
    assert r.returncode == 0, r.stderr
    lab.real = fresh


# ---------------------------------------------------------------- a sidecar


class Sidecar:
    """A minimal one on a Unix socket that only its owner may connect to."""

    def __init__(self, path, value, mode=0o600):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.bind(path)
        os.chmod(path, mode)
        self.sock.listen(16)
        self.value, self.asked, self.conns = value, [], []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                s, _ = self.sock.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(s,), daemon=True).start()

    def _one(self, s):
        conn = L.Conn(s)
        self.conns.append(conn)
        try:
            while True:
                m = L.read_request(conn)
                q = json.loads(m.body or b"{}")
                self.asked.append(q)
                body = json.dumps({"request_id": q.get("request_id"), "lease_id": f"l{len(self.asked)}", "value": self.value,
                                   "expires_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 600))}).encode()
                conn.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        except (L.Closed, OSError, ValueError):
            conn.close()


    def close(self):
        self.sock.close()
        for c in self.conns:
            c.reset()


def test_sidecar_only_for_its_owner():
    """Nobody but root may connect to the sidecar's socket; the keeper, under its own uid, still reaches it, also when the sidecar
    starts anew."""
    if os.geteuid():
        raise Skip("needs root: the keeper has a uid of its own only then")
    lab = L.Lab(start=False)
    value = L.secret_value("sidecar")
    lab.secrets.append(value)
    path = lab.path("mint.sock")
    text = lab.config()
    lab.config = lambda: text.replace(f"source: {{file: {lab.path('real')}}}", "source: {sidecar: local}") + f"sidecars:\n  - {{name: local, socket: {path}}}\n"
    sidecar = Sidecar(path, value)
    try:
        lab.start()
        assert lab.get("api.test", headers=[lab.bearer()]).status == 200
        assert lab.api.last.get("authorization") == f"Bearer {value}" and sidecar.asked
        st = os.stat(path)
        assert st.st_uid == 0 and st.st_mode & 0o007 == 0, "its owner and what others may stay"
        assert "minter" not in {r["name"] for r in status(lab)["roles"]}
        r = lab.run("lease", "revoke", "--credential", "github", "-c", lab.path("outgate.yaml"))
        assert r.returncode == 0, r.stderr
        sidecar.close()
        os.unlink(path)
        sidecar = Sidecar(path, value)
        wait_for(lambda: lab.get("api.test", headers=[lab.bearer()]).status == 200, "the new sidecar", 20)
        assert sidecar.asked
    finally:
        sidecar.close()
        lab.close(check=False)


# ---------------------------------------------------------------- the end


def slow(seconds):
    def handler(conn, origin):
        L.read_request(conn)
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab")
        time.sleep(seconds)
        conn.send(b"cd")

    return handler


def test_drain_lets_requests_end():
    lab = L.Lab()
    try:
        lab.open.reset(slow(1.0))
        c = lab.client("open.test")
        c.write("GET", "/slow")
        lab.event(lambda e: e.get("path") == "/slow", ("open",))
        idle = lab.client("open.test")
        proc = lab.proc
        proc.terminate()
        m = L.read_response(c)
        assert m.status == 200 and m.body == b"abcd"
        assert proc.wait(5) == 0
        idle.close()
        closed = [e for e in lab.events("close") if e.get("path") == "/slow"]
        assert [e["end"] for e in closed] == ["ok"]
        assert lab.run("audit", "verify", "-c", lab.path("outgate.yaml")).returncode == 0
    finally:
        lab.close(check=False)


def test_second_term_ends_now():
    lab = L.Lab()
    try:
        lab.open.reset(slow(20))
        c = lab.client("open.test")
        c.write("GET", "/slow")
        lab.event(lambda e: e.get("path") == "/slow", ("open",))
        proc = lab.proc
        proc.terminate()
        wait_for(lambda: b"draining" in lab.log_bytes(), "the drain")
        assert proc.poll() is None  # the first one waits
        start = time.monotonic()
        proc.terminate()
        assert proc.wait(5) == 0 and time.monotonic() - start < 3
        e = [x for x in lab.events("close") if x.get("path") == "/slow"]
        assert len(e) == 1 and e[0]["end"] != "ok"
        assert lab.run("audit", "verify", "-c", lab.path("outgate.yaml")).returncode == 0
    finally:
        lab.close(check=False)


def test_drain_deadline():
    lab = L.Lab(tail="limits: {drain: 500ms}\n")
    try:
        lab.open.reset(slow(20))
        c = lab.client("open.test")
        c.write("GET", "/slow")
        lab.event(lambda e: e.get("path") == "/slow", ("open",))
        start = time.monotonic()
        lab.proc.terminate()
        assert lab.proc.wait(5) == 0 and 0.4 < time.monotonic() - start < 4
    finally:
        lab.close(check=False)


if __name__ == "__main__":
    L.main()
