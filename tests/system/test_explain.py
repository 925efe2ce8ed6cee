#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`explain` and `check` about names and addresses: what is said of each refusal, beside what passes. What is
said of addresses is held against a server."""
import json

from lab import Client, Refused, main
from test_commands import NO, OK, USAGE, Folder, sh
from test_virtual_names import POOL, given, make

HEAD = """version: 1
state_dir: home/state
listen: {proxy: ["127.0.0.1:3128"]DNS}
agents: [{name: coder, identify: [{source: 127.0.0.1/32}]}]
"""


class Explained(Folder):
    """The folder with this configuration; dns: it has a DNS port."""

    def __init__(self, text, dns=True):
        super().__init__()
        self.put(text, dns)

    def put(self, text, dns=True):
        with open(self.file, "w") as f:
            f.write(HEAD.replace("DNS", ', dns: ["127.0.0.1:5300"]' if dns else "") + text)

    def say(self, *what, status=None):
        r = sh("explain", "-c", self.file, "--agent", "coder", *what)
        assert status is None or r.returncode == status, (what, r.returncode, r.out, r.err)
        return r.out

    def json(self, *what, status=None):
        return json.loads(self.say("--json", *what, status=status))

    def warnings(self, status=OK):
        r = sh("check", "-c", self.file)
        assert r.returncode == status, (r.out, r.err)
        return [t.split("outgate.yaml:", 1)[1] for t in r.err.split("\n") if "outgate.yaml:" in t and "error" not in t]


RULES = """rules:
  - {name: lab, hosts: [api.lab.test], action: allow}
"""


def test_pool():
    """With a pool the address is the server's to choose: it is said of what network, of both families, of a question and of a request's host."""
    with Explained(RULES) as f:
        for synthetic, v4, v6 in (("{pool: 10.78.0.0/16}", "10.78.0.0/16", None), ('{pool: [10.78.0.0/16, "fd78::/64"]}', "10.78.0.0/16", "fd78::/64"),
                                  ('{v4: 10.77.0.1, pool: "fd78::/64"}', "10.77.0.1", "fd78::/64"), ('{v4: 10.77.0.1, v6: "fd77::1"}', "10.77.0.1", "fd77::1")):
            f.put(f"resolver: {{synthetic: {synthetic}}}\n{RULES}")
            for what in (("DNS", "api.lab.test"), ("GET", "https://api.lab.test/"), ("CONNECT", "api.lab.test:443")):
                d = f.json(*what, status=OK)
                said = f.say(*what, status=OK).split("\n")
                for kind, key, of in (("A", "dns", v4), ("AAAA", "dns_aaaa", v6)):
                    got, pooled = d[key], bool(of and "/" in of)
                    assert (got["type"], got["address"], got["pool"]) == (kind, None if pooled else of, of if pooled else None), (synthetic, what, got)
                    line, = [t for t in said if t.startswith(f"dns {kind}: ")]
                    assert (f"an address of its own out of {of}" in line) == pooled, line
                    assert ("resolver.synthetic has none of this family" in line) == (of is None) and (of is None or of in line), line
        assert "dns_aaaa" not in f.json("DNS", "dns:api.lab.test?type=A", status=OK)


def test_without_a_dns_port():
    """Where nobody can ask, that is what is said of names; what resolver.synthetic has is of no interest. With a port it is."""
    with Explained(RULES, dns=False) as f:
        for what in (("DNS", "api.lab.test"), ("GET", "https://api.lab.test/")):
            said = f.say(*what, status=OK)
            assert "dns: nobody asks: there is no listen.dns\n" in said and "resolver.synthetic" not in said and "dns A: " not in said, said
            assert "resolver.synthetic" not in f.json(*what)["dns"]["sentence"]
        assert "dns A: host_denied: REFUSED" in f.say("DNS", "evil.org", status=NO)
        f.put("resolver: {synthetic: {v4: 10.77.0.1}}\n" + RULES)
        said = f.say("GET", "https://api.lab.test/", status=OK)
        assert "nobody asks" not in said and "dns A: 10.77.0.1, an address of resolver.synthetic" in said, said


def test_question_types():
    """`DNS NAME`, `DNS TYPE NAME` and the URI of RFC 4501 ask for the same; a type that is none, or two of them, is not taken for a name."""
    with Explained("""resolver: {answer: forward}
rules:
  - {name: lab, hosts: [api.lab.test], dns_types: [A, TXT], action: allow}
""") as f:
        for kind, answer in (("TXT", "forward"), ("A", "forward"), ("MX", "no_data"), ("AAAA", "no_data")):
            d = f.json("DNS", kind, "api.lab.test", status=OK)
            assert d == f.json("DNS", f"dns:api.lab.test?type={kind}") and (d["dns"]["type"], d["dns"]["answer"]) == (kind, answer) and "dns_aaaa" not in d, d
        for bad in (("DNS", "NONSENSE", "api.lab.test"), ("DNS", "TXT", "dns:api.lab.test?type=A"), ("DNS", "api.lab.test", "TXT")):
            assert f.say(*bad, status=NO) == "", bad
        f.say("GET", "https://api.lab.test/", "more", status=USAGE)
        usage = sh("explain", "--help").out
        assert "METHOD URL" in usage and "DNS [TYPE] NAME" in usage, usage


def test_costs():
    """Every account that a new name is charged to is named with its limit and its key, and that what a server has spent is not in it; a name that is
    written out is charged to none."""
    with Explained("""resolver: {answer: forward}
exfiltration: {dns_tunnel: {bits: 2000}, agent: {any_bits: 9000/d, bits: 5000/d, zones: 60/h}}
rules:
  - {name: written, hosts: [api.lab.test, "*.lab.test"], action: allow}
  - {name: tenant, hosts: ["*.cloudfront.net"], action: allow}
  - {name: all, hosts: ["*"], action: allow}
""") as f:
        def accounts(name):
            d = f.json("DNS", name)["name"]
            assert d["spent_counted"] is False
            both = [[(a["account"], a["zone"], a["of_bits"]) for a in d["accounts"] if a["event"] == event and a["bits"] > 0] for event in ("question", "dial")]
            assert both[0] == both[1], d
            return both[0]
        zone, agents = "exfiltration.dns_tunnel.bits", "exfiltration.agent."
        assert accounts("api.lab.test") == []
        assert accounts("www.lab.test") == [("zone", "lab.test", 2000)]
        assert accounts("d1.cloudfront.net") == [("zone", "d1.cloudfront.net", 2000), ("zone-above", "cloudfront.net", 8000)]
        assert accounts("www.example.org") == [("zone", "example.org", 2000), ("any", None, 9000)]
        for what in (("DNS", "www.example.org"), ("GET", "https://www.example.org/")):
            said = [t for t in f.say(*what, status=OK).split("\n") if "name: a dial costs" in t]
            assert len(said) == 2 and all("not counting what a running server has spent" in t for t in said) and not any("nothing was spent" in t for t in said), said
            assert f"of the 2000 bits of example.org ({zone})" in said[0] and "of the 9000 bits a day" in said[1] and f"({agents}any_bits)" in said[1], said
        f.put("mode: observe\nresolver: {answer: forward}\nexfiltration: {agent: {bits: 5000/d, zones: 60/h}}\n")
        assert accounts("www.example.org") == [("zone", "example.org", 1024), ("agent", None, 5000), ("new-zones", None, 60)]


def test_addresses():
    """What the guard refuses of the addresses that stand in the file is said by check and by explain, with the key that opens it; with that key both are silent."""
    hosts = "resolver: {synthetic: {pool: 10.78.0.0/16}, hosts: {api.lab.test: [127.0.77.2], meta.lab.test: [169.254.169.254], out.lab.test: [198.51.100.7]}}\n"
    rule = '  - {name: lab, hosts: [api.lab.test, 127.0.77.3, "[::1]", out.lab.test], action: allow%s}\n'
    closed, opened = (hosts + "rules:\n" + rule % t for t in ("", ', allow_addresses: [127.0.77.2, 127.0.77.3, "::1"]'))
    asked = (("GET", "https://api.lab.test/"), ("GET", "https://127.0.77.3/"), ("GET", "https://[::1]/x"), ("CONNECT", "api.lab.test:443"), ("CONNECT", "127.0.77.3:443"))
    with Explained(closed) as f:
        said = f.warnings()
        assert len(said) == 3 and all('in rule "lab", or under origin' in t and "address_denied" in t for t in said), said
        for what in asked:
            d = f.json(*what, status=NO)
            assert (d["verdict"], d["code"], d["passes"]) == ("deny", "address_denied", False) and "is refused (loopback)" in d["why"] and "allow_addresses" in d["why"], d
            said = f.say(*what, status=NO)
            assert "address_denied: " in said and 'in rule "lab", or under origin for all rules, opens it' in said and said.endswith("verdict: deny\n"), said
        assert f.json("DNS", "api.lab.test", status=OK)["dial"]["code"] == "address_denied" and "dial: address_denied: " in f.say("DNS", "api.lab.test")
        f.say("GET", "https://out.lab.test/", status=OK)
        for url in ("https://10.78.0.9/", "https://10.78.7.7/x"):
            d = f.json("GET", url, status=NO)
            assert d["code"] == "address_denied" and not any(t.startswith(("rule", "the rules")) for t in d["steps"]), d
        assert f.json("GET", "https://10.79.0.9/", status=NO)["code"] == "host_denied"
        f.put(opened)
        assert f.warnings() == []
        for what in asked:
            assert f.json(*what, status=OK)["verdict"] == "allow", what
        assert f.json("DNS", "api.lab.test", status=OK)["dial"]["code"] == "ok" and "dial: " not in f.say("DNS", "api.lab.test")
        f.put(hosts + 'rules:\n  - {name: meta, hosts: [meta.lab.test], allow_addresses: ["169.254.0.0/16"], action: allow}\n')
        said, = f.warnings()
        assert "(metadata): no allow_addresses opens it" in said and "no allow_addresses opens it" in f.say("GET", "https://meta.lab.test/", status=NO), said
        for text, code, status in ((closed, "address_denied", NO), (opened, "", OK)):
            f.put(text.replace("resolver: {", "resolver: {answer: forward, ").replace("synthetic: {pool: 10.78.0.0/16}, ", ""))
            d = f.json("DNS", "A", "api.lab.test", status=status)["dns"]
            assert (d["code"], d["answer"]) == (code, "hosts" if status == OK else "refused"), d


def test_addresses_as_a_server_refuses_them():
    """What explain says of addresses in the file is what a server answers: closed ones, metadata, ourselves, one of the pool. The control: an origin that may be dialled."""
    rules = '  - {name: more, hosts: [ten.test, meta.test, self.test, 10.9.0.2, open.test], ports: [PORT, OWN], action: allow}'
    with make(hosts={"ten.test": "10.9.0.1", "meta.test": "169.254.169.254", "self.test": "127.0.0.1"}, rules=rules, start=False) as lab:
        lab.extra["rules"] = rules.replace("OWN", str(lab.port))
        lab.patched()

        def happens(host, port):
            try:
                c = Client(lab, f"{host}:{port}")
                code = c.ask(host=f"{host}:{port}").code
                c.close(notify=False)
            except Refused as e:
                code = e.message.code
            return code or "ok"
        unknown = next(str(a) for a in POOL.hosts() if str(a) != given(lab.dns, "open.test"))
        for host, port, code in (("ten.test", lab.tls_port, "address_denied"), ("meta.test", lab.tls_port, "address_denied"), ("self.test", lab.port, "address_denied"),
                                 ("10.9.0.2", lab.tls_port, "address_denied"), (unknown, lab.tls_port, "address_denied"), ("10.9.0.3", lab.tls_port, "host_denied"),
                                 ("open.test", lab.tls_port, "ok")):
            r = lab.run("explain", "-c", lab.path("outgate.yaml"), "--agent", "coder", "--json", "GET", f"https://{host}:{port}/")
            d = json.loads(r.stdout)
            assert (d["code"], happens(host, port)) == (code, code) and d["passes"] == (code == "ok"), (host, port, d)


def test_hints():
    """The bare name under a wildcard, and a special name under `*`: what is missing is said; written out, neither is."""
    text = """resolver: {answer: forward}
rules:
  - {name: zone, hosts: ["*.zone.lab.test"BARE], action: allow}
  - {name: all, hosts: ["*"SPECIAL], action: allow}
"""
    bare, special = "never covers the bare name", "passes only where a rule writes it"
    with Explained(text.replace("BARE", "").replace("SPECIAL", "")) as f:
        line = HEAD.count("\n") + 3
        for name, words, more in (("zone.lab.test", bare, 'write "zone.lab.test" beside it'), ("db.corp.internal", special, "*"), ("printer", special, "*"), ("x.test", special, "*")):
            for what in (("DNS", name), ("GET", f"https://{name}/")):
                said = [t for t in f.say(*what, status=NO).split("\n") if t.startswith("hint: ")]
                assert len(said) == 1 and words in said[0] and more in said[0] and f.json(*what)["hints"] == said, (what, said)
        assert f"outgate.yaml:{line}:" in f.say("DNS", "zone.lab.test")
        for name in ("www.zone.lab.test", "www.example.org"):
            assert f.json("DNS", name, status=OK)["hints"] == [] and "hint: " not in f.say("GET", f"https://{name}/", status=OK)
        f.put(text.replace("BARE", ", zone.lab.test").replace("SPECIAL", ', "*.internal", printer, "*.test"'))
        for name in ("zone.lab.test", "db.corp.internal", "printer", "x.test"):
            assert f.json("DNS", name, status=OK)["hints"] == [], name
        f.put("mode: observe\nresolver: {answer: forward}\n")
        assert special in f.say("DNS", "db.corp.internal", status=NO) and f.json("DNS", "www.example.org", status=OK)["hints"] == []


def test_check_of_what_changes_nothing():
    """Each setting that has no effect is a warning with its key; put right, none is."""
    text = """resolver: {answer: ANSWER, synthetic: {V4pool: 10.78.0.0/16}}
origin: {allow_addresses: [ORIGIN]}
rules:
  - {name: lab, hosts: [api.lab.test], dns_types: [TYPES], allow_addresses: [RULE], action: allow}
"""
    right = {"ANSWER": "synthetic", "V4": "", "ORIGIN": "10.0.0.0/8", "TYPES": "A, AAAA", "RULE": "10.79.0.1"}

    def said(f, **other):
        t = text
        for k, v in {**right, **other}.items():
            t = t.replace(k, v)
        f.put(t)
        return f.warnings()
    with Explained(RULES) as f:
        assert said(f) == []
        for key, value, words in (("V4", "v4: 10.77.0.1, ", "resolver.synthetic.v4: expected"), ("ORIGIN", "10.78.0.0/16", "origin.allow_addresses: expected"),
                                  ("RULE", "10.78.0.9", " allow_addresses: expected"), ("TYPES", "TXT", "no address either"), ("TYPES", "A, TXT", "dns_types: expected")):
            got, = said(f, **{key: value})
            assert words in got, (key, value, got)
        f.put("resolver: {answer: forward}\nrules:\n  - {name: lab, hosts: [api.lab.test], dns_types: [TXT], action: allow}\n")
        assert f.warnings() == []
        with open(f.file) as stream:
            whole = stream.read()
        with open(f.file, "w") as stream:
            stream.write(whole.replace("agents: [", "agents: [{name: none, identify: []}, "))
        got, = f.warnings()
        assert 'identify: expected one claim or more, got none: nobody can be agent "none"' in got, got


if __name__ == "__main__":
    main()
