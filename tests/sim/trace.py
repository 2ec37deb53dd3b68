# SPDX-License-Identifier: Apache-2.0
"""A quantity that is known at every millisecond: a step function and its exact integral."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence

__all__ = ["Trace", "summed"]


class Trace:
    """Steps in the order of time; before the first the value is 0, after the last it stays.

    Of power in mW the integral is µJ; of busy thousandths it is thousandths × ms.
    """

    def __init__(self, steps: Iterable[tuple[int, int]] = ()) -> None:
        self._times = array("q")
        self._values = array("q")
        self._sums = array("q")
        for t_ms, value in steps:
            self.step(t_ms, value)

    def step(self, t_ms: int, value: int) -> None:
        """Let the value be `value` from `t_ms` on; not before the last step."""
        if self._times and t_ms == self._times[-1]:
            self._values[-1] = value
            return
        assert not self._times or t_ms > self._times[-1], "steps come in the order of time"
        self._sums.append(self.area(t_ms))
        self._times.append(t_ms)
        self._values.append(value)

    def at(self, t_ms: int) -> int:
        """Return the value at a moment."""
        place = bisect_right(self._times, t_ms) - 1
        return self._values[place] if place >= 0 else 0

    def area(self, t_ms: int) -> int:
        """Return the integral from the beginning of time to `t_ms`."""
        place = bisect_right(self._times, t_ms) - 1
        if place < 0:
            return 0
        return self._sums[place] + self._values[place] * (t_ms - self._times[place])

    def between(self, t0_ms: int, t1_ms: int) -> int:
        """Return the integral over [t0_ms, t1_ms)."""
        return self.area(t1_ms) - self.area(t0_ms)

    def mean(self, t0_ms: int, t1_ms: int) -> int:
        """Return the mean over [t0_ms, t1_ms), rounded; the value there if it has no length."""
        if t1_ms <= t0_ms:
            return self.at(t0_ms)
        return round(self.between(t0_ms, t1_ms) / (t1_ms - t0_ms))

    def steps(self) -> Iterable[tuple[int, int]]:
        """Yield the steps again."""
        return zip(self._times, self._values, strict=True)


def summed(traces: Sequence[Trace]) -> Trace:
    """Return the sum of traces: a board's power of its idle power and its instances' work."""
    edges = sorted(
        (t_ms, number, value)
        for number, trace in enumerate(traces)
        for t_ms, value in trace.steps()
    )
    total, now, sum_now = Trace(), [0] * len(traces), 0
    for t_ms, number, value in edges:
        sum_now += value - now[number]
        now[number] = value
        total.step(t_ms, sum_now)
    return total
