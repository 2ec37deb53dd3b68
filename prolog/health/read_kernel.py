# SPDX-License-Identifier: Apache-2.0
"""XIDs of the kernel log: reads on from a kept position, believes the kernel alone.

A record is `PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;TEXT`. Users reach the log with their programs'
names, and root by writing to /dev/kmsg; both lack the facility 0 or the line's beginning.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from fairwatt.prolog.health.reading import Xid

__all__ = ["KernelLog", "Position", "xids_of_records"]

MAX_RECORD = 8192
MAX_RECORDS = 100_000
MAX_KEPT = 1000
_RECORD = re.compile(r"(\d{1,9}),(\d{1,19}),(\d{1,19}),[^;\n]*;([^\n]*)")
_HEX2 = "([0-9a-fA-F]{2})"
_XID = re.compile(
    rf"NVRM: Xid \((?:PCI:)?([0-9a-fA-F]{{4,8}}):{_HEX2}:{_HEX2}(?:\.\d)?\): (\d{{1,4}})\b"
)


class Position(msgspec.Struct, frozen=True):
    """How far the log of a boot was read: the last record's sequence number."""

    boot_id: str = ""
    sequence: int = -1


class KernelLog:
    """Follows /dev/kmsg, or a file of such records (tests).

    Args:
        path: the device or file.
        boot_id: this boot's; numbers of another one mean nothing.
        boot_ms: when the kernel started, UTC epoch milliseconds.
        position: where an earlier process stopped.
    """

    def __init__(self, path: Path, boot_id: str, boot_ms: int, position: Position) -> None:
        self._path = path
        self._boot_ms = boot_ms
        fresh = Position(boot_id)
        self.position = position if position.boot_id == boot_id else fresh
        self._device: int | None = None
        self._offset = 0

    def read(self) -> list[Xid]:
        """Return the XIDs of the records that are new.

        Raises:
            OSError: the log cannot be read.
        """
        records = self._device_records() if self._is_device() else self._file_records()
        found, last = xids_of_records(records, self._boot_ms, self.position.sequence)
        self.position = Position(self.position.boot_id, last)
        return found

    def _is_device(self) -> bool:
        return stat.S_ISCHR(self._path.stat().st_mode)

    def _device_records(self) -> Iterator[str]:
        if self._device is None:
            self._device = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        for _ in range(MAX_RECORDS):
            try:
                yield os.read(self._device, MAX_RECORD).decode("utf-8", "replace")
            except BlockingIOError:
                return
            except BrokenPipeError:  # what was to come next was overwritten: go on after it
                continue

    def _file_records(self) -> list[str]:
        with self._path.open("rb") as file:
            if file.seek(0, os.SEEK_END) < self._offset:
                self._offset = 0  # another file, or cut
            file.seek(self._offset)
            whole, newline, _ = file.read(MAX_RECORD * 1024).rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        return whole.decode("utf-8", "replace").splitlines()


def xids_of_records(records: Iterable[str], boot_ms: int, after: int) -> tuple[list[Xid], int]:
    """Return the kernel's XIDs among records numbered above `after`, and the last number."""
    found: list[Xid] = []
    last = after
    for record in records:
        match = _RECORD.match(record)
        if match is None or int(match[2]) <= after:
            continue
        last = max(last, int(match[2]))
        xid = _XID.match(match[4])
        if xid is not None and int(match[1]) >> 3 == 0:  # facility 0: the kernel itself
            pci = f"{int(xid[1], 16):04x}:{xid[2]}:{xid[3]}".lower()
            found.append(Xid(boot_ms + int(match[3]) // 1000, int(xid[4]), pci))
    return found[-MAX_KEPT:], last
