# SPDX-License-Identifier: Apache-2.0
"""Nodes of simulated GPUs with jobs on them, whole boards or cut by MIG, and the truth."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fairwatt.core.catalogue import GpuModel, load_catalogue
from fairwatt.core.records import Device, GpuInstance
from tests.sim.boards import STEP_MS, SimBoard
from tests.sim.load import Job, busy_steps, jobs_on
from tests.sim.trace import Trace

__all__ = ["GpuCluster", "mig_cluster", "whole_cluster"]

HOUR_MS = 3_600_000
T0_MS = 500_000 * HOUR_MS
LAYOUTS = ((1, 2, 4), (3, 4), (1, 1, 1, 1, 1, 1, 1), (2, 2, 3), (1, 1, 2, 3))
IDLE_SPREAD = 0.15
"""So far may a board's idle power lie from the catalogue's."""


@dataclass(frozen=True)
class GpuCluster:
    """The boards of one node, the jobs that run there from `t0_ms` to `t1_ms`, the truth."""

    model: GpuModel
    boards: tuple[SimBoard, ...]
    jobs: tuple[Job, ...]
    part: dict[str, float]
    t0_ms: int
    t1_ms: int

    def board_of(self, place: str) -> SimBoard:
        """Return the board that a place is, or is a slice of."""
        return next(board for board in self.boards if place in board.draw)

    def power_mw(self, job: Job, t_ms: int) -> float:
        """Return a job's part of the power sensor's reading: of what idles by size, else by work.

        The part that idles is told, and where GPM is, the work in the second of the reading.
        """
        board = self.board_of(job.place)
        work = {
            place: self.part[place] * (trace.mean(t_ms - 1_000, t_ms) if board.has_gpm else 1)
            for place, trace in board.busy.items()
        }
        active_mw = max(0, board.power_mw(t_ms) - board.idle_mw)
        share = work[job.place] / sum(work.values()) if any(work.values()) else 0
        return board.idle_mw * self.part[job.place] + active_mw * share

    def true_mj(self, job: Job) -> float:
        """Return what a job really used between its Prolog and its Epilog."""
        board = self.board_of(job.place)
        return board.used_mj(job.place, self.part[job.place], job.start_ms, job.end_ms)


def whole_cluster(
    seed: int, hours: float, *, boards: int = 8, resets: int = 0, **board: object
) -> GpuCluster:
    """Return whole boards whose counters begin again `resets` times each.

    `board` goes to SimBoard (has_counter, mean_ms…).
    """
    model = load_catalogue().model("h100-80")
    cuts: list[tuple[int, ...]] = [()] * boards
    return _cluster(random.Random(seed), model, cuts, hours, 0.0, resets, board)


def mig_cluster(
    seed: int, hours: float, *, uneven: float = 0.0, resets: int = 0, **board: object
) -> GpuCluster:
    """Return a board of each MIG layout.

    `uneven`: two instances that are equally busy may differ by this part in what they draw.
    """
    model = load_catalogue().model("h100-80")
    return _cluster(random.Random(seed), model, LAYOUTS, hours, uneven, resets, board)


def _cluster(
    rng: random.Random,
    model: GpuModel,
    cuts: Sequence[tuple[int, ...]],
    hours: float,
    uneven: float,
    resets: int,
    options: dict[str, object],
) -> GpuCluster:
    t1_ms = T0_MS + round(hours * HOUR_MS)
    boards, jobs, part = [], [], {}
    for number, slices in enumerate(cuts):
        device = _device(number, model, slices)
        places = {one.uuid: one.compute_slices / 7 for one in device.instances}
        part |= places or {device.uuid: 1.0}
        mine = [
            job
            for nth, place in enumerate(places or {device.uuid: 1.0})
            for job in jobs_on(rng, place, 100_000 * number + 10_000 * nth + 1, T0_MS, t1_ms)
        ]
        board = _board(rng, device, model, part, mine, uneven, options)
        board.resets_ms += sorted(rng.randrange(T0_MS, t1_ms) for _ in range(resets))
        boards.append(board)
        jobs += mine
    return GpuCluster(model, tuple(boards), tuple(jobs), part, T0_MS, t1_ms)


def _board(
    rng: random.Random,
    device: Device,
    model: GpuModel,
    part: dict[str, float],
    jobs: Iterable[Job],
    uneven: float,
    options: dict[str, object],
) -> SimBoard:
    listed_mw = model.idle_mig_mw if device.mig_enabled else model.idle_mw
    idle_mw = round(listed_mw * rng.uniform(1 - IDLE_SPREAD, 1 + IDLE_SPREAD))
    work_mw = 0.95 * model.max_mw - idle_mw
    places = [one.uuid for one in device.instances] or [device.uuid]
    draw = {place: Trace() for place in places}
    busy = {place: Trace() for place in places}
    for job in jobs:
        full_mw = work_mw * part[job.place] * rng.uniform(1 - uneven, 1 + uneven)
        for t_ms, permille in busy_steps(rng, job):
            busy[job.place].step(t_ms, permille)
            draw[job.place].step(t_ms, round(full_mw * permille / 1000))
    return SimBoard(
        device, idle_mw, draw, busy, phase_ms=rng.randrange(STEP_MS),
        base_mj=rng.randrange(10**9), **options,
    )  # fmt: skip


def _device(number: int, model: GpuModel, slices: Sequence[int]) -> Device:
    uuid = f"GPU-{number}"
    return Device(
        node="sim01", uuid=uuid, name=model.title, model=model.key, minor=number,
        nvml_index=number, memory_mib=81_920, mig_enabled=bool(slices), compute_slices=7,
        instances=tuple(
            GpuInstance(uuid=f"MIG-{number}-{n}", gi=n, ci=0, profile=f"{size}g",
                        compute_slices=size, memory_mib=9_856)
            for n, size in enumerate(slices)
        ),
    )  # fmt: skip
