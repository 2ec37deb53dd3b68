# SPDX-License-Identifier: Apache-2.0
"""Adds windows up by local day and owner, to be compared with what the rollups say of the day."""

from __future__ import annotations

import functools
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Literal
from zoneinfo import ZoneInfo

from fairwatt.accounting.days import cut, day_of, hour_pieces
from fairwatt.accounting.run_rows import SEED_BIT
from fairwatt.accounting.verify_fault import Fault, Findings, Span
from fairwatt.accounting.verify_windows import Window

__all__ = [
    "DaySums",
    "Days",
    "Owners",
    "check_days",
    "hours_of",
    "mark",
    "portion",
    "waiting_days",
]

QUARTER_MS = 900_000
"""No zone's hours begin elsewhere than at a quarter of a UTC hour."""
KNOWN_RUNS = 65_536

ROLL_UP = "run `fairwatt sync --once`; if it stays, restore the newest backup that verifies"

_OWNER = (
    "SELECT r.run_id IS NOT NULL, EXISTS (SELECT 1 FROM unsettled u WHERE u.node = r.node"
    " AND u.job_id = r.job_id AND u.start_ms = r.start_ms)"
    " FROM node_run r WHERE r.node = ? AND r.job_id = ? AND r.start_ms = ?"
)


@dataclass
class DaySums:
    """What one kind of device used on one local day, in mJ by owner.

    `unjoined_mj` belongs to runs on nodes of which Slurm has not told. `marks` is a checksum over
    devices and hours: energy moved between two of them changes it, though no sum.
    """

    run_idle_mj: int = 0
    run_active_mj: int = 0
    unallocated_idle_mj: int = 0
    unallocated_active_mj: int = 0
    system_mj: int = 0
    unjoined_mj: int = 0
    marks: int = 0

    @property
    def total_mj(self) -> int:
        """All owners' energy."""
        return sum(getattr(self, name) for name in _OWNED)

    def add(self, other: DaySums) -> None:
        """Add another day's sums."""
        for name in (*_OWNED, "marks"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


_OWNED = tuple(item.name for item in fields(DaySums) if item.name != "marks")


class Owners:
    """Says of a run on a node whether Slurm knows it; remembers a bounded number of them."""

    def __init__(self, store: sqlite3.Connection) -> None:
        self._store = store
        self.of = functools.lru_cache(KNOWN_RUNS)(self._of)

    def _of(self, node: str, job_id: int, start_ms: int) -> Literal["run", "unjoined", "waiting"]:
        row = self._store.execute(_OWNER, (node, job_id, start_ms)).fetchone()
        if row is None:
            return "unjoined"
        joined, waits = row
        return "waiting" if waits else "run" if joined else "unjoined"


class Days:
    """Sums of windows by day and kind of device; `waiting` are days with unsettled runs."""

    def __init__(self, zone: ZoneInfo, span: Span, owners: Owners) -> None:
        self.sums: dict[tuple[str, str], DaySums] = {}
        self.waiting: set[str] = set()
        self._zone = zone
        self._span = span
        self._owners = owners

    def add(self, device: str, kind: str, window: Window) -> None:
        """Add a window; one of unknown energy adds nothing."""
        if window.measured_mj is None:
            return
        for hour_ts, day, a_ms, b_ms in hours_of(window.t0_ms, window.t1_ms, self._zone):
            if self._span.first <= day <= self._span.last:
                sums = self.sums.get((day, kind))
                if sums is None:
                    sums = self.sums[day, kind] = DaySums()
                self._add_piece(sums, device, window, hour_ts, day, a_ms, b_ms)

    def _add_piece(
        self, sums: DaySums, device: str, window: Window, hour_ts: int, day: str, a: int, b: int
    ) -> None:
        t0, t1 = window.t0_ms, window.t1_ms
        measured, idle, active, system = (
            portion(amount or 0, t0, t1, a, b) for amount in window[3:7]
        )
        sums.unallocated_idle_mj += idle
        sums.unallocated_active_mj += active
        sums.system_mj += system
        sums.marks += mark(device, hour_ts, measured, idle, active, system)
        for part in window.parts:
            idle = portion(part.idle_mj, t0, t1, a, b)
            active = portion(part.active_mj, t0, t1, a, b)
            owner = self._owners.of(part.node, part.job_id, part.run_start_ms)
            if owner == "run":
                sums.run_idle_mj += idle
                sums.run_active_mj += active
            else:
                sums.unjoined_mj += idle + active
                if owner == "waiting":
                    self.waiting.add(day)


def portion(total: int, t0: int, t1: int, a: int, b: int) -> int:
    """As `cut`; a piece that is the whole, as nearly all are, needs no arithmetic."""
    return total if a == t0 and b == t1 else cut(total, t0, t1, a, b)


def hours_of(t0_ms: int, t1_ms: int, zone: ZoneInfo) -> Iterable[tuple[int, str, int, int]]:
    """Cut a window at local hours: hour, day, from and to; nearly all lie within one."""
    hour_ts, day, until_ms = _hour(t0_ms // QUARTER_MS, zone)
    if t1_ms <= until_ms:
        return ((hour_ts, day, t0_ms, t1_ms),)
    return (
        (hour_ts, day_of(hour_ts, zone), a_ms, b_ms)
        for hour_ts, a_ms, b_ms in hour_pieces(t0_ms, t1_ms, zone)
    )


def mark(device: str, hour_ts: int, *amounts: int) -> int:
    """Return the amounts weighted by where they stand, for a checksum that is a sum."""
    weight, total = _weight(device) + hour_ts, 0
    for amount in amounts:
        total += amount * weight
        weight += 7
    return total


@functools.lru_cache(16_384)
def _weight(device: str) -> int:
    return zlib.crc32(device.encode()) << 8


@functools.lru_cache(4096)
def _hour(quarter: int, zone: ZoneInfo) -> tuple[int, str, int]:
    at_ms = quarter * QUARTER_MS
    hour_ts, _, end_ms = next(iter(hour_pieces(at_ms, at_ms + 7_200_000, zone)))
    return hour_ts, day_of(hour_ts, zone), end_ms


def waiting_days(store: sqlite3.Connection, days: Days, zone: ZoneInfo) -> set[str]:
    """Return the days of which the rollups do not know all yet: the next round writes them."""
    dirty = {day for (day,) in store.execute("SELECT day FROM dirty_day")}
    dirty |= {day for (day,) in store.execute("SELECT day FROM carbon_dirty_day")}
    hours = {day_of(ts, zone) for (ts,) in store.execute("SELECT hour_ts FROM dirty_hour")}
    return dirty | hours | days.waiting


def check_days(
    store: sqlite3.Connection, days: Days, skipped: set[str], zone: ZoneInfo, found: Findings
) -> None:
    """Compare each day's sums over the windows with the rollups' and with `device_hour`."""
    told = _Told(store, days, zone)
    for (day, kind), sums in sorted(days.sums.items()):
        if day in skipped:
            continue
        for where, column, found_mj in told.of(day, kind):
            expected = getattr(sums, column)
            if found_mj != expected:
                what = f"{kind}: {column.removesuffix('_mj')} as the windows add up"
                found.add(Fault(day, where, what, expected, found_mj, ROLL_UP))


class _Told:
    """What the rollups say of days: rows of (where, column of DaySums, mJ)."""

    def __init__(self, store: sqlite3.Connection, days: Days, zone: ZoneInfo) -> None:
        known = sorted(day for day, _ in days.sums)
        self._span = (known[0], known[-1]) if known else ("", "")
        self._usage = self._sums(store, "usage_daily")
        self._unallocated = self._sums(store, "unallocated_daily")
        self._host = self._host_sums(store)
        for day, idle_mj, active_mj in _seeded(store, zone):
            known_idle, known_active = self._usage.get(day, (0, 0))
            self._usage[day] = (known_idle - idle_mj, known_active - active_mj)

    def _sums(self, store: sqlite3.Connection, table: str) -> dict[str, tuple[int, int]]:
        rows = store.execute(
            f"SELECT day, sum(idle_mj), sum(active_mj) FROM {table}"  # noqa: S608 - our own names
            " WHERE day BETWEEN ? AND ? GROUP BY day",
            self._span,
        )
        return {day: (idle_mj, active_mj) for day, idle_mj, active_mj in rows}

    def _host_sums(self, store: sqlite3.Connection) -> dict[tuple[str, str, str], tuple[int, int]]:
        rows = store.execute(
            "SELECT day, kind, owner, sum(idle_mj), sum(active_mj) FROM host_daily"
            " WHERE day BETWEEN ? AND ? GROUP BY day, kind, owner",
            self._span,
        )
        return {tuple(row[:3]): (row[3], row[4]) for row in rows}

    def of(self, day: str, kind: str) -> Iterator[tuple[str, str, int]]:
        """Yield where something is told of this day and kind, of which column, and how much."""
        if kind == "gpu":
            runs, rest = self._usage.get(day, (0, 0)), self._unallocated.get(day, (0, 0))
            places = ("usage_daily", "unallocated_daily")
        else:
            runs = self._host.get((day, kind, "run"), (0, 0))
            rest = self._host.get((day, kind, "unallocated"), (0, 0))
            places = ("host_daily", "host_daily")
            yield "host_daily", "system_mj", sum(self._host.get((day, kind, "system"), (0, 0)))
        yield places[0], "run_idle_mj", runs[0]
        yield places[0], "run_active_mj", runs[1]
        yield places[1], "unallocated_idle_mj", rest[0]
        yield places[1], "unallocated_active_mj", rest[1]


def _seeded(store: sqlite3.Connection, zone: ZoneInfo) -> Iterator[tuple[str, int, int]]:
    """Energy of invented runs (`fairwatt demo`) by hour: they have no windows."""
    seeded = f"SELECT 1 FROM job_run WHERE flags & {SEED_BIT} LIMIT 1"  # noqa: S608
    if not store.execute(seeded).fetchone():
        return
    rows = store.execute(
        "SELECT h.hour_ts, sum(h.idle_mj), sum(h.active_mj) FROM run_hour h JOIN run r"
        " USING (run_id) WHERE r.origin = 'seed' GROUP BY h.hour_ts"
    )
    for hour_ts, idle_mj, active_mj in rows:
        yield day_of(hour_ts, zone), idle_mj, active_mj
