# SPDX-License-Identifier: Apache-2.0
"""Named moments at which the daemon has something to do."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Timers", "next_border_ms"]


class Timers:
    """At most one due moment per name, on the monotonic clock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: dict[str, tuple[float, Callable[[], None]]] = {}

    def set(self, name: str, delay_s: float, action: Callable[[], None]) -> None:
        """Plan `action` in `delay_s` seconds, in place of what `name` had planned."""
        self._due[name] = (self._clock() + delay_s, action)

    def hasten(self, name: str, delay_s: float, action: Callable[[], None]) -> None:
        """As `set`, unless `name` is due sooner already."""
        if name not in self._due or self._due[name][0] > self._clock() + delay_s:
            self.set(name, delay_s, action)

    def cancel(self, name: str) -> None:
        """Forget what `name` had planned."""
        self._due.pop(name, None)

    def wait_s(self) -> float | None:
        """Return the seconds until the next moment; None if there is none."""
        if not self._due:
            return None
        return max(0.0, min(due for due, _ in self._due.values()) - self._clock())

    def run_due(self) -> None:
        """Do what is due; an action may plan itself again."""
        now = self._clock()
        for name in [name for name, (due, _) in self._due.items() if due <= now]:
            planned = self._due.pop(name, None)
            if planned is not None:
                planned[1]()


def next_border_ms(now_ms: int, window_ms: int) -> int:
    """Return the first wall-clock multiple of `window_ms` after `now_ms`, or the full hour."""
    hour_ms = 3_600_000
    border = now_ms - now_ms % window_ms + window_ms
    return min(border, now_ms - now_ms % hour_ms + hour_ms)
