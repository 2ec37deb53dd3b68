# SPDX-License-Identifier: Apache-2.0
"""Files beside the store: the lock of its one collector, and whom a file belongs to."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import BinaryIO

from fairwatt.core.errors import StoreError

__all__ = ["give_to_owner", "hold_store", "lock_file"]

LOCK_MODE = 0o640


def hold_store(store: Path, remedy: str) -> BinaryIO:
    """Return the store's lock, held until the file is closed, in children of a fork as well.

    Its collector holds it, and whoever puts another file in the store's place. The lock is on a
    file of its own: SQLite's locks on the store would end with any other descriptor of it.

    Raises:
        StoreError: another process holds it, or its folder cannot be written.
    """
    path = store.with_name(f"{store.name}.lock")
    held = lock_file(path)
    if held is None:
        raise StoreError("a collector is running on it", place=str(store), remedy=remedy)
    return held


def lock_file(path: Path) -> BinaryIO | None:
    """Return a file under a lock until it is closed; None if another process holds it.

    Raises:
        StoreError: it cannot be made.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, LOCK_MODE)
    except OSError as error:
        raise StoreError(
            f"cannot be written: {error.strerror}", place=str(path),
            remedy="create its folder and make it writable for this user",
        ) from error  # fmt: skip
    file = os.fdopen(descriptor, "rb+", buffering=0)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        give_to_owner(path)
    except BlockingIOError:
        file.close()
        return None
    return file


def give_to_owner(path: Path) -> None:
    """Give a file that root made to the owner of its folder, who has to write it next."""
    if os.geteuid() == 0:
        folder = path.parent.stat()
        os.chown(path, folder.st_uid, folder.st_gid)
