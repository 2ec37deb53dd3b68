# SPDX-License-Identifier: Apache-2.0
"""Carbon of past days anew after a change of factors, from the energy that was kept by hour.

What a day had before, and has now, is kept with the version that changed it.
"""

from __future__ import annotations

import sqlite3
from typing import NamedTuple
from zoneinfo import ZoneInfo

from sqlite_utils import Database

from fairwatt.accounting.carbon.grid import Emission, Grid
from fairwatt.accounting.carbon.grid_store import open_grid
from fairwatt.accounting.carbon.hours import Owner, read_hours
from fairwatt.accounting.days import day_bounds
from fairwatt.accounting.rollup import next_days, write_months
from fairwatt.accounting.store import bump_data_version, transaction

__all__ = ["Restated", "mark_every_day", "restate", "restatements"]

_TABLES = ("usage_daily", "unallocated_daily", "host_daily")


class Restated(NamedTuple):
    """What one version changed: days, and their carbon in mg before and after."""

    version: int
    days: int
    before_mg: int
    after_mg: int


def restate(db: Database, zone: ZoneInfo, carbon_zone: str | None = None) -> int:
    """Recompute the carbon of all days that a change of factors has marked.

    Returns:
        How many days were looked at; if any, the data version has grown.

    Raises:
        StoreError: the store cannot be written, or has no factors for the zone.
    """
    done = 0
    while True:
        with transaction(db) as connection:
            days = next_days(connection, "carbon_dirty_day")
            if not days:
                return done
            span = day_bounds(days[0], zone)[0], day_bounds(days[-1], zone)[1]
            grid = open_grid(connection, carbon_zone, span=span)
            for day in days:
                _restate_day(connection, day, zone, grid)
            write_months(connection, sorted({day[:7] for day in days}))
            connection.executemany(
                "DELETE FROM carbon_dirty_day WHERE day = ?", [(day,) for day in days]
            )
            bump_data_version(connection)
        done += len(days)


def mark_every_day(connection: sqlite3.Connection) -> None:
    """Mark all days with energy, in the caller's transaction."""
    for table in _TABLES:
        connection.execute(
            f"INSERT OR IGNORE INTO carbon_dirty_day SELECT DISTINCT day FROM {table}"  # noqa: S608
        )


def restatements(connection: sqlite3.Connection) -> dict[int, Restated]:
    """Return for each version what it changed of days that had been reported before."""
    rows = connection.execute(
        "SELECT version, count(*), sum(before_mg), sum(after_mg) FROM restated_day"
        " GROUP BY version"
    )
    return {row[0]: Restated(*row) for row in rows}


def _restate_day(connection: sqlite3.Connection, day: str, zone: ZoneInfo, grid: Grid) -> None:
    before_mg = _total(connection, day)
    for owner, by_slot in read_hours(connection, *day_bounds(day, zone)):
        _write(connection, day, owner, grid.carbon(by_slot))
    after_mg = _total(connection, day)
    if after_mg != before_mg:
        connection.execute(
            "INSERT INTO restated_day VALUES (?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET after_mg = excluded.after_mg",
            (grid.version, day, before_mg, after_mg),
        )


def _total(connection: sqlite3.Connection, day: str) -> int:
    sums = [
        connection.execute(f"SELECT coalesce(sum(co2_mg), 0) FROM {t} WHERE day = ?", (day,))  # noqa: S608
        for t in _TABLES
    ]
    return sum(int(cursor.fetchone()[0]) for cursor in sums)


_SET = "SET co2_mg = ?, factor_fallback_mj = ?, market_mg = ?, market_unknown_mj = ?"


def _write(connection: sqlite3.Connection, day: str, owner: Owner, made: Emission) -> None:
    table, keys = _row_of(owner)
    where = " AND ".join(f"{name} = ?" for name in keys)
    connection.execute(
        f"UPDATE {table} {_SET} WHERE day = ? AND {where}",
        (*made, day, *keys.values()),
    )


def _row_of(owner: Owner) -> tuple[str, dict[str, str]]:
    """The table of an owner's daily sums, and which row is its."""
    if owner.kind != "gpu":
        names = ("cluster", "owner", "account", "user", "kind")
        return "host_daily", {name: getattr(owner, name) for name in names}
    if owner.owner == "run":
        keys = {name: getattr(owner, name) for name in ("cluster", "account", "user")}
        return "usage_daily", keys | {"gpu_type": owner.part}
    return "unallocated_daily", {"cluster": owner.cluster, "model": owner.part}
