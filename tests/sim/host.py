# SPDX-License-Identifier: Apache-2.0
"""A shared CPU node whose true power is known: two packages, RAPL, control groups, jobs on cores.

Jobs hold cores of one package or of both; services take a little time on all of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from fairwatt.accounting.agent.host.cgroup import CgroupLook, JobCgroup
from fairwatt.accounting.agent.host.source import Reading
from fairwatt.accounting.agent.host.topology import Topology
from tests.sim.load import Job, busy_steps, jobs_on
from tests.sim.trace import Trace, summed

__all__ = ["SimHost", "SimRapl", "host_with_jobs"]

HOUR_MS = 3_600_000
T0_MS = 500_000 * HOUR_MS
PACKAGES, CORES = 2, 32
IDLE_MW, CORE_MW = 70_000, 5_000
WRAP_UJ = 262_143_328_850
SLOTS = (("0", 1), ("0", 1), ("0", 2), ("0", 4), ("0", 8), ("0", 12),
         ("1", 2), ("1", 4), ("1", 8), ("1", 14), ("both", 8))  # fmt: skip
"""Where jobs run, by package, and how many cores they hold."""


@dataclass
class SimHost:
    """`idle_mw`, by package; `busy` and `draw` have each slot's work in thousandths and mW.

    `jobs` come one after another on each slot; `cpus` are a slot's cores.
    """

    idle_mw: tuple[int, ...]
    cpus: dict[str, frozenset[int]]
    busy: dict[str, Trace]
    draw: dict[str, Trace]
    services: Trace
    jobs: tuple[Job, ...]
    t0_ms: int
    t1_ms: int
    base_uj: int
    power: list[Trace] = field(default_factory=list)

    def __post_init__(self) -> None:
        for package, idle_mw in enumerate(self.idle_mw):
            services = _scaled(self.services, CORE_MW // PACKAGES)
            parts = [
                _scaled(trace, round(1000 * self.part_here(place, package)))
                for place, trace in self.draw.items()
                if self.part_here(place, package)
            ]
            self.power.append(summed([Trace([(0, idle_mw)]), services, *parts]))
        self._by_place = {
            place: [job for job in self.jobs if job.place == place] for place in self.cpus
        }

    @property
    def topology(self) -> Topology:
        """Return what the agent reads of sysfs."""
        places = {cpu: (cpu // CORES, 0) for cpu in range(PACKAGES * CORES)}
        return Topology(places, PACKAGES * CORES, 256 << 30)

    def part_here(self, place: str, package: int) -> float:
        """Return the part of a slot's cores that are on a package."""
        cpus = self.cpus[place]
        return sum(cpu // CORES == package for cpu in cpus) / len(cpus)

    def energy_uj(self, package: int, t_ms: int) -> int:
        """Return RAPL's counter: it moves in units of 61 µJ and begins again at its end."""
        energy_uj = self.base_uj + self.power[package].between(self.t0_ms, t_ms)
        return energy_uj % WRAP_UJ // 61 * 61

    def look(self, t_ms: int) -> CgroupLook:
        """Return the control groups: a job's is there while its processes are."""
        groups = {}
        for place, jobs in self._by_place.items():
            for job in jobs:
                if job.from_ms <= t_ms < job.until_ms:
                    spent_us = self.cpu_us(place, job.from_ms, t_ms)
                    groups[f"job_{job.job_id}"] = JobCgroup(spent_us, None, self.cpus[place])
        all_us = sum(self.cpu_us(place, self.t0_ms, t_ms) for place in self.cpus)
        return CgroupLook(groups, all_us, self.services.between(self.t0_ms, t_ms), None)

    def cpu_us(self, place: str, t0_ms: int, t1_ms: int) -> int:
        """Return the CPU time on a slot: thousandths × ms are µs."""
        return self.busy[place].between(t0_ms, t1_ms) * len(self.cpus[place])

    def true_mj(self, job: Job) -> float:
        """Return what a job really used: its cores' part of the idle power, and its own work."""
        span_ms = job.end_ms - job.start_ms
        idle_uj = sum(
            idle_mw * span_ms * self.held(job, package)
            for package, idle_mw in enumerate(self.idle_mw)
        )
        return (idle_uj + self.draw[job.place].between(job.start_ms, job.end_ms)) / 1000

    def held(self, job: Job, package: int) -> float:
        """Return the part of a package's cores that a job holds."""
        return len(self.cpus[job.place]) * self.part_here(job.place, package) / CORES

    def power_mw(self, job: Job, t_ms: int) -> float:
        """Return a job's part of the power in the last second, by cores and CPU time."""
        total = 0.0
        span = (t_ms - 1_000, t_ms)
        for package, idle_mw in enumerate(self.idle_mw):
            spent = {
                place: self.cpu_us(place, *span) * self.part_here(place, package)
                for place in self.cpus
            }
            all_us = sum(spent.values()) + self.services.between(*span) / PACKAGES
            active_mw = self.power[package].mean(*span) - idle_mw
            total += idle_mw * self.held(job, package)
            total += active_mw * spent[job.place] / all_us if all_us else 0
        return total


class SimRapl:
    """The packages' counters as the agent's source."""

    name = "rapl"
    slow = False

    def __init__(self, host: SimHost, clock_ms: Callable[[], int]) -> None:
        self._host = host
        self._clock_ms = clock_ms

    def read(self) -> list[Reading]:
        """Return a reading of each package."""
        t_ms = self._clock_ms()
        return [
            Reading(f"cpu{package}", t_ms, self._host.energy_uj(package, t_ms), WRAP_UJ)
            for package in range(PACKAGES)
        ]


def host_with_jobs(seed: int, hours: float, *, uneven: float = 0.0) -> SimHost:
    """Return a node and its jobs; `uneven`: equal CPU time may draw this part more or less."""
    rng = random.Random(seed)
    t1_ms = T0_MS + round(hours * HOUR_MS)
    cpus = _slots()
    jobs = [
        job
        for nth, place in enumerate(cpus)
        for job in jobs_on(rng, place, 10_000 * nth + 1, T0_MS + 60_000, t1_ms)
    ]
    busy = {place: Trace() for place in cpus}
    draw = {place: Trace() for place in cpus}
    for job in jobs:
        full_mw = CORE_MW * len(cpus[job.place]) * rng.uniform(1 - uneven, 1 + uneven)
        for t_ms, permille in busy_steps(rng, job):
            busy[job.place].step(t_ms, permille)
            draw[job.place].step(t_ms, round(full_mw * permille / 1000))
    return SimHost(
        idle_mw=tuple(round(IDLE_MW * rng.uniform(0.85, 1.15)) for _ in range(PACKAGES)),
        cpus=cpus, busy=busy, draw=draw, services=_services(rng, t1_ms), jobs=tuple(jobs),
        t0_ms=T0_MS, t1_ms=t1_ms, base_uj=rng.randrange(WRAP_UJ),
    )  # fmt: skip


def _slots() -> dict[str, frozenset[int]]:
    """Return the slots with their cores."""
    free = {"0": iter(range(CORES)), "1": iter(range(CORES, 2 * CORES))}
    slots = {}
    for nth, (package, count) in enumerate(SLOTS):
        names = ("0", "1") if package == "both" else (package,)
        cpus = [next(free[name]) for name in names for _ in range(count // len(names))]
        slots[f"slot{nth}"] = frozenset(cpus)
    return slots


def _services(rng: random.Random, t1_ms: int) -> Trace:
    """Return the system's work in thousandths of a core: a little, with peaks."""
    trace, t_ms = Trace(), T0_MS
    while t_ms < t1_ms:
        trace.step(t_ms, rng.choice((20, 40, 60, 1_500)))
        t_ms += rng.randint(200, 20_000)
    return trace


def _scaled(trace: Trace, permille: int) -> Trace:
    return Trace((t_ms, value * permille // 1000) for t_ms, value in trace.steps())
