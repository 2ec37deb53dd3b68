# SPDX-License-Identifier: Apache-2.0
"""A job's carbon, run by run: of its GPUs and its part of the nodes, and of making the GPUs."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from fairwatt.accounting.reports.carbon_basis import CarbonAsk, version_words
from fairwatt.accounting.reports.columns import column
from fairwatt.accounting.reports.footprint import Footprint, embodied_of_runs
from fairwatt.accounting.store import data_version
from fairwatt.core.records import Table

__all__ = ["job_carbon_table"]

_COLUMNS = (
    column("restart_cnt", "Restart", "integer", "How often the job had been requeued."),
    column("energy_mj", "Energy", "energy_mj", "Energy of the run's GPUs, and of its part of "
           "processors, memory and the rest of its nodes where they are measured."),
    column("co2_mg", "Location-based", "carbon_mg", "This energy times PUE times the factor of "
           "the grid at that time."),
    column("market_mg", "Market-based", "carbon_mg", "The same with the electricity that the "
           "site bought, instead of the grid's."),
    column("embodied_mg", "Hardware", "carbon_mg", "Emissions from making the GPUs, spread over "
           "their expected life, for the time the run held them."),
    column("sci_mg", "SCI", "carbon_mg", "Software Carbon Intensity (ISO/IEC 21031) of the run: "
           "location-based and hardware together."),
    column("g_per_kwh", "Grid, g CO2e/kWh", "text", "Factor of the run's time, mean by energy."),
    column("pue", "PUE", "text", "Power usage effectiveness of the machine room."),
    column("factor", "Factor from", "text", "Zone, kind, source and version of the factor."),
)  # fmt: skip


def job_carbon_table(
    db: sqlite3.Connection,
    runs: Sequence[Mapping[str, Any]],
    found: Mapping[int, Footprint],
    ask: CarbonAsk,
) -> Table:
    """Return the carbon of the runs that have measured energy, in the order of `runs`.

    The caller has checked that the runs are within the asker's scope.
    """
    made = embodied_of_runs(db, list(found), ask.version, ask.catalogue_dir)
    rows = [
        _row(run["restart_cnt"], footprint, made.get(run["run_id"]))
        for run in runs
        if (footprint := found.get(run["run_id"]))
    ]
    words = version_words(db, ask.version)
    notes = [f"Made with {words}."] if words else []
    if any(row[4] is None for row in rows):
        notes.append("Hardware is unknown where no figure for a GPU is known, or the run goes on.")
    if any(row[3] is None for row in rows):
        notes.append("Market-based is unknown where no contract is entered for the time.")
    return Table(
        name="carbon", title="Carbon", columns=_COLUMNS, rows=rows,
        data_version=data_version(db), notes=notes,
    )  # fmt: skip


def _row(restart_cnt: int, footprint: Footprint, embodied: int | None) -> tuple[Any, ...]:
    known = footprint.co2_mg is not None and embodied is not None
    return (
        restart_cnt,
        footprint.energy_mj,
        footprint.co2_mg,
        footprint.market_mg,
        embodied,
        (footprint.co2_mg or 0) + (embodied or 0) if known else None,
        _plain(footprint.g_per_kwh),
        _plain(footprint.pue),
        footprint.source,
    )


def _plain(value: float | None) -> str | None:
    return None if value is None else f"{value:g}"
