# SPDX-License-Identifier: Apache-2.0
"""What the checks look at: one node at one moment, as plain data.

A part that is None was not read; why stands in `gaps`, by (GPU's UUID or "", part). The checks
themselves only judge what is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from fairwatt.core.verdict import Holder

__all__ = [
    "GPU_PARTS",
    "NODE_PARTS",
    "NVML_PARTS",
    "BoardState",
    "Clocks",
    "Disk",
    "Ecc",
    "Expected",
    "Gap",
    "GapKind",
    "Gpu",
    "GpuProcess",
    "Holder",
    "Instance",
    "Link",
    "Memory",
    "Pcie",
    "Power",
    "Reading",
    "RemappedRows",
    "RetiredPages",
    "Temperature",
    "Versions",
    "Xid",
    "plain_profile",
]

GPU_PARTS = (
    *("counter", "instances", "throttle", "temperature", "memory", "clocks", "power"),
    *("pcie", "ecc", "retired", "rows", "links"),
)
"""What is read of each board, quick ones first."""
NODE_PARTS = ("devices", "versions", "xids", "disks", "expected", "holders")
NVML_PARTS = ("devices", "versions", *GPU_PARTS)
"""What NVML is asked for; it may take long or never answer."""
GapKind = Literal["not-offered", "fault", "timeout"]


class Gap(msgspec.Struct, frozen=True):
    """Why a part could not be read: the device or driver lacks it, an error, or no answer yet."""

    kind: GapKind
    why: str


class Ecc(msgspec.Struct, frozen=True):
    """Memory errors since the last reset."""

    uncorrected: int
    corrected: int


class RetiredPages(msgspec.Struct, frozen=True):
    """Pages taken out of use, and whether more wait for a reset."""

    count: int
    pending: bool


class RemappedRows(msgspec.Struct, frozen=True):
    """Memory rows replaced by spares; `failed`: no spare was left."""

    count: int
    pending: bool
    failed: bool


class Pcie(msgspec.Struct, frozen=True):
    """The link to the host: generation and lanes, as they are and as they could be."""

    generation: int
    generation_max: int
    width: int
    width_max: int


class Link(msgspec.Struct, frozen=True):
    """One NVLink: whether it is up, its replay and recovery errors (None: not counted)."""

    number: int
    active: bool
    errors: int | None = None


class Temperature(msgspec.Struct, frozen=True):
    """Degrees Celsius; `slowdown_c` is where the board slows itself down, None if not told."""

    now_c: int
    slowdown_c: int | None = None


class GpuProcess(msgspec.Struct, frozen=True):
    """A process with a context on the board; `instance` is its MIG device's UUID or ""."""

    pid: int
    uid: int | None = None
    instance: str = ""


class Memory(msgspec.Struct, frozen=True):
    """Memory in use beyond what the driver keeps for itself, and who uses the board."""

    used_mib: int
    processes: tuple[GpuProcess, ...] = ()


class Clocks(msgspec.Struct, frozen=True):
    """SM clock now and at most, in MHz, and how busy the board is (None: not told, as on MIG)."""

    sm_mhz: int
    sm_max_mhz: int
    busy_percent: int | None = None


class Power(msgspec.Struct, frozen=True):
    """The power limit in force and the board's default, in mW."""

    limit_mw: int
    default_mw: int


class Instance(msgspec.Struct, frozen=True):
    """One MIG device of a board."""

    uuid: str
    profile: str
    gi: int
    ci: int


BoardState = Literal["ok", "lost", "reset-required", "silent"]


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One board; `state` is what NVML says when it is spoken to. `pci` is like 0000:07:00.

    "silent" is an error that proves nothing of the board; why is in the reading's gaps, as its
    part "devices". `minor` is negative where a board never told who it is.
    `counter` is its energy in mJ since the last reset.
    """

    uuid: str
    index: int
    minor: int
    pci: str
    name: str = ""
    state: BoardState = "ok"
    counter: int | None = None
    ecc: Ecc | None = None
    retired: RetiredPages | None = None
    rows: RemappedRows | None = None
    throttle: int | None = None
    pcie: Pcie | None = None
    links: tuple[Link, ...] | None = None
    temperature: Temperature | None = None
    memory: Memory | None = None
    clocks: Clocks | None = None
    power: Power | None = None
    instances: tuple[Instance, ...] | None = None

    @property
    def profiles(self) -> tuple[str, ...] | None:
        """The profiles of its GPU instances, sorted; () without MIG, None if not read.

        Several compute instances of one GPU instance are one; media engines do not count.
        """
        if self.instances is None:
            return None
        by_gi = {each.gi: plain_profile(each.profile) for each in self.instances}
        return tuple(sorted(by_gi.values()))


def plain_profile(name: str) -> str:
    """Return `3g.20gb` of `1c.3g.20gb`, `1g.5gb` of `1g.5gb+me`."""
    return re.sub(r"^\d+c\.", "", name).partition("+")[0].removesuffix(".me")


class Versions(msgspec.Struct, frozen=True):
    """Driver versions: of the loaded kernel module (None: not told) and of the library.

    `fault` is what initialising the library said: "", "mismatch" or "not-loaded".
    """

    kernel: str | None
    library: str | None
    fault: Literal["", "mismatch", "not-loaded"] = ""


class Xid(msgspec.Struct, frozen=True):
    """An error that the driver wrote to the kernel log.

    Attributes:
        device: the GPU's UUID, if known.
        counter_mj: its energy counter at about that time: when it shows less, it was reset.
    """

    t_ms: int
    number: int
    pci: str
    device: str | None = None
    counter_mj: int | None = None


class Disk(msgspec.Struct, frozen=True):
    """Room in a folder that must stay writable."""

    path: str
    free_mib: int
    free_inodes: int | None = None


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """What the node should have; None or absent: nothing is said about it.

    Attributes:
        count: GPUs by gres.conf or slurm.conf, and `count_from`: which of them.
        boards: PCI address by UUID, from the recorded baseline.
        links: active NVLinks by UUID, from the baseline.
        limits_mw: power limits by UUID, from the baseline.
        profiles: sorted MIG profiles by UUID, () for MIG off; `profiles_from`: who says so.
    """

    count: int | None = None
    count_from: str = ""
    boards: Mapping[str, str] | None = None
    links: Mapping[str, int] = {}
    limits_mw: Mapping[str, int] = {}
    profiles: Mapping[str, tuple[str, ...]] = {}
    profiles_from: str = ""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """Everything; times are UTC epoch milliseconds. `gpus` None: NVML could not be asked."""

    t_ms: int
    gpus: tuple[Gpu, ...] | None = None
    versions: Versions | None = None
    xids: tuple[Xid, ...] | None = None
    disks: tuple[Disk, ...] | None = None
    expected: Expected | None = None
    holders: tuple[Holder, ...] | None = None
    gaps: Mapping[tuple[str, str], Gap] = {}

    def answering(self) -> Iterator[Gpu]:
        """The boards that NVML can speak to."""
        return (gpu for gpu in self.gpus or () if gpu.state == "ok")
