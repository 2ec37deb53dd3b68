# SPDX-License-Identifier: Apache-2.0
"""The task prolog: MIG indexes become UUIDs, everything else stays as Slurm set it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairwatt.core.call import call

HOOK = Path(__file__).parents[3] / "prolog" / "hooks" / "task-prolog"
TABLE = "0\tmig\tMIG-a0\n1\tmig\tMIG-b1\n8\tmig\tMIG-c8\n"


@pytest.fixture
def job_dir(tmp_path: Path) -> Path:
    (tmp_path / "7").write_text(TABLE)
    (tmp_path / "8").write_text("2\tgpu\tGPU-x\n3\tgpu\tGPU-y\n")
    (tmp_path / "9").write_text("1\tmig\tMIG-b;touch /tmp/x\n")
    return tmp_path


def run(job_dir: Path, **variables: str) -> str:
    pairs = [f"{name}={value}" for name, value in variables.items()]
    argv = ["env", "-i", f"FAIRWATT_JOB_DIR={job_dir}", *pairs, str(HOOK)]
    done = call(argv, timeout_s=5)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(
    ("variables", "uuids"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0,1,8", "SLURM_JOB_GPUS": "0,1,8"}, "MIG-a0,MIG-b1,MIG-c8"),
        ({"CUDA_VISIBLE_DEVICES": "8", "SLURM_STEP_GPUS": "8"}, "MIG-c8"),
        # the job variable of another node (Slurm 22.05) must not win
        ({"CUDA_VISIBLE_DEVICES": "8", "SLURM_STEP_GPUS": "8", "SLURM_JOB_GPUS": "4"}, "MIG-c8"),
        ({"CUDA_VISIBLE_DEVICES": "8", "SLURM_JOB_GPUS": "4"}, "MIG-c8"),
        # ConstrainDevices: local numbers
        ({"CUDA_VISIBLE_DEVICES": "0", "SLURM_STEP_GPUS": "8"}, "MIG-c8"),
        ({"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_STEP_GPUS": "1,8"}, "MIG-b1,MIG-c8"),
        # one task of several: by position, or by local number
        ({"CUDA_VISIBLE_DEVICES": "8", "SLURM_STEP_GPUS": "1,8"}, "MIG-c8"),
        ({"CUDA_VISIBLE_DEVICES": "0", "SLURM_STEP_GPUS": "1,8"}, "MIG-b1"),
        # sbatch inside a step of another job hands that step's list on
        (
            {"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_STEP_GPUS": "0", "SLURM_JOB_GPUS": "0,1"},
            "MIG-a0,MIG-b1",
        ),
    ],
)
def test_exports_exactly_the_instances_of_the_step(job_dir, variables, uuids) -> None:
    text = run(job_dir, SLURM_JOB_ID="7", **variables)
    assert text == f"export CUDA_VISIBLE_DEVICES={uuids}\n"


def test_under_constrain_devices_a_task_counts_within_its_step(job_dir) -> None:
    """Step 1,8 and task number 1: position 1 by Slurm's list, but the second of the step's own."""
    env = {"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "1", "SLURM_STEP_GPUS": "1,8"}
    assert run(job_dir, **env) == "export CUDA_VISIBLE_DEVICES=MIG-b1\n"
    (job_dir / ".counted-from-0").touch()
    assert run(job_dir, **env) == "export CUDA_VISIBLE_DEVICES=MIG-c8\n"


@pytest.mark.parametrize(
    "variables",
    [
        {"SLURM_JOB_ID": "8", "CUDA_VISIBLE_DEVICES": "3,2", "SLURM_JOB_GPUS": "2,3"},  # J16
        {"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "MIG-a0", "SLURM_JOB_GPUS": "0"},
        {"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "5", "SLURM_JOB_GPUS": "5"},
        {"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "", "SLURM_JOB_GPUS": "0"},
        {"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "0,$(id)", "SLURM_JOB_GPUS": "0"},
        {"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "*", "SLURM_JOB_GPUS": "*"},
        {"SLURM_JOB_ID": "9", "CUDA_VISIBLE_DEVICES": "1", "SLURM_JOB_GPUS": "1"},
        {"SLURM_JOB_ID": "../7", "CUDA_VISIBLE_DEVICES": "0", "SLURM_JOB_GPUS": "0"},
        {"SLURM_JOB_ID": "12", "CUDA_VISIBLE_DEVICES": "0", "SLURM_JOB_GPUS": "0"},
        {},
    ],
)
def test_prints_nothing_where_it_has_nothing_sure_to_say(job_dir, variables) -> None:
    assert run(job_dir, **variables) == ""
