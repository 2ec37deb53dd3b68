# SPDX-License-Identifier: Apache-2.0
"""Is the board as fast as it should be? Throttling, PCIe, NVLink, clocks, power limit, heat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fairwatt.prolog.health.judge import Params, Problem
from fairwatt.prolog.health.reading import Gpu, Reading

__all__ = [
    "REASONS",
    "clocks_low",
    "hot",
    "nvlink_down",
    "nvlink_errors",
    "pcie_generation",
    "pcie_width",
    "power_limit",
    "throttled",
]

REASONS: Mapping[str, int] = {
    "idle": 0x1,
    "app_clocks": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "hw_power_brake": 0x80,
    "display_clocks": 0x100,
}
"""NVML's reasons for clocks below the highest, by the names that `throttled` takes."""
_WANTED = REASONS["idle"] | REASONS["app_clocks"] | REASONS["sw_power_cap"] | REASONS["sync_boost"]
"""Reasons that are nobody's fault: clocks that are low for one of these are not judged."""


def throttled(reading: Reading, params: Params) -> Iterator[Problem]:
    """Boards slowed down for one of `reasons`."""
    for gpu in reading.answering():
        found = [name for name in params["reasons"] if (gpu.throttle or 0) & REASONS.get(name, 0)]
        if found:
            yield Problem(gpu.uuid, ",".join(found), f"slowed down: {', '.join(found)}")


def pcie_width(reading: Reading, params: Params) -> Iterator[Problem]:
    """Links with fewer lanes than `least`, or than are possible."""
    for gpu in reading.answering():
        if gpu.pcie is None:
            continue
        least = params["least"] or gpu.pcie.width_max
        if gpu.pcie.width < least:
            value = f"x{gpu.pcie.width} < x{least}"
            yield Problem(gpu.uuid, value, f"PCIe has {gpu.pcie.width} lanes of {least}")


def pcie_generation(reading: Reading, params: Params) -> Iterator[Problem]:
    """Links of a generation below `least`, or below the highest possible, on busy boards."""
    for gpu in reading.answering():
        if gpu.pcie is None or not _is_busy(gpu, params["busy_percent"]):
            continue
        least = params["least"] or gpu.pcie.generation_max
        if gpu.pcie.generation < least:
            value = f"gen {gpu.pcie.generation} < {least}"
            text = f"PCIe generation {gpu.pcie.generation} of {least} under load"
            yield Problem(gpu.uuid, value, text)


def _is_busy(gpu: Gpu, percent: int) -> bool:
    busy = gpu.clocks.busy_percent if gpu.clocks else None
    return busy is not None and busy >= percent


def nvlink_down(reading: Reading, _params: Params) -> Iterator[Problem]:
    """Boards with fewer links up than the baseline's, or than the others of their name have.

    A board that is cut is not judged: MIG takes it off NVLink.
    """
    recorded = reading.expected.links if reading.expected else {}
    best: dict[str, int] = {}
    boards = [gpu for gpu in reading.answering() if not gpu.instances]
    for gpu in boards:
        best[gpu.name] = max(best.get(gpu.name, 0), _links_up(gpu))
    for gpu in boards:
        wanted = recorded.get(gpu.uuid, best[gpu.name])
        if gpu.links is not None and _links_up(gpu) < wanted:
            value = f"{_links_up(gpu)} < {wanted}"
            yield Problem(gpu.uuid, value, f"{_links_up(gpu)} of {wanted} NVLinks are up")


def _links_up(gpu: Gpu) -> int:
    return sum(link.active for link in gpu.links or ())


def nvlink_errors(reading: Reading, params: Params) -> Iterator[Problem]:
    """Boards whose links counted more errors than `over`."""
    for gpu in reading.answering():
        count = sum(link.errors or 0 for link in gpu.links or () if link.active)
        if count > params["over"]:
            yield Problem(gpu.uuid, str(count), f"{count} NVLink errors")


def clocks_low(reading: Reading, params: Params) -> Iterator[Problem]:
    """Busy boards with an SM clock below `least_percent` of the highest for no wanted reason."""
    for gpu in reading.answering():
        clocks = gpu.clocks
        if clocks is None or gpu.throttle is None or gpu.throttle & _WANTED:
            continue
        least_mhz = clocks.sm_max_mhz * params["least_percent"] / 100
        if _is_busy(gpu, params["busy_percent"]) and clocks.sm_mhz < least_mhz:
            value = f"{clocks.sm_mhz} MHz"
            text = f"{clocks.sm_mhz} MHz of {clocks.sm_max_mhz} under load"
            yield Problem(gpu.uuid, value, text)


def power_limit(reading: Reading, params: Params) -> Iterator[Problem]:
    """Boards with a power limit below the baseline's or the default."""
    recorded = reading.expected.limits_mw if reading.expected else {}
    for gpu in reading.answering():
        if gpu.power is None:
            continue
        wanted_mw = recorded.get(gpu.uuid, gpu.power.default_mw)
        if gpu.power.limit_mw < wanted_mw * (100 - params["tolerance_percent"]) / 100:
            is_w, wanted_w = gpu.power.limit_mw // 1000, wanted_mw // 1000
            text = f"power limit {is_w} W where {wanted_w} W is meant"
            yield Problem(gpu.uuid, f"{is_w} W < {wanted_w} W", text)


def hot(reading: Reading, params: Params) -> Iterator[Problem]:
    """Boards within `margin_c` of their slowdown point, or above `over_c` where it is unknown."""
    for gpu in reading.answering():
        heat = gpu.temperature
        if heat is None:
            continue
        known = heat.slowdown_c
        limit_c = params["over_c"] if known is None else known - params["margin_c"]
        if heat.now_c >= limit_c:
            yield Problem(gpu.uuid, f"{heat.now_c} C", f"{heat.now_c} C, limit {limit_c} C")
