# SPDX-License-Identifier: Apache-2.0
"""Writes runs as Slurm tells them into the store: one row per run, however often it is read."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from fairwatt.accounting.days import days_between
from fairwatt.accounting.quality import RunFlag
from fairwatt.accounting.sacct import SacctRun
from fairwatt.core.catalogue import Catalogue
from fairwatt.core.errors import GrammarError
from fairwatt.core.records import Run
from fairwatt.core.tres import parse_tres

__all__ = [
    "Changes",
    "GpuPart",
    "gpu_parts",
    "lowered_restarts",
    "mark_days",
    "rank_restarts",
    "upsert_runs",
]

REQUEUE_GAP_S = 300
"""A run submitted this soon after another run of the same job ended continues it."""

UNTYPED = "untyped"
WHOLE_MILLI = 1000

_PLAIN = tuple(field for field in Run.__struct_fields__ if field != "key")
_COLUMNS = (
    *("cluster", "job_id", "submit_ts", "restart_cnt"),
    *_PLAIN,
    *("gpu_milli", "db_index", "flags", "decision_id"),
)
_SELECT = f"SELECT run_id, {', '.join(_COLUMNS)} FROM run WHERE cluster = ? AND job_id = ?"  # noqa: S608
_INSERT = (
    f"INSERT INTO run ({', '.join(_COLUMNS)})"  # noqa: S608
    f" VALUES ({', '.join(f':{name}' for name in _COLUMNS)})"
)
_UPDATE = (
    f"UPDATE run SET {', '.join(f'{name} = :{name}' for name in _COLUMNS)}"  # noqa: S608
    " WHERE run_id = :run_id"
)


class _WithId(msgspec.Struct):
    id: str = ""


@dataclass(frozen=True)
class Changes:
    """What an import did: rows seen, and how many of them were new or different."""

    seen: int
    changed: int


@dataclass(frozen=True)
class GpuPart:
    """A run's devices of one GRES type; `milli` is for all of them, None if unknown."""

    gpu_type: str
    count: int
    milli: int | None


def upsert_runs(
    connection: sqlite3.Connection,
    rows: Iterable[SacctRun],
    catalogue: Catalogue,
    zone: ZoneInfo,
    now_ts: int,
) -> Changes:
    """Insert or update runs, mark the days they touch, and unsettle what nodes said of them.

    Runs in the caller's transaction. A row that says nothing new changes nothing.
    """
    seen = changed = 0
    for row in rows:
        seen += 1
        changed += _upsert(connection, row, catalogue, zone, now_ts)
    return Changes(seen, changed)


def gpu_parts(alloc_tres: str | None, catalogue: Catalogue) -> tuple[list[GpuPart], RunFlag]:
    """Return a run's GPUs by type and what is doubtful about them; never raises."""
    try:
        gpus = parse_tres(alloc_tres or "").gpus
    except GrammarError:
        return [], RunFlag.TRES_UNREADABLE
    parts, flags = [], RunFlag(0)
    for gpu_type, count in gpus.items():
        milli = WHOLE_MILLI if gpu_type is None else catalogue.milli_of_type(gpu_type)
        if gpu_type is None:
            flags |= RunFlag.GPU_TYPE_ASSUMED
        elif milli is None:
            flags |= RunFlag.GPU_TYPE_UNKNOWN
        parts.append(GpuPart(gpu_type or UNTYPED, count, None if milli is None else milli * count))
    return parts, flags


def mark_days(connection: sqlite3.Connection, start_ts: int, end_ts: int, zone: ZoneInfo) -> None:
    """Mark the local days of [start, end) for the rollups to recompute."""
    connection.executemany(
        "INSERT OR IGNORE INTO dirty_day VALUES (?)",
        [(day,) for day in days_between(start_ts, end_ts, zone)],
    )


def rank_restarts(runs: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the restart count of each run of one job id, ordered by submit and start.

    For releases whose sacct offers no Restarts: a run that was submitted when the one before
    it ended is its next try; anything else is another job under a reused id.
    """
    ranks: list[int] = []
    for index, run in enumerate(runs):
        before = runs[index - 1] if index else None
        ranks.append(ranks[-1] + 1 if before is not None and _continues(before, run) else 0)
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


def _upsert(
    connection: sqlite3.Connection,
    row: SacctRun,
    catalogue: Catalogue,
    zone: ZoneInfo,
    now_ts: int,
) -> bool:
    parts, flags = gpu_parts(row.run.alloc_tres, catalogue)
    values = _values(row, parts, flags)
    known = _known(connection, row.run.key.cluster, row.run.key.job_id)
    match = _match(known, row)
    if match is None:
        values["restart_cnt"] = _free_count(known, values)
        run_id = connection.execute(_INSERT, values).lastrowid
    else:
        run_id = match["run_id"]
        # Settled when the run was first read, and by what is known of the other runs.
        values["restart_cnt"] = match["restart_cnt"]
        if all(match[name] == values[name] for name in _COLUMNS):
            return False
        connection.execute(_UPDATE, {**values, "run_id": run_id})
    _write_parts(connection, int(run_id or 0), parts)
    _mark(connection, [values] if match is None else [match, values], zone, now_ts)
    if known:
        _rerank(connection, row)
    return True


def _values(row: SacctRun, parts: Sequence[GpuPart], flags: RunFlag) -> dict[str, Any]:
    values: dict[str, Any] = {**msgspec.structs.asdict(row.run.key)}
    values.update((name, getattr(row.run, name)) for name in _PLAIN)
    millis = [part.milli for part in parts]
    known = [milli for milli in millis if milli is not None]
    unreadable = RunFlag.TRES_UNREADABLE in flags | row.flags
    values["gpu_milli"] = None if unreadable or len(known) < len(millis) else sum(known)
    values["db_index"] = row.db_index
    values["flags"] = int(row.flags | flags)
    values["decision_id"] = _decision_id(row.run.decision)
    return values


def _decision_id(decision: str | None) -> str | None:
    """The id of the submit policy's decision; older ones have none."""
    try:
        found = msgspec.json.decode(decision or "{}", type=_WithId)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return None
    return found.id or None


def _known(connection: sqlite3.Connection, cluster: str, job_id: int) -> list[dict[str, Any]]:
    names = ("run_id", *_COLUMNS)
    rows = connection.execute(_SELECT, (cluster, job_id))
    return [dict(zip(names, row, strict=True)) for row in rows]


def _match(known: Sequence[dict[str, Any]], row: SacctRun) -> dict[str, Any] | None:
    """The stored row of this run: by SLUID or database index if any, else by submit and count."""
    same = [old for old in known if old["submit_ts"] == row.run.key.submit_ts]
    for name, value in (("sluid", row.run.sluid), ("db_index", row.db_index)):
        if value is None:
            continue
        exact = [old for old in same if old[name] == value]
        if exact:
            return exact[0]
        same = [old for old in same if old[name] is None]
    if row.restarts_known:
        same = [old for old in same if old["restart_cnt"] == row.run.key.restart_cnt]
    return same[0] if same else None


def _free_count(known: Sequence[Mapping[str, Any]], values: Mapping[str, Any]) -> int:
    """A resized job has several records of one submit: the later ones take the next counts."""
    taken = {old["restart_cnt"] for old in known if old["submit_ts"] == values["submit_ts"]}
    count = int(values["restart_cnt"])
    while count in taken:
        count += 1
    return count


def _write_parts(connection: sqlite3.Connection, run_id: int, parts: Sequence[GpuPart]) -> None:
    connection.execute("DELETE FROM run_gpu WHERE run_id = ?", (run_id,))
    connection.executemany(
        "INSERT INTO run_gpu (run_id, gpu_type, count, milli) VALUES (?, ?, ?, ?)",
        [(run_id, part.gpu_type, part.count, part.milli) for part in parts],
    )


def _mark(
    connection: sqlite3.Connection,
    versions: Sequence[Mapping[str, Any]],
    zone: ZoneInfo,
    now_ts: int,
) -> None:
    """Days of the old and the new version need a rollup; node runs of this job a new match."""
    for version in versions:
        start_ts, end_ts = version["start_ts"], version["end_ts"]
        if start_ts is not None:
            mark_days(connection, start_ts, (end_ts or max(start_ts, now_ts)) + 1, zone)
        elif end_ts is not None:
            mark_days(connection, end_ts, end_ts + 1, zone)
    connection.execute(
        "INSERT OR IGNORE INTO unsettled SELECT node, job_id, start_ms FROM node_run"
        " WHERE job_id = ?",
        (versions[0]["job_id"],),
    )


def _rerank(connection: sqlite3.Connection, row: SacctRun) -> None:
    ranked = lowered_restarts if row.restarts_known else rank_restarts
    runs = sorted(
        _known(connection, row.run.key.cluster, row.run.key.job_id),
        key=lambda run: (run["submit_ts"], run["start_ts"] or 2**62, run["run_id"]),
    )
    changed = [
        (rank, run["run_id"])
        for rank, run in zip(ranked(runs), runs, strict=True)
        if rank != run["restart_cnt"]
    ]
    # Through negative counts: two records of one submit may have to change places.
    connection.executemany("UPDATE run SET restart_cnt = -1 - ? WHERE run_id = ?", changed)
    connection.executemany("UPDATE run SET restart_cnt = ? WHERE run_id = ?", changed)
