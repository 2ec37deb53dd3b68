# SPDX-License-Identifier: Apache-2.0
"""Carbon of single runs: energy of each quarter of an hour × PUE × the factor valid then."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from fairwatt.accounting.carbon.grid import Grid
from fairwatt.accounting.carbon.grid_store import open_grid
from fairwatt.accounting.carbon.slots import slots_of
from fairwatt.core.errors import StoreError

__all__ = ["Footprint", "footprints", "grid_of"]

_HOURS = """
    SELECT run_id, hour_ts, idle_mj + active_mj, start_ts, end_ts
    FROM run_hour JOIN run USING (run_id)
    WHERE run_id IN (SELECT value FROM json_each(?))"""
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
) -> dict[int, Footprint]:
    """Return the footprint of each run that has measured energy.

    The caller has checked that the runs are within the asker's scope. `version` is that of the
    factors; None: the newest.
    """
    by_run: dict[int, dict[int, int]] = {}
    for run_id, hour_ts, energy_mj, start_ts, end_ts in db.execute(
        _HOURS, (json.dumps(list(run_ids)),)
    ):
        slots = by_run.setdefault(run_id, {})
        slots.setdefault(hour_ts, 0)
        for slot_ts, part_mj in slots_of(hour_ts, energy_mj, start_ts, end_ts):
            slots[slot_ts] = slots.get(slot_ts, 0) + part_mj
    grid = grid_of(db, carbon_zone, version, by_run.values())
    source = _source(db, grid) if grid else None
    return {run_id: _footprint(slots, grid, source) for run_id, slots in by_run.items()}


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
