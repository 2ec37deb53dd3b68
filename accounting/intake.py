# SPDX-License-Identifier: Apache-2.0
"""The collector's inbox: how much may wait, and bodies that wait together written together.

A commit costs more than a body of a node, so whoever gets the store writes for all that wait, each
body whole or not at all. What is beyond the bounds is told to come again later, one after the
other: so a thousand nodes that come back at once are taken in turn.
"""

from __future__ import annotations

import math
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from zoneinfo import ZoneInfo

from sqlite_utils import Database

from fairwatt.accounting.ingest import ingest_body
from fairwatt.accounting.store import transaction
from fairwatt.core.errors import (
    AuthError,
    BalanceError,
    BusyError,
    FairwattError,
    IngestError,
)
from fairwatt.core.events import Event, WindowClosed

__all__ = ["Counts", "Inbox", "Waiting"]

GROUP_EVENTS = 20_000
"""So many events at most are written in one transaction, or one body."""

LONGEST_RETRY_S = 60
SMOOTHING = 0.1
MOST_NODES = 20_000
_WHY = ("body", "balance", "sender", "fault")


@dataclass
class Counts:
    """What the inbox has done since it was made."""

    bodies: int = 0
    events: int = 0
    duplicates: int = 0
    busy: int = 0
    last_ts: int = 0
    newest_ms: int = 0
    largest_bytes: int = 0
    refused: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_WHY, 0))
    heard_ts: dict[str, int] = field(default_factory=dict)
    """When each node delivered last; of at most MOST_NODES."""

    def refuse(self, error: Exception) -> None:
        """Count a body that was not taken."""
        why = "fault"
        if isinstance(error, AuthError):
            why = "sender"
        elif isinstance(error, BalanceError):
            why = "balance"
        elif isinstance(error, IngestError):
            why = "body"
        self.refused[why] += 1

    def hear(self, events: Sequence[Event]) -> None:
        """Note who delivered, and until when it measured."""
        measured = [event for event in events if isinstance(event, WindowClosed)]
        if measured:
            self.newest_ms = max(self.newest_ms, max(event.t1_ms for event in measured))
            node = measured[0].node
            if node in self.heard_ts or len(self.heard_ts) < MOST_NODES:
                self.heard_ts[node] = self.last_ts


@dataclass(eq=False)
class Waiting:
    """A body that waits to be written; `result` is (new, known) events or an error."""

    events: Sequence[Event]
    users: Mapping[int, str]
    result: tuple[int, int] | FairwattError | None = None


_Result = tuple[int, int] | FairwattError


class Inbox:
    """Takes bodies into the store; safe to use from many threads.

    Args:
        db: the store, used by whoever holds `lock`.
        lock: held while the store is written.
        zone: the site's.
        max_bodies: so many may be worked on at once, and so many bytes:
        max_bytes: of all bodies that are being worked on; a single one may be larger.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        db: Database,
        lock: AbstractContextManager[object],
        zone: ZoneInfo,
        *,
        max_bodies: int,
        max_bytes: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # A node forgets what it is told is here, so it has to be on disk. Without this a power cut
        # takes back all commits since the last checkpoint: hours of them on a small site.
        db.execute("PRAGMA synchronous = FULL")
        # Pages that one delivery after the other touches are copied once per 250 MiB of log, and
        # stay in memory: 1,000 nodes touch half of that every five minutes.
        db.execute("PRAGMA wal_autocheckpoint = 64000")
        db.execute("PRAGMA cache_size = -131072")
        # What undoes a statement or a body would be written to a file, page by page.
        db.execute("PRAGMA temp_store = MEMORY")
        self.counts = Counts()
        self._db = db
        self._lock = lock
        self._zone = zone
        self._max_bodies = max_bodies
        self._max_bytes = max_bytes
        self._clock = clock
        self._guard = threading.Lock()
        self._bodies = 0
        self._bytes = 0
        self._queue: deque[Waiting] = deque()
        self._body_s = 0.01
        self._next_free = 0.0

    @property
    def load(self) -> tuple[int, int]:
        """How many bodies are being worked on, and their bytes."""
        return self._bodies, self._bytes

    @contextmanager
    def room(self, size: int) -> Iterator[None]:
        """Keep room for a body of `size` bytes, from before it is read until it is answered.

        Raises:
            BusyError: there is none; `retry_after_s` says when there should be.
        """
        with self._guard:
            full = self._bodies >= self._max_bodies or self._bytes + size > self._max_bytes
            if full and self._bodies:
                raise self._busy()
            self._bodies += 1
            self._bytes += size
            self.counts.largest_bytes = max(self.counts.largest_bytes, self._bytes)
        try:
            yield
        finally:
            with self._guard:
                self._bodies -= 1
                self._bytes -= size

    def take(self, events: Sequence[Event], users: Mapping[int, str]) -> tuple[int, int]:
        """Write a body with all others that wait; return how many events were new and known.

        Raises:
            IngestError: an event contradicts itself or the store; nothing of this body is kept.
            StoreError: the store cannot be written now.
        """
        return self.finish(self.put(events, users))

    def put(self, events: Sequence[Event], users: Mapping[int, str]) -> Waiting:
        """Let a body wait until `finish`, of this one or of another."""
        waiting = Waiting(events, users)
        self._queue.append(waiting)
        return waiting

    def finish(self, waiting: Waiting) -> tuple[int, int]:
        """Return what became of a body; see `take`."""
        while waiting.result is None:
            with self._lock:
                if waiting.result is None:
                    self._write_group()
        if isinstance(waiting.result, FairwattError):
            raise waiting.result
        return waiting.result

    def _write_group(self) -> None:
        """Write bodies that wait, oldest first; the lock is held."""
        began = self._clock()
        group = self._next_group()
        try:
            results = self._write_all(group)
        except BaseException as error:
            # All of them are asked to come again: nothing was written.
            fault = error if isinstance(error, FairwattError) else _broken(error)
            for one in group:
                one.result = fault
            if not isinstance(error, Exception):
                raise
            return
        for one, result in zip(group, results, strict=True):
            one.result = result
        self._count(group, self._clock() - began)

    def _next_group(self) -> list[Waiting]:
        group = [self._queue.popleft()]
        size = len(group[0].events)
        while self._queue and size + len(self._queue[0].events) <= GROUP_EVENTS:
            group.append(self._queue.popleft())
            size += len(group[-1].events)
        return group

    def _write_all(self, group: Sequence[Waiting]) -> list[_Result]:
        """Write all as one; if a body cannot be taken, once more so that it alone is undone."""
        try:
            with transaction(self._db) as connection:
                return [
                    ingest_body(connection, one.events, one.users, self._zone) for one in group
                ]
        except Exception as error:
            if isinstance(error.__cause__, sqlite3.OperationalError):
                raise
        # SQLite copies each page before a savepoint's first change: twice what the log takes.
        with transaction(self._db) as connection:
            return [self._write(connection, one) for one in group]

    def _write(self, connection: sqlite3.Connection, one: Waiting) -> _Result:
        connection.execute("SAVEPOINT body")
        try:
            result: _Result = ingest_body(connection, one.events, one.users, self._zone)
        except sqlite3.OperationalError:
            raise
        except Exception as error:
            # One that we cannot digest must not keep out those beside it.
            connection.execute("ROLLBACK TO body")
            result = error if isinstance(error, FairwattError) else _broken(error)
        connection.execute("RELEASE body")
        return result

    def _count(self, group: Sequence[Waiting], took_s: float) -> None:
        counts = self.counts
        with self._guard:
            self._body_s += SMOOTHING * (took_s / len(group) - self._body_s)
            counts.last_ts = int(time.time())
            for one in group:
                if isinstance(one.result, tuple):
                    counts.bodies += 1
                    counts.events += one.result[0]
                    counts.duplicates += one.result[1]
                    counts.hear(one.events)

    def _busy(self) -> BusyError:
        """Each that is sent away is given the next time at which one can be taken."""
        self.counts.busy += 1
        now = self._clock()
        self._next_free = max(self._next_free, now + self._bodies * self._body_s) + self._body_s
        self._next_free = min(self._next_free, now + LONGEST_RETRY_S)
        error = BusyError(
            "more bodies wait than this collector keeps",
            place="POST /v1/events",
            value=self._bodies,
            remedy="nothing: it is sent again later",
        )
        error.retry_after_s = max(1, math.ceil(self._next_free - now))
        return error


def _broken(error: BaseException) -> FairwattError:
    fault = FairwattError(f"a fault of ours: {type(error).__name__}: {error}", place="store")
    fault.__cause__ = error
    return fault
