# SPDX-License-Identifier: Apache-2.0
"""What two common ways of counting make of the same traces: TDP × hours, and power every 30 s.

Both are given more than they have in the field: exact start and end times, exact shares.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.sim.load import Job

__all__ = ["POLL_MS", "polled_mj", "tdp_mj"]

POLL_MS = 30_000
"""A usual period of jobstats and of Prometheus scrapes."""


def tdp_mj(job: Job, max_mw: int, part: float) -> float:
    """Return the largest power × the reserved part × the time."""
    return max_mw * part * (job.end_ms - job.start_ms) / 1000


def polled_mj(job: Job, power_mw: Callable[[int], float], phase_ms: int) -> float:
    """Return Σ of the job's part of the power at each scrape inside it × 30 s."""
    first_ms = job.start_ms + (phase_ms - job.start_ms) % POLL_MS
    return sum(power_mw(t_ms) for t_ms in range(first_ms, job.end_ms, POLL_MS)) * POLL_MS / 1000
