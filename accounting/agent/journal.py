# SPDX-License-Identifier: Apache-2.0
"""The agent's durable journal: append, fold, hand out what is not delivered, forget the rest.

Folder layout: `NNNNNNNNNN.journal` segments; `checkpoint`, the folded state before a segment;
`delivered`, the last event number the collector has; `offered`, the last it may have; `reserve`,
room for a full disk (`spool_room.py`); `lock`, held while an agent runs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec

from fairwatt.accounting.agent.journal_line import decode_line, encode_line
from fairwatt.accounting.agent.records import Entry
from fairwatt.accounting.agent.segments import entries_from, last_seq, read_entries
from fairwatt.accounting.agent.spool_room import SpoolRoom
from fairwatt.accounting.agent.state import State, apply, numbered
from fairwatt.core.delivery import Batch
from fairwatt.core.errors import SpoolError
from fairwatt.core.events import Event, encode_event
from fairwatt.core.files import locked, write_atomically
from fairwatt.core.line_file import LineFile
from fairwatt.core.sealed_line import seal, unseal
from fairwatt.core.segments import mend, segment_numbers, segment_path

__all__ = ["Journal"]

SEGMENT_BYTES = 1 << 20
_log = logging.getLogger(__name__)


_Place = tuple[int, int]
"""A segment and an offset in it; what lies before the place of the last delivery is delivered."""


class _Checkpoint(msgspec.Struct):
    segment: int
    state: State


class Journal:
    """Append-only record of everything the agent decided; `state` is its fold.

    Args:
        folder: created if absent, mode 0700.
        first_seq: number of the first event where no journal exists; take the time in ms, so
            that a node whose spool was wiped does not reuse numbers that the collector knows.
        max_bytes: beyond so much the oldest undelivered windows are merged; 0: never.

    Raises:
        SpoolError: the folder cannot be used, or another agent uses it.
    """

    def __init__(self, folder: Path, *, first_seq: int, max_bytes: int = 0) -> None:
        self._folder = folder
        self._backlog: list[bytes] = []
        self._alerted = False
        self._sync_now = True
        self._covered = 0
        self._offered: tuple[int, _Place] = (-1, (0, 0))
        self._behind: _Place = (0, 0)
        self._room = SpoolRoom(folder, max_bytes)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = self._locked()
            self.state, self._segment = self._recover(first_seq)
            self._delivered = self._read_mark("delivered")
            self._marked = max(self._delivered, self._read_mark("offered"))
            self._file = self._first_segment()
            self._try_checkpoint()
        except OSError as error:
            raise SpoolError(
                f"cannot be used: {error.strerror}",
                place=str(folder),
                remedy="check agent.spool_dir, its owner and free space",
            ) from error

    @property
    def failing(self) -> bool:
        """Whether entries wait in memory because the disk refuses them."""
        return bool(self._backlog)

    @property
    def delivered_seq(self) -> int:
        """The last event number that the collector confirmed."""
        return self._delivered

    @property
    def size(self) -> int:
        """What the segments take on disk, in bytes."""
        return self._room.size

    @property
    def merged_windows(self) -> int:
        """How many windows were merged away for want of room since the agent began."""
        return self._room.merged_windows

    def keep_room(self) -> None:
        """Thin one segment if the journal is over its limit or the disk is full."""
        try:
            numbers = segment_numbers(self._folder)
            closed = [n for n in numbers if n < self._covered and n > self._offered[1][0]]
            self._room.step(closed, self._marked, full=self.failing)
        except OSError as error:
            _log.warning("%s: no room made: %s", self._folder, error.strerror)

    @contextmanager
    def synced_at_end(self) -> Iterator[None]:
        """Inside, what is appended is only given to the system; at the end it goes to disk.

        A hook need not wait for that: its job does not outlive the power either.
        """
        self._sync_now = False
        try:
            yield
        finally:
            self._sync_now = True
            self._sync()

    def append(self, entries: Sequence[Entry]) -> bool:
        """Number the entries' events, fold them into the state and put them on disk.

        Returns whether they are there; if not, they are kept and tried again with the next
        call (`retry`), and the fault is logged once.
        """
        entries = numbered(entries, self.state.next_seq)
        apply(self.state, entries)
        self._backlog += [encode_line(entry) for entry in entries]
        return self.retry()

    def retry(self) -> bool:
        """Write what waits in memory; return whether nothing waits any more."""
        if not self._backlog:
            return True
        if not self._write(b"".join(self._backlog)):
            return False
        self._backlog = []
        if self._file.size > SEGMENT_BYTES:
            self._rotate()
        return True

    def pending(self, max_bytes: int, max_events: int) -> Batch | None:
        """Return the oldest undelivered events on disk, at least one, or None."""
        lines: list[bytes] = []
        size = first = 0
        for event, place in self._undelivered():
            line = encode_event(event) + b"\n"
            if lines and (size + len(line) > max_bytes or len(lines) >= max_events):
                break
            lines.append(line)
            size += len(line)
            first = first or event.seq
            self._offered = (event.seq, place)
        self._mark_offered()
        return Batch(b"".join(lines), len(lines), first, self._offered[0]) if lines else None

    def _mark_offered(self) -> None:
        """Note what is on its way: those events must not change, even if no answer comes.

        On disk, since after a power cut windows are merged that lie behind the mark.
        """
        if self._offered[0] <= self._marked:
            return
        self._marked = self._offered[0]
        try:
            mark = seal(str(self._marked).encode())
            write_atomically(self._folder / "offered", mark)
        except OSError as error:
            _log.warning("%s: mark not written: %s", self._folder, error.strerror)

    def _undelivered(self) -> Iterator[tuple[Event, _Place]]:
        """Yield the events after the last delivered one, each with the place behind it."""
        for number in segment_numbers(self._folder):
            if number < self._behind[0]:
                continue
            begin = self._behind[1] if number == self._behind[0] else 0
            for entry, end in entries_from(segment_path(self._folder, number), begin):
                if entry.event is not None and entry.event.seq > self._delivered:
                    yield entry.event, (number, end)

    def confirm(self, seq: int) -> None:
        """Forget the events up to `seq`: the collector has them.

        A mark that cannot be written costs a second delivery, which the collector recognises.
        What is delivered goes first: on a disk that this very journal filled, nothing else
        makes room.
        """
        self._delivered = max(self._delivered, seq)
        if seq == self._offered[0]:
            self._behind = self._offered[1]
        try:
            self._drop_delivered()
            mark = seal(str(self._delivered).encode())
            write_atomically(self._folder / "delivered", mark, durable=False)
        except OSError as error:
            _log.warning("%s: delivery mark not written: %s", self._folder, error.strerror)

    def close(self) -> None:
        """Let go of the files and the lock."""
        self._file.close()
        self._lock.close()

    def _locked(self) -> BinaryIO:
        path = self._folder / "lock"
        file = locked(path)
        if file is None:
            raise SpoolError(
                "another agent uses this spool",
                place=str(path),
                remedy="stop it, or give this one its own agent.spool_dir",
            )
        return file

    def _write(self, lines: bytes) -> bool:
        try:
            self._file.append(lines, sync=self._sync_now)
        except OSError as error:
            self._alert(error)
            return False
        if self._alerted:
            _log.warning("%s: written again, nothing was lost", self._folder)
            self._alerted = False
        return True

    def _sync(self) -> None:
        try:
            self._file.sync()
        except OSError as error:
            self._alert(error)

    def _alert(self, error: OSError) -> None:
        if self._alerted:
            return
        _log.error(
            "%s: cannot be written: %s; %d record(s) wait in memory; free space or mend "
            "the disk, jobs go on",
            self._folder,
            error.strerror,
            len(self._backlog),
        )
        self._alerted = True

    def _recover(self, first_seq: int) -> tuple[State, int]:
        checkpoint = self._read_checkpoint() or _Checkpoint(0, State(next_seq=first_seq))
        numbers = segment_numbers(self._folder)
        self._covered = checkpoint.segment
        for number in numbers:
            self._try_mend(segment_path(self._folder, number))
            if number >= checkpoint.segment:
                entries = list(read_entries(segment_path(self._folder, number)))
                apply(checkpoint.state, entries)
        return checkpoint.state, max([checkpoint.segment, *numbers]) + 1

    def _try_mend(self, path: Path) -> None:
        """Mend a segment; where the disk is full, its damaged lines stay and are passed over."""
        try:
            mend(path, decode_line)
        except OSError as error:
            _log.warning("%s: not mended: %s", path, error.strerror)

    def _read_checkpoint(self) -> _Checkpoint | None:
        path = self._folder / "checkpoint"
        try:
            return msgspec.json.decode(unseal(path.read_bytes()), type=_Checkpoint)
        except FileNotFoundError:
            return None
        except (SpoolError, msgspec.MsgspecError):
            aside = path.with_suffix(".bad")
            path.rename(aside)
            _log.error("%s is damaged, set aside as %s; the segments alone count", path, aside)
            return None

    def _read_mark(self, name: str) -> int:
        try:
            return int(unseal((self._folder / name).read_bytes()))
        except (FileNotFoundError, SpoolError, ValueError):
            return -1  # events are sent again, which is harmless

    def _first_segment(self) -> LineFile:
        """Open a fresh segment or, where the disk is too full for that, the last one there is.

        An agent that cannot start on a full disk could never deliver, and so never free, what
        it has there itself.
        """
        try:
            return self._open_segment()
        except OSError as error:
            numbers = segment_numbers(self._folder)
            if not numbers:
                raise
            _log.warning("%s: no new segment yet: %s", self._folder, error.strerror)
        self._segment = numbers[-1]
        return LineFile(segment_path(self._folder, self._segment))

    def _open_segment(self) -> LineFile:
        return LineFile.create(segment_path(self._folder, self._segment))

    def _rotate(self) -> None:
        try:
            self._segment += 1
            fresh = self._open_segment()
            self._file.sync()
            self._file.close()
            self._file = fresh
        except OSError as error:
            _log.warning("%s: no new segment yet: %s", self._folder, error.strerror)
        else:
            self._try_checkpoint()
            self._room.look()

    def _try_checkpoint(self) -> None:
        """Write a checkpoint; without one the older one and the segments since count."""
        try:
            self._checkpoint()
        except OSError as error:
            _log.warning("%s: no checkpoint yet: %s", self._folder, error.strerror)

    def _checkpoint(self) -> None:
        content = msgspec.json.encode(_Checkpoint(self._segment, self.state))
        write_atomically(self._folder / "checkpoint", seal(content))
        self._covered = self._segment
        self._drop_delivered()

    def _drop_delivered(self) -> None:
        """Remove closed segments that the checkpoint covers and the collector has."""
        for number in segment_numbers(self._folder):
            path = segment_path(self._folder, number)
            if number >= self._covered or last_seq(path) > self._delivered:
                break
            path.unlink()
