# SPDX-License-Identifier: Apache-2.0
"""Carbon of single runs: energy of each quarter of an hour × PUE × the factor valid then."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from fairwatt.accounting.carbon.embodied import embodied_of_types, read_hardware
from fairwatt.accounting.carbon.grid import Grid
from fairwatt.accounting.carbon.grid_store import open_grid
from fairwatt.accounting.carbon.slots import slots_of
from fairwatt.accounting.carbon.versions import current_version
from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.errors import StoreError

__all__ = ["Footprint", "embodied_of_runs", "footprints", "grid_of"]

_HOURS = """
    SELECT run_id, hour_ts, idle_mj + active_mj, start_ts, end_ts
    FROM run_hour JOIN run USING (run_id)
    WHERE run_id IN (SELECT value FROM json_each(:ids))
    UNION ALL
    SELECT run_id, hour_ts, idle_mj + active_mj, NULL, NULL FROM run_host_hour
    WHERE :with_nodes AND run_id IN (SELECT value FROM json_each(:ids))"""
_HELD = """
    SELECT run_id, gpu_type, milli, end_ts - start_ts FROM run_gpu JOIN run USING (run_id)
    WHERE end_ts >= start_ts AND run_id IN (SELECT value FROM json_each(?))"""
_SOURCE = """
    SELECT source FROM grid_factor JOIN provenance USING (provenance_id)
    WHERE zone = :zone AND method = :method AND since_version <= :version
    AND (until_version IS NULL OR until_version > :version)
    ORDER BY step_s, until_ts DESC LIMIT 1"""


@dataclass(frozen=True)
class Footprint:
    """A run's measured energy and what it emitted; None where no factor or contract is stored."""

    energy_mj: int
    co2_mg: int | None
    g_per_kwh: float | None
    pue: float | None
    source: str | None
    market_mg: int | None = None
    fallback_mj: int = 0


def footprints(
    db: sqlite3.Connection,
    run_ids: Iterable[int],
    carbon_zone: str | None,
    version: int | None = None,
    *,
    with_nodes: bool = False,
) -> dict[int, Footprint]:
    """Return the footprint of each run that has measured energy.

    Of its GPUs, and `with_nodes` of its part of processors, memory and the rest of its nodes. The
    caller has checked that the runs are within the asker's scope. `version` is that of the
    factors; None: the newest.
    """
    by_run: dict[int, dict[int, int]] = {}
    keys = {"ids": json.dumps(list(run_ids)), "with_nodes": with_nodes}
    for run_id, hour_ts, energy_mj, start_ts, end_ts in db.execute(_HOURS, keys):
        slots = by_run.setdefault(run_id, {})
        slots.setdefault(hour_ts, 0)
        for slot_ts, part_mj in slots_of(hour_ts, energy_mj, start_ts, end_ts):
            slots[slot_ts] = slots.get(slot_ts, 0) + part_mj
    grid = grid_of(db, carbon_zone, version, by_run.values())
    source = _source(db, grid) if grid else None
    return {run_id: _footprint(slots, grid, source) for run_id, slots in by_run.items()}


def embodied_of_runs(
    db: sqlite3.Connection,
    run_ids: Iterable[int],
    version: int | None = None,
    catalogue_dir: str | None = None,
) -> dict[int, int | None]:
    """Return for each ended run the carbon in mg of making the GPUs it held, None if unknown."""
    hardware = read_hardware(db, version or current_version(db) or 0)
    catalogue = load_catalogue(catalogue_dir or None)
    held: dict[int, dict[str, int] | None] = {}
    for run_id, gpu_type, milli, span_s in db.execute(_HELD, (json.dumps(list(run_ids)),)):
        types = held.setdefault(run_id, {})
        if milli is None or types is None:
            held[run_id] = None
        else:
            types[gpu_type] = types.get(gpu_type, 0) + milli * span_s
    return {
        run_id: None if types is None else embodied_of_types(hardware, types, catalogue)
        for run_id, types in held.items()
    }


def grid_of(
    db: sqlite3.Connection,
    carbon_zone: str | None,
    version: int | None,
    energies: Iterable[dict[int, int]],
) -> Grid | None:
    """Return the grid for the time of the energies, None where no factors are stored.

    A store without factors is no fault of the report: carbon is unknown then.
    """
    times = [ts for slots in energies for ts in slots]
    if not times:
        return None
    try:
        return open_grid(db, carbon_zone, version, (min(times), max(times) + 3600))
    except StoreError:
        return None


def _source(db: sqlite3.Connection, grid: Grid) -> str:
    keys = {"zone": grid.zone, "method": grid.method, "version": grid.version}
    row = db.execute(_SOURCE, keys).fetchone()
    source = row[0] if row else "no factor of this kind yet"
    return f"{grid.zone}, {grid.method}; {source}; version {grid.version}"


def _footprint(slots: dict[int, int], grid: Grid | None, source: str | None) -> Footprint:
    energy_mj = sum(slots.values())
    if grid is None:
        return Footprint(energy_mj, None, None, None, None)
    made = grid.carbon(slots)
    remark = ""
    if made.fallback_mj:
        part = made.fallback_mj / energy_mj
        remark = f"; {part:.0%} of the energy by a factor that fills a gap"
    return Footprint(
        energy_mj,
        made.co2_mg,
        round(grid.mean_factor(slots) / 1000, 1),
        round(grid.mean_pue(slots) / 1000, 3),
        f"{source}{remark}",
        None if made.market_unknown_mj else made.market_mg,
        made.fallback_mj,
    )
