# SPDX-License-Identifier: Apache-2.0
"""The factor that a job's page shows is the grid's, not a quotient of rounded amounts."""

from __future__ import annotations

from fairwatt.accounting.carbon import Factor, Grid
from fairwatt.accounting.reports.footprint import _footprint

YEAR = (0, 10_000_000)


def _grid(*factors: Factor) -> Grid:
    return Grid(zone="DEU", version=1, factors=factors, pues=((0, 1300),))


def test_a_tiny_run_shows_the_grid_factor_and_not_its_rounding():
    # 89 J × 1.3 × 344.1 g/kWh = 11.06 mg, stored as 11 mg: 11 mg / kWh would show 342.3.
    made = _footprint({0: 89_118}, _grid(Factor("DEU", *YEAR, 344_100)), "x")
    assert (made.co2_mg, made.g_per_kwh, made.pue) == (11, 344.1, 1.3)


def test_the_mean_is_weighted_by_energy():
    # 1 kWh at 100 and 3 kWh at 300: (100 + 900) / 4 = 250.
    grid = _grid(Factor("DEU", 0, 3600, 100_000), Factor("DEU", 3600, 7200, 300_000))
    hours = {0: 3_600_000_000, 3600: 3 * 3_600_000_000}
    assert _footprint(hours, grid, "x").g_per_kwh == 250.0


def test_no_energy_at_all_still_names_the_factor():
    assert _footprint({0: 0}, _grid(Factor("DEU", *YEAR, 344_100)), "x").g_per_kwh == 344.1
