# SPDX-License-Identifier: Apache-2.0
"""The machines of the one-host cluster, as data: nodes, boards, MIG instances, partitions."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["NODES", "PARTITIONS", "LabGpu", "LabInstance", "NodeLayout", "cap_minor"]

CAP_GI_PER_GPU, CAP_MINORS_PER_GI = 15, 9  # as the driver numbers them in mig-minors


def cap_minor(gpu_minor: int, gi: int, ci: int | None = None) -> int:
    """The minor of the capability device of a GPU instance, or of a compute instance in it."""
    base = 3 + (gpu_minor * CAP_GI_PER_GPU + gi) * CAP_MINORS_PER_GI
    return base if ci is None else base + 1 + ci


@dataclass(frozen=True)
class LabInstance:
    """A MIG instance: its ids, UUID, profile, compute slices, memory and multiprocessors."""

    gi: int
    ci: int
    uuid: str
    profile: str
    slices: int
    memory_mib: int
    sms: int


@dataclass(frozen=True)
class LabGpu:
    """A board: NVML index, device minor, PCI address, UUID, what it is, and its MIG instances."""

    index: int
    minor: int
    pci: str
    uuid: str
    name: str
    memory_mib: int
    arch: str
    idle_mw: int
    max_mw: int
    instances: tuple[LabInstance, ...] = ()


@dataclass(frozen=True)
class NodeLayout:
    """A node: its boards, and what slurm.conf and gres.conf say about it."""

    name: str
    gres: str
    gres_type: str
    sockets: int
    cores_per_socket: int
    memory_mib: int
    gpus: tuple[LabGpu, ...]


_PCI = (
    "0000:07:00.0",
    "0000:0f:00.0",
    "0000:47:00.0",
    "0000:4e:00.0",
    "0000:87:00.0",
    "0000:90:00.0",
    "0000:b7:00.0",
    "0000:bd:00.0",
)
_Model = tuple[str, int, str, int, int]  # name, memory, architecture, idle and greatest power
_A100: _Model = ("NVIDIA A100-SXM4-40GB", 40_960, "ga100", 50_000, 400_000)
_H100: _Model = ("NVIDIA H100 80GB HBM3", 81_559, "hopper", 70_000, 700_000)
_Slices = tuple[str, int, int, int, range]  # profile, slices, memory, multiprocessors, GI ids
# GPU instance ids as `nvidia-smi mig -lgi` shows them for these two layouts.
_SMALL: _Slices = ("1g.5gb", 1, 4_864, 14, range(7, 14))
_LARGE: _Slices = ("3g.20gb", 3, 19_968, 42, range(1, 3))


def _uuid(*parts: object) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, "/".join(map(str, parts))))


def _boards(
    node: str, model: _Model, minors: Sequence[int], mig: Sequence[_Slices] = ()
) -> tuple[LabGpu, ...]:
    """Boards in NVML order (that is, by PCI address); `minors[i]` is the minor of index i."""
    return tuple(
        LabGpu(
            index,
            minor,
            _PCI[index],
            f"GPU-{_uuid(node, minor)}",
            *model,
            instances=_instances(node, minor, *mig[index]) if mig else (),
        )
        for index, minor in enumerate(minors)
    )


def _instances(
    node: str, minor: int, profile: str, slices: int, memory_mib: int, sms: int, ids: range
) -> tuple[LabInstance, ...]:
    return tuple(
        LabInstance(gi, 0, f"MIG-{_uuid(node, minor, gi)}", profile, slices, memory_mib, sms)
        for gi in ids
    )


NODES: tuple[NodeLayout, ...] = (
    NodeLayout(
        "gpu01", "gpu:a100:4", "a100", 2, 32, 512_000, _boards("gpu01", _A100, (0, 1, 2, 3))
    ),
    # Here NVML's order is the reverse of the device minors, as on boards cabled that way.
    NodeLayout(
        "gpu02", "gpu:a100:4", "a100", 2, 32, 512_000, _boards("gpu02", _A100, (3, 2, 1, 0))
    ),
    NodeLayout(
        "mig01",
        "gpu:a100_1g.5gb:7,gpu:a100_3g.20gb:2",
        "a100",
        2,
        16,
        256_000,
        _boards("mig01", _A100, (0, 1), (_SMALL, _LARGE)),
    ),
    NodeLayout("h01", "gpu:h100:8", "h100", 2, 56, 2_000_000, _boards("h01", _H100, range(8))),
)

PARTITIONS: dict[str, tuple[str, ...]] = {
    "gpu": ("gpu01", "gpu02", "h01"),
    "mig": ("mig01",),
    "all": ("gpu01", "gpu02", "mig01", "h01"),
}
