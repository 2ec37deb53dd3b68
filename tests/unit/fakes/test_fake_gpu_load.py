# SPDX-License-Identifier: Apache-2.0
"""The program that plays a job's load."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys

import pytest

from tests.fakes import gpu_load
from tests.fakes.machines import mig_node
from tests.lab.waiting import await_value


@pytest.fixture
def boards(fake):
    return mig_node(fake, "mig01")


@pytest.fixture
def program(tmp_path):
    """A copy of the one file, as job users see it: nothing else of the project is near."""
    return shutil.copy(gpu_load.__file__, tmp_path / "use")


def start(program, fake, uuids, seconds):
    devices = [word for uuid in uuids for word in ("--uuid", uuid)]
    options = ["--control", str(fake.path), "--watts", "40.5", "--seconds", str(seconds)]
    command = [sys.executable, "-I", "-S", str(program), *options, *devices, "--util", "80"]
    return subprocess.Popen(command)


def wait_for(condition):
    await_value(condition, what="the program to raise the power", timeout_s=20)


def powers(fake, uuid):
    lines = [line.split() for line in fake.path.read_text().splitlines()]
    return [line[2:] for line in lines if line[:2] == ["power", uuid]]


def test_power_goes_up_and_back_to_idle(fake, nvml, boards, program):
    slice_, board = boards[0].instances[0].uuid, boards[1].uuid
    assert start(program, fake, [slice_, board], 0.01).wait() == 0
    assert powers(fake, slice_) == [["1100", "40500"], ["1100", "idle"]]
    assert powers(fake, board) == [["1100", "40500"], ["1100", "idle"]]
    fake.set_clock(5_000)
    assert fake.power_mw(slice_, 5_000) == 0
    assert fake.power_mw(board, 5_000) == 60_000
    energy = nvml.nvmlDeviceGetTotalEnergyConsumption(nvml.nvmlDeviceGetHandleByIndex(1))
    assert energy == 2_000_000_014 + 4_000 * 60 == fake.energy_mj(board, 5_000)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_cancelled_program_sets_the_power_back(fake, nvml, boards, program, number):
    slice_ = boards[0].instances[3].uuid
    running = start(program, fake, [slice_], 60)
    handle = nvml.nvmlDeviceGetHandleByUUID(slice_)
    try:
        wait_for(lambda: powers(fake, slice_))
        assert [p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses(handle)] == [running.pid]
        fake.set_clock(3_000)
        running.send_signal(number)
        assert running.wait(20) == 128 + number
    finally:
        running.kill()
        running.wait()
    assert powers(fake, slice_) == [["1100", "40500"], ["3100", "idle"]]
    assert fake.integral_mj(slice_, 0, 9_000) == 2_000 * 40.5
    assert nvml.nvmlDeviceGetComputeRunningProcesses(handle) == []


def test_in_real_time_it_lasts_as_long_as_told_within_a_step(fake, boards, program):
    fake.set_clock(None)
    slice_ = boards[0].instances[0].uuid
    assert start(program, fake, [slice_], 0.3).wait() == 0
    (up_ms, _), (down_ms, _) = powers(fake, slice_)
    lasted_ms = int(down_ms) - int(up_ms)
    assert lasted_ms % 100 == 0
    assert lasted_ms >= 300
