# SPDX-License-Identifier: Apache-2.0
"""Counts how long decisions took, in steps of a microsecond, and tells their percentiles."""

from __future__ import annotations

__all__ = ["Durations"]

LIMIT_US = 4096


class Durations:
    """A histogram that costs one addition per duration; all above 4 ms count as 4,096 µs."""

    def __init__(self) -> None:
        self._counts = [0] * (LIMIT_US + 1)
        self._total = 0

    def add(self, took_us: int) -> None:
        """Count one duration, in µs."""
        self._counts[took_us if took_us < LIMIT_US else LIMIT_US] += 1
        self._total += 1

    def percentile_us(self, percent: float) -> int | None:
        """The smallest µs within which so many per cent ended; None: nothing was counted."""
        if not self._total:
            return None
        need, seen = self._total * percent / 100, 0
        for took_us, count in enumerate(self._counts):
            seen += count
            if seen and seen >= need:
                return took_us
        return LIMIT_US
