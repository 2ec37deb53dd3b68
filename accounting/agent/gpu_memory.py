# SPDX-License-Identifier: Apache-2.0
"""Memory in use on boards and on MIG instances, by NVML, without what the driver reserves."""

from __future__ import annotations

from typing import Any

import pynvml

from fairwatt.core.records import Device

__all__ = ["MemoryMeter"]

MIB = 1 << 20
_Handle = Any
_ABSENT = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
)


class MemoryMeter:
    """Reads used memory; keeps the handles of MIG instances, and whether NVML tells the reserve.

    Without the reserve (drivers before 510) some hundred MiB of the driver's own would be
    counted as the job's: then the memory is unknown.
    """

    def __init__(self) -> None:
        self._instances: dict[str, _Handle] = {}
        self._offered = True

    def forget(self) -> None:
        """Drop the handles: the driver they belong to is gone."""
        self._instances = {}
        self._offered = True

    def used_mib(self, device: Device, handle: _Handle) -> dict[str, int]:
        """Return MiB in use by MIG UUID ("" = the whole board); what cannot be read is absent.

        Raises:
            pynvml.NVMLError: the device or driver is gone.
        """
        if not self._offered:
            return {}
        if not device.mig_enabled:
            return _known({"": self._read(handle)})
        return _known({one.uuid: self._of_instance(one.uuid) for one in device.instances})

    def _of_instance(self, uuid: str) -> int | None:
        try:
            if uuid not in self._instances:
                self._instances[uuid] = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            return self._read(self._instances[uuid])
        except (pynvml.NVMLError_NotFound, pynvml.NVMLError_InvalidArgument):
            self._instances.pop(uuid, None)  # the instance was destroyed since it was seen
            return None

    def _read(self, handle: _Handle) -> int | None:
        try:
            info = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
        except pynvml.NVMLError as error:
            if error.value not in _ABSENT:
                raise
            self._offered = False
            return None
        return int(info.used) // MIB


def _known(used: dict[str, int | None]) -> dict[str, int]:
    return {instance: mib for instance, mib in used.items() if mib is not None}
