# SPDX-License-Identifier: Apache-2.0
"""What a device draws without work, from many looks at it while nobody used it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["MOST_LOOKS", "added", "low_mw"]

MOST_LOOKS = 96
"""At a window every five minutes, eight hours without work."""
PERCENT = 5


def added(looks: Sequence[int], mean_mw: int) -> list[int]:
    """Return the looks with one more; the oldest goes where there would be too many."""
    return [*looks, mean_mw][-MOST_LOOKS:]


def low_mw(looks: Sequence[int]) -> int | None:
    """Return the looks' 5th percentile in mW: the least of fewer than 20; None without any.

    Of 20 and more one, of 40 and more two may be wrong: a stuck counter, a clock that was set.

    >>> low_mw([48_000, 51_000])
    48000
    """
    return sorted(looks)[len(looks) * PERCENT // 100] if looks else None
