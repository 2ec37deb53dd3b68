# SPDX-License-Identifier: Apache-2.0
"""Reads what the store knows of runs as evidence, judges them, and keeps their classes.

A run is judged when its energy has been settled anew; only then, and when the site's limits
change, can its class be another one.
"""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from zoneinfo import ZoneInfo

from sqlite_utils import Database

from fairwatt.accounting.advice import Advice, Names, advise
from fairwatt.accounting.offers import Held, Offers, read_offers
from fairwatt.accounting.rollup import rolled_until
from fairwatt.accounting.runs import mark_days
from fairwatt.accounting.store import get_meta, set_meta, transaction
from fairwatt.accounting.waste import Evidence, GpuUse, Limits, Verdict, judge
from fairwatt.core.catalogue import Catalogue, GpuModel
from fairwatt.core.errors import CatalogueError

__all__ = ["Judged", "judge_runs", "judgements"]

BATCH = 500
RULES_VERSION = 1
"""Grows when the rules change, so that all runs are judged anew."""
_JUDGED_BY = "waste_judged_by"

_RUNS = """
    SELECT run_id, state, elapsed_s, timelimit_s, nnodes, ncpus, cpu_time_s, mem_mib,
           alloc_tres, start_ts, end_ts
    FROM run WHERE run_id IN (SELECT value FROM json_each(?))"""
_PARTS = """
    SELECT run_id, gpu_type, count, milli FROM run_gpu
    WHERE run_id IN (SELECT value FROM json_each(?)) ORDER BY run_id, gpu_type"""
_BOARDS = """
    SELECT e.run_id, e.device_uuid, e.model, e.util_permille, e.idle_mj + e.active_mj,
           e.measured_s, coalesce(d.mig_enabled, 0)
    FROM run_energy e LEFT JOIN device d USING (device_uuid)
    WHERE e.run_id IN (SELECT value FROM json_each(?)) AND coalesce(d.kind, 'gpu') = 'gpu'
    ORDER BY e.run_id, e.device_uuid"""
_MEMORY = """
    SELECT run_id, device_uuid, max_mib FROM run_gpu_memory
    WHERE run_id IN (SELECT value FROM json_each(?))"""
_SUM_MEMORY = """
    INSERT OR REPLACE INTO run_gpu_memory
    SELECT n.run_id, c.device_uuid, max(c.memory_max_mib), sum(c.memory_mib_ms) / sum(c.memory_ms)
    FROM node_run n JOIN use_cell c
      ON c.node = n.node AND c.job_id = n.job_id AND c.run_start_ms = n.start_ms
    WHERE n.run_id IN (SELECT value FROM json_each(?)) AND c.memory_ms > 0
    GROUP BY n.run_id, c.device_uuid"""
_KNOWN = """
    SELECT run_id, sum(util_ms) FROM run_hour
    WHERE run_id IN (SELECT value FROM json_each(?)) GROUP BY run_id"""
_PEAKS = """
    SELECT run_id, peak_mib FROM run_memory
    WHERE run_id IN (SELECT value FROM json_each(?))"""
# The slowest rank of a run that was judged to wait for one.
_SLOW = """
    SELECT p.run_id, r.lag_permille, r.node FROM run_pace p JOIN rank_pace r USING (run_id)
    WHERE p.run_id IN (SELECT value FROM json_each(?)) AND p.state = 'straggler'
      AND r.lag_permille IS NOT NULL
    ORDER BY p.run_id, r.lag_permille"""


@dataclasses.dataclass(frozen=True)
class Judged:
    """One run's class, its evidence, and both in words."""

    run: Evidence
    verdict: Verdict
    words: Advice


def judge_runs(
    db: Database,
    catalogue: Catalogue,
    limits: Limits,
    zone: ZoneInfo,
    lock: AbstractContextManager[object] | None = None,
) -> int:
    """Judge all runs with news, in batches; returns how many were judged.

    The days of runs with another class than before are marked for the rollup.
    """
    with lock or nullcontext(), transaction(db) as connection:
        _judge_all_anew(connection, limits)
    judged = 0
    while True:
        with lock or nullcontext(), transaction(db) as connection:
            batch = [run_id for (run_id,) in connection.execute(
                "SELECT run_id FROM unjudged ORDER BY run_id LIMIT ?", (BATCH,)
            )]  # fmt: skip
            if not batch:
                return judged
            connection.execute(_SUM_MEMORY, (json.dumps(batch),))
            _write(connection, batch, judgements(connection, batch, catalogue, limits), zone)
            judged += len(batch)


def judgements(
    connection: sqlite3.Connection,
    run_ids: Sequence[int],
    catalogue: Catalogue,
    limits: Limits | None = None,
) -> dict[int, Judged]:
    """Return the judgement on each of these runs. The caller has checked the asker's scope."""
    limits = limits or Limits()
    offers = read_offers(connection, catalogue)
    result = {}
    for run_id, (run, names) in _evidence(connection, run_ids, catalogue, offers).items():
        verdict = judge(run, limits)
        result[run_id] = Judged(run, verdict, advise(run, verdict, names, limits))
    return result


def _judge_all_anew(connection: sqlite3.Connection, limits: Limits) -> None:
    by = json.dumps([RULES_VERSION, dataclasses.asdict(limits)])
    if get_meta(connection, _JUDGED_BY) != by:
        connection.execute("INSERT OR IGNORE INTO unjudged SELECT run_id FROM run_energy")
        set_meta(connection, _JUDGED_BY, by)


def _write(
    connection: sqlite3.Connection, batch: Sequence[int], found: dict[int, Judged], zone: ZoneInfo
) -> None:
    wanted = json.dumps(list(batch))
    old = {
        run_id: (kind, permille)
        for run_id, kind, permille in connection.execute(
            "SELECT run_id, class, waste_permille FROM run_waste"
            " WHERE run_id IN (SELECT value FROM json_each(?))",
            (wanted,),
        )
    }
    new = {n: (str(one.verdict.kind), one.verdict.waste_permille) for n, one in found.items()}
    changed = [run_id for run_id, row in new.items() if old.get(run_id) != row]
    connection.executemany(
        "INSERT OR REPLACE INTO run_waste VALUES (?, ?, ?)",
        [(run_id, *new[run_id]) for run_id in changed],
    )
    for start_ts, end_ts in connection.execute(
        "SELECT start_ts, end_ts FROM run WHERE run_id IN (SELECT value FROM json_each(?))"
        " AND start_ts IS NOT NULL",
        (json.dumps(changed),),
    ).fetchall():
        # A run that goes on counts in the rollups so far.
        until_ts = max(start_ts, end_ts or rolled_until(connection) or 0)
        mark_days(connection, start_ts, until_ts + 1, zone)
    connection.execute(
        "DELETE FROM unjudged WHERE run_id IN (SELECT value FROM json_each(?))", (wanted,)
    )


def _evidence(
    connection: sqlite3.Connection, run_ids: Iterable[int], catalogue: Catalogue, offers: Offers
) -> dict[int, tuple[Evidence, Names]]:
    ids = (json.dumps(list(run_ids)),)
    parts = _grouped(connection.execute(_PARTS, ids))
    boards = _grouped(connection.execute(_BOARDS, ids))
    memory = {(run, device): mib for run, device, mib in connection.execute(_MEMORY, ids)}
    known_ms = dict(connection.execute(_KNOWN, ids))
    peaks = dict(connection.execute(_PEAKS, ids))
    slow = {run: (lag, node) for run, lag, node in connection.execute(_SLOW, ids)}
    result = {}
    for run_id, *facts in connection.execute(_RUNS, ids).fetchall():
        of_run = boards.get(run_id, [])
        gpus = tuple(_use(row, memory.get((run_id, row[0])), catalogue) for row in of_run)
        base = _base(facts, parts.get(run_id, []))
        lag, node = slow.get(run_id, (None, None))
        held = Held(
            _only(row[0] for row in parts.get(run_id, [])), _only(row[1] for row in of_run)
        )
        names = offers.names(held, slow_node=node)
        run = dataclasses.replace(
            base,
            mem_peak_mib=peaks.get(run_id),
            gpus=gpus,
            gpu_mem_mib=offers.memory_mib(held),
            util_known_permille=_known_permille(base, of_run, known_ms.get(run_id)),
            slow_permille=lag,
            offers=offers.smaller_than(held),
        )
        result[run_id] = run, names
    return result


def _grouped(rows: Iterable[tuple[Any, ...]]) -> dict[int, list[tuple[Any, ...]]]:
    result: dict[int, list[tuple[Any, ...]]] = {}
    for run_id, *row in rows:
        result.setdefault(run_id, []).append(tuple(row))
    return result


def _base(facts: Sequence[Any], parts: Sequence[tuple[Any, ...]]) -> Evidence:
    """What Slurm tells; without its AllocTRES it is not known whether there were GPUs."""
    state, elapsed_s, timelimit_s, nnodes, ncpus, cpu_time_s, mem_mib, alloc_tres, *_ = facts
    return Evidence(
        state=state,
        elapsed_s=elapsed_s,
        timelimit_s=timelimit_s,
        nnodes=nnodes,
        ncpus=ncpus,
        cpu_time_s=cpu_time_s,
        mem_mib=mem_mib,
        gpu_count=None if alloc_tres is None else sum(count for _, count, _ in parts),
    )


def _only(values: Iterable[str | None]) -> str | None:
    """The one value that all of them are, None if they differ."""
    different = set(values)
    return different.pop() if len(different) == 1 else None


def _use(row: tuple[Any, ...], mem_max_mib: int | None, catalogue: Catalogue) -> GpuUse:
    _device, model, util_permille, energy_mj, measured_s, cut = row
    power = None if cut else _power_permille(_model(catalogue, model), energy_mj, measured_s)
    return GpuUse(util_permille, mem_max_mib, power)


def _model(catalogue: Catalogue, key: str | None) -> GpuModel | None:
    try:
        return catalogue.model(key) if key else None
    except CatalogueError:
        return None


def _power_permille(model: GpuModel | None, energy_mj: int | None, measured_s: int) -> int | None:
    """Mean power of a whole board between idle (0) and its limit (1000)."""
    if model is None or energy_mj is None or not measured_s or model.max_mw <= model.idle_mw:
        return None
    part = 1000 * (energy_mj // measured_s - model.idle_mw) // (model.max_mw - model.idle_mw)
    return min(1000, max(0, part))


def _known_permille(
    base: Evidence, boards: Sequence[tuple[Any, ...]], util_ms: int | None
) -> int | None:
    """For which part of the held GPU time the utilisation is known."""
    if not base.gpu_count or not base.elapsed_s:
        return None
    if util_ms is None:  # only sums by run are known
        return 1000 if boards and all(row[2] is not None for row in boards) else None
    return min(1000, util_ms // (base.gpu_count * base.elapsed_s))
