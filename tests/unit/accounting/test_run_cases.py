# SPDX-License-Identifier: Apache-2.0
"""From the row of sacct to the daily sums: every way a job becomes runs, worked out by hand."""

from __future__ import annotations

from datetime import datetime

import pytest

from fairwatt.accounting.ingest import ingest
from fairwatt.accounting.rollup import rollup
from fairwatt.accounting.runs import upsert_runs
from fairwatt.accounting.settle import settle
from fairwatt.accounting.store import transaction
from fairwatt.core.catalogue import load_catalogue
from tests.unit.accounting.samples import BERLIN, Node, new_store, sacct_run, share, whole

HOUR = 3600


def ts(*moment):
    return int(datetime(*moment, tzinfo=BERLIN).timestamp())


def run(start, end, **changes):
    told = {"Submit": str(start - 60), "Eligible": str(start - 60), "Start": str(start),
            "End": str(end) if end else "Unknown",
            "ElapsedRaw": str(end - start if end else 1)}  # fmt: skip
    return sacct_run(**{**told, **changes})


@pytest.fixture
def db(tmp_path):
    store = new_store(tmp_path)
    yield store
    store.close()


DECEMBER_TS = ts(2026, 12, 1)


def roll(db, *runs, now_ts=DECEMBER_TS):
    with transaction(db) as connection:
        upsert_runs(connection, runs, load_catalogue(), BERLIN, now_ts)
    settle(db, "campus", BERLIN)
    rollup(db, "campus", BERLIN, "DEU", now_ts)


def hours(db, table="daily", column="device_s"):
    """Hours by day or month."""
    name = "day" if table == "daily" else "month"
    sql = f"SELECT {name}, sum({column}) FROM usage_{table} GROUP BY 1 ORDER BY 1"
    return {when: amount / HOUR for when, amount in db.execute(sql)}


def test_a_suspended_job_gives_back_its_cpus_and_keeps_its_gpus(db):
    """E12: 2 h of wall time, 30 min suspended, 16 CPUs, 2 GPUs."""
    start = ts(2026, 11, 2, 10)
    roll(db, run(start, start + 2 * HOUR, NCPUS="16", Suspended="00:30:00", ElapsedRaw="5400",
                 AllocTRES="cpu=16,gres/gpu=2,gres/gpu:a100=2"))  # fmt: skip
    assert hours(db) == {"2026-11-02": 4.0}
    assert hours(db, column="cpu_s") == {"2026-11-02": 24.0}
    assert db.execute("SELECT elapsed_s FROM run").fetchone() == (5400,)


def test_a_run_over_the_month_is_in_both(db):
    """22:00 to 03:00."""
    roll(db, run(ts(2026, 10, 31, 22), ts(2026, 11, 1, 3)))
    assert hours(db) == {"2026-10-31": 2.0, "2026-11-01": 3.0}
    assert hours(db, "monthly") == {"2026-10": 2.0, "2026-11": 3.0}
    assert hours(db, "monthly", "runs_ended") == {"2026-10": 0, "2026-11": 1 / HOUR}


def test_a_second_before_and_a_second_after_midnight(db):
    midnight = ts(2026, 11, 3)
    roll(db, run(midnight - 1, midnight + 1))
    assert hours(db) == {"2026-11-02": 1 / HOUR, "2026-11-03": 1 / HOUR}


@pytest.mark.parametrize(
    ("day", "length_h"),
    [((2026, 3, 29), 23), ((2026, 10, 25), 25), ((2026, 6, 1), 24)],
)
def test_days_of_23_and_25_hours_are_whole(db, day, length_h):
    start = ts(*day)
    roll(db, run(start - HOUR, start + (length_h + 1) * HOUR))
    assert list(hours(db).values()) == [1.0, length_h, 1.0]


def test_the_hour_that_comes_twice_is_an_hour(db):
    """E13: 02:30 to 02:30."""
    roll(db, run(1792888200, 1792891800))
    assert hours(db) == {"2026-10-25": 1.0}


def test_a_requeued_job_is_the_sum_of_its_tries(db):
    """E9: 3889 + 4473 + 6122 + 2153 = 16,637 GPU seconds."""
    at, rows = ts(2026, 11, 2, 1), []
    for number, length_s in enumerate((3889, 4473, 6122, 2153)):
        state = "COMPLETED" if number == 3 else "REQUEUED"
        rows.append(
            run(at, at + length_s, State=state, Submit=str(at - 5), DBIndex=str(number + 1))
        )
        at += length_s + 20
    roll(db, *rows)
    assert round(sum(hours(db).values()) * HOUR) == 16_637
    assert db.execute("SELECT restart_cnt FROM run ORDER BY start_ts").fetchall() == [
        (0,), (1,), (2,), (3,),
    ]  # fmt: skip


def test_a_resized_job_counts_each_size_for_its_time(db):
    """2 nodes with a GPU each for an hour, then one for half an hour: 2.5 GPU hours."""
    start = ts(2026, 11, 2, 10)
    two = "gres/gpu=2,gres/gpu:a100=2"
    first = run(start, start + HOUR, State="RESIZING", AllocTRES=two, DBIndex="1")
    # As 22.05 tells it: with the start of the whole job.
    second = run(start, start + HOUR + 1800, Submit=str(start + HOUR), DBIndex="2")
    roll(db, first, second)
    assert hours(db) == {"2026-11-02": 2.5}


def test_parts_of_a_het_job_are_counted_once(db):
    """E21"""
    start = ts(2026, 11, 2, 10)
    parts = [run(start, start + HOUR, JobIDRaw=str(100 + n), JobID=f"100+{n}") for n in (0, 1)]
    roll(db, *parts, *parts)
    assert hours(db) == {"2026-11-02": 2.0}


def test_several_types_in_one_job(db):
    """E1: an hour of 2 a100, 2 h100 and a 3g slice."""
    start = ts(2026, 11, 2, 10)
    tres = "cpu=8,gres/gpu=5,gres/gpu:a100=2,gres/gpu:h100=2,gres/gpu:a100_3g.20gb=1"
    roll(db, run(start, start + HOUR, AllocTRES=tres))
    rows = db.execute("SELECT gpu_type, device_s, gpu_milli_s FROM usage_daily ORDER BY 1")
    assert rows.fetchall() == [
        ("a100", 2 * HOUR, 2000 * HOUR),
        ("a100_3g.20gb", HOUR, 429 * HOUR),
        ("h100", 2 * HOUR, 2000 * HOUR),
    ]


def test_an_exclusive_job_has_gpus_that_it_never_asked_for(db):
    """E11"""
    start = ts(2026, 11, 2, 10)
    roll(db, run(start, start + HOUR, ReqTRES="cpu=1",
                 AllocTRES="cpu=64,gres/gpu=8,gres/gpu:h100=8"))  # fmt: skip
    assert hours(db) == {"2026-11-02": 8.0}


@pytest.mark.parametrize("state", ["PREEMPTED", "NODE_FAIL", "OUT_OF_MEMORY", "DEADLINE"])
def test_what_was_lost_is_counted_as_lost(db, state):
    """E19"""
    start = ts(2026, 11, 2, 10)
    roll(db, run(start, start + HOUR, State=state))
    assert hours(db, column="failed_milli_s") == {"2026-11-02": 1000.0}


def test_a_job_cancelled_while_it_waited_has_its_wait_and_no_gpu_hours(db):
    """E18"""
    end = ts(2026, 11, 2, 10)
    roll(db, run(end, end, State="CANCELLED by 1", NodeList="None assigned", AllocTRES=""))
    assert hours(db) == {"2026-11-02": 0.0}
    row = db.execute("SELECT runs_cancelled, wait_s FROM usage_daily").fetchone()
    assert row == (1, 60)


def test_an_array_that_waits_is_in_no_sum(db):
    """E20"""
    now = ts(2026, 11, 2, 10)
    roll(db, run(now, None, JobID="7_[0-719%64]", State="PENDING", Start="Unknown",
                 NodeList="None assigned", AllocTRES=""), now_ts=now)  # fmt: skip
    assert hours(db) == {}


def test_the_same_job_id_years_later_is_another_job(db):
    """E10"""
    roll(db, run(ts(2017, 5, 1, 10), ts(2017, 5, 1, 11), UID="5", User="old"),
         run(ts(2026, 5, 1, 10), ts(2026, 5, 1, 11)))  # fmt: skip
    assert hours(db) == {"2017-05-01": 1.0, "2026-05-01": 1.0}
    assert db.execute("SELECT user, restart_cnt FROM run ORDER BY submit_ts").fetchall() == [
        ("old", 0),
        ("ada", 0),
    ]


@pytest.mark.parametrize("skew_s", [-50, 0, 50])
def test_a_node_whose_clock_is_off_finds_its_run_and_keeps_every_mj(db, skew_s):
    """The node says that it ran from 10:00 to 11:00 of its own clock, at 300 W."""
    start = ts(2026, 11, 2, 10)
    node, at_ms = Node(), (start + skew_s) * 1000
    ingest(db, [
        node.up("G", t_ms=at_ms), node.start(7, at_ms, whole("G")),
        node.window("G", at_ms, at_ms + HOUR * 1000, share(7, at_ms, 216_000_000, 864_000_000)),
        node.end(7, at_ms, at_ms + HOUR * 1000),
    ])  # fmt: skip
    roll(db, run(start, start + HOUR))
    assert db.execute("SELECT idle_mj, active_mj FROM run_energy").fetchall() == [
        (216_000_000, 864_000_000)
    ]
    assert db.execute("SELECT sum(idle_mj), sum(active_mj) FROM usage_daily").fetchone() == (
        216_000_000,
        864_000_000,
    )


def test_a_runaway_is_billed_to_its_last_evidence(db):
    """E32: 90 days later slurmdbd still says running; a node saw it for an hour."""
    start = ts(2026, 8, 1, 10)
    node, at_ms = Node(), start * 1000
    ingest(db, [
        node.up("G", t_ms=at_ms), node.start(7, at_ms, whole("G")),
        node.window("G", at_ms, at_ms + HOUR * 1000, share(7, at_ms, 1, 1)),
    ])  # fmt: skip
    lost = run(start, None, State="RUNNING")
    roll(db, lost._replace(flags=1, elapsed_s=None), now_ts=start + 90 * 86_400)
    assert {day: amount for day, amount in hours(db).items() if amount} == {"2026-08-01": 1.0}
