# SPDX-License-Identifier: Apache-2.0
"""Utilisation per GPU instance by NVML's GPU Performance Monitoring (Hopper or newer)."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import pynvml

from fairwatt.core.records import Device

__all__ = ["GpmMeter"]

_Handle = Any
_Key = tuple[str, int]


class GpmMeter:
    """Keeps the last sample of each GPU instance; utilisation is taken between two samples."""

    def __init__(self) -> None:
        self._supported: dict[str, bool] = {}
        self._samples: dict[_Key, Any] = {}

    def forget(self) -> None:
        """Drop all samples: the driver they belong to is gone."""
        self._supported = {}
        self._samples = {}

    def utilisation(self, device: Device, handle: _Handle) -> dict[str, int]:
        """Return thousandths by MIG UUID since the last call; empty where GPM is not offered.

        Raises:
            pynvml.NVMLError: the device or driver is gone.
        """
        if not self._offered(device.uuid, handle):
            return {}
        by_gi = {gi: self._permille(device.uuid, gi, handle) for gi in _gpu_instances(device)}
        return {
            instance.uuid: permille
            for instance in device.instances
            if (permille := by_gi[instance.gi]) is not None
        }

    def _offered(self, uuid: str, handle: _Handle) -> bool:
        if uuid not in self._supported:
            try:
                support = pynvml.nvmlGpmQueryDeviceSupport(handle)
                self._supported[uuid] = bool(support.isSupportedDevice)
            except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
                self._supported[uuid] = False
        return self._supported[uuid]

    def _permille(self, uuid: str, gi: int, handle: _Handle) -> int | None:
        sample = pynvml.nvmlGpmSampleAlloc()
        try:
            pynvml.nvmlGpmMigSampleGet(handle, gi, sample)
        except pynvml.NVMLError:
            pynvml.nvmlGpmSampleFree(sample)
            raise
        before = self._samples.get((uuid, gi))
        self._samples[uuid, gi] = sample
        if before is None:
            return None
        try:
            return _graphics_util(before, sample)
        finally:
            pynvml.nvmlGpmSampleFree(before)


def _graphics_util(before: Any, after: Any) -> int | None:  # noqa: ANN401 -- NVML's own handles
    query = pynvml.c_nvmlGpmMetricsGet_t()
    query.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    query.numMetrics = 1
    query.sample1, query.sample2 = before, after
    query.metrics[0].metricId = pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL
    try:
        pynvml.nvmlGpmMetricsGet(query)
    except pynvml.NVMLError:
        return None  # the samples are too close together, or of another driver load
    metric = query.metrics[0]
    # Each metric has its own status: the call as a whole succeeds even if one has failed.
    if metric.nvmlReturn != pynvml.NVML_SUCCESS or not math.isfinite(metric.value):
        return None
    return min(1000, max(0, round(10 * ctypes.c_double(metric.value).value)))


def _gpu_instances(device: Device) -> set[int]:
    return {instance.gi for instance in device.instances}
