# SPDX-License-Identifier: Apache-2.0
"""The node's part under real Slurm: hooks, device map by minors, UUIDs for MIG steps."""

from __future__ import annotations

import re

import pytest

from fairwatt.accounting.agent.segments import read_entries
from fairwatt.core.events import Event, RunEnded, RunStarted
from fairwatt.core.segments import segment_numbers, segment_path
from tests.lab.cluster import OneHostCluster
from tests.lab.waiting import await_value

pytestmark = pytest.mark.lab

SHOW = '#!/bin/sh\necho "seen=$CUDA_VISIBLE_DEVICES"\n'


def run_job(
    cluster: OneHostCluster, *args: str, script: str = SHOW, user: str = "cleo"
) -> tuple[int, str]:
    """Run a job to its end; return its id and output."""
    folder = cluster.paths.root / "tmp"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o1777)
    done = cluster.sbatch([*args, f"--output={folder}/%j.out"], script, user=user)
    assert done.job_id is not None, done.stderr
    assert cluster.wait_job(done.job_id) == ["COMPLETED"]
    return done.job_id, (folder / f"{done.job_id}.out").read_text()


def events(cluster: OneHostCluster, node: str, job_id: int) -> list[Event]:
    """Return the job's start and end in the node's journal, once both are there."""
    folder = cluster.nodes[node].spool_dir / "journal"

    def found() -> list[Event]:
        entries = [
            entry.event
            for number in segment_numbers(folder)
            for entry in read_entries(segment_path(folder, number))
        ]
        mine = [e for e in entries if isinstance(e, RunStarted | RunEnded) and e.job_id == job_id]
        return mine if len(mine) == 2 else []

    return await_value(found, what=f"start and end of job {job_id} on {node}", timeout_s=20)


def test_whole_gpus_are_found_by_minor_where_nvml_counts_backwards(cluster) -> None:
    """gpu02: position 0 = /dev/nvidia0 = NVML index 3; the step keeps its variable (J16)."""
    job_id, output = run_job(cluster, "--nodelist=gpu02", "--gres=gpu:a100:2", user="ada")
    started, ended = events(cluster, "gpu02", job_id)
    layout = cluster.nodes["gpu02"].layout
    by_minor = {gpu.minor: gpu.uuid for gpu in layout.gpus}
    (positions,) = re.findall(r"^seen=([\d,]+)$", output, re.MULTILINE)
    expected = {by_minor[int(position)] for position in positions.split(",")}
    assert {hold.device for hold in started.holds} == expected
    assert started.mapped_by == "device-file"
    assert ended.closed_by == "epilog"


def test_mig_steps_get_the_uuids_of_their_own_instances(cluster) -> None:
    script = SHOW + "srun --ntasks=1 sh -c 'echo \"step=$CUDA_VISIBLE_DEVICES\"'\n"
    job_id, output = run_job(
        cluster, "--partition=mig", "--gres=gpu:a100_3g.20gb:2", script=script
    )
    started, _ = events(cluster, "mig01", job_id)
    layout = cluster.nodes["mig01"].layout
    instances = {i.uuid: (gpu.uuid, i.slices) for gpu in layout.gpus for i in gpu.instances}
    seen = re.findall(r"^(?:seen|step)=(.*)$", output, re.MULTILINE)
    assert len(seen) == 2
    held = {hold.instance for hold in started.holds}
    for text in seen:
        assert set(text.split(",")) == held
    assert [(h.device, h.numerator) for h in started.holds] == [
        instances[h.instance] for h in started.holds
    ]
    assert {h.denominator for h in started.holds} == {7}


def test_hostile_job_text_reaches_no_shell(cluster) -> None:
    marker = cluster.paths.root / "tmp" / "pwned"
    name = f"$(touch {marker});`touch {marker}`'\"%<script>"
    job_id, _ = run_job(
        cluster,
        "--nodelist=gpu02",
        "--gres=gpu:1",
        f"--job-name={name}",
        f"--comment={name}",
        user="ada",
    )
    started, _ = events(cluster, "gpu02", job_id)
    assert len(started.holds) == 1
    assert not marker.exists()
