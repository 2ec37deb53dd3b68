# SPDX-License-Identifier: Apache-2.0
"""Migration 10: factors, PUE, contracts and hardware by version, and energy by quarter hour."""

from __future__ import annotations

import itertools
import sqlite3

from sqlite_utils import Database

__all__ = ["carbon_versions"]

_VERSIONED = "since_version INTEGER NOT NULL, until_version INTEGER"
_QUARTERS = ", ".join(f"q{n}_mj INTEGER NOT NULL" for n in range(4))
_TABLES = (
    # What a version prefers stands in it, so that its number alone gives the old figures.
    """CREATE TABLE carbon_version (
        version INTEGER PRIMARY KEY, made_ts INTEGER NOT NULL, reason TEXT NOT NULL,
        zone TEXT NOT NULL, grid_zone TEXT NOT NULL, method TEXT NOT NULL
    ) STRICT""",
    """CREATE TABLE provenance (
        provenance_id INTEGER PRIMARY KEY, source TEXT NOT NULL, licence TEXT NOT NULL,
        UNIQUE (source, licence)
    ) STRICT""",
    f"""CREATE TABLE grid_factor (
        zone TEXT NOT NULL, method TEXT NOT NULL, step_s INTEGER NOT NULL, origin TEXT NOT NULL,
        from_ts INTEGER NOT NULL, until_ts INTEGER NOT NULL, mg_per_kwh INTEGER NOT NULL,
        provenance_id INTEGER NOT NULL REFERENCES provenance, retrieved_ts INTEGER NOT NULL,
        {_VERSIONED},
        PRIMARY KEY (zone, method, step_s, origin, from_ts, since_version)
    ) STRICT, WITHOUT ROWID""",
    f"""CREATE TABLE dated_pue (
        from_ts INTEGER NOT NULL, pue_milli INTEGER NOT NULL, source TEXT NOT NULL, {_VERSIONED},
        PRIMARY KEY (from_ts, since_version)
    ) STRICT, WITHOUT ROWID""",
    f"""CREATE TABLE contract (
        name TEXT NOT NULL, from_ts INTEGER NOT NULL, until_ts INTEGER NOT NULL,
        share_permille INTEGER, mg_per_kwh INTEGER NOT NULL, source TEXT NOT NULL, {_VERSIONED},
        PRIMARY KEY (name, from_ts, since_version)
    ) STRICT, WITHOUT ROWID""",
    f"""CREATE TABLE hardware_carbon (
        hardware TEXT NOT NULL, embodied_g INTEGER NOT NULL, life_s INTEGER NOT NULL,
        source TEXT NOT NULL, {_VERSIONED},
        PRIMARY KEY (hardware, since_version)
    ) STRICT, WITHOUT ROWID""",
    "CREATE TABLE carbon_dirty_day (day TEXT PRIMARY KEY) STRICT, WITHOUT ROWID",
    """CREATE TABLE restated_day (
        version INTEGER NOT NULL, day TEXT NOT NULL,
        before_mg INTEGER NOT NULL, after_mg INTEGER NOT NULL,
        PRIMARY KEY (version, day)
    ) STRICT, WITHOUT ROWID""",
    # Whose energy it is: `part` is the GPU type of runs, the model of unallocated GPUs.
    """CREATE TABLE energy_owner (
        key_id INTEGER PRIMARY KEY, cluster TEXT NOT NULL, owner TEXT NOT NULL,
        account TEXT NOT NULL, user TEXT NOT NULL, kind TEXT NOT NULL, part TEXT NOT NULL,
        UNIQUE (cluster, owner, account, user, kind, part)
    ) STRICT""",
    f"""CREATE TABLE energy_hour (
        hour_ts INTEGER NOT NULL, key_id INTEGER NOT NULL REFERENCES energy_owner, {_QUARTERS},
        PRIMARY KEY (hour_ts, key_id)
    ) STRICT, WITHOUT ROWID""",
)
_DAYS = ("usage_daily", "unallocated_daily", "host_daily")
_SUMS = (*_DAYS, "usage_monthly", "host_monthly")


def carbon_versions(db: Database) -> None:
    """Make the tables, take over what is stored, and mark every day with energy dirty.

    Until it is rolled up again no day has energy by the quarter of an hour, and its market-based
    carbon is unknown.
    """
    for statement in _TABLES:
        db.execute(statement)
    for table in _SUMS:
        db.execute(f"ALTER TABLE {table} ADD COLUMN market_mg INTEGER NOT NULL DEFAULT 0")
        db.execute(f"ALTER TABLE {table} ADD COLUMN market_unknown_mj INTEGER NOT NULL DEFAULT 0")
        db.execute(f"UPDATE {table} SET market_unknown_mj = idle_mj + active_mj")  # noqa: S608
    _take_over(db.conn)
    db.execute("DROP TABLE carbon_factor")
    db.execute("DROP TABLE pue")
    for table in _DAYS:
        db.execute(
            f"INSERT OR IGNORE INTO dirty_day SELECT DISTINCT day FROM {table}"  # noqa: S608
            " WHERE idle_mj + active_mj > 0"
        )


def _take_over(connection: sqlite3.Connection) -> None:
    """Each stored version held all factors: it holds until the next one."""
    rows = connection.execute("SELECT DISTINCT version FROM carbon_factor ORDER BY version")
    versions = [version for (version,) in rows]
    for version, following in itertools.zip_longest(versions, versions[1:]):
        connection.execute(
            "INSERT INTO carbon_version SELECT ?, max(retrieved_ts),"
            " 'taken over from an earlier fairwatt', '', '', '' FROM carbon_factor"
            " WHERE version = ?",
            (version, version),
        )
        connection.execute(
            "INSERT OR IGNORE INTO provenance (source, licence)"
            " SELECT DISTINCT source, licence FROM carbon_factor WHERE version = ?",
            (version,),
        )
        connection.execute(
            "INSERT INTO grid_factor SELECT zone, method,"
            " CASE WHEN until_ts - from_ts <= 3600 THEN 3600"
            " WHEN until_ts - from_ts <= 86400 THEN 86400"
            " WHEN until_ts - from_ts <= 2678400 THEN 2678400 ELSE 31622400 END,"
            " 'file', from_ts, until_ts, g_per_kwh_milli, provenance_id, retrieved_ts, ?, ?"
            " FROM carbon_factor JOIN provenance USING (source, licence) WHERE version = ?",
            (version, following, version),
        )
    if versions:
        connection.execute(
            "INSERT INTO dated_pue SELECT from_ts, pue_milli, source, ?, NULL FROM pue",
            (versions[0],),
        )
