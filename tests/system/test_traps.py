#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What an operator's mistake or a hostile environment must not do: secrets that others can read, folders that others can write, links in
place of files, variables that would change what TLS does, configurations that say less than they seem to. THREATS: C16, L9, O."""
import os
import shutil
import subprocess

import lab as L
from lab import EXE, Skip, main
from test_commands import NO, OK, UNREADABLE, Folder, refused, sh, starts


def root():
    if os.geteuid():
        raise Skip("needs root to change owners")


def as_link(f, name):
    os.rename(f.path("home", name), f.path("moved"))
    os.symlink(f.path("moved"), f.path("home", name))


def undo_link(f, name):
    os.unlink(f.path("home", name))
    os.rename(f.path("moved"), f.path("home", name))


# ---------------------------------------------------------------- the state


MODES = [("state", 0o777), ("state", 0o775), ("state/ca", 0o777), ("state/ca/ca.key", 0o444), ("state/keys", 0o722), ("state/keys/install.key", 0o444),
         ("state/keys/console.token", 0o440), ("state/keys/log", 0o770), ("state/keys/log/log.key", 0o444), ("state/audit", 0o777)]


def test_modes_that_are_too_open():
    with Folder() as f:
        for name, mode in MODES:
            path = f.path("home", name)
            before = os.stat(path).st_mode & 0o7777
            os.chmod(path, mode)
            assert refused(f, "others"), name
            os.chmod(path, before)
        starts(f)


def test_links_in_place_of_files():
    with Folder() as f:
        for name in ("state/ca", "state/ca/ca.key", "state/keys", "state/keys/install.key", "state/keys/console.token", "state/keys/log",
                     "state/keys/log/log.key", "state/audit"):
            as_link(f, name)
            assert refused(f, "state_dir"), name
            undo_link(f, name)
        starts(f)


def test_budgets_that_others_can_write():
    """The file of what was spent is made by who serves first; from then on it must be a file, its server's, and nobody else may write it. Others may read it."""
    with Folder() as f:
        path = f.path("home", "state", "budgets")
        assert not os.path.exists(path)
        starts(f)
        assert os.stat(path).st_mode & 0o777 == 0o600
        for mode in (0o622, 0o660, 0o602):
            os.chmod(path, mode)
            assert refused(f, "budgets: others can write it"), oct(mode)
        os.chmod(path, 0o644)
        starts(f)  # the control
        if os.geteuid() == 0:
            os.chown(path, 4242, 4242)
            assert refused(f, "uid 4242")
            os.chown(path, 0, 0)
        as_link(f, "state/budgets")
        assert refused(f, "regular file")
        undo_link(f, "state/budgets")
        os.unlink(path)
        os.mkfifo(path, 0o600)
        assert refused(f, "regular file")
        os.unlink(path)
        starts(f)


def test_owners():
    root()
    with Folder() as f:
        for name in ("state", "state/ca", "state/keys", "state/keys/install.key", "state/keys/console.token", "state/keys/log", "state/keys/log/log.key",
                     "state/audit"):
            path = f.path("home", name)
            st = os.stat(path)
            os.chown(path, 4242, st.st_gid)
            assert refused(f, "uid 4242"), name
            os.chown(path, st.st_uid, st.st_gid)
            os.chmod(path, st.st_mode & 0o7777)
        starts(f)


def test_segments_that_are_none():
    """L9: a link or a pipe where a segment should be."""
    with Folder() as f:
        path = f.path("home", "state", "audit", "0000000000000001-20200101T000000Z.jsonl")
        for make in (lambda: os.symlink("/etc/passwd", path), lambda: os.mkfifo(path), lambda: os.mkdir(path)):
            make()
            assert refused(f, "regular file")
            (os.rmdir if os.path.isdir(path) and not os.path.islink(path) else os.unlink)(path)
        starts(f)


def test_a_ca_that_is_not_whole():
    with Folder() as f:
        for name in ("ca.key", "ca.pem"):
            path = f.path("home", "state", "ca", name)
            with open(path, "rb") as g:
                whole = g.read()
            for data in (b"", whole[: len(whole) // 2], whole.replace(b"A", b"B", 3) if name == "ca.key" else whole[:-30]):
                with open(path, "r+b") as g:
                    g.truncate()
                    g.write(data)
                assert refused(f, "CA"), (name, len(data))
            with open(path, "r+b") as g:
                g.truncate()
                g.write(whole)
        with Folder() as other:  # the certificate of another installation
            shutil.copyfile(other.path("home", "state", "ca", "ca.pem"), f.path("ca.pem"))
        path = f.path("home", "state", "ca", "ca.pem")
        with open(path, "rb") as g:
            whole = g.read()
        with open(path, "r+b") as g, open(f.path("ca.pem"), "rb") as theirs:
            g.truncate()
            g.write(theirs.read())
        assert refused(f, "do not belong together")
        with open(path, "r+b") as g:
            g.truncate()
            g.write(whole)
        starts(f)


# ---------------------------------------------------------------- the environment


def test_the_environment_does_not_change_tls():
    """C16: a configuration of OpenSSL that would take anything, and a file for session keys."""
    with L.Lab(start=False) as lab:
        with open(lab.path("openssl.cnf"), "w") as f:
            f.write("openssl_conf=o\n[o]\nssl_conf=s\n[s]\nsystem_default=d\n[d]\nMinProtocol=TLSv1\nCipherString=ALL:@SECLEVEL=0\n")
        lab.env.update(OPENSSL_CONF=lab.path("openssl.cnf"), OPENSSL_MODULES=lab.dir, SSLKEYLOGFILE=lab.path("keylog"), SSL_CERT_FILE="/dev/null",
                       SSL_CERT_DIR=lab.dir, TZ=":/etc/shadow", LC_ALL="tr_TR.UTF-8", HOME="/nonexistent", TMPDIR="/nonexistent")
        stranger = lab.origin("badcert.test", cert="stranger")
        shutil.copyfile(lab.path("stranger.pem"), lab.path("stranger-root.pem"))
        lab.start()
        weak = ["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"]
        for args, fine in ((weak, False), (["-tls1_2", "-cipher", "AES128-SHA:@SECLEVEL=0"], False), (["-tls1_2"], True)):
            r = subprocess.run(["openssl", "s_client", "-proxy", f"127.0.0.1:{lab.port}", "-connect", f"open.test:{lab.tls_port}", "-servername", "open.test",
                                *args], stdin=subprocess.DEVNULL, capture_output=True, timeout=20)
            assert (b"Cipher is (NONE)" not in r.stdout) == fine, (args, r.stdout[-300:])
        assert lab.get("api.test", headers=[lab.bearer()]).status == 200 and lab.get("badcert.test").status == 502
        assert not os.path.exists(lab.path("keylog")) and not stranger.requests
        e = lab.event(lambda e: e.get("host") == "api.test")
        assert e["ts"].endswith("Z") and e["tls"]["version"] == "TLSv1.3", e


def test_our_own_ca_is_no_origins():
    """H2: an origin whose certificate our own CA signed, although the operator lists that CA among the roots."""
    with L.Lab() as lab:
        lab.stop()
        with open(lab.path("roots.pem"), "w") as roots:
            for name in (lab.path("state/ca/ca.pem"), lab.path("ca.pem")):
                with open(name) as g:
                    roots.write(g.read())
        config = lab.config().replace(f"ca_file: [{lab.path('ca.pem')}]", f"ca_file: [{lab.path('roots.pem')}]")
        lab.config = lambda: config
        lab.start()
        for name in ("ca.pem", "ca.key"):
            shutil.copyfile(lab.path("state", "ca", name), lab.path("own" + name[2:]))
        lab._leaf("fake", ",".join("DNS:" + n for n in lab.hosts), "own")
        fake = lab.origin("badcert.test", cert="fake")
        m = lab.get("badcert.test")
        assert m.status == 502 and m.code == "origin_tls" and not fake.requests, m
        fake.ctx = lab.origin_context(fake)  # the control: the lab's own CA, which is listed as well
        assert lab.get("badcert.test").status == 200


# ---------------------------------------------------------------- the configuration


def checked(f, text):
    with open(f.file, "w") as g:
        g.write(text)
    return sh("check", "-c", f.file)


def config_of(f):
    with open(f.file) as g:
        return g.read()


def test_nothing_configured_lets_nothing_pass():
    """O1"""
    with Folder() as f:
        base = config_of(f)
        for text in ("", "\n", "version: 1\n", "# nothing\n", "---\n", "null\n", "[]\n", "version: 1\nrules:\n", "version: 1\nrules: []\nagents: []\n"):
            r = checked(f, text)
            if r.returncode == OK:
                s = sh("explain", "-c", f.file, "--agent", "coder", "GET", "https://api.test/")
                assert s.returncode != OK, text
        r = checked(f, base)
        assert r.returncode == OK, r.err


BASE = """version: 1
state_dir: home/state
runtime_dir: run
listen: {proxy: [127.0.0.1:%d]}
agents:
  - {name: coder, identify: [{source: 127.0.0.1/32}]}
rules:
  - {name: r, hosts: [api.test], action: allow}
"""
TRAPS = [
    "credentials:\n  - {name: c, agents: [coder], hosts: ['*'], slots: ['header:authorization'], source: {env: X}}\n",
    "credentials:\n  - {name: c, agents: [coder], hosts: ['*.test'], slots: ['header:authorization'], source: {env: X}}\n".replace("*.test", "*.com"),
    "credentials:\n  - {name: c, agents: [coder], hosts: ['*.co.uk'], slots: ['header:authorization'], source: {env: X}}\n",
    "credentials:\n  - {name: c, agents: [coder], hosts: ['*.github.io'], slots: ['header:authorization'], source: {env: X}}\n",
    "credentials:\n  - {name: c, agents: [coder], hosts: ['*.s3.amazonaws.com'], slots: ['header:authorization'], source: {env: X}}\n",
    "credentials:\n  - {name: c, agents: [coder], hosts: ['10.0.0.0/8'], slots: ['header:authorization'], source: {env: X}}\n",
    "credentials:\n  - {name: c, agents: [coder], hosts: ['https://api.test'], slots: ['header:authorization'], source: {env: X}}\n",
    "credentials:\n  - {name: c, agents: [coder], hosts: [api.test], slots: ['header:host'], source: {env: X}}\n",
    "credentials:\n  - {name: c, agents: [coder], hosts: [api.test], slots: ['header:content-length'], source: {env: X}}\n",
    "credentials:\n  - {name: c, agents: [coder], hosts: [api.test], slots: ['header:proxy-authorization'], source: {env: X}}\n",
    "credentials:\n  - {name: c, agents: [coder], hosts: [api.test], slots: ['header:bad name'], source: {env: X}}\n",
    "credentials:\n  - {name: c, agents: [coder], hosts: [api.test], slots: ['header:authorization'], placeholder: token, source: {env: X}}\n",
    "credentials:\n  - {name: c, agents: [coder], hosts: [api.test], slots: ['header:authorization'], placeholder: aaaaaaaaaaaaaaaaaaaaaaaaaaaa, source: {env: X}}\n",
    "credentials:\n  - {name: c, agents: [nobody], hosts: [api.test], slots: ['header:authorization'], source: {env: X}}\n",
    "credentials:\n  - {name: c, agents: [coder], hosts: [api.test], slots: ['header:authorization'], source: {sidecar: none}}\n",
    "credentials:\n  - {name: c, agents: [coder], hosts: [api.test], slots: ['header:authorization'], source: {env: X, file: y}}\n",
    "origin: {ca_file: []}\n",
    "origin: {ca_file: [outgate.yaml]}\n",
    "mode: off\n",
    "limits: {connections_per_agent: 0}\n",
    "limits: {head_bytes: 10GiB}\n",
    "workers: -1\n",
    "audit: {sync: 99d}\n",
    "refuse_at: never\n",
    "rules: []\n",
    "Version: 1\n",
]


def test_traps_of_the_configuration():
    """O2, O3, O4, O10, O11: each is an error, with its line; without it the file is fine."""
    with Folder() as f:
        base = BASE % f.port
        assert checked(f, base).returncode == OK, checked(f, base).err
        passed = []
        for trap in TRAPS:
            r = checked(f, base + trap)
            if r.returncode != NO or "outgate.yaml:" not in r.err:
                passed.append((trap, r.returncode, r.err))
        assert not passed, passed


def test_yaml_that_is_not_what_it_seems():
    """O2: one meaning, or an error."""
    with Folder() as f:
        base = BASE % f.port
        for text in (base + "mode: enforce\nmode: observe\n", base.replace("hosts: [api.test]", "hosts: [no]"), base + "x: &a [1]\n", base + "---\nversion: 1\n",
                     base + "mode: !!str enforce\n", base.replace("name: r,", "<<: {name: r},"), base + "\tmode: enforce\n", base + "mode: enforce\0\n",
                     base.replace("[api.test]", "[api.test, \"\"]"), base.replace("allow}", "Allow}"), base + "#" * (4 << 20) + "\n",
                     base.replace("hosts: [api.test]", "hosts: [api.test], ports: [0x1bb]"), base.replace("hosts: [api.test]", "hosts: [api.test], ports: [0443]"),
                     base.replace("hosts: [api.test]", "hosts: api.test"), base.replace("hosts: [api.test]", "hosts: [1e3]")):
            r = checked(f, text)
            if r.returncode == OK:  # 'no' and 1e3 are words, which is fine as long as they are taken as such
                s = sh("explain", "-c", f.file, "--agent", "coder", "GET", "https://api.test/")
                assert s.returncode != OK, text[:300]


# ---------------------------------------------------------------- run


def test_run_takes_secrets_away():
    """Every source, other agents' too, doubled entries, and nothing of them in the parent's own block."""
    with Folder() as f:
        value = L.secret_value("traps")
        f.write(credentials="""credentials:
  - {name: one, agents: [coder], hosts: [api.test], slots: ["header:authorization"], env: ONE_TOKEN, source: {env: ONE_SOURCE}}
  - {name: two, agents: [other], hosts: [api.test], slots: ["header:x-two"], env: TWO_TOKEN, source: {env: TWO_SOURCE}}
""")
        with open(f.file) as g:
            text = g.read().replace("agents:\n", "agents:\n  - {name: other, identify: [{source: 127.0.0.77/32}]}\n", 1)
        with open(f.file, "w") as g:
            g.write(text)
        env = {**os.environ, "ONE_SOURCE": value, "TWO_SOURCE": value, "ONE_TOKEN": value, "TWO_TOKEN": value, "ANTHROPIC_API_KEY": value, "AWS_SECRET_ACCESS_KEY": value,
               "HTTPS_PROXY": "http://evil.test:1", "NO_PROXY": "*"}
        r = subprocess.run([EXE, "run", "-c", f.file, "--agent", "coder", "--", "sh", "-c", "env; tr '\\0' '\\n' </proc/$PPID/environ"], env=env, capture_output=True,
                           text=True, timeout=50)
        assert r.returncode == 0, r.stderr
        assert value not in r.stdout + r.stderr
        for name in ("ONE_SOURCE", "TWO_SOURCE", "TWO_TOKEN", "ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY"):
            assert f"\n{name}=" not in r.stdout and name in r.stderr, name
        assert "evil.test" not in r.stdout and "NO_PROXY=*" not in r.stdout and "\nONE_TOKEN=" in "\n" + r.stdout


if __name__ == "__main__":
    main()
