# SPDX-License-Identifier: Apache-2.0
"""Invented grid factors and contracts, so that every column of carbon has something to show."""

from __future__ import annotations

import math
import random
import sqlite3

from fairwatt.accounting.carbon.contracts import OPEN_END_TS, Bought, stage_contracts
from fairwatt.accounting.carbon.factors import Factor, FactorFile
from fairwatt.accounting.carbon.grid_store import IMPORTED, add_factors
from fairwatt.accounting.carbon.versions import publish, store_choice

__all__ = ["invent_carbon"]

ZONE, METHOD, SOURCE = "Northfield", "lifecycle-average", "invented for demonstration"
HOUR_S, DAY_S = 3600, 86_400
GAP_EVERY_H = 1501
"""Of so many hours one has no factor, as with real services."""


def invent_carbon(
    connection: sqlite3.Connection, from_ts: int, until_ts: int, country: str, now_ts: int
) -> None:
    """Add hourly factors of [from_ts, until_ts) and what was bought; runs in a transaction."""
    rng = random.Random(7)  # noqa: S311 - an invented grid, not a secret
    rows = tuple(
        Factor(ZONE, ts, ts + HOUR_S, _mg_per_kwh(ts, rng))
        for ts in range(from_ts, until_ts, HOUR_S)
        if ts // HOUR_S % GAP_EVERY_H
    )
    file = FactorFile(SOURCE, "CC0", METHOD, now_ts, rows)
    add_factors(connection, file, IMPORTED, "invented factors", now_ts)
    bought = [
        Bought("hydro certificates", from_ts, OPEN_END_TS, 400, 0, SOURCE),
        Bought("residual mix", from_ts, OPEN_END_TS, None, 520_000, SOURCE),
    ]
    stage_contracts(connection, bought)
    publish(connection, "electricity contracts from an invented file", now_ts)
    store_choice(connection, country, ZONE, METHOD, now_ts)


def _mg_per_kwh(ts: int, rng: random.Random) -> int:
    """Low at noon and in summer, with the weather on top."""
    by_hour = -90 * math.cos(2 * math.pi * (ts % DAY_S / DAY_S - 0.5))
    by_season = 60 * math.cos(2 * math.pi * (ts / DAY_S % 365) / 365)
    return round(1000 * max(20.0, 340 + by_hour + by_season + rng.gauss(0, 45)))
