# SPDX-License-Identifier: Apache-2.0
"""What the sources have in common that ask a board management controller (BMC) for power."""

from __future__ import annotations

import time
from collections.abc import Callable

from fairwatt.accounting.agent.host.source import Reading
from fairwatt.core.clock import now_ms
from fairwatt.core.errors import FairwattError

__all__ = ["MOST_W", "BmcSource", "plausible_mw"]

MOST_W = 100_000
"""No node draws more; some BMCs say 65,535 W for "not known", which is ruled out by itself."""
_UNKNOWN_W = (0, 65_535)
LONGEST_PERIOD_S = 45.0
"""Beyond a minute the meter takes the last power for too old."""


def plausible_mw(watts: float) -> int | None:
    """Return a BMC's watts as mW; None for what no running node can draw.

    >>> plausible_mw(184), plausible_mw(0), plausible_mw(65535)
    (184000, None, None)
    """
    if not 0 < watts <= MOST_W or watts in _UNKNOWN_W:
        return None
    return round(1000 * watts)


class BmcSource:
    """The node's power by a slow question, which is asked once in `period_s` at most.

    Args:
        name: the source's name.
        ask: returns the power in mW, or raises a FairwattError that says why there is none.
        period_s: between two questions the last answer is repeated, with its own time.
        clock: monotonic seconds.
    """

    slow = True

    def __init__(
        self,
        name: str,
        ask: Callable[[], int],
        period_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._ask = ask
        self._period_s = min(LONGEST_PERIOD_S, period_s)
        self._clock = clock
        self._last: Reading | None = None
        self._due = float("-inf")

    def read(self) -> list[Reading]:
        """Return the node's power as it was told last; never raises."""
        if self._last is None or self._clock() >= self._due:
            self._due = self._clock() + self._period_s
            self._last = self._asked()
        return [self._last]

    def _asked(self) -> Reading:
        try:
            return Reading("node", now_ms(), power_mw=self._ask())
        except FairwattError as error:
            return Reading("node", now_ms(), fault=str(error))
