# SPDX-License-Identifier: Apache-2.0
"""What is killed on the way from a job to the store: nothing is lost and nothing doubled."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from zoneinfo import ZoneInfo

import pytest

from fairwatt.accounting.verify import span_of, verify
from fairwatt.core.events import Flag
from tests.lab.cluster import OneHostCluster
from tests.lab.demo import idle_mw, install_program, nodes_of_devices
from tests.lab.demo_check import check_conservation, check_energy, check_settled
from tests.lab.job_mix import Spec, script
from tests.lab.waiting import await_value

pytestmark = pytest.mark.lab

WHOLE = Spec("whole GPU", "ada", "qcd", ("--gres=gpu:a100:1", "--nodelist=gpu01"), 300, 5.0)
# The load program finds its devices in a file of the agent's, which is away here.
AWAY = Spec("no load", "ada", "qcd", ("--gres=gpu:a100:1", "--nodelist=gpu01"), 0, 2.0)
SLICE = Spec("slice", "cleo", "optics", ("--gres=gpu:5gb:1",), 25, 5.0)


@pytest.fixture(scope="module")
def house(lab_root) -> Iterator[OneHostCluster]:
    """A cluster of this module's own: its daemons get killed."""
    with OneHostCluster(lab_root / "f", settings={"collector.sync_s": 1.0}) as cluster:
        install_program(cluster)
        cluster.start_fairwatt()
        yield cluster


def submit(house: OneHostCluster, spec: Spec) -> int:
    """Submit a job of the mix's kind."""
    result = house.sbatch(
        [f"--account={spec.account}", *spec.args],
        script(spec, str(house.paths.root)),
        user=spec.user,
    )
    assert result.job_id is not None, result.stderr
    return result.job_id


def await_load(house: OneHostCluster, node: str) -> None:
    """Wait until one of the node's boards draws more than idle: the job computes."""
    fake = house.nodes[node].fake
    idle = {uuid: gpu.idle_mw for uuid, gpu in fake.truth().gpus.items()}
    await_value(
        lambda: any(fake.power_mw(uuid, _now_ms()) > mw for uuid, mw in idle.items()),
        what=f"load on {node}",
        timeout_s=20,
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def finish(house: OneHostCluster, *job_ids: int) -> None:
    """Wait until the jobs have ended and slurmdbd knows it."""
    for job_id in job_ids:
        assert house.wait_job(job_id) == ["COMPLETED"]
        house.wait_recorded(job_id)


def assert_books_are_right(house: OneHostCluster, *job_ids: int) -> dict[int, sqlite3.Row]:
    """All of them are in the store once, with the truth's energy; every device conserves."""
    with closing(sqlite3.connect(f"file:{house.database}?mode=ro", uri=True)) as db:
        db.row_factory = sqlite3.Row
        await_value(
            lambda: _settled(db, job_ids), what=f"jobs {job_ids} in the store", timeout_s=40
        )
        db.execute("BEGIN")
        fakes = {name: node.fake for name, node in house.nodes.items()}
        labels = {job_id: str(job_id) for job_id in job_ids}
        faults = [
            *check_energy(db, fakes, idle_mw(house), labels).faults,
            *check_settled(db).faults,
            *check_conservation(db, fakes, _touched(house, db)).faults,
        ]
        assert faults == []
        rows = db.execute(
            "SELECT job_id, run_energy.* FROM run JOIN run_energy USING (run_id)"
        ).fetchall()
        return {row["job_id"]: row for row in rows}


def _touched(house: OneHostCluster, db: sqlite3.Connection) -> dict[str, str]:
    """The devices that have windows so far: an idle node closes its first after minutes."""
    known = nodes_of_devices(house)
    return {row[0]: known[row[0]] for row in db.execute("SELECT DISTINCT device_uuid FROM window")}


def _settled(db: sqlite3.Connection, job_ids: tuple[int, ...]) -> bool:
    """Every job has one run with its end and its energy, no epilog is missing, no news waits."""
    rows = db.execute(
        "SELECT job_id, COUNT(*) FROM run JOIN run_energy USING (run_id)"
        " WHERE end_ts IS NOT NULL GROUP BY job_id"
    ).fetchall()
    waiting = db.execute(
        "SELECT (SELECT COUNT(*) FROM node_run WHERE end_ms IS NULL)"
        " + (SELECT COUNT(*) FROM unsettled)"
    ).fetchone()[0]
    return waiting == 0 and all((job_id, 1) in map(tuple, rows) for job_id in job_ids)


def no_node_drained(house: OneHostCluster) -> bool:
    """Slurm has nothing against any node."""
    return house.run(["sinfo", "--noheader", "-R"]).stdout.strip() == ""


def test_agent_killed_in_the_middle_of_a_job(house):
    job_id = submit(house, WHOLE)
    await_load(house, "gpu01")
    house.kill_agent("gpu01")
    house.start_agent("gpu01")
    finish(house, job_id)
    row = assert_books_are_right(house, job_id)[job_id]
    assert row["flags"] & Flag.GAP
    assert no_node_drained(house)


def test_agent_away_from_prolog_to_epilog(house):
    house.kill_agent("gpu01")
    job_id = submit(house, AWAY)
    finish(house, job_id)
    house.start_agent("gpu01")
    with closing(sqlite3.connect(f"file:{house.database}?mode=ro", uri=True)) as db:
        db.row_factory = sqlite3.Row
        find = "SELECT closed_by, mapped_by FROM node_run WHERE job_id = ? AND end_ms IS NOT NULL"
        told = await_value(
            lambda: db.execute(find, (job_id,)).fetchall(),
            what="the run that the inbox told of",
            timeout_s=30,
        )
        assert [tuple(row) for row in told] == [("inbox", "device-file")]
        fakes = {name: node.fake for name, node in house.nodes.items()}
        assert check_conservation(db, fakes, _touched(house, db)).faults == []
    assert no_node_drained(house)


def test_collector_killed_for_the_whole_run(house):
    house.kill_collector()
    jobs = [submit(house, WHOLE), submit(house, SLICE)]
    finish(house, *jobs)
    house.start_collector()
    assert_books_are_right(house, *jobs)


def test_collector_killed_while_events_arrive(house):
    job_id = submit(house, SLICE)
    await_load(house, "mig01")
    for _ in range(3):
        house.kill_collector()
        house.start_collector()
    finish(house, job_id)
    assert_books_are_right(house, job_id)


def test_ten_kills_at_random_moments(house):
    """Agents and collector, with jobs on both nodes; in the end the ledger verifies to the mJ."""
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    jobs = [submit(house, WHOLE), submit(house, SLICE), submit(house, SLICE)]
    await_load(house, "gpu01")
    for _ in range(10):
        time.sleep(rng.uniform(0.0, 0.5))  # a moment that nothing tells of
        victim = rng.choice(("gpu01", "mig01", "collector"))
        if victim == "collector":
            house.kill_collector()
            house.start_collector()
        else:
            house.kill_agent(victim)
            house.start_agent(victim)
    finish(house, *jobs)
    assert_books_are_right(house, *jobs)
    done = verify(
        house.database, cluster="campus", zone=ZoneInfo("Europe/Berlin"), carbon_zone="DEU",
        span=span_of(None, None, ZoneInfo("Europe/Berlin")),
    )  # fmt: skip
    assert done.findings.faults == []
    assert done.runs >= len(jobs)
    assert no_node_drained(house)
