# SPDX-License-Identifier: Apache-2.0
"""Invented jobs: when they run and how busy they keep what they hold, to the millisecond."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Job", "busy_steps", "jobs_on"]

SHORTEST_MS, LONGEST_MS = 1_000, 600_000


@dataclass(frozen=True)
class Job:
    """A job on one place (board, instance or set of cores).

    Prolog and Epilog run at `start_ms` and `end_ms`; its processes work between `from_ms` and
    `until_ms`. `pattern` names how its load goes up and down, `level` is its peak in thousandths.
    """

    job_id: int
    place: str
    start_ms: int
    from_ms: int
    until_ms: int
    end_ms: int
    pattern: str
    level: int


def jobs_on(
    rng: random.Random, place: str, first_id: int, t0_ms: int, t1_ms: int
) -> Iterator[Job]:
    """Yield jobs of 1 to 600 s (as many short as long ones, by logarithm), one after another.

    Slurm starts a job's processes 60 to 400 ms after Prolog, and Epilog comes 20 to 300 ms after
    their end; every fourth job finds the next one waiting, the others leave the place idle.
    """
    start_ms = t0_ms + rng.randrange(60_000)
    for job_id in range(first_id, first_id + 1_000_000):
        length_ms = round(math.exp(rng.uniform(math.log(SHORTEST_MS), math.log(LONGEST_MS))))
        from_ms = start_ms + rng.randint(60, 400)
        until_ms = from_ms + length_ms
        end_ms = until_ms + rng.randint(20, 300)
        if end_ms >= t1_ms:
            return
        pattern = rng.choice(("steady", "iterations", "bursts", "spikes"))
        yield Job(
            job_id, place, start_ms, from_ms, until_ms, end_ms, pattern, rng.randint(350, 1000)
        )
        pause_ms = rng.randint(30, 400) if rng.random() < 0.25 else rng.randint(400, 120_000)
        start_ms = end_ms + pause_ms


def busy_steps(rng: random.Random, job: Job) -> Iterator[tuple[int, int]]:
    """Yield (t_ms, thousandths) of one job's work, ending with 0."""
    t_ms = job.from_ms
    draw = _PATTERNS[job.pattern](rng)
    while t_ms < job.until_ms:
        length_ms, part = next(draw)
        yield t_ms, job.level * part // 1000
        t_ms += length_ms
    yield job.until_ms, 0


def _steady(rng: random.Random) -> Iterator[tuple[int, int]]:
    while True:
        yield rng.randint(500, 5_000), rng.randint(950, 1000)


def _iterations(rng: random.Random) -> Iterator[tuple[int, int]]:
    """Training: work, then a shorter while of waiting for the others, always the same."""
    work_ms, wait_ms = rng.randint(120, 900), rng.randint(30, 250)
    while True:
        yield work_ms, 1000
        yield wait_ms, rng.randint(80, 250)


def _bursts(rng: random.Random) -> Iterator[tuple[int, int]]:
    """Input-bound: seconds of work, seconds of nothing."""
    while True:
        yield rng.randint(400, 8_000), rng.randint(700, 1000)
        yield rng.randint(300, 12_000), 0


def _spikes(rng: random.Random) -> Iterator[tuple[int, int]]:
    """Inference: short kernels at odd moments."""
    while True:
        yield rng.randint(15, 90), 1000
        yield rng.randint(40, 1_200), 0


_PATTERNS = {"steady": _steady, "iterations": _iterations, "bursts": _bursts, "spikes": _spikes}
