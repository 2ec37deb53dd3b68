# SPDX-License-Identifier: Apache-2.0
"""The energy of a run's CPUs, DRAM and rest of nodes by hour, beside that of its GPUs."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from zoneinfo import ZoneInfo

from fairwatt.accounting.hour_rows import replace_hours
from fairwatt.accounting.pieces import NodeRun

__all__ = ["HOST_UNKNOWN", "write_host_hours"]

_HostRow = tuple[int, int, str, int, int]
_COLUMNS = ("run_id", "hour_ts", "kind", "idle_mj", "active_mj")

# A run is on all of its node: no hold says so. As for GPUs, the window that holds the run's start
# may begin before it.
HOST_UNKNOWN = (
    "SELECT DISTINCT d.device_uuid, w.flags, w.method"
    " FROM node_run r JOIN device d ON d.node = r.node AND d.kind <> 'gpu'"
    " JOIN window w INDEXED BY window_unknown ON w.device_uuid = d.device_uuid"
    " AND w.measured_mj IS NULL"
    " AND w.t1_ms > r.start_ms AND (r.end_ms IS NULL OR w.t0_ms < r.end_ms)"
    " AND w.t0_ms >= coalesce((SELECT max(t0_ms) FROM window"
    " WHERE device_uuid = d.device_uuid AND t0_ms <= r.start_ms), r.start_ms)"
    " WHERE r.node = ? AND r.job_id = ? AND r.start_ms = ?"
)
_HOURS = (
    "SELECT c.hour_ts, d.kind, sum(c.idle_mj), sum(c.active_mj)"
    " FROM run_cell c JOIN device d USING (device_uuid)"
    " WHERE c.node = ? AND c.job_id = ? AND c.run_start_ms = ? AND c.hour_ts >= ?"
    " AND d.kind <> 'gpu' GROUP BY c.hour_ts, d.kind"
)


def write_host_hours(
    connection: sqlite3.Connection,
    run_id: int,
    node_runs: Sequence[NodeRun],
    from_ts: int,
    zone: ZoneInfo,
) -> None:
    """Write run_host_hour of one run anew since `from_ts`, only what differs; mark its days."""
    rows = _rows(connection, run_id, node_runs, from_ts)
    replace_hours(connection, "run_host_hour", _COLUMNS, 3, rows, (run_id, from_ts), zone)


def _rows(
    connection: sqlite3.Connection, run_id: int, node_runs: Sequence[NodeRun], from_ts: int
) -> set[_HostRow]:
    sums: dict[tuple[int, str], tuple[int, int]] = {}
    for node_run in node_runs:
        for hour_ts, kind, idle_mj, active_mj in connection.execute(_HOURS, (*node_run, from_ts)):
            idle, active = sums.get((hour_ts, kind), (0, 0))
            sums[hour_ts, kind] = (idle + idle_mj, active + active_mj)
    return {(run_id, *key, *amounts) for key, amounts in sums.items()}
