# SPDX-License-Identifier: Apache-2.0
"""A number's bounds hold what was done with it, and nothing more."""

from __future__ import annotations

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairwatt.slurm_plugins.ranged import MOST, Ranged

COMPARE = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
numbers = st.one_of(
    st.integers(-2, 20), st.integers(-4, 40).map(lambda n: n / 2), st.just(float("inf"))
)
steps = st.lists(st.tuples(st.sampled_from(COMPARE), numbers, st.booleans()), max_size=6)


def outcomes(number: int, done: list) -> list[bool]:
    """What each comparison says, the number on its left or on its right."""
    return [compare(*(other, number)[:: 1 if turned else -1]) for compare, other, turned in done]


@given(st.integers(0, 20), steps)
def test_within_the_bounds_all_comes_out_the_same_and_outside_not(value, done):
    ranged = Ranged(value)
    expected = outcomes(value, done)
    assert outcomes(ranged, done) == expected
    alike = {n for n in range(30) if outcomes(n, done) == expected}
    bounds = set(range(ranged.low, min(29, ranged.high) + 1))
    assert value in bounds
    assert bounds <= alike
    if not any(compare in (operator.eq, operator.ne) for compare, *_ in done):
        assert bounds == alike


def test_of_a_number_that_nobody_looked_at_every_other_would_do():
    ranged = Ranged(7)
    assert ranged is not None
    assert ranged != "7"
    assert (ranged.low, ranged.high) == (0, MOST)


def test_being_unequal_leaves_the_side_it_lies_on():
    ranged = Ranged(7)
    assert ranged != 3
    assert ranged != 9.5
    assert (ranged.low, ranged.high) == (4, 9)


def test_truth_leaves_all_but_none():
    ranged = Ranged(7)
    assert (ranged or 5) is ranged
    assert (ranged.low, ranged.high) == (1, MOST)


@pytest.mark.parametrize(
    "use",
    [
        *(str, repr, hash, int, float, abs, round, lambda n: n + 1, lambda n: 1 - n),
        *(lambda n: n * 60, lambda n: n // 60, lambda n: n / 2, lambda n: divmod(n, 60)),
        *(lambda n: -n, lambda n: n % 2, lambda n: f"{n} min"),
        *(lambda n: {n: 1}, lambda n: [0] * n, lambda n: n == 7, lambda n: n**2),
        *(oct, range, lambda n: n * 1.5, lambda n: 1.5 - n, lambda n: n - n),
    ],
)
def test_whatever_else_is_done_with_it_is_about_its_very_value(use):
    ranged = Ranged(7)
    assert use(ranged) == use(7)
    assert (ranged.low, ranged.high) == (7, 7)
