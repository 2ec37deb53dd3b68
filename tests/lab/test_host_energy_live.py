# SPDX-License-Identifier: Apache-2.0
"""Two jobs share a node's CPUs under real Slurm, its agent is killed between: no joule is lost."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fairwatt.accounting.agent.segments import read_entries
from fairwatt.core.events import Flag, RunStarted
from fairwatt.core.segments import segment_numbers, segment_path
from tests.fakes.host_tree import HostTree
from tests.lab.cluster import OneHostCluster
from tests.lab.waiting import await_value

pytestmark = pytest.mark.lab

NODE = "gpu01"
SETTINGS = {"collector.sync_s": 1.0, "agent.host_idle_w": ["cpu=0", "dram=0"]}
"""Without idle power the shares are those of CPU time, whatever the clock says."""


@pytest.fixture(scope="module")
def house(lab_root) -> Iterator[OneHostCluster]:
    """A cluster of this module's own: its agents are killed."""
    with OneHostCluster(lab_root / "h", settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def tree(house) -> HostTree:
    """The node's host, made before its agent starts."""
    made = HostTree(house.nodes[NODE].folder, cores=32, memory_bytes=512_000 << 20)
    house.start_fairwatt()
    return made


def submit(house: OneHostCluster, cpus: int) -> tuple[int, Path]:
    """Start a job on the node that runs until a file is there."""
    folder = house.paths.root / "tmp"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o1777)
    flag = folder / f"end-{cpus}"
    done = house.sbatch(
        ["--gres=gpu:a100:1", f"--nodelist={NODE}", f"--cpus-per-task={cpus}", "--mem=1000"],
        f"#!/bin/sh\nwhile [ ! -e {flag} ]; do sleep 0.1; done\n",
    )
    assert done.job_id is not None, done.stderr
    run = await_value(lambda: started(house).get(done.job_id), what="prolog", timeout_s=30)
    assert run.ncpus == cpus
    return done.job_id, flag


def started(house: OneHostCluster) -> dict[int, RunStarted]:
    """The runs in the node's journal."""
    folder = house.nodes[NODE].spool_dir / "journal"
    entries = [e for n in segment_numbers(folder) for e in read_entries(segment_path(folder, n))]
    runs = [e.event for e in entries if isinstance(e.event, RunStarted)]
    return {run.job_id: run for run in runs}


def end(house: OneHostCluster, tree: HostTree, job_id: int, flag: Path) -> None:
    """End a job; its group goes before its epilog comes."""
    tree.end(f"job_{job_id}")
    flag.touch()
    assert house.wait_job(job_id) == ["COMPLETED"]
    house.wait_recorded(job_id)


def work(tree: HostTree, energy_j: int, cpu_s: dict[int, int]) -> None:
    """Let package 0 use energy, and jobs CPU time, all on it."""
    tree.use("cpu0", energy_j * 1_000_000)
    for job_id, seconds in cpu_s.items():
        tree.compute(f"job_{job_id}", seconds * 1_000_000)


def test_two_jobs_share_a_package_while_its_agent_is_killed(house, tree):
    """Job A has 4 CPUs, B 2. 180 J around the kill by 45 : 45 s, 30 J by 10 : 20 s, 5 J of B.

    A: 90 + 10 = 100 J; B: 90 + 20 + 5 = 115 J. More in a few seconds no package can draw.
    """
    a, end_a = submit(house, 4)
    b, end_b = submit(house, 2)
    tree.job(f"job_{a}", cpus="0-3", memory=600 << 20, limit=1000 << 20)
    tree.job(f"job_{b}", cpus="4-5", memory=200 << 20, limit=1000 << 20)
    work(tree, 90, {a: 30, b: 15})
    house.kill_agent(NODE)
    work(tree, 90, {a: 15, b: 30})
    house.start_agent(NODE)
    await_value(lambda: len(windows(house)) >= 3, what="the window of the gap", timeout_s=30)
    work(tree, 30, {a: 10, b: 20})
    end(house, tree, a, end_a)
    await_value(lambda: len(windows(house)) >= 4, what="the window of A's end", timeout_s=30)
    work(tree, 5, {b: 5})
    end(house, tree, b, end_b)
    settled = await_value(lambda: energies(house, 2), what="both jobs settled", timeout_s=60)
    assert settled == {a: 100_000, b: 115_000}
    told = windows(house)
    assert sum(row["measured_mj"] for row in told) == 215_000
    assert all(row["owned_mj"] == row["measured_mj"] for row in told)
    assert any(row["flags"] & Flag.GAP for row in told)
    shown = house.fairwatt("job", str(a)).stdout
    assert "CPUs" in shown
    assert "0.03 Wh" in shown  # 100 J


def windows(house: OneHostCluster) -> list[sqlite3.Row]:
    """The windows of package 0 with what all their owners have."""
    return query(
        house,
        "SELECT w.*, w.unallocated_idle_mj + w.unallocated_active_mj + w.system_mj"
        " + coalesce((SELECT sum(s.idle_mj + s.active_mj) FROM window_share s"
        " WHERE s.device_uuid = w.device_uuid AND s.t0_ms = w.t0_ms), 0) AS owned_mj"
        f" FROM window w WHERE w.device_uuid = '{NODE}/cpu0' ORDER BY w.t0_ms",
    )


def energies(house: OneHostCluster, jobs: int) -> dict[int, int] | None:
    """The CPU energy of each job, once all have ended and are settled."""
    rows = query(
        house,
        "SELECT job_id, sum(idle_mj + active_mj) AS mj FROM run JOIN run_energy USING (run_id)"
        f" JOIN node_run n USING (run_id, job_id) WHERE device_uuid = '{NODE}/cpu0'"
        " AND n.end_ms IS NOT NULL AND NOT EXISTS (SELECT 1 FROM unsettled) GROUP BY job_id",
    )
    return {row["job_id"]: row["mj"] for row in rows} if len(rows) == jobs else None


def query(house: OneHostCluster, sql: str) -> list[sqlite3.Row]:
    """Rows of the collector's store."""
    with closing(sqlite3.connect(f"file:{house.database}?mode=ro", uri=True)) as db:
        db.row_factory = sqlite3.Row
        return db.execute(sql).fetchall()
