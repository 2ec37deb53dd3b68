# SPDX-License-Identifier: Apache-2.0
"""Values as people read them."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest

from fairwatt.dashboard.render import shown

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, "energy_mj", "unknown"),
        (None, "ratio", "unknown"),
        (None, "integer", "unknown"),
        (None, "text", "–"),
        (None, "ts", "–"),
        (0, "energy_mj", "0 Wh"),
        (0, "carbon_mg", "0 g"),
        (0, "ratio", "0.0 %"),
        (3_600_000_000, "energy_mj", "1.00 kWh"),
        (-0.125, "ratio", "-12.5 %"),
        (12345, "integer", "12,345"),
        (1234.5, "gpu_hours", "1,234 h"),
        (12.34, "gpu_hours", "12.3 h"),
        (90, "duration_s", "2 min"),
        (1_792_879_200, "ts", "2026-10-25 00:00"),
        ("<b>", "text", "<b>"),
    ],
)
def test_values_for_people(value, kind, text):
    assert shown(value, kind, BERLIN) == text
