# SPDX-License-Identifier: Apache-2.0
"""A gunicorn worker with threads that no slow client can keep for ever."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any

from gunicorn.workers.gthread import ThreadWorker

__all__ = ["REQUEST_S", "ImpatientWorker"]

REQUEST_S = 10.0
"""How long a client may take to send one whole request; an agent sends 1 MiB at most."""


class ImpatientWorker(ThreadWorker):  # type: ignore[misc]
    """Threads that stop reading from a client after REQUEST_S; the answer may take longer.

    gunicorn's own time limit watches the worker, not a connection: a few clients that send a
    header a minute, or a body that never ends, would hold all its threads.
    """

    def handle(self, conn: Any) -> Any:  # noqa: ANN401 - gunicorn's own types
        """Serve one request of a connection."""
        limit = threading.Timer(REQUEST_S, _stop_reading, (conn.sock,))
        limit.daemon = True
        limit.start()
        try:
            return super().handle(conn)
        finally:
            limit.cancel()


def _stop_reading(sock: socket.socket) -> None:
    """The thread that waits for more reads an end of the stream."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RD)
