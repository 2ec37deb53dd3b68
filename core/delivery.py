# SPDX-License-Identifier: Apache-2.0
"""What to send next, and what an answer means: delivered, try again later, or set aside."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fairwatt.core.files import write_atomically
from fairwatt.core.post import Answer

__all__ = ["Batch", "Delivery", "Outbox"]

MAX_BYTES = 1 << 20
MAX_EVENTS = 20_000
LONGEST_DELAY_S = 60.0
LONGEST_ASKED_S = 600.0
"""A collector that asks for more patience than this is not believed."""

_REFUSED = (400, 413)
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Batch:
    """Undelivered events as JSON lines, in order; `last_seq` is what to confirm."""

    body: bytes
    count: int
    first_seq: int
    last_seq: int


class Outbox(Protocol):
    """What is to be delivered, in an order that its numbers tell."""

    def pending(self, max_bytes: int, max_events: int) -> Batch | None:
        """Return the oldest undelivered events on disk, at least one, or None."""
        ...

    def confirm(self, seq: int) -> None:
        """Forget the events up to `seq`: the collector has them."""
        ...


class Delivery:
    """Delivers a journal's events in order; an event leaves the journal only after a 200.

    An event that the collector refuses as such (400, 413) is found by halving the batch and set
    aside in `refused`, so that it never blocks the rest.
    """

    def __init__(
        self,
        journal: Outbox,
        refused: Path,
        *,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._journal = journal
        self._refused = refused
        self._jitter = jitter
        self._failures = 0
        self._limit = MAX_EVENTS
        self.last_ts = 0.0
        """When the collector last took events, UTC epoch seconds; 0: not since the start."""

    @property
    def healthy(self) -> bool:
        """Whether the last delivery, if any, went well."""
        return self._failures == 0

    def next_batch(self) -> Batch | None:
        """Return what to send now, None if all is delivered."""
        return self._journal.pending(MAX_BYTES, self._limit)

    def answered(self, batch: Batch, answer: Answer) -> float | None:
        """Act on the collector's answer; return after how many seconds to send again.

        None: nothing more to do until there are new events.
        """
        if answer.status == 200:
            return self._accepted(batch)
        if answer.status in _REFUSED:
            return self._refuse(batch, answer)
        return self._failed(answer)

    def _accepted(self, batch: Batch) -> float | None:
        if self._failures:
            _log.warning("the collector takes events again")
        self._failures = 0
        self.last_ts = time.time()
        self._limit = min(MAX_EVENTS, 2 * self._limit)
        self._journal.confirm(batch.last_seq)
        return 0.0 if self.next_batch() else None

    def _refuse(self, batch: Batch, answer: Answer) -> float | None:
        if batch.count > 1:
            self._limit = max(1, batch.count // 2)
            return 0.0
        aside = self._refused / f"{batch.first_seq}.ndjson"
        try:
            self._refused.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(aside, batch.body)
        except OSError as error:
            return self._failed(Answer(0, f"{aside}: {error.strerror}"))
        _log.error(
            "the collector refused an event (%d: %s); kept in %s; report it, "
            "and post it again after an update",
            answer.status,
            answer.text[:200].strip(),
            aside,
        )
        return self._accepted(batch)

    def _failed(self, answer: Answer) -> float:
        """Wait as long as is asked for, or ever longer; never all nodes equally long."""
        if self._failures == 0:
            _log.warning(
                "events are kept and sent later: the collector's answer was %s",
                f"{answer.status}: {answer.text[:200].strip()}" if answer.status else answer.text,
            )
        self._failures += 1
        if answer.retry_after_s is not None:
            return min(LONGEST_ASKED_S, answer.retry_after_s) * (1.0 + 0.5 * self._jitter())
        longest = min(LONGEST_DELAY_S, 2.0 ** min(self._failures, 10))
        return longest * (0.5 + 0.5 * self._jitter())
