# SPDX-License-Identifier: Apache-2.0
"""Lets the fake library play what tests/gpu/probe.py measured on a real GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from tests.fakes.gpu_load import STEP_MS, ceil_step
from tests.fakes.nvml_control import FakeNvml

__all__ = ["ARCHITECTURES", "Moment", "replay"]

ARCHITECTURES = {
    2: "kepler", 3: "maxwell", 4: "pascal", 5: "volta", 6: "turing", 7: "ampere", 8: "ada",
    9: "hopper", 10: "blackwell",
}  # fmt: skip
"""NVML's numbers of generations; 7 is GA100 too, which its name tells."""
_GA100 = ("A100", "A30", "A800")

Moment = tuple[int, int]
"""When (UTC epoch ms) the real counter stood at so many mJ, in the fake's own terms."""


def replay(
    measured: Mapping[str, Any], fake: FakeNvml, uuid: str, start_ms: int
) -> dict[str, list[Moment]]:
    """Add the measured board to `fake` and let it draw what it drew, phase after phase.

    The fake's clock is stopped at `start_ms`; the phases begin there, one second apart. A sample's
    power is what the counter tells, rounded to the fake's steps of 100 ms; what the sensor showed
    of it is one number for all phases. Returns each phase's moments at which the fake's counter
    stands where the real one stood, within one step's energy.
    """
    fake.set_clock(start_ms - STEP_MS)
    _add(measured, fake, uuid)
    begin_ms, moments = ceil_step(start_ms), {}
    for phase in measured["phases"]:
        track = list(_stepped(phase["samples"]))
        moments[phase["name"]] = _play(track, fake, uuid, begin_ms)
        begin_ms += track[-1][0] + 1000
    fake.set_power_sensor(uuid, _shown(measured["phases"]))
    return moments


def _add(measured: Mapping[str, Any], fake: FakeNvml, uuid: str) -> None:
    gpu, offered = measured["gpu"], measured["offers"]
    architecture = ARCHITECTURES.get(gpu["architecture"], "hopper")
    if architecture == "ampere" and any(name in gpu["name"] for name in _GA100):
        architecture = "ga100"
    fake.add_gpu(
        gpu["index"],
        uuid,
        gpu["index"],
        gpu["name"],
        gpu["memory_mib"],
        architecture,
        max_mw=gpu["power_limit_mw"] or 400_000,
        c2c=offered["c2c"],
    )
    for feature, key in {
        "energy": "energy",
        "power": "power",
        "gpm": "gpm",
        "util": "utilisation",
    }.items():
        if not offered[key]:
            fake.unsupport(feature, uuid)
    for call in measured["calls"]:
        if call["us"]["median"] >= 1000 and call["name"] in _FUNCTIONS:
            fake.slow(_FUNCTIONS[call["name"]], round(call["us"]["median"] / 1000))


_FUNCTIONS = {
    "energy": "nvmlDeviceGetTotalEnergyConsumption",
    "power": "nvmlDeviceGetPowerUsage",
    "utilisation": "nvmlDeviceGetUtilizationRates",
    "process_utilisation": "nvmlDeviceGetProcessUtilization",
}


def _stepped(samples: Sequence[Sequence[Any]]) -> Iterator[tuple[int, int, int]]:
    """Yield (ms, mJ, %) from the first sample on, at most one for each step of the fake.

    Without a counter the energy is integrated power.
    """
    energy_uj, last_ms = 0, -STEP_MS
    before = samples[0]
    for sample in samples:
        if sample[1] is None:
            energy_uj += (before[2] + sample[2]) * (sample[0] - before[0]) // 2
        energy_mj = energy_uj // 1000 if sample[1] is None else sample[1] - samples[0][1]
        at_ms = ceil_step(sample[0] - samples[0][0])
        if at_ms > last_ms:
            yield at_ms, energy_mj, sample[3] or 0
            last_ms = at_ms
        before = sample


def _play(
    track: Sequence[tuple[int, int, int]], fake: FakeNvml, uuid: str, begin_ms: int
) -> list[Moment]:
    moments = [(begin_ms, 0)]
    for (a_ms, a_mj, percent), (b_ms, b_mj, _) in pairwise(track):
        fake.set_power(uuid, 1000 * (b_mj - a_mj) // (b_ms - a_ms), begin_ms + a_ms)
        fake.set_util(uuid, percent, at_ms=begin_ms + a_ms)
        moments.append((begin_ms + b_ms, b_mj))
    fake.set_power(uuid, 0, begin_ms + track[-1][0])
    return moments


def _shown(phases: Sequence[Mapping[str, Any]]) -> int:
    known = [p for p in phases if p["counter_mj"] and p["integrated_mj"] is not None]
    counted = sum(phase["counter_mj"] for phase in known)
    return round(1000 * sum(p["integrated_mj"] for p in known) / counted) if counted else 1000
