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

__all__ = ["NodeDevices", "Place", "Placement", "map_job", "places_of_node"]

_OLD_MIG = re.compile(r"MIG-(GPU-[^/]+)/(\d+)/(\d+)")


@dataclass(frozen=True)
class Place:
    """One device of a job: its position in Slurm's list (None: not told), `gpu` or `mig`, UUID.

    `dcgm` is what dcgm-exporter calls it: `<gpu>`, or `<gpu>.<gi>` for a slice.
    """

    position: int | None
    kind: str
    uuid: str
    dcgm: str = ""


@dataclass(frozen=True)
class Placement:
    """All a job holds here; `mapped_by`: none, uuid, device-file, enumeration or unmapped.

    `problem` says why a job is unmapped. `places` and `holds` go in pairs.
    """

    holds: tuple[DeviceHold, ...]
    places: tuple[Place, ...]
    mapped_by: str
    problem: str | None = None


@dataclass(frozen=True)
class NodeDevices:
    """What tells a position from a device on this node.

    Args:
        devices: the node's GPUs as NVML shows them now.
        gres: the node's lines of gres.conf, None if there is none.
        caps: the driver's capability minors.
        minor_of: gives a device file's minor number, or raises OSError.
        configured: how many GPUs slurm.conf gives the node, None if that is not known.
    """

    devices: Sequence[Device]
    gres: GresConf | None
    caps: CapMinors
    minor_of: Callable[[str], int]
    configured: int | None = None


_Found = tuple[Device, GpuInstance | None]


def map_job(env: Mapping[str, str], node: NodeDevices) -> Placement:
    """Return what the job holds whose prolog had CUDA_VISIBLE_DEVICES and SLURM_JOB_GPUS so."""
    visible = _words(env.get("CUDA_VISIBLE_DEVICES", ""))
    given = _words(env.get("SLURM_JOB_GPUS", ""))
    positions = [int(word) for word in given if word.isdigit()]
    for words in (visible, given):
        if any(_is_uuid(word) for word in words):
            return _by_uuid(words, positions, node)
    if not given:
        return Placement((), (), "none")
    if len(positions) < len(given):
        return _unmapped(f"SLURM_JOB_GPUS is {','.join(given)[:60]!r}, not a list of numbers")
    found = [_at(position, node) for position in positions]
    problems = [item for item in found if isinstance(item, str)]
    if problems:
        return _unmapped(problems[0])
    return _placed(positions, [item for item in found if not isinstance(item, str)], _way(node))


def places_of_node(node: NodeDevices) -> list[Place]:
    """Return every device of the node, with its position where that can be known."""
    listed = len(node.gres.positions) if node.gres is not None else 0
    positions = range(listed or max(node.configured or 0, len(node.devices)))
    found = [(position, _at(position, node)) for position in positions]
    known = [_place(number, *item) for number, item in found if not isinstance(item, str)]
    named = {place.uuid for place in known}
    parts = [_place(None, *part) for device in node.devices for part in _parts(device)]
    return known + [place for place in parts if place.uuid not in named]


def _parts(device: Device) -> list[_Found]:
    if not device.mig_enabled:
        return [(device, None)]
    return [(device, instance) for instance in device.instances]


def _words(text: str) -> list[str]:
    return [word for part in text.split(",") for word in _range(part.strip()) if word]


def _range(word: str) -> list[str]:
    match = re.fullmatch(r"(\d{1,4})-(\d{1,4})", word)
    return [str(n) for n in range(int(match[1]), int(match[2]) + 1)] if match else [word]


def _is_uuid(word: str) -> bool:
    return word.startswith(("GPU-", "MIG-"))


def _by_uuid(words: Sequence[str], positions: Sequence[int], node: NodeDevices) -> Placement:
    """Map by UUID; on a mixed node Slurm before 25.11 names whole GPUs by position beside them."""
    numbers: list[int | None] = [None] * len(words)
    if len(positions) == len(words):
        numbers = [*positions]
    found: list[_Found] = []
    for word, number in zip(words, numbers, strict=True):
        item = _named(word, number, node)
        if isinstance(item, str):
            return _unmapped(item)
        found.append(item)
    return _placed(numbers, found, "uuid")


def _named(word: str, position: int | None, node: NodeDevices) -> _Found | str:
    if _is_uuid(word):
        return _with_uuid(word, node.devices) or f"NVML shows no device {word[:80]}"
    if position is None:
        return f"CUDA_VISIBLE_DEVICES names {word[:20]!r} beside UUIDs, SLURM_JOB_GPUS does not"
    return _at(position, node)


def _at(position: int, node: NodeDevices) -> _Found | str:
    """Return the device at Slurm's position, or why that cannot be said."""
    gres = node.gres
    if gres is not None and gres.problem:
        return gres.problem
    if gres is None or not gres.positions:
        return _by_enumeration(position, node)
    if position >= len(gres.positions):
        return f"position {position} is beyond gres.conf's {len(gres.positions)} GPUs"
    item = _with_files(gres.positions[position].files, node)
    return f"position {position}: {item}" if isinstance(item, str) else item


def _way(node: NodeDevices) -> str:
    return "device-file" if node.gres is not None and node.gres.positions else "enumeration"


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


def _with_files(files: Sequence[str], node: NodeDevices) -> _Found | str:
    """Return the device behind these files, or why there is none."""
    try:
        minors = {name: node.minor_of(name) for name in files}
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    boards = [minor for name, minor in minors.items() if not _is_cap(name)]
    cap_minors = [minor for name, minor in minors.items() if _is_cap(name)]
    device = next((item for item in node.devices if boards == [item.minor]), None)
    if device is None:
        return f"NVML shows no GPU with the minor of {', '.join(files) or 'a line without File='}"
    if not cap_minors:
        return "the board is in MIG mode" if device.mig_enabled else (device, None)
    return _instance_of(device, cap_minors, node.caps)


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


def _by_enumeration(position: int, node: NodeDevices) -> _Found | str:
    """AutoDetect: Slurm keeps NVML's order, or that of the device files; use it if they agree.

    slurmd counted its GPUs when it started. Where NVML now shows a gap in the minors, what
    slurm.conf says tells whether the lost GPU still has its position.
    """
    if any(device.mig_enabled for device in node.devices):
        return "gres.conf has no File= lines, and MIG devices came without UUIDs"
    by_index = sorted(node.devices, key=lambda device: device.nvml_index)
    minors = [device.minor for device in by_index]
    if minors != sorted(minors):
        return "gres.conf has no File= lines, and NVML's order is not that of the minors"
    whole = node.configured == len(minors)
    if not whole and minors != list(range(len(minors))):
        if node.configured is None or node.configured <= minors[-1]:
            return f"gres.conf has no File= lines, and GPUs are missing beside minors {minors}"
        device = next((device for device in by_index if device.minor == position), None)
        return (device, None) if device else f"NVML shows no GPU with minor {position}"
    if position >= len(by_index):
        return f"NVML shows {len(by_index)} GPUs, the job holds position {position}"
    return by_index[position], None


def _placed(positions: Sequence[int | None], found: Sequence[_Found], mapped_by: str) -> Placement:
    return Placement(
        holds=tuple(_hold(device, instance) for device, instance in found),
        places=tuple(
            _place(position, *item) for position, item in zip(positions, found, strict=True)
        ),
        mapped_by=mapped_by,
    )


def _place(position: int | None, device: Device, instance: GpuInstance | None) -> Place:
    if instance is None:
        return Place(position, "gpu", device.uuid, str(device.nvml_index))
    return Place(position, "mig", instance.uuid, f"{device.nvml_index}.{instance.gi}")


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
