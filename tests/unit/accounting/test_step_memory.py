# SPDX-License-Identifier: Apache-2.0
"""The peak memory of runs from their steps, by hand."""

from __future__ import annotations

import os

import pytest

from fairwatt.accounting.runs import upsert_runs
from fairwatt.accounting.slurmdb import SlurmDb
from fairwatt.accounting.step_memory import StepPeak, parse_steps, read_step_memory
from fairwatt.accounting.store import get_meta, transaction
from fairwatt.core.catalogue import load_catalogue
from tests.unit.accounting.samples import UTC, new_store, sacct_run

GIB = 2**30


@pytest.fixture
def db(tmp_path):
    return new_store(tmp_path)


class Told:
    def __init__(self, *steps):
        self.told = list(steps)
        self.asked = []

    def steps(self, since_ts, until_ts):
        self.asked.append((since_ts, until_ts))
        return self.told


def peaks(db):
    return db.execute(
        "SELECT r.job_id, r.restart_cnt, m.peak_mib FROM run_memory m JOIN run r USING (run_id)"
        " ORDER BY 1, 2"
    ).fetchall()


def test_steps_are_read_in_bytes_and_without_the_job_s_own_row():
    text = "\n".join(
        [
            "7|1060|",
            f"7.batch|1060|cpu=00:01:40,energy=0,fs/disk=1,mem={3 * GIB},pages=0,vmem=0",
            f"7.0|1070|cpu=00:00:01,mem={5 * GIB + 1},vmem=0",
            "7.1|1070|cpu=00:00:01,mem=512M",
            "7.2|1070|cpu=00:00:01",
            "7.3|1070|mem=0",
            "7.4|Unknown|mem=1",
            "8.0|1070|mem=what",
            "cut",
        ]
    )
    assert parse_steps(text, "|") == [
        StepPeak(7, 1060, 3072), StepPeak(7, 1070, 5121), StepPeak(7, 1070, 512),
    ]  # fmt: skip


def test_the_largest_step_of_each_try_counts(db):
    """A requeued job: its first try used 3 GiB, its second 5; another job's id is not touched."""
    with transaction(db) as connection:
        upsert_runs(
            connection,
            [sacct_run(State="REQUEUED"),
             sacct_run(Submit="1160", Eligible="1160", Start="2000", End="3000",
                       ElapsedRaw="1000")],
            load_catalogue(), UTC, 10_000,
        )  # fmt: skip
    source = Told(StepPeak(7, 1060, 3072), StepPeak(7, 1090, 100), StepPeak(7, 2000, 5120),
                  StepPeak(9, 1060, 1))  # fmt: skip
    assert read_step_memory(db, source, "campus", 200_000) == 2
    assert peaks(db) == [(7, 0, 3072), (7, 1, 5120)]
    assert read_step_memory(db, source, "campus", 200_000) == 0
    assert source.asked == [(113_600, 200_000), (199_400, 200_000)]
    assert get_meta(db.conn, "sync.campus.steps_ts") == "200000"


def test_what_was_missed_for_days_is_read_a_day_at_once(db):
    source = Told()
    read_step_memory(db, source, "campus", 100_000)
    read_step_memory(db, source, "campus", 1_000_000)
    assert source.asked[-1] == (99_400, 99_400 + 86_400)


def test_sacct_is_asked_for_steps(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "sacct").write_text(
        "#!/bin/sh\n"
        'for word; do case $word in --delimiter=*) d="${word#*=}";; --allocations) exit 1;; esac\n'
        'done\nprintf "7.batch%s1060%smem=2147483648\\n" "$d" "$d"\n'
    )
    (tmp_path / "sacct").chmod(0o755)
    assert SlurmDb().steps(0, 100) == [StepPeak(7, 1060, 2048)]
