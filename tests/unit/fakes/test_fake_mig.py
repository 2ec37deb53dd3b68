# SPDX-License-Identifier: Apache-2.0
"""MIG boards of the fake library as real ones show themselves."""

from __future__ import annotations

import pytest

from tests.fakes.machines import a100_node, mig_node, mig_uuid

MIB = 1 << 20


@pytest.fixture
def boards(fake):
    return mig_node(fake, "mig01")


def instances(nvml, board):
    found = {}
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(board)):
        try:
            found[index] = nvml.nvmlDeviceGetMigDeviceHandleByIndex(board, index)
        except nvml.NVMLError_NotFound:
            continue
    return found


def test_two_boards_cut_as_real_ones(nvml, boards):
    small, large = (nvml.nvmlDeviceGetHandleByIndex(index) for index in (0, 1))
    ids = [
        [nvml.nvmlDeviceGetGpuInstanceId(handle) for handle in instances(nvml, board).values()]
        for board in (small, large)
    ]
    assert ids == [[7, 8, 9, 10, 11, 12, 13], [1, 2]]
    assert nvml.nvmlDeviceGetMigMode(small) == [1, 1]
    assert nvml.nvmlDeviceGetMaxMigDeviceCount(large) == 7


def test_what_an_instance_says_of_itself(nvml, boards):
    parent = nvml.nvmlDeviceGetHandleByIndex(1)
    handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, 1)
    assert nvml.nvmlDeviceIsMigDeviceHandle(handle).value == 1
    assert nvml.nvmlDeviceIsMigDeviceHandle(parent).value == 0
    assert nvml.nvmlDeviceGetUUID(handle) == boards[1].instances[1].uuid
    assert nvml.nvmlDeviceGetName(handle) == "NVIDIA A100-SXM4-40GB MIG 3g.20gb"
    assert nvml.nvmlDeviceGetIndex(handle) == 1
    assert nvml.nvmlDeviceGetComputeInstanceId(handle) == 0
    again = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
    assert nvml.nvmlDeviceGetUUID(again) == boards[1].uuid
    shares = nvml.nvmlDeviceGetAttributes(handle)
    assert (shares.multiprocessorCount, shares.memorySizeMB) == (42, 19_968)
    assert (shares.gpuInstanceSliceCount, shares.computeInstanceSliceCount) == (3, 3)
    assert (shares.sharedCopyEngineCount, shares.sharedDecoderCount) == (3, 2)
    assert nvml.nvmlDeviceGetMemoryInfo(handle).total == 19_968 * MIB
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetMinorNumber(handle)


def test_what_only_an_instance_can_say(nvml, boards):
    parent = nvml.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetAttributes(parent)
    for call in (nvml.nvmlDeviceGetGpuInstanceId, nvml.nvmlDeviceGetComputeInstanceId):
        with pytest.raises(nvml.NVMLError_InvalidArgument):
            call(parent)


def test_a_destroyed_instance_leaves_a_gap_and_a_void_handle(fake, nvml, boards):
    board = nvml.nvmlDeviceGetHandleByIndex(0)
    gone = boards[0].instances[2]
    handle = nvml.nvmlDeviceGetHandleByUUID(gone.uuid)
    fake.set_power(gone.uuid, 30_000)
    fake.set_clock(2_000)
    assert fake.remove_instance(gone.uuid) == 2_100
    assert list(instances(nvml, board)) == [0, 1, 3, 4, 5, 6]
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetUUID(handle)
    with pytest.raises(nvml.NVMLError_NotFound):
        nvml.nvmlDeviceGetHandleByUUID(gone.uuid)
    fake.set_clock(3_000)  # what it drew in its time stays in the board's counter
    expected = 1_000_000_007 + 2_000 * 60 + 1_000 * 30
    assert nvml.nvmlDeviceGetTotalEnergyConsumption(board) == expected
    assert fake.energy_mj(boards[0].uuid, 3_000) == expected


def test_a_new_instance_takes_the_free_index_under_a_new_uuid(fake, nvml, boards):
    old = boards[0].instances[2]
    fake.remove_instance(old.uuid)
    uuid = mig_uuid("mig01", 0, old.gi, generation=1)
    assert uuid != old.uuid
    fake.add_instance(boards[0].uuid, old.gi, 0, uuid, "1g.5gb", 1, 4_864, 14)
    board = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetUUID(instances(nvml, board)[2]) == uuid


def test_mig_off_and_boards_without_mig(fake, nvml):
    a100_node(fake, "gpu01", count=1)
    fake.add_gpu(1, "GPU-v", 1, "Tesla V100-SXM2-32GB", 32_768, "volta")
    off, without = (nvml.nvmlDeviceGetHandleByIndex(index) for index in (0, 1))
    assert nvml.nvmlDeviceGetMigMode(off) == [0, 0]
    assert nvml.nvmlDeviceGetMaxMigDeviceCount(off) == 0
    with pytest.raises(nvml.NVMLError_NotFound):
        nvml.nvmlDeviceGetMigDeviceHandleByIndex(off, 0)
    for call in (
        nvml.nvmlDeviceGetMigMode,
        lambda gpu: nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0),
    ):
        with pytest.raises(nvml.NVMLError_NotSupported):
            call(without)


def test_a_mode_that_waits_for_a_reset(fake, nvml):
    (gpu,) = a100_node(fake, "gpu01", count=1)
    fake.set_mig_mode(gpu.uuid, current=False, pending=True)
    assert nvml.nvmlDeviceGetMigMode(nvml.nvmlDeviceGetHandleByIndex(0)) == [0, 1]


def test_memory_of_the_whole_board_sums_its_instances(fake, nvml, boards):
    fake.add_process(boards[0].instances[0].uuid, 10, memory_mib=1_000)
    fake.add_process(boards[0].instances[6].uuid, 11, memory_mib=500)
    board = nvml.nvmlDeviceGetHandleByIndex(0)
    one = nvml.nvmlDeviceGetHandleByUUID(boards[0].instances[0].uuid)
    assert nvml.nvmlDeviceGetMemoryInfo(one, nvml.nvmlMemory_v2).used == 1_000 * MIB
    assert nvml.nvmlDeviceGetMemoryInfo(board, nvml.nvmlMemory_v2).used == 1_500 * MIB
