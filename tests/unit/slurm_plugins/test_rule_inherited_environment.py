# SPDX-License-Identifier: Apache-2.0
"""inherited_environment: pairs measured on Slurm 22.05 and 26.05, sbatch in a job."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fairwatt.core.records import JobRequest
from fairwatt.slurm_plugins.engine import decide
from fairwatt.slurm_plugins.rule import Options
from fairwatt.slurm_plugins.rules.inherited_environment import RULE, inherited_environment
from tests.fakes.sized_site import ask, only, sized

SITE = sized()
CPU_JOB = JobRequest(kind="batch")


def told(request, *names):
    """The names that are told."""
    out = inherited_environment(replace(request, inherited=("SLURM_JOB_ID", *names)), SITE)
    assert out.rejection is None
    text = out.notes[0].text if out.notes else ""
    return [name for name in names if f"{name}," in f"{text},".replace(" may", ", may")]


@pytest.mark.parametrize(
    ("request_", "names", "conflicts"),
    [
        # srun: fatal: SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are exclusive
        (ask("a100"), ("SLURM_MEM_PER_NODE",), True),
        (ask("a100", mem_per_node_mib=4096), ("SLURM_MEM_PER_CPU",), True),
        (ask("a100", mem_per_cpu_mib=500), ("SLURM_MEM_PER_NODE",), True),
        (ask("a100", 1, "job", mem_per_node_mib=4096), ("SLURM_MEM_PER_GPU",), True),
        (ask("a100", mem_per_node_mib=4096), ("SLURM_MEM_PER_NODE",), False),
        (ask("a100"), ("SLURM_MEM_PER_CPU",), False),
        # srun asks for GPUs that the job does not have
        (ask("a100"), ("SLURM_GPUS",), True),
        (CPU_JOB, ("SLURM_GPUS",), True),
        (ask("a100", 1, "job"), ("SLURM_GPUS",), False),
        (ask("a100", 1, "job"), ("SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK"), True),
        (ask("a100", 1, "task"), ("SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK"), False),
        (ask("a100", 1, "job"), ("SLURM_CPUS_PER_GPU",), True),
        (ask("a100", 1, "job", cpus_per_gpu=2), ("SLURM_CPUS_PER_GPU",), False),
        # srun: error: More processors requested than permitted
        (ask("a100"), ("SLURM_NTASKS",), True),
        (ask("a100", num_tasks=1), ("SLURM_NTASKS",), False),
        # srun: fatal: cpus-per-task set by two different environment variables (26.05)
        (ask("a100", num_tasks=1), ("SLURM_TRES_PER_TASK",), True),
        (ask("a100", cpus_per_task=2), ("SLURM_TRES_PER_TASK",), False),
        # measured: no harm
        (CPU_JOB, ("SLURM_CPUS_PER_TASK", "SLURM_NNODES"), False),
        (ask("a100", num_tasks=1), ("SLURM_NTASKS_PER_NODE",), False),
    ],
)
def test_only_what_can_conflict_is_told(request_, names, conflicts):
    assert told(request_, *names) == (list(names) if conflicts else [])


def test_the_line():
    job = {
        "tres_per_node": "gres/gpu:a100:1",
        "inherited": "SLURM_JOB_ID,SLURM_MEM_PER_NODE,SLURM_GPUS,SLURM_CPUS_PER_GPU,SLURM_NTASKS",
    }
    out = decide(job, only(RULE, Options()))
    assert out.accepted
    assert out.say == (
        "fairwatt FW901: submitted inside a job: its SLURM_MEM_PER_NODE, SLURM_GPUS, "
        "SLURM_CPUS_PER_GPU and 1 more may break srun in this one; unset them before sbatch",
    )
    assert list(out.edits) == ["admin_comment"]


def test_a_job_submitted_on_a_login_node_hears_nothing():
    job = {"tres_per_node": "gres/gpu:a100:1", "SLURM_GPUS_PER_NODE": "a100:1"}
    assert decide(job, only(RULE, Options())).say == ()


@given(names=st.lists(st.text() | st.sampled_from(["SLURM_GPUS", "SLURM_NTASKS"])).map(tuple))
def test_it_changes_and_refuses_nothing(names):
    request = JobRequest(inherited=names)
    out = inherited_environment(request, SITE)
    assert (out.request, out.rejection) == (request, None)
    assert all(note.text.isascii() for note in out.notes)
