# SPDX-License-Identifier: Apache-2.0
"""The whole way of a job (hook, policyd, agents, collector, import) on newer releases of Slurm.

Debian 12's Slurm 22.05 has all other tests of this folder; here are Debian 13's and Debian's next.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lab.cluster import OneHostCluster
from tests.lab.demo import (
    finish,
    idle_mw,
    install_program,
    nodes_of_devices,
    settle,
    steer,
    submit_all,
)
from tests.lab.demo_check import (
    Verdict,
    check_conservation,
    check_energy,
    check_runs,
    check_settled,
)
from tests.lab.job_mix import Spec
from tests.lab.system import OTHER_RELEASES
from tests.lab.waiting import await_value

pytestmark = [
    pytest.mark.lab,
    pytest.mark.parametrize("release", OTHER_RELEASES, indirect=True),
]

MIX = (
    Spec("whole GPU", "ada", "qcd", ("--gres=gpu:a100:1",), 310, 4.0, given="a100"),
    Spec("two whole GPUs", "ben", "qcd", ("--gres=gpu:h100:2",), 540, 3.0, gpus=2),
    Spec("capitals", "dora", "chemistry", ("--gres=gpu:A100:1",), 330, 3.0, given="a100"),
    Spec("untyped", "cleo", "optics", ("-p", "all", "--gpus=1"), 220, 3.0),
    Spec("20 GB", "ben", "qcd", ("--gres=gpu:20gb:1",), 95, 4.0, given="a100_3g.20gb"),
    Spec("5 GB, one", "fay", "medicine", ("--gres=gpu:5gb:1",), 26, 4.0, given="a100_1g.5gb"),
    Spec("5 GB, other", "ada", "qcd", ("--gpus=5gb:1",), 15, 3.0, given="a100_1g.5gb"),
    Spec("per task", "emil", "chemistry", ("-n2", "-N1", "--gpus-per-task=A100:1"), 240, 3.0,
         gpus=2, given="a100"),
    Spec("slice per task", "emil", "chemistry", ("-n1", "--gpus-per-task=5gb:1"), 20, 3.0,
         given="a100_1g.5gb"),
    Spec("array", "ben", "qcd", ("--gres=gpu:h100:1", "--array=0-1"), 260, 3.0, tasks=2),
    Spec("no GPU", "cleo", "optics", ("--cpus-per-task=2",), 0, 2.0, gpus=0),
    Spec("unknown", "dora", "chemistry", ("--gres=gpu:h10:1",), fate="rejected", gpus=0),
    Spec("cancelled", "fay", "medicine", ("--gres=gpu:a100:1", "--begin=now+1hour"),
         fate="cancelled", gpus=0),
    Spec("requeued", "ada", "qcd", ("--gres=gpu:a100:1", "--requeue"), 270, 2.0, fate="requeued"),
)  # fmt: skip
WHERE = "echo node=$SLURMD_NODENAME gpus=$CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Ended:
    """The mix after all of it has ended: job ids by label, and the store at that state."""

    jobs: dict[str, list[int]]
    db: sqlite3.Connection

    def rows(self, label: str) -> list[sqlite3.Row]:
        """The runs of a submission, in order."""
        marks = ",".join("?" * len(self.jobs[label]))
        sql = f"SELECT * FROM run WHERE job_id IN ({marks}) ORDER BY job_id, submit_ts"
        return self.db.execute(sql, self.jobs[label]).fetchall()


@pytest.fixture(scope="module")
def lab(release: str, lab_root: Path) -> Iterator[OneHostCluster]:
    """Slurm of that release with everything of ours, the client filter too."""
    root = lab_root / f"r{release}"
    with OneHostCluster(
        root,
        release=release,
        settings={"collector.sync_s": 2.0},
        slurm={"CliFilterPlugins": "lua"},
    ) as running:
        install_program(running)
        running.start_fairwatt()
        yield running
    assert not root.exists()
    assert str(root) not in Path("/proc/self/mounts").read_text()


@pytest.fixture(scope="module")
def ended(lab: OneHostCluster) -> Iterator[Ended]:
    jobs = submit_all(lab, MIX)
    steer(lab, jobs, MIX)
    finish(lab, jobs, MIX)
    db = settle(lab)
    yield Ended(jobs, db)
    db.close()


def holds(verdict: Verdict) -> None:
    assert verdict.faults == [], "\n".join(verdict.lines)


def energies(lab: OneHostCluster, ended: Ended) -> Verdict:
    fakes = {name: node.fake for name, node in lab.nodes.items()}
    labels = {job_id: label for label, ids in ended.jobs.items() for job_id in ids}
    return check_energy(ended.db, fakes, idle_mw(lab), labels)


def shown(lab: OneHostCluster, job_id: int | None) -> str:
    return lab.run(["scontrol", "show", "job", str(job_id)]).stdout


def output(lab: OneHostCluster, job_id: int | None) -> str:
    assert lab.wait_job(str(job_id)) == ["COMPLETED"]
    return (lab.paths.home / "ada" / f"slurm-{job_id}.out").read_text()


class TestAccounting:
    def test_every_submission_left_its_runs(self, ended):
        holds(check_runs(ended.db, ended.jobs, MIX))

    def test_energy_of_whole_gpus_and_slices_is_the_truth(self, lab, ended):
        verdict = energies(lab, ended)
        holds(verdict)
        measured = "\n".join(verdict.lines)
        for spec in MIX:
            assert (spec.label in measured) == (spec.gpus > 0)

    def test_nothing_is_lost_or_doubled(self, lab, ended):
        fakes = {name: node.fake for name, node in lab.nodes.items()}
        holds(check_settled(ended.db))
        used = {uuid for (uuid,) in ended.db.execute("SELECT DISTINCT device_uuid FROM hold")}
        devices = {uuid: node for uuid, node in nodes_of_devices(lab).items() if uuid in used}
        assert len(devices) == len(used) >= 9
        holds(check_conservation(ended.db, fakes, devices))

    def test_a_requeued_job_is_two_runs(self, lab, ended):
        first, second = ended.rows("requeued")
        assert (first["restart_cnt"], second["restart_cnt"]) == (0, 1)
        assert (first["state"], second["state"]) == ("REQUEUED", "COMPLETED")
        assert None not in (first["sluid"], second["sluid"])
        assert first["sluid"] != second["sluid"]
        told = ended.db.execute(
            "SELECT run_id, restart_cnt, sluid FROM node_run WHERE job_id = ? ORDER BY start_ms",
            (first["job_id"],),
        ).fetchall()
        # Prologs know it from 25.11 on.
        known = lab.release >= "25.11"
        assert [tuple(row) for row in told] == [
            (row["run_id"], row["restart_cnt"], row["sluid"] if known else None)
            for row in (first, second)
        ]

    def test_tasks_of_an_array_know_their_number(self, ended):
        tasks = ended.rows("array")
        assert sorted(row["array_task_id"] for row in tasks) == [0, 1]
        assert len({row["array_job_id"] for row in tasks}) == 1

    def test_a_job_cancelled_while_pending_never_ran(self, ended):
        (row,) = ended.rows("cancelled")
        assert (row["state"], row["start_ts"], row["elapsed_s"]) == ("CANCELLED", None, None)

    def test_the_decision_is_kept(self, ended):
        (row,) = ended.rows("20 GB")
        decision = json.loads(row["decision"])
        assert (decision["asked"], decision["given"]) == ("gpu:20gb:1", "gpu:a100_3g.20gb:1")
        assert [row["decision"] for row in ended.rows("whole GPU")] == [None]

    def test_fairwatt_job_shows_it(self, lab, ended):
        (job_id,) = ended.jobs["20 GB"]
        done = lab.fairwatt("job", str(job_id), "--json")
        assert done.returncode == 0, done.stderr
        (run,) = json.loads(done.stdout)["runs"]["rows"]
        assert (run["job_id"], run["state"], run["name"]) == (job_id, "COMPLETED", "20 GB")

    def test_doctor_finds_no_fault(self, lab, ended):
        done = lab.fairwatt("doctor", "--json")
        assert done.returncode == 0
        found = json.loads(done.stdout)["findings"]
        checks = {each["check"] for each in found if each["level"] != "info"}
        assert checks <= {"accounting.factors"}, found  # the factors of this year are not out yet


class TestSubmission:
    def test_untyped_in_a_mixed_partition_is_never_on_a_slice(self, lab):
        jobs = [lab.sbatch(["-p", "all", "--gpus=1"], WHERE).job_id for _ in range(6)]
        assert not any("mig01" in output(lab, job) for job in jobs)

    def test_a_slice_is_given_by_its_uuid_and_steps_in_it_work(self, lab):
        done = lab.sbatch(["--gpus-per-task=20gb:1", "-n1"], f"{WHERE}\nsrun sh -c '{WHERE}'")
        assert "fairwatt FW101: gpu:20gb:1 -> gpu:a100_3g.20gb:1" in done.stderr
        batch, step = output(lab, done.job_id).splitlines()
        uuids = {device.uuid for device in lab.nodes["mig01"].devices}
        for line in (batch, step):
            node, gpus = line.split()
            assert node == "node=mig01"
            assert gpus.removeprefix("gpus=") in uuids

    @pytest.mark.parametrize("program", ["srun", "salloc"])
    def test_interactive_jobs_are_rewritten_too(self, lab, program):
        inner = ["srun"] if program == "salloc" else []
        argv = [program, "--gres=gpu:20gb:1", *inner, "sh", "-c", "echo node=$SLURMD_NODENAME"]
        done = lab.run(argv, user="ada")
        assert (done.returncode, done.stdout) == (0, "node=mig01\n"), done.stderr

    def test_an_unknown_type_is_refused_with_the_reason(self, lab):
        done = lab.sbatch(["--gres=gpu:h10:1"], "true")
        assert done.job_id is None
        told = "sbatch: error: fairwatt FW302: no GPU type h10 in partition gpu; nearest: h100"
        assert told in done.stderr

    def test_a_cpu_job_is_untouched(self, lab):
        done = lab.sbatch(["-c2"], "true")
        assert (done.returncode, done.stderr) == (0, "")
        assert "AdminComment" not in shown(lab, done.job_id)

    def test_a_change_of_a_pending_job_is_judged_and_the_user_told(self, lab):
        job_id = lab.sbatch(["--gres=gpu:a100:1", "--begin=now+1hour"], "true").job_id
        change = ["scontrol", "update", f"JobId={job_id}"]
        refused = lab.run([*change, "Gres=gpu:h10:1"], user="ada")
        assert refused.returncode != 0
        assert "FW302: no GPU type h10" in refused.stderr
        assert lab.run([*change, "Gres=gpu:A100:2"], user="ada").returncode == 0
        assert "gres/gpu:a100:2" in shown(lab, job_id)
        lab.run(["scancel", str(job_id)])

    def test_without_policyd_a_job_is_accepted_with_one_line(self, lab):
        lab.kill_policyd()
        done = lab.sbatch(["--gres=gpu:a100:1"], "true")
        assert done.job_id is not None
        (line,) = done.stderr.strip().splitlines()
        assert line.startswith("sbatch: fairwatt: the site's GPU policy could not be applied")
        assert lab.sbatch([], "true").stderr == ""
        lab.start_policyd()
        await_value(
            lambda: "FW301" in lab.sbatch(["--gres=gpu:A100:1"], "true").stderr,
            what="the policy is applied again",
            timeout_s=40,
        )
