#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What an origin must prove before anything is sent to it: its chain, its protocol, on every new connection; and what is offered to it.
THREATS: H1, H5-H8, H11-H13, H16-H18, checklist 1-16, 22-24, 27, 33, 37-40. The kinds of chains one by one: proxy_origin_chain_test."""
import shutil
import ssl
import subprocess
import time

import lab as L
from lab import Closed, openssl

NAMES = "subjectAltName=DNS:api.test,DNS:open.test\n"
SERVER = "extendedKeyUsage=serverAuth\n"
CA = "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
P256 = ("ec", "-pkeyopt", "ec_paramgen_curve:P-256")


def cert(lab, name, ext, issuer="ca", key=None, args=("-days", "3"), subject=None):
    """NAME.pem and NAME.key (the lab's own origin's, unless a kind of key is given); with an empty ext a certificate of version 1."""
    request = "origin.csr"
    if key or subject:
        request = "csr"
        openssl(lab.dir, "req", "-newkey", *(key or P256), "-nodes", "-keyout", f"{name}.key", "-out", request, "-subj", subject or f"/CN={name}")
    else:
        shutil.copyfile(lab.path("origin.key"), lab.path(f"{name}.key"))
    with open(lab.path("ext"), "w") as f:
        f.write(ext)
    openssl(lab.dir, "x509", "-req", "-in", request, "-CA", f"{issuer}.pem", "-CAkey", f"{issuer}.key", "-CAcreateserial", *args,
            *(["-extfile", "ext"] if ext else []), "-out", f"{name}.pem")


def present(lab, origin, leaf, *more):
    """The origin has this chain from now on; open connections to it are gone."""
    with open(lab.path("chain.pem"), "wb") as out:
        for name in (leaf, *more):
            with open(lab.path(f"{name}.pem"), "rb") as f:
                out.write(f.read())
    ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ctx.set_ciphers("ALL:@SECLEVEL=0")
    ctx.load_cert_chain(lab.path("chain.pem"), lab.path(f"{leaf}.key"))
    origin.ctx = ctx
    origin.reset()


def refused(lab, words, name="api.test"):
    mark = lab.mark()
    m = lab.get(name, headers=[lab.bearer()])
    assert m.status == 502 and m.code == "origin_tls", m
    said = m.json()["error"]["message"]
    assert words in said and len(m.reason) <= 120, (words, said)
    e = lab.event(lambda e: e.get("code") == "origin_tls", after=mark)
    assert e["host"] == name and words in e["message"] and e["end"] == "origin_tls", e
    origin = lab.origins[name]
    assert not origin.requests and not any(c.received for c in origin.conns), "bytes came before the origin had proved itself"


def accepted(lab, name="api.test"):
    m = lab.get(name, headers=[lab.bearer()])
    assert m.status == 200 and lab.origins[name].last.get("authorization") == "Bearer " + lab.real, m


# ---------------------------------------------------------------- chains


def test_a_chain_that_is_no_good(lab):
    """Nothing is sent, the client and the log are told what is wrong; the control is the same chain without it."""
    cert(lab, "ica", CA, key=P256)
    cert(lab, "good", NAMES + SERVER, "ica")
    present(lab, lab.api, "good", "ica")
    accepted(lab)
    for words, ext in (("is a CA's", NAMES + SERVER + "basicConstraints=critical,CA:TRUE\n"),
                       ("not one for servers", NAMES + "extendedKeyUsage=serverAuth,anyExtendedKeyUsage\n"),
                       ("may sign certificates", NAMES + SERVER + "keyUsage=digitalSignature,keyCertSign\n"),
                       ("extension that only a CA may have", NAMES + SERVER + "nameConstraints=permitted;DNS:test\n"),
                       ("malformed or empty (authorityInfoAccess", NAMES + SERVER + "authorityInfoAccess=DER:3000\n"),
                       ("alternative name that is malformed", NAMES[:-1] + ",DNS:127.0.0.2\n" + SERVER),
                       ("which key of its issuer", NAMES + SERVER + "authorityKeyIdentifier=none\n"),
                       ("hostname mismatch", "subjectAltName=DNS:other.test,DNS:*.api.test\n" + SERVER)):
        cert(lab, "bad", ext, "ica")
        present(lab, lab.api, "bad", "ica")
        refused(lab, words)
    cert(lab, "bad", SERVER, "ica", subject="/CN=api.test")
    present(lab, lab.api, "bad", "ica")
    refused(lab, "hostname mismatch")
    for words, kw in (("key too weak", dict(key=("rsa:1024",))), ("too weak", dict(args=("-days", "3", "-sha1"))),
                      ("expired", dict(args=("-days", "-1"))), ("serial number", dict(args=("-days", "3", "-set_serial", "0")))):
        cert(lab, "bad", NAMES + SERVER, "ica", **kw)
        present(lab, lab.api, "bad", "ica")
        refused(lab, words)
    present(lab, lab.api, "good", "ica")
    accepted(lab)


def test_an_intermediate_that_is_no_good(lab):
    for words, ext in (("invalid CA certificate", "basicConstraints=critical,CA:FALSE\n"), ("invalid CA certificate", ""),
                       ("(basicConstraints; RFC 5280 4.2)", CA.replace("critical,CA", "CA")),
                       ("without a subject key identifier", CA.replace("subjectKeyIdentifier=hash", "subjectKeyIdentifier=none")),
                       ("name constraint that is malformed", CA + "nameConstraints=critical,permitted;DNS:.test\n"),
                       ("permitted subtree violation", CA + "nameConstraints=critical,permitted;DNS:other.test\n")):
        cert(lab, "ica2", ext, key=P256)
        # without a key identifier in its issuer a certificate can name that by its issuer's serial alone, unless we say one
        cert(lab, "leaf2", NAMES + SERVER + ("authorityKeyIdentifier=DER:30068004000000aa\n" if "Identifier=none" in ext else ""), "ica2")
        present(lab, lab.api, "leaf2", "ica2")
        refused(lab, words)
    cert(lab, "ica2", CA + "nameConstraints=critical,permitted;DNS:test\n", key=P256)
    cert(lab, "leaf2", NAMES + SERVER, "ica2")
    present(lab, lab.api, "leaf2", "ica2")
    accepted(lab)
    present(lab, lab.api, "leaf2")  # and without it
    refused(lab, "unable to get local issuer certificate")


def test_a_stranger(lab):
    """Self-signed; a root of the right name and another key; and a chain that is too long, or too large, is not gone through."""
    present(lab, lab.api, "stranger")
    refused(lab, "self-signed certificate")
    openssl(lab.dir, "req", "-x509", "-newkey", *P256, "-nodes", "-days", "3", "-keyout", "fake.key", "-out", "fake.pem", "-subj", "/CN=lab",
            "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign")
    cert(lab, "bad", NAMES + SERVER, "fake")
    present(lab, lab.api, "bad", "fake")
    refused(lab, "certificate")
    start = time.monotonic()
    present(lab, lab.api, "origin", *["stranger"] * 200)
    m = lab.get("api.test", headers=[lab.bearer()])
    assert m.status == 502 and m.code == "origin_tls" and not lab.api.requests and time.monotonic() - start < 5, m
    present(lab, lab.api, "origin", *["stranger"] * 20)  # the control: what is superfluous harms nothing
    accepted(lab)


# ---------------------------------------------------------------- on every connection


def test_good_once_is_not_good_for_ever(lab):
    """The name, the address, the credential are as before; the certificate is not."""
    accepted(lab)
    for bad, words in (("stranger", "self-signed certificate"), ("origin", None), ("stranger", "self-signed certificate")):
        present(lab, lab.api, bad)
        refused(lab, words) if words else accepted(lab)
    lab.api.ctx = lab.origin_context(lab.api)


def test_a_session_is_resumed_and_proves_nothing_elsewhere(lab):
    """A session of one snapshot is not offered under the next: with the root taken away, the same origin is refused."""
    api = lab.api
    api.reset()
    ctx = api.ctx = lab.origin_context(api)
    for _ in range(2):
        accepted(lab)
        for c in api.conns:
            c.close()
    L.wait_for(lambda: ctx.session_stats()["hits"] >= 1, "a resumption")
    whole = lab.config()
    openssl(lab.dir, "req", "-x509", "-newkey", *P256, "-nodes", "-days", "3", "-keyout", "x.key", "-out", "elsewhere.pem", "-subj", "/CN=elsewhere")
    with open(lab.path("outgate.yaml"), "w") as f:
        f.write(whole.replace(lab.path("ca.pem"), lab.path("elsewhere.pem")))
    assert lab.run("reload", "-c", lab.path("outgate.yaml")).returncode == 0
    hits = ctx.session_stats()["hits"]
    api.requests.clear()
    m = lab.get("api.test", headers=[lab.bearer()])
    assert m.status == 502 and m.code == "origin_tls" and not api.requests and ctx.session_stats()["hits"] == hits, m
    with open(lab.path("outgate.yaml"), "w") as f:
        f.write(whole)
    assert lab.run("reload", "-c", lab.path("outgate.yaml")).returncode == 0
    accepted(lab)


# ---------------------------------------------------------------- the handshake


def test_old_protocols_and_weak_suites(lab):
    """Checklist 22, 24, 27; and there is no plain HTTP instead (H18)."""
    cert(lab, "rsa", NAMES + SERVER, key=("rsa:2048",))
    port = lab.tls_port
    lab.origins["api.test"].close()
    try:
        for args, fine in ((["-tls1_2"], True), (["-tls1_1"], False),
                           (["-tls1_2", "-cipher", "ECDHE-RSA-AES128-SHA"], False), (["-tls1_2", "-cipher", "AES128-GCM-SHA256"], False),
                           (["-tls1_2", "-cipher", "DHE-RSA-AES128-GCM-SHA256"], False)):
            ciphers = args[args.index("-cipher") + 1] if "-cipher" in args else "ALL"
            plain = [a for a in args if a not in ("-cipher", ciphers)]
            server = subprocess.Popen(["openssl", "s_server", "-accept", f"127.0.0.2:{port}", "-cert", "rsa.pem", "-key", "rsa.key", "-www", *plain,
                                       "-cipher", ciphers + ":@SECLEVEL=0"], cwd=lab.dir, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            try:
                assert b"ACCEPT" in server.stdout.readline() + server.stdout.readline(), args
                try:
                    m = lab.get("api.test", headers=[lab.bearer()])
                    assert (m.status == 200) == fine and (fine or m.code == "origin_tls"), (args, m)
                except Closed:
                    assert fine, args  # s_server -www ends its answer without close_notify
            finally:
                server.kill()
                server.wait()
                server.stdout.close()
    finally:
        lab.api = lab.origin("api.test")


def hello_of(data):
    """A ClientHello: its suites, compression methods, extensions by number."""
    assert data[0] == 22 and data[5] == 1, data[:9]
    b = data[9:]
    at = 34
    at += 1 + b[at]
    n = int.from_bytes(b[at : at + 2], "big")
    suites = [int.from_bytes(b[i : i + 2], "big") for i in range(at + 2, at + 2 + n, 2)]
    at += 2 + n
    compression = list(b[at + 1 : at + 1 + b[at]])
    at += 1 + b[at]
    end, at, extensions = at + 2 + int.from_bytes(b[at : at + 2], "big"), at + 2, {}
    while at < end:
        kind, n = int.from_bytes(b[at : at + 2], "big"), int.from_bytes(b[at + 2 : at + 4], "big")
        extensions[kind] = b[at + 4 : at + 4 + n]
        at += 4 + n
    return suites, compression, extensions


def test_what_an_origin_is_offered(lab):
    """Nothing weak, the name, http/1.1, no early data."""
    seen = []

    def keep(conn, _origin):
        head = conn.exactly(5)
        seen.append(head + conn.exactly(int.from_bytes(head[3:], "big")))
        conn.close()

    lab.origins["api.test"].close()
    listener = L.Origin(lab, lab.hosts["api.test"], lab.tls_port, tls=False, handler=keep)
    try:
        assert lab.get("api.test", headers=[lab.bearer()]).code == "origin_tls"
    finally:
        listener.close()
        lab.api = lab.origin("api.test")
    suites, compression, ext = hello_of(seen[0])
    tls13, ecdhe_aead = {0x1301, 0x1302, 0x1303}, {0xC02B, 0xC02C, 0xC02F, 0xC030, 0xCCA8, 0xCCA9}
    assert set(suites) <= tls13 | ecdhe_aead | {0x00FF} and set(suites) & tls13 and set(suites) & ecdhe_aead, [hex(s) for s in suites]
    assert compression == [0]
    assert ext[0] == b"\x00\x0b\x00\x00\x08api.test" and ext[16] == b"\x00\x0c\x02h2\x08http/1.1", ext
    assert set(ext[43][1:][i : i + 2] for i in range(0, ext[43][0], 2)) == {b"\x03\x04", b"\x03\x03"}, ext[43]
    groups = {int.from_bytes(ext[10][i : i + 2], "big") for i in range(2, len(ext[10]), 2)}
    assert groups <= {0x1D, 0x17, 0x18} and groups, groups  # X25519, P-256, P-384
    schemes = {ext[13][i : i + 2].hex() for i in range(2, len(ext[13]), 2)}
    assert schemes <= {"0403", "0503", "0603", "0804", "0805", "0806", "0807", "0808", "0809", "080a", "080b", "0401", "0501", "0601"}, schemes
    assert 42 not in ext and 49 not in ext  # early data, post-handshake authentication


def test_an_origin_that_asks_for_a_certificate(lab):
    """H12: it gets none; one that insists is refused with a reason."""
    for mode, fine in ((ssl.CERT_OPTIONAL, True), (ssl.CERT_REQUIRED, False)):
        ctx = lab.origin_context(lab.api)
        ctx.verify_mode = mode
        ctx.load_verify_locations(lab.path("ca.pem"))
        lab.api.ctx = ctx
        lab.api.reset()
        m = lab.get("api.test", headers=[lab.bearer()])
        assert (m.status == 200) == fine and (fine or m.status == 502 and not lab.api.requests), (mode, m)
    lab.api.ctx = lab.origin_context(lab.api)


if __name__ == "__main__":
    L.main()
