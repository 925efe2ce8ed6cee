#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reload while requests run, drain, and starts that cannot be. PRODUCT: Reload, Signals; THREATS: N3, N7, N8, N10, N15, O5, O10."""
import os
import re
import signal
import socket
import subprocess
import threading
import time

import faults as F
import lab as L
from faults import FULL, Books, roles, status, write
from lab import Skip, wait_for
from test_failures import trickle


def make_lab():
    return L.Lab(workers=2, hosts={"flip.test": "127.0.0.3"}, rules="  - {name: flip, hosts: [flip.test], ports: [PORT], methods: [GET], action: allow}",
                 start=False).patched()


def reload(lab, want=0):
    r = F.reload(lab)
    assert r.returncode == want, (r.returncode, r.stderr)
    return r


# ---------------------------------------------------------------- under traffic


def test_each_request_has_one_of_two_verdicts(lab):
    """Permission of one host comes and goes; that of the others stays. Nobody is dropped."""
    on = lab.config()
    off = on.replace("{name: flip, hosts: [flip.test]", "{name: flip, hosts: [other.flip.test]")
    assert off != on
    results, bad, stop = [], [], threading.Event()

    def kept_open():  # one connection for all: never refused, never dropped
        c = lab.client("open.test")
        while not stop.is_set():
            m = c.ask("GET", "/kept")
            if m.status != 200 or (m.get("connection") or "").lower() == "close":
                bad.append(("kept", m))
                return
        c.close()

    def flipping():
        while not stop.is_set():
            try:
                c = lab.client("flip.test")
                first = c.ask("GET", "/flip").status
                second = c.ask("GET", "/flip").status  # the next request on an open connection: the new rules
                results.extend([first, second])
                c.close()
            except L.Refused as e:
                results.append(e.message.status)
            except Exception as e:
                bad.append(("flip", repr(e)))

    def swapped():
        while not stop.is_set():
            m = lab.get("api.test", "/swapped", headers=[lab.bearer()])
            if m.status != 200:
                bad.append(("swapped", m))

    threads = [threading.Thread(target=t) for t in (kept_open, flipping, flipping, swapped)]
    for t in threads:
        t.start()
    before = {k: r["pid"] for k, r in roles(lab).items()}
    try:
        for i in range(200 if FULL else 50):
            write(lab, off if i % 2 == 0 else on)
            reload(lab)
            n = len(results)
            wait_for(lambda: len(results) > n or bad, "a request between two reloads")
    finally:
        stop.set()
        for t in threads:
            t.join(15)
    assert not bad, bad[:3]
    assert set(results) == {200, 403}, set(results)
    assert {k: r["pid"] for k, r in roles(lab).items()} == before, "nobody was restarted"
    assert all(m.method == "GET" for m in lab.open.requests)
    books = Books(lab)
    seen = sum(1 for m in lab.open.requests if m.target == "/flip")
    # One that a reload denies between its record and its arrival is in the log and not at the host, and its close says why.
    ends = {e.get("request_id"): e for e in books.events if e["type"] == "close"}
    opens = [e for e in books.opens if e.get("host") == "flip.test"]
    cut = [ends[e["request_id"]] for e in opens if ends[e["request_id"]].get("code")]
    assert len(opens) - len(cut) <= seen <= len(opens), (len(opens), seen, cut)
    assert {e["verdict"] for e in books.events if e["type"] == "close" and e.get("host") == "flip.test"} == {"allow", "deny"}
    write(lab, on)
    reload(lab)


BAD = [
    ("    identify:\n", "    identifi:\n", "identifi"),
    ("action: ask}", "action: maybe}", "action"),
    ("hosts: [deny.test]", "hosts: [\"de ny.test\"]", "hosts"),
    ("version: 1\n", "version: 1\nversion: 1\n", "version"),
    ("    env: GITHUB_TOKEN", "    env: [GITHUB_TOKEN", None),
    ("agents: [coder]\n    hosts: [api.test, git.test]", "agents: [nobody]\n    hosts: [api.test, git.test]", "nobody"),
    ("hosts: [api.test, git.test]\n    ports", "hosts: [\"*\"]\n    ports", "hosts"),
]


def test_bad_files_under_traffic(lab):
    text, before = lab.config(), status(lab)["snapshot"]
    stop, statuses = threading.Event(), []

    def asks():
        while not stop.is_set():
            statuses.append(lab.get("api.test", headers=[lab.bearer()]).status)

    t = threading.Thread(target=asks)
    t.start()
    try:
        for old, new, word in BAD:
            assert old in text, old
            write(lab, text.replace(old, new, 1))
            r = reload(lab, 1)
            assert re.search(rb"outgate\.yaml:\d+:\d+: ", r.stderr), (new, r.stderr)
            assert word is None or word.encode() in r.stderr, (new, r.stderr)
            assert status(lab)["snapshot"] == before
        wait_for(lambda: len(statuses) > 20, "requests")
    finally:
        stop.set()
        t.join()
        write(lab, text)
    assert set(statuses) == {200}
    reload(lab)
    assert status(lab)["snapshot"] == before


def test_denied_host_ends_its_streams(lab):
    on = lab.config()
    stop = threading.Event()
    lab.open.reset(trickle(stop))
    try:
        streams = {}
        for name in ("flip.test", "open.test"):
            streams[name] = lab.client(name)
            streams[name].write("GET", f"/stream/{name}")
            L.read_head(streams[name])
            streams[name].until(b"tick")
        write(lab, on.replace("{name: flip, hosts: [flip.test]", "{name: flip, hosts: [other.flip.test]"))
        reload(lab)
        start = time.monotonic()
        streams["flip.test"].rest()
        assert time.monotonic() - start < 1.0
        e = lab.event(lambda e: e.get("path") == "/stream/flip.test", ("close",))
        assert e["end"] == "revoked", e
        streams["open.test"].buf.clear()
        streams["open.test"].until(b"tick")  # the control: the other one goes on
        streams["open.test"].close()
    finally:
        stop.set()
        write(lab, on)
        reload(lab)


def test_stream_under_unchanged_rules_goes_on(lab):
    on = lab.config()
    stop = threading.Event()
    lab.open.reset(trickle(stop))
    try:
        c = lab.client("flip.test")
        c.write("GET", "/stays")
        L.read_head(c)
        for i in range(3):
            write(lab, on + f"ask_hold: {i + 1}s\n")
            reload(lab)
            c.buf.clear()
            c.until(b"tick")
        c.close()
    finally:
        stop.set()
        write(lab, on)
        reload(lab)


# ---------------------------------------------------------------- tokens


def basic(user, token):
    import base64

    return ("Proxy-Authorization", "Basic " + base64.b64encode(f"{user}:{token}".encode()).decode())


def test_token_rotation():
    agents = "  - name: coder\n    identify:\n      - login: {user: coder, token_file: coder.token}\n"
    lab = L.Lab(agents=agents, start=False)
    old, new = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"

    def token(text):
        with open(lab.path("coder.token"), "w") as f:
            f.write(text + "\n")
        os.chmod(lab.path("coder.token"), 0o600)

    def code(t):
        try:
            c = lab.client("open.test", headers=[basic("coder", t)])
            try:
                return c.ask().status
            finally:
                c.close()
        except L.Refused as e:
            return e.message.status

    try:
        token(old)
        lab.start()
        assert code(old) == 200 and code(new) == 407
        kept = lab.client("open.test", headers=[basic("coder", old)])
        assert kept.ask().status == 200
        token(new)
        assert code(old) == 200, "a file that changed counts from the reload on"
        assert kept.ask().status == 200
        reload(lab)
        assert code(new) == 200 and code(old) == 407
        assert kept.ask().code == "unknown_agent", "a tunnel opened with the old token"
        token("short")
        r = reload(lab, 1)
        assert b"coder.token" in r.stderr and b"short" not in r.stderr.replace(b"too short", b""), r.stderr
        assert code(new) == 200 and code(old) == 407
        blob = lab.log_bytes() + b"".join(str(e).encode() for e in lab.events())
        for t in (old, new):
            assert t.encode() not in blob
    finally:
        lab.close()


# ---------------------------------------------------------------- a worker that is retired while its place is taken again


def at_once(work, items):
    threads = [threading.Thread(target=work, args=(i,)) for i in items]
    for t in threads:
        t.start()
    for t in threads:
        t.join(15)


def test_retired_worker_ends_its_work():
    """2 workers, 1, 2 again, while the retired one still has a stream: both that one's and its successor's events are written."""
    lab = L.Lab(workers=2, tail="limits: {drain: 20s}\n")
    stop = threading.Event()
    try:
        lab.open.reset(trickle(stop))
        text = lab.config()
        streams = []

        def begin(i):
            c = lab.client("open.test")
            streams.append(c)
            c.write("GET", f"/retired/{i}")
            L.read_head(c)

        def both_busy():
            at_once(begin, range(len(streams), len(streams) + 8))
            return all(w["clients"] for w in status(lab)["workers"])

        wait_for(both_busy, "connections on each worker")
        for n in (1, 2):
            write(lab, text.replace("workers: 2", f"workers: {n}"))
            reload(lab)
            wait_for(lambda: sum(1 for k, r in roles(lab).items() if k[0] == "worker" and r["state"] == "ready") >= n, f"{n} workers")
        for c in streams:
            c.buf.clear()
            c.until(b"tick")
        n, served = 0, set()

        def both_served():
            nonlocal n
            at_once(lambda i: lab.get("api.test", f"/both/{i}"), range(n, n + 8))
            for i in range(n, n + 8):  # a ring that is not read would show here
                served.add(lab.event(lambda e: e.get("path") == f"/both/{i}", ("close",))["worker"])
            n += 8
            return served == {0, 1}

        wait_for(both_served, "requests on both workers")
        assert b"refused" not in lab.log_bytes(), lab.log_bytes()[-400:]
        stop.set()
        for c in streams:
            c.close()
        Books(lab)
        F.verify(lab)
    finally:
        stop.set()
        lab.close()


# ---------------------------------------------------------------- drain


def test_drain_lets_run_and_refuses_new():
    lab = L.Lab(workers=2, tail="limits: {drain: 20s}\n")
    try:
        go = threading.Event()

        def handler(conn, origin):
            origin.requests.append(L.read_request(conn))
            conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab")
            go.wait(20)
            conn.send(b"cd")

        lab.open.reset(handler)
        running = lab.client("open.test")
        running.write("GET", "/running")
        lab.event(lambda e: e.get("path") == "/running", ("open",))
        idle = lab.client("api.test")
        assert idle.ask().status == 200
        proc, mark = lab.proc, lab.mark()
        pids = [r["pid"] for r in roles(lab).values()]
        proc.terminate()
        wait_for(lambda: b"draining" in lab.log_bytes(), "the drain")

        def new_one():
            with socket.socket() as s:
                s.settimeout(2)
                return s.connect_ex(("127.0.0.1", lab.port))

        wait_for(lambda: new_one() != 0, "the end of the listener")
        assert idle.rest()[0] == b"", "an idle connection is closed"
        r = lab.run("reload", "-c", lab.path("outgate.yaml"))
        assert r.returncode != 0 and r.stderr, "no reload any more"
        assert proc.poll() is None
        go.set()
        m = L.read_response(running)
        assert m.status == 200 and m.body == b"abcd"
        assert proc.wait(10) == 0
        assert not any(os.path.exists(f"/proc/{p}") for p in pids)
        books = Books(lab)
        assert books.close_of("/running")["end"] == "ok"
        assert [e["what"] for e in lab.events()[mark:] if e.get("what") in ("draining", "stopped")] == ["draining", "stopped"]
        F.verify(lab)
        assert not os.path.exists(lab.path("run", "control.sock"))
    finally:
        lab.close()


def test_term_twice_ends_now():
    for sig in (signal.SIGTERM, signal.SIGINT):
        lab = L.Lab(workers=1)
        stop = threading.Event()
        try:
            lab.open.reset(trickle(stop))
            c = lab.client("open.test")
            c.write("GET", "/endless")
            L.read_head(c)
            proc, pids = lab.proc, [r["pid"] for r in roles(lab).values()]
            proc.send_signal(sig)
            wait_for(lambda: b"draining" in lab.log_bytes(), "the drain")
            c.buf.clear()
            c.until(b"tick")
            start = time.monotonic()
            proc.send_signal(sig)
            assert proc.wait(10) == 0 and time.monotonic() - start < 2
            assert not any(os.path.exists(f"/proc/{p}") for p in pids)
            assert Books(lab).close_of("/endless")["end"] == "worker_died"
            F.verify(lab)
        finally:
            stop.set()
            lab.close()


def test_drain_has_a_deadline():
    lab = L.Lab(workers=1, tail="limits: {drain: 500ms}\n")
    stop = threading.Event()
    try:
        lab.open.reset(trickle(stop))
        c = lab.client("open.test")
        c.write("GET", "/endless")
        L.read_head(c)
        start = time.monotonic()
        r = lab.run("drain", "-c", lab.path("outgate.yaml"))
        assert r.returncode == 0, r.stderr
        assert lab.proc.wait(10) == 0 and 0.4 < time.monotonic() - start < 5
        Books(lab).close_of("/endless")
    finally:
        stop.set()
        lab.close()


# ---------------------------------------------------------------- starts that cannot be


def test_start_failures():
    lab = L.Lab(start=False)
    lab.extra["agents"] = "  - name: coder\n    identify:\n      - source: 127.0.0.1/32\n  - name: second\n    identify:\n      - login: {user: second, token_file: second.token}\n"
    try:
        with open(lab.path("second.token"), "w") as f:
            f.write("0123456789abcdef0123456789abcdef")
        os.chmod(lab.path("second.token"), 0o600)
        lab.start()
        assert lab.get("open.test").status == 200
        text = lab.config()
        other = lab.path("other.yaml")

        def serve(config, wanted, code=3):
            with open(other, "w") as f:
                f.write(config)
            proc = subprocess.Popen([L.EXE, "serve", "-c", other], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
            try:
                _, err = proc.communicate(timeout=20)
            finally:
                with L.contextlib.suppress(OSError):
                    proc.kill()
            lines = [x for x in err.splitlines() if x and "started by an ordinary user" not in x]
            assert proc.returncode == code, (wanted, proc.returncode, err)
            if lines[1:] == ["outgate: cannot start: the configuration has errors"]:
                assert re.match(r"\S+other\.yaml:\d+:\d+: ", lines[0]), err
                del lines[1:]
            assert len(lines) == 1 and all(w in lines[0] for w in wanted), (wanted, err)
            wait_for(lambda: not of_session(proc.pid), f"the end of all of it {of_session(proc.pid)}", 2)

        def of_session(session):
            out = []
            for p in os.listdir("/proc"):
                with L.contextlib.suppress(OSError):
                    if p.isdigit() and os.getsid(int(p)) == session:
                        out.append(p)
            return out

        assert of_session(lab.proc.pid), "the control: a server that runs is found"
        # a second server of the same runtime folder; of the same port
        serve(text, [lab.path("run")])
        elsewhere = text.replace(lab.path("run"), lab.path("run2"))
        serve(elsewhere, [f"127.0.0.1:{lab.port}"])
        assert lab.get("open.test").status == 200, "the first one goes on"
        lab.stop()

        def with_file(path, change, undo, wanted):
            change()
            try:
                serve(text, wanted)
            finally:
                undo()

        key, cert, roots = lab.path("state", "ca", "ca.key"), lab.path("state", "ca", "ca.pem"), lab.path("ca.pem")
        with_file(key, lambda: os.chmod(key, 0o644), lambda: os.chmod(key, 0o600), ["ca.key", "644"])
        for p, word in ((key, "init"), (cert, "ca.pem")):
            with_file(p, lambda: os.rename(p, p + ".away"), lambda: os.rename(p + ".away", p), [word])
        with open(roots, "rb") as f:
            good = f.read()

        def put(data):
            with open(roots, "wb") as f:
                f.write(data)

        with_file(roots, lambda: put(b""), lambda: put(good), ["ca.pem"])
        with_file(roots, lambda: put(b"nothing of use\n"), lambda: put(good), ["ca.pem"])
        with_file(roots, lambda: os.rename(roots, roots + ".away"), lambda: os.rename(roots + ".away", roots), ["ca.pem"])
        token = lab.path("second.token")
        with_file(token, lambda: os.rename(token, token + ".away"), lambda: os.rename(token + ".away", token), ["second.token"])
        with_file(token, lambda: os.truncate(token, 8), lambda: None, ["second.token"])
        with open(token, "w") as f:
            f.write("0123456789abcdef0123456789abcdef")
        serve(text.replace("version: 1", "version: 2"), ["version"])
        lab.start()  # the control: all is as it was
        assert lab.get("open.test").status == 200
    finally:
        lab.close()


def test_start_after_kill_of_everything():
    """Stale sockets and locks are in nobody's way."""
    lab = L.Lab()
    try:
        for _ in range(3):
            L.kill_group(lab.proc)
            lab.proc = None
            assert os.path.exists(lab.path("run", "control.sock"))
            lab.start()
            assert lab.get("open.test").status == 200
        F.verify(lab)
    finally:
        lab.close()


if __name__ == "__main__":
    L.main()
