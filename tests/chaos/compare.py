# SPDX-License-Identifier: Apache-2.0
"""What of a store has to be the same, whatever befell its makers."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

EXACT = (
    "account", "membership", "device", "node_run", "hold", "window", "window_share", "run_cell",
    "device_hour", "run_energy", "run_hour", "run_host_hour", "usage_daily", "usage_monthly",
    "unallocated_daily", "host_daily", "host_monthly", "stray_hour", "run_pace", "rank_pace",
    "dirty_day", "dirty_hour", "unsettled",
)  # fmt: skip
"""Tables of which every row has to be the same where no agent was cut short."""

ENERGY = {
    "window by hour": "SELECT device_uuid, t0_ms / 3600000, sum(measured_mj),"
    " sum(unallocated_idle_mj), sum(unallocated_active_mj), sum(t1_ms - t0_ms) FROM window"
    " GROUP BY 1, 2",
    "window_share by hour": "SELECT device_uuid, t0_ms / 3600000, node, job_id, run_start_ms,"
    " instance_uuid, sum(idle_mj), sum(active_mj) FROM window_share GROUP BY 1, 2, 3, 4, 5, 6",
    "device": "SELECT device_uuid, node, model FROM device",
    "node_run": "SELECT node, job_id, start_ms, end_ms, restart_cnt, run_id FROM node_run",
    "hold": "SELECT * FROM hold",
    "run_energy": "SELECT run_id, device_uuid, node, model, idle_mj, active_mj, measured_s"
    " FROM run_energy",
    "run_hour": "SELECT run_id, hour_ts, idle_mj, active_mj, measured_ms FROM run_hour",
    "usage_daily": "SELECT day, account, user, gpu_type, runs_ended, runs_failed, wait_s, cpu_s,"
    " device_s, gpu_milli_s, idle_mj, active_mj, unmeasured_milli_s, co2_mg FROM usage_daily",
    "usage_monthly": "SELECT month, account, user, gpu_type, runs_ended, cpu_s, idle_mj,"
    " active_mj, co2_mg FROM usage_monthly",
    "unallocated_daily": "SELECT * FROM unallocated_daily",
}
"""What has to be the same where windows were cut elsewhere: every mJ, and whose it is."""

_RUNS = "SELECT * FROM run"


def facts(database: Path, *, exact: bool) -> list[str]:
    """Return what has to be the same, a line each, in order; run ids are told by their job."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
        names = {
            run_id: f"job {job_id}.{restart_cnt}@{submit_ts}"
            for run_id, job_id, submit_ts, restart_cnt in db.execute(
                "SELECT run_id, job_id, submit_ts, restart_cnt FROM run"
            )
        }
        queries = {"run": _RUNS, **ENERGY}
        if exact:
            queries = {"run": _RUNS} | {name: f"SELECT * FROM {name}" for name in EXACT}
            queries["event"] = "SELECT node, boot_id, seq, kind, body FROM event"
        return sorted(
            line for name, sql in queries.items() for line in _lines(db, name, sql, names)
        )


def _lines(db: sqlite3.Connection, name: str, sql: str, names: dict[int, str]) -> Iterator[str]:
    cursor = db.execute(sql)
    columns = [column[0] for column in cursor.description]
    for row in cursor:
        values = [
            names.get(value, value) if column == "run_id" else value
            for column, value in zip(columns, row, strict=True)
        ]
        yield f"{name}: {dict(zip(columns, values, strict=True))}"
