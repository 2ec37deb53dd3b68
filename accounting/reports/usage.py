# SPDX-License-Identifier: Apache-2.0
"""Sums over the rollups: the one place that turns their integers into hours and shares."""

from __future__ import annotations

import json
import operator
import sqlite3
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any, Literal, TypeVar

from fairwatt.accounting.carbon.grid import Emission
from fairwatt.accounting.carbon.hours import Owner
from fairwatt.accounting.reports.old_factors import OwnerDay, old_run_carbon
from fairwatt.accounting.reports.period import Period
from fairwatt.accounting.reports.scope import Scope, select

__all__ = [
    "Usage",
    "grouped",
    "hours",
    "size_notes",
    "total",
    "usage_by",
    "usage_by_type",
    "usage_series",
]

Key = Literal["account", "user", "gpu_type", "day", "month"]
K = TypeVar("K", bound=Hashable)
_NOTHING = Emission(0, 0, 0, 0)


@dataclass(frozen=True)
class Usage:
    """Sums of rollup rows: seconds, thousandths of a GPU times seconds, mJ, mg.

    `unsized_s` are the device seconds of types whose part of a board the catalogue does not know.
    """

    runs_ended: int = 0
    runs_failed: int = 0
    runs_cancelled: int = 0
    cpu_s: int = 0
    device_s: int = 0
    gpu_milli_s: int = 0
    util_known_milli_s: int = 0
    used_milli_s: int = 0
    failed_milli_s: int = 0
    idle_mj: int = 0
    active_mj: int = 0
    unmeasured_milli_s: int = 0
    co2_mg: int = 0
    unsized_s: int = 0
    factor_fallback_mj: int = 0
    market_mg: int = 0
    market_unknown_mj: int = 0
    billing_s: int = 0

    def __add__(self, other: Usage) -> Usage:
        """Return the sum, field by field."""
        return Usage(*map(operator.add, _AMOUNTS_OF(self), _AMOUNTS_OF(other)))

    @property
    def is_unsized(self) -> bool:
        """Whether devices were held, but none whose part of a board is known."""
        return self.unsized_s > 0 and self.gpu_milli_s == 0

    @property
    def fge_hours(self) -> float | None:
        """Full-GPU equivalent hours; None if devices were held but none of known size."""
        return None if self.is_unsized else hours(self.gpu_milli_s)

    @property
    def device_hours(self) -> float:
        """Device hours, a slice counted as one device."""
        return round(self.device_s / 3600, 6)

    @property
    def billing_hours(self) -> float | None:
        """Slurm's billing units times hours; None if time was used and Slurm tells no units."""
        if not self.billing_s and (self.device_s or self.cpu_s):
            return None
        return round(self.billing_s / 3600, 6)

    @property
    def measured(self) -> float | None:
        """Part of the GPU time with measured energy; None if there was no GPU time."""
        if not self.gpu_milli_s:
            return None
        return 1 - self.unmeasured_milli_s / self.gpu_milli_s

    @property
    def energy_mj(self) -> int | None:
        """GPU energy; None if there was GPU time and none of it was measured."""
        energy_mj = self.idle_mj + self.active_mj
        if self.is_unsized:
            return energy_mj or None
        unknown = 0 < self.gpu_milli_s <= self.unmeasured_milli_s
        return None if unknown else energy_mj

    @property
    def carbon_mg(self) -> int | None:
        """CO2e; None if the energy is unknown or no factor was valid."""
        energy_mj = self.energy_mj
        return None if energy_mj is None or (energy_mj and not self.co2_mg) else self.co2_mg

    @property
    def market_carbon_mg(self) -> int | None:
        """Market-based CO2e; None if a part of the energy is unknown or under no contract."""
        known = self.carbon_mg is not None and not self.market_unknown_mj
        return self.market_mg if known else None

    @property
    def fallback(self) -> float | None:
        """Part of the energy whose factor fills a gap; None without energy."""
        energy_mj = self.idle_mj + self.active_mj
        return self.factor_fallback_mj / energy_mj if energy_mj else None


_NAMES = tuple(field.name for field in fields(Usage))
_AMOUNTS_OF = operator.attrgetter(*_NAMES)
_AMOUNTS = {name: f"t.{name}" for name in _NAMES} | {
    "unsized_s": "CASE WHEN t.gpu_milli_s = 0 THEN t.device_s END"
}
_SUMS = ", ".join(f"COALESCE(SUM({_AMOUNTS[name]}), 0)" for name in _NAMES)
_DAILY = """
    SELECT t.{key}, {sums} FROM usage_daily t
    WHERE {scope} AND t.day BETWEEN :first AND :last
      AND (:cluster IS NULL OR t.cluster = :cluster)
      AND (:accounts IS NULL OR t.account IN (SELECT value FROM json_each(:accounts)))
      AND (:user IS NULL OR t.user = :user)
    GROUP BY t.{key} ORDER BY t.{key}"""
_TWO_KEYS = _DAILY.replace("t.{key}", "t.{key}, t.account")
_MONTHLY = _TWO_KEYS.replace("usage_daily", "usage_monthly").replace("t.day", "t.month")


def hours(milli_s: int) -> float:
    """Return thousandths of a GPU times seconds as full-GPU hours."""
    return round(milli_s / 3_600_000, 6)


def size_notes(use: Usage) -> list[str]:
    """Say how many device hours no full-GPU hours stand for, if any."""
    if not use.unsized_s:
        return []
    return [
        f"{use.unsized_s / 3600:,.1f} device hours are of GPU types that the catalogue does not "
        "know; the full-GPU hours are without them. The admins can add the types "
        "(site.catalogue_dir)."
    ]


def usage_by(
    db: sqlite3.Connection,
    scope: Scope,
    period: Period,
    key: Key,
    *,
    cluster: str | None = None,
    accounts: Iterable[str] | None = None,
    user: str | None = None,
    factors: int | None = None,
) -> dict[str, Usage]:
    """Return the usage of the period's days per value of `key`, filtered and within scope.

    Its carbon is that of a version of the factors; None: the newest.
    """
    rows = _rows(db, scope, _DAILY, key, period, cluster, accounts, user)
    usage = {row[0]: Usage(*row[1:]) for row in rows}
    if factors is None:
        return usage
    old = old_run_carbon(db, scope, period, factors, cluster=cluster, accounts=accounts, user=user)
    return _with_carbon(usage, old, lambda owner, day: _KEYS[key](owner, day))


def usage_series(
    db: sqlite3.Connection,
    scope: Scope,
    period: Period,
    step: Literal["day", "month"],
    *,
    cluster: str,
    accounts: Iterable[str],
    factors: int | None = None,
) -> dict[tuple[str, str], Usage]:
    """Return the usage per (day or month, account); months are those the period touches.

    Its carbon is that of a version of the factors; None: the newest.
    """
    accounts = list(accounts)
    sql = _TWO_KEYS if step == "day" else _MONTHLY
    rows = _rows(db, scope, sql, step, period, cluster, accounts, None)
    usage = {(row[0], row[1]): Usage(*row[2:]) for row in rows}
    if factors is None:
        return usage
    whole = period if step == "day" else period.whole_months()
    old = old_run_carbon(db, scope, whole, factors, cluster=cluster, accounts=accounts, user=None)
    return _with_carbon(usage, old, lambda owner, day: (_KEYS[step](owner, day), owner.account))


def usage_by_type(
    db: sqlite3.Connection,
    scope: Scope,
    period: Period,
    *,
    cluster: str,
    accounts: Iterable[str],
) -> dict[tuple[str, str], Usage]:
    """Return the usage of the period's days per (GPU type, account)."""
    rows = _rows(db, scope, _TWO_KEYS, "gpu_type", period, cluster, accounts, None)
    return {(row[0], row[1]): Usage(*row[2:]) for row in rows}


def total(parts: Iterable[Usage]) -> Usage:
    """Return the sum of usages."""
    return sum(parts, Usage())


def grouped(usage: dict[Any, Usage], name_of: dict[Any, Hashable]) -> dict[Hashable, Usage]:
    """Return the usages summed by the new name of each key."""
    result: dict[Hashable, Usage] = {}
    for key, amount in usage.items():
        name = name_of[key]
        result[name] = result.get(name, Usage()) + amount
    return result


_KEYS: Mapping[Key, Callable[[Owner, str], str]] = {
    "account": lambda owner, _day: owner.account,
    "user": lambda owner, _day: owner.user,
    "gpu_type": lambda owner, _day: owner.part,
    "day": lambda _owner, day: day,
    "month": lambda _owner, day: day[:7],
}


def _with_carbon(
    usage: Mapping[K, Usage],
    emissions: Mapping[OwnerDay, Emission],
    key_of: Callable[[Owner, str], K],
) -> dict[K, Usage]:
    """Put other carbon in place of what the rollups hold."""
    sums: dict[K, Emission] = {}
    for (owner, day), made in emissions.items():
        key = key_of(owner, day)
        pairs = zip(sums.get(key, _NOTHING), made, strict=True)
        sums[key] = Emission(*(one + other for one, other in pairs))
    return {key: _replaced(use, sums.get(key, _NOTHING)) for key, use in usage.items()}


def _replaced(use: Usage, made: Emission) -> Usage:
    return replace(
        use,
        co2_mg=made.co2_mg,
        factor_fallback_mj=made.fallback_mj,
        market_mg=made.market_mg,
        market_unknown_mj=made.market_unknown_mj,
    )


def _rows(
    db: sqlite3.Connection,
    scope: Scope,
    sql: str,
    key: str,
    period: Period,
    cluster: str | None,
    accounts: Iterable[str] | None,
    user: str | None,
) -> list[tuple[Any, ...]]:
    length = len("2026-02" if key == "month" else "2026-02-01")
    params = {
        "first": str(period.first)[:length],
        "last": str(period.until - timedelta(days=1))[:length],
        "cluster": cluster,
        "accounts": None if accounts is None else json.dumps(sorted(accounts)),
        "user": user,
    }
    return select(db, scope, sql.replace("{sums}", _SUMS).replace("{key}", key), params)
