#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real clients that look a name up and then ask the proxy for its address, from a sandbox whose only name server is the DNS port: what they reach is
the host of the name. In network and mount namespaces of its own; as root."""
import contextlib
import ipaddress
import shutil
import sys

import dns_lab as D
import lab as L
from lab import Lab, Skip
from test_virtual_names import Echo

ISOLATED = True
POOL = ipaddress.ip_network("10.78.0.0/16")
AGENTS = f"  - {{name: coder, identify: [{{source: {D.SANDBOX}/32}}]}}\n"


class SandboxLab(Lab):
    """Its proxy port is on the sandbox's side too."""

    def config(self):
        return super().config().replace(f"  proxy: [127.0.0.1:{self.port}]", f'  proxy: ["127.0.0.1:{self.port}", "{D.NEAR}:{self.port}"]')


@contextlib.contextmanager
def sandbox(pool=f"pool: {POOL}", **kw):
    with D.Net() as net, SandboxLab(listen=f'  dns: ["{D.NEAR}:53"]', agents=AGENTS, resolver=f"  synthetic: {{v4: {D.NEAR}, {pool}}}", **kw) as lab:
        lab.net, lab.at = net, f"{D.NEAR}:{lab.port}"
        yield lab


def tool(lab, *argv, **kw):
    if not shutil.which(argv[0]):
        raise Skip(f"{argv[0]} is not installed")
    return lab.net.run("sandbox", *argv, timeout=kw.pop("timeout", 40), **kw)


def curl(lab, *argv):
    return tool(lab, "curl", "-sS", "--cacert", lab.path("state", "trust", "ca.pem"), "-m", "20", *argv)


def by_address(lab, after, name):
    """It was the address that was asked for, and the host of the name that was reached."""
    e = lab.event(lambda e: e.get("host") == name, after=after)
    assert e["end"] == "ok" and e["verdict"] == "allow" and ipaddress.ip_address(e["host_addr"]) in POOL, e
    return e["host_addr"]


def test_dig_and_curl():
    """`--socks5` looks up by itself and sends the address. The control: one address for all names, and the name is lost."""
    with sandbox() as lab:
        seen = {n: tool(lab, "dig", "+short", "+tries=1", n).stdout.strip() for n in ("api.test", "open.test", "plain.test")}
        assert len({ipaddress.ip_address(a) for a in seen.values()}) == 3 and all(ipaddress.ip_address(a) in POOL for a in seen.values()), seen
        after = lab.mark()
        r = curl(lab, "--socks5", lab.at, "-H", f"Authorization: Bearer {lab.placeholder}", f"https://api.test:{lab.tls_port}/x")
        assert r.returncode == 0, r
        assert lab.api.requests[-1].get("authorization") == "Bearer " + lab.real and lab.real not in r.stdout
        assert by_address(lab, after, "api.test") == seen["api.test"]
        r = curl(lab, "--socks5", lab.at, f"http://plain.test:{lab.http_port}/x")
        assert r.returncode == 0 and by_address(lab, after, "plain.test") == seen["plain.test"], r
        r = curl(lab, "--socks5", lab.at, "--http2", f"https://open.test:{lab.tls_port}/")
        assert r.returncode == 0 and by_address(lab, after, "open.test") == seen["open.test"], r
        r = curl(lab, "--socks5", lab.at, f"https://evil.test:{lab.tls_port}/")
        assert r.returncode != 0 and "evil.test" in r.stderr, r  # it has no address
        assert tool(lab, "dig", "+short", "-x", seen["api.test"]).stdout == ""
    with sandbox(pool="v6: null") as lab:
        r = curl(lab, "--socks5", lab.at, f"https://api.test:{lab.tls_port}/x")
        assert r.returncode == 97 and not lab.api.requests, r


CONNECT = """
import socket, ssl, sys
proxy, cafile, name, port = sys.argv[1].rpartition(":"), sys.argv[2], sys.argv[3], sys.argv[4]
at = socket.gethostbyname(name)
s = socket.create_connection((proxy[0], int(proxy[2])), 20)
s.sendall(f"CONNECT {at}:{port} HTTP/1.1\\r\\nHost: {at}:{port}\\r\\n\\r\\n".encode())
head = b""
while b"\\r\\n\\r\\n" not in head:
    head += s.recv(1)
assert b" 200 " in head.split(b"\\r\\n")[0], head
t = ssl.create_default_context(cafile=cafile).wrap_socket(s, server_hostname=name)
t.sendall(f"GET /by-address HTTP/1.1\\r\\nHost: {name}:{port}\\r\\nConnection: close\\r\\n\\r\\n".encode())
got = b""
while more := t.recv(4096):
    got += more
print(at, got.split(b"\\r\\n")[0].decode())
"""


def test_connect():
    with sandbox() as lab:
        after = lab.mark()
        r = tool(lab, "python3", "-c", CONNECT, lab.at, lab.path("state", "trust", "ca.pem"), "open.test", str(lab.tls_port))
        assert r.returncode == 0 and r.stdout.endswith(" HTTP/1.1 200 OK\n"), r
        assert by_address(lab, after, "open.test") == r.stdout.split()[0]
        assert lab.open.requests[-1].target == "/by-address"


BANNER = b"SSH-2.0-lab_1.0\r\n"


def speak_ssh(conn, origin):
    conn.send(BANNER)
    origin.requests.append(conn.until(b"\n"))


def test_ssh():
    """By way of socat, which looks the name up (`resolve`) and says CONNECT with the address."""
    if not shutil.which("socat"):
        raise Skip("socat is not installed")
    rules = "  - {name: shell, hosts: [shell.test], ports: [PLAINPORT], tls: none, action: tunnel}"
    with sandbox(rules=rules, hosts={"shell.test": "127.0.0.9"}, start=False) as lab:
        lab.origin("shell.test", tls=False, handler=speak_ssh)
        lab.patched()
        after = lab.mark()
        r = tool(lab, "ssh", "-F", "/dev/null", "-o", f"ProxyCommand=socat - PROXY:{D.NEAR}:%h:%p,proxyport={lab.port},resolve", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5",
                 "-v", "-p", str(lab.http_port), "nobody@shell.test", "true")
        server = lab.origins["shell.test"]
        L.wait_for(lambda: server.requests, lambda: f"the client's banner: {r.stderr[-600:]}")
        assert server.requests[0].startswith(b"SSH-2.0-OpenSSH") and "remote software version lab_1.0" in r.stderr, r
        e = lab.event(lambda e: e.get("host") == "shell.test", after=after)
        assert (e["rule"], e["method"]) == ("shell", "CONNECT") and ipaddress.ip_address(e["host_addr"]) in POOL, e


JAVA = """
import java.io.*; import java.net.*;
public class Look {
    public static void main(String[] a) throws Exception {
        InetAddress at = InetAddress.getByName(a[2]);
        Proxy p = new Proxy(Proxy.Type.SOCKS, new InetSocketAddress(InetAddress.getByName(a[0]), Integer.parseInt(a[1])));
        try (Socket s = new Socket(p)) {
            s.connect(new InetSocketAddress(at, Integer.parseInt(a[3])), 20000);
            s.getOutputStream().write("hello".getBytes());
            byte[] got = new byte[5];
            new DataInputStream(s.getInputStream()).readFully(got);
            System.out.println(at.getHostAddress() + " " + new String(got));
        }
    }
}
"""


def test_java():
    """Its sockets look up, and go through SOCKS5 with the address."""
    if not shutil.which("java"):
        raise Skip("java is not installed")
    echo = Echo("127.0.0.9")
    rules = f"  - {{name: db, hosts: [db.test], ports: [{echo.port}], tls: none, action: tunnel}}"
    with contextlib.closing(echo), sandbox(rules=rules, hosts={"db.test": "127.0.0.9"}) as lab:
        with open(lab.path("Look.java"), "w") as f:
            f.write(JAVA)
        after = lab.mark()
        r = tool(lab, "java", lab.path("Look.java"), D.NEAR, str(lab.port), "db.test", str(echo.port), timeout=90)
        if "compiler" in r.stderr or "No such module" in r.stderr or "jdk.compiler" in r.stderr:
            raise Skip("this java runs no source file")
        assert r.returncode == 0 and r.stdout.split()[1] == "HELLO", r
        assert by_address(lab, after, "db.test") == r.stdout.split()[0]


if __name__ == "__main__":
    try:
        D.isolated()
    except Skip as e:
        print(f"skip  test_virtual_clients: {e}\n0 passed, 0 failed, 1 skipped")
        sys.exit(0)
    L.main()
