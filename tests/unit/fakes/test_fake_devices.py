# SPDX-License-Identifier: Apache-2.0
"""What the fake boards say of themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.machines import a100_node, gpu_uuid, h100_node, mig_node

MIB = 1 << 20


def test_index_minor_and_pci_place(fake, nvml):
    gpus = a100_node(fake, "gpu02", reverse_minors=True)
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(4)]
    assert nvml.nvmlDeviceGetCount() == 4
    assert [nvml.nvmlDeviceGetMinorNumber(handle) for handle in handles] == [3, 2, 1, 0]
    assert [nvml.nvmlDeviceGetUUID(handle) for handle in handles] == [gpu.uuid for gpu in gpus]
    assert [nvml.nvmlDeviceGetIndex(handle) for handle in handles] == [0, 1, 2, 3]
    pci = nvml.nvmlDeviceGetPciInfo(handles[2])
    assert (pci.busId, pci.busIdLegacy) == ("00000000:47:00.0", "0000:47:00.0")
    assert (pci.domain, pci.bus, pci.device) == (0, 0x47, 0)
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetHandleByIndex(4)


def test_name_generation_limit_and_temperature(fake, nvml):
    h100_node(fake, "h01", count=1)
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetName(gpu) == "NVIDIA H100 80GB HBM3"
    assert nvml.nvmlDeviceGetArchitecture(gpu) == nvml.NVML_DEVICE_ARCH_HOPPER
    assert nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) == 700_000
    assert nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU) == 35
    fake.set_temperature(gpu_uuid("h01", 0), 71)
    assert nvml.nvmlDeviceGetTemperatureV(gpu, nvml.NVML_TEMPERATURE_GPU) == 71


def test_uuids_are_the_same_each_time_and_differ_by_node():
    names = {gpu_uuid(node, index) for node in ("gpu01", "gpu02") for index in range(4)}
    assert len(names) == 8
    assert gpu_uuid("gpu01", 3) == gpu_uuid("gpu01", 3)


def test_memory_in_both_versions(fake, nvml):
    (gpu,) = a100_node(fake, "gpu01", count=1)
    fake.add_process(gpu.uuid, 10, memory_mib=2_000)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    old, new = (
        nvml.nvmlDeviceGetMemoryInfo(handle),
        nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2),
    )
    assert old.total == new.total == 40_960 * MIB
    assert (new.used, new.reserved) == (2_000 * MIB, 512 * MIB)
    assert old.used == 2_512 * MIB  # version 1 counts the reserve as used
    assert old.free == new.free == (40_960 - 2_512) * MIB
    with pytest.raises(nvml.NVMLError) as caught:
        nvml.nvmlDeviceGetMemoryInfo(handle, 0x01000028)
    assert caught.value.value == nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH


def test_utilisation_and_that_mig_has_none(fake, nvml):
    (gpu,) = h100_node(fake, "h01", count=1)
    fake.set_util(gpu.uuid, 90, memory=30)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetUtilizationRates(handle).gpu == 0  # from the next step on
    fake.set_clock(1_100)
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    assert (rates.gpu, rates.memory) == (90, 30)
    fake.set_mig_mode(gpu.uuid, current=True, pending=True)
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetUtilizationRates(handle)


def test_c2c_tells_a_whole_module(fake, nvml):
    fake.add_gpu(0, "GPU-gh", 0, "NVIDIA GH200 480GB", 97_871, "hopper", c2c=True)
    fake.add_gpu(1, "GPU-h", 1, "NVIDIA H100 80GB HBM3", 81_559, "hopper")
    fake.add_gpu(2, "GPU-a", 2, "NVIDIA A100-SXM4-40GB", 40_960, "ga100")
    module, board, old = (nvml.nvmlDeviceGetHandleByIndex(index) for index in range(3))
    assert nvml.nvmlDeviceGetC2cModeInfoV(module).isC2cEnabled == 1
    assert nvml.nvmlDeviceGetC2cModeInfoV(board).isC2cEnabled == 0
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetC2cModeInfoV(old)


def test_versions(nvml):
    assert nvml.nvmlSystemGetDriverVersion() == "580.95.05"
    assert nvml.nvmlSystemGetNVMLVersion() == "13.580.95.05"


CHILD = """
import pynvml
pynvml.nvmlInit()
board = pynvml.nvmlDeviceGetHandleByIndex(0)
print(pynvml.nvmlDeviceGetTotalEnergyConsumption(board))
print(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(board, 6)))
"""


def test_a_child_process_loads_it_as_the_drivers_library(fake):
    board, _ = mig_node(fake, "mig01")
    child = subprocess.run(
        [sys.executable, "-c", CHILD],
        env={**os.environ, **fake.env},
        capture_output=True,
        text=True,
        check=True,
    )
    assert child.stdout.split() == ["1000000007", board.instances[6].uuid]
    assert child.stderr == ""


def test_the_library_exports_nothing_but_nvml(library: Path):
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True
    ).stdout
    names = [line.split()[-1] for line in symbols.splitlines()]
    assert [name for name in names if not name.startswith("nvml")] == []
    assert "nvmlDeviceGetTotalEnergyConsumption" in names
