# SPDX-License-Identifier: Apache-2.0
"""A journal's files: numbered segments of lines; damaged lines are set aside, never lost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from fairwatt.core.errors import SpoolError
from fairwatt.core.files import write_atomically

__all__ = ["mend", "read_lines", "segment_numbers", "segment_path"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


def segment_path(folder: Path, number: int) -> Path:
    """Return the path of a segment."""
    return folder / f"{number:010d}.journal"


def segment_numbers(folder: Path) -> list[int]:
    """Return the numbers of the segments in a folder, oldest first."""
    return sorted(int(path.stem) for path in folder.glob("*.journal") if path.stem.isdigit())


def read_lines(path: Path, decode: Callable[[bytes], _T]) -> Iterator[_T]:
    """Yield what `decode` makes of each line; lines it refuses by SpoolError are passed over."""
    with path.open("rb") as file:
        for line in file:
            try:
                yield decode(line)
            except SpoolError:
                continue


def mend(path: Path, decode: Callable[[bytes], object]) -> None:
    """Move the lines that `decode` refuses to `<segment>.bad`, with one message in the log.

    Raises:
        OSError: the folder cannot be written.
    """
    good, bad = _sorted_lines(path, decode)
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


def _sorted_lines(
    path: Path, decode: Callable[[bytes], object]
) -> tuple[list[bytes], list[bytes]]:
    good: list[bytes] = []
    bad: list[bytes] = []
    with path.open("rb") as file:
        for line in file:
            try:
                decode(line)
            except SpoolError:
                bad.append(line)
            else:
                good.append(line)
    return good, bad
