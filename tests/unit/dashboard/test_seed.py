# SPDX-License-Identifier: Apache-2.0
"""The invented year: always the same, and possible."""

from __future__ import annotations

import sqlite3
from datetime import date, timedelta
from zoneinfo import ZoneInfo

import pytest

from fairwatt.accounting.runs import insert_runs
from fairwatt.accounting.store import open_store
from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.errors import StoreError
from fairwatt.core.records import Run
from fairwatt.dashboard.invent import invent_runs
from fairwatt.dashboard.seed import seed_year
from fairwatt.dashboard.university import load_university

UNIVERSITY = load_university()
UNTIL = date(2026, 3, 1)


@pytest.fixture(scope="module")
def year():
    first = UNTIL - timedelta(days=365)
    return invent_runs(UNIVERSITY, first, UNTIL, ZoneInfo("Europe/Berlin"), seed=1)


@pytest.fixture
def db(seeded):
    connection = sqlite3.connect(seeded)
    yield connection
    connection.close()


def test_the_same_arguments_give_the_same_year(year):
    first = UNTIL - timedelta(days=365)
    assert year == invent_runs(UNIVERSITY, first, UNTIL, ZoneInfo("Europe/Berlin"), seed=1)
    assert year != invent_runs(UNIVERSITY, first, UNTIL, ZoneInfo("Europe/Berlin"), seed=2)


def test_a_year_is_about_twelve_thousand_runs(year):
    assert 11_000 < len(year) < 15_000


def test_no_device_is_held_twice_at_once(year):
    """At no moment do runs hold more devices of a board than it has."""
    marks = {}
    for run in year:
        for held in run.held if run.pool else ():
            marks.setdefault((run.pool.type, held.node, held.board), []).extend(
                [(run.start_ts, 1), (run.end_ts, -1)]
            )
    limits = {pool.type: pool.devices_per_board for pool in UNIVERSITY.pools}
    for (kind, *_), changes in marks.items():
        busy = 0
        for _, change in sorted(changes):
            busy += change
            assert busy <= limits[kind]


def test_times_are_in_order(year):
    for run in year:
        assert run.submit_ts <= run.eligible_ts
        if run.start_ts is not None:
            assert run.eligible_ts < run.start_ts <= run.end_ts
        if run.state == "TIMEOUT":
            assert run.run_s == run.limit_s


def test_every_group_pool_and_state_occurs(year):
    assert {run.account for run in year} == {"qcd", "optics", "physics", "chemistry", "medicine"}
    assert {run.pool.type if run.pool else None for run in year} == {
        None, *(pool.type for pool in UNIVERSITY.pools),
    }  # fmt: skip
    assert {run.state for run in year} >= {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"}


def test_people_work_by_day_and_on_weekdays(year):
    zone = ZoneInfo("Europe/Berlin")
    from datetime import datetime

    times = [datetime.fromtimestamp(run.submit_ts, zone) for run in year]
    day, night = (sum(a <= t.hour < b for t in times) for a, b in ((9, 17), (0, 6)))
    assert day > 6 * night
    weekend = sum(t.weekday() >= 5 for t in times)
    assert weekend / len(times) < 0.2


def test_models_are_in_the_catalogue():
    catalogue = load_catalogue(None)
    assert all(catalogue.model(pool.model) for pool in UNIVERSITY.pools)


def test_hours_sum_to_the_energy_of_the_boards(db):
    wrong = db.execute(
        "SELECT run_id FROM (SELECT run_id, SUM(idle_mj) i, SUM(active_mj) a FROM run_energy"
        " GROUP BY run_id) e JOIN (SELECT run_id, SUM(idle_mj) i, SUM(active_mj) a FROM run_hour"
        " GROUP BY run_id) h USING (run_id) WHERE e.i <> h.i OR e.a <> h.a"
    ).fetchall()
    assert wrong == []


def test_rollups_hold_the_energy_to_the_millijoule(db):
    (runs,) = db.execute("SELECT SUM(idle_mj + active_mj) FROM run_hour").fetchone()
    (days,) = db.execute("SELECT SUM(idle_mj + active_mj) FROM usage_daily").fetchone()
    assert runs == days > 0
    assert db.execute("SELECT COUNT(*) FROM dirty_day").fetchone() == (0,)


def test_idle_boards_are_nobody_s(db):
    """A held board's idle watts are the run's, the rest of the day's the cluster's."""
    boards = sum(len(p.nodes) * p.boards_per_node * p.idle_w for p in UNIVERSITY.pools)
    day = "2026-02-20"
    (free_mj,) = db.execute(
        "SELECT SUM(idle_mj) FROM unallocated_daily WHERE day = ?", (day,)
    ).fetchone()
    (held_mj,) = db.execute(
        "SELECT SUM(idle_mj) FROM usage_daily WHERE day = ?", (day,)
    ).fetchone()
    assert 0 < free_mj < boards * 86_400_000
    # Runs without a measurement held boards too: so at most, and nearly, the whole.
    assert 0.8 * boards * 86_400_000 < free_mj + held_mj <= boards * 86_400_000


def test_marked_as_invented(db):
    assert db.execute("SELECT DISTINCT origin FROM run").fetchall() == [("seed",)]
    assert db.execute("SELECT value FROM meta WHERE key = 'invented'").fetchone() == (
        "Northfield University",
    )


def test_a_second_year_is_refused(tmp_path):
    db = open_store(tmp_path / "x.db")
    seed_year(db, UNTIL, "UTC", days=2)
    with pytest.raises(StoreError, match="invented year already"):
        seed_year(db, UNTIL, "UTC", days=2)
    db.close()


def test_live_rows_stay(tmp_path):
    db = open_store(tmp_path / "x.db")
    live_run = Run(cluster="campus", job_id=1, submit_ts=5, restart_cnt=0, state="COMPLETED")
    insert_runs(db.conn, [live_run], load_catalogue(), seeded=False)
    db.execute("INSERT INTO account VALUES ('campus', 'physics', 'root', 77, 'live', 0)")
    db.conn.commit()
    seed_year(db, UNTIL, "UTC", days=2)
    live = db.execute("SELECT job_id FROM run WHERE origin = 'slurm'").fetchall()
    shares = db.execute("SELECT raw_shares FROM account WHERE name = 'physics'").fetchone()
    db.close()
    assert live == [(1,)]
    assert shares == (77,)
