# SPDX-License-Identifier: Apache-2.0
"""The journal's files: numbered segments of lines; damaged lines are set aside, never lost."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from fairwatt.accounting.agent.files import write_atomically
from fairwatt.accounting.agent.journal_line import decode_line
from fairwatt.accounting.agent.records import Entry
from fairwatt.core.errors import SpoolError

__all__ = ["last_seq", "mend", "read_entries", "segment_numbers", "segment_path"]

_log = logging.getLogger(__name__)


def segment_path(folder: Path, number: int) -> Path:
    """Return the path of a segment."""
    return folder / f"{number:010d}.journal"


def segment_numbers(folder: Path) -> list[int]:
    """Return the numbers of the segments in a folder, oldest first."""
    return sorted(int(path.stem) for path in folder.glob("*.journal") if path.stem.isdigit())


def read_entries(path: Path) -> Iterator[Entry]:
    """Yield the good entries of a segment; damaged lines are passed over (`mend` reports them)."""
    with path.open("rb") as file:
        for line in file:
            try:
                yield decode_line(line)
            except SpoolError:
                continue


def last_seq(path: Path) -> int:
    """Return the largest event number in a segment, -1 if it has no event."""
    return max((entry.event.seq for entry in read_entries(path) if entry.event), default=-1)


def mend(path: Path) -> None:
    """Move the damaged lines of a segment to `<segment>.bad`, with one message in the log.

    Raises:
        OSError: the folder cannot be written.
    """
    good, bad = _sorted_lines(path)
    if not bad:
        return
    aside = path.with_suffix(".bad")
    with aside.open("ab") as file:
        file.writelines(line if line.endswith(b"\n") else line + b"\n" for line in bad)
    write_atomically(path, b"".join(good))
    _log.error(
        "%s: %d damaged line(s) set aside in %s, %d good line(s) kept; "
        "after a power cut the last line may be cut, else check the disk",
        path,
        len(bad),
        aside,
        len(good),
    )


def _sorted_lines(path: Path) -> tuple[list[bytes], list[bytes]]:
    good: list[bytes] = []
    bad: list[bytes] = []
    with path.open("rb") as file:
        for line in file:
            try:
                decode_line(line)
            except SpoolError:
                bad.append(line)
            else:
                good.append(line)
    return good, bad
