# SPDX-License-Identifier: Apache-2.0
"""One thread for slow outside calls, so that the daemon's loop never waits for them."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["Worker"]

_log = logging.getLogger(__name__)
_Task = tuple[Callable[[], Any], Callable[[Any], None]]


class Worker:
    """Runs tasks in order in its thread; their results are handled in the loop's thread.

    `fileno` becomes readable when `deliver` has something to do. The thread is a daemon thread:
    a call into a hung driver must not keep the agent from ending.
    """

    def __init__(self, name: str) -> None:
        self._tasks: queue.SimpleQueue[_Task] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[tuple[Callable[[Any], None], Any]] = queue.SimpleQueue()
        self._outstanding = 0
        self._read_end, self._write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def outstanding(self) -> int:
        """How many tasks have not been delivered yet."""
        return self._outstanding

    def fileno(self) -> int:
        """Return the descriptor to select on."""
        return self._read_end

    def submit(self, task: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Queue `task`; `done` gets its result. A task that raises is logged and has no result."""
        self._outstanding += 1
        self._tasks.put((task, done))

    def wake(self) -> None:
        """Make `fileno` readable, from any thread or a signal handler."""
        with contextlib.suppress(BlockingIOError):  # the pipe is full of wake-ups already
            os.write(self._write_end, b"x")

    def deliver(self) -> None:
        """Handle the results that are there; call from the loop's thread."""
        try:
            os.read(self._read_end, 4096)
        except BlockingIOError:
            return
        while not self._results.empty():
            done, result = self._results.get()
            self._outstanding -= 1
            if not isinstance(result, _Failed):
                done(result)

    def _run(self) -> None:
        while True:
            task, done = self._tasks.get()
            try:
                result = task()
            except Exception:
                _log.exception("%s failed", threading.current_thread().name)
                result = _Failed()
            self._results.put((done, result))
            self.wake()


class _Failed:
    """Stands for the result of a task that raised."""
