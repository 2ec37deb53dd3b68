# SPDX-License-Identifier: Apache-2.0
"""Once a night the collector verifies the last days; doctor tells what was wrong."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from fairwatt.accounting import store_checks
from fairwatt.accounting.cycle import site_of
from fairwatt.accounting.days import day_bounds
from fairwatt.accounting.ingest import ingest
from fairwatt.accounting.rollup import rollup
from fairwatt.accounting.settle import settle
from fairwatt.accounting.verify_nightly import last_verified, verify_if_due
from fairwatt.core import config as config_module
from tests.unit.accounting.samples import UTC, Node, new_store

NOON = day_bounds("2024-11-05", UTC)[0]
NIGHT = NOON + 86_400 + 3 * 3600
"""03:00 of the day after the windows."""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "fairwatt.toml"
    path.write_text(
        f"[site]\ncluster = 'campus'\ntimezone = 'UTC'\n"
        f"[collector]\ndatabase = '{tmp_path / 'store.db'}'\n[carbon]\nzone = 'DEU'\n"
    )
    return config_module.load(path)


@pytest.fixture
def night(tmp_path, config):
    """The site, and a store with one device's day."""
    db, node = new_store(tmp_path), Node()
    ingest(db, [
        node.up("GPU-a", t_ms=NOON * 1000),
        node.window("GPU-a", NOON * 1000, (NOON + 3600) * 1000, idle=500),
    ])  # fmt: skip
    settle(db, "campus", UTC)
    rollup(db, "campus", UTC, "DEU", NIGHT)
    return replace(site_of(config), zone=UTC), db


def due(night, now_ts=NIGHT, days=2):
    site, db = night
    return verify_if_due(db, site, days=days, hour=2, now_ts=now_ts)


def test_once_a_night_from_its_hour_on(night, caplog):
    caplog.set_level(logging.INFO)
    assert not due(night, NIGHT - 2 * 3600)
    assert not due(night, days=0)
    assert due(night)
    assert not due(night, NIGHT + 3600)
    assert due(night, NIGHT + 86_400)
    assert last_verified(night[1].conn) == {
        "day": "2024-11-07", "first": "2024-11-05", "last": "2024-11-06", "faults": 0,
    }  # fmt: skip
    assert "1 devices" in caplog.text
    assert "0 faults" in caplog.text


def test_what_is_wrong_is_logged_and_doctor_tells_how_to_see_it(night, config, caplog):
    _, db = night
    db.execute("UPDATE window SET measured_mj = 501")
    db.conn.commit()
    assert due(night)
    assert "GPU-a" in caplog.text
    assert "expected 501, found 500" in caplog.text
    db.close()
    (check,) = store_checks.store_checks
    (finding,) = [f for f in check.run(config) if "ledger" in f.problem]
    assert finding.level == "error"
    assert "--from 2024-11-04 --to 2024-11-05" in finding.remedy
