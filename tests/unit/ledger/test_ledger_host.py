# SPDX-License-Identifier: Apache-2.0
"""The split of a part of a host: by hand, and under any numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairwatt.accounting.ledger import Hold, split_window
from fairwatt.accounting.ledger_host import (
    ALL_IDLE,
    HostSpan,
    HostUse,
    host_delta,
    split_host,
)


def whole_window(delta_mj, idle_mw, whole, uses, system=0, ms=10_000):
    """The split of one window in which all runs were there."""
    return split_host(
        delta_mj, idle_mw, whole, [HostSpan(ms, tuple(range(len(uses))))], uses, system
    )[0]


def owned(split):
    return {s.job_id: (s.idle_mj, s.active_mj) for s in split.shares}


def test_idle_goes_by_cores_and_active_by_cpu_time():
    """1,000 J in 10 s at 40 W idle; 8 and 4 of 16 cores, CPU time 3 : 1, the system as much."""
    split = whole_window(
        1_000_000, 40_000, 16, [HostUse(1, 0, 8, 30), HostUse(2, 0, 4, 10)], system=20
    )
    assert owned(split) == {1: (200_000, 300_000), 2: (100_000, 100_000)}
    assert (split.unallocated_idle_mj, split.system_mj) == (100_000, 200_000)
    assert split.unallocated_active_mj == 0


def test_without_a_job_the_idle_part_is_nobodys_and_the_rest_the_systems():
    split = whole_window(500_000, 40_000, 16, [], system=7)
    assert (split.unallocated_idle_mj, split.system_mj) == (400_000, 100_000)
    split = whole_window(500_000, 40_000, 16, [])
    assert (split.unallocated_idle_mj, split.unallocated_active_mj) == (400_000, 100_000)


def test_one_unknown_use_makes_all_go_by_what_was_held():
    split = whole_window(
        400_000, 0, 16, [HostUse(1, 0, 6, 1_000), HostUse(2, 0, 2, None)], system=1_000
    )
    assert owned(split) == {1: (0, 300_000), 2: (0, 100_000)}
    assert split.system_mj == 0


def test_cores_given_twice_are_shared():
    split = whole_window(300_000, 40_000, 8, [HostUse(1, 0, 8, 1), HostUse(2, 0, 4, 1)])
    assert owned(split) == {1: (200_000, 0), 2: (100_000, 0)}
    assert split.unallocated_idle_mj == 0


def test_the_rest_of_a_node_goes_by_what_is_held():
    split = whole_window(1_000_000, ALL_IDLE, 1_000_000, [HostUse(1, 0, 250_000, 0)])
    assert owned(split) == {1: (250_000, 0)}
    assert split.unallocated_idle_mj == 750_000


def test_a_gap_is_cut_where_a_run_ended():
    """10 s with job 1, 30 s without: it has all its active energy in its own span."""
    first, second = split_host(
        4_000_000, 40_000, 8, [HostSpan(10_000, (0,)), HostSpan(30_000, ())],
        [HostUse(1, 0, 4, 60)], 20,
    )  # fmt: skip
    # Idle 1,600 J by time 400 : 1,200; active 2,400 J as 60 : 20, the system's by time.
    assert owned(first) == {1: (200_000, 1_800_000)}
    assert (first.unallocated_idle_mj, first.system_mj) == (200_000, 150_000)
    assert (second.unallocated_idle_mj, second.system_mj) == (1_200_000, 450_000)
    assert first.measured_mj + second.measured_mj == 4_000_000


def test_a_job_on_three_shared_nodes_is_the_sum_of_its_parts():
    """E25: 24 cores as 12 + 8 + 4 of 16; each node uses 600 J at 30 W idle in 10 s.

    Idle 300 J: 225, 150, 75 J. Active 300 J by CPU time: alone on the first node, half of the
    second's, a quarter of the third's: 300, 150, 75 J. Not three whole nodes (1,800 J).
    """
    nodes = [
        (12, 120, HostUse(9, 0, 4, 0)),
        (8, 80, HostUse(9, 0, 8, 80)),
        (4, 40, HostUse(9, 0, 12, 120)),
    ]
    splits = [
        whole_window(600_000, 30_000, 16, [HostUse(7, 0, cores, used), other])
        for cores, used, other in nodes
    ]
    mine = [owned(split)[7] for split in splits]
    assert mine == [(225_000, 300_000), (150_000, 150_000), (75_000, 75_000)]
    assert sum(map(sum, mine)) == 975_000


def test_one_gpu_of_eight_and_four_ranks_are_one_gpus_energy_once():
    """E24: the other seven boards are not the job's, and ranks of a job are no owners."""
    job = Hold(job_id=7, run_start_ms=0, instance="", numerator=1, denominator=1)
    boards = [split_window(3_000_000, 10_000, 60_000, [job], [1_000])]
    boards += [split_window(600_000, 10_000, 60_000, [], []) for _ in range(7)]
    mine = sum(s.idle_mj + s.active_mj for board in boards for s in board.shares)
    assert mine == 3_000_000
    assert sum(b.unallocated_idle_mj for b in boards) == 7 * 600_000


runs = st.lists(
    st.tuples(st.integers(0, 200), st.none() | st.integers(0, 10**12), st.integers(0, 15)),
    max_size=6,
)


@given(
    st.integers(0, 10**13),
    st.none() | st.integers(0, 10**6),
    st.integers(0, 256),
    st.lists(st.integers(0, 10**8), min_size=1, max_size=4),
    runs,
    st.integers(0, 10**12),
)
def test_every_millijoule_has_one_owner(delta_mj, idle_mw, whole, times, told, system):
    """The bits of a run's last number say in which spans it was there."""
    uses = [HostUse(n, 0, held, used) for n, (held, used, _) in enumerate(told)]
    spans = [
        HostSpan(ms, tuple(n for n, one in enumerate(told) if one[2] >> place & 1))
        for place, ms in enumerate(times)
    ]
    splits = split_host(delta_mj, idle_mw, whole, spans, uses, system)
    assert sum(split.measured_mj for split in splits) == delta_mj
    for span, split in zip(spans, splits, strict=True):
        assert [share.job_id for share in split.shares] == list(span.runs)
        parts = [part for s in split.shares for part in (s.idle_mj, s.active_mj)]
        parts += [split.unallocated_idle_mj, split.unallocated_active_mj, split.system_mj]
        assert min(parts) >= 0


@given(
    st.integers(0, 10**13),
    st.none() | st.integers(0, 10**6),
    st.lists(st.integers(1, 10**6), min_size=1, max_size=3),
    runs,
    st.integers(0, 10**12),
    st.randoms(use_true_random=False),
)
def test_the_order_of_runs_plays_no_part(delta_mj, idle_mw, times, told, system, rng):
    """Down to the millijoule left over."""

    def split(order):
        uses = [HostUse(n, 0, told[n][0], told[n][1]) for n in order]
        spans = [
            HostSpan(ms, tuple(at for at, n in enumerate(order) if told[n][2] >> place & 1))
            for place, ms in enumerate(times)
        ]
        return split_host(delta_mj, idle_mw, 64, spans, uses, system)

    order = list(range(len(told)))
    first = split(order)
    rng.shuffle(order)
    assert split(order) == first


@given(
    st.integers(0, 2**60), st.integers(0, 2**60), st.integers(-(10**6), 10**12),
    st.none() | st.integers(1, 2**60), st.none() | st.integers(0, 10**7),
)  # fmt: skip
def test_no_counter_gives_a_negative_amount(before, after, dt_ms, wrap, max_mw):
    delta = host_delta(before, after, dt_ms, wrap, max_mw)
    assert delta.energy_uj is None or delta.energy_uj >= 0
    if delta.energy_uj is None:
        assert delta.flags
