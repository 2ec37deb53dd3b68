# SPDX-License-Identifier: Apache-2.0
"""Keeps the journal within its room: thins the oldest segments, a reserve at hand for a full disk.

Where a disk is full nothing can be written, not even what would be smaller; so a file of zeros
stands in the journal's folder whose only use is to be removed then.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from fairwatt.accounting.agent.journal_line import encode_line
from fairwatt.accounting.agent.segments import read_entries
from fairwatt.accounting.agent.thinning import DAY_MS, HOUR_MS, thinned
from fairwatt.core.events import WindowClosed
from fairwatt.core.files import write_atomically
from fairwatt.core.segments import segment_numbers, segment_path

__all__ = ["SpoolRoom"]

RESERVE_BYTES = 2 << 20
STEPS = (HOUR_MS, DAY_MS)
"""First windows of one hour become one, then those of one day."""
LONGEST_PAUSE = 63
"""Steps left out after one that the disk refused: each reads a whole segment, every second."""

_log = logging.getLogger(__name__)


class SpoolRoom:
    """The room of one journal's folder.

    Args:
        folder: the journal's.
        max_bytes: the most that its segments may take; 0: no limit.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.merged_windows = 0
        self._folder = folder
        self._max_bytes = max_bytes
        self._reserve = folder / "reserve"
        self._done: dict[int, int] = {}
        self._over = True
        self._told = False
        self._pause = self._rest = 0

    @property
    def size(self) -> int:
        """What the segments take in bytes."""
        return sum(path.stat().st_size for path in self._paths())

    def look(self) -> None:
        """Compare the size with the limit at the next step: a segment has been closed."""
        self._over = True

    def step(self, closed: Iterable[int], after_seq: int, *, full: bool) -> int:
        """Thin one segment if that is needed; return how many windows were merged away.

        Args:
            closed: segments that are not written any more and whose state is checkpointed.
            after_seq: events up to this number the collector may have.
            full: the disk refuses the journal's lines.
        """
        if full:
            self._reserve.unlink(missing_ok=True)
        needs_room = full or (self._over and self._is_over()) or not self._has_reserve()
        if not needs_room:
            self._over = self._told = False
            return 0
        if self._rest > 0:
            self._rest -= 1
            return 0
        merged = self._thin_oldest(list(closed), after_seq)
        self.merged_windows += merged
        if not merged:
            self._tell(full)
            self._over = False
        return merged

    def _paths(self) -> list[Path]:
        return [segment_path(self._folder, n) for n in segment_numbers(self._folder)]

    def _is_over(self) -> bool:
        return 0 < self._max_bytes < self.size

    def _has_reserve(self) -> bool:
        """Whether the reserve is there, made now if there is room for it."""
        if self._reserve.exists():
            return True
        try:
            descriptor = os.open(self._reserve, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except OSError:
            return False
        try:
            os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
        except OSError:
            self._reserve.unlink(missing_ok=True)
            return False
        finally:
            os.close(descriptor)
        return True

    def _thin_oldest(self, closed: Sequence[int], after_seq: int) -> int:
        self._done = {number: level for number, level in self._done.items() if number in closed}
        for level, step_ms in enumerate(STEPS, start=1):
            for number in closed:
                if self._done.get(number, 0) < level:
                    merged = self._thin(number, step_ms, after_seq)
                    if merged is None:
                        self._pause = self._rest = min(LONGEST_PAUSE, 2 * self._pause + 1)
                        return 0
                    self._pause = 0
                    self._done[number] = level
                    if merged:
                        return merged
        return 0

    def _thin(self, number: int, step_ms: int, after_seq: int) -> int | None:
        """Write a segment anew with fewer windows; None if the disk refuses even that."""
        path = segment_path(self._folder, number)
        entries = list(read_entries(path))
        if any(entry.event is not None and entry.event.seq <= after_seq for entry in entries):
            return 0
        fewer = thinned(entries, step_ms, after_seq)
        merged = _windows(entries) - _windows(fewer)
        if not merged:
            return 0
        try:
            write_atomically(path, b"".join(encode_line(entry) for entry in fewer))
        except OSError as error:
            _log.warning("%s: not thinned: %s", path, error.strerror)
            return None
        return merged

    def _tell(self, full: bool) -> None:
        if not self._told:
            _log.error(
                "%s: %s and no windows are left to merge; what is not delivered stays; make room, "
                "raise agent.spool_max_mib, or let the collector take it",
                self._folder,
                "its disk is full" if full else "takes more than agent.spool_max_mib",
            )
        self._told = True


def _windows(entries: Iterable[object]) -> int:
    return sum(isinstance(getattr(entry, "event", None), WindowClosed) for entry in entries)
