# SPDX-License-Identifier: Apache-2.0
"""Sums by hour against plain sums over windows, in any order and however often delivered."""

from __future__ import annotations

import random
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairwatt.accounting.archive import archive_windows
from fairwatt.accounting.cells import fill_cells
from fairwatt.accounting.failslow_store import LONGEST_WAIT_MS, pace_until
from fairwatt.accounting.ingest import ingest
from fairwatt.accounting.rollup import rollup
from fairwatt.accounting.runs import upsert_runs
from fairwatt.accounting.settle import settle
from fairwatt.accounting.store import transaction
from fairwatt.accounting.use_cells import fill_use_cells
from fairwatt.core.catalogue import load_catalogue
from tests.unit.accounting.samples import (
    BERLIN,
    UTC,
    Node,
    new_store,
    sacct_run,
    share,
    whole,
)

HOUR_MS = 3_600_000
CELLS = ("run_cell", "device_hour", "ledger_total")
KOLKATA = ZoneInfo("Asia/Kolkata")  # hours begin at half past those of UTC


def rows(db, table):
    return sorted(db.execute(f"SELECT * FROM {table}").fetchall(), key=repr)


def test_by_hand(tmp_path):
    """900 of 1,000 ms lie in the first hour: 90 + 10 of 100 mJ, 810 + 90 of 900."""
    db, node = new_store(tmp_path), Node()
    ingest(db, [
        node.window("GPU-a", HOUR_MS - 900, HOUR_MS + 100, share(7, 0, 100, 900, 500), idle=30),
        node.window("GPU-a", HOUR_MS + 100, HOUR_MS + 200, idle=None, active=None, measured=None),
    ])  # fmt: skip
    assert rows(db, "run_cell") == [
        ("gpu01", 7, 0, "GPU-a", 0, "counter", 0, 90, 810, 900, 900, 450_000, 900, HOUR_MS),
        ("gpu01", 7, 0, "GPU-a", 3600, "counter", 0, 10, 90, 100, 100, 50_000, 100,
         HOUR_MS + 100),
    ]  # fmt: skip
    assert rows(db, "device_hour") == [
        (0, "GPU-a", 927, 27, 0, 0),
        (3600, "GPU-a", 103, 3, 0, 0),
    ]
    assert rows(db, "ledger_total") == [("gpu", 1, 1, 1030, 30, 0, 0)]


def test_hours_are_the_site_s(tmp_path):
    db, node = new_store(tmp_path), Node()
    ingest(db, [node.window("GPU-a", 0, HOUR_MS, share(7, 0, 0, 100))], None, KOLKATA)
    assert [(row[4], row[8]) for row in rows(db, "run_cell")] == [(-1800, 50), (1800, 50)]


def test_two_slices_of_one_board_are_two_holds_and_one_time(tmp_path):
    db, node = new_store(tmp_path), Node()
    parts = (share(7, 0, 1, 2, mig="MIG-1"), share(7, 0, 3, 4, mig="MIG-2"))
    ingest(db, [node.window("GPU-a", 0, 1000, *parts)])
    ((*_, idle, active, measured_ms, _, _, window_ms, _),) = rows(db, "run_cell")
    assert (idle, active, measured_ms, window_ms) == (4, 6, 2000, 1000)


def random_life(seed):
    """Events of one node, some of unknown energy, some over hours, and its runs in Slurm."""
    rng = random.Random(seed)
    node, events, runs = Node(), [], []
    events.append(node.up("GPU-a", "GPU-b"))
    at = {"GPU-a": 1_000_000, "GPU-b": 1_000_000}
    for job in range(7, 7 + rng.randint(1, 4)):
        devices = rng.sample(sorted(at), rng.randint(1, 2))
        start_ms = max(at[device] for device in devices) + rng.randint(0, 2 * HOUR_MS)
        for device in devices:
            if at[device] < start_ms:
                events.append(node.window(device, at[device], start_ms, idle=rng.randint(0, 99)))
            at[device] = start_ms
        events.append(node.start(job, start_ms, *(whole(device) for device in devices)))
        for device in devices:
            for _ in range(rng.randint(0, 6)):
                t0_ms = at[device]
                at[device] += rng.choice((1, 999, 300_000, 2 * HOUR_MS, 26 * HOUR_MS))
                if rng.random() < 0.15:
                    events.append(node.window(device, t0_ms, at[device], idle=None, active=None,
                                              measured=None, flags=32))  # fmt: skip
                    continue
                part = share(job, start_ms, rng.randint(0, 10**6), rng.randint(0, 10**6),
                             rng.choice((None, 0, 333, 1000)))  # fmt: skip
                events.append(node.window(
                    device, t0_ms, at[device], part, idle=rng.randint(0, 9),
                    flags=rng.choice((0, 8, 16)), method=rng.choice(("counter", "integrated")),
                ))  # fmt: skip
        end_ms = max(at[device] for device in devices)
        if rng.random() < 0.8:
            events.append(node.end(job, start_ms, end_ms))
            runs.append(sacct_run(
                JobIDRaw=str(job), JobID=str(job), Submit=str(start_ms // 1000 - 5),
                Start=str(start_ms // 1000), End=str(end_ms // 1000 + 1), Eligible="1",
            ))  # fmt: skip
        else:
            runs.append(sacct_run(
                JobIDRaw=str(job), JobID=str(job), Submit=str(start_ms // 1000 - 5),
                Start=str(start_ms // 1000), End="Unknown", State="RUNNING", Eligible="1",
            ))  # fmt: skip
    return events, runs


def deliver(db, events, runs, rng, zone):
    """In batches of any size and order, some twice, with settling in between."""
    batches = []
    while events:
        size = rng.randint(1, 5)
        batches.append(events[:size])
        events = events[size:]
    batches += rng.sample(batches, len(batches) // 2)
    rng.shuffle(batches)
    told = rng.randint(0, len(batches))
    for number, batch in enumerate(batches):
        if number == told:
            put(db, runs, zone)
        ingest(db, batch, None, zone)
        if rng.random() < 0.4:
            settle(db, "campus", zone)
        if rng.random() < 0.2:
            rollup(db, "campus", zone, "DEU", 10_000_000)
    put(db, runs, zone)
    finish(db, zone)


def put(db, runs, zone):
    with transaction(db) as connection:
        upsert_runs(connection, runs, load_catalogue(), zone, 10_000_000)


def finish(db, zone):
    settle(db, "campus", zone)
    rollup(db, "campus", zone, "DEU", 10_000_000)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), zone=st.sampled_from((UTC, BERLIN, KOLKATA)))
def test_any_order_and_duplication_gives_the_same_store(tmp_path_factory, seed, zone):
    """As in order and at once; and every sum is what the windows say when read again."""
    events, runs = random_life(seed)
    straight = new_store(tmp_path_factory.mktemp("straight"))
    put(straight, runs, zone)
    ingest(straight, events, None, zone)
    finish(straight, zone)
    mixed = new_store(tmp_path_factory.mktemp("mixed"))
    deliver(mixed, events, runs, random.Random(seed), zone)
    for table in ("run_energy", "run_hour", "stray_hour", "usage_daily", "unallocated_daily",
                  "run_pace", "rank_pace", "pace_judged", *CELLS):  # fmt: skip
        assert rows(mixed, table) == rows(straight, table), table
    again(mixed, zone)
    by_windows(mixed)


def again(db, zone):
    """Cells made anew from the stored windows, as a migration does, are those that grew."""
    before = {table: rows(db, table) for table in ("run_cell", "device_hour")}
    with transaction(db) as connection:
        fill_cells(connection, zone)
    assert {table: rows(db, table) for table in before} == before
    settled = {table: rows(db, table) for table in ("run_energy", "run_hour", "stray_hour")}
    db.execute("INSERT INTO unsettled SELECT node, job_id, start_ms, 0 FROM node_run")
    settle(db, "campus", zone)
    assert {table: rows(db, table) for table in settled} == settled


def by_windows(db):
    """run_energy from windows alone, in SQL of its own."""
    plain = db.execute(
        "SELECT r.run_id, s.device_uuid, sum(s.idle_mj), sum(s.active_mj) FROM window_share s"
        " JOIN node_run r ON r.node = s.node AND r.job_id = s.job_id"
        " AND r.start_ms = s.run_start_ms WHERE r.run_id IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 2"
    ).fetchall()
    settled = db.execute(
        "SELECT run_id, device_uuid, idle_mj, active_mj FROM run_energy"
        " WHERE idle_mj IS NOT NULL ORDER BY 1, 2"
    ).fetchall()
    assert settled == plain
    hours = db.execute(
        "SELECT run_id, sum(idle_mj + active_mj) FROM run_hour GROUP BY 1"
    ).fetchall()
    sums = {}
    for run_id, _, idle_mj, active_mj in plain:
        sums[run_id] = sums.get(run_id, 0) + idle_mj + active_mj
    assert {run_id: total for run_id, total in hours if total} == {
        run_id: total for run_id, total in sums.items() if total
    }


class TestWhenARunIsJudged:
    @pytest.mark.parametrize(
        ("minutes", "until"),
        [(0, 0), (14, 0), (15, 15), (29, 15), (30, 30), (60, 60), (74, 60), (75, 75), (93, 75)],
    )
    def test_by_hand(self, minutes, until):
        start = 7 * HOUR_MS
        assert pace_until(start, start + minutes * 60_000) == (start + until * 60_000) * (
            until > 0
        )

    @given(st.integers(0, 40 * 24 * HOUR_MS))
    def test_never_later_than_measured_and_never_far_behind(self, life_ms):
        until = pace_until(0, life_ms)
        assert until <= life_ms
        if life_ms >= HOUR_MS:
            assert life_ms - until <= LONGEST_WAIT_MS
            assert Fraction(until, life_ms) > Fraction(4, 5) - Fraction(1, 1000)


@pytest.mark.parametrize("in_both", [False, True])
def test_cells_made_anew_have_windows_that_were_moved(tmp_path, in_both):
    """A migration, or a zone of half hours, must not forget the month files; a crash while
    moving leaves windows in both, which count once."""
    events, runs = random_life(7)
    db = new_store(tmp_path)
    put(db, runs, UTC)
    ingest(db, events, None, UTC)
    finish(db, UTC)
    tables = ("run_cell", "device_hour", "ledger_total", "use_cell", "moved_hour")
    with transaction(db) as connection:
        fill_cells(connection, UTC)
        fill_use_cells(connection, UTC)
    before = {table: rows(db, table) for table in tables}
    kept = {table: rows(db, table) for table in ("window", "window_share")}
    assert before["run_cell"]
    assert archive_windows(db, 1 << 60) > 10
    if in_both:
        with transaction(db) as connection:
            for table, found in kept.items():
                marks = ", ".join("?" * len(found[0]))
                connection.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", found)
    with transaction(db) as connection:
        fill_cells(connection, UTC)
        fill_use_cells(connection, UTC)
    assert {table: rows(db, table) for table in tables} == before
