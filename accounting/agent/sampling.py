# SPDX-License-Identifier: Apache-2.0
"""When samples are taken between cuts: soon after a change, then less and less often."""

from __future__ import annotations

from collections.abc import Callable

from fairwatt.accounting.agent.timers import Timers

__all__ = ["FIRST_S", "Sampling"]

FIRST_S = 1.0


class Sampling:
    """Plans the samples; a change may bring the next one nearer, but never puts it off.

    Args:
        timers: the daemon's.
        most_s: the longest time between two samples.
        look: begins a look at the GPUs, and calls what it is given when that is over. At most
            one is under way: a driver that hangs is not asked more and more.
        beside: does what is due with every sample, whether the GPUs answer or not.
    """

    def __init__(
        self,
        timers: Timers,
        most_s: float,
        look: Callable[[Callable[[], None]], None],
        beside: Callable[[], None],
    ) -> None:
        self._timers = timers
        self._most_s = self._step_s = most_s
        self._look = look
        self._beside = beside
        self._looking = False

    def soon(self) -> None:
        """Take the next sample soon: short jobs need samples too."""
        self._step_s = min(FIRST_S, self._most_s)
        self._timers.hasten("sample", self._step_s, self._due)

    def _due(self) -> None:
        self._step_s = min(2 * self._step_s, self._most_s)
        self._timers.set("sample", self._step_s, self._due)
        if not self._looking:
            self._looking = True
            self._look(self._over)
        self._beside()

    def _over(self) -> None:
        self._looking = False
