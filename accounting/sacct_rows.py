# SPDX-License-Identifier: Apache-2.0
"""Cuts sacct's text into rows and cells, though names may hold newlines and the delimiter.

>>> layout = read_header("JobIDRaw|JobName|State")
>>> cells_of("7|a|b|FAILED", layout)
['7', 'a|b', 'FAILED']
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from fairwatt.core.errors import SlurmError

__all__ = ["Layout", "cells_of", "chunks", "read_header", "rows_of_chunks"]

_HEADER = re.compile(r"([A-Za-z][A-Za-z0-9]*)([^A-Za-z0-9]+)[A-Za-z]")
_JOB = r"[0-9]+(?:_(?:[0-9]+|\[[^\]\n]*\]))?(?:\+[0-9]+)?(?:\.\w+)?"
_CHECKED = {
    "JobIDRaw": re.compile(r"[0-9]+(?:\.\w+)?"),
    "JobID": re.compile(_JOB),
    "State": re.compile(r"[A-Z_]+\+?(?: by [0-9]+)?"),
    "Submit": re.compile(r"[0-9]+|[0-9]{4}-[0-9]{2}-[0-9]{2}T\S+|Unknown"),
    "ExitCode": re.compile(r"[0-9]+:[0-9]+"),
}
_FREE = frozenset(
    {
        *("JobName", "Comment", "AdminComment", "SystemComment", "SubmitLine", "WorkDir"),
        *("Extra", "Container", "StdIn", "StdOut", "StdErr", "WCKey", "Constraints", "Reason"),
    }
)
"""Columns in which users write what they like."""


@dataclass(frozen=True)
class Layout:
    """A file's columns in their order, and what stands between two cells."""

    fields: Sequence[str]
    delimiter: str
    _free: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        free = [place for place, name in enumerate(self.fields) if name in _FREE]
        object.__setattr__(self, "_free", tuple(free))

    @property
    def free(self) -> tuple[int, ...]:
        """Places of the columns that users write into."""
        return self._free

    @cached_property
    def start(self) -> re.Pattern[str] | None:
        """How a row begins; None where the first column does not tell."""
        if self.fields[0] not in ("JobID", "JobIDRaw"):
            return None
        return re.compile(_JOB + re.escape(self.delimiter))


def read_header(line: str) -> Layout:
    """Return columns and delimiter of `sacct --parsable2` (or --parsable), as its header tells.

    Raises:
        SlurmError: it is no header with two columns or more.
    """
    match = _HEADER.match(line)
    if match is None:
        raise SlurmError("no header of sacct", value=line[:80])
    return Layout(line.split(match[2]), match[2])


def chunks(lines: Iterable[str], layout: Layout) -> Iterator[str]:
    """Join lines to rows: a newline in a name belongs to it.

    A row is over when it has all its cells and the next line begins like a row.
    """
    delimiter, least, start = layout.delimiter, len(layout.fields) - 1, layout.start
    held: list[str] = []
    count = 0
    for line in lines:
        more = line.count(delimiter)
        if held and count >= least and (more > 0 if start is None else start.match(line)):
            yield held[0] if len(held) == 1 else "\n".join(held)
            held, count = [line], more
        else:
            # Not a text that grows: a file of short lines would take a day.
            held.append(line)
            count += more
    if held:
        yield "\n".join(held)


def rows_of_chunks(texts: Sequence[str], layout: Layout) -> tuple[list[list[str]], list[str]]:
    """Return the cells of rows, and the rows that have no reading."""
    delimiter, wanted = layout.delimiter, len(layout.fields)
    rows = [text.split(delimiter) for text in texts if text]
    if set(map(len, rows)) <= {wanted}:
        return rows, []
    good: list[list[str]] = []
    bad: list[str] = []
    for text in filter(None, texts):
        broken, cells = _salvaged(text, layout)
        bad += [broken] if broken else []
        good += [cells] if cells is not None else []
    return good, bad


def _salvaged(text: str, layout: Layout) -> tuple[str, list[str] | None]:
    """A row's cells; or a row that was cut off, and those of the whole one that it ran into."""
    cells = cells_of(text, layout)
    if cells is not None or layout.start is None:
        return ("" if cells else text), cells
    lines = text.split("\n")
    for place in range(1, len(lines)):
        if layout.start.match(lines[place]):
            cells = cells_of("\n".join(lines[place:]), layout)
            if cells is not None and _is_readable(cells, layout.fields):
                return "\n".join(lines[:place]), cells
    return text, None


def cells_of(chunk: str, layout: Layout) -> list[str] | None:
    """Return a row's cells, None if no reading gives a job; a name keeps its delimiters.

    Where several columns are free text, the first of them that leaves the others readable has
    the delimiters.
    """
    cells = chunk.split(layout.delimiter)
    wanted = len(layout.fields)
    if len(cells) == wanted:
        return cells
    surplus = len(cells) - wanted
    if surplus < 0:
        return None
    for place in layout.free:
        middle = layout.delimiter.join(cells[place : place + surplus + 1])
        read = [*cells[:place], middle, *cells[place + surplus + 1 :]]
        if _is_readable(read, layout.fields):
            return read
    return None


def _is_readable(cells: Sequence[str], fields: Sequence[str]) -> bool:
    return all(
        _CHECKED[name].fullmatch(cell)
        for name, cell in zip(fields, cells, strict=True)
        if name in _CHECKED
    )
