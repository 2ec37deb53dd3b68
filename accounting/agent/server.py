# SPDX-License-Identifier: Apache-2.0
"""The agent's unix socket: one JSON line in, one out, from root or the agent's own user only."""

from __future__ import annotations

import logging
import os
import selectors
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["HookServer", "Reply"]

LONGEST_LINE = 65_536
IDLE_S = 2.0
_log = logging.getLogger(__name__)

Reply = Callable[[bytes], None]
"""Sends one answer line and closes the connection; a second call does nothing."""


class HookServer:
    """Listens at `path` (mode 0600) and hands complete lines to `handle(line, reply)`.

    Raises:
        OSError: the socket cannot be made.
    """

    def __init__(
        self,
        path: Path,
        selector: selectors.BaseSelector,
        handle: Callable[[bytes, Reply], None],
    ) -> None:
        self._path = path
        self._selector = selector
        self._handle = handle
        self._waiting: dict[socket.socket, tuple[bytearray, float]] = {}
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        # No chmod afterwards: between bind and chmod anybody could connect.
        before = os.umask(0o177)
        try:
            self._socket.bind(str(path))
        finally:
            os.umask(before)
        self._socket.listen(128)
        selector.register(self._socket, selectors.EVENT_READ, self._accept)

    def close(self) -> None:
        """Stop listening and remove the socket."""
        for peer in list(self._waiting):
            self._drop(peer)
        self._selector.unregister(self._socket)
        self._socket.close()
        self._path.unlink(missing_ok=True)

    def drop_idle(self) -> None:
        """Close connections that have said nothing for a while."""
        limit = time.monotonic() - IDLE_S
        for peer in [peer for peer, (_, since) in self._waiting.items() if since < limit]:
            self._drop(peer)

    def _accept(self) -> None:
        try:
            peer, _ = self._socket.accept()
        except OSError:
            return
        if not _is_allowed(peer):
            peer.close()
            return
        peer.setblocking(False)
        self._waiting[peer] = (bytearray(), time.monotonic())
        self._selector.register(peer, selectors.EVENT_READ, lambda: self._read(peer))

    def _read(self, peer: socket.socket) -> None:
        buffer = self._waiting[peer][0]
        try:
            part = peer.recv(LONGEST_LINE)
        except OSError:
            part = b""
        buffer += part
        line, newline, _ = bytes(buffer).partition(b"\n")
        if newline:
            self._selector.unregister(peer)
            del self._waiting[peer]
            self._handle(line, _reply_to(peer))
        elif not part or len(buffer) > LONGEST_LINE:
            self._drop(peer)

    def _drop(self, peer: socket.socket) -> None:
        self._selector.unregister(peer)
        del self._waiting[peer]
        peer.close()


def _is_allowed(peer: socket.socket) -> bool:
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    if uid in (0, os.geteuid()):
        return True
    _log.warning("refused a connection of uid %d; only root and uid %d may", uid, os.geteuid())
    return False


def _reply_to(peer: socket.socket) -> Reply:
    def reply(line: bytes) -> None:
        try:
            peer.send(line)
        except OSError as error:
            _log.debug("the hook did not wait for its answer: %s", error)
        finally:
            peer.close()

    return reply
