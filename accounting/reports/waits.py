# SPDX-License-Identifier: Apache-2.0
"""Waiting times: eligible to start, as nearest-rank quantiles, in seconds."""

from __future__ import annotations

import bisect
import itertools
import json
import sqlite3
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from fairwatt.accounting.reports.period import Period
from fairwatt.accounting.reports.scope import Scope, select

__all__ = ["Waits", "waits_by_group", "waits_of_user"]


class Waits(NamedTuple):
    """How many runs started, and how long half, nine in ten and the last of them waited."""

    runs: int
    p50_s: int
    p90_s: int
    max_s: int


# The end_ts condition follows from start >= :start; it lets the index on end_ts narrow the scan.
_STARTED = """
    {scope} AND t.start_ts >= :start AND t.start_ts < :end AND t.eligible_ts IS NOT NULL
    AND (t.end_ts IS NULL OR t.end_ts >= :start)"""
_BY_ACCOUNT = """
    SELECT account, wait_s, COUNT(*) FROM (
        SELECT m.account, {wait} AS wait_s
        FROM run t JOIN (SELECT value AS account FROM json_each(:accounts)) m
          ON m.account = t.account
        WHERE t.cluster = :cluster AND {started}
        UNION ALL
        SELECT m.value, {wait}
        FROM json_each(:accounts) m JOIN run t ON t.account IS NULL
        WHERE m.value = '' AND t.cluster = :cluster AND {started})
    GROUP BY account, wait_s"""
_OF_USER = """
    SELECT wait_s, COUNT(*) FROM (
        SELECT {wait} AS wait_s FROM run t WHERE t.user = :user AND {started})
    GROUP BY wait_s"""
# MAX of two values is SQLite's alone; over exported months the same SQL runs in DuckDB.
_WAIT = "CASE WHEN t.start_ts > t.eligible_ts THEN t.start_ts - t.eligible_ts ELSE 0 END"


def waits_by_group(
    db: sqlite3.Connection,
    scope: Scope,
    cluster: str,
    group_of: Mapping[str, str],
    period: Period,
) -> tuple[dict[str, Waits], Waits | None]:
    """Return the waits of runs that started in the period, per group of accounts and of all."""
    params = {
        "cluster": cluster,
        "accounts": json.dumps(sorted(group_of)),
        "start": period.start_ts,
        "end": period.end_ts,
    }
    counts: dict[str, Counter[int]] = {}
    for account, wait_s, runs in select(db, scope, _sql(_BY_ACCOUNT), params):
        counts.setdefault(group_of[account], Counter())[wait_s] += runs
    by_group = {group: _waits(found) for group, found in counts.items()}
    whole = sum(counts.values(), Counter())
    return by_group, _waits(whole) if whole else None


def waits_of_user(db: sqlite3.Connection, scope: Scope, period: Period) -> Waits | None:
    """Return the waits of the asker's runs that started in the period; None without any."""
    params = {"user": scope.user, "start": period.start_ts, "end": period.end_ts}
    counts = Counter(dict(select(db, scope, _sql(_OF_USER), params)))
    return _waits(counts) if counts else None


def _sql(sql: str) -> str:
    return sql.replace("{started}", _STARTED).replace("{wait}", _WAIT)


def _waits(runs_by_wait: Mapping[int, int]) -> Waits:
    """Nearest rank: the place of a quantile is p·n, rounded up."""
    order = sorted(runs_by_wait)
    places = list(itertools.accumulate(runs_by_wait[wait_s] for wait_s in order))
    runs = places[-1]
    p50, p90 = (
        order[bisect.bisect_left(places, -(-runs * percent // 100))] for percent in (50, 90)
    )
    return Waits(runs, p50, p90, order[-1])
