#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a refusal looks like, and where it is said: code, status, body by client, reason phrase, fields, event; and that the client's
connection goes on where it can."""
import os
import re
import secrets as chance
import time

from lab import Client, Closed, Lab, Refused, answer, main, read_head, read_response, say

JSON_FIELDS = {"code", "message", "hint", "request_id", "agent", "host", "rule"}


def make_lab():
    return Lab(
        hosts={"meta.test": "169.254.169.254", "broken.test": "127.0.0.3", "private.test": "127.0.0.3"},
        rules="  - {name: meta, hosts: [meta.test], ports: [443], action: allow}\n"
        "  - {name: nx, hosts: [nx.test, broken.test], ports: [443, PORT], action: allow}",
        credentials="  - {name: broken, agents: [coder], hosts: [broken.test], ports: [PORT], slots: [\"header:authorization\"],\n"
        "     placeholder: PLACEHOLDER2, env: BROKEN, source: {exec: [/bin/false]}}",
        start=False,
    ).patched()


def refusal(lab, name, port=None, method="GET", target="/", headers=(), body=None):
    """The refusal, wherever it was said: ("tunnel" or "connect", the message)."""
    try:
        return "tunnel", lab.get(name, target, method, headers, body, port=port)
    except Refused as e:
        return "connect", e.message


def check(lab, m, status, code, mark, rule=None, host=None, verdict="deny"):
    """Everything that every refusal has."""
    assert m.status == status and m.code == code, m
    assert m.reason and m.reason.isascii() and len(m.reason) <= 120 and m.reason.lower() not in ("forbidden", "bad gateway"), m.reason
    assert "no-store" in (m.get("cache-control") or ""), m
    assert re.match(r"outgate; ?error=[a-z_]+", m.get("proxy-status") or ""), m
    assert m.get("content-length") is not None or m.get("transfer-encoding"), m
    if "json" in (m.get("content-type") or ""):
        e = m.json()["error"]
        assert set(e) >= JSON_FIELDS and e["code"] == code and e["hint"] and e["message"] and m.json()["message"], e
        assert host is None or e["host"] == host, e
        assert e["agent"] in ("coder", None) and e["rule"] == rule, e
        ev = lab.event(lambda x: x.get("request_id") == e["request_id"], after=mark)
    else:
        ev = lab.event(lambda x: x.get("code") == code, after=mark)
    assert ev["verdict"] in verdict.split("|") and ev["status"] == status and ev["code"] == code and ev["end"] == code and ev["hint"], ev
    again = [x for x in lab.events("close")[0:] if x["request_id"] == ev["request_id"]]
    assert len(again) == 1, again
    return ev


def test_host_denied_is_said_inside_the_tunnel(lab):
    mark = lab.mark()
    c = lab.client("evil.test", port=443)
    m = c.ask(target="/x?y=1")
    check(lab, m, 403, "host_denied", mark, host="evil.test")
    for _ in range(2):  # the connection goes on
        assert c.ask("POST", "/again", body=b"x" * 1000).code == "host_denied"
    assert c.ask("HEAD").body == b""
    assert not lab.open.conns


def test_the_leaf_of_a_refusal_lives_an_hour_at_most(lab):
    import ssl

    c = lab.client("evil.test", port=443)
    cert = c.tls.getpeercert()
    assert dict(cert)["subjectAltName"] == (("DNS", "evil.test"),)
    assert ssl.cert_time_to_seconds(cert["notAfter"]) - time.time() <= 3600


def test_explicit_deny_names_its_rule(lab):
    mark = lab.mark()
    where, m = refusal(lab, "deny.test", 443)
    assert where == "tunnel"
    check(lab, m, 403, "host_denied", mark, rule="denied", host="deny.test")


def test_port_denied_at_connect(lab):
    mark = lab.mark()
    where, m = refusal(lab, "open.test", 8444)
    assert where == "connect"
    check(lab, m, 403, "port_denied", mark, host="open.test")


def test_method_and_path_denied(lab):
    for method, target, code in (("DELETE", "/ok/x", "method_denied"), ("GET", "/no/x", "path_denied"), ("GET", "/okay", "path_denied")):
        mark = lab.mark()
        where, m = refusal(lab, "narrow.test", method=method, target=target)
        assert where == "tunnel"
        ev = check(lab, m, 403, code, mark, host="narrow.test", rule=m.json()["error"]["rule"])
        assert ev["path"] == target and ev["method"] == method
    assert not lab.open.requests
    assert refusal(lab, "narrow.test", method="POST", target="/ok/x", body=b"")[1].status == 200


def test_approval_required(lab):
    mark = lab.mark()
    _, m = refusal(lab, "ask.test")
    check(lab, m, 403, "approval_required", mark, rule="ask", host="ask.test", verdict="ask")
    assert not lab.open.requests


def test_address_denied(lab):
    mark = lab.mark()
    _, m = refusal(lab, "meta.test", 443)
    check(lab, m, 403, "address_denied", mark, host="meta.test", rule=m.json()["error"]["rule"])


def test_misdirected_and_bad_request(lab):
    mark = lab.mark()
    m = lab.client().ask(host="evil.test")
    check(lab, m, 421, "misdirected", mark, rule=m.json()["error"]["rule"])
    mark = lab.mark()
    m = lab.client().ask(headers=[("Expect", "the unexpected")])
    check(lab, m, 400, "bad_request", mark, rule=m.json()["error"]["rule"])


def test_malformed_targets_at_connect(lab):
    for target in ("open.test", "open.test:0", "open.test:99999", "open test:443", "/x", "u@open.test:443"):
        mark = lab.mark()
        c = Client(lab)
        c.send(f"CONNECT {target} HTTP/1.1\r\nHost: open.test\r\n\r\n".encode())
        m = read_response(c, "CONNECT")
        assert m.status == 400 and m.code == "bad_request", (target, m)
        lab.event(lambda e: e.get("code") == "bad_request", after=mark)


def test_origin_failures(lab):
    for name, port, code in (("down.test", None, "origin_connect"), ("badcert.test", None, "origin_tls"), ("nx.test", 443, "origin_dns")):
        if name == "badcert.test" and "badcert.test" not in lab.origins:
            lab.origin("badcert.test", cert="stranger")
        mark = lab.mark()
        where, m = refusal(lab, name, port)
        assert where == "tunnel", where
        check(lab, m, 502, code, mark, host=name, rule=m.json()["error"]["rule"], verdict="allow|deny")
    assert not lab.origins["badcert.test"].requests


def test_origin_protocol(lab):
    for raw in (b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", b""):
        lab.open.reset(say(raw))
        mark = lab.mark()
        m = lab.get(method="POST", body=b"x")
        assert m.status == 502 and m.code in ("origin_protocol", "origin_closed"), m
        lab.event(lambda e: e.get("status") == 502, after=mark)


def test_credential_unavailable(lab):
    mark = lab.mark()
    _, m = refusal(lab, "broken.test", headers=[lab.bearer(lab.placeholder2)])
    ev = check(lab, m, 503, "credential_unavailable", mark, host="broken.test", rule=m.json()["error"]["rule"], verdict="allow|deny")
    assert int(m.get("retry-after")) >= 1, m
    assert not lab.open.requests
    assert refusal(lab, "broken.test")[1].status in (200, 503), ev  # without the placeholder the answer may need no lease


def test_bodies_by_client(lab):
    """Said the way that the client shows it to its user."""
    for ua in ("git/2.39.5", "Go-http-client/1.1", "Go-http-client/2.0", "kubectl/v1.32 (linux/amd64)"):
        m = lab.client("evil.test", port=443).ask(headers=[("User-Agent", ua)])
        assert m.status == 403 and m.get("content-type").startswith("text/plain"), (ua, m)
        assert b"host_denied" in m.body and b"evil.test" in m.body and not m.body.lstrip().startswith(b"{"), (ua, m.body)
    m = lab.client("evil.test", port=443).ask(headers=[("User-Agent", "npm/10.8.2 node/v20.19 linux x64 workspaces/false")])
    assert isinstance(m.json()["error"], str) and "evil.test" in m.body.decode() and "json" in m.get("content-type"), m
    for ua in ("curl/7.88.1", "python-requests/2.28", "", "node"):
        m = lab.client("evil.test", port=443).ask(headers=[("User-Agent", ua)])
        assert set(m.json()["error"]) >= JSON_FIELDS and isinstance(m.json()["message"], str), (ua, m)


def test_refusal_of_a_request_with_a_body(lab):
    """The client sends on; the answer is seen, not a reset."""
    c = lab.client("evil.test", port=443)
    c.send(b"POST /up HTTP/1.1\r\nHost: evil.test\r\nContent-Length: 40000\r\n\r\n" + b"x" * 20000)
    m = read_response(c)
    assert m.code == "host_denied", m
    c = lab.client("evil.test", port=443)
    c.send(b"POST /up HTTP/1.1\r\nHost: evil.test\r\nContent-Length: 4000000\r\n\r\n")
    try:
        for _ in range(60):
            c.send(b"x" * 65536)
    except OSError:
        pass
    m = read_response(c)
    assert m.code == "host_denied", m


def test_refusal_of_an_expecting_client(lab):
    """No 100 for what is refused."""
    c = lab.client("evil.test", port=443)
    c.send(b"PUT /up HTTP/1.1\r\nHost: evil.test\r\nContent-Length: 4000000\r\nExpect: 100-continue\r\n\r\n")
    m = read_head(c)
    assert m.status == 403, m


def test_refusal_on_the_proxy_port(lab):
    mark = lab.mark()
    c = lab.proxy()
    m = c.ask(target="http://evil.test/x", host="evil.test")
    check(lab, m, 403, "host_denied", mark, host="evil.test")
    assert c.ask(target="http://evil.test/y", host="evil.test").status == 403


def test_unknown_agent():
    with Lab(agents="  - {name: coder, identify: [{source: 127.0.0.7/32}]}\n") as lab:
        try:
            lab.get()
            raise AssertionError("a stranger got in")
        except Refused as e:
            m = e.message
        assert m.status == 403 and m.code == "unknown_agent" and not m.all("proxy-authenticate"), m
        assert not lab.open.conns
        ev = lab.event(lambda e: e.get("code") == "unknown_agent")
        assert ev["verdict"] == "deny" and ev["client"].startswith("127.0.0.1")
        assert lab.get(source="127.0.0.7").status == 200  # the control


def test_login():
    """407 with a challenge on the same socket, then a login; never sent on, never logged."""
    import base64

    token = chance.token_hex(16)
    with Lab(agents="  - {name: coder, identify: [{login: {user: coder, token_file: coder.token}}]}\n", start=False) as lab:
        with open(lab.path("coder.token"), "w") as f:
            f.write(token + "\n")
        os.chmod(lab.path("coder.token"), 0o600)
        lab.secrets.append(token)
        lab.start()
        c = Client(lab)
        for login in (None, "coder:" + chance.token_hex(16), "other:" + token):
            basic = f"Proxy-Authorization: Basic {base64.b64encode(login.encode()).decode()}\r\n" if login else ""
            c.send(f"CONNECT open.test:{lab.tls_port} HTTP/1.1\r\nHost: open.test:{lab.tls_port}\r\n{basic}\r\n".encode())
            m = read_response(c)
            assert m.status == 407 and m.get("proxy-authenticate", "").startswith("Basic ") and m.code == "unknown_agent", m
        good = [("Proxy-Authorization", "basic " + base64.b64encode(f"coder:{token}".encode()).decode())]
        c.send(f"CONNECT open.test:{lab.tls_port} HTTP/1.1\r\nHost: open.test:{lab.tls_port}\r\n{good[0][0]}: {good[0][1]}\r\n\r\n".encode())
        assert read_response(c, "CONNECT").status == 200
        assert lab.client(headers=good).ask().status == 200
        assert all(b"roxy-" not in bytes(x.received) for x in lab.open.conns)
        assert not lab.leaks(*[bytes(x.received) for x in lab.open.conns])


def test_refuse_at_connect():
    with Lab(refuse_at="connect") as lab:
        where, m = refusal(lab, "evil.test", 443)
        assert where == "connect" and m.status == 403 and m.code == "host_denied" and "evil.test" in m.body.decode(), m
        assert m.reason and m.reason.isascii() and len(m.reason) <= 120
        assert lab.get().status == 200


def test_many_denied_names_move_to_connect():
    with Lab(hosts={}, tail="limits: {denied_names_burst: 3}") as lab:
        where = [refusal(lab, f"n{i}.evil.test", 443)[0] for i in range(8)]
        assert where[:3] == ["tunnel"] * 3 and "connect" in where[3:], where
        assert refusal(lab, "n0.evil.test", 443)[0] == "tunnel"  # a name that is known already
        assert lab.get().status == 200


def test_observe_mode():
    with Lab(tail="mode: observe") as lab:
        mark = lab.mark()
        m = lab.get("narrow.test", target="/no/x")
        assert m.status == 200, m
        ev = lab.event(lambda e: e.get("path") == "/no/x", after=mark)
        assert ev["verdict"] == "observe" and ev["code"] == "path_denied", ev
        where, m = refusal(lab, "open.test", headers=[lab.bearer()])  # swap rules hold
        assert m.status == 403 and m.code == "placeholder_wrong_host", m


def test_limits():
    with Lab(tail="limits: {body_bytes: 1000, response_timeout: 1s, head_timeout: 500ms, connections_per_agent: 6}") as lab:
        m = lab.get(method="POST", body=b"x" * 1001)
        assert m.status == 413 and m.code == "too_large" and not lab.open.requests, m
        assert lab.get(method="POST", body=b"x" * 1000).status == 200
        lab.open.reset(say(3, answer(200, "late")))
        mark = lab.mark()
        m = lab.get()
        assert m.status == 504 and m.code == "origin_timeout", m
        lab.event(lambda e: e.get("code") == "origin_timeout", after=mark)
        lab.open.reset(say(0.5, answer(200, "in time")))
        assert lab.get().body == b"in time"
        c = lab.client()  # slowloris: a head that never ends
        c.send(b"GET / HTTP/1.1\r\nHost:")
        start = time.monotonic()
        c.rest()
        assert time.monotonic() - start < 3
        time.sleep(0.1)
        lab.open.reset()
        held, refused_at = [], None
        for i in range(10):
            try:
                held.append(lab.client())
            except Refused as e:
                refused_at = (i, e.message)
                break
            except (Closed, OSError):
                refused_at = (i, None)
                break
        assert refused_at and 4 <= refused_at[0] <= 7, refused_at
        if refused_at[1]:
            assert refused_at[1].status == 429 and refused_at[1].code == "rate_limited" and refused_at[1].get("retry-after"), refused_at[1]
        for c in held:
            c.close()
        time.sleep(0.2)
        assert lab.get().status == 200


def test_draining():
    with Lab() as lab:
        c = lab.client()
        assert c.ask().status == 200
        lab.open.reset(say(0.5, answer(200, "finished")))
        c.write(target="/last")
        time.sleep(0.1)
        lab.proc.terminate()
        m = read_response(c)
        assert m.status == 200 and m.body == b"finished", m
        lab.proc.wait(10)
        assert lab.proc.returncode == 0


if __name__ == "__main__":
    main()
