# SPDX-License-Identifier: Apache-2.0
"""Files that are complete or absent, whenever the power goes, and files that one process holds."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path
from typing import BinaryIO

__all__ = ["locked", "read_plain", "sync_folder", "write_atomically"]


def locked(path: Path) -> BinaryIO | None:
    """Return the file held under a lock until it is closed; None if another process holds it.

    Raises:
        OSError: the file cannot be made.
    """
    file = path.open("wb", buffering=0)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def read_plain(path: Path, longest: int) -> bytes:
    """Return what a plain file holds, where others may put what they like: nothing is waited for.

    Raises:
        OSError: it cannot be read; EINVAL: a pipe, a folder or the like, or longer than `longest`
            bytes; ELOOP: a link.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        there = os.fstat(descriptor)
        if not stat.S_ISREG(there.st_mode) or there.st_size > longest:
            raise OSError(errno.EINVAL, "no plain file, or too large", str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def write_atomically(
    path: Path, content: bytes, mode: int = 0o600, *, durable: bool = True
) -> None:
    """Replace `path` by `content` in one step, on disk when this returns.

    Without `durable` it may be lost with the power; for what means nothing after that.

    Raises:
        OSError: the folder cannot be written or is full; `path` is as before.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(descriptor, mode)
            if durable:
                os.fsync(descriptor)
        temporary.rename(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Put the folder's own entries on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
