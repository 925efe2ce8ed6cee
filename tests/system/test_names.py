#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One canonical name: CONNECT = SNI = Host = absolute-form, by host and port; and what is no host at all."""
import json
import socket
import ssl
import time

from lab import Client, Closed, Conn, Lab, Refused, free_port, main, read_response


def make_lab():
    lab = Lab(hosts={"self.test": "127.0.0.1", "meta.test": "169.254.169.254"}, start=False,
              rules="  - {name: self, hosts: [self.test, meta.test, 127.0.0.1], ports: [22, 443, SELF], schemes: [https, http], action: allow}")
    lab.extra["rules"] = lab.extra["rules"].replace("SELF", str(lab.port))
    return lab.start()


def alert_of(lab, **kw):
    try:
        lab.client(**kw)
        return None
    except ssl.SSLError as e:
        return (e.reason or str(e)).upper().replace(" ", "_")
    except (Closed, OSError) as e:
        return repr(e)


def test_sni_that_differs(lab):
    """C1: an alert, an event, and nothing dialled."""
    for sni in ("evil.test", "api.test", "open.test.evil.test"):
        mark = lab.mark()
        assert "UNRECOGNIZED_NAME" in (alert_of(lab, sni=sni) or "no alert")
        e = lab.event(lambda e: e.get("end") == "sni_mismatch", types=("conn",), after=mark)
        assert e["sni"] == sni and e["host"] == "open.test", e
    assert not lab.open.conns and not lab.api.conns
    assert lab.get().status == 200  # the control: the same name


def test_sni_in_another_case(lab):
    assert lab.client(sni="OPEN.Test").ask().status == 200


def test_no_sni_means_the_name_of_the_connect(lab):
    """C7"""
    c = lab.client(sni=False)
    assert c.ask().status == 200
    assert lab.open.snis[-1] == "open.test"
    names = dict(c.tls.getpeercert() or {}).get("subjectAltName")
    assert names == (("DNS", "open.test"),), names


def test_host_that_differs(lab):
    """C2: domain fronting; C17: another port."""
    p = lab.tls_port
    for host in (f"evil.test:{p}", "evil.test", f"api.test:{p}", f"deny.test:{p}", "open.test", "open.test:443", f"open.test:{p + 1}"):
        c = lab.client()
        m = c.ask(target="/f", host=host)
        assert m.status == 421 and m.code == "misdirected", (host, m)
    assert not lab.open.requests and not lab.api.requests
    for host in (f"open.test:{p}", f"OPEN.test:{p}", f"open.test.:{p}"):
        assert lab.client().ask(host=host).status == 200, host
        assert lab.open.last.get("host").lower().rstrip(".") in (f"open.test:{p}", f"open.test.:{p}")


def test_absolute_form_and_host_differ(lab):
    """C3"""
    q = lab.http_port
    m = lab.proxy().ask(target=f"http://plain.test:{q}/", host=f"evil.test:{q}")
    assert m.status in (400, 421), m
    assert not lab.plain.requests
    assert lab.proxy().ask(target=f"http://plain.test:{q}/", host=f"plain.test:{q}").status == 200


def test_absolute_form_inside_a_tunnel(lab):
    """C4"""
    p = lab.tls_port
    for target in (f"http://evil.test/", f"https://evil.test:{p}/", f"https://open.test/", f"http://open.test:{p}/", f"https://api.test:{p}/"):
        m = lab.client().ask(target=target)
        assert m.status == 421 and m.code == "misdirected" or m.status == 400 and m.code == "bad_request", (target, m)
    assert not lab.open.requests
    m = lab.client().ask(target=f"https://open.test:{p}/x")
    assert m.status == 200 and lab.open.last.target == "/x", m


BAD_HOSTS = ["open.test:{p}, evil.test", "open.test:{p} evil.test", "u@open.test:{p}", "open.test:{p}/x", "open.test:{p}#", "open.test:{p}?", "open.test\\",
             "open.test%00:{p}", "open%2etest:{p}", "open.test:{p}x", "open.test:+{p}", "open.test:0{p}99", "open.test:", "open.test:-1", "[open.test]:{p}", "open..test:{p}",
             ".open.test:{p}", "open.test:0", "open.test:65536", "open.test..:{p}", "'open.test':{p}", "open.test\t:{p}", "\xefopen.test:{p}", "open.test;:{p}"]


def test_hosts_that_are_none(lab):
    """C5, C6: refused in Host, and in CONNECT before anything is opened."""
    for host in BAD_HOSTS:
        h = host.format(p=lab.tls_port)
        c = lab.client()
        m = c.ask(host=h)
        assert m.status in (400, 421), (h, m)
    assert not lab.open.requests
    for host in ["open.test", "open.test:", "open.test:0", "open.test:65536", "u@open.test:{p}", "open%2etest:{p}", "open..test:{p}", "-:{p}x", "[::1:{p}",
                 "open.test:{p}/", "http://open.test:{p}", "b\xc3\xbccher.wild.test:{p}", "open.test%00:{p}", "*.wild.test:{p}", "1.2.3.4.5:{p}", "256.1.1.1:{p}"]:
        h = host.format(p=lab.tls_port)
        c = Client(lab)
        c.send(f"CONNECT {h} HTTP/1.1\r\nHost: {h}\r\n\r\n".encode("latin1"))
        m = read_response(c, "CONNECT")
        assert m.status in (400, 403), (h, m)
    assert not lab.open.conns


def test_names_are_canonical(lab):
    """C6: case and a trailing dot change nothing, whichever side writes them."""
    for connect in ("OPEN.TEST", "open.test.", "Open.Test."):
        c = Client(lab, f"{connect}:{lab.tls_port}", sni="open.test")
        assert c.ask(host=f"open.test:{lab.tls_port}").status == 200, connect
        assert lab.open.snis[-1] == "open.test"
    m = Client(lab, "A.Wild.TEST:%d" % lab.tls_port, sni="a.wild.test").ask(host=f"a.wild.test:{lab.tls_port}")
    assert m.status == 200


def test_a_wildcard_does_not_cover_the_bare_name(lab):
    try:
        m = lab.get("wild.test")
    except Refused as e:
        m = e.message
    assert m.status == 403 and m.code == "host_denied", m
    assert lab.get("a.wild.test").status == 200


def test_numeric_addresses_are_addresses(lab):
    """2130706433 and friends are 127.0.0.1, and no rule of a name lets them through."""
    for host in ("2130706434", "0x7f.0.0.3", "0177.0.0.3", "127.3", "0x7f000003"):
        try:
            m = Client(lab, f"{host}:{lab.tls_port}", tls=False, refused_ok=True).connected
        except (Closed, OSError):
            continue
        assert m.status in (400, 403), (host, m)
    assert not lab.open.conns


def test_not_tls_and_not_http(lab):
    """C9, C10: closed with an event, nothing dialled."""
    for what, first in (("ssh", b"SSH-2.0-OpenSSH_9.2p1\r\n"), ("postgres", b"\0\0\0\x08\x04\xd2\x16\x2f"), ("smtp", b"\x80\x01\x02\x03binary\0")):
        mark = lab.mark()
        c = lab.client(tls=False)
        c.send(first)
        c.half_close()
        data, _ = c.rest()
        assert b" 200 " not in data, (what, data)
        lab.event(lambda e: "protocol_denied" in (e.get("end"), e.get("code")) or e.get("code") == "bad_request", types=("conn", "close"), after=mark)
    assert not lab.open.conns


def test_other_ports(lab):
    """C11: refused at CONNECT."""
    for port in (22, 25, 53, 3128, lab.port):
        m = Client(lab, f"open.test:{port}", tls=False, refused_ok=True).connected
        assert m.status == 403 and m.code == "port_denied", (port, m)
    assert not lab.open.conns


def test_connect_to_ourselves(lab):
    """C12: by address, by a name that leads here; although 127.0.0.0/8 is an exception to the guard."""
    for host in ("127.0.0.1", "self.test"):
        mark = lab.mark()
        c = Client(lab, f"{host}:{lab.port}", tls=False, refused_ok=True)
        if c.connected.status == 200:  # decided at the request
            m = c.ask(host=f"{host}:{lab.port}", target="/healthz")
        else:
            m = c.connected
        assert m.status == 403 and m.code == "address_denied", (host, m)
        lab.event(lambda e: e.get("code") == "address_denied", after=mark)


def test_metadata_addresses_never_open(lab):
    try:
        m = lab.get("meta.test", port=443)
    except Refused as e:
        m = e.message
    assert m.status == 403 and m.code == "address_denied", m


def test_connect_inside_a_tunnel(lab):
    """C13"""
    c = lab.client()
    c.send(f"CONNECT api.test:{lab.tls_port} HTTP/1.1\r\nHost: api.test:{lab.tls_port}\r\n\r\n".encode())
    m = read_response(c)
    assert m.status in (400, 403, 405, 421), m
    assert not lab.api.conns and not lab.open.requests


def test_the_environment_of_the_server_changes_nothing():
    """C16"""
    env = {k: "http://127.0.0.1:9" for k in ("http_proxy", "https_proxy", "HTTPS_PROXY", "ALL_PROXY")}
    env.update(SSL_CERT_FILE="/nonexistent", SSL_CERT_DIR="/nonexistent", CURL_CA_BUNDLE="/nonexistent")
    with Lab(env=env) as lab:
        assert lab.get().status == 200
        assert lab.get("api.test", headers=[lab.bearer()]).status == 200
        assert lab.api.last.get("authorization") == f"Bearer {lab.real}"


def test_a_name_that_is_refused_is_not_resolved(lab):
    """Neither a dns event nor a dial."""
    mark = lab.mark()
    try:
        lab.get("evil.test", port=443)
    except Refused:
        pass
    lab.event(lambda e: e.get("code") == "host_denied", after=mark)
    time.sleep(0.1)
    assert not [e for e in lab.events("dns")[0:] if e.get("qname") == "evil.test"]


def test_origin_sees_the_one_name(lab):
    lab.get("a.wild.test")
    assert lab.open.snis[-1] == "a.wild.test"
    assert lab.open.last.get("host") == f"a.wild.test:{lab.tls_port}"


def test_what_a_tls_listener_is_called():
    for names, known, unknown in (([], ["127.0.0.1"], "proxy.test"), (["proxy.test"], ["proxy.test"], "localhost"),
                                  (["proxy.test", "127.0.0.1"], ["proxy.test", "127.0.0.1"], "localhost")):
        lab = Lab(start=False)
        port, config = free_port(["127.0.0.1"]), lab.config
        lab.config = lambda: config().replace(f"[127.0.0.1:{lab.port}]\n", f"['127.0.0.1:{lab.port}', 'tls:127.0.0.1:{port}']\n  names: {json.dumps(names)}\n")
        with lab.start():
            env = json.loads(lab.run("env", "-c", lab.path("outgate.yaml"), "--agent", "coder", "--format", "json").stdout)
            assert env["HTTPS_PROXY"] == f"http://127.0.0.1:{lab.port}", env["HTTPS_PROXY"]
            for name in known:  # whatever the client calls us, the certificate stands for it
                c = Conn(socket.create_connection(("127.0.0.1", port), 10)).start_tls(lab.client_context(), name=name)
                assert c.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n") and read_response(c).status == 200
                c.close()
            if known[-1] == "127.0.0.1":  # and what is asked through it goes out
                c = Conn(socket.create_connection(("127.0.0.1", port), 10)).start_tls(lab.client_context(), name="127.0.0.1")
                c.send(f"GET http://plain.test:{lab.http_port}/t HTTP/1.1\r\nHost: plain.test:{lab.http_port}\r\n\r\n".encode())
                assert read_response(c).status == 200
                c.close()
            try:
                Conn(socket.create_connection(("127.0.0.1", port), 10)).start_tls(lab.client_context(), name=unknown)
                raise AssertionError(f"{unknown} is none of {names}")
            except ssl.SSLError as e:
                assert "UNRECOGNIZED_NAME" in str(e), e
            assert "listen.names" in lab.event(lambda e: e.get("sni") == unknown, ("conn",))["hint"]


if __name__ == "__main__":
    main()
