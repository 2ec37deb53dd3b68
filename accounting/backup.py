# SPDX-License-Identifier: Apache-2.0
"""Whole copies of the store while it is in use, and the way back.

A copy is made from one state of the store: neither its writer nor its readers wait. It gets its
name only when it is complete, on disk and checked; what a kill leaves has another name.
"""

from __future__ import annotations

import glob
import logging
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fairwatt.accounting.integrity import faults_of_file
from fairwatt.accounting.store import FILE_MODE, schema_of
from fairwatt.accounting.store_files import connect_read_only, give_to_owner, lock_file
from fairwatt.accounting.windows import columns_of, month_path
from fairwatt.core.errors import StoreError
from fairwatt.core.files import sync_folder

__all__ = ["Backup", "back_up", "back_up_before_update", "backups_in", "copy_database"]

_log = logging.getLogger(__name__)

STEP_PAGES = 1024
REST_S = 0.002
"""After each step of 8 MiB the disk is left to others for so long."""

LOCK = ".fairwatt-backup.lock"
_TIME = "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True)
class Backup:
    """A finished backup: its file, bytes, seconds it took, and what else was copied or removed."""

    path: Path
    size: int
    took_s: float
    months: tuple[str, ...]
    removed: tuple[str, ...]


def back_up(store: Path, folder: Path, *, keep_days: int, now_ts: float) -> Backup:
    """Copy the store into a folder, with its month files that are new; remove old backups.

    Args:
        store: the store's file; it may be in use.
        folder: where backups are kept; it must exist, and be another than the store's.
        keep_days: older backups are removed, but never the newest.
        now_ts: UTC epoch seconds, which become the backup's name.

    Raises:
        StoreError: the folder is missing or full, another backup is running, the store cannot be
            read, or the copy is not sound; what was there before is as it was.
    """
    began = time.monotonic()
    # Month files are beside the file itself, not beside a link to it.
    store = store.resolve()
    if folder.resolve() == store.parent:
        raise StoreError(
            "backups would lie in the store's own folder", place=str(folder),
            remedy="set store.backup_dir to another folder, best on another disk",
        )  # fmt: skip
    with _hold(folder):
        _remove_leftovers(folder, store)
        path = folder / f"{store.stem}-{datetime.fromtimestamp(now_ts, UTC):{_TIME}}.db"
        removed: tuple[str, ...] = ()
        with closing(_reader(store)) as reader:
            if _lacks_room(reader, folder):
                # What is kept too long goes after a good copy, unless the copy needs its room.
                removed = tuple(_remove_old(store, folder, now_ts - keep_days * 86_400))
                _check_room(reader, folder)
            # First: a window that is moved meanwhile is then in both copies, else it were in none.
            copy_database(reader, path)
            months = tuple(_copy_months(reader, store, folder))
        removed += tuple(_remove_old(store, folder, now_ts - keep_days * 86_400))
    return Backup(path, path.stat().st_size, time.monotonic() - began, months, removed)


def back_up_before_update(store: Path, folder: Path, *, keep_days: int, now_ts: float) -> None:
    """Copy a store that this fairwatt is about to bring up to date, so that there is a way back.

    A backup that cannot be made is told in the log: an update is all done or not at all.
    """
    if not store.exists():
        return
    try:
        with closing(_reader(store)) as reader:
            if schema_of(reader) != "older":
                return
        made = back_up(store, folder, keep_days=keep_days, now_ts=now_ts)
        _log.info("backup before the update: %s", made.path)
    except StoreError as error:
        _log.error("no backup before the update: %s", error)


def backups_in(folder: Path, store: Path) -> list[tuple[float, Path]]:
    """Return a store's backups in a folder with their times, the oldest first."""
    pattern = re.compile(re.escape(store.resolve().stem) + r"-(\d{8}T\d{6}Z)\.db", re.ASCII)
    found = ((pattern.fullmatch(path.name), path) for path in folder.glob("*.db"))
    return sorted((_time(match[1]), path) for match, path in found if match)


def copy_database(
    source: sqlite3.Connection,
    path: Path,
    unsound: str = "the copy is not sound",
    remedy: str = "run `fairwatt store check`: the store may be damaged",
) -> None:
    """Copy a database to a file that is complete and sound, or not there.

    `unsound` and `remedy` are what to say where the copy is damaged, as its source then is.

    `source` is read in one transaction, so that writing beside it does not begin the copy anew.

    Raises:
        StoreError: the disk is full or the copy is not sound.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        _copy_to(source, part)
        faults = faults_of_file(part)
        if faults:
            raise StoreError(f"{unsound}: {faults[0]}", place=str(path), remedy=remedy)
        give_to_owner(part)
        _put_on_disk(part)
        part.replace(path)
        sync_folder(path.parent)
    except (sqlite3.Error, OSError) as error:
        raise StoreError(
            f"cannot be copied: {error}",
            place=str(path),
            remedy="make room on its disk, and run it as the store's owner or root",
        ) from error
    finally:
        part.unlink(missing_ok=True)


def _reader(store: Path) -> sqlite3.Connection:
    """Of any schema: an older store is copied before it is brought up to date."""
    try:
        connection = connect_read_only(store)
        try:
            schema_of(connection)
        except StoreError:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise StoreError(
            f"cannot be read: {error}", place=str(store), remedy="see collector.database"
        ) from error
    return connection


def _copy_to(source: sqlite3.Connection, part: Path) -> None:
    part.unlink(missing_ok=True)
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, FILE_MODE))
    with closing(sqlite3.connect(part, isolation_level=None)) as target:
        # Whoever is killed here leaves a part that nobody opens: it needs no journal.
        target.execute("PRAGMA journal_mode = OFF")
        target.execute("PRAGMA synchronous = OFF")
        source.execute("BEGIN")
        try:
            source.execute("SELECT count(*) FROM sqlite_master").fetchone()
            source.backup(target, pages=STEP_PAGES, progress=_rest)
        finally:
            source.rollback()
    with closing(sqlite3.connect(part, isolation_level=None)) as target:
        # One file without a WAL, so that it can be read where nothing can be written.
        target.execute("PRAGMA journal_mode = DELETE")


def _rest(_status: int, remaining: int, _total: int) -> None:
    if remaining:
        time.sleep(REST_S)


def _put_on_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _size(reader: sqlite3.Connection) -> int:
    pages, size = (
        reader.execute(f"PRAGMA {n}").fetchone()[0] for n in ("page_count", "page_size")
    )
    return int(pages * size)


def _lacks_room(reader: sqlite3.Connection, folder: Path) -> bool:
    return _size(reader) > shutil.disk_usage(folder).free


def _check_room(reader: sqlite3.Connection, folder: Path) -> None:
    size, free = _size(reader), shutil.disk_usage(folder).free
    if size > free:
        raise StoreError(
            f"a backup takes {size / 1e6:,.1f} MB, {free / 1e6:,.1f} MB are free",
            place=str(folder), remedy="make room there, or lower store.backup_keep_days",
        )  # fmt: skip


@contextmanager
def _hold(folder: Path) -> Iterator[None]:
    """One backup at a time in a folder."""
    lock = lock_file(folder / LOCK)
    if lock is None:
        raise StoreError(
            "another backup is running", place=str(folder), remedy="wait until it has ended"
        )
    with lock:
        yield


def _remove_leftovers(folder: Path, store: Path) -> None:
    """What a kill left: no other backup is running, the lock says so."""
    for part in folder.glob(f".{glob.escape(store.stem)}*.part*"):
        part.unlink(missing_ok=True)


def _copy_months(reader: sqlite3.Connection, store: Path, folder: Path) -> Iterator[str]:
    """Copy the month files that changed since the last backup; remove those that were dropped.

    One that is missing although it was not dropped is lost: then the copy is all there is.
    """
    for path in sorted(store.parent.glob(f"{glob.escape(store.stem)}.windows-*.db")):
        target, changed_ns = folder / path.name, _changed_ns(path)
        if target.exists() and target.stat().st_mtime_ns == changed_ns:
            continue
        with closing(sqlite3.connect(path)) as source:
            copy_database(source, target)
        os.utime(target, ns=(changed_ns, changed_ns))
        yield path.name
    if columns_of(reader, "window_month"):
        gone = reader.execute("SELECT month FROM window_month WHERE dropped_ts NOTNULL")
        for (month,) in gone:
            (folder / month_path(store, month).name).unlink(missing_ok=True)


def _changed_ns(path: Path) -> int:
    wal = path.with_name(f"{path.name}-wal")
    # An empty one is what a reader leaves.
    files = (path, wal) if wal.exists() and wal.stat().st_size else (path,)
    return max(file.stat().st_mtime_ns for file in files)


def _remove_old(store: Path, folder: Path, before_ts: float) -> Iterator[str]:
    for made_ts, path in backups_in(folder, store)[:-1]:
        if made_ts < before_ts:
            path.unlink()
            yield path.name


def _time(text: str) -> float:
    return datetime.strptime(text, _TIME).replace(tzinfo=UTC).timestamp()
