# SPDX-License-Identifier: Apache-2.0
"""Operational carbon: energy per hour × PUE × the grid factor valid then.

Factor files are CSV with the columns zone, from, until (UTC dates or times) and g_per_kwh,
and header lines `# source:`, `# licence:`, `# method:` and `# retrieved:`. A changed file is
stored as a new version; old versions stay, so that an old report can be made again.
"""

from __future__ import annotations

import csv
import difflib
import itertools
import sqlite3
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fairwatt.core.errors import ConfigError, StoreError
from fairwatt.core.units import carbon_mg

__all__ = [
    "Factor",
    "FactorFile",
    "Grid",
    "check_zone",
    "current_version",
    "load_factors",
    "open_grid",
    "store_factors",
    "store_pue",
]

# Not importlib.resources: it cannot read an editable install of packages without __init__.py.
DEFAULT_FILE = Path(__file__).with_name("data") / "country-factors.csv"
COLUMNS = ("zone", "from", "until", "g_per_kwh")
HEADERS = ("source", "licence", "method", "retrieved")


@dataclass(frozen=True, order=True)
class Factor:
    """A grid factor of a zone, valid in [from_ts, until_ts); in mg CO2e per kWh."""

    zone: str
    from_ts: int
    until_ts: int
    g_per_kwh_milli: int


@dataclass(frozen=True)
class FactorFile:
    """A factor file: where it comes from, and its factors ordered by zone and time."""

    source: str
    licence: str
    method: str
    retrieved_ts: int
    factors: tuple[Factor, ...]


@dataclass(frozen=True)
class Grid:
    """One zone's factors of one version and the PUE history, both ordered by time."""

    version: int
    zone: str
    factors: tuple[Factor, ...]
    pues: tuple[tuple[int, int], ...]

    def factor_at(self, ts: int) -> tuple[int, bool]:
        """Return the factor in mg/kWh and whether it is another time's.

        A gap takes the nearest earlier factor, the time before the first one takes that.
        """
        index = bisect_right(self.factors, ts, key=lambda factor: factor.from_ts) - 1
        factor = self.factors[max(index, 0)]
        return factor.g_per_kwh_milli, not factor.from_ts <= ts < factor.until_ts

    def pue_at(self, ts: int) -> int:
        """Return the PUE × 1000 that was set at a time; the first one also counts before it."""
        index = bisect_right(self.pues, ts, key=lambda pue: pue[0]) - 1
        return self.pues[max(index, 0)][1]

    def carbon(self, energy_mj_by_hour: Mapping[int, int]) -> tuple[int, int]:
        """Return mg CO2e, and how many mJ of the energy had a factor of another time.

        Hours of equal factor and PUE are added before rounding.
        """
        groups: dict[tuple[int, int], int] = {}
        fallback_mj = 0
        for hour_ts, energy_mj in energy_mj_by_hour.items():
            factor, other_time = self.factor_at(hour_ts)
            key = (factor, self.pue_at(hour_ts))
            groups[key] = groups.get(key, 0) + energy_mj
            fallback_mj += energy_mj if other_time else 0
        mg = sum(carbon_mg(mj, pue, factor) for (factor, pue), mj in groups.items())
        return mg, fallback_mj


def load_factors(path: str | Path | None = None) -> FactorFile:
    """Read a factor file; None or "" gives the one that comes with fairwatt.

    Raises:
        ConfigError: it cannot be read; the message names the file, the line and the value.
    """
    file = Path(path) if path else DEFAULT_FILE
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot be read: {error}", place=str(file), remedy="see carbon.factors_file"
        ) from error
    head = _headers(file, lines)
    factors = sorted(_factors(file, lines))
    _check_apart(file, factors)
    return FactorFile(
        source=head["source"],
        licence=head["licence"],
        method=head["method"],
        retrieved_ts=_time(file, 0, head["retrieved"]),
        factors=tuple(factors),
    )


def check_zone(file: FactorFile, zone: str) -> None:
    """Pass if the file has factors of the zone.

    Raises:
        ConfigError: it has none; the message offers the nearest zones.
    """
    zones = {factor.zone for factor in file.factors}
    if zone not in zones:
        near = difflib.get_close_matches(zone.upper(), zones, n=3, cutoff=0.3)
        raise ConfigError(
            "no carbon factors for this zone",
            place="carbon.zone",
            value=zone,
            remedy=f"use an ISO 3166-1 alpha-3 code such as {', '.join(near) or 'DEU'}, or WLD",
        )


def store_factors(connection: sqlite3.Connection, file: FactorFile) -> int:
    """Keep the file's factors and return their version; a known file keeps its version.

    A new version marks every day with energy dirty: rollups show the newest figures.
    Runs in the caller's transaction.
    """
    newest = current_version(connection)
    if newest is not None and _stored(connection, newest) == _rows(file):
        return newest
    version = (newest or 0) + 1
    connection.executemany(
        "INSERT INTO carbon_factor (version, zone, from_ts, until_ts, g_per_kwh_milli, method,"
        " source, licence, retrieved_ts) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [(version, *row) for row in _rows(file)],
    )
    _mark_all_days(connection)
    return version


def store_pue(connection: sqlite3.Connection, pue: float, now_ts: int) -> None:
    """Keep the configured PUE: the first one for all time, a changed one from now on.

    Runs in the caller's transaction.

    Raises:
        ConfigError: it is below 1 or beyond belief.
    """
    if not 1 <= pue <= 10:
        raise ConfigError(
            "a PUE is at least 1", place="carbon.pue", value=pue, remedy="1.3 is a usual value"
        )
    pue_milli = round(pue * 1000)
    last = connection.execute("SELECT pue_milli FROM pue ORDER BY from_ts DESC LIMIT 1").fetchone()
    if last is None or last[0] != pue_milli:
        connection.execute(
            "INSERT OR REPLACE INTO pue (from_ts, pue_milli, source) VALUES (?, ?, 'carbon.pue')",
            (0 if last is None else now_ts, pue_milli),
        )


def current_version(connection: sqlite3.Connection) -> int | None:
    """Return the newest version of factors in the store, None if there is none."""
    row = connection.execute("SELECT max(version) FROM carbon_factor").fetchone()
    return None if row[0] is None else int(row[0])


def open_grid(connection: sqlite3.Connection, zone: str, version: int | None = None) -> Grid:
    """Return a zone's factors of a version (None: the newest) with the PUE history.

    Raises:
        StoreError: the store has no factors of that zone and version, or no PUE yet.
    """
    wanted = current_version(connection) if version is None else version
    factors = tuple(
        Factor(*row)
        for row in connection.execute(
            "SELECT zone, from_ts, until_ts, g_per_kwh_milli FROM carbon_factor"
            " WHERE version = ? AND zone = ? ORDER BY from_ts",
            (wanted, zone),
        )
    )
    pues = tuple(connection.execute("SELECT from_ts, pue_milli FROM pue ORDER BY from_ts"))
    if wanted is None or not factors or not pues:
        raise StoreError(
            "no carbon factors stored",
            place=f"zone {zone}, version {wanted}",
            remedy="run `fairwatt sync --once` after setting carbon.zone",
        )
    return Grid(wanted, zone, factors, pues)


def _headers(file: Path, lines: Sequence[str]) -> dict[str, str]:
    found = {}
    for line in lines:
        name, colon, value = line.removeprefix("#").partition(":")
        if line.startswith("#") and colon and name.strip() in HEADERS:
            found[name.strip()] = value.strip()
    for name in HEADERS:
        if not found.get(name):
            raise ConfigError(
                f"no line `# {name}: …`", place=str(file), remedy="say where the factors are from"
            )
    return found


def _factors(file: Path, lines: Sequence[str]) -> list[Factor]:
    table = [(n, line) for n, line in enumerate(lines, 1) if line.strip() and line[0] != "#"]
    rows = csv.reader(line for _, line in table)
    if tuple(next(rows, [])) != COLUMNS:
        raise ConfigError("wrong columns", place=str(file), remedy=f"write {','.join(COLUMNS)}")
    return [_factor(file, number, row) for (number, _), row in zip(table[1:], rows, strict=True)]


def _factor(file: Path, number: int, row: Sequence[str]) -> Factor:
    place = f"{file}, line {number}"
    if len(row) != len(COLUMNS):
        raise ConfigError(f"not {len(COLUMNS)} columns", place=place, value=",".join(row))
    zone, start, end, grams = row
    from_ts, until_ts = _time(file, number, start), _time(file, number, end)
    try:
        milli = round(float(grams) * 1000)
    except (ValueError, OverflowError):
        milli = -1
    if not zone or from_ts >= until_ts or not 0 <= milli <= 10_000_000:
        raise ConfigError(
            "not a factor", place=place, value=",".join(row), remedy="g/kWh lie in 0 to 10000"
        )
    return Factor(zone, from_ts, until_ts, milli)


def _time(file: Path, number: int, text: str) -> int:
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(
            "not a date",
            place=f"{file}, line {number}" if number else str(file),
            value=text,
            remedy="write 2024-01-01 or 2024-01-01T13:00Z",
        ) from error
    return int((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp())


def _check_apart(file: Path, factors: Sequence[Factor]) -> None:
    for before, after in itertools.pairwise(factors):
        if before.zone == after.zone and before.until_ts > after.from_ts:
            raise ConfigError(
                "two factors of one zone overlap",
                place=str(file),
                value=f"{after.zone} from {after.from_ts}",
            )


def _rows(file: FactorFile) -> list[tuple[str, int, int, int, str, str, str, int]]:
    return [
        (
            factor.zone,
            factor.from_ts,
            factor.until_ts,
            factor.g_per_kwh_milli,
            file.method,
            file.source,
            file.licence,
            file.retrieved_ts,
        )
        for factor in file.factors
    ]


def _stored(
    connection: sqlite3.Connection, version: int
) -> list[tuple[str, int, int, int, str, str, str, int]]:
    return connection.execute(
        "SELECT zone, from_ts, until_ts, g_per_kwh_milli, method, source, licence, retrieved_ts"
        " FROM carbon_factor WHERE version = ? ORDER BY zone, from_ts",
        (version,),
    ).fetchall()


def _mark_all_days(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT OR IGNORE INTO dirty_day SELECT DISTINCT day FROM usage_daily")
    connection.execute(
        "INSERT OR IGNORE INTO dirty_day SELECT DISTINCT day FROM unallocated_daily"
    )
