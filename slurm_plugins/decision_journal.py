# SPDX-License-Identifier: Apache-2.0
"""Keeps every decision without slurmctld waiting for it: queue, disk, collector.

The answering thread hands over references. One thread writes them, on disk four times a second;
another delivers. After a kill at most the last second is missing; a collector that is away is
waited for.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from fairwatt.core import munge
from fairwatt.core.config import Config
from fairwatt.core.delivery import Delivery
from fairwatt.core.errors import SpoolError
from fairwatt.core.events import encode_event
from fairwatt.core.post import Answer, post_events
from fairwatt.slurm_plugins.decision_event import Origin, decision_event
from fairwatt.slurm_plugins.decision_spool import DecisionSpool
from fairwatt.slurm_plugins.engine import Decision
from fairwatt.slurm_plugins.wire import Query

__all__ = ["DecisionJournal", "journal_of"]

WRITE_S = 0.25
"""How often the queue is put on disk."""
SHIP_S = 2.0
"""How long decisions are gathered for one delivery."""
REPORT_S = 60.0
YIELD_EVERY = 16
"""So many decisions are encoded in a tenth of a millisecond; giving way costs as much as one."""
QUEUE_LENGTH = 20_000
SEGMENT_BYTES = 1 << 20
STOP_S = 3.0

_log = logging.getLogger(__name__)
_Item = tuple[int, Query, Decision, int]


class DecisionJournal:
    """Takes decisions by `offer`; a full queue drops and counts them.

    Args:
        folder: where they are kept until they are delivered.
        max_bytes: the most they may take there.
        origin: stamps the events; no two journals may have the same.
        send: delivers a body.

    """

    def __init__(
        self, folder: Path, max_bytes: int, origin: Origin, send: Callable[[bytes], Answer]
    ) -> None:
        self._refused = 0
        self._unencodable = 0
        self._folder = folder
        self._max_bytes = max_bytes
        self._origin = origin
        self._send = send
        self._queue: deque[_Item] = deque()
        self._seq = 0
        self._unwritten: list[bytes] = []
        self._spool: DecisionSpool | None = None
        self._turned = time.monotonic()
        self._fault = ""
        self._reported = (0, -REPORT_S)
        self._news = threading.Event()
        self._ending = threading.Event()
        self._threads = [
            threading.Thread(target=target, name=name, daemon=True)
            for target, name in ((self._write, "decisions"), (self._deliver, "delivery"))
        ]

    @property
    def dropped(self) -> int:
        """How many decisions were not recorded since the start."""
        return self._refused + self._unencodable

    def offer(self, query: Query, decision: Decision, took_us: int) -> None:
        """Take one decision; never waits and never raises."""
        if len(self._queue) >= QUEUE_LENGTH:
            self._refused += 1
        else:
            self._queue.append((time.time_ns(), query, decision, took_us))

    def start(self) -> None:
        """Begin to write and to deliver what was left before."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Put on disk what was offered; what is not delivered then stays for the next start."""
        self._ending.set()
        self._news.set()
        deadline = time.monotonic() + STOP_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if self._spool is not None:
            self._spool.close()

    # -- to the disk -----------------------------------------------------------------------------

    def _write(self) -> None:
        while not self._ending.wait(WRITE_S):
            self._write_once()
        self._write_once()

    def _write_once(self) -> None:
        """A fault leaves all in memory for the next second."""
        try:
            if self._spool is None:
                self._spool = DecisionSpool(self._folder, self._max_bytes)
                self._news.set()
            if not self._unwritten:
                self._unwritten = self._encoded()
            self._spool.append(self._unwritten)
            self._unwritten = []
            self._turn(self._spool)
            self._fault = ""
        except (OSError, SpoolError) as error:
            self._fault = str(error)
        self._report()

    def _encoded(self) -> list[bytes]:
        events: list[bytes] = []
        for _ in range(len(self._queue)):
            t_ns, query, decision, took_us = self._queue.popleft()
            self._seq += 1
            t_ms = t_ns // 1_000_000
            try:
                event = decision_event(self._origin, self._seq, t_ms, query, decision, took_us)
                events.append(encode_event(event))
            except Exception:
                # This thread must outlive any surprise: the others' decisions are kept.
                _log.exception("a decision cannot be recorded")
                self._unencodable += 1
            if self._seq % YIELD_EVERY == 0:
                time.sleep(0)  # lets the answering thread go first
        return events

    def _turn(self, spool: DecisionSpool) -> None:
        """While the collector is away one segment is filled, so that there are not too many."""
        now = time.monotonic()
        if not spool.open_bytes:
            self._turned = now
        elif spool.open_bytes > SEGMENT_BYTES or (
            now - self._turned >= SHIP_S and not spool.waiting
        ):
            spool.turn()
            self._turned = now
            self._news.set()

    def _report(self) -> None:
        """Say once a minute what is not recorded, or not now."""
        count, last = self._reported
        dropped, now = self.dropped, time.monotonic()
        if now - last < REPORT_S or (dropped == count and not self._fault):
            return
        self._reported = (dropped, now)
        _log.warning(
            "%d decisions were not recorded, %d wait in memory: %s; jobs go on",
            dropped - count,
            len(self._unwritten) + len(self._queue),
            self._fault or "there were more of them than can be written",
        )

    # -- to the collector ------------------------------------------------------------------------

    def _deliver(self) -> None:
        delivery: Delivery | None = None
        wait_s: float | None = None
        while not self._ending.is_set():
            if wait_s is None:
                self._news.wait()
                self._news.clear()
            else:
                self._ending.wait(wait_s)
            if delivery is None and self._spool is not None:
                delivery = Delivery(self._spool, self._folder / "refused")
            if delivery is not None:
                wait_s = self._deliver_once(delivery)

    def _deliver_once(self, delivery: Delivery) -> float | None:
        """Send one batch; return after how many seconds to go on, None: with the next news."""
        try:
            batch = delivery.next_batch()
            if batch is None or self._ending.is_set():
                return None
            return delivery.answered(batch, self._send(batch.body))
        except OSError as error:
            _log.warning("%s: %s", self._folder, error)
            return REPORT_S


def journal_of(config: Config) -> DecisionJournal | None:
    """Return the journal that the settings want, not yet started; None: no folder is set."""
    folder = config["policyd.journal_dir"]
    if not folder:
        return None
    url, munge_socket = config["agent.collector_url"], config["site.munge_socket"]
    host = socket.gethostname().split(".", 1)[0]
    # A number of its own for each start: what a crash left unsynced cannot be meant again.
    origin = Origin(host, f"policyd-{os.urandom(8).hex()}", config["site.cluster"])

    def send(body: bytes) -> Answer:
        return post_events(url, body, lambda digest: munge.encode(digest, munge_socket))

    return DecisionJournal(Path(folder), config["policyd.journal_max_mib"] << 20, origin, send)
