# SPDX-License-Identifier: Apache-2.0
"""One factor of a grid, found by going through all of its spans."""

from __future__ import annotations

from fairwatt.accounting.carbon.grid import Grid


def factor_at(grid: Grid, ts: int) -> tuple[int, bool]:
    """Return the factor in mg/kWh at a time, and whether it fills a gap; the first begins all."""
    begun = [span for span in grid.spans if span.from_ts <= ts] or [grid.spans[0]]
    return begun[-1].mg_per_kwh, begun[-1].is_fallback
