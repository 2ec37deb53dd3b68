# SPDX-License-Identifier: Apache-2.0
"""The memory that runs used at most, from the steps that sacct tells: MaxRSS by another name.

A run's peak is the largest of its steps' `TRESUsageInTot` memory, the sum of its tasks' peaks:
`TRESUsageInMax` is one task's alone, and of 32 tasks would look like a thirty-second of the truth.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, Protocol

from sqlite_utils import Database

from fairwatt.accounting.run_rows import LAST_BYTES
from fairwatt.accounting.store import get_meta, set_meta, transaction
from fairwatt.core.errors import GrammarError
from fairwatt.core.tres import parse_tres

__all__ = [
    "STEP_FIELDS",
    "StepPeak",
    "StepSource",
    "parse_steps",
    "read_step_memory",
    "step_peak",
    "store_peaks",
]

STEP_FIELDS = ("JobIDRaw", "Start", "TRESUsageInTot")
SLACK_S = 60
"""A step may begin this much before its run, by another clock."""
FIRST_READ_S = 86_400
OVERLAP_S = 600
"""slurmdbd may learn of a run's end so much later."""
LONGEST_READ_S = 86_400
MIB = 1 << 20
SAFE_DIGITS = 18


class StepPeak(NamedTuple):
    """The memory of one step: sum of its tasks' peaks in MiB."""

    job_id: int
    start_ts: int
    peak_mib: int


class StepSource(Protocol):
    """Where steps come from; `slurmdb.SlurmDb` is the real one."""

    def steps(self, since_ts: int, until_ts: int) -> list[StepPeak]:
        """Return the steps of runs that ended in [since, until]."""


def parse_steps(text: str, delimiter: str) -> list[StepPeak]:
    """Return the steps with known memory of a sacct output; jobs' own rows have none.

    Pure. In TRESUsage fields a memory without a suffix is in bytes.
    """
    steps = []
    for line in text.splitlines():
        cells = line.split(delimiter)
        if len(cells) != len(STEP_FIELDS):
            continue
        peak = step_peak(*cells)
        if peak is not None:
            steps.append(peak)
    return steps


def step_peak(step_id: str, start: str, usage: str) -> StepPeak | None:
    """Return a step by its number (`7.batch`), epoch start and TRESUsageInTot, None if unknown."""
    job, _, step = step_id.partition(".")
    peak_mib = _mib(usage)
    numbers = job.isdecimal() and start.isdecimal() and max(len(job), len(start)) <= SAFE_DIGITS
    if not step or not numbers or peak_mib is None:
        return None
    return StepPeak(int(job), int(start), peak_mib)


def read_step_memory(
    db: Database,
    source: StepSource,
    cluster: str,
    imported_ts: int,
    lock: AbstractContextManager[object] | None = None,
) -> int:
    """Store the peaks of runs that ended since the last time; returns how many were new.

    Goes on from where it was, at most a day at once.

    Args:
        db: the store.
        source: Slurm.
        cluster: whose runs they are.
        imported_ts: until when the runs themselves are stored.
        lock: held while the store is written, not while Slurm is asked.

    Raises:
        CommandError: Slurm does not answer.
    """
    key = f"sync.{cluster}.steps_ts"
    told = get_meta(db.conn, key)
    since_ts = imported_ts - FIRST_READ_S if told is None else int(told) - OVERLAP_S
    until_ts = min(imported_ts, since_ts + LONGEST_READ_S)
    steps = source.steps(since_ts, until_ts)
    with lock or nullcontext(), transaction(db) as connection:
        changed = store_peaks(connection, cluster, steps)
        set_meta(connection, key, str(until_ts))
    return changed


def store_peaks(connection: sqlite3.Connection, cluster: str, steps: Iterable[StepPeak]) -> int:
    """Write the peaks of the runs that the steps belong to, in the caller's transaction.

    The runs have to be stored before. Returns how many runs have a new peak.
    """
    by_job: dict[int, list[StepPeak]] = defaultdict(list)
    for step in steps:
        by_job[step.job_id].append(step)
    before = connection.total_changes
    rows = connection.execute(
        "SELECT run_id, job_id, start_ts, end_ts FROM run WHERE cluster = ?"
        " AND job_id IN (SELECT value FROM json_each(?)) AND end_ts IS NOT NULL",
        (cluster, json.dumps(sorted(by_job))),
    ).fetchall()
    connection.executemany(
        "INSERT INTO run_memory VALUES (?, ?) ON CONFLICT DO UPDATE SET"
        " peak_mib = excluded.peak_mib WHERE peak_mib < excluded.peak_mib",
        [
            (run_id, peak_mib)
            for run_id, job_id, start_ts, end_ts in rows
            if (peak_mib := _peak(by_job[job_id], start_ts, end_ts)) is not None
        ],
    )
    changed = connection.total_changes - before
    connection.execute(
        "INSERT OR IGNORE INTO unjudged SELECT DISTINCT e.run_id FROM run_energy e"
        " WHERE e.run_id IN (SELECT value FROM json_each(?))",
        (json.dumps([row[0] for row in rows]),),
    )
    return changed


def _peak(steps: Sequence[StepPeak], start_ts: int | None, end_ts: int) -> int | None:
    """The largest step within a run's time: a requeued job's tries share their number."""
    if start_ts is None:
        return None
    mine = [one.peak_mib for one in steps if start_ts - SLACK_S <= one.start_ts <= end_ts]
    return max(mine, default=None)


def _mib(text: str) -> int | None:
    try:
        used = parse_tres(text, bare_mem_bytes=1).mem_bytes
    except GrammarError:
        return None
    return -(-used // MIB) if used and used <= LAST_BYTES else None
