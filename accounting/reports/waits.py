# SPDX-License-Identifier: Apache-2.0
"""Waiting times: eligible to start, as nearest-rank quantiles, in seconds."""

from __future__ import annotations

import functools
import json
import sqlite3
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


# {runs} is a subquery of (name, wait_s); nearest rank: the place is p·n, rounded up.
_QUANTILES = """
    WITH ranked AS (
        SELECT name, wait_s, COUNT(*) OVER (PARTITION BY name) AS n,
               ROW_NUMBER() OVER (PARTITION BY name ORDER BY wait_s) AS place
        FROM ({runs}))
    SELECT name, MAX(n),
           MAX(CASE WHEN place = (n * 50 + 99) / 100 THEN wait_s END),
           MAX(CASE WHEN place = (n * 90 + 99) / 100 THEN wait_s END),
           MAX(wait_s)
    FROM ranked GROUP BY name"""
# The end_ts condition follows from start >= :start; it lets the index on end_ts narrow the scan.
_STARTED = """
    {scope} AND t.start_ts >= :start AND t.start_ts < :end AND t.eligible_ts IS NOT NULL
    AND (t.end_ts IS NULL OR t.end_ts >= :start)"""
_GROUP_RUNS = """
    SELECT m.name, {wait} AS wait_s
    FROM run t JOIN (
        SELECT json_extract(value, '$[0]') AS account, json_extract(value, '$[1]') AS name
        FROM json_each(:groups)) m ON m.account = t.account
    WHERE t.cluster = :cluster AND {started}
    UNION ALL
    SELECT json_extract(m.value, '$[1]'), {wait}
    FROM json_each(:groups) m JOIN run t ON t.account IS NULL
    WHERE json_extract(m.value, '$[0]') = '' AND t.cluster = :cluster AND {started}"""
_USER_RUNS = """
    SELECT t.user AS name, {wait} AS wait_s
    FROM run t WHERE t.user = :user AND {started}"""
# MAX of two values is SQLite's alone; over exported months the same SQL runs in DuckDB.
_WAIT = "CASE WHEN t.start_ts > t.eligible_ts THEN t.start_ts - t.eligible_ts ELSE 0 END"
_PARTS = {"{started}": _STARTED, "{wait}": _WAIT}


def _sql(runs: str) -> str:
    return functools.reduce(
        lambda sql, part: sql.replace(*part), _PARTS.items(), _QUANTILES.replace("{runs}", runs)
    )


_BY_GROUP, _OF_USER = _sql(_GROUP_RUNS), _sql(_USER_RUNS)


def waits_by_group(
    db: sqlite3.Connection,
    scope: Scope,
    cluster: str,
    group_of: Mapping[str, str],
    period: Period,
) -> dict[str, Waits]:
    """Return the waits of runs that started in the period, per group of accounts."""
    params = {
        "cluster": cluster,
        "groups": json.dumps(sorted(group_of.items())),
        "start": period.start_ts,
        "end": period.end_ts,
    }
    return {row[0]: Waits(*row[1:]) for row in select(db, scope, _BY_GROUP, params)}


def waits_of_user(db: sqlite3.Connection, scope: Scope, period: Period) -> Waits | None:
    """Return the waits of the asker's runs that started in the period; None without any."""
    params = {"user": scope.user, "start": period.start_ts, "end": period.end_ts}
    rows = select(db, scope, _OF_USER, params)
    return Waits(*rows[0][1:]) if rows else None
