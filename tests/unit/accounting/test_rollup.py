# SPDX-License-Identifier: Apache-2.0
"""Sums per day and month by hand, and again without a change."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairwatt.accounting.days import day_bounds
from fairwatt.accounting.ingest import ingest
from fairwatt.accounting.rollup import mark_open_days, rollup
from fairwatt.accounting.runs import upsert_runs
from fairwatt.accounting.settle import settle
from fairwatt.accounting.store import data_version, transaction
from fairwatt.core.catalogue import load_catalogue
from tests.unit.accounting.samples import (
    BERLIN,
    UTC,
    Node,
    dump,
    new_store,
    sacct_run,
    share,
    whole,
)  # fmt: skip

CATALOGUE = load_catalogue()
NIGHT = day_bounds("2024-10-27", BERLIN)  # summer time ends: 25 hours
NOW = NIGHT[1] + 86_400


@pytest.fixture
def db(tmp_path):
    return new_store(tmp_path)


def put(db, *rows, zone=BERLIN, now=NOW):
    with transaction(db) as connection:
        upsert_runs(connection, rows, CATALOGUE, zone, now)


def roll(db, zone=BERLIN, now=NOW):
    settle(db, "campus", zone)
    return rollup(db, "campus", zone, "DEU", now)


def run_at(start, end, **changes):
    return sacct_run(Submit=str(start - 60), Eligible=str(start - 60), Start=str(start),
                     End=str(end), ElapsedRaw=str(end - start), **changes)  # fmt: skip


def usage(db, columns, table="usage_daily"):
    return db.execute(f"SELECT {columns} FROM {table} ORDER BY 1, 2").fetchall()


def test_the_long_night_has_25_hours(db):
    put(db, run_at(NIGHT[0] - 3600, NIGHT[1] + 3600))
    assert roll(db) == 3
    assert usage(db, "day, gpu_milli_s / 3600000") == [
        ("2024-10-26", 1),
        ("2024-10-27", 25),
        ("2024-10-28", 1),
    ]
    assert usage(db, "month, gpu_milli_s / 3600000", "usage_monthly") == [("2024-10", 27)]
    assert data_version(db.conn) == 1


def test_energy_and_carbon_of_a_day(db):
    """1 kWh to the run and 2 kWh to nobody, PUE 1.2, Germany 2024: 344.1 g/kWh."""
    node, start = Node(), NIGHT[0] + 3600
    put(db, run_at(start, start + 3600))
    kwh = 3_600_000_000
    ms = start * 1000
    ingest(db, [
        node.up("GPU-a"),
        node.start(7, ms, whole("GPU-a")),
        node.window("GPU-a", ms, ms + 3_600_000, share(7, ms, kwh // 4, kwh * 3 // 4, 500)),
        node.window("GPU-a", ms + 3_600_000, ms + 7_200_000, idle=2 * kwh),
    ])  # fmt: skip
    roll(db)
    assert usage(db, "day, idle_mj, active_mj, co2_mg, factor_fallback_mj, unmeasured_milli_s,"
                 " used_milli_s") == [
        ("2024-10-27", kwh // 4, kwh * 3 // 4, 412_920, 0, 0, 1_800_000),
    ]  # fmt: skip
    assert usage(
        db, "day, cluster, model, idle_mj, active_mj, co2_mg, factor_fallback_mj",
        "unallocated_daily",
    ) == [("2024-10-27", "campus", "a100-40", 2 * kwh, 0, 825_840, 0)]  # fmt: skip


def test_a_year_without_factor_takes_the_last_one_and_says_so(db):
    node, start = Node(), day_bounds("2026-05-05", BERLIN)[0]
    put(db, run_at(start, start + 3600))
    ms = start * 1000
    ingest(db, [node.window("GPU-a", ms, ms + 3_600_000, share(7, ms, 3_600_000_000, 0)),
                node.start(7, ms)])  # fmt: skip
    roll(db)
    assert usage(db, "co2_mg, factor_fallback_mj") == [(412_920, 3_600_000_000)]


def test_a_window_over_midnight_is_divided(db):
    """Two hours around midnight, of which 90 minutes lie on the second day."""
    node, midnight = Node(), NIGHT[0] * 1000
    ingest(db, [
        node.up("GPU-a"),
        node.window("GPU-a", midnight - 1_800_000, midnight + 5_400_000, idle=4000),
    ])  # fmt: skip
    roll(db)
    assert usage(db, "day, idle_mj", "unallocated_daily") == [
        ("2024-10-26", 1000),
        ("2024-10-27", 3000),
    ]


def test_importing_twice_changes_nothing(db):
    """E17: the dump is byte-identical, the data version stays."""
    node, start = Node(), NIGHT[0]
    ms = start * 1000
    events = [
        node.up("GPU-a"),
        node.start(7, ms, whole("GPU-a")),
        node.window("GPU-a", ms, ms + 3_600_000, share(7, ms, 10, 20, 100), idle=1),
        node.end(7, ms, ms + 3_600_000),
    ]
    rows = [run_at(start, start + 3600), run_at(start, start + 9, JobIDRaw="8", State="FAILED")]
    dumps = set()
    for _ in range(3):
        put(db, *rows)
        ingest(db, events)
        roll(db)
        dumps.add(tuple(dump(db, without=())))
    assert len(dumps) == 1
    assert data_version(db.conn) == 1


def test_recomputing_every_day_gives_the_same_rows(db):
    put(db, run_at(NIGHT[0], NIGHT[1] + 99), run_at(NIGHT[0], NIGHT[0] + 5, JobIDRaw="8"))
    roll(db)
    before = dump(db)
    db.execute("INSERT INTO dirty_day SELECT DISTINCT day FROM usage_daily")
    assert roll(db) == 2
    assert dump(db) == before
    assert data_version(db.conn) == 2


def test_a_later_end_replaces_the_sums(db):
    put(db, run_at(NIGHT[0], NIGHT[0] + 100))
    roll(db)
    put(db, run_at(NIGHT[0], NIGHT[0] + 300))
    roll(db)
    assert usage(db, "device_s, runs_ended") == [(300, 1)]


def test_running_jobs_keep_their_days_dirty(db):
    running = sacct_run(Start=str(NIGHT[0]), End="Unknown", State="RUNNING")
    put(db, running, now=NIGHT[0] + 600)
    for now in (NIGHT[0] + 600, NIGHT[1] - 5, NIGHT[1] + 600):
        with transaction(db) as connection:
            mark_open_days(connection, BERLIN, now)
        roll(db, now=now)
    assert usage(db, "day, device_s") == [
        ("2024-10-27", 25 * 3600),
        ("2024-10-28", 600),
    ]


def test_a_suspended_run_that_goes_on_has_the_same_cpu_time_however_often_it_was_rolled_up(db):
    """4 CPUs, an hour suspended: of 49 h the first day has 25/49 of 4 x 48 h."""
    running = sacct_run(Start=str(NIGHT[0]), End="Unknown", State="RUNNING", Suspended="01:00:00")
    put(db, running, now=NIGHT[0] + 600)
    for now in (NIGHT[1] - 5, NIGHT[1] + 86_400):
        with transaction(db) as connection:
            mark_open_days(connection, BERLIN, now)
        roll(db, now=now)
    first = 4 * 48 * 3600 * 25 // 49
    assert usage(db, "day, cpu_s")[:2] == [
        ("2024-10-27", first),
        ("2024-10-28", 4 * 48 * 3600 - first),
    ]


def test_owners_are_kept_apart(db):
    put(
        db,
        run_at(NIGHT[0], NIGHT[0] + 10),
        run_at(NIGHT[0], NIGHT[0] + 20, JobIDRaw="8", User="ben"),
        run_at(NIGHT[0], NIGHT[0] + 40, JobIDRaw="9", Account="", User="", AllocTRES="cpu=4"),
    )
    roll(db)
    assert usage(db, "account, user, gpu_type, device_s, cpu_s") == [
        ("", "", "", 0, 160),
        ("qcd", "ada", "a100", 10, 40),
        ("qcd", "ben", "a100", 20, 80),
    ]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_days_conserve_what_was_measured(tmp_path_factory, data):
    """Σ usage_daily + Σ unallocated_daily = Σ windows, in mJ, in any zone; months equal days."""
    zone = data.draw(st.sampled_from([UTC, BERLIN]))
    db = new_store(tmp_path_factory.mktemp("r"))
    node = Node()
    start = NIGHT[0] + data.draw(st.integers(-90_000, 90_000))
    length = data.draw(st.integers(1, 200_000))
    put(db, run_at(start, start + length), zone=zone)
    at, key = start * 1000, start * 1000
    events = [node.up("GPU-a"), node.start(7, key, whole("GPU-a"))]
    amount = st.integers(0, 10**12)
    while at < (start + length) * 1000:
        end = at + data.draw(st.integers(10_000_000, 90_000_000))
        events.append(
            node.window("GPU-a", at, end, share(7, key, data.draw(amount), data.draw(amount)),
                        idle=data.draw(amount), active=data.draw(amount))
        )  # fmt: skip
        at = end
    ingest(db, events)
    roll(db, zone=zone)
    sums = {
        table: db.execute(f"SELECT coalesce(sum(idle_mj + active_mj), 0) FROM {table}").fetchone()
        for table in ("usage_daily", "usage_monthly", "unallocated_daily")
    }
    (measured,) = db.execute("SELECT sum(measured_mj) FROM window").fetchone()
    assert sums["usage_daily"] == sums["usage_monthly"]
    assert sums["usage_daily"][0] + sums["unallocated_daily"][0] == measured
    db.close()


def test_energy_after_midnight_counts_though_the_run_ended_before(db):
    """Slurm tells late of a run whose epilog ran ten seconds into the next day."""
    node, end = Node(), NIGHT[0] - 1
    ms = (end - 100) * 1000
    ingest(db, [
        node.start(7, ms, whole("GPU-a")),
        node.window("GPU-a", ms, NIGHT[0] * 1000, share(7, ms, 30, 0)),
        node.window("GPU-a", NIGHT[0] * 1000, NIGHT[0] * 1000 + 10_000, share(7, ms, 5, 0)),
    ])  # fmt: skip
    roll(db)
    put(db, run_at(end - 100, end))
    roll(db)
    assert usage(db, "day, idle_mj") == [("2024-10-26", 30), ("2024-10-27", 5)]


def test_a_node_that_tells_of_the_end_a_day_later_loses_nothing(db):
    """Slurm ends the run at 22:00; the node comes back at 14:00 and charges its gap to it."""
    start, end, back = NIGHT[1] - 10_800, NIGHT[1] - 7200, NIGHT[1] + 50_400
    put(db, run_at(start, end, State="NODE_FAIL"))
    node = Node()
    ingest(db, [
        node.up("GPU-a"),
        node.start(7, start * 1000, whole("GPU-a")),
        node.window("GPU-a", start * 1000, back * 1000, share(7, start * 1000, 6100, 7)),
        node.end(7, start * 1000, back * 1000),
    ])  # fmt: skip
    roll(db)
    assert usage(db, "sum(idle_mj), sum(active_mj)") == [(6100, 7)]
    assert usage(db, "day, gpu_milli_s") == [("2024-10-27", 3_600_000), ("2024-10-28", 0)]
    before = dump(db)
    db.execute("INSERT INTO dirty_day VALUES ('2024-10-28')")  # without the day of the end
    db.conn.commit()
    roll(db)
    assert dump(db) == before
    put(db, run_at(start, back, State="NODE_FAIL"))
    roll(db)
    assert db.execute("SELECT count(*) FROM stray_hour").fetchone() == (0,)
    assert usage(db, "sum(idle_mj), sum(active_mj)") == [(6100, 7)]
