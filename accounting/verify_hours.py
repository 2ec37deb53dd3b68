# SPDX-License-Identifier: Apache-2.0
"""Compares the sums that devices have by hour with their windows: first by day, then each hour."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple
from zoneinfo import ZoneInfo

from fairwatt.accounting.days import cut, day_bounds, day_of
from fairwatt.accounting.verify_days import Days, hours_of, mark
from fairwatt.accounting.verify_fault import Fault, Findings, Span
from fairwatt.accounting.verify_windows import RESTORE, Balance, devices_of, read_windows
from fairwatt.accounting.windows import WindowSources

__all__ = ["check_hours", "check_totals"]

MAX_DAYS = 7
"""Of so many days each hour is shown; more have one cause."""

_NAMES = ("measured_mj", "idle_mj", "active_mj", "system_mj")
_TOTALS = ("windows", "unknown_windows", "measured_mj", "idle_mj", "active_mj", "system_mj")
_ROWS = (
    "SELECT hour_ts, device_uuid, measured_mj, idle_mj, active_mj, system_mj FROM device_hour"
    " WHERE hour_ts >= ? AND hour_ts < ?"
)


class _Place(NamedTuple):
    device: str
    hour_ts: int


def check_hours(
    store: sqlite3.Connection,
    sources: WindowSources,
    days: Days,
    gone: Collection[str],
    zone: ZoneInfo,
    found: Findings,
) -> None:
    """Compare table device_hour with the windows of these days, but for days in `gone`."""
    expected: dict[str, int] = defaultdict(int)
    for (day, _), sums in days.sums.items():
        expected[day] += sums.marks
    stored: dict[str, int] = defaultdict(int)
    known = sorted(expected)
    first, last = (known[0], known[-1]) if known else ("0001-01-01", "0001-01-01")
    for hour_ts, device, *amounts in _stored(store, first, last, zone):
        stored[day_of(hour_ts, zone)] += mark(device, hour_ts, *amounts)
        found.rows += 1
    wrong = [day for day in known if expected[day] != stored[day] and day not in gone]
    for day in wrong[:MAX_DAYS]:
        _check_day(store, sources, day, zone, found)
    if len(wrong) > MAX_DAYS:
        found.add(Fault("device_hour", "days that do not add up", "days", 0, len(wrong), RESTORE))


def check_totals(store: sqlite3.Connection, balances: Iterable[Balance], found: Findings) -> None:
    """Compare table ledger_total, since the store was made, with all windows that there are."""
    expected: dict[str, list[int]] = defaultdict(lambda: [0] * len(_TOTALS))
    for one in balances:
        amounts = (
            *(one.windows - one.unknown_windows, one.unknown_windows, one.measured_mj),
            *(one.unallocated_idle_mj, one.unallocated_active_mj, one.system_mj),
        )
        expected[one.kind] = [a + b for a, b in zip(expected[one.kind], amounts, strict=True)]
    rows = store.execute(f"SELECT kind, {', '.join(_TOTALS)} FROM ledger_total")  # noqa: S608
    stored = {kind: list(amounts) for kind, *amounts in rows}
    for kind in sorted({*expected, *stored}):
        pair = expected[kind], stored.get(kind, [0] * len(_TOTALS))
        for name, one_sum, other in zip(_TOTALS, *pair, strict=True):
            if one_sum != other:
                what = f"{name} as the windows add up"
                found.add(Fault(kind, "ledger_total", what, one_sum, other, RESTORE))


def _stored(
    store: sqlite3.Connection, first: str, last: str, zone: ZoneInfo
) -> Iterator[tuple[int, str, int, int, int, int]]:
    bounds = day_bounds(first, zone)[0], day_bounds(last, zone)[1]
    yield from store.execute(_ROWS, bounds)


def _check_day(
    store: sqlite3.Connection, sources: WindowSources, day: str, zone: ZoneInfo, found: Findings
) -> None:
    expected: dict[_Place, list[int]] = {}
    a_ts, b_ts = day_bounds(day, zone)
    span = Span(day, day, a_ts * 1000, b_ts * 1000)
    for device in devices_of(sources, span):
        for window in read_windows(sources, device, span):
            if window.measured_mj is None:
                continue
            amounts = window[3:7]
            for hour_ts, _, a_ms, b_ms in hours_of(window.t0_ms, window.t1_ms, zone):
                if a_ts <= hour_ts < b_ts:
                    sums = expected.setdefault(_Place(device, hour_ts), [0, 0, 0, 0])
                    for n, amount in enumerate(amounts):
                        sums[n] += cut(amount or 0, window.t0_ms, window.t1_ms, a_ms, b_ms)
    stored = {_Place(row[1], row[0]): list(row[2:]) for row in _stored(store, day, day, zone)}
    for place in sorted({*expected, *stored}):
        pair = expected.get(place, [0, 0, 0, 0]), stored.get(place, [0, 0, 0, 0])
        where = f"device_hour {place.hour_ts} ({day})"
        for name, one, other in zip(_NAMES, *pair, strict=True):
            if one != other:
                what = f"{name} as the windows add up"
                found.add(Fault(place.device, where, what, one, other, RESTORE))
