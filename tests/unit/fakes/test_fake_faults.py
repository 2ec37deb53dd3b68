# SPDX-License-Identifier: Apache-2.0
"""Lost boards, absent drivers, calls that hang."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from tests.fakes.loaded import loaded_nvml
from tests.fakes.machines import a100_node, mig_node


@pytest.fixture
def gpus(fake):
    return a100_node(fake, "gpu01")


def energy(nvml, uuid):
    return nvml.nvmlDeviceGetTotalEnergyConsumption(nvml.nvmlDeviceGetHandleByUUID(uuid))


def test_without_a_control_file_there_is_no_driver(library, tmp_path):
    with loaded_nvml(tmp_path / "none") as nvml, pytest.raises(nvml.NVMLError_DriverNotLoaded):
        nvml.nvmlInit()


def test_before_init_and_after_shutdown_nothing_answers(library, fake, gpus):
    with loaded_nvml(fake.path) as nvml:
        for _ in range(2):
            with pytest.raises(nvml.NVMLError_Uninitialized):
                nvml.nvmlDeviceGetCount()
            nvml.nvmlInit()
            nvml.nvmlInit()
            nvml.nvmlShutdown()
            assert nvml.nvmlDeviceGetCount() == 4
            nvml.nvmlShutdown()
        with pytest.raises(nvml.NVMLError_Uninitialized):
            nvml.nvmlShutdown()


def test_an_unloaded_driver_and_the_need_to_open_it_again(fake, nvml, gpus):
    fake.driver(loaded=False)
    for call in (nvml.nvmlDeviceGetCount, nvml.nvmlInit, lambda: energy(nvml, gpus[0].uuid)):
        with pytest.raises(nvml.NVMLError_DriverNotLoaded):
            call()
    fake.driver(loaded=True)
    with pytest.raises(nvml.NVMLError_Uninitialized):
        nvml.nvmlDeviceGetCount()
    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetCount() == 4
    nvml.nvmlShutdown()  # the opening before the reload no longer counts
    with pytest.raises(nvml.NVMLError_Uninitialized):
        nvml.nvmlDeviceGetCount()


@pytest.mark.parametrize(
    ("fault", "name"),
    [("lose", "NVMLError_GpuIsLost"), ("require_reset", "NVMLError_ResetRequired")],
)
def test_a_sick_gpu_fails_every_call_and_the_others_go_on(fake, nvml, gpus, fault, name):
    handle = nvml.nvmlDeviceGetHandleByIndex(1)
    getattr(fake, fault)(gpus[1].uuid)
    for call in (
        nvml.nvmlDeviceGetTotalEnergyConsumption,
        nvml.nvmlDeviceGetUUID,
        lambda gpu: nvml.nvmlDeviceGetFieldValues(gpu, [83]),
        lambda _: nvml.nvmlDeviceGetHandleByIndex(1),
    ):
        with pytest.raises(getattr(nvml, name)):
            call(handle)
    assert nvml.nvmlDeviceGetCount() == 4
    assert energy(nvml, gpus[2].uuid) == 3_000_000_021
    fake.heal(gpus[1].uuid)
    assert energy(nvml, gpus[1].uuid) == 2_000_000_014


def test_instances_of_a_lost_board_are_lost(fake, nvml):
    board, _ = mig_node(fake, "mig01")
    handle = nvml.nvmlDeviceGetHandleByUUID(board.instances[0].uuid)
    fake.lose(board.uuid)
    with pytest.raises(nvml.NVMLError_GpuIsLost):
        nvml.nvmlDeviceGetMemoryInfo(handle)


def test_a_hidden_symbol_looks_like_one_that_is_not_there(fake, nvml, gpus):
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(nvml.NVMLError) as really_missing:
        nvml.nvmlDeviceGetSerial(handle)
    fake.hide_symbol("nvmlDeviceGetPowerUsage")
    with pytest.raises(nvml.NVMLError) as hidden:
        nvml.nvmlDeviceGetPowerUsage(handle)
    assert type(hidden.value) is type(really_missing.value) is nvml.NVMLError_FunctionNotFound
    assert str(hidden.value) == str(really_missing.value)
    fake.show_symbol("nvmlDeviceGetPowerUsage")
    assert nvml.nvmlDeviceGetPowerUsage(handle) == 52_000


def test_a_feature_missing_on_one_device(fake, nvml, gpus):
    fake.unsupport("energy", gpus[0].uuid)
    with pytest.raises(nvml.NVMLError_NotSupported):
        energy(nvml, gpus[0].uuid)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    fields = nvml.nvmlDeviceGetFieldValues(handle, [83, 191, 186])
    assert [field.nvmlReturn for field in fields] == [3, 3, 0]
    assert energy(nvml, gpus[1].uuid) == 2_000_000_014
    fake.support("energy", gpus[0].uuid)
    assert energy(nvml, gpus[0].uuid) == 1_000_000_007


def test_any_code_for_any_function(fake, nvml, gpus):
    fake.fail("nvmlDeviceGetTemperature", 999)
    fake.fail("nvmlInitWithFlags", 18)
    with pytest.raises(nvml.NVMLError_Unknown):
        nvml.nvmlDeviceGetTemperature(nvml.nvmlDeviceGetHandleByIndex(0), 0)
    with pytest.raises(nvml.NVMLError_LibRmVersionMismatch):
        nvml.nvmlInit()
    fake.fail("nvmlInitWithFlags", 0)
    nvml.nvmlInit()


def test_the_library_has_a_text_for_its_codes(nvml):
    assert nvml.nvmlErrorString(nvml.NVML_ERROR_NO_DATA) == "No data"
    assert nvml.nvmlErrorString(12345) == "Unknown Error"


def test_a_slow_call_hangs_alone(fake, nvml, gpus):
    fake.slow("nvmlDeviceGetPowerUsage", 400)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    took = []

    def ask():
        started = time.monotonic()
        nvml.nvmlDeviceGetPowerUsage(handle)
        took.append(time.monotonic() - started)

    thread = threading.Thread(target=ask)
    thread.start()
    for _ in range(20):  # neither readers nor writers wait for it
        fake.set_temperature(gpus[0].uuid, 40)
        assert nvml.nvmlDeviceGetTemperature(handle, 0) == 40
    assert took == []
    thread.join()
    assert took[0] >= 0.4
    fake.slow("nvmlDeviceGetPowerUsage", 0)
    ask()
    assert took[1] < 0.4


def test_a_signal_does_not_end_a_hang(fake, nvml, gpus):
    fake.slow("nvmlDeviceGetPowerUsage", 300)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        started = time.monotonic()
        nvml.nvmlDeviceGetPowerUsage(handle)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - started >= 0.3
