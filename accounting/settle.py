# SPDX-License-Identifier: Apache-2.0
"""Joins what nodes measured to Slurm's runs: energy per run and device, and per hour.

Every amount is a sum over the hours of `run_cell`, so settling again changes nothing; only hours
with news are written anew, so that a run of weeks costs no more than one of minutes.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from zoneinfo import ZoneInfo

from sqlite_utils import Database

from fairwatt.accounting.days import hour_floor
from fairwatt.accounting.failslow_store import judge_pace
from fairwatt.accounting.hour_rows import HOUR_S, replace_hours
from fairwatt.accounting.pieces import NodeRun
from fairwatt.accounting.runs import mark_days
from fairwatt.accounting.settle_host import HOST_UNKNOWN, write_host_hours
from fairwatt.accounting.store import transaction
from fairwatt.accounting.windows import WindowSources

__all__ = ["EDGE_S", "best_run", "settle"]

JOIN_SLACK_S = 60
"""Slurm's and the node's idea of a run's start and end may differ by this much."""

EDGE_S = 3600
"""So far from its run's start and end may energy lie and still be found by the run's times: a
prolog or epilog may lie on the other side of midnight. What is farther is a stray hour."""

EVER_TS = -86_400
"""Before every hour that a window can lie in, whatever the zone."""

BATCH = 500

HourRow = tuple[int, int, int, int, int, int, int]
_HOUR_COLUMNS = (
    "run_id", "hour_ts", "idle_mj", "active_mj", "measured_ms", "util_ms", "busy_ms",
)  # fmt: skip


@dataclass
class _Sum:
    """Sums over a device's hours: mJ, and ms with known utilisation, busy, and measured."""

    idle_mj: int = 0
    active_mj: int = 0
    util_ms: int = 0
    busy_permille_ms: int = 0
    window_ms: int = 0
    flags: int = 0
    methods: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class _News:
    """A run on a node with news: which windows are new (0: any may be), and its run in Slurm."""

    node_run: NodeRun
    from_ms: int


def settle(
    db: Database,
    cluster: str,
    zone: ZoneInfo,
    lock: AbstractContextManager[object] | None = None,
) -> int:
    """Join and recompute all runs with news from nodes or from Slurm, in batches.

    Args:
        db: the store.
        cluster: whose runs the nodes' are.
        zone: the site's.
        lock: held for each batch, so that others can write between two.

    Returns:
        How many runs were recomputed. Their days, and those of new windows, are marked dirty.
    """
    settled = 0
    while True:
        with lock or nullcontext(), transaction(db) as connection:
            _mark_window_days(connection, zone)
            batch = _unsettled(connection)
            if not batch:
                return settled
            settled += _settle_batch(connection, batch, cluster, zone)


def _settle_batch(
    connection: sqlite3.Connection, batch: Sequence[_News], cluster: str, zone: ZoneInfo
) -> int:
    runs: dict[int, int] = {}
    for news in batch:
        for run_id, from_ms in _join(connection, news, cluster):
            runs[run_id] = min(from_ms, runs.get(run_id, from_ms))
    with WindowSources(connection) as sources:
        for run_id, from_ms in sorted(runs.items()):
            _recompute(connection, run_id, from_ms, zone, sources)
    connection.executemany(
        "DELETE FROM unsettled WHERE node = ? AND job_id = ? AND start_ms = ?",
        [news.node_run for news in batch],
    )
    return len(runs)


def best_run(
    candidates: Iterable[tuple[int, int, int | None, int]], start_s: float, restart_cnt: int | None
) -> int | None:
    """Return the run that a node's run belongs to, None if there is none yet.

    Args:
        candidates: (run_id, start_ts, end_ts or None, restart_cnt) of the same job id.
        start_s: when the prolog ran, epoch seconds.
        restart_cnt: what the node knew; decides only between equally near starts.
    """
    fitting = [
        (abs(start_s - start_ts), restart_cnt is not None and count != restart_cnt, run_id)
        for run_id, start_ts, end_ts, count in candidates
        if start_ts - JOIN_SLACK_S <= start_s
        and (end_ts is None or start_s <= end_ts + JOIN_SLACK_S)
    ]
    return min(fitting)[2] if fitting else None


def _mark_window_days(connection: sqlite3.Connection, zone: ZoneInfo) -> None:
    for (hour_ts,) in connection.execute("SELECT hour_ts FROM dirty_hour").fetchall():
        mark_days(connection, hour_ts, hour_ts + HOUR_S, zone)
    connection.execute("DELETE FROM dirty_hour")


def _unsettled(connection: sqlite3.Connection) -> list[_News]:
    rows = connection.execute(
        "SELECT node, job_id, start_ms, from_ms FROM unsettled"
        " ORDER BY node, job_id, start_ms LIMIT ?",
        (BATCH,),
    )
    return [_News((node, job_id, start_ms), from_ms) for node, job_id, start_ms, from_ms in rows]


def _join(connection: sqlite3.Connection, news: _News, cluster: str) -> Iterator[tuple[int, int]]:
    """Set the run of a node's run; yield the runs whose sums this touches, and since when."""
    known = connection.execute(
        "SELECT run_id, restart_cnt, sluid FROM node_run"
        " WHERE node = ? AND job_id = ? AND start_ms = ?",
        news.node_run,
    ).fetchone()
    if known is None:
        return
    old, restart_cnt, sluid = known
    new = _find_run(connection, cluster, news.node_run, restart_cnt, sluid)
    if new != old:
        connection.execute(
            "UPDATE node_run SET run_id = ? WHERE node = ? AND job_id = ? AND start_ms = ?",
            (new, *news.node_run),
        )
    for run_id in {run_id for run_id in (old, new) if run_id is not None}:
        yield run_id, news.from_ms if old == new else 0


def _find_run(
    connection: sqlite3.Connection,
    cluster: str,
    node_run: NodeRun,
    restart_cnt: int | None,
    sluid: str | None,
) -> int | None:
    _, job_id, start_ms = node_run
    rows = connection.execute(
        "SELECT run_id, start_ts, end_ts, restart_cnt, sluid FROM run"
        " WHERE cluster = ? AND job_id = ? AND start_ts IS NOT NULL",
        (cluster, job_id),
    ).fetchall()
    exact = [row[0] for row in rows if sluid is not None and row[4] == sluid]
    return exact[0] if exact else best_run([row[:4] for row in rows], start_ms / 1000, restart_cnt)


def _recompute(
    connection: sqlite3.Connection,
    run_id: int,
    from_ms: int,
    zone: ZoneInfo,
    sources: WindowSources,
) -> None:
    """Write run_energy of one run anew, and its run_hour since `from_ms`; mark changed days."""
    node_runs: list[NodeRun] = connection.execute(
        "SELECT node, job_id, start_ms FROM node_run WHERE run_id = ?", (run_id,)
    ).fetchall()
    _write_energy(connection, run_id, node_runs)
    from_ts = hour_floor(from_ms // 1000, zone) if from_ms else EVER_TS
    _write_hours(connection, run_id, node_runs, from_ts, zone)
    write_host_hours(connection, run_id, node_runs, from_ts, zone)
    judge_pace(connection, run_id, node_runs, from_ms, sources)


def _write_energy(
    connection: sqlite3.Connection, run_id: int, node_runs: Sequence[NodeRun]
) -> None:
    sums: dict[str, _Sum] = defaultdict(_Sum)
    held: dict[str, str] = {}
    for node_run in node_runs:
        for device, *amounts in connection.execute(_SUMS, node_run):
            _add(sums[device], *amounts)
        for query in (_UNKNOWN, HOST_UNKNOWN):
            for device, flags, method in connection.execute(query, node_run):
                _add(sums[device], flags, method)
        for (device,) in connection.execute(_HELD, node_run):
            held[device] = node_run[0]
            sums[device].flags |= 0
    connection.execute("DELETE FROM run_energy WHERE run_id = ?", (run_id,))
    connection.executemany(
        "INSERT INTO run_energy (run_id, device_uuid, node, model, idle_mj, active_mj,"
        " util_permille, measured_s, flags, method) SELECT ?, ?, coalesce(?, d.node, ''),"
        " d.model, ?, ?, ?, ?, ?, ? FROM (SELECT 1) LEFT JOIN device d ON d.device_uuid = ?",
        [_energy_row(run_id, device, held.get(device), sums[device]) for device in sorted(sums)],
    )


_OF_RUN = " WHERE node = ? AND job_id = ? AND run_start_ms = ?"
_SUMS = (
    "SELECT device_uuid, flags, method, sum(idle_mj), sum(active_mj), sum(util_ms),"  # noqa: S608
    f" sum(busy_permille_ms), sum(window_ms) FROM run_cell{_OF_RUN}"
    " GROUP BY device_uuid, method, flags"
)
_HELD = "SELECT DISTINCT device_uuid FROM hold WHERE node = ? AND job_id = ? AND start_ms = ?"
# The window that holds the start may begin before it: the agent was away at the prolog.
_UNKNOWN = (
    "SELECT DISTINCT h.device_uuid, w.flags, w.method"
    " FROM hold h JOIN node_run r USING (node, job_id, start_ms)"
    " JOIN window w INDEXED BY window_unknown ON w.device_uuid = h.device_uuid"
    " AND w.measured_mj IS NULL"
    " AND w.t1_ms > r.start_ms AND (r.end_ms IS NULL OR w.t0_ms < r.end_ms)"
    " AND w.t0_ms >= coalesce((SELECT max(t0_ms) FROM window"
    " WHERE device_uuid = h.device_uuid AND t0_ms <= r.start_ms), r.start_ms)"
    " WHERE h.node = ? AND h.job_id = ? AND h.start_ms = ?"
)
_HOURS = (
    "SELECT hour_ts, sum(idle_mj), sum(active_mj), sum(measured_ms), sum(util_ms),"  # noqa: S608
    f" sum(busy_permille_ms) FROM run_cell{_OF_RUN} AND hour_ts >= ?"
    " AND NOT EXISTS (SELECT 1 FROM device d WHERE d.device_uuid = run_cell.device_uuid"
    " AND d.kind <> 'gpu') GROUP BY hour_ts"
)


def _add(
    total: _Sum,
    flags: int,
    method: str,
    idle_mj: int = 0,
    active_mj: int = 0,
    util_ms: int = 0,
    busy_permille_ms: int = 0,
    window_ms: int = 0,
) -> None:
    total.flags |= flags
    total.methods.add(method)
    total.idle_mj += idle_mj
    total.active_mj += active_mj
    total.util_ms += util_ms
    total.busy_permille_ms += busy_permille_ms
    total.window_ms += window_ms


def _energy_row(
    run_id: int, device: str, node: str | None, total: _Sum
) -> tuple[int | str | None, ...]:
    """A device without one measured window is unknown: NULL, not 0."""
    known = bool(total.window_ms)
    util = (
        (total.busy_permille_ms + total.util_ms // 2) // total.util_ms if total.util_ms else None
    )
    return (
        run_id,
        device,
        node,
        total.idle_mj if known else None,
        total.active_mj if known else None,
        util,
        round(total.window_ms / 1000),
        total.flags,
        "+".join(sorted(total.methods)) or "none",
        device,
    )


def _write_hours(
    connection: sqlite3.Connection,
    run_id: int,
    node_runs: Sequence[NodeRun],
    from_ts: int,
    zone: ZoneInfo,
) -> None:
    hours: dict[int, list[int]] = {}
    for node_run in node_runs:
        for hour_ts, *amounts in connection.execute(_HOURS, (*node_run, from_ts)):
            known = hours.setdefault(hour_ts, [0] * len(amounts))
            hours[hour_ts] = [a + b for a, b in zip(known, amounts, strict=True)]
    rows = [
        (run_id, hour_ts, idle_mj, active_mj, measured_ms, util_ms, busy_permille_ms // 1000)
        for hour_ts, (idle_mj, active_mj, measured_ms, util_ms, busy_permille_ms) in hours.items()
    ]
    replace_hours(connection, "run_hour", _HOUR_COLUMNS, 2, rows, (run_id, from_ts), zone)
    _note_strays(connection, run_id, from_ts)


def _note_strays(connection: sqlite3.Connection, run_id: int, from_ts: int) -> None:
    """A node that died tells of the end when it is back: a day's rollup must still find it."""
    connection.execute(
        "DELETE FROM stray_hour WHERE run_id = ? AND hour_ts >= ?", (run_id, from_ts)
    )
    connection.execute(
        "INSERT INTO stray_hour (hour_ts, run_id) SELECT h.hour_ts, h.run_id"
        " FROM run_hour h JOIN run r USING (run_id) WHERE h.run_id = ?"
        " AND h.hour_ts >= ? AND (h.hour_ts + ? <= r.start_ts - ? OR h.hour_ts > r.end_ts + ?)",
        (run_id, from_ts, HOUR_S, EDGE_S, EDGE_S),
    )
