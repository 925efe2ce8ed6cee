#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Placeholders become real values: in the listed slots of requests in scope, and nowhere else. Whatever is refused never left."""
import base64
import re

from lab import Client, Lab, Refused, Skip, answer, main, read_request, read_response


def make_lab():
    """Besides the usual credential: `scoped` (GET under /r/ only, two occurrences), `shared` (two agents, derived placeholders) and a
    header slot of its own."""
    lab = Lab(
        hosts={"scoped.test": "127.0.0.2", "key.test": "127.0.0.2", "shared.test": "127.0.0.2", "plainkey.test": "127.0.0.4"},
        agents="  - {name: coder, identify: [{source: 127.0.0.1/32}]}\n  - {name: tester, identify: [{source: 127.0.0.8/32}]}\n",
        rules="  - {name: more, hosts: [scoped.test, key.test, shared.test], ports: [PORT], action: allow}\n"
        "  - {name: plainkey, hosts: [plainkey.test], schemes: [http], ports: [PLAINPORT], action: allow}",
        credentials="""  - {name: scoped, agents: [coder], hosts: [scoped.test], ports: [PORT], methods: [GET], paths: ["/r/**"], slots: ["header:authorization"],
     max_occurrences: 2, placeholder: PLACEHOLDER2, env: SCOPED, source: {file: REAL2}}
  - {name: key, agents: [coder], hosts: [key.test, plainkey.test], ports: [PORT, PLAINPORT], slots: ["header:x-api-key", "basic:user"], placeholder: sk-test-0123456789abcdefABCDEF,
     env: KEY, allow_plain_http: true, source: {file: REAL2}}
  - {name: shared, agents: [coder, tester], hosts: [shared.test], ports: [PORT], slots: ["header:authorization"], env: SHARED_TOKEN, source: {file: REAL2}}""",
        start=False,
    )
    return lab.patched()


def basic(text):
    return base64.b64encode(text.encode()).decode()


def not_sent(lab, code, name="api.test", **kw):
    """The request is refused with this code, and no byte of it reached anybody."""
    mark = lab.mark()
    try:
        m = lab.get(name, **kw)
    except Refused as e:
        m = e.message
    assert m.status == 403 and m.code == code, (kw, m)
    for o in lab.origins.values():
        assert not o.requests, (kw, o.requests)
    e = lab.event(lambda e: e.get("code") == code, after=mark)
    assert not any(x.get("request_id") == e["request_id"] for x in lab.events("open")), "an open event for what never left"
    return e


def test_bearer(lab):
    m = lab.get("api.test", "/user?z=1&a=%2f", headers=[("x-a", "1"), lab.bearer(), ("X-B", "2")])
    seen = lab.api.last
    assert seen.all("authorization") == [f"Bearer {lab.real}"]
    assert seen.line == "GET /user?z=1&a=%2f HTTP/1.1"
    assert [k for k, _ in seen.headers if k.lower() in ("x-a", "authorization", "x-b")] == ["x-a", "Authorization", "X-B"]
    assert lab.real not in m.body.decode() and lab.placeholder in m.body.decode()
    e = lab.event(lambda e: str(e.get("path", "")).startswith("/user"))
    assert e["credentials"] == ["github"] and e["verdict"] == "allow"


def test_any_scheme_word(lab):
    for value in ("Bearer {}", "bearer {}", "token {}", "{}", "Bearer  {}"):
        lab.get("api.test", headers=[("Authorization", value.format(lab.placeholder))])
        assert lab.api.last.get("authorization") == value.format(lab.real), value


def test_basic(lab):
    """git: the placeholder hides inside base64."""
    for user in ("x-access-token:", ":", "u\xe9:", "a" * 50 + ":"):
        for scheme in ("Basic", "basic", "BASIC"):
            sent = base64.b64encode(user.encode() + lab.placeholder.encode()).decode()
            m = lab.get("git.test", "/o/r.git/info/refs", headers=[("Authorization", f"{scheme} {sent}")])
            got = lab.api.last.get("authorization")
            assert got.split(" ")[0] == scheme and base64.b64decode(got.split(" ")[1]) == user.encode() + lab.real.encode(), got
            assert lab.real not in m.body.decode()


def test_basic_keeps_its_padding(lab):
    for user in ("u:", "uu:", "uuu:"):
        sent = basic(user + lab.placeholder)
        if "=" not in sent:
            continue
        lab.get("git.test", headers=[("Authorization", "Basic " + sent.rstrip("="))])
        got = lab.api.last.get("authorization").split(" ")[1]
        assert "=" not in got and base64.b64decode(got + "==") == (user + lab.real).encode(), got


def test_basic_that_is_none_of_ours_is_untouched(lab):
    for value in ("Basic " + basic("user:password-of-its-own"), "Basic !!!not base64", "Basic", "Basic  " + basic("a:b"), "Basic " + basic("no colon")):
        lab.get("open.test", headers=[("Authorization", value)])
        assert lab.open.last.get("authorization") == value.strip(), value


def test_placeholder_as_basic_user_is_another_slot(lab):
    not_sent(lab, "placeholder_wrong_slot", "git.test", headers=[("Authorization", "Basic " + basic(lab.placeholder + ":x"))])
    lab.get("key.test", headers=[("Authorization", "Basic " + basic("sk-test-0123456789abcdefABCDEF:"))])
    assert base64.b64decode(lab.api.last.get("authorization").split(" ")[1]).decode() == lab.real2 + ":"


def test_header_slot_of_its_own(lab):
    lab.get("key.test", headers=[("X-API-Key", "sk-test-0123456789abcdefABCDEF"), ("X-Api-Key-2", "x")])
    assert lab.api.last.all("x-api-key") == [lab.real2]
    not_sent_after(lab, "placeholder_wrong_slot", "key.test", headers=[("Authorization", "Bearer sk-test-0123456789abcdefABCDEF")])


def not_sent_after(lab, *args, **kw):
    lab.fresh()
    return not_sent(lab, *args, **kw)


def test_nothing_is_injected_unasked(lab):
    lab.get("api.test", "/plain", headers=[("X", "y")])
    assert not lab.api.last.all("authorization") and lab.real.encode() not in bytes(lab.api.conns[0].received)
    e = lab.event(lambda e: e.get("path") == "/plain")
    assert e["credentials"] == []


WRONG_PLACES = ["User-Agent", "Referer", "Origin", "Cookie", "X-Request-Id", "traceparent", "Forwarded", "X-Forwarded-For", "If-None-Match", "From",
                "Sec-WebSocket-Protocol", "X-Authorization", "Accept", "Content-Type"]


def test_wrong_headers(lab):
    for name in WRONG_PLACES:
        e = not_sent(lab, "placeholder_wrong_slot", headers=[(name, f"a={lab.placeholder}")])
        assert lab.placeholder not in str(e), e


def test_header_name(lab):
    not_sent(lab, "placeholder_wrong_slot", headers=[(lab.placeholder, "x")])


def test_target(lab):
    """A07: with a reason that names the place, and a log that does not show it."""
    for target in (f"/v1?key={lab.placeholder}", f"/{lab.placeholder}/x", f"/x?{lab.placeholder}=1", "/v1?key=" + lab.placeholder.replace("ghp_", "%67hp_"),
                   "/v1?key=" + "".join("%%%02x" % b for b in lab.placeholder.encode())):
        mark = lab.mark()
        not_sent(lab, "placeholder_wrong_slot", target=target)
        e = lab.event(lambda e: e.get("code") == "placeholder_wrong_slot", after=mark)
        assert lab.placeholder not in str(e), e
    assert lab.get("api.test", "/v1?key=other").status == 200  # the control


def test_wrong_host(lab):
    mark = lab.mark()
    for kw in (dict(headers=[lab.bearer()]), dict(headers=[("Authorization", "Basic " + basic("x:" + lab.placeholder))]), dict(target="/?q=" + lab.placeholder),
               dict(headers=[("X-Any", lab.placeholder)]), dict(headers=[("Cookie", "a=1; t=" + lab.placeholder)])):
        not_sent(lab, "placeholder_wrong_host", "open.test", **kw)
    f = lab.event(lambda e: e.get("class") in ("placeholder_elsewhere", "endpoint_redirect"), types=("finding",), after=mark)
    assert f["sentence"] and f["severity"] and lab.placeholder not in str(f), f
    m = lab.get("open.test", headers=[("Authorization", "Bearer ghp_" + "a" * 36)])  # the control: a token of nobody's
    assert m.status == 200


def test_wrong_host_on_the_proxy_port_and_in_absolute_form(lab):
    for target, host in ((f"https://open.test:{lab.tls_port}/", f"open.test:{lab.tls_port}"), (f"http://plain.test:{lab.http_port}/", f"plain.test:{lab.http_port}")):
        m = lab.proxy().ask(target=target, host=host, headers=[lab.bearer()])
        assert m.code == "placeholder_wrong_host", m
    assert not lab.open.requests and not lab.plain.requests


def test_clear_text_is_out_of_scope(lab):
    """A17: never on the wire in clear; with the operator's word it is."""
    m = lab.proxy().ask(target=f"http://api.test:{lab.http_port}/", host=f"api.test:{lab.http_port}", headers=[lab.bearer()])
    assert m.status == 403 and m.code == "placeholder_out_of_scope", m
    m = lab.proxy().ask(target=f"http://plainkey.test:{lab.http_port}/", host=f"plainkey.test:{lab.http_port}", headers=[("x-api-key", "sk-test-0123456789abcdefABCDEF")])
    assert m.status == 200 and lab.plain.last.get("x-api-key") == lab.real2, m


def test_method_and_path_scope(lab):
    for method, target in (("POST", "/r/x"), ("GET", "/x"), ("GET", "/rr/x")):
        not_sent(lab, "placeholder_out_of_scope", "scoped.test", method=method, target=target, headers=[lab.bearer(lab.placeholder2)])
    assert lab.get("scoped.test", "/r/x", headers=[lab.bearer(lab.placeholder2)]).status == 200
    assert lab.api.last.get("authorization") == f"Bearer {lab.real2}"


def test_occurrences(lab):
    """A12: one unless the credential says more."""
    p = lab.placeholder
    for headers in ([lab.bearer(), lab.bearer()], [("Authorization", f"Bearer {p}, Bearer {p}")], [("Authorization", f"{p} {p}")]):
        not_sent(lab, "placeholder_wrong_slot", headers=headers)
    q = lab.placeholder2
    lab.get("scoped.test", "/r/2", headers=[("Authorization", f"Bearer {q}, Bearer {q}")])
    assert lab.api.last.get("authorization") == f"Bearer {lab.real2}, Bearer {lab.real2}"
    not_sent_after(lab, "placeholder_wrong_slot", "scoped.test", target="/r/3", headers=[("Authorization", f"{q}, {q}, {q}")])


def test_a_placeholder_is_a_whole_token(lab):
    p = lab.placeholder
    for value in (f"Bearer x{p}", f"Bearer {p}x", f"Bearer {p}.x", f'Bearer "{p}"', f"Bearer token={p}"):
        not_sent(lab, "placeholder_wrong_slot", headers=[("Authorization", value)])
    for value in (f"Bearer {p}", f"{p};x", f"a,{p}", f"a, {p}, b"):
        lab.get("api.test", headers=[("Authorization", value)])
        assert lab.api.last.get("authorization") == value.replace(p, lab.real), value


def test_a_body_is_inert(lab):
    """Agents quote tokens in prompts: forwarded as it is, on every host, with a finding."""
    mark = lab.mark()
    text = f'{{"input":"GH_TOKEN={lab.placeholder}"}}'.encode()
    for name, o in (("open.test", lab.open), ("api.test", lab.api)):
        m = lab.get(name, method="POST", body=text)
        assert m.status == 200 and o.last.body == text, name
        assert lab.real.encode() not in bytes(o.conns[-1].received)
    lab.get("api.test", method="POST", body=text, headers=[lab.bearer()])
    assert lab.api.last.body == text and lab.api.last.get("authorization") == f"Bearer {lab.real}"
    f = lab.event(lambda e: e.get("class") == "placeholder_elsewhere", types=("finding",), after=mark)
    assert lab.placeholder not in str(f)


def test_a_body_in_pieces_is_inert_too(lab):
    p = lab.placeholder.encode()
    for cut in range(0, len(p) + 1, 5):
        c = lab.client("api.test")
        c.send(b"POST / HTTP/1.1\r\nHost: api.test:%d\r\nTransfer-Encoding: chunked\r\n\r\n" % lab.tls_port)
        for part in (p[:cut], p[cut:]):
            if part:
                c.send(b"%x\r\n%s\r\n" % (len(part), part))
        c.send(b"0\r\n\r\n")
        assert read_response(c).status == 200 and lab.api.last.body == p, cut


def test_trailers_carry_no_credential(lab):
    c = lab.client("api.test")
    c.send(b"POST / HTTP/1.1\r\nHost: api.test:%d\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nAuthorization: Bearer %s\r\nX-T: %s\r\n\r\n" % (
        lab.tls_port, lab.placeholder.encode(), lab.placeholder.encode()))
    try:
        read_response(c)
    except Exception:
        pass
    for conn in lab.api.conns:
        assert lab.real.encode() not in bytes(conn.received) and b"Authorization" not in bytes(conn.received)


def test_connection_cannot_name_it_away(lab):
    """A21"""
    c = lab.client("api.test")
    m = c.ask(headers=[("Connection", "Authorization"), lab.bearer()])
    assert m.status == 400 and not lab.api.requests, m
    m = lab.client("key.test").ask(headers=[("Connection", "x-api-key"), ("X-API-Key", "sk-test-0123456789abcdefABCDEF")])
    assert m.status >= 400 or not lab.api.last.all("x-api-key"), m  # refused, or gone before the swap: never half of it
    assert all(lab.real2.encode() not in bytes(x.received) for x in lab.api.conns)


def test_another_agents_placeholder(lab):
    """B1: the same answer as for one that never was; a finding that names both."""
    shared = {}
    for agent in ("coder", "tester"):
        r = lab.run("env", "-c", lab.path("outgate.yaml"), "--agent", agent, "--format", "json")
        if r.returncode:
            raise Skip("outgate env: " + r.stderr.decode(errors="replace")[:100])
        found = re.search(r'"?SHARED_TOKEN"?\s*[:=]\s*"?([^",\s]+)', r.stdout.decode())
        shared[agent] = found.group(1)
    assert shared["coder"] != shared["tester"]
    for agent, source in (("coder", "127.0.0.1"), ("tester", "127.0.0.8")):
        m = lab.get("shared.test", headers=[lab.bearer(shared[agent])], source=source)
        assert m.status == 200 and lab.api.last.get("authorization") == f"Bearer {lab.real2}", m
    mark = lab.mark()
    lab.fresh()
    m = lab.get("shared.test", headers=[lab.bearer(shared["tester"])], source="127.0.0.1")
    assert m.status == 403 and m.code == "unknown_placeholder" and "tester" not in m.body.decode(), m
    assert not lab.api.requests
    f = lab.event(lambda e: "tester" in str(e) and "coder" in str(e), types=("finding",), after=mark)
    assert f["severity"] in ("high", "critical"), f


def test_a_real_value_in_the_agents_own_request(lab):
    """However it came by it: a critical finding, and it does not leave."""
    lab.get("api.test", headers=[lab.bearer()])  # now the lease is live
    lab.fresh()
    mark = lab.mark()
    e = not_sent(lab, "exfiltration", headers=[("Authorization", f"Bearer {lab.real}")])
    assert lab.real not in str(e)
    lab.event(lambda e: e.get("severity") == "critical", types=("finding",), after=mark)
    for kw in (dict(target=f"/?x={lab.real}"), dict(headers=[("X-Any", lab.real)])):
        not_sent(lab, "exfiltration", **kw)


def test_swapped_requests_ask_for_readable_answers(lab):
    """So that the answer can be scrubbed: no unknown coding, no range that cuts a value; unswapped ones are left alone."""
    heads = [("Accept-Encoding", "gzip, br, zstd, made-up"), ("Range", "bytes=0-9"), ("If-Range", '"x"')]
    lab.get("api.test", headers=[lab.bearer(), *heads])
    assert "made-up" not in (lab.api.last.get("accept-encoding") or ""), lab.api.last
    assert not lab.api.last.all("range"), lab.api.last
    lab.get("open.test", headers=heads)
    assert lab.open.last.get("accept-encoding") == heads[0][1] and lab.open.last.get("range") == "bytes=0-9"


def test_two_requests_two_agents_two_origin_connections(lab):
    """B6: pools never cross agents."""
    lab.get("open.test")
    lab.get("open.test", source="127.0.0.8")
    lab.get("open.test")
    assert len(lab.open.conns) == 2, len(lab.open.conns)


def test_leases_are_few(lab):
    """One lease serves many requests; events never show its value."""
    mark = lab.mark()
    for _ in range(10):
        lab.get("api.test", headers=[lab.bearer()])
    given = [e for e in lab.events()[mark:] if e["type"] == "lease" and e.get("result") == "given"]
    assert len(given) <= 1, given
    assert not lab.leaks()


def test_a_value_that_the_origin_stopped_taking():
    """A 401: the source is asked again, and the request goes again with what it says now."""
    with Lab() as lab:
        second = "ghs_" + "Second0123456789" * 2
        lab.secrets.append(second)

        def rotate(conn, origin):
            while True:
                m = read_request(conn)
                origin.requests.append(m)
                if m.get("authorization") == "Bearer " + second:
                    conn.send(answer(200, "taken"))
                    continue
                with open(lab.path("real"), "w") as f:
                    f.write(second)
                conn.send(answer(401, "gone"))

        lab.api.reset(rotate)
        m = lab.get("api.test", method="POST", headers=[lab.bearer()], body=b"once more")
        assert m.status == 200 and m.body == b"taken", m
        assert [(r.get("authorization"), r.body) for r in lab.api.requests] == [("Bearer " + lab.real, b"once more"), ("Bearer " + second, b"once more")]
        lab.event(lambda e: e.get("host") == "api.test")
        closes = [e for e in lab.events("close") if e.get("host") == "api.test"]
        assert [e["status"] for e in closes] == [200], closes
        assert not lab.leaks()


def test_the_file_is_read_without_its_newline():
    with Lab(start=False) as lab:
        with open(lab.path("real"), "a") as f:
            f.write("\n")
        lab.start()
        lab.get("api.test", headers=[lab.bearer()])
        assert lab.api.last.get("authorization") == f"Bearer {lab.real}"


def test_a_value_that_cannot_stand_in_a_header_is_refused():
    with Lab(start=False) as lab:
        with open(lab.path("real"), "w") as f:
            f.write(lab.real + "\r\nX-Injected: 1")
        lab.start()
        try:
            m = lab.get("api.test", headers=[lab.bearer()])
        except Refused as e:
            m = e.message
        assert m.status == 503 and m.code == "credential_unavailable", m
        assert not lab.api.requests


if __name__ == "__main__":
    main()
