# SPDX-License-Identifier: Apache-2.0
"""Plays a power cut on files whose writers kept a diary: what no sync put on disk is taken back.

Names are taken as kept: new files, renames and removals are in the file system's own journal.
"""

from __future__ import annotations

import os
import random
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

_HEADER = struct.Struct("=Qqqq")
SYNCED = -1


class _Entry(NamedTuple):
    file: int
    offset: int
    length: int
    before: bytes


def cut_power(diary: Path, files: Iterable[Path], rng: random.Random) -> int:
    """Take back what was written since each file's last sync; returns how many writes.

    Of each file some of the first of these writes may have reached the disk all the same.
    """
    if not diary.exists():
        return 0
    unsynced: dict[int, list[_Entry]] = defaultdict(list)
    for entry in _entries(diary.read_bytes()):
        if entry.offset == SYNCED:
            unsynced[entry.file].clear()
        else:
            unsynced[entry.file].append(entry)
    diary.unlink()
    lost = 0
    for path in files:
        entries = unsynced.get(path.stat().st_ino, [])
        kept = rng.choice((0, rng.randint(0, len(entries))))
        _take_back(path, entries[kept:])
        lost += len(entries) - kept
    return lost


def _entries(data: bytes) -> Iterator[_Entry]:
    at = 0
    while at + _HEADER.size <= len(data):
        file, offset, length, count = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        yield _Entry(file, offset, length, data[at : at + count])
        at += count


def _take_back(path: Path, entries: list[_Entry]) -> None:
    with path.open("rb+", buffering=0) as file:
        for entry in reversed(entries):
            os.pwrite(file.fileno(), entry.before, entry.offset)
            file.truncate(entry.length)
