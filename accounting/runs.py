# SPDX-License-Identifier: Apache-2.0
"""Writes runs as Slurm tells them into the store: one row per run, however often it is read."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any
from zoneinfo import ZoneInfo

from fairwatt.accounting.days import days_between
from fairwatt.accounting.pieces import AND_EARLIER, UNSETTLE_FROM
from fairwatt.accounting.run_rows import COLUMNS, SEED_BIT, GpuPart, Row, Texts, gpu_parts, rows_of
from fairwatt.accounting.sacct_columns import Columns
from fairwatt.core.catalogue import Catalogue
from fairwatt.core.records import Run

__all__ = [
    "Changes",
    "GpuPart",
    "gpu_parts",
    "insert_runs",
    "lowered_restarts",
    "mark_days",
    "rank_restarts",
    "upsert_columns",
    "upsert_runs",
]

REQUEUE_GAP_S = 300
"""A run submitted this soon after another run of the same job ended continues it."""

_NAMES = ", ".join(COLUMNS)
_MARKS = ", ".join("?" * len(COLUMNS))
_INSERT = f"INSERT INTO job_run ({_NAMES}) VALUES ({_MARKS})"  # noqa: S608
_UPDATE = (
    f"UPDATE job_run SET {', '.join(f'{name} = ?' for name in COLUMNS)}"  # noqa: S608
    " WHERE run_id = ?"
)
_KNOWN = f"SELECT run_id, {_NAMES} FROM job_run WHERE cluster_id = ? AND job_id = ?"  # noqa: S608
_KNOWN_OF_MANY = (
    f"SELECT {_NAMES} FROM job_run"  # noqa: S608
    " WHERE job_id IN (SELECT value FROM json_each(?))"
)
_CLUSTER, _JOB = COLUMNS.index("cluster_id"), COLUMNS.index("job_id")

_Key = tuple[int, int]
_Span = tuple[int, int]


@dataclass(frozen=True)
class Changes:
    """What an import did: rows seen, and how many of them were new or different."""

    seen: int
    changed: int


def upsert_runs(
    connection: sqlite3.Connection,
    runs: Iterable[Run],
    catalogue: Catalogue,
    zone: ZoneInfo,
    now_ts: int,
) -> Changes:
    """Insert or update runs, mark the days they touch, and unsettle what nodes said of them.

    Runs in the caller's transaction. A row that says nothing new changes nothing.
    """
    return upsert_columns(
        connection, _by_column(list(runs)), Texts(connection, catalogue), zone, now_ts
    )


def upsert_columns(
    connection: sqlite3.Connection, told: Columns, texts: Texts, zone: ZoneInfo, now_ts: int
) -> Changes:
    """As `upsert_runs`, for runs by column: a third of the time, where there are many."""
    rows = rows_of(told, texts)
    spans = _spans_of(connection, texts.restated, now_ts)
    texts.restated.clear()
    known = _rows_by_job(connection, set(told["job_id"]))
    # What the store does not know, and what is told once, needs no thought.
    times = Counter(told["job_id"])
    is_new = [
        times[job_id] == 1 and not (known and (row[_CLUSTER], job_id) in known)
        for job_id, row in zip(told["job_id"], rows, strict=True)
    ]
    fresh = list(compress(rows, is_new))
    connection.executemany(_INSERT, fresh)
    jobs = set(compress(told["job_id"], is_new))
    spans += _spans(compress(told["start_ts"], is_new), compress(told["end_ts"], is_new), now_ts)
    changed = len(fresh)
    for number, new in enumerate(is_new):
        row = rows[number]
        same_job = known.get((row[_CLUSTER], row[_JOB]), ())
        if new or any(old[:-1] == row[:-1] for old in same_job):
            continue
        old_spans = _write_one(connection, row, told["restart_cnt"][number], now_ts)
        if old_spans is not None:
            spans += old_spans
            spans += _spans([told["start_ts"][number]], [told["end_ts"][number]], now_ts)
            jobs.add(row[_JOB])
            changed += 1
    _mark(connection, spans, jobs, zone)
    return Changes(len(rows), changed)


def insert_runs(
    connection: sqlite3.Connection, runs: Sequence[Run], catalogue: Catalogue, *, seeded: bool
) -> None:
    """Add runs that are in no store yet, numbered on in their order; marks nothing.

    Runs in the caller's transaction.
    """
    told = _by_column(runs)
    if seeded:
        told["flags"] = [flags | SEED_BIT for flags in told["flags"]]
    connection.executemany(_INSERT, rows_of(told, Texts(connection, catalogue)))


def _by_column(runs: Sequence[Run]) -> Columns:
    columns = zip(*runs, strict=True) if runs else ((),) * len(Run._fields)
    return dict(zip(Run._fields, columns, strict=True))


def mark_days(connection: sqlite3.Connection, start_ts: int, end_ts: int, zone: ZoneInfo) -> None:
    """Mark the local days of [start, end) for the rollups to recompute."""
    connection.executemany(
        "INSERT OR IGNORE INTO dirty_day VALUES (?)",
        [(day,) for day in days_between(start_ts, end_ts, zone)],
    )


def rank_restarts(runs: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the restart count of each run of one job id, ordered by submit and start.

    For releases whose sacct offers no Restarts: a run that was submitted when the one before
    it ended is its next try; anything else is another job under a reused id. A resized job goes on
    in the same try (22.05 gives its next record another submit time).
    """
    ranks: list[int] = []
    for index, run in enumerate(runs):
        before = runs[index - 1] if index else None
        if before is None or not _continues(before, run):
            ranks.append(0)
        elif before["state"] == "RESIZING" and before["submit_ts"] != run["submit_ts"]:
            ranks.append(ranks[-1])
        else:
            ranks.append(ranks[-1] + 1)
    return ranks


def lowered_restarts(runs: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the restart counts that sacct told, each at least one below that of the next try.

    Slurm 24.11 notes a run that is requeued within seconds with the count of the try after it.
    """
    counts = [int(run["restart_cnt"]) for run in runs]
    submits = [run["submit_ts"] for run in runs]
    for index in range(len(runs) - 2, -1, -1):
        # Several records of one submit are a resized job: their counts are places.
        alone = submits.count(submits[index]) == 1
        if alone and _continues(runs[index], runs[index + 1]):
            counts[index] = min(counts[index], max(0, counts[index + 1] - 1))
    return counts


def _continues(before: Mapping[str, Any], run: Mapping[str, Any]) -> bool:
    if before["submit_ts"] == run["submit_ts"]:
        return True
    end_ts = before["end_ts"]
    if end_ts is None or before["uid"] != run["uid"]:
        return False
    return bool(abs(run["submit_ts"] - end_ts) <= REQUEUE_GAP_S)


def _rows_by_job(connection: sqlite3.Connection, jobs: set[int]) -> dict[_Key, list[Row]]:
    """The stored rows of these jobs; of a history that is all new one look is enough."""
    if not _has_any(connection, "job_run", jobs):
        return {}
    known: dict[_Key, list[Row]] = {}
    for row in connection.execute(_KNOWN_OF_MANY, (json.dumps(sorted(jobs)),)):
        known.setdefault((row[_CLUSTER], row[_JOB]), []).append(row)
    return known


def _has_any(connection: sqlite3.Connection, table: str, jobs: set[int]) -> bool:
    """Whether a table may have one of these jobs: one look instead of thousands."""
    first = f"SELECT 1 FROM {table} WHERE job_id BETWEEN ? AND ? LIMIT 1"  # noqa: S608
    return bool(jobs) and connection.execute(first, (min(jobs), max(jobs))).fetchone() is not None


def _write_one(
    connection: sqlite3.Connection, row: Row, restart_cnt: int | None, now_ts: int
) -> list[_Span] | None:
    """Write a run of a job that has others, or is stored: the days it touched, None if no news."""
    values = dict(zip(COLUMNS, row, strict=True))
    known = _known(connection, values)
    match = _match(known, values, restart_cnt)
    if match is None:
        values["restart_cnt"] = _free_count(known, values)
        connection.execute(_INSERT, tuple(values.values()))
        spans = []
    else:
        # Settled when the run was first read, and by what is known of the other runs.
        values["restart_cnt"] = match["restart_cnt"]
        news = {name for name in COLUMNS if match[name] != values[name]}
        if news:
            connection.execute(_UPDATE, (*values.values(), match["run_id"]))
        # A run that goes on is longer each time: its days are marked by the clock, not here.
        if not news or (news == {"elapsed_off_s"} and values["end_ts"] is None):
            return None
        spans = _spans([_start_ts(match)], [match["end_ts"]], now_ts)
    if known:
        _rerank(
            connection, values, ranked=rank_restarts if restart_cnt is None else lowered_restarts
        )
    return spans


def _known(connection: sqlite3.Connection, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    names = ("run_id", *COLUMNS)
    rows = connection.execute(_KNOWN, (values["cluster_id"], values["job_id"]))
    return [dict(zip(names, row, strict=True)) for row in rows]


def _match(
    known: Sequence[dict[str, Any]], values: Mapping[str, Any], restart_cnt: int | None
) -> dict[str, Any] | None:
    """The stored row of this run: by Slurm's number if it is told, else by submit and count."""
    same = [old for old in known if old["submit_ts"] == values["submit_ts"]]
    if values["record_id"] is not None:
        exact = [old for old in same if old["record_id"] == values["record_id"]]
        if exact:
            return exact[0]
        same = [old for old in same if old["record_id"] is None]
    if restart_cnt is not None:
        same = [old for old in same if old["restart_cnt"] == restart_cnt]
    return same[0] if same else None


def _free_count(known: Sequence[Mapping[str, Any]], values: Mapping[str, Any]) -> int:
    """A resized job has several records of one submit: the later ones take the next counts."""
    taken = {old["restart_cnt"] for old in known if old["submit_ts"] == values["submit_ts"]}
    count = int(values["restart_cnt"])
    while count in taken:
        count += 1
    return count


def _start_ts(values: Mapping[str, Any]) -> int | None:
    off_s = values["start_off_s"]
    return None if off_s is None else int(values["submit_ts"] + off_s)


def _spans(starts: Iterable[int | None], ends: Iterable[int | None], now_ts: int) -> list[_Span]:
    """The times that runs count in: one that never ran, the moment of its end."""
    return [
        (end_ts, end_ts + 1)
        if start_ts is None and end_ts is not None
        else (start_ts or 0, (end_ts or max(start_ts or 0, now_ts)) + 1)
        for start_ts, end_ts in zip(starts, ends, strict=True)
        if start_ts is not None or end_ts is not None
    ]


def _spans_of(connection: sqlite3.Connection, tres_ids: Sequence[int], now_ts: int) -> list[_Span]:
    """The times of all runs with TRES that mean something else since the catalogue changed."""
    if not tres_ids:
        return []
    rows = connection.execute(
        "SELECT submit_ts + start_off_s, end_ts FROM job_run"
        " WHERE alloc_tres_id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(tres_ids)),),
    ).fetchall()
    if not rows:
        return []
    starts, ends = zip(*rows, strict=True)
    return _spans(starts, ends, now_ts)


def _mark(
    connection: sqlite3.Connection, spans: Iterable[_Span], jobs: set[int], zone: ZoneInfo
) -> None:
    """Days of old and new versions need a rollup; what nodes said of these jobs a new match."""
    for start_ts, end_ts in _merged(spans):
        mark_days(connection, start_ts, end_ts, zone)
    if not _has_any(connection, "node_run", jobs):
        return
    connection.execute(
        f"{UNSETTLE_FROM} SELECT node, job_id, start_ms, 0 FROM node_run"  # noqa: S608
        f" WHERE job_id IN (SELECT value FROM json_each(?)) {AND_EARLIER}",
        (json.dumps(sorted(jobs)),),
    )


def _merged(spans: Iterable[_Span]) -> list[_Span]:
    """The same time in as few spans as it takes, in order."""
    merged: list[_Span] = []
    for start_ts, end_ts in sorted(spans):
        if merged and start_ts <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end_ts, merged[-1][1]))
        else:
            merged.append((start_ts, end_ts))
    return merged


def _rerank(
    connection: sqlite3.Connection,
    values: Mapping[str, Any],
    ranked: Callable[[Sequence[Mapping[str, Any]]], list[int]],
) -> None:
    names = ("run_id", "submit_ts", "start_ts", "end_ts", "uid", "state", "restart_cnt")
    rows = connection.execute(
        f"SELECT {', '.join(names)} FROM run WHERE job_id = ?"  # noqa: S608
        " AND cluster = (SELECT text FROM word WHERE id = ?)",
        (values["job_id"], values["cluster_id"]),
    )
    runs = sorted(
        (dict(zip(names, row, strict=True)) for row in rows),
        key=lambda one: (one["submit_ts"], one["start_ts"] or 2**62, one["run_id"]),
    )
    changed = [
        (rank, one["run_id"])
        for rank, one in zip(ranked(runs), runs, strict=True)
        if rank != one["restart_cnt"]
    ]
    # Through negative counts: two records of one submit may have to change places.
    connection.executemany("UPDATE job_run SET restart_cnt = -1 - ? WHERE run_id = ?", changed)
    connection.executemany("UPDATE job_run SET restart_cnt = ? WHERE run_id = ?", changed)
