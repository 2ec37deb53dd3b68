# SPDX-License-Identifier: Apache-2.0
"""Rules of size, place and time in a real slurmctld: it takes their edits, and the job gets that.

One cluster per release; jobs without GPUs are judged too (`jobs = "all"`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.cluster import OneHostCluster
from tests.lab.commands import SubmitResult
from tests.lab.paths import REPOSITORY

pytestmark = pytest.mark.lab

POLICY = """
[rules.share_per_gpu]
mode = "enforce"
cpus = { default = 8 }
mem_gb = { default = 32 }
action = "clamp"

[rules.cpu_only]
mode = "enforce"
action = "give"
type = "a100"

[[rules.routing.routes]]
gpus = ["a100"]
max_hours = 0.5
max_gpus = 1
partition = "all"

[rules.routing]
mode = "enforce"

[rules.time_limits]
mode = "enforce"
default_min = 5

[rules.interactive_limits]
mode = "enforce"
max_gpus = 2
max_hours = 0.25
"""
STEP = "srun true && echo stepped"


@pytest.fixture(scope="module")
def lab(release: str, lab_root: Path) -> Iterator[OneHostCluster]:
    """Slurm of that release with our submit hook and policyd under the policy above."""
    root = lab_root / f"q{release}"
    policy = lab_root / f"policy-{release}.toml"
    policy.write_text(POLICY)
    nothing = REPOSITORY / "tests" / "lab" / "recorder"
    settings = {"policyd.policy_file": str(policy)}
    with OneHostCluster(root, node_hooks=nothing, settings=settings, release=release) as running:
        judge_all_jobs(running.paths.etc)
        running.start_policyd()
        yield running


def judge_all_jobs(etc: Path) -> None:
    """Change the hook's settings; slurmctld reads them anew with a newer job_submit.lua."""
    settings, hook = etc / "fairwatt_hook.lua", etc / "job_submit.lua"
    settings.write_text(settings.read_text().replace("{ socket", '{ jobs = "all", socket'))
    later = hook.stat().st_mtime + 2
    os.utime(hook, (later, later))


def ended(lab: OneHostCluster, *args: str) -> tuple[dict[str, str], str]:
    """Submit, wait for the end; return what slurmctld shows, and what the user was told."""
    done = lab.sbatch(list(args), STEP)
    return finished(lab, done), done.stderr


def finished(lab: OneHostCluster, done: SubmitResult) -> dict[str, str]:
    """What slurmctld shows of a job at its end, whose step has run."""
    assert done.job_id is not None, done.stderr
    assert lab.wait_job(done.job_id, timeout_s=20) == ["COMPLETED"], done.stderr
    (file,) = (lab.paths.home / "ada").glob(f"*-{done.job_id}.out")
    assert file.read_text() == "stepped\n"
    return shown(lab, done.job_id)


def shown(lab: OneHostCluster, job_id: int) -> dict[str, str]:
    text = lab.run(["scontrol", "--oneliner", "show", "job", str(job_id)]).stdout
    return dict(pair.split("=", 1) for pair in text.split() if "=" in pair)


def memory_gb(job: dict[str, str]) -> float:
    """What the job has been given."""
    found = re.search(r"mem=([0-9.]+)([MG])", job.get("AllocTRES") or job["TRES"])
    assert found is not None
    return float(found[1]) / (1024 if found[2] == "M" else 1)


SHARES: dict[str, tuple[int, int, str]] = {
    "--gres=gpu:a100:2": (16, 64, "FW401"),
    "--gpus=a100:2": (16, 64, "FW401"),
    "--gpus-per-task=a100:1 -n2": (16, 64, "FW401"),
    "--gres=gpu:a100:2 -c64 --mem=8G": (16, 8, "FW402"),
    "--gres=gpu:a100:2 -n4 -c16 --mem=8G": (16, 8, "FW402"),
    "--gpus-per-task=a100:1 -n2 -c16 --mem=8G": (16, 8, "FW402"),
    "--gpus=a100:2 --cpus-per-gpu=16 --mem=8G": (16, 8, "FW402"),
    "--gpus=a100:2 -c4 --mem=100G": (4, 64, "FW402"),
    "--gpus=a100:2 -c4 --mem-per-gpu=100G": (4, 64, "FW402"),
    "--gpus=a100:2 -c4 --mem-per-cpu=20G": (4, 64, "FW402"),
}
"""CPUs, GB and what is said, of jobs with two GPUs where 8 CPUs and 32 GB belong to one."""


@pytest.fixture(scope="module")
def submitted(lab: OneHostCluster) -> dict[str, SubmitResult]:
    """All of them at once: they run side by side."""
    return {args: lab.sbatch(args.split(), STEP) for args in SHARES}


@pytest.mark.parametrize("args", SHARES)
def test_the_share_is_what_the_job_gets_and_its_steps_start(lab, submitted, args):
    cpus, gb, code = SHARES[args]
    job = finished(lab, submitted[args])
    assert (int(job["NumCPUs"]), memory_gb(job)) == (cpus, gb)
    assert code in submitted[args].stderr


def test_srun_and_salloc(lab):
    inner = ["sh", "-c", "echo cpus=$SLURM_CPUS_ON_NODE"]
    done = lab.run(["srun", "--gres=gpu:a100:1", *inner], user="ada")
    assert done.stdout == "cpus=8\n", done.stderr
    done = lab.run(["salloc", "--gres=gpu:a100:1", "--mem=99G", "srun", *inner], user="ada")
    assert done.stdout == "cpus=8\n", done.stderr
    assert "FW402: gpu:a100:1: 99 GB -> 32 GB" in done.stderr
    done = lab.run(["srun", "--gres=gpu:a100:1", "-c9", "true"], user="ada")
    assert (done.returncode != 0, "FW403" in done.stderr, "write -c 8" in done.stderr) == (
        True,
        True,
        True,
    )
    done = lab.run(["salloc", "--gpus=a100:3", "true"], user="ada")
    assert "FW611: gpu:a100:3: an interactive job may have at most 2 GPUs" in done.stderr


def test_time_and_place(lab):
    job, told = ended(lab, "--gres=gpu:a100:1", "-t20")
    assert (job["Partition"], job["TimeLimit"]) == ("all", "00:20:00")
    assert "FW501" in told
    job, told = ended(lab, "--gres=gpu:a100:2")
    assert (job["Partition"], job["TimeLimit"]) == ("gpu", "00:05:00")
    assert "FW601" in told
    refused = lab.sbatch(["--gres=gpu:a100:1", "-t", "2-0"], "true")
    assert "FW603: time limit 2 days: the most in partition gpu is 24 h" in refused.stderr


def test_a_job_without_gpus_is_given_one_and_an_explicit_zero_is_a_wish(lab):
    job, told = ended(lab, "-c2")
    assert "FW515" in told
    assert "gres/gpu:a100=1" in (job.get("AllocTRES") or job["TRES"])
    job, told = ended(lab, "-c2", "--gpus-per-node=0")
    assert "gres/gpu" not in (job.get("AllocTRES") or job["TRES"])
    assert "FW5" not in told


def test_what_no_node_has_is_refused_at_once(lab):
    refused = lab.sbatch(["--gres=gpu:a100:1", "--exclusive", "--mem=900G", "-p", "gpu"], "true")
    assert "FW801: no node in partition gpu has 900 GB and 1 x a100; the most" in refused.stderr
    refused = lab.sbatch(["--gpus-per-node=0", "-n999", "-p", "mig"], "true")
    assert "FW804: 999 CPUs: partition mig has 32" in refused.stderr


def test_a_second_part_of_a_hetjob_is_not_interactive(lab):
    parts = ["sbatch", "--gpus=a100:3", ":", "--gpus=a100:3", "--wrap=true"]
    done = lab.run(parts, user="ada")
    assert done.returncode == 0, done.stderr


def test_a_job_within_a_job_hears_what_it_inherits(lab):
    inner = "sbatch --gres=gpu:a100:1 -n1 -o inner.out --wrap=true 2>&1"
    done = lab.sbatch(["--gpus=a100:1", "-c2", "--mem=2G"], inner)
    assert lab.wait_job(done.job_id) == ["COMPLETED"]
    (file,) = (lab.paths.home / "ada").glob(f"*-{done.job_id}.out")
    assert "FW901: submitted inside a job: its SLURM_MEM_PER_NODE, SLURM_GPUS" in (
        file.read_text()
    )
