# SPDX-License-Identifier: Apache-2.0
"""The keeper across gaps: a dead agent, a reboot, a wrong clock, a reset counter."""

from __future__ import annotations

from fairwatt.core.events import Flag, RunEnded
from tests.unit.agent.keeper_bench import HOUR_MS, IDLE_MW, NOON_MS


def test_e29_a_dead_agent_leaves_no_hole(bench) -> None:
    """10 minutes away inside a job of 30: the counter's delta covers them."""
    bench.hook("prolog", 1)
    bench.pass_time(600_000, 200_000)
    bench.crash()
    bench.pass_time(600_000, 300_000)
    bench.start()
    bench.pass_time(600_000, 100_000)
    bench.hook("epilog", 1)
    assert bench.job_mj(1) == 600 * (200 + 300 + 100) * 1000
    assert [bool(w.flags & Flag.GAP) for w in bench.windows()] == [True, False]


def test_a_gap_is_cut_at_hours_and_where_holders_changed(bench) -> None:
    """Half an hour busy at 100 W above idle, then idle until 20 minutes into the next hour."""
    bench.hook("prolog", 1)
    bench.crash()
    bench.pass_time(1_800_000, IDLE_MW + 100_000)
    bench.mail("epilog", 1)
    bench.pass_time(3_000_000, IDLE_MW)
    bench.start()
    windows = bench.windows()
    assert [(w.t0_ms - NOON_MS, w.t1_ms - NOON_MS) for w in windows] == [
        (0, 1_800_000),
        (1_800_000, HOUR_MS),
        (HOUR_MS, 4_800_000),
    ]
    assert bench.job_mj(1) == 1_800 * (IDLE_MW + 100_000)
    assert sum(w.measured_mj for w in windows) == bench.energy_mj - 1_000_000


def test_e16_a_reboot_ends_runs_and_counts_only_what_is_known(bench) -> None:
    bench.hook("prolog", 1)
    bench.pass_time(10_000, 100_000)
    bench.crash()
    bench.boot_id, bench.boot_ms = "boot2", bench.now_ms + 20_000
    bench.now_ms += 60_000
    bench.energy_mj = 2_000
    bench.start()
    assert bench.ends() == {1: ("reboot", bench.boot_ms)}
    before, after = bench.windows()
    assert (before.t1_ms, before.measured_mj, before.shares) == (bench.boot_ms, None, ())
    assert before.flags == Flag.RESET | Flag.GAP
    assert (after.measured_mj, after.shares) == (2_000, ())
    assert after.flags & Flag.GAP
    assert after.boot_id == "boot2"


def test_a_clock_set_back_waits_instead_of_going_wrong(bench) -> None:
    bench.hook("prolog", 1)
    bench.now_ms -= 5_000
    bench.energy_mj += 7_000
    bench.keeper.border(bench.look(), bench.now_ms)
    assert bench.windows() == []
    bench.now_ms += 6_000
    bench.hook("epilog", 1)
    assert bench.job_mj(1) == 7_000


def test_what_was_used_while_the_clock_was_set_back_is_flagged(bench) -> None:
    """Five seconds happen twice; the run that holds the board then may not be who used them."""
    bench.hook("prolog", 1)
    bench.pass_time(60_000, 100_000)
    bench.hook("epilog", 1)
    bench.now_ms -= 5_000
    bench.pass_time(1_000, 100_000)
    bench.hook("prolog", 2)
    bench.pass_time(6_000, 100_000)
    bench.hook("epilog", 2)
    bench.pass_time(1_000, 100_000)
    bench.cut_now()
    flags = [(w.flags & Flag.GAP, w.measured_mj) for w in bench.windows()]
    assert flags == [(0, 6_000_000), (Flag.GAP, 700_000), (0, 100_000)]


def test_mail_before_a_border_counts_before_it(bench) -> None:
    """The next job's Prolog came by the inbox: what it used is not its predecessor's."""
    bench.hook("prolog", 1)
    bench.pass_time(10_000, 100_000)
    bench.mail("epilog", 1)
    bench.mail("prolog", 2)
    bench.pass_time(10_000, 100_000)
    bench.keeper.border(bench.look(), bench.now_ms)
    assert (bench.job_mj(1), bench.job_mj(2)) == (1_000_000, 1_000_000)


def test_a_clock_set_back_leaves_no_run_open(bench) -> None:
    """The epilog's time is before the prolog's; the run must not go on for ever."""
    bench.hook("prolog", 1)
    bench.now_ms -= 5_000
    bench.energy_mj += 7_000
    bench.hook("epilog", 1)
    assert [end.job_id for end in bench.events(RunEnded)] == [1]
    assert bench.keeper.status()["jobs"] == []
    bench.pass_time(10_000, 0)
    bench.cut_now()
    assert sum(window.measured_mj for window in bench.windows()) == 7_000


def test_a_clock_that_was_decades_off_makes_no_million_windows(bench) -> None:
    """A node without a battery boots in 1970; the time daemon then sets the clock."""
    bench.hook("prolog", 1)
    bench.now_ms += 50 * 365 * 24 * HOUR_MS
    bench.energy_mj += 744_000
    bench.hook("epilog", 1)
    windows = bench.windows()
    assert len(windows) <= 745
    assert sum(window.measured_mj for window in windows) == bench.job_mj(1) == 744_000
    assert windows[-1].t1_ms == bench.now_ms


def test_an_impossible_jump_is_unknown_and_the_next_window_is_sound(bench) -> None:
    bench.hook("prolog", 1)
    bench.pass_time(1_000, 9_000_000)
    bench.keeper.border(bench.look(), bench.now_ms)
    bench.pass_time(1_000, 100_000)
    bench.hook("epilog", 1)
    first, second = bench.windows()
    assert (first.measured_mj, first.flags) == (None, Flag.IMPLAUSIBLE)
    assert second.measured_mj == 100_000


def test_a_reset_costs_only_the_time_between_two_samples(bench) -> None:
    """300 J before the last sample, 50 J after the reset; then the counter overtakes its value."""
    bench.energy_mj = 0
    bench.crash()
    bench.folder = bench.folder / "fresh"
    bench.folder.mkdir()
    bench.start()
    bench.hook("prolog", 1)
    bench.pass_time(3_000, 100_000)
    bench.keeper.sample(bench.look())
    bench.energy_mj = 0
    bench.pass_time(500, 100_000)
    bench.keeper.sample(bench.look())
    bench.pass_time(10_000, 100_000)
    bench.hook("epilog", 1)
    assert [(w.measured_mj, w.flags & Flag.RESET) for w in bench.windows()] == [
        (300_000, 0),
        (50_000, Flag.RESET),
        (1_000_000, 0),
    ]
