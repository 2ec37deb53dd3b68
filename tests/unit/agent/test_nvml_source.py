# SPDX-License-Identifier: Apache-2.0
"""What the agent reads of the driver, on the fake library in this process."""

from __future__ import annotations

import msgspec
import pytest

from fairwatt.accounting.agent.nvml import NvmlSource
from fairwatt.accounting.agent.process_use import ProcessMeter
from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.events import AgentStarted, decode_event, encode_event
from tests.fakes.loaded import build_library, loaded_nvml, missing_tools
from tests.fakes.nvml_control import FakeNvml

MODULE, BOARD = "GPU-module", "GPU-board"


@pytest.fixture
def fake(tmp_path) -> FakeNvml:
    if reason := missing_tools():
        pytest.skip(reason)
    build_library()
    return FakeNvml(tmp_path / "nvml.control")


@pytest.fixture
def source(fake):
    with loaded_nvml(fake.path):
        yield NvmlSource("n1", load_catalogue())


def test_e22_the_counter_of_a_module_says_so(fake, source) -> None:
    """E22: GH200's counter covers the CPU too; the device says it, an H100 does not."""
    fake.add_gpu(0, MODULE, 0, "NVIDIA GH200 480GB", 97_871, "hopper", c2c=True)
    fake.add_gpu(1, BOARD, 1, "NVIDIA H100 80GB HBM3", 81_559, "hopper")
    module, board = source.devices()
    assert module.module_energy is True
    assert not board.module_energy


@pytest.mark.parametrize("fault", ["absent", "not offered"])
def test_a_driver_that_knows_no_modules_has_none(fake, source, fault) -> None:
    fake.add_gpu(0, MODULE, 0, "NVIDIA GH200 480GB", 97_871, "hopper", c2c=True)
    if fault == "absent":
        fake.hide_symbol("nvmlDeviceGetC2cModeInfoV")
    else:
        fake.fail("nvmlDeviceGetC2cModeInfoV", 3)
    (device,) = source.devices()
    assert not device.module_energy


def test_on_the_wire_only_a_module_is_told(fake, source) -> None:
    """What an older agent said of a board is the same to the byte, so a resend is no conflict."""
    fake.add_gpu(0, MODULE, 0, "NVIDIA GH200 480GB", 97_871, "hopper", c2c=True)
    fake.add_gpu(1, BOARD, 1, "NVIDIA H100 80GB HBM3", 81_559, "hopper")
    started = AgentStarted(
        node="n1", boot_id="b", seq=1, t_ms=1, devices=source.devices(), version="0"
    )
    line = encode_event(started)
    assert [d.get("module_energy") for d in msgspec.json.decode(line)["devices"]] == [True, None]
    assert decode_event(line) == started


def test_e23_a_board_without_a_counter_tells_its_power(fake, source) -> None:
    """E23: a P100 (Pascal) offers no energy; its power is read instead of taking 0 for it."""
    fake.add_gpu(0, BOARD, 0, "Tesla P100-PCIE-16GB", 16_280, "pascal")
    fake.set_power(BOARD, 180_000)
    source.devices()
    (sample,) = source.read([BOARD])
    assert (sample.energy_mj, sample.fault) == (None, None)
    assert sample.power_mw is not None


def test_power_is_read_beside_the_counter_with_the_extras_alone(fake, source) -> None:
    fake.add_gpu(0, BOARD, 0, "NVIDIA A100-SXM4-40GB", 40_960, "ga100", idle_mw=55_000)
    source.devices()
    (sample,) = source.read([BOARD])
    assert (sample.power_mw, sample.energy_mj is None) == (None, False)
    assert source.extras([BOARD, "GPU-unknown"], ()).powers == {BOARD: 55_000}
    fake.unsupport("power")
    assert source.extras([BOARD], ()).powers == {}
    fake.lose(BOARD)
    assert source.extras([BOARD], [BOARD]).powers == {}


def test_the_drivers_version_is_told_once_there_is_one(fake, source) -> None:
    fake.add_gpu(0, BOARD, 0, "NVIDIA A100-SXM4-40GB", 40_960, "ga100")
    assert source.driver_version() == ""
    source.devices()
    assert source.driver_version() == "580.95.05"


def test_processes_are_asked_of_shared_boards_alone_and_only_if_wished(fake, tmp_path) -> None:
    fake.add_gpu(0, BOARD, 0, "NVIDIA A100-SXM4-40GB", 40_960, "ga100")
    with loaded_nvml(fake.path):
        plain = NvmlSource("n1", load_catalogue())
        asking = NvmlSource("n1", load_catalogue(), processes=ProcessMeter(tmp_path))
        for source in (plain, asking):
            source.devices()
        assert plain.extras([BOARD], [BOARD]).jobs == {}
        assert asking.extras([BOARD], ()).jobs == {}
        assert asking.extras([BOARD], [BOARD]).jobs == {BOARD: {}}
