# SPDX-License-Identifier: Apache-2.0
"""What one run adds to a day."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairwatt.accounting.quality import RunFlag
from fairwatt.accounting.runs import GpuPart
from fairwatt.accounting.usage import FAILED_STATES, HourEnergy, RolledRun, Usage, day_usage

DAY = 86_400
RUN = RolledRun(
    state="COMPLETED", flags=0, eligible_ts=900, start_ts=1000, end_ts=8200, suspended_s=0,
    ncpus=16, parts=[GpuPart("a100", 2, 2000)], hours=[], util_permille=None, evidence_ts=None,
)  # fmt: skip


def day(run, a=0, b=DAY, now=10**6):
    return day_usage(run, a, b, now)


def test_suspension_takes_cpu_time_but_no_gpu_time():
    """E12: 2 h wall, 30 min suspended, 16 CPUs, 2 GPUs: 24 CPU-h, 4 GPU-h."""
    usage = day(replace(RUN, suspended_s=1800))["a100"]
    assert usage.cpu_s == 24 * 3600
    assert usage.device_s == 4 * 3600
    assert usage.gpu_milli_s == 4 * 3600 * 1000


def test_counts_and_waiting():
    usage = day(RUN)["a100"]
    assert (usage.runs_ended, usage.runs_failed, usage.runs_cancelled) == (1, 0, 0)
    assert (usage.wait_s, usage.waited_runs) == (100, 1)


def test_cancelled_while_pending_waits_and_uses_nothing():
    """E18: the wait ends at the cancel."""
    run = replace(RUN, state="CANCELLED", start_ts=None, end_ts=1900, parts=[])
    assert day(run) == {"": Usage(runs_ended=1, runs_cancelled=1, wait_s=1000, waited_runs=1)}


@pytest.mark.parametrize("state", sorted(FAILED_STATES))
def test_lost_gpu_time(state):
    """E19"""
    usage = day(replace(RUN, state=state))["a100"]
    assert (usage.runs_failed, usage.failed_milli_s) == (1, usage.gpu_milli_s)


def test_a_requeued_try_is_not_lost():
    usage = day(replace(RUN, state="REQUEUED"))["a100"]
    assert (usage.runs_ended, usage.runs_failed, usage.failed_milli_s) == (1, 0, 0)


def test_a_running_run_counts_until_now():
    run = replace(RUN, state="RUNNING", end_ts=None)
    assert day(run, now=1600)["a100"].device_s == 2 * 600
    assert day(run, now=1600)["a100"].runs_ended == 0


def test_a_runaway_counts_until_the_last_evidence():
    """E32: 90 days without an end, a node measured it for 10 minutes."""
    run = replace(RUN, state="RUNNING", end_ts=None, flags=RunFlag.RUNAWAY, evidence_ts=1600)
    assert day(run, now=90 * DAY)["a100"].device_s == 2 * 600
    assert day(replace(run, evidence_ts=None), now=90 * DAY)["a100"].device_s == 0


def test_a_run_over_midnight_ends_on_the_second_day():
    run = replace(RUN, start_ts=DAY - 600, end_ts=DAY + 1200, eligible_ts=DAY - 700)
    first, second = day(run)["a100"], day(run, DAY, 2 * DAY)["a100"]
    assert (first.device_s, second.device_s) == (1200, 2400)
    assert (first.runs_ended, second.runs_ended) == (0, 1)
    assert (first.waited_runs, second.waited_runs) == (1, 0)


def measured(ms, util_ms=0, busy_ms=0):
    return [HourEnergy(0, 10, 20, ms, util_ms, busy_ms)]


def test_measured_and_busy_parts():
    """2 GPUs × 7200 s; half of it measured, a quarter with utilisation, of that half busy."""
    holds = 2 * 7_200_000
    run = replace(RUN, hours=measured(holds // 2, holds // 4, holds // 8))
    usage = day(run)["a100"]
    assert usage.unmeasured_milli_s == usage.gpu_milli_s // 2
    assert usage.util_known_milli_s == usage.gpu_milli_s // 4
    assert usage.used_milli_s == usage.gpu_milli_s // 8


def test_whole_seconds_of_slurm_are_no_hole():
    assert day(replace(RUN, hours=measured(2 * 7_199_000)))["a100"].unmeasured_milli_s == 0
    assert day(replace(RUN, hours=measured(2 * 7_197_900)))["a100"].unmeasured_milli_s > 0


def test_nothing_measured_is_all_unmeasured_however_short():
    run = replace(RUN, end_ts=1001)
    assert day(run)["a100"].unmeasured_milli_s == day(run)["a100"].gpu_milli_s == 2000


def test_hours_that_know_energy_alone_take_the_runs_utilisation():
    run = replace(RUN, hours=[HourEnergy(0, 1, 2, None, None, None)], util_permille=250)
    usage = day(run)["a100"]
    assert usage.unmeasured_milli_s == 0
    assert usage.used_milli_s * 4 == usage.util_known_milli_s == usage.gpu_milli_s


def test_mixed_types_share_the_energy_by_their_part_of_boards():
    run = replace(
        RUN,
        parts=[GpuPart("a100", 1, 1000), GpuPart("a100_1g.5gb", 1, 143)],
        hours=[HourEnergy(0, 1143, 0, 0, 0, 0)],
    )
    usage = day(run)
    assert (usage["a100"].idle_mj, usage["a100_1g.5gb"].idle_mj) == (1000, 143)
    assert (usage["a100"].runs_ended, usage["a100_1g.5gb"].runs_ended) == (1, 0)
    assert usage["a100"].cpu_s + usage["a100_1g.5gb"].cpu_s == 16 * 7200


def test_unknown_part_of_a_board_counts_devices_alone():
    usage = day(replace(RUN, parts=[GpuPart("zx81", 1, None)]))["zx81"]
    assert (usage.device_s, usage.gpu_milli_s) == (7200, 0)


@given(
    start=st.integers(0, 3 * DAY),
    length=st.integers(0, 3 * DAY),
    suspended=st.integers(0, DAY),
    borders=st.lists(st.integers(1, 6 * DAY), min_size=1, max_size=5, unique=True),
)
def test_days_add_up_to_the_run(start, length, suspended, borders):
    """However the time is cut, the pieces sum to the run, in whole seconds and mJ."""
    end = start + length
    hours = [
        HourEnergy(hour * 3600, 7 * hour, 3, None, None, None)
        for hour in range(start // 3600, end // 3600 + 1)
    ]
    run = replace(RUN, start_ts=start, end_ts=end, eligible_ts=start, suspended_s=suspended,
                  hours=hours)  # fmt: skip
    total = Usage()
    for a, b in itertools.pairwise([0, *sorted(borders), 7 * DAY]):
        total.add(day(run, a, b)["a100"])
    assert total.device_s == 2 * length
    assert total.gpu_milli_s == 2000 * length
    assert total.cpu_s == 16 * max(0, length - suspended)
    assert (total.runs_ended, total.waited_runs) == (1, 1)
    assert total.idle_mj + total.active_mj == sum(h.idle_mj + h.active_mj for h in hours)
