# SPDX-License-Identifier: Apache-2.0
"""Closed months as Parquet, and the reports' own SQL over them in DuckDB.

`FOLDER/<table>/YYYY-MM.parquet` has the rows of a month, `FOLDER/<table>.parquet` what belongs to
no month, and `FOLDER/views.sql` makes tables of all. Needs the extra fairwatt[parquet]; nothing is
downloaded.
"""

from __future__ import annotations

import glob
import re
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from zoneinfo import ZoneInfo

import msgspec

from fairwatt.accounting.days import day_bounds
from fairwatt.accounting.parquet_engine import connect, duckdb_module, engine, quoted
from fairwatt.accounting.store import FILE_MODE, data_version
from fairwatt.accounting.windows import WindowSources
from fairwatt.core.errors import ReportError, StoreError

if TYPE_CHECKING:
    import duckdb

__all__ = ["EXPORTED", "INTERNAL", "ParquetReader", "export_month", "open_parquet"]

FOLDER_MODE = 0o750
GONE_S = 31 * 86_400
"""A cluster that is imported so much less far than another is taken for gone."""

CHUNK = 50_000
"""So many rows go through a text file at a time; DuckDB reads such a file by itself, offline."""

_BY_TIME = "{column} >= :start AND {column} < :end"
_OF_RUNS = "run_id IN (SELECT run_id FROM job_run WHERE end_ts >= :start AND end_ts < :end)"
_BY_MONTH: Mapping[str, str] = {
    "run": _BY_TIME.format(column="end_ts"),
    "run_gpu": _OF_RUNS,
    "run_energy": _OF_RUNS,
    "run_pace": _OF_RUNS,
    "rank_pace": _OF_RUNS,
    "run_waste": _OF_RUNS,
    "run_memory": _OF_RUNS,
    "run_gpu_memory": _OF_RUNS,
    "run_hour": _BY_TIME.format(column="hour_ts"),
    "run_host_hour": _BY_TIME.format(column="hour_ts"),
    "energy_hour": _BY_TIME.format(column="hour_ts"),
    "device_hour": _BY_TIME.format(column="hour_ts"),
    "usage_daily": "substr(day, 1, 7) = :month",
    "usage_monthly": "month = :month",
    "unallocated_daily": "substr(day, 1, 7) = :month",
    "host_daily": "substr(day, 1, 7) = :month",
    "host_monthly": "month = :month",
    "waste_daily": "substr(day, 1, 7) = :month",
    "moved_daily": "substr(day, 1, 7) = :month",
}
_WINDOWS = ("window", "window_share")
_TIMELESS = (
    *("account", "membership", "device", "grid_factor", "dated_pue", "contract", "provenance"),
    *("hardware_carbon", "carbon_version", "restated_day", "energy_owner", "meta"),
)
INTERNAL = frozenset(
    {
        *("job_run", "word", "tres", "tres_gpu", "node_run", "hold", "event", "event_span"),
        *(
            "run_cell",
            "use_cell",
            "ledger_total",
            "moved_hour",
            "stray_hour",
            "pace_judged",
            "window_month",
        ),
        *("unsettled", "unjudged", "dirty_day", "dirty_hour", "carbon_dirty_day"),
        *("decision", "decision_told", "rejected_row"),
    }
)
"""Not exported: the store's own book-keeping, and what the exported views say already."""
EXPORTED = frozenset({*_BY_MONTH, *_WINDOWS, *_TIMELESS})
_EXPRESSIONS = {"sluid": "TEXT", "origin": "TEXT"}
"""Columns of the view `run` that are made of others have no type of their own; the rest count."""
_TYPES = {"TEXT": "VARCHAR", "INTEGER": "BIGINT", "": "BIGINT"}

# What SQLite names otherwise, so that the reports' SQL needs no second spelling.
_MACROS = """
CREATE OR REPLACE MACRO json_each(list) AS TABLE
    SELECT unnest(from_json(list, '["VARCHAR"]')) AS value;
CREATE OR REPLACE MACRO json_extract(list, place) AS list ->> place;
SET integer_division = true;
"""


@dataclass(frozen=True)
class _Source:
    """A table to be written: its columns with their types, and its rows."""

    name: str
    columns: Mapping[str, str]
    rows: Iterable[Sequence[Any]]


def export_month(
    db: sqlite3.Connection, month: str, folder: Path, *, zone: ZoneInfo, with_windows: bool = False
) -> list[Path]:
    """Write a closed local month of a store as Parquet; return the files.

    A file appears complete or not at all; one that is there is replaced. As the store, they are
    for their owner and group: they name users.

    Args:
        db: an open reader.
        month: YYYY-MM.
        folder: made if need be.
        zone: the site's.
        with_windows: also what each device used, by window.

    Raises:
        ReportError: no month, not over yet, or not rolled up yet.
        StoreError: DuckDB is missing, the disk is full, or the folder or a month's windows are
            out of reach.
    """
    span = _span(db, month, zone)
    params = {"month": month, "start": span[0], "end": span[1]}
    if with_windows:
        _check_windows(db, month, (span[0] * 1000, span[1] * 1000))
    try:
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        with engine(folder) as duck:
            db.execute("BEGIN")
            try:
                sources = [*_monthly(db, params), *_timeless(db)]
                files = [_write(duck, folder, month, one, db) for one in sources]
            finally:
                db.rollback()
            if with_windows:
                files += _windows(duck, folder, month, db, (span[0] * 1000, span[1] * 1000))
            views = duck[1] / "views.sql"
            views.write_text(_views(folder, ""))
            _put(views, folder / "views.sql")
    except (OSError, duckdb_module().Error) as error:
        raise StoreError(
            f"cannot be written: {error}", place=str(folder),
            remedy="make room and write access there, or name another folder",
        ) from error  # fmt: skip
    return files


def _check_windows(db: sqlite3.Connection, month: str, span_ms: tuple[int, int]) -> None:
    with WindowSources(db) as sources:
        sources.over(*span_ms)
        if sources.are_dropped(*span_ms):
            raise StoreError(
                "windows of this month were removed: see store.series_days", place="--windows",
                value=month, remedy="export it without --windows",
            )  # fmt: skip


class ParquetReader:
    """Exported months behind the two methods of a store's connection that reports use.

    Parameters are SQLite's, `:name` or `?`.
    """

    def __init__(self, engine: duckdb.DuckDBPyConnection) -> None:
        self._engine = engine

    def execute(self, sql: str, parameters: Any = ()) -> Self:  # noqa: ANN401 - as sqlite3's
        """Run a query; its rows are this object's."""
        names = dict.fromkeys(re.findall(r":([a-z_]+)", sql))
        if names:
            known = {name: parameters[name] for name in names}
            self._engine.execute(re.sub(r":([a-z_]+)", r"$\1", sql), known)
        else:
            self._engine.execute(sql, list(parameters))
        return self

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, None after the last."""
        return self._engine.fetchone()

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all rows that are left."""
        return self._engine.fetchall()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.fetchall())

    def close(self) -> None:
        """Close DuckDB."""
        self._engine.close()


def open_parquet(folder: Path) -> ParquetReader:
    """Open exported months for the reports' SQL.

    Raises:
        StoreError: DuckDB is missing, or the folder has no export.
    """
    if not (folder / "views.sql").exists():
        raise StoreError(
            "no exported months", place=str(folder), remedy="run `fairwatt store export` first"
        )
    engine = connect()
    engine.execute(_views(folder, f"{glob.escape(str(folder))}/"))
    return ParquetReader(engine)


def _span(db: sqlite3.Connection, month: str, zone: ZoneInfo) -> tuple[int, int]:
    """First second of a month and of the next one.

    Raises:
        ReportError: as `export_month`.
    """
    try:
        first = date.fromisoformat(f"{month}-01")
        following = date(first.year + first.month // 12, first.month % 12 + 1, 1)
    except ValueError as error:
        raise ReportError(
            "no month", place="--month", value=month, remedy="write it as 2026-09"
        ) from error
    start, end = day_bounds(str(first), zone)[0], day_bounds(str(following), zone)[0]
    # A cluster that was renamed is imported no further, and not waited for.
    imported = db.execute(
        "WITH mark AS (SELECT CAST(value AS INTEGER) AS ts FROM meta"
        " WHERE key LIKE 'sync.%.until_ts')"
        " SELECT min(ts) FROM mark WHERE ts > (SELECT max(ts) FROM mark) - ?",
        (GONE_S,),
    ).fetchone()[0]
    (dirty,) = db.execute(
        "SELECT count(*) FROM dirty_day WHERE substr(day, 1, 7) = ?", (month,)
    ).fetchone()
    if end > (time.time() if imported is None else imported):
        raise ReportError(
            "this month is not over, or not imported to its end", place="--month", value=month,
            remedy="export it when the collector has imported the first day after it",
        )  # fmt: skip
    if dirty:
        raise ReportError(
            f"{dirty} days of this month wait to be rolled up", place="--month", value=month,
            remedy="wait for the collector, or run `fairwatt sync --once`",
        )  # fmt: skip
    return start, end


def _monthly(db: sqlite3.Connection, params: Mapping[str, Any]) -> Iterator[_Source]:
    for table, condition in _BY_MONTH.items():
        columns = _columns(db, table)
        sql = f"SELECT * FROM {table} WHERE {condition}"  # noqa: S608
        yield _Source(table, columns, db.execute(sql, params))


def _timeless(db: sqlite3.Connection) -> Iterator[_Source]:
    for table in _TIMELESS:
        rows = db.execute(f"SELECT * FROM {table}")  # noqa: S608
        yield _Source(table, _columns(db, table), rows)


def _windows(
    engine: tuple[Any, Path],
    folder: Path,
    month: str,
    db: sqlite3.Connection,
    span: tuple[int, int],
) -> list[Path]:
    """What is on its way to a month file may be in both: equal rows count once."""
    files = []
    with WindowSources(db) as sources:
        for table in _WINDOWS:
            columns = _columns(db, table)
            sql = f"SELECT {', '.join(columns)} FROM {table} WHERE t0_ms >= ? AND t0_ms < ?"  # noqa: S608
            rows = (row for one in sources.over(*span) for row in one.execute(sql, span))
            files.append(_write(engine, folder, month, _Source(table, columns, rows), db))
    return files


def _columns(db: sqlite3.Connection, table: str) -> dict[str, str]:
    rows = db.execute("SELECT name, type FROM pragma_table_info(?)", (table,))
    return {name: _TYPES[kind or _EXPRESSIONS.get(name, "")] for name, kind in rows.fetchall()}


def _write(
    engine: tuple[Any, Path], folder: Path, month: str, source: _Source, db: sqlite3.Connection
) -> Path:
    """Write one file under its final name when it is complete."""
    duck, scratch = engine
    is_timeless = source.name in _TIMELESS
    path = folder / f"{source.name}.parquet" if is_timeless else _path(folder, source.name, month)
    path.parent.mkdir(mode=FOLDER_MODE, exist_ok=True)
    columns = ", ".join(f'"{name}" {kind}' for name, kind in source.columns.items())
    duck.execute(f"CREATE OR REPLACE TABLE rows ({columns})")
    _fill(duck, scratch / "rows.json", source)
    part = scratch / "part.parquet"
    told = {"data_version": data_version(db)} | ({} if is_timeless else {"month": month})
    marks = ", ".join(f"{name}: {quoted(str(value))}" for name, value in told.items())
    duck.execute(
        f"COPY (SELECT DISTINCT * FROM rows ORDER BY ALL) TO {quoted(str(part))}"  # noqa: S608
        f" (FORMAT parquet, COMPRESSION zstd, KV_METADATA {{{marks}}})"
    )
    _put(part, path)
    return path


def _put(part: Path, path: Path) -> None:
    part.chmod(FILE_MODE)
    part.replace(path)


def _fill(duck: Any, file: Path, source: _Source) -> None:  # noqa: ANN401 - an optional module
    names, rows = list(source.columns), iter(source.rows)
    kinds = ", ".join(f"{quoted(name)}: {quoted(kind)}" for name, kind in source.columns.items())
    encoder = msgspec.json.Encoder()
    while chunk := list(islice(rows, CHUNK)):
        with file.open("wb") as out:
            out.writelines(
                encoder.encode(dict(zip(names, row, strict=True))) + b"\n" for row in chunk
            )
        duck.execute(
            f"INSERT INTO rows SELECT * FROM read_json({quoted(str(file))},"  # noqa: S608
            f" format = 'newline_delimited', columns = {{{kinds}}})"
        )


def _path(folder: Path, table: str, month: str) -> Path:
    return folder / table / f"{month}.parquet"


def _views(folder: Path, prefix: str) -> str:
    """SQL that makes a view of each table; `prefix` leads from DuckDB's folder to this one."""
    lines = ["-- From the folder of this file: duckdb -init views.sql", _MACROS.strip()]
    for table in (*_BY_MONTH, *_WINDOWS, *_TIMELESS):
        files = f"{table}.parquet" if table in _TIMELESS else f"{table}/*.parquet"
        if any(folder.glob(files)):
            lines.append(
                f'CREATE OR REPLACE VIEW "{table}" AS SELECT * FROM'  # noqa: S608
                f" read_parquet({quoted(prefix + files)}, union_by_name = true);"
            )
    return "\n".join(lines) + "\n"
