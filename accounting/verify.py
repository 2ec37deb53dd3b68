# SPDX-License-Identifier: Apache-2.0
"""Recomputes the ledger from its windows and compares every sum in the store with that.

Read-only and in one snapshot: the collector goes on meanwhile, and SQLite's WAL grows until the
end. Memory does not grow with the windows, only with devices and days.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from fairwatt.accounting.carbon.grid import Grid
from fairwatt.accounting.carbon.grid_store import open_grid
from fairwatt.accounting.days import day_bounds
from fairwatt.accounting.rollup import rolled_until
from fairwatt.accounting.store import data_version, open_reader
from fairwatt.accounting.verify_days import Days, DaySums, Owners, check_days, waiting_days
from fairwatt.accounting.verify_fault import Findings, Span
from fairwatt.accounting.verify_hours import check_hours, check_totals
from fairwatt.accounting.verify_rollups import check_rollups
from fairwatt.accounting.verify_runs import check_runs
from fairwatt.accounting.verify_shares import Reaches, check_reach
from fairwatt.accounting.verify_windows import (
    Balance,
    check_windows,
    devices_of,
    read_windows,
)
from fairwatt.accounting.windows import WindowSources
from fairwatt.core.errors import ReportError, StoreError

__all__ = ["Verified", "span_of", "verify"]

ALL_TIME = ("0001-01-01", "9999-12-31")
LAST_MS = 1 << 62


@dataclass(frozen=True)
class Verified:
    """What was verified and found: each device's balance, each kind's owners, the faults."""

    balances: list[Balance]
    owners: dict[str, DaySums]
    findings: Findings
    runs: int
    days: int
    took_s: float
    data_version: int

    @property
    def ok(self) -> bool:
        """Whether all adds up."""
        return self.findings.count == 0


def span_of(first: date | None, last: date | None, zone: ZoneInfo) -> Span:
    """Return the span of the local days from `first` to `last`; None: without a bound.

    Raises:
        ReportError: it ends before it begins, or a calendar has no day after it.
    """
    if first and last and last < first:
        raise ReportError(
            "ends before it begins", place="--to", value=str(last),
            remedy=f"give {first} or a later day",
        )  # fmt: skip
    try:
        return Span(
            first.isoformat() if first else ALL_TIME[0],
            last.isoformat() if last else ALL_TIME[1],
            day_bounds(first.isoformat(), zone)[0] * 1000 if first else 0,
            day_bounds(last.isoformat(), zone)[1] * 1000 if last else LAST_MS,
        )
    except OverflowError as error:
        raise ReportError(
            "beyond the calendar", place="--from, --to", value=f"{first} to {last}",
            remedy="leave it away: without it all days are verified",
        ) from error  # fmt: skip


def verify(
    path: str | Path, *, cluster: str, zone: ZoneInfo, carbon_zone: str, span: Span
) -> Verified:
    """Verify the windows of a span, and all sums over them.

    Args:
        path: the store.
        cluster: whose the devices are.
        zone: the site's, in which hours and days begin.
        carbon_zone: of the rollups' factors.
        span: which days.

    Raises:
        StoreError: the store or a month file cannot be read.
    """
    began, found = time.monotonic(), Findings()
    with closing(open_reader(path)) as store, _snapshot(store), WindowSources(store) as sources:
        kinds = _kinds(store)
        days, reaches = Days(zone, span, Owners(store)), Reaches(store)
        balances = [
            _balanced(store, sources, device, kinds, span, days, reaches, found)
            for device in devices_of(sources, span)
        ]
        gone = _dropped(sources, days, zone, found)
        skipped = gone | _waiting(store, days, zone, found)
        check_days(store, days, skipped, zone, found)
        check_hours(store, sources, days, gone, zone, found)
        if span[2:] == (0, LAST_MS) and not sources.are_dropped(*span[2:]):
            check_totals(store, balances, found)
        host = {device: kind for device, kind in kinds.items() if kind != "gpu"}
        runs = check_runs(store, sources, zone, span, host, reaches, found)
        wanted = [day for day in _days_of(store, days, span) if day not in skipped]
        grid = _grid(store, carbon_zone, found)
        now_ts = rolled_until(store) or int(time.time())
        if grid is not None:
            check_rollups(store, wanted, cluster, zone, grid, now_ts, found)
        return Verified(
            balances, _owners(days), found, runs, len(wanted) if grid else 0,
            time.monotonic() - began, data_version(store),
        )  # fmt: skip


@contextmanager
def _snapshot(store: sqlite3.Connection) -> Iterator[None]:
    """One state of the store for all reads; temporary tables may be written."""
    store.execute("PRAGMA query_only = OFF")  # the file itself is open read-only
    store.execute("PRAGMA temp_store = MEMORY")  # a month of rollups at most
    store.execute("BEGIN")
    try:
        yield
    finally:
        store.rollback()


def _grid(store: sqlite3.Connection, carbon_zone: str, found: Findings) -> Grid | None:
    """The factors of the rollups; without them these alone cannot be recomputed."""
    try:
        return open_grid(store, carbon_zone)
    except StoreError as error:
        found.notes.append(f"Sums by day and month are not compared: {error}.")
        return None


def _kinds(store: sqlite3.Connection) -> dict[str, str]:
    return dict(store.execute("SELECT device_uuid, kind FROM device").fetchall())


def _balanced(
    store: sqlite3.Connection,
    sources: WindowSources,
    device: str,
    kinds: Mapping[str, str],
    span: Span,
    days: Days,
    reaches: Reaches,
    found: Findings,
) -> Balance:
    balance = Balance(device, kinds.get(device, "gpu"))
    windows = read_windows(sources, device, span)
    for window in check_windows(store, balance, windows, span, found):
        days.add(device, balance.kind, window)
        check_reach(reaches, device, window, found)
    return balance


def _dropped(sources: WindowSources, days: Days, zone: ZoneInfo, found: Findings) -> set[str]:
    """Days some of whose windows were removed for good: the sums over them stay."""
    bounds = {day: day_bounds(day, zone) for day, _ in days.sums}
    gone = {day for day, (a, b) in bounds.items() if sources.are_dropped(a * 1000, b * 1000)}
    if gone:
        found.notes.append(f"{len(gone)} days have windows of removed months: left out")
    return gone


def _waiting(store: sqlite3.Connection, days: Days, zone: ZoneInfo, found: Findings) -> set[str]:
    """Days of which the rollups do not know all yet."""
    waiting = waiting_days(store, days, zone)
    if waiting:
        found.notes.append(f"{len(waiting)} days wait to be rolled up: their sums are left out")
    return waiting


def _days_of(store: sqlite3.Connection, days: Days, span: Span) -> list[str]:
    """All days of the span from the first to the last of which anything is known."""
    known = {day for day, _ in days.sums}
    for table in ("usage_daily", "unallocated_daily", "host_daily"):
        rows = store.execute(
            f"SELECT min(day), max(day) FROM {table} WHERE day BETWEEN ? AND ?",  # noqa: S608
            (span.first, span.last),
        )
        known.update(day for day in rows.fetchone() if day is not None)
    if not known:
        return []
    first, last = date.fromisoformat(min(known)), date.fromisoformat(max(known))
    return [(first + timedelta(days=n)).isoformat() for n in range((last - first).days + 1)]


def _owners(days: Days) -> dict[str, DaySums]:
    """Sums of the span by kind of device."""
    total: dict[str, DaySums] = {}
    for (_, kind), sums in days.sums.items():
        total.setdefault(kind, DaySums()).add(sums)
    return total
