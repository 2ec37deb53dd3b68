# SPDX-License-Identifier: Apache-2.0
"""What Slurm 22.05 tells Prolog, TaskProlog, batch script and step about a job's devices.

The agent's device map stands on these facts; the table of them is in tests/lab/README.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.cluster import OneHostCluster
from tests.lab.slurm_conf import gres_conf
from tests.lab.waiting import await_value

pytestmark = pytest.mark.lab

NAMES = ("SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS")
SCRIPT = """
env >batch.$SLURM_JOB_ID
srun sh -c 'env >step.$SLURM_JOB_ID.$SLURMD_NODENAME'
while [ ! -e done.$SLURM_JOB_ID ]; do sleep 0.1; done
"""


class Holder:
    """Submits jobs that hold their devices until the test has looked."""

    def __init__(self, cluster: OneHostCluster, user: str) -> None:
        self.cluster = cluster
        self.home = cluster.paths.home / user
        self.user = user
        self.jobs: list[int] = []

    def hold(self, node: str, *args: str) -> int:
        """Start a job and return its id when its step has run on `node`."""
        job = self.cluster.sbatch(["--partition=all", *args], SCRIPT, self.user).job_id
        assert job is not None
        self.jobs.append(job)
        step = self.home / f"step.{job}.{node}"
        await_value(
            lambda: step.exists() and "PATH=" in step.read_text(), what=str(step), timeout_s=30
        )
        return job

    def release(self) -> None:
        for job in self.jobs:
            (self.home / f"done.{job}").touch()
        for job in self.jobs:
            self.cluster.wait_job(job)

    def seen(self, node: str, hook: str) -> tuple[str | None, ...]:
        """The device variables in what the recorder's hook wrote on that node."""
        return devices(self.cluster.nodes[node].folder / "seen" / hook)

    def inside(self, place: str) -> tuple[str | None, ...]:
        """The device variables in the user's batch script or step."""
        return devices(self.home / place)


def devices(file: Path) -> tuple[str | None, ...]:
    pairs = dict(line.split("=", 1) for line in file.read_text().splitlines() if "=" in line)
    return tuple(pairs.get(name) for name in NAMES)


@pytest.fixture
def holder(plain: OneHostCluster) -> Iterator[Holder]:
    made = Holder(plain, "fay")
    yield made
    made.release()


def test_whole_gpus_are_positions_everywhere(holder: Holder) -> None:
    first = holder.hold("gpu02", "--nodelist=gpu02", "--gres=gpu:a100:1")
    second = holder.hold("gpu02", "--nodelist=gpu02", "--gres=gpu:a100:2")
    for job, positions in ((first, "0"), (second, "1,2")):
        assert holder.seen("gpu02", f"prolog.{job}") == (positions, positions, None)
        assert holder.seen("gpu02", f"task-prolog.{job}.batch") == (positions, positions, None)
        assert holder.seen("gpu02", f"task-prolog.{job}.0") == (positions,) * 3
        assert holder.inside(f"batch.{job}") == (positions, positions, None)
        assert holder.inside(f"step.{job}.gpu02") == (positions,) * 3
    holder.release()
    assert holder.seen("gpu02", f"epilog.{second}") == ("1,2", "1,2", None)


def test_slices_are_positions_over_all_types_of_the_node(holder: Holder) -> None:
    small = holder.hold("mig01", "--nodelist=mig01", "--gres=gpu:a100_1g.5gb:2")
    large = holder.hold("mig01", "--nodelist=mig01", "--gres=gpu:a100_3g.20gb:1")
    other = holder.hold("mig01", "--nodelist=mig01", "--gres=gpu:a100_3g.20gb:1")
    for job, positions in ((small, "0,1"), (large, "7"), (other, "8")):
        assert holder.seen("mig01", f"prolog.{job}") == (positions, positions, None)
        assert holder.seen("mig01", f"task-prolog.{job}.0") == (positions,) * 3


def test_a_step_on_the_second_node_keeps_the_first_nodes_job_gpus(holder: Holder) -> None:
    holder.hold("h01", "--nodelist=h01", "--gres=gpu:2")
    job = holder.hold("h01", "--nodes=2", "--nodelist=gpu01,h01", "--gres=gpu:1")
    assert holder.seen("gpu01", f"prolog.{job}") == ("0", "0", None)
    assert holder.seen("h01", f"prolog.{job}") == ("2", "2", None)
    # The trap: in the step SLURM_JOB_GPUS is the batch node's, only the other two are right.
    assert holder.inside(f"step.{job}.h01") == ("0", "2", "2")


def test_a_job_without_gpus_has_no_device_variables(holder: Holder) -> None:
    job = holder.hold("gpu01", "--nodelist=gpu01")
    assert holder.seen("gpu01", f"prolog.{job}") == (None, None, None)


def test_positions_are_gres_conf_lines_and_the_nodes_own_list(plain: OneHostCluster) -> None:
    """LabNode.devices, which tests take as the truth, is gres.conf's order."""
    lines = [line for line in gres_conf(plain.paths).splitlines() if "=mig01 " in line]
    assert [line.split("Type=")[1].split()[0] for line in lines] == [
        *["a100_1g.5gb"] * 7,
        *["a100_3g.20gb"] * 2,
    ]
    # Cap minors by the driver's formula for GPU 1, GI 2: 3 + (1*15 + 2)*9 = 156; its CI 0: 157.
    assert lines[8].endswith(
        "nvidia1,"
        + ",".join(f"{plain.paths.dev('mig01')}/nvidia-caps/nvidia-cap{n}" for n in (156, 157))
    )
    small = [device.uuid for device in plain.nodes["mig01"].layout.gpus[0].instances]
    assert [device.uuid for device in plain.nodes["mig01"].devices][:7] == small
    boards = [(gpu.uuid, gpu.minor) for gpu in plain.nodes["gpu02"].layout.gpus]
    assert [minor for _, minor in boards] == [3, 2, 1, 0]  # in NVML's order
    in_order = [device.uuid for device in plain.nodes["gpu02"].devices]
    assert in_order == [uuid for uuid, _ in reversed(boards)]
