# SPDX-License-Identifier: Apache-2.0
"""m010: what a store of before knew of carbon reads the same, under the same versions."""

from __future__ import annotations

import sqlite3

from sqlite_utils import Database

from fairwatt.accounting.carbon.factors import Factor, FactorFile
from fairwatt.accounting.carbon.grid_store import open_grid
from fairwatt.accounting.carbon.versions import read_version, store_choice, versions
from fairwatt.accounting.migrations import migrations
from fairwatt.accounting.store import open_store, transaction
from tests.unit.carbon.factor import factor_at
from tests.unit.carbon.stored import store_factors, store_pue

YEAR_S = 366 * 86_400


def old_store(path):
    """A store of nine migrations with two versions of a year, a PUE that changed, and a day."""
    connection = sqlite3.connect(path)
    db = Database(connection)
    for migration in migrations.pending(db):
        if migration.name == "m010_carbon":
            break
        migration.fn(db)
        db["_sqlite_migrations"].insert(
            {"migration_set": "fairwatt", "name": migration.name, "applied_at": "2026"}
        )
    connection.executemany(
        "INSERT INTO carbon_factor VALUES (?, 'DEU', ?, ?, ?, 'lifecycle', 's', 'l', 5)",
        [(1, 0, YEAR_S, 380_000), (2, 0, YEAR_S, 350_000), (2, YEAR_S, 2 * YEAR_S, 340_000)],
    )
    connection.executemany("INSERT INTO pue VALUES (?, ?, 'carbon.pue')", [(0, 1300), (99, 1200)])
    connection.execute(
        "INSERT INTO unallocated_daily (day, cluster, model, idle_mj, active_mj, co2_mg)"
        " VALUES ('1970-01-02', 'c', 'm', 7, 1, 3)"
    )
    connection.commit()
    connection.close()


def test_old_versions_stay_and_days_wait_for_their_quarters(tmp_path):
    old_store(tmp_path / "a.db")
    db = open_store(tmp_path / "a.db")
    first, second = (open_grid(db.conn, "DEU", version) for version in (1, 2))
    assert (factor_at(first, 5), factor_at(second, 5)) == ((380_000, False), (350_000, False))
    assert (factor_at(first, YEAR_S), factor_at(second, YEAR_S)) == (
        (380_000, True),
        (340_000, False),
    )
    assert [first.pue_at(ts) for ts in (0, 99)] == [1300, 1200]
    assert db.execute("SELECT day FROM dirty_day").fetchall() == [("1970-01-02",)]
    assert db.execute("SELECT market_mg, market_unknown_mj FROM unallocated_daily").fetchall() == [
        (0, 8)
    ]
    rows = (Factor("DEU", 0, YEAR_S, 350_000), Factor("DEU", YEAR_S, 2 * YEAR_S, 340_000))
    with transaction(db) as connection:
        assert store_factors(connection, FactorFile("s", "l", "lifecycle", 9, rows)) == 2
        store_pue(connection, 1.2, 500)
        assert store_choice(connection, "DEU", "", "", 500) is None
    assert [version.version for version in versions(db.conn)] == [2, 1]
    assert read_version(db.conn, 1).zone == "DEU"
    db.close()
