#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SOCKS5 on the proxy port with a real client: curl resolves nothing, and what it sends is swapped, refused and logged as through a CONNECT."""
import shutil
import subprocess

from lab import Lab, Skip, main


def curl(lab, *args):
    if not shutil.which("curl"):
        raise Skip("curl is not installed")
    r = subprocess.run(["curl", "-sS", "--cacert", lab.path("state", "trust", "ca.pem"), "--max-time", "20", *args], capture_output=True, text=True, timeout=30,
                       env={"PATH": "/usr/bin:/bin", "HOME": lab.path()})
    return r.returncode, r.stdout, r.stderr


def test_swapped():
    with Lab() as lab:
        code, out, err = curl(lab, "-x", f"socks5h://127.0.0.1:{lab.port}", "-H", f"Authorization: Bearer {lab.placeholder}", f"https://api.test:{lab.tls_port}/x")
        assert code == 0, err
        assert lab.api.requests[-1].get("authorization") == "Bearer " + lab.real and lab.real not in out
        code, out, err = curl(lab, "-x", f"socks5h://127.0.0.1:{lab.port}", f"http://plain.test:{lab.http_port}/x")
        assert code == 0 and len(lab.plain.requests) == 1, err


def test_refused():
    with Lab(refuse_at="connect") as lab:
        code, out, err = curl(lab, "-x", f"socks5h://127.0.0.1:{lab.port}", "https://deny.test/")
        assert code == 97 and "(2)" in err, (code, err)  # "not allowed by ruleset"
        e = lab.event(lambda e: e.get("host") == "deny.test" and e.get("code") == "host_denied")
        assert e["agent"] == "coder", e
        # an address that the client looked up by itself is no name, and no rule names it
        code, out, err = curl(lab, "-x", f"socks5://127.0.0.1:{lab.port}", f"https://127.0.0.1:{lab.tls_port}/")
        assert code == 97 and "(2)" in err, (code, err)
    with Lab() as lab:  # on port 443, where a refusal is shown inside TLS
        code, out, err = curl(lab, "-x", f"socks5h://127.0.0.1:{lab.port}", "https://deny.test/")
        assert code == 0 and "host_denied" in out, (code, out, err)


def test_login():
    agents = "  - name: coder\n    identify:\n      - login: {user: bot, token_file: bot.token}\n"
    token = "5f0e1d2c3b4a59687786950a1b2c3d4e"
    with Lab(agents=agents, start=False) as lab:
        with open(lab.path("bot.token"), "w") as f:
            f.write(token + "\n")
        lab.start()
        url = f"https://api.test:{lab.tls_port}/x"
        code, out, err = curl(lab, "-x", f"socks5h://bot:{token}@127.0.0.1:{lab.port}", "-H", f"Authorization: Bearer {lab.placeholder}", url)
        assert code == 0 and lab.api.requests[-1].get("authorization") == "Bearer " + lab.real, err
        for who in ("", "bot:wrong@", f"other:{token}@"):
            code, out, err = curl(lab, "-x", f"socks5h://{who}127.0.0.1:{lab.port}", url)
            assert code == 97, (who, code, err)
        assert len(lab.api.requests) == 1
        assert token.encode() not in lab.log_bytes()


if __name__ == "__main__":
    main()
