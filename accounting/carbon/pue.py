# SPDX-License-Identifier: Apache-2.0
"""The machine room's overhead by date: the setting carbon.pue, or a history as CSV.

The columns of a history are from (a date or time) and pue; each value holds until the next one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from fairwatt.accounting.carbon.factors import parse_time, table_rows
from fairwatt.accounting.carbon.versions import VALID, publish, replace_rows
from fairwatt.core.errors import ConfigError

__all__ = [
    "load_pue_history",
    "pue_milli_of",
    "pue_table",
    "set_pue",
    "stage_pue",
    "stage_pue_history",
]

COLUMNS = ("from", "pue")
SETTING = "carbon.pue"
_NAMES = ("from_ts", "pue_milli", "source")
_NEWEST = "SELECT from_ts, pue_milli, source FROM dated_pue WHERE until_version IS NULL"


def pue_milli_of(pue: float, place: str = SETTING) -> int:
    """Return a PUE × 1000.

    Raises:
        ConfigError: it is below 1 or beyond belief.
    """
    if not 1 <= pue <= 10:
        raise ConfigError(
            "a PUE is at least 1", place=place, value=pue, remedy="1.3 is a usual value"
        )
    return round(pue * 1000)


def stage_pue(connection: sqlite3.Connection, pue: float, now_ts: int) -> int:
    """Stage the configured PUE: the first one for all time, a changed one from now on.

    A history that somebody else than the setting wrote stays. Returns how many rows a version is
    needed for. Runs in the caller's transaction.

    Raises:
        ConfigError: it is below 1 or beyond belief.
    """
    pue_milli = pue_milli_of(pue)
    rows = sorted(connection.execute(_NEWEST).fetchall())
    if not rows:
        # Without a PUE no version can be used: the first one completes them all.
        row = (0, pue_milli, SETTING)
        connection.execute("INSERT INTO dated_pue VALUES (?, ?, ?, 1, NULL)", row)
        return 0
    last = [row for row in rows if row[2] == SETTING]
    if not last or last[-1][1] == pue_milli:
        return 0
    rows = [row for row in rows if row[0] != now_ts]
    return replace_rows(connection, "dated_pue", _NAMES, [*rows, (now_ts, pue_milli, SETTING)])


def load_pue_history(path: str | Path) -> list[tuple[int, int]]:
    """Return (from, PUE × 1000) of a CSV file, ordered.

    Raises:
        ConfigError: it cannot be read; the message names the line and the value.
    """
    place = str(path)
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot be read: {error}", place=place, remedy="see carbon.pue_file"
        ) from error
    entries = {}
    for where, (start, value) in table_rows(text, COLUMNS, place):
        try:
            pue = float(value)
        except ValueError:
            pue = 0.0
        from_ts = parse_time(start, where)
        if from_ts in entries:
            raise ConfigError("the same date twice", place=where, value=start)
        entries[from_ts] = pue_milli_of(pue, where)
    if not entries:
        raise ConfigError("no PUE", place=place, remedy="write a line such as 2024-01-01,1.3")
    return sorted(entries.items())


def stage_pue_history(
    connection: sqlite3.Connection, entries: Sequence[tuple[int, int]], source: str
) -> int:
    """Stage a history in place of all that was known; return how many rows differ."""
    rows = [(from_ts, milli, source) for from_ts, milli in entries]
    return replace_rows(connection, "dated_pue", _NAMES, rows)


def set_pue(connection: sqlite3.Connection, from_ts: int, pue: float, now_ts: int) -> int | None:
    """Set the PUE from a time until the next one that is known; return the new version, if any.

    Runs in the caller's transaction.

    Raises:
        ConfigError: it is below 1 or beyond belief.
    """
    milli = pue_milli_of(pue, "PUE")
    rows = [row for row in connection.execute(_NEWEST) if row[0] != from_ts]
    rows.append((from_ts, milli, "fairwatt carbon pue"))
    replace_rows(connection, "dated_pue", _NAMES, rows)
    return publish(connection, f"PUE {pue:g} by hand", now_ts)


def pue_table(connection: sqlite3.Connection, version: int) -> list[tuple[int, int, str]]:
    """Return (from, PUE × 1000, source) of a version, ordered."""
    rows = connection.execute(
        f"SELECT from_ts, pue_milli, source FROM dated_pue WHERE {VALID} ORDER BY from_ts",  # noqa: S608
        {"version": version},
    )
    return rows.fetchall()
