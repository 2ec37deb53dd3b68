# SPDX-License-Identifier: Apache-2.0
"""Changes MIG on boards through NVML (nvidia-ml-py); for root. Reading is in read_live.py."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterable, Iterator
from typing import Any

import pynvml

from fairwatt.core.errors import DeviceError
from fairwatt.prolog.mig.cuts import Change, Create, Destroy, SetMode

__all__ = ["carry_out"]

_Handle = Any
_MOST_PLACES = 16
_MOST_COMPUTE = 8
_ABSENT = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
    pynvml.NVML_ERROR_NOT_FOUND,
)
_REMEDIES = {
    pynvml.NVML_ERROR_IN_USE: "a process still uses it: see nvidia-smi; end it, or the service "
    "that holds the GPU (DCGM, nvidia-persistenced, a monitor)",
    pynvml.NVML_ERROR_NO_PERMISSION: "run it as root",
    pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES: "something else is in that place: fairwatt mig show",
}


def carry_out(changes: Iterable[Change]) -> None:
    """Do one change after the other.

    Raises:
        DeviceError: the driver refused one; those before it are done.
    """
    with _nvml():
        for change in changes:
            _do(change)


@contextlib.contextmanager
def _nvml() -> Iterator[None]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise DeviceError(
            f"NVML does not start: {error}",
            place="NVML",
            remedy="run this on the GPU node; nvidia-smi must work there",
        ) from error
    try:
        yield
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _do(change: Change) -> None:
    try:
        gpu = pynvml.nvmlDeviceGetHandleByUUID(change.gpu)
        if isinstance(change, Destroy):
            _destroy(gpu, change.gi)
        elif isinstance(change, SetMode):
            _set_mode(gpu, change)
        else:
            _create(gpu, change)
    except pynvml.NVMLError as error:
        raise DeviceError(
            f"the driver refuses: {error}",
            place=change.gpu,
            value=_words(change),
            remedy=_REMEDIES.get(error.value, "see the kernel's log (dmesg | grep NVRM)"),
        ) from error


def _words(change: Change) -> str:
    if isinstance(change, Destroy):
        return f"destroy GPU instance {change.gi}"
    if isinstance(change, SetMode):
        return f"MIG {'on' if change.mig else 'off'}"
    return f"create {change.profile}@{change.start}"


def _destroy(gpu: _Handle, gi: int) -> None:
    instance = pynvml.nvmlDeviceGetGpuInstanceById(gpu, gi)
    for ci in range(_MOST_COMPUTE):
        try:
            compute = pynvml.nvmlGpuInstanceGetComputeInstanceById(instance, ci)
        except pynvml.NVMLError_NotFound:
            continue
        pynvml.nvmlComputeInstanceDestroy(compute)
    pynvml.nvmlGpuInstanceDestroy(instance)


def _set_mode(gpu: _Handle, change: SetMode) -> None:
    """Up to Ampere the driver resets the board for it, which no other client may hold then."""
    status = pynvml.nvmlDeviceSetMigMode(gpu, int(change.mig))
    now, _ = pynvml.nvmlDeviceGetMigMode(gpu)
    if bool(now) != change.mig:
        why = pynvml.nvmlErrorString(status) if status else "a reset of the board is needed"
        raise DeviceError(
            f"MIG mode does not change: {why}",
            place=change.gpu,
            value=_words(change),
            remedy="end what holds the board (DCGM, monitors, nvidia-persistenced), or reboot",
        )


def _create(gpu: _Handle, change: Create) -> None:
    profile = _profile(gpu, change.profile)
    if profile is None:
        raise DeviceError(
            "the driver has no such profile for this board",
            place=change.gpu,
            value=change.profile,
            remedy="see nvidia-smi mig -lgip; mend mig.toml or the catalogue",
        )
    place = _place(gpu, profile.id, change)
    made = pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, profile.id, ctypes.byref(place))
    compute = _whole_compute(made, profile.sliceCount)
    pynvml.nvmlGpuInstanceCreateComputeInstance(made, compute)


def _profile(gpu: _Handle, name: str) -> Any | None:  # noqa: ANN401 -- NVML's struct
    for kind in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        with _unless_absent():
            info = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, kind)
            if str(info.name).removeprefix("MIG ") == name:
                return info
    return None


def _place(gpu: _Handle, profile_id: int, change: Create) -> Any:  # noqa: ANN401
    count = ctypes.c_uint(_MOST_PLACES)
    room = (pynvml.c_nvmlGpuInstancePlacement_t * _MOST_PLACES)()
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, profile_id, room, ctypes.byref(count))
    for place in room[: count.value]:
        if place.start == change.start:
            return pynvml.c_nvmlGpuInstancePlacement_t(place.start, place.size)
    starts = ", ".join(str(place.start) for place in room[: count.value])
    raise DeviceError(
        f"the driver has no such place; it has {starts}",
        place=change.gpu,
        value=_words(change),
        remedy="the catalogue's placements are wrong for this board: override them",
    )


def _whole_compute(instance: _Handle, slices: int) -> int:
    """The id of the compute profile that takes a GPU instance as a whole."""
    for kind in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        with _unless_absent():
            info = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(
                instance, kind, pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
            )
            if info.sliceCount == slices:
                return int(info.id)
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


@contextlib.contextmanager
def _unless_absent() -> Iterator[None]:
    """Pass over a profile that this board does not have."""
    try:
        yield
    except pynvml.NVMLError as error:
        if error.value not in _ABSENT:
            raise
