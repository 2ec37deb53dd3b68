# SPDX-License-Identifier: Apache-2.0
"""A clock for the real agent's loop that leaps over every wait: days of its work in minutes.

Where the loop would sleep until its next timer, the clocks are set forward instead. While one of
its threads is at work nothing leaps: that work takes its real time.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable
from typing import Any

__all__ = ["LeapingClock"]

LONGEST_WORK_S = 5.0


class LeapingClock:
    """Stands in for time.monotonic, time.time_ns and selectors.DefaultSelector.

    Attributes:
        leapt_s: how far the clocks were set forward so far.
        on_leap: is called after each leap, in the loop's thread.
    """

    def __init__(self) -> None:
        self.leapt_s = 0.0
        self.on_leap: Callable[[], None] = lambda: None
        self._monotonic, self._time_ns = time.monotonic, time.time_ns

    def install(self) -> None:
        """Replace the clocks of this process; before the agent's modules are imported."""
        clock = self

        class Leaping(selectors.EpollSelector):
            """Leaps in place of a sleep."""

            def select(self, timeout: float | None = None) -> Any:
                if _at_work(self):
                    return super().select(LONGEST_WORK_S)
                ready = super().select(0)
                if not ready and timeout:
                    clock.leapt_s += timeout
                    clock.on_leap()
                return ready

        vars(time).update(monotonic=self.monotonic, time_ns=self.time_ns)
        vars(selectors).update(DefaultSelector=Leaping)

    def monotonic(self) -> float:
        """Seconds on the monotonic clock."""
        return self._monotonic() + self.leapt_s

    def time_ns(self) -> int:
        """Nanoseconds since the epoch."""
        return self._time_ns() + int(self.leapt_s * 1e9)


def _at_work(selector: selectors.BaseSelector) -> bool:
    """Whether a thread of the agent (a Worker) has something to do."""
    keys = selector.get_map().values()
    return any(getattr(key.fileobj, "outstanding", 0) for key in keys)
