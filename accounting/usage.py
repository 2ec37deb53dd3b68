# SPDX-License-Identifier: Apache-2.0
"""What one run adds to one local day: pure integer sums that tile over days without loss."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from fairwatt.accounting.carbon.slots import slots_of
from fairwatt.accounting.days import cut
from fairwatt.accounting.quality import RunFlag
from fairwatt.accounting.runs import GpuPart
from fairwatt.accounting.sacct import OPEN_STATES
from fairwatt.core.units import split_largest_remainder

__all__ = ["FAILED_STATES", "HourEnergy", "RolledRun", "Usage", "day_usage", "run_end"]

FAILED_STATES = frozenset(
    {
        *("BOOT_FAIL", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
        "TIMEOUT",
    }
)
"""States whose GPU time counts as lost. A requeued run is none: its next try goes on."""

EDGE_MS = 2000
"""Slurm's whole seconds and the node's clock differ by so much at a run's ends."""


class HourEnergy(NamedTuple):
    """One row of run_hour; hold-ms are None where only the energy is known (seeded runs)."""

    hour_ts: int
    idle_mj: int
    active_mj: int
    measured_ms: int | None
    util_ms: int | None
    busy_ms: int | None


@dataclass(frozen=True)
class RolledRun:
    """What the rollup needs of a run; `util_permille` is its mean, for hours that lack one.

    `evidence_ts` is the last second for which a node measured the run; `billing` are its units
    by the partition's TRESBillingWeights, None if Slurm does not tell them.
    """

    state: str
    flags: int
    eligible_ts: int | None
    start_ts: int | None
    end_ts: int | None
    suspended_s: int
    ncpus: int
    parts: Sequence[GpuPart]
    hours: Sequence[HourEnergy]
    util_permille: int | None
    evidence_ts: int | None
    billing: int | None = None


@dataclass
class Usage:
    """One row of usage_daily without its keys, in the table's order and units."""

    runs_ended: int = 0
    runs_failed: int = 0
    runs_cancelled: int = 0
    wait_s: int = 0
    waited_runs: int = 0
    cpu_s: int = 0
    device_s: int = 0
    gpu_milli_s: int = 0
    util_known_milli_s: int = 0
    used_milli_s: int = 0
    failed_milli_s: int = 0
    idle_mj: int = 0
    active_mj: int = 0
    unmeasured_milli_s: int = 0
    billing_s: int = 0
    energy_by_slot: dict[int, int] = field(default_factory=dict)

    def add(self, other: Usage) -> None:
        """Add another row's amounts to this one."""
        for name in _AMOUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.add_slots(other.energy_by_slot.items())

    def add_slots(self, energies: Iterable[tuple[int, int]]) -> None:
        """Add energies in mJ by the start of their quarter of an hour."""
        for slot_ts, energy_mj in energies:
            self.energy_by_slot[slot_ts] = self.energy_by_slot.get(slot_ts, 0) + energy_mj

    def amounts(self) -> tuple[int, ...]:
        """Return the summed columns in table order."""
        return tuple(getattr(self, name) for name in _AMOUNTS)


_AMOUNTS = tuple(item.name for item in fields(Usage) if item.name != "energy_by_slot")

NO_GPU = ""


def run_end(run: RolledRun, now_ts: int) -> int | None:
    """Return until when a run counts: its end, now, or for a runaway the last evidence."""
    if run.start_ts is None:
        return None
    if run.end_ts is not None:
        return run.end_ts
    if run.flags & RunFlag.RUNAWAY:
        return max(run.start_ts, run.evidence_ts or 0)
    return max(run.start_ts, now_ts)


def day_usage(run: RolledRun, a_ts: int, b_ts: int, now_ts: int) -> dict[str, Usage]:
    """Return what a run adds to the day [a, b), by GPU type ("" for a run without GPUs).

    What belongs to the whole run (counts, waiting, CPU time) goes to its largest part.
    """
    parts = sorted(run.parts, key=lambda part: (-(part.milli or 0), part.gpu_type))
    head = parts[0].gpu_type if parts else NO_GPU
    result = {part.gpu_type: _gpu_time(run, part, a_ts, b_ts, now_ts) for part in parts}
    whole = result.setdefault(head, Usage())
    whole.add(_events(run, a_ts, b_ts))
    whole.cpu_s += _running_seconds(run, run.ncpus, a_ts, b_ts, now_ts)
    whole.billing_s += _running_seconds(run, run.billing or 0, a_ts, b_ts, now_ts)
    _share_energy(run, parts, result, a_ts, b_ts, run_end(run, now_ts))
    return result


def _events(run: RolledRun, a_ts: int, b_ts: int) -> Usage:
    """Ends count on the day of the end, waits on the day of the start (or of the end)."""
    usage = Usage()
    if run.end_ts is not None and a_ts <= run.end_ts < b_ts and run.state not in OPEN_STATES:
        usage.runs_ended = 1
        usage.runs_failed = int(run.state in FAILED_STATES)
        usage.runs_cancelled = int(run.state == "CANCELLED")
    left_ts = run.end_ts if run.start_ts is None else run.start_ts
    if run.eligible_ts is not None and left_ts is not None and a_ts <= left_ts < b_ts:
        usage.wait_s = max(0, left_ts - run.eligible_ts)
        usage.waited_runs = 1
    return usage


def _running_seconds(run: RolledRun, units: int, a_ts: int, b_ts: int, now_ts: int) -> int:
    """Units (CPUs, billing) times seconds; suspended time is taken out, spread over the run."""
    end_ts = run_end(run, now_ts)
    if run.start_ts is None or end_ts is None:
        return 0
    total = units * max(0, end_ts - run.start_ts - run.suspended_s)
    return cut(total, run.start_ts, end_ts, a_ts, b_ts)


def _gpu_time(run: RolledRun, part: GpuPart, a_ts: int, b_ts: int, now_ts: int) -> Usage:
    """GPU time of one type: a suspended job keeps its GPUs, so suspension is not taken out."""
    usage = Usage()
    end_ts = run_end(run, now_ts)
    if run.start_ts is None or end_ts is None:
        return usage
    span_s = max(0, min(b_ts, end_ts) - max(a_ts, run.start_ts))
    usage.device_s = part.count * span_s
    if part.milli is None or span_s == 0:
        return usage
    usage.gpu_milli_s = part.milli * span_s
    if run.state in FAILED_STATES:
        usage.failed_milli_s = usage.gpu_milli_s
    _measured(
        run, part.milli, span_s, [hour for hour in run.hours if a_ts <= hour.hour_ts < b_ts], usage
    )
    return usage


def _measured(
    run: RolledRun, milli: int, span_s: int, hours: Sequence[HourEnergy], usage: Usage
) -> None:
    """How much of the GPU time has measured energy and known utilisation, and how busy it was."""
    holds_ms = span_s * 1000 * sum(part.count for part in run.parts)
    if hours and all(hour.measured_ms is None for hour in hours):
        measured_ms = holds_ms
        util_ms = 0 if run.util_permille is None else holds_ms
        busy_ms = util_ms * (run.util_permille or 0) // 1000
    else:
        measured_ms = min(holds_ms, sum(hour.measured_ms or 0 for hour in hours))
        util_ms = min(holds_ms, sum(hour.util_ms or 0 for hour in hours))
        busy_ms = min(util_ms, sum(hour.busy_ms or 0 for hour in hours))
    edge_ms = EDGE_MS * sum(part.count for part in run.parts)
    missing_ms = 0 if holds_ms - measured_ms <= edge_ms else holds_ms - measured_ms
    # A run that was never measured is missing as a whole, however short it is.
    missing_ms = holds_ms if measured_ms == 0 else missing_ms
    usage.unmeasured_milli_s = milli * span_s * missing_ms // holds_ms
    usage.util_known_milli_s = milli * span_s * util_ms // holds_ms
    usage.used_milli_s = milli * span_s * busy_ms // holds_ms


def _share_energy(
    run: RolledRun,
    parts: Sequence[GpuPart],
    result: Mapping[str, Usage],
    a_ts: int,
    b_ts: int,
    end_ts: int | None,
) -> None:
    """Give each hour's energy to the run's types by their part of boards, to the mJ."""
    names = [part.gpu_type for part in parts] or [NO_GPU]
    weights = [part.milli or 0 for part in parts] or [1]
    for hour in run.hours:
        if not a_ts <= hour.hour_ts < b_ts:
            continue
        idle = split_largest_remainder(hour.idle_mj, weights)
        active = split_largest_remainder(hour.active_mj, weights)
        for name, idle_mj, active_mj in zip(names, idle, active, strict=True):
            result[name].idle_mj += idle_mj
            result[name].active_mj += active_mj
            slots = slots_of(hour.hour_ts, idle_mj + active_mj, run.start_ts, end_ts)
            result[name].add_slots(slots)
