# SPDX-License-Identifier: Apache-2.0
"""A number that notes for which others all that was done with it would have come out the same.

>>> limit = Ranged(90)
>>> limit > 60, limit <= 1440, limit.low, limit.high
(True, True, 61, 1440)
>>> f"{limit} min", limit.low, limit.high
('90 min', 90, 90)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeGuard

__all__ = ["MOST", "Ranged"]

MOST = 2**32
"""Above whatever Slurm has for a number of 32 bits."""


class Ranged:
    """A whole number from 0 to MOST with the bounds `low` and `high`, both inclusive.

    Comparisons with whole numbers and floats narrow them to where each would come out the same;
    whatever else is done with it makes both its own value. It is no int: what reads an int's
    digits without asking it would go unnoticed.
    """

    __slots__ = ("_value", "high", "low")

    def __init__(self, value: int) -> None:
        self._value = value
        self.low = 0
        self.high = MOST

    def __lt__(self, other: object) -> bool:
        return self._is_up_to(_last_below(other)) if _is_number(other) else NotImplemented

    def __le__(self, other: object) -> bool:
        return self._is_up_to(_last_up_to(other)) if _is_number(other) else NotImplemented

    def __gt__(self, other: object) -> bool:
        return not self._is_up_to(_last_up_to(other)) if _is_number(other) else NotImplemented

    def __ge__(self, other: object) -> bool:
        return not self._is_up_to(_last_below(other)) if _is_number(other) else NotImplemented

    def __eq__(self, other: object) -> bool:
        if not _is_number(other):
            return NotImplemented
        return self._is_up_to(_last_up_to(other)) and not self._is_up_to(_last_below(other))

    def __hash__(self) -> int:
        return hash(self.pinned())

    def __bool__(self) -> bool:
        return not self._is_up_to(0)

    def _is_up_to(self, last: int) -> bool:
        """Whether it is at most `last`; the bounds become those of the numbers alike in that."""
        if self._value <= last:
            self.high = min(self.high, last)
            return True
        self.low = max(self.low, last + 1)
        return False

    def pinned(self) -> int:
        """Its very value."""
        self.low = self.high = self._value
        return self._value


def _is_number(other: object) -> TypeGuard[int | float]:
    return isinstance(other, (int, float))


def _last_up_to(other: float) -> int:
    return math.floor(min(max(other, -1), MOST))


def _last_below(other: float) -> int:
    return math.ceil(min(max(other, 0), MOST + 1)) - 1


def _of_value(name: str) -> Callable[..., object]:
    """A method that does what a number's does, of which nothing is known for other numbers."""

    def method(self: Ranged, *args: object) -> object:
        plain = [arg.pinned() if isinstance(arg, Ranged) else arg for arg in args]
        kind = float if any(isinstance(arg, float) for arg in plain) else int
        return getattr(kind, name)(kind(self.pinned()), *plain)

    return method


_COMMON = {*dir(object)} - {"__repr__", "__str__", "__format__"}
for _name in {*dir(int)} - _COMMON - {*vars(Ranged)}:
    if _name.startswith("__") and callable(getattr(int, _name)):
        setattr(Ranged, _name, _of_value(_name))
