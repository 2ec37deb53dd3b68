# SPDX-License-Identifier: Apache-2.0
"""Jobs tried again, on one GPU of eight, on three shared nodes: to the store, each joule once."""

from __future__ import annotations

import msgspec
import pytest

from fairwatt.accounting.ingest import ingest
from fairwatt.accounting.runs import upsert_runs
from fairwatt.accounting.settle import settle
from fairwatt.accounting.store import transaction
from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.events import Share
from fairwatt.core.records import Run
from tests.unit.accounting.samples import UTC, Node, new_store, sacct_run, share, whole
from tests.unit.agent.keeper_bench import Bench, board

T0_MS, T1_MS = 1_060_000, 1_070_000


@pytest.fixture
def db(tmp_path):
    store = new_store(tmp_path)
    yield store
    store.close()


def settled(db, *runs: Run) -> None:
    """Join Slurm's runs to the nodes', twice: the second time changes nothing."""
    for _ in range(2):
        with transaction(db) as connection:
            upsert_runs(connection, runs, load_catalogue(), UTC, 10_000)
        settle(db, "campus", UTC)


def of_run(db, job_id: int) -> list[tuple[str, int]]:
    """What a job used of each device, in mJ, as its hours have it too."""
    return db.execute(
        "SELECT device_uuid, idle_mj + active_mj FROM run_energy JOIN run USING (run_id)"
        " WHERE job_id = ? ORDER BY 1",
        (job_id,),
    ).fetchall()


def in_hours(db, table: str, job_id: int) -> int:
    (energy_mj,) = db.execute(
        f"SELECT sum(idle_mj + active_mj) FROM {table} JOIN run USING (run_id) WHERE job_id = ?",
        (job_id,),
    ).fetchone()
    return energy_mj


def test_e24_of_eight_gpus_and_four_ranks_one_gpus_energy_is_the_jobs_once(db) -> None:
    """E24: 300 W for 10 s on GPU-0; the others idle at 60 W; the prolog's word came twice."""
    node = Node()
    start = node.start(7, T0_MS, whole("GPU-0"))
    ingest(db, [
        node.up(*(f"GPU-{number}" for number in range(8))), start,
        msgspec.structs.replace(start, seq=node.seq + 100),
        node.window("GPU-0", T0_MS, T1_MS, share(7, T0_MS, 600_000, 2_400_000)),
        *(node.window(f"GPU-{number}", T0_MS, T1_MS, idle=600_000) for number in range(1, 8)),
        node.end(7, T0_MS, T1_MS),
    ])  # fmt: skip
    settled(db, sacct_run())
    assert of_run(db, 7) == [("GPU-0", 3_000_000)]
    assert in_hours(db, "run_hour", 7) == 3_000_000


def test_e25_a_job_on_three_shared_nodes_has_the_sum_of_its_parts(db) -> None:
    """E25: 525, 300 and 150 J of the three packages' 600 J each, beside job 9: 975 J."""
    parts = {"cn1": (225_000, 300_000), "cn2": (150_000, 150_000), "cn3": (75_000, 75_000)}
    for name, (idle_mj, active_mj) in parts.items():
        node = Node(name)
        other = Share(job_id=9, run_start_ms=T0_MS, instance="", idle_mj=0,
                      active_mj=600_000 - idle_mj - active_mj, util_permille=None)  # fmt: skip
        window = node.window(f"{name}/cpu0", T0_MS, T1_MS,
                             share(7, T0_MS, idle_mj, active_mj), other)  # fmt: skip
        ingest(db, [
            node.start(7, T0_MS), node.start(9, T0_MS),
            msgspec.structs.replace(window, kind="cpu", method="rapl", system_mj=0),
            node.end(7, T0_MS, T1_MS), node.end(9, T0_MS, T1_MS),
        ])  # fmt: skip
    settled(db, sacct_run(), sacct_run(JobIDRaw="9", JobID="9"))
    assert of_run(db, 7) == [("cn1/cpu0", 525_000), ("cn2/cpu0", 300_000), ("cn3/cpu0", 150_000)]
    assert in_hours(db, "run_host_hour", 7) == 975_000
    assert sum(energy_mj for _, energy_mj in of_run(db, 9)) == 3 * 600_000 - 975_000


def test_e9_each_try_of_a_requeued_job_has_its_own_energy(tmp_path, db) -> None:
    """E9: 3889, 4473, 6122 and 2153 s at 300 W on one GPU, 20 s between two tries."""
    bench, rows, lengths_s = Bench(tmp_path, board("GPU-1")), [], (3889, 4473, 6122, 2153)
    bench.start()
    for number, length_s in enumerate(lengths_s):
        start_ms = bench.now_ms
        bench.hook("prolog", 235_929)
        bench.pass_time(1000 * length_s, 300_000)
        bench.hook("epilog", 235_929)
        rows.append(_tried(start_ms // 1000, length_s, number, last=number == 3))
        bench.pass_time(20_000, 60_000)
    ingest(db, bench.events(msgspec.Struct))
    bench.crash()
    settled(db, *rows)
    by_start = db.execute(
        "SELECT idle_mj + active_mj FROM run_energy JOIN run USING (run_id) ORDER BY start_ts"
    ).fetchall()
    assert by_start == [(300_000 * length_s,) for length_s in lengths_s]


def _tried(start_ts: int, length_s: int, number: int, *, last: bool) -> Run:
    return sacct_run(
        JobIDRaw="235929", JobID="235929", Submit=str(start_ts - 5), Start=str(start_ts),
        Eligible=str(start_ts - 5), End=str(start_ts + length_s), ElapsedRaw=str(length_s),
        State="COMPLETED" if last else "REQUEUED", DBIndex=str(number + 1),
    )  # fmt: skip
