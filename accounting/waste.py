# SPDX-License-Identifier: Apache-2.0
"""What a run did with what it was given: one class a run, by positive evidence only. Pure.

Every rule is a conjunction of facts that are known: with less evidence fewer rules hold, never
others. The first rule that holds names the class, so less evidence never makes a stronger claim.

>>> judge(Evidence(state="COMPLETED", elapsed_s=3600, gpu_count=1, gpus=(GpuUse(850),),
...                util_known_permille=1000)).kind
<Waste.HEALTHY: 'healthy'>
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = [
    "Evidence",
    "GpuUse",
    "Limits",
    "Offer",
    "Rule",
    "Verdict",
    "Waste",
    "host_parts",
    "judge",
    "slowdown_permille",
    "smaller",
    "unused",
]

WHOLE = 1000


class Waste(enum.StrEnum):
    """The classes of runs."""

    MEMORY = "memory-bound"
    IDLE = "idle"
    OVER = "over-requested"
    STRAGGLER = "straggler"
    OFFLOAD = "host-offload"
    INPUT = "input-bound"
    COMMUNICATION = "communication-bound"
    HEALTHY = "healthy"
    UNKNOWN = "unknown"


class Rule(enum.Enum):
    """Why a run has its class: one member a rule, in the order in which they are tried."""

    OUT_OF_MEMORY = Waste.MEMORY, "out of memory"
    GPU_MEMORY_FULL = Waste.MEMORY, "GPU memory full at the failure"
    GPUS_IDLE = Waste.IDLE, "GPUs idle"
    GPUS_UNUSED = Waste.OVER, "some GPUs never used"
    SLOW_GPU = Waste.STRAGGLER, "a slow GPU"
    STATE_ON_HOST = Waste.OFFLOAD, "state kept in host memory"
    CPUS_FULL = Waste.INPUT, "CPUs full, GPUs waiting"
    SMALLER_GPU = Waste.OVER, "a smaller GPU does"
    GPUS_WAIT = Waste.COMMUNICATION, "GPUs busy at little power"
    HOST_FULL = Waste.MEMORY, "memory nearly full"
    WORKED = Waste.HEALTHY, "worked"
    HOST_LARGE = Waste.OVER, "CPUs, memory or time far above use"
    SHORT = Waste.UNKNOWN, "too short"
    UNSEEN = Waste.UNKNOWN, "not measured"
    UNCLEAR = Waste.UNKNOWN, "no cause seen"

    @property
    def kind(self) -> Waste:
        """The class that the rule names."""
        return self.value[0]


@dataclass(frozen=True)
class Limits:
    """The thresholds, in thousandths, seconds, MiB and cores; the settings `waste.*` of a site."""

    shortest_s: int = 300
    """Shorter runs are unknown: they mostly load and start."""
    known_permille: int = 800
    """For so much of the held GPU time the utilisation has to be known."""
    idle_permille: int = 50
    """Busy for less than this, a GPU is idle."""
    busy_permille: int = 500
    """Busy for this or more, GPUs (or, without GPUs, cores) are used well."""
    unused_permille: int = 10
    """A GPU that was busy for less than this, with little memory, was never used."""
    unused_mib: int = 1024
    """Memory that a program's mere start takes on a GPU."""
    cpu_full_permille: int = 850
    """Cores that are busy for this are the limit."""
    gpu_full_permille: int = 970
    """A GPU with so much of its memory in use is full."""
    offload_full_permille: int = 800
    """A GPU with so much of its memory in use may be why state went to the host."""
    offload_cpu_permille: int = 400
    """Cores that work for the GPUs on their state are busy for this at least."""
    wait_power_permille: int = 300
    """Busy GPUs that draw less than this between idle and their limit wait."""
    host_full_permille: int = 950
    """Of the memory: a little more and the run ends."""
    low_permille: int = 100
    """Cores or time used for less than this were asked far above use."""
    low_memory_permille: int = 250
    """Memory used for less than this was asked far above use."""
    spare_cpus: int = 8
    """Fewer spare cores are not worth a word."""
    spare_mib: int = 32_768
    """Less spare memory is not worth a word."""
    spare_time_s: int = 4 * 3600
    """A shorter time limit is not worth a word."""
    headroom_permille: int = 1200
    """A smaller GPU must have this part of the memory that was used."""
    slowdown_permille: int = 2000
    """On a smaller GPU a run may at worst take this part of its time."""


@dataclass(frozen=True)
class GpuUse:
    """One board of a run: busy part, largest memory, power between idle (0) and limit (1000)."""

    util_permille: int | None = None
    mem_max_mib: int | None = None
    power_permille: int | None = None


@dataclass(frozen=True)
class Evidence:
    """What is known of a run; None is unknown. Memory in MiB, amounts of the whole run.

    Attributes:
        gpu_count: devices held, slices too; 0: none, None: unknown.
        gpu_mem_mib: memory of one of its devices.
        gpus: one for each board; of several slices on a board, their mean.
        util_known_permille: part of the held GPU time with known utilisation.
        slow_permille: by how much its slow GPU was slower; None: none was seen to be.
        offers: smaller devices of the same model that the cluster has.
    """

    state: str = ""
    elapsed_s: int | None = None
    timelimit_s: int | None = None
    nnodes: int | None = None
    ncpus: int | None = None
    cpu_time_s: int | None = None
    mem_mib: int | None = None
    mem_peak_mib: int | None = None
    gpu_count: int | None = None
    gpu_mem_mib: int | None = None
    gpus: tuple[GpuUse, ...] = ()
    util_known_permille: int | None = None
    slow_permille: int | None = None
    offers: tuple[Offer, ...] = ()

    @property
    def util_permille(self) -> int | None:
        """Mean utilisation of its boards, None if one of them is unknown."""
        known = [gpu.util_permille for gpu in self.gpus if gpu.util_permille is not None]
        return sum(known) // len(known) if known and len(known) == len(self.gpus) else None

    @property
    def gpu_mem_max_mib(self) -> int | None:
        """The largest use of memory of any board, None if one of them is unknown."""
        known = [gpu.mem_max_mib for gpu in self.gpus if gpu.mem_max_mib is not None]
        return max(known) if known and len(known) == len(self.gpus) else None

    @property
    def cpu_permille(self) -> int | None:
        """How busy its cores were."""
        if self.cpu_time_s is None or not self.ncpus or not self.elapsed_s:
            return None
        return min(WHOLE, WHOLE * self.cpu_time_s // (self.ncpus * self.elapsed_s))


@dataclass(frozen=True)
class Offer:
    """A device that the cluster gives: its part of the device that the run had, in thousandths.

    The part is that of compute or of memory bandwidth, whichever is smaller.
    """

    gres_type: str
    memory_mib: int
    part_permille: int


@dataclass(frozen=True)
class Verdict:
    """The rule that holds, and the part of the GPU time that was wasted, in thousandths.

    `waste_permille` is what other requests or a mended program would have saved of the GPU time
    that was held; None: unknown, which is also so for runs without GPUs.
    """

    rule: Rule
    waste_permille: int | None

    @property
    def kind(self) -> Waste:
        """The class."""
        return self.rule.kind


def judge(run: Evidence, limits: Limits | None = None) -> Verdict:
    """Return the class of a run: the first rule that holds, and what was wasted."""
    limits = limits or Limits()
    if run.elapsed_s is None:
        return Verdict(Rule.UNSEEN, None)
    if run.elapsed_s < limits.shortest_s:
        return Verdict(Rule.SHORT, None)
    for rule, holds in _RULES:
        if holds(run, limits):
            return Verdict(rule, _wasted(rule, run, limits) if run.gpu_count else None)
    seen = run.util_permille is not None if run.gpu_count else run.cpu_permille is not None
    return Verdict(Rule.UNCLEAR if seen else Rule.UNSEEN, None)


def smaller(run: Evidence, limits: Limits | None = None) -> Offer | None:
    """Return the smallest device on which a run of one device would have done, if it is known.

    It holds the memory that was used with headroom, and if all work of the GPU took as many
    times longer as the device is smaller, the run would still not be slowed down too much.
    """
    limits = limits or Limits()
    used_mib, util = run.gpu_mem_max_mib, _util(run, limits)
    if run.gpu_count != 1 or used_mib is None or util is None or util >= limits.busy_permille:
        return None
    fitting = [
        offer
        for offer in run.offers
        if offer.memory_mib * WHOLE >= used_mib * limits.headroom_permille
        and slowdown_permille(util, offer) <= limits.slowdown_permille
    ]
    return min(fitting, key=lambda o: (o.part_permille, o.memory_mib, o.gres_type), default=None)


def slowdown_permille(util_permille: int, offer: Offer) -> int:
    """Return the longest time on an offer: 1000 is as long as it took."""
    return WHOLE - util_permille + util_permille * WHOLE // offer.part_permille


def _wasted(rule: Rule, run: Evidence, limits: Limits) -> int | None:
    util = run.util_permille
    match rule:
        case Rule.OUT_OF_MEMORY | Rule.GPU_MEMORY_FULL:
            return WHOLE
        case Rule.GPUS_UNUSED:
            return WHOLE * len(unused(run, limits)) // len(run.gpus)
        case Rule.SMALLER_GPU:
            offer = smaller(run, limits)
            return None if offer is None else WHOLE - offer.part_permille
        case Rule.SLOW_GPU:
            return run.slow_permille
        case Rule.GPUS_IDLE | Rule.STATE_ON_HOST | Rule.CPUS_FULL | Rule.GPUS_WAIT:
            return None if util is None else WHOLE - util
    return 0


def _util(run: Evidence, limits: Limits) -> int | None:
    """Mean utilisation, if it is known for long enough."""
    known = run.util_known_permille
    return run.util_permille if known is not None and known >= limits.known_permille else None


def _out_of_memory(run: Evidence, _limits: Limits) -> bool:
    return run.state == "OUT_OF_MEMORY"


def _gpu_memory_full(run: Evidence, limits: Limits) -> bool:
    return run.state == "FAILED" and any(
        _reaches(gpu.mem_max_mib, run.gpu_mem_mib, limits.gpu_full_permille) for gpu in run.gpus
    )


def _gpus_idle(run: Evidence, limits: Limits) -> bool:
    return _util(run, limits) is not None and all(
        gpu.util_permille is not None and gpu.util_permille < limits.idle_permille
        for gpu in run.gpus
    )


def unused(run: Evidence, limits: Limits) -> Sequence[GpuUse]:
    """Return the boards that are known never to have been used."""
    return [
        gpu
        for gpu in run.gpus
        if gpu.util_permille is not None
        and gpu.util_permille < limits.unused_permille
        and gpu.mem_max_mib is not None
        and gpu.mem_max_mib < limits.unused_mib
    ]


def _gpus_unused(run: Evidence, limits: Limits) -> bool:
    left = len(run.gpus) - len(unused(run, limits))
    whole = run.gpu_count is not None and len(run.gpus) == run.gpu_count
    return whole and _util(run, limits) is not None and 0 < left < len(run.gpus)


def _smaller_gpu(run: Evidence, limits: Limits) -> bool:
    return run.state == "COMPLETED" and smaller(run, limits) is not None


def _slow_gpu(run: Evidence, _limits: Limits) -> bool:
    return run.slow_permille is not None


def _waits_for_host(run: Evidence, limits: Limits) -> bool:
    util = _util(run, limits)
    return util is not None and limits.idle_permille <= util < limits.busy_permille


def _state_on_host(run: Evidence, limits: Limits) -> bool:
    if run.gpu_mem_mib is None or run.mem_peak_mib is None or not _waits_for_host(run, limits):
        return False
    full = limits.offload_full_permille
    return (
        all(_reaches(gpu.mem_max_mib, run.gpu_mem_mib, full) for gpu in run.gpus)
        and run.mem_peak_mib >= run.gpu_mem_mib * (run.gpu_count or 0)
        and _reaches(run.cpu_permille, WHOLE, limits.offload_cpu_permille)
    )


def _cpus_full(run: Evidence, limits: Limits) -> bool:
    return _waits_for_host(run, limits) and _reaches(
        run.cpu_permille, WHOLE, limits.cpu_full_permille
    )


def _gpus_wait(run: Evidence, limits: Limits) -> bool:
    spread = (run.nnodes or 0) > 1 and len(run.gpus) > 1
    return (
        spread
        and _util(run, limits) is not None
        and all(
            _reaches(gpu.util_permille, WHOLE, limits.busy_permille)
            and gpu.power_permille is not None
            and gpu.power_permille < limits.wait_power_permille
            for gpu in run.gpus
        )
    )


def _host_full(run: Evidence, limits: Limits) -> bool:
    return _reaches(run.mem_peak_mib, run.mem_mib, limits.host_full_permille)


def host_parts(run: Evidence, limits: Limits) -> tuple[bool, bool, bool]:
    """Return whether cores, memory and time limit were asked far above use."""
    cpu, cpus = run.cpu_permille, run.ncpus or 0
    few_cpus = cpu is not None and cpu < limits.low_permille
    spare_cpus = cpu is not None and cpus * (WHOLE - cpu) >= limits.spare_cpus * WHOLE
    peak, given = run.mem_peak_mib, run.mem_mib
    little = (
        peak is not None and given is not None
        and peak * WHOLE < given * limits.low_memory_permille
        and given - peak >= limits.spare_mib
    )  # fmt: skip
    limit_s, elapsed_s = run.timelimit_s, run.elapsed_s
    early = (
        run.state == "COMPLETED" and limit_s is not None and elapsed_s is not None
        and limit_s >= limits.spare_time_s
        and elapsed_s * WHOLE < limit_s * limits.low_permille
    )  # fmt: skip
    return few_cpus and spare_cpus, little, early


def _host_large(run: Evidence, limits: Limits) -> bool:
    return any(host_parts(run, limits))


def _worked(run: Evidence, limits: Limits) -> bool:
    if run.gpu_count is None:
        return False
    busy = _util(run, limits) if run.gpu_count else run.cpu_permille
    return _reaches(busy, WHOLE, limits.busy_permille)


def _reaches(part: int | None, whole: int | None, permille: int) -> bool:
    """Whether a known part is so many thousandths of a known whole, or more."""
    return part is not None and whole is not None and part * WHOLE >= whole * permille


_RULES: tuple[tuple[Rule, Callable[[Evidence, Limits], bool]], ...] = (
    (Rule.OUT_OF_MEMORY, _out_of_memory),
    (Rule.GPU_MEMORY_FULL, _gpu_memory_full),
    (Rule.GPUS_IDLE, _gpus_idle),
    (Rule.GPUS_UNUSED, _gpus_unused),
    (Rule.SLOW_GPU, _slow_gpu),
    (Rule.STATE_ON_HOST, _state_on_host),
    (Rule.CPUS_FULL, _cpus_full),
    (Rule.SMALLER_GPU, _smaller_gpu),
    (Rule.GPUS_WAIT, _gpus_wait),
    (Rule.HOST_FULL, _host_full),
    (Rule.WORKED, _worked),
    (Rule.HOST_LARGE, _host_large),
)
