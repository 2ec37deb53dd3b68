# SPDX-License-Identifier: Apache-2.0
"""Windows joined to runs: energy per run and device, by hand."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairwatt.accounting.ingest import ingest
from fairwatt.accounting.rollup import rollup
from fairwatt.accounting.runs import upsert_runs
from fairwatt.accounting.settle import best_run, settle
from fairwatt.accounting.store import open_store, transaction
from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.events import Flag
from tests.unit.accounting.samples import (
    BERLIN,
    UTC,
    Node,
    dump,
    new_store,
    sacct_run,
    share,
    whole,
)

CATALOGUE = load_catalogue()


@pytest.fixture
def db(tmp_path):
    return open_store(tmp_path / "a.db")


def put(db, *rows):
    with transaction(db) as connection:
        upsert_runs(connection, rows, CATALOGUE, UTC, 10_000)


def energy(db):
    return db.execute(
        "SELECT r.job_id, r.submit_ts, e.device_uuid, e.idle_mj, e.active_mj, e.util_permille,"
        " e.measured_s, e.flags, e.method FROM run_energy e JOIN run r USING (run_id)"
        " ORDER BY 1, 2, 3"
    ).fetchall()


def test_energy_per_run_and_device(db):
    node = Node()
    put(db, sacct_run())
    ingest(db, [
        node.up("GPU-a", "GPU-b"),
        node.start(7, 1_060_400, whole("GPU-a"), whole("GPU-b")),
        node.window("GPU-a", 1_060_400, 1_120_400, share(7, 1_060_400, 600, 5400, 500)),
        node.window("GPU-a", 1_120_400, 1_160_400, share(7, 1_060_400, 400, 3600, 1000),
                    flags=Flag.RESET),
        node.window("GPU-b", 1_060_400, 1_160_400, share(7, 1_060_400, 10, 20),
                    method="power", flags=Flag.INTEGRATED),
        node.end(7, 1_060_400, 1_160_400),
    ])  # fmt: skip
    assert settle(db, "campus", UTC) == 1
    # (500 * 60 s + 1000 * 40 s) / 100 s = 700
    assert energy(db) == [
        (7, 1000, "GPU-a", 1000, 9000, 700, 100, 1, "counter"),
        (7, 1000, "GPU-b", 10, 20, None, 100, 4, "power"),
    ]
    assert db.execute(
        "SELECT hour_ts, idle_mj, active_mj, measured_ms, util_ms, busy_ms FROM run_hour"
    ).fetchall() == [(0, 1010, 9020, 200_000, 100_000, 70_000)]
    before = dump(db)
    assert settle(db, "campus", UTC) == 0
    assert dump(db) == before


def test_an_unknown_window_leaves_the_known_part_and_its_flags(db):
    node = Node()
    put(db, sacct_run())
    ingest(db, [
        node.start(7, 1_060_000, whole("GPU-a")),
        node.window("GPU-a", 1_060_000, 1_100_000, share(7, 1_060_000, 1, 2)),
        node.window("GPU-a", 1_100_000, 1_160_000, idle=None, active=None, measured=None,
                    flags=Flag.LOST | Flag.IMPLAUSIBLE),
        node.end(7, 1_060_000, 1_160_000),
    ])  # fmt: skip
    settle(db, "campus", UTC)
    assert energy(db) == [(7, 1000, "GPU-a", 1, 2, None, 40, 34, "counter")]


def test_a_run_without_a_measured_window_is_unknown_not_zero(db):
    node = Node()
    put(db, sacct_run())
    ingest(db, [
        node.start(7, 1_060_000, whole("GPU-a"), whole("GPU-b")),
        node.window("GPU-a", 1_060_000, 1_160_000, idle=None, active=None, measured=None,
                    flags=32),
    ])  # fmt: skip
    settle(db, "campus", UTC)
    assert energy(db) == [
        (7, 1000, "GPU-a", None, None, None, 0, 32, "counter"),
        (7, 1000, "GPU-b", None, None, None, 0, 0, "none"),
    ]
    assert db.execute("SELECT count(*) FROM run_hour").fetchone() == (0,)


def test_a_hole_that_comes_after_the_start_reaches_the_run(db):
    node = Node()
    put(db, sacct_run(End="Unknown", State="RUNNING"))
    ingest(db, [node.start(7, 1_060_000, whole("GPU-a"))])
    settle(db, "campus", UTC)
    ingest(db, [node.window("GPU-a", 1_050_000, 1_070_000, idle=None, active=None, measured=None,
                            flags=8)])  # fmt: skip
    settle(db, "campus", UTC)
    assert energy(db)[0][7] == 8


def test_two_slices_of_one_board_are_one_device(db):
    node = Node("mig01")
    put(db, sacct_run())
    ingest(db, [
        node.window("GPU-a", 1_060_000, 1_160_000, share(7, 1_060_000, 1, 2, 400, mig="MIG-1"),
                    share(7, 1_060_000, 3, 4, 800, mig="MIG-2"), idle=9),
        node.start(7, 1_060_000),
    ])  # fmt: skip
    settle(db, "campus", UTC)
    assert energy(db) == [(7, 1000, "GPU-a", 4, 6, 600, 100, 0, "counter")]


def test_events_may_come_before_slurm_knows_the_run(db):
    node = Node()
    ingest(db, [
        node.start(7, 1_060_000, whole("GPU-a")),
        node.window("GPU-a", 1_060_000, 1_160_000, share(7, 1_060_000, 1, 2)),
    ])  # fmt: skip
    assert settle(db, "campus", UTC) == 0
    put(db, sacct_run())
    assert settle(db, "campus", UTC) == 1
    assert energy(db)[0][3:5] == (1, 2)


def test_a_requeued_try_moves_to_its_own_run(db):
    """The second try starts on the node before sacct tells of it."""
    node = Node()
    put(db, sacct_run(End="Unknown", State="RUNNING"))
    ingest(db, [
        node.window("GPU-a", 1_060_000, 1_100_000, share(7, 1_060_000, 0, 5)),
        node.start(7, 1_060_000, whole("GPU-a")),
        node.start(7, 1_300_000, whole("GPU-a")),
        node.window("GPU-a", 1_300_000, 1_400_000, share(7, 1_300_000, 0, 7)),
    ])  # fmt: skip
    settle(db, "campus", UTC)
    assert [row[4] for row in energy(db)] == [12]
    put(db, sacct_run(End="1100", State="REQUEUED"),
        sacct_run(Submit="1100", Start="1300", End="1400"))  # fmt: skip
    settle(db, "campus", UTC)
    assert [(row[1], row[4]) for row in energy(db)] == [(1000, 5), (1100, 7)]


def test_a_multi_node_run_sums_its_nodes(db):
    put(db, sacct_run(NodeList="gpu[01-02]"))
    for name in ("gpu01", "gpu02"):
        node = Node(name)
        ingest(db, [
            node.up(f"GPU-{name}"),
            node.start(7, 1_060_000, whole(f"GPU-{name}")),
            node.window(f"GPU-{name}", 1_060_000, 1_160_000, share(7, 1_060_000, 1, 2)),
        ])  # fmt: skip
    settle(db, "campus", UTC)
    assert [row[2] for row in energy(db)] == ["GPU-gpu01", "GPU-gpu02"]
    assert db.execute("SELECT node, model FROM run_energy ORDER BY node").fetchall() == [
        ("gpu01", "a100-40"), ("gpu02", "a100-40"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("start", "restart", "run"),
    [
        (940, None, 1), (939, None, None), (1160, None, 1), (1161, None, None), (1500, None, 2),
        (10**9, None, 2), (1450, 0, 2),
    ],
)  # fmt: skip
def test_the_nearest_start_within_the_slack_wins(start, restart, run):
    candidates = [(1, 1000, 1100, 0), (2, 1500, None, 1)]
    assert best_run(candidates, start, restart) == run


def test_the_restart_count_decides_a_tie():
    candidates = [(1, 1000, 1010, 0), (2, 1020, 1030, 1)]
    assert best_run(candidates, 1010, 1) == 2
    assert best_run(candidates, 1010, 0) == 1


def test_a_known_sluid_needs_no_times(db):
    node = Node()
    put(db, sacct_run())
    db.execute("UPDATE job_run SET record_id = 3789366436361092096")
    ingest(db, [node.start(7, 99_000_000, sluid="s395M8P9NHEF00")])
    settle(db, "campus", UTC)
    assert db.execute("SELECT run_id FROM node_run").fetchone() == (1,)


def test_a_long_window_is_cut_at_hours_and_marks_its_days(db):
    """From 23:30 to 01:30 local time, Berlin is UTC+1 in January 1970."""
    node = Node()
    t0 = (22 * 3600 + 1800) * 1000
    put(db, sacct_run(Start=str(t0 // 1000), End=str(t0 // 1000 + 7200)))
    db.execute("DELETE FROM dirty_day")
    ingest(db, [
        node.start(7, t0, whole("GPU-a")),
        node.window("GPU-a", t0, t0 + 7_200_000, share(7, t0, 0, 4001)),
    ])  # fmt: skip
    settle(db, "campus", BERLIN)
    rows = db.execute("SELECT hour_ts, active_mj FROM run_hour ORDER BY 1").fetchall()
    assert rows == [(22 * 3600, 1000), (23 * 3600, 2000), (24 * 3600, 1001)]
    days = db.execute("SELECT day FROM dirty_day ORDER BY 1").fetchall()
    assert days == [("1970-01-01",), ("1970-01-02",)]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_every_measured_mj_has_one_owner(tmp_path_factory, data):
    """Random windows of two jobs on one board: runs + unallocated = measured, to the mJ."""
    db = open_store(tmp_path_factory.mktemp("s") / "a.db")
    node = Node()
    put(db, sacct_run(), sacct_run(JobIDRaw="8", JobID="8"))
    starts = {7: 1_060_000, 8: 1_060_500}
    events = [node.start(job, at, whole("GPU-a")) for job, at in starts.items()]
    at = 1_060_500
    amount = st.integers(0, 10**9)
    for _ in range(data.draw(st.integers(1, 6))):
        end = at + data.draw(st.integers(1, 5_000_000))
        jobs = data.draw(st.sets(st.sampled_from([7, 8])))
        shares = [share(job, starts[job], data.draw(amount), data.draw(amount)) for job in jobs]
        events.append(
            node.window(
                "GPU-a", at, end, *shares, idle=data.draw(amount), active=data.draw(amount)
            )
        )
        at = end
    ingest(db, events)
    settle(db, "campus", UTC)
    (measured,) = db.execute("SELECT sum(measured_mj) FROM window").fetchone()
    (free,) = db.execute(
        "SELECT sum(unallocated_idle_mj + unallocated_active_mj) FROM window"
    ).fetchone()
    for table in ("run_energy", "run_hour"):
        (runs,) = db.execute(
            f"SELECT coalesce(sum(idle_mj + active_mj), 0) FROM {table}"
        ).fetchone()
        assert runs + free == measured
    db.close()


def test_events_and_rows_in_any_order_end_in_the_same_state(tmp_path):
    """The devices' models told last, rows before and after the events, rounds in between."""
    node = Node()
    events = [
        node.up("GPU-a", "GPU-b"),
        node.start(7, 1_060_400, whole("GPU-a")),
        node.window("GPU-a", 1_060_400, 1_160_400, share(7, 1_060_400, 600, 5400, 500), idle=9),
        node.window("GPU-b", 1_060_400, 1_160_400, idle=None, active=None, measured=None),
        node.end(7, 1_060_400, 1_160_400),
        node.start(8, 1_170_000, whole("GPU-b")),
        node.window("GPU-b", 1_170_000, 1_180_000, idle=None, active=None, measured=None),
        node.end(8, 1_170_000, 1_180_000),
    ]
    rows = [sacct_run(), sacct_run(JobIDRaw="8", JobID="8", Start="1170", End="1180")]
    steps = [*events, *rows]
    orders = [steps, steps[::-1], rows + events, [*events[1:], *rows, events[0]]]
    orders += [random.Random(seed).sample(steps, len(steps)) for seed in range(20)]
    states = []
    for number, order in enumerate(orders):
        (tmp_path / str(number)).mkdir()
        db = new_store(tmp_path / str(number))
        for step in order:
            if step in rows:
                put(db, step)
            else:
                ingest(db, [step])
            settle(db, "campus", UTC)
            rollup(db, "campus", UTC, "DEU", 10_000)
        states.append(_measured_state(db))
    assert states == [states[0]] * len(states)
    assert ("8", "GPU-b", "a100-40", "None") in states[0]


def _measured_state(db):
    """What a report can show, without the numbers that the order of writing gives."""
    tables = ("device", "hold", "window", "window_share", "usage_daily", "usage_monthly",
              "unallocated_daily", "unsettled", "dirty_day", "dirty_hour")  # fmt: skip
    state = [
        db.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in tables[:-2]
    ]
    state += [db.execute(f"SELECT * FROM {table}").fetchall() for table in tables[-2:]]
    energy = "SELECT r.job_id, e.* FROM run_energy e JOIN run r USING (run_id) ORDER BY 1, 3"
    for job_id, _run_id, device, _node, model, *rest in db.execute(energy):
        state.append(rest)
        state.append((str(job_id), device, model, str(rest[0])))
    return state
