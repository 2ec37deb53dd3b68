# SPDX-License-Identifier: Apache-2.0
"""Daily and monthly sums of CPUs, DRAM and the rest of nodes: runs', nobody's, the system's."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from zoneinfo import ZoneInfo

from fairwatt.accounting.carbon.grid import Grid
from fairwatt.accounting.carbon.hours import Owner
from fairwatt.accounting.carbon.slots import slots_of
from fairwatt.accounting.days import day_bounds

__all__ = ["write_host_day", "write_host_month"]


@dataclass
class _Sum:
    idle_mj: int = 0
    active_mj: int = 0
    by_slot: dict[int, int] = field(default_factory=dict)

    def add(self, hour_ts: int, idle_mj: int, active_mj: int) -> None:
        self.idle_mj += idle_mj
        self.active_mj += active_mj
        for slot_ts, energy_mj in slots_of(hour_ts, idle_mj + active_mj, None, None):
            self.by_slot[slot_ts] = self.by_slot.get(slot_ts, 0) + energy_mj


# The system's energy is active: it is split by what its services used.
_RUNS = (
    "SELECT r.cluster, coalesce(r.account, ''), coalesce(r.user, ''), h.kind, h.hour_ts,"
    " sum(h.idle_mj), sum(h.active_mj) FROM run_host_hour h JOIN run r USING (run_id)"
    " WHERE h.hour_ts >= ? AND h.hour_ts < ? GROUP BY 1, 2, 3, 4, 5"
)
_NODES = (
    "SELECT d.kind, h.hour_ts, sum(h.idle_mj), sum(h.active_mj), sum(h.system_mj)"
    " FROM device_hour h JOIN device d USING (device_uuid)"
    " WHERE h.hour_ts >= ? AND h.hour_ts < ? AND d.kind <> 'gpu' GROUP BY d.kind, h.hour_ts"
)


def write_host_day(
    connection: sqlite3.Connection, cluster: str, day: str, zone: ZoneInfo, grid: Grid
) -> dict[Owner, dict[int, int]]:
    """Write host_daily of one day anew, in the caller's transaction.

    Returns:
        The energy of each owner by quarter of an hour.
    """
    sums: dict[Owner, _Sum] = {}
    for owner, hour_ts, idle_mj, active_mj in _hours(connection, cluster, day, zone):
        sums.setdefault(owner, _Sum()).add(hour_ts, idle_mj, active_mj)
    connection.execute(
        "DELETE FROM host_daily WHERE day = ? AND (owner = 'run' OR cluster = ?)", (day, cluster)
    )
    connection.executemany(
        "INSERT INTO host_daily (day, cluster, owner, account, user, kind, idle_mj, active_mj,"
        " co2_mg, factor_fallback_mj, market_mg, market_unknown_mj)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (day, *owner[:5], total.idle_mj, total.active_mj, *grid.carbon(total.by_slot))
            for owner, total in sorted(sums.items())
            if total.idle_mj or total.active_mj
        ],
    )
    return {owner: total.by_slot for owner, total in sums.items()}


def write_host_month(connection: sqlite3.Connection, month: str) -> None:
    """Write host_monthly of one month anew from host_daily, in the caller's transaction."""
    connection.execute("DELETE FROM host_monthly WHERE month = ?", (month,))
    connection.execute(
        "INSERT INTO host_monthly (month, cluster, owner, account, user, kind, idle_mj, active_mj,"
        " co2_mg, factor_fallback_mj, market_mg, market_unknown_mj)"
        " SELECT ?, cluster, owner, account, user, kind, sum(idle_mj), sum(active_mj),"
        " sum(co2_mg), sum(factor_fallback_mj), sum(market_mg), sum(market_unknown_mj)"
        " FROM host_daily WHERE day BETWEEN ? AND ? GROUP BY cluster, owner, account, user, kind",
        (month, f"{month}-01", f"{month}-31"),
    )


def _hours(
    connection: sqlite3.Connection, cluster: str, day: str, zone: ZoneInfo
) -> Iterator[tuple[Owner, int, int, int]]:
    """Yield (owner, hour, idle mJ, active mJ)."""
    bounds = day_bounds(day, zone)
    for of_cluster, account, user, kind, *amounts in connection.execute(_RUNS, bounds):
        yield (Owner(of_cluster, "run", account, user, kind, ""), *amounts)
    for kind, hour_ts, idle_mj, active_mj, system_mj in connection.execute(_NODES, bounds):
        yield Owner(cluster, "unallocated", "", "", kind, ""), hour_ts, idle_mj, active_mj
        yield Owner(cluster, "system", "", "", kind, ""), hour_ts, 0, system_mj
