# SPDX-License-Identifier: Apache-2.0
"""Compares the store with slurmdbd by day: runs that ended, CPU and GPU hours.

It changes nothing. Runs are compared one by one with sacct's; hours also with sreport's own sums,
where slurmdbd has made them.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

from fairwatt.accounting.days import day_bounds, day_of
from fairwatt.accounting.sacct import Rejected
from fairwatt.accounting.store import data_version
from fairwatt.core.errors import GrammarError
from fairwatt.core.records import Column, Run, Table
from fairwatt.core.tres import parse_tres

__all__ = ["AuditSource", "Audited", "audit", "audit_days", "audit_table", "past_days"]

SHOWN_JOBS = 8
SHOWN_CHARS = 60
ROLLED_TOLERANCE = 0.01
ROLLED_SLACK_S = 600
"""sreport's sums may differ by so much, and by so little time, without a word."""

UNTYPED = "untyped"
_HOUR_S = 3600

_ENDED = "r.end_ts >= ? AND r.end_ts < ? AND r.cluster = ? AND r.origin = 'slurm'"
_RUNS = (
    "SELECT r.job_id, r.submit_ts, r.start_ts,"  # noqa: S608
    f" coalesce(r.ncpus, 0) * coalesce(r.elapsed_s, 0) FROM run r WHERE {_ENDED}"
)
_GPUS = (
    "SELECT g.gpu_type, sum(g.count * (r.end_ts - r.start_ts))"  # noqa: S608
    f" FROM run r JOIN run_gpu g USING (run_id) WHERE {_ENDED} GROUP BY 1"
)

_Id = tuple[int, int, int | None]
"""Job id, submit time and start time: what both sides know of a run."""


class AuditSource(Protocol):
    """What the audit asks Slurm; `slurmdb.SlurmDb` is the real one."""

    def ended(self, since_ts: int, until_ts: int) -> Iterator[tuple[list[Run], list[Rejected]]]:
        """Yield the runs that ended in [since, until]."""

    def allocated_s(self, cluster: str, day: str, zone: ZoneInfo) -> dict[str, int]:
        """Return TRES-seconds of a local day by TRES name, as sreport sums them; {}: not yet."""


@dataclass(frozen=True)
class Difference:
    """One amount of a day that is not the same; `slurm` and `here` in runs or hours."""

    day: str
    what: str
    slurm: float
    here: float
    why: str


@dataclass(frozen=True)
class Audited:
    """What an audit compared and what it found."""

    days: Sequence[str]
    runs: int
    differences: Sequence[Difference]
    notes: Sequence[str]


@dataclass
class _Side:
    """One side's runs that ended on a day, and their TRES-seconds by name."""

    runs: set[_Id] = field(default_factory=set)
    seconds: Counter[str] = field(default_factory=Counter)
    rejected: list[Rejected] = field(default_factory=list)

    def add(self, run: Run) -> None:
        """Add a run of Slurm's."""
        self.runs.add((run.job_id, run.submit_ts, run.start_ts))
        if run.start_ts is None or run.end_ts is None:
            return
        self.seconds["cpu"] += (run.ncpus or 0) * (run.elapsed_s or 0)
        try:
            gpus = parse_tres(run.alloc_tres or "").gpus
        except GrammarError:
            return
        for gpu_type, count in gpus.items():
            self.seconds[_gpu(gpu_type)] += count * (run.end_ts - run.start_ts)


def past_days(count: int, now_ts: int, zone: ZoneInfo) -> list[str]:
    """Return the last `count` local days that are over, oldest first."""
    today = date.fromisoformat(day_of(now_ts, zone))
    return [(today - timedelta(days=back)).isoformat() for back in range(count, 0, -1)]


def audit(
    db: sqlite3.Connection,
    source: AuditSource,
    *,
    cluster: str,
    days: Sequence[str],
    zone: ZoneInfo,
) -> Audited:
    """Compare these local days; invented runs do not count.

    Raises:
        CommandError: Slurm does not answer.
    """
    found: list[Difference] = []
    notes: list[str] = []
    compared = 0
    for day in days:
        slurm, here = _slurm_side(source, day, zone), _our_side(db, cluster, day, zone)
        found += _unreadable(day, slurm)
        # It purges what is old: never a day after one that it still has.
        if here.runs and not slurm.runs and not compared:
            notes.append(
                f"slurmdbd has no run of {day}: it may have been purged, or this user may not"
                " see other users' jobs"
            )
            continue
        compared += len(slurm.runs)
        found += _ended(day, slurm, here)
        rolled = source.allocated_s(cluster, day, zone)
        if rolled:
            found += _rolled(day, rolled, _usage_s(db, cluster, day))
    return Audited(days, compared, found, notes)


def audit_table(done: Audited, version: int) -> Table:
    """Return the differences as a table; no row: all is equal."""
    span = f"{done.days[0]} to {done.days[-1]}" if done.days else "no day"
    return Table(
        name="audit",
        title=f"Differences to slurmdbd, {span}",
        columns=_COLUMNS,
        rows=[
            (one.day, one.what, one.slurm, one.here, one.here - one.slurm, one.why)
            for one in done.differences
        ],
        data_version=version,
        notes=[f"{len(done.days)} days with {done.runs} ended runs were compared", *done.notes],
    )


def audit_days(
    db: sqlite3.Connection,
    source: AuditSource,
    *,
    cluster: str,
    count: int,
    zone: ZoneInfo,
    now_ts: int,
) -> Table:
    """Compare the last `count` days that are over; as `audit`."""
    days = past_days(count, now_ts, zone)
    return audit_table(audit(db, source, cluster=cluster, days=days, zone=zone), data_version(db))


def _slurm_side(source: AuditSource, day: str, zone: ZoneInfo) -> _Side:
    side = _Side()
    start_ts, end_ts = day_bounds(day, zone)
    for runs, rejected in source.ended(start_ts, end_ts - 1):
        side.rejected += rejected
        for run in runs:
            if run.end_ts is not None and start_ts <= run.end_ts < end_ts:
                side.add(run)
    return side


def _our_side(db: sqlite3.Connection, cluster: str, day: str, zone: ZoneInfo) -> _Side:
    side = _Side()
    span = (*day_bounds(day, zone), cluster)
    for job_id, submit_ts, start_ts, cpu_s in db.execute(_RUNS, span):
        side.runs.add((job_id, submit_ts, start_ts))
        side.seconds["cpu"] += cpu_s if start_ts is not None else 0
    for gpu_type, device_s in db.execute(_GPUS, span):
        side.seconds[_gpu(gpu_type)] += device_s or 0
    return side


def _usage_s(db: sqlite3.Connection, cluster: str, day: str) -> dict[str, int]:
    """What the store's own rollup has for a day: what ran in it, not what ended."""
    cpu_s, device_s = db.execute(
        "SELECT coalesce(sum(cpu_s), 0), coalesce(sum(device_s), 0) FROM usage_daily"
        " WHERE day = ? AND cluster = ?",
        (day, cluster),
    ).fetchone()
    return {"cpu": cpu_s, "gres/gpu": device_s}


def _unreadable(day: str, slurm: _Side) -> Iterator[Difference]:
    """Rows that are no runs are in no store either: then the other amounts say nothing of them."""
    if slurm.rejected:
        count, first = len(slurm.rejected), slurm.rejected[0]
        yield Difference(
            day, "unreadable rows", count, 0, f"{first.reason}: {first.line[:SHOWN_CHARS]!r}"
        )


def _ended(day: str, slurm: _Side, here: _Side) -> Iterator[Difference]:
    why = "; ".join(
        f"only {where}: {_jobs(ids)}"
        for where, ids in (("in Slurm", slurm.runs - here.runs), ("here", here.runs - slurm.runs))
        if ids
    )
    if why:
        yield Difference(day, "ended runs", len(slurm.runs), len(here.runs), why)
    for name in sorted({*slurm.seconds, *here.seconds}):
        if slurm.seconds[name] != here.seconds[name]:
            hours = (slurm.seconds[name] / _HOUR_S, here.seconds[name] / _HOUR_S)
            yield Difference(
                day, f"{name} hours of ended runs", *hours, why or "the same runs, other amounts"
            )


def _rolled(day: str, rolled: dict[str, int], ours: dict[str, int]) -> Iterator[Difference]:
    for name, here_s in ours.items():
        slurm_s = rolled.get(name)
        if slurm_s is None:
            continue
        if abs(here_s - slurm_s) > max(ROLLED_SLACK_S, ROLLED_TOLERANCE * slurm_s):
            yield Difference(
                day,
                f"{name} hours of the day",
                slurm_s / _HOUR_S,
                here_s / _HOUR_S,
                "sreport and the daily sums differ by more than 1 %",
            )


def _jobs(ids: Iterable[_Id]) -> str:
    jobs = sorted({job_id for job_id, _, _ in ids})
    more = f" and {len(jobs) - SHOWN_JOBS} more" if len(jobs) > SHOWN_JOBS else ""
    return ", ".join(map(str, jobs[:SHOWN_JOBS])) + more


def _gpu(gpu_type: str | None) -> str:
    return f"gres/gpu:{gpu_type or UNTYPED}"


_COLUMNS = (
    Column(key="day", title="Day", kind="text", definition="Local day of the site."),
    Column(key="what", title="What", kind="text", definition="The amount that was compared."),
    Column(key="slurm", title="Slurm", kind="gpu_hours", definition="As slurmdbd has it."),
    Column(key="here", title="Here", kind="gpu_hours", definition="As the store has it."),
    Column(key="more", title="More here", kind="gpu_hours", definition="Here less Slurm's."),
    Column(key="why", title="Why", kind="text", definition="Which runs differ, or how."),
)
