# SPDX-License-Identifier: Apache-2.0
"""Fake nodes' boards and MIG instances, with the names, ids and sizes of real ones."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.fakes.nvml_control import FakeNvml, pci_slot

__all__ = [
    "A100_40",
    "H100_80",
    "SEVEN_SMALL",
    "TWO_LARGE",
    "FakeGpu",
    "FakeInstance",
    "a100_node",
    "add_gpu",
    "cut_boards",
    "empty_mig_node",
    "gpu_uuid",
    "h100_mig_node",
    "h100_node",
    "mig_node",
    "mig_uuid",
    "whole_boards",
]


@dataclass(frozen=True)
class Profile:
    """A MIG profile of a board: slices, memory, SMs and engines as the real instance reports."""

    name: str
    slices: int
    memory_mib: int
    sms: int
    decoders: int = 0


@dataclass(frozen=True)
class Board:
    """A GPU model: NVML name, memory, generation, idle power (MIG off and on), power limit."""

    name: str
    memory_mib: int
    arch: str
    idle_mw: int
    idle_mig_mw: int
    max_mw: int


@dataclass(frozen=True)
class FakeInstance:
    """A MIG instance of a fake GPU; `index` is its MIG index on the board."""

    uuid: str
    gpu_uuid: str
    gi: int
    ci: int
    index: int
    profile: str
    slices: int
    memory_mib: int
    sms: int
    decoders: int


@dataclass(frozen=True)
class FakeGpu:
    """A fake GPU; NVML's indices follow the PCI addresses, which device minors need not do."""

    index: int
    minor: int
    pci: str
    uuid: str
    name: str
    memory_mib: int
    arch: str
    idle_mw: int
    max_mw: int
    instances: tuple[FakeInstance, ...] = ()


A100_40 = Board("NVIDIA A100-SXM4-40GB", 40_960, "ga100", 52_000, 60_000, 400_000)
H100_80 = Board("NVIDIA H100 80GB HBM3", 81_559, "hopper", 70_000, 80_000, 700_000)
# (profile, GPU instance ids): the ids that the driver gives when a board is cut into these alone.
_Cut = tuple[Profile, Iterable[int]]
SEVEN_SMALL: _Cut = (Profile("1g.5gb", 1, 4_864, 14), range(7, 14))
TWO_LARGE: _Cut = (Profile("3g.20gb", 3, 19_968, 42, decoders=2), range(1, 3))
H100_TWO_LARGE: _Cut = (Profile("3g.40gb", 3, 40_448, 60, decoders=3), range(1, 3))
_COUNTER_START_MJ = 1_000_000_007
"""Drivers have long been loaded when a job starts: no counter begins at 0."""


def gpu_uuid(node: str, index: int) -> str:
    """Return the UUID of a node's GPU: the same one each time, another for each board."""
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'{node}/{index}')}"


def mig_uuid(node: str, index: int, gi: int, ci: int = 0, generation: int = 0) -> str:
    """Return the UUID of a MIG instance; re-creating it (another generation) changes it."""
    name = f"{node}/{index}/{gi}/{ci}/{generation}"
    return f"MIG-{uuid.uuid5(uuid.NAMESPACE_OID, name)}"


def whole_boards(node: str, board: Board, minors: Sequence[int]) -> tuple[FakeGpu, ...]:
    """Return boards in NVML's order; `minors[i]` is the device minor of index i."""
    return tuple(_gpu(node, board, index, minor) for index, minor in enumerate(minors))


def cut_boards(node: str, board: Board, cuts: Sequence[_Cut]) -> tuple[FakeGpu, ...]:
    """Return boards with MIG on, each cut into the instances of one profile."""
    return tuple(_gpu(node, board, index, index, cut) for index, cut in enumerate(cuts))


def add_gpu(fake: FakeNvml, gpu: FakeGpu) -> None:
    """Add a board and its MIG instances to a node's fake devices."""
    fake.add_gpu(
        gpu.index,
        gpu.uuid,
        gpu.minor,
        gpu.name,
        gpu.memory_mib,
        gpu.arch,
        mig=bool(gpu.instances),
        idle_mw=gpu.idle_mw,
        max_mw=gpu.max_mw,
        counter_start_mj=_COUNTER_START_MJ * (gpu.index + 1),
        pci=gpu.pci.rpartition(".")[0],
    )
    for made in gpu.instances:
        fake.add_instance(
            made.gpu_uuid,
            made.gi,
            made.ci,
            made.uuid,
            made.profile,
            made.slices,
            made.memory_mib,
            made.sms,
            index=made.index,
            decoders=made.decoders,
        )


def a100_node(
    fake: FakeNvml, node: str, count: int = 4, reverse_minors: bool = False
) -> tuple[FakeGpu, ...]:
    """Add A100 40 GB boards; with reverse_minors NVML's order is the reverse of the minors."""
    minors = range(count - 1, -1, -1) if reverse_minors else range(count)
    return _added(fake, whole_boards(node, A100_40, minors))


def h100_node(fake: FakeNvml, node: str, count: int = 8) -> tuple[FakeGpu, ...]:
    """Add H100 80 GB boards."""
    return _added(fake, whole_boards(node, H100_80, range(count)))


def mig_node(fake: FakeNvml, node: str) -> tuple[FakeGpu, ...]:
    """Add two A100 40 GB boards, cut into 7 × 1g.5gb and into 2 × 3g.20gb."""
    return _added(fake, cut_boards(node, A100_40, (SEVEN_SMALL, TWO_LARGE)))


def empty_mig_node(
    fake: FakeNvml, node: str, count: int = 1, board: Board = A100_40
) -> tuple[FakeGpu, ...]:
    """Add boards in MIG mode that have no instance yet."""
    gpus = _added(fake, whole_boards(node, board, range(count)))
    for gpu in gpus:
        fake.set_mig_mode(gpu.uuid, current=True, pending=True)
    return gpus


def h100_mig_node(fake: FakeNvml, node: str) -> tuple[FakeGpu, ...]:
    """Add one H100 80 GB board cut into 2 × 3g.40gb: here GPM measures each instance."""
    return _added(fake, cut_boards(node, H100_80, (H100_TWO_LARGE,)))


def _added(fake: FakeNvml, gpus: tuple[FakeGpu, ...]) -> tuple[FakeGpu, ...]:
    for gpu in gpus:
        add_gpu(fake, gpu)
    return gpus


def _gpu(node: str, board: Board, index: int, minor: int, cut: _Cut | None = None) -> FakeGpu:
    return FakeGpu(
        index=index,
        minor=minor,
        pci=f"{pci_slot(index)}.0",
        uuid=gpu_uuid(node, index),
        name=board.name,
        memory_mib=board.memory_mib,
        arch=board.arch,
        idle_mw=board.idle_mig_mw if cut else board.idle_mw,
        max_mw=board.max_mw,
        instances=_instances(node, index, *cut) if cut else (),
    )


def _instances(
    node: str, gpu_index: int, profile: Profile, ids: Iterable[int]
) -> tuple[FakeInstance, ...]:
    return tuple(
        FakeInstance(
            uuid=mig_uuid(node, gpu_index, gi),
            gpu_uuid=gpu_uuid(node, gpu_index),
            gi=gi,
            ci=0,
            index=place,
            profile=profile.name,
            slices=profile.slices,
            memory_mib=profile.memory_mib,
            sms=profile.sms,
            decoders=profile.decoders,
        )
        for place, gi in enumerate(ids)
    )
