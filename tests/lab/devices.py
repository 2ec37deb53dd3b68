# SPDX-License-Identifier: Apache-2.0
"""A node's device files and the driver's /proc entries, in folders of our own."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from tests.fakes.machines import FakeGpu
from tests.lab.layout import CAP_GI_PER_GPU, NodeLayout, cap_minor

__all__ = ["make_caps", "make_devices", "make_proc"]

NVIDIA_MAJOR, CAPS_MAJOR = 195, 237
MIG_MINORS_GPUS, CI_PER_GI = 8, 8


def make_devices(dev: Path, node: NodeLayout) -> None:
    """Create /dev/nvidiaN and the capability devices of the node's MIG instances below `dev`."""
    caps = dev / "nvidia-caps"
    caps.mkdir(parents=True)
    _char(dev / "nvidiactl", NVIDIA_MAJOR, 255)
    for gpu in node.gpus:
        _char(dev / f"nvidia{gpu.minor}", NVIDIA_MAJOR, gpu.minor)
        for made in gpu.instances:
            for minor in (cap_minor(gpu.minor, made.gi), cap_minor(gpu.minor, made.gi, made.ci)):
                _char(caps / f"nvidia-cap{minor}", CAPS_MAJOR, minor)


def make_caps(dev: Path, gpu_minors: Iterable[int]) -> None:
    """Create the capability devices that are not there of all instances that boards can have."""
    for gpu in gpu_minors:
        for gi in range(CAP_GI_PER_GPU):
            for minor in (cap_minor(gpu, gi), cap_minor(gpu, gi, 0)):
                path = dev / "nvidia-caps" / f"nvidia-cap{minor}"
                if not path.exists():
                    _char(path, CAPS_MAJOR, minor)


def _char(path: Path, major: int, minor: int) -> None:
    os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(major, minor))


def make_proc(proc: Path, node: NodeLayout) -> None:
    """Write driver/nvidia/gpus/*/information and driver/nvidia-caps/mig-minors below `proc`."""
    for gpu in node.gpus:
        folder = proc / "driver" / "nvidia" / "gpus" / gpu.pci
        folder.mkdir(parents=True)
        (folder / "information").write_text(_information(gpu))
    caps = proc / "driver" / "nvidia-caps"
    caps.mkdir(parents=True)
    (caps / "mig-minors").write_text(_mig_minors())


def _information(gpu: FakeGpu) -> str:
    rows = (
        ("Model", gpu.name),
        ("IRQ", 100 + gpu.index),
        ("GPU UUID", gpu.uuid),
        ("Video BIOS", "92.00.45.00.03"),
        ("Bus Type", "PCIe"),
        ("DMA Size", "47 bits"),
        ("DMA Mask", "0x7fffffffffff"),
        ("Bus Location", gpu.pci),
        ("Device Minor", gpu.minor),
        ("GPU Excluded", "No"),
    )
    return "".join(f"{name + ':':<16}\t {value}\n" for name, value in rows)


def _mig_minors() -> str:
    lines = ["config 1", "monitor 2"]
    for gpu in range(MIG_MINORS_GPUS):
        for gi in range(CAP_GI_PER_GPU):
            place = f"gpu{gpu}/gi{gi}"
            lines.append(f"{place}/access {cap_minor(gpu, gi)}")
            lines += [f"{place}/ci{ci}/access {cap_minor(gpu, gi, ci)}" for ci in range(CI_PER_GI)]
    return "\n".join([*lines, ""])
