# SPDX-License-Identifier: Apache-2.0
"""Energy of boards without a counter: power samples integrated by the trapezoid rule."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PowerIntegrator"]

LONGEST_STEP_MS = 60_000
"""Beyond this, two samples say nothing about the time between them."""


@dataclass
class _Board:
    t_ms: int
    power_mw: int
    energy_uj: int


class PowerIntegrator:
    """Turns power samples into an ever-growing energy per device."""

    def __init__(self) -> None:
        self._boards: dict[str, _Board] = {}

    def energy_mj(self, device: str, t_ms: int, power_mw: int) -> int | None:
        """Take a sample and return the energy since the device's first one, in mJ.

        None where the sample before is missing or too old: the count begins again.
        """
        board = self._boards.get(device)
        if board is None or not 0 <= t_ms - board.t_ms <= LONGEST_STEP_MS:
            self._boards[device] = _Board(t_ms, power_mw, 0)
            return 0 if board is None else None
        board.energy_uj += (board.power_mw + power_mw) * (t_ms - board.t_ms) // 2
        board.t_ms, board.power_mw = t_ms, power_mw
        return board.energy_uj // 1000

    def forget(self, device: str) -> None:
        """Drop a device that was lost."""
        self._boards.pop(device, None)
