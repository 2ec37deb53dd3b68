# SPDX-License-Identifier: Apache-2.0
"""One row a run, however often and in whatever order it is read."""

from __future__ import annotations

import pytest

from fairwatt.accounting.quality import RunFlag
from fairwatt.accounting.run_rows import UNTYPED
from fairwatt.accounting.runs import GpuPart, gpu_parts, upsert_runs
from fairwatt.accounting.store import open_store, transaction
from fairwatt.core.catalogue import load_catalogue
from tests.unit.accounting.samples import BERLIN, dump, sacct_run

CATALOGUE = load_catalogue()


@pytest.fixture
def db(tmp_path):
    return open_store(tmp_path / "a.db")


def put(db, *rows, now=2000):
    with transaction(db) as connection:
        return upsert_runs(connection, rows, CATALOGUE, BERLIN, now).changed


def clean(db):
    db.execute("DELETE FROM dirty_day")


@pytest.mark.parametrize(
    ("tres", "parts", "flags"),
    [
        ("cpu=8", [], 0),
        ("", [], 0),
        # E1: two of each kind, four in all
        (
            "cpu=8,gres/gpu=4,gres/gpu:a100=2,gres/gpu:h100=2",
            [GpuPart("a100", 2, 2000), GpuPart("h100", 2, 2000)],
            0,
        ),
        # E2: memory and utilisation of GPUs are no GPUs
        (
            "gres/gpu=8,gres/gpu:a100=8,gres/gpumem=320G,gres/gpuutil=800",
            [GpuPart("a100", 8, 8000)],
            0,
        ),
        ("gres/gpu=1", [GpuPart(UNTYPED, 1, 1000)], RunFlag.GPU_TYPE_ASSUMED),
        # E8: slices of an A100 are sevenths
        ("gres/gpu=1,gres/gpu:a100_3g.20gb=1", [GpuPart("a100_3g.20gb", 1, 429)], 0),
        ("gres/gpu=2,gres/gpu:a100_1g.5gb=2", [GpuPart("a100_1g.5gb", 2, 286)], 0),
        ("gres/gpu=1,gres/gpu:zx81=1", [GpuPart("zx81", 1, None)], RunFlag.GPU_TYPE_UNKNOWN),
        ("gres/gpu=x", [], RunFlag.TRES_UNREADABLE),
    ],
)
def test_gpus_by_type(tres, parts, flags):
    assert gpu_parts(tres, CATALOGUE) == (parts, flags)


def test_a_row_is_written_once(db):
    assert put(db, sacct_run()) == 1
    clean(db)
    before = dump(db)
    assert put(db, sacct_run()) == 0
    assert put(db, sacct_run(), now=10**9) == 0
    assert dump(db) == before


def test_unknown_gpus_are_unknown_not_zero(db):
    put(db, sacct_run(AllocTRES="gres/gpu=1,gres/gpu:zx81=1"))
    put(db, sacct_run(JobIDRaw="8", AllocTRES="gres/gpu=x"))
    put(db, sacct_run(JobIDRaw="9", AllocTRES="cpu=1"))
    assert db.execute("SELECT gpu_milli FROM run ORDER BY job_id").fetchall() == [
        (None,),
        (None,),
        (0,),
    ]


@pytest.mark.parametrize(
    ("text", "mib"), [("mem=1.95T", 2_044_723), ("mem=250.5G", 256_512), ("cpu=1", None)]
)
def test_memory(db, text, mib):
    """E3: 1.95 TiB = 2,044,723.2 MiB."""
    put(db, sacct_run(AllocTRES=text))
    assert db.execute("SELECT mem_mib FROM run").fetchone() == (mib,)


def test_memory_of_a_run_that_waits_is_what_it_asks(db):
    put(db, sacct_run(AllocTRES="", ReqTRES="cpu=1,mem=3G", State="PENDING", NodeList=""))
    assert db.execute("SELECT mem_mib, gpu_milli FROM run").fetchone() == (3072, 0)


def test_unreadable_tres_is_flagged(db):
    put(db, sacct_run(AllocTRES="cpu=x"))
    flags, milli = db.execute("SELECT flags, gpu_milli FROM run").fetchone()
    assert (flags, milli) == (RunFlag.TRES_UNREADABLE, None)


def test_a_catalogue_that_learns_a_type_mends_what_is_told_again(db, tmp_path):
    """The day of another run with the same GPUs needs a rollup too."""
    tres = "gres/gpu=1,gres/gpu:zx81=1"
    put(db, sacct_run(AllocTRES=tres), sacct_run(JobIDRaw="8", JobID="8", AllocTRES=tres,
        Start="86460", End="86560"))  # fmt: skip
    clean(db)
    (tmp_path / "site.toml").write_text(
        '[model.zx81]\ntitle = "ZX81"\nfamily = "z80"\nnvml_names = ["ZX81"]\n'
        'slurm_types = ["zx81"]\nmemory_gb = 1\nidle_w = 1\nidle_mig_w = 1\nmax_w = 9\n'
        "compute_slices = 1\nmemory_slices = 1\nprofiles = []\n"
    )
    with transaction(db) as connection:
        done = upsert_runs(
            connection, [sacct_run(AllocTRES=tres)], load_catalogue(str(tmp_path)), BERLIN, 2000
        )
    assert done.changed == 0
    assert db.execute("SELECT gpu_milli, flags FROM run").fetchall() == [(1000, 0), (1000, 0)]
    assert db.execute("SELECT day FROM dirty_day ORDER BY 1").fetchall() == [
        ("1970-01-01",),
        ("1970-01-02",),
    ]


def test_a_run_follows_its_states(db):
    put(db, sacct_run(State="PENDING", Start="Unknown", End="Unknown", NodeList="", AllocTRES=""))
    assert db.execute("SELECT count(*) FROM dirty_day").fetchone() == (0,)
    put(db, sacct_run(State="RUNNING", End="Unknown"))
    put(db, sacct_run(State="COMPLETED"))
    assert db.execute("SELECT state, end_ts, gpu_milli FROM run").fetchall() == [
        ("COMPLETED", 1160, 1000)
    ]
    assert db.execute("SELECT gpu_type, count, milli FROM run_gpu").fetchall() == [
        ("a100", 1, 1000)
    ]


E9 = [(0, 3889), (4000, 4473), (8500, 6122), (14700, 2153)]


def tries(**changes):
    """E9: job 235929 ran four times; each try is submitted when the one before ended."""
    rows, submit = [], 1000
    for index, (start, length) in enumerate(E9):
        begin = 1000 + start + 10
        end = begin + length
        rows.append(
            sacct_run(
                JobIDRaw="235929", JobID="235929", Submit=str(submit), Eligible=str(submit),
                Start=str(begin), End=str(end), ElapsedRaw=str(length), DBIndex=str(index + 1),
                State="REQUEUED" if index < 3 else "COMPLETED", **changes,
            )
        )  # fmt: skip
        submit = end
    return rows


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 1, 0, 2]])
def test_each_try_of_a_requeued_job_is_a_run(db, order):
    rows = tries()
    for index in order:
        put(db, rows[index])
    stored = db.execute("SELECT restart_cnt, elapsed_s FROM run ORDER BY submit_ts").fetchall()
    assert stored == [(0, 3889), (1, 4473), (2, 6122), (3, 2153)]
    assert sum(elapsed for _, elapsed in stored) == 16_637


def counted(count, **changes):
    """A row of a release that tells the restart count."""
    return sacct_run(**changes)._replace(restart_cnt=count)


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0]])
def test_a_try_that_is_told_with_the_count_of_the_next_gets_its_own(db, order):
    """Slurm 24.11, measured: requeued within a second, both tries are told with Restarts 1."""
    first = {"DBIndex": "1", "Start": "1000", "End": "1001", "State": "REQUEUED"}
    second = {"DBIndex": "2", "Submit": "1001", "Start": "1012", "End": "1014"}
    other = {"DBIndex": "3", "Submit": "90000", "Start": "90001", "End": "90002"}
    rows = [counted(1, **first), counted(1, **second), counted(0, **other)]
    for index in order:
        put(db, rows[index])
    stored = db.execute("SELECT restart_cnt FROM run ORDER BY submit_ts").fetchall()
    assert stored == [(0,), (1,), (0,)]
    assert put(db, *rows) == 0


def test_a_resized_job_that_tells_its_restarts_keeps_both_records(db):
    first = counted(0, DBIndex="1", State="RESIZING")
    second = counted(0, DBIndex="2", Start="1160", End="1200")
    again = counted(1, DBIndex="3", Submit="1200", Start="1210", End="1220")
    put(db, first, second, again)
    assert put(db, second, again, first) == 0
    assert db.execute("SELECT db_index FROM run ORDER BY start_ts").fetchall() == [
        (1,),
        (2,),
        (3,),
    ]


def test_a_job_id_used_again_is_another_job(db):
    """E10: nine years and another user between them."""
    put(
        db, sacct_run(), sacct_run(Submit="284000000", Start="284000001", End="284000009", UID="5")
    )
    assert db.execute("SELECT restart_cnt FROM run").fetchall() == [(0,), (0,)]


def test_a_resized_job_keeps_both_records(db):
    first = sacct_run(DBIndex="1", State="RESIZING")
    second = sacct_run(DBIndex="2", Start="1160", End="1200", AllocTRES="gres/gpu:a100=2")
    put(db, first, second)
    assert put(db, second, first) == 0
    assert db.execute("SELECT start_ts, gpu_milli FROM run ORDER BY start_ts").fetchall() == [
        (1060, 1000),
        (1160, 2000),
    ]


def test_days_of_the_old_and_the_new_end_are_marked(db):
    """Ended on 1970-01-03 says Slurm first, then it was the 2nd."""
    put(db, sacct_run(End=str(2 * 86400 + 5), State="COMPLETED"))
    clean(db)
    put(db, sacct_run(End=str(86400 + 5)))
    assert [day for (day,) in db.execute("SELECT day FROM dirty_day ORDER BY day")] == [
        "1970-01-01",
        "1970-01-02",
        "1970-01-03",
    ]


def test_a_job_cancelled_while_pending_marks_the_day_of_its_end(db):
    put(db, sacct_run(State="CANCELLED by 1", NodeList="None assigned", End=str(86400 * 5)))
    assert db.execute("SELECT day FROM dirty_day").fetchall() == [("1970-01-06",)]


@pytest.mark.parametrize(
    ("comment", "wanted"),
    [
        ('fairwatt:{"v":1,"id":"17-1","asked":"gpu:1"}', "17-1"),
        ('fairwatt:{"v":1,"asked":"gpu:1"}', None),
        ('fairwatt:{"v":1,"id":""}', None),
        ('fairwatt:{"v":1,"id":["x"]}', None),
        ("", None),
    ],
)
def test_a_run_knows_the_decision_that_made_it(db, comment, wanted):
    put(db, sacct_run(AdminComment=comment))
    assert db.execute("SELECT decision_id FROM run").fetchone() == (wanted,)


def test_a_run_that_goes_on_is_no_news(db):
    """Else a job of 90 days would have 90 days computed again at every import."""
    running = {"State": "RUNNING", "End": "Unknown"}
    put(db, sacct_run(**running, ElapsedRaw="940"))
    clean(db)
    assert put(db, sacct_run(**running, ElapsedRaw="1240"), now=2300) == 0
    assert db.execute("SELECT elapsed_s FROM run").fetchone() == (1240,)
    assert db.execute("SELECT count(*) FROM dirty_day").fetchone() == (0,)
    assert put(db, sacct_run(ElapsedRaw="100")) == 1
    assert db.execute("SELECT day FROM dirty_day").fetchall() == [("1970-01-01",)]


def test_a_resized_job_is_not_restarted(db):
    """22.05, measured: the second record has the time of the change as its submission."""
    first = sacct_run(DBIndex="1", State="RESIZING", NNodes="2")
    second = sacct_run(DBIndex="2", Submit="1160", Start="1160", End="1200")
    third = sacct_run(DBIndex="3", Submit="1200", Start="1230", End="1300")
    put(db, first, second, third)
    assert db.execute("SELECT restart_cnt FROM run ORDER BY start_ts").fetchall() == [
        (0,),
        (0,),
        (1,),
    ]
    assert put(db, third, first, second) == 0
