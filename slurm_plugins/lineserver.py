# SPDX-License-Identifier: Apache-2.0
"""A unix-socket server of lines: one request line, one answer line, many clients, one thread."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import socket
from collections.abc import Callable
from pathlib import Path

from fairwatt.core.errors import PolicyError

__all__ = ["LineServer"]

_log = logging.getLogger(__name__)

MAX_LINE_BYTES = 1 << 20
MAX_CLIENTS = 64
CHUNK_BYTES = 1 << 16
MODE_UMASK = 0o117  # the socket is made 0660


class LineServer:
    """Listens from construction; `run` serves until `stop`.

    Args:
        path: the socket; a stale one is replaced.
        answer: a line without its end to the answer with its end; None hangs up.

    Raises:
        PolicyError: another server answers there, or the socket cannot be made.
    """

    def __init__(self, path: Path, answer: Callable[[bytes], bytes | None]) -> None:
        self.path = path
        self._answer = answer
        self._tasks: list[Callable[[], None]] = []
        self._stopping = False
        self._listener = _listening(path)
        self._inode = path.stat().st_ino
        self._selector = selectors.DefaultSelector()
        self._buffers: dict[socket.socket, bytearray] = {}
        self._wake_in, self._wake_out = socket.socketpair()
        for end in (self._wake_in, self._wake_out, self._listener):
            end.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._wake_out, selectors.EVENT_READ, self._woken)

    def stop(self) -> None:
        """End `run`; safe in a signal handler."""
        self._stopping = True
        self._wake()

    def call_soon(self, task: Callable[[], None]) -> None:
        """Run a task between two requests; safe in a signal handler."""
        self._tasks.append(task)
        self._wake()

    def run(self) -> None:
        """Serve until `stop`; call it in the main thread, which then wakes up for signals."""
        signal.set_wakeup_fd(self._wake_in.fileno(), warn_on_full_buffer=False)
        try:
            self.serve()
        finally:
            signal.set_wakeup_fd(-1)

    def serve(self) -> None:
        """Serve until `stop`, in any thread; signals do not wake it up."""
        while not self._stopping:
            for key, _ in self._selector.select():
                key.data(key.fileobj)
            while self._tasks:
                self._tasks.pop(0)()

    def close(self) -> None:
        """Close all connections and remove the socket, unless another server put its own there."""
        for client in list(self._buffers):
            self._drop(client)
        with contextlib.suppress(OSError):
            if self.path.stat().st_ino == self._inode:
                self.path.unlink()
        self._selector.close()
        for end in (self._listener, self._wake_in, self._wake_out):
            end.close()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_in.send(b"\0")

    def _woken(self, end: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            end.recv(CHUNK_BYTES)

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            client, _ = listener.accept()
            if len(self._buffers) >= MAX_CLIENTS:
                client.close()
                return
            client.setblocking(False)
            self._buffers[client] = bytearray()
            self._selector.register(client, selectors.EVENT_READ, self._read)

    def _read(self, client: socket.socket) -> None:
        try:
            chunk = client.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        buffer = self._buffers[client]
        buffer += chunk
        if not chunk or len(buffer) > MAX_LINE_BYTES:
            self._drop(client)
            return
        *lines, rest = buffer.split(b"\n")
        self._buffers[client] = rest
        for line in lines:
            if not self._reply(client, bytes(line)):
                self._drop(client)
                return

    def _reply(self, client: socket.socket, line: bytes) -> bool:
        """Answer one line; False when the client must go. A client that does not read goes too."""
        answer = self._answer(line)
        if answer is None:
            return False
        try:
            return client.send(answer) == len(answer)
        except OSError:
            return False

    def _drop(self, client: socket.socket) -> None:
        self._selector.unregister(client)
        del self._buffers[client]
        client.close()


def _listening(path: Path) -> socket.socket:
    if _someone_answers(path):
        raise PolicyError(
            "a server already answers there", place=str(path), remedy="stop the other policyd"
        )
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old_umask = os.umask(MODE_UMASK)
    try:
        if path.is_socket():
            path.unlink()
        listener.bind(str(path))
        listener.listen(MAX_CLIENTS)
    except OSError as error:
        listener.close()
        raise PolicyError(
            f"cannot listen: {error.strerror or error}",
            place=str(path),
            remedy="create its folder, or correct policyd.socket",
        ) from error
    finally:
        os.umask(old_umask)
    return listener


def _someone_answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True
