# SPDX-License-Identifier: Apache-2.0
"""When energy counter and power sensor contradict each other, and when they merely differ."""

from __future__ import annotations

import random

import pytest

from fairwatt.accounting.agent.power_check import PERIOD_MS, PowerCheck, bound_mj
from fairwatt.core.events import Flag

STEP_MS = 10_000


def fed(check: PowerCheck, powers_mw, counted_mw, t_ms: int = 0, energy_mj: int = 0) -> int:
    """Feed samples 10 s apart; the counter grows by `counted_mw` meanwhile."""
    for power_mw, mean_mw in zip(powers_mw, counted_mw, strict=True):
        check.add("GPU", t_ms, energy_mj, power_mw)
        t_ms += STEP_MS
        energy_mj += mean_mw * STEP_MS // 1000
    return t_ms


def told(powers_mw, counted_mw) -> Flag:
    check = PowerCheck()
    fed(check, powers_mw, counted_mw)
    return check.flag("GPU")


@pytest.mark.parametrize(
    ("power_w", "counted_w", "flag"),
    [
        (300, 300, Flag(0)),
        (300, 344, Flag(0)),  # 15 % of 300 W are 45 W
        (300, 346, Flag.DISAGREES),
        (300, 254, Flag.DISAGREES),
        (20, 29, Flag(0)),  # idle: 10 W either way
        (20, 31, Flag.DISAGREES),
        (8, 60, Flag.DISAGREES),  # a consumer card whose counter runs at idle
        (300, 0, Flag.DISAGREES),  # a counter that stands still
    ],
)
def test_the_stated_bound(power_w, counted_w, flag) -> None:
    assert told([1000 * power_w] * 14, [1000 * counted_w] * 14) == flag


def test_power_that_changes_between_samples_is_no_fault_of_the_counter() -> None:
    """A job that swings between 100 and 500 W: 13 samples miss its mean by some 55 W."""
    rng = random.Random(6)
    for _ in range(200):
        powers = [rng.choice((100_000, 500_000)) for _ in range(14)]
        assert told(powers, [300_000] * 14) == Flag(0)


def test_a_swinging_counter_is_caught_when_the_power_is_steady() -> None:
    assert told([200_000] * 14, [100_000, 500_000] * 7) == Flag.DISAGREES


def test_nothing_is_said_before_two_minutes() -> None:
    assert told([300_000] * 12, [0] * 12) == Flag(0)  # 110 s


def test_a_verdict_holds_until_the_next() -> None:
    check = PowerCheck()
    t_ms = fed(check, [300_000] * 14, [0] * 14)
    assert check.flag("GPU")
    assert check.status() == {"GPU": "counter 0 W, power sensor 300 W"}
    assert check.flag("GPU-other") == Flag(0)
    t_ms = fed(check, [300_000] * 10, [300_000] * 10, t_ms)
    assert check.flag("GPU")
    fed(check, [300_000] * 16, [300_000] * 16, t_ms, 3_000_000)
    assert check.flag("GPU") == Flag(0)
    assert check.status() == {}


def test_a_reset_or_a_gap_begins_anew() -> None:
    """A counter that fell, or samples a minute apart, tell nothing of the time between."""
    check = PowerCheck()
    t_ms = fed(check, [300_000] * 10, [300_000] * 10, energy_mj=10**9)
    t_ms = fed(check, [300_000] * 10, [300_000] * 10, t_ms)  # from 0 again
    fed(check, [300_000] * 10, [300_000] * 10, t_ms + 600_000, 10**9)
    assert check.flag("GPU") == Flag(0)


def test_the_bound_is_the_largest_of_three() -> None:
    assert bound_mj(600_000_000, PERIOD_MS, 0) == 90_000_000
    assert bound_mj(1_000_000, PERIOD_MS, 0) == 10_000 * 120
    assert bound_mj(1_000_000, PERIOD_MS, 50_000) == 200_000 * 120
