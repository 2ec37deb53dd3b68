# SPDX-License-Identifier: Apache-2.0
"""Threads for what may take long: each does one thing after the other and reports to one queue."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple

__all__ = ["Event", "Line", "Runner", "follow_lines"]


class Event(NamedTuple):
    """What a thread reports: its name, the result or what was raised instead."""

    source: str
    result: Any = None
    error: Exception | None = None


Line = bytes | None
"""A line of the parent's, None when it went away."""


class Runner:
    """One thread that runs tasks in order; a daemon thread, for a call may never return."""

    def __init__(self, name: str, events: queue.SimpleQueue[Event]) -> None:
        self._name = name
        self._events = events
        self._tasks: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self._since: float | None = None
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def busy_s(self) -> float:
        """For how long the task that is under way has been, 0 where none is."""
        since = self._since
        return 0.0 if since is None else time.monotonic() - since

    @property
    def is_busy(self) -> bool:
        """Whether a task is under way or waits."""
        return self._since is not None

    def submit(self, task: Callable[[], Any]) -> None:
        """Have `task` run; its result comes as an event."""
        self._since = time.monotonic()
        self._tasks.put(task)

    def _run(self) -> None:
        while True:
            task = self._tasks.get()
            try:
                event = Event(self._name, task())
            except Exception as error:
                event = Event(self._name, None, error)
            self._since = None
            self._events.put(event)


def follow_lines(stream: BinaryIO, events: queue.SimpleQueue[Event]) -> None:
    """Report each line of a stream as an event "line", and its end as one without a line."""

    def run() -> None:
        for line in stream:
            events.put(Event("line", line))
        events.put(Event("line", None))

    threading.Thread(target=run, name="parent", daemon=True).start()
