# SPDX-License-Identifier: Apache-2.0
"""The demo's check can fail: on one counter step too much, on one mJ, on a gap, on a lost run."""

from __future__ import annotations

import sqlite3

import pytest
from sqlite_utils import Database

from fairwatt.accounting.migrations import migrations
from tests.lab.demo_check import check_conservation, check_energy, check_runs
from tests.lab.job_mix import Spec

GPU, NODE, JOB = "GPU-1", "gpu01", 7
WATTS = 100
START_MS, END_MS = 10_000, 13_000  # 3 s at 100 W: 300,000 mJ; one step is 10,000 mJ


class Steady:
    """A board that always draws 100 W, counted in steps of 100 ms."""

    def energy_mj(self, gpu_uuid: str, t_ms: int) -> int:
        return t_ms // 100 * 100 * WATTS


@pytest.fixture
def store() -> sqlite3.Connection:
    """One run that holds one whole board for one window, its books right."""
    database = Database(memory=True)
    migrations.apply(database)
    db = database.conn
    db.row_factory = sqlite3.Row
    db.execute(
        "INSERT INTO node_run (node, job_id, start_ms, end_ms, mapped_by) VALUES (?,?,?,?,'uuid')",
        (NODE, JOB, START_MS, END_MS),
    )
    db.execute("INSERT INTO hold VALUES (?,?,?,?,'',1,1)", (NODE, JOB, START_MS, GPU))
    db.execute(
        "INSERT INTO window VALUES (?,?,?,?,300000,0,0,0,'counter',NULL,0)",
        (GPU, START_MS, END_MS, NODE),
    )
    db.execute(
        "INSERT INTO window_share VALUES (?,?,?,?,?,'',150000,150000,NULL)",
        (GPU, START_MS, NODE, JOB, START_MS),
    )
    return db


def energy_faults(db: sqlite3.Connection) -> list[str]:
    return check_energy(db, {NODE: Steady()}, {GPU: 50_000}, {JOB: "a job"}).faults


def conservation_faults(db: sqlite3.Connection) -> list[str]:
    return check_conservation(db, {NODE: Steady()}, {GPU: NODE}).faults


def test_right_books_have_no_fault(store):
    assert energy_faults(store) == []
    assert conservation_faults(store) == []


@pytest.mark.parametrize(("more_mj", "faults"), [(20_000, 0), (20_001, 1), (-20_001, 1)])
def test_a_run_may_be_off_by_one_step_at_either_end_and_no_more(store, more_mj, faults):
    store.execute("UPDATE window_share SET active_mj = active_mj + ?", (more_mj,))
    assert len(energy_faults(store)) == faults


def test_a_run_without_energy_is_a_fault(store):
    store.execute("DELETE FROM window_share")
    assert len(energy_faults(store)) == 1


@pytest.mark.parametrize("column", ["idle_mj", "active_mj"])
def test_one_mj_too_much_is_a_fault(store, column):
    store.execute(f"UPDATE window_share SET {column} = {column} + 1")
    assert conservation_faults(store) == [f"{GPU}: 300001 + 0 != 300000 mJ"]


def test_a_gap_between_windows_is_a_fault(store):
    store.execute(
        "INSERT INTO window VALUES (?,?,?,?,50000,50000,0,0,'counter',NULL,0)",
        (GPU, END_MS + 1, END_MS + 501, NODE),
    )
    assert f"{GPU}: gap at {END_MS} ms" in conservation_faults(store)


def test_a_device_without_any_window_is_a_fault(store):
    store.execute("DELETE FROM window")
    assert conservation_faults(store) == [f"{GPU} on {NODE}: no window"]


def test_a_run_that_is_missing_is_a_fault(store):
    spec = Spec("lost", "ada", "qcd", ())
    faults = check_runs(store, {"lost": [JOB]}, [spec]).faults
    assert "lost: 0 runs, not 1" in faults
