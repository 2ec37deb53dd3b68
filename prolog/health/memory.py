# SPDX-License-Identifier: Apache-2.0
"""What the worker remembers over restarts: one small file, complete or absent."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Literal

import msgspec

from fairwatt.core.files import write_atomically
from fairwatt.prolog.health.drain import Record
from fairwatt.prolog.health.read_kernel import Position
from fairwatt.prolog.health.reading import Gpu, Xid

__all__ = ["Memory", "MemoryFile"]

_log = logging.getLogger(__name__)


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """All that lasts.

    Attributes:
        position: how far the kernel log was read.
        xids: what was found there in this boot.
        since: when troubles began (UTC epoch milliseconds), by finding key.
        boards: the GPUs as they were seen last.
        record: what was done to the node in Slurm.
    """

    v: Literal[1] = 1
    position: Position = Position()
    xids: tuple[Xid, ...] = ()
    since: dict[str, int] = {}
    boards: tuple[Gpu, ...] = ()
    record: Record = Record()


class MemoryFile:
    """Reads once, writes what changed; a fault is logged once and the checks go on."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "memory.json"
        self._faulty = False
        self.memory = self._read()

    def _read(self) -> Memory:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Memory)
        except FileNotFoundError:
            return Memory()
        except (OSError, msgspec.MsgspecError) as error:
            _log.error("%s cannot be read, all is new: %s", self._path, error)
            return Memory()

    def keep(self, memory: Memory) -> None:
        """Write `memory` if it is not what the file has."""
        if memory == self.memory and not self._faulty:
            return
        self.memory = memory
        try:
            self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            write_atomically(self._path, msgspec.json.encode(memory))
            self._faulty = False
        except OSError as error:
            if not self._faulty:
                _log.error("%s cannot be written: %s", self._path, error)
            self._faulty = True
