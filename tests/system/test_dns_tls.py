#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Upstream servers over TLS (`tls://ADDR:PORT#NAME`): who is asked, who is not, and that no name is ever asked in the clear instead; with Python's TLS and, where it is installed, with unbound."""
import contextlib
import shutil
import socket
import ssl
import struct
import subprocess
import threading

from dns_wire import Upstream, address, read_tcp, send_tcp, soa
from faults import pid_of
from lab import Skip, free_port, main, openssl, wait_for
from test_dns import EACH_EVENT, dns_event, make, reload

RULES = '  - {name: up, hosts: ["*.up.test"], action: allow}'
FORWARD = "  answer: forward"


def script(qname, kind):
    number = qname.split(".")[0].removeprefix("n")
    return (0, [address(qname, f"127.0.2.{number}")], []) if kind == 1 and number.isdigit() else (0, [], [soa(60)])


class TlsUpstream(Upstream):
    """The same server over TLS. `asked` is what came over TLS; `clear` what came to its port in the clear, over UDP or TCP."""

    def __init__(self, lab, cert):
        self.clear, self.connections, self.resumed = [], 0, 0
        self.ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ctx.load_cert_chain(lab.path(f"{cert}.pem"), lab.path(f"{cert}.key"))
        super().__init__(script)

    def _udp(self):
        with contextlib.suppress(OSError):
            while True:
                self.clear.append(self.udp.recvfrom(65536)[0])

    def _serve(self, s, client):
        s.settimeout(60)
        try:
            first = s.recv(1, socket.MSG_PEEK)
            if first not in (b"", b"\x16"):  # the record type of a handshake
                self.clear.append(first)
            t = self.ctx.wrap_socket(s, server_side=True)
        except OSError:
            s.close()
            return
        self.connections += 1
        self.resumed += t.session_reused
        super()._serve(t, client)

    def over(self, name="dns.test"):
        return f"tls://127.0.0.1:{self.port}#{name}"


def over_tls(*certs, **kw):
    """A lab whose upstreams are one server for each certificate, which is made here: (file, alternative names, CA)."""
    lab = make(resolver=FORWARD, rules=RULES, tail='exfiltration: {exempt: ["*"]}\n' + EACH_EVENT, start=False, upstreams="system", **kw)
    lab.ups = []
    for file, names, ca in certs or [("right", "DNS:dns.test", "ca")]:
        leaf(lab, file, names, ca)
        lab.ups.append(TlsUpstream(lab, file))
    lab.up = lab.ups[0]
    lab.extra["upstreams"] = '", "'.join(u.over() for u in lab.ups)
    lab.start()
    return lab


def leaf(lab, file, names, ca):
    """names None: the common name is the only place where it says dns.test."""
    if ca == "other":
        openssl(lab.dir, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "3", "-keyout", "other.key",
                "-out", "other.pem", "-subj", "/CN=other", "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign")
    if names:
        lab._leaf(file, names, ca)
        return
    with open(lab.path("ext"), "w") as f:
        f.write("extendedKeyUsage=serverAuth\n")
    openssl(lab.dir, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{file}.key", "-out", f"{file}.csr",
            "-subj", "/CN=dns.test")
    openssl(lab.dir, "x509", "-req", "-in", f"{file}.csr", "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key", "-CAcreateserial", "-days", "3",
            "-extfile", "ext", "-out", f"{file}.pem")


def names(up):
    return [q[0] for q in up.asked]


# ---------------------------------------------------------------- the right one


def test_a_question_over_tls():
    with over_tls() as lab:
        for i in range(1, 9):
            a = lab.dns.ask(f"n{i}.up.test")
            assert a.code == "NOERROR" and a.addresses == [f"127.0.2.{i}"], a
        assert names(lab.up) == [f"n{i}.up.test" for i in range(1, 9)], lab.up.asked
        assert {len(q[4]) for q in lab.up.asked} == {128}, "a name's length shows"
        assert lab.dns.ask("n1.up.test").addresses == ["127.0.2.1"] and len(lab.up.asked) == 8, "asked again what is known"
        assert lab.up.connections == 1 and not lab.up.clear
        e = dns_event(lab, "n1.up.test", client="127.0.0.1", rcode="NOERROR")
        assert (e["verdict"], e["answers"], e["rcode"]) == ("allow", ["127.0.2.1"], "NOERROR"), e


def test_many_at_once():
    with over_tls() as lab:
        socks = []
        with contextlib.ExitStack() as stack:
            for i in range(1, 101):
                s = stack.enter_context(contextlib.closing(lab.dns.udp()))
                from_dns = struct.pack("!6H", i, 0x0100, 1, 0, 0, 0) + b"".join(bytes([len(x)]) + x.encode() for x in (f"n{i}", "up", "test")) + b"\0\0\1\0\1"
                s.send(from_dns)
                socks.append(s)
            for i, s in enumerate(socks, 1):
                m = s.recv(4096)
                assert m[:2] == struct.pack("!H", i) and m.endswith(bytes([127, 0, 2, i])), m
        assert lab.up.connections == 1, lab.up.connections


def test_a_server_that_closes():
    """Between questions, and it comes back: the next question makes a new connection, which takes up the session."""
    with over_tls() as lab:
        closing = threading.Event()
        plain_reply = lab.up.reply

        def reply(m, tcp, port):
            if closing.is_set():
                closing.clear()
                raise ConnectionError("as told")
            return plain_reply(m, tcp, port)

        lab.up.reply = reply
        assert lab.dns.ask("n1.up.test").addresses == ["127.0.2.1"]
        closing.set()
        assert lab.dns.ask("n2.up.test").addresses == ["127.0.2.2"]  # asked, lost, asked once more
        assert lab.up.connections == 2 and lab.up.resumed == 1, (lab.up.connections, lab.up.resumed)


# ---------------------------------------------------------------- who does not prove to be dns.test


def test_who_does_not_prove_itself():
    wrong = {
        "name": ("wrong-name", "DNS:ns.test,DNS:*.dns.test", "ca", b"hostname mismatch"),
        "CN only": ("cn-only", None, "ca", b"hostname mismatch"),
        "address": ("address", "IP:127.0.0.1", "ca", b"hostname mismatch"),
        "CA": ("wrong-ca", "DNS:dns.test", "other", b"unable to get local issuer certificate"),
    }
    for what, (file, alternative, ca, reason) in wrong.items():
        with over_tls((file, alternative, ca), ("right", "DNS:dns.test", "ca")) as lab:
            bad, good = lab.ups
            lab.extra["upstreams"] = bad.over()
            reload(lab)
            assert lab.dns.ask("n1.up.test").code == "SERVFAIL", what
            e = dns_event(lab, "n1.up.test", rcode="SERVFAIL")
            assert e["code"] == "origin_dns" and bad.over() in e["message"] and reason.decode() in e["message"], (what, e)
            said = [x for x in lab.log_bytes().splitlines() if b"DNS server tls://" in x]
            assert len(said) == 1 and reason in said[0] and bad.over().encode() in said[0] and b"origin.ca_file" in said[0], (what, said)
            for i in range(2, 6):
                assert lab.dns.ask(f"n{i}.up.test").code == "SERVFAIL", what
            assert len([x for x in lab.log_bytes().splitlines() if b"DNS server tls://" in x]) == 1, "each question says it"
            assert not bad.asked and not bad.clear, (what, bad.asked, bad.clear)
            lab.extra["upstreams"] = good.over()  # the control: the same question, one that proves it
            reload(lab)
            wait_for(lambda: lab.dns.ask("n1.up.test").addresses == ["127.0.2.1"], f"an answer of the right server after {what}")
            assert "n1.up.test" in names(good)


def test_the_next_one_is_asked():
    with over_tls(("wrong-name", "DNS:ns.test", "ca"), ("right", "DNS:dns.test", "ca")) as lab:
        bad, good = lab.ups
        assert lab.dns.ask("n1.up.test").addresses == ["127.0.2.1"]
        assert names(good) == ["n1.up.test"] and not bad.asked and not bad.clear


def test_mixed_with_servers_in_the_clear():
    with over_tls(("wrong-name", "DNS:ns.test", "ca"), ("right", "DNS:dns.test", "ca")) as lab:
        bad, good = lab.ups
        plain = Upstream(script)
        lab.extra["upstreams"] = f'{good.over()}", "127.0.0.1:{plain.port}'
        reload(lab)
        assert lab.dns.ask("n1.up.test").addresses == ["127.0.2.1"]
        assert names(good) == ["n1.up.test"] and not plain.asked, "the order of the list"
        lab.extra["upstreams"] = f'{bad.over()}", "127.0.0.1:{plain.port}'  # one in the clear that the list names is no fall-back
        reload(lab)
        assert lab.dns.ask("n2.up.test").addresses == ["127.0.2.2"]
        assert plain.names() == ["n2.up.test"] and not bad.asked and not bad.clear


def test_other_roots():
    """The roots change by a reload: the resolver goes on, under its filter, and who proved itself by the old ones is not asked."""
    with over_tls() as lab:
        assert lab.dns.ask("n1.up.test").addresses == ["127.0.2.1"]
        pid, right = pid_of(lab, "resolver"), lab.config
        lab.config = lambda: right().replace(f"ca_file: [{lab.path('ca.pem')}]", f"ca_file: [{lab.path('stranger.pem')}]")
        reload(lab)
        assert lab.dns.ask("n2.up.test").code == "SERVFAIL"
        lab.config = right
        reload(lab)
        assert lab.dns.ask("n3.up.test").addresses == ["127.0.2.3"]
        assert pid_of(lab, "resolver") == pid
        assert names(lab.up) == ["n1.up.test", "n3.up.test"], names(lab.up)


def test_check():
    with over_tls() as lab:
        for text, what in (("tls://127.0.0.1:853", "expected tls://ADDR[:PORT]#NAME"), ("tls://127.0.0.1#", "expected tls://ADDR[:PORT]#NAME"),
                           ("tls://dns.test#dns.test", "expected tls://ADDR[:PORT]#NAME")):
            lab.extra["upstreams"] = text
            with open(lab.path("bad.yaml"), "w") as f:
                f.write(lab.config())
            r = lab.run("check", "-c", lab.path("bad.yaml"))
            assert r.returncode == 1 and f"bad.yaml:9:15: resolver.upstreams: {what}".encode() in r.stderr, r
        lab.extra["upstreams"] = lab.up.over()
        with open(lab.path("good.yaml"), "w") as f:
            f.write(lab.config())
        assert lab.run("check", "-c", lab.path("good.yaml")).returncode == 0


# ---------------------------------------------------------------- a real server


def test_unbound():
    exe = shutil.which("unbound") or shutil.which("unbound", path="/usr/sbin")
    if not exe:
        raise Skip("unbound is not installed")
    with over_tls() as lab:
        port = free_port(["127.0.0.1"])
        data = "".join(f'  local-data: "n{i}.up.test. 60 IN A 127.0.2.{i}"\n' for i in range(1, 60))
        with open(lab.path("unbound.conf"), "w") as f:
            f.write(f"""server:
  interface: 127.0.0.1@{port}
  tls-port: {port}
  tls-service-key: {lab.path('right.key')}
  tls-service-pem: {lab.path('right.pem')}
  username: ""
  chroot: ""
  directory: {lab.dir}
  pidfile: ""
  use-syslog: no
  do-daemonize: no
  do-not-query-localhost: yes
  module-config: "iterator"
  local-zone: "up.test." static
{data}remote-control:
  control-enable: no
""")
        with open(lab.path("unbound.log"), "wb") as log:
            proc = subprocess.Popen([exe, "-d", "-p", "-c", lab.path("unbound.conf")], stdout=log, stderr=log, cwd=lab.dir)
        try:
            def listens():
                assert proc.poll() is None, open(lab.path("unbound.log")).read()
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    return True
                return False

            wait_for(listens, "unbound")
            lab.extra["upstreams"] = f"tls://127.0.0.1:{port}#dns.test"
            reload(lab)
            for i in range(1, 60):
                assert lab.dns.ask(f"n{i}.up.test").addresses == [f"127.0.2.{i}"]
            assert lab.dns.ask("n1.up.test", "AAAA").code == "NOERROR"
            assert lab.dns.ask("nowhere.up.test").code == "NXDOMAIN"
            assert not lab.up.asked
            lab.extra["upstreams"] = f"tls://127.0.0.1:{port}#other.test"  # the control of the name, with a real server
            reload(lab)
            assert lab.dns.ask("n60.up.test").code == "SERVFAIL"
        finally:
            proc.terminate()
            proc.wait(10)


if __name__ == "__main__":
    main()
