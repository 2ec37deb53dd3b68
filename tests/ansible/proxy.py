# SPDX-License-Identifier: Apache-2.0
"""A site's reverse proxy, as small as one can be: who logs in is named in a header.

`python proxy.py ADDRESS PORT UPSTREAM`. The login is Basic with any password; whatever a visitor
puts into the header is thrown away. Standard library only.
"""

from __future__ import annotations

import base64
import http.client
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HEADER = "X-Remote-User"


class Proxy(BaseHTTPRequestHandler):
    """Passes GET requests of users that have logged in to `upstream`."""

    upstream = ""

    def do_GET(self) -> None:  # the name that http.server calls
        """Ask upstream in the user's name, or for a login."""
        user = self._user()
        if user is None:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="campus"')
            self.end_headers()
            return
        connection = http.client.HTTPConnection(self.upstream, timeout=10)
        connection.request("GET", self.path, headers={HEADER: user})
        self._pass_on(connection.getresponse())
        connection.close()

    def _user(self) -> str | None:
        kind, _, word = self.headers.get("Authorization", "").partition(" ")
        return base64.b64decode(word).decode().partition(":")[0] if kind == "Basic" else None

    def _pass_on(self, answer: http.client.HTTPResponse) -> None:
        body = answer.read()
        self.send_response(answer.status)
        for name in ("Content-Type", "Location"):
            if answer.getheader(name):
                self.send_header(name, str(answer.getheader(name)))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    address, port, Proxy.upstream = sys.argv[1:]
    ThreadingHTTPServer((address, int(port)), Proxy).serve_forever()
