# SPDX-License-Identifier: Apache-2.0
"""A file that whole lines are appended to, on disk when the call returns or when `sync` does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self

from fairwatt.core.files import sync_folder

__all__ = ["LineFile"]


class LineFile:
    """Appends lines; after a write that failed the file is as before it.

    Where even that is refused, the next write ends the torn line first.

    Args:
        path: the file, for its owner only if it is made.

    Attributes:
        size: its length in bytes.
    """

    def __init__(self, path: Path) -> None:
        self._torn = path.exists() and path.read_bytes()[-1:] not in (b"", b"\n")
        self._file = path.open("ab", buffering=0)
        self.size = self._file.seek(0, os.SEEK_END)

    @classmethod
    def create(cls, path: Path) -> Self:
        """Open a new file, whose name is on disk too.

        Raises:
            OSError: the folder is full or cannot be written.
        """
        made = cls(path)
        try:
            path.chmod(0o600)
            sync_folder(path.parent)
        except OSError:
            made.close()
            raise
        return made

    def append(self, lines: bytes, *, sync: bool = True) -> None:
        """Write lines, each with its newline; without `sync` only the system has them yet.

        Raises:
            OSError: the disk refuses them; none of them is in the file.
        """
        data = b"\n" * self._torn + lines
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._file.fileno(), view) :]
            if sync:
                self.sync()
        except OSError:
            self._undo()
            raise
        self.size += len(data)
        self._torn = False

    def sync(self) -> None:
        """Put what was appended on disk.

        Raises:
            OSError: the disk refuses it.
        """
        os.fdatasync(self._file.fileno())

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _undo(self) -> None:
        try:
            os.ftruncate(self._file.fileno(), self.size)
        except OSError:
            self._torn = True
