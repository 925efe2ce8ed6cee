#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tunnel rules with real clients: TLS that stays the host's own, a server name that must fit, ssh refused by name and let through by rule,
ends that come one by one, a reload that closes, memory that stays flat."""
import base64
import hashlib
import json
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time

from lab import EXE, Lab, Origin, Skip, answer, free_port, main, read_request, sanitized, wait_for

HOSTS = {"raw.test": "127.0.0.6", "ssh.test": "127.0.0.7"}
TLS = "  - {name: raw, hosts: [raw.test, 127.0.0.6], ports: [PORT], action: tunnel}\n"
SSH = "  - {name: ssh, hosts: [ssh.test], ports: [PLAINPORT], action: tunnel, tls: none}\n"
NO_SSH = "  - {name: ssh, hosts: [ssh.test], ports: [PLAINPORT], schemes: [http], action: allow}\n"
BANNER = b"SSH-2.0-lab_1.0\r\n"


def once(conn, origin):
    origin.requests.append(read_request(conn))
    conn.send(answer(200, "here"))


def tunnels(rules=TLS + SSH):
    lab = Lab(hosts=HOSTS, rules=rules, start=False)
    lab.raw = lab.origin("raw.test", handler=once)
    lab.ssh = lab.origin("ssh.test", tls=False)
    return lab


def tool(name):
    if not shutil.which(name):
        raise Skip(f"{name} is not installed")
    return name


def close_of(lab, host, mark=0):
    return lab.event(lambda e: e.get("host") == host and e.get("method") == "CONNECT", ("close",), mark)


def openssl(lab, target, ca, *args):
    return subprocess.run([tool("openssl"), "s_client", "-proxy", f"127.0.0.1:{lab.port}", "-connect", target, "-CAfile", lab.path(ca), "-verify_return_error",
                           "-quiet", *args], input=b"GET /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", capture_output=True, timeout=30)


def test_the_hosts_own_certificate():
    with tunnels() as lab:
        lab.patched()
        ours = ("-verify_hostname",)
        r = openssl(lab, f"raw.test:{lab.tls_port}", "ca.pem", *ours, "raw.test", "-servername", "raw.test")
        assert r.returncode == 0 and b" 200 " in r.stdout, r.stderr
        assert lab.raw.snis == ["raw.test"] and lab.raw.last.target == "/x"
        e = close_of(lab, "raw.test")
        assert e["end"] == "ok" and e["verdict"] == "allow" and e["rule"] == "raw" and e["sni"] == "raw.test" and e["scheme"] == "tls", e
        assert e["bytes_in"] > 300 and e["bytes_out"] > 1000 and e["ms"]["total"] >= 0, e
        assert e["origin_addr"] == f"127.0.0.6:{lab.tls_port}" and e["agent"] == "coder" and "path" not in e, e
        o = lab.event(lambda e: e.get("host") == "raw.test", ("open",))
        assert o["request_id"] == e["request_id"] and o["seq"] < e["seq"]
        # controls: our CA is not what signed it; what no tunnel rule names is intercepted
        r = openssl(lab, f"raw.test:{lab.tls_port}", "state/trust/ca.pem", *ours, "raw.test", "-servername", "raw.test")
        assert r.returncode != 0
        r = openssl(lab, f"open.test:{lab.tls_port}", "ca.pem", *ours, "open.test", "-servername", "open.test")
        assert r.returncode != 0
        r = openssl(lab, f"open.test:{lab.tls_port}", "state/trust/ca.pem", *ours, "open.test", "-servername", "open.test")
        assert b"HTTP/1.1 421" in r.stdout, (r.stdout, r.stderr)  # read, and judged: its Host is another
        # no server name: the name of the CONNECT
        r = openssl(lab, f"raw.test:{lab.tls_port}", "ca.pem", *ours, "raw.test", "-noservername")
        assert r.returncode == 0 and lab.raw.snis[-1] is None, r.stderr


def test_another_server_name():
    with tunnels() as lab:
        lab.patched()
        r = openssl(lab, f"raw.test:{lab.tls_port}", "ca.pem", "-servername", "open.test")
        assert r.returncode != 0 and b"unrecognized name" in r.stderr, r.stderr
        e = lab.event(lambda e: e.get("end") == "sni_mismatch", ("conn",))
        assert e["sni"] == "open.test" and e["host"] == "raw.test" and e["verdict"] == "deny" and e["rule"] == "raw", e
        assert not lab.raw.conns and not lab.events("open")
        r = openssl(lab, f"raw.test:{lab.tls_port}", "ca.pem", "-servername", "raw.test")  # the control
        assert r.returncode == 0 and len(lab.raw.conns) == 1, r.stderr


class Hello:
    """A TLS client by hand: its handshake over memory, so that what it says can be changed on its way."""

    def __init__(self, name, conn):
        ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        ctx.check_hostname, ctx.verify_mode = False, ssl.CERT_NONE
        self.bio_in, self.bio_out, self.conn = ssl.MemoryBIO(), ssl.MemoryBIO(), conn
        self.tls = ctx.wrap_bio(self.bio_in, self.bio_out, server_hostname=name)

    def says(self):
        """Its next flight; None: the handshake is done."""
        try:
            self.tls.do_handshake()
            return None
        except ssl.SSLWantReadError:
            return self.bio_out.read()

    def hears(self):
        data = self.conn.recv(65536)
        self.bio_in.write(data)
        return data


def second_hello(lab, conn, change):
    """Offers X25519 first to a host that takes P-384 alone: it asks for a second ClientHello. What the host answered to that."""
    h = Hello("raw.test", conn)
    conn.sendall(h.says())
    first = h.hears()
    assert first[:1] == b"\x16" and first[11:43] == hashlib.sha256(b"HelloRetryRequest").digest(), first
    conn.sendall(change(h.says()))
    try:
        return h.hears()
    except ConnectionResetError:
        return b""


def test_the_second_server_name():
    """A host that asks for a second ClientHello reads the name in that one."""
    def other(flight):
        assert flight.count(b"raw.test") == 1
        return flight.replace(b"raw.test", b"raw.tesu")

    def alerts(data):
        return data[:1] == b"\x15" and data[-1:] == b"\x70"

    with tunnels() as lab:
        lab.raw.ctx.set_ecdh_curve("secp384r1")
        lab.patched()
        c = socket.create_connection(("127.0.0.6", lab.tls_port))  # without us: it is the second name that the host goes by
        assert second_hello(lab, c, other)[:1] == b"\x16" and lab.raw.snis[-1] == "raw.tesu", lab.raw.snis
        c.close()
        mark, asked = lab.mark(), len(lab.raw.snis)
        c = lab.client("raw.test", tls=False)
        data = second_hello(lab, c.sock, other)
        assert alerts(data) or not data, data
        e = close_of(lab, "raw.test", mark)
        assert e["end"] == "misdirected" and "second ClientHello" in e["message"] and e["sni"] == "raw.test", e
        wait_for(lambda: len(lab.raw.conns) == 2 and lab.raw.conns[1].sock.fileno() < 0, "the host's end")
        assert "raw.tesu" not in lab.raw.snis[asked:], lab.raw.snis
        c = lab.client("raw.test", tls=False)  # the control: the same bytes unchanged
        assert second_hello(lab, c.sock, lambda flight: flight)[:1] == b"\x16"
        r = openssl(lab, f"raw.test:{lab.tls_port}", "ca.pem", "-servername", "raw.test", "-groups", "X25519:P-384")  # and a client that is not ours, to the end
        assert r.returncode == 0 and b" 200 " in r.stdout, r.stderr


def test_a_name_that_may_be_hidden():
    """Chromium's ClientHello looks as if it hid another name (GREASE), with whatever server: refused, and passed by a word in the rule."""
    browser = shutil.which("chromium") or tool("chromium-browser")

    def page(lab):
        profile = lab.path("profile")
        words = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
                 "--disable-component-update", "--ignore-certificate-errors", "--user-data-dir=" + profile, f"--proxy-server=http://127.0.0.1:{lab.port}", "--dump-dom"]
        env = {**os.environ, "HOME": lab.path("home")}
        return subprocess.run([*words, f"https://raw.test:{lab.tls_port}/page"], capture_output=True, text=True, timeout=90, env=env).stdout

    def once_html(conn, origin):
        origin.requests.append(read_request(conn))
        conn.send(answer(200, "<html><body>the page</body></html>", [("Content-Type", "text/html"), ("Connection", "close")]))

    with tunnels() as lab:
        lab.raw.handler = once_html
        lab.patched()
        assert "the page" not in page(lab)
        e = lab.event(lambda e: e.get("host") == "raw.test" and e.get("end") == "protocol_denied", ("conn",))
        assert "ECH" in e["hint"] and "ech: pass" in e["hint"] and e["rule"] == "raw" and not lab.raw.conns, e
        # what the hint says, done
        lab.extra["rules"] = lab.extra["rules"].replace("hosts: [raw.test, 127.0.0.6],", "hosts: [raw.test, 127.0.0.6], ech: pass,")
        with open(lab.path("outgate.yaml"), "w") as f:
            f.write(lab.config())
        assert lab.run("reload", "-c", lab.path("outgate.yaml")).returncode == 0
        assert "the page" in page(lab)
        assert close_of(lab, "raw.test")["sni"] == "raw.test"


def speak_ssh(conn, origin):
    conn.send(BANNER)
    origin.requests.append(conn.until(b"\n"))


def ssh(lab):
    tool("socat")
    return subprocess.run([tool("ssh"), "-F", "/dev/null", "-o", f"ProxyCommand=socat - PROXY:127.0.0.1:%h:%p,proxyport={lab.port}", "-o", "BatchMode=yes", "-o",
                           "ConnectTimeout=5", "-v", "-p", str(lab.http_port), "nobody@ssh.test", "true"], capture_output=True, text=True, timeout=30,
                          env={**os.environ, "HOME": lab.path()})


def test_ssh():
    with tunnels(TLS + NO_SSH) as lab:
        lab.ssh.handler = speak_ssh
        lab.patched()
        r = ssh(lab)
        assert r.returncode != 0
        e = lab.event(lambda e: e.get("end") == "protocol_denied", ("conn",))
        assert "SSH" in e["hint"] and f"hosts: [ssh.test], ports: [{lab.http_port}], action: tunnel, tls: none" in e["hint"] and e["host"] == "ssh.test", e
        assert not lab.ssh.conns
        # what the hint says, done
        lab.extra["rules"] = lab.extra["rules"].replace("schemes: [http], action: allow", "action: tunnel, tls: none")
        with open(lab.path("outgate.yaml"), "w") as f:
            f.write(lab.config())
        assert lab.run("reload", "-c", lab.path("outgate.yaml")).returncode == 0
        r = ssh(lab)
        wait_for(lambda: lab.ssh.requests, "the client's banner")
        assert lab.ssh.requests[0].startswith(b"SSH-2.0-OpenSSH") and "remote software version lab_1.0" in r.stderr, (lab.ssh.requests, r.stderr)
        e = close_of(lab, "ssh.test")
        assert e["rule"] == "ssh" and e["scheme"] == "tcp" and e["bytes_out"] == len(BANNER) and e["bytes_in"] > 20, e


def test_psql():
    psql, said = tool("psql"), b"SFATAL\0C28000\0Mthe lab says no\0\0"

    def postgres(conn, origin):
        first = conn.exactly(8)
        if first[4:] == b"\x04\xd2\x16\x2f":
            conn.send(b"N")  # no TLS
            first = conn.exactly(8)
        origin.requests.append(first)
        conn.send(b"E" + (len(said) + 4).to_bytes(4, "big") + said)

    def ask(lab):  # psql knows no proxy: socat is the way in
        port = free_port(["127.0.0.1"])
        bridge = subprocess.Popen([tool("socat"), f"TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr", f"PROXY:127.0.0.1:ssh.test:{lab.http_port},proxyport={lab.port}"],
                                  stderr=subprocess.DEVNULL)
        try:
            end = time.monotonic() + 10
            while time.monotonic() < end:
                r = subprocess.run([psql, "-w", f"host=127.0.0.1 port={port} user=x dbname=x connect_timeout=5 gssencmode=disable"], capture_output=True, text=True,
                                   timeout=20)
                if "Connection refused" not in r.stderr:  # socat was not there yet
                    return r
            raise AssertionError(r.stderr)
        finally:
            bridge.kill()
            bridge.wait()

    with tunnels(TLS + NO_SSH) as lab:
        lab.ssh.handler = postgres
        lab.patched()
        assert ask(lab).returncode != 0
        e = lab.event(lambda e: e.get("end") == "protocol_denied", ("conn",))
        assert "PostgreSQL" in e["hint"] and not lab.ssh.conns, e
    with tunnels() as lab:
        lab.ssh.handler = postgres
        lab.patched()
        r = ask(lab)
        assert "the lab says no" in r.stderr and len(lab.ssh.requests) == 1, r.stderr


def test_check_and_explain():
    with tunnels() as lab:
        lab.patched()
        args = ("-c", lab.path("outgate.yaml"), "--agent", "coder")
        r = lab.run("explain", *args, "GET", f"https://raw.test:{lab.tls_port}/x")
        assert r.returncode == 0 and b"verdict: tunnel" in r.stdout and b"rule raw [tunnel]: yes" in r.stdout, r.stdout
        assert r.stdout.count(b"verdict") == 1 and b"none can be swapped, because a tunnel is not read" in r.stdout, r.stdout
        assert f"TLS whose server name is raw.test, or absent, goes through unread to raw.test:{lab.tls_port}\n".encode() in r.stdout, r.stdout
        assert f"the rule covers raw.test, 127.0.0.6 on port {lab.tls_port}\n".encode() in r.stdout, r.stdout
        r = lab.run("explain", *args, "CONNECT", f"ssh.test:{lab.http_port}")
        assert r.stdout.count(b"verdict") == 1 and f"whatever the client says goes through unread to ssh.test:{lab.http_port}\n".encode() in r.stdout, r.stdout
        r = lab.run("explain", *args, "GET", "http://raw.test/")
        assert r.returncode == 1 and r.stdout.count(b"verdict") == 1 and b"rule raw [tunnel]: no: other ports" in r.stdout and b"goes through" not in r.stdout, r.stdout
        r = lab.run("explain", *args, "--json", "CONNECT", f"ssh.test:{lab.http_port}")
        j = json.loads(r.stdout)
        assert r.returncode == 0 and j["verdict"] == "tunnel" and j["rule"] == "ssh" and j["passes"], j
        r = lab.run("explain", *args, "CONNECT", f"api.test:{lab.tls_port}")
        assert r.returncode == 0 and b"intercepted" in r.stdout and b"verdict: allow" in r.stdout, r.stdout
        r = lab.run("explain", *args, "CONNECT", "evil.test:443")
        assert r.returncode == 1 and b"host_denied" in r.stdout, r.stdout
        lab.extra["rules"] = lab.extra["rules"].replace("raw.test", "api.test")
        with open(lab.path("outgate.yaml"), "w") as f:
            f.write(lab.config())
        r = lab.run("check", "-c", lab.path("outgate.yaml"))
        assert r.returncode == 1 and b"nothing is swapped in a tunnel" in r.stdout + r.stderr, (r.stdout, r.stderr)


def test_socks():
    with tunnels() as lab:
        lab.patched()
        curl = [tool("curl"), "-sS", "--max-time", "20", "-x", f"socks5h://127.0.0.1:{lab.port}", "--cacert", lab.path("ca.pem")]
        r = subprocess.run([*curl, f"https://raw.test:{lab.tls_port}/x"], capture_output=True, text=True, timeout=30)
        assert r.returncode == 0 and lab.raw.last.target == "/x", r.stderr
        e = close_of(lab, "raw.test")
        assert e["http_version"] == "socks5" and e["end"] in ("ok", "client_closed"), e  # curl goes with its answer, whoever closes first
        r = subprocess.run([*curl, f"https://open.test:{lab.tls_port}/x"], capture_output=True, text=True, timeout=30)  # the control: intercepted
        assert r.returncode == 60, r
        lab.ssh.close()
        r = subprocess.run([*curl, "--http0.9", f"http://ssh.test:{lab.http_port}/x"], capture_output=True, text=True, timeout=30)
        assert r.returncode == 97 and "(5)" in r.stderr, r  # "connection refused"


def test_each_way_ends_for_itself():
    size = 8 << 20

    def handler(conn, origin):
        body, clean = conn.rest()  # to the end of what the client says, and only then
        origin.requests.append((hashlib.sha256(body).digest(), clean))
        conn.send(b"z" * size)

    with tunnels() as lab:
        lab.ssh.handler = handler
        lab.patched()
        c = lab.client("ssh.test", lab.http_port, tls=False, timeout=30)
        data = os.urandom(1 << 20) * 8
        c.send(data)
        c.half_close()
        got, clean = c.rest()
        assert got == b"z" * size and clean
        assert lab.ssh.requests == [(hashlib.sha256(data).digest(), True)]
        e = close_of(lab, "ssh.test")
        assert e["end"] == "ok" and e["bytes_in"] == len(data) and e["bytes_out"] == size, e


def test_a_reset_is_passed_on():
    def handler(conn, origin):
        conn.until(b"\n")
        conn.reset()

    with tunnels() as lab:
        lab.ssh.handler = handler
        lab.patched()
        c = lab.client("ssh.test", lab.http_port, tls=False)
        c.send(b"x\n")
        _, clean = c.rest()
        assert not clean
        assert close_of(lab, "ssh.test")["end"] == "origin_closed"


def test_reload_closes():
    with tunnels() as lab:
        lab.ssh.handler = lambda conn, origin: conn.rest()
        lab.patched()
        c = lab.client("ssh.test", lab.http_port, tls=False)
        kept = lab.client("raw.test", tls=False)
        c.send(b"x")
        wait_for(lambda: lab.ssh.conns, "the tunnel")
        lab.extra["rules"] = lab.extra["rules"].replace(SSH.replace("PLAINPORT", str(lab.http_port)), "  - {name: ssh, hosts: [ssh.test], action: deny}\n")
        with open(lab.path("outgate.yaml"), "w") as f:
            f.write(lab.config())
        assert lab.run("reload", "-c", lab.path("outgate.yaml")).returncode == 0
        since = time.monotonic()
        c.rest()
        assert time.monotonic() - since < 1 or sanitized()
        assert close_of(lab, "ssh.test")["end"] == "revoked"
        assert kept.silent_for(0.3)


def test_a_tunnel_ends_with_its_run():
    agents = "  - name: coder\n    identify:\n      - login: {user: bot, token_file: bot.token}\n"
    with tunnels() as lab:
        lab.extra["agents"] = agents
        with open(lab.path("bot.token"), "w") as f:
            f.write("5f0e1d2c3b4a59687786950a1b2c3d4e\n")
        lab.ssh.handler = lambda conn, origin: conn.rest()
        lab.patched()
        args = ["run", "-c", lab.path("outgate.yaml"), "--agent", "coder", "--", "sh", "-c", 'printf "%s\\n" "$HTTPS_PROXY"; read line']
        run = subprocess.Popen([EXE, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            login = run.stdout.readline().split("//")[1].split("@")[0]
            for who in (login, "bot:5f0e1d2c3b4a59687786950a1b2c3d4e"):
                headers = [("Proxy-Authorization", "Basic " + base64.b64encode(who.encode()).decode())]
                c = lab.client("ssh.test", lab.http_port, tls=False, headers=headers)
                c.send(b"x")
                if who == login:
                    of_run = c
            run.communicate("\n", timeout=20)
            of_run.rest()
            assert close_of(lab, "ssh.test")["end"] == "revoked"
            assert c.silent_for(0.5)  # the control: the agent's own login
        finally:
            run.kill()
            run.wait()


def test_drain():
    with tunnels() as lab:
        lab.extra["tail"] = "limits: {drain: 1s}"
        lab.ssh.handler = lambda conn, origin: conn.rest()
        lab.patched()
        c = lab.client("ssh.test", lab.http_port, tls=False)
        c.send(b"x")
        wait_for(lambda: lab.ssh.conns and lab.ssh.conns[0].received, "the tunnel")
        since = time.monotonic()
        lab.stop()
        assert time.monotonic() - since < 8
        c.rest()
        e = lab.events("close")[-1]
        assert e["host"] == "ssh.test" and e.get("bytes_in") == 1 and e["end"] == "draining", e
        assert lab.run("audit", "verify", "-c", lab.path("outgate.yaml")).returncode == 0


def test_through_a_parent_proxy():
    def parent(conn, origin):
        origin.requests.append(conn.until(b"\r\n\r\n"))
        if b"raw.test" in origin.requests[-1] or b"127.0.0.6" in origin.requests[-1]:
            up = socket.create_connection(("127.0.0.6", lab.tls_port))
            conn.send(b"HTTP/1.1 200 OK\r\n\r\n")
            threading.Thread(target=pump, args=(up, conn.sock), daemon=True).start()
            pump(conn.sock, up)
        else:
            conn.send(b"HTTP/1.1 200 OK\r\n\r\n" + BANNER)  # together: a server that speaks first
            origin.requests.append(conn.until(b"\n"))

    def pump(a, b):
        data = a.recv(65536)
        while data:
            b.sendall(data)
            data = a.recv(65536)
        b.shutdown(socket.SHUT_WR)

    with tunnels() as lab:
        proxy = Origin(lab, "127.0.0.8", lab.http_port, tls=False, handler=parent)
        lab.config = lambda: Lab.config(lab).replace("  allow_addresses: [127.0.0.0/8]\n",
                                                     f'  allow_addresses: [127.0.0.0/8]\n  parent_proxy: {{address: "127.0.0.8:{lab.http_port}"}}\n')
        lab.patched()
        c = lab.client("ssh.test", lab.http_port, tls=False)
        assert c.until(b"\n") == BANNER
        c.send(b"hello\n")
        wait_for(lambda: len(proxy.requests) == 2, "the parent")
        assert proxy.requests[0].startswith(b"CONNECT 127.0.0.7:") and proxy.requests[1] == b"hello\n", proxy.requests
        assert not lab.ssh.conns
        r = openssl(lab, f"raw.test:{lab.tls_port}", "ca.pem", "-verify_hostname", "raw.test", "-servername", "raw.test")
        assert r.returncode == 0 and b" 200 " in r.stdout and lab.raw.snis == ["raw.test"], r.stderr
        proxy.close()


def test_a_tunnel_ends_with_its_rule():
    lasts = 6
    until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + lasts))
    with tunnels(TLS + SSH.replace("tls: none", f"tls: none, expires: {until}")) as lab:
        lab.ssh.handler = lambda conn, origin: conn.rest()
        lab.patched()
        c = lab.client("ssh.test", lab.http_port, tls=False)
        since = time.monotonic()
        c.send(b"x")
        c.rest()
        assert time.monotonic() - since < lasts + 1
        e = close_of(lab, "ssh.test")
        assert e["end"] == "revoked" and "expired" in e["message"] and e["bytes_in"] == 1, e


def test_a_slow_reader_pushes_back():
    size = 64 << 20
    sent = {"n": 0}

    def handler(conn, origin):
        block = b"y" * 65536
        while sent["n"] < size:
            conn.send(block)
            sent["n"] += len(block)

    with tunnels() as lab:
        lab.ssh.handler = handler
        lab.patched()
        lab.get("api.test")
        before = lab.worker_rss_kib()
        c = lab.client("ssh.test", lab.http_port, tls=False, timeout=30)
        last = -1
        while sent["n"] != last:  # until it stands still
            last = sent["n"]
            time.sleep(0.3)
        assert 0 < last < size, "the sender was never slowed"
        assert sanitized() or lab.worker_rss_kib() - before < 4096
        n = len(c.buf)
        while n < size:
            n += len(c.recv())
        assert n == size


def test_many_at_a_time():
    with tunnels() as lab:
        lab.ssh.handler = lambda conn, origin: conn.send(conn.until(b"\n")[::-1])
        lab.patched()
        wrong = []

        def one(i):
            c = lab.client("ssh.test", lab.http_port, tls=False, timeout=30)
            c.send(b"%d\n" % i)
            if c.rest()[0] != (b"%d\n" % i)[::-1]:
                wrong.append(i)
            c.close()

        threads = [threading.Thread(target=one, args=(i,)) for i in range(40)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not wrong
        wait_for(lambda: sum(e.get("host") == "ssh.test" for e in lab.events("close")) == 40, "a close each")
        assert {e["end"] for e in lab.events("close")} == {"ok"}


def test_clear_text_is_watched():
    with tunnels() as lab:
        lab.ssh.handler = lambda conn, origin: origin.requests.append(conn.rest()[0])
        lab.patched()
        lab.get("api.test", headers=[lab.bearer()])  # the value is live
        c = lab.client("ssh.test", lab.http_port, tls=False)
        c.send(b"AUTH " + lab.real.encode()[:20])
        time.sleep(0.2)
        c.send(lab.real.encode()[20:] + b"\r\n")
        c.rest()
        e = lab.event(lambda e: e.get("class") == "exfiltration", ("finding",))
        assert e["severity"] == "critical" and e["host"] == "ssh.test", e
        wait_for(lambda: lab.ssh.requests, "the host's end")
        assert lab.real.encode() not in lab.ssh.requests[0]
        lab.secrets.clear()  # the test's own sockets hold it


def test_nothing_is_dialled_for_a_client_that_says_nothing():
    with tunnels() as lab:
        lab.patched()
        s = socket.create_connection(("127.0.0.1", lab.port))
        s.sendall(f"CONNECT raw.test:{lab.tls_port} HTTP/1.1\r\n\r\n".encode())
        assert s.recv(100).startswith(b"HTTP/1.1 200")
        time.sleep(0.3)
        assert not lab.raw.conns
        s.close()
        lab.event(lambda e: e.get("host") == "raw.test" and e.get("end") == "client_closed", ("conn",))


if __name__ == "__main__":
    main()
