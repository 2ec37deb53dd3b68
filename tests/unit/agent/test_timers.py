# SPDX-License-Identifier: Apache-2.0
"""Timers on a clock of the test's own, and the borders of windows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairwatt.accounting.agent.timers import Timers, next_border_ms

HOUR_MS = 3_600_000


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_is_due_runs_once_and_may_plan_itself_again() -> None:
    clock, done = Clock(), []
    timers = Timers(clock)

    def tick() -> None:
        done.append(clock.now)
        timers.set("tick", 10, tick)

    timers.set("tick", 10, tick)
    timers.set("never", 5, lambda: done.append("never"))
    timers.cancel("never")
    assert timers.wait_s() == 10
    for now in (105, 110, 111, 125):
        clock.now = now
        timers.run_due()
    assert done == [110, 125]


def test_hasten_brings_forward_but_never_puts_off() -> None:
    clock, done = Clock(), []
    timers = Timers(clock)
    timers.set("ship", 10, lambda: done.append("planned"))
    timers.hasten("ship", 20, lambda: done.append("later"))
    timers.hasten("ship", 1, lambda: done.append("soon"))
    clock.now += 30
    timers.run_due()
    assert done == ["soon"]
    assert timers.wait_s() is None


@pytest.mark.parametrize(
    ("now_ms", "window_ms", "border_ms"),
    [
        (HOUR_MS, 300_000, HOUR_MS + 300_000),
        (HOUR_MS + 299_999, 300_000, HOUR_MS + 300_000),
        (2 * HOUR_MS - 1, 700_000, 2 * HOUR_MS),
        (HOUR_MS, 2 * HOUR_MS, 2 * HOUR_MS),
    ],
)
def test_borders(now_ms: int, window_ms: int, border_ms: int) -> None:
    assert next_border_ms(now_ms, window_ms) == border_ms


@given(st.integers(0, 10**13), st.integers(1, 10**8))
def test_a_border_is_never_beyond_the_hour(now_ms: int, window_ms: int) -> None:
    border = next_border_ms(now_ms, window_ms)
    assert now_ms < border <= now_ms - now_ms % HOUR_MS + HOUR_MS
