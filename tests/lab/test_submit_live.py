# SPDX-License-Identifier: Apache-2.0
"""The submit side in a real slurmctld: rewriting, refusing, and a policyd that is away."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.cluster import OneHostCluster
from tests.lab.paths import REPOSITORY
from tests.lab.waiting import await_value

pytestmark = pytest.mark.lab

NOT_APPLIED = "fairwatt: the site's GPU policy could not be applied"
LUA = REPOSITORY / "slurm_plugins" / "lua"
FW101 = (
    "fairwatt FW101: gpu:20gb:1 -> gpu:a100_3g.20gb:1: the smallest with 20 GB in partition mig"
)
WHERE = "echo node=$SLURMD_NODENAME"
WHERE_STEP = "sh -c 'echo node=$SLURMD_NODENAME'"


@pytest.fixture(scope="module")
def lab(lab_root: Path) -> Iterator[OneHostCluster]:
    """Slurm with our submit hook and policyd, no agents."""
    nothing = REPOSITORY / "tests" / "lab" / "recorder"
    with OneHostCluster(lab_root / "s", node_hooks=nothing) as running:
        running.start_policyd()
        yield running


def show(lab: OneHostCluster, job_id: int) -> dict[str, str]:
    text = lab.run(["scontrol", "--oneliner", "show", "job", str(job_id)]).stdout
    return dict(pair.split("=", 1) for pair in text.split() if "=" in pair)


def comment(lab: OneHostCluster, job_id: int) -> dict:
    text = lab.run(["scontrol", "show", "job", str(job_id)]).stdout
    line = next(row for row in text.splitlines() if "AdminComment=" in row)
    return json.loads(line.strip().removeprefix("AdminComment=fairwatt:"))


def submit(lab: OneHostCluster, *args: str, script: str = "true"):
    return lab.sbatch(list(args), script)


def output(lab: OneHostCluster, job_id: int) -> str:
    (file,) = (lab.paths.home / "ada").glob(f"*{job_id}*")
    return file.read_text()


class TestRewriting:
    @pytest.mark.parametrize(
        "flag", ["--gres=gpu:20gb:1", "--gpus=20gb:1", "--gpus-per-node=20GB:1"]
    )
    def test_sbatch_gets_the_smallest_slice_and_steps_in_it_work(self, lab, flag):
        done = submit(lab, flag, script=f"srun sh -c '{WHERE}'")
        assert "FW101" in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
        assert lab.wait_job(done.job_id) == ["COMPLETED"]
        assert output(lab, done.job_id) == "node=mig01\n"
        job = show(lab, done.job_id)
        assert "gres:gpu:a100_3g.20gb:1" in job.values()
        decision = comment(lab, done.job_id)
        assert decision["given"] == "gpu:a100_3g.20gb:1"

    def test_the_message_says_what_and_why(self, lab):
        done = submit(lab, "--gres=gpu:20gb:1")
        assert done.stderr == f"sbatch: {FW101}\n"

    def test_salloc(self, lab):
        done = lab.run(["salloc", "--gres=gpu:20gb:1", "srun", "sh", "-c", WHERE], user="ada")
        assert done.stdout == "node=mig01\n"
        assert FW101 in done.stderr

    def test_srun_without_the_client_filter_is_told_what_to_write(self, lab):
        done = lab.run(["srun", "--gres=gpu:20gb:1", "true"], user="ada")
        assert done.returncode != 0
        assert "FW005" in done.stderr
        assert "write --gpus-per-node=a100_3g.20gb:1 -p mig" in done.stderr
        again = ["srun", "--gpus-per-node=a100_3g.20gb:1", "-p", "mig", "sh", "-c", WHERE]
        assert lab.run(again, user="ada").stdout == "node=mig01\n"

    @pytest.mark.parametrize(
        "args", [["--gres=gpu:20gb:1"], ["--gpus=20gb:1"], ["--gpus-per-task=20gb:1", "-n1"]]
    )
    def test_srun_with_the_client_filter(self, lab, client_conf, args):
        argv = ["env", f"SLURM_CONF={client_conf}", "srun", *args, "sh", "-c", WHERE]
        done = lab.run(argv, user="ada")
        assert (done.returncode, done.stdout) == (0, "node=mig01\n")
        assert FW101 in done.stderr

    def test_the_client_filter_asks_with_the_reservation(self, lab, client_conf):
        """Without its name the test submission finds mig01 taken, and says so as an error."""
        made = ["ReservationName=r1", "StartTime=now", "Duration=10", "Users=ada"]
        lab.run(["scontrol", "create", "reservation", *made, "Nodes=mig01", "PartitionName=mig"])
        inside = ["--reservation=r1", "--gres=gpu:20gb:1"]
        try:
            await_value(
                lambda: "FW006" not in submit(lab, *inside, "--test-only").stderr,
                what="the reservation known to policyd",
                timeout_s=20,
            )
            argv = ["env", f"SLURM_CONF={client_conf}", "srun", *inside, "sh", "-c", WHERE]
            done = lab.run(argv, user="ada")
        finally:
            lab.run(["scontrol", "delete", "reservation=r1"])
        assert (done.returncode, done.stdout) == (0, "node=mig01\n"), done.stderr

    def test_the_client_filter_leaves_other_jobs_alone(self, lab, client_conf):
        for args in (["--gres=gpu:a100:1"], ["--gpus=1"], []):
            argv = ["env", f"SLURM_CONF={client_conf}", "srun", *args, "true"]
            assert lab.run(argv, user="ada").stderr.count("fairwatt") == 0

    def test_a_capital_letter_is_mended(self, lab):
        done = submit(lab, "--gpus-per-node=A100:2", script="srun true")
        assert "FW301" in done.stderr
        assert lab.wait_job(done.job_id) == ["COMPLETED"]

    def test_untyped_in_a_mixed_partition_never_lands_on_a_slice(self, lab):
        jobs = [submit(lab, "-p", "all", "--gpus=1", script=WHERE).job_id for _ in range(6)]
        for job in jobs:
            assert lab.wait_job(job) == ["COMPLETED"]
            assert "mig01" not in output(lab, job)

    @pytest.mark.parametrize(
        ("args", "code"),
        [
            (["--gres=gpu:h10:1"], "FW302: no GPU type h10 in partition gpu; nearest: h100"),
            (["-p", "mig", "--gpus=1"], "FW203"),
            (["--gres=gpu:a100:5"], "FW305"),
            (["--gres=gpu:200gb:1"], "FW102"),
            (["-p", "mig", "--gres=gpu:a100:1"], "FW303"),
        ],
    )
    def test_what_cannot_be_had_is_refused_with_a_number(self, lab, args, code):
        done = submit(lab, *args)
        assert done.job_id is None
        assert f"sbatch: error: fairwatt {code}" in done.stderr

    def test_a_cpu_job_is_untouched(self, lab):
        done = submit(lab, "-c2")
        assert (done.returncode, done.stderr) == (0, "")
        assert "AdminComment" not in show(lab, done.job_id)

    def test_gpus_implied_by_tasks_never_land_on_a_slice(self, lab):
        """No field of the job shows them when the hook runs."""
        assert "FW203" in submit(lab, "-p", "mig", "-n4", "--ntasks-per-gpu=2").stderr
        done = submit(lab, "-p", "all", "-n4", "--ntasks-per-gpu=2", script=f"srun {WHERE_STEP}")
        assert "FW202" in done.stderr
        assert lab.wait_job(done.job_id) == ["COMPLETED"]
        assert "mig01" not in output(lab, done.job_id)

    def test_a_partition_of_a_moment_ago_is_left_to_slurm(self, lab):
        lab.run(["scontrol", "create", "PartitionName=fresh", "Nodes=gpu01"], check=True)
        try:
            done = submit(lab, "-p", "fresh", "--gres=gpu:a100:1", "--begin=now+1hour")
            assert done.job_id is not None
            lab.run(["scancel", str(done.job_id)])
        finally:
            lab.run(["scontrol", "delete", "partition", "fresh"])

    def test_each_part_of_a_hetjob_is_judged(self, lab):
        done = lab.run(
            ["sbatch", "--gres=gpu:A100:1", ":", "--gres=gpu:h10:1", "--wrap=true"], user="ada"
        )
        assert done.returncode != 0
        assert "FW302" in done.stderr

    def test_test_only_is_judged_like_a_real_job(self, lab):
        done = lab.run(["sbatch", "--test-only", "--gres=gpu:h10:1", "--wrap=true"], user="ada")
        assert "FW302" in done.stderr

    def test_hostile_text_stays_text(self, lab):
        name = "%s%n\"'<script>\n"
        done = submit(lab, f"--job-name={name}", f"--comment={name}", "--gres=gpu:A100:1")
        assert "FW301" in done.stderr
        refused = submit(lab, "--gres=gpu:%s%n:1")
        assert "fairwatt FW302: no GPU type %s%n in partition gpu" in refused.stderr


class TestCommands:
    def test_explain_reads_the_live_cluster(self, lab):
        done = lab.fairwatt("explain", "--json", "--", "--gres=gpu:20gb:1", "-p", "all")
        body = json.loads(done.stdout)
        assert body["facts"] == "Slurm"
        assert body["decision"]["given"] == "gpu:a100_3g.20gb:1"

    def test_doctor_finds_the_submit_side_in_order(self, lab):
        findings = json.loads(lab.fairwatt("doctor", "--json").stdout)["findings"]
        ours = [each for each in findings if each["check"].startswith("submit.")]
        assert [each["level"] for each in ours] == ["info", "info"], ours
        assert "4 nodes" in ours[0]["problem"]
        assert "CliFilterPlugins does not name lua" in ours[1]["problem"]


class TestModify:
    @pytest.fixture
    def pending(self, lab):
        job = submit(lab, "--gres=gpu:a100:1", "--begin=now+1hour").job_id
        yield job
        lab.run(["scancel", str(job)])

    def update(self, lab, job, change, user="ada"):
        return lab.run(["scontrol", "update", f"JobId={job}", change], user=user)

    def test_a_user_cannot_update_past_the_policy(self, lab, pending):
        assert self.update(lab, pending, "Gres=gpu:h10:1").returncode != 0
        assert "FW302" in lab.log_text("slurmctld")
        assert show(lab, pending)["TresPerNode"] == "gres:gpu:a100:1"

    def test_the_change_is_rewritten(self, lab, pending):
        assert self.update(lab, pending, "Gres=gpu:A100:2").returncode == 0
        assert show(lab, pending)["TresPerNode"] == "gres:gpu:a100:2"

    def test_what_a_job_excludes_outlives_any_change(self, lab):
        """Slurm does not show it to the hook; it must not be written over."""
        job = submit(lab, "-p", "all", "--gpus=1", "-x", "gpu01", "--begin=now+1hour").job_id
        assert show(lab, job)["ExcNodeList"] == "gpu01,mig01"
        assert self.update(lab, job, "NumNodes=1").returncode == 0
        assert self.update(lab, job, "Partition=gpu,mig").returncode != 0
        assert "FW206" in lab.log_text("slurmctld")
        assert show(lab, job)["ExcNodeList"] == "gpu01,mig01"
        assert self.update(lab, job, "ExcNodeList=gpu02").returncode == 0
        assert show(lab, job)["ExcNodeList"] == "gpu02,mig01"
        lab.run(["scancel", str(job)])

    def test_the_merged_job_is_judged(self, lab, pending):
        assert self.update(lab, pending, "Partition=mig").returncode != 0
        assert self.update(lab, pending, "TimeLimit=5").returncode == 0


class TestPolicydAway:
    def timed(self, lab, *args):
        began = time.monotonic()
        done = submit(lab, *args)
        return done, time.monotonic() - began

    @pytest.fixture(autouse=True)
    def back(self, lab):
        """After each test policyd is back and the hook has noticed it."""
        yield
        if lab.daemon("policyd") is None:
            lab.start_policyd()
        await_value(
            lambda: submit(lab, "--gres=gpu:A100:1").stderr.count("FW301"),
            what="the policy is applied again",
            timeout_s=40,
        )

    def test_killed(self, lab):
        lab.kill_policyd()
        done, took_s = self.timed(lab, "--gres=gpu:a100:1")
        assert done.job_id is not None
        (line,) = done.stderr.strip().splitlines()
        assert line.startswith(f"sbatch: {NOT_APPLIED}")
        assert took_s < 1.0
        assert submit(lab, "-c1").stderr == ""

    def test_frozen_costs_one_deadline_then_the_breaker_is_open(self, lab):
        pid = lab.daemon("policyd").process.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            before = lab.log_text("slurmctld").count(NOT_APPLIED)
            done = [self.timed(lab, "--gres=gpu:a100:1") for _ in range(10)]
        finally:
            os.kill(pid, signal.SIGCONT)
        assert all(each.stderr.count(NOT_APPLIED) == 1 for each, _ in done)
        assert max(took_s for _, took_s in done) < 1.0
        # One try, one line in the log: the other nine did not touch the socket.
        assert lab.log_text("slurmctld").count(NOT_APPLIED) - before <= 2

    def test_restarted_within_a_connection_costs_no_job_its_policy(self, lab):
        submit(lab, "--gres=gpu:a100:1")
        lab.stop_policyd()
        lab.start_policyd()
        assert "FW301" in submit(lab, "--gres=gpu:A100:1").stderr

    def test_a_broken_configuration_keeps_the_last_good_one(self, lab):
        good = lab.config_path.read_text()
        try:
            lab.config_path.write_text("[rules]\nknown_typos = 1\n")
            os.kill(lab.daemon("policyd").process.pid, signal.SIGHUP)
            await_value(
                lambda: "the last good one stays" in lab.log_text("policyd"),
                what="the refusal in the log",
                timeout_s=10,
            )
        finally:
            lab.config_path.write_text(good)
        assert "known_typos" in lab.log_text("policyd")
        assert "FW301" in submit(lab, "--gres=gpu:A100:1").stderr

    def test_an_error_in_the_hook_leaves_no_edit(self, lab):
        """The write of the last field fails; 22.05 would keep what was written before."""
        script = lab.paths.etc / "job_submit.lua"
        good = script.read_text()
        bad = good.replace(
            "local function write(job_desc, name, value)\n",
            "local count = 0\nlocal function write(job_desc, name, value)\n"
            "  count = count + 1\n  if count == 2 then error('injected') end\n",
        )
        assert bad != good
        try:
            install(script, bad)
            done = submit(lab, "--gres=gpu:20gb:1", "-p", "all", "--begin=now+1hour")
        finally:
            install(script, good)
        assert NOT_APPLIED in done.stderr
        assert "injected" in lab.log_text("slurmctld")
        # Slurm itself refuses the request as it was: nothing was rewritten.
        assert done.job_id is None or "20gb" in show(lab, done.job_id)["TresPerNode"]


def install(script: Path, text: str) -> None:
    """Write a hook so that slurmctld loads it: it compares modification times in whole seconds."""
    newer = max(time.time(), script.stat().st_mtime) + 2
    script.write_text(text)
    os.utime(script, (newer, newer))


@pytest.fixture(scope="module")
def client_conf(lab: OneHostCluster) -> Path:
    """A slurm.conf for clients that also loads the client filter."""
    folder = lab.paths.etc / "client"
    folder.mkdir()
    text = lab.paths.slurm_conf.read_text() + "\nCliFilterPlugins=lua\n"
    (folder / "slurm.conf").write_text(text)
    for name in ("plugstack.conf", "gres.conf", "cgroup.conf"):
        shutil.copy(lab.paths.etc / name, folder)
    shutil.copy(LUA / "cli_filter.lua", folder)
    return folder / "slurm.conf"
