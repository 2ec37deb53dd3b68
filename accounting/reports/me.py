# SPDX-License-Identifier: Apache-2.0
"""The researcher's own page: the last jobs, and what a period took in GPU time and energy."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from fairwatt.accounting.reports.carbon_basis import CarbonAsk
from fairwatt.accounting.reports.columns import (
    BILLING_HOURS,
    CARBON,
    DEVICE_HOURS,
    ENERGY,
    FGE_HOURS,
    MEASURED,
    RUNS_ENDED,
    column,
)
from fairwatt.accounting.reports.footprint import footprints
from fairwatt.accounting.reports.idle import (
    IdlePolicy,
    by_policy,
    moved_by,
    moved_of_runs,
    policy_note,
)
from fairwatt.accounting.reports.me_carbon import MY_CARBON, my_carbon
from fairwatt.accounting.reports.old_factors import check_version
from fairwatt.accounting.reports.period import Period
from fairwatt.accounting.reports.scope import Scope, select
from fairwatt.accounting.reports.usage import Usage, size_notes, total, usage_by
from fairwatt.accounting.reports.use import Yardstick, gpu_words
from fairwatt.accounting.reports.waits import waits_of_user
from fairwatt.accounting.reports.waste import savings_table
from fairwatt.accounting.reports.words import HEADLINES, me_headlines
from fairwatt.accounting.store import data_version
from fairwatt.core.records import Table

__all__ = ["me_report"]

LAST_JOBS = 25

_JOBS = """
    SELECT t.run_id, t.cluster, t.job_id, t.name, t.state, t.account, t.partition,
           t.alloc_tres, t.submit_ts, t.start_ts,
           MAX(t.start_ts - t.eligible_ts, 0), t.elapsed_s,
           (SELECT SUM(e.util_permille * e.measured_s) / 1000.0 / SUM(e.measured_s)
            FROM run_energy e LEFT JOIN device d USING (device_uuid)
            WHERE e.run_id = t.run_id AND e.util_permille IS NOT NULL
              AND COALESCE(d.kind, 'gpu') = 'gpu'),
           (SELECT SUM(iif(:with_idle, e.idle_mj, 0) + e.active_mj)
            FROM run_energy e LEFT JOIN device d USING (device_uuid)
            WHERE e.run_id = t.run_id AND COALESCE(d.kind, 'gpu') = 'gpu')
    FROM run t WHERE {scope} AND t.user = :user
    ORDER BY t.submit_ts DESC, t.run_id DESC LIMIT :limit"""


def me_report(
    db: sqlite3.Connection,
    scope: Scope,
    period: Period,
    *,
    carbon: CarbonAsk | None = None,
    idle_policy: IdlePolicy = "reserved",
    yardstick: Yardstick | None = None,
) -> list[Table]:
    """Return the tables summary, headlines, savings, jobs and days of the asker's own runs.

    `carbon` says which version of the factors their carbon is made with; None: the newest.
    `idle_policy` says who gets what GPUs draw without work, `yardstick` by what runs are judged.

    Raises:
        NotFoundError: there is no such version.
    """
    ask = carbon or CarbonAsk()
    check_version(db, ask.version)
    daily = usage_by(db, scope, period, "day", user=scope.user, factors=ask.version)
    moved = {}
    if idle_policy == "active":
        moved = moved_by(db, scope, period, "day", user=scope.user)
    daily = by_policy(daily, idle_policy, moved)
    version = data_version(db)
    note = policy_note(idle_policy)
    summary = _summary(db, scope, period, total(daily.values()), ask, note)
    return [
        summary,
        Table(
            name="headlines",
            title="Headlines",
            columns=HEADLINES,
            rows=me_headlines({**summary.records()[0], "idle_policy": idle_policy}),
            data_version=version,
        ),
        savings_table(db, scope, period, yardstick, version),
        _jobs(db, scope, ask, idle_policy, version),
        _days(period, daily, version, note),
    ]


def _summary(
    db: sqlite3.Connection, scope: Scope, period: Period, use: Usage, ask: CarbonAsk, note: str
) -> Table:
    columns = (
        RUNS_ENDED,
        column("runs_failed", "Failed", "integer", "Runs that failed, timed out or lost a node."),
        FGE_HOURS,
        DEVICE_HOURS,
        BILLING_HOURS,
        column("busy", "Busy", "ratio", "Utilisation over the hours for which it is known."),
        ENERGY,
        CARBON,
        MEASURED,
        column("wait_p50_s", "Median wait", "duration_s", "Half of the runs waited no longer."),
        column(
            "wait_p90_s", "Wait, 9 in 10 within", "duration_s", "Nine in ten waited no longer."
        ),
        *MY_CARBON,
    )
    waits = waits_of_user(db, scope, period)
    known = use.util_known_milli_s
    row = (
        use.runs_ended,
        use.runs_failed,
        use.fge_hours,
        use.device_hours,
        use.billing_hours,
        use.used_milli_s / known if known else None,
        use.energy_mj,
        use.carbon_mg,
        use.measured,
        waits.p50_s if waits else None,
        waits.p90_s if waits else None,
        *my_carbon(db, scope, period, use, ask),
    )
    return Table(
        name="summary",
        title="Summary",
        columns=columns,
        rows=[row],
        data_version=data_version(db),
        notes=[*size_notes(use), note],
    )


def _jobs(
    db: sqlite3.Connection, scope: Scope, ask: CarbonAsk, idle_policy: IdlePolicy, version: int
) -> Table:
    columns = (
        column("cluster", "Cluster", "text", "Slurm cluster."),
        column("job_id", "Job", "text", "Slurm job id."),
        column("name", "Name", "text", "Job name."),
        column("state", "State", "text", "Slurm's state of the run."),
        column("account", "Account", "text", "Account that is charged."),
        column("partition", "Partition", "text", "Slurm partition."),
        column("gpus", "GPUs", "text", "GPUs that were given."),
        column("submit_ts", "Submitted", "ts", "When it was submitted or requeued."),
        column("start_ts", "Started", "ts", "When it started."),
        column("wait_s", "Waited", "duration_s", "Eligible to start."),
        column("elapsed_s", "Ran for", "duration_s", "Start to end."),
        column("util", "Busy", "ratio", "Mean GPU utilisation while it was measured."),
        ENERGY,
        CARBON,
    )
    wanted = {"user": scope.user, "limit": LAST_JOBS, "with_idle": idle_policy != "none"}
    found = select(db, scope, _JOBS, wanted)
    if idle_policy == "active":
        found = _with_moved(db, found)
    carbon = footprints(db, [row[0] for row in found], ask.zone, ask.version)
    rows = [_job_row(row, carbon[row[0]].co2_mg if row[0] in carbon else None) for row in found]
    return Table(
        name="jobs",
        title="Last jobs",
        columns=columns,
        rows=rows,
        data_version=version,
        notes=[policy_note(idle_policy)],
    )


def _with_moved(db: sqlite3.Connection, found: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    moved: dict[int, int] = {}
    for (run_id, _), moved_mj in moved_of_runs(db, [row[0] for row in found]).items():
        moved[run_id] = moved.get(run_id, 0) + moved_mj
    return [
        row if row[-1] is None else (*row[:-1], row[-1] + moved.get(row[0], 0)) for row in found
    ]


def _job_row(row: tuple[Any, ...], co2_mg: int | None) -> tuple[Any, ...]:
    gpus = gpu_words(row[7]) or ("none" if row[7] else None)
    return (*row[1:7], gpus, *row[8:], co2_mg)


def _days(period: Period, daily: dict[str, Usage], version: int, note: str) -> Table:
    columns = (
        column("day", "Day", "text", "Local day."),
        FGE_HOURS, ENERGY, CARBON,
    )  # fmt: skip
    days = [str(period.first + timedelta(days=n)) for n in range(period.days)]
    rows = [
        (day, use.fge_hours, use.energy_mj, use.carbon_mg)
        for day in days
        for use in [daily.get(day, Usage())]
    ]
    return Table(
        name="days",
        title="Day by day",
        columns=columns,
        rows=rows,
        data_version=version,
        notes=[note],
    )
