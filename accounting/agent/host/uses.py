# SPDX-License-Identifier: Apache-2.0
"""What each run used of the host since the last windows: CPU time, and memory on average."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
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
    """The same of what belongs to no job; 0 where there are no such groups.

    `strangers` are jobs that no run is known of, as when the agent came to a busy node.
    """

    cpu_us: int
    memory_bytes: int
    strangers: tuple[RunUse, ...] = ()


class Uses:
    """Remembers the last word of each run's group, since a group goes before its epilog comes.

    Where Slurm keeps no step of its own in a job (PrologFlags=contain), the group goes with each
    srun and is made anew by the next.
    """

    def __init__(self) -> None:
        self._now = CgroupLook({})
        self._seen_ms: int | None = None
        self._last: dict[_Key, JobCgroup] = {}
        self._visible: set[_Key] = set()
        self._torn: dict[_Key, int] = {}
        self._memory: dict[_Key, _Mean] = {}
        self._system: _Mean = (0, 0)
        self._strangers = Strangers()

    def look(self, look: CgroupLook, t_ms: int, runs: Sequence[RunStarted]) -> None:
        """Take one look at all groups, with the runs that are open.

        One at which nothing could be read tells nothing: no group went because of it.
        """
        if not look.jobs and look.all_jobs_us is None:
            self._now = look
            return
        dt_ms = 0 if self._seen_ms is None else max(0, t_ms - self._seen_ms)
        seen, self._visible = self._visible, set()
        self._now, self._seen_ms = look, t_ms
        for run in runs:
            group = _group(look.jobs, run)
            if group is not None:
                self._note((run.job_id, run.t_ms), group, dt_ms, seen)
        self._system = _more(self._system, look.system_bytes, dt_ms)
        self._strangers.look(look.jobs, dt_ms, _names(runs))

    def _note(self, key: _Key, group: JobCgroup, dt_ms: int, seen: Collection[_Key]) -> None:
        before = self._last.get(key)
        if before is not None and before.cpu_us is not None:
            if group.cpu_us is None:
                return  # it went while it was read
            if key not in seen or group.cpu_us < before.cpu_us:
                self._torn[key] = self._torn.get(key, 0) + before.cpu_us
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
        memory = _mean(self._system, self._now.system_bytes)
        strangers = self._strangers.since(_names(one.run for one in present))
        return runs, SystemUse(system_us or 0, memory or 0, strangers)

    def mark(self, t_ms: int, runs: Sequence[RunStarted]) -> UseMark:
        """Begin anew at `t_ms`; forget the runs that are not open."""
        keys = [(run.job_id, run.t_ms) for run in runs]
        self._last = {key: self._last[key] for key in keys if key in self._last}
        self._memory, self._system, self._torn = {}, (0, 0), {}
        self._strangers.mark(self._now.jobs)
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
        used_us = self._torn.get(key, 0) + group.cpu_us - start.get(key, 0)
        # Less than at the mark, which an agent before this one wrote: it was made anew meanwhile.
        return used_us if used_us >= 0 else group.cpu_us

    def _with_tails(
        self, mark: UseMark | None, present: Sequence[Present], used: list[int | None]
    ) -> list[int | None]:
        """Add what groups used after our last look at them: all jobs' time goes on counting it.

        It goes to the runs whose group is gone, or was made anew, by their CPUs and time.
        """
        total = _delta(mark.all_jobs_us, self._now.all_jobs_us) if mark else None
        keys = [(one.run.job_id, one.run.t_ms) for one in present]
        gone = [key in self._torn or key not in self._visible for key in keys]
        if total is None or not any(gone):
            return used
        weights = [
            (one.run.ncpus or 1) * max(1, one.ms) if is_gone else 0
            for one, is_gone in zip(present, gone, strict=True)
        ]
        strangers = self._strangers.since(_names(one.run for one in present))
        told = [*used, *(one.cpu_us for one in strangers)]
        rest, whole = max(0, total - sum(one or 0 for one in told)), sum(weights)
        return [
            (one or 0) + rest * weight // whole if weight else one
            for one, weight in zip(used, weights, strict=True)
        ]

    def _use(self, key: _Key, cpu_us: int | None) -> RunUse:
        group = self._last.get(key, JobCgroup(None, None))
        memory = _mean(self._memory.get(key, (0, 0)), group.memory_bytes)
        return RunUse(cpu_us, memory, group.cpus, group.memory_limit)


class Strangers:
    """Groups of jobs that no run is known of: what they used since the last windows.

    Else their neighbours would be charged with it. What they used before an agent's first look
    is not known.
    """

    def __init__(self) -> None:
        self._start: dict[str, int] | None = None
        self._last: dict[str, JobCgroup] = {}
        self._memory: dict[str, _Mean] = {}

    def look(self, jobs: Mapping[str, JobCgroup], dt_ms: int, known: Collection[str]) -> None:
        """Take a look; `known` are the names that open runs' groups may have."""
        if self._start is None:
            self.mark(jobs)
        for name in jobs.keys() - known:
            self._last[name] = jobs[name]
            before = self._memory.get(name, (0, 0))
            self._memory[name] = _more(before, jobs[name].memory_bytes, dt_ms)

    def since(self, known: Collection[str]) -> tuple[RunUse, ...]:
        """Return what each used since the mark; `known` as in `look`, of runs that ended too."""
        return tuple(
            self._use(name, group) for name, group in self._last.items() if name not in known
        )

    def mark(self, jobs: Mapping[str, JobCgroup]) -> None:
        """Begin anew."""
        self._start = {name: group.cpu_us or 0 for name, group in jobs.items()}
        self._last, self._memory = {}, {}

    def _use(self, name: str, group: JobCgroup) -> RunUse:
        start_us, cpu_us = (self._start or {}).get(name, 0), group.cpu_us or 0
        memory = _mean(self._memory.get(name, (0, 0)), group.memory_bytes)
        return RunUse(cpu_us - start_us if cpu_us >= start_us else cpu_us, memory, group.cpus)


def _names(runs: Iterable[RunStarted]) -> set[str]:
    """Return the names that the groups of these runs may have."""
    return {name for run in runs for name in folder_names(run.job_id, run.sluid)}


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
