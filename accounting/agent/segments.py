# SPDX-License-Identifier: Apache-2.0
"""What stands in the segments of the agent's journal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fairwatt.accounting.agent.journal_line import decode_line
from fairwatt.accounting.agent.records import Entry
from fairwatt.core.errors import SpoolError
from fairwatt.core.segments import read_lines

__all__ = ["entries_from", "last_seq", "read_entries"]


def read_entries(path: Path) -> Iterator[Entry]:
    """Yield the good entries of a segment; damaged lines are passed over (`mend` reports them)."""
    return read_lines(path, decode_line)


def entries_from(path: Path, begin: int) -> Iterator[tuple[Entry, int]]:
    """Yield the good entries from the offset `begin` on, each with the offset behind it."""
    with path.open("rb") as file:
        end = file.seek(begin)
        for line in file:
            end += len(line)
            try:
                yield decode_line(line), end
            except SpoolError:
                continue


def last_seq(path: Path) -> int:
    """Return the largest event number in a segment, -1 if it has no event."""
    return max((entry.event.seq for entry in read_entries(path) if entry.event), default=-1)
