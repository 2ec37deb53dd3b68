# SPDX-License-Identifier: Apache-2.0
"""The factor that a job's page shows is the grid's, not a quotient of rounded amounts."""

from __future__ import annotations

from fairwatt.accounting.carbon.grid import Grid, Span
from fairwatt.accounting.reports.footprint import _footprint


def _grid(*spans: Span) -> Grid:
    return Grid(1, "DEU", "m", spans, ((0, 1300),))


def test_a_tiny_run_shows_the_grid_factor_and_not_its_rounding():
    # 89 J × 1.3 × 344.1 g/kWh = 11.06 mg, stored as 11 mg: 11 mg / kWh would show 342.3.
    made = _footprint({0: 89_118}, _grid(Span(0, 10**7, 344_100, False)), "x")
    assert (made.co2_mg, made.g_per_kwh, made.pue) == (11, 344.1, 1.3)


def test_the_mean_is_weighted_by_energy():
    # 1 kWh at 100 and 3 kWh at 300: (100 + 900) / 4 = 250.
    grid = _grid(Span(0, 3600, 100_000, False), Span(3600, 7200, 300_000, False))
    slots = {0: 3_600_000_000, 3600: 3 * 3_600_000_000}
    assert _footprint(slots, grid, "x").g_per_kwh == 250.0


def test_no_energy_at_all_still_names_the_factor():
    assert _footprint({0: 0}, _grid(Span(0, 10**7, 344_100, False)), "x").g_per_kwh == 344.1


def test_a_gap_is_told_with_its_part():
    grid = _grid(Span(0, 900, 100_000, False), Span(900, 1800, 100_000, True))
    made = _footprint({0: 30_000, 900: 10_000}, grid, "x")
    assert made.fallback_mj == 10_000
    assert made.source == "x; 25% of the energy by a factor that fills a gap"
