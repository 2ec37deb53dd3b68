# SPDX-License-Identifier: Apache-2.0
"""Standard fake nodes: boards and MIG instances with the names, ids and sizes of real ones."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from tests.fakes.nvml_control import FakeNvml

__all__ = [
    "FakeGpu",
    "FakeInstance",
    "a100_node",
    "gpu_uuid",
    "h100_node",
    "h100_mig_node",
    "mig_node",
    "mig_uuid",
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


@dataclass(frozen=True)
class FakeGpu:
    """A fake GPU: NVML index and device minor differ on some boards."""

    index: int
    minor: int
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
SEVEN_SMALL = (Profile("1g.5gb", 1, 4_864, 14), range(7, 14))
TWO_LARGE = (Profile("3g.20gb", 3, 19_968, 42, decoders=2), range(1, 3))
H100_TWO_LARGE = (Profile("3g.40gb", 3, 40_448, 60, decoders=3), range(1, 3))
_COUNTER_START_MJ = 1_000_000_007
"""Drivers have long been loaded when a job starts: no counter begins at 0."""


def gpu_uuid(node: str, index: int) -> str:
    """Return the UUID of a node's GPU: the same one each time, another for each board."""
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'{node}/{index}')}"


def mig_uuid(node: str, index: int, gi: int, ci: int = 0, generation: int = 0) -> str:
    """Return the UUID of a MIG instance; re-creating it (another generation) changes it."""
    name = f"{node}/{index}/{gi}/{ci}/{generation}"
    return f"MIG-{uuid.uuid5(uuid.NAMESPACE_OID, name)}"


def a100_node(
    fake: FakeNvml, node: str, count: int = 4, reverse_minors: bool = False
) -> tuple[FakeGpu, ...]:
    """Add A100 40 GB boards; with reverse_minors NVML's order is the reverse of the minors."""
    return _whole_boards(fake, node, A100_40, count, reverse_minors)


def h100_node(fake: FakeNvml, node: str, count: int = 8) -> tuple[FakeGpu, ...]:
    """Add H100 80 GB boards."""
    return _whole_boards(fake, node, H100_80, count, reverse_minors=False)


def mig_node(fake: FakeNvml, node: str) -> tuple[FakeGpu, ...]:
    """Add two A100 40 GB boards, cut into 7 × 1g.5gb and into 2 × 3g.20gb."""
    return tuple(
        _cut_board(fake, node, A100_40, index, *layout)
        for index, layout in enumerate((SEVEN_SMALL, TWO_LARGE))
    )


def h100_mig_node(fake: FakeNvml, node: str) -> tuple[FakeGpu, ...]:
    """Add one H100 80 GB board cut into 2 × 3g.40gb: here GPM measures each instance."""
    return (_cut_board(fake, node, H100_80, 0, *H100_TWO_LARGE),)


def _whole_boards(
    fake: FakeNvml, node: str, board: Board, count: int, reverse_minors: bool
) -> tuple[FakeGpu, ...]:
    minors = range(count - 1, -1, -1) if reverse_minors else range(count)
    return tuple(
        _add_gpu(fake, node, board, index, minor, mig=False) for index, minor in enumerate(minors)
    )


def _cut_board(
    fake: FakeNvml, node: str, board: Board, index: int, profile: Profile, ids: Iterable[int]
) -> FakeGpu:
    gpu = _add_gpu(fake, node, board, index, index, mig=True)
    cuts = tuple(
        _add_instance(fake, node, gpu, place, gi, profile) for place, gi in enumerate(ids)
    )
    return FakeGpu(**{**vars(gpu), "instances": cuts})


def _add_gpu(
    fake: FakeNvml, node: str, board: Board, index: int, minor: int, mig: bool
) -> FakeGpu:
    gpu = FakeGpu(
        index=index,
        minor=minor,
        uuid=gpu_uuid(node, index),
        name=board.name,
        memory_mib=board.memory_mib,
        arch=board.arch,
        idle_mw=board.idle_mig_mw if mig else board.idle_mw,
        max_mw=board.max_mw,
    )
    fake.add_gpu(
        gpu.index,
        gpu.uuid,
        gpu.minor,
        gpu.name,
        gpu.memory_mib,
        gpu.arch,
        mig,
        gpu.idle_mw,
        max_mw=gpu.max_mw,
        counter_start_mj=_COUNTER_START_MJ * (index + 1),
    )
    return gpu


def _add_instance(
    fake: FakeNvml, node: str, gpu: FakeGpu, place: int, gi: int, profile: Profile
) -> FakeInstance:
    cut = FakeInstance(
        uuid=mig_uuid(node, gpu.index, gi),
        gpu_uuid=gpu.uuid,
        gi=gi,
        ci=0,
        index=place,
        profile=profile.name,
        slices=profile.slices,
        memory_mib=profile.memory_mib,
        sms=profile.sms,
    )
    fake.add_instance(
        cut.gpu_uuid,
        cut.gi,
        cut.ci,
        cut.uuid,
        cut.profile,
        cut.slices,
        cut.memory_mib,
        cut.sms,
        index=place,
        decoders=profile.decoders,
    )
    return cut
