# SPDX-License-Identifier: Apache-2.0
"""Measures of fairness against worked examples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairwatt.accounting.reports.fairness import entitlements, share_deviation


def test_golden_vector():
    """Shares 40/30/20/10 and use 50/20/20/10: a tenth was used on another's entitlement."""
    assert share_deviation([0.4, 0.3, 0.2, 0.1], [50, 20, 20, 10]) == pytest.approx(0.10)


def test_one_of_four_gets_all():
    assert share_deviation([1, 1, 1, 1], [9, 0, 0, 0]) == pytest.approx(0.75)


def test_nothing_used_or_nobody_entitled_is_unknown():
    assert share_deviation([1, 1], [0, 0]) is None
    assert share_deviation([0, 0], [1, 1]) is None


def test_entitlements():
    assert entitlements([40, 30, 20, 10]) == [0.4, 0.3, 0.2, 0.1]
    assert entitlements([30, None, 10, 0]) == [0.75, None, 0.25, 0.0]
    assert entitlements([0, 0]) == [0.0, 0.0]


positive = st.lists(st.integers(1, 1000), min_size=1, max_size=8)


@given(positive, st.integers(2, 9))
def test_use_in_proportion_deviates_by_nothing(shares, factor):
    assert share_deviation(shares, [factor * s for s in shares]) == pytest.approx(0, abs=1e-12)


@given(st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 1000)), min_size=1, max_size=8))
def test_between_nothing_and_all(pairs):
    value = share_deviation([e for e, _ in pairs], [u for _, u in pairs])
    assert -1e-12 <= value < 1
