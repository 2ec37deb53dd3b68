# SPDX-License-Identifier: Apache-2.0
"""Daily sums of classes and of moved idle energy; part of the rollup, in its transaction."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from zoneinfo import ZoneInfo

from fairwatt.accounting.days import day_bounds, day_of, days_between
from fairwatt.accounting.quality import RunFlag
from fairwatt.accounting.sacct import OPEN_STATES
from fairwatt.core.units import split_largest_remainder

__all__ = ["write_moved_days", "write_waste_days"]

_Key = tuple[str, str, str, str, str]
"""Day, cluster, account, user, class."""

_JUDGED = """
    SELECT r.cluster, coalesce(r.account, ''), coalesce(r.user, ''), w.class, r.state, r.start_ts,
           r.end_ts, r.gpu_milli, w.waste_permille
    FROM run_waste w JOIN run r USING (run_id)
    WHERE w.class <> 'unknown' AND r.gpu_milli > 0 AND r.start_ts < :b
      AND (r.end_ts >= :a OR r.end_ts IS NULL AND NOT r.flags & :runaway)"""
_MOVED = """
    SELECT r.cluster, coalesce(r.account, ''), coalesce(r.user, ''), c.hour_ts, r.run_id,
           sum(c.moved_mj)
    FROM use_cell c JOIN node_run n
      ON n.node = c.node AND n.job_id = c.job_id AND n.start_ms = c.run_start_ms
    JOIN run r ON r.run_id = n.run_id LEFT JOIN device d USING (device_uuid)
    WHERE c.moved_mj <> 0 AND c.hour_ts >= ? AND c.hour_ts < ?
      AND coalesce(d.kind, 'gpu') = 'gpu'
    GROUP BY r.run_id, c.hour_ts"""
_FREED = """
    SELECT coalesce(d.model, d.name, 'unknown'), m.hour_ts, sum(m.moved_mj)
    FROM moved_hour m LEFT JOIN device d USING (device_uuid)
    WHERE m.hour_ts >= ? AND m.hour_ts < ? AND coalesce(d.kind, 'gpu') = 'gpu' GROUP BY 1, 2"""


def write_waste_days(
    connection: sqlite3.Connection, days: Sequence[str], zone: ZoneInfo, now_ts: int
) -> None:
    """Write waste_daily of these days anew: GPU time by class, and how much of it was wasted."""
    wanted = set(days)
    totals: dict[_Key, list[int]] = defaultdict(lambda: [0, 0, 0])
    span = {"a": day_bounds(days[0], zone)[0], "b": day_bounds(days[-1], zone)[1]}
    for row in connection.execute(_JUDGED, {**span, "runaway": int(RunFlag.RUNAWAY)}):
        *owner, kind, state, start_ts, end_ts, milli, permille = row
        until_ts = max(start_ts, now_ts) if end_ts is None else end_ts
        for day in days_between(max(start_ts, span["a"]), min(until_ts + 1, span["b"]), zone):
            if day in wanted:
                a_ts, b_ts = day_bounds(day, zone)
                held = milli * max(0, min(b_ts, until_ts) - max(a_ts, start_ts))
                sums = totals[(day, *owner, kind)]
                sums[0] += int(a_ts <= until_ts < b_ts and state not in OPEN_STATES)
                sums[1] += held
                sums[2] += held * (permille or 0) // 1000
    connection.executemany("DELETE FROM waste_daily WHERE day = ?", [(day,) for day in days])
    connection.executemany(
        "INSERT INTO waste_daily VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [(*key, *sums) for key, sums in sorted(totals.items()) if any(sums)],
    )


def write_moved_days(
    connection: sqlite3.Connection, days: Sequence[str], cluster: str, zone: ZoneInfo
) -> None:
    """Write moved_daily of these days anew: what the idle policy `active` moves to whom."""
    wanted = set(days)
    bounds = (day_bounds(days[0], zone)[0], day_bounds(days[-1], zone)[1])
    totals: dict[tuple[str, ...], int] = defaultdict(int)
    for model, hour_ts, moved_mj in connection.execute(_FREED, bounds):
        totals[(day_of(hour_ts, zone), cluster, "unallocated", "", "", model)] -= moved_mj
    for row_cluster, account, user, hour_ts, run_id, moved_mj in connection.execute(
        _MOVED, bounds
    ).fetchall():
        for gpu_type, part_mj in _by_type(connection, run_id, moved_mj):
            totals[(day_of(hour_ts, zone), row_cluster, "run", account, user, gpu_type)] += part_mj
    connection.executemany("DELETE FROM moved_daily WHERE day = ?", [(day,) for day in days])
    connection.executemany(
        "INSERT INTO moved_daily VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(*key, moved) for key, moved in sorted(totals.items()) if moved and key[0] in wanted],
    )


def _by_type(
    connection: sqlite3.Connection, run_id: int, moved_mj: int
) -> Iterator[tuple[str, int]]:
    """A run's moved energy by GPU type, by their part of boards."""
    parts = connection.execute(
        "SELECT gpu_type, coalesce(milli, 0) FROM run_gpu WHERE run_id = ? ORDER BY gpu_type",
        (run_id,),
    ).fetchall() or [("", 1)]
    amounts = split_largest_remainder(abs(moved_mj), [milli for _, milli in parts])
    sign = 1 if moved_mj >= 0 else -1
    for (gpu_type, _), amount in zip(parts, amounts, strict=True):
        yield gpu_type, sign * amount
