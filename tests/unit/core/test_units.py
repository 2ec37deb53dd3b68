# SPDX-License-Identifier: Apache-2.0
"""Integer units: carbon by hand, exact splits, texts for people."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairwatt.core import units

KWH = 3_600_000_000


def test_a_kilowatt_hour() -> None:
    assert units.mj_to_kwh(KWH // 2) == 0.5


@pytest.mark.parametrize(
    ("energy_mj", "pue_milli", "g_per_kwh_milli", "wanted_mg"),
    [
        (KWH, 1000, 400_000, 400_000),  # 1 kWh at 400 g/kWh
        (KWH, 1300, 344_140, 447_382),  # 1 kWh x 1.3 x 344.14 g/kWh = 447.382 g
        (0, 1300, 344_140, 0),
        (KWH // 2, 1000, 1, 1),  # 0.5 mg is rounded half up
        (KWH // 2 - 1, 1000, 1, 0),
    ],
)
def test_carbon(energy_mj: int, pue_milli: int, g_per_kwh_milli: int, wanted_mg: int) -> None:
    assert units.carbon_mg(energy_mj, pue_milli, g_per_kwh_milli) == wanted_mg


@pytest.mark.parametrize(
    ("total", "weights", "wanted"),
    [
        (10, [], []),
        (10, [0, 0, 0], [4, 3, 3]),
        (100, [1, 2, 4], [14, 29, 57]),  # 14.29, 28.57, 57.14
        (1, [1, 1], [1, 0]),
        (60_000, [1, 2, 4], [8_571, 17_143, 34_286]),
        (0, [3, 4], [0, 0]),
    ],
)
def test_largest_remainder(total: int, weights: list[int], wanted: list[int]) -> None:
    assert units.split_largest_remainder(total, weights) == wanted


@given(st.integers(0, 2**63), st.lists(st.integers(0, 10**6), min_size=1, max_size=9))
def test_a_split_sums_to_the_total_and_is_off_by_less_than_one(
    total: int, weights: list[int]
) -> None:
    parts = units.split_largest_remainder(total, weights)
    whole = sum(weights) or len(weights)
    assert sum(parts) == total
    for part, weight in zip(parts, weights if sum(weights) else [1] * len(weights), strict=True):
        assert abs(part * whole - total * weight) < whole


@pytest.mark.parametrize(
    ("energy_mj", "wanted"),
    [
        (None, "unknown"),
        (0, "0 Wh"),
        (1, "< 0.01 Wh"),
        (-1, "> -0.01 Wh"),
        (18_000, "0.01 Wh"),
        (KWH, "1.00 kWh"),
        (KWH // 1000, "1.00 Wh"),
        (KWH * 1440, "1.44 MWh"),
        (12_345 * KWH // 1_000_000, "12.3 Wh"),
        (KWH * 9994 // 10_000, "999 Wh"),
        (KWH * 9996 // 10_000, "1.00 kWh"),
        (KWH * 10**10, "10000 GWh"),
    ],
)
def test_energy_for_people(energy_mj: int | None, wanted: str) -> None:
    assert units.format_kwh(energy_mj) == wanted


@pytest.mark.parametrize(
    ("co2_mg", "wanted"),
    [
        (None, "unknown"),
        (0, "0 g"),
        (4, "< 0.01 g"),
        (447_382, "447 g"),
        (1_500_000, "1.50 kg"),
        (2_500_000_000, "2.50 t"),
    ],
)
def test_carbon_for_people(co2_mg: int | None, wanted: str) -> None:
    assert units.format_carbon(co2_mg) == wanted


@pytest.mark.parametrize(
    ("duration_s", "wanted"),
    [(None, "unknown"), (0, "00:00:00"), (3_661, "01:01:01"), (86_400 + 59, "1 d 00:00:59")],
)
def test_durations_for_people(duration_s: int | None, wanted: str) -> None:
    assert units.format_duration(duration_s) == wanted
