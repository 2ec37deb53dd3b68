# SPDX-License-Identifier: Apache-2.0
"""The store beside Slurm's own answers; amounts worked out by hand."""

from __future__ import annotations

import logging
from datetime import datetime

import pytest

from fairwatt.accounting.audit import audit, audit_table, past_days
from fairwatt.accounting.audit_nightly import audit_if_due
from fairwatt.accounting.runs import insert_runs, upsert_runs
from fairwatt.accounting.sacct import Rejected
from fairwatt.accounting.store import get_meta, open_store, transaction
from fairwatt.core.catalogue import load_catalogue
from tests.unit.accounting.samples import BERLIN, dump, sacct_run
from tests.unit.reports.tiny import add_usage

DAY = "2026-10-25"  # of 25 hours: 1792879200 to 1792969200
LAST_S = 1792969199


def run(job, start, end, **changes):
    return sacct_run(JobIDRaw=str(job), JobID=str(job), Submit="1792870000", Start=str(start),
                     End=str(end), ElapsedRaw=str(end - start), **changes)  # fmt: skip


class Slurm:
    """Answers with these runs and sums."""

    def __init__(self, *runs, **rolled):
        self.runs, self.rolled = runs, rolled

    def ended(self, since_ts, until_ts):
        yield [one for one in self.runs if since_ts <= one.end_ts <= until_ts], []

    def allocated_s(self, cluster, day, zone):
        return self.rolled


HOURS = run(1, LAST_S - 7200, LAST_S)  # 2 h, 4 CPUs, one a100
MIXED = run(2, LAST_S - 3600, LAST_S, NCPUS="8",
            AllocTRES="gres/gpu=3,gres/gpu:a100=1,gres/gpu:h100=2")  # fmt: skip
NEVER = run(3, 1792880000, 1792880000, State="CANCELLED by 1", NodeList="None assigned",
            AllocTRES="")  # fmt: skip


@pytest.fixture
def db(tmp_path):
    store = open_store(tmp_path / "s.db")
    yield store
    store.close()


def put(db, *runs):
    with transaction(db) as connection:
        upsert_runs(connection, runs, load_catalogue(), BERLIN, 1792969200)


def compared(db, source):
    return audit(db.conn, source, cluster="campus", days=[DAY], zone=BERLIN)


def facts(done):
    return [(one.what, one.slurm, one.here, one.why) for one in done.differences]


def test_the_same_runs_have_no_difference(db):
    put(db, HOURS, MIXED, NEVER)
    done = compared(db, Slurm(HOURS, MIXED, NEVER))
    assert (done.runs, facts(done), list(done.notes)) == (3, [], [])
    table = audit_table(done, 4)
    assert (list(table.rows), table.data_version) == ([], 4)
    assert table.notes == ["1 days with 3 ended runs were compared"]


def test_a_run_that_was_never_imported(db):
    put(db, HOURS)
    assert facts(compared(db, Slurm(HOURS, MIXED))) == [
        ("ended runs", 2, 1, "only in Slurm: 2"),
        ("cpu hours of ended runs", 16.0, 8.0, "only in Slurm: 2"),
        ("gres/gpu:a100 hours of ended runs", 3.0, 2.0, "only in Slurm: 2"),
        ("gres/gpu:h100 hours of ended runs", 2.0, 0.0, "only in Slurm: 2"),
    ]


def test_a_run_that_slurm_does_not_have(db):
    put(db, HOURS, NEVER)
    assert facts(compared(db, Slurm(HOURS))) == [("ended runs", 1, 2, "only here: 3")]


def test_amounts_that_were_mended_in_slurm_later(db):
    put(db, run(1, LAST_S - 7200, LAST_S, NCPUS="2"))
    assert facts(compared(db, Slurm(HOURS))) == [
        ("cpu hours of ended runs", 8.0, 4.0, "the same runs, other amounts")
    ]


def test_the_second_before_and_the_second_after_are_other_days(db):
    """The day of 25 hours ends at 1792969200."""
    put(db, HOURS)
    others = (run(8, 1792870001, 1792879199), run(9, 1792960000, 1792969200))
    assert facts(compared(db, Slurm(HOURS, *others))) == []


def test_a_day_that_slurmdbd_has_purged_is_a_note(db):
    put(db, HOURS)
    done = compared(db, Slurm())
    assert facts(done) == []
    assert done.notes == [
        f"slurmdbd has no run of {DAY}: it may have been purged, or this user may not see other"
        " users' jobs"
    ]


def test_a_day_after_one_that_slurm_has_was_not_purged(db):
    """It purges what is old: here the runs of a whole day are lost in Slurm."""
    later = run(4, LAST_S + 3600, LAST_S + 7200)
    put(db, HOURS, later)
    done = audit(db.conn, Slurm(HOURS), cluster="campus", days=[DAY, "2026-10-26"], zone=BERLIN)
    assert [(one.day, one.what) for one in done.differences] == [
        ("2026-10-26", "ended runs"),
        ("2026-10-26", "cpu hours of ended runs"),
        ("2026-10-26", "gres/gpu:a100 hours of ended runs"),
    ]
    assert done.notes == []


def test_rows_that_cannot_be_read_are_a_difference(db):
    """They are in neither side's runs: nothing else would tell of them."""

    class Garbled(Slurm):
        def ended(self, since_ts, until_ts):
            yield [HOURS], [Rejected("x" * 100, "1 of 25 fields"), Rejected("y", "no state")]

    put(db, HOURS)
    assert facts(compared(db, Garbled())) == [
        ("unreadable rows", 2, 0, f"1 of 25 fields: '{'x' * 60}'")
    ]


def test_invented_runs_do_not_count(db):
    with transaction(db) as connection:
        insert_runs(connection, [HOURS], load_catalogue(), seeded=True)
    assert facts(compared(db, Slurm())) == []
    assert compared(db, Slurm()).notes == []


@pytest.mark.parametrize(("here_s", "told"), [(3600, False), (3000, False), (2999, True)])
def test_sreports_sums_may_differ_by_ten_minutes_or_one_per_cent(db, here_s, told):
    put(db, HOURS)
    add_usage(db, day=DAY, cluster="campus", device_s=here_s)
    done = compared(db, Slurm(HOURS, **{"cpu": 0, "gres/gpu": 3600, "mem": 5}))
    assert [one.what for one in done.differences] == ["gres/gpu hours of the day"] * told


def test_many_jobs_are_shortened(db):
    put(db, HOURS)
    many = [run(job, 1792880000, 1792880000) for job in range(10, 20)]
    (first, *_) = compared(db, Slurm(HOURS, *many)).differences
    assert first.why == "only in Slurm: 10, 11, 12, 13, 14, 15, 16, 17 and 2 more"


def test_days_that_are_over():
    now = int(datetime(2026, 10, 26, 0, 0, 1, tzinfo=BERLIN).timestamp())
    assert past_days(2, now, BERLIN) == ["2026-10-24", "2026-10-25"]


def test_every_night_once_and_nothing_else_changes(db, caplog):
    put(db, HOURS)
    before = dump(db)
    source = Slurm(HOURS, NEVER)

    def at(hour, day=26):
        now = int(datetime(2026, 10, day, hour, tzinfo=BERLIN).timestamp())
        return audit_if_due(db, source, cluster="campus", count=1, zone=BERLIN, hour=3,
                            now_ts=now)  # fmt: skip

    caplog.set_level(logging.INFO)
    assert [at(2), at(3), at(4), at(2, 27), at(23, 27)] == [False, True, False, False, True]
    assert dump(db) == before
    assert get_meta(db.conn, "audit.campus.day") == "2026-10-27"
    assert (
        "2026-10-25: ended runs: Slurm has 2.00, the store 1.00 (only in Slurm: 3)" in caplog.text
    )
    assert "audit of 1 days with 2 runs: 1 differences; `fairwatt audit` shows them" in caplog.text
