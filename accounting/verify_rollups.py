# SPDX-License-Identifier: Apache-2.0
"""Recomputes rollups into temporary tables of the same names and compares them row by row."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from zoneinfo import ZoneInfo

from fairwatt.accounting.carbon.grid import Grid
from fairwatt.accounting.carbon.hours import Owner, read_hours
from fairwatt.accounting.days import day_bounds
from fairwatt.accounting.rollup import BATCH_DAYS, write_days, write_months
from fairwatt.accounting.verify_days import ROLL_UP
from fairwatt.accounting.verify_fault import Fault, Findings
from fairwatt.accounting.waste_rollup import write_moved_days, write_waste_days

__all__ = ["check_rollups"]

DAILY = ("usage_daily", "unallocated_daily", "host_daily", "waste_daily", "moved_daily")
MONTHLY = ("usage_monthly", "host_monthly")

_TABLE = "SELECT sql FROM main.sqlite_master WHERE type = 'table' AND name = ?"


def check_rollups(
    connection: sqlite3.Connection,
    days: Sequence[str],
    cluster: str,
    zone: ZoneInfo,
    grid: Grid,
    now_ts: int,
    found: Findings,
) -> None:
    """Recompute these days, and the months that are wholly settled, and note what differs.

    Args:
        connection: read-only but for temporary tables; in a transaction.
        days: to recompute; none that waits to be rolled up.
        cluster: whose the unallocated energy is.
        zone: the site's.
        grid: factors of the newest version.
        now_ts: until when running jobs count.
        found: what differs is added here.
    """
    for start in range(0, len(days), BATCH_DAYS):
        batch = days[start : start + BATCH_DAYS]
        with _shadows(connection, DAILY):
            energies = write_days(connection, batch, cluster, zone, grid, now_ts)
            write_waste_days(connection, batch, zone, now_ts)
            write_moved_days(connection, batch, cluster, zone)
            for day in batch:
                _compare_hours(connection, day, zone, energies[day], found)
            for table in DAILY:
                _compare(connection, table, "day", batch, found)
    dirty = connection.execute("SELECT day FROM dirty_day UNION SELECT day FROM carbon_dirty_day")
    waiting = {day[:7] for (day,) in dirty}
    months = sorted({day[:7] for day in days} - waiting)
    with _shadows(connection, MONTHLY):
        write_months(connection, months)
        for table in MONTHLY:
            _compare(connection, table, "month", months, found)


@contextmanager
def _shadows(connection: sqlite3.Connection, tables: Sequence[str]) -> Iterator[None]:
    """Inside, whoever writes to these tables writes to temporary ones."""
    for table in tables:
        (sql,) = connection.execute(_TABLE, (table,)).fetchone()
        connection.execute(sql.replace("CREATE TABLE", "CREATE TEMP TABLE", 1))
    try:
        yield
    finally:
        for table in tables:
            connection.execute(f"DROP TABLE temp.{table}")


def _compare_hours(
    connection: sqlite3.Connection,
    day: str,
    zone: ZoneInfo,
    fresh: Mapping[Owner, Mapping[int, int]],
    found: Findings,
) -> None:
    """Compare a day's energy by owner and quarter of an hour, which carbon is computed from."""
    stored = {
        (owner, slot_ts): mj
        for owner, by_slot in read_hours(connection, *day_bounds(day, zone))
        for slot_ts, mj in by_slot.items()
        if mj
    }
    wanted = {
        (owner, slot_ts): mj
        for owner, by_slot in fresh.items()
        for slot_ts, mj in by_slot.items()
        if mj
    }
    found.rows += len(stored)
    if stored == wanted:
        return
    for owner, slot_ts in sorted({*stored, *wanted}):
        one, other = (sums.get((owner, slot_ts), 0) for sums in (wanted, stored))
        if one != other:
            where = f"energy_hour {slot_ts} {' '.join(part or '-' for part in owner)}"
            found.add(Fault(day, where, "energy as recomputed", one, other, ROLL_UP))


def _compare(
    connection: sqlite3.Connection, table: str, key: str, values: Sequence[str], found: Findings
) -> None:
    columns = connection.execute(
        "SELECT name, pk FROM pragma_table_info(?, 'main')", (table,)
    ).fetchall()
    keys = [name for name, pk in columns if pk]
    amounts = [name for name, pk in columns if not pk]
    fresh, stored = (
        _only_in(connection, table, here, keys, amounts, values)
        for here in (("temp", "main"), ("main", "temp"))
    )
    (read,) = connection.execute(f"SELECT count(*) FROM temp.{table}").fetchone()  # noqa: S608
    found.rows += read
    for place in sorted({*fresh, *stored}):
        where = f"{table} {' '.join(str(value) or '-' for value in place[1:])}"
        _note(str(place[0]), where, fresh.get(place), stored.get(place), found)


def _only_in(
    connection: sqlite3.Connection,
    table: str,
    schemas: tuple[str, str],
    keys: Sequence[str],
    amounts: Sequence[str],
    values: Sequence[str],
) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Rows of these days or months that stand in the first schema only, by their key."""
    shown, here = ", ".join([*keys, *amounts]), json.dumps(list(values))
    picked = f"WHERE {keys[0]} IN (SELECT value FROM json_each(?))"  # noqa: S608 - our own names
    rows = connection.execute(
        f"SELECT {shown} FROM {schemas[0]}.{table} {picked}"  # noqa: S608
        f" EXCEPT SELECT {shown} FROM {schemas[1]}.{table} {picked}",
        (here, here),
    )
    return {row[: len(keys)]: dict(zip(amounts, row[len(keys) :], strict=True)) for row in rows}


def _note(
    subject: str,
    where: str,
    fresh: Mapping[str, Any] | None,
    stored: Mapping[str, Any] | None,
    found: Findings,
) -> None:
    """One fault for each amount that differs; a row that is missing or too many is one."""
    if fresh is None or stored is None:
        what, words = "row", ("is there", "is not there")
        expected, is_there = words if stored is None else words[::-1]
        found.add(Fault(subject, where, what, expected, is_there, ROLL_UP))
        return
    for name, expected in fresh.items():
        if stored[name] != expected:
            found.add(
                Fault(subject, where, f"{name} as recomputed", expected, stored[name], ROLL_UP)
            )
