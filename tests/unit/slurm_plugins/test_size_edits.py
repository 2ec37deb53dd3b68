# SPDX-License-Identifier: Apache-2.0
"""What is written when a rule changes CPUs and memory, with all that has to agree with it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fairwatt.core.gres import Spelling
from fairwatt.slurm_plugins.jobdesc import edits, parse


def written(fields, spelling=Spelling.SLASH, **changes):
    parsed = parse(fields)
    return edits(parsed, replace(parsed.request, **changes), spelling)


def test_cpus_per_gpu_and_what_sbatch_exports_for_it():
    """A step with more CPUs per GPU than the job is refused (22.05) or waits (26.05)."""
    fields = {"tres_per_job": "gres/gpu:2", "cpus_per_tres": "gres/gpu:16"}
    assert written(fields, cpus_per_gpu=4) == {"cpus_per_tres": "gres/gpu:4"}
    fields["SLURM_CPUS_PER_GPU"] = "16"
    assert written(fields, cpus_per_gpu=4)["SLURM_CPUS_PER_GPU"] == "4"
    assert written(fields) == {}


def test_memory_per_gpu_in_the_older_spelling():
    fields = {"tres_per_job": "gres:gpu:2", "SLURM_MEM_PER_GPU": "102400"}
    assert written(fields, Spelling.COLON, mem_per_gpu_mib=20480) == {
        "mem_per_tres": "gres:gpu:20480",
        "SLURM_MEM_PER_GPU": "20480",
    }


def test_cpus_per_task_where_slurm_repeats_them_per_task():
    """23.11 and later: `-c16 --gpus-per-task=1`."""
    fields = {
        "tres_per_task": "cpu=16,gres/gpu:a100=1",
        "cpus_per_task": 16,
        "min_cpus": 64,
        "pn_min_cpus": 16,
        "SLURM_TRES_PER_TASK": "cpu=16,gres/gpu:a100=1",
    }
    assert written(fields, cpus_per_task=4, min_cpus=16, min_cpus_per_node=4) == {
        "cpus_per_task": 4,
        "min_cpus": 16,
        "pn_min_cpus": 4,
        "tres_per_task": "cpu=4,gres/gpu:a100=1",
        "SLURM_TRES_PER_TASK": "cpu=4,gres/gpu:a100=1",
    }


def test_cpus_per_task_without_gpus_per_task():
    fields = {"tres_per_node": "gres/gpu:1", "tres_per_task": "cpu=16", "cpus_per_task": 16}
    assert written(fields, cpus_per_task=8) == {"cpus_per_task": 8, "tres_per_task": "cpu=8"}


@pytest.mark.parametrize("unset", [65534, 65535, None])
def test_an_unset_number_of_cpus_per_node_is_unknown(unset):
    fields = {"tres_per_node": "gres/gpu:1", "cpus_per_task": 8}
    fields |= {"pn_min_cpus": unset} if unset else {}
    assert parse(fields).request.min_cpus_per_node is None
