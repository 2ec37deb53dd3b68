# SPDX-License-Identifier: Apache-2.0
"""Events of an invented cluster as its agents would deliver them, tick by tick.

Every node cuts all its devices each 5 minutes and those of a job where it begins and ends; energy
is divided by the agents' own `split_window`. One node in five has MIG boards, one in ten works on
jobs of four nodes.
"""

from __future__ import annotations

import functools
import hashlib
import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from fairwatt.accounting.ledger import Hold, split_window
from fairwatt.core.events import (
    AgentStarted,
    DeviceHold,
    Event,
    RunEnded,
    RunStarted,
    WindowClosed,
    encode_event,
)
from fairwatt.core.records import Device, Run

__all__ = ["START_MS", "TICK_MS", "Tick", "ticks"]

START_MS = 1_767_571_200_000
"""2026-01-05 00:00 UTC."""
TICK_MS = 300_000
GPUS = 8
QUAD = 4
SLICES = (3, 2, 1, 1)
BOOT = "6f1d2c1e-8a55-4b0e-9c39-2f1b7d0c"


class Tick(NamedTuple):
    """What comes within 5 minutes: bodies of nodes, and runs as sacct tells them."""

    bodies: list[bytes]
    events: int
    measured_mj: int
    runs: list[Run]


@dataclass
class _Job:
    job_id: int
    start_ms: int
    end_ms: int
    user: str
    account: str
    places: list[tuple[int, int]]
    """(device, slice); slice -1: the whole board."""
    load: float
    nodes: int = 1


@dataclass(eq=False)
class _Node:
    number: int
    rng: random.Random
    mig: bool
    name: str = ""
    seq: int = 1_767_000_000_000
    last_ms: list[int] = field(default_factory=lambda: [START_MS] * GPUS)
    jobs: list[_Job] = field(default_factory=list)
    free: dict[tuple[int, int], int] = field(default_factory=dict)
    due: list[tuple[int, int, _Job]] = field(default_factory=list)

    @property
    def model(self) -> str:
        return "a100-40" if self.mig else "h100-80"

    @property
    def idle_mw(self) -> int:
        return 60_000 if self.mig else 70_000

    @functools.cache  # noqa: B019 - as many as there are boards
    def uuid(self, device: int) -> str:
        """As random as a real one: a node's boards are no neighbours in the store."""
        text = hashlib.blake2b(f"{self.number} {device}".encode(), digest_size=16).hexdigest()
        return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def slice_uuid(self, device: int, place: int) -> str:
        return "" if place < 0 else f"MIG-{self.number:08x}-{device:04x}-5c1f-8d2a-{place:012x}"

    def head(self) -> dict[str, str | int]:
        self.seq += 1
        return {"node": self.name, "boot_id": f"{BOOT}{self.number:04x}", "seq": self.seq}


def ticks(nodes: int, hours: float, seed: int = 6) -> Iterator[Tick]:
    """Yield one Tick after the other; the last one has the ends of all jobs."""
    cluster = [_node(number, seed) for number in range(nodes)]
    ids = iter(range(1_000, 1 << 30))
    quads = [cluster[n : n + QUAD] for n in range(0, nodes // 10 // QUAD * QUAD, QUAD)]
    alone = cluster[len(quads) * QUAD :]
    rng = random.Random(seed)
    count = int(hours * 3_600_000 // TICK_MS)
    for tick in range(count):
        a_ms, b_ms = START_MS + tick * TICK_MS, START_MS + (tick + 1) * TICK_MS
        runs: list[Run] = []
        bodies: list[bytes] = []
        events = measured_mj = 0
        for quad in quads:
            _plan_quad(quad, rng, ids, a_ms, b_ms, runs)
        for node in alone:
            _plan(node, ids, a_ms, b_ms, runs)
        for node in cluster:
            first = tick == 0
            for delivery in _deliveries(node, b_ms, first, tick == count - 1, runs):
                measured_mj += sum(
                    event.measured_mj or 0 for event in delivery if isinstance(event, WindowClosed)
                )
                events += len(delivery)
                bodies.append(b"".join(encode_event(event) + b"\n" for event in delivery))
        yield Tick(bodies, events, measured_mj, runs)


def _node(number: int, seed: int) -> _Node:
    node = _Node(number, random.Random(f"{seed} {number}"), number % 5 == 4)
    node.name = f"gpu{number:04d}"
    slots = range(len(SLICES)) if node.mig else (-1,)
    # Jobs do not all begin at once.
    node.free = {
        (device, slot): START_MS + node.rng.randrange(3_600_000)
        for device in range(GPUS)
        for slot in slots
    }
    return node


def _length_ms(rng: random.Random) -> int:
    """A third is short, a quarter runs for most of a day; at most 3 days."""
    draw = rng.random()
    if draw < 0.35:
        return rng.randrange(1_000, 600_000)
    median_s = 5_400 if draw < 0.75 else 36_000
    return min(259_200_000, int(1000 * median_s * rng.lognormvariate(0, 0.7)))


def _plan(node: _Node, ids: Iterator[int], a_ms: int, b_ms: int, runs: list[Run]) -> None:
    """Start jobs of one node on places that become free before the tick ends."""
    rng = node.rng
    ready = sorted(place for place, at_ms in node.free.items() if at_ms < b_ms)
    while ready:
        want = 1 if node.mig else rng.choice((1, 1, 1, 2, 4, 8))
        places = ready[:want]
        ready = ready[want:]
        start_ms = max(a_ms + rng.randrange(1, TICK_MS), *(node.free[place] for place in places))
        if start_ms >= b_ms:
            continue
        job = _job(next(ids), rng, start_ms, places)
        _take(node, job)
        runs.append(_run(job, node.name, node.model, node.mig))


def _plan_quad(
    quad: list[_Node], rng: random.Random, ids: Iterator[int], a_ms: int, b_ms: int,
    runs: list[Run],
) -> None:  # fmt: skip
    """Start a job on all boards of four nodes when they are free."""
    start_ms = max(a_ms + rng.randrange(1, TICK_MS), *(max(n.free.values()) for n in quad))
    if start_ms >= b_ms:
        return
    mine = [place for place in quad[0].free if place[1] < 0] or list(quad[0].free)
    job = _job(next(ids), rng, start_ms, mine)
    for node in quad:
        part = _Job(
            job.job_id, start_ms, job.end_ms, job.user, job.account, list(node.free), job.load,
            len(quad),
        )  # fmt: skip
        _take(node, part)
    runs.append(_run(job, f"{quad[0].name},{quad[-1].name}", quad[0].model, False, len(quad)))


def _job(job_id: int, rng: random.Random, start_ms: int, places: list[tuple[int, int]]) -> _Job:
    user = min(int(rng.paretovariate(0.6)), 2000)
    end_ms = start_ms + _length_ms(rng)
    return _Job(job_id, start_ms, end_ms, f"u{user}", f"acc{user % 40}", places, rng.random())


def _take(node: _Node, job: _Job) -> None:
    for place in job.places:
        node.free[place] = job.end_ms + 2_000
    heapq.heappush(node.due, (job.start_ms, job.job_id, job))
    heapq.heappush(node.due, (job.end_ms, job.job_id, job))


def _deliveries(
    node: _Node, b_ms: int, first: bool, last: bool, runs: list[Run]
) -> Iterator[list[Event]]:
    """A body at each end of a job, as agents hasten then, and one at the tick's end."""
    out: list[Event] = [_up(node)] if first else []
    while node.due and (node.due[0][0] < b_ms or last):
        at_ms, _, job = heapq.heappop(node.due)
        at_ms = min(at_ms, b_ms - 1)
        if at_ms < job.start_ms:
            continue  # drawn beyond the end of the bench
        devices = sorted({device for device, _ in job.places})
        if job in node.jobs:
            out += [*_cut(node, devices, at_ms), _end(node, job, at_ms)]
            node.jobs.remove(job)
            if job.nodes == 1 or node.number % QUAD == 0:
                runs.append(_ended(job, node, at_ms))
            yield out
            out = []
        else:
            out += [*_cut(node, devices, at_ms), _start(node, job)]
            node.jobs.append(job)
    out += _cut(node, range(GPUS), b_ms)
    yield out


def _cut(node: _Node, devices: list[int] | range, at_ms: int) -> Iterator[Event]:
    for device in devices:
        t0_ms = node.last_ms[device]
        if at_ms <= t0_ms:
            continue
        node.last_ms[device] = at_ms
        yield _window(node, device, t0_ms, at_ms)


def _window(node: _Node, device: int, t0_ms: int, t1_ms: int) -> WindowClosed:
    holds, utils, load = [], [], 0.0
    for job in node.jobs:
        for board, place in job.places:
            if board == device:
                numerator, denominator = (1, 1) if place < 0 else (SLICES[place], 7)
                instance = node.slice_uuid(device, place)
                holds.append(Hold(job.job_id, job.start_ms, instance, numerator, denominator))
                utils.append(None if node.mig else int(1000 * job.load))
                load += job.load * numerator / denominator
    watts = node.idle_mw / 1000 + 500 * load * node.rng.uniform(0.9, 1.1)
    measured_mj = int(watts * (t1_ms - t0_ms))
    split = split_window(measured_mj, t1_ms - t0_ms, node.idle_mw, holds, utils)
    return WindowClosed(
        **node.head(), device=node.uuid(device), t0_ms=t0_ms, t1_ms=t1_ms,
        measured_mj=measured_mj, unallocated_idle_mj=split.unallocated_idle_mj,
        unallocated_active_mj=split.unallocated_active_mj, shares=split.shares,
        flags=16 if node.mig and holds else 0, method="counter",
        clock_mhz=1980 if holds else None,
    )  # fmt: skip


def _start(node: _Node, job: _Job) -> RunStarted:
    holds = tuple(
        DeviceHold(
            device=node.uuid(device), instance=node.slice_uuid(device, place),
            numerator=1 if place < 0 else SLICES[place], denominator=1 if place < 0 else 7,
        )
        for device, place in job.places
    )  # fmt: skip
    return RunStarted(
        **node.head(), t_ms=job.start_ms, job_id=job.job_id, restart_cnt=0, sluid=None, uid=1000,
        account=job.account, holds=holds, mapped_by="minor",
    )  # fmt: skip


def _end(node: _Node, job: _Job, at_ms: int) -> RunEnded:
    return RunEnded(
        **node.head(), t_ms=at_ms, job_id=job.job_id, run_start_ms=job.start_ms,
        closed_by="epilog",
    )  # fmt: skip


def _up(node: _Node) -> AgentStarted:
    devices = tuple(
        Device(
            node=node.name, uuid=node.uuid(n), name="GPU", model=node.model, minor=n,
            nvml_index=n, memory_mib=40_960, mig_enabled=node.mig, compute_slices=7,
        )
        for n in range(GPUS)
    )  # fmt: skip
    return AgentStarted(**node.head(), t_ms=START_MS, devices=devices, version="1")


def _run(job: _Job, nodelist: str, model: str, mig: bool, nodes: int = 1) -> Run:
    count = len(job.places) * nodes
    kind = model.split("-")[0] if not mig else f"a100_{SLICES[job.places[0][1]]}g.20gb"
    start_ts = job.start_ms // 1000
    return Run(
        cluster="campus", job_id=job.job_id, submit_ts=start_ts - 60, restart_cnt=0,
        state="RUNNING", user=job.user, uid=1000, account=job.account, partition="gpu",
        qos="normal", name="train", eligible_ts=start_ts - 60, start_ts=start_ts,
        elapsed_s=0, suspended_s=0, timelimit_s=259_200, nnodes=nodes, ncpus=8 * count,
        nodelist=nodelist, req_tres=f"cpu={8 * count},gres/gpu={count}",
        alloc_tres=f"cpu={8 * count},mem=64G,gres/gpu={count},gres/gpu:{kind}={count}",
    )  # fmt: skip


def _ended(job: _Job, node: _Node, at_ms: int) -> Run:
    run = _run(job, node.name, node.model, node.mig, job.nodes)
    start_ts, end_ts = job.start_ms // 1000, at_ms // 1000
    return run._replace(state="COMPLETED", end_ts=max(end_ts, start_ts), exit_code=0,
                        elapsed_s=max(0, end_ts - start_ts))  # fmt: skip
