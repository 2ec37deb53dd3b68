# SPDX-License-Identifier: Apache-2.0
"""A unix-socket server of lines: one request line, one answer line, many clients, one thread."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

from fairwatt.core.errors import PolicyError

__all__ = ["LineServer"]

_log = logging.getLogger(__name__)

MAX_LINE_BYTES = 1 << 20
MAX_CLIENTS = 64
CHUNK_BYTES = 1 << 16
REPORTS_BYTES = 2048
"""So much is read of reports at a time: about twenty lines, a fifth of a millisecond."""
REPORTS_S = 0.05
"""How long reports gather; the kernel holds about 200 of a client's."""
LAST_CHUNKS = 8
"""More than the kernel holds of a client's lines at the end."""
MODE_UMASK = 0o117  # the socket is made 0660


class LineServer:
    """Listens from construction; `run` serves until `stop`.

    Between a request and its answer stand three system calls: epoll, recv, send. A client whose
    lines get no answer only reports: after the first of a number of lines it is read REPORTS_S
    later, so that a line a job wakes nobody for each.

    Args:
        path: the socket; a stale one is replaced.
        answer: a line without its end to the answer with its end; None hangs up, b"": none is
            sent.

    Raises:
        PolicyError: another server answers there, or the socket cannot be made.
    """

    def __init__(
        self,
        path: Path,
        answer: Callable[[bytes], bytes | None],
    ) -> None:
        self.path = path
        self._answer = answer
        self._tasks: list[Callable[[], None]] = []
        self._stopping = False
        self._listener = _listening(path)
        self._inode = path.stat().st_ino
        self._epoll = select.epoll()
        self._clients: dict[int, socket.socket] = {}
        self._begun: dict[int, bytes] = {}  # lines whose end has not come yet
        self._answered: set[socket.socket] = set()
        self._parting: set[socket.socket] = set()
        self._gathering: set[int] = set()  # clients that report; epoll does not watch them now
        self._gathered_at = 0.0
        self._wake_in, self._wake_out = socket.socketpair()
        for end in (self._wake_in, self._wake_out, self._listener):
            end.setblocking(False)
        self._epoll.register(self._listener, select.EPOLLIN)
        self._epoll.register(self._wake_out, select.EPOLLIN)

    def stop(self) -> None:
        """End `run`; safe in a signal handler."""
        self._stopping = True
        self._wake()

    def call_soon(self, task: Callable[[], None]) -> None:
        """Run a task between two requests; safe in a signal handler and from other threads."""
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
        poll, clients, listener = self._epoll.poll, self._clients, self._listener.fileno()
        while not self._stopping:
            for ready, _ in poll(self._rest_s()):
                client = clients.get(ready)
                if client is not None:
                    self._read(ready, client)
                elif ready == listener:
                    self._accept()
                else:
                    self._woken()
            if self._gathering:
                self._read_reports()
            while self._tasks:
                self._tasks.pop(0)()

    def part(self) -> None:
        """End the connections that brought an answer; what comes there from now on is not heard.

        A client that asks again in that moment sees the end, not a broken connection.
        Call it between two requests. A client that does not hang up then is dropped next time. One
        that waits for its first answer has nothing to forget and gets it.
        """
        for number, client in list(self._clients.items()):
            if client not in self._answered:
                continue
            if client in self._parting:
                self._drop(number)
                continue
            try:
                client.shutdown(socket.SHUT_WR)
            except OSError:
                self._drop(number)
            else:
                self._parting.add(client)

    def close(self) -> None:
        """Close all connections and remove the socket, unless another server put its own there.

        What clients have sent so far is taken, also of those not accepted yet. Before that those
        see the end that might report more as long as they do not.
        """
        if self._epoll.closed:
            return
        for client in list(self._answered):
            self._drop(client.fileno())
        for _ in range(MAX_CLIENTS):
            self._accept()
        for number in list(self._clients):
            self._read_last(number)
        for number in list(self._clients):
            self._drop(number)
        with contextlib.suppress(OSError):
            if self.path.stat().st_ino == self._inode:
                self.path.unlink()
        self._epoll.close()
        for end in (self._listener, self._wake_in, self._wake_out):
            end.close()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_in.send(b"\0")

    def _woken(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake_out.recv(CHUNK_BYTES)

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            client, _ = self._listener.accept()
            if len(self._clients) >= MAX_CLIENTS:
                client.close()
                return
            client.setblocking(False)
            self._clients[client.fileno()] = client
            self._epoll.register(client, select.EPOLLIN)

    # -- reports ---------------------------------------------------------------------------------

    def _rest_s(self) -> float | None:
        if not self._gathering:
            return None
        return max(0.0, self._gathered_at - time.monotonic())

    def _gather(self, number: int) -> None:
        """Do not look at a client that reports before some time has passed, unless it hangs up."""
        if number in self._gathering:
            return
        if not self._gathering:
            self._gathered_at = time.monotonic() + REPORTS_S
        self._gathering.add(number)
        self._epoll.modify(number, 0)

    def _read_reports(self) -> None:
        """Once the time has passed take a piece of each client's reports, requests in between."""
        now = time.monotonic()
        if now < self._gathered_at:
            return
        more = [self._read_report(number) for number in list(self._gathering)]
        if not any(more):
            self._gathered_at = now + REPORTS_S

    def _read_report(self, number: int) -> bool:
        """Whether there is more; a client that has nothing is watched again."""
        size = self._read(number, self._clients[number], REPORTS_BYTES)
        if size is None:
            self._gathering.discard(number)
            self._epoll.modify(number, select.EPOLLIN)
        return size == REPORTS_BYTES

    def _read_last(self, number: int) -> None:
        for _ in range(LAST_CHUNKS):
            client = self._clients.get(number)
            if client is None or self._read(number, client) is None:
                return

    # -- lines -----------------------------------------------------------------------------------

    def _read(self, number: int, client: socket.socket, size: int = CHUNK_BYTES) -> int | None:
        """Read once and reply; return the bytes read, None: nothing was there."""
        try:
            chunk = client.recv(size)
        except BlockingIOError:
            return None
        except OSError:
            chunk = b""
        if number not in self._begun and chunk.find(b"\n") == len(chunk) - 1 and chunk:
            if not self._reply(client, chunk[:-1]):  # the usual: one whole line
                self._drop(number)
        elif not chunk or not self._read_on(number, client, chunk):
            self._drop(number)
        return len(chunk)

    def _read_on(self, number: int, client: socket.socket, chunk: bytes) -> bool:
        """Take a piece of a line, or several lines; False when the client must go."""
        text = self._begun.pop(number, b"") + chunk
        if len(text) > MAX_LINE_BYTES:
            return False
        *lines, rest = text.split(b"\n")
        if rest:
            self._begun[number] = rest
        return all(self._reply(client, line) for line in lines)

    def _reply(self, client: socket.socket, line: bytes) -> bool:
        """Answer one line; False when the client must go. A client that does not read goes too."""
        if client in self._parting:
            return True
        answer = self._answer(line)
        if not answer:
            if answer is not None and client not in self._answered:
                self._gather(client.fileno())
            return answer is not None
        self._answered.add(client)
        try:
            return client.send(answer) == len(answer)
        except OSError:
            return False

    def _drop(self, number: int) -> None:
        client = self._clients.pop(number)
        self._answered.discard(client)
        self._parting.discard(client)
        self._begun.pop(number, None)
        self._gathering.discard(number)
        self._epoll.unregister(client)
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
