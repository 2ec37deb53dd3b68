# SPDX-License-Identifier: Apache-2.0
"""The ledger's split: reference cases by hand, and exact conservation for any layout."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairwatt.accounting.ledger import (
    Hold,
    Span,
    apportion_gap,
    counter_delta,
    split_window,
)
from fairwatt.core.events import Flag

HOUR_MS = 3_600_000


def mig(job_id: int, slices: int, of: int = 7) -> Hold:
    return Hold(job_id, 0, f"MIG-{job_id}", slices, of)


def whole(job_id: int) -> Hold:
    return Hold(job_id, 0, "", 1, 1)


def totals(split) -> list[int]:
    return [share.idle_mj + share.active_mj for share in split.shares]


def test_case_e8_three_instances_side_by_side() -> None:
    """300 W for 1 h, idle 60 W, 1g/2g/4g at util 1.0/0/0.5 (energy-accounting.md, E8)."""
    split = split_window(
        1_080_000_000, HOUR_MS, 60_000, [mig(1, 1), mig(2, 2), mig(4, 4)], [1000, 0, 500]
    )
    assert totals(split) == [318_857_143, 61_714_286, 699_428_571]
    assert sum(totals(split)) == 1_080_000_000
    assert (split.unallocated_idle_mj, split.unallocated_active_mj) == (0, 0)
    assert [share.active_mj for share in split.shares] == [288_000_000, 0, 576_000_000]


def test_whole_board_belongs_to_its_run() -> None:
    split = split_window(900_000, 3_000, 55_000, [whole(9)], [None])
    assert (split.shares[0].idle_mj, split.shares[0].active_mj) == (165_000, 735_000)
    assert split.shares[0].util_permille is None


def test_no_job_leaves_all_unallocated() -> None:
    """E36 in small: an idle board's energy is shown, not lost."""
    split = split_window(3_600_000, 60_000, 55_000, [], [])
    assert split.shares == ()
    assert (split.unallocated_idle_mj, split.unallocated_active_mj) == (3_300_000, 300_000)


def test_unheld_slices_keep_their_idle_part_but_no_active_energy() -> None:
    split = split_window(7_700, 1_000, 7_000, [mig(1, 3)], [800])
    assert (split.shares[0].idle_mj, split.shares[0].active_mj) == (3_000, 700)
    assert (split.unallocated_idle_mj, split.unallocated_active_mj) == (4_000, 0)


@pytest.mark.parametrize("utils", [[0, 0], [None, None], [None, 900]])
def test_without_activity_the_reserved_fraction_decides(utils) -> None:
    """E28: activity 0 at full power must not charge the jobs 0."""
    split = split_window(10_000, 1_000, 0, [mig(1, 1), mig(2, 4)], utils)
    assert [share.active_mj for share in split.shares] == [2_000, 8_000]


def test_idle_power_above_the_measured_one_is_capped() -> None:
    split = split_window(1_000, 60_000, 60_000, [whole(1)], [500])
    assert (split.shares[0].idle_mj, split.shares[0].active_mj) == (1_000, 0)


def test_unknown_idle_power_counts_all_as_active() -> None:
    split = split_window(1_000, 60_000, None, [whole(1)], [500])
    assert (split.shares[0].idle_mj, split.shares[0].active_mj) == (0, 1_000)


def test_oversubscribed_board_is_shared_in_proportion() -> None:
    split = split_window(1_000, 1_000, 500, [whole(1), whole(2)], [None, None])
    assert totals(split) == [500, 500]


@pytest.mark.parametrize(
    ("before", "after", "energy_mj", "flags"),
    [
        (1_000, 301_000, 300_000, Flag(0)),
        (500_000, 500_000, 0, Flag(0)),
        (900_000, 200_000, 200_000, Flag.RESET),
        (0, 720_000, 720_000, Flag(0)),
        (0, 720_001, None, Flag.IMPLAUSIBLE),
        (9_000_000, 720_001, None, Flag.IMPLAUSIBLE | Flag.RESET),
    ],
)
def test_counter_delta_over_one_second_of_a_400_w_board(before, after, energy_mj, flags) -> None:
    delta = counter_delta(before, after, 1_000, 400_000)
    assert (delta.energy_mj, delta.flags) == (energy_mj, flags)


def test_e16_reboot_counts_only_the_part_since() -> None:
    delta = counter_delta(200_000, 250_000, 40_000, 400_000, restarted=True)
    assert (delta.energy_mj, delta.flags) == (250_000, Flag.RESET)


def test_a_counter_step_at_the_edge_of_a_short_window_is_plausible() -> None:
    assert counter_delta(0, 40_000, 5, 400_000).energy_mj == 40_000


def test_gap_charges_active_energy_to_the_occupied_span() -> None:
    """10 s at 60 W idle and a job in the first 4 s that drew 300 W: 1,200 + 360 J."""
    spans = [Span(4_000, True), Span(6_000, False)]
    assert apportion_gap(1_560_000, 60_000, spans) == [1_200_000, 360_000]


def test_gap_without_any_run_goes_by_time() -> None:
    assert apportion_gap(1_000, 0, [Span(1, False), Span(3, False)]) == [250, 750]


fractions = st.lists(st.integers(1, 4), max_size=7).filter(lambda parts: sum(parts) <= 7)
amounts = st.integers(0, 10**12)


@given(amounts, st.integers(0, 10**8), st.none() | st.integers(0, 10**6), fractions, st.data())
def test_every_millijoule_has_one_owner(delta_mj, dt_ms, idle_mw, parts, data) -> None:
    holds = [mig(number, slices) for number, slices in enumerate(parts)]
    utils = data.draw(
        st.lists(st.none() | st.integers(0, 1000), min_size=len(parts), max_size=len(parts))
    )
    split = split_window(delta_mj, dt_ms, idle_mw, holds, utils)
    amounts_mj = [share.idle_mj for share in split.shares]
    amounts_mj += [share.active_mj for share in split.shares]
    amounts_mj += [split.unallocated_idle_mj, split.unallocated_active_mj]
    assert sum(amounts_mj) == delta_mj
    assert min(amounts_mj) >= 0
    assert [share.util_permille for share in split.shares] == utils


@given(amounts, amounts, st.integers(0, 10**7), st.none() | st.integers(1, 10**6), st.booleans())
def test_counter_delta_is_never_negative_and_unknown_is_flagged(
    before, after, dt_ms, max_mw, restarted
) -> None:
    delta = counter_delta(before, after, dt_ms, max_mw, restarted=restarted)
    if delta.energy_mj is None:
        assert Flag.IMPLAUSIBLE in delta.flags
    else:
        assert delta.energy_mj >= 0
    assert (Flag.RESET in delta.flags) == (restarted or after < before)


@given(
    amounts,
    st.none() | st.integers(0, 10**6),
    st.lists(st.builds(Span, st.integers(1, 10**7), st.booleans()), min_size=1, max_size=8),
)
def test_gap_parts_sum_to_the_whole(delta_mj, idle_mw, spans) -> None:
    parts = apportion_gap(delta_mj, idle_mw, spans)
    assert sum(parts) == delta_mj
    assert min(parts) >= 0


holds_of_any_kind = st.lists(
    st.builds(
        Hold,
        job_id=st.integers(1, 50),
        run_start_ms=st.integers(0, 3),
        instance=st.sampled_from(["", "MIG-1", "MIG-2"]),
        numerator=st.integers(1, 7),
        denominator=st.sampled_from([1, 4, 7, 8, 100]),
    ),
    max_size=8,
    unique_by=lambda hold: (hold.job_id, hold.run_start_ms, hold.instance),
)


@given(amounts, st.integers(0, 10**8), st.none() | st.integers(0, 10**6), holds_of_any_kind,
       st.randoms(use_true_random=False), st.data())  # fmt: skip
def test_the_order_of_holds_plays_no_part(delta_mj, dt_ms, idle_mw, holds, rng, data) -> None:
    """Down to the millijoule left over: else a restarted agent would give it to another."""
    size = len(holds)
    utils = data.draw(st.lists(st.none() | st.integers(0, 1000), min_size=size, max_size=size))
    pairs = list(zip(holds, utils, strict=True))
    rng.shuffle(pairs)
    shuffled = split_window(
        delta_mj, dt_ms, idle_mw, [hold for hold, _ in pairs], [util for _, util in pairs]
    )
    assert shuffled == split_window(delta_mj, dt_ms, idle_mw, holds, utils)


@given(
    st.integers(1, 10**7),
    st.integers(0, 600_000),
    st.none() | st.integers(0, 400_000),
    fractions,
    st.data(),
)
def test_a_window_cut_in_two_moves_only_what_is_rounded(
    dt_ms, power_mw, idle_mw, parts, data
) -> None:
    """At even power, wherever the cut: each part of each run within 2 mJ for every share."""
    holds = [mig(number, slices) for number, slices in enumerate(parts)]
    size = len(holds)
    utils = data.draw(st.lists(st.none() | st.integers(0, 1000), min_size=size, max_size=size))
    cut_ms = data.draw(st.integers(0, dt_ms))
    measured = [power_mw * t_ms // 1000 for t_ms in (0, cut_ms, dt_ms)]
    one = split_window(measured[2], dt_ms, idle_mw, holds, utils)
    first = split_window(measured[1], cut_ms, idle_mw, holds, utils)
    rest = split_window(measured[2] - measured[1], dt_ms - cut_ms, idle_mw, holds, utils)
    assert sum(parts_of(first)) + sum(parts_of(rest)) == sum(parts_of(one)) == measured[2]
    for whole, a, b in zip(parts_of(one), parts_of(first), parts_of(rest), strict=True):
        assert abs(whole - a - b) <= 2


@given(amounts, amounts, st.integers(0, 10**7), st.integers(0, 10**7), st.integers(0, 10**6))
def test_a_board_of_one_run_may_be_cut_anywhere(first_mj, rest_mj, a_ms, b_ms, idle_mw) -> None:
    """However uneven the power: what is idle and active may move, the run's sum does not."""
    one = split_window(first_mj + rest_mj, a_ms + b_ms, idle_mw, [whole(1)], [500])
    first = split_window(first_mj, a_ms, idle_mw, [whole(1)], [None])
    rest = split_window(rest_mj, b_ms, idle_mw, [whole(1)], [0])
    assert totals(one)[0] == totals(first)[0] + totals(rest)[0] == first_mj + rest_mj


def parts_of(split) -> list[int]:
    """All parts of a window."""
    parts = [part for share in split.shares for part in (share.idle_mj, share.active_mj)]
    return [*parts, split.unallocated_idle_mj, split.unallocated_active_mj]
