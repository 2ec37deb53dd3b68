# SPDX-License-Identifier: Apache-2.0
"""Lifecycle factors by fuel, from a data file that says where each is from."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

from fairwatt.accounting.carbon.factors import grams_milli, table_rows
from fairwatt.core.errors import ConfigError

__all__ = ["fuel_factors"]

# Not importlib.resources: it cannot read an editable install of packages without __init__.py.
FILE = Path(__file__).parents[2] / "data" / "fuel-factors.csv"
COLUMNS = ("psr", "fuel", "g_per_kwh", "remark")


@functools.cache
def fuel_factors() -> Mapping[str, int | None]:
    """Return mg/kWh by ENTSO-E's code of the fuel; None: it is no part of the mix.

    Raises:
        ConfigError: the data file is damaged.
    """
    found: dict[str, int | None] = {}
    for place, (code, _fuel, grams, _remark) in table_rows(
        FILE.read_text(encoding="utf-8"), COLUMNS, FILE.name
    ):
        milli = grams_milli(grams) if grams else None
        if grams and milli is None:
            raise ConfigError("not a factor", place=place, value=grams)
        found[code] = milli
    return found
