# SPDX-License-Identifier: Apache-2.0
"""Numbers, words and lists of jobs as Slurm 22.05 to 26.05 write them in JSON; pure.

A number is plain or `{set, infinite, number}`; words are a list or one text with commas.
"""

from __future__ import annotations

import msgspec

from fairwatt.core.errors import SlurmError

__all__ = ["Count", "Words", "count", "no_known_shape", "raw_jobs", "words"]

_NO_VAL = {2**16 - 2, 2**16 - 1, 2**32 - 2, 2**32 - 1, 2**64 - 2, 2**64 - 1}


class _Number(msgspec.Struct):
    set: bool = False
    infinite: bool = False
    number: int | float = 0


class _Jobs(msgspec.Struct):
    jobs: list[msgspec.Raw]


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


def raw_jobs(text: str) -> list[msgspec.Raw]:
    """Return the records of `squeue --json`, each to be decoded by itself.

    Raises:
        SlurmError: the answer as a whole has no known shape.
    """
    try:
        return msgspec.json.decode(text, type=_Jobs).jobs
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise no_known_shape("squeue --json", error) from error


def no_known_shape(place: str, error: Exception) -> SlurmError:
    """Return the error to raise where a command's whole answer cannot be read."""
    return SlurmError(
        f"an answer in no known shape ({error})",
        place=place,
        remedy="report it; known are Slurm 22.05 to 26.05",
    )
