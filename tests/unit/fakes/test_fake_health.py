# SPDX-License-Identifier: Apache-2.0
"""What a health check reads: healthy until a fact says otherwise, then exactly that fact."""

from __future__ import annotations

import pytest

from tests.fakes.loaded import loaded_nvml
from tests.fakes.machines import a100_node, h100_node, mig_node
from tests.fakes.nvml_conditions import NVLINK_ERRORS

MIB = 1 << 20
DRAM, SRAM, L2 = 2, 7, 1


@pytest.fixture
def board(fake):
    return a100_node(fake, "gpu01", count=2)[0].uuid


@pytest.fixture
def gpu(nvml, board):
    return nvml.nvmlDeviceGetHandleByUUID(board)


@pytest.fixture
def volta(fake, nvml):
    fake.add_gpu(7, "GPU-v", 7, "Tesla V100-PCIE-32GB", 32_768, "volta", max_mw=300_000)
    return nvml.nvmlDeviceGetHandleByUUID("GPU-v")


def test_a_board_of_which_nothing_is_told_is_healthy(nvml, gpu):
    for kind in (0, 1):
        for counter in (0, 1):
            assert nvml.nvmlDeviceGetTotalEccErrors(gpu, kind, counter) == 0
    assert nvml.nvmlDeviceGetEccMode(gpu) == [1, 1]
    assert nvml.nvmlDeviceGetRemappedRows(gpu) == (0, 0, 0, 0)
    assert nvml.nvmlDeviceGetRowRemapperHistogram(gpu).max == 640
    assert nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu) == nvml.nvmlClocksEventReasonGpuIdle
    assert nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM) == 210
    assert nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM) == 1_410
    assert nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM) == 1_215
    assert nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu) == 4
    assert nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu) == 4
    assert (
        nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu) == nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu) == 16
    )
    assert [nvml.nvmlDeviceGetNvLinkState(gpu, link) for link in range(12)] == [1] * 12
    limits = [nvml.nvmlDeviceGetTemperatureThreshold(gpu, which) for which in range(4)]
    assert limits == [92, 89, 95, 85]
    assert nvml.nvmlDeviceGetPowerManagementLimit(gpu) == 400_000
    assert nvml.nvmlDeviceGetPowerManagementDefaultLimit(gpu) == 400_000
    assert nvml.nvmlDeviceGetPowerManagementLimitConstraints(gpu) == [100_000, 400_000]
    assert nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) == 400_000
    assert nvml.nvmlDeviceGetPersistenceMode(gpu) == 1
    assert nvml.nvmlDeviceGetPerformanceState(gpu) == 0
    assert nvml.nvmlDeviceGetGraphicsRunningProcesses(gpu) == []
    assert nvml.nvmlSystemGetDriverVersion() == "580.95.05"
    assert nvml.nvmlSystemGetCudaDriverVersion() == 13_000


def test_ecc_errors_by_kind_span_and_memory(fake, nvml, gpu, board):
    fake.set_ecc_errors(board, "uncorrected", volatile=2, aggregate=5)
    fake.set_ecc_errors(board, "uncorrected", volatile=1, memory="sram")
    fake.set_ecc_errors(board, "corrected", aggregate=900)
    totals = [
        nvml.nvmlDeviceGetTotalEccErrors(gpu, kind, span) for kind in (0, 1) for span in (0, 1)
    ]
    assert totals == [0, 900, 3, 5]
    assert nvml.nvmlDeviceGetMemoryErrorCounter(gpu, 1, 0, DRAM) == 2
    assert nvml.nvmlDeviceGetMemoryErrorCounter(gpu, 1, 0, SRAM) == 1
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetMemoryErrorCounter(gpu, 1, 0, L2)
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetTotalEccErrors(gpu, 2, 0)
    fields = nvml.nvmlDeviceGetFieldValues(gpu, [3, 4, 5, 6])
    assert [field.value.ullVal for field in fields] == [0, 3, 900, 5]
    other = nvml.nvmlDeviceGetHandleByIndex(1)
    assert nvml.nvmlDeviceGetTotalEccErrors(other, 1, 0) == 0


def test_without_ecc_there_are_no_counters(fake, nvml, gpu, board):
    fake.set_ecc_mode(board, current=False, pending=True)
    assert nvml.nvmlDeviceGetEccMode(gpu) == [0, 1]
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetTotalEccErrors(gpu, 1, 0)
    assert nvml.nvmlDeviceGetFieldValues(gpu, [4])[0].nvmlReturn == nvml.NVML_ERROR_NOT_SUPPORTED


def test_rows_on_ampere_pages_before(fake, nvml, gpu, board, volta):
    fake.set_remapped_rows(board, corrected=1, uncorrected=2, pending=True)
    fake.set_remapped_rows(board, failure=True)
    assert nvml.nvmlDeviceGetRemappedRows(gpu) == (1, 2, 1, 1)
    fields = nvml.nvmlDeviceGetFieldValues(gpu, [142, 143, 144, 145])
    assert [field.value.uiVal for field in fields] == [1, 2, 1, 1]
    fake.set_spare_rows(board, 630, 5, 3, 1, 1)
    banks = nvml.nvmlDeviceGetRowRemapperHistogram(gpu)
    assert (banks.max, banks.high, banks.partial, banks.low, banks.none) == (630, 5, 3, 1, 1)
    fake.set_retired_pages("GPU-v", single=3, double=1, pending=True)
    assert len(nvml.nvmlDeviceGetRetiredPages(volta, 0)) == 3
    assert len(nvml.nvmlDeviceGetRetiredPages_v2(volta, 1)) == 1
    assert nvml.nvmlDeviceGetRetiredPagesPendingStatus(volta) == 1
    for call in (
        lambda: nvml.nvmlDeviceGetRemappedRows(volta),
        lambda: nvml.nvmlDeviceGetRetiredPages(gpu, 0),
        lambda: nvml.nvmlDeviceGetRetiredPagesPendingStatus(gpu),
    ):
        with pytest.raises(nvml.NVMLError_NotSupported):
            call()


def test_clocks_follow_use_until_they_are_told(fake, nvml, gpu, board):
    fake.set_util(board, 90)
    fake.set_clock(1_100)
    assert nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu) == 0
    assert nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_GRAPHICS) == 1_410
    mask = nvml.nvmlClocksEventReasonHwThermalSlowdown | nvml.nvmlClocksEventReasonHwSlowdown
    fake.set_clock_reasons(board, mask)
    fake.set_clocks(board, sm_mhz=600)
    assert nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu) == 0x48
    assert nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu) == 0x48
    assert nvml.nvmlDeviceGetClock(gpu, nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_ID_CURRENT) == 600
    assert nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM) == 1_410
    fake.set_clock_reasons(board, None)
    fake.set_condition(board, "clock.sm", None)
    assert nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu) == 0
    assert nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM) == 1_410


def test_a_process_on_an_instance_makes_the_board_busy(fake, nvml):
    small, _ = mig_node(fake, "mig01")
    gpu = nvml.nvmlDeviceGetHandleByUUID(small.uuid)
    assert nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu) == 1
    fake.add_process(small.instances[4].uuid, 12)
    assert nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu) == 0


def test_a_narrow_slow_pcie_link(fake, nvml, gpu, board):
    fake.set_pcie(board, generation=1, width=8, replays=44)
    assert nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu) == 1
    assert nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu) == 8
    assert nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu) == 16
    assert nvml.nvmlDeviceGetPcieReplayCounter(gpu) == 44


def test_nvlinks(fake, nvml, gpu, board, volta):
    fake.set_nvlink(board, 3, up=False)
    for number, kind in enumerate(NVLINK_ERRORS):
        fake.set_nvlink_errors(board, 3, kind, 10 + number)
    assert [nvml.nvmlDeviceGetNvLinkState(gpu, link) for link in (2, 3, 4)] == [1, 0, 1]
    assert [nvml.nvmlDeviceGetNvLinkErrorCounter(gpu, 3, kind) for kind in range(5)] == [
        10,
        11,
        12,
        13,
        14,
    ]
    assert nvml.nvmlDeviceGetNvLinkErrorCounter(gpu, 2, 0) == 0
    for link in (12, 36):
        with pytest.raises(nvml.NVMLError_InvalidArgument):
            nvml.nvmlDeviceGetNvLinkState(gpu, link)
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetNvLinkState(volta, 0)
    fake.set_nvlinks("GPU-v", 4)
    assert nvml.nvmlDeviceGetNvLinkState(volta, 3) == 1
    fake.set_nvlink(board, 3, up=True)
    assert nvml.nvmlDeviceGetNvLinkState(gpu, 3) == 1


def test_a_hopper_board_has_18_links_and_generation_5(fake, nvml):
    h100_node(fake, "h01", count=1)
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetNvLinkState(gpu, 17) == 1
    assert nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu) == 5
    assert nvml.nvmlDeviceGetNvLinkVersion(gpu, 0) == nvml.NVML_NVLINK_VERSION_4_0


def test_temperatures(fake, nvml, gpu, board):
    fake.set_temperature(board, 88)
    assert nvml.nvmlDeviceGetFieldValues(gpu, [82])[0].value.uiVal == 88
    fake.set_temperatures(board, memory_c=97, slowdown_c=80)
    assert nvml.nvmlDeviceGetTemperature(gpu, 0) == 88
    assert nvml.nvmlDeviceGetFieldValues(gpu, [82])[0].value.uiVal == 97
    slowdown = nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
    assert nvml.nvmlDeviceGetTemperatureThreshold(gpu, slowdown) == 80
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetTemperatureThreshold(gpu, nvml.NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_MIN)


def test_power_limits(fake, nvml, gpu, board):
    fake.set_power_limits(board, limit_mw=250_000)
    assert nvml.nvmlDeviceGetPowerManagementLimit(gpu) == 250_000
    assert nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) == 250_000
    assert nvml.nvmlDeviceGetFieldValues(gpu, [190])[0].value.uiVal == 250_000
    assert nvml.nvmlDeviceGetPowerManagementDefaultLimit(gpu) == 400_000
    fake.set_power_limits(board, default_mw=300_000, min_mw=90_000, enforced_mw=200_000)
    assert nvml.nvmlDeviceGetPowerManagementLimitConstraints(gpu) == [90_000, 400_000]
    assert nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) == 200_000


def test_memory_that_no_process_holds(fake, nvml, gpu, board):
    fake.add_process(board, 9, memory_mib=1_000)
    fake.hold_memory(board, 500)
    assert nvml.nvmlDeviceGetMemoryInfo(gpu, nvml.nvmlMemory_v2).used == 1_500 * MIB
    (process,) = nvml.nvmlDeviceGetComputeRunningProcesses(gpu)
    assert (process.pid, process.usedGpuMemory) == (9, 1_000 * MIB)
    fake.hold_memory(board, 0)
    assert nvml.nvmlDeviceGetMemoryInfo(gpu, nvml.nvmlMemory_v2).used == 1_000 * MIB


def test_held_memory_of_an_instance(fake, nvml):
    _, large = mig_node(fake, "mig01")
    first, second = large.instances
    fake.hold_memory(first.uuid, 700)
    used = [
        nvml.nvmlDeviceGetMemoryInfo(
            nvml.nvmlDeviceGetHandleByUUID(each.uuid), nvml.nvmlMemory_v2
        ).used
        for each in (first, second)
    ]
    assert used == [700 * MIB, 0]


def test_a_driver_that_was_updated_but_not_loaded(library, fake, nvml, gpu):
    fake.set_versions("580.95.05", "13.590.10.01")
    with pytest.raises(nvml.NVMLError_LibRmVersionMismatch):
        nvml.nvmlInit()
    # Who had it open before goes on, and can see why.
    assert nvml.nvmlSystemGetDriverVersion() == "580.95.05"
    assert nvml.nvmlSystemGetNVMLVersion() == "13.590.10.01"
    fake.set_versions("590.10.01", "13.590.10.01")
    nvml.nvmlInit()
    with loaded_nvml(fake.path) as again:
        again.nvmlInit()
        assert again.nvmlSystemGetDriverVersion() == "590.10.01"


def test_made_healthy_all_is_well(fake, nvml, gpu, board):
    fake.set_ecc_errors(board, "uncorrected", volatile=1)
    fake.set_nvlink(board, 0, up=False)
    fake.set_temperature(board, 99)
    fake.set_persistence(board, enabled=False)
    assert nvml.nvmlDeviceGetPersistenceMode(gpu) == 0
    fake.lose(board)
    fake.make_healthy(board)
    assert nvml.nvmlDeviceGetTotalEccErrors(gpu, 1, 0) == 0
    assert nvml.nvmlDeviceGetNvLinkState(gpu, 0) == 1
    assert nvml.nvmlDeviceGetTemperature(gpu, 0) == 35
    assert nvml.nvmlDeviceGetPersistenceMode(gpu) == 1


def test_conditions_are_a_board_s_and_must_be_known(fake, nvml, capfd):
    small, _ = mig_node(fake, "mig01")
    fake.set_condition(small.uuid, "no.such", 1)
    fake.set_condition(small.instances[0].uuid, "rows.pending", 1)
    fake.set_condition(small.uuid, "nvlink.count", 19)
    gpu = nvml.nvmlDeviceGetHandleByUUID(small.uuid)
    assert nvml.nvmlDeviceGetRemappedRows(gpu) == (0, 0, 0, 0)
    assert capfd.readouterr().err.count("unknown or malformed fact: condition") == 3
    instance = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0)
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetClockInfo(instance, 0)
