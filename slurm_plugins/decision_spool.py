# SPDX-License-Identifier: Apache-2.0
"""Decisions on disk until the collector has them: a folder of segments, oldest delivered first.

One thread appends, another delivers. What is in the newest segment can be delivered only after
`turn`; a segment that is delivered is removed. Delivering one twice is harmless.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterable
from pathlib import Path

from fairwatt.core.delivery import Batch
from fairwatt.core.errors import SpoolError
from fairwatt.core.files import locked
from fairwatt.core.line_file import LineFile
from fairwatt.core.sealed_line import seal, unseal
from fairwatt.core.segments import mend, read_lines, segment_numbers, segment_path

__all__ = ["DecisionSpool"]

_log = logging.getLogger(__name__)

_LINE_BITS = 32
_END = (1 << _LINE_BITS) - 1
"""A segment's lines are numbered from 0 in the low bits; this one stands for its end."""


class DecisionSpool:
    """The folder, made with mode 0700 where it is missing, and held by one process.

    Args:
        folder: of the segments.
        max_bytes: how much they may take on disk.

    Raises:
        SpoolError: another process holds the folder.
        OSError: it cannot be used.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = locked(folder / "lock")
        if lock is None:
            raise SpoolError(
                "another policyd writes its decisions there",
                place=str(folder),
                remedy="stop it, or give this one its own policyd.journal_dir",
            )
        self._lock = lock
        self._folder = folder
        self._max_bytes = max_bytes
        self._file: LineFile | None = None
        self._open: int | None = None
        self._delivered = -1
        numbers = segment_numbers(folder)
        for number in numbers:
            _try_mend(segment_path(folder, number))
        self._newest = max(numbers, default=0)

    @property
    def open_bytes(self) -> int:
        """How long the newest segment is; nothing of it can be delivered yet."""
        return 0 if self._file is None else self._file.size

    @property
    def waiting(self) -> bool:
        """Whether something can be delivered."""
        return bool(self._deliverable())

    def append(self, payloads: Iterable[bytes]) -> None:
        """Put lines on disk; they are there when this returns.

        Raises:
            OSError: the disk or the folder's own limit is full; nothing is written.
        """
        lines = b"".join(seal(payload) for payload in payloads)
        if not lines:
            return
        if self._held_bytes() + len(lines) > self._max_bytes:
            raise OSError(errno.ENOSPC, "the limit policyd.journal_max_mib is reached")
        if self._file is None:
            self._file = self._opened()
        self._file.append(lines)

    def turn(self) -> None:
        """Let what was appended be delivered."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._open = None

    def pending(self, max_bytes: int, max_events: int) -> Batch | None:
        """Return the oldest undelivered decisions, at least one, or None."""
        for number in self._deliverable():
            batch = self._batch(number, max_bytes, max_events)
            if batch is not None:
                return batch
            segment_path(self._folder, number).unlink(missing_ok=True)
        return None

    def confirm(self, seq: int) -> None:
        """Forget the decisions up to `seq`: the collector has them."""
        self._delivered = seq
        if seq & _END == _END:
            segment_path(self._folder, seq >> _LINE_BITS).unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of the files and the lock."""
        self.turn()
        self._lock.close()

    def _opened(self) -> LineFile:
        self._newest += 1
        self._open = self._newest  # before the other thread can see the file
        try:
            return LineFile.create(segment_path(self._folder, self._newest))
        except OSError:
            self._open = None
            raise

    def _deliverable(self) -> list[int]:
        numbers = segment_numbers(self._folder)
        return [number for number in numbers if number != self._open]

    def _batch(self, number: int, max_bytes: int, max_events: int) -> Batch | None:
        first = last = -1
        lines: list[bytes] = []
        size = 0
        for index, line in enumerate(read_lines(segment_path(self._folder, number), unseal)):
            place = (number << _LINE_BITS) + index
            if place <= self._delivered:
                continue
            if lines and (size + len(line) > max_bytes or len(lines) >= max_events):
                return Batch(b"".join(lines), len(lines), first, last)
            lines.append(line + b"\n")
            size += len(line) + 1
            first, last = place if first < 0 else first, place
        if not lines:
            return None
        return Batch(b"".join(lines), len(lines), first, (number << _LINE_BITS) + _END)

    def _held_bytes(self) -> int:
        paths = [segment_path(self._folder, n) for n in segment_numbers(self._folder)]
        return sum(_size(path) for path in paths)


def _try_mend(path: Path) -> None:
    """Where the disk is full, damaged lines stay and are passed over."""
    try:
        mend(path, unseal)
    except OSError as error:
        _log.warning("%s: not mended: %s", path, error.strerror)


def _size(path: Path) -> int:
    """The other thread may just have removed it."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
