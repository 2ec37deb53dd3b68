# SPDX-License-Identifier: Apache-2.0
"""Carbon of single runs: energy of each hour × PUE × the grid factor valid then."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from fairwatt.accounting.carbon import Grid, open_grid
from fairwatt.core.errors import StoreError

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
    remark = "; no factor covers that time, so the nearest one was used" if fallback_mj else ""
    factor, pue = (
        _mean(hours, at) / 1000 for at in (lambda ts: grid.factor_at(ts)[0], grid.pue_at)
    )
    return Footprint(energy_mj, co2_mg, round(factor, 1), round(pue, 3), f"{source}{remark}")


def _mean(hours: Mapping[int, int], value_at: Callable[[int], int]) -> float:
    """Mean over the run's hours by energy; of the hours alone where no energy was used.

    Not co2 / energy: of a small run that is the rounding to a whole mg more than the factor.
    """
    weights = hours if any(hours.values()) else dict.fromkeys(hours, 1)
    weighted = sum(energy_mj * value_at(hour_ts) for hour_ts, energy_mj in weights.items())
    return weighted / sum(weights.values())
