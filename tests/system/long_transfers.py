#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Transfers too long for every run: a gibibyte each way, past the body watch and through the scrubber, bit for bit and in flat memory.
Run by `tests/run.sh --full`; OUTGATE_LONG_MIB sets how much (default 1024)."""
import hashlib
import os
import sys

import lab as L
from lab import read_head, read_request

MIB = int(os.environ.get("OUTGATE_LONG_MIB", "1024"))
BLOCK = hashlib.sha256(b"a block").digest() * 2048  # 64 KiB
ROUNDS = MIB * 16
FLAT_KIB = 12 * 1024


def whole(extra=b""):
    h = hashlib.sha256()
    for i in range(ROUNDS):
        h.update(i.to_bytes(8, "big") + BLOCK[8:] + extra)
    return h.hexdigest()


def test_upload(lab):
    seen = {}

    def handler(conn, _origin):
        m = read_request(conn, head_only=True)
        h, left = hashlib.sha256(), int(m.get("content-length"))
        while left:
            data = conn.exactly(min(left, len(BLOCK)))
            h.update(data)
            left -= len(data)
        seen.update(auth=m.get("authorization"), hash=h.hexdigest())
        conn.send(L.answer(200, "done"))

    lab.api.reset(handler)
    lab.get("open.test")
    before = lab.worker_rss_kib()
    c = lab.client("api.test", timeout=60)
    c.write("PUT", "/big", [lab.bearer(), ("Content-Length", str(ROUNDS * len(BLOCK)))])
    for i in range(ROUNDS):
        c.send(i.to_bytes(8, "big") + BLOCK[8:])
        if i == ROUNDS // 2:
            assert lab.worker_rss_kib() - before < FLAT_KIB
    m = L.read_response(c)
    assert m.status == 200 and seen == {"auth": f"Bearer {lab.real}", "hash": whole()}
    c.close()
    e = lab.event(lambda e: e["path"] == "/big")
    assert e["bytes_in"] == ROUNDS * len(BLOCK) and e["end"] == "ok"


def test_download_with_values_in_it(lab):
    """In each block one real value, which may lie across any border of records; what comes holds the placeholder instead."""

    def handler(conn, _origin):
        m = read_request(conn)
        real = m.get("authorization").split(" ")[1].encode()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (ROUNDS * (len(BLOCK) + len(real))))
        for i in range(ROUNDS):
            conn.send(i.to_bytes(8, "big") + BLOCK[8:] + real)

    lab.api.reset(handler)
    lab.get("open.test")
    before = lab.worker_rss_kib()
    assert len(lab.placeholder) == len(lab.real)
    c = lab.client("api.test", timeout=60)
    c.write("GET", "/values", [lab.bearer()])
    head = read_head(c)
    left, h = int(head.get("content-length")), hashlib.sha256()
    half = left // 2
    while left:
        data = c.exactly(min(left, 1 << 20))
        assert lab.real.encode() not in data
        h.update(data)
        c.received.clear()
        left -= len(data)
        if half and left < half:
            half = 0
            assert lab.worker_rss_kib() - before < FLAT_KIB
    assert h.hexdigest() == whole(lab.placeholder.encode())
    c.close()
    e = lab.event(lambda e: e["path"] == "/values")
    assert e["scrubbed"] == ROUNDS, e


if __name__ == "__main__":
    module = sys.modules["__main__"]
    module.__name__ = "long_transfers"
    counts = L.run_module(module, timeout=900)
    print("%d passed, %d failed, %d skipped" % tuple(counts))
    sys.exit(1 if counts[1] else 0)
