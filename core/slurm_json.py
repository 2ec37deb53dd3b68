# SPDX-License-Identifier: Apache-2.0
"""Numbers and words as Slurm 22.05 to 26.05 write them in JSON; pure.

A number is plain or `{set, infinite, number}`; words are a list or one text with commas.
"""

from __future__ import annotations

import msgspec

__all__ = ["Count", "Words", "count", "words"]

_NO_VAL = {2**16 - 2, 2**16 - 1, 2**32 - 2, 2**32 - 1, 2**64 - 2, 2**64 - 1}


class _Number(msgspec.Struct):
    set: bool = False
    infinite: bool = False
    number: int | float = 0


Count = int | float | _Number | None
Words = str | list[str] | None


def count(value: Count) -> int | None:
    """Read a number of any release; unset, infinite, negative and NO_VAL are None."""
    if isinstance(value, _Number):
        value = value.number if value.set and not value.infinite else None
    if value is None:
        return None
    number = int(value)
    return None if number in _NO_VAL or number < 0 else number


def words(value: Words) -> tuple[str, ...]:
    """Read a list of words."""
    if isinstance(value, str):
        return tuple(word for word in value.split(",") if word)
    return tuple(value or ())
