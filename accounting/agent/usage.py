# SPDX-License-Identifier: Apache-2.0
"""Mean utilisation of each device and instance since its window opened, weighted by time."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["Usage"]


class Usage:
    """Collects samples in thousandths; a sample speaks for the time since the one before it."""

    def __init__(self) -> None:
        self._marks: dict[str, int] = {}
        self._sums: dict[str, dict[str, tuple[int, int]]] = {}

    def open(self, device: str, t_ms: int) -> None:
        """Begin a window of `device`: forget its samples."""
        self._marks[device] = t_ms
        self._sums[device] = {}

    def add(self, device: str, t_ms: int, utils: Mapping[str, int]) -> None:
        """Take one sample by instance UUID ("" = board) at `t_ms`."""
        dt_ms = t_ms - self._marks.get(device, t_ms)
        if dt_ms <= 0:
            return
        self._marks[device] = t_ms
        sums = self._sums.setdefault(device, {})
        for instance, permille in utils.items():
            weighted, known_ms = sums.get(instance, (0, 0))
            sums[instance] = (weighted + permille * dt_ms, known_ms + dt_ms)

    def means(self, device: str) -> dict[str, int]:
        """Return the mean of each instance that has samples; the others are unknown."""
        return {
            instance: (2 * weighted + known_ms) // (2 * known_ms)
            for instance, (weighted, known_ms) in self._sums.get(device, {}).items()
        }
