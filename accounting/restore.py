# SPDX-License-Identifier: Apache-2.0
"""Puts a backup in the store's place: the old store stays beside it under another name."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from fairwatt.accounting.backup import copy_database
from fairwatt.accounting.integrity import faults_of_file
from fairwatt.accounting.store import schema_of
from fairwatt.accounting.store_files import hold_store
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
        StoreError: the store is in use, or the backup is damaged or of a newer fairwatt; nothing
            was changed.
    """
    with hold_store(store, _IN_USE):
        _check_backup(backup)
        fresh = store.with_name(f"{store.name}.restored")
        with closing(_reader(backup)) as source:
            copy_database(source, fresh, f"{backup.name} is damaged", "take an older one")
        suffix = f".before-{datetime.fromtimestamp(now_ts, UTC):%Y%m%dT%H%M%SZ}"
        aside = store.with_name(store.name + suffix) if store.exists() else None
        if aside is not None:
            _take_apart(store, suffix)
            os.link(store, aside)
        fresh.replace(store)
        sync_folder(store.parent)
        return aside, list(_bring_months(store, backup.parent, suffix))


def _check_backup(backup: Path) -> None:
    if not backup.is_file():
        raise StoreError("no such backup", place=str(backup), remedy="see store.backup_dir")
    with closing(_reader(backup)) as reader:
        if schema_of(reader) == "newer":
            raise StoreError(
                "this backup is of a newer fairwatt", place=str(backup),
                remedy="update fairwatt on this host",
            )  # fmt: skip


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
    for copy in sorted(folder.glob(f"{store.stem}.windows-*.db")):
        path = store.with_name(copy.name)
        if path.exists():
            if not faults_of_file(path):
                continue
            path.replace(path.with_name(path.name + suffix))
        with closing(_reader(copy)) as source:
            copy_database(source, path)
        yield copy.name


def _reader(path: Path) -> sqlite3.Connection:
    uri = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
    return sqlite3.connect(uri, uri=True)
