#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`outgate ca install` and `ca uninstall`: into a store, found there, out of it, and the store is as it was; nothing of somebody else's is
changed. The stores are the test's own: a HOME, a JAVA_HOME, and for the system's a mount namespace."""
import glob
import os
import re
import shutil
import subprocess

from faults import FULL
from lab import Skip
from test_commands import OK, UNREADABLE, USAGE, Folder, sh

TOOLS = os.pathsep.join(("/usr/local/bin", "/usr/bin", "/bin"))


def ca(f, verb, store, **env):
    """With a HOME and a PATH of the test's own."""
    store = ["--store", store] if store else []
    return sh("ca", verb, "-c", f.file, *store, env={"HOME": f.path("user"), "PATH": TOOLS, **env})


def tool(name):
    path = shutil.which(name)
    if not path:
        raise Skip(f"{name} is not installed")
    return path


def out(*argv, **kw):
    r = subprocess.run(argv, capture_output=True, text=True, timeout=50, **kw)
    assert r.returncode == 0, (argv, r.stdout[-400:], r.stderr[-400:])
    return r.stdout


def tree_of(*folders):
    return sorted((p, os.readlink(p) if os.path.islink(p) else "") for top in folders for at, ds, fs in os.walk(top) for p in [os.path.join(at, n) for n in ds + fs])


def stranger(f, name):
    """A certificate that is not ours."""
    out("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "3", "-keyout", os.devnull, "-out", f.path(name),
        "-subj", "/CN=stranger")
    return f.path(name)


# ---------------------------------------------------------------- NSS


def nss_list(db):
    return re.findall(r"^(\S.*?) +(\w*,\w*,\w*) *$", out("certutil", "-L", "-d", "sql:" + db), re.M)


def test_nss():
    tool("certutil")
    with Folder() as f:
        os.mkdir(f.path("user"))
        before = tree_of(f.path("user"))
        db = f.path("user", ".pki", "nssdb")
        for said in ("installed", "already there"):  # a database that was not there
            r = ca(f, "install", "nss")
            assert r.returncode == OK and f"nss: {said}: {db}\n" in r.out, (r.out, r.err)
            (name, trust), = nss_list(db)
            assert re.fullmatch("outgate-ca-[0-9a-f]{16}", name) and trust == "C,,", (name, trust)
        assert out("certutil", "-L", "-d", "sql:" + db, "-n", name, "-a").split() == sh("ca", "export", "-c", f.file).out.split()
        for said in ("removed", "not there"):
            r = ca(f, "uninstall", "nss")
            assert r.returncode == OK and f"nss: {said}: {db}\n" in r.out, (r.out, r.err)
            assert tree_of(f.path("user")) == before


def test_nss_of_others():
    """A database with an entry, one under Firefox; and our certificate put there by hand, which is not ours to take away."""
    certutil = tool("certutil")
    with Folder() as f:
        dbs = [f.path("user", ".pki", "nssdb"), f.path("user", ".mozilla", "firefox", "abc.default")]
        for db in dbs:
            os.makedirs(db)
            out(certutil, "-N", "-d", "sql:" + db, "--empty-password")
            out(certutil, "-A", "-d", "sql:" + db, "-n", "Some Body, Inc", "-t", "P,,", "-i", stranger(f, "stranger.pem"))
        assert ca(f, "install", "nss").returncode == OK
        for db in dbs:
            assert len(nss_list(db)) == 2, nss_list(db)
        assert ca(f, "uninstall", "nss").returncode == OK
        for db in dbs:
            assert nss_list(db) == [("Some Body, Inc", "P,,")], nss_list(db)
        out(certutil, "-A", "-d", "sql:" + dbs[0], "-n", "by hand", "-t", "p,,", "-i", f.path("home", "state", "trust", "ca.pem"))
        r = ca(f, "install", "nss")  # there, but not trusted
        assert r.returncode == UNREADABLE and 'as "by hand", and it is not trusted for TLS servers' in r.err and ("by hand", "p,,") in nss_list(dbs[0]), (r.out, r.err)
        out(certutil, "-M", "-d", "sql:" + dbs[0], "-n", "by hand", "-t", "C,,")
        r = ca(f, "install", "nss")
        assert r.returncode == OK and "put there by somebody else as by hand" in r.out, (r.out, r.err)
        assert ca(f, "uninstall", "nss").returncode == OK and ("by hand", "C,,") in nss_list(dbs[0]), nss_list(dbs[0])


def test_nss_distrusted():
    """Ours without the trust that it was given gets it again."""
    certutil = tool("certutil")
    with Folder() as f:
        os.mkdir(f.path("user"))
        db = f.path("user", ".pki", "nssdb")
        assert ca(f, "install", "nss").returncode == OK
        (name, _), = nss_list(db)
        for trust in (",,", "p,C,", "c,,"):
            out(certutil, "-M", "-d", "sql:" + db, "-n", name, "-t", trust)
            assert "C" not in nss_list(db)[0][1].split(",")[0], nss_list(db)
            r = ca(f, "install", "nss")
            assert r.returncode == OK and f"nss: there, and trusted again: {db}\n" in r.out and nss_list(db) == [(name, "C,,")], (r.out, r.err, nss_list(db))


def test_nss_broken():
    """A database that cannot be read is not one that does not hold the certificate."""
    tool("certutil")
    with Folder() as f:
        os.mkdir(f.path("user"))
        assert ca(f, "install", "nss").returncode == OK
        with open(f.path("user", ".pki", "nssdb", "cert9.db"), "wb") as broken:
            broken.write(b"no database\n" * 1000)
        r = ca(f, "uninstall", "nss")
        assert r.returncode == UNREADABLE and "certutil -L ended with" in r.err and "not there" not in r.out, (r.out, r.err)


def test_nss_with_a_key():
    """A database that was made here and got somebody's private key stays; the same without the key goes."""
    certutil = tool("certutil")
    with Folder() as f:
        os.mkdir(f.path("user"))
        db = f.path("user", ".pki", "nssdb")
        assert ca(f, "install", "nss").returncode == OK
        with open(f.path("noise"), "wb") as noise:
            noise.write(os.urandom(2048))
        out(certutil, "-G", "-d", "sql:" + db, "-k", "ec", "-q", "nistp256", "-z", f.path("noise"))
        keys = lambda: re.findall(r"<.*?> +ec +([0-9a-f]+)", out(certutil, "-K", "-d", "sql:" + db))  # noqa: E731
        key, = keys()
        assert ca(f, "uninstall", "nss").returncode == OK and keys() == [key] and not nss_list(db)
        out(certutil, "-F", "-d", "sql:" + db, "-k", key)
        assert ca(f, "uninstall", "nss").returncode == OK and not os.path.exists(f.path("user", ".pki"))


def test_nss_in_a_home_of_many():
    """No folder on the way to a database is a link, another user's or open to others' changes: certutil is not run there."""
    certutil = tool("certutil")
    with Folder() as f:
        home, profile = f.path("user"), os.path.join(".mozilla", "firefox", "abc.default")
        os.makedirs(os.path.join(home, profile))
        out(certutil, "-N", "-d", "sql:" + os.path.join(home, profile), "--empty-password")
        assert ca(f, "install", "nss").returncode == OK  # the control: as made
        entries = nss_list(os.path.join(home, profile))

        def refused(word, at):
            for verb in ("install", "uninstall"):
                r = ca(f, verb, "nss")
                assert r.returncode == UNREADABLE and word in r.err and f"{at}" in r.err, (verb, at, r.out, r.err)
            assert nss_list(os.path.join(home, profile)) == entries

        for part in ("", ".pki", ".pki/nssdb", ".mozilla", ".mozilla/firefox", profile):
            at = os.path.join(home, part).rstrip("/")
            for bit in (0o020, 0o002):
                mode = os.stat(at).st_mode & 0o7777
                os.chmod(at, mode | bit)
                if part.startswith(".mozilla"):  # the first database comes before
                    r = ca(f, "install", "nss")
                    assert r.returncode == UNREADABLE and "can be written by others" in r.err and f"{at} " in r.err, (r.out, r.err)
                else:
                    refused("can be written by others", at)
                os.chmod(at, mode)
        for part in (".pki", ".pki/nssdb"):
            at = os.path.join(home, part)
            os.rename(at, f.path("elsewhere"))
            os.symlink(f.path("elsewhere"), at)
            refused("expected a folder, got a link", at)
            os.unlink(at)
            os.rename(f.path("elsewhere"), at)
            if os.geteuid() == 0:
                os.chown(at, 65534, -1)
                refused("belongs to another user", at)
                os.chown(at, 0, -1)
        os.rename(os.path.join(home, profile), f.path("elsewhere"))
        os.symlink(f.path("elsewhere"), os.path.join(home, profile))
        r = ca(f, "uninstall", "nss")
        assert r.returncode == UNREADABLE and "expected a folder, got a link" in r.err and nss_list(f.path("elsewhere")) == entries, (r.out, r.err)
        os.unlink(os.path.join(home, profile))
        os.rename(f.path("elsewhere"), os.path.join(home, profile))
        assert ca(f, "uninstall", "nss").returncode == OK and not nss_list(os.path.join(home, profile))


def test_nss_that_cannot_be():
    tool("certutil")
    with Folder() as f:
        os.makedirs(f.path("user", ".pki"))
        open(f.path("user", ".pki", "nssdb"), "w").close()  # no folder
        r = ca(f, "install", "nss")
        assert r.returncode == UNREADABLE and "ca install: nss: " in r.err and ".pki/nssdb" in r.err, (r.out, r.err)
        r = sh("ca", "install", "-c", f.file, "--store", "nss", env={"PATH": TOOLS})
        assert r.returncode == UNREADABLE and "HOME" in r.err, r.err
        if os.geteuid() == 0:  # nothing of root's into somebody's home
            os.mkdir(f.path("somebody"))
            os.chown(f.path("somebody"), 65534, 65534)
            r = sh("ca", "install", "-c", f.file, "--store", "nss", env={"PATH": TOOLS, "HOME": f.path("somebody")})
            assert r.returncode == UNREADABLE and "belongs to another user" in r.err and not os.listdir(f.path("somebody")), r.err


# ---------------------------------------------------------------- Java


def full():
    if not FULL:
        raise Skip("some seconds for each call of a slow tool: OUTGATE_TEST_FULL=1 runs it")


def test_java():
    full()
    keytool = tool("keytool")
    with Folder() as f:
        home = f.path("jvm")
        store = os.path.join(home, "lib", "security", "cacerts")
        os.makedirs(os.path.dirname(store))
        words = ["-keystore", store, "-storepass", "changeit"]
        out(keytool, "-importcert", "-noprompt", "-alias", "somebody", "-file", stranger(f, "stranger.pem"), *words)
        aliases = lambda: sorted(re.findall(r"^([^,\n]+), .*trustedCertEntry", out(keytool, "-list", *words, env={**os.environ, "LC_ALL": "C"}), re.M))  # noqa: E731
        for said in ("installed", "already there"):
            r = ca(f, "install", "java", JAVA_HOME=home)
            assert r.returncode == OK and r.out == f"java: {said}: {store}\n", (r.out, r.err)
        assert len(aliases()) == 2 and aliases()[0].startswith("outgate-ca-")
        for said in ("removed", "not there"):
            r = ca(f, "uninstall", "java", JAVA_HOME=home)
            assert r.returncode == OK and r.out == f"java: {said}: {store}\n", (r.out, r.err)
        out(keytool, "-importcert", "-noprompt", "-alias", "by hand", "-file", f.path("home", "state", "trust", "ca.pem"), *words)
        assert "put there by somebody else as by hand" in ca(f, "install", "java", JAVA_HOME=home).out
        r = ca(f, "uninstall", "java", JAVA_HOME=home)
        assert r.returncode == OK and aliases() == ["by hand", "somebody"], (r.out, r.err, aliases())
        with open(store, "w") as broken:
            broken.write("no key store\n")
        r = ca(f, "install", "java", JAVA_HOME=home)
        assert r.returncode == UNREADABLE and "keytool -list ended with" in r.err and store in r.err, r.err


def test_java_of_the_systems_hook():
    """Its entry and ours: all that bear our name go, wherever they stand in the list."""
    full()
    keytool = tool("keytool")
    with Folder() as f:
        home, pem = f.path("jvm"), f.path("home", "state", "trust", "ca.pem")
        store = os.path.join(home, "lib", "security", "cacerts")
        os.makedirs(os.path.dirname(store))
        words = ["-keystore", store, "-storepass", "changeit"]
        out(keytool, "-importcert", "-noprompt", "-alias", "somebody", "-file", stranger(f, "stranger.pem"), *words)
        aliases = lambda: sorted(re.findall(r"^([^,\n]+), .*trustedCertEntry", out(keytool, "-list", *words, env={**os.environ, "LC_ALL": "C"}), re.M))  # noqa: E731
        assert ca(f, "install", "java", JAVA_HOME=home).returncode == OK
        ours = aliases()[0]
        for alias in (f"debian:{ours}.pem", "by hand"):
            out(keytool, "-importcert", "-noprompt", "-alias", alias, "-file", pem, *words)
        out(keytool, "-importcert", "-noprompt", "-alias", f"x{ours}", "-file", stranger(f, "stranger2.pem"), *words)  # our name, not our certificate
        assert len(aliases()) == 5, aliases()
        r = ca(f, "uninstall", "java", JAVA_HOME=home)
        assert r.returncode == OK and r.out == f"java: removed: {store}\njava: left there: {store}, put there by somebody else as by hand\n", (r.out, r.err)
        assert aliases() == ["by hand", "somebody", f"x{ours}"], aliases()


def test_java_of_another_user():
    """Root runs no program of a user's JAVA_HOME, and writes nothing there; the same in a folder of root's is run."""
    if os.geteuid():
        raise Skip("needs root")
    with Folder() as f:
        home, ran = f.path("jvm"), f.path("ran")
        for name, text in (("bin/keytool", f"#!/bin/sh\nenv >{ran}\necho hello; exit 7\n"), ("lib/security/cacerts", "")):
            os.makedirs(os.path.dirname(os.path.join(home, name)))
            with open(os.path.join(home, name), "w") as made:
                made.write(text)
        os.chmod(os.path.join(home, "bin", "keytool"), 0o755)
        for part in ("bin", "bin/keytool", "lib/security", "lib/security/cacerts", "."):
            at = os.path.join(home, part)
            mode = os.stat(at).st_mode & 0o7777
            for change, undo, word in ((lambda: os.chown(at, 65534, 0), lambda: os.chown(at, 0, 0), "run this as that user"),
                                       (lambda: os.chmod(at, mode | 0o020), lambda: os.chmod(at, mode), "by others than root"),
                                       (lambda: os.chmod(at, mode | 0o002), lambda: os.chmod(at, mode), "by others than root")):
                change()
                r = ca(f, "uninstall", "java", JAVA_HOME=home)
                assert r.returncode == UNREADABLE and word in r.err and not os.path.exists(ran), (part, r.out, r.err)
                undo()
        os.mkdir(f.path("user"))
        os.chown(f.path("user"), 65534, 65534)
        r = ca(f, "uninstall", "java", JAVA_HOME=home, LD_PRELOAD="", BASH_ENV="/x", TMPDIR=f.path("user"), PATH=f.path("user") + ":" + TOOLS)
        assert r.returncode == UNREADABLE and "keytool -list ended with 7: hello" in r.err, r.err
        got = dict(line.split("=", 1) for line in open(ran).read().splitlines())
        got = {k: got[k] for k in got if k not in ("PWD", "_", "OLDPWD", "SHLVL")}  # the shell's own
        assert got == {"PATH": ":".join(f"{p}/{b}" for p in ("/usr/local", "/usr", "") for b in ("sbin", "bin")), "LC_ALL": "C", "JAVA_HOME": home}, got
        with open(os.path.join(home, "bin", "keytool"), "w") as broken:
            broken.write("#!/nowhere/at/all\n")
        r = ca(f, "uninstall", "java", JAVA_HOME=home)
        assert r.returncode == UNREADABLE and "ended with 127: cannot be run: No such file" in r.err, r.err


# ---------------------------------------------------------------- the system


NAMESPACE = r"""
set -e
mount --make-rprivate /
for d in /etc/ssl/certs /usr/local/share/ca-certificates; do
    copy=$1/copy$d
    mkdir -p "$copy"
    cp -a "$d/." "$copy/"
    mount --bind "$copy" "$d"
done
mkdir -p "$1/hooks" && mount --bind "$1/hooks" /etc/ca-certificates/update.d
printf '#!/bin/sh\ncat >>%s/heard\n' "$1" >"$1/hooks/hear" && chmod 755 "$1/hooks/hear"
update-ca-certificates --fresh >/dev/null 2>&1
rm -f "$1/heard"
shift
exec "$@"
"""
IN_IT = r"""
list() { (cd /etc/ssl/certs && find . ! -name . -printf '%p %l\n' | sort; cat ca-certificates.crt; ls -A /usr/local/share/ca-certificates) | sha256sum; }
before=$(list)
"$1" ca install -c "$2" --store system || exit 11
"$1" ca install -c "$2" --store system || exit 12
ls /usr/local/share/ca-certificates/outgate-ca-*.crt /etc/ssl/certs/outgate-ca-*.pem || exit 13
openssl verify -CAfile /etc/ssl/certs/ca-certificates.crt "$3" || exit 14
openssl verify -no-CAfile -no-CAstore -CApath /etc/ssl/certs "$3" || exit 15
rm /usr/local/share/ca-certificates/outgate-ca-*.crt # stopped half-way
"$1" ca uninstall -c "$2" --store system || exit 16
"$1" ca uninstall -c "$2" --store system || exit 17
[ "$before" = "$(list)" ] || exit 18
"$1" ca install -c "$2" --store system >/dev/null && "$1" ca uninstall -c "$2" --store system || exit 19
[ "$before" = "$(list)" ] || exit 20
"$1" ca install -c "$2" --store system >/dev/null && for x in /usr/local/share/ca-certificates/outgate-ca-*.crt; do echo more >>"$x"; done || exit 21
"$1" ca uninstall -c "$2" --store system && exit 22 # not ours any more
[ -e /usr/local/share/ca-certificates/outgate-ca-*.crt ] || exit 23
"""


def test_system():
    """In a mount namespace with copies of the system's folders; its hooks hear of what came and what went."""
    full()
    tool("update-ca-certificates")
    if os.geteuid() or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        raise Skip("needs root and mount namespaces")
    import lab
    with Folder() as f:
        r = subprocess.run(["unshare", "-m", "sh", "-c", NAMESPACE, "sh", f.dir, "sh", "-c", IN_IT, "sh", lab.EXE, f.file, f.path("home", "state", "trust", "ca.pem")],
                           capture_output=True, text=True, timeout=300)
        assert r.returncode == 0, (r.returncode, r.stdout[-500:], r.stderr[-500:])
        file = "/usr/local/share/ca-certificates/" + re.search(r"outgate-ca-[0-9a-f]{16}\.crt", r.stdout)[0]
        for said in ("installed", "already there", "removed"):
            assert f"system: {said}: {file}\n" in r.stdout, r.stdout
        assert "system: not there\n" in r.stdout and "expected our certificate" in r.stderr, (r.stdout, r.stderr)
        link = "/etc/ssl/certs/" + os.path.basename(file)[:-3] + "pem"
        heard = open(f.path("heard")).read().split()
        assert [x[0] for x in heard if x[1:] == link] == list("+-+-+"), heard
        assert not glob.glob("/usr/local/share/ca-certificates/" + os.path.basename(file))


def test_system_is_roots():
    """An ordinary user is told so, and its own stores are served all the same."""
    tool("update-ca-certificates")
    if os.geteuid() == 0:
        if not shutil.which("setpriv"):
            raise Skip("setpriv is not installed")
        user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    else:
        user = []
    import lab
    with Folder() as f:
        os.mkdir(f.path("user"))
        if user:
            os.chown(f.path("user"), 65534, 65534)
        if subprocess.run([*user, lab.EXE, "version"], capture_output=True).returncode:
            raise Skip("the binary is in a folder that others cannot enter")
        r = subprocess.run([*user, lab.EXE, "ca", "install", "-c", f.file], capture_output=True, text=True, timeout=50,
                           env={"HOME": f.path("user"), "PATH": TOOLS, "JAVA_HOME": f.path("nowhere")})
        assert r.returncode == UNREADABLE and "ca install: system: " in r.stderr and "only root may" in r.stderr, (r.stdout, r.stderr)
        assert "java: passed over: " in r.stdout and ("nss: installed: " in r.stdout or not shutil.which("certutil")), r.stdout


# ---------------------------------------------------------------- the command


def test_order():
    """The system's store before Java's, also on the way out: its hook changes that one, and what it leaves is then seen."""
    tool("update-ca-certificates")
    with Folder() as f:
        os.mkdir(f.path("user"))
        r = ca(f, "uninstall", None, JAVA_HOME=f.path("nowhere"))
        assert r.returncode == OK and re.findall(r"^(\w+): ", r.out, re.M) == ["system", "nss", "java"], (r.out, r.err)


def test_no_tools():
    """What is missing is named, with the package that has it."""
    with Folder() as f:
        os.mkdir(f.path("user"))
        if os.geteuid():  # root's tools are the system's, whatever PATH says
            r = ca(f, "install", "nss", PATH=f.dir)
            if not os.path.exists("/usr/sbin/certutil"):
                assert r.returncode == UNREADABLE and "libnss3-tools" in r.err, r.err
            r = ca(f, "install", "java", PATH=f.dir, JAVA_HOME=f.dir)
            assert r.returncode == UNREADABLE and "keytool" in r.err, r.err
        r = ca(f, "install", "java", JAVA_HOME=f.dir)
        assert r.returncode == UNREADABLE and ("keytool" in r.err or "set JAVA_HOME" in r.err), r.err
        for args, status, word in ((["--store", "frob"], USAGE, "system, nss, java"), (["--store", "nss,"], USAGE, "got ''"), (["--store"], USAGE, "needs a value")):
            r = sh("ca", "install", "-c", f.file, *args)
            assert r.returncode == status and word in r.err, (args, r.err)
        f.write(state="nowhere")
        r = sh("ca", "install", "-c", f.file)
        assert r.returncode == UNREADABLE and "outgate init" in r.err, r.err
        r = sh("ca", "uninstall", "-c", f.file)  # a new CA would not take the old one out
        assert r.returncode == UNREADABLE and "outgate init" not in r.err and "remove by hand what is named outgate-ca-*" in r.err, r.err


if __name__ == "__main__":
    from lab import main
    main()
