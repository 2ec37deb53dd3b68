# SPDX-License-Identifier: Apache-2.0
"""How far a run's energy is from the truth, beside TDP × hours and power read every 30 s.

The truth is invented to the millisecond (tests/sim); what judges is the product: the agent's
keeper, meter, windows and ledger on a scripted clock, then the collector's ingest and settle. What
the store says of each run is compared with what the run really used.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Iterator, Sequence

from fairwatt.core.events import Flag
from tests.sim.errors import Errors, errors_of
from tests.sim.gpus import mig_cluster, whole_cluster
from tests.sim.host import host_with_jobs
from tests.sim.load import Job
from tests.sim.trials import Guess, Trial, gpu_trial, host_trial

GOAL_GPU, GOAL_CPU = 0.02, 0.03
HOURS = 12.0
NOT_WHOLE = Flag.RESET | Flag.GAP | Flag.LOST | Flag.IMPLAUSIBLE
"""Flags that tell a reader that a run's figure is not whole, or partly apportioned."""
LENGTHS = (("  of 1 to 10 s", 1, 10), ("  of 10 to 60 s", 10, 60), ("  of 60 to 600 s", 60, 601))
HEAD = (
    "Relative error of a run's energy. total: Σ |error| ÷ Σ truth, the part of all energy that\n"
    "is with the wrong run; bias: error of the sum; then of single runs, of any size."
)
Build = Callable[[float], Trial]

TRIALS: Sequence[tuple[str, float | None, Build]] = (
    ("whole GPUs, energy counter", GOAL_GPU, lambda h: gpu_trial(whole_cluster(1, h))),
    ("MIG, GPM tells the work", GOAL_GPU, lambda h: gpu_trial(mig_cluster(2, h))),
    (
        "MIG, the same boards after two idle hours: idle power is learnt",
        GOAL_GPU,
        lambda h: gpu_trial(mig_cluster(2, h), quiet_h=2),
    ),
    (
        "whole GPUs, each counter restarts every 2 h at any moment",
        GOAL_GPU,
        lambda h: gpu_trial(whole_cluster(3, h, resets=_often(h))),
    ),
    (
        "MIG, each counter restarts every 2 h at any moment",
        GOAL_GPU,
        lambda h: gpu_trial(mig_cluster(4, h, resets=_often(h))),
    ),
    ("shared CPU nodes, RAPL and CPU time", GOAL_CPU, lambda h: host_trial(host_with_jobs(10, h))),
    (
        "whole GPUs, the agent is dead for up to 10 min every 2 h",
        None,
        lambda h: gpu_trial(whole_cluster(5, h), outages=_often(h)),
    ),
    (
        "MIG, the agent is dead for up to 10 min every 2 h",
        None,
        lambda h: gpu_trial(mig_cluster(6, h), outages=_often(h)),
    ),
    (
        "whole GPUs without a counter: power, a mean of 1 s, read every 10 s",
        None,
        lambda h: gpu_trial(whole_cluster(7, h, has_counter=False)),
    ),
    (
        "MIG, equal work draws up to 30 % more or less",
        None,
        lambda h: gpu_trial(mig_cluster(8, h, uneven=0.3)),
    ),
    (
        "MIG, nothing tells the work (A100)",
        None,
        lambda h: gpu_trial(mig_cluster(9, h, has_gpm=False)),
    ),
    (
        "shared CPU nodes, equal CPU time draws up to 30 % more or less",
        None,
        lambda h: host_trial(host_with_jobs(11, h, uneven=0.3)),
    ),
)


def main() -> int:
    """Print the tables and, last, the figures; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=HOURS, help="simulated, each")
    hours = parser.parse_args().hours
    logging.disable(logging.ERROR)
    print(HEAD)
    held = [(goal, _trial(title, goal, build(hours))) for title, goal, build in TRIALS]
    gpu = max(errors.total for goal, errors in held if goal == GOAL_GPU)
    cpu = max(errors.total for goal, errors in held if goal == GOAL_CPU)
    missed = gpu > GOAL_GPU or cpu > GOAL_CPU
    print(
        f"\nbench-accuracy: of the energy of all runs {gpu:.2%} of GPUs and {cpu:.2%} of CPUs"
        f" is with the wrong run (goals {GOAL_GPU:.0%} and {GOAL_CPU:.0%})"
        + ("; missed" if missed else "")
    )
    return 1 if missed else 0


def _often(hours: float) -> int:
    return max(1, round(hours / 2))


def _trial(title: str, goal: float | None, trial: Trial) -> Errors:
    """Print one kind of node; return our errors."""
    aim = "" if goal is None else f"; goal for the total: {goal:.0%}"
    print(f"\n{title}: {len(trial.jobs):,} runs{aim}")
    print(f"  {'':24}{'runs':>7}{'total':>9}{'bias':>9}{'median':>9}{'p95':>10}{'worst':>10}")
    for name, errors in _rows(trial):
        print(
            f"  {name:24}{errors.runs:>7,}{errors.total:>9.2%}{errors.bias:>+9.2%}"
            f"{errors.median:>9.2%}{errors.p95:>10.2%}{errors.worst:>10.2%}"
        )
    unknown = sum(trial.found(job).energy_mj is None for job in trial.jobs)
    if unknown:
        print(f"  {unknown} runs are unknown to fairwatt (NULL, not 0)")
    return next(errors for _, errors in _rows(trial))


def _rows(trial: Trial) -> Iterator[tuple[str, Errors]]:
    """Yield ours, by length, of the flagged runs, then the rivals on the same runs."""
    known = [job for job in trial.jobs if trial.found(job).energy_mj is not None]
    flagged = [job for job in known if trial.found(job).flags & NOT_WHOLE]
    yield "fairwatt", _errors(trial, known, trial.ours)
    for name, least_s, most_s in LENGTHS:
        some = [job for job in known if least_s <= (job.until_ms - job.from_ms) / 1000 < most_s]
        yield name, _errors(trial, some, trial.ours)
    if flagged:
        yield "  flagged as not whole", _errors(trial, flagged, trial.ours)
    for name, guess in trial.rivals.items():
        yield name, _errors(trial, known, guess)


def _errors(trial: Trial, jobs: Sequence[Job], guess: Guess) -> Errors:
    return errors_of([(guess(job), trial.true_mj(job)) for job in jobs])


if __name__ == "__main__":
    sys.exit(main())
