# SPDX-License-Identifier: Apache-2.0
"""Every way a job becomes runs, on real Slurm of three releases, read by `fairwatt sync`.

What each job was given and did is known from here, not from sacct.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from fairwatt.accounting.days import day_of
from fairwatt.accounting.quality import RunFlag
from fairwatt.accounting.store import open_reader
from tests.lab.cluster import OneHostCluster
from tests.lab.waiting import await_value

pytestmark = pytest.mark.lab

ZONE = ZoneInfo("Europe/Berlin")
"""The site's, as tests/lab/fairwatt_conf.py sets it."""

HET = """#!/bin/sh
#SBATCH -n1 -p gpu --gres=gpu:a100:1
#SBATCH hetjob
#SBATCH -n1 -p gpu
sleep 1
"""
SUSPENDED_S = 3


@dataclass(frozen=True)
class Played:
    """The jobs by what happened to them, and the store after an import."""

    cluster: OneHostCluster
    jobs: dict[str, int]

    def runs(self, what: str) -> list[sqlite3.Row]:
        """The runs of a job, by submission and start."""
        return stored(self.cluster, self.jobs[what])

    def gpus(self, run_id: int) -> dict[str, int]:
        """A run's GPUs by type."""
        with closing(open_reader(self.cluster.database)) as db:
            sql = "SELECT gpu_type, count FROM run_gpu WHERE run_id = ?"
            return dict(db.execute(sql, (run_id,)).fetchall())


def stored(cluster: OneHostCluster, job_id: int) -> list[sqlite3.Row]:
    with closing(open_reader(cluster.database)) as db:
        db.row_factory = sqlite3.Row
        sql = (
            "SELECT * FROM run WHERE ? IN (job_id, array_job_id, het_job_id)"
            " ORDER BY job_id, submit_ts, start_ts"
        )
        return db.execute(sql, (job_id,)).fetchall()


def sync(cluster: OneHostCluster) -> dict[str, int]:
    done = cluster.fairwatt("sync", "--once", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def held_for(seconds: float) -> None:
    """Slurm counts whole seconds: a job has to be in a state for some."""
    time.sleep(seconds)


@pytest.fixture(scope="module")
def lab(release: str, lab_root: Path) -> Iterator[OneHostCluster]:
    with OneHostCluster(
        lab_root / f"runs{release}",
        with_fairwatt=False,
        release=release,
        slurm={"PreemptType": "preempt/qos", "PreemptMode": "CANCEL"},
    ) as running:
        urgent = ["add", "qos", "urgent", "Preempt=normal", "PreemptMode=cancel"]
        running.run(["sacctmgr", "--immediate", *urgent], check=True)
        more = ["modify", "user", "ada", "set", "qos+=urgent"]
        running.run(["sacctmgr", "--immediate", *more], check=True)
        yield running


@pytest.fixture(scope="module")
def played(lab: OneHostCluster) -> Played:
    jobs = {what: lab.sbatch(args, script).job_id for what, args, script in _JOBS}
    assert None not in jobs.values(), jobs
    for what in ("requeued", "resized", "suspended", "low"):
        lab.wait_job(jobs[what], {"RUNNING"})
    jobs["high"] = lab.sbatch(["-p", "gpu", "-w", "h01", "--exclusive", "--qos=urgent"],
                              "sleep 1").job_id  # fmt: skip
    held_for(1.2)
    _control(lab, "requeue", jobs["requeued"])
    _control(lab, "suspend", jobs["suspended"])
    _control(lab, "update", f"JobId={jobs['resized']}", "NumNodes=1")
    held_for(SUSPENDED_S)
    _control(lab, "resume", jobs["suspended"])
    held_for(1.2)
    lab.run(
        ["scancel", *(str(jobs[what]) for what in ("held", "requeued", "suspended", "resized"))]
    )
    for job_id in jobs.values():
        lab.wait_recorded(job_id)
    # As if slurmdbd had never heard of the end of a job that began an hour ago.
    earlier = ", ".join(f"{at} = {at} - 3600" for at in ("time_submit", "time_start"))
    _change_record(lab, jobs["lost"], f"time_end = 0, state = 1, {earlier}")
    await_value(lambda: sync(lab)["changed"] == 0, what="an import at rest", timeout_s=40)
    return Played(lab, jobs)


_JOBS = (
    ("requeued", ["--requeue", "-p", "gpu", "--gres=gpu:a100:1", "-w", "gpu02"], "sleep 600"),
    ("array", ["-p", "gpu", "--gres=gpu:a100:1", "--array=0-2"], "sleep 1"),
    ("het", [], HET),
    ("resized", ["-p", "gpu", "-N2", "-w", "gpu01,gpu02", "--gres=gpu:a100:1"], "sleep 600"),
    ("suspended", ["-p", "gpu", "-c2", "--gres=gpu:a100:2"], "sleep 600"),
    ("held", ["--hold", "-p", "gpu", "--gres=gpu:a100:1"], "true"),
    ("exclusive", ["-p", "mig", "--exclusive"], "sleep 1"),
    ("mixed", ["-p", "mig", "--gres=gpu:a100_1g.5gb:2,gpu:a100_3g.20gb:1"], "sleep 1"),
    ("low", ["-p", "gpu", "-w", "h01", "--gres=gpu:h100:2"], "sleep 600"),
    ("lost", ["-p", "gpu", "--gres=gpu:a100:1"], "sleep 1"),
)


def _control(lab: OneHostCluster, *words: object) -> None:
    lab.run(["scontrol", *map(str, words)], check=True)


def _change_record(lab: OneHostCluster, job_id: int, change: str) -> None:
    """Change slurmdbd's record of a job behind its back."""
    sql = f"UPDATE campus_job_table SET {change} WHERE id_job = {job_id}"
    socket = lab.paths.database_socket
    argv = ["mariadb", f"--socket={socket}", "--user=root", "slurm_acct_db", "-e", sql]
    lab.run(argv, check=True)


def test_a_requeued_job_is_two_runs(played):
    first, second = played.runs("requeued")
    assert (first["state"], first["restart_cnt"], second["restart_cnt"]) == ("REQUEUED", 0, 1)
    assert second["state"] == "CANCELLED"
    assert played.gpus(first["run_id"]) == {"a100": 1}
    assert first["end_ts"] - first["start_ts"] >= 1


def test_each_task_of_an_array_is_a_run(played):
    runs = played.runs("array")
    assert [(run["array_task_id"], run["state"]) for run in sorted(
        runs, key=lambda run: run["array_task_id"])] == [
        (0, "COMPLETED"), (1, "COMPLETED"), (2, "COMPLETED")]  # fmt: skip
    assert {run["array_job_id"] for run in runs} == {played.jobs["array"]}
    assert [played.gpus(run["run_id"]) for run in runs] == [{"a100": 1}] * 3


def test_each_part_of_a_het_job_is_a_run_once(played):
    """E21"""
    runs = played.runs("het")
    assert [(run["het_job_id"], run["het_offset"]) for run in runs] == [
        (played.jobs["het"], 0),
        (played.jobs["het"], 1),
    ]
    assert [played.gpus(run["run_id"]) for run in runs] == [{"a100": 1}, {}]


def test_a_resized_job_has_its_two_nodes_and_then_one(played):
    first, second = played.runs("resized")
    assert (first["state"], first["nnodes"], second["nnodes"]) == ("RESIZING", 2, 1)
    # Whole seconds of two clocks' reading: never an overlap of more than one.
    assert first["end_ts"] - 1 <= second["start_ts"] <= first["end_ts"] + 1
    for run in (first, second):
        assert run["elapsed_s"] == run["end_ts"] - run["start_ts"]
    assert [played.gpus(run["run_id"]) for run in (first, second)] == [{"a100": 2}, {"a100": 1}]
    assert (first["restart_cnt"], second["restart_cnt"]) == (0, 0)


def test_suspended_time_is_no_elapsed_time(played):
    """E12"""
    (run,) = played.runs("suspended")
    assert SUSPENDED_S - 1 <= run["suspended_s"] <= SUSPENDED_S + 5
    assert run["elapsed_s"] == run["end_ts"] - run["start_ts"] - run["suspended_s"]
    assert (run["ncpus"], played.gpus(run["run_id"])) == (2, {"a100": 2})


def test_a_preempted_job_is_one_and_the_other_ran(played):
    """E19"""
    (low,), (high,) = played.runs("low"), played.runs("high")
    assert (low["state"], high["state"]) == ("PREEMPTED", "COMPLETED")
    assert (low["qos"], high["qos"]) == ("normal", "urgent")
    assert high["start_ts"] >= low["end_ts"]


def test_a_job_cancelled_while_it_waited_never_ran(played):
    """E18"""
    (run,) = played.runs("held")
    assert (run["state"], run["start_ts"], run["elapsed_s"]) == ("CANCELLED", None, None)
    assert run["end_ts"] is not None
    assert (run["gpu_milli"], played.gpus(run["run_id"])) == (0, {})


def test_an_exclusive_job_has_what_it_was_given_not_what_it_asked(played):
    """E11: all 32 cores of mig01; its GPUs are counted where Slurm gave them."""
    (run,) = played.runs("exclusive")
    (told,) = played.cluster.sacct_rows(f"--jobs={run['job_id']}")
    assert (run["ncpus"], run["alloc_tres"]) == (32, told["AllocTRES"])
    given = 9 if "gres/gpu=9" in told["AllocTRES"] else 0
    assert sum(played.gpus(run["run_id"]).values()) == given


def test_several_types_in_one_job_are_counted_each(played):
    """E1: 2/7 and 3/7 of a board."""
    (run,) = played.runs("mixed")
    assert played.gpus(run["run_id"]) == {"a100_1g.5gb": 2, "a100_3g.20gb": 1}
    assert run["gpu_milli"] == 2 * 143 + 429


def test_a_runaway_is_flagged_and_not_billed(played):
    """E32: no node measured it, so nothing is known of it after its start."""
    (run,) = played.runs("lost")
    assert (run["end_ts"], run["flags"]) == (None, RunFlag.RUNAWAY)
    others = {job: played.runs(what)[0] for what, job in played.jobs.items() if what != "lost"}
    assert not any(one["flags"] & RunFlag.RUNAWAY for one in others.values())


def test_a_runaway_that_an_admin_mends_gets_its_end(played):
    """As `sacctmgr show runawayjobs` mends it: with an end in the past."""
    job_id = played.jobs["lost"]
    _change_record(played.cluster, job_id, "time_end = time_start + 5, state = 3")
    sync(played.cluster)
    (run,) = played.runs("lost")
    assert (run["flags"], run["end_ts"] - run["start_ts"], run["elapsed_s"]) == (0, 5, 5)


def test_what_was_read_is_what_slurm_has(played):
    """The audit of their days, at the site's place, finds nothing, and says so."""
    with closing(open_reader(played.cluster.database)) as db:
        ends = [row[0] for row in db.execute("SELECT end_ts FROM run WHERE end_ts IS NOT NULL")]
    days = sorted({day_of(end_ts, ZONE) for end_ts in ends})
    done = played.cluster.run(
        ["env", f"FAIRWATT_CONFIG={played.cluster.config_path}", *AUDIT, *days]
    )
    assert done.returncode == 0, done.stderr
    compared, differences = json.loads(done.stdout)
    assert differences == []
    assert compared >= len(played.jobs)


AUDIT = (
    str(Path(__file__).parents[2] / ".venv/bin/python"),
    "-c",
    """
import json, sys
from fairwatt.accounting.audit import audit
from fairwatt.accounting.cycle import site_of
from fairwatt.accounting.slurmdb import SlurmDb
from fairwatt.accounting.store import open_reader
from fairwatt.core import config
site = site_of(config.load(config.find()))
db, slurm = open_reader(site.database), SlurmDb(site.slurm_conf)
done = audit(db, slurm, cluster=site.cluster, days=sys.argv[1:], zone=site.zone)
slurm.allocated_s(site.cluster, sys.argv[1], site.zone)
print(json.dumps([done.runs, [str(one) for one in done.differences]]))
""",
)


def test_an_export_by_hand_is_the_same_runs(played, tmp_path):
    """`fairwatt import sacct --how` on this release; nothing that the sync had read changes."""
    how = played.cluster.fairwatt("import", "sacct", "--how").stdout
    exported = played.cluster.run(["bash", "-c", how], check=True).stdout
    (tmp_path / "export.txt").write_text(exported)
    done = played.cluster.fairwatt("import", "sacct", str(tmp_path / "export.txt"), "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["seen"] >= len(played.jobs)
    assert (result["changed"], result["rejected"], result["steps"]) == (0, 0, 0)
