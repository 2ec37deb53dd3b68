# SPDX-License-Identifier: Apache-2.0
"""Imports from Slurm: twice, interrupted, overlapping."""

from __future__ import annotations

import time

import pytest

from fairwatt.accounting.accounts import AccountTree
from fairwatt.accounting.quality import RunFlag
from fairwatt.accounting.sacct import Rejected
from fairwatt.accounting.store import open_store
from fairwatt.accounting.sync import Imported, flag_runaways, last_import_ts, sync
from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.errors import CommandError
from tests.unit.accounting.samples import UTC, dump, sacct_run


class Slurm:
    """Answers as slurmdbd would; `away_at` fails at that slice."""

    def __init__(self, ended=(), running=(), alive=frozenset(), away_at=None):
        self.slices, self.running, self.alive = list(ended), list(running), alive
        self.away_at = away_at
        self.asked = []
        self.bad = []
        self.by_ids = []
        self.mended = []

    def ended(self, since_ts, until_ts):
        self.asked.append((since_ts, until_ts))
        for number, rows in enumerate(self.slices):
            if number == self.away_at:
                raise CommandError(["sacct"], 1, "connection refused")
            yield rows, self.bad

    def open(self, now_ts):
        return self.running, []

    def by_id(self, job_ids):
        self.by_ids.append(job_ids)
        return self.mended, []

    def running_job_ids(self):
        return self.alive

    def accounts(self):
        return AccountTree((), ())


@pytest.fixture
def db(tmp_path):
    return open_store(tmp_path / "a.db")


def run(db, slurm, overlap_s=3600):
    return sync(db, slurm, cluster="campus", catalogue=load_catalogue(), zone=UTC,
                overlap_s=overlap_s)  # fmt: skip


ROWS = [[sacct_run(JobIDRaw="1")], [sacct_run(JobIDRaw="2"), sacct_run(JobIDRaw="3")]]


def test_importing_twice_changes_nothing(db):
    """E17"""
    assert run(db, Slurm(ROWS)) == Imported(3, 3, 0)
    before = dump(db)
    assert run(db, Slurm(ROWS)) == Imported(3, 0, 0)
    assert dump(db) == before


def test_the_first_import_takes_a_year_then_the_overlap(db):
    slurm = Slurm()
    run(db, slurm)
    first = last_import_ts(db.conn, "campus")
    run(db, slurm)
    (since, until), (again, _) = slurm.asked
    assert until - since == 366 * 86_400
    assert again == first - 3600
    assert abs(time.time() - until) < 60


def test_slurm_going_away_between_loses_and_doubles_nothing(db):
    with pytest.raises(CommandError):
        run(db, Slurm(ROWS, away_at=1))
    assert last_import_ts(db.conn, "campus") is None
    assert db.execute("SELECT count(*) FROM run").fetchone() == (1,)
    assert run(db, Slurm(ROWS)) == Imported(3, 2, 0)


def test_an_interrupted_import_goes_on_where_it_was(db):
    """Slices come in the order of their end: what was written is not asked for again."""
    now = int(time.time())
    ends = {1: now - 9_000_000, 2: now - 99_000}
    slices = [
        [sacct_run(JobIDRaw=str(n), JobID=str(n), Submit="1", Start="2", End=str(end))]
        for n, end in ends.items()
    ]
    first = Slurm([*slices, []], away_at=2)
    with pytest.raises(CommandError):
        run(db, first)
    second = Slurm(slices)
    run(db, second)
    assert second.asked[0][0] == now - 99_000 - 3600
    assert db.execute("SELECT key FROM meta WHERE key LIKE '%reached%'").fetchall() == []


def test_a_run_that_ends_during_the_import_is_ended(db):
    running = sacct_run(State="RUNNING", End="Unknown")
    run(db, Slurm([[sacct_run()]], running=[running]))
    assert db.execute("SELECT state FROM run").fetchall() == [("COMPLETED",)]


def test_rejected_rows_are_kept_once_and_logged_once(db, caplog):
    slurm = Slurm([[]])
    slurm.bad = [Rejected("7\x1fx", "2 of 27 fields")]
    assert run(db, slurm).rejected == 1
    run(db, slurm)
    assert db.execute("SELECT * FROM rejected_row").fetchall() == [
        ("sacct", "7\x1fx", "2 of 27 fields")
    ]
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("alive", "flag"),
    [(frozenset(), RunFlag.RUNAWAY), (frozenset({7}), 0), (None, 0)],
)
def test_runaways(alive, flag):
    """E32: only what the controller does not know, and never when it is away."""
    row = sacct_run(State="RUNNING", End="Unknown", Start="1060")
    assert flag_runaways([row], alive, before_ts=2000)[0].flags == flag
    assert flag_runaways([row], alive, before_ts=1060)[0].flags == 0


def test_a_runaway_that_ends_is_one_no_more(db):
    row = sacct_run(State="RUNNING", End="Unknown")
    run(db, Slurm(running=[row]))
    assert db.execute("SELECT flags FROM run").fetchone() == (RunFlag.RUNAWAY,)
    run(db, Slurm([[sacct_run()]]))
    assert db.execute("SELECT flags, state FROM run").fetchone() == (0, "COMPLETED")


def test_a_run_that_an_admin_ended_in_the_past_is_asked_for(db):
    """`sacctmgr show runawayjobs` gives it an end far before the overlap."""
    run(db, Slurm(running=[sacct_run(State="RUNNING", End="Unknown")]))
    later = Slurm()
    later.mended = [sacct_run(End="1061")]
    run(db, later)
    assert later.by_ids == [[7]]
    assert db.execute("SELECT state, end_ts FROM run").fetchall() == [("COMPLETED", 1061)]
    again = Slurm()
    run(db, again)
    assert again.by_ids == []


def test_the_lock_is_free_while_slurm_is_asked(db):
    events = []

    class Lock:
        def __enter__(self):
            events.append("take")

        def __exit__(self, *_):
            events.append("free")

    class Asked(Slurm):
        def ended(self, since_ts, until_ts):
            events.append("ask")
            yield from super().ended(since_ts, until_ts)

    sync(db, Asked(ROWS), cluster="campus", catalogue=load_catalogue(), zone=UTC, overlap_s=1,
         lock=Lock())  # fmt: skip
    assert events[events.index("ask") - 1] == "free"
    assert events.count("take") == events.count("free")
