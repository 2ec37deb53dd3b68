# SPDX-License-Identifier: Apache-2.0
"""Steps in jobs that the policy has changed: parts of a hetjob, shells of salloc, named srun.

Each of them asks again for what the user typed, on one cluster per release.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.cluster import OneHostCluster
from tests.lab.commands import SubmitResult
from tests.lab.paths import REPOSITORY
from tests.lab.system import HOST_RELEASE

pytestmark = pytest.mark.lab

POLICY = """
[rules.account_types]
accounts = { chemistry = ["mig"] }

[rules.share_per_gpu]
mode = "enforce"
cpus = { default = 8 }
action = "clamp"
fill = false
"""
WHERE = "sh -c 'echo node=$SLURMD_NODENAME'"


@pytest.fixture(scope="module")
def lab(release: str, lab_root: Path) -> Iterator[OneHostCluster]:
    """Slurm of that release with our submit hook and policyd under the policy above."""
    policy = lab_root / f"steps-{release}.toml"
    policy.write_text(POLICY)
    nothing = REPOSITORY / "tests" / "lab" / "recorder"
    root, settings = lab_root / f"t{release}", {"policyd.policy_file": str(policy)}
    with OneHostCluster(root, node_hooks=nothing, settings=settings, release=release) as running:
        running.start_policyd()
        yield running


def is_old(lab: OneHostCluster) -> bool:
    """Whether the release is from before 23.11, which changed clients and spellings."""
    return lab.release == HOST_RELEASE


PARTS = {
    "job": "--gpus=A100:1 : --gpus=20gb:1",
    "node": "--gpus-per-node=A100:1 : --gpus-per-node=20gb:1",
    "task": "-n1 --gpus-per-task=A100:1 : -n2 --gpus-per-task=5gb:1",
    "socket": "--sockets-per-node=1 --gpus-per-socket=A100:1 : "
    "--sockets-per-node=1 --gpus-per-socket=20gb:1",
    "gres": "--gres=gpu:A100:1 : --gres=gpu:20gb:1",
    "second only": "-n1 : --gpus=20gb:1",
    "choice": "--gpus=a100|h100:1 : --gpus=mig-10gb:1",
    "types as they are": "--gpus=a100:2 : -p mig --gpus=a100_3g.20gb:1",
    "tres": "-n1 --tres-per-task=cpu=1,gres/gpu:A100:1 : "
    "-n1 --tres-per-task=cpu=1,gres/gpu:20gb:1",
}


@pytest.fixture(scope="module")
def parts(lab: OneHostCluster) -> dict[str, SubmitResult]:
    """All at once: they run side by side."""
    script = f"srun --het-group=0 echo first && srun --het-group=1 {WHERE}"
    return {name: lab.sbatch(words.split(), script) for name, words in PARTS.items()}


@pytest.mark.parametrize("name", PARTS)
def test_the_steps_of_each_part_of_a_hetjob_start(lab, parts, name):
    """Only its first part has the script, and the options of all parts in its environment."""
    done = parts[name]
    if name == "tres" and is_old(lab):
        assert "unrecognized option" in done.stderr
        return
    assert done.job_id is not None, done.stderr
    assert set(lab.wait_job(done.job_id)) == {"COMPLETED"}, output(lab, done)
    second = ["node=mig01"] * (2 if name == "task" else 1)
    assert output(lab, done).split() == ["first", *second]


def output(lab: OneHostCluster, done: SubmitResult) -> str:
    (file,) = (lab.paths.home / "ada").glob(f"slurm-{done.job_id}.out")
    return file.read_text()


SHELLS = {
    "--gpus=20gb:1": "SLURM_GPUS",
    "--gpus-per-node=20gb:1": "SLURM_GPUS_PER_NODE",
    "--gpus-per-task=20gb:1 -n1": "SLURM_TRES_PER_TASK",
    "--gpus-per-socket=20gb:1 --sockets-per-node=1": "SLURM_GPUS_PER_SOCKET",
    "--gres=gpu:20gb:1": "SLURM_GPUS_PER_NODE",
}


def test_what_a_script_would_repeat_for_a_part_is_not_lowered_but_refused(lab):
    """Its steps take SLURM_CPUS_PER_GPU_HET_GROUP_1 from where no value is none."""
    done = lab.sbatch(["-n1", ":", "--gpus=a100:1", "--cpus-per-gpu=20"], "true")
    assert "1: fairwatt FW403: gpu:a100:1: 20 CPUs is more than the share" in done.stderr
    assert "write --cpus-per-gpu=8" in done.stderr


class TestSalloc:
    def salloc(self, lab, *args, inner):
        return lab.run(["salloc", *args, "sh", "-c", inner], user="ada")

    @pytest.mark.parametrize("args", SHELLS)
    def test_what_the_message_says_to_do_works(self, lab, args):
        """Slurm does not let the policy reach the environment of salloc's shell."""
        name = SHELLS[args].replace("TRES", "GPUS" if is_old(lab) else "TRES")
        done = self.salloc(lab, *args.split(), inner=f"unset {name}; srun {WHERE}")
        assert done.stdout == "node=mig01\n", done.stderr
        told = f"srun in this shell may still ask for gpu:20gb:1: first `unset {name}`\n"
        assert told in done.stderr

    def test_parts_of_a_hetjob_too(self, lab):
        parts = ["--gpus=a100:1", ":", "--gpus=20gb:1"]
        step = f"srun --het-group=1 {WHERE}"
        inner = f"unset SLURM_GPUS_HET_GROUP_1 SLURM_GPUS_PACK_GROUP_1; {step}"
        done = self.salloc(lab, *parts, inner=inner)
        assert done.stdout == "node=mig01\n", done.stderr
        assert "`unset SLURM_GPUS_HET_GROUP_1 SLURM_GPUS_PACK_GROUP_1`" in done.stderr

    @pytest.mark.parametrize("args", ["--gpus=a100:1", "--gpus=1", "-n1"])
    def test_who_gets_what_was_asked_is_told_nothing(self, lab, args):
        done = self.salloc(lab, args, inner="srun true && echo stepped")
        assert done.stdout == "stepped\n", done.stderr
        assert "fairwatt" not in done.stderr

    def test_a_name_does_not_make_it_srun(self, lab):
        done = self.salloc(lab, "-J", "mine", "--gres=gpu:20gb:1", inner=f"srun {WHERE}")
        assert done.stdout == "node=mig01\n", done.stderr
        assert ("FW008" if is_old(lab) else "FW009") in done.stderr


class TestSrun:
    def srun(self, lab, *args):
        return lab.run(["srun", *args, "sh", "-c", "echo node=$SLURMD_NODENAME"], user="ada")

    def test_without_a_name_it_is_refused_before_it_waits(self, lab):
        done = self.srun(lab, "--gpus=20gb:1")
        assert done.returncode != 0
        assert "error: fairwatt FW005: gpu:20gb:1 is gpu:a100_3g.20gb:1 here" in done.stderr

    def test_with_one_it_may_be_salloc_and_is_told_what_to_write(self, lab):
        done = self.srun(lab, "-J", "mine", "--gpus=20gb:1")
        assert done.returncode != 0
        assert ("FW005" if is_old(lab) else "FW009") in done.stderr
        assert "write --gpus=a100_3g.20gb:1 -p mig\n" in done.stderr
        again = self.srun(lab, "-J", "mine", "--gpus=a100_3g.20gb:1", "-p", "mig")
        assert again.stdout == "node=mig01\n", again.stderr

    def test_the_word_gpu_twice_is_mended_for_sbatch_only(self, lab):
        for asked, given in (("gpu:a100:2", "a100:2"), ("gpu:1", "1")):
            done = lab.sbatch([f"--gpus={asked}"], f"srun {WHERE}")
            if is_old(lab) and ":a" in asked:
                assert "Invalid generic resource" in done.stderr  # says the client
                continue
            assert lab.wait_job(done.job_id) == ["COMPLETED"], output(lab, done)
            refused = self.srun(lab, f"--gpus={asked}")
            assert f"still ask for gpu:{asked}; write --gpus={given}" in refused.stderr


class TestDefaultAccount:
    """emil's is chemistry, which may use slices only; he names none."""

    def test_it_counts(self, lab):
        refused = lab.sbatch(["--gres=gpu:a100:1"], "true", user="emil")
        assert "FW701: gpu:a100:1: account chemistry may use only" in refused.stderr
        assert lab.sbatch(["--gres=gpu:a100:1"], "true", user="ada").job_id is not None

    def test_the_job_keeps_it_unwritten(self, lab):
        done = lab.sbatch(["-p", "mig", "--gres=gpu:5gb:1"], "true", user="emil")
        shown = lab.run(["scontrol", "show", "job", str(done.job_id)]).stdout
        assert "Account=chemistry" in shown
