# SPDX-License-Identifier: Apache-2.0
"""What the tests of failures share: the roles of a lab's server, load with books about it, the log read as a whole, a sidecar that does
what it is told. For tests/system/test_*.py."""
import collections
import contextlib
import json
import os
import re
import signal
import socket
import threading
import time

import lab as L
from lab import Closed, Refused, sanitized, wait_for

FULL = os.environ.get("OUTGATE_TEST_FULL") == "1"  # the long variants


# ---------------------------------------------------------------- the server's roles

ROLE_NAMES = ["ca", "keeper", "minter", "resolver", "logger", "worker"]


def status(lab, timeout=20):
    r = lab.run("status", "--json", "-c", lab.path("outgate.yaml"), timeout=timeout)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def roles(lab):
    """(name, index) -> the role's row of `status --json`."""
    return {(r["name"], r["index"]): r for r in status(lab)["roles"]}


def pid_of(lab, name, index=0):
    return roles(lab)[(name, index)]["pid"]


def all_ready(lab):
    return all(r["state"] == "ready" for r in roles(lab).values())


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def settled_descriptors(pid):
    """Their number once it did not change for half a second: what was pooled is closed by then."""
    seen = {"n": None, "at": 0.0}

    def steady():
        n = descriptors(pid)
        if n != seen["n"]:
            seen.update(n=n, at=time.monotonic())
        return time.monotonic() - seen["at"] > 0.5

    wait_for(steady, "a steady number of descriptors", 10)
    return seen["n"]


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as f:
        parts = f.read().rsplit(")", 1)[1].split()
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def field(pid, name):
    with open(f"/proc/{pid}/status") as f:
        return re.search(rf"^{name}:[ \t]*(.*)$", f.read(), re.M).group(1).split()


def rss_kib(pid):
    return int(field(pid, "VmRSS")[0])


def write(lab, text):
    with open(lab.path("outgate.yaml"), "w") as f:
        f.write(text)


def reload(lab):
    return lab.run("reload", "-c", lab.path("outgate.yaml"))


def ask(lab, name="open.test", target="/", **kw):
    """One request on a connection of its own. The status, or None where no answer came; the code of a refusal, or None."""
    try:
        m = lab.get(name, target, **kw)
    except Refused as e:
        m = e.message
    except (Closed, OSError, ValueError):
        return None, None
    return m.status, m.code


def works(lab, swapped=True):
    kw = dict(headers=[lab.bearer()]) if swapped else {}
    return ask(lab, "api.test" if swapped else "open.test", "/works", **kw)[0] == 200


def must_work(lab, what, timeout=10, swapped=True):
    wait_for(lambda: works(lab, swapped), what, timeout)


# ---------------------------------------------------------------- the log as a whole


def verify(lab):
    r = lab.run("audit", "verify", "-c", lab.path("outgate.yaml"))
    assert r.returncode == 0, (r.stdout + r.stderr)[-600:]


class Books:
    """opens and closes by request id, once every open has its close."""

    def __init__(self, lab, timeout=L.WAIT):
        end = time.monotonic() + timeout
        while True:
            self.read(lab)
            if not self.missing or time.monotonic() > end:
                break
            time.sleep(0.05)
        assert not self.missing, f"{len(self.missing)} opens without a close, such as {self.missing[:2]}"
        twice = {i: n for i, n in self.closes.items() if n > 1}
        assert not twice, f"closed more than once: {twice}"
        opened_twice = {i: n for i, n in collections.Counter(e["request_id"] for e in self.opens).items() if n > 1}
        assert not opened_twice, f"opened more than once: {opened_twice}"

    def read(self, lab):
        self.events = lab.events()
        self.opens = [e for e in self.events if e["type"] == "open"]
        self.closes = collections.Counter(e["request_id"] for e in self.events if e["type"] == "close" and "request_id" in e)
        self.missing = [e for e in self.opens if not self.closes[e["request_id"]]]
        self.open_paths = collections.Counter(e.get("path") for e in self.opens)
        seqs = [e["seq"] for e in self.events]
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs))) if seqs else True, "a gap or a double in seq"

    def close_of(self, path):
        found = [e for e in self.events if e["type"] == "close" and e.get("path") == path]
        assert len(found) == 1, (path, found)
        return found[0]

    def seen_are_opened(self, paths):
        """Every request that an origin saw is in the log."""
        lost = [p for p in paths if not self.open_paths[p]]
        assert not lost, f"{len(lost)} of {len(paths)} requests left without their open: {lost[:3]}"


# ---------------------------------------------------------------- load


class Load:
    """Clients that ask one after the other, each request with a path of its own, now on a connection of its own, now on a kept one."""

    def __init__(self, lab, clients=3, pause=0.0, name="api.test", tag="n"):
        self.lab, self.pause, self.name, self.tag = lab, pause, name, tag
        self.stopping = threading.Event()
        self.lock, self.n = threading.Lock(), 0
        self.results = []  # (path, status or None, code or None)
        self.threads = [threading.Thread(target=self._run, args=(i,), daemon=True) for i in range(clients)]
        for t in self.threads:
            t.start()

    def _path(self):
        with self.lock:
            self.n += 1
            return f"/{self.tag}/{self.n}"

    def _note(self, path, status, code):
        with self.lock:
            self.results.append((path, status, code))

    def _run(self, i):
        kept = None
        while not self.stopping.is_set():
            path = self._path()
            try:
                if i % 2 and kept is None:
                    kept = self.lab.client(self.name, timeout=5)
                c = kept or self.lab.client(self.name, timeout=5)
                m = c.ask("GET", path, [self.lab.bearer()])
                self._note(path, m.status, m.code)
                if c is not kept:
                    c.close()
                elif (m.get("connection") or "").lower() == "close":
                    kept = None
            except Refused as e:
                self._note(path, e.message.status, e.message.code)
            except (Closed, OSError, ValueError, L.ssl.SSLError):
                self._note(path, None, None)
                kept = None
                time.sleep(0.01)  # the proxy is away for a moment: no storm of connects
            time.sleep(self.pause)
        if kept:
            kept.close()

    def count(self, status=200):
        with self.lock:
            return sum(1 for r in self.results if r[1] == status)

    def stop(self):
        self.stopping.set()
        for t in self.threads:
            t.join(15)
            assert not t.is_alive(), "a client hangs"
        return self.results


# ---------------------------------------------------------------- a sidecar


def stamp(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


class Sidecar:
    """Speaks the minting protocol. act: credential -> function(question, number) -> (status, headers, body) | dict changes to a good
    answer | None (no answer, the connection stays open). Without one a good lease of `ttl` seconds is given."""

    def __init__(self, lab, name="mint.sock", uid=None):
        self.lab, self.path, self.act, self.ttl, self.uid = lab, lab.path(name), {}, 600, uid
        self.asked, self.deleted, self.values = [], [], []
        self.sock, self.conns = None, []
        self.start()

    def start(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.bind(self.path)
        os.chmod(self.path, 0o600)
        if self.uid is not None:
            os.chown(self.path, self.uid, self.uid)
        self.sock.listen(32)
        threading.Thread(target=self._serve, args=(self.sock,), daemon=True).start()
        return self

    def stop(self):
        """Away, as after a crash: nobody listens, open connections are cut."""
        with L.contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()
        with L.contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        for c in self.conns:
            with L.contextlib.suppress(OSError):
                c.sock.shutdown(socket.SHUT_RDWR)
        self.conns = []

    def _serve(self, listening):
        while True:
            try:
                s, _ = listening.accept()
            except OSError:
                return
            conn = L.Conn(s, timeout=60)
            self.conns.append(conn)
            threading.Thread(target=self._one, args=(conn,), daemon=True).start()

    def count(self, credential):
        return sum(1 for q in self.asked if q.get("credential") == credential)

    def value(self, credential, n):
        """The n-th value of a credential; the lab looks for it in every output."""
        v = L.secret_value(f"sidecar {credential} {n}")
        self.values.append(v)
        if v not in self.lab.secrets:
            self.lab.secrets.append(v)
        return v

    def _answer(self, q):
        name = q.get("credential")
        n = self.count(name)
        good = {"request_id": q.get("request_id"), "lease_id": f"{name}-{n}", "value": self.value(name, n), "expires_at": stamp(self.ttl)}
        act = self.act.get(name)
        change = act(q, n) if act else {}
        if change is None or isinstance(change, tuple):
            return change
        good = {k: v for k, v in {**good, **change}.items() if v is not None}
        return 200, [], json.dumps(good)

    def _one(self, conn):
        try:
            while True:
                m = L.read_request(conn)
                if m.method == "DELETE":
                    self.deleted.append(m.target.rsplit("/", 1)[1])
                    conn.send(L.answer(204, length=False))
                    continue
                q = json.loads(m.body or b"{}")
                self.asked.append(q)
                a = self._answer(q)
                if a is None:
                    conn.rest()
                    return
                conn.send(L.answer(a[0], a[2], a[1], reason="x"))
        except (Closed, OSError, ValueError):
            pass
        finally:
            conn.close()


def kill(pid, sig=signal.SIGKILL):
    try:
        L.kill(pid, sig)
    except ProcessLookupError:
        return False
    return True
