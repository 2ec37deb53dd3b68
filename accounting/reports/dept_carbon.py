# SPDX-License-Identifier: Apache-2.0
"""A department's carbon: location- and market-based, of making the hardware, and nobody's part."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairwatt.accounting.carbon.embodied import embodied_of_types, read_hardware, sci_mg
from fairwatt.accounting.carbon.grid import Emission
from fairwatt.accounting.carbon.versions import current_version
from fairwatt.accounting.reports.carbon_basis import CarbonAsk, basis_notes
from fairwatt.accounting.reports.columns import CARBON, ENERGY, column
from fairwatt.accounting.reports.old_factors import old_run_carbon, old_unowned_carbon
from fairwatt.accounting.reports.period import Period
from fairwatt.accounting.reports.scope import Scope, select
from fairwatt.accounting.reports.usage import Usage, total, usage_by_type
from fairwatt.accounting.reports.words import carbon_sentence
from fairwatt.accounting.store import data_version
from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.records import Table

__all__ = ["WHOLE", "carbon_table", "energy_table", "whole_of"]

_COLUMNS = (
    column("owner", "Owner", "text", "Whose energy it is."),
    ENERGY,
    column("host_mj", "Nodes' energy", "energy_mj", "Processors, memory and the rest of the "
           "nodes, as far as they are measured; unknown where no node tells."),
    column("co2_mg", "Location-based", "carbon_mg", "All this energy times PUE times the factor "
           "of the grid at that time: what the place emitted."),
    column("market_mg", "Market-based", "carbon_mg", "The same with the electricity that the "
           "site bought, instead of the grid's (GHG Protocol Scope 2 asks for both)."),
    column("embodied_mg", "Hardware", "carbon_mg", "Emissions from making the GPUs, spread over "
           "their expected life, for the time they were held."),
    column("sci_mg", "SCI per GPU hour", "carbon_mg", "Software Carbon Intensity (ISO/IEC 21031): "
           "location-based and hardware together, per full-GPU hour; of the GPUs' electricity per "
           "hour that was measured. What was bought has no part in it."),
    column("fallback", "Substituted factor", "ratio", "Part of the energy whose factor stands in "
           "for a missing one."),
)  # fmt: skip
TOGETHER = "together"
WHOLE = (
    column("host_mj", "Nodes' energy", "energy_mj", "Processors, memory and the rest of the "
           "nodes; unknown where no node tells."),
    column("all_co2_mg", "CO2e, GPUs and nodes", "carbon_mg", "Location-based, of all the energy "
           "that was measured."),
    column("market_mg", "Market-based", "carbon_mg", "The same by the electricity that was "
           "bought."),
    column("embodied_mg", "Hardware", "carbon_mg", "From making the GPUs, for the time held."),
)  # fmt: skip
"""Columns of a summary for the whole department."""

_HOST = """
    SELECT t.account, SUM(t.idle_mj + t.active_mj), SUM(t.co2_mg), SUM(t.factor_fallback_mj),
           SUM(t.market_mg), SUM(t.market_unknown_mj)
    FROM host_daily t
    WHERE {scope} AND t.owner = 'run' AND t.cluster = :cluster AND t.day >= :first
      AND t.day < :until AND t.account IN (SELECT value FROM json_each(:accounts))
    GROUP BY t.account"""
_UNOWNED = """
    SELECT 'unallocated', 1, SUM(idle_mj + active_mj), SUM(co2_mg), SUM(factor_fallback_mj),
           SUM(market_mg), SUM(market_unknown_mj)
    FROM unallocated_daily WHERE cluster = :cluster AND day >= :first AND day < :until
    UNION ALL
    SELECT owner, 0, SUM(idle_mj + active_mj), SUM(co2_mg), SUM(factor_fallback_mj),
           SUM(market_mg), SUM(market_unknown_mj)
    FROM host_daily WHERE cluster = :cluster AND day >= :first AND day < :until
      AND owner <> 'run' GROUP BY owner"""
_NOTHING = Emission(0, 0, 0, 0)
_NAMES = {
    "unallocated": "nobody (whole cluster, unallocated)",
    "system": "the nodes' own services (whole cluster)",
}


@dataclass(frozen=True)
class _Part:
    """Energy and carbon of one owner's GPUs or nodes."""

    energy_mj: int = 0
    made: Emission = _NOTHING

    def __add__(self, other: _Part) -> _Part:
        pairs = zip(self.made, other.made, strict=True)
        return _Part(self.energy_mj + other.energy_mj, Emission(*(a + b for a, b in pairs)))


def carbon_table(
    db: sqlite3.Connection,
    scope: Scope,
    cluster: str,
    groups: Mapping[str, str],
    period: Period,
    names: Mapping[str, str],
    usage: Mapping[str, Usage],
    ask: CarbonAsk,
) -> Table:
    """Return the carbon of each group, of all of them, of nobody and of the system.

    Args:
        db: the store.
        scope: who asks.
        cluster: of the department.
        groups: the group of each account.
        period: which days.
        names: the groups to show, in their order, with their names for people.
        usage: of the groups, under the version that is asked for.
        ask: which factors.
    """
    embodied = _embodied(db, scope, cluster, groups, period, ask)
    hosts = _hosts(db, scope, cluster, groups, period, ask)
    rows = [
        _row(names[group], usage.get(group, Usage()), hosts.get(group), embodied.get(group, 0))
        for group in names
    ]
    if len(names) > 1:
        made = [embodied.get(group, 0) for group in names]
        whole = None if None in made else sum(mg or 0 for mg in made)
        rows.append(_row(TOGETHER, total(usage.values()), _added(hosts), whole))
    known = all(row[4] is not None for row in rows if row[1] or row[2])
    shares = [row[7] for row in rows if row[7] is not None]
    unowned = _unowned(db, cluster, period, ask)
    keys = [item.key for item in _COLUMNS]
    lines = [dict(zip(keys, row, strict=True)) for row in (rows[-1], *unowned[:1])]
    return Table(
        name="carbon",
        title="Carbon",
        columns=_COLUMNS,
        rows=[*rows, *unowned],
        data_version=data_version(db),
        notes=[
            carbon_sentence(lines[0], lines[1] if unowned else None),
            *basis_notes(db, ask.version, ask.zone, shares[-1] if shares else None, known),
            "Energy that nobody held is the cluster's own line; it is not spread over accounts.",
            "Hardware is unknown where no figure for a GPU is known (carbon.embodied_file).",
        ],
    )


def whole_of(carbon: Table) -> dict[str, Any]:
    """Return the line of a carbon table that stands for the whole department."""
    records = carbon.records()
    together = [record for record in records if record["owner"] == TOGETHER]
    return together[0] if together else records[0]


def energy_table(
    db: sqlite3.Connection, cluster: str, period: Period, name: str, use: Usage, ask: CarbonAsk
) -> Table:
    """Return the GPU energy of the department (`name`, `use`) beside what nobody held."""
    columns = (
        column("owner", "Owner", "text", "Whose energy it is."),
        column("idle_mj", "Idle part", "energy_mj", "What the GPUs draw without work."),
        column("active_mj", "Active part", "energy_mj", "What work added."),
        CARBON,
    )
    known = use.energy_mj is not None
    own = (use.idle_mj if known else None, use.active_mj if known else None, use.carbon_mg)
    nobody = _unallocated(db, cluster, period, ask.version)
    return Table(
        name="energy",
        title="GPU energy and its owner",
        columns=columns,
        rows=[(name, *own), (_NAMES["unallocated"], *nobody)],
        data_version=data_version(db),
        notes=[
            "GPUs that nobody held are the cluster's own line; it is not spread over accounts."
        ],
    )


def _unallocated(
    db: sqlite3.Connection, cluster: str, period: Period, factors: int | None
) -> tuple[Any, ...]:
    row: tuple[Any, ...] = db.execute(
        "SELECT SUM(idle_mj), SUM(active_mj), SUM(co2_mg) FROM unallocated_daily"
        " WHERE cluster = :cluster AND day >= :first AND day < :until",
        _keys(cluster, period),
    ).fetchone()
    if factors is None or row[0] is None:
        return row
    old = old_unowned_carbon(db, period, factors, cluster)
    own = [m.co2_mg for (o, _), m in old.items() if o.owner == "unallocated" and o.kind == "gpu"]
    return (*row[:2], sum(own))


def _row(name: str, use: Usage, host: _Part | None, embodied: int | None) -> tuple[Any, ...]:
    gpu = _Part(
        use.idle_mj + use.active_mj,
        Emission(use.co2_mg, use.factor_fallback_mj, use.market_mg, use.market_unknown_mj),
    )
    whole = gpu + (host or _Part())
    location = None if use.carbon_mg is None else whole.made.co2_mg
    known = location is not None and not whole.made.market_unknown_mj
    sci = _sci_mg(use, location, embodied)
    return (
        name,
        use.energy_mj,
        host.energy_mj if host else None,
        location,
        whole.made.market_mg if known else None,
        None if use.is_unsized else embodied,
        None if sci is None else round(sci),
        _fallback(whole),
    )


def _sci_mg(use: Usage, location: int | None, embodied: int | None) -> float | None:
    """Hours that nobody measured have emitted too: the measured ones stand for them."""
    if location is None or not use.fge_hours or not use.measured:
        return None
    unseen_mg = use.co2_mg / use.measured - use.co2_mg
    return sci_mg(round(location + unseen_mg), embodied, use.fge_hours)


def _fallback(part: _Part) -> float | None:
    return part.made.fallback_mj / part.energy_mj if part.energy_mj else None


def _added(hosts: Mapping[str, _Part]) -> _Part | None:
    return sum(hosts.values(), _Part()) if hosts else None


def _embodied(
    db: sqlite3.Connection,
    scope: Scope,
    cluster: str,
    groups: Mapping[str, str],
    period: Period,
    ask: CarbonAsk,
) -> dict[str, int | None]:
    """Carbon of making the GPUs that each group held, in mg; None where one is unknown."""
    by_type = usage_by_type(db, scope, period, cluster=cluster, accounts=groups)
    hardware = read_hardware(db, ask.version or current_version(db) or 0)
    catalogue = load_catalogue(ask.catalogue_dir or None)
    held: dict[str, dict[str, int]] = {}
    for (gpu_type, account), use in by_type.items():
        types = held.setdefault(groups[account], {})
        types[gpu_type] = types.get(gpu_type, 0) + use.gpu_milli_s
    return {group: embodied_of_types(hardware, types, catalogue) for group, types in held.items()}


def _hosts(
    db: sqlite3.Connection,
    scope: Scope,
    cluster: str,
    groups: Mapping[str, str],
    period: Period,
    ask: CarbonAsk,
) -> dict[str, _Part]:
    """Energy and carbon of each group's part of the nodes; groups without any are left out."""
    keys = _keys(cluster, period) | {"accounts": json.dumps(sorted(groups))}
    by_account = {row[0]: _part(row[1:]) for row in select(db, scope, _HOST, keys)}
    if ask.version is not None:
        old = old_run_carbon(
            db, scope, period, ask.version, cluster=cluster, accounts=groups, user=None, gpu=False
        )
        made = _summed((owner.account, one) for (owner, _), one in old.items())
        by_account = {
            account: _Part(part.energy_mj, made.get(account, _NOTHING))
            for account, part in by_account.items()
        }
    result: dict[str, _Part] = {}
    for account, part in by_account.items():
        result[groups[account]] = result.get(groups[account], _Part()) + part
    return result


def _unowned(
    db: sqlite3.Connection, cluster: str, period: Period, ask: CarbonAsk
) -> list[tuple[Any, ...]]:
    """The lines of nobody and of the nodes' own services, where there is any energy."""
    parts = {
        (row[0], bool(row[1])): _part(row[2:])
        for row in db.execute(_UNOWNED, _keys(cluster, period))
        if row[2] is not None
    }
    if ask.version is not None:
        old = old_unowned_carbon(db, period, ask.version, cluster)
        made = _summed(((o.owner, o.kind == "gpu"), one) for (o, _), one in old.items())
        parts = {
            key: _Part(part.energy_mj, made.get(key, _NOTHING)) for key, part in parts.items()
        }
    return [
        _unowned_row(name, parts.get((owner, True)), parts.get((owner, False)))
        for owner, name in _NAMES.items()
        if (owner, True) in parts or (owner, False) in parts
    ]


def _unowned_row(name: str, gpu: _Part | None, host: _Part | None) -> tuple[Any, ...]:
    whole = (gpu or _Part()) + (host or _Part())
    location = whole.made.co2_mg if whole.made.co2_mg or not whole.energy_mj else None
    known = location is not None and not whole.made.market_unknown_mj
    return (
        name,
        gpu.energy_mj if gpu else None,
        host.energy_mj if host else None,
        location,
        whole.made.market_mg if known else None,
        None,
        None,
        _fallback(whole),
    )


def _keys(cluster: str, period: Period) -> dict[str, object]:
    return {"cluster": cluster, "first": str(period.first), "until": str(period.until)}


def _part(amounts: Sequence[int]) -> _Part:
    energy_mj, co2_mg, fallback_mj, market_mg, unknown_mj = amounts
    return _Part(energy_mj, Emission(co2_mg, fallback_mj, market_mg, unknown_mj))


def _summed(pairs: Iterable[tuple[Any, Emission]]) -> dict[Any, Emission]:
    sums: dict[Any, Emission] = {}
    for key, made in pairs:
        before = sums.get(key, _NOTHING)
        sums[key] = Emission(*(a + b for a, b in zip(before, made, strict=True)))
    return sums
