# SPDX-License-Identifier: Apache-2.0
"""The versions of the factors as tables: what each changed, and what one of them is made of."""

from __future__ import annotations

import sqlite3
from typing import Any

from fairwatt.accounting.carbon.contracts import OPEN_END_TS, read_contracts
from fairwatt.accounting.carbon.embodied import YEAR_S, read_hardware
from fairwatt.accounting.carbon.grid_store import Provenance, provenances
from fairwatt.accounting.carbon.pue import pue_table
from fairwatt.accounting.carbon.restate import restatements
from fairwatt.accounting.carbon.versions import current_version, versions
from fairwatt.accounting.reports.columns import column
from fairwatt.accounting.reports.old_factors import check_version
from fairwatt.accounting.store import data_version
from fairwatt.core.records import Column, Table

__all__ = ["versions_report"]

LAST = 50
_STEPS = ((3600, "up to an hour"), (86_400, "day"), (31 * 86_400, "month"), (2**62, "year"))


def versions_report(db: sqlite3.Connection, version: int | None = None) -> list[Table]:
    """Return the tables versions, factors, pue, contracts and hardware of a version (the newest).

    Raises:
        NotFoundError: there is no such version.
    """
    check_version(db, version)
    number = version or current_version(db) or 0
    data = data_version(db)
    return [_versions(db, data), _factors(db, number, data), _pue(db, number, data),
            _contracts(db, number, data), _hardware(db, number, data)]  # fmt: skip


def _versions(db: sqlite3.Connection, data: int) -> Table:
    columns = (
        column("version", "Version", "integer", "Number of the version."),
        column("made_ts", "Made", "ts", "When it was made."),
        column("reason", "Why", "text", "What changed."),
        column("grid", "Grid", "text", "Zone whose factors reports use."),
        column("method", "Method", "text", "Kind of these factors; empty: the file's."),
        column("days", "Days changed", "integer", "Days whose carbon it changed."),
        column("before_mg", "Before", "carbon_mg", "Carbon of these days under the one before."),
        column("after_mg", "After", "carbon_mg", "Carbon of these days under this one."),
    )
    changed = restatements(db)
    rows = [
        (v.version, v.made_ts, v.reason, v.grid_zone or v.zone, v.method,
         *(changed[v.version][1:] if v.version in changed else (0, 0, 0)))
        for v in versions(db)[:LAST]
    ]  # fmt: skip
    notes = ["A report can be asked for any of them: --factors-version N, on a page ?factors=N."]
    return _table("versions", "Versions of the factors", columns, rows, data, notes)


def _factors(db: sqlite3.Connection, version: int, data: int) -> Table:
    columns = (
        column("zone", "Zone", "text", "Where the electricity is from."),
        column("method", "Method", "text", "Kind of the factors; kinds are never mixed silently."),
        column("step", "Step", "text", "For how long one factor holds."),
        column("origin", "From", "text", "The configured file, an import, or a service."),
        column("source", "Source", "text", "Who published it."),
        column("licence", "Licence", "text", "Under which terms."),
        column("from_ts", "First", "ts", "Begin of the first factor."),
        column("until_ts", "Last", "ts", "End of the last factor."),
        column("rows", "Factors", "integer", "How many."),
        column("retrieved_ts", "Retrieved", "ts", "When the newest was taken over."),
    )
    rows = [
        (p.zone, p.method, next(word for most, word in _STEPS if p.step_s <= most), *p[3:])
        for p in _own_zones(db, version)
    ]
    return _table("factors", f"Factors of version {version}", columns, rows, data)


def _own_zones(db: sqlite3.Connection, version: int) -> list[Provenance]:
    """The zones that reports use: the file names two hundred others."""
    chosen = [v for v in versions(db) if v.version == version]
    zones = {chosen[0].zone, chosen[0].grid_zone} if chosen else set()
    return [p for p in provenances(db, version) if p.zone in zones]


def _pue(db: sqlite3.Connection, version: int, data: int) -> Table:
    columns = (
        column("from_ts", "From", "ts", "From when on it holds; empty: always."),
        column("pue", "PUE", "text", "Power usage effectiveness of the machine room."),
        column("source", "Source", "text", "Who said so."),
    )
    rows = [
        (ts or None, f"{milli / 1000:g}", source) for ts, milli, source in pue_table(db, version)
    ]
    return _table("pue", "Overhead of the machine room", columns, rows, data)


def _contracts(db: sqlite3.Connection, version: int, data: int) -> Table:
    columns = (
        column("name", "Electricity", "text", "Name of the contract or certificate."),
        column("from_ts", "From", "ts", "From when on."),
        column("until_ts", "Until", "ts", "Until when; empty: still."),
        column("share", "Share", "text", "Part of the electricity, or what the others leave."),
        column("g_per_kwh", "g CO2e/kWh", "text", "Its factor."),
        column("source", "Source", "text", "Where the number stands."),
    )
    rows = [
        (b.name, b.from_ts, None if b.until_ts == OPEN_END_TS else b.until_ts,
         "the rest" if b.share_permille is None else f"{b.share_permille / 10:g} %",
         f"{b.mg_per_kwh / 1000:g}", b.source)
        for b in read_contracts(db, version)
    ]  # fmt: skip
    return _table("contracts", "Electricity that was bought", columns, rows, data)


def _hardware(db: sqlite3.Connection, version: int, data: int) -> Table:
    columns = (
        column("hardware", "Hardware", "text", "Model of the catalogue, or Slurm GPU type."),
        column("kg", "kg CO2e", "text", "From making one GPU."),
        column("life", "Years", "text", "How long it is expected to serve."),
        column("source", "Source", "text", "Where the number stands."),
    )
    rows = [
        (h.name, f"{h.embodied_g / 1000:g}", f"{h.life_s / YEAR_S:g}", h.source)
        for h in sorted(read_hardware(db, version).values())
    ]
    notes = ["What is not here is unknown; carbon.embodied_file adds to it."]
    return _table("hardware", "Embodied carbon", columns, rows, data, notes)


def _table(
    name: str,
    title: str,
    columns: tuple[Column, ...],
    rows: list[tuple[Any, ...]],
    data: int,
    notes: list[str] | None = None,
) -> Table:
    return Table(
        name=name, title=title, columns=columns, rows=rows, data_version=data, notes=notes or []
    )
