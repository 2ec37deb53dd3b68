# SPDX-License-Identifier: Apache-2.0
"""Utilisation, clock and used memory of each device since its window opened, by time."""

from __future__ import annotations

from collections.abc import Mapping

from fairwatt.core.events import GpuMemory

__all__ = ["BUSY_PERMILLE", "Usage"]

BUSY_PERMILLE = 100
"""From this utilisation on a clock says something: a GPU without work lowers it."""

_Sum = tuple[int, int]
"""Value × ms, and ms."""


class Usage:
    """Collects samples; a sample speaks for the time since the one before it."""

    def __init__(self) -> None:
        self._marks: dict[str, int] = {}
        self._sums: dict[str, dict[str, _Sum]] = {}
        self._clocks: dict[str, _Sum] = {}
        self._memory: dict[str, dict[str, _Sum]] = {}
        self._peaks: dict[tuple[str, str], int] = {}

    def open(self, device: str, t_ms: int) -> None:
        """Begin a window of `device`: forget its samples."""
        self._marks[device] = t_ms
        self._sums[device] = {}
        self._clocks.pop(device, None)
        for instance in self._memory.pop(device, {}):
            del self._peaks[device, instance]

    def add(
        self,
        device: str,
        t_ms: int,
        utils: Mapping[str, int],
        clock_mhz: int | None = None,
        used_mib: Mapping[str, int] | None = None,
    ) -> None:
        """Take one sample at `t_ms`: thousandths by instance UUID ("" = board), the SM clock.

        `used_mib` is the memory in use, by instance too.
        """
        dt_ms = t_ms - self._marks.get(device, t_ms)
        if dt_ms <= 0:
            return
        self._marks[device] = t_ms
        sums = self._sums.setdefault(device, {})
        for instance, permille in utils.items():
            sums[instance] = _more(sums.get(instance), permille, dt_ms)
        if clock_mhz is not None and max(utils.values(), default=0) >= BUSY_PERMILLE:
            self._clocks[device] = _more(self._clocks.get(device), clock_mhz, dt_ms)

        memory = self._memory.setdefault(device, {})
        for instance, mib in (used_mib or {}).items():
            memory[instance] = _more(memory.get(instance), mib, dt_ms)
            self._peaks[device, instance] = max(mib, self._peaks.get((device, instance), 0))

    def means(self, device: str) -> dict[str, int]:
        """Return the mean of each instance that has samples; the others are unknown."""
        return {instance: _mean(*one) for instance, one in self._sums.get(device, {}).items()}

    def clock_mhz(self, device: str) -> int | None:
        """Return the mean SM clock of the device's busy samples, None without one."""
        return _mean(*self._clocks[device]) if device in self._clocks else None

    def memory(self, device: str) -> tuple[GpuMemory, ...]:
        """Return largest and mean memory in use of each instance that has samples."""
        return tuple(
            GpuMemory(
                instance=instance,
                max_mib=self._peaks[device, instance],
                mean_mib=_mean(*self._memory[device][instance]),
            )
            for instance in sorted(self._memory.get(device, {}))
        )


def _more(before: _Sum | None, value: int, dt_ms: int) -> _Sum:
    weighted, known_ms = before or (0, 0)
    return weighted + value * dt_ms, known_ms + dt_ms


def _mean(weighted: int, known_ms: int) -> int:
    return (2 * weighted + known_ms) // (2 * known_ms)
