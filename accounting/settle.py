# SPDX-License-Identifier: Apache-2.0
"""Joins what nodes measured to Slurm's runs: energy per run and device, and per hour.

Every amount is recomputed from the windows, so settling again changes nothing.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from zoneinfo import ZoneInfo

from sqlite_utils import Database

from fairwatt.accounting.days import cut, hour_pieces
from fairwatt.accounting.failslow_store import write_pace
from fairwatt.accounting.pieces import NodeRun, Piece
from fairwatt.accounting.runs import mark_days
from fairwatt.accounting.store import transaction

__all__ = ["EDGE_S", "best_run", "settle"]

JOIN_SLACK_S = 60
"""Slurm's and the node's idea of a run's start and end may differ by this much."""

HOUR_S = 3600
EDGE_S = 3600
"""So far from its run's start and end may energy lie and still be found by the run's times: a
prolog or epilog may lie on the other side of midnight. What is farther is a stray hour."""

BATCH = 500

HourRow = tuple[int, int, int, int, int, int, int]


@dataclass
class _Sum:
    """Sums over pieces: mJ, and hold-ms measured, with known utilisation, and busy."""

    idle_mj: int = 0
    active_mj: int = 0
    measured_ms: int = 0
    util_ms: int = 0
    busy_permille_ms: int = 0
    flags: int = 0
    methods: set[str] = field(default_factory=set)
    windows: set[tuple[int, int]] = field(default_factory=set)

    @property
    def measured_s(self) -> int:
        """Seconds with known energy; two holds of one device in one window count once."""
        return round(sum(t1_ms - t0_ms for t0_ms, t1_ms in self.windows) / 1000)


def settle(db: Database, cluster: str, zone: ZoneInfo) -> int:
    """Join and recompute all runs with news from nodes or from Slurm, in batches.

    Returns:
        How many runs were recomputed. Their days, and those of new windows, are marked dirty.
    """
    settled = 0
    while True:
        with transaction(db) as connection:
            _mark_window_days(connection, zone)
            batch = _unsettled(connection)
            if not batch:
                return settled
            runs = {
                run_id for node_run in batch for run_id in _join(connection, node_run, cluster)
            }
            for run_id in sorted(runs):
                _recompute(connection, run_id, zone)
            connection.executemany(
                "DELETE FROM unsettled WHERE node = ? AND job_id = ? AND start_ms = ?", batch
            )
            settled += len(runs)


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


def _unsettled(connection: sqlite3.Connection) -> list[NodeRun]:
    return connection.execute(
        "SELECT node, job_id, start_ms FROM unsettled ORDER BY node, job_id, start_ms LIMIT ?",
        (BATCH,),
    ).fetchall()


def _join(connection: sqlite3.Connection, node_run: NodeRun, cluster: str) -> set[int]:
    """Set the run of a node's run; return the runs whose sums this touches."""
    known = connection.execute(
        "SELECT run_id, restart_cnt, sluid FROM node_run"
        " WHERE node = ? AND job_id = ? AND start_ms = ?",
        node_run,
    ).fetchone()
    if known is None:
        return set()
    old, restart_cnt, sluid = known
    new = _find_run(connection, cluster, node_run, restart_cnt, sluid)
    if new != old:
        connection.execute(
            "UPDATE node_run SET run_id = ? WHERE node = ? AND job_id = ? AND start_ms = ?",
            (new, *node_run),
        )
    return {run_id for run_id in (old, new) if run_id is not None}


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


def _recompute(connection: sqlite3.Connection, run_id: int, zone: ZoneInfo) -> None:
    """Write run_energy and run_hour of one run anew, and mark its measured days."""
    node_runs: list[NodeRun] = connection.execute(
        "SELECT node, job_id, start_ms FROM node_run WHERE run_id = ?", (run_id,)
    ).fetchall()
    pieces = [piece for node_run in node_runs for piece in _pieces(connection, node_run)]
    held = {device: node for node_run in node_runs for device, node in _held(connection, node_run)}
    _write_energy(connection, run_id, pieces, held)
    _write_hours(connection, run_id, pieces, zone)
    write_pace(connection, run_id, node_runs, pieces)


def _pieces(connection: sqlite3.Connection, node_run: NodeRun) -> list[Piece]:
    measured = connection.execute(
        "SELECT s.device_uuid, w.t0_ms, w.t1_ms, s.idle_mj, s.active_mj, s.util_permille,"
        " w.flags, w.method, s.instance_uuid, w.clock_mhz"
        " FROM window_share s JOIN window w USING (device_uuid, t0_ms)"
        " WHERE s.node = ? AND s.job_id = ? AND s.run_start_ms = ?"
        " ORDER BY s.device_uuid, w.t0_ms, s.instance_uuid",
        node_run,
    )
    # The window that holds the start may begin before it: the agent was away at the prolog.
    unknown = connection.execute(
        "SELECT h.device_uuid, max(w.t0_ms, r.start_ms),"
        " min(w.t1_ms, coalesce(r.end_ms, w.t1_ms)), NULL, NULL, NULL, w.flags, w.method"
        " FROM hold h JOIN node_run r USING (node, job_id, start_ms)"
        " JOIN window w ON w.device_uuid = h.device_uuid AND w.measured_mj IS NULL"
        " AND w.t1_ms > r.start_ms AND (r.end_ms IS NULL OR w.t0_ms < r.end_ms)"
        " AND w.t0_ms >= coalesce((SELECT max(t0_ms) FROM window"
        " WHERE device_uuid = h.device_uuid AND t0_ms <= r.start_ms), r.start_ms)"
        " WHERE h.node = ? AND h.job_id = ? AND h.start_ms = ?"
        " ORDER BY h.device_uuid, w.t0_ms, h.instance_uuid",
        node_run,
    )
    return [Piece(*row) for row in [*measured.fetchall(), *unknown.fetchall()]]


def _held(connection: sqlite3.Connection, node_run: NodeRun) -> list[tuple[str, str]]:
    return connection.execute(
        "SELECT device_uuid, node FROM hold WHERE node = ? AND job_id = ? AND start_ms = ?",
        node_run,
    ).fetchall()


def _add(total: _Sum, piece: Piece) -> None:
    total.flags |= piece.flags
    total.methods.add(piece.method)
    if piece.idle_mj is None or piece.active_mj is None:
        return
    length_ms = piece.t1_ms - piece.t0_ms
    total.idle_mj += piece.idle_mj
    total.active_mj += piece.active_mj
    total.measured_ms += length_ms
    total.windows.add((piece.t0_ms, piece.t1_ms))
    if piece.util_permille is not None:
        total.util_ms += length_ms
        total.busy_permille_ms += length_ms * piece.util_permille


def _write_energy(
    connection: sqlite3.Connection,
    run_id: int,
    pieces: Sequence[Piece],
    held: dict[str, str],
) -> None:
    sums: dict[str, _Sum] = {device: _Sum() for device in held}
    for piece in pieces:
        _add(sums.setdefault(piece.device, _Sum()), piece)
    connection.execute("DELETE FROM run_energy WHERE run_id = ?", (run_id,))
    connection.executemany(
        "INSERT INTO run_energy (run_id, device_uuid, node, model, idle_mj, active_mj,"
        " util_permille, measured_s, flags, method) SELECT ?, ?, coalesce(?, d.node, ''),"
        " d.model, ?, ?, ?, ?, ?, ? FROM (SELECT 1) LEFT JOIN device d ON d.device_uuid = ?",
        [_energy_row(run_id, device, held.get(device), sums[device]) for device in sorted(sums)],
    )


def _energy_row(
    run_id: int, device: str, node: str | None, total: _Sum
) -> tuple[int | str | None, ...]:
    """A device without one measured window is unknown: NULL, not 0."""
    known = bool(total.windows)
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
        total.measured_s,
        total.flags,
        "+".join(sorted(total.methods)) or "none",
        device,
    )


def _write_hours(
    connection: sqlite3.Connection, run_id: int, pieces: Sequence[Piece], zone: ZoneInfo
) -> None:
    hours: dict[int, _Sum] = defaultdict(_Sum)
    for piece in pieces:
        if piece.idle_mj is None or piece.active_mj is None:
            continue
        for hour_ts, a_ms, b_ms in hour_pieces(piece.t0_ms, piece.t1_ms, zone):
            part = Piece(
                piece.device,
                a_ms,
                b_ms,
                cut(piece.idle_mj, piece.t0_ms, piece.t1_ms, a_ms, b_ms),
                cut(piece.active_mj, piece.t0_ms, piece.t1_ms, a_ms, b_ms),
                piece.util_permille,
                piece.flags,
                piece.method,
            )
            _add(hours[hour_ts], part)
    _replace_hours(connection, run_id, [_hour_row(run_id, *item) for item in hours.items()], zone)


def _hour_row(run_id: int, hour_ts: int, total: _Sum) -> HourRow:
    return (
        run_id,
        hour_ts,
        total.idle_mj,
        total.active_mj,
        total.measured_ms,
        total.util_ms,
        total.busy_permille_ms // 1000,
    )


def _replace_hours(
    connection: sqlite3.Connection, run_id: int, rows: Iterable[HourRow], zone: ZoneInfo
) -> None:
    """Write only what differs, so that a long run does not dirty all its days each time."""
    old: set[HourRow] = set(
        connection.execute(
            "SELECT run_id, hour_ts, idle_mj, active_mj, measured_ms, util_ms, busy_ms"
            " FROM run_hour WHERE run_id = ?",
            (run_id,),
        )
    )
    new = set(rows)
    connection.executemany(
        "DELETE FROM run_hour WHERE run_id = ? AND hour_ts = ?", [row[:2] for row in old - new]
    )
    connection.executemany(
        "INSERT INTO run_hour (run_id, hour_ts, idle_mj, active_mj, measured_ms, util_ms,"
        " busy_ms) VALUES (?, ?, ?, ?, ?, ?, ?)",
        sorted(new - old),
    )
    for row in old ^ new:
        mark_days(connection, row[1], row[1] + HOUR_S, zone)
    _note_strays(connection, run_id)


def _note_strays(connection: sqlite3.Connection, run_id: int) -> None:
    """A node that died tells of the end when it is back: a day's rollup must still find it."""
    connection.execute("DELETE FROM stray_hour WHERE run_id = ?", (run_id,))
    connection.execute(
        "INSERT INTO stray_hour (hour_ts, run_id) SELECT h.hour_ts, h.run_id"
        " FROM run_hour h JOIN run r USING (run_id) WHERE h.run_id = ?"
        " AND (h.hour_ts + ? <= r.start_ts - ? OR h.hour_ts > r.end_ts + ?)",
        (run_id, HOUR_S, EDGE_S, EDGE_S),
    )
