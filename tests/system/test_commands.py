#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The commands: exit codes, what they print, what they refuse. PRODUCT: Commands."""
import base64
import json
import os
import pty
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time

import lab as L
from lab import EXE, Skip, wait_for

OK, NO, USAGE, UNREADABLE, UNREACHABLE = 0, 1, 2, 3, 4


def sh(*args, cwd=None, env=None, text=None, timeout=30, **kw):
    r = subprocess.run([EXE, *args], capture_output=True, cwd=cwd, env=env, input=text, timeout=timeout, **kw)
    r.out, r.err = r.stdout.decode(errors="replace"), r.stderr.decode(errors="replace")
    return r


class Folder:
    """A folder with an installation of its own and a small configuration."""

    def __init__(self, extra="", port=None):
        self.dir = tempfile.mkdtemp(prefix="outgate-cmd-")
        os.chmod(self.dir, 0o755)
        self.port = port or L.free_port(["127.0.0.1"])
        self.init = sh("init", self.path("home"))
        self.write(extra)

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    @property
    def file(self):
        return self.path("outgate.yaml")

    def write(self, extra="", state="home/state", credentials=None):
        credentials = "" if credentials is None else credentials
        with open(self.file, "w") as f:
            f.write(f"""version: 1
state_dir: {state}
runtime_dir: run
workers: 1
listen:
  proxy: [127.0.0.1:{self.port}]
resolver:
  upstreams: ["127.0.0.1:1"]
agents:
  - name: coder
    identify:
      - source: 127.0.0.1/32
rules:
  - {{name: api, hosts: [api.test], methods: [GET], paths: ["/ok/**"], action: allow}}
{credentials}
{extra}
""")

    def serve(self, env=None):
        log = open(self.path("log"), "ab")
        at = log.tell()
        p = subprocess.Popen([EXE, "serve", "-c", self.file], stdout=log, stderr=log, env=env, start_new_session=True)
        log.close()
        wait_for(lambda: p.poll() is not None or b"outgate: ready" in self.log()[at:], "ready", 20)
        return p

    def log(self):
        with open(self.path("log"), "rb") as f:
            return f.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.dir, ignore_errors=True)


def ended(p):
    p.terminate()
    return p.wait(10)


# ---------------------------------------------------------------- help and usage


def test_help():
    r = sh("--help")
    assert r.returncode == OK
    for command in ("init", "check", "serve", "run", "env", "explain", "placeholder", "ca export", "ca install", "ca uninstall", "status", "reload", "drain", "lease list",
                    "audit verify", "version"):
        assert re.search(rf"^  {command} ", r.out, re.M), command
        h = sh(*command.split(), "--help")
        assert h.returncode == OK and h.out.startswith(f"usage: outgate {command}"), command
    assert "internal-docs" not in r.out


def test_usage_errors():
    for args in ((), ("frob",), ("ca",), ("ca", "frob"), ("check",), ("check", "--frob", "-c", "x"), ("check", "-c"), ("check", "-c", "a", "-c", "b"),
                 ("init",), ("init", "a", "b"), ("explain", "-c", "x", "--agent", "a", "GET"), ("lease", "revoke"), ("lease", "revoke", "a", "--credential", "b"),
                 ("audit", "tail", "-c", "x", "-n", "-1"), ("env", "-c", "x", "--agent", "a", "--format", "xml"), ("ca", "export", "-c", "x", "--format", "jks"),
                 ("placeholder", "--like", "nothing"), ("status", "--json=1"), ("run", "-c", "x", "--sandbox", "true")):
        r = sh(*args)
        assert r.returncode == USAGE, (args, r.returncode, r.err)
        assert r.err.strip(), args


def test_sandbox_names_the_feature():
    r = sh("run", "-c", "x", "--sandbox", "--", "true")
    assert r.returncode == USAGE and "--sandbox" in r.err


def test_version_and_docs():
    assert re.fullmatch(r"outgate \d+\.\d+\.\d+\n", sh("version").out)
    assert sh("--version").out == sh("version").out
    for what, word in (("config", "state_dir"), ("audit-log", "request_id"), ("refusals", "`host_denied` | 403"), ("limits", "event_ring_bytes")):
        r = sh("internal-docs", what)
        assert r.returncode == OK and word in r.out
    assert sh("internal-docs", "nothing").returncode == USAGE


def test_role_is_no_command():
    r = sh("--role", "worker")
    assert r.returncode == USAGE and "supervisor" in r.err


# ---------------------------------------------------------------- init


def test_init_makes_and_refuses():
    with Folder() as f:
        assert f.init.returncode == OK, f.init.err
        assert f.init.out.count("\n  outgate ") == 3
        key = f.path("home", "state", "ca", "ca.key")
        before = open(key, "rb").read()
        r = sh("init", f.path("home"))
        assert r.returncode == UNREADABLE and "CA already" in r.err
        assert open(key, "rb").read() == before
        assert sh("check", "-c", f.path("home", "outgate.yaml")).returncode == OK


def test_init_keys_are_unique_and_closed():
    with Folder() as a, Folder() as b:
        for name in ("ca/ca.key", "keys/install.key", "keys/console.token", "keys/log/log.key"):
            pa, pb = a.path("home", "state", name), b.path("home", "state", name)
            assert open(pa, "rb").read() != open(pb, "rb").read(), name
            assert stat.S_IMODE(os.stat(pa).st_mode) == 0o400, name
        for name, mode in (("ca", 0o700), ("keys", 0o700), ("keys/log", 0o700), ("trust", 0o755)):
            assert stat.S_IMODE(os.stat(a.path("home", "state", name)).st_mode) == mode, name
        assert stat.S_IMODE(os.stat(a.path("home", "state", "audit")).st_mode) & 0o007 == 0


def test_init_cannot_write():
    r = sh("init", "/proc/nowhere")
    assert r.returncode == UNREADABLE and "/proc/nowhere" in r.err


# ---------------------------------------------------------------- check


def test_check():
    with Folder() as f:
        r = sh("check", "-c", f.file)
        assert r.returncode == OK, r.err
        f.write("bogus: 1\nworkerz: 2\n")
        r = sh("check", "-c", f.file)
        assert r.returncode == NO
        lines = [line for line in r.err.splitlines() if re.match(rf"{re.escape(f.file)}:\d+:\d+: \w+: expected .*, got ", line)]
        assert len(lines) == 2, r.err  # every error, not the first
        f.write("", credentials='''  - {name: late, agents: [codr], hosts: [api.test], action: allow}
credentials:
  - {name: c, agents: [codr], hosts: [api.test], slots: ["header:authorization"], source: {env: X}}''')
        r = sh("check", "-c", f.file)
        places = [tuple(map(int, m)) for m in re.findall(rf"^{re.escape(f.file)}:(\d+):(\d+): agents: expected .*coder.*, got \"codr\"$", r.err, re.M)]
        assert r.returncode == NO and len(places) == 2 and places == sorted(places), r.err
        text = open(f.file).read().splitlines()
        assert all(text[line - 1][col - 1:].startswith("codr") for line, col in places), r.err
        open(f.file, "w").close()
        assert sh("check", "-c", f.file).returncode == NO  # readable, and not a configuration
    for year, warnings in (("2001", 1), ("9001", 0)):
        with Folder() as f:
            text = open(f.file).read().replace("action: allow", f"action: allow, expires: {year}-01-01T00:00:00Z", 1)
            assert year in text
            with open(f.file, "w") as out:
                out.write(text)
            r = sh("check", "-c", f.file)
            assert r.returncode == OK and r.err.count("warning: ") == r.err.count("which has expired") == warnings, r.err
    r = sh("check", "-c", "/nonexistent.yaml")
    assert r.returncode == UNREADABLE and "/nonexistent.yaml" in r.err


def test_check_side_file_missing():
    with Folder() as f:
        f.write("origin: {ca_file: [nothere.pem]}\n")
        r = sh("check", "-c", f.file)
        assert r.returncode == NO and "ca_file" in r.err and "nothere.pem" in r.err and re.search(r":\d+:\d+: origin.ca_file: expected a file that can be read, got \".*nothere.pem\" \(cannot open: ", r.err)


def test_check_names():
    """What the file says of names and cannot mean is a warning at its place; put right, it is none."""
    def warnings(f, text, **more):
        with open(f.file, "w") as out:
            out.write(text)
        r = sh("check", "-c", f.file)
        assert r.returncode == OK, r.err
        return [line.removeprefix(f"warning: {f.file}:") for line in r.err.splitlines()]

    with Folder() as f:
        port = L.free_port(["127.0.0.1"])

        def text(upstream="192.0.2.1", listen="127.0.0.1", mode="enforce", exfiltration="", host="api.test", rules=True):
            rule = f"\n  - {{name: one, hosts: [\"{host}\"], action: allow}}" if rules else " []"
            return f"""version: 1
state_dir: home/state
mode: {mode}
listen: {{proxy: ["127.0.0.1:{f.port}"], dns: ["{listen}:{port}"]}}
resolver: {{synthetic: {{v4: 10.77.0.1}}, upstreams: ["{upstream}"]}}
exfiltration: {{{exfiltration}}}
agents:
  - {{name: coder, identify: [{{source: 127.0.0.1/32}}]}}
rules:{rule}
"""
        assert warnings(f, text()) == []
        for upstream, listen, said in ((f"127.0.0.1:{port}", "127.0.0.1", 1), (f"tcp://127.0.0.1:{port}", "127.0.0.1", 1), (f"127.0.0.9:{port}", "0.0.0.0", 1), (f"127.0.0.9:{port}", "127.0.0.1", 0),
                                       ("127.0.0.1:5353", "127.0.0.1", 0), (f"192.0.2.1:{port}", "0.0.0.0", 0)):
            got = warnings(f, text(upstream=upstream, listen=listen))
            assert len(got) == said and all(re.match(r"5:\d+: resolver\.upstreams: expected .*, got our own listen\.dns", w) for w in got), (upstream, listen, got)
        with open("/etc/resolv.conf") as conf:  # the machine's own: what it names, and the control
            servers = [line.split()[1] for line in conf if line.startswith("nameserver ") and ":" not in line]
        if servers:
            def of_system(at):
                return text(upstream="system", listen=servers[0]).replace(f"{servers[0]}:{port}", f"{servers[0]}:{at}")
            got, = warnings(f, of_system(53))
            assert re.match(r"5:\d+: resolver\.upstreams: expected .*, got system", got), got
            assert warnings(f, of_system(5354)) == []
        got, = warnings(f, text(rules=False))
        assert got.startswith("1:1: rules: expected at least one, got none"), got
        assert warnings(f, text(rules=False, mode="observe")) == []
        rows = (("agent: {bits: 4096/d}", "enforce", "api.test", "exfiltration.agent"), ("agent: {bits: 4096/d}", "observe", "api.test", None), ("agent: {bits: 4096/d}", "enforce", "*", None),
                ("dns_tunnel: {bits: 2048}", "enforce", "api.test", "exfiltration.dns_tunnel"), ("dns_tunnel: {bits: 2048}", "enforce", "*.up.test", None),
                ('exempt: ["*.cdn.test"]', "enforce", "*.up.test", "exfiltration.exempt"), ('exempt: ["*.cdn.test"]', "enforce", "*", None),
                ('exempt: ["a.up.test"]', "enforce", "*.up.test", None), ('exempt: ["api.test"]', "enforce", "api.test", "exfiltration.exempt"))
        for exfiltration, mode, host, key in rows:
            got = warnings(f, text(mode=mode, exfiltration=exfiltration, host=host))
            assert (len(got) == 1 and re.match(rf"6:\d+: {re.escape(key)}: expected ", got[0])) if key else got == [], (exfiltration, mode, host, got)


def test_check_sources():
    """What a source lacks on this machine is a warning at its place; put right, it is none."""
    def warnings(f, text, **env):
        with open(f.file, "w") as out:
            out.write(text)
        r = subprocess.run([L.EXE, "check", "-c", f.file], capture_output=True, text=True, env={**os.environ, **env})
        assert r.returncode == OK, r.stderr
        assert r.stdout.endswith(f"no errors, {len(r.stderr.splitlines())} warning{'' if r.stderr.count('warning: ') == 1 else 's'}\n"), (r.stdout, r.stderr)
        return [line.removeprefix(f"warning: {f.file}:") for line in r.stderr.splitlines()]

    with Folder() as f:
        f.write(credentials=CREDENTIAL.replace("LAB_SOURCE", "LAB_ABSENT_SOURCE"))
        text = open(f.file).read()
        at = next(f"{n}:{line.index('LAB_ABSENT') + 1}: " for n, line in enumerate(text.splitlines(), 1) if "LAB_ABSENT" in line)
        said, = warnings(f, text)
        assert said.startswith(at + "source.env: expected ") and '"LAB_ABSENT_SOURCE", which is not set here' in said and "outgate serve" in said, said
        assert "which is empty here" in warnings(f, text, LAB_ABSENT_SOURCE="")[0]
        assert warnings(f, text, LAB_ABSENT_SOURCE="x" * 20) == []
        text, path = text.replace("{env: LAB_ABSENT_SOURCE}", "{file: value.txt}"), f.path("value.txt")
        at = at.split(":")[0]
        said, = warnings(f, text)
        assert re.match(rf"{at}:\d+: source\.file: expected .*, got \"{re.escape(path)}\", which does not exist: .*\(write the value there", said), said
        os.mkdir(path)
        assert "which is not a regular file" in warnings(f, text)[0]
        os.rmdir(path)
        for size, fault in ((0, "which is empty"), (10241, "too long"), (20, None)):
            with open(path, "w") as out:
                out.write("x" * size)
            said = warnings(f, text)
            assert (len(said) == 1 and fault in said[0]) if fault else said == [], said
        if os.geteuid():
            os.chmod(path, 0)
            assert "which this user may not read" in warnings(f, text)[0]


# ---------------------------------------------------------------- explain, env, placeholder, ca


def test_explain():
    with Folder() as f:
        url = "https://api.test/ok/x"
        r = sh("explain", "-c", f.file, "--agent", "coder", "GET", url)
        assert r.returncode == OK and "verdict: allow" in r.out and "outgate.yaml:" in r.out, r.out
        for method, u, code in (("POST", url, "method_denied"), ("GET", "https://api.test/no", "path_denied"), ("GET", "https://evil.test/", "host_denied"),
                                ("GET", "https://api.test:444/ok/x", "port_denied"), ("GET", "http://api.test/ok/x", "port_denied")):
            r = sh("explain", "-c", f.file, "--agent", "coder", "--json", method, u)
            d = json.loads(r.out)
            assert r.returncode == NO and d["code"] == code and d["verdict"] == "deny" and d["steps"], (u, d)
        assert sh("explain", "-c", f.file, "--agent", "coder", "GET", "https://api.test/ok/../x").returncode == NO
        r = sh("explain", "-c", f.file, "--agent", "nobody", "GET", url)
        assert r.returncode == NO and "nobody" in r.err


NAMES = """version: 1
state_dir: home/state
listen: {proxy: ["127.0.0.1:%d"], dns: ["127.0.0.1:%d"]}
resolver: {answer: ANSWER, upstreams: [127.0.0.1], synthetic: {v4: 10.77.0.1}, hosts: {fixed.test: [198.51.100.2]}}
exfiltration: {exempt: ["*.cdn.test"]}
agents:
  - {name: coder, identify: [{source: 127.0.0.1/32}]}
rules:
  - {name: exact, hosts: [api.test], action: allow}
  - {name: wild, hosts: ["*.up.test", fixed.test, "*.cdn.test"], dns_types: [A, TXT], action: allow}
credentials:
  - {name: github, agents: [coder], hosts: [api.test], slots: ["header:authorization"], env: GITHUB_TOKEN, source: {env: LAB_SOURCE}}
"""


def test_explain_names():
    """What the DNS port would answer, who approved the name, what it costs and whether it looks encoded; the same of a request's host. Each refusal beside a name that passes."""
    with Folder() as f:
        for answer in ("synthetic", "forward"):
            with open(f.file, "w") as out:
                out.write((NAMES % (f.port, f.port + 1 if f.port < 65535 else f.port - 1)).replace("ANSWER", answer))

            def ask(*what):
                r = sh("explain", "-c", f.file, "--agent", "coder", "--json", *what)
                d = json.loads(r.out)
                return r.returncode, d["dns"], d["name"], d
            here = {"synthetic": ("synthetic", "10.77.0.1"), "forward": ("forward", None)}[answer]
            rows = (("api.test", OK, here, "exact", "exact"), ("www.up.test", OK, here, "wild", "wildcard"), ("a.cdn.test", OK, here, "wild", "exempt"),
                    ("fixed.test", OK, here if answer == "synthetic" else ("hosts", None), "wild", "exact"), ("evil.org", NO, ("refused", None), None, "unapproved"),
                    ("x.svc.cluster.local", NO, ("absent", None), None, "unapproved"), ("dns:www.up.test?type=AAAA", OK, ("no_data", None), "wild", "wildcard"),
                    ("dns:www.up.test?type=TXT", OK, ("no_data" if answer == "synthetic" else "forward", None), "wild", "wildcard"))
            for name, code, (word, address), rule, approval in rows:
                got, dns, of, _ = ask("DNS", name)
                assert (got, dns["answer"], dns["address"], dns["rule"], of["approval"]) == (code, word, address, rule, approval), (name, dns, of)
                assert (of["dial_bits"] > 0) == (approval == "wildcard"), (name, of)
                assert (of["question_bits"] > 0) == (approval == "wildcard" and word == "forward"), (name, of)
            encoded = "onvs2ylooqwwc4djgazs2rkyifgvatcffvhe6vbniewverkb"
            got, dns, of, _ = ask("DNS", f"{encoded}.up.test")
            assert got == OK and of["encoded"] and of["class"] == "host_label" and "base32" in of["sentence"] and encoded not in of["sentence"], of
            assert not ask("DNS", "www.up.test")[2]["encoded"]
            placeholder = variables(f)["GITHUB_TOKEN"]
            for name, code, word in ((f"{placeholder[10:24]}.up.test", NO, "refused"), ("abcdefghijklmn.up.test", OK, here[0])):
                got, dns, of, _ = ask("DNS", name)
                assert (got, dns["answer"], dns["code"]) == (code, word, "exfiltration" if code == NO else ""), (name, dns)
                got, dns, of, d = ask("GET", f"https://{name}/")
                assert (got, d["code"], d["passes"], of["passes"]) == (code, "exfiltration" if code == NO else "ok", code == OK, code == OK), (name, d)
            r = sh("explain", "-c", f.file, "--agent", "coder", "GET", "https://www.up.test/")
            assert "dns A: " in r.out and "name: wildcard" in r.out and "a dial costs" in r.out and "bits of up.test" in r.out, r.out
            for bad in ("127.0.0.1", "dns:www.up.test?class=IN", "a b"):
                assert sh("explain", "-c", f.file, "--agent", "coder", "DNS", bad).returncode == NO, bad


CREDENTIAL = """credentials:
  - name: github
    agents: [coder]
    hosts: [api.test]
    slots: ["header:authorization"]
    env: GITHUB_TOKEN
    source: {env: LAB_SOURCE}
"""


def variables(f, *extra):
    r = sh("env", "-c", f.file, "--agent", "coder", "--format", "json", *extra)
    assert r.returncode == OK, r.err
    return json.loads(r.out)


def test_env():
    with Folder() as f:
        f.write(credentials=CREDENTIAL)
        v = variables(f)
        for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "grpc_proxy"):
            assert v[name] == f"http://127.0.0.1:{f.port}", name
        for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "AWS_CA_BUNDLE", "PIP_CERT", "npm_config_cafile"):
            assert v[name] == f.path("home", "state", "trust", "bundle.pem") and os.path.exists(v[name]), name
        assert v["NODE_EXTRA_CA_CERTS"].endswith("/trust/ca.pem") and "truststore.p12" in v["JAVA_TOOL_OPTIONS"]
        assert v["GITHUB_TOKEN"].startswith("ghp_") and v == variables(f)  # the same placeholder every time
        r = sh("env", "-c", f.file, "--agent", "coder")
        shell = subprocess.run(["sh", "-c", r.out + "\nprintf %s \"$GITHUB_TOKEN\""], capture_output=True, text=True)
        assert shell.stdout == v["GITHUB_TOKEN"]
        r = sh("env", "-c", f.file, "--agent", "coder", "--format", "docker")
        assert f"GITHUB_TOKEN={v['GITHUB_TOKEN']}\n" in r.out
        assert v["WGETRC"] == f.path("home", "state", "trust", "wgetrc") and v["APT_CONFIG"].endswith("/trust/apt.conf")
        r = sh("explain", "-c", f.file, "--agent", "coder", "--json", "-H", f"Authorization: Bearer {v['GITHUB_TOKEN']}", "GET", "https://api.test/ok/x")
        assert r.returncode == OK and json.loads(r.out)["credentials"] == ["github"], r.out
        r = sh("explain", "-c", f.file, "--agent", "coder", "--json", "-H", f"X-Other: {v['GITHUB_TOKEN']}", "GET", "https://api.test/ok/x")
        assert r.returncode == NO and json.loads(r.out)["code"] == "placeholder_wrong_slot", r.out


def test_help_and_completion_know_the_options():
    help_line, = [line for line in sh("--help").out.splitlines() if "print the variables that run sets" in line]
    assert all(word in help_line for word in ("sh", "docker", "json", "wgetrc", "apt")), help_line
    if not shutil.which("bash"):
        raise Skip("bash is not installed")
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "deploy", "outgate.bash-completion")
    r = subprocess.run(["bash", "-c", '_init_completion() { words=(outgate lease revoke --) cword=3 cur=-- prev=revoke; }; . "$1"; _outgate; echo "${COMPREPLY[@]}"', "bash", script], capture_output=True, text=True)
    assert "--json" in r.stdout.split() and "--credential" in r.stdout.split(), (r.stdout, r.stderr)


def test_env_files():
    """Whole files for wget and apt, and in the trust folder those that name the CA alone, for each name that agents know the folder by."""
    token = "0123456789abcdef" * 2
    with Folder() as f:
        with open(f.path("coder.token"), "w") as out:
            out.write(token)
        text = open(f.file).read().replace("- source: 127.0.0.1/32", "- login: {user: coder, token_file: coder.token}")
        text = text.replace("agents:\n", "agents:\n  - name: caged\n    advertise: {proxy: '10.0.0.1:3128', trust_dir: /etc/out gate}\n    identify: [{source: 127.0.0.9/32}]\n")
        open(f.file, "w").write(text)
        url, bundle = f"http://coder:{token}@127.0.0.1:{f.port}", f.path("home", "state", "trust", "bundle.pem")
        wgetrc = sh("env", "-c", f.file, "--agent", "coder", "--format", "wgetrc").out.splitlines()
        assert wgetrc == ["use_proxy = on", f"https_proxy = {url}", f"http_proxy = {url}", "no_proxy = localhost,127.0.0.1,::1", f"ca_certificate = {bundle}"]
        with open(f.path("apt.conf"), "w") as out:
            out.write(sh("env", "-c", f.file, "--agent", "coder", "--format", "apt").out)
        if shutil.which("apt-config"):
            r = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, env={**os.environ, "APT_CONFIG": f.path("apt.conf")})
            for line in (f'Acquire::http::Proxy "{url}";', f'Acquire::https::Proxy "{url}";', f'Acquire::https::CAInfo "{bundle}";',
                         'Acquire::https::Proxy::127.0.0.1 "DIRECT";', 'Acquire::http::Proxy::localhost "DIRECT";'):
                assert line in r.stdout.splitlines(), (line, r.stdout[-2000:], r.stderr)
        trust, v = f.path("home", "state", "trust"), variables(f)  # as `init` made them, before any server ran
        assert open(v["WGETRC"]).read() == f"ca_certificate = {bundle}\n" and open(v["APT_CONFIG"]).read() == f'Acquire::https::CAInfo "{bundle}";\n'
        for name in ("WGETRC", "APT_CONFIG"):
            assert os.stat(v[name]).st_mode & 0o777 == 0o444
            os.unlink(v[name])
        p = f.serve()
        try:
            v = variables(f)
            assert open(v["WGETRC"]).read() == f"ca_certificate = {bundle}\n" and open(v["APT_CONFIG"]).read() == f'Acquire::https::CAInfo "{bundle}";\n'
            v = json.loads(sh("env", "-c", f.file, "--agent", "caged", "--format", "json").out)
            for name, line in (("WGETRC", "ca_certificate = /etc/out gate/bundle.pem\n"), ("APT_CONFIG", 'Acquire::https::CAInfo "/etc/out gate/bundle.pem";\n')):
                assert os.path.dirname(v[name]) == "/etc/out gate" and open(os.path.join(trust, os.path.basename(v[name]))).read() == line, v[name]
            for name in os.listdir(trust):  # everyone may read what is there, and nothing in it is secret
                with open(os.path.join(trust, name), "rb") as some:
                    assert token.encode() not in some.read() and os.fstat(some.fileno()).st_mode & 0o777 == 0o444, name
            open(f.file, "w").write(text.replace("/etc/out gate", '/etc/"quoted"'))
            assert sh("reload", "-c", f.file).returncode == OK
            v = json.loads(sh("env", "-c", f.file, "--agent", "caged", "--format", "json").out)
            assert "APT_CONFIG" not in v and v["WGETRC"].startswith('/etc/"quoted"/wgetrc.'), v.get("WGETRC")
            r = sh("env", "-c", f.file, "--agent", "caged", "--format", "apt")
            assert r.returncode == UNREADABLE and "apt: SSL_CERT_FILE: expected a value without quotes" in r.err and "/etc/" not in r.err, r.err
        finally:
            ended(p)


def test_env_for_the_listener_that_knows_the_agent():
    """The URL is that of a listener where the agent can be known; where there is none, what to do is said."""
    def url(f, agent):
        r = sh("env", "-c", f.file, "--agent", agent, "--format", "json")
        return json.loads(r.out)["https_proxy"] if r.returncode == OK else r.err

    with Folder() as f:
        text, listen = open(f.file).read(), f"  proxy: [127.0.0.1:{f.port}]"
        claims = """agents:
  - {name: socket, identify: [{listener: "unix:a.sock"}]}
  - {name: uid, identify: [{unix_uid: 1000}]}
  - {name: second, identify: [{listener: "127.0.0.1:2"}]}
"""
        text = text.replace("agents:\n", claims).replace(listen, '  proxy: ["127.0.0.1:2", "unix:a.sock", "unix:b.sock", 127.0.0.1:%d]' % f.port)
        open(f.file, "w").write(text)
        assert url(f, "second") == "http://127.0.0.1:2"
        assert url(f, "coder") == f"http://127.0.0.1:{f.port}"  # the first one is another agent's
        for agent, name in (("socket", "a.sock"), ("uid", "b.sock")):
            said = url(f, agent)
            assert f"{agent}: it comes in by unix:{name}" in said and f"UNIX-CONNECT:{f.path('run', name)}" in said and "advertise.proxy" in said, said
            r = sh("run", "-c", f.file, "--agent", agent, "--", "true")
            assert r.returncode == UNREADABLE and "it comes in by unix:" in r.err, r.err
        open(f.file, "w").write(text.replace("name: socket,", "name: socket, advertise: {proxy: '127.0.0.1:3128'},"))
        assert url(f, "socket") == "http://127.0.0.1:3128"  # the control
        open(f.file, "w").write(text.replace('"unix:b.sock", 127.0.0.1:%d' % f.port, '"unix:b.sock"'))
        assert "coder: expected a listener where this agent can be known, got none" in url(f, "coder"), url(f, "coder")


def test_bundle_is_roots_and_ours():
    with Folder() as f:
        trust = f.path("home", "state", "trust")
        ours, bundle = open(trust + "/ca.pem").read(), open(trust + "/bundle.pem").read()
        roots = open("/etc/ssl/certs/ca-certificates.crt").read()
        assert bundle == roots + ours
        r = subprocess.run(["openssl", "pkcs12", "-in", trust + "/truststore.p12", "-passin", "pass:changeit", "-nokeys"], capture_output=True, text=True)
        assert r.returncode == 0 and r.stdout.count("BEGIN CERTIFICATE") == bundle.count("BEGIN CERTIFICATE")


def test_java_trusts_the_store():
    if not shutil.which("keytool"):
        raise Skip("no keytool")
    with Folder() as f:
        r = subprocess.run(["keytool", "-list", "-keystore", f.path("home", "state", "trust", "truststore.p12"), "-storepass", "changeit"],
                           capture_output=True, text=True, timeout=50)
        bundle = open(f.path("home", "state", "trust", "bundle.pem")).read()
        assert r.stdout.count("trustedCertEntry") == bundle.count("BEGIN CERTIFICATE"), r.stdout[-300:]


def test_ca_export():
    with Folder() as f:
        pem = sh("ca", "export", "-c", f.file)
        assert pem.returncode == OK and pem.stdout.startswith(b"-----BEGIN CERTIFICATE-----") and b"PRIVATE" not in pem.stdout
        der = sh("ca", "export", "--format", "der", "-c", f.file)
        back = subprocess.run(["openssl", "x509", "-inform", "DER"], input=der.stdout, capture_output=True).stdout
        assert back == pem.stdout
        p12 = sh("ca", "export", "--format", "p12", "-c", f.file)
        r = subprocess.run(["openssl", "pkcs12", "-passin", "pass:changeit", "-nokeys"], input=p12.stdout, capture_output=True)
        assert r.stdout.count(b"BEGIN CERTIFICATE") == 1
        assert "Outgate CA" in sh("ca", "show", "-c", f.file).out
        f.write(state="nowhere")
        r = sh("ca", "export", "-c", f.file)
        assert r.returncode == UNREADABLE and "outgate init" in r.err


def test_placeholder_passes_the_github_checksum():
    import zlib
    alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    a, b = sh("placeholder", "--like", "github").out.strip(), sh("placeholder", "--like", "github").out.strip()
    assert a != b and len(a) == 40 and a.startswith("ghp_")
    crc, want = zlib.crc32(a[4:34].encode()), ""
    for _ in range(6):
        crc, rest = divmod(crc, 62)
        want = alphabet[rest] + want
    assert a[34:] == want


# ---------------------------------------------------------------- serve: what it refuses


def refused(f, words, env=None):
    r = sh("serve", "-c", f.file, env=env)
    assert r.returncode == UNREADABLE, (r.returncode, r.err)
    assert words in r.err, r.err
    assert "outgate: ready" not in r.err
    with socket.socket() as s:  # nothing half open
        s.settimeout(2)
        return s.connect_ex(("127.0.0.1", f.port)) != 0


def starts(f, env=None):
    p = f.serve(env)
    assert p.poll() is None, f.log().decode()
    assert ended(p) == OK


def test_serve_without_ca():
    with Folder() as f:
        f.write(state="nowhere")
        assert refused(f, "outgate init")
        f.write()
        starts(f)


def test_serve_port_in_use():
    with Folder() as f, socket.create_server(("127.0.0.1", f.port)):
        assert refused(f, f"127.0.0.1:{f.port}: cannot listen: another process does")


def test_serve_key_missing():
    with Folder() as f:
        os.unlink(f.path("home", "state", "keys", "install.key"))
        assert refused(f, "keys/install.key is missing: put it back")


def test_no_such_agent():
    with Folder() as f:
        r = sh("env", "-c", f.file, "-a", "nobody")
        assert r.returncode == NO and "has no agent 'nobody', but these: coder" in r.err, r.err


def test_serve_refuses_an_open_ca_key():
    with Folder() as f:
        key = f.path("home", "state", "ca", "ca.key")
        os.chmod(key, 0o440)
        assert refused(f, "ca.key")
        os.chmod(key, 0o400)
        starts(f)


def test_serve_refuses_a_foreign_ca_key():
    if os.geteuid():
        raise Skip("needs root to change owners")
    with Folder() as f:
        key, uid = f.path("home", "state", "ca", "ca.key"), os.stat(f.path("home", "state", "ca", "ca.key")).st_uid
        os.chown(key, 4242, 4242)
        assert refused(f, "uid 4242")
        os.chown(key, uid, uid)
        starts(f)


def test_serve_port_in_use():
    with Folder() as f:
        with socket.socket() as s:
            s.bind(("127.0.0.1", f.port))
            s.listen()
            r = sh("serve", "-c", f.file)
            assert r.returncode == UNREADABLE and f"127.0.0.1:{f.port}" in r.err and len(r.err.strip().splitlines()) == 1, r.err
        starts(f)


def test_serve_env_source_missing():
    with Folder() as f:
        f.write(credentials=CREDENTIAL)
        env = {k: v for k, v in os.environ.items() if k != "LAB_SOURCE"}
        assert refused(f, "LAB_SOURCE", env)
        starts(f, {**env, "LAB_SOURCE": L.secret_value("cmd")})


def test_one_server_per_runtime():
    with Folder() as f:
        p = f.serve()
        try:
            r = sh("serve", "-c", f.file)
            assert r.returncode == UNREADABLE and "another server" in r.err
        finally:
            assert ended(p) == OK
        starts(f)


def test_stale_and_foreign_sockets():
    with Folder() as f:
        f.write(f"")
        text = open(f.file).read().replace(f"127.0.0.1:{f.port}", f"127.0.0.1:{f.port}, unix:agent.sock")
        open(f.file, "w").write(text)
        p = f.serve()
        sock = f.path("run", "agent.sock")
        assert stat.S_ISSOCK(os.stat(sock).st_mode) and stat.S_IMODE(os.stat(sock).st_mode) == 0o660
        p.kill()  # leaves its sockets behind
        p.wait(5)
        assert os.path.exists(sock)
        wait_for(lambda: sh("status", "-c", f.file).returncode == UNREACHABLE, "the roles' end")
        starts(f)
        assert not os.path.exists(sock)
        open(sock, "w").close()
        assert refused(f, "something else is there")
        os.unlink(sock)
        other = socket.socket(socket.AF_UNIX)
        other.bind(sock)
        other.listen()
        assert refused(f, "another process serves it")
        other.close()
        starts(f)


def test_moved_state():
    with Folder() as f:
        os.rename(f.path("home", "state"), f.path("elsewhere"))
        f.write(state="elsewhere")
        starts(f)
        assert sh("audit", "verify", "-c", f.file).returncode == OK


# ---------------------------------------------------------------- talking to a server


def test_nobody_answers():
    with Folder() as f:
        for command in (("status",), ("reload",), ("drain",), ("lease", "list"), ("lease", "revoke", "x")):
            r = sh(*command, "-c", f.file)
            assert r.returncode == UNREACHABLE and "no server answers" in r.err, (command, r.err)


def test_status_reload_drain():
    with Folder() as f:
        p = f.serve()
        try:
            d = json.loads(sh("status", "--json", "-c", f.file).out)
            assert {r["name"] for r in d["roles"]} == {"logger", "ca", "keeper", "resolver", "worker"}
            assert all(r["pid"] > 0 and r["state"] == "ready" for r in d["roles"]) and d["supervisor"]["pid"] == p.pid
            assert re.fullmatch("[0-9a-f]{16}", d["snapshot"]) and d["config"] == f.file and d["complete"]
            assert len(d["workers"]) == 1 and d["audit"]["blocked"] is False
            assert "worker" in sh("status", "-c", f.file).out
            assert sh("reload", "-c", f.file).returncode == OK
            assert json.loads(sh("reload", "--json", "-c", f.file).out)["ok"] is True
            f.write("bogus: 1\n")
            r = sh("reload", "-c", f.file)  # the file cannot be parsed, its server is found all the same
            assert r.returncode == NO and "bogus" in r.err, (r.returncode, r.err)
            r = sh("reload", "--json", "-c", f.file)
            d2 = json.loads(r.out)
            assert r.returncode == NO and d2["ok"] is False and d2["code"] == "config_errors" and "bogus" in d2["errors"][0], d2
            assert json.loads(sh("status", "--json", "-c", f.file).out)["snapshot"] == d["snapshot"]
            other = f.path("other.yaml")
            f.write()
            shutil.copy(f.file, other)
            r = sh("status", "-c", other)
            assert r.returncode == UNREACHABLE and "another configuration" in r.err
            r = sh("lease", "revoke", "nothing", "-c", f.file)
            if os.geteuid() == 0:
                assert r.returncode == NO and "0 leases" in r.out
                assert json.loads(sh("lease", "revoke", "--json", "nothing", "-c", f.file).out)["revoked"] == 0
                assert json.loads(sh("drain", "--json", "-c", f.file).out)["ok"] is True
                assert p.wait(10) == OK
        finally:
            if p.poll() is None:
                ended(p)
        assert sh("audit", "verify", "-c", f.file).returncode == OK


def test_audit_verify_and_tail():
    with Folder() as f:
        p = f.serve()
        assert sh("audit", "verify", "-c", f.file).returncode == OK  # while it runs
        assert ended(p) == OK
        assert sh("audit", "verify", "-c", f.file).returncode == OK
        r = sh("audit", "tail", "-n", "2", "--json", "-c", f.file)
        assert r.returncode == OK and [json.loads(line)["v"] for line in r.out.splitlines()] == [1, 1]
        folder = f.path("home", "state", "audit")
        seg = os.path.join(folder, sorted(n for n in os.listdir(folder) if n.endswith(".jsonl"))[0])
        data = open(seg, "rb").read()
        with open(seg, "r+b") as s:
            s.write(data.replace(b"started", b"startEd", 1))
        r = sh("audit", "verify", "-c", f.file)
        assert r.returncode == NO and "not whole" in r.err, r.err
        d = json.loads(sh("audit", "verify", "--json", "-c", f.file).out)
        assert d["ok"] is False and d["bad_seq"] and d["why"] in r.err, d
        with open(seg, "r+b") as s:
            s.write(data)
        d = json.loads(sh("audit", "verify", "--json", "-c", f.file).out)
        assert d["ok"] is True and d["why"] is None, d


def test_audit_of_a_broken_file():
    """What a refused reload says is in the log: it is read while the file has errors."""
    with Folder() as f:
        p = f.serve()
        try:
            f.write("bogus: 1\n", state="home/state   # of the server")
            assert sh("reload", "-c", f.file).returncode == NO
            told = lambda: [line for line in sh("audit", "tail", "-n", "50", "--json", "-c", f.file).out.splitlines() if '"what":"reload_failed"' in line]
            wait_for(lambda: told(), "the event of the refused reload")
            r = sh("audit", "tail", "-c", f.file)
            assert r.returncode == OK and r.out and ": bogus: expected " in r.err and "all the same" in r.err, r.err
            r = sh("audit", "verify", "--json", "-c", f.file)
            assert r.returncode == OK and json.loads(r.out)["ok"] is True and ": bogus: expected " in r.err, r.err
        finally:
            ended(p)
        whole = open(f.file).read()
        for text, known in ((whole.replace("rules:", "rules: ]"), True), (whole.replace("state_dir: home/state", 'state_dir: "home/state"'), True),
                            (whole.replace("state_dir: ", " state_dir: "), False), (whole.replace("state_dir: home/state", "state_dir: nowhere"), False)):
            open(f.file, "w").write(text)
            for command in ("tail", "verify"):
                r = sh("audit", command, "-c", f.file)
                assert r.returncode == (OK if known else UNREADABLE) and bool(r.out) == known, (text, r.err)
        open(f.file, "w").write(whole.replace("state_dir:", "statedir:"))
        r = sh("audit", "tail", "-c", f.file)
        assert r.returncode == UNREADABLE and "was not read" in r.err and "`state_dir: FOLDER`" in r.err, r.err
        os.rename(f.path("home", "state"), f.path("state"))  # the default
        assert sh("audit", "tail", "-c", f.file).returncode == OK
    assert sh("audit", "tail", "-c", "/nonexistent.yaml").returncode == UNREADABLE


def test_ordinary_user():
    if os.geteuid():
        raise Skip("already one")
    if not shutil.which("setpriv"):
        raise Skip("no setpriv")
    d = tempfile.mkdtemp(prefix="outgate-user-")
    try:
        os.chown(d, 65534, 65534)
        exe = shutil.copy(EXE, os.path.join(d, "og"))
        port = L.free_port(["127.0.0.1"])
        script = f"""cd {d} && ./og init h >/dev/null && sed 's/127.0.0.1:3128/127.0.0.1:{port}/' h/outgate.yaml > h/o.yaml
        ./og run -c h/o.yaml -- sh -c './og status --json -c h/o.yaml >st; ./og drain -c h/o.yaml </dev/null; echo "drain $?"'"""
        r = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script], capture_output=True, text=True, timeout=50,
                           env={"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": d}, start_new_session=True)
        assert os.path.exists(exe) and r.returncode == 0, r.stderr
        assert "ordinary user" in r.stderr and "drain 3" in r.stdout and "console token" in r.stderr, r.stderr
        assert {x["uid"] for x in json.load(open(d + "/st"))["roles"]} == {65534}
    finally:
        shutil.rmtree(d, ignore_errors=True)


def test_ordinary_user_without_a_session():
    if os.geteuid():
        raise Skip("needs root to become somebody")
    if not shutil.which("setpriv"):
        raise Skip("no setpriv")
    d = tempfile.mkdtemp(prefix="outgate-user-")
    try:
        os.chown(d, 65534, 65534)
        shutil.copy(EXE, os.path.join(d, "og"))
        port = L.free_port(["127.0.0.1"])
        script = f"""cd {d} && ./og init h >/dev/null && sed 's/127.0.0.1:3128/127.0.0.1:{port}/' h/outgate.yaml > h/o.yaml
        ./og run -c h/o.yaml -- ./og status -c h/o.yaml && sed -i /runtime_dir/d h/o.yaml && ./og status -c h/o.yaml"""
        r = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script], capture_output=True, text=True, timeout=50,
                           env={"PATH": os.environ["PATH"]}, start_new_session=True)
        assert "running" in r.stdout and os.path.isdir(d + "/h/run"), r.stderr
        assert "write `runtime_dir: run`" in r.stderr, r.stderr
    finally:
        shutil.rmtree(d, ignore_errors=True)


def typed(args, answer, uid, env):
    """Runs a command on a terminal of its own as that user and types one line when it asks. (exit status, what the terminal showed)"""
    pid, fd = pty.fork()
    if pid == 0:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        os.execve(args[0], args, env)
    out, sent = b"", False
    while True:
        try:
            chunk = os.read(fd, 4096)
        except OSError:
            break
        if not chunk:
            break
        out += chunk
        if b"console token" in out and not sent:
            os.write(fd, answer + b"\n")
            sent = True
    os.close(fd)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), out


def test_console_token_is_typed():
    """An ordinary user's server: drain wants the token, from the terminal."""
    if os.geteuid():
        raise Skip("needs root to become another user")
    d = tempfile.mkdtemp(prefix="outgate-user-")
    uid, env = 65534, {"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": d}
    drop = dict(user=uid, group=uid, extra_groups=[], env=env, cwd=d)
    try:
        os.chown(d, uid, uid)
        exe = shutil.copy(EXE, os.path.join(d, "og"))
        port = L.free_port(["127.0.0.1"])
        subprocess.run([exe, "init", "h"], check=True, capture_output=True, **drop)
        conf = os.path.join(d, "h", "outgate.yaml")
        text = open(conf).read().replace("127.0.0.1:3128", f"127.0.0.1:{port}")
        open(conf, "w").write(text)
        p = subprocess.Popen([exe, "serve", "-c", conf], stderr=subprocess.PIPE, start_new_session=True, **drop)
        for line in p.stderr:
            if b"outgate: ready" in line:
                break
        token = open(os.path.join(d, "h/state/keys/console.token"), "rb").read().strip()
        status, out = typed([exe, "drain", "-c", conf], b"wrong" * 10, uid, env)
        assert status == UNREADABLE and b"does not fit" in out and p.poll() is None, out
        status, out = typed([exe, "drain", "-c", conf], token, uid, env)
        assert status == OK and token not in out, out
        assert p.wait(10) == OK
    finally:
        shutil.rmtree(d, ignore_errors=True)


# ---------------------------------------------------------------- run


def test_run_environment():
    with Folder() as f:
        f.write(credentials=CREDENTIAL)
        real = L.secret_value("cmd")
        env = {**os.environ, "LAB_SOURCE": real, "OPENAI_API_KEY": "sk-other", "KEEP_ME": "yes"}
        r = sh("run", "-c", f.file, "--agent", "coder", "--", "env", env=env)
        assert r.returncode == OK, r.err
        got = dict(line.split("=", 1) for line in r.out.splitlines() if "=" in line)
        assert real not in r.out + r.err
        assert got["GITHUB_TOKEN"].startswith("ghp_") and got["HTTPS_PROXY"].endswith(str(f.port)) and got["KEEP_ME"] == "yes"
        assert "LAB_SOURCE" not in got and "OPENAI_API_KEY" not in got
        for word in ("LAB_SOURCE", "OPENAI_API_KEY", "no boundary"):
            assert word in r.err, word
        assert "KEEP_ME" not in r.err


def test_run_status_and_private_server():
    with Folder() as f:
        r = sh("run", "-c", f.file, "--", "sh", "-c", "exit 7")
        assert r.returncode == 7 and "outgate: ready" in r.err
        assert sh("run", "-c", f.file, "--", "sh", "-c", "kill -TERM $$").returncode == 128 + signal.SIGTERM
        assert sh("run", "-c", f.file, "--", "/nonexistent").returncode == 127
        assert sh("status", "-c", f.file).returncode == UNREACHABLE  # the private one is gone
        p = f.serve()
        try:
            r = sh("run", "-c", f.file, "--", "sh", "-c", "cat; exit 3", text=b"through")
            assert r.returncode == 3 and r.out == "through" and "outgate: ready" not in r.err  # the one that runs is used
            assert p.poll() is None
        finally:
            ended(p)


LONG = "a" * 64  # as long as a name may be


def proxied(port, user, token, target="http://api.test/no"):
    """The status line and the refusal's code of one request to the proxy."""
    login = base64.b64encode(f"{user}:{token}".encode()).decode()
    with socket.create_connection(("127.0.0.1", port), 5) as s:
        s.sendall(f"GET {target} HTTP/1.1\r\nHost: api.test\r\nProxy-Authorization: Basic {login}\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while chunk := s.recv(4096):
            answer += chunk
    return answer.split(b" ", 2)[1].decode(), answer.decode(errors="replace")


def held_run(f, agent):
    """(process, token) of a command that goes on until it reads a line. No variable holds the agents' own tokens."""
    c = subprocess.Popen([EXE, "run", "-c", f.file, "--agent", agent, "--", "sh", "-c", "echo $HTTPS_PROXY; env | grep -cE '(0123456789abcdef){2}|(fedcba9876543210){2}'; read x"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    url = c.stdout.readline().strip()
    assert c.stdout.readline() == "0\n"
    return c, re.fullmatch(r"http://[^:]*:([0-9a-f]{64})@127\.0\.0\.1:" + str(f.port), url)[1]


def test_run_login():
    """An agent that logs in: the command gets a token that ends with it, and never sees the agent's own."""
    with Folder() as f:
        own, other = "0123456789abcdef" * 2, "fedcba9876543210" * 2
        for name, token in (("coder.token", own), ("other.token", other)):
            with open(f.path(name), "w") as out:
                out.write(token + "\n")
        text = open(f.file).read().replace("      - source: 127.0.0.1/32\n", f"""      - login: {{user: us%er, token_file: coder.token}}
  - name: {LONG}
    identify:
      - login: {{user: long, token_file: other.token}}
""")
        open(f.file, "w").write(text)
        p = f.serve()
        held = []
        try:
            assert proxied(f.port, "us%er", own)[0] != "407" and proxied(f.port, "us%er", other)[0] == "407"  # the agent's own token
            # two commands at once: each its own token
            held += [held_run(f, "coder"), held_run(f, "coder")]
            (first, a), (second, b) = held
            assert len({a, b, own}) == 3
            for token in (a, b):
                status, answer = proxied(f.port, "us%er", token)
                assert status == "403" and '"agent":"coder"' in answer, answer
                assert proxied(f.port, "long", token)[0] == "407"  # no login of another agent
            # a connection that began with it is refused once the run is over, the other run goes on
            login = base64.b64encode(f"us%er:{a}".encode()).decode()
            kept = socket.create_connection(("127.0.0.1", f.port), 5)
            kept.sendall(f"CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\nProxy-Authorization: Basic {login}\r\n\r\n".encode())
            assert kept.recv(4096).startswith(b"HTTP/1.1 200 ")
            first.communicate("\n", timeout=10)
            wait_for(lambda: proxied(f.port, "us%er", a)[0] == "407", "the end of the login")
            assert proxied(f.port, "us%er", b)[0] == "403"
            kept.sendall(b"GET /ok/x HTTP/1.1\r\nHost: api.test:443\r\n\r\n")
            assert b"unknown_agent" in kept.recv(65536)
            kept.close()
            # killed: the login goes as well
            second.kill()
            wait_for(lambda: proxied(f.port, "us%er", b)[0] == "407", "the end of the login")
            # a reload that takes the agent's login away
            third = held_run(f, LONG)
            held.append(third)
            assert proxied(f.port, "long", third[1])[0] == "403"
            now = open(f.file).read()
            open(f.file, "w").write(now.replace("login: {user: long, token_file: other.token}", "source: 127.0.0.2/32"))
            assert sh("reload", "-c", f.file).returncode == OK and proxied(f.port, "long", third[1])[0] == "407"
            open(f.file, "w").write(now)
            assert sh("reload", "-c", f.file).returncode == OK and proxied(f.port, "long", third[1])[0] == "403"
            what = [json.loads(line) for line in sh("audit", "tail", "-c", f.file, "-n", "200", "--json").out.splitlines()]
            runs = [(e["what"], e["message"]) for e in what if e["type"] == "lifecycle" and e["what"].startswith("run_")]
            assert runs.count(("run_begun", "coder")) == 2 and runs.count(("run_ended", "coder")) == 2 and ("run_begun", LONG) in runs, runs
        finally:
            for c, _ in held:
                c.kill()
                c.wait()
            ended(p)


def test_run_forwards_term():
    with Folder() as f:
        server = f.serve()
        try:
            p = subprocess.Popen([EXE, "run", "-c", f.file, "--", "sh", "-c", "trap 'exit 9' TERM; echo up; while :; do sleep 0.05; done"], stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL)
            assert p.stdout.readline() == b"up\n"
            p.terminate()
            assert p.wait(10) == 9
        finally:
            ended(server)


def test_run_keeps_the_terminal():
    with Folder() as f:
        server = f.serve()
        try:
            pid, fd = pty.fork()
            if pid == 0:
                os.execv(EXE, [EXE, "run", "-c", f.file, "--", "sh", "-c", "test -t 0 && test -t 1 && echo terminal"])
            out = b""
            while True:
                try:
                    chunk = os.read(fd, 4096)
                except OSError:
                    break
                if not chunk:
                    break
                out += chunk
            assert b"terminal" in out and os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, out
        finally:
            ended(server)


def test_ready_notification():
    with Folder() as f:
        path = f.path("notify")
        s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        s.bind(path)
        s.settimeout(10)
        p = f.serve({**os.environ, "NOTIFY_SOCKET": path})
        try:
            assert s.recv(100) == b"READY=1"
        finally:
            ended(p)
        assert s.recv(100) == b"STOPPING=1"
        s.close()


def test_signals_end_it():
    with Folder() as f:
        for sig in (signal.SIGTERM, signal.SIGINT):
            p = f.serve()
            start = time.monotonic()
            os.killpg(p.pid, sig)  # the roles get it too and leave it to the supervisor
            assert p.wait(10) == OK and time.monotonic() - start < 5
        assert sh("audit", "verify", "-c", f.file).returncode == OK


if __name__ == "__main__":
    L.main()
