# SPDX-License-Identifier: Apache-2.0
"""Writes a run's rows by hour anew, only what differs: a long run does not dirty all its days."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any
from zoneinfo import ZoneInfo

from fairwatt.accounting.runs import mark_days

__all__ = ["HOUR_S", "replace_hours"]

HOUR_S = 3600


def replace_hours(
    connection: sqlite3.Connection,
    table: str,
    columns: Sequence[str],
    keys: int,
    rows: Iterable[tuple[Any, ...]],
    since: tuple[int, int],
    zone: ZoneInfo,
) -> None:
    """Make a table hold exactly these rows of a run, and mark the days of what changes.

    Args:
        connection: in the caller's transaction.
        table: written; its name and `columns` are the program's own.
        columns: of the rows, run_id and hour_ts first.
        keys: so many of them name a row.
        rows: all of the run from an hour on.
        since: the run's id, and that hour in epoch seconds.
        zone: the site's, in which days are cut.
    """
    names, key = ", ".join(columns), " = ? AND ".join(columns[:keys])
    marks = ", ".join("?" * len(columns))
    of_run = f"SELECT {names} FROM {table} WHERE run_id = ? AND hour_ts >= ?"  # noqa: S608
    old, new = set(connection.execute(of_run, since)), set(rows)
    remove = f"DELETE FROM {table} WHERE {key} = ?"  # noqa: S608
    connection.executemany(remove, [row[:keys] for row in old - new])
    insert = f"INSERT INTO {table} ({names}) VALUES ({marks})"  # noqa: S608
    connection.executemany(insert, sorted(new - old))
    for row in old ^ new:
        mark_days(connection, row[1], row[1] + HOUR_S, zone)
