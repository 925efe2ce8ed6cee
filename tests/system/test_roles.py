#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The roles as processes: who they run as, what they may do, what they hold in memory, and that each comes back. ARCHITECTURE: One
picture; THREATS: N."""
import json
import os
import re
import signal
import socket
import subprocess
import time

import lab as L
from faults import FULL
from lab import EXE, Skip, sanitized, wait_for

UIDS = {"logger": 61105, "ca": 61102, "minter": 61104, "keeper": 61103, "resolver": 61101, "worker": 61101}
SOURCE = L.secret_value("roles env source")
CREDENTIAL = """  - name: second
    agents: [coder]
    hosts: [open.test]
    ports: [%d]
    slots: ["header:x-key"]
    env: SECOND_KEY
    source: {env: LAB_ROLES_SOURCE}
"""


def make_lab(workers=2):
    lab = L.Lab(workers=workers, start=False)
    lab.extra["credentials"] = CREDENTIAL % lab.tls_port
    lab.env["LAB_ROLES_SOURCE"] = SOURCE
    lab.secrets.append(SOURCE)
    return lab.start()


def root():
    if os.geteuid():
        raise Skip("needs root: roles have uids of their own only then")


def status(lab):
    r = lab.run("status", "--json", "-c", lab.path("outgate.yaml"))
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def roles(lab):
    return status(lab)["roles"]


def field(pid, name):
    with open(f"/proc/{pid}/status") as f:
        return re.search(rf"^{name}:[ \t]*(.*)$", f.read(), re.M).group(1).split()


def second_placeholder(lab):
    r = lab.run("env", "-c", lab.path("outgate.yaml"), "--agent", "coder", "--format", "json")
    return json.loads(r.stdout)["SECOND_KEY"]


def works(lab):
    """A swapped request goes through."""
    m = lab.get("api.test", headers=[lab.bearer()])
    return m.status == 200


def must_work(lab, what):
    def holds():
        try:
            return works(lab)
        except (L.Closed, L.Refused, OSError):
            return False

    wait_for(holds, what, 15)


# ---------------------------------------------------------------- who and what


def test_uids(lab):
    root()
    seen = {r["name"]: field(r["pid"], "Uid") for r in roles(lab)}
    assert set(seen) == set(UIDS)
    for name, uids in seen.items():
        assert uids == [str(UIDS[name])] * 4, (name, uids)
    for r in roles(lab):
        assert field(r["pid"], "Groups") == [] and field(r["pid"], "Gid") == [str(UIDS[r["name"]])] * 4, r
        assert r["uid"] == UIDS[r["name"]]


def test_confined(lab):
    for r in roles(lab):
        assert field(r["pid"], "NoNewPrivs") == ["1"], r
        assert field(r["pid"], "CapEff") == ["0" * 16], r
        with open(f"/proc/{r['pid']}/limits") as f:
            assert re.search(r"Max core file size\s+0\s+0", f.read()), r
    if os.geteuid() == 0:
        for r in roles(lab):  # not dumpable: the kernel gives /proc/PID to root though the process is somebody else
            assert os.stat(f"/proc/{r['pid']}/mem").st_uid == 0, r


def test_seccomp(lab):
    if sanitized():
        raise Skip("a sanitizer's runtime cannot live under the filter")
    for r in roles(lab):
        for task in os.listdir(f"/proc/{r['pid']}/task"):  # also the threads that were there before the filter
            assert field(f"{r['pid']}/task/{task}", "Seccomp") == ["2"], (r, task)


def test_names(lab):
    names = {r["name"]: open(f"/proc/{r['pid']}/comm").read().strip() for r in roles(lab) if r["index"] == 0}
    assert names == {n: f"og-{n}" + ("-0" if n == "worker" else "") for n in names}
    for r in roles(lab):
        assert open(f"/proc/{r['pid']}/cmdline").read().startswith(f"outgate: {r['name']}")


def test_clean_environment(lab):
    root()
    for r in roles(lab):
        with open(f"/proc/{r['pid']}/environ", "rb") as f:
            names = {v.split(b"=")[0] for v in f.read().split(b"\0") if v}
        assert names <= {b"LC_ALL", b"PATH", b"TZ"}, (r, names)


def test_environment_block_is_wiped(lab):
    root()
    with open(f"/proc/{lab.proc.pid}/environ", "rb") as f:
        left = f.read()
    assert SOURCE.encode() not in left and left.strip(b"\0") == b"", left[:200]
    m = lab.get("open.test", headers=[("X-Key", second_placeholder(lab))])  # the control: the value did arrive
    assert m.status == 200 and lab.open.last.get("x-key") == SOURCE


def descriptors(pid):
    out = []
    for n in os.listdir(f"/proc/{pid}/fd"):
        try:
            out.append(os.readlink(f"/proc/{pid}/fd/{n}"))
        except OSError:
            pass
    return out


def test_descriptors(lab):
    root()
    state = lab.path("state")
    for r in roles(lab):
        files = [d for d in descriptors(r["pid"]) if d.startswith("/") and not d.startswith(("/dev/null", "/memfd:", lab.path("serve.log")))]
        inside = [d for d in files if d.startswith(state)]
        if r["name"] == "logger":
            assert inside and all(d.startswith((state + "/audit", state + "/keys/log")) for d in inside), (r, inside)
            assert not any(d.endswith(".key") for d in inside), inside  # read once and closed
        elif r["name"] == "resolver":
            assert files == [state + "/budgets"], (r, files)
        else:
            assert not files, (r, files)
    listening = [r["name"] for r in roles(lab) for d in descriptors(r["pid"]) if d.startswith("socket:") and d[8:-1] in inet_listeners()]
    assert set(listening) == {"worker"}, listening


def inet_listeners():
    with open("/proc/net/tcp") as f:
        return {line.split()[9] for line in f.readlines()[1:] if line.split()[3] == "0A"}


# ---------------------------------------------------------------- what they hold in memory


def memory(pid):
    """Every readable byte of a process."""
    with open(f"/proc/{pid}/maps") as f:
        maps = [line.split() for line in f]
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as mem:
        for m in maps:
            if "r" not in m[1] or (len(m) > 5 and m[5] in ("[vvar]", "[vsyscall]", "[vvar_vclock]")):
                continue
            start, end = (int(x, 16) for x in m[0].split("-"))
            if end - start > 1 << 32:
                continue  # a sanitizer's shadow
            at = start
            while at < end:
                try:
                    mem.seek(at)
                    chunk = mem.read(min(end - at, 1 << 22))
                except (OSError, ValueError, OverflowError):
                    break
                if not chunk:
                    break
                yield chunk
                at += len(chunk)


def holds(pid, needles):
    tail = b""
    for chunk in memory(pid):
        text = tail + chunk
        if any(n in text for n in needles):
            return True
        tail = chunk[-256:]
    return False


def ca_secret(lab):
    """The private number of the CA's key, in both byte orders."""
    r = subprocess.run(["openssl", "ec", "-in", lab.path("state", "ca", "ca.key"), "-noout", "-text"], capture_output=True, text=True)
    hexes = re.search(r"priv:\n((?:\s+[0-9a-f:]+\n)+)", r.stdout).group(1)
    raw = bytes.fromhex(re.sub(r"[\s:]", "", hexes)).lstrip(b"\0")
    return [raw, raw[::-1]]


def test_ca_key_only_in_ca(lab):
    root()
    must_work(lab, "a request")  # the ca has signed
    needles = ca_secret(lab)
    where = {r["name"]: holds(r["pid"], needles) for r in roles(lab)}
    where["supervisor"] = holds(lab.proc.pid, needles)
    assert where.pop("ca"), "the control: the ca holds its key"
    assert not any(where.values()), where


def test_sources_only_in_minter_and_keeper(lab):
    root()
    must_work(lab, "a request")
    assert lab.get("open.test", headers=[("X-Key", second_placeholder(lab))]).status == 200
    needles = [SOURCE.encode(), lab.real.encode()]
    where = {}
    for r in roles(lab):
        where[r["name"]] = where.get(r["name"], False) or holds(r["pid"], needles)
    where["supervisor"] = holds(lab.proc.pid, needles)
    # The worker's and keeper's copies lie in memfd_secret, which not even root reads here; the minter's control is the value's use above.
    for name in ("logger", "ca", "resolver") + (() if sanitized() else ("supervisor",)):  # a sanitizer keeps a copy of the environment
        assert not where[name], where


def test_install_key_not_in_keeper(lab):
    root()
    with open(lab.path("state", "keys", "install.key"), "rb") as f:
        key = f.read()
    where = {r["name"]: holds(r["pid"], [key]) for r in roles(lab)}
    assert where["worker"], "the control: the worker derives placeholders with it"
    assert not any(where[n] for n in ("logger", "ca", "keeper", "resolver", "minter")), where


# ---------------------------------------------------------------- each comes back


def kill_and_wait(lab, name):
    before = {(r["name"], r["index"]): r["pid"] for r in roles(lab)}
    victim = before[(name, 0)]
    mark = lab.mark()
    L.kill(victim, signal.SIGKILL)

    def back():
        now = [r for r in roles(lab) if r["name"] == name and r["index"] == 0]
        return now and now[0]["pid"] not in (0, victim) and now[0]["state"] == "ready"

    wait_for(back, f"{name} is back", 10)
    after = {(r["name"], r["index"]): r["pid"] for r in roles(lab)}
    assert {k: v for k, v in after.items() if k != (name, 0)} == {k: v for k, v in before.items() if k != (name, 0)}, "only that one"
    who = f"{name} 0" if name == "worker" else name
    lab.event(lambda e: e.get("what") == "role_died" and e.get("who") == who and "signal 9" in e.get("message", ""), ("lifecycle",), mark)
    lab.event(lambda e: e.get("what") == "role_restarted" and e.get("who") == who, ("lifecycle",), mark)


def test_kill_each(lab):
    must_work(lab, "a request before")
    for name in ("worker", "ca", "minter", "keeper", "resolver", "logger"):
        kill_and_wait(lab, name)
        must_work(lab, f"a request after the {name} died")
    wait_for(lambda: len({e["seq"] for e in lab.events()}) == len(lab.events()), "whole lines")
    r = lab.run("audit", "verify", "-c", lab.path("outgate.yaml"))
    assert r.returncode == 0, r.stderr


def test_worker_died_closes_its_exchange(lab):
    """An exchange that was open when its worker died has its close, by the logger."""
    lab.open.reset(lambda conn, origin: (L.read_request(conn), time.sleep(5)))
    mark = lab.mark()
    c = lab.client("open.test")
    c.write("GET", "/hang")
    opened = lab.event(lambda e: e.get("path") == "/hang", ("open",), mark)
    for r in roles(lab):
        if r["name"] == "worker":
            L.kill(r["pid"], signal.SIGKILL)
    closed = lab.event(lambda e: e.get("request_id") == opened["request_id"], ("close",), mark)
    assert closed["end"] == "worker_died", closed
    c.close()
    lab.fresh()
    must_work(lab, "a request after all workers died")


def test_no_zombies(lab):
    with open(f"/proc/{lab.proc.pid}/task/{lab.proc.pid}/children") as f:
        for pid in f.read().split():
            assert field(pid, "State")[0] != "Z"


def test_crash_loop_closes_the_listeners():
    lab = make_lab(workers=1)
    try:
        must_work(lab, "a request before")
        for _ in range(5):
            pid = [0]

            def up():
                pid[0] = next(r["pid"] for r in roles(lab) if r["name"] == "worker")
                return pid[0] > 0

            wait_for(up, "a worker")
            L.kill(pid[0], signal.SIGABRT)  # a fault of its own; kill -9 would not count
            wait_for(lambda: next(r["pid"] for r in roles(lab) if r["name"] == "worker") != pid[0], "its end")
        lab.event(lambda e: e.get("what") == "crash_loop", ("lifecycle",))
        with socket.socket() as s:  # refused at once, not left hanging in a queue
            s.settimeout(2)
            assert s.connect_ex(("127.0.0.1", lab.port)) == 111
        d = status(lab)
        assert d["listeners"] == [] and {r["name"] for r in d["roles"] if r["state"] == "ready"} >= {"ca", "keeper", "resolver", "logger"}
        if FULL:
            wait_for(lambda: status(lab)["listeners"], "the next try, 30 s later", 40)
            must_work(lab, "a request after it")
    finally:
        lab.close(check=False)


def test_supervisor_killed():
    lab = make_lab()
    try:
        must_work(lab, "a request before")
        pids = [r["pid"] for r in roles(lab)]
        lab.proc.kill()
        lab.proc.wait(5)
        wait_for(lambda: not any(os.path.exists(f"/proc/{p}") for p in pids), "the end of every role", 5)
        r = lab.run("audit", "verify", "-c", lab.path("outgate.yaml"))
        assert r.returncode == 0, r.stderr
        assert lab.events()[-1]["type"] == "checkpoint"
        lab.proc = None
        lab.start()  # crash-only: the same way back
        must_work(lab, "a request after the new start")
    finally:
        lab.close(check=False)


def test_closed_parent_folder():
    """The configuration, the state and the sockets lie under a folder that only root may pass: roles have descriptors, not paths."""
    root()
    lab = make_lab()
    try:
        lab.stop()
        os.chmod(lab.dir, 0o700)
        lab.start()
        assert works(lab)
        assert lab.get("open.test", headers=[("X-Key", second_placeholder(lab))]).status == 200
        for name in ("keeper", "logger", "minter"):
            kill_and_wait(lab, name)
        must_work(lab, "a request")
    finally:
        lab.close(check=False)


def test_configured_users():
    """Names instead of the numeric ids; what init gave to those is handed over."""
    root()
    import pwd

    names = {"net": "daemon", "ca": "bin", "key": "sys", "mint": "games", "log": "man"}
    try:
        uids = {k: str(pwd.getpwnam(v).pw_uid) for k, v in names.items()}
    except KeyError as e:
        raise Skip(f"no such user here: {e}")
    lab = L.Lab(tail="users: {" + ", ".join(f"{k}: {v}" for k, v in names.items()) + "}\n")
    try:
        assert works(lab)
        part = {"worker": "net", "resolver": "net", "ca": "ca", "keeper": "key", "minter": "mint", "logger": "log"}
        for r in roles(lab):
            assert field(r["pid"], "Uid") == [uids[part[r["name"]]]] * 4, r
        assert os.stat(lab.path("state", "ca", "ca.key")).st_uid == int(uids["ca"])
        assert os.stat(lab.path("state", "audit")).st_uid == int(uids["log"])
        lab.stop()
        lab.extra["tail"] = "users: {net: nosuchuser}\n"
        try:
            lab.start()
            raise AssertionError("it started")
        except RuntimeError as e:
            assert "nosuchuser" in str(e)
        lab.extra["tail"] = "users: {net: daemon, ca: bin, key: daemon, mint: games, log: man}\n"
        try:
            lab.start()
            raise AssertionError("it started with two roles under one uid")
        except RuntimeError as e:
            assert "users.key" in str(e) and "users.net" in str(e), e
        lab.extra["tail"] = "users: {net: root}\n"
        try:
            lab.start()
            raise AssertionError("it started")
        except RuntimeError as e:
            assert "unprivileged" in str(e)
    finally:
        lab.close(check=False)


def test_keeper_socket_follows_its_sidecar():
    """A sidecar that starts after the server may revoke as one that was there before."""
    root()
    lab = L.Lab(start=False)
    path = lab.path("late.sock")
    lab.extra["tail"] = f"sidecars: [{{name: late, socket: {path}}}]\n"
    try:
        lab.start()
        keeper = lab.path("run", "keeper.sock")
        assert os.stat(keeper).st_uid == 0
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(path)
            os.chown(path, 61999, -1)
            wait_for(lambda: os.stat(keeper).st_uid == 61999, "that keeper.sock is the sidecar's", 5)
            assert os.stat(keeper).st_mode & 0o777 == 0o660
    finally:
        lab.close()


# ---------------------------------------------------------------- who may control


def test_agent_uid_is_refused():
    root()
    lab = L.Lab(start=False, agents="  - name: coder\n    identify:\n      - source: 127.0.0.1/32\n  - name: local\n    identify:\n      - unix_uid: 4301\n")
    try:
        lab.extra["listen"] = ""
        text = lab.config
        lab.config = lambda: text().replace(f"proxy: [127.0.0.1:{lab.port}]", f"proxy: [127.0.0.1:{lab.port}, unix:local.sock]")
        lab.start()
        assert os.stat(lab.path("run", "local.sock")).st_uid == 4301
        os.chmod(lab.path("run", "control.sock"), 0o666)  # past the group, the peer's uid still counts

        def ask(uid):
            code = f"""import os,socket,json
os.setgid({uid}); os.setuid({uid})
s=socket.socket(socket.AF_UNIX); s.connect({lab.path('run', 'control.sock')!r})
s.sendall(b'{{"v":1,"command":"status"}}\\n'); print(s.makefile().readline())"""
            return json.loads(subprocess.run(["python3", "-c", code], capture_output=True, text=True, timeout=20).stdout)

        assert ask(4301)["code"] == "forbidden"
        assert ask(4302)["ok"] is True  # the control
        lab.event(lambda e: e.get("what") == "control_refused" and "uid 4301" in e.get("who", ""), ("lifecycle",))
        with open(lab.path("outgate.yaml")) as f:
            changed = f.read().replace("unix_uid: 4301", "unix_uid: 4303")
        with open(lab.path("outgate.yaml"), "w") as f:
            f.write(changed)
        assert lab.run("reload", "-c", lab.path("outgate.yaml")).returncode == 0
        assert os.stat(lab.path("run", "local.sock")).st_uid == 4303, "the socket follows the claim"
        assert ask(4301)["ok"] is True and ask(4303)["code"] == "forbidden"
    finally:
        lab.close(check=False)


def test_control_garbage(lab):
    """A broken request gets one line, a silent peer holds nobody up."""
    quiet = socket.socket(socket.AF_UNIX)
    quiet.connect(lab.path("run", "control.sock"))
    for line in (b"\n", b"{}\n", b"[" * 60000 + b"\n", b'{"v":1,"command":"status","x":' + b'"a"' * 10 + b"}\n"):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(5)
        s.connect(lab.path("run", "control.sock"))
        s.sendall(line)
        assert json.loads(s.makefile().readline())["ok"] is False
        s.close()
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(5)
    s.connect(lab.path("run", "control.sock"))
    try:
        s.sendall(b"x" * 200000)  # no line end within the limit
        assert s.recv(10) == b""
    except (BrokenPipeError, ConnectionResetError):
        pass
    assert status(lab)["ok"] is True
    quiet.close()


if __name__ == "__main__":
    L.main()
