# SPDX-License-Identifier: Apache-2.0
"""A scripted campus: two nodes, three boards, jobs for thirty hours, and what happens when.

Its figures are such that no rounding depends on where a window ends: all times are whole seconds,
and what a board draws is a multiple of 420 mJ each second, which every share of up to seven slices
divides. A killed agent cuts windows elsewhere, but moves no mJ.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from fairwatt.accounting.accounts import AccountTree
from fairwatt.accounting.agent.requests import HookRequest
from fairwatt.accounting.agent.sources import Sample
from fairwatt.accounting.sacct import Rejected
from fairwatt.core.catalogue import Catalogue, load_catalogue
from fairwatt.core.records import Device, GpuInstance, Run
from tests.unit.accounting.samples import sacct_run

HOUR_S = 3600
BEGIN_S = 1_729_936_800
"""2024-10-26 10:00 UTC: the night in which Berlin's clocks go back lies in it."""
LAST_S = BEGIN_S + 30 * HOUR_S
IDLE_MW, BUSY_MW = 42_000, 252_000
UTIL_PERMILLE = 700
BORDER_S, SAMPLE_S, SHIP_S, SYNC_S = 1800, 2400, 3600, 3 * HOUR_S

BOARDS: Mapping[str, Sequence[tuple[str, int]]] = {"n1": (("GPU-a", 0), ("GPU-b", 0)),
                                                   "n2": (("GPU-m", 3),)}  # fmt: skip
"""By node: each board and into how many slices it is cut; these have 1, 2 and 4 of 7."""
SLICES = {"MIG-0": 1, "MIG-1": 2, "MIG-2": 4}
SLOTS = (("n1", "GPU-a"), ("n1", "GPU-b"), ("n2", "MIG-0"), ("n2", "MIG-1"), ("n2", "MIG-2"))


def catalogue() -> Catalogue:
    """Return a catalogue of one model whose idle power fits the figures."""
    model = load_catalogue().model("a100-40")
    return Catalogue([dataclasses.replace(model, idle_mw=IDLE_MW, idle_mig_mw=IDLE_MW)])


@dataclass(frozen=True)
class Held:
    """One run of a job on one slot of a node; `try_no` counts requeues."""

    job_id: int
    try_no: int
    submit_s: int
    start_s: int
    end_s: int
    node: str
    slot: str
    user: str
    state: str


@dataclass(frozen=True, order=True)
class Step:
    """Something that happens at a time: a hook, a border, a sample, a delivery, an import."""

    at_s: int
    order: int
    kind: str
    node: str = ""
    job_id: int = 0


class World:
    """All that is true of one seed, whoever dies meanwhile."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.runs = _invent(random.Random(seed))

    @cached_property
    def steps(self) -> list[Step]:
        """What happens, in order; ends of jobs come before starts in one second."""
        steps = []
        for run in self.runs:
            steps.append(Step(run.start_s, 2, "prolog", run.node, run.job_id))
            steps.append(Step(run.end_s, 1, "epilog", run.node, run.job_id))
        for node in BOARDS:
            steps += [Step(at, 0, "border", node) for at in _every(BORDER_S)]
            steps += [Step(at + 600, 0, "sample", node) for at in _every(SAMPLE_S)]
            steps += [Step(at + 300, 3, "ship", node) for at in _every(SHIP_S)]
        steps += [Step(at + 480, 4, "sync") for at in _every(SYNC_S)]
        return sorted(steps)

    def busy(self, board: str, at_s: int) -> bool:
        """Whether a run holds the board, or a part of it, just before a time."""
        return any(_board_of(r.slot) == board and r.start_s < at_s <= r.end_s for r in self.runs)

    def energy_mj(self, board: str, at_s: int) -> int:
        """The board's counter at a time."""
        total, last_s, depth = 10_000_000, BEGIN_S - HOUR_S, 0
        for edge_s, change in self._edges[board]:
            if edge_s >= at_s:
                break
            total += (edge_s - last_s) * (BUSY_MW if depth else IDLE_MW)
            last_s, depth = edge_s, depth + change
        return total + (at_s - last_s) * (BUSY_MW if depth else IDLE_MW)

    @cached_property
    def _edges(self) -> dict[str, list[tuple[int, int]]]:
        edges: dict[str, list[tuple[int, int]]] = {"GPU-a": [], "GPU-b": [], "GPU-m": []}
        for run in self.runs:
            edges[_board_of(run.slot)] += [(run.start_s, 1), (run.end_s, -1)]
        return {board: sorted(found) for board, found in edges.items()}

    def request(self, step: Step) -> HookRequest:
        """What the node's hook says at a step."""
        slots = [r.slot for r in self.runs if (r.job_id, r.node) == (step.job_id, step.node)]
        run = next(r for r in self.runs if r.job_id == step.job_id
                   and step.at_s in (r.start_s, r.end_s))  # fmt: skip
        env = {"SLURM_JOB_ID": str(step.job_id), "SLURM_JOB_UID": "1000",
               "SLURM_JOB_ACCOUNT": "qcd", "SLURM_JOB_RESTART_COUNT": str(run.try_no),
               "CUDA_VISIBLE_DEVICES": slots[0]}  # fmt: skip
        return HookRequest(v=1, verb=step.kind, t_ms=step.at_s * 1000, env=env)


class Boards:
    """The devices of a node as a Source: they answer for the time that `at_s` says."""

    def __init__(self, world: World, node: str) -> None:
        self.at_s = BEGIN_S
        self._world = world
        self._node = node

    def devices(self) -> tuple[Device, ...]:
        return tuple(
            Device(
                node=self._node, uuid=uuid, name="NVIDIA A100-SXM4-40GB", model="a100-40",
                minor=minor, nvml_index=minor, memory_mib=40_960, mig_enabled=bool(parts),
                compute_slices=7,
                instances=tuple(
                    GpuInstance(uuid=name, gi=n, ci=0, profile=f"{size}g", compute_slices=size,
                                memory_mib=4_864)
                    for n, (name, size) in enumerate(SLICES.items())
                ) if parts else (),
            )
            for minor, (uuid, parts) in enumerate(BOARDS[self._node])
        )  # fmt: skip

    def driver_version(self) -> str:
        return "550.54"

    def read(self, devices: Sequence[str]) -> list[Sample]:
        return [
            Sample(uuid, self.at_s * 1000, energy_mj=self._world.energy_mj(uuid, self.at_s))
            for uuid in devices
        ]

    def utilisation(self, devices: Sequence[str]) -> dict[str, dict[str, int]]:
        held = {r.slot for r in self._world.runs if r.start_s < self.at_s <= r.end_s}
        return {
            uuid: {slot if slot != uuid else "": UTIL_PERMILLE
                   for slot in held if _board_of(slot) == uuid}
            for uuid in devices
        }  # fmt: skip

    def clocks(self, devices: Sequence[str]) -> dict[str, int]:
        return {}

    def memory(self, devices: Sequence[str]) -> dict[str, dict[str, int]]:
        return {}


class Slurm:
    """slurmdbd and slurmctld as they know the world at the time that `at_s` says."""

    def __init__(self, world: World) -> None:
        self.at_s = BEGIN_S
        self._jobs = _by_run(world)

    def ended(self, since_ts: int, until_ts: int):
        """Two pages, in the order of the ends."""
        done = [held for held in self._jobs
                if held.end_s <= self.at_s and since_ts <= held.end_s <= until_ts]  # fmt: skip
        done.sort(key=lambda held: (held.end_s, held.job_id))
        half = len(done) // 2
        for page in (done[:half], done[half:]):
            yield [self._row(held) for held in page], []

    def open(self, now_ts: int) -> tuple[list[Run], list[Rejected]]:
        return [self._row(held) for held in self._jobs if self._runs(held)], []

    def by_id(self, job_ids: Sequence[int]) -> tuple[list[Run], list[Rejected]]:
        return [self._row(h) for h in self._jobs
                if h.job_id in job_ids and h.start_s <= self.at_s], []  # fmt: skip

    def running_job_ids(self) -> frozenset[int]:
        return frozenset(held.job_id for held in self._jobs if self._runs(held))

    def accounts(self) -> AccountTree:
        return AccountTree((), ())

    def _runs(self, held: Held) -> bool:
        return held.start_s <= self.at_s < held.end_s

    def _row(self, held: Held) -> Run:
        ended = held.end_s <= self.at_s
        return sacct_run(
            JobIDRaw=str(held.job_id), JobID=str(held.job_id), User=held.user,
            Submit=str(held.submit_s), Eligible=str(held.submit_s), Start=str(held.start_s),
            End=str(held.end_s) if ended else "Unknown",
            ElapsedRaw=str((held.end_s if ended else self.at_s) - held.start_s),
            State=held.state if ended else "RUNNING", NodeList=held.node,
        )  # fmt: skip


def _every(step_s: int) -> range:
    return range(BEGIN_S + step_s, LAST_S, step_s)


def _board_of(slot: str) -> str:
    return "GPU-m" if slot.startswith("MIG") else slot


def _by_run(world: World) -> list[Held]:
    return list({(held.job_id, held.try_no): held for held in world.runs}.values())


def _invent(rng: random.Random) -> list[Held]:
    """Fill each slot with runs, one after the other; some are requeued, some fail."""
    runs: list[Held] = []
    job_id = 100
    for node, slot in SLOTS:
        at_s = BEGIN_S + rng.randrange(60, 2 * HOUR_S)
        while at_s < LAST_S - HOUR_S:
            job_id += 1
            end_s = min(LAST_S - 60, at_s + _length_s(rng))
            tries = 2 if rng.random() < 0.15 and end_s - at_s > 1200 else 1
            runs += _tries(rng, job_id, tries, at_s, end_s, node, slot)
            at_s = end_s + rng.choice((1, 30, rng.randrange(60, 5400)))
    return runs


def _length_s(rng: random.Random) -> int:
    return rng.choice((7, rng.randrange(60, 900), rng.randrange(3600, 30_000)))


def _tries(
    rng: random.Random, job_id: int, tries: int, at_s: int, end_s: int, node: str, slot: str
) -> list[Held]:
    user = rng.choice(("ada", "ben"))
    if tries == 1:
        state = rng.choice(("COMPLETED", "COMPLETED", "FAILED"))
        return [Held(job_id, 0, at_s - 30, at_s, end_s, node, slot, user, state)]
    middle_s = rng.randrange(at_s + 100, end_s - 700)
    return [
        Held(job_id, 0, at_s - 30, at_s, middle_s, node, slot, user, "REQUEUED"),
        Held(job_id, 1, middle_s, middle_s + 130, end_s, node, slot, user, "COMPLETED"),
    ]
