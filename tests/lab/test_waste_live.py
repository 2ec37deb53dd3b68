# SPDX-License-Identifier: Apache-2.0
"""What a job asked, got and used, from Slurm and a node to the store and the terminal."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.lab.cluster import OneHostCluster
from tests.lab.demo import install_program
from tests.lab.job_mix import Spec, script
from tests.lab.waiting import await_value

pytestmark = pytest.mark.lab

WHOLE = Spec("whole GPU", "ada", "qcd", ("--gres=gpu:a100:1", "--nodelist=gpu01"), 300, 12.0)
OTHERS_MIB, LOAD_MIB = 7000, 1024  # the load program says that it holds the latter
USED_MIB = OTHERS_MIB + LOAD_MIB


@pytest.fixture(scope="module")
def house(lab_root) -> Iterator[OneHostCluster]:
    """A cluster of this module's own."""
    with OneHostCluster(lab_root / "w", settings={"collector.sync_s": 1.0}) as cluster:
        install_program(cluster)
        cluster.start_fairwatt()
        yield cluster


def busy_board(house: OneHostCluster) -> str:
    """The board of gpu01 on which the job computes."""
    fake = house.nodes["gpu01"].fake
    idle = {uuid: gpu.idle_mw for uuid, gpu in fake.truth().gpus.items()}

    def look() -> str | None:
        now_ms = time.time_ns() // 1_000_000
        return next((uuid for uuid, mw in idle.items() if fake.power_mw(uuid, now_ms) > mw), None)

    return str(await_value(look, what="load on gpu01", timeout_s=30))


def test_the_memory_in_use_and_three_units_reach_the_job_s_report(house) -> None:
    """E33 the other way round: an agent that reads the memory, a job too short to be judged."""
    args = [f"--account={WHOLE.account}", *WHOLE.args]
    done = house.sbatch(args, script(WHOLE, str(house.paths.root)), user=WHOLE.user)
    assert done.job_id is not None, done.stderr
    fake = house.nodes["gpu01"].fake
    board = busy_board(house)
    fake.add_process(board, 4711, OTHERS_MIB)
    assert house.wait_job(done.job_id) == ["COMPLETED"]
    fake.remove_process(board, 4711)

    def settled() -> list[tuple[int, str]] | None:
        with closing(sqlite3.connect(f"file:{house.database}?mode=ro", uri=True)) as db:
            rows = db.execute(
                "SELECT m.max_mib, w.class FROM run r JOIN run_gpu_memory m USING (run_id)"
                " JOIN run_waste w USING (run_id) WHERE r.job_id = ? AND r.end_ts IS NOT NULL",
                (done.job_id,),
            ).fetchall()
        return rows or None

    assert await_value(settled, what="the job's memory", timeout_s=60) == [(USED_MIB, "unknown")]
    told = json.loads(house.fairwatt("job", str(done.job_id), "--json").stdout)
    rows = {row["resource"]: row for row in told["resources"]["rows"]}
    assert (rows["GPU memory"]["used_amount"], rows["GPU memory"]["why"]) == (USED_MIB, "")
    assert rows["GPUs"]["used_amount"] > 0
    (units,) = told["gpu_time"]["rows"]
    assert units["device_hours"] == units["fge_hours"] > 0
    assert units["billing_hours"] > 0
    assert told["advice"]["rows"][0]["evidence"] == (
        "It ran for less than 5 min, too short to tell."
    )
    assert told["energy"]["notes"][0].startswith("Idle policy reserved: ")
    none = house.fairwatt("job", str(done.job_id), "--json", "--idle-policy=none")
    (row,) = json.loads(none.stdout)["energy"]["rows"]
    assert row["idle_mj"] == 0 < row["energy_mj"] == row["active_mj"]
