# SPDX-License-Identifier: Apache-2.0
"""A GPU whose true power is known: what its counter, sensor and GPM show, and what is true."""

from __future__ import annotations

from dataclasses import dataclass, field

from fairwatt.core.records import Device
from tests.sim.trace import Trace, summed

__all__ = ["STEP_MS", "SimBoard"]

STEP_MS = 100
"""The energy counter moves at every tenth of a second."""


@dataclass
class SimBoard:
    """A board draws `idle_mw`, and on each place what its work adds.

    Args:
        device: what NVML tells of it.
        idle_mw: without work; not what the catalogue says.
        draw: what the work on a place adds in mW, by UUID of the board or MIG instance.
        busy: the work on a place in thousandths.
        phase_ms: when within 100 ms its counter moves.
        resets_ms: when the counter began again at 0.
        has_counter: else only power is offered, as before Volta.
        mean_ms: over how long the power reading is a mean; 0: of the moment.
        has_gpm: whether instances tell how busy they are.
    """

    device: Device
    idle_mw: int
    draw: dict[str, Trace]
    busy: dict[str, Trace]
    phase_ms: int = 0
    base_mj: int = 0
    resets_ms: list[int] = field(default_factory=list)
    has_counter: bool = True
    mean_ms: int = 1_000
    has_gpm: bool = True

    def __post_init__(self) -> None:
        self.power = summed([Trace([(0, self.idle_mw)]), *self.draw.values()])

    def counter_mj(self, t_ms: int) -> int:
        """Return what the energy counter shows."""
        step_ms = t_ms - (t_ms - self.phase_ms) % STEP_MS
        resets = [at_ms for at_ms in self.resets_ms if at_ms <= t_ms]
        if not resets:
            return self.base_mj + self.power.area(step_ms) // 1000
        return self.power.between(resets[-1], max(resets[-1], step_ms)) // 1000

    def power_mw(self, t_ms: int) -> int:
        """Return what the power sensor shows."""
        return self.power.mean(t_ms - self.mean_ms, t_ms)

    def used_mj(self, place: str, part: float, t0_ms: int, t1_ms: int) -> float:
        """Return what a run on `place` with `part` of the board really used in [t0_ms, t1_ms).

        Its own work, and of the idle power the part that it keeps from others.
        """
        idle_uj = self.idle_mw * (t1_ms - t0_ms) * part
        return (self.draw[place].between(t0_ms, t1_ms) + idle_uj) / 1000
