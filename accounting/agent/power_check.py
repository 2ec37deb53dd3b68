# SPDX-License-Identifier: Apache-2.0
"""Whether a board's energy counter agrees with its power sensor. Pure.

On some cards, consumer ones above all, the counter is far off, mostly when idle. Both are of the
same sensor, so that agreement proves little; disagreement tells that one of the two is wrong.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

from fairwatt.core.events import Flag

__all__ = ["PERIOD_MS", "PowerCheck", "bound_mj"]

PERIOD_MS = 120_000
LEAST_SAMPLES = 12
LONGEST_STEP_MS = 60_000
"""Beyond this, two samples say nothing about the time between them."""
BOUND_RATIO = 0.15
BOUND_MW = 10_000
BOUND_ERRORS = 4
_log = logging.getLogger(__name__)


@dataclass
class _Period:
    t0_ms: int
    e0_mj: int
    t_ms: int
    energy_mj: int
    power_mw: int
    integral_uj: int = 0
    count: int = 1
    sum_mw: int = 0
    squares: int = 0


def bound_mj(integrated_mj: float, span_ms: int, error_mw: float) -> float:
    """Return by how much counter and integrated power may differ over `span_ms`.

    The largest of 15 % of what was integrated, 10 W, and four standard errors of the samples'
    mean (`error_mw`): power that changes between samples is no fault of the counter.
    """
    by_power = max(BOUND_MW, BOUND_ERRORS * error_mw) * span_ms / 1000
    return max(BOUND_RATIO * integrated_mj, by_power)


class PowerCheck:
    """Judges each board every two minutes; a verdict holds until the next one."""

    def __init__(self) -> None:
        self._periods: dict[str, _Period] = {}
        self._doubtful: dict[str, str] = {}

    def add(self, device: str, t_ms: int, energy_mj: int, power_mw: int) -> None:
        """Take counter and power as read together."""
        period = self._periods.get(device)
        if (
            period is None
            or energy_mj < period.energy_mj
            or not 0 <= t_ms - period.t_ms <= LONGEST_STEP_MS
        ):
            self._periods[device] = _started(t_ms, energy_mj, power_mw)
            return
        period.integral_uj += (period.power_mw + power_mw) * (t_ms - period.t_ms) // 2
        period.t_ms, period.energy_mj, period.power_mw = t_ms, energy_mj, power_mw
        period.count += 1
        period.sum_mw += power_mw
        period.squares += power_mw * power_mw
        if t_ms - period.t0_ms >= PERIOD_MS and period.count >= LEAST_SAMPLES:
            self._judge(device, period)
            self._periods[device] = _started(t_ms, energy_mj, power_mw)

    def flag(self, device: str) -> Flag:
        """Return DISAGREES where the last verdict on a board says so."""
        return Flag.DISAGREES if device in self._doubtful else Flag(0)

    def status(self) -> dict[str, str]:
        """Return what is wrong with which boards, in words."""
        return dict(self._doubtful)

    def _judge(self, device: str, period: _Period) -> None:
        counted_mj = period.energy_mj - period.e0_mj
        integrated_mj = period.integral_uj / 1000
        span_ms = period.t_ms - period.t0_ms
        if abs(counted_mj - integrated_mj) <= bound_mj(integrated_mj, span_ms, _error_mw(period)):
            if self._doubtful.pop(device, None) is not None:
                _log.info("%s: energy counter and power agree again", device)
            return
        told = device in self._doubtful
        self._doubtful[device] = (
            f"counter {counted_mj / span_ms:.0f} W, power sensor {integrated_mj / span_ms:.0f} W"
        )
        if not told:
            _log.warning("%s: its energy is doubtful: %s", device, self._doubtful[device])


def _started(t_ms: int, energy_mj: int, power_mw: int) -> _Period:
    return _Period(
        t_ms, energy_mj, t_ms, energy_mj, power_mw, sum_mw=power_mw, squares=power_mw * power_mw
    )


def _error_mw(period: _Period) -> float:
    """Return the standard error of the samples' mean."""
    mean = period.sum_mw / period.count
    variance = max(0.0, period.squares / period.count - mean * mean)
    return math.sqrt(variance / (period.count - 1))
