# SPDX-License-Identifier: Apache-2.0
"""Are all GPUs there? Lost, missing, too few, exchanged, in need of a reset."""

from __future__ import annotations

from collections.abc import Iterator

from fairwatt.prolog.health.judge import Params, Problem
from fairwatt.prolog.health.reading import Reading

__all__ = ["gpu_count", "gpu_exchanged", "gpu_lost", "gpu_missing", "gpu_reset_required"]


def gpu_lost(reading: Reading, _params: Params) -> Iterator[Problem]:
    """Boards of which NVML says that they are lost."""
    for gpu in reading.gpus or ():
        if gpu.state == "lost":
            yield Problem(gpu.uuid, "lost", f"the GPU at {gpu.pci} is lost")


def gpu_reset_required(reading: Reading, _params: Params) -> Iterator[Problem]:
    """Boards of which NVML says that they must be reset."""
    for gpu in reading.gpus or ():
        if gpu.state == "reset-required":
            yield Problem(gpu.uuid, "reset required", f"the GPU at {gpu.pci} needs a reset")


def gpu_missing(reading: Reading, _params: Params) -> Iterator[Problem]:
    """Boards of the baseline that NVML does not show, while no other is in their slot."""
    if reading.expected is None or not reading.expected.boards or not reading.gpus:
        return  # no GPU at all is the driver's trouble, not a board's
    if any(gpu.minor < 0 for gpu in reading.gpus):
        return  # one that never told who it is may be the very one
    uuids = {gpu.uuid for gpu in reading.gpus}
    slots = {gpu.pci for gpu in reading.gpus}
    for uuid, pci in reading.expected.boards.items():
        if uuid not in uuids and pci not in slots:
            yield Problem(uuid, "missing", f"the GPU of {pci} is missing")


def gpu_count(reading: Reading, _params: Params) -> Iterator[Problem]:
    """Fewer boards than Slurm is told."""
    expected = reading.expected
    if reading.gpus is None or expected is None or expected.count is None:
        return
    there = len(reading.gpus)
    if there < expected.count:
        text = f"NVML shows {there} GPUs, {expected.count_from} has {expected.count}"
        yield Problem(None, f"{there} < {expected.count}", text)


def gpu_exchanged(reading: Reading, _params: Params) -> Iterator[Problem]:
    """Boards that the baseline does not know."""
    if reading.expected is None or reading.expected.boards is None:
        return
    for gpu in reading.gpus or ():
        if gpu.minor >= 0 and gpu.uuid not in reading.expected.boards:
            yield Problem(gpu.uuid, "new", f"the GPU at {gpu.pci} is not in the baseline")
