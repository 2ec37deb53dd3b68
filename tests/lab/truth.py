# SPDX-License-Identifier: Apache-2.0
"""What each run must have used, from the fake device's schedule alone.

Independent of the ledger: real numbers, one segment between two cuts at a time, no windows,
no remainders. Only the times at which jobs began and ended on the node, and the board's idle
power, are taken from outside.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Protocol

STEP_MS = 100
"""The energy counter moves once in 100 ms."""


class Counter(Protocol):
    """The fake device's truth."""

    def energy_mj(self, gpu_uuid: str, t_ms: int) -> int:
        """The counter at a time, in mJ."""


@dataclass(frozen=True)
class Hold:
    """One run's hold on one device, with the times of its first and last reading."""

    run: tuple[str, int, int]
    device: str
    fraction: float
    start_ms: int
    end_ms: int


def expected_mj(
    fake: Counter, holds: list[Hold], idle_mw: float
) -> dict[tuple[str, int, int], float]:
    """Return each run's energy on one device in mJ, idle part by reserved fraction, active by use.

    All holds must be of the same device.
    """
    energy: dict[tuple[str, int, int], float] = {hold.run: 0.0 for hold in holds}
    cuts = sorted({edge for hold in holds for edge in (hold.start_ms, hold.end_ms)})
    for t0, t1 in itertools.pairwise(cuts):
        present = [hold for hold in holds if hold.start_ms <= t0 and hold.end_ms >= t1]
        delta = fake.energy_mj(holds[0].device, t1) - fake.energy_mj(holds[0].device, t0)
        idle = min(delta, idle_mw * (t1 - t0) / 1000)
        held = sum(hold.fraction for hold in present)
        for hold in present:
            energy[hold.run] += idle * hold.fraction + (delta - idle) * hold.fraction / held
    return energy


def edge_tolerance_mj(fake: Counter, hold: Hold) -> float:
    """Return the energy of one counter step at either end of a hold, in mJ."""
    return sum(_step_mj(fake, hold.device, t_ms) for t_ms in (hold.start_ms, hold.end_ms))


def _step_mj(fake: Counter, device: str, t_ms: int) -> float:
    """The larger of the steps just before and just after `t_ms`."""
    before = fake.energy_mj(device, t_ms) - fake.energy_mj(device, t_ms - STEP_MS)
    after = fake.energy_mj(device, t_ms + STEP_MS) - fake.energy_mj(device, t_ms)
    return max(before, after, 1)
