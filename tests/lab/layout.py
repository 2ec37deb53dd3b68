# SPDX-License-Identifier: Apache-2.0
"""The machines of the one-host cluster, as data: nodes, boards, MIG instances, partitions."""

from __future__ import annotations

from dataclasses import dataclass

from tests.fakes.machines import (
    A100_40,
    H100_80,
    SEVEN_SMALL,
    TWO_LARGE,
    FakeGpu,
    FakeInstance,
    cut_boards,
    whole_boards,
)

__all__ = ["NODES", "PARTITIONS", "LabGpu", "LabInstance", "NodeLayout", "cap_minor"]

LabGpu, LabInstance = FakeGpu, FakeInstance
"""The names that tests/ansible has for them."""

CAP_GI_PER_GPU, CAP_MINORS_PER_GI = 15, 9  # as the driver numbers them in mig-minors


def cap_minor(gpu_minor: int, gi: int, ci: int | None = None) -> int:
    """The minor of the capability device of a GPU instance, or of a compute instance in it."""
    base = 3 + (gpu_minor * CAP_GI_PER_GPU + gi) * CAP_MINORS_PER_GI
    return base if ci is None else base + 1 + ci


@dataclass(frozen=True)
class NodeLayout:
    """A node: its boards, and what slurm.conf and gres.conf say about it."""

    name: str
    gres: str
    gres_type: str
    sockets: int
    cores_per_socket: int
    memory_mib: int
    gpus: tuple[FakeGpu, ...]


NODES: tuple[NodeLayout, ...] = (
    NodeLayout(
        "gpu01", "gpu:a100:4", "a100", 2, 32, 512_000, whole_boards("gpu01", A100_40, range(4))
    ),
    # Here NVML's order is the reverse of the device minors, as on boards cabled that way.
    NodeLayout(
        "gpu02", "gpu:a100:4", "a100", 2, 32, 512_000, whole_boards("gpu02", A100_40, (3, 2, 1, 0))
    ),
    NodeLayout(
        "mig01",
        "gpu:a100_1g.5gb:7,gpu:a100_3g.20gb:2",
        "a100",
        2,
        16,
        256_000,
        cut_boards("mig01", A100_40, (SEVEN_SMALL, TWO_LARGE)),
    ),
    NodeLayout(
        "h01", "gpu:h100:8", "h100", 2, 56, 2_000_000, whole_boards("h01", H100_80, range(8))
    ),
)

PARTITIONS: dict[str, tuple[str, ...]] = {
    "gpu": ("gpu01", "gpu02", "h01"),
    "mig": ("mig01",),
    "all": ("gpu01", "gpu02", "mig01", "h01"),
}
