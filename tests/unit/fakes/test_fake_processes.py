# SPDX-License-Identifier: Apache-2.0
"""Processes on fake boards and instances."""

from __future__ import annotations

import pytest

from tests.fakes.machines import a100_node, mig_node

MIB = 1 << 20
NO_INSTANCE = 0xFFFFFFFF


def facts(processes):
    return [(p.pid, p.usedGpuMemory, p.gpuInstanceId, p.computeInstanceId) for p in processes]


def test_processes_of_a_whole_board(fake, nvml):
    (gpu,) = a100_node(fake, "gpu01", count=1)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetComputeRunningProcesses(handle) == []
    fake.add_process(gpu.uuid, 4711, memory_mib=300)
    fake.add_process(gpu.uuid, 4712)  # memory not available
    assert facts(nvml.nvmlDeviceGetComputeRunningProcesses(handle)) == [
        (4711, 300 * MIB, NO_INSTANCE, NO_INSTANCE),
        (4712, None, NO_INSTANCE, NO_INSTANCE),
    ]
    fake.remove_process(gpu.uuid, 4711)
    assert [p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses(handle)] == [4712]
    assert nvml.nvmlDeviceGetMPSComputeRunningProcesses(handle) == []


def test_unavailable_memory_is_all_ones_in_the_raw_structure(fake, nvml):
    (gpu,) = a100_node(fake, "gpu01", count=1)
    fake.add_process(gpu.uuid, 1)
    count, infos = nvml.c_uint(1), (nvml.c_nvmlProcessInfo_v3_t * 1)()
    call = nvml.nvmlLib.nvmlDeviceGetComputeRunningProcesses_v3
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert call(handle, nvml.byref(count), infos) == 0
    assert infos[0].usedGpuMemory == 0xFFFFFFFFFFFFFFFF


def test_a_mig_board_shows_its_instances_processes_with_their_ids(fake, nvml):
    _, large = mig_node(fake, "mig01")
    fake.add_process(large.instances[0].uuid, 10, memory_mib=7)
    fake.add_process(large.instances[1].uuid, 11, memory_mib=8)
    board = nvml.nvmlDeviceGetHandleByIndex(1)
    second = nvml.nvmlDeviceGetMigDeviceHandleByIndex(board, 1)
    assert facts(nvml.nvmlDeviceGetComputeRunningProcesses(board)) == [
        (10, 7 * MIB, 1, 0),
        (11, 8 * MIB, 2, 0),
    ]
    assert facts(nvml.nvmlDeviceGetComputeRunningProcesses(second)) == [(11, 8 * MIB, 2, 0)]


def test_utilisation_by_process_and_its_three_traps(fake, nvml):
    (gpu,) = a100_node(fake, "gpu01", count=1)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(nvml.NVMLError) as caught:
        nvml.nvmlDeviceGetProcessUtilization(handle, 0)
    assert caught.value.value == nvml.NVML_SUCCESS  # no process: success, raised as an error
    fake.add_process(gpu.uuid, 10, sm_util=80)
    fake.add_process(gpu.uuid, 11, sm_util=15)
    samples = nvml.nvmlDeviceGetProcessUtilization(handle, 0)
    assert [(s.pid, s.smUtil, s.timeStamp) for s in samples] == [
        (10, 80, 1_000_000),
        (11, 15, 1_000_000),
    ]
    with pytest.raises(nvml.NVMLError_NotFound):
        nvml.nvmlDeviceGetProcessUtilization(handle, 1_000_000)  # nothing newer
    fake.set_mig_mode(gpu.uuid, current=True, pending=True)
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetProcessUtilization(handle, 0)


def test_accounting_mode_is_off_and_stays_off_with_mig(fake, nvml):
    mig_node(fake, "mig01")
    board = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetAccountingMode(board) == nvml.NVML_FEATURE_DISABLED
    with pytest.raises((nvml.NVMLError_NotSupported, nvml.NVMLError_NoPermission)):
        nvml.nvmlDeviceSetAccountingMode(board, nvml.NVML_FEATURE_ENABLED)
    instance = nvml.nvmlDeviceGetMigDeviceHandleByIndex(board, 0)
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetAccountingMode(instance)
