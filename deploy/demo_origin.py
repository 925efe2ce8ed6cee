#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The HTTPS origin of quickstart.sh: demo_origin.py FOLDER ADDRESS...

Listens on each address, on port 443 where that is free on all of them and else on one that is, writes the port to FOLDER/port, drops
to the owner of FOLDER when started as root, and from then on answers every request with a JSON echo of what it saw and keeps the last
one in FOLDER/seen.json. FOLDER/origin.pem and origin.key are its certificate."""
import http.server
import json
import os
import socket
import ssl
import sys
import threading

FOLDER, ADDRESSES = sys.argv[1], sys.argv[2:]


class Echo(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        seen = {"request": self.requestline, "headers": dict(self.headers.items())}
        with open(os.path.join(FOLDER, "seen.tmp"), "w") as f:
            json.dump(seen, f)
        os.replace(os.path.join(FOLDER, "seen.tmp"), os.path.join(FOLDER, "seen.json"))
        body = json.dumps({"you_sent": seen}, indent=2).encode() + b"\n"
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self):  # without the look-up of our own name
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = self.server_address

    def finish_request(self, request, client_address):
        request.settimeout(60)
        with context.wrap_socket(request, server_side=True) as tls:
            self.RequestHandlerClass(tls, client_address, self)

    def handle_error(self, request, client_address):
        pass


def bind(port):
    servers = []
    try:
        for address in ADDRESSES:
            servers.append(Server((address, port), Echo))
            port = servers[0].server_port
        return servers
    except OSError:
        for s in servers:
            s.server_close()
        return None


def main():
    for port in (443, 8443, 9443, 10443, 0):
        servers = bind(port)
        if servers:
            break
    else:
        sys.exit("demo_origin.py: no port is free on " + " and ".join(ADDRESSES))
    with open(os.path.join(FOLDER, "port.tmp"), "w") as f:
        f.write(str(servers[0].server_port))
    os.replace(os.path.join(FOLDER, "port.tmp"), os.path.join(FOLDER, "port"))
    owner = os.stat(FOLDER)
    if os.geteuid() == 0 and owner.st_uid:
        os.setgroups([])
        os.setgid(owner.st_gid)
        os.setuid(owner.st_uid)
    for s in servers[1:]:
        threading.Thread(target=s.serve_forever, daemon=True).start()
    servers[0].serve_forever()


socket.setdefaulttimeout(60)
os.umask(0o077)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(os.path.join(FOLDER, "origin.pem"), os.path.join(FOLDER, "origin.key"))
main()
