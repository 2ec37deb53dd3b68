# SPDX-License-Identifier: Apache-2.0
"""Which very devices a job holds, from what Slurm's prolog says. Pure but for `stat`.

UUIDs first; else SLURM_JOB_GPUS as a position in gres.conf → device files → minors → UUID.
Never as an NVML index: on many boards the two orders differ. What cannot be known is
"unmapped", never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fairwatt.core.events import DeviceHold
from fairwatt.core.gres_conf import GresConf
from fairwatt.core.mig_minors import CapMinors
from fairwatt.core.records import Device, GpuInstance

__all__ = ["Place", "Placement", "map_job"]

_OLD_MIG = re.compile(r"MIG-(GPU-[^/]+)/(\d+)/(\d+)")


@dataclass(frozen=True)
class Place:
    """One device of a job: its position in Slurm's list (None: not told), `gpu` or `mig`, UUID."""

    position: int | None
    kind: str
    uuid: str


@dataclass(frozen=True)
class Placement:
    """All a job holds here; `mapped_by`: none, uuid, device-file, enumeration or unmapped.

    `problem` says why a job is unmapped.
    """

    holds: tuple[DeviceHold, ...]
    places: tuple[Place, ...]
    mapped_by: str
    problem: str | None = None


_Found = tuple[Device, GpuInstance | None]


def map_job(
    env: Mapping[str, str],
    devices: Sequence[Device],
    gres: GresConf | None,
    caps: CapMinors,
    minor_of: Callable[[str], int],
) -> Placement:
    """Return what the job with this prolog environment holds.

    Args:
        env: CUDA_VISIBLE_DEVICES and SLURM_JOB_GPUS as Slurm set them.
        devices: the node's GPUs as NVML shows them now.
        gres: the node's lines of gres.conf, None if there is none.
        caps: the driver's capability minors.
        minor_of: gives a device file's minor number, or raises OSError.
    """
    visible = _words(env.get("CUDA_VISIBLE_DEVICES", ""))
    given = _words(env.get("SLURM_JOB_GPUS", ""))
    positions = [int(word) for word in given if word.isdigit()]
    for words in (visible, given):
        if any(word.startswith(("GPU-", "MIG-")) for word in words):
            return _by_uuid(words, positions, devices)
    if not given:
        return Placement((), (), "none")
    if len(positions) < len(given):
        return _unmapped(f"SLURM_JOB_GPUS is {','.join(given)[:60]!r}, not a list of numbers")
    if gres is not None and gres.problem:
        return _unmapped(gres.problem)
    if gres is not None and gres.positions:
        return _by_files(positions, devices, gres, caps, minor_of)
    return _by_enumeration(positions, devices)


def _words(text: str) -> list[str]:
    return [word for part in text.split(",") for word in _range(part.strip()) if word]


def _range(word: str) -> list[str]:
    match = re.fullmatch(r"(\d{1,4})-(\d{1,4})", word)
    return [str(n) for n in range(int(match[1]), int(match[2]) + 1)] if match else [word]


def _by_uuid(
    words: Sequence[str], positions: Sequence[int], devices: Sequence[Device]
) -> Placement:
    numbers: list[int | None] = [None] * len(words)
    if len(positions) == len(words):
        numbers = [*positions]
    found = [_with_uuid(word, devices) for word in words]
    missing = [word for word, item in zip(words, found, strict=True) if item is None]
    if missing:
        return _unmapped(f"NVML shows no device {', '.join(missing)[:120]}")
    return _placed(numbers, [item for item in found if item is not None], "uuid")


def _with_uuid(word: str, devices: Sequence[Device]) -> _Found | None:
    old = _OLD_MIG.fullmatch(word)
    for device in devices:
        if word == device.uuid:
            return device, None
        for instance in device.instances:
            named = old and (old[1], int(old[2]), int(old[3]))
            if word == instance.uuid or named == (device.uuid, instance.gi, instance.ci):
                return device, instance
    return None


def _by_files(
    positions: Sequence[int],
    devices: Sequence[Device],
    gres: GresConf,
    caps: CapMinors,
    minor_of: Callable[[str], int],
) -> Placement:
    found: list[_Found] = []
    for position in positions:
        if position >= len(gres.positions):
            count = len(gres.positions)
            return _unmapped(f"position {position} is beyond gres.conf's {count} GPUs")
        item = _with_files(gres.positions[position].files, devices, caps, minor_of)
        if isinstance(item, str):
            return _unmapped(f"position {position}: {item}")
        found.append(item)
    return _placed(positions, found, "device-file")


def _with_files(
    files: Sequence[str],
    devices: Sequence[Device],
    caps: CapMinors,
    minor_of: Callable[[str], int],
) -> _Found | str:
    """Return the device behind these files, or why there is none."""
    try:
        minors = {name: minor_of(name) for name in files}
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    boards = [minor for name, minor in minors.items() if not _is_cap(name)]
    cap_minors = [minor for name, minor in minors.items() if _is_cap(name)]
    device = next((item for item in devices if boards == [item.minor]), None)
    if device is None:
        return f"NVML shows no GPU with the minor of {', '.join(files) or 'a line without File='}"
    if not cap_minors:
        return "the board is in MIG mode" if device.mig_enabled else (device, None)
    return _instance_of(device, cap_minors, caps)


def _is_cap(name: str) -> bool:
    return name.rsplit("/", 1)[-1].startswith("nvidia-cap")


def _instance_of(device: Device, cap_minors: Sequence[int], caps: CapMinors) -> _Found | str:
    cis = [
        caps.compute_instances[minor] for minor in cap_minors if minor in caps.compute_instances
    ]
    gis = [caps.gpu_instances[minor] for minor in cap_minors if minor in caps.gpu_instances]
    if len(cis) != 1 or gis != [cis[0][:2]] or cis[0][0] != device.minor:
        return (
            f"the capability files {sorted(cap_minors)} are not one instance of GPU {device.uuid}"
        )
    for instance in device.instances:
        if (instance.gi, instance.ci) == cis[0][1:]:
            return device, instance
    return f"NVML shows no GI {cis[0][1]}, CI {cis[0][2]} on GPU {device.uuid}"


def _by_enumeration(positions: Sequence[int], devices: Sequence[Device]) -> Placement:
    """AutoDetect: Slurm keeps NVML's order, or that of the device files; use it if they agree."""
    if any(device.mig_enabled for device in devices):
        return _unmapped("gres.conf has no File= lines, and MIG devices came without UUIDs")
    by_index = sorted(devices, key=lambda device: device.nvml_index)
    if by_index != sorted(devices, key=lambda device: device.minor):
        return _unmapped(
            "gres.conf has no File= lines, and NVML's order is not that of the minors"
        )
    if any(position >= len(by_index) for position in positions):
        return _unmapped(f"NVML shows {len(by_index)} GPUs, the job holds {list(positions)}")
    return _placed(
        positions, [(by_index[position], None) for position in positions], "enumeration"
    )


def _placed(positions: Sequence[int | None], found: Sequence[_Found], mapped_by: str) -> Placement:
    return Placement(
        holds=tuple(_hold(device, instance) for device, instance in found),
        places=tuple(
            Place(position, "mig", instance.uuid)
            if instance is not None
            else Place(position, "gpu", device.uuid)
            for position, (device, instance) in zip(positions, found, strict=True)
        ),
        mapped_by=mapped_by,
    )


def _hold(device: Device, instance: GpuInstance | None) -> DeviceHold:
    if instance is None:
        return DeviceHold(device=device.uuid, instance="", numerator=1, denominator=1)
    return DeviceHold(
        device=device.uuid,
        instance=instance.uuid,
        numerator=instance.compute_slices,
        denominator=device.compute_slices,
    )


def _unmapped(problem: str) -> Placement:
    return Placement((), (), "unmapped", problem)
