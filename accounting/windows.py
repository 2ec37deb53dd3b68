# SPDX-License-Identifier: Apache-2.0
"""Where devices' windows are: in the store, or in the month files that old ones are moved to.

A month file stands beside the store (`fairwatt.db` → `fairwatt.windows-2026-09.db`) and has the
tables `window` and `window_share` alone, with all windows that began in that UTC month. A window
and its shares are always in one file. For a moment, and after a crash, they may be in the store as
well, equal to the byte: whoever reads both takes each row once, the store's first.
"""

from __future__ import annotations

import functools
import logging
import sqlite3
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from fairwatt.accounting.store_files import open_read_only
from fairwatt.core.errors import StoreError

__all__ = [
    "TABLES",
    "WindowSources",
    "columns_of",
    "each_window",
    "file_of",
    "month_of",
    "month_path",
    "moved_until_ms",
]

_log = logging.getLogger(__name__)

TABLES = ("window", "window_share")
BUSY_TIMEOUT_S = 5.0
SQLITE_INTEGER_MAX = 2**63 - 1

_OVERLAPPING = "SELECT month FROM window_month WHERE from_ms < ? AND until_ms > ?"
_Row = TypeVar("_Row", bound=Hashable)


class WindowSources:
    """Gives the connections that have a span's windows: the store's own, then month files'.

    In each of them the tables `window` and `window_share` have the store's columns. To be closed,
    or used as a context manager; the store's connection stays open.
    """

    def __init__(self, store: sqlite3.Connection) -> None:
        self._store = store
        self._file = file_of(store)
        self._months: dict[str, sqlite3.Connection] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def over(self, from_ms: int, until_ms: int) -> list[sqlite3.Connection]:
        """Return the connections that may have windows of [from, until), the store's first.

        Raises:
            StoreError: a month file is missing or cannot be read.
        """
        return [self._store, *map(self._month, self._months_of(from_ms, until_ms))]

    def readable(self, from_ms: int, until_ms: int) -> list[sqlite3.Connection]:
        """As `over`, without month files that cannot be read, which are told in the log."""
        connections = [self._store]
        for month in self._months_of(from_ms, until_ms):
            try:
                connections.append(self._month(month))
            except StoreError as error:
                _log.error("%s", error)
        return connections

    def rows(
        self,
        from_ms: int,
        until_ms: int,
        read: Callable[[sqlite3.Connection], Iterable[_Row]],
    ) -> list[_Row]:
        """Return what `read` finds in each connection of the span, equal rows once.

        Raises:
            StoreError: as `over`.
        """
        return list(dict.fromkeys(row for db in self.over(from_ms, until_ms) for row in read(db)))

    def are_dropped(self, from_ms: int, until_ms: int) -> bool:
        """Whether windows of [from, until) were removed for good: sums over them must stay."""
        found = self._store.execute(
            f"{_OVERLAPPING} AND dropped_ts IS NOT NULL LIMIT 1", (until_ms, from_ms)
        ).fetchone()
        return found is not None

    def close(self) -> None:
        """Close the month files."""
        for connection in self._months.values():
            connection.close()
        self._months.clear()

    def _months_of(self, from_ms: int, until_ms: int) -> list[str]:
        rows = self._store.execute(
            f"{_OVERLAPPING} AND dropped_ts IS NULL ORDER BY month", (until_ms, from_ms)
        )
        return [month for (month,) in rows.fetchall()]

    def _month(self, month: str) -> sqlite3.Connection:
        if month not in self._months:
            path = month_path(self._file, month)
            try:
                self._months[month] = _open_month(path, self._store)
            except sqlite3.Error as error:
                raise StoreError(
                    f"no readable file of {month}'s windows: {error}",
                    place=str(path),
                    remedy="take it from the newest backup's folder",
                ) from error
        return self._months[month]


def each_window(
    store: sqlite3.Connection, columns: str, where: str
) -> Iterator[tuple[sqlite3.Connection, tuple[Any, ...]]]:
    """Yield columns of all windows, moved ones as well and each once, with where their shares are.

    Args:
        store: a connection that may be in a transaction.
        columns: as SQL; they begin with device_uuid and t0_ms.
        where: which windows, as SQL.

    Raises:
        StoreError: a month file is missing or cannot be read.
    """
    sql = f"SELECT {columns} FROM window WHERE {where}"  # noqa: S608 - our own words
    is_here = "SELECT 1 FROM window WHERE device_uuid = ? AND t0_ms = ?"
    with WindowSources(store) as sources:
        for source in sources.over(0, SQLITE_INTEGER_MAX):
            for row in source.execute(sql):
                if source is store or store.execute(is_here, row[:2]).fetchone() is None:
                    yield source, row


def moved_until_ms(store: sqlite3.Connection) -> int:
    """Return when the last window ended that was moved, 0 if none was: later ones are all here."""
    (until_ms,) = store.execute("SELECT max(until_ms) FROM window_month").fetchone()
    return int(until_ms or 0)


def file_of(connection: sqlite3.Connection) -> Path:
    """Return the file of a connection's main database; Path() where it has none."""
    return Path(next(str(row[2]) for row in connection.execute("PRAGMA database_list")))


def month_of(t_ms: int) -> str:
    """Return the UTC month of a time: YYYY-MM.

    >>> month_of(1_790_812_800_000)
    '2026-10'
    """
    return _month_of_day(t_ms // 86_400_000)


@functools.lru_cache(maxsize=4096)
def _month_of_day(day: int) -> str:
    return f"{datetime.fromtimestamp(86_400 * day, UTC):%Y-%m}"


def month_path(store: Path, month: str) -> Path:
    """Return the path of a store's month file.

    >>> month_path(Path("/x/fairwatt.db"), "2026-09").name
    'fairwatt.windows-2026-09.db'
    """
    return store.with_name(f"{store.stem}.windows-{month}.db")


def columns_of(connection: sqlite3.Connection, table: str) -> dict[str, str]:
    """Return a table's columns by name, each with its default as SQL ("NULL": none)."""
    rows = connection.execute(
        "SELECT name, coalesce(dflt_value, 'NULL') FROM pragma_table_info(?, 'main')", (table,)
    )
    return dict(rows.fetchall())


def _open_month(path: Path, store: sqlite3.Connection) -> sqlite3.Connection:
    return open_read_only(path, functools.partial(_reader, store))


def _reader(store: sqlite3.Connection, uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        uri, uri=True, timeout=BUSY_TIMEOUT_S, check_same_thread=False, isolation_level=None
    )
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        for table in TABLES:
            _add_columns(connection, table, columns_of(store, table))
    except sqlite3.Error:
        with suppress(sqlite3.Error):
            connection.close()
        raise
    return connection


def _add_columns(connection: sqlite3.Connection, table: str, wanted: dict[str, str]) -> None:
    """A file from before a column shows its default, under the table's own name."""
    there = columns_of(connection, table)
    if not there:
        raise sqlite3.DatabaseError(f"no table {table}")
    if set(wanted) <= set(there):
        return
    shown = ", ".join(name if name in there else f"{wanted[name]} AS {name}" for name in wanted)
    connection.execute(f"CREATE TEMP VIEW {table} AS SELECT {shown} FROM main.{table}")  # noqa: S608
