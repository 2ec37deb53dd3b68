# SPDX-License-Identifier: Apache-2.0
"""site.timezone is changed: days are cut anew, no mJ is lost or doubled at the border."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest

from fairwatt.accounting.days import day_bounds
from fairwatt.accounting.ingest import ingest
from fairwatt.accounting.rollup import rollup
from fairwatt.accounting.settle import settle
from fairwatt.accounting.store import transaction
from fairwatt.accounting.verify import span_of, verify
from fairwatt.accounting.zone import adopt_zone
from fairwatt.core.errors import ConfigError
from tests.unit.accounting.samples import BERLIN, UTC, Node, new_store

MIDNIGHT = day_bounds("2024-11-05", UTC)[0]
HOUR_MS = 3_600_000
KOLKATA = ZoneInfo("Asia/Kolkata")


@pytest.fixture
def db(tmp_path):
    """Three hours, 10 mJ before Berlin's midnight, 200 between, 3000 after UTC's."""
    db, node = new_store(tmp_path), Node()
    at = (MIDNIGHT - 7200) * 1000
    adopt(db, BERLIN)
    ingest(db, [node.up("GPU-a", t_ms=at)] + [
        node.window("GPU-a", at + n * HOUR_MS, at + (n + 1) * HOUR_MS, idle=idle)
        for n, idle in enumerate((10, 200, 3000))
    ], zone=BERLIN)  # fmt: skip
    roll(db, BERLIN)
    return db


def adopt(db, zone):
    with transaction(db) as connection:
        adopt_zone(connection, zone)


def roll(db, zone):
    settle(db, "campus", zone)
    rollup(db, "campus", zone, "DEU", MIDNIGHT + 86_400)


def days(db):
    return db.execute("SELECT day, idle_mj FROM unallocated_daily ORDER BY day").fetchall()


def test_another_zone_cuts_all_days_anew(db, tmp_path):
    assert days(db) == [("2024-11-04", 10), ("2024-11-05", 3200)]
    adopt(db, UTC)
    roll(db, UTC)
    assert days(db) == [("2024-11-04", 210), ("2024-11-05", 3000)]
    done = verify(tmp_path / "store.db", cluster="campus", zone=UTC, carbon_zone="DEU",
                  span=span_of(None, None, UTC))  # fmt: skip
    assert done.findings.faults == []


def test_the_same_zone_marks_nothing(db):
    adopt(db, BERLIN)
    assert db.execute("SELECT * FROM dirty_day").fetchall() == []


def test_a_zone_whose_hours_begin_elsewhere_is_refused(db):
    with pytest.raises(ConfigError, match=r"Asia/Kolkata.*set Europe/Berlin or a zone"):
        adopt(db, KOLKATA)


def test_an_upgraded_store_of_such_a_zone_gets_its_own_hours(tmp_path):
    """The migration took the hours as UTC has them."""
    db, node = new_store(tmp_path), Node()
    at = MIDNIGHT * 1000
    ingest(db, [node.up("GPU-a", t_ms=at), node.window("GPU-a", at, at + HOUR_MS, idle=600)])
    adopt(db, KOLKATA)
    roll(db, KOLKATA)
    hours = db.execute("SELECT hour_ts, idle_mj FROM device_hour ORDER BY 1").fetchall()
    assert hours == [(MIDNIGHT - 1800, 300), (MIDNIGHT + 1800, 300)]
    done = verify(tmp_path / "store.db", cluster="campus", zone=KOLKATA, carbon_zone="DEU",
                  span=span_of(None, None, KOLKATA))  # fmt: skip
    assert done.findings.faults == []
