# SPDX-License-Identifier: Apache-2.0
"""Local days and hours where clocks change."""

from __future__ import annotations

import itertools
from datetime import date, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairwatt.accounting.days import (
    cut,
    day_bounds,
    day_of,
    days_between,
    hour_floor,
    hour_pieces,
    site_zone,
)
from fairwatt.core.errors import ConfigError

BERLIN = ZoneInfo("Europe/Berlin")
ZONES = ["UTC", "Europe/Berlin", "Asia/Kolkata", "Asia/Kathmandu", "Australia/Lord_Howe"]


@pytest.mark.parametrize(
    ("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-07-01", 24)]
)
def test_days_have_23_24_or_25_hours(day, hours):
    start, end = day_bounds(day, BERLIN)
    assert end - start == hours * 3600


def test_the_hour_that_comes_twice_is_two_hours():
    """E13: both instants print 02:30, an hour apart."""
    pieces = list(hour_pieces(1792888200_000, 1792891800_000, BERLIN))
    assert sum(end - start for _, start, end in pieces) == 3_600_000
    assert [hour for hour, _, _ in pieces] == [1792886400, 1792890000]


def test_days_between_includes_the_last_second_only():
    start, end = day_bounds("2026-10-25", BERLIN)
    assert days_between(start, end, BERLIN) == ["2026-10-25"]
    assert days_between(start - 1, end + 1, BERLIN) == ["2026-10-24", "2026-10-25", "2026-10-26"]
    assert days_between(start, start, BERLIN) == ["2026-10-25"]


@pytest.mark.parametrize("name", ZONES)
def test_every_day_border_is_an_hour_border(name):
    zone = ZoneInfo(name)
    for offset in range(366):
        start, _ = day_bounds((date(2026, 1, 1) + timedelta(offset)).isoformat(), zone)
        assert hour_floor(start, zone) == start


@given(
    st.sampled_from(ZONES),
    st.integers(1_767_225_600_000, 1_798_761_600_000),
    st.integers(1, 200_000_000),
)
def test_hour_pieces_tile_and_stay_in_their_day(name, start, length):
    zone = ZoneInfo(name)
    pieces = list(hour_pieces(start, start + length, zone))
    assert pieces[0][1] == start
    assert pieces[-1][2] == start + length
    assert all(one[2] == two[1] for one, two in itertools.pairwise(pieces))
    for hour, a, b in pieces:
        assert hour * 1000 <= a < b <= hour * 1000 + 3_600_000
        assert day_of(hour, zone) == day_of(a // 1000, zone) == day_of((b - 1) // 1000, zone)


@given(
    st.integers(0, 2**62),
    st.integers(0, 10**6),
    st.lists(st.integers(1, 10**6), min_size=1, max_size=8),
)
def test_cut_loses_nothing(total, start, widths):
    borders = [start]
    for width in widths:
        borders.append(borders[-1] + width)
    parts = [cut(total, start, borders[-1], a, b) for a, b in itertools.pairwise(borders)]
    assert sum(parts) == total
    assert min(parts) >= 0


def test_cut_of_a_moment_belongs_to_its_start():
    assert cut(5, 10, 10, 0, 10) == 0
    assert cut(5, 10, 10, 10, 20) == 5


def test_an_unknown_zone_is_named():
    with pytest.raises(
        ConfigError, match=r"site\.timezone: unknown time zone \(got 'Europe/Bonn'"
    ):
        site_zone("Europe/Bonn")
