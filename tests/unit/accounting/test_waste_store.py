# SPDX-License-Identifier: Apache-2.0
"""Evidence from nodes and Slurm to classes, daily sums of waste, and idle policies to the mJ."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairwatt.accounting.ingest import ingest
from fairwatt.accounting.rollup import mark_open_days, rollup
from fairwatt.accounting.runs import upsert_runs
from fairwatt.accounting.settle import settle
from fairwatt.accounting.store import transaction
from fairwatt.accounting.use_cells import moved_by_share
from fairwatt.accounting.waste import Limits, Rule, Waste
from fairwatt.accounting.waste_store import judge_runs, judgements
from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.events import DeviceHold, GpuMemory
from tests.unit.accounting.samples import UTC, Node, new_store, sacct_run, share, whole

CATALOGUE = load_catalogue()
HOUR_MS = 3_600_000
TRES = "billing=12,cpu=4,mem=64G,gres/gpu=1,gres/gpu:a100=1"


@pytest.fixture
def db(tmp_path):
    return new_store(tmp_path)


def put(db, *rows):
    with transaction(db) as connection:
        upsert_runs(connection, rows, CATALOGUE, UTC, 10**6)


def hour_run(job=7, **changes):
    """One hour from 03:00 on, on one A100, four cores of which two were busy."""
    facts = {"Submit": "10000", "Eligible": "10000", "Start": "10800", "End": "14400",
             "ElapsedRaw": "3600", "TotalCPU": "02:00:00", "AllocTRES": TRES,
             "JobIDRaw": str(job), "JobID": str(job)}  # fmt: skip
    return sacct_run(**{**facts, **changes})


def with_memory(event, *parts):
    memory = tuple(GpuMemory(instance=i, max_mib=most, mean_mib=mean) for i, most, mean in parts)
    return type(event)(**{n: getattr(event, n) for n in event.__struct_fields__} | {
        "memory": memory})  # fmt: skip


def measure(db, util, used_mib=None, job=7):
    node = Node()
    window = node.window(
        "GPU-a", 3 * HOUR_MS, 4 * HOUR_MS, share(job, 3 * HOUR_MS, 100, 900, util)
    )
    ingest(db, [
        node.up("GPU-a"), node.start(job, 3 * HOUR_MS, whole("GPU-a")),
        window if used_mib is None else with_memory(window, ("", used_mib, used_mib // 2)),
        node.end(job, 3 * HOUR_MS, 4 * HOUR_MS),
    ])  # fmt: skip


def refresh(db, limits=None):
    settle(db, "campus", UTC)
    judged = judge_runs(db, CATALOGUE, limits or Limits(), UTC)
    rollup(db, "campus", UTC, "DEU", 10**6)
    return judged


def waste(db):
    return db.execute(
        "SELECT day, account, user, class, runs_ended, gpu_milli_s, wasted_milli_s"
        " FROM waste_daily ORDER BY 1, 4"
    ).fetchall()


def test_an_idle_gpu_is_told_and_summed(db):
    put(db, hour_run())
    measure(db, 20, used_mib=500)
    assert refresh(db) == 1
    ((run_id, judged),) = judgements(db.conn, [1], CATALOGUE).items()
    assert run_id == 1
    assert judged.verdict.rule is Rule.GPUS_IDLE
    # 3600 s of 1000 thousandths, 2 % of it busy
    assert waste(db) == [("1970-01-01", "qcd", "ada", "idle", 1, 3_600_000, 3_528_000)]
    assert refresh(db) == 0


def test_the_memory_of_the_gpu_comes_from_its_windows(db):
    """7 of 40 GB and 12 % of an A100; the cluster has given slices of it."""
    put(db, hour_run(), hour_run(8, AllocTRES="gres/gpu=1,gres/gpu:a100_2g.10gb=1"))
    measure(db, 120, used_mib=7 * 1024)
    refresh(db)
    judged = judgements(db.conn, [1], CATALOGUE)[1]
    assert judged.run.gpu_mem_max_mib == 7168
    assert judged.run.gpu_mem_mib == 40_960
    assert judged.words.evidence == "It used 7 of 40 GB and 12 % of an A100."
    # An eighth each of memory and 2 of 7 of compute: of 8 memory slices 2, so a quarter.
    assert judged.words.advice == (
        "`--gres=gpu:a100_2g.10gb:1` would have done, at worst in 1.4 times the time."
    )
    assert db.execute("SELECT max_mib, mean_mib FROM run_gpu_memory").fetchall() == [(7168, 3584)]


def test_e33_an_agent_that_tells_no_memory_leaves_it_unknown(db):
    """E33: no `gpu_used_memory` is unknown: no advice, and nothing counted as wasted."""
    put(db, hour_run(), hour_run(8, AllocTRES="gres/gpu=1,gres/gpu:a100_2g.10gb=1"))
    measure(db, 120)
    refresh(db)
    judged = judgements(db.conn, [1], CATALOGUE)[1]
    assert judged.run.gpu_mem_max_mib is None
    assert judged.verdict.kind is Waste.UNKNOWN
    assert judged.words.advice is None
    assert waste(db) == []


def test_other_limits_judge_all_runs_anew(db):
    put(db, hour_run())
    measure(db, 70)
    refresh(db)
    assert waste(db) == []
    assert refresh(db, Limits(idle_permille=80)) == 1
    assert [row[3] for row in waste(db)] == ["idle"]


def test_a_run_that_goes_on_and_gets_another_class_gets_it_on_all_its_days(db):
    """Idle for three days, at work on the fourth: then it is idle no more, on no day."""
    day_ms, node = 24 * HOUR_MS, Node()
    going = {"End": "Unknown", "State": "RUNNING", "Start": "10800", "TotalCPU": "00:00:00"}
    put(db, hour_run(**{**going, "ElapsedRaw": "248400"}))
    start = 3 * HOUR_MS
    ingest(db, [
        node.up("GPU-a"), node.start(7, start, whole("GPU-a")),
        node.window("GPU-a", start, 3 * day_ms, share(7, start, 1, 1, 10)),
    ])  # fmt: skip

    def until(now_ts):
        settle(db, "campus", UTC)
        judge_runs(db, CATALOGUE, Limits(), UTC)
        with transaction(db) as connection:
            mark_open_days(connection, UTC, now_ts)
        rollup(db, "campus", UTC, "DEU", now_ts)
        return [row[3] for row in waste(db)]

    assert until(3 * 86_400 - 1) == ["idle", "idle", "idle"]
    put(db, hour_run(**{**going, "ElapsedRaw": "334800"}))
    # (10 * 69 h + 1000 * 24 h) / 93 h = 265 thousandths
    ingest(db, [node.window("GPU-a", 3 * day_ms, 4 * day_ms, share(7, start, 1, 1, 1000))])
    assert until(4 * 86_400 - 1) == []


def test_memory_from_slurm_is_evidence(db):
    put(db, hour_run(State="OUT_OF_MEMORY"))
    measure(db, 900)
    refresh(db)
    assert [row[3:] for row in waste(db)] == [("memory-bound", 1, 3_600_000, 3_600_000)]


def test_billing_is_summed_without_suspended_time(db):
    put(db, hour_run(Suspended="00:10:00"))
    refresh(db)
    assert db.execute("SELECT billing_s FROM usage_daily").fetchall() == [(12 * 3000,)]
    assert db.execute("SELECT billing_s FROM usage_monthly").fetchall() == [(12 * 3000,)]


# -- idle policies ----------------------------------------------------------------------


def mig_hold(uuid, slices):
    return DeviceHold(device="GPU-a", instance=uuid, numerator=slices, denominator=7)


def mig_hour(db):
    """E8: 300 W for an hour, idle 60 W, 1g, 2g and 4g busy for 1.0, 0 and 0.5; in mJ."""
    node = Node()
    put(db, *(hour_run(job, AllocTRES=f"gres/gpu=1,gres/gpu:a100_{kind}=1")
              for job, kind in ((1, "1g.5gb"), (2, "2g.10gb"), (3, "4g.20gb"))))  # fmt: skip
    start = 3 * HOUR_MS
    ingest(db, [
        node.up("GPU-a"),
        *(node.start(n, start, mig_hold(f"MIG-{n}", n if n < 3 else 4)) for n in (1, 2, 3)),
        node.window(
            "GPU-a", start, 4 * HOUR_MS,
            share(1, start, 30_857_143, 288_000_000, 1000, "MIG-1"),
            share(2, start, 61_714_286, 0, 0, "MIG-2"),
            share(3, start, 123_428_571, 576_000_000, 500, "MIG-3"),
        ),
        *(node.end(n, start, 4 * HOUR_MS) for n in (1, 2, 3)),
    ])  # fmt: skip
    refresh(db)


def by_policy(db, column):
    return [
        energy
        for (energy,) in db.execute(
            f"SELECT {column} FROM usage_daily u LEFT JOIN moved_daily m"
            " ON m.owner = 'run' AND m.gpu_type = u.gpu_type ORDER BY u.gpu_type"
        )
    ]


def test_e8_the_three_idle_policies(db):
    """E8: reserved 318,857/61,714/699,429 J; the others by hand; the sum stays 1,080,000 J."""
    mig_hour(db)
    reserved = by_policy(db, "u.idle_mj + u.active_mj")
    assert reserved == [318_857_143, 61_714_286, 699_428_571]
    active = by_policy(db, "u.idle_mj + u.active_mj + m.moved_mj")
    # 216 kJ idle by 1 : 0 : 2, as the active energy
    assert active == [360_000_000, 0, 720_000_000]
    none = by_policy(db, "u.active_mj")
    assert none == [288_000_000, 0, 576_000_000]
    idle_owner = sum(by_policy(db, "u.idle_mj"))
    assert sum(reserved) == sum(active) == sum(none) + idle_owner == 1_080_000_000


def test_what_nobody_reserved_goes_to_the_holders_under_active(db):
    """One slice of seven holds the board: of 70 J idle it reserved 10, and gets all 70."""
    node = Node()
    put(db, hour_run(1, AllocTRES="gres/gpu=1,gres/gpu:a100_1g.5gb=1"))
    start = 3 * HOUR_MS
    ingest(db, [
        node.up("GPU-a"), node.start(1, start, mig_hold("MIG-1", 1)),
        node.window("GPU-a", start, 4 * HOUR_MS, share(1, start, 10, 5, 100, "MIG-1"), idle=60),
        node.window("GPU-a", 4 * HOUR_MS, 5 * HOUR_MS, idle=70, active=3),
        node.end(1, start, 4 * HOUR_MS),
    ])  # fmt: skip
    refresh(db)
    moved = db.execute("SELECT owner, gpu_type, moved_mj FROM moved_daily ORDER BY 1")
    assert moved.fetchall() == [
        ("run", "a100_1g.5gb", 60), ("unallocated", "a100-40", -60),
    ]  # fmt: skip


shares = st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), min_size=1, max_size=7)


@given(shares, st.integers(0, 10**9))
def test_moved_energy_is_what_nobody_reserved(parts, free_mj):
    held = [share(n, 0, idle, active, mig=str(n)) for n, (idle, active) in enumerate(parts)]
    moved = moved_by_share(free_mj, held)
    assert sum(moved) == free_mj
    assert all(one.idle_mj + part >= 0 for one, part in zip(held, moved, strict=True))


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(shares, st.integers(0, 10**9), st.integers(0, 10**9)), max_size=4))
def test_each_policy_gives_every_joule_one_owner(tmp_path_factory, windows):
    """Σ runs + unallocated (+ idle, for none) = measured, for each policy, over a day."""
    db = new_store(tmp_path_factory.mktemp("policies"))
    node = Node()
    start = 3 * HOUR_MS
    put(db, *(hour_run(n, AllocTRES="gres/gpu=1,gres/gpu:a100_1g.5gb=1") for n in range(1, 8)))
    made = [
        node.window(
            "GPU-a", start + place * 1000, start + (place + 1) * 1000,
            *(share(n, start, idle, active, None, f"MIG-{n}")
              for n, (idle, active) in enumerate(parts, start=1)),
            idle=free_idle, active=0 if parts else free_active,
        )
        for place, (parts, free_idle, free_active) in enumerate(windows)
    ]  # fmt: skip
    ingest(db, [
        node.up("GPU-a"), *(node.start(n, start, mig_hold(f"MIG-{n}", 1)) for n in range(1, 8)),
        *made, *(node.end(n, start, 4 * HOUR_MS) for n in range(1, 8)),
    ])  # fmt: skip
    refresh(db)
    one = lambda sql: db.execute(sql).fetchone()[0] or 0  # noqa: E731
    measured = one("SELECT sum(measured_mj) FROM window")
    idle, active = one("SELECT sum(idle_mj) FROM usage_daily"), one(
        "SELECT sum(active_mj) FROM usage_daily")  # fmt: skip
    free = one("SELECT sum(idle_mj + active_mj) FROM unallocated_daily")
    moved = one("SELECT sum(moved_mj) FROM moved_daily WHERE owner = 'run'")
    freed = one("SELECT sum(moved_mj) FROM moved_daily WHERE owner = 'unallocated'")
    assert idle + active + free == measured  # reserved; and none: active, idle, free
    assert moved == -freed
    assert (idle + active + moved) + (free + freed) == measured
    db.close()
