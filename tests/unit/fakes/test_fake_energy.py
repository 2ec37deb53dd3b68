# SPDX-License-Identifier: Apache-2.0
"""The fake counter against the integral of power, by hand."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.loaded import loaded_nvml
from tests.fakes.machines import a100_node, mig_node
from tests.fakes.nvml_control import FakeNvml


def add(fake, arch="ampere", uuid="GPU-a", index=0, **more):
    fake.add_gpu(index, uuid, index, "A Board", 1024, arch, idle_mw=50_000, **more)


def counter(nvml, uuid="GPU-a"):
    return nvml.nvmlDeviceGetTotalEnergyConsumption(nvml.nvmlDeviceGetHandleByUUID(uuid))


@pytest.mark.parametrize(
    ("t_ms", "expected_mj"),
    [
        (1_000, 0),
        (1_099, 0),  # the counter moves every 100 ms
        (1_100, 5_000),  # 50 W for 0.1 s
        (1_199, 5_000),
        (1_200, 35_000),  # and 300 W for 0.1 s
        (2_100, 305_000),
    ],
)
def test_the_counter_is_the_integral_up_to_the_last_whole_step(fake, nvml, t_ms, expected_mj):
    add(fake)
    assert fake.set_power("GPU-a", 300_000) == 1_100
    fake.set_clock(t_ms)
    assert counter(nvml) == expected_mj == fake.energy_mj("GPU-a", t_ms)


def test_a_three_second_job_at_300_w_uses_900_joules(fake, nvml):
    add(fake, counter_start_mj=77)
    fake.set_clock(60_050)
    start_ms = fake.set_power("GPU-a", 300_000)
    end_ms = fake.set_power("GPU-a", 50_000, at_ms=start_ms + 3_000)
    fake.set_clock(start_ms)
    before = counter(nvml)
    fake.set_clock(end_ms)
    assert counter(nvml) - before == 900_000
    assert before == 77 + 59_100 * 50
    assert fake.integral_mj("GPU-a", start_ms, end_ms) == 900_000


def test_a_mig_board_counts_its_base_and_what_its_instances_add(fake, nvml):
    small, _ = mig_node(fake, "mig01")
    fake.set_power(small.instances[0].uuid, 80_000, at_ms=2_000)
    fake.set_power(small.instances[2].uuid, 160_000, at_ms=2_000)
    fake.set_clock(2_000)
    before = counter(nvml, small.uuid)
    fake.set_clock(2_000 + 3_600_000)
    assert counter(nvml, small.uuid) - before == 1_080_000_000  # 300 W for 1 h
    assert fake.integral_mj(small.instances[2].uuid, 2_000, 3_602_000) == 576_000_000
    assert fake.power_mw(small.uuid, 2_000) == 300_000


def test_an_instance_has_neither_energy_nor_power(fake, nvml):
    small, _ = mig_node(fake, "mig01")
    instance = nvml.nvmlDeviceGetHandleByUUID(small.instances[0].uuid)
    for call in (nvml.nvmlDeviceGetTotalEnergyConsumption, nvml.nvmlDeviceGetPowerUsage):
        with pytest.raises(nvml.NVMLError_NotSupported):
            call(instance)
    fields = nvml.nvmlDeviceGetFieldValues(instance, [83, 185, 186, 191])
    assert [field.nvmlReturn for field in fields] == [3, 3, 3, 3]


def test_before_volta_there_is_no_counter(fake, nvml):
    add(fake, arch="pascal")
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
    assert nvml.nvmlDeviceGetPowerUsage(gpu) == 50_000
    energy, instant = nvml.nvmlDeviceGetFieldValues(gpu, [83, 186])
    assert (energy.nvmlReturn, instant.nvmlReturn, instant.value.uiVal) == (3, 0, 50_000)


@pytest.mark.parametrize(
    ("arch", "expected_mw"),
    [
        ("pascal", 450_000),
        ("volta", 450_000),
        ("ga100", 450_000),  # instantaneous
        ("ampere", 250_000),  # half a second at 50 W, half at 450 W
        ("hopper", 250_000),
    ],
)
def test_power_is_a_one_second_mean_except_on_ga100_and_older(fake, nvml, arch, expected_mw):
    add(fake, arch=arch)
    fake.set_power("GPU-a", 450_000, at_ms=3_000)
    fake.set_clock(3_500)
    assert nvml.nvmlDeviceGetPowerUsage(nvml.nvmlDeviceGetHandleByIndex(0)) == expected_mw


def test_the_mean_does_not_reach_back_before_the_board_was_there(fake, nvml):
    add(fake)
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetPowerUsage(gpu) == 50_000
    fake.set_clock(1_300)
    assert nvml.nvmlDeviceGetPowerUsage(gpu) == 50_000


def test_each_field_value_carries_its_own_code(fake, nvml):
    add(fake, arch="ga100", counter_start_mj=3)
    add(fake, arch="hopper", uuid="GPU-h", index=1)
    fake.set_power("GPU-h", 250_000, at_ms=2_000)
    fake.set_clock(2_500)
    ids = [83, 191, 185, 186, 9_999, (186, 2), (186, 7)]
    ga100 = nvml.nvmlDeviceGetFieldValues(nvml.nvmlDeviceGetHandleByIndex(0), ids)
    assert [value.nvmlReturn for value in ga100] == [0, 0, 3, 0, 3, 3, 2]
    assert ga100[0].value.ullVal == ga100[1].value.ullVal == 75_003
    hopper = nvml.nvmlDeviceGetFieldValues(nvml.nvmlDeviceGetHandleByIndex(1), ids)
    assert [value.nvmlReturn for value in hopper] == [0, 0, 0, 0, 3, 3, 2]
    assert hopper[2].value.uiVal == 150_000
    assert hopper[3].value.uiVal == 250_000
    assert hopper[0].valueType == nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
    assert hopper[3].valueType == nvml.NVML_VALUE_TYPE_UNSIGNED_INT


def test_the_module_scope_exists_on_c2c_modules_only(fake, nvml):
    add(fake, arch="hopper", c2c=True)
    add(fake, arch="hopper", uuid="GPU-h", index=1)
    module = (nvml.NVML_FI_DEV_POWER_INSTANT, nvml.NVML_POWER_SCOPE_MODULE)
    codes = [
        nvml.nvmlDeviceGetFieldValues(nvml.nvmlDeviceGetHandleByIndex(index), [module])[
            0
        ].nvmlReturn
        for index in (0, 1)
    ]
    assert codes == [0, 3]


def test_a_reset_restarts_one_counter_at_its_time(fake, nvml):
    one, two, *_ = a100_node(fake, "gpu01")
    at_ms = fake.reset(one.uuid, at_ms=5_000)
    assert at_ms == 5_000
    fake.set_clock(4_999)
    assert counter(nvml, one.uuid) == 1_000_000_007 + 3_900 * 52
    fake.set_clock(5_000)
    assert counter(nvml, one.uuid) == 0
    fake.set_clock(5_150)
    assert counter(nvml, one.uuid) == 5_200 == fake.energy_mj(one.uuid, 5_150)
    assert counter(nvml, two.uuid) == 2_000_000_014 + 4_100 * 52
    assert fake.integral_mj(one.uuid, 1_000, 5_100) == 4_100 * 52


def test_loading_the_driver_restarts_all_counters(fake, nvml):
    one, two, *_ = a100_node(fake, "gpu01")
    fake.set_clock(9_970)
    fake.driver(loaded=False)
    fake.driver(loaded=True)
    nvml.nvmlInit()
    assert counter(nvml, one.uuid) == 0
    fake.set_clock(10_000)
    assert counter(nvml, one.uuid) == counter(nvml, two.uuid) == 30 * 52
    assert fake.energy_mj(two.uuid, 10_000) == 1_560


def test_the_past_cannot_be_set(fake):
    add(fake)
    fake.set_clock(10_000)
    assert fake.set_power("GPU-a", 99_000, at_ms=2_000) == 10_100
    assert fake.set_power("GPU-a", 99_000, at_ms=10_101) == 10_200
    assert fake.power_mw("GPU-a", 10_099) == 50_000


def test_the_later_written_of_two_powers_for_one_time_wins(fake, nvml):
    add(fake)
    fake.set_power("GPU-a", 100_000)
    fake.set_power("GPU-a", 200_000)
    fake.set_clock(2_100)
    assert counter(nvml) == 5_000 + 200_000 == fake.energy_mj("GPU-a", 2_100)


@pytest.mark.parametrize("parent", ["GPU-none", "MIG-none"])
def test_an_unknown_uuid_is_not_found(fake, nvml, parent):
    with pytest.raises(nvml.NVMLError_NotFound):
        nvml.nvmlDeviceGetHandleByUUID(parent)


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["base", "one", "two", "reset", "driver", "go"]),
        st.integers(0, 700_000),
        st.integers(0, 5_000),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(events=EVENTS, start_mj=st.integers(0, 10**12))
def test_library_and_truth_agree_to_the_millijoule(library, events, start_mj):
    with tempfile.TemporaryDirectory() as folder:
        fake = FakeNvml(Path(folder) / "control")
        fake.set_clock(now_ms := 123)
        fake.add_gpu(0, "GPU-a", 0, "B", 1, "hopper", True, 61_337, counter_start_mj=start_mj)
        for gi in (1, 2):
            fake.add_instance("GPU-a", gi, 0, f"MIG-{gi}", "3g.40gb", 3, 1, 60)
        with loaded_nvml(fake.path) as nvml:
            for what, number, later_ms in events:
                match what:
                    case "base":
                        fake.set_power("GPU-a", number, now_ms + later_ms)
                    case "one" | "two":
                        fake.set_power(f"MIG-{1 + (what == 'two')}", number, now_ms + later_ms)
                    case "reset":
                        fake.reset("GPU-a", now_ms + later_ms)
                    case "driver":
                        fake.driver(loaded=False)
                        fake.driver(loaded=True)
                    case "go":
                        fake.set_clock(now_ms := now_ms + later_ms)
                nvml.nvmlInit()
                assert counter(nvml) == fake.energy_mj("GPU-a", now_ms)


def test_a_query_without_news_is_quick(fake, nvml):
    mig_node(fake, "mig01")
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    for second in range(500):
        fake.set_power(
            gpu_uuid := nvml.nvmlDeviceGetUUID(gpu), 60_000 + second, at_ms=second * 1_000
        )
    assert fake.power_mw(gpu_uuid, 499_000) == 60_499

    def microseconds():
        started = time.perf_counter()
        for _ in range(200):
            nvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
        return (time.perf_counter() - started) / 200 * 1e6

    assert min(microseconds() for _ in range(10)) < 20
