# SPDX-License-Identifier: Apache-2.0
"""The migration for waste: memory in use, idle policies, classes of runs, billing units.

Its own file for its length; `migrations.py` gives it its place in the series.
"""

from __future__ import annotations

from zoneinfo import ZoneInfo

from sqlite_utils import Database

from fairwatt.accounting.run_rows import billing_of
from fairwatt.accounting.use_cells import USE_TABLES, fill_use_cells

__all__ = ["waste_tables"]

_STEPS = (
    *USE_TABLES,
    # What a run used of each board's memory, of all slices that it held there.
    """CREATE TABLE run_gpu_memory (
        run_id INTEGER NOT NULL REFERENCES job_run ON DELETE CASCADE,
        device_uuid TEXT NOT NULL, max_mib INTEGER NOT NULL, mean_mib INTEGER NOT NULL,
        PRIMARY KEY (run_id, device_uuid)
    ) STRICT, WITHOUT ROWID""",
    # The largest sum of its tasks' resident memory in any step, from sacct.
    """CREATE TABLE run_memory (
        run_id INTEGER PRIMARY KEY REFERENCES job_run ON DELETE CASCADE,
        peak_mib INTEGER NOT NULL
    ) STRICT""",
    # Only runs that nodes measured; `waste_permille` NULL: how much was wasted is unknown.
    """CREATE TABLE run_waste (
        run_id INTEGER PRIMARY KEY REFERENCES job_run ON DELETE CASCADE,
        class TEXT NOT NULL, waste_permille INTEGER
    ) STRICT""",
    """CREATE TABLE unjudged (
        run_id INTEGER PRIMARY KEY REFERENCES job_run ON DELETE CASCADE
    ) STRICT""",
    """CREATE TRIGGER run_energy_judged AFTER INSERT ON run_energy BEGIN
        INSERT OR IGNORE INTO unjudged VALUES (new.run_id);
    END""",
    "INSERT OR IGNORE INTO unjudged SELECT run_id FROM run_energy",
    # Classes but "unknown", which is what the day's GPU time leaves.
    """CREATE TABLE waste_daily (
        day TEXT NOT NULL, cluster TEXT NOT NULL, account TEXT NOT NULL, user TEXT NOT NULL,
        class TEXT NOT NULL, runs_ended INTEGER NOT NULL,
        gpu_milli_s INTEGER NOT NULL, wasted_milli_s INTEGER NOT NULL,
        PRIMARY KEY (day, cluster, account, user, class)
    ) STRICT, WITHOUT ROWID""",
    # What the idle policy `active` gives a run more than it reserved, and takes from nobody.
    """CREATE TABLE moved_daily (
        day TEXT NOT NULL, cluster TEXT NOT NULL, owner TEXT NOT NULL,
        account TEXT NOT NULL, user TEXT NOT NULL, gpu_type TEXT NOT NULL,
        moved_mj INTEGER NOT NULL,
        PRIMARY KEY (day, cluster, owner, account, user, gpu_type)
    ) STRICT, WITHOUT ROWID""",
    "ALTER TABLE tres ADD COLUMN billing INTEGER",
    "ALTER TABLE usage_daily ADD COLUMN billing_s INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE usage_monthly ADD COLUMN billing_s INTEGER NOT NULL DEFAULT 0",
    "INSERT OR IGNORE INTO dirty_day SELECT DISTINCT day FROM usage_daily",
)


def waste_tables(db: Database) -> None:
    """Make the tables, and fill what can be known of the past."""
    for step in _STEPS:
        db.execute(step)
    rows = db.execute("SELECT id, text FROM tres").fetchall()
    db.conn.executemany(
        "UPDATE tres SET billing = ? WHERE id = ?", [(billing_of(text), n) for n, text in rows]
    )
    fill_use_cells(db.conn, ZoneInfo("UTC"))
