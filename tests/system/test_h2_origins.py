#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 towards origins: what is chosen, how requests and answers of every framing cross from HTTP/1.1, what is shared and what is not,
what is sent again, and what a value leaves behind."""
import hashlib
import os
import shutil
import socket
import subprocess
import threading
import time

import h2_frames as F
import h2_origin as O
import lab as L
from lab import Lab, read_response, wait_for


def fields_of(s, name):
    return [v.decode("latin1") for k, v in s.fields if k == name.encode()]


def in_threads(n, work):
    """work(i) in n threads; what each gave, or raised."""
    out = [None] * n

    def run(i):
        try:
            out[i] = work(i)
        except Exception as e:
            out[i] = e

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    return out


def make_lab():
    return Lab(hosts={n + ".wild.test": "127.0.0.3" for n in ("both", "alert", "silence")})


# --- which protocol


def test_the_origin_chooses(lab):
    for alpn, h2 in ((("h2", "http/1.1"), True), (("h2",), True), (("http/1.1",), False), ((), False)):
        O.speak(lab.open, alpn=alpn) if alpn else lab.open.reset()
        if not alpn:
            lab.open.ctx = lab.origin_context(lab.open)
        m = lab.get(target="/chosen")
        assert m.status == 200 and (b"fields" in m.body) == h2, (alpn, m)


def test_each_client_has_its_own_where_the_host_has_both(lab):
    """HTTP/1.1 is carried over HTTP/1.1 once the host showed that it has it: that costs less. HTTP/2 stays HTTP/2."""
    O.speak(lab.open, alpn=("h2", "http/1.1"))
    carried = [b"fields" in lab.get("both.wild.test", f"/{i}").body for i in range(6)]
    assert carried == [True] + [False] * 5, carried
    assert len(lab.open.conns) == 2, "one connection of each"
    c = F.connect(lab, "both.wild.test")
    for _ in range(2):
        s = c.ask(path="/two")
        assert b"fields" in bytes(s.body), s.body
    assert len(lab.open.conns) == 2


def h2_or_nothing(lab, how):
    """An origin that ends the handshake of a client that does not offer h2, with an alert or without a word."""
    ctx = lab.origin_context(lab.open)
    ctx.set_alpn_protocols(["h2"])
    peers = []

    def handler(conn, o):
        hello = b""
        while len(hello) < 200:
            hello = conn.sock.recv(4096, L.socket.MSG_PEEK)
        if b"\x02h2" not in hello:
            if how == "alert":
                conn.sock.sendall(b"\x15\x03\x03\x00\x02\x02\x78")  # no_application_protocol
            peers.append(None)
            return
        conn.start_tls(ctx, server_side=True)
        peer = O.Peer(conn)
        peers.append(peer)
        O.echo(peer)

    lab.open.reset(handler)
    lab.open.ctx = None
    return peers


def test_a_host_that_has_nothing_but_h2(lab):
    """However it says so, no request is lost, and it is asked once."""
    for how in ("alert", "silence"):
        lab.fresh()
        peers = h2_or_nothing(lab, how)
        for i in range(5):
            m = lab.get(f"{how}.wild.test", f"/{i}", method="POST", body=b"x")
            assert m.status == 200 and b"fields" in m.body, (how, m)
        assert sum(p is None for p in peers) == 1 and sum(p is not None for p in peers) == 1, (how, peers)
    lab.open.ctx = lab.origin_context(lab.open)


def test_a_protocol_that_was_not_offered_is_none(lab):
    O.speak(lab.open, alpn=("h2",))
    # An upgrade offers HTTP/1.1 alone; h2c is taken off and the request goes on.
    m = lab.get(headers=[("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AAMAAABkAAQAAP__")])
    assert m.status == 200 and b"GET / HTTP/1.1" in m.body, m  # the origin's TLS agreed on nothing, and so it spoke HTTP/1.1
    assert not lab.open.peers
    assert b"fields" in lab.get().body and len(lab.open.peers) == 1  # the control: without it, h2


def test_an_upgrade_takes_no_h2_connection_and_no_session_of_one(lab):
    O.speak(lab.open)
    assert b"fields" in lab.get().body
    upgrade = [("Connection", "Upgrade"), ("Upgrade", "h2c")]
    for _ in range(2):
        assert b"HTTP/1.1" in lab.get(headers=upgrade).body
    assert lab.get().status == 200  # over either: a host that has HTTP/1.1 too is asked so (decision 0024)
    assert len(lab.open.peers) == 1 and len(lab.open.conns) > 1, "no upgrade on the h2 connection, and no second one of those"


# --- requests


def test_a_request_as_fields(lab):
    O.speak(lab.open)
    m = lab.get(target="/a%2Fb//c;d=1?x=%20+y&z", headers=[
        ("X-B", "1"), ("x-a", "2 \t 3"), ("X-B", "4"), ("X-Empty", ""), ("X-8", "caf\xe9"), ("Cookie", "a=b; c=d"),
        ("Connection", "X-Drop, keep-alive, TE"), ("X-Drop", "1"), ("Keep-Alive", "timeout=5"), ("Proxy-Connection", "keep-alive"), ("Proxy-Foo", "x"),
        ("TE", "trailers, deflate;q=0.5")])
    got = m.json()["fields"]
    assert got == [[":method", "GET"], [":scheme", "https"], [":authority", f"open.test:{lab.tls_port}"], [":path", "/a%2Fb//c;d=1?x=%20+y&z"],
                   ["x-b", "1"], ["x-a", "2 \t 3"], ["x-b", "4"], ["x-empty", ""], ["x-8", "caf\xe9"], ["cookie", "a=b; c=d"], ["te", "trailers"]], got
    assert "te" not in dict(lab.get(headers=[("TE", "deflate")]).json()["fields"])


def test_bodies_and_trailers(lab):
    O.speak(lab.open)
    c = lab.client()
    m = c.ask("POST", body=b"hello").json()
    assert m["body"] == "hello" and ["content-length", "5"] in m["fields"], m
    c.send(b"PUT /up HTTP/1.1\r\nHost: open.test:%d\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\nX-Sum: 7\r\n"
           b"Content-Length: 3\r\nAuthorization: x\r\n\r\n" % lab.tls_port)
    m = read_response(c).json()
    assert m["body"] == "hello world" and m["trailers"] == [["x-sum", "7"]], m
    assert not {"content-length", "transfer-encoding"} & {k for k, _ in m["fields"]}, m
    m = c.ask("POST", body=b"").json()
    assert ["content-length", "0"] in m["fields"] and m["body"] == "", m
    m = c.ask("POST", headers=[("Transfer-Encoding", "chunked")], body=b"0\r\n\r\n").json()
    assert m["body"] == "" and not m["trailers"], m
    assert len(lab.open.peers) == 1


def test_expect_and_interim_answers(lab):
    def serve(peer):
        s = peer.head_of()
        assert fields_of(s, "expect") == ["100-continue"]
        peer.send(peer.fields(s, 100) + peer.fields(s, 103, [("link", "</a>")]))
        peer.whole()
        peer.answer(s, bytes(s.body))

    O.speak(lab.open, serve)
    c = lab.client()
    c.write("POST", headers=[("Expect", "100-continue"), ("Content-Length", "3")])
    assert L.read_head(c).status == 100
    early = L.read_head(c)
    assert early.status == 103 and early.get("link") == "</a>"
    c.send(b"abc")
    assert read_response(c).body == b"abc"


def test_too_many_interim_answers(lab):
    for n, status in ((8, 200), (9, 502)):
        def serve(peer, n=n):
            s = peer.whole()
            peer.send(b"".join(peer.fields(s, 103) for _ in range(n)))
            peer.answer(s, b"x")
            peer.whole(1)

        O.speak(lab.open, serve)
        c = lab.client()
        c.write()
        got = [L.read_head(c)]
        while got[-1].status == 103:
            got.append(L.read_head(c))
        assert got[-1].status == status, got


# --- answers


def test_answers_without_a_body(lab):
    def serve(peer):
        for k, (status, fields) in enumerate([(200, [("content-length", "77")]), (204, []), (304, [("content-length", "77"), ("etag", '"x"')]), (200, [])]):
            s = peer.whole(k)
            peer.send(peer.fields(s, status, fields, end=True))
        peer.whole(4)

    O.speak(lab.open, serve)
    c = lab.client()
    m = c.ask("HEAD")
    assert m.status == 200 and m.get("content-length") == "77"
    assert c.ask().status == 204
    m = c.ask()
    assert m.status == 304 and m.get("etag") == '"x"'
    m = c.ask()
    assert m.status == 200 and m.get("content-length") == "0" and m.body == b"", m


def test_answer_fields_and_trailers(lab):
    def serve(peer):
        s = peer.whole()
        peer.answer(s, b"body", fields=[("alt-svc", 'h3=":443"'), ("nel", "{}"), ("x-one", "1"), ("set-cookie", "a=b"), ("set-cookie", "c=d"), ("x-pad", " v ")],
                    trailers=[("x-sum", "7"), ("grpc-status", "0")])
        peer.whole(1)

    O.speak(lab.open, serve)
    m = lab.get()
    assert m.body == b"body" and m.trailers == [("x-sum", "7"), ("grpc-status", "0")], (m, m.trailers)
    assert m.all("set-cookie") == ["a=b", "c=d"] and m.get("x-one") == "1" and m.get("x-pad") == "v"
    assert not {k.lower() for k, _ in m.headers} & {"alt-svc", "nel"}, m.headers


def test_an_answer_that_overtakes_its_request(lab):
    def serve(peer):
        s = peer.head_of()
        peer.answer(s, b"no", status=413)
        peer.send(F.rst(s.number, F.NO_ERROR))
        peer.answer(peer.whole(1), b"next")
        peer.whole(2)

    O.speak(lab.open, serve)
    c = lab.client()
    c.write("POST", headers=[("Content-Length", "1000000")])
    c.send(b"x" * 10000)
    m = read_response(c)
    assert m.status == 413 and m.body == b"no", m
    assert lab.get().body == b"next" and len(lab.open.peers) == 1, "the connection goes on"


def test_events_come_as_they_are_sent(lab):
    go = threading.Event()

    def serve(peer):
        s = peer.whole()
        peer.send(peer.fields(s, 200, [("content-type", "text/event-stream")]))
        for i in range(3):
            peer.send(F.data(s.number, b"data: %d\n\n" % i))
            go.wait(L.WAIT)
            go.clear()
        peer.send(F.data(s.number, b"", F.END_STREAM))
        peer.whole(1)

    O.speak(lab.open, serve)
    c = lab.client()
    c.write()
    L.read_head(c)
    for i in range(3):
        assert c.until(b"\n\n\r\n").endswith(b"data: %d\n\n\r\n" % i)
        go.set()
    assert c.until(b"0\r\n\r\n") == b"0\r\n\r\n"


def test_large_bodies_both_ways(lab):
    size = 24 * 1024 * 1024
    block = hashlib.sha256(b"h2").digest() * 2048

    def serve(peer):
        s = peer.whole(timeout=60)
        peer.answer(s, bytes(s.body))
        peer.whole(1)

    O.speak(lab.open, serve)
    body = (block * (size // len(block) + 1))[:size]
    m = lab.get(method="POST", body=body, timeout=60)
    assert m.status == 200 and hashlib.sha256(m.body).digest() == hashlib.sha256(body).digest(), (m.status, len(m.body))


def test_small_windows_of_the_origin(lab):
    def serve(peer):
        peer.manual = True
        s = peer.head_of()
        while not s.ended:
            peer.next()
            have = len(s.body)
            peer.send(F.window_update(s.number, 100) + F.window_update(0, 100))
        peer.answer(s, bytes(s.body))
        peer.whole(1)

    O.speak(lab.open, serve, pairs=((F.INITIAL_WINDOW_SIZE, 100),))
    body = bytes(range(256)) * 40
    m = lab.get(method="POST", body=body)
    assert m.body == body, (m.status, len(m.body))


# --- sharing


def test_a_hundred_at_a_time_on_one_connection(lab):
    """And one more, for which there is no room, on another."""
    count = 100

    def serve(peer):
        peer.answer(peer.whole(0), b"first")
        if len(lab.open.peers) == 1:
            asked = [peer.whole(1 + k, timeout=30) for k in range(count)]
            for s in reversed(asked):
                peer.answer(s, b"body of " + dict(s.fields)[b":path"])
        peer.whole(1 + count, timeout=60)

    O.speak(lab.open, serve)
    assert lab.get().body == b"first"
    got = in_threads(count, lambda i: lab.get(target=f"/{i}", timeout=30))
    assert [getattr(m, "body", m) for m in got] == [b"body of /%d" % i for i in range(count)]
    assert len(lab.open.conns) == 1, f"{len(lab.open.conns)} connections"


def test_a_burst_waits_for_one_connection(lab):
    """Fifty streams of a client and no connection yet: one is dialled. The controls: an origin that has HTTP/1.1 alone, and none at all."""
    for alpn in (("h2",), ("http/1.1",)):
        O.speak(lab.open, alpn=alpn)
        c = F.connect(lab, "a.wild.test")
        asked = [c.request(path=f"/{i}") for i in range(50)]
        assert [c.wait(n, timeout=30).status for n in asked] == [200] * 50
        if alpn == ("h2",):
            assert len(lab.open.conns) == 1, f"{len(lab.open.conns)} connections"
        c.close()
    c = F.connect(lab, "down.test")
    asked = [c.request(path=f"/{i}") for i in range(50)]
    assert [c.wait(n, timeout=30).code for n in asked] == ["origin_connect"] * 50
    # whoever dials for others may go: they do without
    O.speak(lab.open)
    c = F.connect(lab, "a.wild.test")
    first = c.request(path="/first")
    asked = [c.request(path=f"/{i}") for i in range(10)]
    c.send(F.rst(first))
    assert [c.wait(n, timeout=30).status for n in asked] == [200] * 10


def test_the_origin_says_how_many(lab):
    release = threading.Event()

    def serve(peer):
        if len(lab.open.peers) == 1:
            peer.answer(peer.whole(0), b"warm")
            waiting = [peer.whole(1), peer.whole(2)]
            release.wait(L.WAIT)
            for s in waiting:
                peer.answer(s, b"later")
        O.echo(peer)

    O.speak(lab.open, serve, pairs=((F.MAX_CONCURRENT_STREAMS, 2),))
    assert lab.get().body == b"warm"
    clients = []
    for i in range(3):
        c = lab.client()
        c.write(target=f"/{i}")
        clients.append(c)
        wait_for(lambda: sum(len(p.heads) for p in lab.open.peers) >= i + 2, f"request {i}")
        assert len(lab.open.peers) == (1 if i < 2 else 2), "the third finds no room and is dialled for"
    release.set()
    assert [read_response(c).status for c in clients] == [200] * 3


def test_a_stream_that_stalls_stalls_only_itself(lab):
    total = 8 * 1024 * 1024

    def serve(peer):
        peer.answer(peer.whole(0), b"warm")
        s = peer.whole(1)
        peer.send(peer.fields(s))
        sent = 0
        while sent < total:  # all that its window allows: nobody reads it
            n = min(peer.room(s), 16384, peer.window)
            if n <= 0:
                if not peer.next(0.5):
                    break
                continue
            peer.send(F.data(s.number, b"x" * n))
            sent, s.window, peer.window = sent + n, s.window - n, peer.window - n
        peer.left = peer.window
        peer.stalled = sent
        k = 2
        while True:
            peer.answer(peer.whole(k, timeout=60), b"y" * 1000000)
            k += 1

    O.speak(lab.open, serve)
    assert lab.get().body == b"warm"
    slow = lab.client()
    slow.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.write()
    wait_for(lambda: hasattr(lab.open.peers[0], "stalled"), "the stall", 30)
    assert lab.open.peers[0].stalled < total and lab.open.peers[0].left > 1000000, "the stream stalled, not the connection"
    for _ in range(3):
        m = lab.get(timeout=20)
        assert len(m.body) == 1000000
    assert len(lab.open.peers) == 1, "on the same connection"


def test_names_and_credentials_do_not_share(lab):
    """api.test and git.test have one address and one certificate; a request with the credential does not go where one without went."""
    O.speak(lab.api)
    lab.get("api.test")
    lab.get("git.test")
    lab.get("api.test", headers=[lab.bearer()])
    lab.get("api.test", headers=[lab.bearer()])
    lab.get("api.test")
    assert [[dict(s.fields)[b":authority"].split(b":")[0] for s in p.heads] for p in lab.api.peers] == [
        [b"api.test"] * 2, [b"git.test"], [b"api.test"] * 2]
    assert [b"authorization" in dict(s.fields) for s in lab.api.peers[2].heads] == [True, True]


# --- values


def test_a_value_is_never_indexed(lab):
    O.speak(lab.api)
    c = lab.client("api.test")
    more = [lab.bearer(), ("Cookie", "session=of-the-agent"), ("X-Plain", "an ordinary one")]
    for _ in range(2):
        assert c.ask(headers=more).status == 200
    (peer,) = lab.api.peers
    for s in peer.heads:
        assert fields_of(s, "authorization") == ["Bearer " + lab.real], s.fields
        assert s.how[b"authorization"] == s.how[b"cookie"] == "never", s.how
    assert peer.heads[1].how[b"x-plain"] == "index"  # the control: an ordinary field is in the table by now
    assert not [k for k, v in peer.hpack.table if lab.real.encode() in v or b"of-the-agent" in v], peer.hpack.table


def test_a_value_in_a_field_of_any_name_is_never_indexed():
    with Lab(credentials="""  - {name: keyed, agents: [coder], hosts: [open.test], ports: [PORT], slots: ["header:x-service-key"],
     placeholder: PLACEHOLDER2, source: {file: REAL2}}
""", start=False) as lab:
        lab.patched()
        O.speak(lab.open)
        for _ in range(2):
            assert lab.get(headers=[("X-Service-Key", lab.placeholder2), ("X-Other-Key", "ordinary")]).status == 200
        (peer,) = lab.open.peers
        for s in peer.heads:
            assert fields_of(s, "x-service-key") == [lab.real2] and s.how[b"x-service-key"] == "never", (s.fields, s.how)
        assert peer.heads[1].how[b"x-other-key"] == "index"  # the control


def test_through_a_parent_proxy():
    def parent(conn, origin):
        origin.requests.append(conn.until(b"\r\n\r\n"))
        up = socket.create_connection((lab.hosts["open.test"], lab.tls_port))
        conn.send(b"HTTP/1.1 200 OK\r\n\r\n")
        threading.Thread(target=pump, args=(up, conn.sock), daemon=True).start()
        pump(conn.sock, up)

    def pump(a, b):
        try:
            while data := a.recv(65536):
                b.sendall(data)
            b.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    with Lab(start=False) as lab:
        proxy = L.Origin(lab, "127.0.0.8", lab.http_port, tls=False, handler=parent)
        plain = lab.config()
        lab.config = lambda: plain.replace("  allow_addresses: [127.0.0.0/8]\n",
                                           f'  allow_addresses: [127.0.0.0/8]\n  parent_proxy: {{address: "127.0.0.8:{lab.http_port}"}}\n')
        lab.start()
        O.speak(lab.open)
        for i in range(3):
            m = lab.get(target=f"/{i}")
            assert m.status == 200 and m.json()["fields"][3] == [":path", f"/{i}"], m
        assert len(lab.open.peers) == 1, "all on one connection; another may have been tried with HTTP/1.1"
        assert len(proxy.requests) <= 2 and all(r.startswith(b"CONNECT 127.0.0.3:") for r in proxy.requests), proxy.requests
        proxy.close()


def test_what_comes_back_is_scrubbed(lab):
    def serve(peer):
        for k in range(2):
            s = peer.whole(k)
            real = fields_of(s, "authorization")[0][7:]
            peer.send(peer.fields(s, 200, [("x-saw", real)]))
            text = b"you said " + real.encode() + b" and no more"
            for at in range(0, len(text), 7):
                peer.send(F.data(s.number, text[at : at + 7]))
            peer.send(F.headers(s.number, F.block([("x-late", real)])))
        peer.whole(2)

    O.speak(lab.api, serve)
    for _ in range(2):
        m = lab.get("api.test", headers=[lab.bearer()])
        assert m.get("x-saw") == lab.placeholder and m.body == b"you said " + lab.placeholder.encode() + b" and no more", m
        assert m.trailers == [("x-late", lab.placeholder)], m.trailers
    assert not lab.leaks()


def test_nothing_of_a_value_stays_behind():
    """Neither in clear nor in HPACK's Huffman code. The controls: while the connection is open its frame is there, and what is no secret."""
    if os.geteuid():
        raise L.Skip("only root reads a worker's memory")
    if L.sanitized():
        raise L.Skip("the sanitizer keeps what was freed")
    marker = "ordinary-" + hashlib.sha256(b"h2 residue").hexdigest()
    with Lab(tail="limits: {pool_idle_timeout: 3s}\n") as lab:
        clear = b"Bearer " + lab.real.encode()
        coded = F.huffman(clear)[:-1]
        O.speak(lab.api)
        c = lab.client("api.test")
        for _ in range(3):
            assert c.ask(headers=[lab.bearer(), ("X-Marker", marker)]).status == 200
        (pid,) = lab.workers_pids()
        assert memory_has(pid, coded) >= 1, "the search finds nothing"
        assert memory_has(pid, marker.encode()) >= 1, "the search finds nothing"
        c.close()
        wait_for(lambda: not open_sockets(lab.api), "the end of the idle connection", 8)
        wait_for(lambda: memory_has(pid, coded) == 0, "the end of the frame that held it", 2)
        assert memory_has(pid, clear) == 0


def memory_has(pid, needle):
    """How many times it stands in what a process can write."""
    n = 0
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as mem:
        for line in maps:
            span, perms = line.split()[:2]
            if perms[:2] != "rw":
                continue
            a, b = (int(x, 16) for x in span.split("-"))
            try:
                mem.seek(a)
                n += mem.read(b - a).count(needle)
            except (OSError, OverflowError, ValueError):
                continue
    return n


def test_a_401_and_another_value():
    with Lab() as lab:
        second = "ghs_" + "Second0123456789" * 2
        lab.secrets.append(second)

        def rotate(peer):
            k = 0
            while True:
                s = peer.whole(k, timeout=60)
                k += 1
                if fields_of(s, "authorization") == ["Bearer " + second]:
                    peer.answer(s, b"taken " + bytes(s.body))
                    continue
                with open(lab.path("real"), "w") as f:
                    f.write(second)
                peer.answer(s, b"gone", status=401)

        O.speak(lab.api, rotate)
        m = lab.get("api.test", method="POST", headers=[lab.bearer()], body=b"once more")
        assert m.status == 200 and m.body == b"taken once more", m
        # the control: nothing else to send, and the 401 passes
        O.speak(lab.api, lambda peer: [peer.answer(peer.whole(k, timeout=60), b"gone", status=401) for k in range(9)])
        m = lab.get("api.test", headers=[lab.bearer(), ("X-Once", "1")])
        assert m.status == 401 and m.body == b"gone", m
        assert not lab.leaks()


# --- what is sent again


def test_what_the_origin_did_not_look_at_goes_again(lab):
    """Whatever the method: GOAWAY that leaves the stream out, and REFUSED_STREAM."""

    def goaway(peer):
        s = peer.head_of(1)
        peer.send(F.goaway(s.number - 2))
        peer.conn.rest()

    def refuse(peer):
        s = peer.head_of(1)
        peer.send(F.rst(s.number, F.REFUSED_STREAM))
        peer.conn.rest()

    for times, turn_away in ((1, goaway), (2, refuse)):
        def serve(peer, turn_away=turn_away):
            if len(lab.open.peers) > 1:
                O.echo(peer)
            peer.answer(peer.whole(0), b"warm")
            turn_away(peer)

        O.speak(lab.open, serve)
        assert lab.get().body == b"warm"
        mark = lab.mark()
        m = lab.get(method="POST", body=b"only once", target="/again")
        assert m.status == 200 and m.json()["body"] == "only once", m
        assert len(lab.open.peers) == 2
        lab.event(lambda e: e.get("path") == "/again", after=mark)
        assert len([e for e in lab.events("open") if e.get("path") == "/again"]) == times


def test_what_it_may_have_acted_on_does_not(lab):
    """The controls: reset with another code, processed by GOAWAY's word, and closed without one."""

    def cancel(peer):
        peer.send(F.rst(peer.head_of(1).number, F.INTERNAL_ERROR))
        peer.conn.rest()

    def goaway(peer):
        peer.send(F.goaway(peer.head_of(1).number))
        peer.conn.close()

    def close(peer):
        peer.head_of(1)
        peer.conn.close()

    for turn_away in (cancel, goaway, close):
        def serve(peer, turn_away=turn_away):
            if len(lab.open.peers) > 1:
                O.echo(peer)
            peer.answer(peer.whole(0), b"warm")
            turn_away(peer)

        O.speak(lab.open, serve)
        assert lab.get().body == b"warm"
        m = lab.get(method="POST", body=b"only once")
        assert m.status == 502 and m.code == "origin_protocol", m


def test_only_once_again(lab):
    def serve(peer):
        s = peer.head_of(0)
        peer.send(F.rst(s.number, F.REFUSED_STREAM))
        peer.conn.rest()

    O.speak(lab.open, serve)
    m = lab.get()
    assert m.status == 502 and m.code == "origin_protocol", m
    assert len(lab.open.peers) == 2


def test_a_body_too_long_to_keep_is_not_sent_again(lab):
    def serve(peer):
        s = peer.head_of(0)
        peer.until(lambda: len(s.body) > 100000, "the body")
        peer.send(F.rst(s.number, F.REFUSED_STREAM))
        peer.conn.rest()

    O.speak(lab.open, serve)
    m = lab.get(method="POST", body=b"x" * 150000)
    assert m.status == 502, m
    assert len(lab.open.peers) == 1


def test_the_origin_wants_http11(lab):
    def serve(peer):
        peer.send(F.rst(peer.head_of(0).number, F.HTTP_1_1_REQUIRED))
        peer.conn.rest()

    O.speak(lab.open, serve)
    m = lab.get(target="/old")
    assert m.status == 200 and m.json()["line"] == "GET /old HTTP/1.1", m


def test_goaway_lets_what_runs_end(lab):
    gone = threading.Event()

    def serve(peer):
        if len(lab.open.peers) > 1:
            O.echo(peer)
        s = peer.whole(0)
        peer.send(peer.fields(s) + F.data(s.number, b"half") + F.goaway(s.number))
        gone.wait(L.WAIT)
        peer.send(F.data(s.number, b" and half", F.END_STREAM))
        peer.conn.rest()

    O.speak(lab.open, serve)
    c = lab.client()
    c.write()
    L.read_head(c)
    c.until(b"half")
    assert b"fields" in lab.get().body and len(lab.open.peers) == 2, "a new one meanwhile"
    gone.set()
    assert b" and half" in c.until(b"0\r\n\r\n")


def test_a_whole_answer_counts_though_the_connection_is_lost(lab):
    size = 200000

    def serve(peer):
        s = peer.whole(0)
        peer.answer(s, b"z" * size)
        peer.conn.sock.shutdown(socket.SHUT_WR)
        peer.conn.rest()

    O.speak(lab.open, serve)
    c = lab.client()
    c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    c.write()
    time.sleep(0.3)  # the origin is gone before the client reads: what was sent is held for it
    assert len(read_response(c).body) == size
    # the control: a byte short of it is cut
    def short(peer):
        s = peer.whole(0)
        peer.send(peer.fields(s, 200, [("content-length", "5")]) + F.data(s.number, b"four"))
        peer.conn.close(notify=False)

    O.speak(lab.open, short)
    mark = lab.mark()
    try:
        m = lab.get()
        assert False, m
    except L.Closed:
        pass
    assert lab.event(lambda e: e.get("host") == "open.test", after=mark)["end"] == "origin_closed"


def test_a_client_that_goes_resets_only_its_stream(lab):
    reset = threading.Event()

    def serve(peer):
        peer.answer(peer.whole(0), b"warm")
        s = peer.whole(1)
        peer.send(peer.fields(s) + F.data(s.number, b"begun"))
        peer.until(lambda: s.reset is not None, "the reset")
        peer.code = s.reset
        reset.set()
        peer.answer(peer.whole(2), b"after")
        peer.whole(3)

    O.speak(lab.open, serve)
    assert lab.get().body == b"warm"
    c = lab.client()
    c.write()
    L.read_head(c)
    c.reset()
    assert reset.wait(L.WAIT) and lab.open.peers[0].code == F.CANCEL
    assert lab.get().body == b"after" and len(lab.open.peers) == 1


def test_idle_connections_end_with_their_time():
    with Lab(tail="limits: {pool_idle_timeout: 300ms}\n") as lab:
        O.speak(lab.open)
        lab.get()
        lab.get()
        assert len(lab.open.peers) == 1
        wait_for(lambda: not open_sockets(lab.open), "the end of the idle connection", 5)
        lab.get()
        assert len(lab.open.peers) == 2


def open_sockets(origin):
    """Origin connections that the proxy has not ended."""
    n = 0
    for c in origin.conns:
        try:
            n += bool(c.sock.fileno() >= 0 and c.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            n += 1
        except OSError:
            pass
    return n


def test_a_silent_connection_gets_no_more(lab):
    """Whoever gave up on it for five seconds and asks again is not sent the same way; who gave up at once is."""
    for waits, connections in ((0.2, 1), (5.2, 2)):
        def serve(peer):
            if len(lab.open.peers) > 1:
                O.echo(peer)
            peer.answer(peer.whole(0), b"warm")
            peer.whole(1)
            k = 2
            while True:
                peer.answer(peer.whole(k), b"again")
                k += 1

        O.speak(lab.open, serve)
        assert lab.get().body == b"warm"
        c = lab.client()
        c.write(target=f"/silent-{waits}")
        assert c.silent_for(waits)
        c.reset()
        e = lab.event(lambda e: e.get("path") == f"/silent-{waits}")
        assert e["end"] == "client_closed", e
        assert lab.get().status == 200
        assert len(lab.open.peers) == connections, waits


# --- another implementation


def test_nghttpd(lab):
    exe = shutil.which("nghttpd")
    if not exe:
        raise L.Skip("no nghttpd")
    root = lab.path("www")
    os.makedirs(root, exist_ok=True)
    page = hashlib.sha256(b"nghttpd").digest() * 50000
    with open(os.path.join(root, "page"), "wb") as f:
        f.write(page)
    server = subprocess.Popen([exe, "-a", lab.hosts["down.test"], "-d", root, "--echo-upload", "--trailer", "x-sum: 7", str(lab.tls_port),
                               lab.path("origin.key"), lab.path("origin.pem")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: answers(lab.hosts["down.test"], lab.tls_port), "nghttpd")
        c = lab.client("down.test")
        m = c.ask(target="/page")
        assert m.status == 200 and m.body == page and m.trailers in ([], [("x-sum", "7")]), (m.status, len(m.body), m.trailers)
        assert c.ask(target="/none").status == 404
        m = c.ask("HEAD", target="/page")
        assert m.status == 200 and m.get("content-length") == str(len(page)), m
        assert c.ask("POST", target="/echo", body=page).body == page
        got = in_threads(30, lambda i: lab.get("down.test", target="/page", timeout=30))
        assert [len(getattr(m, "body", b"")) for m in got] == [len(page)] * 30, got
    finally:
        server.terminate()
        server.wait(5)


def answers(addr, port):
    try:
        socket.create_connection((addr, port), 1).close()
        return True
    except OSError:
        return False


if __name__ == "__main__":
    L.main()
