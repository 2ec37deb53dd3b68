# SPDX-License-Identifier: Apache-2.0
"""A user's own carbon of a period: electricity by place and by contract, hardware, and SCI."""

from __future__ import annotations

import sqlite3

from fairwatt.accounting.carbon.embodied import embodied_of_types, read_hardware, sci_mg
from fairwatt.accounting.carbon.grid import Emission
from fairwatt.accounting.carbon.versions import current_version
from fairwatt.accounting.reports.carbon_basis import CarbonAsk
from fairwatt.accounting.reports.columns import column
from fairwatt.accounting.reports.dept_carbon import WHOLE
from fairwatt.accounting.reports.old_factors import old_run_carbon
from fairwatt.accounting.reports.period import Period
from fairwatt.accounting.reports.scope import Scope, select
from fairwatt.accounting.reports.usage import Usage, usage_by
from fairwatt.core.catalogue import load_catalogue

__all__ = ["MY_CARBON", "my_carbon"]

MY_CARBON = (
    *WHOLE,
    column("sci_mg", "SCI", "carbon_mg", "Software Carbon Intensity (ISO/IEC 21031) of your runs "
           "in the period: location-based and hardware together."),
)  # fmt: skip
_HOST = """
    SELECT SUM(t.idle_mj + t.active_mj), SUM(t.co2_mg), SUM(t.factor_fallback_mj),
           SUM(t.market_mg), SUM(t.market_unknown_mj)
    FROM host_daily t
    WHERE {scope} AND t.owner = 'run' AND t.user = :user AND t.day >= :first AND t.day < :until"""


def my_carbon(
    db: sqlite3.Connection, scope: Scope, period: Period, use: Usage, ask: CarbonAsk
) -> tuple[int | None, ...]:
    """Return the cells of MY_CARBON for the asker's own runs, whose sum `use` is."""
    host_mj, host = _nodes(db, scope, period, ask)
    location = None if use.carbon_mg is None else use.carbon_mg + host.co2_mg
    is_known = location is not None and not use.market_unknown_mj + host.market_unknown_mj
    embodied = _embodied(db, scope, period, ask)
    sci = sci_mg(location, embodied, 1)
    return (
        host_mj,
        location,
        use.market_mg + host.market_mg if is_known else None,
        embodied,
        None if sci is None else round(sci),
    )


def _nodes(
    db: sqlite3.Connection, scope: Scope, period: Period, ask: CarbonAsk
) -> tuple[int | None, Emission]:
    keys = {"user": scope.user, "first": str(period.first), "until": str(period.until)}
    energy_mj, *sums = select(db, scope, _HOST, keys)[0]
    if energy_mj is None:
        return None, Emission(0, 0, 0, 0)
    if ask.version is None:
        return energy_mj, Emission(*sums)
    old = old_run_carbon(
        db, scope, period, ask.version, cluster=None, accounts=None, user=scope.user, gpu=False
    )
    return energy_mj, Emission(*(sum(parts) for parts in zip(*old.values(), strict=True)))


def _embodied(db: sqlite3.Connection, scope: Scope, period: Period, ask: CarbonAsk) -> int | None:
    by_type = usage_by(db, scope, period, "gpu_type", user=scope.user)
    hardware = read_hardware(db, ask.version or current_version(db) or 0)
    held = {gpu_type: use.gpu_milli_s for gpu_type, use in by_type.items()}
    return embodied_of_types(hardware, held, load_catalogue(ask.catalogue_dir or None))
