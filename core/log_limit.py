# SPDX-License-Identifier: Apache-2.0
"""Keeps a fault that comes again and again from filling a node's log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["LimitRepeats"]


@dataclass
class _Spell:
    until_s: float
    passed: int = 0
    held: int = 0


class LimitRepeats(logging.Filter):
    """Lets pass `most` records of each line of code in `period_s`; then says how many it held.

    A meter that answers every second time, or a library whose answer is never understood, would
    else write a line with every sample, from every node.

    Args:
        most: records of one line of code in one period.
        period_s: seconds.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        most: int = 20,
        period_s: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._most = most
        self._period_s = period_s
        self._clock = clock
        self._spells: dict[tuple[str, int], _Spell] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether to log a record; the first after some that were held tells their number."""
        key, now_s = (record.name, record.lineno), self._clock()
        spell = self._spells.get(key)
        held = 0
        if spell is None or now_s >= spell.until_s:
            held = spell.held if spell else 0
            spell = self._spells[key] = _Spell(now_s + self._period_s)
        if spell.passed >= self._most:
            spell.held += 1
            return False
        spell.passed += 1
        if held:
            record.msg, record.args = f"{record.getMessage()} ({held} like it were held)", ()
        elif spell.passed == self._most:
            minutes = self._period_s / 60
            text = f"{record.getMessage()} (more like it are held for up to {minutes:.0f} min)"
            record.msg, record.args = text, ()
        return True
