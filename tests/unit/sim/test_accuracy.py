# SPDX-License-Identifier: Apache-2.0
"""The simulator itself, and half an hour of the accuracy benchmark on every run of the tests."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from tests.sim.errors import errors_of
from tests.sim.gpus import mig_cluster, whole_cluster
from tests.sim.host import WRAP_UJ, host_with_jobs
from tests.sim.load import Job, busy_steps, jobs_on
from tests.sim.rivals import polled_mj, tdp_mj
from tests.sim.trace import Trace, summed
from tests.sim.trials import Trial, gpu_trial, host_trial


def test_a_trace_knows_its_integral_at_every_moment():
    """100 mW for 10 ms, then 300 mW: 1,000 + 1,500 µJ until 15 ms."""
    trace = Trace([(10, 100), (20, 300)])
    assert [trace.at(t_ms) for t_ms in (9, 10, 19, 20, 99)] == [0, 100, 100, 300, 300]
    assert [trace.area(t_ms) for t_ms in (5, 10, 20, 25)] == [0, 0, 1_000, 2_500]
    assert trace.between(15, 25) == 5 * 100 + 5 * 300
    assert trace.mean(15, 25) == 200


def test_the_sum_of_traces_is_a_trace():
    both = summed([Trace([(0, 5), (10, 0)]), Trace([(5, 7)])])
    assert [both.at(t_ms) for t_ms in (0, 5, 10)] == [5, 12, 7]


def test_errors_by_hand():
    """10 too much of 100 and 10 too little of 300: 20 of 400 are wrong, the sum is right."""
    errors = errors_of([(110.0, 100.0), (290.0, 300.0)])
    assert (errors.runs, errors.total, errors.bias) == (2, 0.05, 0.0)
    assert errors.worst == pytest.approx(0.1)


def test_other_ways_of_counting_by_hand():
    """A job from 5 to 70 s at 200 W: two scrapes, at 30 and 60 s; TDP 400 W on half a board."""
    job = Job(1, "x", 5_000, 5_000, 70_000, 70_000, "steady", 1000)
    assert polled_mj(job, lambda _: 200_000, 0) == 2 * 30 * 200_000
    assert tdp_mj(job, 400_000, 0.5) == 65 * 200_000


def test_jobs_are_of_1_to_600_s_and_do_not_overlap():
    jobs = [*jobs_on(random.Random(1), "x", 1, 0, 3_600_000)]
    assert all(1_000 <= job.until_ms - job.from_ms <= 600_000 for job in jobs)
    assert all(one.end_ms < other.start_ms for one, other in pairwise(jobs))
    for job in jobs:
        *_, last = busy_steps(random.Random(2), job)
        assert last == (job.until_ms, 0)


def test_the_counter_moves_in_steps_and_begins_again_after_a_reset():
    board = whole_cluster(1, 0.1, boards=1).boards[0]
    t_ms = 500_000 * 3_600_000 + 100_000 + board.phase_ms
    assert board.counter_mj(t_ms + 99) == board.counter_mj(t_ms)
    assert board.counter_mj(t_ms + 100) > board.counter_mj(t_ms)
    board.resets_ms.append(t_ms)
    assert board.counter_mj(t_ms + 99) == 0


def test_rapl_passes_its_end():
    host = host_with_jobs(1, 1.0)
    values = [host.energy_uj(0, host.t0_ms + t_s * 1000) for t_s in range(3_600)]
    assert max(values) < WRAP_UJ
    assert sum(b < a for a, b in pairwise(values)) >= 1


def total_error(trial: Trial) -> float:
    return errors_of([(trial.ours(job), trial.true_mj(job)) for job in trial.jobs]).total


@pytest.mark.parametrize("resets", [0, 2])
def test_whole_gpus_are_within_two_percent(resets):
    """Far within: 0.5 %, the resets included."""
    assert total_error(gpu_trial(whole_cluster(21, 0.5, resets=resets))) < 0.005


@pytest.mark.parametrize("resets", [0, 2])
def test_slices_are_within_two_percent(resets):
    assert total_error(gpu_trial(mig_cluster(22, 0.5, resets=resets))) < 0.02


def test_slices_of_boards_that_were_idle_before_are_within_two_per_mille():
    """Their idle power, up to 15 % from the catalogue's, was learnt in two hours."""
    assert total_error(gpu_trial(mig_cluster(22, 0.5), quiet_h=2)) < 0.002


def test_shared_cpu_nodes_are_within_three_percent():
    """Far within: 0.3 %."""
    assert total_error(host_trial(host_with_jobs(23, 0.5))) < 0.003


def test_every_run_is_far_nearer_than_by_tdp_and_polling():
    trial = gpu_trial(whole_cluster(24, 0.5))
    ours = total_error(trial)
    for guess in trial.rivals.values():
        theirs = errors_of([(guess(job), trial.true_mj(job)) for job in trial.jobs]).total
        assert theirs > 10 * ours
