# SPDX-License-Identifier: Apache-2.0
"""Looks whether the store is whole: SQLite's own checks, and sums of ours that are cheap to redo.

The full balance of the ledger is `fairwatt ledger verify`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from fairwatt.accounting.store import open_reader
from fairwatt.accounting.store_files import connect_read_only
from fairwatt.accounting.windows import TABLES, file_of, month_path

__all__ = ["check_store", "faults_of", "faults_of_file"]

SHOWN = 10
"""So many faults of one kind are told."""

_SPANS = (
    "SELECT count(*) FROM event_span a JOIN event_span b ON b.node = a.node"
    " AND b.boot_id = a.boot_id AND b.first_seq > a.first_seq AND b.first_seq <= a.last_seq"
)
_QUESTIONS = (
    (_SPANS, "spans of known events overlap"),
    ("SELECT count(*) FROM event_span WHERE last_seq < first_seq", "spans of events are empty"),
    ("SELECT count(*) FROM run_energy WHERE idle_mj < 0 OR active_mj < 0",
     "runs have a negative energy on a device"),
    ("SELECT count(*) FROM run_hour WHERE idle_mj < 0 OR active_mj < 0",
     "hours of runs have a negative energy"),
    ("SELECT count(*) FROM usage_daily WHERE idle_mj < 0 OR active_mj < 0 OR co2_mg < 0",
     "daily sums are negative"),
)  # fmt: skip
_SUMMED = ("runs_ended", "cpu_s", "device_s", "gpu_milli_s", "idle_mj", "active_mj", "co2_mg")
_MONTHS = (
    "SELECT month, {sums} FROM usage_monthly GROUP BY month"
    " EXCEPT SELECT substr(day, 1, 7) AS month, {sums} FROM usage_daily GROUP BY 1"
).replace("{sums}", ", ".join(f"sum({name})" for name in _SUMMED))


def check_store(path: Path, *, quick: bool = False) -> list[str]:
    """Return what is wrong with the store and its month files, [] if nothing is.

    Args:
        path: the store's file; it may be in use.
        quick: without comparing each index with its table.

    Raises:
        StoreError: it cannot be opened, or has another schema than this fairwatt.
    """
    with closing(open_reader(path)) as reader:
        faults = faults_of(reader, quick=quick)
        return [*faults, *(() if faults else _invariants(reader)), *_months(reader, quick)]


def faults_of(connection: sqlite3.Connection, *, quick: bool = False) -> list[str]:
    """Return what SQLite finds wrong with a database, and rows that belong to nothing."""
    check = "quick_check" if quick else "integrity_check"
    try:
        rows = connection.execute(f"PRAGMA {check}({SHOWN})").fetchall()
        faults = [text for (text,) in rows if text != "ok"]
        orphans = connection.execute("PRAGMA foreign_key_check").fetchmany(SHOWN)
    except sqlite3.DatabaseError as error:
        return [str(error)]
    return faults + [
        f"a row of {table} ({row_id}) belongs to no {parent}"
        for table, row_id, parent, _ in orphans
    ]


def faults_of_file(path: Path) -> list[str]:
    """Return what SQLite finds wrong with a file that nobody else has open."""
    try:
        with closing(connect_read_only(path)) as connection:
            return faults_of(connection)
    except sqlite3.Error as error:
        return [str(error)]


def _invariants(reader: sqlite3.Connection) -> Iterator[str]:
    for sql, words in _QUESTIONS:
        (count,) = reader.execute(sql).fetchone()
        if count:
            yield f"{count} {words}"
    for month, *_ in reader.execute(_MONTHS).fetchmany(SHOWN):
        yield f"the sums of {month} are not those of its days"


def _months(reader: sqlite3.Connection, quick: bool) -> Iterator[str]:
    """Each month file is there, sound, and has as many windows as were moved to it."""
    store = file_of(reader)
    rows = reader.execute("SELECT month, windows FROM window_month WHERE dropped_ts IS NULL")
    for month, moved in rows.fetchall():
        path = month_path(store, month)
        if not path.exists():
            yield f"{path.name} is missing: take it from the newest backup's folder"
            continue
        yield from (f"{path.name}: {fault}" for fault in _faults_of_month(path, moved, quick))


def _faults_of_month(path: Path, moved: int, quick: bool) -> list[str]:
    try:
        with closing(connect_read_only(path)) as connection:
            faults = faults_of(connection, quick=quick)
            if faults:
                return faults
            (count,) = connection.execute(f"SELECT count(*) FROM {TABLES[0]}").fetchone()  # noqa: S608
    except sqlite3.Error as error:
        return [str(error)]
    # After a crash some may be in both, and are then counted as moved at the next move.
    return [] if count >= moved else [f"{moved - count} windows are missing"]
