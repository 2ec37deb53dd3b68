# SPDX-License-Identifier: Apache-2.0
"""One slow rank is found, load that moves all ranks is not: series whose truth is known."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairwatt.accounting.failslow import CLOCK, STEP_TIMES, Limits, Pace, median, skew, spread

TRACES = Path(__file__).parents[4] / "shared" / "traces" / "alibaba_gpu2020_minibatch"
NAMES = [f"r{n}" for n in range(64)]


def named(rows):
    return dict(zip(NAMES, rows, strict=False))


def clocks(rows, limits=CLOCK):
    return skew(named(rows), limits, slower="lower")


def times(rows, limits=STEP_TIMES):
    return skew(named(rows), limits, slower="higher")


class TestByHand:
    def test_a_clock_a_quarter_below_in_five_of_eight_windows(self):
        """Peers at 1,400 MHz; rank 2 at 1,050 in windows 2…6: lag 1 − 1050/1400 = 0.25."""
        slow = [1400, 1400, 1050, 1050, 1050, 1050, 1050, 1400]
        found = clocks([[1400] * 8, [1400] * 8, slow, [1400] * 8])
        assert (found.state, found.ranks, found.steps) == (Pace.STRAGGLER, 4, 8)
        (one,) = found.slow
        assert (one.rank, one.lag, one.steps, one.first, one.last) == ("r2", 0.25, 5, 2, 6)

    def test_two_windows_are_not_persistent(self):
        slow = [1400, 1400, 700, 700, 1400, 700, 700, 1400]
        assert clocks([[1400] * 8, [1400] * 8, slow]).state is Pace.HEALTHY

    def test_a_window_without_a_value_ends_no_stretch(self):
        slow = [1400, 700, 700, None, 700, 1400, 1400, 1400]
        found = clocks([[1400] * 8, [1400] * 8, slow])
        assert (found.slow[0].steps, found.slow[0].last) == (3, 4)

    def test_faster_is_not_slower(self):
        assert clocks([[1400] * 8, [1400] * 8, [1900] * 8]).state is Pace.HEALTHY

    def test_all_at_once_is_the_load(self):
        """Down to 60 % and up to 140 % on every rank: the median spreads by 0.4 · 1.4826."""
        wave = [600, 1400, 600, 1400, 1000, 600, 1400, 1000]
        found = clocks([wave] * 4)
        assert (found.state, found.slow) == (Pace.VARYING, ())
        assert found.swing == pytest.approx(0.4 * 1.4826)

    def test_a_straggler_in_varying_load_is_still_one(self):
        wave = [600, 1400, 600, 1400, 1000, 600, 1400, 1000]
        found = clocks([wave, wave, [0.7 * value for value in wave]])
        assert found.state is Pace.STRAGGLER
        assert found.slow[0].lag == pytest.approx(0.3)

    def test_where_half_are_slow_it_is_not_a_few(self):
        """Ranks that take turns: each is slow for three windows of twelve."""
        rows = [[700 if 3 * n <= step < 3 * n + 3 else 1400 for step in range(12)]
                for n in range(4)]  # fmt: skip
        found = clocks(rows)
        assert len(found.slow) == 4
        assert found.state is Pace.VARYING

    def test_ranks_that_differ_need_more_to_stand_out(self):
        """Lags 0, 0.05, 0.1 below the fastest and a fourth at 0.2: their spread hides it."""
        found = clocks([[1000] * 5, [950] * 5, [900] * 5, [820] * 5])
        assert found.state is Pace.HEALTHY  # spread 1.4826·0.081 = 0.12; three times that: 0.36

    @pytest.mark.parametrize(
        "rows",
        [
            [],
            [[1400] * 9],
            [[1400] * 9, [700] * 9],
            [[1400] * 2] * 4,
            [[0] * 9] * 4,
            [[None] * 9] * 4,
        ],
    )
    def test_too_little_is_unknown(self, rows):
        assert clocks(rows).state is Pace.UNKNOWN

    def test_what_ranks_wait_at_barriers(self):
        """Steps of 1, 1 and 1.3 s: the mean is 1.1, so 0.2/1.1 of it is waited."""
        assert times([[1.0] * 10, [1.0] * 10, [1.3] * 10]).lost == pytest.approx(0.2 / 1.1)

    def test_the_exponential_mean_delays_by_four_steps(self):
        """Lag 0.3 from step 20 on: 0.3·(1 − (9/11)^n) passes 0.15 at n = 4 (0.166)."""
        late = [1.0] * 20 + [1.3] * 20
        (one,) = times([[1.0] * 40, [1.0] * 40, late]).slow
        assert (one.first, one.last, one.steps) == (23, 39, 17)

    def test_medians(self):
        assert (median([3, 1, 2]), median([4, 1, 2, 3])) == (2, 2.5)
        assert spread([1, 1, 2, 2, 4, 6, 9]) == pytest.approx(1.4826)


ROWS = st.integers(3, 9).flatmap(
    lambda ranks: st.integers(1, 20).flatmap(
        lambda steps: st.lists(
            st.lists(
                st.one_of(st.none(), st.integers(1, 4000)), min_size=steps, max_size=steps
            ),
            min_size=ranks, max_size=ranks,
        )
    )
)  # fmt: skip
LIMITS = st.sampled_from([CLOCK, STEP_TIMES, Limits(lag=0.2, span=2, persist=2)])


class TestProperties:
    @given(ROWS, LIMITS, st.integers(-8, 8))
    def test_a_common_factor_changes_nothing(self, rows, limits, power):
        scaled = [[None if v is None else v * 2.0**power for v in row] for row in rows]
        for judge in (clocks, times):
            assert judge(scaled, limits) == judge(rows, limits)

    @given(ROWS, LIMITS, st.data())
    def test_a_factor_of_each_step_makes_and_hides_no_straggler(self, rows, limits, data):
        factors = [2.0 ** data.draw(st.integers(-3, 3)) for _ in rows[0]]
        scaled = [
            [None if v is None else v * f for v, f in zip(row, factors, strict=True)]
            for row in rows
        ]
        assert clocks(scaled, limits).slow == clocks(rows, limits).slow

    @given(ROWS, LIMITS, st.randoms())
    def test_the_order_of_the_ranks_does_not_matter(self, rows, limits, rng):
        order = list(named(rows).items())
        rng.shuffle(order)
        for slower in ("higher", "lower"):
            assert skew(dict(order), limits, slower=slower) == skew(
                named(rows), limits, slower=slower
            )

    @settings(max_examples=200)
    @given(
        st.integers(3, 32), st.integers(3, 40), st.floats(0.12, 0.9), st.data(),
        st.integers(0, 2**32),
    )  # fmt: skip
    def test_a_slowdown_beyond_the_limit_is_found_and_nobody_else(
        self, ranks, steps, part, data, seed
    ):
        """Documented: from 12 % on for three windows, with clocks that differ by 1 % at most."""
        rng = random.Random(seed)
        rows = [[1400 * rng.uniform(0.99, 1.01) for _ in range(steps)] for _ in range(ranks)]
        victim = data.draw(st.integers(0, ranks - 1))
        begin = data.draw(st.integers(0, steps - 3))
        length = data.draw(st.integers(3, steps - begin))
        for step in range(begin, begin + length):
            rows[victim][step] *= 1 - part
        found = clocks(rows)
        assert found.state is Pace.STRAGGLER
        assert [one.rank for one in found.slow] == [f"r{victim}"]
        assert (found.slow[0].first, found.slow[0].steps) == (begin, length)
        assert found.slow[0].lag == pytest.approx(part, abs=0.02)


def test_a_thousand_healthy_jobs_raise_no_alarm():
    """Ranks that differ by 3 %, noise of 5 % a step, and load of ± 40 % on all of them at once."""
    rng = random.Random(7)
    for _ in range(1000):
        ranks, steps = rng.randint(3, 16), rng.randint(10, 80)
        own = [rng.uniform(0.97, 1.03) for _ in range(ranks)]
        load = [rng.uniform(0.6, 1.4) if rng.random() < 0.5 else 1.0 for _ in range(steps)]
        noisy = [[o * x * max(0.5, rng.gauss(1, 0.05)) for x in load] for o in own]
        calm = [[o * x * rng.gauss(1, 0.01) for x in load] for o in own]
        assert not times(noisy).slow
        assert not clocks(calm).slow


def minibatch_times(job):
    path = TRACES / f"job_{job}_norm.csv"
    if not path.exists():
        pytest.skip("public traces are not beside the checkout")
    by_worker: dict[str, dict[float, float]] = {}
    for row in csv.DictReader(path.read_text().splitlines()):
        by_worker.setdefault(row["worker"], {})[float(row["time"])] = float(row["batch_time_norm"])
    moments = sorted({moment for line in by_worker.values() for moment in line})
    return {w: [line.get(moment) for moment in moments] for w, line in by_worker.items()}


class TestPublicJobs:
    """The data set's own description: in job 1 worker 6 becomes a straggler; job 2 is stable."""

    def test_job_1_has_a_straggler_in_the_middle(self):
        found = skew(minibatch_times(1), STEP_TIMES, slower="higher")
        assert found.state is Pace.STRAGGLER
        assert [one.rank for one in found.slow] == ["6"]
        assert 100 < found.slow[0].first < found.slow[0].last < 200
        assert found.lost == pytest.approx(0.11, abs=0.005)

    def test_job_2_is_healthy_though_its_workers_differ(self):
        found = skew(minibatch_times(2), STEP_TIMES, slower="higher")
        assert (found.state, found.slow) == (Pace.HEALTHY, ())
        assert found.lost == pytest.approx(0.12, abs=0.005)

    @pytest.mark.parametrize("job", [1, 2])
    def test_load_on_all_workers_at_once_changes_nobody_s_judgement(self, job):
        series = minibatch_times(job)
        rng = random.Random(job)
        load = [rng.uniform(0.6, 1.4) for _ in series["0"]]
        moved = {
            worker: [None if v is None else v * x for v, x in zip(line, load, strict=True)]
            for worker, line in series.items()
        }
        slow = [one.rank for one in skew(moved, STEP_TIMES, slower="higher").slow]
        assert slow == (["6"] if job == 1 else [])
