# SPDX-License-Identifier: Apache-2.0
"""Which known nodes a user's host list names, without expanding it (`n[1-999999999]` is a trap).

>>> sorted(named("gpu[01-02],h01", ["gpu01", "gpu02", "gpu03", "h01"]))
['gpu01', 'gpu02', 'h01']
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from fairwatt.core.errors import GrammarError

__all__ = ["named"]

# Bounds on what one request may cost the daemon that all submissions wait for.
MAX_BRACKETS = 3
MAX_FOLDED = 32

_PIECE = re.compile(r"((?:[^,\[\]]|\[[0-9,-]+\])+)(?:,|$)")
_SEGMENT = re.compile(r"\[([0-9,-]+)\]|([^\[\]]+)")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_FORM = "write node[1-4,7]"


@dataclass(frozen=True)
class _Folded:
    """A name with brackets: one number group per bracket, and the ranges of each."""

    pattern: re.Pattern[str]
    brackets: list[list[tuple[str, str]]]

    def matches(self, name: str) -> bool:
        match = self.pattern.fullmatch(name)
        return match is not None and all(
            any(_within(number, low, high) for low, high in ranges)
            for number, ranges in zip(match.groups(), self.brackets, strict=True)
        )


def named(text: str, known: Collection[str]) -> frozenset[str]:
    """Return the names of `known` that a Slurm host list names.

    Raises:
        GrammarError: the list cannot be read, or holds too many bracket expressions.
    """
    if text.count("[") > MAX_FOLDED * MAX_BRACKETS:
        raise GrammarError("too many brackets", text=text, part=text, remedy="fold the list")
    pieces = list(_pieces(text))
    plain = {piece for piece in pieces if "[" not in piece}
    folded = [_folded(piece, text) for piece in pieces if "[" in piece]
    if len(folded) > MAX_FOLDED:
        raise GrammarError("too many ranges", text=text, part=pieces[-1], remedy="fold the list")
    return frozenset(
        name for name in known if name in plain or any(f.matches(name) for f in folded)
    )


def _pieces(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        match = _PIECE.match(text, at)
        if match is None:
            raise GrammarError("not a host list", text=text, part=text[at:], remedy=_FORM)
        yield match[1]
        at = match.end()


def _folded(piece: str, text: str) -> _Folded:
    source, brackets = [], []
    for ranges, literal in _SEGMENT.findall(piece):
        source.append("([0-9]+)" if ranges else re.escape(literal))
        if ranges:
            brackets.append([_range(part, text) for part in ranges.split(",")])
    if len(brackets) > MAX_BRACKETS:
        raise GrammarError("too many brackets", text=text, part=piece, remedy=_FORM)
    return _Folded(re.compile("".join(source)), brackets)


def _range(part: str, text: str) -> tuple[str, str]:
    match = _RANGE.fullmatch(part)
    if match is None:
        raise GrammarError("not a range", text=text, part=part, remedy=_FORM)
    return match[1], match[2] or match[1]


def _within(number: str, low: str, high: str) -> bool:
    """Compare as Slurm does: leading zeros in the first number fix the width."""
    padded = low.startswith("0")
    width_fits = len(number) == len(low) if padded else not number.startswith("0")
    return (width_fits or number == low) and int(low) <= int(number) <= int(high)
