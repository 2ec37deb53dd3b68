# SPDX-License-Identifier: Apache-2.0
"""Moves devices' old windows to month files beside the store, and removes the oldest files.

A window is copied, put on disk and compared before it is deleted from the store, so that it is
never lost; after a crash in between it is in both, is found equal at the next call and deleted.
"""

from __future__ import annotations

import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from pathlib import Path

from sqlite_utils import Database

from fairwatt.accounting.store import FILE_MODE, transaction
from fairwatt.accounting.store_files import give_to_owner
from fairwatt.accounting.windows import TABLES, columns_of, file_of, month_of, month_path
from fairwatt.core.errors import StoreError
from fairwatt.core.files import sync_folder

__all__ = ["BATCH", "archive_windows", "drop_months"]

BATCH = 2000
"""So many windows are deleted in one transaction; deliveries wait as long."""

_NEXT_DEVICE = "SELECT device_uuid FROM window WHERE device_uuid > ? ORDER BY 1 LIMIT 1"
_OLD = (
    "SELECT device_uuid, t0_ms, t1_ms FROM window"
    " WHERE device_uuid = ?1 AND t0_ms < ?2 AND t1_ms <= ?2 AND measured_mj NOTNULL"
)
_Key = tuple[str, int, int]  # device, begin, end

_Lock = AbstractContextManager[object] | None
# Windows are asked for by their device: indexes stay behind.
_SCHEMA = "SELECT sql FROM sqlite_master WHERE type = 'table' AND tbl_name IN (?, ?) ORDER BY name"


def archive_windows(db: Database, before_ms: int, *, lock: _Lock = None) -> int:
    """Move the windows that ended before a time to their month's file; return how many.

    Windows of unknown energy stay: they are few, and a run that is settled late must see them.

    Args:
        db: the store, whose windows these are.
        before_ms: windows that end later stay.
        lock: held for each batch: one writer in this process.

    Raises:
        StoreError: a file cannot be written, or holds another window under the same key; what
            was not copied is still in the store.
    """
    moved = 0
    waiting: dict[str, list[_Key]] = defaultdict(list)
    with ExitStack() as stack:
        months = _Months(db.conn, stack)
        for key in _old_windows(db.conn, before_ms):
            month = month_of(key[1])
            waiting[month].append(key)
            if len(waiting[month]) == BATCH:
                moved += _move(db, months, month, waiting.pop(month), lock)
        for month, keys in sorted(waiting.items()):
            moved += _move(db, months, month, keys, lock)
    return moved


def drop_months(db: Database, before_ms: int, now_ts: int, *, lock: _Lock = None) -> list[str]:
    """Remove the files of months that ended before a time; return these months.

    A month with runs that are still to be settled waits.
    """
    with lock or nullcontext(), transaction(db) as connection:
        connection.execute(
            "UPDATE window_month SET dropped_ts = ?, windows = 0 WHERE dropped_ts IS NULL"
            " AND until_ms < ? AND NOT EXISTS"
            " (SELECT 1 FROM unsettled WHERE start_ms < window_month.until_ms)",
            (now_ts, before_ms),
        )
    gone = db.execute(
        "SELECT month FROM window_month WHERE dropped_ts IS NOT NULL AND until_ms < ?"
        " ORDER BY month",
        (before_ms,),
    ).fetchall()
    paths = [(month, month_path(file_of(db.conn), month)) for (month,) in gone]
    return [month for month, path in paths if _remove(path)]


class _Months:
    """The month files of one call, open for writing until it ends."""

    def __init__(self, store: sqlite3.Connection, stack: ExitStack) -> None:
        self._store = store
        self._stack = stack
        self._files: dict[str, sqlite3.Connection] = {}

    def file(self, month: str) -> sqlite3.Connection:
        """Return a month's file, made if need be."""
        if month not in self._files:
            path = month_path(file_of(self._store), month)
            _check_present(self._store, month, path)
            file = _open_month(path, self._store)
            self._files[month] = self._stack.enter_context(closing(file))
        return self._files[month]


def _old_windows(store: sqlite3.Connection, before_ms: int) -> Iterator[_Key]:
    """Yield the windows that ended before a time, by device, a device's at once."""
    device = ""
    while found := store.execute(_NEXT_DEVICE, (device,)).fetchone():
        device = found[0]
        yield from store.execute(_OLD, (device, before_ms)).fetchall()


def _move(db: Database, months: _Months, month: str, keys: Sequence[_Key], lock: _Lock) -> int:
    try:
        # Windows are never changed: deliveries need not wait for the copy.
        _copy(db.conn, months.file(month), [key[:2] for key in keys])
    except (sqlite3.Error, OSError) as error:
        raise StoreError(
            f"windows cannot be moved: {error}",
            place=str(month_path(file_of(db.conn), month)),
            remedy="see that its disk has room and that it is a fairwatt file",
        ) from error
    with lock or nullcontext(), transaction(db) as connection:
        _delete(connection, month, keys)
    return len(keys)


def _delete(store: sqlite3.Connection, month: str, windows: Sequence[_Key]) -> None:
    keys = [key[:2] for key in windows]
    store.executemany("DELETE FROM window_share WHERE device_uuid = ? AND t0_ms = ?", keys)
    # Of two that move at once the second finds none left.
    gone = store.executemany("DELETE FROM window WHERE device_uuid = ? AND t0_ms = ?", keys)
    store.execute(
        "INSERT INTO window_month (month, from_ms, until_ms, windows) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET from_ms = min(from_ms, excluded.from_ms),"
        " until_ms = max(until_ms, excluded.until_ms), windows = windows + excluded.windows",
        (month, min(w[1] for w in windows), max(w[2] for w in windows), gone.rowcount),
    )


def _copy(
    store: sqlite3.Connection, file: sqlite3.Connection, keys: Sequence[tuple[str, int]]
) -> None:
    """Copy windows with their shares, on disk when this returns; what is there must be equal."""
    file.execute("BEGIN IMMEDIATE")
    try:
        for table in TABLES:
            _copy_table(store, file, table, keys)
        file.execute("COMMIT")
    except BaseException:
        file.rollback()
        raise


def _copy_table(
    store: sqlite3.Connection,
    file: sqlite3.Connection,
    table: str,
    keys: Sequence[tuple[str, int]],
) -> None:
    names = ", ".join(columns_of(store, table))
    select = (
        f"SELECT {names} FROM {table} WHERE device_uuid = ? AND t0_ms = ?"  # noqa: S608
        " ORDER BY 1, 2, 3, 4, 5, 6"
    )
    rows = {key: store.execute(select, key).fetchall() for key in keys}
    marks = ", ".join("?" * (names.count(",") + 1))
    file.executemany(
        f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({marks})",  # noqa: S608
        [row for found in rows.values() for row in found],
    )
    for key, found in rows.items():
        if file.execute(select, key).fetchall() != found:
            raise StoreError(
                f"the month's file holds another {table} than the store", place=str(file_of(file)),
                value=key, remedy="compare it with the newest backup's; nothing was moved",
            )  # fmt: skip


def _check_present(store: sqlite3.Connection, month: str, path: Path) -> None:
    """A file that was lost must not be begun anew: the next backup would replace the good copy.

    Raises:
        StoreError: it is gone without having been dropped.
    """
    known = store.execute(
        "SELECT 1 FROM window_month WHERE month = ? AND windows > 0", (month,)
    ).fetchone()
    if known and not path.exists():
        raise StoreError(
            "is missing: no windows are moved", place=str(path),
            remedy="take it from the newest backup's folder",
        )  # fmt: skip


def _open_month(path: Path, store: sqlite3.Connection) -> sqlite3.Connection:
    """Open a month's file for writing, with all columns that the store's tables have."""
    is_new = not path.exists()
    if is_new:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, FILE_MODE))
        give_to_owner(path)
        sync_folder(path.parent)
    connection = sqlite3.connect(path, timeout=5.0, check_same_thread=False, isolation_level=None)
    try:
        # FULL: a commit is on disk before the store's own copy is deleted.
        for pragma in ("page_size = 8192", "journal_mode = WAL", "synchronous = FULL"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("PRAGMA trusted_schema = OFF")
        _make_tables(connection, store)
    except BaseException:
        connection.close()
        raise
    return connection


def _make_tables(file: sqlite3.Connection, store: sqlite3.Connection) -> None:
    file.execute("BEGIN IMMEDIATE")
    if not columns_of(file, TABLES[0]):
        for (sql,) in store.execute(_SCHEMA, TABLES).fetchall():
            file.execute(sql)
    for table in TABLES:
        _add_columns(file, store, table)
    file.execute("COMMIT")


def _add_columns(file: sqlite3.Connection, store: sqlite3.Connection, table: str) -> None:
    there = columns_of(file, table)
    columns = store.execute(
        'SELECT name, type, "notnull", dflt_value FROM pragma_table_info(?)', (table,)
    ).fetchall()
    for name, kind, is_needed, default in columns:
        if name not in there:
            limits = f"{' NOT NULL' if is_needed else ''} DEFAULT {default or 'NULL'}"
            file.execute(f"ALTER TABLE {table} ADD COLUMN {name} {kind}{limits}")


def _remove(path: Path) -> bool:
    is_there = path.exists()
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    return is_there
