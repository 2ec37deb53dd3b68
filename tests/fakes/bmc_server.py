# SPDX-License-Identifier: Apache-2.0
"""A BMC of one's own: an HTTP or HTTPS server whose every answer is written down as bytes."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

__all__ = ["BmcServer", "bmc_server", "collection", "page"]

Sender = Callable[[socket.socket], None]


def page(content: object, status: str = "200 OK") -> bytes:
    """Return a whole answer with a JSON body; bytes go as they are."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


def collection(*names: str) -> bytes:
    """Return the collection of chassis with these ids."""
    return page({"Members": [{"@odata.id": f"/redfish/v1/Chassis/{name}"} for name in names]})


class BmcServer:
    """Answers `pages[path]`, bytes or what sends them itself; what is not there is 404."""

    def __init__(self, listener: socket.socket, tls: ssl.SSLContext | None) -> None:
        self.pages: dict[str, bytes | Sender] = {}
        self.asked: list[str] = []
        self.headers: list[str] = []
        self.done = threading.Event()
        self._listener = listener
        self._tls = tls

    @property
    def url(self) -> str:
        host, port = self._listener.getsockname()[:2]
        return f"{'https' if self._tls else 'http'}://{host}:{port}"

    def serve(self) -> None:
        while not self.done.is_set():
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            with peer, suppress(OSError):
                self._answer(self._tls.wrap_socket(peer, server_side=True) if self._tls else peer)

    def _answer(self, peer: socket.socket) -> None:
        with peer:
            request = b""
            while not request.endswith(b"\r\n\r\n"):
                part = peer.recv(4096)
                if not part:
                    return
                request += part
            head = request.decode("ascii")
            path = head.split(" ")[1]
            self.asked.append(path)
            self.headers.append(head)
            answer = self.pages.get(path, page({}, "404 Not Found"))
            if callable(answer):
                answer(peer)
            else:
                peer.sendall(answer)


@contextmanager
def bmc_server(tls: ssl.SSLContext | None = None) -> Iterator[BmcServer]:
    """Run a server on a free port of loopback, in a thread that has ended afterwards."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = BmcServer(listener, tls)
        thread = threading.Thread(target=server.serve)
        thread.start()
        try:
            yield server
        finally:
            server.done.set()
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)
