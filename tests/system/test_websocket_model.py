#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""WebSocket against a model: random messages in random frames, compressed or not, over HTTP/1.1 and HTTP/2, with placeholders of two
credentials or none, to a host that says them back in frames of its own. Each arrives there once, in order, with its values; each comes back
once, in order, with its placeholders; pings are answered.

A seed makes a whole connection; a failure names it. OUTGATE_MODEL_SEED begins elsewhere, OUTGATE_MODEL_SECONDS goes on for so long."""
import os
import random
import threading
import time
import zlib

import test_h2_websocket as H
import test_websocket as W
from lab import main

LIMIT = 1024 * 1024  # limits.ws_message_bytes of test_websocket's lab
SECOND = "second-0123456789-abcdefghij"
VALUE = "the-second-value-0123456789-is-longer-than-its-placeholder-" + "z" * 40
SIZES = [0, 0, 1, 5, 60, 125, 126, 127, 500, 4000, 16383, 16384, 16385, 65535, 65536, 200000, LIMIT - 1, LIMIT]
WAYS = ["", W.PMD_ON, W.PMD_ALONE, W.PMD_ON.replace("\r\n", "; client_max_window_bits=8\r\n"),
        W.PMD_ON.replace("\r\n", "; client_max_window_bits=10; server_no_context_takeover\r\n")]


def make_lab():
    lab = W.make_lab_stopped()
    with open(lab.path("second"), "w") as f:
        f.write(VALUE)
    os.chmod(lab.path("second"), 0o600)
    lab.secrets.append(VALUE)
    lab.extra["credentials"] += f"""  - name: second
    agents: [coder]
    hosts: [ws.test]
    ports: [PORT]
    slots: [websocket]
    placeholder: {SECOND}
    source: {{file: {lab.path('second')}}}
"""
    return lab.patched()


class Text:
    """One message: as it is sent, and as a host gets it where placeholders are swapped."""

    def __init__(self, r, values):
        self.op = W.TEXT if r.random() < 0.75 else W.BINARY
        n = r.choice(SIZES)
        if self.op == W.BINARY:
            self.sent = self.swapped = (r.randbytes(min(n, 5000)) * (n // 5000 + 1))[:n]
            return
        alphabet = r.choice(["abc DEF\n{}[]\":,.0123456789", "a", "\u20ac", "0123456789abcdef"])
        room = n - 200 if n > 1000 else n
        text = "".join(r.choices(alphabet, k=min(room, 700))) * (room // 700 + 1)
        text = text.encode()[:room].decode(errors="ignore")
        at, some = r.randrange(len(text) + 1), r.sample(list(values), r.randrange(len(values) + 1))
        self.sent, self.swapped = ((text[:at] + "".join(f" {w} " for w in words) + text[at:]).encode() for words in (some, [values[w] for w in some]))


def frames(r, op, payload, masked, z, pings):
    """z: compresses. pings: those put between the fragments are added to it; None: none are."""
    rsv1 = z is not None
    payload = W.deflated(payload, z) if rsv1 else payload
    many = r.choice([0, 0, 0, 1, 2, 30, len(payload) if len(payload) < 1500 else 3])
    cuts = sorted(r.randrange(len(payload) + 1) for _ in range(many))
    out = []
    for i, (at, to) in enumerate(zip([0, *cuts], [*cuts, len(payload)])):
        out.append(W.frame(payload[at:to], 0 if i else op, i == many, rsv1 and not i, masked, r.randbytes(4) if masked else None))
        if pings is not None and r.random() < 0.1:
            pings.append(r.randbytes(r.randrange(126)))
            out.append(W.frame(pings[-1], W.PING, masked=masked, key=r.randbytes(4)))
    return b"".join(out)


def compressor(r, coded, alone, z):
    """What compresses the next message, or nothing, and what there is of it for those to come."""
    z = zlib.compressobj(wbits=-r.choice([9, 12, 15])) if alone or z is None else z
    return (z if coded and r.random() < 0.6 else None), z


class Reader:
    def __init__(self, conn, alone):
        self.conn, self.alone, self.z, self.pongs = conn, alone, zlib.decompressobj(wbits=-15), []

    def message(self):
        """(opcode, payload), a close among them."""
        first, payload = None, b""
        while True:
            f = W.read_frame(self.conn)
            if f.op == W.CLOSE:
                return f.op, f.payload
            if f.op >= W.CLOSE:
                self.pongs.append((f.op, f.payload))
                if f.op == W.PING:
                    self.conn.send(W.frame(f.payload, W.PONG, masked=False))
                continue
            assert (f.op == 0) == (first is not None), (f, first)
            first = first or f
            payload += f.payload
            if not f.fin:
                continue
            if first.rsv1:
                self.z = zlib.decompressobj(wbits=-15) if self.alone else self.z
                payload = W.inflated(payload, self.z)
            return first.op, payload


def says_back(seed, way, seen, slow):
    def handler(conn, origin):
        r, z = random.Random(seed), None
        W.switch(conn, origin, way)
        reader = Reader(conn, "client_no" in way)
        while (m := reader.message())[0] != W.CLOSE:
            seen.append(m)
            if slow and r.random() < 0.2:
                time.sleep(r.random() * 0.02)  # a host that takes its time, not a wait for anything
            use, z = compressor(r, way, "server_no" in way, z)
            conn.send(frames(r, *m, False, use, None))
        conn.send(W.frame(m[1], W.CLOSE, masked=False))

    return handler


def play(lab, seed):
    r = random.Random(seed)
    values = {lab.placeholder2: lab.real2, SECOND: VALUE}
    name, origin = r.choice([("ws.test", lab.api), ("ws.test", lab.api), ("api.test", lab.api), ("open.test", lab.open)])
    way, h2, slow, count = r.choice(WAYS), r.random() < 0.4, r.random() < 0.3, r.choice([2, 8, 20])
    seen, pings, z = [], [], None
    origin.reset(says_back(seed + 1, way, seen, slow))
    extra = [W.PMD] if way else []
    c = H.opened(lab, name, more=[(k.lower(), v) for k, v in extra]) if h2 else W.opened(lab, name, extra)
    texts = [Text(r, values) for _ in range(count)]
    wire = []
    for t in texts:
        use, z = compressor(r, way, "client_no" in way, z)
        wire.append(frames(r, t.op, t.sent, True, use, pings))
    reader, got, broken = Reader(c, "server_no" in way), [], []

    def receive():
        try:
            while len(got) < count:
                got.append(reader.message())
        except Exception as e:  # said where the test can see it
            broken.append(e)

    if h2:  # one thread has both ways of a connection; a few are under way at a time
        for i in range(count):
            c.send(wire[i])
            if i >= 2:
                got.append(reader.message())
        receive()
    else:
        t = threading.Thread(target=receive)
        t.start()
        for data in wire:
            step = r.choice([1, 100, 5000]) if len(data) < 500 else r.choice([5000, 70000, 1 << 20])
            for at in range(0, len(data), step):
                c.send(data[at : at + step])
        t.join()
    what = (f"OUTGATE_MODEL_SEED={seed}", name, way, h2)
    assert not broken, (what, broken, len(got))
    swaps = name == "ws.test"
    for where, is_, want in (("host", seen, [(t.op, t.swapped if swaps else t.sent) for t in texts]), ("client", got, [(t.op, t.sent) for t in texts])):
        for i, (a, b) in enumerate(zip(is_, want)):
            assert a == b, (what, where, i, a[0], len(a[1]), a[1][:80], b[0], len(b[1]), b[1][:80])
        assert len(is_) == count, (what, where, len(is_))
    c.send(W.frame(b"\x03\xe8", W.CLOSE))
    assert reader.message() == (W.CLOSE, b"\x03\xe8"), what
    assert reader.pongs == [(W.PONG, p) for p in pings], what
    lab.blobs.append(bytes(c.s.body) if h2 else bytes(c.received))
    (c.c if h2 else c).close()


def test_random_messages(lab):
    seed, until = int(os.environ.get("OUTGATE_MODEL_SEED", "1")), time.monotonic() + float(os.environ.get("OUTGATE_MODEL_SECONDS", "0"))
    done = 0
    while done < 40 or time.monotonic() < until:
        play(lab, seed)
        seed, done = seed + 10, done + 1
        if len(lab.blobs) >= 40:
            assert not lab.leaks(), f"before OUTGATE_MODEL_SEED={seed}"
            lab.blobs.clear()


if __name__ == "__main__":
    main()
