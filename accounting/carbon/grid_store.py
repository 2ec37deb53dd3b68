# SPDX-License-Identifier: Apache-2.0
"""Grid factors in the store: the configured file, imported files, and what services tell."""

from __future__ import annotations

import sqlite3
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from fairwatt.accounting.carbon.factors import MARGINAL, Factor, FactorFile, step_of
from fairwatt.accounting.carbon.grid import Contract, Grid, Row, layers_of, timeline
from fairwatt.accounting.carbon.versions import (
    VALID,
    Version,
    publish,
    read_version,
    replace_rows,
)
from fairwatt.core.errors import StoreError

__all__ = [
    "FILE",
    "IMPORTED",
    "Provenance",
    "add_factors",
    "file_words",
    "method_of",
    "open_grid",
    "provenances",
    "stage_factors",
    "stage_file",
]

FILE, IMPORTED = "file", "import"
"""Origins of factors; those of a service have its name. An import outranks a service, that the
file."""

_RANK = {IMPORTED: 0, FILE: 2}
_COLUMNS = (
    *("zone", "method", "step_s", "origin", "from_ts", "until_ts", "mg_per_kwh"),
    "provenance_id",
)
_ALL_TIME = (-(2**62), 2**62)


class Provenance(NamedTuple):
    """Where factors of a zone come from, and which time they cover."""

    zone: str
    method: str
    step_s: int
    origin: str
    source: str
    licence: str
    from_ts: int
    until_ts: int
    rows: int
    retrieved_ts: int


def stage_file(connection: sqlite3.Connection, file: FactorFile) -> int:
    """Stage the configured file's factors in place of its earlier ones; return how many differ.

    The caller publishes. Runs in the caller's transaction.
    """
    wanted = _rows(connection, file, FILE)
    return replace_rows(
        connection, "grid_factor", _COLUMNS, wanted, where="origin = ?", params=(FILE,),
        extra=(file.retrieved_ts,),
    )  # fmt: skip


def file_words(file: FactorFile) -> str:
    """Return the configured file as the reason of a version."""
    return f"factor file: {textwrap.shorten(file.source, 60, placeholder='…')}"


def stage_factors(connection: sqlite3.Connection, file: FactorFile, origin: str) -> int:
    """Stage factors among the others of their origin; return how many rows that changes.

    Rows of the same zone, method and step that they overlap give way to them. The caller
    publishes. Runs in the caller's transaction.
    """
    groups: dict[tuple[str, int], list[Factor]] = {}
    for factor in file.factors:
        step_s = step_of(factor.until_ts - factor.from_ts)
        groups.setdefault((factor.zone, step_s), []).append(factor)
    changed = 0
    for (zone, step_s), factors in groups.items():
        changed += _stage_series(connection, file, origin, zone, step_s, factors)
    return changed


def add_factors(
    connection: sqlite3.Connection, file: FactorFile, origin: str, reason: str, now_ts: int
) -> tuple[int, int | None]:
    """Stage and publish; return (rows changed, new version or None)."""
    changed = stage_factors(connection, file, origin)
    return changed, publish(connection, reason, now_ts)


def open_grid(
    connection: sqlite3.Connection,
    zone: str | None = None,
    version: int | None = None,
    span: tuple[int, int] = _ALL_TIME,
) -> Grid:
    """Return the site's grid under a version (None: the newest) for the time span (s).

    Args:
        connection: the store.
        zone: the country where the version does not say it.
        version: whose factors, PUE and contracts.
        span: outside of it no factor is known.

    Raises:
        StoreError: the store has no such version, no factors of its zone, or no PUE.
    """
    about = read_version(connection, version)
    country = about.zone if about and about.zone else zone
    if about is None or not country:
        raise _nothing(country, version)
    preferred, method = _preferred(connection, about, country, span)
    others = _country_rows(connection, about.version, country, method, span)
    pues = tuple(
        connection.execute(
            f"SELECT from_ts, pue_milli FROM dated_pue WHERE {VALID} ORDER BY from_ts",  # noqa: S608
            {"version": about.version},
        )
    )
    finest_s = _finest_step(connection, about.version, about.grid_zone or country, method)
    layers = layers_of(preferred, others, finest_s)
    if not layers or not pues:
        raise _nothing(country, version)
    return Grid(
        about.version, about.grid_zone or country, method, timeline(layers, *span), pues,
        _contracts(connection, about.version),
    )  # fmt: skip


def provenances(connection: sqlite3.Connection, version: int) -> list[Provenance]:
    """Return a line for each zone, method, step and source of a version."""
    rows = connection.execute(
        "SELECT zone, method, step_s, origin, source, licence, min(from_ts), max(until_ts),"  # noqa: S608
        f" count(*), max(retrieved_ts) FROM grid_factor JOIN provenance USING (provenance_id)"
        f" WHERE {VALID} GROUP BY zone, method, step_s, origin, provenance_id"
        " ORDER BY zone, step_s, method",
        {"version": version},
    )
    return [Provenance(*row) for row in rows]


def _nothing(zone: str | None, version: int | None) -> StoreError:
    return StoreError(
        "no carbon factors stored",
        place=f"zone {zone}, version {version}",
        remedy="run `fairwatt sync --once` after setting carbon.zone",
    )


def _rows(
    connection: sqlite3.Connection, file: FactorFile, origin: str
) -> list[tuple[str | int, ...]]:
    number = _provenance_id(connection, file)
    return [
        (
            *(factor.zone, file.method, step_of(factor.until_ts - factor.from_ts), origin),
            *(factor.from_ts, factor.until_ts, factor.g_per_kwh_milli, number),
        )
        for factor in file.factors
    ]


def _provenance_id(connection: sqlite3.Connection, file: FactorFile) -> int:
    key = (file.source, file.licence)
    connection.execute("INSERT OR IGNORE INTO provenance (source, licence) VALUES (?, ?)", key)
    (number,) = connection.execute(
        "SELECT provenance_id FROM provenance WHERE source = ? AND licence = ?", key
    ).fetchone()
    return int(number)


def _stage_series(
    connection: sqlite3.Connection,
    file: FactorFile,
    origin: str,
    zone: str,
    step_s: int,
    factors: Sequence[Factor],
) -> int:
    wanted = _rows(connection, FactorFile(*_head(file), tuple(factors)), origin)
    span = (min(f.from_ts for f in factors), max(f.until_ts for f in factors))
    where = (
        "origin = ? AND zone = ? AND method = ? AND step_s = ? AND from_ts < ? AND until_ts > ?"
    )
    params = (origin, zone, file.method, step_s, span[1], span[0])
    there = connection.execute(
        f"SELECT {', '.join(_COLUMNS)} FROM grid_factor"  # noqa: S608 - our own names
        f" WHERE until_version IS NULL AND {where}",
        params,
    ).fetchall()
    times = sorted((f.from_ts, f.until_ts) for f in factors)
    kept = [row for row in there if not _overlaps(row[4], row[5], times)]
    return replace_rows(
        connection, "grid_factor", _COLUMNS, [*wanted, *kept], where=where, params=params,
        extra=(file.retrieved_ts,),
    )  # fmt: skip


def _head(file: FactorFile) -> tuple[str, str, str, int]:
    return file.source, file.licence, file.method, file.retrieved_ts


def _overlaps(from_ts: int, until_ts: int, times: Sequence[tuple[int, int]]) -> bool:
    """Whether a span meets one of many that are ordered and apart."""
    low, high = 0, len(times)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if times[middle][1] <= from_ts else (low, middle)
    return low < len(times) and times[low][0] < until_ts


def _preferred(
    connection: sqlite3.Connection, about: Version, country: str, span: tuple[int, int]
) -> tuple[list[Row], str]:
    """The factors of the preferred zone and method; without a choice those of the file."""
    zone = about.grid_zone or country
    method = about.method or method_of(connection, about.version, zone)
    rows = _select(
        connection, "zone = :zone AND method = :method", about.version, span,
        zone=zone, method=method,
    )  # fmt: skip
    return rows, method


def method_of(connection: sqlite3.Connection, version: int, zone: str) -> str:
    """Return the method of a zone's factors: the file's before others, never the marginal one."""
    row = connection.execute(
        f"SELECT method FROM grid_factor WHERE {VALID} AND zone = :zone"  # noqa: S608
        " AND method <> :marginal ORDER BY origin <> :file, step_s, method LIMIT 1",
        {"version": version, "zone": zone, "marginal": MARGINAL, "file": FILE},
    ).fetchone()
    return str(row[0]) if row else ""


def _finest_step(
    connection: sqlite3.Connection, version: int, zone: str, method: str
) -> int | None:
    """The step of the first layer, wherever its factors are: a gap must not depend on the span."""
    (step_s,) = connection.execute(
        f"SELECT min(step_s) FROM grid_factor WHERE {VALID}"  # noqa: S608 - our own text
        " AND zone = :zone AND method = :method",
        {"version": version, "zone": zone, "method": method},
    ).fetchone()
    return None if step_s is None else int(step_s)


def _country_rows(
    connection: sqlite3.Connection, version: int, zone: str, method: str, span: tuple[int, int]
) -> list[Row]:
    """What the country's factors of one method offer where the preferred ones have a gap."""
    own = method_of(connection, version, zone)
    condition = "zone = :zone AND method = :method AND step_s > 86400"
    return _select(connection, condition, version, span, zone=zone, method=own or method)


def _select(
    connection: sqlite3.Connection, where: str, version: int, span: tuple[int, int], **params: str
) -> list[Row]:
    """Rows near the span (a mean needs its month); of finer ones also the next on either side.

    Rows of years are few and all taken. So what stands in for a gap does not depend on the span.
    """
    month_s = 31 * 86_400
    keys = {"version": version, "a": span[0] - month_s, "b": span[1] + month_s, **params}
    found = [
        row
        for condition in (
            "(step_s > 86400 OR (from_ts < :b AND until_ts > :a)) ORDER BY from_ts",
            "step_s <= 86400 AND until_ts <= :a ORDER BY until_ts DESC LIMIT 1",
            "step_s <= 86400 AND from_ts >= :b ORDER BY from_ts LIMIT 1",
        )
        for row in connection.execute(
            "SELECT step_s, origin, from_ts, until_ts, mg_per_kwh FROM grid_factor"  # noqa: S608
            f" WHERE {VALID} AND {where} AND {condition}",
            keys,
        )
    ]
    return [Row(step_s, _RANK.get(origin, 1), *row) for step_s, origin, *row in found]


def _contracts(connection: sqlite3.Connection, version: int) -> tuple[Contract, ...]:
    rows = connection.execute(
        "SELECT from_ts, until_ts, share_permille, mg_per_kwh FROM contract"  # noqa: S608
        f" WHERE {VALID} ORDER BY from_ts, name",
        {"version": version},
    )
    return tuple(Contract(*row) for row in rows)
