#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real clients with the variables that `outgate env` prints and nothing else: what they ask arrives swapped, what is refused is shown to
their user, and what they write is free of the real value. CLIENTS: the table; PRODUCT: Wire cases. A client that is not installed is
skipped; nothing leaves loopback."""
import base64
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys

from lab import Lab, Skip, answer, main, read_request, wait_for

TOKEN = "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6"


def tool(name):
    path = shutil.which(name)
    if not path:
        raise Skip(f"{name} is not installed")
    return path


class Session:
    """What a sandbox would see: a home of its own, the printed variables, a folder for its files."""

    def __init__(self, lab, agent="coder"):
        self.lab, self.home = lab, lab.path("home")
        os.makedirs(self.home, exist_ok=True)
        r = lab.run("env", "-c", lab.path("outgate.yaml"), "--agent", agent, "--format", "json")
        assert r.returncode == 0, r.stderr
        self.vars = json.loads(r.stdout)
        self.env = {"PATH": os.environ["PATH"], "HOME": self.home, "LC_ALL": "C", "TMPDIR": self.home, **self.vars}
        self.said = b""

    def run(self, *argv, text=None, timeout=50, cwd=None, **env):
        """(exit status, stdout, stderr)"""
        r = subprocess.run(argv, env={**self.env, **env}, input=text, capture_output=True, timeout=timeout, cwd=cwd or self.home)
        self.said += r.stdout + r.stderr
        self.lab.blobs.append(r.stdout + r.stderr)
        return r.returncode, r.stdout.decode(errors="replace"), r.stderr.decode(errors="replace")

    def url(self, name="api.test", path="/", scheme="https"):
        port = self.lab.tls_port if scheme == "https" else self.lab.http_port
        return f"{scheme}://{name}:{port}{path}"


def arrived(lab, path):
    """The request for path as the origin saw it, swapped."""
    found = [m for m in lab.api.requests if m.target.split("?")[0] == path]
    assert found, [m.line for m in lab.api.requests]
    assert found[-1].get("authorization") == "Bearer " + lab.real, found[-1]
    return found[-1]


# ---------------------------------------------------------------- curl, wget


def test_curl(lab):
    curl, s = tool("curl"), Session(lab)
    bearer = ["-H", f"Authorization: Bearer {s.vars['GITHUB_TOKEN']}"]
    for n, args in enumerate(([], ["--http1.1"], ["--tls-max", "1.2"], ["-p"], ["-I"], ["--proxy-anyauth"])):
        code, out, err = s.run(curl, "-sS", *args, *bearer, s.url(path=f"/c{n}"))
        assert code == 0, (args, err)
        arrived(lab, f"/c{n}")
    code, out, err = s.run(curl, "-sS", "-w", "%{http_code}", s.url("evil.test").replace(str(lab.tls_port), "443"))
    assert code == 0 and "host_denied" in out and out.endswith("403"), (out, err)
    code, out, err = s.run(curl, "-sS", s.url("plain.test", "/p", "http"))
    assert code == 0 and lab.plain.last.target == "/p", err
    assert not lab.leaks(s.said)


def test_curl_uploads(lab):
    """Expect: 100-continue, a length or chunks, three megabytes, the same bytes."""
    curl, s = tool("curl"), Session(lab)
    data = random.Random(1).randbytes(3_000_000)
    with open(os.path.join(s.home, "f"), "wb") as f:
        f.write(data)
    for n, args in enumerate((["-T", "f"], ["-T", "-"], ["--data-binary", "@f"], ["-H", "Expect: 100-continue", "-T", "f"])):
        text = data if "-" in args else None
        code, out, err = s.run(curl, "-sS", "-o", "out", "-w", "%{http_code}", "-H", f"Authorization: Bearer {s.vars['GITHUB_TOKEN']}", *args,
                               s.url(path=f"/u{n}"), text=text)
        assert code == 0 and out == "200", (args, out, err)
        assert hashlib.sha256(arrived(lab, f"/u{n}").body).digest() == hashlib.sha256(data).digest(), args


def test_curl_through_a_tls_listener():
    """TLS to us and TLS in it, with the login that needs it; the URL that is printed is one that the certificate stands for."""
    curl = tool("curl")
    lab = Lab(start=False, agents="  - {name: coder, identify: [{login: {user: coder, token_file: coder.token}}]}\n")
    config = lab.config
    lab.config = lambda: config().replace(f"proxy: [127.0.0.1:{lab.port}]", f"proxy: ['tls:127.0.0.1:{lab.port}']")
    with lab:
        with open(lab.path("coder.token"), "w") as f:
            f.write(TOKEN)
        os.chmod(lab.path("coder.token"), 0o600)
        s = Session(lab.start())
        assert s.vars["https_proxy"] == f"https://coder:{TOKEN}@127.0.0.1:{lab.port}"
        args = ["-sS", "-o", "out", "--proxy-cacert", s.vars["CURL_CA_BUNDLE"], "-H", f"Authorization: Bearer {s.vars['GITHUB_TOKEN']}"]
        code, _, err = s.run(curl, *args, s.url(path="/t"))
        assert code == 0 and arrived(lab, "/t"), err
        code, _, err = s.run(curl, *args, "--proxy", f"https://coder:{TOKEN[::-1]}@127.0.0.1:{lab.port}", s.url(path="/no"))
        assert code != 0 and "407" in err and not [m for m in lab.api.requests if m.target == "/no"], err


def test_curl_follows_a_redirect_to_elsewhere(lab):
    """A13, B17: with --location-trusted the placeholder goes along; it is refused there and never swapped."""
    curl, s = tool("curl"), Session(lab)

    def redirect(conn, origin):
        while True:
            m = read_request(conn)
            origin.requests.append(m)
            conn.send(answer(302, "", [("Location", f"https://open.test:{lab.tls_port}/stolen?{m.get('authorization', '')[7:]}")]))

    lab.api.reset(redirect)
    code, out, err = s.run(curl, "-sS", "-L", "--location-trusted", "-H", f"Authorization: Bearer {s.vars['GITHUB_TOKEN']}", s.url(path="/r"))
    assert "placeholder_wrong_host" in out, (out, err)
    assert not lab.open.requests and not lab.leaks(s.said)
    code, out, err = s.run(curl, "-sS", "-L", s.url(path="/r"))  # the control: without a credential it may go there
    assert code == 0 and lab.open.last.target.startswith("/stolen"), (out, err)


def test_a_client_that_does_not_trust_us(lab):
    curl, s = tool("curl"), Session(lab)
    mark = lab.mark()
    env = {k: lab.path("ca.pem") for k in ("CURL_CA_BUNDLE", "SSL_CERT_FILE")}  # of somebody else
    code, out, err = s.run(curl, "-sS", s.url(), **env)
    assert code == 60, (code, err)
    e = lab.event(lambda e: e.get("end") == "tls_untrusted_ca", ("conn",), mark)
    assert "outgate env" in e["hint"] and e["agent"] == "coder" and e["host"] == "api.test", e


def test_wget(lab):
    wget, s = tool("wget"), Session(lab)
    args = [wget, "-q", "-O", "-"]
    code, out, err = s.run(*args, f"--header=Authorization: Bearer {s.vars['GITHUB_TOKEN']}", s.url(path="/w"))
    assert code == 0, err
    arrived(lab, "/w")
    code, out, err = s.run(*args, "--content-on-error", s.url("evil.test").replace(str(lab.tls_port), "443"))
    assert code == 8 and "host_denied" in out, (code, out, err)
    with open(os.path.join(s.home, "rc"), "wb") as f:  # the file that has the proxy as well, and no variable of ours
        f.write(lab.run("env", "-c", lab.path("outgate.yaml"), "--agent", "coder", "--format", "wgetrc").stdout)
    bare = {k: "" for k in s.vars if k != "GITHUB_TOKEN"}
    code, out, err = s.run(*args, f"--header=Authorization: Bearer {s.vars['GITHUB_TOKEN']}", s.url(path="/rc"), **{**bare, "WGETRC": s.home + "/rc"})
    assert code == 0 and arrived(lab, "/rc"), err
    with open(os.path.join(s.home, "rc"), "w") as f:  # the control: without the CA
        f.write(f"https_proxy = {s.vars['https_proxy']}\n")
    code, out, err = s.run(*args, s.url(path="/no"), **{**bare, "WGETRC": s.home + "/rc"})
    assert code == 5, (code, err)


# ---------------------------------------------------------------- git


class GitServer:
    """An origin's handler: smart HTTP by `git http-backend`, 401 first. `seen`: method, path, framing and coding of each request."""

    def __init__(self, root, token):
        self.root, self.token, self.seen = root, token, []

    def __call__(self, conn, origin):
        while True:
            m = read_request(conn)
            origin.requests.append(m)
            self.seen.append((m.method, m.target, "chunked" if m.all("transfer-encoding") else m.get("content-length"), m.get("content-encoding"), len(m.body)))
            login = m.get("authorization")
            if not login:
                conn.send(answer(401, "", [("WWW-Authenticate", 'Basic realm="git"')]))
            elif base64.b64decode(login.split(" ")[1]).decode().partition(":")[2] != self.token:
                conn.send(answer(403, "no such token\n", [("Content-Type", "text/plain")]))
            else:
                conn.send(self.backend(m))

    def backend(self, m):
        path, _, query = m.target.partition("?")
        env = dict(PATH=os.environ["PATH"], GIT_PROJECT_ROOT=self.root, GIT_HTTP_EXPORT_ALL="1", PATH_INFO=path, QUERY_STRING=query, REQUEST_METHOD=m.method,
                   CONTENT_TYPE=m.get("content-type", ""), CONTENT_LENGTH=str(len(m.body)), REMOTE_USER="u", REMOTE_ADDR="127.0.0.1",
                   GIT_PROTOCOL=m.get("git-protocol", ""), HTTP_CONTENT_ENCODING=m.get("content-encoding", ""), GIT_CONFIG_COUNT="1",
                   GIT_CONFIG_KEY_0="safe.directory", GIT_CONFIG_VALUE_0="*")
        out = subprocess.run(["git", "http-backend"], input=m.body, env=env, capture_output=True, timeout=30).stdout
        head, _, body = out.partition(b"\r\n\r\n")
        status, fields = 200, []
        for line in head.decode().split("\r\n"):
            k, _, v = line.partition(": ")
            if k == "Status":
                status = int(v.split()[0])
            else:
                fields.append((k, v))
        return answer(status, body, fields)


def git_in(s, folder, *args, **env):
    return s.run("git", "-c", "user.name=a", "-c", "user.email=a@a.test", "-c", "init.defaultBranch=main", "-c", "safe.directory=*", *args, cwd=folder,
                 GIT_TERMINAL_PROMPT="0", **env)


def git_server(lab, s, branches=61):
    """A repository behind git.test; with many branches the second request of a clone is compressed."""
    root = lab.path("repos")
    shutil.rmtree(root, ignore_errors=True)
    os.makedirs(root + "/work")
    for args in (("init", "-q", "--bare", root + "/srv.git"), ("-C", root + "/srv.git", "config", "http.receivepack", "true")):
        assert git_in(s, root, *args)[0] == 0
    work = root + "/work"
    assert git_in(s, work, "init", "-q")[0] == 0
    for n in range(branches):
        assert git_in(s, work, "commit", "-q", "--allow-empty", "-m", f"n{n}")[0] == 0
        git_in(s, work, "branch", f"b{n}")
    assert git_in(s, work, "push", "-q", "--all", root + "/srv.git")[0] == 0
    server = GitServer(root, lab.real)
    lab.api.reset(server)
    return server


def test_git_clone_and_push(lab):
    """A01, D05, D29: 401, then Basic with the placeholder inside; a compressed request; a push in chunks of some megabytes."""
    tool("git")
    s = Session(lab)
    server = git_server(lab, s)
    url = f"https://x-access-token:{s.vars['GITHUB_TOKEN']}@git.test:{lab.tls_port}/srv.git"
    code, out, err = git_in(s, s.home, "clone", "-q", url, "clone")
    assert code == 0, err
    assert any(coding == "gzip" for *_, coding, _ in server.seen), server.seen
    work = os.path.join(s.home, "clone")
    with open(work + "/blob", "wb") as f:
        f.write(random.Random(2).randbytes(3_000_000))
    assert git_in(s, work, "add", "blob")[0] == 0 and git_in(s, work, "commit", "-q", "-m", "blob")[0] == 0
    code, out, err = git_in(s, work, "push", "-q", "origin", "HEAD:pushed")
    assert code == 0, err
    assert any(framing == "chunked" and n > 2_000_000 for _, _, framing, _, n in server.seen), server.seen
    assert git_in(s, s.home, "-C", lab.path("repos", "srv.git"), "rev-parse", "pushed")[1] == git_in(s, work, "rev-parse", "HEAD")[1]
    for folder, _, files in os.walk(work):  # nothing of the real value in what git keeps
        for name in files:
            with open(os.path.join(folder, name), "rb") as f:
                assert lab.real.encode() not in f.read()
    assert not lab.leaks(s.said)
    shutil.rmtree(work)


def test_git_shows_a_refusal(lab):
    tool("git")
    s = Session(lab)
    code, out, err = git_in(s, s.home, "ls-remote", s.url("evil.test", "/x.git").replace(str(lab.tls_port), "443"))
    assert code != 0 and "outgate: host_denied" in err, err
    server = git_server(lab, s, branches=1)
    wrong = f"https://x-access-token:{'ghp_' + 'a' * 36}@git.test:{lab.tls_port}/srv.git"
    code, out, err = git_in(s, s.home, "ls-remote", wrong)  # a token of nobody's is not ours to touch: the host itself says no
    assert code != 0 and server.seen, err
    good = wrong.replace("ghp_" + "a" * 36, s.vars["GITHUB_TOKEN"])
    assert git_in(s, s.home, "ls-remote", good)[0] == 0  # the control


def test_git_logs_in_after_407():
    """G09: the first CONNECT is bare; after the challenge git tries again on the same socket."""
    tool("git")
    lab = Lab(start=False, agents="  - {name: coder, identify: [{login: {user: coder, token_file: coder.token}}]}\n")
    with lab:
        with open(lab.path("coder.token"), "w") as f:
            f.write(TOKEN)
        os.chmod(lab.path("coder.token"), 0o600)
        lab.start()
        s = Session(lab)
        assert f"coder:{TOKEN}@" in s.vars["https_proxy"]
        git_server(lab, s, branches=1)
        url = f"https://x-access-token:{s.vars['GITHUB_TOKEN']}@git.test:{lab.tls_port}/srv.git"
        for env in ({}, {"GIT_HTTP_PROXY_AUTHMETHOD": ""}, {"GIT_HTTP_PROXY_AUTHMETHOD": "anyauth"}):
            code, out, err = git_in(s, s.home, "ls-remote", url, **env)
            assert code == 0 and "refs/heads/main" in out, (env, err)
        curl = shutil.which("curl")
        if curl:
            for extra in ([], ["--proxy-anyauth"]):
                assert s.run(curl, "-sS", "-o", "out", *extra, s.url())[0] == 0
        bare = {k: f"http://127.0.0.1:{lab.port}" for k in ("https_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy")}
        code, out, err = git_in(s, s.home, "ls-remote", url, **bare)  # the control
        assert code != 0 and "407" in err, err
        assert TOKEN not in json.dumps(lab.events()) and TOKEN.encode() not in lab.log_bytes()


# ---------------------------------------------------------------- python


URLLIB = """
import os, ssl, sys, urllib.request
ctx = ssl.create_default_context()
ctx.verify_flags |= ssl.VERIFY_X509_STRICT
r = urllib.request.Request(sys.argv[1], headers={'Authorization': 'Bearer ' + os.environ['GITHUB_TOKEN']})
print(urllib.request.build_opener(urllib.request.ProxyHandler(), urllib.request.HTTPSHandler(context=ctx)).open(r, timeout=20).status)
"""
HTTP_CLIENT = """
import http.client, os, ssl, sys, urllib.parse
u, p = urllib.parse.urlsplit(sys.argv[1]), urllib.parse.urlsplit(os.environ['HTTPS_PROXY'])
c = http.client.HTTPSConnection(p.hostname, p.port, timeout=20, context=ssl.create_default_context())
c.set_tunnel(u.hostname, u.port)
for i in range(3):
    c.request('GET', u.path, headers={'Authorization': 'Bearer ' + os.environ['GITHUB_TOKEN']})
    r = c.getresponse()
    r.read()
print(r.status)
"""
REQUESTS = """
import os, requests, sys
with requests.Session() as s:
    s.headers['Authorization'] = 'Bearer ' + os.environ['GITHUB_TOKEN']
    print(s.get(sys.argv[1], timeout=20).status_code)
"""
HTTPX = """
import httpx, os, sys
print(httpx.get(sys.argv[1], headers={'Authorization': 'Bearer ' + os.environ['GITHUB_TOKEN']}, timeout=20).status_code)
"""
AIOHTTP = """
import aiohttp, asyncio, os, sys
async def main():
    async with aiohttp.ClientSession(trust_env=True) as s:
        async with s.get(sys.argv[1], headers={'Authorization': 'Bearer ' + os.environ['GITHUB_TOKEN']}) as r:
            print(r.status)
asyncio.run(main())
"""


def test_python(lab):
    s, missing, ran = Session(lab), [], 0
    for python in dict.fromkeys((sys.executable, "/usr/bin/python3")):
        if not os.path.exists(python):
            continue
        for name, code in (("urllib.request", URLLIB), ("http.client", HTTP_CLIENT), ("requests", REQUESTS), ("httpx", HTTPX), ("aiohttp", AIOHTTP)):
            if subprocess.run([python, "-c", f"import {name}"], capture_output=True).returncode:
                missing.append(name)
                continue
            status, out, err = s.run(python, "-c", code, s.url(path="/" + name))
            assert status == 0 and out.strip() == "200", (python, name, err[-600:])
            arrived(lab, "/" + name)
            ran += 1
    assert ran >= 2 and not lab.leaks(s.said)
    if missing:
        print("      not installed:", ", ".join(dict.fromkeys(missing)))


def test_pip(lab):
    """A package index behind us; CONNECT is HTTP/1.0 without Host on older Pythons."""
    s = Session(lab)
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode:
        raise Skip("pip is not installed")
    code, out, err = s.run(sys.executable, "-m", "pip", "download", "--no-cache-dir", "--disable-pip-version-check", "--retries", "0", "--index-url",
                           s.url("open.test", "/simple/"), "no-such-package")
    assert code != 0 and any(m.target.startswith("/simple/no-such-package") for m in lab.open.requests), (err[-400:], lab.open.requests)
    denied = s.url("evil.test", "/simple/").replace(str(lab.tls_port), "443")
    code, out, err = s.run(sys.executable, "-m", "pip", "-vv", "download", "--no-cache-dir", "--disable-pip-version-check", "--retries", "0", "--index-url",
                           denied, "no-such-package")
    assert code != 0 and "no rule lets this agent" in out + err, (out + err)[-600:]


# ---------------------------------------------------------------- node, java


NODE = """
const http = require('http'), https = require('https'), u = new URL(process.argv[1]), p = new URL(process.env.HTTPS_PROXY);
http.request({ host: p.hostname, port: p.port, method: 'CONNECT', path: u.host }).on('connect', (res, socket) => {
  https.get({ socket, agent: false, host: u.hostname, servername: u.hostname, path: u.pathname,
              headers: { host: u.host, authorization: 'Bearer ' + process.env.GITHUB_TOKEN } },
            r => { console.log(r.statusCode); r.resume(); r.on('end', () => process.exit(0)); })
    .on('error', e => { console.error(e.code || e); process.exit(1); });
}).on('error', e => { console.error(e); process.exit(1); }).end();
"""


def test_node(lab):
    node, s = tool("node"), Session(lab)
    code, out, err = s.run(node, "-e", NODE, s.url(path="/node"))  # its CONNECT has our address in Host
    assert code == 0 and out.strip() == "200", (out, err)
    arrived(lab, "/node")
    mark = lab.mark()
    code, out, err = s.run(node, "-e", NODE, s.url(path="/node"), NODE_EXTRA_CA_CERTS="", SSL_CERT_FILE="")
    assert code == 1 and re.search("UNABLE_TO|SELF_SIGNED", err), (out, err)
    e = lab.event(lambda e: e.get("host") == "api.test" and e["type"] == "conn", ("conn",), mark)
    assert "CA" in e["hint"], e


def test_npm(lab):
    npm, s = tool("npm"), Session(lab)

    def registry(conn, origin):
        while True:
            m = read_request(conn)
            origin.requests.append(m)
            conn.send(answer(200, json.dumps({"name": "@a/b", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {"name": "@a/b", "version": "1.0.0", "dist": {}}}}),
                             [("Content-Type", "application/json")]))

    lab.open.reset(registry)
    quiet = ["--no-audit", "--no-fund", "--no-update-notifier", "--fetch-retries=0"]
    code, out, err = s.run(npm, "view", "@a/b", "version", f"--registry={s.url('open.test')}", *quiet)
    assert code == 0 and out.strip() == "1.0.0", (out, err)
    assert any(m.target == "/@a%2fb" for m in lab.open.requests), [m.line for m in lab.open.requests]  # D21: %2F as it came
    denied = s.url("evil.test").replace(str(lab.tls_port), "443")
    code, out, err = s.run(npm, "view", "@a/b", "version", f"--registry={denied}", *quiet)
    assert code != 0 and "no rule lets this agent" in out + err, (out, err)


JAVA = """
import java.net.*; import java.net.http.*;
public class Ask { public static void main(String[] a) throws Exception {
  var c = HttpClient.newBuilder().proxy(ProxySelector.getDefault()).version(HttpClient.Version.HTTP_1_1).build();
  var r = c.send(HttpRequest.newBuilder(URI.create(a[0])).header("Authorization", "Bearer " + System.getenv("GITHUB_TOKEN")).build(),
                 HttpResponse.BodyHandlers.ofString());
  var u = (HttpURLConnection) new URL(a[0] + "2").openConnection();
  u.setRequestProperty("Authorization", "Bearer " + System.getenv("GITHUB_TOKEN"));
  System.out.println(r.statusCode() + " " + u.getResponseCode());
} }
"""


def test_java(lab):
    """The printed JAVA_TOOL_OPTIONS are all it needs."""
    java, s = tool("java"), Session(lab)
    tool("javac")
    with open(os.path.join(s.home, "Ask.java"), "w") as f:
        f.write(JAVA)
    code, out, err = s.run(java, "Ask.java", s.url(path="/java"))
    assert code == 0 and out.strip() == "200 200", (out, err[-800:])
    arrived(lab, "/java")
    arrived(lab, "/java2")


# ---------------------------------------------------------------- the variables themselves


def test_the_bundle_serves_other_hosts_too(lab):
    """G01, G13: system roots are in the bundle; no CIDR in NO_PROXY."""
    s = Session(lab)
    code, out, err = s.run(sys.executable, "-c", "import ssl; print(len(ssl.create_default_context().get_ca_certs()))")
    assert code == 0 and int(out) > 100, (out, err)
    for name in ("NO_PROXY", "no_proxy"):
        assert "/" not in s.vars[name] and "test" not in s.vars[name], s.vars[name]
    secrets = [k for k, v in s.vars.items() if lab.real in v]
    assert not secrets, secrets


def test_socat_and_nothing_to_say(lab):
    """C07: a connection that says nothing, and one that says nonsense: an event each, nothing dialled."""
    socat, s = tool("socat"), Session(lab)
    mark = lab.mark()
    code, out, err = s.run(socat, "-t", "2", "-", f"PROXY:127.0.0.1:open.test:{lab.tls_port},proxyport={lab.port}", text=b"\x00\x01\x02nonsense")
    lab.event(lambda e: e.get("end") == "protocol_denied", ("conn",), mark)
    mark = lab.mark()
    s.run(socat, "-t", "1", "-", f"TCP:127.0.0.1:{lab.port}", text=b"")
    lab.event(lambda e: e["type"] == "conn", ("conn",), mark)
    assert not lab.open.conns
    wait_for(lambda: lab.get().status == 200, "the control")


if __name__ == "__main__":
    main()
