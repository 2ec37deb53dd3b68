# SPDX-License-Identifier: Apache-2.0
"""Files beside the store: the lock of its one collector, whom a file belongs to, who may read."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from fairwatt.core.errors import StoreError

__all__ = ["connect_read_only", "give_to_owner", "hold_store", "lock_file", "open_read_only"]

LOCK_MODE = 0o640


def hold_store(store: Path, remedy: str) -> BinaryIO:
    """Return the store's lock, held until the file is closed, in children of a fork as well.

    Its collector holds it, and whoever puts another file in the store's place. The lock is on a
    file of its own: SQLite's locks on the store would end with any other descriptor of it.

    Raises:
        StoreError: another process holds it, or its folder cannot be written.
    """
    file = store.resolve()
    path = file.with_name(f"{file.name}.lock")
    held = lock_file(path)
    if held is None:
        raise StoreError("a collector is running on it", place=str(store), remedy=remedy)
    return held


def lock_file(path: Path) -> BinaryIO | None:
    """Return a file under a lock until it is closed; None if another process holds it.

    Raises:
        StoreError: it cannot be made, or is a link.
    """
    # Root must not be led to another file by the folder's owner.
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags, LOCK_MODE)
    except OSError as error:
        raise StoreError(
            f"cannot be written: {error.strerror}", place=str(path),
            remedy="create its folder and make it writable for this user; a lock is no link",
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
        os.chown(path, folder.st_uid, folder.st_gid, follow_symlinks=False)


def connect_read_only(path: Path) -> sqlite3.Connection:
    """Open a database for reading, also where its user may write nothing beside it.

    Raises:
        sqlite3.Error: it is not there, cannot be read, or is in use and needs files beside it.
    """
    return open_read_only(path, _connect)


def open_read_only(path: Path, connect: Callable[[str], sqlite3.Connection]) -> sqlite3.Connection:
    """Return what `connect` opens by one of two URIs of a file, after it has read from it.

    Raises:
        sqlite3.Error: `connect` raised it, and the file is not there or in use.
    """
    uri = f"file:{quote(str(path.absolute()))}?mode=ro"
    try:
        return connect(uri)
    except sqlite3.Error:
        # Without a WAL nobody writes, and a user who may not make one has to say that it is not
        # needed: so pages can be served while the collector is down.
        if not path.exists() or path.with_name(f"{path.name}-wal").exists():
            raise
    return connect(f"{uri}&immutable=1")


def _connect(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, timeout=5.0)
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    except sqlite3.Error:
        connection.close()
        raise
    return connection
