# SPDX-License-Identifier: Apache-2.0
"""The journal of one change of a node's layout: what was, what shall be, each step as it went.

One JSON line a record, on disk before the next step begins. `current.jsonl` is there as long as
a change is not finished; then it moves to `done/`. A last line that is torn does not count.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from fairwatt.core.clock import now_ms
from fairwatt.core.errors import SpoolError
from fairwatt.core.files import sync_folder
from fairwatt.prolog.mig.cuts import Cut

__all__ = [
    "Begun",
    "Ended",
    "Foreign",
    "Journal",
    "Mark",
    "Phase",
    "Record",
    "Result",
    "Target",
    "Turned",
    "Way",
    "last_change",
]

KEPT = 50
"""Finished changes that are kept."""

Way = Literal["forward", "back"]
Phase = Literal["begin", "done", "failed"]
Result = Literal["applied", "rolled back", "stuck", "abandoned"]


class Target(msgspec.Struct, frozen=True):
    """One side of a change: how the boards are cut and what Slurm has then.

    `counts`: GPUs by type. `lines`: the node's GPU lines of gres.conf as they were, good for the
    instances `ids` (device minor, GI, CI); None where gres.conf is not ours to write, or where
    they are yet to be made from the boards.
    """

    name: str
    cuts: tuple[Cut, ...]
    gres: str
    counts: dict[str, int]
    lines: tuple[str, ...] | None = None
    ids: tuple[tuple[int, int, int], ...] = ()


class Begun(msgspec.Struct, frozen=True, tag="begun", kw_only=True):
    """A change: from what to what; how Slurm learns it.

    `by_hand`: gres.conf has a line for each device. `foreign_reason`: why somebody else had
    drained the node before. `types`: GRES types in use, as spelling needs them.
    """

    t_ms: int
    node: str
    old: Target
    new: Target
    dynamic: bool
    by_hand: bool
    foreign_reason: str | None = None
    types: tuple[str, ...] = ()


class Mark(msgspec.Struct, frozen=True, tag="step", kw_only=True):
    """A step began, is done, or failed (`text` says why)."""

    t_ms: int
    way: Way
    step: str
    phase: Phase
    text: str = ""


class Turned(msgspec.Struct, frozen=True, tag="turned", kw_only=True):
    """From here on the old layout is wanted again."""

    t_ms: int
    text: str


class Foreign(msgspec.Struct, frozen=True, tag="foreign", kw_only=True):
    """Somebody drained the node while the change went on."""

    t_ms: int
    reason: str


class Ended(msgspec.Struct, frozen=True, tag="ended", kw_only=True):
    """How the change ended; after "stuck" the node stays drained and the change is open."""

    t_ms: int
    result: Result
    text: str = ""


Record: TypeAlias = Begun | Mark | Turned | Foreign | Ended
_decode = msgspec.json.Decoder(Record).decode


class Journal:
    """The open change of one node, in a folder that only root may write."""

    def __init__(self, folder: Path, records: Iterable[Record] = ()) -> None:
        self._path = folder / "current.jsonl"
        self.records: list[Record] = list(records)

    @classmethod
    def open(cls, folder: Path) -> Journal | None:
        """Take up the change that is not finished; None if there is none. Only under the lock.

        Raises:
            SpoolError: the journal cannot be read.
        """
        path = folder / "current.jsonl"
        journal = cls.peek(folder)
        if journal is None:
            path.unlink(missing_ok=True)
        else:
            _mend(path, journal.records)
        return journal

    @classmethod
    def peek(cls, folder: Path) -> Journal | None:
        """Read the change that is not finished, which another process may be at.

        None if there is none, or none of it but a torn first line: nothing was changed then.

        Raises:
            SpoolError: the journal cannot be read.
        """
        path = folder / "current.jsonl"
        records = _read(path) if path.exists() else []
        return cls(folder, records) if records and isinstance(records[0], Begun) else None

    @classmethod
    def begin(cls, folder: Path, begun: Begun) -> Journal:
        """Start a change."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        journal = cls(folder)
        journal.append(begun)
        sync_folder(folder)
        return journal

    @property
    def begun(self) -> Begun:
        """What changes to what."""
        first = self.records[0]
        assert isinstance(first, Begun), "open() and begin() look"  # noqa: S101
        return first

    @property
    def way(self) -> Way:
        """Whether the new layout is wanted, or the old one again."""
        return "back" if any(isinstance(each, Turned) for each in self.records) else "forward"

    @property
    def target(self) -> Target:
        """The layout that is wanted."""
        return self.begun.new if self.way == "forward" else self.begun.old

    @property
    def foreign_reason(self) -> str | None:
        """Why somebody else drained the node, before or meanwhile."""
        found = [each.reason for each in self.records if isinstance(each, Foreign)]
        return found[-1] if found else self.begun.foreign_reason

    def began(self, step: str) -> bool:
        """Whether a step was ever begun, on either way."""
        return any(each.step == step for each in self.marks)

    @property
    def marks(self) -> list[Mark]:
        """The steps as they went."""
        return [each for each in self.records if isinstance(each, Mark)]

    def done_ms(self, step: str, way: Way | None = None) -> int | None:
        """When a step was last done, on this way or on either."""
        found = [each for each in self.marks if (each.step, each.phase) == (step, "done")]
        return next((each.t_ms for each in reversed(found) if way in (None, each.way)), None)

    def append(self, record: Record) -> None:
        """Put a record on disk.

        Raises:
            SpoolError: the disk is full or the folder not writable.
        """
        try:
            with self._path.open("ab") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(msgspec.json.encode(record) + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise SpoolError(
                f"the journal cannot be written: {error.strerror}",
                place=str(self._path),
                remedy="make room, or set mig.state_dir; then run fairwatt mig apply again",
            ) from error
        self.records.append(record)

    def end(self, result: Result, text: str = "") -> None:
        """Note how it ended; unless it is stuck, the change is finished."""
        self.append(Ended(t_ms=now_ms(), result=result, text=text))
        if result == "stuck":
            return
        done = self._path.parent / "done"
        done.mkdir(mode=0o700, exist_ok=True)
        self._path.rename(done / f"{self.begun.t_ms}.jsonl")
        sync_folder(done)
        sync_folder(self._path.parent)
        for old in _finished(done)[:-KEPT]:
            old.unlink(missing_ok=True)


def last_change(folder: Path) -> list[Record]:
    """Return the records of the last finished change; [] if there is none."""
    found = _finished(folder / "done")
    return _read(found[-1]) if found else []


def _finished(done: Path) -> list[Path]:
    return sorted(done.glob("*.jsonl"), key=lambda path: path.name.zfill(32))


def _read(path: Path) -> list[Record]:
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise SpoolError(f"cannot be read: {error.strerror}", place=str(path)) from error
    records: list[Record] = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            records.append(_decode(line))
        except msgspec.MsgspecError as error:
            raise SpoolError(
                f"not a record: {error}",
                place=f"{path}:{number}",
                remedy="see what the node is (fairwatt mig show), then move the file away",
            ) from error
    return records


def _mend(path: Path, records: Iterable[Record]) -> None:
    """Cut a torn last line off, else the next record would be torn too."""
    whole = sum(len(msgspec.json.encode(record)) + 1 for record in records)
    if path.stat().st_size > whole:
        os.truncate(path, whole)
