# SPDX-License-Identifier: Apache-2.0
"""Does somebody use what no job has, and is the board cut as declared?"""

from __future__ import annotations

from collections.abc import Iterator

from fairwatt.prolog.health.judge import Params, Problem
from fairwatt.prolog.health.reading import Gpu, GpuProcess, Holder, Reading

__all__ = ["leftover_processes", "memory_held", "mig_layout"]


def memory_held(reading: Reading, params: Params) -> Iterator[Problem]:
    """Boards without job and process of whose memory more than `over_mib` is taken."""
    if reading.holders is None:
        return
    held = {holder.device for holder in reading.holders}
    for gpu in reading.answering():
        if gpu.memory is None or gpu.memory.processes or gpu.uuid in held:
            continue
        if gpu.memory.used_mib > params["over_mib"]:
            used = f"{gpu.memory.used_mib} MiB"
            yield Problem(gpu.uuid, used, f"{used} are taken and no process has them")


def leftover_processes(reading: Reading, params: Params) -> Iterator[Problem]:
    """Boards with processes where no job is, but for those of `allow_uids`."""
    if reading.holders is None:
        return
    for gpu in reading.answering():
        left = [
            process
            for process in (gpu.memory.processes if gpu.memory else ())
            if process.uid not in params["allow_uids"]
            and not _is_held(gpu, process, reading.holders)
        ]
        if left:
            first = left[0]
            whose = "of an unknown user" if first.uid is None else f"of uid {first.uid}"
            more = f" and {len(left) - 1} more" if len(left) > 1 else ""
            text = f"process {first.pid} {whose}{more} where no job is"
            yield Problem(gpu.uuid, f"pid {first.pid}", text)


def _is_held(gpu: Gpu, process: GpuProcess, holders: tuple[Holder, ...]) -> bool:
    """Whether a job has the board or the process's instance; of no known instance: any job."""
    mine = {holder.instance for holder in holders if holder.device == gpu.uuid}
    return bool(mine) and (not process.instance or bool(mine & {"", process.instance}))


def mig_layout(reading: Reading, _params: Params) -> Iterator[Problem]:
    """Boards whose instances are not the declared ones."""
    expected = reading.expected
    for gpu in reading.answering() if expected else ():
        declared = expected.profiles.get(gpu.uuid) if expected else None
        there = gpu.profiles
        if declared is None or there is None or expected is None:
            continue
        if there != declared:
            text = f"MIG: {_shown(there)} where {expected.profiles_from} has {_shown(declared)}"
            yield Problem(gpu.uuid, _shown(there), text)


def _shown(profiles: tuple[str, ...]) -> str:
    counts = {name: profiles.count(name) for name in profiles}
    return " + ".join(f"{count} x {name}" for name, count in counts.items()) or "no instance"
