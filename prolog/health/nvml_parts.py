# SPDX-License-Identifier: Apache-2.0
"""How each part of a board is asked of NVML (nvidia-ml-py): handle in, plain data out.

Every function may raise pynvml.NVMLError; NotSupported and FunctionNotFound say that the board or
the driver does not offer it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pynvml

from fairwatt.prolog.health.reading import (
    Clocks,
    Ecc,
    GpuProcess,
    Instance,
    Link,
    Memory,
    Pcie,
    Power,
    RemappedRows,
    RetiredPages,
    Temperature,
)

__all__ = ["ABSENT", "PARTS", "pci_of"]

ABSENT = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
MIB = 1 << 20
_NO_INSTANCE = 0xFFFF_FFFF
_PROFILE = re.compile(r"MIG (\S+)$")
_Handle = Any


def _ecc(handle: _Handle) -> Ecc:
    return Ecc(
        uncorrected=pynvml.nvmlDeviceGetTotalEccErrors(
            handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
        ),
        corrected=pynvml.nvmlDeviceGetTotalEccErrors(
            handle, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_VOLATILE_ECC
        ),
    )


def _retired(handle: _Handle) -> RetiredPages:
    causes = (
        pynvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS,
        pynvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR,
    )
    count = sum(len(pynvml.nvmlDeviceGetRetiredPages(handle, cause)) for cause in causes)
    return RetiredPages(count, bool(pynvml.nvmlDeviceGetRetiredPagesPendingStatus(handle)))


def _rows(handle: _Handle) -> RemappedRows:
    corrected, uncorrected, pending, failed = pynvml.nvmlDeviceGetRemappedRows(handle)
    return RemappedRows(corrected + uncorrected, bool(pending), bool(failed))


def _throttle(handle: _Handle) -> int:
    try:
        return int(pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    except pynvml.NVMLError_FunctionNotFound:  # drivers before 535 know the older name alone
        return int(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


def _pcie(handle: _Handle) -> Pcie:
    return Pcie(
        generation=pynvml.nvmlDeviceGetCurrPcieLinkGeneration(handle),
        generation_max=pynvml.nvmlDeviceGetMaxPcieLinkGeneration(handle),
        width=pynvml.nvmlDeviceGetCurrPcieLinkWidth(handle),
        width_max=pynvml.nvmlDeviceGetMaxPcieLinkWidth(handle),
    )


def _links(handle: _Handle) -> tuple[Link, ...]:
    return tuple(_each_link(handle))


def _each_link(handle: _Handle) -> Iterator[Link]:
    for number in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            active = bool(pynvml.nvmlDeviceGetNvLinkState(handle, number))
        except pynvml.NVMLError_InvalidArgument:
            return  # the board has no link of this number
        yield Link(number, active, _link_errors(handle, number) if active else None)


def _link_errors(handle: _Handle, number: int) -> int | None:
    kinds = (pynvml.NVML_NVLINK_ERROR_DL_REPLAY, pynvml.NVML_NVLINK_ERROR_DL_RECOVERY)
    try:
        counts = [pynvml.nvmlDeviceGetNvLinkErrorCounter(handle, number, kind) for kind in kinds]
    except pynvml.NVMLError as error:
        if error.value in ABSENT:  # Hopper and newer count elsewhere
            return None
        raise
    return int(sum(counts))


def _temperature(handle: _Handle) -> Temperature:
    now_c = pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)
    limit = pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
    return Temperature(now_c, _offered(pynvml.nvmlDeviceGetTemperatureThreshold, handle, limit))


def _memory(handle: _Handle) -> Memory:
    held = tuple(_processes(handle))
    try:
        # The second form tells apart what the driver itself keeps.
        info = pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2)
    except pynvml.NVMLError_FunctionNotFound:
        info = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return Memory(info.used // MIB, held)


def _processes(handle: _Handle) -> Iterator[GpuProcess]:
    by_mps = _offered(pynvml.nvmlDeviceGetMPSComputeRunningProcesses, handle)
    for process in (*pynvml.nvmlDeviceGetComputeRunningProcesses(handle), *(by_mps or ())):
        yield GpuProcess(process.pid, _uid_of(process.pid), _instance_of(handle, process))


def _uid_of(pid: int) -> int | None:
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return None


def _instance_of(handle: _Handle, process: Any) -> str:  # noqa: ANN401 -- a struct of pynvml
    gi = getattr(process, "gpuInstanceId", None)
    if gi is None or gi == _NO_INSTANCE:
        return ""
    place = (gi, process.computeInstanceId)
    return next((each.uuid for each in _instances(handle) if (each.gi, each.ci) == place), "")


def _clocks(handle: _Handle) -> Clocks:
    rates = _offered(pynvml.nvmlDeviceGetUtilizationRates, handle)
    return Clocks(
        sm_mhz=pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
        sm_max_mhz=pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM),
        busy_percent=None if rates is None else int(rates.gpu),
    )


def _power(handle: _Handle) -> Power:
    return Power(
        limit_mw=pynvml.nvmlDeviceGetPowerManagementLimit(handle),
        default_mw=pynvml.nvmlDeviceGetPowerManagementDefaultLimit(handle),
    )


def _instances(handle: _Handle) -> tuple[Instance, ...]:
    mode = _offered(pynvml.nvmlDeviceGetMigMode, handle)
    return tuple(_each_instance(handle)) if mode and mode[0] else ()


def _each_instance(handle: _Handle) -> Iterator[Instance]:
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            mig = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except pynvml.NVMLError_NotFound:
            continue
        named = _PROFILE.search(pynvml.nvmlDeviceGetName(mig))
        yield Instance(
            uuid=pynvml.nvmlDeviceGetUUID(mig),
            profile=named[1] if named else "unknown",
            gi=pynvml.nvmlDeviceGetGpuInstanceId(mig),
            ci=pynvml.nvmlDeviceGetComputeInstanceId(mig),
        )


def _counter(handle: _Handle) -> int:
    return int(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle))


PARTS: Mapping[str, Callable[[_Handle], object]] = {
    "counter": _counter,
    "instances": _instances,
    "throttle": _throttle,
    "temperature": _temperature,
    "memory": _memory,
    "clocks": _clocks,
    "power": _power,
    "pcie": _pcie,
    "ecc": _ecc,
    "retired": _retired,
    "rows": _rows,
    "links": _links,
}
"""The function of each of reading.GPU_PARTS."""


def pci_of(handle: _Handle) -> str:
    """Return a board's PCI address as the kernel log writes it: 0000:07:00."""
    info = pynvml.nvmlDeviceGetPciInfo(handle)
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}"


def _offered(function: Callable[..., Any], *args: object) -> Any | None:  # noqa: ANN401
    try:
        return function(*args)
    except pynvml.NVMLError as error:
        if error.value in ABSENT:
            return None
        raise
