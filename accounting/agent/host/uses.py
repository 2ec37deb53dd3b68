# SPDX-License-Identifier: Apache-2.0
"""What each run used of the host since the last windows: CPU time, and memory on average."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairwatt.accounting.agent.host.cgroup import CgroupLook, JobCgroup, folder_names
from fairwatt.accounting.agent.records import UseMark
from fairwatt.core.events import RunStarted

__all__ = ["Present", "RunUse", "SystemUse", "Uses"]

_Key = tuple[int, int]
_Mean = tuple[int, int]
"""Bytes × ms, and ms."""


@dataclass(frozen=True, slots=True)
class Present:
    """A run that was on this host for `ms` of the time since the last windows."""

    run: RunStarted
    ms: int


@dataclass(frozen=True, slots=True)
class RunUse:
    """CPU time in µs and mean bytes since the last windows, and what the run may use of both.

    None: not known; `cpus` empty: not told by its group.
    """

    cpu_us: int | None
    memory_bytes: int | None
    cpus: frozenset[int] = frozenset()
    memory_limit: int | None = None


@dataclass(frozen=True, slots=True)
class SystemUse:
    """The same of what belongs to no job; 0 where there are no such groups."""

    cpu_us: int
    memory_bytes: int


class Uses:
    """Remembers the last word of each run's group, since a group goes before its epilog comes."""

    def __init__(self) -> None:
        self._now = CgroupLook({})
        self._seen_ms: int | None = None
        self._last: dict[_Key, JobCgroup] = {}
        self._visible: set[_Key] = set()
        self._memory: dict[_Key, _Mean] = {}
        self._system: _Mean = (0, 0)

    def look(self, look: CgroupLook, t_ms: int, runs: Sequence[RunStarted]) -> None:
        """Take one look at all groups, with the runs that are open."""
        dt_ms = 0 if self._seen_ms is None else max(0, t_ms - self._seen_ms)
        self._now, self._seen_ms, self._visible = look, t_ms, set()
        for run in runs:
            group = _group(look.jobs, run)
            if group is not None:
                self._note((run.job_id, run.t_ms), group, dt_ms)
        self._system = _more(self._system, look.system_bytes, dt_ms)

    def _note(self, key: _Key, group: JobCgroup, dt_ms: int) -> None:
        self._visible.add(key)
        self._last[key] = group
        self._memory[key] = _more(self._memory.get(key, (0, 0)), group.memory_bytes, dt_ms)

    def since(
        self, mark: UseMark | None, present: Sequence[Present]
    ) -> tuple[list[RunUse], SystemUse]:
        """Return what each of the runs, and the system, used since the mark."""
        start = {(job_id, t_ms): cpu_us for job_id, t_ms, cpu_us in mark.runs} if mark else {}
        keys = [(one.run.job_id, one.run.t_ms) for one in present]
        used = self._with_tails(mark, present, [self._cpu_us(key, start) for key in keys])
        runs = [self._use(key, cpu_us) for key, cpu_us in zip(keys, used, strict=True)]
        system_us = _delta(mark.system_us, self._now.system_us) if mark else None
        return runs, SystemUse(system_us or 0, _mean(self._system, self._now.system_bytes) or 0)

    def mark(self, t_ms: int, runs: Sequence[RunStarted]) -> UseMark:
        """Begin anew at `t_ms`; forget the runs that are not open."""
        keys = [(run.job_id, run.t_ms) for run in runs]
        self._last = {key: self._last[key] for key in keys if key in self._last}
        self._memory, self._system = {}, (0, 0)
        return UseMark(
            t_ms=t_ms,
            runs=tuple(
                (*key, group.cpu_us)
                for key, group in self._last.items()
                if group.cpu_us is not None
            ),
            all_jobs_us=self._now.all_jobs_us,
            system_us=self._now.system_us,
        )

    def _cpu_us(self, key: _Key, start: Mapping[_Key, int]) -> int | None:
        group = self._last.get(key)
        if group is None or group.cpu_us is None:
            return None
        return max(0, group.cpu_us - start.get(key, 0))

    def _with_tails(
        self, mark: UseMark | None, present: Sequence[Present], used: list[int | None]
    ) -> list[int | None]:
        """Add what groups used after our last look at them: all jobs' time goes on counting it.

        It goes to the runs whose group is gone, by their CPUs and time.
        """
        total = _delta(mark.all_jobs_us, self._now.all_jobs_us) if mark else None
        gone = [(one.run.job_id, one.run.t_ms) not in self._visible for one in present]
        if total is None or not any(gone):
            return used
        weights = [
            (one.run.ncpus or 1) * max(1, one.ms) if is_gone else 0
            for one, is_gone in zip(present, gone, strict=True)
        ]
        rest, whole = max(0, total - sum(one or 0 for one in used)), sum(weights)
        return [
            (one or 0) + rest * weight // whole if weight else one
            for one, weight in zip(used, weights, strict=True)
        ]

    def _use(self, key: _Key, cpu_us: int | None) -> RunUse:
        group = self._last.get(key, JobCgroup(None, None))
        memory = _mean(self._memory.get(key, (0, 0)), group.memory_bytes)
        return RunUse(cpu_us, memory, group.cpus, group.memory_limit)


def _group(jobs: Mapping[str, JobCgroup], run: RunStarted) -> JobCgroup | None:
    for name in folder_names(run.job_id, run.sluid):
        if name in jobs:
            return jobs[name]
    return None


def _delta(before: int | None, now: int | None) -> int | None:
    """None where it fell: the groups were made anew."""
    if before is None or now is None or now < before:
        return None
    return now - before


def _more(mean: _Mean, amount: int | None, dt_ms: int) -> _Mean:
    return mean if amount is None else (mean[0] + amount * dt_ms, mean[1] + dt_ms)


def _mean(mean: _Mean, now: int | None) -> int | None:
    return mean[0] // mean[1] if mean[1] else now
