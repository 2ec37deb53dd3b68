# SPDX-License-Identifier: Apache-2.0
"""Grid factors as sites bring them: CSV files with their source, licence and method.

The columns are zone, from, until (UTC dates or times) and g_per_kwh; header lines `# source:`,
`# licence:`, `# method:` and `# retrieved:` say what the numbers are. How long a row is valid
is its step: rows of a quarter of an hour and rows of a year may stand in one file.
"""

from __future__ import annotations

import csv
import difflib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fairwatt.core.errors import ConfigError

__all__ = [
    "DAY_S",
    "MARGINAL",
    "MONTH_S",
    "YEAR_S",
    "Factor",
    "FactorFile",
    "check_zone",
    "load_factors",
    "parse_factors",
    "step_of",
]

# Not importlib.resources: it cannot read an editable install of packages without __init__.py.
DEFAULT_FILE = Path(__file__).parents[1] / "data" / "country-factors.csv"
COLUMNS = ("zone", "from", "until", "g_per_kwh")
HEADERS = ("source", "licence", "method", "retrieved")
DAY_S, MONTH_S, YEAR_S = 86_400, 31 * 86_400, 366 * 86_400
_STEPS = (300, 900, 1800, 3600, DAY_S, MONTH_S, YEAR_S)
MARGINAL = "marginal"
"""The method whose factors say what a change would do: no account of what was emitted."""

LONGEST_METHOD = 60


@dataclass(frozen=True, order=True)
class Factor:
    """A grid factor of a zone, valid in [from_ts, until_ts); in mg CO2e per kWh."""

    zone: str
    from_ts: int
    until_ts: int
    g_per_kwh_milli: int


@dataclass(frozen=True)
class FactorFile:
    """Factors of one method with where they come from, ordered by zone and time."""

    source: str
    licence: str
    method: str
    retrieved_ts: int
    factors: tuple[Factor, ...]


def step_of(length_s: int) -> int:
    """Return the step in s that a row of this length belongs to: 900, 3600, …, a year at most."""
    return next((step for step in _STEPS if length_s <= step), YEAR_S)


def load_factors(path: str | Path | None = None) -> FactorFile:
    """Read a factor file; None or "" gives the one that comes with fairwatt.

    Raises:
        ConfigError: it cannot be read; the message names the file, the line and the value.
    """
    file = Path(path) if path else DEFAULT_FILE
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot be read: {error}", place=str(file), remedy="see carbon.factors_file"
        ) from error
    return parse_factors(text, str(file))


def parse_factors(text: str, place: str) -> FactorFile:
    """Read the text of a factor file; `place` is how messages call it.

    Raises:
        ConfigError: it is not one; the message names the line and the value.
    """
    lines = text.splitlines()
    head = _headers(place, lines)
    factors = sorted(_factors(place, lines))
    _check_apart(place, factors)
    return FactorFile(
        source=head["source"],
        licence=head["licence"],
        method=head["method"],
        retrieved_ts=parse_time(head["retrieved"], place),
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


def parse_time(text: str, place: str) -> int:
    """Return a date or time with or without a zone (then UTC) as epoch seconds.

    Raises:
        ConfigError: it is neither.
    """
    try:
        parsed = datetime.fromisoformat(text)
        return int((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            "not a date", place=place, value=text, remedy="write 2024-01-01 or 2024-01-01T13:00Z"
        ) from error


def table_rows(text: str, columns: Sequence[str], place: str) -> list[tuple[str, list[str]]]:
    """Return the rows of a CSV text below its header, each with `place, line N`; # is a comment.

    Raises:
        ConfigError: the header is another one, or a row has too few or too many cells.
    """
    lines = text.splitlines()
    table = [(n, line) for n, line in enumerate(lines, 1) if line.strip() and line[0] != "#"]
    try:
        rows = list(csv.reader([line for _, line in table], strict=True))
    except csv.Error as error:
        raise ConfigError(f"not CSV: {error}", place=place) from error
    if not rows or tuple(rows[0]) != tuple(columns):
        raise ConfigError("wrong columns", place=place, remedy=f"write {','.join(columns)}")
    found = []
    for (number, line), row in zip(table[1:], rows[1:], strict=False):
        if len(row) != len(columns):
            raise ConfigError(
                f"not {len(columns)} columns", place=f"{place}, line {number}", value=line
            )
        found.append((f"{place}, line {number}", row))
    return found


def _headers(place: str, lines: Sequence[str]) -> dict[str, str]:
    found = {}
    for line in lines:
        name, colon, value = line.removeprefix("#").partition(":")
        if line.startswith("#") and colon and name.strip() in HEADERS:
            found[name.strip()] = value.strip()
    for name in HEADERS:
        if not found.get(name):
            raise ConfigError(
                f"no line `# {name}: …`", place=place, remedy="say where the factors are from"
            )
    if len(found["method"]) > LONGEST_METHOD:
        raise ConfigError(
            "a method is a few words", place=place, value=found["method"],
            remedy="such as lifecycle-average",
        )  # fmt: skip
    return found


def _factors(place: str, lines: Sequence[str]) -> list[Factor]:
    return [_factor(where, row) for where, row in table_rows("\n".join(lines), COLUMNS, place)]


def _factor(place: str, row: Sequence[str]) -> Factor:
    zone, start, end, grams = row
    from_ts, until_ts = parse_time(start, place), parse_time(end, place)
    milli = grams_milli(grams)
    if not zone or from_ts >= until_ts or milli is None:
        raise ConfigError(
            "not a factor", place=place, value=",".join(row), remedy="g/kWh lie in 0 to 10000"
        )
    return Factor(zone, from_ts, until_ts, milli)


def grams_milli(text: str) -> int | None:
    """Return g/kWh as mg/kWh; None if it is no number from 0 to 10000."""
    try:
        milli = round(float(text) * 1000)
    except (ValueError, OverflowError):
        return None
    return milli if 0 <= milli <= 10_000_000 else None


def _check_apart(place: str, factors: Sequence[Factor]) -> None:
    """A year may hold the hours of the same zone; two rows of one step may not overlap."""
    by_step = sorted(factors, key=lambda f: (f.zone, step_of(f.until_ts - f.from_ts), f.from_ts))
    for before, after in itertools.pairwise(by_step):
        same = before.zone == after.zone and step_of(before.until_ts - before.from_ts) == step_of(
            after.until_ts - after.from_ts
        )
        if same and before.until_ts > after.from_ts:
            raise ConfigError(
                "two factors of one zone overlap",
                place=place,
                value=f"{after.zone} from {after.from_ts}",
            )
