# SPDX-License-Identifier: Apache-2.0
"""One node's jobs, what they truly used, what the product booked, and what others would say."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.sim.books import Booked, booked
from tests.sim.gpus import GpuCluster
from tests.sim.host import CORE_MW, CORES, IDLE_MW, SimHost
from tests.sim.load import Job
from tests.sim.node import SimNode
from tests.sim.rivals import POLL_MS, polled_mj, tdp_mj

__all__ = ["Guess", "Trial", "gpu_trial", "host_trial"]

Guess = Callable[[Job], float]
MINUTE_MS = 60_000
HOST_MAX_MW = IDLE_MW + CORES * CORE_MW
"""A package's TDP: what it draws with every core at work."""


@dataclass(frozen=True)
class Trial:
    """`found` is what the store has of a job; `rivals` are other ways of counting by name."""

    jobs: Sequence[Job]
    true_mj: Guess
    found: Callable[[Job], Booked]
    rivals: Mapping[str, Guess]

    def ours(self, job: Job) -> float:
        """Return the booked energy of a job that has one."""
        energy_mj = self.found(job).energy_mj
        assert energy_mj is not None
        return energy_mj


def gpu_trial(
    cluster: GpuCluster, outages: int = 0, seed: int = 11, *, quiet_h: float = 0.0
) -> Trial:
    """Run a node's jobs past the agent and the store; the agent is dead `outages` times.

    Before its first job the node has been idle for `quiet_h` hours.
    """
    rng = random.Random(seed)
    away = outage_spans(rng, cluster.t0_ms, cluster.t1_ms, outages)
    with TemporaryDirectory(prefix="fairwatt-sim-") as folder:
        node = SimNode(Path(folder), cluster.boards, seed=seed)
        began_ms = cluster.t0_ms - round(60 * MINUTE_MS * quiet_h)
        events = node.run(cluster.jobs, began_ms, cluster.t1_ms, away)
        found = booked(events, cluster.jobs, Path(folder))
    phase_ms = rng.randrange(POLL_MS)
    return Trial(
        jobs=cluster.jobs,
        true_mj=cluster.true_mj,
        found=lambda job: found[job.job_id, cluster.board_of(job.place).device.uuid],
        rivals={
            "power every 30 s": lambda job: polled_mj(
                job, lambda t_ms: cluster.power_mw(job, t_ms), phase_ms
            ),
            "TDP × hours": lambda job: tdp_mj(job, cluster.model.max_mw, cluster.part[job.place]),
        },
    )


def host_trial(host: SimHost, seed: int = 12) -> Trial:
    """Run a CPU node's jobs past the agent and the store; a run's packages are added up."""
    with TemporaryDirectory(prefix="fairwatt-sim-") as folder:
        node = SimNode(Path(folder), host=host, seed=seed)
        events = node.run(host.jobs, host.t0_ms, host.t1_ms)
        found = booked(events, host.jobs, Path(folder))
    by_job: dict[int, Booked] = {}
    for (job_id, _), one in found.items():
        by_job[job_id] = _together(by_job.get(job_id), one)
    phase_ms = random.Random(seed).randrange(POLL_MS)
    return Trial(
        jobs=host.jobs,
        true_mj=host.true_mj,
        found=lambda job: by_job[job.job_id],
        rivals={
            "power every 30 s": lambda job: polled_mj(
                job, lambda t_ms: host.power_mw(job, t_ms), phase_ms
            ),
            "TDP × hours": lambda job: tdp_mj(
                job, HOST_MAX_MW, sum(host.held(job, package) for package in (0, 1))
            ),
        },
    )


def _together(one: Booked | None, other: Booked) -> Booked:
    if one is None:
        return other
    known = one.energy_mj is not None and other.energy_mj is not None
    total = (one.energy_mj or 0) + (other.energy_mj or 0) if known else None
    return Booked(total, one.flags | other.flags, one.method)


def outage_spans(rng: random.Random, t0_ms: int, t1_ms: int, count: int) -> list[tuple[int, int]]:
    """Return `count` spans of 10 s to 10 minutes that do not touch."""
    length_ms = (t1_ms - t0_ms) // max(1, count)
    spans = []
    for number in range(count):
        from_ms = t0_ms + number * length_ms + rng.randrange(MINUTE_MS, length_ms // 2)
        spans.append((from_ms, from_ms + rng.randint(10_000, 10 * MINUTE_MS)))
    return spans
