# SPDX-License-Identifier: Apache-2.0
"""Puts a backup in the store's place: the old store stays beside it under another name."""

from __future__ import annotations

import glob
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from fairwatt.accounting.backup import copy_database
from fairwatt.accounting.integrity import faults_of_file
from fairwatt.accounting.store import schema_of
from fairwatt.accounting.store_files import connect_read_only, hold_store
from fairwatt.core.errors import StoreError
from fairwatt.core.files import sync_folder

__all__ = ["restore"]

_IN_USE = "stop fairwatt-collector and fairwatt-dashboard, and what else reads it"


def restore(store: Path, backup: Path, now_ts: float) -> tuple[Path | None, list[str]]:
    """Put a backup in the store's place, with the month files that are missing or damaged.

    A kill at any moment leaves the old store or the new one under its name, each whole.

    Returns:
        Where the old store is now (None: there was none), and the month files that came back.

    Raises:
        StoreError: the store is in use, the backup is damaged, the store itself or of a newer
            fairwatt, or a file cannot be written; the store is as it was.
    """
    store = store.resolve()
    with hold_store(store, _IN_USE):
        _check_backup(backup, store)
        try:
            return _put(store, backup, now_ts)
        except OSError as error:
            raise StoreError(
                f"cannot be written: {error.strerror}", place=str(error.filename2 or store),
                remedy="make its folder writable, on a disk with room that knows links",
            ) from error  # fmt: skip


def _put(store: Path, backup: Path, now_ts: float) -> tuple[Path | None, list[str]]:
    fresh = store.with_name(f"{store.name}.restored")
    with closing(_reader(backup)) as source:
        copy_database(source, fresh, f"{backup.name} is damaged", "take an older one")
    suffix = f".before-{datetime.fromtimestamp(now_ts, UTC):%Y%m%dT%H%M%SZ}"
    aside = store.with_name(store.name + suffix) if store.exists() else None
    if aside is not None:
        _take_apart(store, suffix)
    # First: where there is no room for them, the old store stays.
    months = list(_bring_months(store, backup.resolve().parent, suffix))
    if aside is not None:
        os.link(store, aside)
    fresh.replace(store)
    sync_folder(store.parent)
    return aside, months


def _check_backup(backup: Path, store: Path) -> None:
    if not backup.is_file():
        raise StoreError("no such backup", place=str(backup), remedy="see store.backup_dir")
    if backup.resolve() == store:
        raise StoreError(
            "this is the store itself", place=str(backup), remedy="name one of its backups"
        )
    try:
        with closing(_reader(backup)) as reader:
            schema = schema_of(reader)
            (page_size,) = reader.execute("PRAGMA page_size").fetchone()
    except sqlite3.Error as error:
        raise _damaged(backup, str(error)) from error
    if schema == "newer":
        raise StoreError(
            "this backup is of a newer fairwatt", place=str(backup),
            remedy="update fairwatt on this host",
        )  # fmt: skip
    # SQLite reads what is missing of the last page as zeros.
    if backup.stat().st_size % page_size:
        raise _damaged(backup, "its end is missing")


def _damaged(backup: Path, how: str) -> StoreError:
    return StoreError(f"damaged: {how}", place=str(backup), remedy="take an older one")


def _take_apart(store: Path, suffix: str) -> None:
    """Leave the old store as one file without a WAL, which would be taken for the new one's.

    Only the last connection can do so: it fails while anybody else has the store open.
    """
    try:
        with closing(sqlite3.connect(store, isolation_level=None, timeout=1.0)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.OperationalError as error:
        raise StoreError(f"in use: {error}", place=str(store), remedy=_IN_USE) from error
    except sqlite3.DatabaseError:
        # Too damaged to be opened, which is why it is replaced.
        for end in ("-wal", "-shm"):
            rest = store.with_name(store.name + end)
            if rest.exists():
                rest.replace(store.with_name(store.name + suffix + end))


def _bring_months(store: Path, folder: Path, suffix: str) -> Iterator[str]:
    if folder == store.parent:
        return
    for copy in sorted(folder.glob(f"{glob.escape(store.stem)}.windows-*.db")):
        path = store.with_name(copy.name)
        if path.exists():
            if not faults_of_file(path):
                continue
            path.replace(path.with_name(path.name + suffix))
        with closing(_reader(copy)) as source:
            copy_database(source, path)
        yield copy.name


def _reader(path: Path) -> sqlite3.Connection:
    """A backup is one file; what was copied as a store may have its last writes in a WAL."""
    return connect_read_only(path)
