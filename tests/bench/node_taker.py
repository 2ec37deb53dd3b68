# SPDX-License-Identifier: Apache-2.0
"""Takes the place of the collector, which at a site runs on another host than the nodes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["taker"]


@contextmanager
def taker() -> Iterator[str]:
    """A server that takes all events; yields its URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Taker) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class _Taker(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        left = int(self.headers["Content-Length"])
        while left:
            left -= len(self.rfile.read(min(left, 65_536)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_args: Any) -> None:
        """Say nothing."""
