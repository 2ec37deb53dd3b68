# SPDX-License-Identifier: Apache-2.0
"""Daily and monthly sums, recomputed for dirty local days: importing twice changes nothing."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal
from zoneinfo import ZoneInfo

from sqlite_utils import Database

from fairwatt.accounting.carbon.grid import Grid
from fairwatt.accounting.carbon.grid_store import open_grid
from fairwatt.accounting.carbon.hours import Owner, write_hours
from fairwatt.accounting.carbon.slots import slots_of
from fairwatt.accounting.days import day_bounds, days_between
from fairwatt.accounting.quality import RunFlag
from fairwatt.accounting.rollup_host import write_host_day, write_host_month
from fairwatt.accounting.runs import GpuPart, mark_days
from fairwatt.accounting.settle import EDGE_S
from fairwatt.accounting.store import bump_data_version, get_meta, set_meta, transaction
from fairwatt.accounting.usage import HourEnergy, RolledRun, Usage, day_usage, run_end
from fairwatt.accounting.waste_rollup import write_moved_days, write_waste_days

__all__ = [
    "mark_open_days",
    "next_days",
    "rolled_until",
    "rollup",
    "write_days",
    "write_months",
]

BATCH_DAYS = 31
_ROLLED_UNTIL = "rolled_until_ts"

Key = tuple[str, str, str, str, str]  # day, cluster, account, user, gpu_type
Energies = dict[str, dict[Owner, dict[int, int]]]
"""mJ by day, owner and start of the quarter of an hour."""


def rollup(db: Database, cluster: str, zone: ZoneInfo, carbon_zone: str, now_ts: int) -> int:
    """Recompute the daily sums of all dirty days, of every kind, and their months.

    Args:
        db: the store.
        cluster: whose devices the unallocated energy belongs to.
        zone: in which days and months are cut.
        carbon_zone: zone of the carbon factors.
        now_ts: until when running jobs count.

    Returns:
        How many days were recomputed; if any, the data version has grown.

    Raises:
        StoreError: the store cannot be written, or has no factors for the zone.
    """
    done = 0
    while True:
        with transaction(db) as connection:
            days = next_days(connection, "dirty_day")
            if not days:
                return done
            grid = open_grid(connection, carbon_zone, span=_span(days, zone))
            energies = write_days(connection, days, cluster, zone, grid, now_ts)
            for day, energy in energies.items():
                write_hours(connection, *day_bounds(day, zone), cluster, energy)
            write_waste_days(connection, days, zone, now_ts)
            write_moved_days(connection, days, cluster, zone)
            write_months(connection, sorted({day[:7] for day in days}))
            for table in ("dirty_day", "carbon_dirty_day"):
                sql = f"DELETE FROM {table} WHERE day = ?"  # noqa: S608 - our own names
                connection.executemany(sql, [(day,) for day in days])
            bump_data_version(connection)
        done += len(days)


def write_days(
    connection: sqlite3.Connection,
    days: Sequence[str],
    cluster: str,
    zone: ZoneInfo,
    grid: Grid,
    now_ts: int,
) -> Energies:
    """Write the daily tables of these days anew, in the caller's transaction.

    Where temporary tables have these names, they are written instead (`fairwatt ledger verify`).

    Returns:
        The energy of each owner by quarter of an hour, from which other factors give other carbon.
    """
    totals = _usage(connection, days, zone, now_ts)
    _write_usage(connection, days, totals, grid)
    energies: Energies = {day: {} for day in days}
    for (day, of_cluster, account, user, gpu_type), usage in totals.items():
        owner = Owner(of_cluster, "run", account, user, "gpu", gpu_type)
        energies[day][owner] = usage.energy_by_slot
    for day in days:
        energies[day] |= _write_unallocated(connection, cluster, day, zone, grid)
        energies[day] |= write_host_day(connection, cluster, day, zone, grid)
    return energies


def _span(days: Sequence[str], zone: ZoneInfo) -> tuple[int, int]:
    return day_bounds(days[0], zone)[0], day_bounds(days[-1], zone)[1]


def mark_open_days(connection: sqlite3.Connection, zone: ZoneInfo, now_ts: int) -> None:
    """Mark the days since the last call dirty if jobs are running: their use goes on.

    Runs in the caller's transaction.
    """
    since_ts = rolled_until(connection) or now_ts
    # The CPU time of a run that was suspended is spread over all its days, so far as it is known.
    running, suspended_ts = connection.execute(
        "SELECT count(*), min(iif(suspended_s > 0, start_ts, NULL)) FROM run"
        " WHERE end_ts IS NULL AND start_ts IS NOT NULL"
    ).fetchone()
    if running:
        first_ts = min(since_ts, now_ts, now_ts if suspended_ts is None else suspended_ts)
        mark_days(connection, first_ts, now_ts + 1, zone)
    set_meta(connection, _ROLLED_UNTIL, str(now_ts))


def rolled_until(connection: sqlite3.Connection) -> int | None:
    """Return until when running jobs count in the rollups, None before the first one."""
    text = get_meta(connection, _ROLLED_UNTIL)
    return None if text is None else int(text)


def next_days(
    connection: sqlite3.Connection, table: Literal["dirty_day", "carbon_dirty_day"]
) -> list[str]:
    """Return the next marked days, of one month's length: one pass over the runs serves them."""
    first = connection.execute(f"SELECT min(day) FROM {table}").fetchone()[0]  # noqa: S608
    if first is None:
        return []
    rows = connection.execute(
        f"SELECT day FROM {table} WHERE day < date(?, ?) ORDER BY day",  # noqa: S608
        (first, f"+{BATCH_DAYS} days"),
    )
    return [day for (day,) in rows]


def _usage(
    connection: sqlite3.Connection, days: Sequence[str], zone: ZoneInfo, now_ts: int
) -> dict[Key, Usage]:
    wanted = set(days)
    first_ts, last_ts = _span(days, zone)
    totals: dict[Key, Usage] = defaultdict(Usage)
    for owner, run in _runs(connection, first_ts, last_ts):
        for day in _touched(run, first_ts, last_ts, zone, now_ts):
            if day in wanted:
                for gpu_type, usage in day_usage(run, *day_bounds(day, zone), now_ts).items():
                    totals[(day, *owner, gpu_type)].add(usage)
    return totals


def _touched(
    run: RolledRun, first_ts: int, last_ts: int, zone: ZoneInfo, now_ts: int
) -> list[str]:
    """Return the days from a run's start to its end, the day of the very end included.

    Measured hours widen it: a prolog may run a moment before Slurm's start.
    """
    end_ts = run_end(run, now_ts)
    marks = [hour.hour_ts for hour in run.hours]
    marks += [ts for ts in (run.start_ts, end_ts, run.end_ts) if ts is not None]
    if not marks or max(marks) < first_ts or min(marks) >= last_ts:
        return []
    return days_between(max(first_ts, min(marks)), min(last_ts, max(marks) + 1), zone)


_RUN = (
    "SELECT run_id, cluster, coalesce(account, ''), coalesce(user, ''), state, flags,"
    " eligible_ts, start_ts, end_ts, coalesce(suspended_s, 0), coalesce(ncpus, 0),"
    " (SELECT billing FROM tres WHERE tres.text = run.alloc_tres) FROM run"
)


def _runs(
    connection: sqlite3.Connection, first_ts: int, last_ts: int
) -> Iterator[tuple[tuple[str, str, str], RolledRun]]:
    """Runs that touch the span, with cluster, account and user ("" for unknown)."""
    span = {"a": first_ts - EDGE_S, "b": last_ts + EDGE_S, "first": first_ts, "last": last_ts}
    cursor = connection.execute(
        f"{_RUN} WHERE end_ts >= :a AND coalesce(start_ts, end_ts) < :b"  # noqa: S608
        f" UNION ALL {_RUN} WHERE end_ts IS NULL AND start_ts < :b"
        f" UNION ALL {_RUN} WHERE run_id IN"
        " (SELECT run_id FROM stray_hour WHERE hour_ts >= :first AND hour_ts < :last)"
        " AND NOT (coalesce(end_ts, :b) >= :a AND coalesce(start_ts, end_ts) < :b)",
        span,
    )
    for run_id, cluster, account, user, state, flags, *facts in cursor:
        eligible_ts, start_ts, end_ts, suspended_s, ncpus, billing = facts
        yield (
            (cluster, account, user),
            RolledRun(
                state=state,
                flags=flags,
                eligible_ts=eligible_ts,
                start_ts=start_ts,
                end_ts=end_ts,
                suspended_s=suspended_s,
                ncpus=ncpus,
                parts=_parts(connection, run_id),
                hours=_hours(connection, run_id, first_ts, last_ts),
                util_permille=_mean_util(connection, run_id),
                evidence_ts=_evidence(connection, run_id) if flags & RunFlag.RUNAWAY else None,
                billing=billing,
            ),
        )


def _parts(connection: sqlite3.Connection, run_id: int) -> list[GpuPart]:
    rows = connection.execute(
        "SELECT gpu_type, count, milli FROM run_gpu WHERE run_id = ? ORDER BY gpu_type", (run_id,)
    )
    return [GpuPart(*row) for row in rows]


def _hours(
    connection: sqlite3.Connection, run_id: int, first_ts: int, last_ts: int
) -> list[HourEnergy]:
    rows = connection.execute(
        "SELECT hour_ts, idle_mj, active_mj, measured_ms, util_ms, busy_ms FROM run_hour"
        " WHERE run_id = ? AND hour_ts >= ? AND hour_ts < ? ORDER BY hour_ts",
        (run_id, first_ts, last_ts),
    )
    return [HourEnergy(*row) for row in rows]


def _mean_util(connection: sqlite3.Connection, run_id: int) -> int | None:
    util, weight = connection.execute(
        "SELECT sum(e.util_permille * e.measured_s), sum(e.measured_s)"
        " FROM run_energy e LEFT JOIN device d USING (device_uuid)"
        " WHERE e.run_id = ? AND e.util_permille IS NOT NULL AND coalesce(d.kind, 'gpu') = 'gpu'",
        (run_id,),
    ).fetchone()
    return util // weight if weight else None


def _evidence(connection: sqlite3.Connection, run_id: int) -> int | None:
    """The last moment for which a node measured the run."""
    (last_ms,) = connection.execute(
        "SELECT max(c.last_ms) FROM node_run r JOIN run_cell c ON c.node = r.node"
        " AND c.job_id = r.job_id AND c.run_start_ms = r.start_ms WHERE r.run_id = ?",
        (run_id,),
    ).fetchone()
    return None if last_ms is None else last_ms // 1000


def _write_usage(
    connection: sqlite3.Connection,
    days: Iterable[str],
    totals: dict[Key, Usage],
    grid: Grid,
) -> None:
    connection.executemany("DELETE FROM usage_daily WHERE day = ?", [(day,) for day in days])
    rows = [
        (*key, *usage.amounts(), *grid.carbon(usage.energy_by_slot))
        for key, usage in sorted(totals.items())
        if any(usage.amounts())
    ]
    connection.executemany(
        "INSERT INTO usage_daily (day, cluster, account, user, gpu_type, runs_ended, runs_failed,"
        " runs_cancelled, wait_s, waited_runs, cpu_s, device_s, gpu_milli_s, util_known_milli_s,"
        " used_milli_s, failed_milli_s, idle_mj, active_mj, unmeasured_milli_s, billing_s, co2_mg,"
        " factor_fallback_mj, market_mg, market_unknown_mj) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?,"
        " ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        rows,
    )


_SUMMED = (
    *("runs_ended", "runs_failed", "runs_cancelled", "wait_s", "waited_runs", "cpu_s"),
    *("device_s", "gpu_milli_s", "util_known_milli_s", "used_milli_s", "failed_milli_s"),
    *("idle_mj", "active_mj", "unmeasured_milli_s", "billing_s", "co2_mg", "factor_fallback_mj"),
    *("market_mg", "market_unknown_mj"),
)
_MONTH = (
    "INSERT INTO usage_monthly (month, cluster, account, user, gpu_type, "  # noqa: S608
    f"{', '.join(_SUMMED)}) SELECT ?, cluster, account, user, gpu_type, "
    f"{', '.join(f'sum({name})' for name in _SUMMED)} FROM usage_daily"
    " WHERE day BETWEEN ? AND ? GROUP BY cluster, account, user, gpu_type"
)


def write_months(connection: sqlite3.Connection, months: Iterable[str]) -> None:
    """Write the monthly tables anew from the daily ones, in the caller's transaction."""
    for month in months:
        connection.execute("DELETE FROM usage_monthly WHERE month = ?", (month,))
        connection.execute(_MONTH, (month, f"{month}-01", f"{month}-31"))
        write_host_month(connection, month)


def _write_unallocated(
    connection: sqlite3.Connection, cluster: str, day: str, zone: ZoneInfo, grid: Grid
) -> dict[Owner, dict[int, int]]:
    connection.execute(
        "DELETE FROM unallocated_daily WHERE day = ? AND cluster = ?", (day, cluster)
    )
    totals: dict[str, Usage] = defaultdict(Usage)
    for model, hour_ts, idle_mj, active_mj in connection.execute(_GAPS, day_bounds(day, zone)):
        usage = totals[model]
        usage.idle_mj += idle_mj
        usage.active_mj += active_mj
        usage.add_slots(slots_of(hour_ts, idle_mj + active_mj, None, None))
    connection.executemany(
        "INSERT INTO unallocated_daily (day, cluster, model, idle_mj, active_mj, co2_mg,"
        " factor_fallback_mj, market_mg, market_unknown_mj) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                day,
                cluster,
                model,
                usage.idle_mj,
                usage.active_mj,
                *grid.carbon(usage.energy_by_slot),
            )
            for model, usage in sorted(totals.items())
        ],
    )
    return {
        Owner(cluster, "unallocated", "", "", "gpu", model): usage.energy_by_slot
        for model, usage in totals.items()
    }


_GAPS = (
    "SELECT coalesce(d.model, d.name, 'unknown') AS type, h.hour_ts, sum(h.idle_mj),"
    " sum(h.active_mj) FROM device_hour h LEFT JOIN device d USING (device_uuid)"
    " WHERE h.hour_ts >= ? AND h.hour_ts < ? AND coalesce(d.kind, 'gpu') = 'gpu'"
    " GROUP BY type, h.hour_ts"
)
