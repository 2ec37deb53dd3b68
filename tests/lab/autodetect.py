# SPDX-License-Identifier: Apache-2.0
"""Writes fake_gpus.conf from what NVML shows now: AutoDetect=nvml of a slurmd built without NVML.

    python -m tests.lab.autodetect DEV FILE

Like slurmd's own detection it sees the MIG devices once, when slurmd starts. Names are as
src/plugins/gpu/nvml/gpu_nvml.c builds them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml

from tests.lab.layout import cap_minor

CPUS = 8
LONGEST_LINE = 256


def lines(dev: Path) -> Iterator[str]:
    """One line per device: a board without MIG, or a MIG device."""
    for index in range(pynvml.nvmlDeviceGetCount()):
        gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
        name = pynvml.nvmlDeviceGetName(gpu).lower().replace(" ", "_")
        minor = pynvml.nvmlDeviceGetMinorNumber(gpu)
        if not pynvml.nvmlDeviceGetMigMode(gpu)[0]:
            yield _line(name, [f"nvidia{minor}"], pynvml.nvmlDeviceGetUUID(gpu), dev)
            continue
        for device in _mig_devices(gpu):
            yield _mig_line(name.partition("-")[0], minor, device, dev)


def _mig_devices(gpu: Any) -> Iterator[Any]:
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            yield pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)
        except pynvml.NVMLError_NotFound:
            continue


def _mig_line(name: str, minor: int, device: Any, dev: Path) -> str:
    gi = pynvml.nvmlDeviceGetGpuInstanceId(device)
    ci = pynvml.nvmlDeviceGetComputeInstanceId(device)
    shares = pynvml.nvmlDeviceGetAttributes(device)
    profile = f"{shares.gpuInstanceSliceCount}g.{round(shares.memorySizeMB / 1024)}gb"
    caps = [cap_minor(minor, gi), cap_minor(minor, gi, ci)]
    files = [f"nvidia{minor}", *(f"nvidia-caps/nvidia-cap{cap}" for cap in caps)]
    return _line(f"{name}_{profile}", files, pynvml.nvmlDeviceGetUUID(device), dev)


def _line(name: str, files: list[str], uuid: str, dev: Path) -> str:
    paths = ",".join(str(dev / file) for file in files)
    line = f"{name}|{CPUS}|(null)|(null)|{paths}|{uuid}|nvidia_gpu_env"
    assert len(line) < LONGEST_LINE, line
    return line


def main(dev: Path, file: Path) -> None:
    """Write the file."""
    pynvml.nvmlInit()
    try:
        file.write_text("".join(f"{line}\n" for line in lines(dev)))
    finally:
        pynvml.nvmlShutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
