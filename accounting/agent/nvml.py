# SPDX-License-Identifier: Apache-2.0
"""The GPU source over NVML (nvidia-ml-py). Functions are detected one by one, per device.

All methods belong to one thread; a call into a sick driver may take long or never return.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import msgspec
import pynvml

from fairwatt.accounting.agent.dcgm_activity import DcgmActivity
from fairwatt.accounting.agent.extras import Extras
from fairwatt.accounting.agent.gpm import GpmMeter
from fairwatt.accounting.agent.gpu_memory import MemoryMeter
from fairwatt.accounting.agent.process_use import ProcessMeter
from fairwatt.accounting.agent.sources import Sample, Utilisation
from fairwatt.core.catalogue import Catalogue, GpuModel
from fairwatt.core.clock import now_ms
from fairwatt.core.errors import DeviceError
from fairwatt.core.records import Device, GpuInstance

__all__ = ["NvmlSource"]

MIB = 1 << 20
_log = logging.getLogger(__name__)
_Handle = Any

_ABSENT = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
_DEAD = (pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
_PROFILE = re.compile(r"MIG (\S+)$")


class NvmlSource:
    """Devices, energy and utilisation from the driver; initialises NVML when first needed.

    Args:
        node: this node's name in Slurm.
        catalogue: the known models.
        processes: asks for each process's use of shared boards; None: that is not asked.
        dcgm: reads a dcgm-exporter; None: there is none.
    """

    def __init__(
        self,
        node: str,
        catalogue: Catalogue,
        *,
        processes: ProcessMeter | None = None,
        dcgm: DcgmActivity | None = None,
    ) -> None:
        self._node = node
        self._catalogue = catalogue
        self._ready = False
        self._devices: dict[str, tuple[Device, _Handle]] = {}
        self._absent: set[tuple[str, str]] = set()
        self._gpm = GpmMeter()
        self._memory = MemoryMeter()
        self._processes = processes
        self._dcgm = dcgm

    def devices(self) -> tuple[Device, ...]:
        """Return the GPUs with their MIG instances; a lost one as it was last seen.

        Raises:
            DeviceError: the library is missing or the driver is not loaded.
        """
        try:
            self._start()
            found = list(self._enumerate())
        except pynvml.NVMLError as error:
            self._note(error)
            raise DeviceError(
                f"no GPUs can be seen: {error}",
                place="NVML",
                remedy="load the NVIDIA driver (nvidia-smi must work); the agent tries again",
            ) from error
        self._devices = {device.uuid: (device, handle) for device, handle in found}
        return tuple(device for device, _ in found)

    def driver_version(self) -> str:
        """Return the driver's version, "" where it cannot be told."""
        try:
            return str(pynvml.nvmlSystemGetDriverVersion()) if self._ready else ""
        except pynvml.NVMLError as error:
            self._note(error)
            return ""

    def read(self, devices: Sequence[str]) -> list[Sample]:
        """Return one sample per device UUID; energy first, power only where it is missing."""
        return [self._sample(uuid) for uuid in devices]

    def utilisation(self, devices: Sequence[str]) -> Utilisation:
        """Return utilisation in thousandths: GPM per instance under MIG, else NVML's rate."""
        return {uuid: self._utils(uuid) for uuid in devices if uuid in self._devices}

    def clocks(self, devices: Sequence[str]) -> dict[str, int]:
        """Return the SM clock in MHz of each device that tells it; one call for each."""
        known = ((uuid, self._clock(uuid)) for uuid in devices if uuid in self._devices)
        return {uuid: mhz for uuid, mhz in known if mhz is not None}

    def _clock(self, uuid: str) -> int | None:
        handle = self._devices[uuid][1]
        try:
            mhz = self._offered(
                "clock", uuid, pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM
            )
        except pynvml.NVMLError as error:
            self._note(error)
            return None
        return None if mhz is None else int(mhz)

    def memory(self, devices: Sequence[str]) -> dict[str, dict[str, int]]:
        """Return the memory in use in MiB: of a board, or of each instance under MIG."""
        return {uuid: self._used(uuid) for uuid in devices if uuid in self._devices}

    def extras(self, devices: Sequence[str], shared: Collection[str]) -> Extras:
        """Return the power beside the counter, DCGM's activity, and processes' use of `shared`."""
        known = [uuid for uuid in devices if uuid in self._devices]
        powers = {uuid: power for uuid in known if (power := self._power(uuid)) is not None}
        jobs = {
            uuid: used
            for uuid in known
            if uuid in shared and (used := self._used_by_jobs(uuid)) is not None
        }
        boards = [self._devices[uuid][0] for uuid in known if uuid in self._devices]
        return Extras(powers, self._dcgm.newest(boards) if self._dcgm else {}, jobs)

    def _power(self, uuid: str) -> int | None:
        if uuid not in self._devices:  # the driver went away since the device before
            return None
        handle = self._devices[uuid][1]
        try:
            power_mw = self._offered("power", uuid, pynvml.nvmlDeviceGetPowerUsage, handle)
        except pynvml.NVMLError as error:
            self._note(error)
            return None
        return None if power_mw is None else int(power_mw)

    def _used_by_jobs(self, uuid: str) -> dict[str, int] | None:
        if self._processes is None or uuid not in self._devices:
            return None
        try:
            return self._processes.by_job(uuid, self._devices[uuid][1])
        except pynvml.NVMLError as error:
            self._note(error)
            return None

    def _used(self, uuid: str) -> dict[str, int]:
        try:
            return self._memory.used_mib(*self._devices[uuid])
        except pynvml.NVMLError as error:
            self._note(error)
            return {}

    def _start(self) -> None:
        if not self._ready:
            pynvml.nvmlInit()
            self._ready = True

    def _note(self, error: pynvml.NVMLError) -> None:
        """After the driver went away every handle is void: begin anew at the next visit."""
        if error.value in _DEAD and self._ready:
            self._ready = False
            self._devices = {}
            self._gpm.forget()
            self._memory.forget()
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()

    def _enumerate(self) -> Iterator[tuple[Device, _Handle]]:
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                yield self._device(index, handle), handle
            except pynvml.NVMLError as error:
                if error.value in _DEAD:
                    raise
                yield from self._as_known(index, error)

    def _as_known(self, index: int, error: pynvml.NVMLError) -> Iterator[tuple[Device, _Handle]]:
        known = [pair for pair in self._devices.values() if pair[0].nvml_index == index]
        if not known:
            _log.error("GPU with NVML index %d cannot be read: %s", index, error)
        yield from known

    def _device(self, index: int, handle: _Handle) -> Device:
        name = pynvml.nvmlDeviceGetName(handle)
        memory_mib = pynvml.nvmlDeviceGetMemoryInfo(handle).total // MIB
        model = self._catalogue.model_of_name(name, memory_mib)
        mig = _try(pynvml.nvmlDeviceGetMigMode, handle)
        mig_enabled = bool(mig and mig[0])
        return Device(
            node=self._node,
            uuid=pynvml.nvmlDeviceGetUUID(handle),
            name=name,
            model=model.key if model else None,
            minor=pynvml.nvmlDeviceGetMinorNumber(handle),
            nvml_index=index,
            memory_mib=memory_mib,
            mig_enabled=mig_enabled,
            compute_slices=_compute_slices(model, handle),
            instances=tuple(_instances(handle)) if mig_enabled else (),
            module_energy=_counts_module(handle) or msgspec.UNSET,
        )

    def _sample(self, uuid: str) -> Sample:
        if uuid not in self._devices:
            return Sample(uuid, now_ms(), fault="not among the devices NVML shows")
        handle = self._devices[uuid][1]
        try:
            energy_mj = self._offered(
                "energy", uuid, pynvml.nvmlDeviceGetTotalEnergyConsumption, handle
            )
            t_ms = now_ms()
            if energy_mj is not None:
                return Sample(uuid, t_ms, energy_mj=energy_mj)
            power_mw = self._offered("power", uuid, pynvml.nvmlDeviceGetPowerUsage, handle)
        except pynvml.NVMLError as error:
            self._note(error)
            return Sample(uuid, now_ms(), fault=str(error))
        if power_mw is None:
            return Sample(uuid, t_ms, fault="offers neither energy nor power")
        return Sample(uuid, t_ms, power_mw=power_mw)

    def _offered(
        self, what: str, uuid: str, function: Callable[..., Any], *args: object
    ) -> Any | None:  # noqa: ANN401 -- whatever NVML returns
        """Call a function that this device or driver may lack; remember if it does."""
        if (what, uuid) in self._absent:
            return None
        try:
            return function(*args)
        except pynvml.NVMLError as error:
            if error.value not in _ABSENT:
                raise
            self._absent.add((what, uuid))
            _log.info("%s: NVML offers no %s here: %s", uuid, what, error)
            return None

    def _utils(self, uuid: str) -> dict[str, int]:
        device, handle = self._devices[uuid]
        try:
            if device.mig_enabled:
                return self._gpm.utilisation(device, handle)
            rates = self._offered(
                "utilisation", uuid, pynvml.nvmlDeviceGetUtilizationRates, handle
            )
        except pynvml.NVMLError as error:
            self._note(error)
            return {}
        return {} if rates is None else {"": min(1000, 10 * int(rates.gpu))}


def _instances(handle: _Handle) -> Iterator[GpuInstance]:
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            mig = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except pynvml.NVMLError_NotFound:
            continue
        yield _instance(mig)


def _instance(mig: _Handle) -> GpuInstance:
    attributes = pynvml.nvmlDeviceGetAttributes(mig)
    slices = attributes.computeInstanceSliceCount or attributes.gpuInstanceSliceCount
    memory_mib = int(attributes.memorySizeMB)
    named = _PROFILE.search(str(_try(pynvml.nvmlDeviceGetName, mig)))
    profile = named[1] if named else f"{slices}g.{round(memory_mib / 1024)}gb"
    return GpuInstance(
        uuid=pynvml.nvmlDeviceGetUUID(mig),
        gi=pynvml.nvmlDeviceGetGpuInstanceId(mig),
        ci=pynvml.nvmlDeviceGetComputeInstanceId(mig),
        profile=profile,
        compute_slices=slices,
        memory_mib=memory_mib,
    )


def _compute_slices(model: GpuModel | None, handle: _Handle) -> int:
    """The board's compute slices; NVML's largest number of MIG devices is the same number."""
    if model is not None:
        return model.compute_slices
    return max(1, _try(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 1)


def _counts_module(handle: _Handle) -> bool:
    """Say whether GPU and CPU are one module (C2C), whose energy the GPU's counter shows."""
    mode = _try(pynvml.nvmlDeviceGetC2cModeInfoV, handle)
    return mode is not None and bool(mode.isC2cEnabled)


def _try(function: Callable[..., Any], *args: object) -> Any | None:  # noqa: ANN401
    try:
        return function(*args)
    except pynvml.NVMLError as error:
        if error.value in _DEAD:
            raise
        return None
