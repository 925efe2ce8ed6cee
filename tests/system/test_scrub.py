#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What an origin sends back never shows a real value to the agent: in any place of an answer, across any border, in the encodings that
clients undo; and an answer that cannot be read does not pass."""
import base64
import gzip
import json
import os
import re
import threading
import time
import urllib.parse
import zlib

from lab import Closed, Lab, Refused, always, answer, leaks_in, main, read_head, read_request, read_response, say


ODD = 'p"a\\ss/w+rd=' + "0f1e2d3c4b5a69788796"
ODD_PLACEHOLDER = "og_odd_0123456789abcdefgh"


def make_lab():
    lab = Lab(
        hosts={"odd.test": "127.0.0.2"},
        rules="  - {name: odd, hosts: [odd.test], ports: [PORT], action: allow}",
        credentials="  - {name: odd, agents: [coder], hosts: [odd.test], ports: [PORT], slots: [\"header:x-key\"],\n"
        f"     placeholder: {ODD_PLACEHOLDER}, env: ODD, source: {{file: REAL2}}}}",
        start=False,
    )
    with open(lab.path("real2"), "w") as f:
        f.write(ODD)
    os.chmod(lab.path("real2"), 0o600)
    return lab.patched()


def ask(lab, name="api.test", headers=None, **kw):
    """One swapped request; the message and every byte that the client got. They never hold the real value."""
    c = lab.client(name)
    m = c.ask(headers=[lab.bearer()] if headers is None else headers, **kw)
    got = bytes(c.received)
    c.close()
    found = leaks_in(got, lab.secrets)
    assert not found, (found, m)
    return m, got


def test_body(lab):
    m, _ = ask(lab)  # the echo origin answers with the request's head
    assert f"Bearer {lab.placeholder}" in m.body.decode()
    assert int(m.get("content-length", len(m.body))) == len(m.body)
    e = lab.event(lambda e: e.get("scrubbed"))
    assert e["scrubbed"] == 1 and e["credentials"] == ["github"], e
    f = lab.event(lambda e: e.get("class") == "credential_reflected", types=("finding",))
    assert lab.real not in str(f) and "sent back a real value once; " in f["sentence"], f


def test_control_nothing_else_is_changed(lab):
    text = ("ghs_REAL" + "0" * 32 + " ghs_ ghs_REA " + lab.real[:-1] + " " + lab.real[1:] + " gh").encode()
    lab.api.reset(always(answer(200, text)))
    m, _ = ask(lab)
    assert m.body == text


def test_headers(lab):
    places = [("X-Echo", lab.real), ("Location", f"https://api.test/?t={lab.real}&x"), ("Set-Cookie", f"t={lab.real}; Path=/"),
              ("WWW-Authenticate", f'Bearer error="{lab.real}"'), ("Link", f"<https://x.test/{lab.real}>; rel=next"), ("ETag", f'"{lab.real}"'),
              ("X-B64", base64.b64encode(b"user:" + lab.real.encode()).decode()), ("X-Twice", f"{lab.real} {lab.real}")]
    lab.api.reset(always(answer(200, "x", places)))
    m, _ = ask(lab)
    for k, v in places:
        if k != "X-B64":
            assert m.get(k) == v.replace(lab.real, lab.placeholder), (k, m)


def test_header_names(lab):
    lab.api.reset(always(answer(200, "x", [(lab.real, "y")])))
    try:
        ask(lab)
    except Closed:
        pass


def test_reason_phrase(lab):
    lab.api.reset(always(answer(403, "x", reason=f"bad token {lab.real}!")))
    m, _ = ask(lab)
    assert m.status == 403 and lab.placeholder in m.reason, m


def test_interim_answers(lab):
    lab.api.reset(always(f"HTTP/1.1 103 Early {lab.real}\r\nLink: </{lab.real}>\r\n\r\n".encode(), 0.05, answer(200, "ok")))
    m, _ = ask(lab)
    assert m.body == b"ok"


def test_trailers(lab):
    lab.api.reset(always(f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n2\r\nok\r\n0\r\nX-T: {lab.real}\r\n\r\n".encode()))
    m, _ = ask(lab)
    assert m.body == b"ok" and all(v == lab.placeholder for _, v in m.trailers), m.trailers


def test_error_pages(lab):
    for status in (401, 404, 500, 503):
        lab.api.reset(always(answer(status, f"<pre>Authorization: Bearer {lab.real}</pre>")))
        m, _ = ask(lab)
        assert m.status == status and lab.placeholder in m.body.decode()


def test_chunk_extensions_are_dropped(lab):
    lab.api.reset(always(f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x={lab.real}\r\nok\r\n0;{lab.real}\r\n\r\n".encode()))
    m, _ = ask(lab)
    assert m.body == b"ok"


def test_every_chunk_size(lab):
    n = len(lab.real)
    text = b"<" + lab.real.encode() + b"><" + base64.b64encode(b"u:" + lab.real.encode()) + b">"
    for size in (1, 2, 3, 7, n - 1, n, n + 1):
        chunks = [text[i : i + size] for i in range(0, len(text), size)]
        lab.api.reset(always(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(b"%x\r\n%s\r\n" % (len(x), x) for x in chunks) + b"0\r\n\r\n"))
        m, _ = ask(lab)
        assert m.body.startswith(b"<" + lab.placeholder.encode() + b"><"), (size, m.body)


def test_every_read_border(lab):
    """Cut in two writes at each place of the value, in a body with a length."""
    text = b"a" * 10 + lab.real.encode() + b"z" * 10
    for cut in range(8, 12 + len(lab.real), 3):
        lab.api.reset(always(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(text) + text[:cut], 0.02, text[cut:]))
        m, _ = ask(lab)
        assert m.body == b"a" * 10 + lab.placeholder.encode() + b"z" * 10, (cut, m.body)


def test_base64_at_three_alignments(lab):
    for k in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            text = b'{"x":"' + encode(b"x" * k + lab.real.encode() + b"tail") + b'"}'
            lab.api.reset(always(answer(200, text)))
            m, _ = ask(lab)
            inner = m.body[6:-2]
            assert len(inner) == len(text[6:-2]), (k, m.body)  # alignment and length stay
            decode = base64.b64decode if encode is base64.b64encode else base64.urlsafe_b64decode
            decode(inner)


def test_basic_that_is_echoed(lab):
    lab.api.reset()
    c = lab.client("git.test")
    m = c.ask(headers=[("Authorization", "Basic " + base64.b64encode(b"x-access-token:" + lab.placeholder.encode()).decode())])
    assert base64.b64encode(b"x-access-token:" + lab.real.encode())[20:48] not in bytes(c.received)
    assert not leaks_in(bytes(c.received), lab.secrets), m


def test_hex(lab):
    for text in (lab.real.encode().hex(), lab.real.encode().hex().upper()):
        lab.api.reset(always(answer(200, "<" + text + ">")))
        ask(lab)


def test_percent(lab):
    """Every byte of it, in either case."""
    for text in ("".join("%%%02X" % b for b in lab.real.encode()), "".join("%%%02x" % b for b in lab.real.encode())):
        lab.api.reset(always(answer(200, "<" + text + ">")))
        ask(lab)


def odd(lab, text):
    """An echo of the value that has characters which encoders change."""
    lab.api.reset(always(answer(200, "<" + text + ">")))
    c = lab.client("odd.test")
    m = c.ask(headers=[("X-Key", ODD_PLACEHOLDER)])
    assert lab.api.last.get("x-key") == ODD
    assert text.encode() not in bytes(c.received), m
    return m


def test_odd_value_as_it_is(lab):
    assert odd(lab, ODD).body.decode() == f"<{ODD_PLACEHOLDER}>"


def test_odd_value_percent_encoded_as_clients_do(lab):
    """Only what must be encoded is."""
    text = urllib.parse.quote(ODD, safe="")
    odd(lab, text)
    odd(lab, re.sub("%..", lambda m: m.group().lower(), text))


def test_odd_value_json_escaped(lab):
    text = json.dumps(ODD)[1:-1]
    odd(lab, text)
    odd(lab, text.replace("/", "\\/"))


def test_a_value_stored_earlier_is_read_back(lab):
    """Scrubbed although this request was not swapped; on the credential's other host too."""
    ask(lab)
    lab.api.reset(always(answer(200, f"note: {lab.real}")))
    for name in ("api.test", "git.test"):
        m, _ = ask(lab, name, headers=[])
        assert m.body.decode() == f"note: {lab.placeholder}", (name, m.body)


def test_close_delimited(lab):
    lab.api.reset(say(f"HTTP/1.0 200 OK\r\n\r\nx {lab.real[:20]}".encode(), 0.05, lab.real[20:].encode() + b" y"))
    m, _ = ask(lab)
    assert m.body.decode() == f"x {lab.placeholder} y"


def test_the_last_bytes_are_not_swallowed(lab):
    """A prefix of the value at the very end was held back: it comes."""
    for n in (1, 4, len(lab.real) - 1):
        for raw in (answer(200, "end " + lab.real[:n]), b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\nend %s\r\n0\r\n\r\n" % (4 + n, lab.real[:n].encode())):
            lab.api.reset(always(raw))
            m, _ = ask(lab)
            assert m.body.decode() == "end " + lab.real[:n], (n, m.body)


ENCODED = {
    "gzip": lambda b: gzip.compress(b),
    "deflate": lambda b: zlib.compress(b),
    "br": lambda b: b"\x0b\x02\x80hello\x03",
    "zstd": lambda b: b"\x28\xb5\x2f\xfd\x04\x58",
    "compress": lambda b: b,
    "gzip, gzip": lambda b: gzip.compress(gzip.compress(b)),
    "made-up": lambda b: b,
}


def test_compressed_answers(lab):
    """Either read and scrubbed, or refused: a coding is no way around."""
    for coding, encode in ENCODED.items():
        lab.api.reset(always(answer(200, encode(f"x {lab.real} y".encode()), [("Content-Encoding", coding)])))
        try:
            m, got = ask(lab)
        except Closed:
            continue
        if m.status == 502:
            assert m.code == "origin_protocol", m
            continue
        body = m.body
        for _ in range(3):  # undo what a client would undo
            for undo in (gzip.decompress, zlib.decompress):
                try:
                    body = undo(body)
                except Exception:
                    pass
        assert lab.real.encode() not in body, coding


def test_partial_answers(lab):
    """A 206 that begins in the middle of a value never completes a needle: refused, or the part is not there."""
    def handler(conn, origin):
        m = read_request(conn)
        origin.requests.append(m)
        whole = f"x {lab.real} y".encode()
        if m.get("range"):
            conn.send(answer(206, whole[:9], [("Content-Range", f"bytes 0-8/{len(whole)}")]))
        else:
            conn.send(answer(200, whole))
        conn.rest()

    lab.api.reset(handler)
    m, _ = ask(lab, headers=[lab.bearer(), ("Range", "bytes=0-8")])
    assert m.status == 200 and m.body.decode() == f"x {lab.placeholder} y", m


def test_redirects_are_not_followed(lab):
    lab.api.reset(always(answer(302, "", [("Location", f"https://open.test:{lab.tls_port}/?t={lab.real}")])))
    m, _ = ask(lab)
    assert m.status == 302 and m.get("location").endswith(lab.placeholder) and not lab.open.requests


def test_many_decoys_do_not_tire_it(lab):
    text = "".join(f"ghs_REAL{i:032d} " for i in range(2000)) + lab.real
    lab.api.reset(always(answer(200, text)))
    m, _ = ask(lab)
    assert m.body.decode().endswith(lab.placeholder)


def test_many_hits(lab):
    lab.api.reset(always(answer(200, f"{lab.real}\n" * 5000)))
    m, _ = ask(lab)
    assert m.body.decode() == f"{lab.placeholder}\n" * 5000
    assert lab.event(lambda e: e.get("scrubbed") == 5000)


def test_events_are_not_held_back(lab):
    sent = []

    def handler(conn, origin):
        read_request(conn)
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for i in range(6):
            e = f"data: {lab.real} {i}\n\n".encode()
            sent.append(time.monotonic())
            conn.send(b"%x\r\n%s\r\n" % (len(e), e))
            time.sleep(0.1)
        conn.send(b"0\r\n\r\n")

    lab.api.reset(handler)
    c = lab.client("api.test")
    c.write(headers=[lab.bearer()])
    read_head(c)
    late = []
    for i in range(6):
        c.until(f"data: {lab.placeholder} {i}\n\n".encode())
        late.append(time.monotonic() - sent[i])
    assert sorted(late)[-2] < 0.05, late
    assert not leaks_in(bytes(c.received), lab.secrets)


def test_two_answers_at_once_do_not_mix(lab):
    errors = []

    def one():
        try:
            for _ in range(10):
                m, _ = ask(lab)
                assert lab.placeholder in m.body.decode()
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=one) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors, errors[:2]


def test_head_answer(lab):
    lab.api.reset(always(b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\nX-Echo: %s\r\n\r\n" % lab.real.encode()))
    m, _ = ask(lab, method="HEAD")
    assert m.get("x-echo") == lab.placeholder and m.get("content-length") in ("1234", None)


def test_a_credential_that_comes_while_answers_run():
    """Begun when no credential covered the host: an event stream is read from the reload on, a WebSocket ends with it."""
    import test_websocket as W

    gate, seen = threading.Event(), {}

    def origin(conn, o):
        m = read_head(conn)
        if m.target == "/sse":
            conn.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nfirst\n\r\n")
            gate.wait(20)
            said = b"data: " + seen["value"] + b"\n"
            conn.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(said), said))
        elif m.target == "/ws":
            conn.send(("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
                       f"{W.accept_of(m.get('sec-websocket-key'))}\r\n\r\n").encode())
            gate.wait(20)
            conn.send(W.frame(seen["value"], masked=False))
        else:
            seen["value"] = m.get("authorization").split()[1].encode()
            conn.send(answer(200, b"ok"))

    with Lab(hosts={"late.test": "127.0.0.2"}, rules="  - {name: late, hosts: [late.test], ports: [PORT], action: allow}\n", start=False) as lab:
        lab.patched()
        lab.api.reset(origin)
        stream = lab.client("late.test")
        stream.write("GET", "/sse")
        stream.until(b"first\n")
        socket = W.opened(lab, "late.test")
        lab.extra["credentials"] = f"""  - {{name: late, agents: [coder], hosts: [late.test], ports: [{lab.tls_port}], slots: ["header:authorization"],
     placeholder: {lab.placeholder2}, env: LATE, source: {{file: {lab.path("real2")}}}}}"""
        with open(lab.path("outgate.yaml"), "w") as f:
            f.write(lab.config())
        assert lab.run("reload", "-c", lab.path("outgate.yaml")).returncode == 0
        W.ended(socket, 1008, "revoked")
        assert lab.get("late.test", "/use", headers=[lab.bearer(lab.placeholder2)]).status == 200 and seen["value"] == lab.real2.encode()
        gate.set()
        got = stream.until(b"0\r\n\r\n")
        assert lab.placeholder2.encode() in got and not leaks_in(bytes(stream.received), lab.secrets), got
        lab.blobs += [bytes(stream.received), bytes(socket.received)]


def test_another_host_is_another_scope(lab):
    """open.test has no credential: its bytes are its own (the control of all of the above), whatever they look like."""
    text = "ghs_REAL" + "f" * 32
    lab.open.reset(always(answer(200, text)))
    try:
        assert lab.get("open.test").body.decode() == text
    except Refused as e:
        raise AssertionError(e)


def test_the_log_has_none_of_it(lab):
    ask(lab)
    assert not lab.leaks()


if __name__ == "__main__":
    main()
