# SPDX-License-Identifier: Apache-2.0
"""Reads every window of every device in order and balances it: the ledger's first law.

Per window: Σ shares + unallocated + system = measured, in mJ, and no part is negative. Per device:
windows neither overlap nor leave a hole that nobody told of. It shares no code with what made the
windows, on purpose.
"""

from __future__ import annotations

import heapq
import itertools
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from typing import NamedTuple

from fairwatt.accounting.verify_fault import Fault, Findings, Span
from fairwatt.accounting.windows import WindowSources
from fairwatt.core.events import Flag

__all__ = ["Balance", "Part", "Window", "check_windows", "devices_of", "read_windows"]

TOLD_BY = int(Flag.GAP | Flag.RESET)
TOLD_SLACK_MS = 60_000
"""An agent that begins announces itself so soon before its first reading."""

RESTORE = "restore the newest backup that verifies, then let the nodes deliver what came since"
_BEFORE = "SELECT max(t0_ms) FROM window WHERE device_uuid = ? AND t0_ms < ?"
_WINDOWS = (
    "SELECT w.t0_ms, w.t1_ms, w.node, w.measured_mj, w.unallocated_idle_mj,"
    " w.unallocated_active_mj, w.system_mj, w.flags, s.node, s.job_id, s.run_start_ms,"
    " s.instance_uuid, s.idle_mj, s.active_mj"
    " FROM window w LEFT JOIN window_share s USING (device_uuid, t0_ms)"
    " WHERE w.device_uuid = ? AND w.t0_ms >= ? AND w.t0_ms < ? ORDER BY w.t0_ms"
)
_AGENT_BEGAN = (
    "SELECT 1 FROM event WHERE node = ? AND kind = 'agent_started'"
    " AND json_extract(body, '$.t_ms') BETWEEN ? AND ? LIMIT 1"
)
# One step a device, instead of one a window.
_DEVICES = (
    "WITH RECURSIVE d (u) AS (SELECT min(device_uuid) FROM window UNION ALL"
    " SELECT (SELECT min(device_uuid) FROM window WHERE device_uuid > u) FROM d"
    " WHERE u IS NOT NULL) SELECT u FROM d WHERE u IS NOT NULL"
)


class Part(NamedTuple):
    """One run's part of a window; the first three name the run on its node."""

    node: str
    job_id: int
    run_start_ms: int
    instance: str
    idle_mj: int
    active_mj: int


class Window(NamedTuple):
    """One window with all its parts, in mJ; None where the energy is unknown."""

    t0_ms: int
    t1_ms: int
    node: str
    measured_mj: int | None
    unallocated_idle_mj: int | None
    unallocated_active_mj: int | None
    system_mj: int | None
    flags: int
    parts: tuple[Part, ...]

    @property
    def owners(self) -> tuple[int, int, int]:
        """What runs, nobody and the system have of it, in mJ."""
        runs = sum(part.idle_mj + part.active_mj for part in self.parts)
        unallocated = (self.unallocated_idle_mj or 0) + (self.unallocated_active_mj or 0)
        return runs, unallocated, self.system_mj or 0


@dataclass
class Balance:
    """Sums over one device's windows in mJ; `unknown_ms` is time of unknown energy."""

    device: str
    kind: str = "gpu"
    node: str = ""
    windows: int = 0
    measured_mj: int = 0
    runs_mj: int = 0
    unallocated_idle_mj: int = 0
    unallocated_active_mj: int = 0
    system_mj: int = 0
    unknown_windows: int = 0
    unknown_ms: int = 0
    told_holes: int = 0

    @property
    def unallocated_mj(self) -> int:
        """What nobody held."""
        return self.unallocated_idle_mj + self.unallocated_active_mj


def devices_of(sources: WindowSources, span: Span) -> list[str]:
    """Return the devices that may have windows in the span."""
    connections = sources.over(span.from_ms, span.until_ms)
    return sorted({device for db in connections for (device,) in db.execute(_DEVICES)})


def read_windows(sources: WindowSources, device: str, span: Span) -> Iterator[Window]:
    """Yield a device's windows of the span in order, beginning with the last one before it."""
    streams = [_stream(db, device, span) for db in sources.over(span.from_ms, span.until_ms)]
    if len(streams) == 1:
        return streams[0]
    # A window may stand in the store and in its month's file, equal to the byte.
    merged = heapq.merge(*streams, key=itemgetter(0))
    return (window for window, _ in itertools.groupby(merged))


def check_windows(
    store: sqlite3.Connection,
    balance: Balance,
    windows: Iterable[Window],
    span: Span,
    found: Findings,
) -> Iterator[Window]:
    """Check each window and its seam to the one before, and pass it on.

    What begins in the span is added to `balance`; faults go to `found`.
    """
    before: Window | None = None
    for window in windows:
        found.rows += 1 + len(window.parts)
        if window.t0_ms >= span.from_ms:
            _check_one(balance.device, window, found)
            if before is not None and before.t1_ms != window.t0_ms:
                _check_seam(store, balance, before, window, found)
            _add(balance, window)
        before = window
        yield window


def _stream(db: sqlite3.Connection, device: str, span: Span) -> Iterator[Window]:
    (before_ms,) = db.execute(_BEFORE, (device, span.from_ms)).fetchone()
    first_ms = span.from_ms if before_ms is None else before_ms
    rows = db.execute(_WINDOWS, (device, first_ms, span.until_ms))
    for _, group in itertools.groupby(rows, itemgetter(0)):
        head, *rest = group
        parts = () if head[8] is None else tuple(Part._make(row[8:]) for row in (head, *rest))
        yield Window._make((*head[:8], parts))


def _check_one(device: str, window: Window, found: Findings) -> None:
    runs, unallocated, system = window.owners
    amounts = window[4:7]
    if window.measured_mj is None:
        if window.parts or amounts[:2] != (None, None) or system:
            _fault(found, device, window, "parts of unknown energy", None, runs + unallocated)
        return
    total = runs + unallocated + system
    if total != window.measured_mj or None in amounts[:2]:
        _fault(found, device, window, "shares + unallocated + system", window.measured_mj, total)
    parts = [amount for part in window.parts for amount in part[4:]]
    smallest = min([amount for amount in amounts if amount is not None] + parts, default=0)
    if smallest < 0:
        _fault(found, device, window, "smallest part, at least", 0, smallest)
    if window.t1_ms <= window.t0_ms:
        _fault(found, device, window, "end in ms, later than", window.t0_ms, window.t1_ms)


def _check_seam(
    store: sqlite3.Connection, balance: Balance, before: Window, window: Window, found: Findings
) -> None:
    if before.t1_ms > window.t0_ms:
        _fault(
            found, balance.device, window, "overlaps the one before: begin in ms, at least",
            before.t1_ms, window.t0_ms,
        )  # fmt: skip
        return
    until_ms = window.t0_ms + TOLD_SLACK_MS
    told = (
        window.flags & TOLD_BY
        or store.execute(_AGENT_BEGAN, (window.node, before.t1_ms, until_ms)).fetchone()
    )
    if told:
        balance.told_holes += 1
        return
    _fault(
        found, balance.device, window, "hole before it that nobody told of: begin in ms",
        before.t1_ms, window.t0_ms, _lost_remedy(window.node),
    )  # fmt: skip


def _lost_remedy(node: str) -> str:
    return (
        f"events of {node} were lost or refused: see the collector's log of that time and "
        "agent.spool_dir/refused on the node; post what is there"
    )


def _add(balance: Balance, window: Window) -> None:
    balance.windows += 1
    balance.node = window.node
    if window.measured_mj is None:
        balance.unknown_windows += 1
        balance.unknown_ms += window.t1_ms - window.t0_ms
        return
    runs, _, system = window.owners
    balance.measured_mj += window.measured_mj
    balance.runs_mj += runs
    balance.unallocated_idle_mj += window.unallocated_idle_mj or 0
    balance.unallocated_active_mj += window.unallocated_active_mj or 0
    balance.system_mj += system


def _fault(
    found: Findings,
    device: str,
    window: Window,
    what: str,
    expected: int | None,
    is_there: int,
    remedy: str = RESTORE,
) -> None:
    at = datetime.fromtimestamp(window.t0_ms / 1000, UTC)
    where = f"window {window.t0_ms} ({at:%Y-%m-%d %H:%M:%S} UTC)"
    found.add(Fault(device, where, what, expected, is_there, remedy))
