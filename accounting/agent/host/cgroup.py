# SPDX-License-Identifier: Apache-2.0
"""CPU time and memory of jobs and of the rest of the host, as control groups tell them.

Version 2: system.slice/slurmstepd.scope/JOB; version 1: cpuacct/slurm/uid_U/JOB. JOB is `job_N`
or, since Slurm 26.05, the SLUID of the run. With several slurmd on one host the scope or the
folder slurm has the node's name in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fairwatt.accounting.agent.host.small_file import read_small, whole_number
from fairwatt.accounting.agent.host.topology import cpu_list

__all__ = ["JOB_FOLDER", "Cgroups", "CgroupLook", "JobCgroup", "folder_names"]

JOB_FOLDER = r"job_\d+|s[0-9A-Z]{13}"
_JOB = re.compile(JOB_FOLDER)
NO_LIMIT = 1 << 60
"""Version 1 writes a number near 2^63 for "no limit"."""


@dataclass(frozen=True, slots=True)
class JobCgroup:
    """One job's group: CPU time in µs so far, memory in bytes now, what it may use of both."""

    cpu_us: int | None
    memory_bytes: int | None
    cpus: frozenset[int] = frozenset()
    memory_limit: int | None = None


@dataclass(frozen=True, slots=True)
class CgroupLook:
    """All groups at one moment; `all_jobs_us` goes on counting what ended jobs used.

    System is what is in no job: services, sessions, slurmd itself.
    """

    jobs: dict[str, JobCgroup]
    all_jobs_us: int | None = None
    system_us: int | None = None
    system_bytes: int | None = None


class _Tree(Protocol):
    """One version's places; each number is None where it cannot be read."""

    def jobs(self) -> Iterable[tuple[str, str]]:
        """Return (name, place) of each job's group."""

    def job(self, place: str) -> JobCgroup:
        """Return what a job's group says."""

    def totals(self) -> tuple[int | None, int | None, int | None]:
        """Return the CPU time of all jobs and of the system, and the system's memory."""


class Cgroups:
    """Reads the tree at `root` (/sys/fs/cgroup) as the slurmd of `node` leaves it."""

    def __init__(self, root: Path, node: str) -> None:
        self._root = root
        self._node = node

    def look(self) -> CgroupLook:
        """Return what all groups say now; without Slurm's groups nothing is known."""
        try:
            return self._looked()
        except OSError:  # the tree went while it was read
            return CgroupLook({})

    def _looked(self) -> CgroupLook:
        tree = _version_2(self._root, self._node) or _version_1(self._root, self._node)
        if tree is None:
            return CgroupLook({})
        jobs = {name: tree.job(place) for name, place in tree.jobs()}
        return CgroupLook(jobs, *tree.totals())


def folder_names(job_id: int, sluid: str | None) -> tuple[str, ...]:
    """Return the names that a run's group may have, the newer Slurm's first."""
    return (*([sluid] if sluid else []), f"job_{job_id}")


def _version_2(root: Path, node: str) -> _Tree | None:
    for name in ("slurmstepd.scope", f"{node}_slurmstepd.scope"):
        scope = root / "system.slice" / name
        if scope.is_dir():
            return _Two(root, scope)
    return None


def _version_1(root: Path, node: str) -> _Tree | None:
    for name in ("slurm", f"slurm_{node}"):
        if (root / "cpuacct" / name).is_dir():
            return _One(root, name)
    return None


class _Two:
    """Version 2: one tree."""

    def __init__(self, root: Path, scope: Path) -> None:
        self._root = root
        self._scope = scope

    def jobs(self) -> Iterator[tuple[str, str]]:
        for name in _names(self._scope):
            yield name, f"{self._scope}/{name}"

    def job(self, place: str) -> JobCgroup:
        return JobCgroup(
            _usage_us(place),
            _current(place),
            cpu_list(_text(f"{place}/cpuset.cpus.effective")),
            _limit(f"{place}/memory.max"),
        )

    def totals(self) -> tuple[int | None, int | None, int | None]:
        scope = str(self._scope)
        jobs_us = _usage_us(scope)
        tops = [str(p) for p in self._root.iterdir() if p.suffix in (".slice", ".scope")]
        return (
            jobs_us,
            _without(_sum(_usage_us, tops), jobs_us),
            _without(_sum(_current, tops), _current(scope)),
        )


class _One:
    """Version 1: a tree for each controller."""

    def __init__(self, root: Path, name: str) -> None:
        self._root = root
        self._name = name

    def jobs(self) -> Iterator[tuple[str, str]]:
        top = self._root / "cpuacct" / self._name
        for user in sorted(top.glob("uid_*")):
            for name in _names(user):
                yield name, f"{self._name}/{user.name}/{name}"

    def job(self, place: str) -> JobCgroup:
        memory = f"{self._root}/memory/{place}"
        return JobCgroup(
            _cpuacct_us(f"{self._root}/cpuacct/{place}"),
            _resident(memory),
            cpu_list(_text(f"{self._root}/cpuset/{place}/cpuset.cpus")),
            _limit(f"{memory}/memory.limit_in_bytes"),
        )

    def totals(self) -> tuple[int | None, int | None, int | None]:
        return (
            _cpuacct_us(f"{self._root}/cpuacct/{self._name}"),
            _sum(_cpuacct_us, self._others("cpuacct")),
            _sum(_resident, self._others("memory")),
        )

    def _others(self, controller: str) -> list[str]:
        found = sorted((self._root / controller).glob("*.slice"))
        return [str(path) for path in found if path.is_dir()]


def _names(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir() if _JOB.fullmatch(path.name))
    except OSError:
        return []


def _sum(read: Callable[[str], int | None], folders: Iterable[str]) -> int | None:
    known = [amount for folder in folders if (amount := read(folder)) is not None]
    return sum(known) if known else None


def _without(whole: int | None, part: int | None) -> int | None:
    return None if whole is None else max(0, whole - (part or 0))


def _usage_us(folder: str) -> int | None:
    return _field(_text(f"{folder}/cpu.stat"), "usage_usec")


def _current(folder: str) -> int | None:
    return _integer(f"{folder}/memory.current")


def _cpuacct_us(folder: str) -> int | None:
    usage_ns = _integer(f"{folder}/cpuacct.usage")
    return None if usage_ns is None else usage_ns // 1000


def _resident(folder: str) -> int | None:
    """Version 1 counts the page cache to whoever read a file first: the idle part is left out."""
    usage = _integer(f"{folder}/memory.usage_in_bytes")
    cache = _field(_text(f"{folder}/memory.stat"), "total_inactive_file")
    return None if usage is None else max(0, usage - (cache or 0))


def _limit(path: str) -> int | None:
    limit = _integer(path)
    return None if limit is None or limit >= NO_LIMIT else limit


def _field(text: str, name: str) -> int | None:
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return whole_number(value)
    return None


def _integer(path: str) -> int | None:
    return whole_number(_text(path))


def _text(path: str) -> str:
    """A group may go at any moment, and reading it then fails in one way or another."""
    try:
        return read_small(path)
    except OSError:
        return ""
