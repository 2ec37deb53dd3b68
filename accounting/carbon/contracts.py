# SPDX-License-Identifier: Apache-2.0
"""What electricity the site bought, for the market-based figure: a CSV of dated parts.

The columns are name, from, until, share_percent, g_per_kwh and source. An empty share is the
residual mix, for what the others leave open; an empty until means that it still holds.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fairwatt.accounting.carbon.factors import grams_milli, parse_time, table_rows
from fairwatt.accounting.carbon.versions import VALID, replace_rows
from fairwatt.core.errors import ConfigError

__all__ = [
    "OPEN_END_TS",
    "Bought",
    "load_contracts",
    "read_contracts",
    "stage_contracts",
]

COLUMNS = ("name", "from", "until", "share_percent", "g_per_kwh", "source")
OPEN_END_TS = 2**41
"""The end of what has no end yet."""
_NAMES = ("name", "from_ts", "until_ts", "share_permille", "mg_per_kwh", "source")


class Bought(NamedTuple):
    """A dated part of the electricity; `share_permille` None: the residual mix."""

    name: str
    from_ts: int
    until_ts: int
    share_permille: int | None
    mg_per_kwh: int
    source: str


def load_contracts(path: str | Path) -> list[Bought]:
    """Return the parts of a contracts file, ordered by time.

    Raises:
        ConfigError: it cannot be read, or at some time more than everything is bought.
    """
    place = str(path)
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot be read: {error}", place=place, remedy="see carbon.contracts_file"
        ) from error
    parts = [_part(where, row) for where, row in table_rows(text, COLUMNS, place)]
    _check(place, parts)
    return sorted(parts, key=lambda part: (part.from_ts, part.name))


def stage_contracts(connection: sqlite3.Connection, parts: Sequence[Bought]) -> int:
    """Stage the parts in place of all that were known; return how many differ."""
    return replace_rows(connection, "contract", _NAMES, [tuple(part) for part in parts])


def read_contracts(connection: sqlite3.Connection, version: int) -> list[Bought]:
    """Return the parts of a version, ordered by time."""
    rows = connection.execute(
        f"SELECT {', '.join(_NAMES)} FROM contract WHERE {VALID} ORDER BY from_ts, name",  # noqa: S608
        {"version": version},
    )
    return [Bought(*row) for row in rows]


def _part(place: str, row: Sequence[str]) -> Bought:
    name, start, end, share, grams, source = (cell.strip() for cell in row)
    from_ts = parse_time(start, place)
    until_ts = parse_time(end, place) if end else OPEN_END_TS
    milli, permille = grams_milli(grams), _permille(share)
    if not name or milli is None or permille == -1 or from_ts >= until_ts:
        raise ConfigError(
            "not a part of the electricity", place=place, value=",".join(row),
            remedy="write name,2026-01-01,2027-01-01,60,0,certificate number",
        )  # fmt: skip
    return Bought(name, from_ts, until_ts, permille, milli, source)


def _permille(share: str) -> int | None:
    """Thousandths of a share in per cent; None for the residual mix, -1 for what is none."""
    if not share:
        return None
    try:
        permille = round(float(share) * 10)
    except (ValueError, OverflowError):
        return -1
    return permille if 0 < permille <= 1000 else -1


def _check(place: str, parts: Sequence[Bought]) -> None:
    for at_ts in {part.from_ts for part in parts}:
        valid = [part for part in parts if part.from_ts <= at_ts < part.until_ts]
        whole = sum(part.share_permille or 0 for part in valid)
        residual = sum(part.share_permille is None for part in valid)
        if whole > 1000 or residual > 1 or len({part.name for part in valid}) < len(valid):
            raise ConfigError(
                "more than everything is bought, or one name or residual mix twice at a time",
                place=place, value=", ".join(part.name for part in valid),
                remedy="let the shares of a time sum to 100 at most",
            )  # fmt: skip
