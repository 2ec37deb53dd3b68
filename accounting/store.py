# SPDX-License-Identifier: Apache-2.0
"""Opens the SQLite store: one writer with the newest schema, any number of read-only readers.

The file belongs on a local disk: SQLite's WAL does not work on NFS or Lustre.
"""

from __future__ import annotations

import functools
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from sqlite_utils import Database

from fairwatt.accounting.migrations import migrations
from fairwatt.accounting.store_files import give_to_owner, open_read_only
from fairwatt.core.errors import StoreError

__all__ = [
    "SQLITE_INTEGER_MAX",
    "bump_data_version",
    "data_version",
    "get_meta",
    "open_reader",
    "open_store",
    "schema_of",
    "set_meta",
    "transaction",
]

SQLITE_INTEGER_MAX = 2**63 - 1
"""Largest integer that SQLite stores; Slurm's NO_VAL64 is beyond it."""

BUSY_TIMEOUT_MS = 5000
FILE_MODE = 0o640
_APPLIED = "SELECT name FROM _sqlite_migrations WHERE migration_set = 'fairwatt'"


def open_store(path: str | Path) -> Database:
    """Open the store for writing, creating and migrating it as needed.

    The connection may be used by several threads, one at a time.

    Raises:
        StoreError: the folder is missing, the file is no store of ours, or it was written
            by a newer fairwatt.
    """
    file = Path(path)
    _create(file)
    try:
        connection = sqlite3.connect(file, timeout=BUSY_TIMEOUT_MS / 1000, check_same_thread=False)
        try:
            _check_own(connection, file)
            _prepare(connection)
            db = Database(connection)
            _migrate(db, file)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise StoreError(str(error), place=str(file), remedy=_remedy(error)) from error
    return db


def open_reader(path: str | Path) -> sqlite3.Connection:
    """Open the store read-only; a write fails with sqlite3.OperationalError.

    Raises:
        StoreError: there is no readable store at `path`, or another fairwatt wrote it.
    """
    file = Path(path)
    try:
        return open_read_only(file, functools.partial(_reader, file))
    except sqlite3.Error as error:
        raise _unreadable(file, error) from error


def _reader(file: Path, uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        uri,
        uri=True,
        timeout=BUSY_TIMEOUT_MS / 1000,
        check_same_thread=False,
    )
    try:
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
        data_version(connection)
        applied = {name for (name,) in connection.execute(_APPLIED)}
    except sqlite3.Error:
        connection.close()
        raise
    if applied != _known_migrations():
        connection.close()
        raise _other_schema(file, applied)
    return connection


def _unreadable(file: Path, error: sqlite3.Error) -> StoreError:
    is_other = not isinstance(error, sqlite3.OperationalError) or "no such" in str(error)
    return StoreError(
        f"no readable store: {error}",
        place=str(file),
        remedy="restore a backup, or name the store in collector.database"
        if is_other and file.exists() and file.stat().st_size
        else "start `fairwatt collector` once, and join the group that may read the file",
    )


@contextmanager
def transaction(db: Database) -> Iterator[sqlite3.Connection]:
    """Give the connection inside one write transaction; an error undoes all of it.

    The write lock is taken at the start, so that two processes wait for each other instead of
    failing in the middle.

    Raises:
        StoreError: the disk is full, or another process held the lock for 5 s.
    """
    connection = db.conn
    try:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            connection.rollback()
            raise
        connection.execute("COMMIT")
    except sqlite3.OperationalError as error:
        connection.rollback()
        raise StoreError(str(error), place=_file(connection), remedy=_remedy(error)) from error


def data_version(connection: sqlite3.Connection) -> int:
    """Return the number that grows with every recomputed rollup; reports carry it."""
    return int(get_meta(connection, "data_version") or 0)


def bump_data_version(connection: sqlite3.Connection) -> None:
    """Add one to the data version, inside the caller's transaction."""
    set_meta(connection, "data_version", str(data_version(connection) + 1))


def schema_of(connection: sqlite3.Connection) -> Literal["older", "newer", "own"]:
    """Return whether a store was written by an older or a newer fairwatt than this one.

    Raises:
        StoreError: it is no store.
    """
    try:
        applied = {name for (name,) in connection.execute(_APPLIED)}
    except sqlite3.Error as error:
        raise StoreError(
            f"no store of fairwatt: {error}", place=str(_file(connection)),
            remedy="name another file",
        ) from error  # fmt: skip
    if applied - _known_migrations():
        return "newer"
    return "own" if applied == _known_migrations() else "older"


def _file(connection: sqlite3.Connection) -> str:
    return next(str(row[2]) for row in connection.execute("PRAGMA database_list"))


def get_meta(connection: sqlite3.Connection, key: str) -> str | None:
    """Return a value of the meta table, None if it was never set."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])


def set_meta(connection: sqlite3.Connection, key: str, value: str) -> None:
    """Set a value of the meta table, inside the caller's transaction."""
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))


def _create(file: Path) -> None:
    """Create a missing file with its mode before SQLite does, which would use the umask.

    An existing file is not touched: closing any descriptor of it drops the POSIX locks of this
    process's other connections, and then another process may delete the WAL under them.
    """
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, FILE_MODE))
        give_to_owner(file)
    except FileExistsError:
        return
    except OSError as error:
        raise StoreError(
            f"cannot be opened: {error.strerror}",
            place=str(file),
            remedy="create its folder and make it writable, or set collector.database",
        ) from error


def _check_own(connection: sqlite3.Connection, file: Path) -> None:
    """Another program's database must not get our tables."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if tables and "_sqlite_migrations" not in tables:
        raise StoreError(
            "another program's database", place=str(file), value=min(tables),
            remedy="name another file in collector.database",
        )  # fmt: skip


def _prepare(connection: sqlite3.Connection) -> None:
    for pragma in (
        # A node's body touches a page a device: with 8192 a day of 1,000 nodes took twice as long.
        "page_size = 4096",
        "journal_mode = WAL",
        "synchronous = NORMAL",
        f"busy_timeout = {BUSY_TIMEOUT_MS}",
        "foreign_keys = ON",
        "trusted_schema = OFF",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _migrate(db: Database, file: Path) -> None:
    applied = {migration.name for migration in migrations.applied(db)}
    if applied - _known_migrations():
        raise _other_schema(file, applied)
    if not migrations.pending(db):
        return
    # A table that others refer to can be made anew only without foreign keys, and the switch
    # works outside transactions alone.
    db.conn.execute("PRAGMA foreign_keys = OFF")
    # One transaction for all of them: of two processes that start at once, the second waits.
    with transaction(db) as connection:
        migrations.apply(db)
        broken = connection.execute("PRAGMA foreign_key_check").fetchall()
        if broken:
            raise StoreError(
                "rows without the row they belong to", place=str(file), value=broken[:3],
                remedy="restore a backup, or delete these rows",
            )  # fmt: skip
    db.conn.execute("PRAGMA foreign_keys = ON")


def _other_schema(file: Path, applied: set[str]) -> StoreError:
    """A reader of another schema would show wrong sums, or fail in the middle of a page."""
    foreign, missing = applied - _known_migrations(), _known_migrations() - applied
    return StoreError(
        f"written by {'a newer' if foreign else 'an older'} fairwatt",
        place=str(file),
        value=sorted(foreign or missing)[-1],
        remedy="update fairwatt on this host"
        if foreign
        else "restart `fairwatt collector`: it brings the store up to date",
    )


@functools.cache
def _known_migrations() -> frozenset[str]:
    empty = Database(memory=True)
    try:
        return frozenset(migration.name for migration in migrations.pending(empty))
    finally:
        empty.close()


def _remedy(error: sqlite3.Error) -> str:
    text = str(error)
    if "locked" in text:
        return "another process writes to it; try again"
    if "full" in text:
        return "make room on its disk"
    if "readonly" in text:
        return "make the file and its folder writable, or run it as their owner"
    return "see that it is a fairwatt store on a local disk"
