# SPDX-License-Identifier: Apache-2.0
"""The awkward MIG calls of nvidia-ml-py as plain functions, for tests."""

from __future__ import annotations

from ctypes import byref, c_uint
from types import ModuleType
from typing import Any

__all__ = [
    "gpu_instances",
    "make",
    "mig_uuids",
    "orphans",
    "placement",
    "placements",
    "profile_id",
    "where",
]

_MOST = 8
"""Instances of one profile on a board, places of one profile."""
_WHOLE = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4}
"""NVML's number of the compute instance profile with so many slices."""


def profile_id(nvml: ModuleType, gpu: Any, name: str) -> int:
    """Return the id of a board's profile by its name (`3g.20gb`); KeyError if it has none."""
    for kind in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            info = nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, kind)
        except nvml.NVMLError_NotSupported:
            continue
        if info.name == f"MIG {name}":
            return int(info.id)
    raise KeyError(name)


def placement(nvml: ModuleType, start: int, size: int) -> Any:
    """Return a reference to a placement, as the WithPlacement calls take it."""
    return byref(nvml.c_nvmlGpuInstancePlacement_t(start, size))


def placements(nvml: ModuleType, gpu: Any, profile: int) -> list[tuple[int, int]]:
    """Return the legal (start, size) pairs of a profile."""
    count, room = c_uint(), (nvml.c_nvmlGpuInstancePlacement_t * _MOST)()
    nvml.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, profile, room, byref(count))
    return [(place.start, place.size) for place in room[: count.value]]


def make(
    nvml: ModuleType, gpu: Any, name: str, start: int | None = None, size: int = 0
) -> tuple[Any, Any]:
    """Create a GPU instance and a compute instance of all of it; return both handles."""
    profile = profile_id(nvml, gpu, name)
    if start is None:
        made = nvml.nvmlDeviceCreateGpuInstance(gpu, profile)
    else:
        made = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(
            gpu, profile, placement(nvml, start, size)
        )
    return made, nvml.nvmlGpuInstanceCreateComputeInstance(made, _WHOLE[int(name[0])])


def where(nvml: ModuleType, made: Any) -> tuple[int, int, int]:
    """Return the id, start and size of a GPU instance."""
    info = nvml.nvmlGpuInstanceGetInfo(made)
    return info.id, info.placement.start, info.placement.size


def gpu_instances(nvml: ModuleType, gpu: Any, profile: int) -> list[Any]:
    """Return the handles of a board's GPU instances of a profile."""
    count, room = c_uint(), (nvml.c_nvmlGpuInstance_t * _MOST)()
    nvml.nvmlDeviceGetGpuInstances(gpu, profile, room, byref(count))
    return list(room[: count.value])


def mig_uuids(nvml: ModuleType, gpu: Any) -> list[str]:
    """Return the UUIDs of a board's MIG devices in the order of their indices."""
    found = []
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)
        except nvml.NVMLError_NotFound:
            continue
        found.append(nvml.nvmlDeviceGetUUID(handle))
    return found


def orphans(nvml: ModuleType, gpu: Any, profile: int) -> list[int]:
    """Return the ids of GPU instances of a profile without a full compute instance."""
    found = []
    for made in gpu_instances(nvml, gpu, profile):
        info = nvml.nvmlGpuInstanceGetInfo(made)
        try:
            nvml.nvmlGpuInstanceGetComputeInstanceById(made, 0)
        except nvml.NVMLError_NotFound:
            found.append(info.id)
    return found
