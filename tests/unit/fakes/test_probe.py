# SPDX-License-Identifier: Apache-2.0
"""The probe of real GPUs, run on the fake library, and its result played by the fake library."""

from __future__ import annotations

import doctest
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairwatt.accounting.agent.power_check import PowerCheck
from tests.fakes.probe_replay import replay
from tests.gpu import probe

ROOT = Path(__file__).parents[3]
PROBE = ROOT / "tests" / "gpu" / "probe.py"
HAND_MADE = json.loads((ROOT / "tests" / "data" / "probe" / "hand-made.json").read_text())
START_MS = 1_800_000_000_000


def probed(env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script as on a real machine."""
    return subprocess.run(
        [sys.executable, str(PROBE), *arguments], env={**os.environ, **env}, text=True,
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip


def test_without_a_gpu_it_says_why_and_skips(library) -> None:
    done = probed({"LD_LIBRARY_PATH": str(library.parent), "FAIRWATT_FAKE_NVML": "/no/control"})
    assert (done.returncode, done.stderr) == (77, "")
    assert done.stdout == "no GPU to probe: Driver Not Loaded\n"


def test_a_board_without_a_fault_measures_as_the_fake_made_it(fake, tmp_path) -> None:
    fake.set_clock(None)
    fake.add_gpu(0, "GPU-1", 0, "NVIDIA H100 80GB HBM3", 81_559, "hopper", idle_mw=70_000)
    out = tmp_path / "probe.json"
    done = probed(fake.env, "--seconds", "1.2", "--out", str(out))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    told = json.loads(out.read_text())
    assert told.keys() == HAND_MADE.keys()
    assert told["offers"] == HAND_MADE["offers"]
    assert told["gpu"].keys() == HAND_MADE["gpu"].keys()
    assert "GPU-1" not in out.read_text()
    step = told["step"]["idle"]
    assert step["moves"] >= 5
    assert step["mj"]["median"] == 7_000
    assert 50 < step["ms"]["median"] < 200
    (idle,) = told["phases"]
    assert all(sample[2] == 70_000 for sample in idle["samples"])
    assert abs(idle["difference_permille"]) < 200  # a step more or less at either end
    assert told["load_fault"]  # there is no CUDA behind the fake
    assert {"energy", "power", "gpm_sample"} <= {call["name"] for call in told["calls"]}
    assert told["agent"]["gpus"] == 1
    assert told["agent"]["sample"]["cpu_us"] > 0


def test_its_result_is_played_by_the_fake(fake, nvml) -> None:
    """The fake's counter stands where the recorded one stood, phase by phase."""
    moments = replay(HAND_MADE, fake, "GPU-1", START_MS)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetName(handle) == HAND_MADE["gpu"]["name"]
    for phase in HAND_MADE["phases"]:
        track = moments[phase["name"]]
        assert len(track) == len(phase["samples"])
        assert track[-1][1] == phase["counter_mj"]
        shown = []
        for t_ms, _ in track:
            fake.set_clock(t_ms)
            shown.append(nvml.nvmlDeviceGetTotalEnergyConsumption(handle))
        recorded = [sample[1] - phase["samples"][0][1] for sample in phase["samples"]]
        assert all(
            abs(counter - shown[0] - mj) <= 2 for counter, mj in zip(shown, recorded, strict=True)
        )
    # 2 % less is shown than counted, a second's mean on this generation.
    fake.set_clock(moments["load"][-1][0])
    assert abs(nvml.nvmlDeviceGetPowerUsage(handle) - 600_000 * 0.98) < 15_000
    assert nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice


def test_a_recorded_contradiction_is_found_in_the_replay(fake, nvml) -> None:
    """An idle card whose sensor shows 20 W while its counter runs at 60 W, 100 ms a sample."""
    samples = [[100 * n, 6_000 * n, 20_000, 0] for n in range(1_300)]
    idle = {"name": "idle", "counter_mj": samples[-1][1], "integrated_mj": samples[-1][1] // 3}
    measured = {**HAND_MADE, "phases": [{**idle, "samples": samples[::100]}], "calls": []}
    (track,) = replay(measured, fake, "GPU-1", START_MS).values()
    handle, check = nvml.nvmlDeviceGetHandleByIndex(0), PowerCheck()
    for t_ms in range(track[0][0], track[-1][0], 5_000):
        fake.set_clock(t_ms)
        energy_mj = nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        check.add("GPU-1", t_ms, energy_mj, nvml.nvmlDeviceGetPowerUsage(handle))
    assert check.flag("GPU-1") == 0  # 120 s are not full yet
    fake.set_clock(track[-1][0])
    energy_mj = nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    check.add("GPU-1", track[-1][0], energy_mj, nvml.nvmlDeviceGetPowerUsage(handle))
    assert check.flag("GPU-1")


def test_what_a_board_does_not_offer_the_replay_does_not_offer(fake, nvml) -> None:
    """A P100: power alone; the energy played is what its power adds up to."""
    phases = [
        {"name": "idle", "counter_mj": None, "integrated_mj": 18_000,
         "samples": [[0, None, 180_000, 0], [100, None, 180_000, 0]]}
    ]  # fmt: skip
    gpu = {**HAND_MADE["gpu"], "name": "Tesla P100-PCIE-16GB", "architecture": 4}
    offers = {**HAND_MADE["offers"], "energy": False, "gpm": False}
    measured = {**HAND_MADE, "gpu": gpu, "offers": offers, "phases": phases}
    moments = replay(measured, fake, "GPU-1", START_MS)
    assert moments["idle"][-1][1] == 18_000
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    fake.set_clock(START_MS)
    assert nvml.nvmlDeviceGetPowerUsage(handle) == 180_000
    for absent in (nvml.nvmlDeviceGetTotalEnergyConsumption, nvml.nvmlGpmQueryDeviceSupport):
        with pytest.raises(nvml.NVMLError):
            absent(handle)


def test_examples_of_the_probe() -> None:
    assert doctest.testmod(probe).failed == 0
