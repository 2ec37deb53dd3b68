# SPDX-License-Identifier: Apache-2.0
"""Host lists: which known nodes a user's list names, and the list for given nodes.

A list is never expanded beyond what there is (`n[1-999999999]` is a trap).

>>> sorted(NodeNames(["gpu01", "gpu02", "gpu03", "h01"]).named("gpu[01-02],h01"))
['gpu01', 'gpu02', 'h01']
>>> fold(["gpu02", "gpu01", "gpu04", "login"])
'gpu[01-02,04],login'
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from fairwatt.core.errors import GrammarError

__all__ = ["NodeNames", "fold", "size"]

# Bounds on what one request may cost the daemon that all submissions wait for.
MAX_BRACKETS = 3
MAX_FOLDED = 200
MAX_EXPANDED = 1000
SPARE_LOOKS = 1000
"""A list may look at so many names more than there are; more is naming nodes again and again."""

_PIECE = re.compile(r"((?:[^,\[\]]|\[[0-9,-]+\])+)(?:,|$)")
_SEGMENT = re.compile(r"\[([0-9,-]+)\]|([^\[\]]+)")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_NUMBERED = re.compile(r"(.*?)([0-9]{1,18})([^0-9]*)")
_FORM = "write node[1-4,7]"


@dataclass(frozen=True)
class _Range:
    """`low-high` as written in a bracket; Slurm pads every number to the width of the first."""

    low: int
    high: int
    width: int

    @property
    def size(self) -> int:
        return max(0, self.high - self.low + 1)

    def spellings(self) -> Iterator[str]:
        return (str(number).zfill(self.width) for number in range(self.low, self.high + 1))


_Bracket = list[_Range]


@dataclass(frozen=True)
class _Row:
    """Names of one stem whose numbers have as many digits, in order."""

    width: int
    numbers: list[int]
    names: list[str]

    @classmethod
    def of(cls, width: int, numbered: list[tuple[int, str]]) -> _Row:
        numbered.sort()
        return cls(width, [number for number, _ in numbered], [name for _, name in numbered])

    def within(self, begun: str, wanted: _Range) -> list[str]:
        """The names whose digits are `begun` and then a number of the range."""
        left = self.width - len(begun)
        if left < wanted.width:
            return []
        base = int(begun or "0") * 10**left
        # A number wider than the range's first is written without zeros before it.
        natural = 10 ** (left - 1) if left > wanted.width else 0
        start = bisect_left(self.numbers, base + max(wanted.low, natural))
        stop = bisect_right(self.numbers, base + min(wanted.high, 10**left - 1))
        return self.names[start:stop]


class NodeNames:
    """The cluster's node names, ready to be looked up."""

    def __init__(self, names: Iterable[str]) -> None:
        self.all = frozenset(names)
        rows: dict[tuple[str, str], dict[int, list[tuple[int, str]]]] = {}
        for name in self.all:
            match = _NUMBERED.fullmatch(name)
            if match is not None:
                stem, digits, tail = match.groups()
                row = rows.setdefault((stem, tail), {}).setdefault(len(digits), [])
                row.append((int(digits), name))
        self._rows = {
            key: [_Row.of(width, numbered) for width, numbered in widths.items()]
            for key, widths in rows.items()
        }

    def named(self, text: str) -> frozenset[str]:
        """Return the known names that a Slurm host list names.

        Raises:
            GrammarError: the list cannot be read, or costs too much to look up.
        """
        if text.count("[") > MAX_FOLDED * MAX_BRACKETS:
            raise GrammarError("too many brackets", text=text, part=text, remedy="fold the list")
        pieces = list(_pieces(text))
        found = self.all & set(pieces)
        folded = [piece for piece in pieces if "[" in piece]
        if len(folded) > MAX_FOLDED:
            part = pieces[-1]
            raise GrammarError("too many ranges", text=text, part=part, remedy="fold the list")
        looks = len(self.all) + SPARE_LOOKS
        for piece in folded:
            literals, brackets = _segments(piece, text)
            names = self._of_piece(literals, brackets)
            looks -= len(names) + _count(brackets[:-1])
            if looks < 0:
                reason = "names nodes again and again"
                raise GrammarError(reason, text=text, part=piece, remedy="fold the list")
            found = found.union(names)
        return found

    def _of_piece(self, literals: list[str], brackets: list[_Bracket]) -> list[str]:
        """The names of one piece: all but its last bracket are written out, the last looked up."""
        tail = literals[-1]
        if any(char.isdigit() for char in tail):
            return [name for name in _expanded(literals, brackets) if name in self.all]
        names: list[str] = []
        for head in _expanded(literals[:-1], brackets[:-1]):
            stem = head.rstrip("0123456789")
            for row in self._rows.get((stem, tail), ()):
                for wanted in brackets[-1]:
                    names += row.within(head[len(stem) :], wanted)
        return names


def fold(names: Iterable[str]) -> str:
    """Write node names as one Slurm host list, in order, numbers in brackets."""
    plain: list[str] = []
    groups: dict[tuple[str, str, int], list[int]] = {}
    for name in set(names):
        match = _NUMBERED.fullmatch(name)
        if match is None:
            plain.append(name)
        else:
            key = (match[1], match[3], len(match[2]))
            groups.setdefault(key, []).append(int(match[2]))
    folded = [_bracketed(*key, sorted(numbers)) for key, numbers in sorted(groups.items())]
    return ",".join([*folded, *sorted(plain)])


def size(text: str) -> int:
    """How many names a host list of Slurm's own has.

    >>> size("gpu[01-03,7],login")
    5

    Raises:
        GrammarError: the list cannot be read.
    """
    return sum(_count(_segments(piece, text)[1]) for piece in _pieces(text))


def _count(brackets: Iterable[_Bracket]) -> int:
    return prod(sum(each.size for each in bracket) for bracket in brackets)


def _bracketed(stem: str, tail: str, width: int, numbers: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    parts = [f"{a:0{width}d}" if a == b else f"{a:0{width}d}-{b:0{width}d}" for a, b in runs]
    single = len(parts) == 1 and runs[0][0] == runs[0][1]
    return stem + (parts[0] if single else f"[{','.join(parts)}]") + tail


def _pieces(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        match = _PIECE.match(text, at)
        if match is None:
            raise GrammarError("not a host list", text=text, part=text[at:], remedy=_FORM)
        yield match[1]
        at = match.end()


def _segments(piece: str, text: str) -> tuple[list[str], list[_Bracket]]:
    """The literals before, between and after the brackets of a name, and the brackets."""
    literals, brackets = [""], list[_Bracket]()
    for ranges, literal in _SEGMENT.findall(piece):
        if ranges:
            brackets.append([_range(part, text) for part in ranges.split(",")])
            literals.append("")
        else:
            literals[-1] = literal
    if len(brackets) > MAX_BRACKETS:
        raise GrammarError("too many brackets", text=text, part=piece, remedy=_FORM)
    return literals, brackets


def _range(part: str, text: str) -> _Range:
    match = _RANGE.fullmatch(part)
    if match is None:
        raise GrammarError("not a range", text=text, part=part, remedy=_FORM)
    return _Range(int(match[1]), int(match[2] or match[1]), len(match[1]))


def _expanded(literals: list[str], brackets: list[_Bracket]) -> Iterator[str]:
    """Write out all brackets.

    Raises:
        GrammarError: that would be too many names.
    """
    if _count(brackets) > MAX_EXPANDED:
        text = "[]".join(literals)
        raise GrammarError("too many names", text=text, part=text, remedy="name fewer nodes")
    choices = [[text for each in bracket for text in each.spellings()] for bracket in brackets]
    for digits in product(*choices):
        inner = zip(digits, literals[1:], strict=True)
        yield literals[0] + "".join(number + literal for number, literal in inner)
