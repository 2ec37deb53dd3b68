# SPDX-License-Identifier: Apache-2.0
"""Carbon of single runs: energy of each hour × PUE × the grid factor valid then."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from fairwatt.accounting.carbon import Grid, open_grid
from fairwatt.core.errors import StoreError
from fairwatt.core.units import MJ_PER_KWH

__all__ = ["Footprint", "footprints"]

_HOURS = """
    SELECT run_id, hour_ts, idle_mj + active_mj FROM run_hour
    WHERE run_id IN (SELECT value FROM json_each(?))"""
_SOURCE = """
    SELECT source, method FROM carbon_factor WHERE version = ? AND zone = ? LIMIT 1"""


@dataclass(frozen=True)
class Footprint:
    """A run's measured energy and what it emitted; None where no factor is stored."""

    energy_mj: int
    co2_mg: int | None
    g_per_kwh: float | None
    pue: float | None
    source: str | None


def footprints(
    db: sqlite3.Connection, run_ids: Iterable[int], carbon_zone: str | None
) -> dict[int, Footprint]:
    """Return the footprint of each run that has measured energy.

    The caller has checked that the runs are within the asker's scope.
    """
    by_run: dict[int, dict[int, int]] = {}
    for run_id, hour_ts, energy_mj in db.execute(_HOURS, (json.dumps(list(run_ids)),)):
        by_run.setdefault(run_id, {})[hour_ts] = energy_mj
    grid = _grid(db, carbon_zone)
    source = _source(db, grid) if grid else None
    return {run_id: _footprint(hours, grid, source) for run_id, hours in by_run.items()}


def _grid(db: sqlite3.Connection, carbon_zone: str | None) -> Grid | None:
    """A store without factors is no fault of the report: carbon is unknown then."""
    if carbon_zone is None:
        return None
    try:
        return open_grid(db, carbon_zone)
    except StoreError:
        return None


def _source(db: sqlite3.Connection, grid: Grid) -> str:
    source, method = db.execute(_SOURCE, (grid.version, grid.zone)).fetchone()
    return f"{grid.zone}, {method}; {source}; version {grid.version}"


def _footprint(hours: dict[int, int], grid: Grid | None, source: str | None) -> Footprint:
    energy_mj = sum(hours.values())
    if grid is None:
        return Footprint(energy_mj, None, None, None, None)
    co2_mg, fallback_mj = grid.carbon(hours)
    first_hour = min(hours)
    pue = grid.pue_at(first_hour) / 1000
    # Mean over the run, weighted by energy, so that the columns multiply to the last.
    it_kwh = energy_mj / MJ_PER_KWH * pue
    remark = "; the factor is another year's" if fallback_mj else ""
    factor = co2_mg / 1000 / it_kwh if it_kwh else grid.factor_at(first_hour)[0] / 1000
    return Footprint(energy_mj, co2_mg, round(factor, 1), pue, f"{source}{remark}")
