# SPDX-License-Identifier: Apache-2.0
"""Versions of all that carbon is computed from: what was true then stays in the store.

A row is valid from `since_version` until before `until_version` (NULL: still). Changes are
staged for the version after the newest one, which nobody reads, and published in one step: a
published version never changes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

__all__ = [
    "VALID",
    "Version",
    "choice_words",
    "current_version",
    "name_zone",
    "publish",
    "read_version",
    "replace_rows",
    "store_choice",
    "versions",
]

VALID = "since_version <= :version AND (until_version IS NULL OR until_version > :version)"
"""SQL condition on a versioned table: the row belongs to :version."""

_ALL_TIME = (-(2**62), 2**62)


class Version(NamedTuple):
    """A published version: when and why it was made, and which factors its reports prefer.

    `zone` is the country's, `grid_zone` and `method` those of the finer factors ("": the
    country's own).
    """

    version: int
    made_ts: int
    reason: str
    zone: str
    grid_zone: str
    method: str


def current_version(connection: sqlite3.Connection) -> int | None:
    """Return the newest published version, None if there is none."""
    row = connection.execute("SELECT max(version) FROM carbon_version").fetchone()
    return None if row[0] is None else int(row[0])


def read_version(connection: sqlite3.Connection, version: int | None = None) -> Version | None:
    """Return a published version (None: the newest), or None if there is no such one."""
    number = current_version(connection) if version is None else version
    row = connection.execute(
        "SELECT version, made_ts, reason, zone, grid_zone, method FROM carbon_version"
        " WHERE version = ?",
        (number,),
    ).fetchone()
    return Version(*row) if row else None


def versions(connection: sqlite3.Connection) -> list[Version]:
    """Return all published versions, the newest first."""
    rows = connection.execute(
        "SELECT version, made_ts, reason, zone, grid_zone, method FROM carbon_version"
        " ORDER BY version DESC"
    )
    return [Version(*row) for row in rows]


def replace_rows(
    connection: sqlite3.Connection,
    table: str,
    columns: Sequence[str],
    wanted: Iterable[tuple[Any, ...]],
    *,
    where: str = "1",
    params: Sequence[Any] = (),
    extra: Sequence[Any] = (),
) -> int:
    """Stage that the rows of `table` that fit `where` shall be `wanted`; return how many differ.

    Equal rows stay as they are, so that saying the same twice changes nothing. `extra` fills the
    columns behind `columns`, which do not make a difference. Runs in the caller's transaction.
    """
    staged = (current_version(connection) or 0) + 1
    names = ", ".join(columns)
    there = set(
        connection.execute(
            f"SELECT {names} FROM {table} WHERE until_version IS NULL AND {where}",  # noqa: S608
            tuple(params),
        )
    )
    rows = set(wanted)
    same = " AND ".join(f"{name} IS ?" for name in columns)
    for row in there - rows:
        _close(connection, table, same, row, staged)
    marks = ", ".join("?" * (len(columns) + len(extra) + 1))
    connection.executemany(
        f"INSERT INTO {table} VALUES ({marks}, NULL)",  # noqa: S608 - our own names
        [(*row, *extra, staged) for row in sorted(rows - there, key=repr)],
    )
    return len(there ^ rows)


def publish(
    connection: sqlite3.Connection, reason: str, now_ts: int, choice: Sequence[str] | None = None
) -> int | None:
    """Make what is staged the newest version; return it, or None if nothing has changed.

    `choice` is (zone, grid_zone, method); None: as before. The days whose carbon may change are
    marked. Runs in the caller's transaction.
    """
    last = read_version(connection)
    version = (last.version if last else 0) + 1
    preferred = tuple(choice or (last[3:] if last else ("", "", "")))
    spans = _changed_spans(connection, version, str(preferred[0]))
    if last and preferred != tuple(last[3:]):
        spans.append(_ALL_TIME)
    if last and not spans:
        return None
    connection.execute(
        "INSERT INTO carbon_version VALUES (?, ?, ?, ?, ?, ?)",
        (version, now_ts, reason, *preferred),
    )
    for from_ts, until_ts in spans:
        _mark_days(connection, from_ts, until_ts)
    return version


def store_choice(
    connection: sqlite3.Connection, zone: str, grid_zone: str, method: str, now_ts: int
) -> int | None:
    """Keep which factors reports prefer; another choice is a new version, which is returned.

    Runs in the caller's transaction.
    """
    name_zone(connection, zone)
    choice = (zone, grid_zone, method)
    return publish(connection, choice_words(*choice), now_ts, choice)


def name_zone(connection: sqlite3.Connection, zone: str) -> None:
    """Say of versions without a zone that it was this one: they were read with the configured."""
    connection.execute("UPDATE carbon_version SET zone = ? WHERE zone = ''", (zone,))


def choice_words(zone: str, grid_zone: str, method: str) -> str:
    """Return which factors reports use, as the reason of a version."""
    return f"reports use {grid_zone or zone}{f', {method}' if method else ''}"


def _close(
    connection: sqlite3.Connection, table: str, same: str, row: tuple[Any, ...], staged: int
) -> None:
    """End a row with the staged version; one that is only staged itself was never there."""
    gone = connection.execute(
        f"DELETE FROM {table} WHERE until_version IS NULL AND since_version = ? AND {same}",  # noqa: S608
        (staged, *row),
    )
    if not gone.rowcount:
        connection.execute(
            f"UPDATE {table} SET until_version = ? WHERE until_version IS NULL AND {same}",  # noqa: S608
            (staged, *row),
        )


_CHANGED = {
    # A finer factor is also part of its month's mean; a year's is the fallback of all time.
    "grid_factor": "CASE WHEN max(step_s) > 86400 THEN :from ELSE min(from_ts) - 2678400 END,"
    " CASE WHEN max(step_s) > 86400 THEN :until ELSE max(until_ts) + 2678400 END",
    "dated_pue": ":from, :until",
    "contract": "min(from_ts), max(until_ts)",
}


# The first hourly factors of a method make a gap of all its other time.
_FINER = """
    SELECT 1 FROM (SELECT zone, method, min(step_s) AS finest FROM grid_factor
                   WHERE since_version = :version GROUP BY zone, method) n
    WHERE finest < (SELECT min(o.step_s) FROM grid_factor o WHERE o.zone = n.zone
                    AND o.method = n.method AND o.since_version < :version)"""


# Without a year's factor a gap takes the nearest hour's, however far that is.
_YEARLY = "SELECT 1 FROM grid_factor WHERE until_version IS NULL AND zone = ? AND step_s > 86400"


def _changed_spans(
    connection: sqlite3.Connection, version: int, country: str
) -> list[tuple[int, int]]:
    """The times whose operational carbon differs between a staged version and the one before."""
    spans = []
    for table, bounds in _CHANGED.items():
        count, from_ts, until_ts = connection.execute(
            f"SELECT count(*), {bounds} FROM {table}"  # noqa: S608 - our own names
            " WHERE since_version = :version OR until_version = :version",
            {"version": version, "from": _ALL_TIME[0], "until": _ALL_TIME[1]},
        ).fetchone()
        if count:
            spans.append((from_ts, until_ts))
    is_finer = connection.execute(_FINER, {"version": version}).fetchone()
    has_years = connection.execute(f"{_YEARLY} LIMIT 1", (country,)).fetchone()
    if is_finer or (spans and country and not has_years):
        spans.append(_ALL_TIME)
    (changed,) = connection.execute(
        "SELECT count(*) FROM hardware_carbon WHERE since_version = ? OR until_version = ?",
        (version, version),
    ).fetchone()
    # Embodied carbon is worked out when a report is made: no day is dirty.
    return [*spans, *([(0, 0)] if changed else [])]


def _mark_days(connection: sqlite3.Connection, from_ts: int, until_ts: int) -> None:
    """Mark days with energy in the span; a day more on either side serves every time zone."""
    bounds = [None if abs(ts) > 2**40 else ts for ts in (from_ts - 86_400, until_ts + 86_400)]
    if from_ts == until_ts:
        return
    for table in ("usage_daily", "unallocated_daily", "host_daily"):
        connection.execute(
            f"INSERT OR IGNORE INTO carbon_dirty_day SELECT DISTINCT day FROM {table}"  # noqa: S608
            " WHERE day >= coalesce(date(?, 'unixepoch'), '')"
            " AND day <= coalesce(date(?, 'unixepoch'), '9999')",
            bounds,
        )
