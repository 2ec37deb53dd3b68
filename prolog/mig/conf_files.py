# SPDX-License-Identifier: Apache-2.0
"""Replaces configuration files as a whole, with what was there kept for the way back."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from fairwatt.core.errors import ConfigError
from fairwatt.core.files import write_atomically

__all__ = ["ConfFiles"]


class ConfFiles:
    """The files that one change touches; `kept` is the folder for their copies."""

    def __init__(self, kept: Path) -> None:
        self._kept = kept

    def edit(self, path: Path, change: Callable[[str], str]) -> None:
        """Replace a file by what `change` makes of its text; mode and owner stay.

        Raises:
            ConfigError: it cannot be read or written; it is as before.
        """
        path = path.resolve()
        try:
            before = path.read_bytes() if path.exists() else b""
            after = change(before.decode("utf-8", "surrogateescape")).encode(
                "utf-8", "surrogateescape"
            )
            if after == before:
                return
            self._keep(path, before, after)
            _replace(path, after)
        except OSError as error:
            raise _unwritable(path, error) from error

    def restore(self, path: Path) -> bool:
        """Put a file back as it was before its first edit, if nobody else changed it since.

        Returns whether it is as it was.

        Raises:
            ConfigError: it cannot be read or written.
        """
        path = path.resolve()
        before, after = self._copies(path)
        try:
            if not before.exists():
                return False
            if path.read_bytes() == after.read_bytes():
                _replace(path, before.read_bytes())
            return path.read_bytes() == before.read_bytes()
        except OSError as error:
            raise _unwritable(path, error) from error

    def _keep(self, path: Path, before: bytes, after: bytes) -> None:
        self._kept.mkdir(mode=0o700, parents=True, exist_ok=True)
        first, last = self._copies(path)
        if not first.exists():
            write_atomically(first, before)
        write_atomically(last, after)

    def _copies(self, path: Path) -> tuple[Path, Path]:
        name = str(path).strip("/").replace("/", "%")
        return self._kept / f"{name}.before", self._kept / f"{name}.after"


def _replace(path: Path, content: bytes) -> None:
    there = path.stat() if path.exists() else None
    write_atomically(path, content, stat.S_IMODE(there.st_mode) if there else 0o644)
    if there is not None and (there.st_uid, there.st_gid) != (os.geteuid(), os.getegid()):
        os.chown(path, there.st_uid, there.st_gid)


def _unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"cannot be replaced: {error.strerror}",
        place=str(path),
        remedy="run it as root; for a slurm.conf that lies elsewhere set mig.gres_command",
    )
