# SPDX-License-Identifier: Apache-2.0
"""Makes a store with the invented year and its rollups, by the code that serves real data."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from fairwatt.accounting.carbon.site import carbon_site, prepare_carbon
from fairwatt.accounting.days import day_bounds, site_zone
from fairwatt.accounting.rollup import rollup
from fairwatt.accounting.store import open_store, transaction
from fairwatt.accounting.waste_settings import limits_of
from fairwatt.accounting.waste_store import judge_runs
from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.config import Config, load
from fairwatt.dashboard.seed import SEED_DAYS, seed_year
from fairwatt.dashboard.seed_carbon import invent_carbon
from fairwatt.dashboard.university import load_university

__all__ = ["demo_config", "fill_store"]


def demo_config(listen: str, database: str | Path) -> Config:
    """Return default settings for the invented university, independent of this host's files."""
    values: dict[str, Any] = {
        "site.cluster": load_university().cluster,
        "site.timezone": "Europe/Berlin",
        "dashboard.listen": listen,
        "collector.database": str(database),
    }
    defaults = load(None)
    return replace(defaults, values={**defaults.values, **values})


def fill_store(config: Config, until: date, *, days: int = SEED_DAYS) -> int:
    """Add the invented year before the local day `until` to the configured store.

    Returns:
        The number of runs.

    Raises:
        StoreError: the store cannot be written or has an invented year already.
    """
    zone_name, carbon_zone = config["site.timezone"], config["carbon.zone"]
    now_ts = day_bounds(str(until), site_zone(zone_name))[0]
    site = carbon_site(config)
    db = open_store(config["collector.database"])
    try:
        with transaction(db) as connection:
            prepare_carbon(connection, site, now_ts)
            invent_carbon(connection, now_ts - days * 86_400, now_ts, carbon_zone, now_ts)
        runs = seed_year(db, until, zone_name, days=days)
        judge_runs(db, load_catalogue(), limits_of(config), site_zone(zone_name))
        rollup(db, config["site.cluster"], site_zone(zone_name), carbon_zone, now_ts)
    finally:
        db.close()
    return runs
