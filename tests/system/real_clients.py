#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real clients end to end, with what `outgate env` prints and `outgate ca install` does and nothing else: each asks a TLS origin with a
placeholder, which arrives swapped; the same request to a host out of the credential's scope is refused, and the client shows why. Then
the refusal of a host, for each client of docs/CLIENTS.md: which of them show the reason (`real_clients.py --table` prints that table).

Slow, and it wants clients that a small machine lacks: run by `tests/run.sh --full`. What is not installed is skipped by name; clients from
npm are looked for in the node_modules of OUTGATE_NPM. Runs as root in a network namespace of its own that has loopback alone."""
import base64
import contextlib
import hashlib
import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

import lab as L
import test_h2_clients as H
import test_websocket as W
from lab import Lab, Origin, Skip, answer
from test_clients import GitServer, Session, git_in, git_server, tool

NPM = os.environ.get("OUTGATE_NPM", "")
HOME = os.path.expanduser("~")
REASON = re.compile(r"no\s+rule\s+lets\s+this\s+agent|host_denied")  # some fold their lines
OWN = {k: v for k, v in os.environ.items() if k in ("RUSTUP_HOME", "CARGO_HOME", "PYENV_ROOT", "PYENV_VERSION")}
if os.path.isdir(HOME + "/.rustup"):
    OWN.setdefault("RUSTUP_HOME", HOME + "/.rustup")


def npm_tool(name):
    path = os.path.join(NPM, "node_modules", ".bin", name)
    if not NPM or not os.path.exists(path):
        raise Skip(f"{name} is not in the node_modules of OUTGATE_NPM")
    return path


def put(s, name, text, mode=0o644):
    path = os.path.join(s.home, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(text if isinstance(text, bytes) else text.encode())
    os.chmod(path, mode)
    return path


class Lab443(Lab):
    """Origins on the port that clients take when none is said."""

    def _pki(self):
        self.tls_port = 443
        super()._pki()


# ---------------------------------------------------------------- the refusal of a host, client by client
#
# Each: (name, its version, what it asks of HOST). A client that is not here raises Skip.


def py(module, code):
    def ask(s, host):
        for python in ("/usr/bin/python3", sys.executable):
            if os.path.exists(python) and subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode == 0:
                return [python, "-c", code, f"https://{host}/x"], {}
        raise Skip(f"python's {module} is not installed")
    return ask


REQUESTS = "import requests,sys\nr = requests.get(sys.argv[1])\nprint(r.text)"
HTTPX = "import httpx,sys\nr = httpx.get(sys.argv[1])\nprint(r.text)"
AIOHTTP = """import aiohttp, asyncio, sys
async def main():
    async with aiohttp.ClientSession(trust_env=True) as s, s.get(sys.argv[1]) as r: print(await r.text())
asyncio.run(main())"""
URLLIB = "import sys, urllib.request\nprint(urllib.request.urlopen(sys.argv[1]).read())"
UNDICI = """const { EnvHttpProxyAgent, fetch } = require('undici');
fetch(process.argv[1], { dispatcher: new EnvHttpProxyAgent(), headers: process.argv[2] ? { authorization: 'Bearer ' + process.argv[2] } : {} })
  .then(async r => console.log(r.status, await r.text())).catch(e => { console.error(e); process.exit(1); });"""


def curl(s, host):
    return [tool("curl"), "-sS", f"https://{host}/"], {}


def wget(s, host):
    return [tool("wget"), "-O", "-", f"https://{host}/"], {}


def git(s, host):
    return [tool("git"), "ls-remote", f"https://{host}/x.git"], {"GIT_TERMINAL_PROMPT": "0"}


def gh(s, host):
    return [tool("gh"), "api", "user"], {"GH_HOST": host, "GH_ENTERPRISE_TOKEN": "x" * 40}


def go(s, host):
    put(s, "gomod/go.mod", "module m.test/m\n")
    return [tool("go"), "list", "-m", "lib.test/lib@v1.0.0"], {"GOPROXY": f"https://{host}", "GONOSUMDB": "*", "GOFLAGS": "-mod=mod", "PWD": s.home + "/gomod",
                                                                "cwd": s.home + "/gomod"}


def npm(s, host):
    return [tool("npm"), "view", "some-package", f"--registry=https://{host}/", "--fetch-retries=0", "--no-update-notifier"], {}


def pip(s, host):
    return [sys.executable, "-m", "pip", "download", "--no-cache-dir", "--retries=0", "--disable-pip-version-check", "--index-url", f"https://{host}/simple/", "some"], {}


def cargo_of(least):
    """Where sparse registries (1.68) and logins to them (1.74) are."""
    path = tool("cargo")
    came = tuple(map(int, version_of([path, "--version"]).split(".")[:2]))
    if came < least:
        raise Skip(f"cargo {came[0]}.{came[1]} is older than {least[0]}.{least[1]}")
    return path


def cargo(s, host):
    return [cargo_of((1, 68)), "search", "some", "--registry", "lab"], {"CARGO_REGISTRIES_LAB_INDEX": f"sparse+https://{host}/", "CARGO_NET_RETRY": "0"}


def apt_words(s, line):
    root = s.home + "/apt"
    for folder in ("state/lists/partial", "cache/archives/partial", "etc/trusted.gpg.d", "etc/preferences.d", "etc/auth.conf.d"):
        os.makedirs(f"{root}/{folder}", exist_ok=True)
    put(s, "apt/etc/sources.list", line)
    words = [f"Dir::State={root}/state", f"Dir::Cache={root}/cache", f"Dir::Etc={root}/etc", f"Dir::Etc::sourcelist={root}/etc/sources.list", "Acquire::Retries=0",
             "APT::Sandbox::User=root", "Acquire::Languages=none"]
    return [tool("apt-get")] + [x for w in words for x in ("-o", w)]


def apt(s, host):
    return [*apt_words(s, f"deb [trusted=yes] https://{host}/ stable main\n"), "update"], {}


def aws(s, host):
    return [tool("aws"), "--no-sign-request", "--endpoint-url", f"https://{host}", "s3api", "list-objects", "--bucket", "b"], AWS


AWS = {"AWS_DEFAULT_REGION": "eu-central-1", "AWS_MAX_ATTEMPTS": "1", "AWS_EC2_METADATA_DISABLED": "true"}


def gcloud(s, host):
    return [tool("gcloud"), "-q", "--access-token-file", put(s, "token", "ya29.x\n"), "projects", "list"], {
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDRESOURCEMANAGER": f"https://{host}/", "CLOUDSDK_CONFIG": s.home + "/gcloud", "CLOUDSDK_CORE_CHECK_GCE_METADATA": "0",
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1", "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "1", "CLOUDSDK_CORE_PROJECT": "p"}


def kubectl(s, host):
    return [tool("kubectl"), "--server", f"https://{host}", "--token", "x", "get", "pods"], {"KUBECONFIG": "/dev/null"}


def terraform(s, host):
    put(s, "tf/main.tf", f'terraform {{\n  required_providers {{\n    some = {{ source = "{host}/some/some" }}\n  }}\n}}\n')
    return [tool("terraform"), "init", "-no-color"], {"cwd": s.home + "/tf", "CHECKPOINT_DISABLE": "1", "TF_REGISTRY_DISCOVERY_RETRY": "0", "TF_CLI_CONFIG_FILE": put(s, "tfrc", "")}


def skopeo(s, host):
    return [tool("skopeo"), "--command-timeout=20s", "inspect", f"docker://{host}/some/some"], {}


def undici(s, host):
    npm_folder()
    return [tool("node"), "-e", UNDICI, f"https://{host}/"], {"NODE_PATH": NPM + "/node_modules"}


def npm_folder():
    if not os.path.isdir(os.path.join(NPM, "node_modules", "undici")):
        raise Skip("undici is not in the node_modules of OUTGATE_NPM")


def claude(s, host):
    return [npm_tool("claude"), "-p", "say pong"], {"ANTHROPIC_API_KEY": "sk-ant-api03-" + "a" * 95, "ANTHROPIC_BASE_URL": f"https://{host}", "IS_SANDBOX": "1",
                                                     "CLAUDE_CODE_MAX_RETRIES": "1"}


def codex(s, host, websocket=False):
    put(s, ".codex/config.toml", f'model_provider = "lab"\n[model_providers.lab]\nname = "lab"\nbase_url = "https://{host}/v1"\nenv_key = "OPENAI_API_KEY"\n'
        f'wire_api = "responses"\nsupports_websockets = {str(websocket).lower()}\nrequest_max_retries = 0\nstream_max_retries = 0\n')
    return [npm_tool("codex"), "exec", "--skip-git-repo-check", "say pong"], {"OPENAI_API_KEY": "sk-proj-" + "a" * 40}


def gemini(s, host):
    """Another base URL changes how it logs in: the host is the provider's own, which no rule names either."""
    put(s, ".gemini/settings.json", '{"security": {"auth": {"selectedType": "gemini-api-key"}}, "privacy": {"usageStatisticsEnabled": false}}')
    return [npm_tool("gemini"), "--skip-trust", "-p", "say pong"], {"GEMINI_API_KEY": "AIza" + "a" * 35, "GEMINI_CLI_TRUST_WORKSPACE": "true"}


CLIENTS = [
    ("curl", ["curl", "--version"], curl), ("wget", ["wget", "--version"], wget), ("git", ["git", "--version"], git), ("gh", ["gh", "--version"], gh),
    ("go", ["go", "version"], go), ("npm", ["npm", "--version"], npm), ("pip", [sys.executable, "-m", "pip", "--version"], pip),
    ("python requests", ["/usr/bin/python3", "-c", "import requests; print(requests.__version__)"], py("requests", REQUESTS)),
    ("python httpx", ["/usr/bin/python3", "-c", "import httpx; print(httpx.__version__)"], py("httpx", HTTPX)),
    ("python aiohttp", ["/usr/bin/python3", "-c", "import aiohttp; print(aiohttp.__version__)"], py("aiohttp", AIOHTTP)),
    ("python urllib", ["/usr/bin/python3", "--version"], py("urllib.request", URLLIB)), ("cargo", ["cargo", "--version"], cargo), ("apt", ["apt-get", "--version"], apt),
    ("aws-cli", ["aws", "--version"], aws), ("gcloud", ["gcloud", "--version"], gcloud), ("kubectl", ["kubectl", "version", "--client"], kubectl),
    ("terraform", ["terraform", "version"], terraform), ("skopeo", ["skopeo", "--version"], skopeo),
    ("node undici", ["node", "-p", "require(process.argv[1]).version", NPM + "/node_modules/undici/package.json"], undici),
    ("Claude Code", [NPM + "/node_modules/.bin/claude", "--version"], claude), ("Codex CLI", [NPM + "/node_modules/.bin/codex", "--version"], codex),
    ("Gemini CLI", [NPM + "/node_modules/.bin/gemini", "--version"], gemini),
]


def run_client(s, ask, host, timeout=60):
    """(exit status, what its user sees); 124: it did not end."""
    argv, env = ask(s, host)
    env = dict(env)
    cwd = env.pop("cwd", None)
    try:
        code, out, err = s.run(*argv, timeout=timeout, cwd=cwd, **{**OWN, **env})
        return code, out + err
    except subprocess.TimeoutExpired as e:
        return 124, "".join((x or b"").decode(errors="replace") for x in (e.stdout, e.stderr))


def version_of(argv):
    r = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=30, env={**os.environ, "TF_CLI_CONFIG_FILE": "/dev/null"})
    found = re.search(r"\d+\.\d+(?:\.\d+)?", r.stdout)
    return found[0] if found else "?"


def reasons(refuse_at, only="", tell=None):
    """{client: (exit status, the line that shows the reason, or None)}, and {client: why it was not run}."""
    shown, missing = {}, {}
    with Lab443(refuse_at=refuse_at) as lab:
        for name, _, ask in CLIENTS:
            if only not in name:
                continue
            s = Session(lab)
            mark = lab.mark()
            try:
                code, said = run_client(s, ask, "evil.test")
            except Skip as e:
                missing[name] = str(e)
                continue
            found = REASON.search(said)
            line = said[said.rfind("\n", 0, found.start()) + 1:].splitlines()[0].strip() if found else None
            def refusals():
                return sum(e.get("code") == "host_denied" for e in lab.events()[mark:])

            with contextlib.suppress(AssertionError):  # who was not refused at all is told below
                L.wait_for(refusals, "the event of a refusal", 5)
            tries = refusals()
            shown[name] = (code, line, tries)
            if tell:
                tell(name, code, line, tries, said)
            shutil.rmtree(s.home, ignore_errors=True)
    return shown, missing


def test_reasons_inside_the_tunnel():
    """Where a refusal is said by default: of those installed, at least 15 in 22, and these in any case."""
    told = told_by(*reasons("tunnel"))
    assert told["shown"] * 22 >= 15 * told["run"] and not told["silent"] & {"curl", "wget", "git", "gh", "go", "npm", "aws-cli", "apt", "Claude Code", "Codex CLI"}, told


def test_reasons_at_connect():
    """The control: there, some of the same clients say nothing, and those that print the reason phrase say it."""
    told = told_by(*reasons("connect"))
    assert {"curl", "git"} <= told["silent"] and not told["silent"] & {"wget", "go", "python requests"}, told


def told_by(shown, missing):
    for name, why in missing.items():
        print(f"      not run: {name}: {why}")
    silent = {name for name, (_, line, _) in shown.items() if not line}
    print(f"      {len(shown) - len(silent)} of {len(shown)} clients show the reason; silent: {', '.join(sorted(silent))}")
    assert len(shown) > 4 and all(tries for _, _, tries in shown.values()), shown
    return {"run": len(shown), "shown": len(shown) - len(silent), "silent": silent}


def print_table():
    """The rows of docs/CLIENTS.md."""
    tunnel, missing = reasons("tunnel")
    connect, _ = reasons("connect")
    for name, version, _ in CLIENTS:
        if name in missing:
            print(f"| {name} | not installed | | |")
            continue
        cells = ["yes" if t[name][1] else "no" for t in (tunnel, connect)]
        print(f"| {name} | {version_of(version)} | {cells[0]} | {cells[1]} | {tunnel[name][2]} | {connect[name][2]} | {(tunnel[name][1] or '')[:120]}")
    print(f"{sum(bool(x[1]) for x in tunnel.values())} of {len(tunnel)} inside the tunnel, {sum(bool(x[1]) for x in connect.values())} of {len(connect)} at CONNECT")


# ---------------------------------------------------------------- end to end: swapped here, refused there


def login_of(m):
    """The credential of a request, whatever form it came in."""
    kind, _, value = (m.get("authorization") or "").partition(" ")
    if kind == "Basic":
        return base64.b64decode(value).decode().partition(":")[2]
    return value or kind


def site(lab, pages, seen=None):
    """A handler: pages(message) -> an answer, to who has the real credential; 401 to the others, with a Basic challenge."""

    def handler(conn, origin):
        while True:
            m = L.read_head(conn)
            if (m.get("expect") or "").lower() == "100-continue":
                conn.send(b"HTTP/1.1 100 Continue\r\n\r\n")
            L.read_body(conn, m)
            origin.requests.append(m)
            if login_of(m) != lab.real:
                conn.send(answer(401, "log in\n", [("WWW-Authenticate", 'Basic realm="lab"')]))
            else:
                conn.send(pages(m))

    return handler


def refused_elsewhere(lab, said, mark, shows=True):
    """The same with a host out of the credential's scope: an event, nothing of it at the origin, and the client says why."""
    lab.event(lambda e: e.get("code") == "placeholder_wrong_host" and e.get("host") == "open.test", after=mark)
    assert not [m for m in lab.open.requests if m.get("authorization")], lab.open.requests
    if shows:
        assert re.search(r"placeholder_wrong_host|placeholder must not go to this host", said), said[-800:]
    assert not lab.leaks()


def both(lab, name, ask, pages=lambda m: answer(200, "{}\n", [("Content-Type", "application/json")]), shows=True, timeout=90):
    """ask(session, host) -> argv, environment. Runs it for the host in scope, then for the other. What it said the first time."""
    lab.fresh()
    s = Session(lab)
    lab.api.reset(site(lab, pages))
    lab.open.reset(site(lab, pages))
    code, said = run_client(s, ask, "api.test", timeout)
    asked = [m for m in lab.api.requests if login_of(m) == lab.real]
    assert asked, (name, code, said[-900:], lab.api.requests, lab.events()[-2:])
    assert code == 0, (name, code, said[-900:])
    shutil.rmtree(s.home, ignore_errors=True)
    s = Session(lab)
    mark = lab.mark()
    code, refused = run_client(s, ask, "open.test", timeout)
    refused_elsewhere(lab, refused, mark, shows)
    shutil.rmtree(s.home, ignore_errors=True)
    return said


def bearer(s):
    return "Authorization: Bearer " + s.vars["GITHUB_TOKEN"]


GO = """package main

import ("fmt"; "io"; "net/http"; "os")

func main() {
	r, _ := http.NewRequest("GET", os.Args[1], nil)
	r.Header.Set("Authorization", "Bearer "+os.Getenv("GITHUB_TOKEN"))
	a, err := http.DefaultClient.Do(r)
	if err != nil { fmt.Println(err); os.Exit(1) }
	body, _ := io.ReadAll(a.Body)
	fmt.Println(a.Status, string(body))
}
"""
RUBY = """require 'net/http'
r = Net::HTTP.get_response(URI(ARGV[0]), {'Authorization' => 'Bearer ' + ENV['GITHUB_TOKEN']})
puts r.code, r.body"""
PERL = "use LWP::UserAgent; my $u = LWP::UserAgent->new(env_proxy => 1); my $r = $u->get($ARGV[0], Authorization => \"Bearer $ENV{GITHUB_TOKEN}\"); print $r->as_string;"


def go_program(s, host):
    put(s, "prog/main.go", GO)
    put(s, "prog/go.mod", "module m.test/m\n")
    return [tool("go"), "run", ".", f"https://{host}/go"], {"cwd": s.home + "/prog", "GOFLAGS": "-mod=mod"}


def with_python(module, code):
    token = "{'Authorization': 'Bearer ' + os.environ['GITHUB_TOKEN']}"
    return py(module, "import os\n" + code.replace("(sys.argv[1])", f"(sys.argv[1], headers={token})"))


URLLIB_LOGIN = """import os, sys, urllib.request, urllib.error
r = urllib.request.Request(sys.argv[1], headers={'Authorization': 'Bearer ' + os.environ['GITHUB_TOKEN']})
try: print(urllib.request.urlopen(r).read())
except urllib.error.HTTPError as e: print(e, e.read())"""
SIMPLE = {
    "curl": lambda s, h: ([tool("curl"), "-sS", "-H", bearer(s), f"https://{h}/x"], {}),
    "wget": lambda s, h: ([tool("wget"), "-O", "-", "--header", bearer(s), f"https://{h}/x"], {}),
    "gh": lambda s, h: ([tool("gh"), "api", "user"], {"GH_HOST": h, "GH_ENTERPRISE_TOKEN": s.vars["GITHUB_TOKEN"]}),
    "go": go_program,
    "requests": with_python("requests", REQUESTS),
    "httpx": with_python("httpx", HTTPX),
    "urllib": py("urllib.request", URLLIB_LOGIN),
    "undici": lambda s, h: ([*undici(s, h)[0], s.vars["GITHUB_TOKEN"]], undici(s, h)[1]),
    "ruby": lambda s, h: ([tool("ruby"), "-e", RUBY, f"https://{h}/x"], {}),
    "perl": lambda s, h: ([tool("perl"), "-e", PERL, f"https://{h}/x"], {}),
}


# ---------------------------------------------------------------- git


def test_git_with_a_large_pack():
    """100 MB up and down, after a 407 and a 401, with a compressed request and a chunked one."""
    tool("git")
    token = "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6"
    with Lab443(start=False, agents="  - {name: coder, identify: [{login: {user: coder, token_file: coder.token}}]}\n") as lab:
        with open(lab.path("coder.token"), "w") as f:
            f.write(token)
        os.chmod(lab.path("coder.token"), 0o600)
        lab.start()
        s = Session(lab)
        server = git_server(lab, s)
        bare = {"GIT_HTTP_PROXY_AUTHMETHOD": "anyauth"}
        url = f"https://x-access-token:{s.vars['GITHUB_TOKEN']}@git.test/srv.git"
        code, out, err = git_in(s, s.home, "clone", "-q", url, "clone", **bare)
        assert code == 0 and any(coding == "gzip" for *_, coding, _ in server.seen), (err, server.seen)
        work = os.path.join(s.home, "clone")
        noise = random.Random(3).randbytes(100_000_000)
        put(s, "clone/blob", noise)
        assert git_in(s, work, "add", "blob")[0] == 0 and git_in(s, work, "commit", "-q", "-m", "blob")[0] == 0
        code, out, err = git_in(s, work, "push", "-q", "origin", "HEAD:pushed", timeout=200, **bare)
        assert code == 0, err
        assert any(framing == "chunked" and n > 100_000_000 for _, _, framing, _, n in server.seen), server.seen
        shutil.rmtree(work)
        code, out, err = git_in(s, s.home, "clone", "-q", "-b", "pushed", url, "again", timeout=200, **bare)
        assert code == 0, err
        with open(os.path.join(s.home, "again", "blob"), "rb") as f:
            assert hashlib.sha256(f.read()).digest() == hashlib.sha256(noise).digest()
        mark = lab.mark()
        lab.open.reset(GitServer(server.root, lab.real))
        code, out, err = git_in(s, s.home, "ls-remote", url.replace("git.test", "open.test"), **bare)  # the control
        assert code != 0, out
        refused_elsewhere(lab, err, mark)


# ---------------------------------------------------------------- agents


def sse(events):
    return "".join(f"event: {e['type']}\n" * ("type" in e) + f"data: {json.dumps(e)}\n\n" for e in events)


def anthropic(m):
    if not m.target.startswith("/v1/messages") or "count_tokens" in m.target:
        return answer(200, "{}", [("Content-Type", "application/json")])
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None, "stop_sequence": None,
               "usage": {"input_tokens": 1, "output_tokens": 1}}
    if not m.json().get("stream"):
        return answer(200, json.dumps({**message, "content": [{"type": "text", "text": "LABPONG"}], "stop_reason": "end_turn"}), [("Content-Type", "application/json")])
    return answer(200, sse([{"type": "message_start", "message": message}, {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
                            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "LABPONG"}}, {"type": "content_block_stop", "index": 0},
                            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}, {"type": "message_stop"}]),
                  [("Content-Type", "text/event-stream")])


def openai_events():
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": "LABPONG", "annotations": []}]}
    usage = {"input_tokens": 1, "input_tokens_details": None, "output_tokens": 1, "output_tokens_details": None, "total_tokens": 2}
    return [{"type": "response.created", "response": {"id": "resp_1"}}, {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": {"id": "resp_1", "output": [item], "usage": usage}}]


def openai_by_websocket(conn, m):
    """A request is a text message, each event of its answer another one."""
    conn.send(f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {W.accept_of(m.get('sec-websocket-key'))}\r\n\r\n".encode())
    while True:
        op, payload, _, _ = W.read_message(conn)
        assert op == 1 and json.loads(payload)["type"] == "response.create", payload
        for e in openai_events():
            conn.send(W.frame(json.dumps(e), masked=False))


def openai(m):
    if not m.target.split("?")[0].endswith("/responses"):
        return answer(200, '{"data": [], "models": []}', [("Content-Type", "application/json")])
    if m.method != "POST":
        return answer(426, "no WebSocket here\n", reason="Upgrade Required")
    return answer(200, sse(openai_events()), [("Content-Type", "text/event-stream")])


def google(m):
    text = "LABPONG" if "stream" in m.target else '{"reasoning": "x", "model_choice": "flash", "complexity_score": 1, "complexity_reasoning": "x"}'
    body = {"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}}
    if "stream" in m.target:
        return answer(200, f"data: {json.dumps(body)}\r\n\r\n", [("Content-Type", "text/event-stream")])
    return answer(200, json.dumps(body), [("Content-Type", "application/json")])


# command, provider's host, its variable, the fields that hold the credential, the provider
AGENTS = {
    "claude": (claude, "api.anthropic.com", "ANTHROPIC_API_KEY", ("x-api-key", "authorization"), anthropic),
    "codex": (codex, "api.openai.com", "OPENAI_API_KEY", ("authorization",), openai),
    "codex by WebSocket": (lambda s, h: codex(s, h, True), "api.openai.com", "OPENAI_API_KEY", ("authorization",), openai),
    "gemini": (gemini, "generativelanguage.googleapis.com", "GEMINI_API_KEY", ("x-goog-api-key",), google),
}


def agent_lab(name, in_scope):
    """The provider is a host that the rule lets through; the credential is its own, or another host's."""
    _, host, variable, fields, provider = AGENTS[name]
    slots = ", ".join(f'"header:{f}"' for f in fields)
    lab = Lab443(start=False, hosts={host: "127.0.0.6"}, rules=f"  - {{name: model, hosts: [{host}], action: allow}}",
                 credentials=f"  - {{name: model, agents: [coder], hosts: [{host if in_scope else 'api.test'}], slots: [{slots}], env: {variable}, source: {{file: REAL2}}}}\n")
    lab.asked = []

    def handler(conn, origin):
        while True:
            m = L.read_head(conn)
            L.read_body(conn, m)
            lab.asked.append(m)
            if m.get("sec-websocket-key") and name == "codex by WebSocket":
                openai_by_websocket(conn, m)
            conn.send(provider(m))

    lab.origins[host] = Origin(lab, "127.0.0.6", 443, handler=handler)
    lab.patched()
    return lab


def run_agent(lab, name):
    ask, host, variable, fields, _ = AGENTS[name]
    s = Session(lab)
    argv, env = ask(s, host)
    env = {k: v for k, v in env.items() if k not in (variable, "ANTHROPIC_BASE_URL")}
    code, out, err = s.run(*argv, timeout=100, **{**OWN, **env})
    assert s.vars[variable] not in "".join(v for m in lab.asked for _, v in m.headers), "a placeholder reached the origin"
    return code, out + err, [m for m in lab.asked if any(lab.real2 in v for _, v in m.headers)]


def agent_end_to_end(name, as_expected=lambda asked: True):
    with agent_lab(name, True) as lab:
        code, said, swapped = run_agent(lab, name)
        assert code == 0 and "LABPONG" in said, (code, said[-900:], [m.line for m in lab.asked], lab.events("close")[-4:])
        assert swapped and as_expected(lab.asked) and not lab.leaks(), [m.line for m in lab.asked]
    with agent_lab(name, False) as lab:  # the control: the credential is another host's
        code, said, swapped = run_agent(lab, name)
        assert code != 0 and not swapped and re.search("placeholder_wrong_host|placeholder must not go to this host", said), (code, said[-900:])
        lab.event(lambda e: e.get("code") == "placeholder_wrong_host" and e.get("host") == AGENTS[name][1])


def test_claude_code():
    agent_end_to_end("claude")


def test_codex():
    agent_end_to_end("codex")


def test_codex_by_websocket():
    """Its first choice where the provider speaks it: one WebSocket, swapped in the handshake, and no POST."""
    agent_end_to_end("codex by WebSocket", lambda asked: [m.method for m in asked if m.target.split("?")[0].endswith("/responses")] == ["GET"])


def test_gemini():
    agent_end_to_end("gemini")


# ---------------------------------------------------------------- what has no HTTP of its own shape


GRPC_JS = """
const grpc = require('@grpc/grpc-js'), fs = require('fs');
const [target, ca, token] = process.argv.slice(1);
const id = b => b, call = (name, out, back) => ({ path: '/t.T/' + name, requestStream: out, responseStream: back, requestSerialize: id,
  requestDeserialize: id, responseSerialize: id, responseDeserialize: id });
const T = grpc.makeGenericClientConstructor({ Echo: call('Echo', false, false), Many: call('Many', false, true), Chat: call('Chat', true, true),
  Fails: call('Fails', false, false), Slow: call('Slow', false, false) }, 'T');
const c = new T(target, grpc.credentials.createSsl(fs.readFileSync(ca)));
const meta = new grpc.Metadata(); meta.set('authorization', 'Bearer ' + token);
const unary = (name, body, options = {}) => new Promise((good, bad) => c[name](Buffer.from(body), meta, options, (e, r) => e ? bad(e) : good(r)));
(async () => {
  const big = 'x'.repeat(3000000);
  if (String(await unary('Echo', big)) !== big) throw new Error('Echo');
  const many = []; for await (const r of c.Many(Buffer.from(''), meta)) many.push(String(r));
  if (many.join() !== '0,1,2,3,4') throw new Error('Many ' + many);
  const chat = c.Chat(meta); let k = 0;
  await new Promise((good, bad) => { chat.on('data', r => { if (String(r) !== 'm' + k) bad(new Error('Chat ' + r)); if (++k < 200) chat.write(Buffer.from('m' + k)); else chat.end(); });
    chat.on('end', good); chat.on('error', bad); chat.write(Buffer.from('m0')); });
  for (const [name, options] of [['Fails', {}], ['Slow', { deadline: Date.now() + 300 }]])
    await unary(name, '', options).then(() => { throw new Error(name); }, e => console.log(e.code, e.details));
  await new T(process.argv[4], grpc.credentials.createSsl(fs.readFileSync(ca))).Echo(Buffer.from(''), meta, e => { console.log(e.code, e.details); console.log('fine'); });
})().catch(e => { console.error(e); process.exit(1); });
"""


def test_grpc_js():
    """Unary, streams, an error, a deadline and a refusal, with HTTP/2 on both sides."""
    if not os.path.isdir(os.path.join(NPM, "node_modules", "@grpc", "grpc-js")):
        raise Skip("@grpc/grpc-js is not in the node_modules of OUTGATE_NPM")
    with H.h2_origin_lab() as lab:
        python, s, env = H.grpc_session(lab)
        argv = [python, "-c", H.GRPC_SERVER, f"{lab.hosts['grpc.test']}:{lab.tls_port}", lab.path("origin.key"), lab.path("origin.pem")]
        with H.server_of(lab, argv, "grpc.log") as said:
            code, out, err = s.run(tool("node"), "-e", GRPC_JS, f"grpc.test:{lab.tls_port}", lab.path("outgate-ca.pem"), s.vars["GRPC_TOKEN"], f"open.test:{lab.tls_port}",
                                   NODE_PATH=NPM + "/node_modules", **env)
            assert code == 0 and "fine" in out, out + err[-900:]
            told = out.splitlines()
            assert told[0] == "5 no such thing" and told[1].startswith("4 ") and told[2].startswith("7 outgate: placeholder_"), told
            wanted = hashlib.sha256(("Bearer " + lab.real2).encode()).hexdigest()
            assert set(re.findall("^[0-9a-f]{64}$", said(), re.M)) == {wanted}, said()
        assert not lab.leaks(s.said)


NODE_WS = """
const WebSocket = require('ws'), http = require('http'), tls = require('tls'), fs = require('fs');
const [proxy, name, port, ca, token] = process.argv.slice(1), at = new URL(proxy);
const ask = http.request({ host: at.hostname, port: at.port, method: 'CONNECT', path: name + ':' + port, headers: { host: name + ':' + port } });
ask.on('connect', (r, socket) => {
  const ws = new WebSocket('wss://' + name + ':' + port + '/ws', { headers: { authorization: 'Bearer ' + token },
    createConnection: () => tls.connect({ socket, servername: name, ca: fs.readFileSync(ca), ALPNProtocols: ['http/1.1'] }) });
  const sent = ['plain', JSON.stringify({ token }), 'y'.repeat(300000)]; let k = 0;
  ws.on('open', () => ws.send(sent[0]));
  ws.on('message', m => { if (String(m) !== sent[k]) throw new Error(k + ': ' + String(m).slice(0, 200)); if (++k < sent.length) ws.send(sent[k]); else ws.close(1000, 'bye'); });
  ws.on('close', (code, why) => { console.log(code, String(why), ws.extensions); console.log('fine'); });
});
ask.end();
"""


def test_node_ws():
    """With what it offers by itself (permessage-deflate), and the swap in a message."""
    if not os.path.isdir(os.path.join(NPM, "node_modules", "ws")):
        raise Skip("ws is not in the node_modules of OUTGATE_NPM")
    for extra in ("", W.PMD_ON):
        with W.make_lab() as lab:
            def origin(conn, o):
                W.switch(conn, o, extra)
                z, back = W.zlib.decompressobj(wbits=-15), W.zlib.compressobj(wbits=-15)
                o.texts = []
                while True:
                    f = W.read_frame(conn)
                    if f.op == W.CLOSE:
                        conn.send(W.frame(f.payload, W.CLOSE, masked=False))
                        return
                    payload = f.payload
                    while not f.fin:
                        more = W.read_frame(conn)
                        payload, f = payload + more.payload, W.Frame(f.op, more.fin, f.rsv1, True, b"", b"")
                    text = W.inflated(payload, z) if f.rsv1 else payload
                    o.texts.append(text)
                    conn.send(W.frame(W.deflated(text, back), rsv1=True, masked=False) if f.rsv1 else W.frame(text, masked=False))

            lab.api.reset(origin)
            s = Session(lab)
            code, out, err = s.run(tool("node"), "-e", NODE_WS, f"http://127.0.0.1:{lab.port}", "ws.test", str(lab.tls_port), lab.path("outgate-ca.pem"), lab.placeholder2,
                                   NODE_PATH=NPM + "/node_modules")
            assert code == 0 and out.splitlines()[-1:] == ["fine"] and out.startswith("1000 bye"), out + err[-900:]
            assert bool(extra) == ("permessage-deflate" in out), out
            assert lab.api.texts[1] == L.json.dumps({"token": lab.real2}, separators=(",", ":")).encode(), lab.api.texts[1]
            assert lab.api.last.get("authorization") == "Bearer " + lab.real2
            assert not lab.leaks(s.said)


# ---------------------------------------------------------------- clients that share a lab: behind those with labs of their own, which want the same ports


def test_simple_clients(lab):
    for name, ask in SIMPLE.items():
        try:
            both(lab, name, ask)
            print("      " + name)
        except Skip as e:
            print(f"      not run: {name}: {e}")


# ---------------------------------------------------------------- package managers


def tgz(files):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as t:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(text), 0o644
            t.addfile(info, io.BytesIO(text.encode()))
    return raw.getvalue()


def test_npm_install(lab):
    npm_path = tool("npm")
    pack = tgz({"package/package.json": '{"name": "lib", "version": "1.0.0", "main": "i.js"}', "package/i.js": "module.exports = 42\n"})
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(pack).digest()).decode()
    host = ["api.test"]

    def pages(m):
        if m.target.endswith(".tgz"):
            return answer(200, pack, [("Content-Type", "application/octet-stream")])
        dist = {"tarball": f"https://{host[0]}/lib/-/lib-1.0.0.tgz", "integrity": integrity}
        return answer(200, json.dumps({"name": "lib", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {"name": "lib", "version": "1.0.0", "dist": dist}}}),
                      [("Content-Type", "application/json")])

    def ask(s, h):
        host[0] = h
        put(s, ".npmrc", f"registry=https://{h}/\n//{h}/:_authToken=${{GITHUB_TOKEN}}\n")
        put(s, "p/package.json", '{"name": "p", "version": "1.0.0"}')
        return ["sh", "-c", f'{npm_path} install lib --no-audit --no-fund --no-update-notifier --fetch-retries=0 && node -e "process.exit(require(\'lib\') == 42 ? 0 : 9)"'], {
            "cwd": s.home + "/p"}

    both(lab, "npm", ask, pages)


def test_pip_install(lab):
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode:
        raise Skip("pip is not installed")
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as z:
        z.writestr("lablib.py", "X = 42\n")
        z.writestr("lablib-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: lablib\nVersion: 1.0\n")
        z.writestr("lablib-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: lab\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr("lablib-1.0.dist-info/RECORD", "lablib.py,,\nlablib-1.0.dist-info/METADATA,,\nlablib-1.0.dist-info/WHEEL,,\nlablib-1.0.dist-info/RECORD,,\n")
    wheel = raw.getvalue()

    def pages(m):
        if m.target.endswith(".whl"):
            return answer(200, wheel)
        return answer(200, '<html><a href="/files/lablib-1.0-py3-none-any.whl">lablib-1.0-py3-none-any.whl</a></html>', [("Content-Type", "text/html")])

    def ask(s, h):
        return [sys.executable, "-m", "pip", "-vv", "install", "--no-cache-dir", "--disable-pip-version-check", "--retries=0", "--target", s.home + "/site", "--index-url",
                f"https://u:{s.vars['GITHUB_TOKEN']}@{h}/simple/", "lablib"], {}

    both(lab, "pip", ask, pages)


def test_cargo(lab):
    cargo_path = cargo_of((1, 74))
    crate = tgz({"labs-1.0.0/Cargo.toml": '[package]\nname = "labs"\nversion = "1.0.0"\n[lib]\npath = "l.rs"\n', "labs-1.0.0/l.rs": "pub fn x() {}\n"})
    entry = json.dumps({"name": "labs", "vers": "1.0.0", "deps": [], "cksum": hashlib.sha256(crate).hexdigest(), "features": {}, "yanked": False})
    host = ["api.test"]

    def pages(m):
        if m.target == "/config.json":
            return answer(200, json.dumps({"dl": f"https://{host[0]}/dl/{{crate}}-{{version}}.crate", "auth-required": True}))
        return answer(200, crate if m.target.startswith("/dl/") else entry + "\n")

    def ask(s, h):
        host[0] = h
        put(s, "p/Cargo.toml", '[package]\nname = "p"\nversion = "0.1.0"\n[lib]\npath = "l.rs"\n[dependencies]\nlabs = { version = "1", registry = "lab" }\n')
        put(s, "p/l.rs", "")
        return [cargo_path, "fetch"], {"cwd": s.home + "/p", "CARGO_REGISTRIES_LAB_INDEX": f"sparse+https://{h}/", "CARGO_REGISTRIES_LAB_TOKEN": s.vars["GITHUB_TOKEN"],
                                       "CARGO_REGISTRY_GLOBAL_CREDENTIAL_PROVIDERS": "cargo:token", "CARGO_NET_RETRY": "0", "CARGO_HOME": s.home + "/.cargo"}

    both(lab, "cargo", ask, pages)


def test_apt(lab):
    tool("apt-get")
    build = lab.path("deb")
    os.makedirs(build + "/lab/DEBIAN", exist_ok=True)
    with open(build + "/lab/DEBIAN/control", "w") as f:
        f.write("Package: lab\nVersion: 1.0\nArchitecture: all\nMaintainer: lab <lab@lab.test>\nDescription: lab\n")
    subprocess.run([tool("dpkg-deb"), "-b", build + "/lab", build + "/lab.deb"], check=True, capture_output=True)
    with open(build + "/lab.deb", "rb") as f:
        deb = f.read()
    packages = (f"Package: lab\nVersion: 1.0\nArchitecture: all\nMaintainer: lab <lab@lab.test>\nDescription: lab\nFilename: pool/lab_1.0_all.deb\nSize: {len(deb)}\n"
                f"SHA256: {hashlib.sha256(deb).hexdigest()}\n\n").encode()
    arch = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True).stdout.strip()
    release = (f"Origin: lab\nSuite: stable\nCodename: stable\nArchitectures: {arch}\nComponents: main\nDate: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n"
               f" {hashlib.sha256(packages).hexdigest()} {len(packages)} main/binary-{arch}/Packages\n")
    pages_of = {"/dists/stable/Release": release.encode(), f"/dists/stable/main/binary-{arch}/Packages": packages, "/pool/lab_1.0_all.deb": deb}

    def pages(m):
        body = pages_of.get(m.target)
        return answer(200, body) if body else answer(404, "no\n", reason="Not Found")

    def ask(s, h):
        words = apt_words(s, f"deb [trusted=yes] https://{h}/ stable main\n")
        put(s, "apt/etc/auth.conf", f"machine https://{h} login u password {s.vars['GITHUB_TOKEN']}\n", 0o600)
        line = " ".join(words)
        return ["sh", "-c", f"{line} update && {line} download lab && cmp lab_1.0_all.deb {build}/lab.deb"], {"cwd": s.home}

    both(lab, "apt", ask, pages)


# ---------------------------------------------------------------- aws, a browser


def plain(m):
    """A body without the framing that S3's clients put into it to have a checksum behind it."""
    if "aws-chunked" not in (m.get("content-encoding") or ""):
        return m.body
    out, rest = b"", m.body
    while True:
        size, _, rest = rest.partition(b"\r\n")
        n = int(size.split(b";")[0], 16)
        if n == 0:
            assert re.match(rb"x-amz-checksum-\w+:", rest), rest[:100]
            return out
        out, rest = out + rest[:n], rest[n + 2:]


def test_aws(lab):
    """Unsigned operations: a streamed upload (chunks, 100-continue), a download, a listing."""
    path, data, stored = tool("aws"), random.Random(5).randbytes(9_000_000), {}
    lab.fresh()
    s = Session(lab)
    put(s, "f", data)

    def store(conn, origin):
        while True:
            m = L.read_head(conn)
            if (m.get("expect") or "").lower() == "100-continue":
                conn.send(b"HTTP/1.1 100 Continue\r\n\r\n")
            L.read_body(conn, m)
            origin.requests.append(m)
            body, fields = b"", [("ETag", '"x"')]
            if m.method == "POST" and "uploads" in m.target:
                body = b"<InitiateMultipartUploadResult><Bucket>b</Bucket><Key>f</Key><UploadId>1</UploadId></InitiateMultipartUploadResult>"
            elif m.method == "POST":
                body = b"<CompleteMultipartUploadResult><Key>f</Key></CompleteMultipartUploadResult>"
            elif m.method == "PUT":
                part = re.search(r"partNumber=(\d+)", m.target)
                stored[int(part[1]) if part else 0] = plain(m)
            elif "list-type" in m.target:
                body = b"<ListBucketResult><Name>b</Name><Contents><Key>f</Key><Size>1</Size><LastModified>2026-01-01T00:00:00Z</LastModified></Contents></ListBucketResult>"
            elif m.method == "GET":
                body = b"".join(v for _, v in sorted(stored.items()))
                r = re.fullmatch(r"bytes=(\d+)-(\d*)", m.get("range") or "")
                if r:
                    total = len(body)
                    body = body[int(r[1]):int(r[2] or total) + 1]
                    conn.send(answer(206, body, [*fields, ("Content-Range", f"bytes {r[1]}-{int(r[1]) + len(body) - 1}/{total}")]))
                    continue
            if m.method == "HEAD":
                conn.send(answer(200, b"", [*fields, ("Content-Length", str(sum(map(len, stored.values())))), ("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")], length=False))
            else:
                conn.send(answer(200, body, fields))

    lab.open.reset(store)
    env = {**OWN, **AWS}
    words = [path, "--no-sign-request", "--endpoint-url", "https://open.test", "s3"]
    for args in (["cp", "f", "s3://b/f"], ["cp", "s3://b/f", "g"], ["ls", "s3://b/"]):
        code, out, err = s.run(*words, *args, timeout=100, **env)
        assert code == 0, (args, out, err[-900:], [m.line for m in lab.open.requests][-5:])
    with open(s.home + "/g", "rb") as f:
        came = f.read()
    assert came == data, (len(came), {k: len(v) for k, v in stored.items()}, b"".join(v for _, v in sorted(stored.items())) == data, [m.line for m in lab.open.requests])
    code, out, err = s.run(*[w.replace("open.test", "evil.test") for w in words], "ls", "s3://b/", timeout=100, **env)  # the control
    assert code != 0 and "host_denied" in err, err
    shutil.rmtree(s.home, ignore_errors=True)


def test_chromium(lab):
    """A browser knows the CA only by its NSS database, where `ca install` puts it; a placeholder in Basic."""
    browser = shutil.which("chromium") or tool("chromium-browser")
    tool("certutil")
    lab.fresh()
    s = Session(lab)
    page = lambda m: answer(200, "<html><body>the page</body></html>", [("Content-Type", "text/html")])  # noqa: E731
    lab.api.reset(site(lab, page))
    lab.open.reset(site(lab, page))
    words = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--user-data-dir=" + s.home + "/profile", "--dump-dom"]

    def dom(host):
        return s.run(*words, f"https://u:{s.vars['GITHUB_TOKEN']}@{host}/page", timeout=60)

    code, out, err = dom("api.test")
    assert "the page" not in out, out  # the control: it does not trust us yet
    store = ["-c", lab.path("outgate.yaml"), "--store", "nss"]
    code, out, err = s.run(L.EXE, "ca", "install", *store)
    assert code == 0, err
    code, out, err = dom("api.test")
    assert "the page" in out and login_of(lab.api.last) == lab.real, (out, err[-600:], lab.api.requests)
    assert {e.get("http_version") for e in lab.events("close") if e.get("path") == "/page" and e["status"] == 200} == {"2"}, "a browser takes HTTP/2"
    mark = lab.mark()
    code, out, err = dom("open.test")
    refused_elsewhere(lab, out, mark)
    assert s.run(L.EXE, "ca", "uninstall", *store)[0] == 0
    shutil.rmtree(s.home, ignore_errors=True)


def make_lab():
    return Lab443()


def alone():
    """Again, in a network namespace that has loopback alone; in one already when the variable says so."""
    if os.environ.get("OUTGATE_ALONE") == "1":
        return True
    if os.geteuid() or subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode:
        return False
    os.environ["OUTGATE_ALONE"] = "1"
    os.execvp("unshare", ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable, *sys.argv])


if __name__ == "__main__":
    words = sys.argv[1:]
    if not alone():
        print("skip  real_clients: needs root and network namespaces")
        print("0 passed, 0 failed, 1 skipped")
    elif words[:1] == ["--try"]:
        reasons(words[1], words[2] if len(words) > 2 else "",
                lambda name, code, line, tries, said: print(f"{'YES' if line else 'no '} {name}: exit {code}, {tries} events: {line or said[-700:]!r}", flush=True))
    elif words[:1] == ["--table"]:
        print_table()
    else:
        module = sys.modules["__main__"]
        module.__name__ = "real_clients"
        p, f, k = L.run_module(module, words[0] if words else "", int(os.environ.get("OUTGATE_TEST_TIMEOUT", "600")))
        print(f"{p} passed, {f} failed, {k} skipped")
        sys.exit(1 if f else 0)
