# SPDX-License-Identifier: Apache-2.0
"""The carbon of a period under an older version of the factors, from the energy kept by hour."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable
from zoneinfo import ZoneInfo

from fairwatt.accounting.carbon.grid import Emission, Grid
from fairwatt.accounting.carbon.grid_store import open_grid
from fairwatt.accounting.carbon.hours import Owner, slots_in
from fairwatt.accounting.carbon.versions import read_version
from fairwatt.accounting.days import day_of
from fairwatt.accounting.reports.period import Period
from fairwatt.accounting.reports.scope import Scope, select
from fairwatt.core.errors import NotFoundError, StoreError

__all__ = ["OwnerDay", "check_version", "old_run_carbon", "old_unowned_carbon"]

OwnerDay = tuple[Owner, str]
"""An owner and a local day: what is rounded together."""

_HOURS = """
    SELECT t.cluster, t.owner, t.account, t.user, t.kind, t.part, h.hour_ts,
           h.q0_mj, h.q1_mj, h.q2_mj, h.q3_mj
    FROM energy_hour h JOIN energy_owner t USING (key_id)
    WHERE {scope} AND h.hour_ts >= :first AND h.hour_ts < :last
      AND (:cluster IS NULL OR t.cluster = :cluster)"""
_RUNS = (
    _HOURS  # noqa: S608 - our own text
    + """ AND t.owner = 'run' AND (t.kind = 'gpu') = :gpu
      AND (:accounts IS NULL OR t.account IN (SELECT value FROM json_each(:accounts)))
      AND (:user IS NULL OR t.user = :user)"""
)
_UNOWNED = f"{_HOURS.replace('{scope}', '1')} AND t.owner <> 'run'"


def check_version(db: sqlite3.Connection, version: int | None) -> None:
    """Pass if the store has this version of the factors.

    Raises:
        NotFoundError: it has not.
    """
    if version is not None and read_version(db, version) is None:
        raise NotFoundError(
            "no such version of the carbon factors", place="factors", value=version,
            remedy="`fairwatt carbon list` shows them",
        )  # fmt: skip


def old_run_carbon(
    db: sqlite3.Connection,
    scope: Scope,
    period: Period,
    version: int,
    *,
    cluster: str | None,
    accounts: Iterable[str] | None,
    user: str | None,
    gpu: bool = True,
) -> dict[OwnerDay, Emission]:
    """Return the carbon of runs within scope, by owner and day, under a version.

    Of their GPUs, or (without `gpu`) of their parts of CPUs, memory and the rest of nodes.
    """
    params = _params(period, cluster) | {
        "gpu": gpu,
        "accounts": None if accounts is None else json.dumps(sorted(accounts)),
        "user": user,
    }
    return _emissions(db, select(db, scope, _RUNS, params), period, version)


def old_unowned_carbon(
    db: sqlite3.Connection, period: Period, version: int, cluster: str
) -> dict[OwnerDay, Emission]:
    """Return the carbon of the cluster's energy that belongs to no run, under a version."""
    rows = db.execute(_UNOWNED, _params(period, cluster)).fetchall()
    return _emissions(db, rows, period, version)


def _params(period: Period, cluster: str | None) -> dict[str, object]:
    return {"first": period.start_ts, "last": period.end_ts, "cluster": cluster}


def _emissions(
    db: sqlite3.Connection, rows: Iterable[tuple[object, ...]], period: Period, version: int
) -> dict[OwnerDay, Emission]:
    energies: dict[OwnerDay, dict[int, int]] = {}
    day = _day_reader(ZoneInfo(period.zone))
    for row in rows:
        owner, hour_ts = Owner(*row[:6]), int(row[6])  # type: ignore[arg-type, call-overload]
        key = (owner, day(hour_ts))
        energies.setdefault(key, {}).update(slots_in(hour_ts, row[7:]))  # type: ignore[arg-type]
    grid = _grid(db, version, (period.start_ts, period.end_ts))
    return {key: grid.carbon(slots) for key, slots in energies.items()} if grid else {}


def _grid(db: sqlite3.Connection, version: int, span: tuple[int, int]) -> Grid | None:
    try:
        return open_grid(db, None, version, span)
    except StoreError:
        return None


def _day_reader(zone: ZoneInfo) -> Callable[[int], str]:
    known: dict[int, str] = {}

    def read(hour_ts: int) -> str:
        day = known.get(hour_ts)
        if day is None:
            day = known[hour_ts] = day_of(hour_ts, zone)
        return day

    return read
