# SPDX-License-Identifier: Apache-2.0
"""What a carbon figure rests on, in words: which factors, of which kind, and which version."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass

from fairwatt.accounting.carbon.grid_store import method_of
from fairwatt.accounting.carbon.versions import VALID, read_version
from fairwatt.accounting.reports.words import percent

__all__ = ["CarbonAsk", "basis_notes", "version_words"]


@dataclass(frozen=True)
class CarbonAsk:
    """What a report asks of carbon: the factors' version (None: newest), zone, catalogue."""

    version: int | None = None
    zone: str | None = None
    catalogue_dir: str | None = None


_STEP_WORDS = {
    300: "5 minutes", 900: "quarter of an hour", 1800: "half-hour", 3600: "hour",
    86_400: "day", 31 * 86_400: "month", 366 * 86_400: "year",
}  # fmt: skip
_SERIES = f"""
    SELECT step_s, source, licence FROM grid_factor JOIN provenance USING (provenance_id)
    WHERE {VALID} AND zone = :zone AND method = :method
    ORDER BY step_s, until_ts DESC LIMIT 1"""  # noqa: S608 - our own text


def version_words(db: sqlite3.Connection, version: int | None = None) -> str | None:
    """Return the version of the factors for a report's foot; None where there is none."""
    about = read_version(db, version)
    if about is None:
        return None
    made = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(about.made_ts))
    newest = read_version(db)
    old = ", an older one" if newest and newest.version != about.version else ""
    return f"carbon factors version {about.version} of {made}{old}"


def basis_notes(
    db: sqlite3.Connection,
    version: int | None,
    carbon_zone: str | None,
    fallback: float | None,
    market_known: bool,
) -> list[str]:
    """Return the sentences below a carbon table: factors, gaps, contracts, version.

    `fallback` is the part of the energy whose factor fills a gap.
    """
    about = read_version(db, version)
    if about is None:
        return ["No grid factors are stored yet, so that no emissions can be given."]
    zone = about.grid_zone or about.zone or carbon_zone or ""
    method = about.method or method_of(db, about.version, zone)
    row = db.execute(
        _SERIES, {"version": about.version, "zone": zone, "method": method}
    ).fetchone()
    made = f"Made with {version_words(db, about.version)}."
    return [_location(zone, method, row), *_gaps(fallback), _market(market_known), made]


def _location(zone: str, method: str, row: tuple[int, str, str] | None) -> str:
    if row is None:
        return (
            f"Location-based: factors of {zone} ({method}) are wanted, but none is stored yet; "
            "the country's yearly ones stand in for them."
        )
    step_s, source, licence = row
    step = _STEP_WORDS.get(step_s, f"{step_s} s")
    return (
        f"Location-based: the grid of {zone}, {method}, one factor for each {step}; "
        f"{source} ({licence})."
    )


def _gaps(fallback: float | None) -> list[str]:
    if not fallback:
        return []
    part = percent(fallback) if fallback >= 0.001 else "less than 0.1 %"
    return [
        f"For {part} of the energy there was no such factor: the mean of the day or "
        "month, or the country's yearly one (of the nearest year), stands in for it."
    ]


def _market(is_known: bool) -> str:
    if is_known:
        return (
            "Market-based: by the electricity that was bought (contracts and certificates that "
            "the site has entered); what they leave open has the residual mix, or the grid's "
            "factor where none is entered."
        )
    return (
        "Market-based is unknown: for a part of the time no contract is entered "
        "(carbon.contracts_file). That is not 0, and not the location-based figure."
    )
