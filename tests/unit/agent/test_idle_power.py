# SPDX-License-Identifier: Apache-2.0
"""A board's idle power is learnt from windows nobody held. An A100's is 50 W in the catalogue."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairwatt.accounting.agent.idle_looks import MOST_LOOKS, added, low_mw
from fairwatt.accounting.ledger import Hold, split_window
from fairwatt.core.events import Flag
from tests.unit.agent.keeper_bench import IDLE_MW, Bench, board

WINDOW_MS = 300_000


@pytest.fixture
def bench(tmp_path):
    bench = Bench(tmp_path, board("GPU-1"))
    bench.start()
    yield bench
    bench.crash()


def window(bench, power_mw, ms=WINDOW_MS, **look):
    """Let a window pass, and end it."""
    bench.pass_time(ms - 1, power_mw)
    bench.keeper.sample(bench.look(**look))
    bench.pass_time(1, power_mw)
    bench.keeper.border(bench.look(**look), bench.now_ms)


def idle(bench):
    told = bench.keeper.status()["idle_power"]["GPU-1"]
    return told["mw"], told["by"], told["looks"]


def job_window(bench, job_id, power_mw):
    """Return the window of a job of 300 s on the whole board."""
    bench.hook("prolog", job_id)
    bench.pass_time(WINDOW_MS, power_mw)
    bench.hook("epilog", job_id)
    return bench.windows()[-1]


def test_low_is_the_5th_percentile_and_the_least_of_few():
    """Of 20 looks one is below it, of 40 two; the 97th drives out the first."""
    assert low_mw([]) is None
    assert low_mw([52, 50, 51]) == 50
    assert low_mw([*range(60, 40, -1)]) == 42
    assert low_mw([*range(40)]) == 2
    looks = []
    for mean_mw in range(MOST_LOOKS + 1):
        looks = added(looks, mean_mw)
    assert (len(looks), looks[0]) == (96, 1)


def test_twenty_windows_nobody_held_replace_the_catalogues(bench):
    """19 windows of 41 to 59 W change nothing; with a 20th of 60 W it is the second least."""
    for watts in range(41, 60):
        window(bench, 1000 * watts)
    assert idle(bench) == (IDLE_MW, "catalogue", 19)
    before = job_window(bench, 1, 200_000)
    window(bench, 60_000)
    assert idle(bench) == (42_000, "learnt", 20)
    after = job_window(bench, 2, 200_000)
    # 200 W × 300 s are 60 kJ: 50 W × 300 s of them are idle at first, then 42 W × 300 s.
    assert (before.shares[0].idle_mj, before.shares[0].active_mj) == (15_000_000, 45_000_000)
    assert (after.shares[0].idle_mj, after.shares[0].active_mj) == (12_600_000, 47_400_000)


def test_which_idle_power_split_a_window_can_be_told_from_it(bench):
    """The idle parts over the length, rounded up, are the mW; with them the split is the same."""
    for _ in range(20):
        window(bench, 43_217)
    found = job_window(bench, 1, 211_003)
    dt_ms = found.t1_ms - found.t0_ms
    idle_mj = found.unallocated_idle_mj + sum(share.idle_mj for share in found.shares)
    idle_mw = math.ceil(1000 * idle_mj / dt_ms)
    assert idle_mw == idle(bench)[0] == 43_216  # the means are rounded down
    hold = Hold(1, found.shares[0].run_start_ms, "", 1, 1)
    again = split_window(
        found.measured_mj, dt_ms, idle_mw, [hold], [found.shares[0].util_permille]
    )
    assert again.shares == found.shares


def test_what_was_learnt_outlives_the_agent(bench):
    for _ in range(20):
        window(bench, 60_000)
    bench.crash()
    bench.start()
    assert idle(bench) == (60_000, "learnt", 20)


def test_another_driver_is_another_power(bench):
    for _ in range(20):
        window(bench, 60_000)
    bench.driver = "580.65"
    window(bench, 60_000)  # began under the old one: it teaches nothing
    assert idle(bench) == (IDLE_MW, "catalogue", 0)
    window(bench, 60_000)
    assert idle(bench) == (IDLE_MW, "catalogue", 1)
    bench.driver = "550.54"  # the old looks are gone
    window(bench, 60_000)
    assert idle(bench) == (IDLE_MW, "catalogue", 0)


def test_another_mig_mode_is_another_power(bench):
    for _ in range(20):
        window(bench, 60_000)
    bench.device = board("GPU-1", 3, 4)
    window(bench, 60_000)
    assert idle(bench)[1:] == ("catalogue", 0)


def test_a_board_whose_driver_is_not_told_learns_nothing(bench):
    bench.crash()
    bench.driver = ""
    bench.start()
    for _ in range(20):
        window(bench, 60_000)
    assert idle(bench) == (IDLE_MW, "catalogue", 0)


@pytest.mark.parametrize(
    ("power_mw", "ms", "look"),
    [
        (0, WINDOW_MS, {}),  # the counter stands still
        (24_000, WINDOW_MS, {}),  # it stood still for a while: less than half of the catalogue's
        (101_000, WINDOW_MS, {}),  # somebody works: more than twice of it
        (60_000, 29_000, {}),  # too short
        (60_000, WINDOW_MS, {"utils": {"": 500}}),
        (60_000, WINDOW_MS, {"used_mib": {"": 400}}),  # a process that waits
    ],
)
def test_what_teaches_nothing(bench, power_mw, ms, look):
    for _ in range(30):
        window(bench, power_mw, ms, **look)
    assert idle(bench) == (IDLE_MW, "catalogue", 0)


def test_quiet_services_of_the_driver_do_not_keep_from_learning(bench):
    for _ in range(20):
        window(bench, 60_000, utils={"": 0}, used_mib={"": 12})
    assert idle(bench) == (60_000, "learnt", 20)


def test_a_clock_that_leapt_teaches_nothing(bench):
    """A leap of 100 s makes 60 W × 200 s look like 40 W × 300 s, which could be."""
    bench.steady_ms = 0
    for _ in range(30):
        bench.steady_ms += 200_000
        bench.now_ms += 100_000
        window(bench, 60_000, 200_000)
    assert bench.windows()[-1].measured_mj == 12_000_000
    assert idle(bench) == (IDLE_MW, "catalogue", 0)


def test_a_held_board_teaches_nothing_even_without_work(bench):
    bench.hook("prolog", 1)
    for _ in range(30):
        window(bench, 60_000, utils={"": 0})
    assert idle(bench) == (IDLE_MW, "catalogue", 0)


def test_a_job_whose_devices_are_unknown_may_be_on_any_board(bench):
    bench.hook("prolog", 1, "GPU-of-elsewhere")
    assert bench.journal.state.runs[0].mapped_by == "unmapped"
    for _ in range(30):
        window(bench, 60_000)
    assert idle(bench) == (IDLE_MW, "catalogue", 0)


def test_a_reset_inside_the_window_teaches_nothing(bench):
    """20 s, the counter begins again, 40 s, 20 s: only the 40 s are long enough, and flagged."""
    for _ in range(30):
        bench.pass_time(20_000, 200_000)
        bench.keeper.sample(bench.look())
        bench.energy_mj = 0
        bench.pass_time(40_000, 60_000)
        bench.keeper.sample(bench.look())
        window(bench, 60_000, 20_000)
    flagged = [one for one in bench.windows() if one.flags & Flag.RESET]
    assert [one.t1_ms - one.t0_ms for one in flagged] == 30 * [40_000]
    assert idle(bench) == (IDLE_MW, "catalogue", 0)


def test_one_rogue_look_of_twenty_moves_nothing(bench):
    """A counter that stood still for half of a window: 30 W of 60 W, which could be."""
    window(bench, 30_000)
    for _ in range(19):
        window(bench, 60_000)
    assert idle(bench) == (60_000, "learnt", 20)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("idle"), st.integers(0, 150_000), st.integers(1_000, 900_000)),
        st.tuples(st.just("job"), st.integers(30_000, 400_000), st.integers(1_000, 900_000)),
        st.tuples(st.sampled_from(["crash", "reset", "leap", "quiet"]), st.just(0), st.just(0)),
    ),
    min_size=5,
    max_size=40,
)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps)
def test_whatever_happens_the_power_is_plausible_and_energy_conserved(tmp_path_factory, history):
    bench = Bench(tmp_path_factory.mktemp("bench"), board("GPU-1"))
    bench.start()
    bench.steady_ms = 0
    learnt = set()
    try:
        for number, (what, power_mw, ms) in enumerate(history):
            _live(bench, number, what, power_mw, ms)
            learnt.add(idle(bench)[0])
        windows = bench.windows()
    finally:
        bench.crash()
    assert all(IDLE_MW // 2 <= mw <= 2 * IDLE_MW for mw in learnt)
    for one in windows:
        parts = [share.idle_mj + share.active_mj for share in one.shares]
        parts += [one.unallocated_idle_mj, one.unallocated_active_mj]
        assert sum(parts) == one.measured_mj


def _live(bench, number, what, power_mw, ms):
    if what == "crash":
        bench.crash()
        bench.start()
    elif what == "reset":
        bench.energy_mj = 0
    elif what == "leap":
        bench.now_ms += 3_000_000
    elif what == "quiet":
        for _ in range(10):
            _pass(bench, 60_000, WINDOW_MS)
    else:
        if what == "job":
            bench.hook("prolog", number + 1)
        _pass(bench, power_mw, ms)
        if what == "job":
            bench.pass_time(1, 0)
            bench.hook("epilog", number + 1)


def _pass(bench, power_mw, ms):
    bench.steady_ms += ms
    window(bench, power_mw, ms)
