# SPDX-License-Identifier: Apache-2.0
"""A small HTTP server on loopback that answers as a test tells it, and remembers questions."""

from __future__ import annotations

import http.server
import threading
from urllib.parse import parse_qs, urlsplit


class GridService:
    """`answers` maps a path (or "*") to (status, body), or to a function of the query."""

    def __init__(self, answers):
        self.answers = answers
        self.asked = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                parts = urlsplit(self.path)
                query = {key: values[0] for key, values in parse_qs(parts.query).items()}
                outer.asked.append((parts.path, query, dict(self.headers)))
                answer = outer.answers.get(parts.path, outer.answers.get("*", (404, b"")))
                status, body, *rest = answer(query) if callable(answer) else answer
                outer.reply(self, status, body, *rest)

            def log_message(self, *_args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.02}
        )
        self.thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    @staticmethod
    def reply(handler, status, body, headers=()):
        if body is None:  # never answers: the connection is dropped when the test ends
            handler.close_connection = True
            threading.Event().wait(2)
            return
        handler.send_response(status)
        for name, value in headers:
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
