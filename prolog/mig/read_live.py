# SPDX-License-Identifier: Apache-2.0
"""Reads a node's boards and GPU instances through NVML (nvidia-ml-py); changes nothing."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml

from fairwatt.core.errors import DeviceError
from fairwatt.core.mig_minors import read_mig_minors
from fairwatt.prolog.mig.live import LiveGpu, LiveInstance, LiveNode, cap_table

__all__ = ["read_live"]

MIB = 1 << 20
_Handle = Any
_WITH_MEDIA = (
    pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1,
    pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE_REV1,
)
_NONE = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
    pynvml.NVML_ERROR_NOT_FOUND,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
)


def read_live(node: str, proc_root: Path = Path("/proc")) -> LiveNode:
    """Return what the driver shows of this host's boards.

    Raises:
        DeviceError: the library is missing, the driver is not loaded, or a board cannot be read.
    """
    try:
        pynvml.nvmlInit()
        try:
            handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
            gpus = sorted((_gpu(handle) for handle in handles), key=lambda gpu: gpu.minor)
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        raise DeviceError(
            f"the GPUs cannot be read: {error}",
            place="NVML",
            remedy="run this on the GPU node; nvidia-smi must work there",
        ) from error
    return LiveNode(node, tuple(gpus), cap_table(read_mig_minors(proc_root)))


def _gpu(handle: _Handle) -> LiveGpu:
    now, pending = False, False
    with _unless_absent():
        now, pending = map(bool, pynvml.nvmlDeviceGetMigMode(handle))
    return LiveGpu(
        uuid=pynvml.nvmlDeviceGetUUID(handle),
        minor=pynvml.nvmlDeviceGetMinorNumber(handle),
        name=pynvml.nvmlDeviceGetName(handle),
        memory_mib=pynvml.nvmlDeviceGetMemoryInfo(handle).total // MIB,
        mig=now,
        instances=tuple(_instances(handle)) if now else (),
        mig_pending=pending,
    )


def _instances(handle: _Handle) -> Iterator[LiveInstance]:
    """All GPU instances, those without a compute instance too, by their id."""
    devices = dict(_mig_devices(handle))
    found: dict[int, LiveInstance] = {}
    for profile in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        with _unless_absent():
            info = _profile_info(handle, profile)
            name = _profile_name(info, profile)
            for each in _of_profile(handle, info):
                found[each.id] = _instance(info, name, each, devices.get(each.id))
    yield from (found[gi] for gi in sorted(found))


def _profile_info(handle: _Handle, profile: int) -> Any:  # noqa: ANN401 -- NVML's structs
    """Version 2 names the profile; drivers before 510 have version 1 only."""
    try:
        return pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, profile)
    except pynvml.NVMLError_FunctionNotFound:
        return pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, profile, version=1)


def _of_profile(handle: _Handle, info: Any) -> list[Any]:  # noqa: ANN401 -- NVML's structs
    array = (pynvml.c_nvmlGpuInstance_t * max(1, info.instanceCount))()
    count = ctypes.c_uint(0)
    pynvml.nvmlDeviceGetGpuInstances(handle, info.id, array, ctypes.byref(count))
    return [pynvml.nvmlGpuInstanceGetInfo(array[i]) for i in range(count.value)]


def _instance(
    info: Any,  # noqa: ANN401
    name: str,
    instance: Any,  # noqa: ANN401
    device: _Handle | None,
) -> LiveInstance:
    ci, uuid = None, None
    if device is not None:
        ci = int(pynvml.nvmlDeviceGetComputeInstanceId(device))
        uuid = str(pynvml.nvmlDeviceGetUUID(device))
    return LiveInstance(
        gi=int(instance.id),
        profile=name,
        start=int(instance.placement.start),
        ci=ci,
        uuid=uuid,
        slices=int(info.sliceCount),
        memory_mib=int(info.memorySizeMB),
    )


def _profile_name(info: Any, profile: int) -> str:  # noqa: ANN401
    name = getattr(info, "name", b"")
    text = name.decode("ascii", "replace") if isinstance(name, bytes) else str(name)
    if text:
        return text.removeprefix("MIG ").strip()
    media = "+me" if profile in _WITH_MEDIA else ""
    return f"{info.sliceCount}g.{int(info.memorySizeMB / 1024 + 0.5)}gb{media}"


def _mig_devices(handle: _Handle) -> Iterator[tuple[int, _Handle]]:
    """The first MIG device (compute instance) of each GPU instance, by the instance's id."""
    seen: set[int] = set()
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        with _unless_absent():
            device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            gi = int(pynvml.nvmlDeviceGetGpuInstanceId(device))
            if gi not in seen:
                seen.add(gi)
                yield gi, device


@contextlib.contextmanager
def _unless_absent() -> Iterator[None]:
    """Pass over what this board or driver does not have."""
    try:
        yield
    except pynvml.NVMLError as error:
        if error.value not in _NONE:
            raise
