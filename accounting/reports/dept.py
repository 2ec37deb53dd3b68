# SPDX-License-Identifier: Apache-2.0
"""The department head's report: share against use, waste, waits, energy and carbon.

A department is an account and everything below it. All amounts come from the daily and
monthly rollups; only the waits are read from the runs.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
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
from fairwatt.accounting.reports.dept_carbon import WHOLE, carbon_table, energy_table, whole_of
from fairwatt.accounting.reports.fairness import share_deviation
from fairwatt.accounting.reports.idle import (
    IdlePolicy,
    PolicyView,
    as_reserved,
    owner_table,
    policies_table,
    policy_note,
)
from fairwatt.accounting.reports.old_factors import check_version
from fairwatt.accounting.reports.period import Period, first_of_month
from fairwatt.accounting.reports.scope import Scope, require_account
from fairwatt.accounting.reports.shares import (
    Standing,
    child_entitlements,
    group_of_accounts,
    standing,
)
from fairwatt.accounting.reports.usage import (
    Usage,
    grouped,
    hours,
    size_notes,
    total,
    usage_by,
    usage_series,
)
from fairwatt.accounting.reports.waits import Waits, waits_by_group
from fairwatt.accounting.reports.waste import class_table, split_table
from fairwatt.accounting.reports.words import HEADLINES, dept_headlines, percent
from fairwatt.accounting.store import data_version
from fairwatt.core.records import Column, Table

__all__ = ["dept_report"]

_ACCOUNT = column("account", "Account", "text", "Account in Slurm, with everything below it.")
_SUMMARY = (
    _ACCOUNT,
    column("entitled", "Entitled to", "ratio", "Shares of this account over those of it and its "
           "siblings (NormShares in sshare)."),
    column("used", "Used", "ratio", "Part of the siblings' full-GPU hours that this account used "
           "in the period; not decayed, unlike sshare."),
    RUNS_ENDED,
    FGE_HOURS,
    DEVICE_HOURS,
    BILLING_HOURS,
    column("busy_hours", "Busy", "gpu_hours", "Full-GPU hours times the measured utilisation."),
    column("idle_hours", "Held but idle", "gpu_hours", "Full-GPU hours with known utilisation, "
           "less the busy part."),
    column("unknown_hours", "Utilisation unknown", "gpu_hours", "Full-GPU hours without a "
           "utilisation reading."),
    column("failed_hours", "In failed runs", "gpu_hours", "Full-GPU hours of runs that failed, "
           "timed out or lost their node."),
    column("wait_p50_s", "Median wait", "duration_s", "Half of the runs that started in the "
           "period waited no longer, from eligible to start."),
    column("wait_p90_s", "Wait, 9 in 10 within", "duration_s", "Nine in ten runs that started "
           "in the period waited no longer."),
    ENERGY,
    CARBON,
    MEASURED,
    *WHOLE,
)  # fmt: skip


@dataclass(frozen=True)
class _Facts:
    """What the tables are drawn from; groups are children of the account, "" itself."""

    account: str
    period: Period
    standing: Standing
    entitled: Mapping[str, float | None]
    usage: Mapping[str, Usage]
    waits: Mapping[str, Waits]
    all_waits: Waits | None
    version: int
    idle_policy: IdlePolicy

    def name(self, group: str) -> str:
        """The group's name for people."""
        alone = set(self.usage) | set(self.entitled) <= {""}
        return group or (self.account if alone else f"{self.account} (directly)")


def dept_report(
    db: sqlite3.Connection,
    scope: Scope,
    cluster: str,
    account: str,
    period: Period,
    carbon: CarbonAsk | None = None,
    idle_policy: IdlePolicy = "reserved",
) -> list[Table]:
    """Return the tables of a department.

    They are summary, headlines, accounts, waste, waste_classes, waits, gpu_types, energy,
    policies, carbon, series and months. `carbon` says which version of the factors they are made
    with; None: the newest. `idle_policy` says who gets what GPUs draw without work; carbon is
    always that of the energy as reserved.

    Raises:
        NotFoundError: the account is missing or out of scope, or the version is unknown.
    """
    require_account(db, scope, cluster, account)
    ask = carbon or CarbonAsk()
    check_version(db, ask.version)
    groups = group_of_accounts(db, cluster, account)
    by = functools.partial(
        usage_by, db, scope, cluster=cluster, accounts=groups, factors=ask.version
    )
    series = functools.partial(
        usage_series, db, scope, cluster=cluster, accounts=groups, factors=ask.version
    )
    own = PolicyView(db, scope, cluster, groups, idle_policy)
    by_account = by(period, "account")
    usage = own.by(by_account, period, "account")
    waits, all_waits = waits_by_group(db, scope, cluster, groups, period)
    facts = _Facts(
        account=account,
        period=period,
        standing=standing(db, scope, cluster, account, period),
        entitled=child_entitlements(db, cluster, account),
        usage={str(k): v for k, v in grouped(usage, dict(groups)).items()},
        waits=waits,
        all_waits=all_waits,
        version=data_version(db),
        idle_policy=idle_policy,
    )
    reserved = {str(k): v for k, v in grouped(by_account, dict(groups)).items()}
    by_type = own.by(by(period, "gpu_type"), period, "gpu_type")
    year = Period(first_of_month(period.until - timedelta(days=1), 11), period.until, period.zone)
    daily = own.series(series(period, "day"), period, "day")
    monthly = own.series(series(year, "month"), year, "month")
    names = {group: facts.name(group) for group in _group_order(facts)}
    emitted = carbon_table(db, scope, cluster, groups, period, names, reserved, ask)
    whole, as_given = total(reserved.values()), total(facts.usage.values())
    energy = energy_table(db, cluster, period, _whole_name(facts), whole, ask)
    summary = _summary(facts, emitted)
    return [
        summary,
        _headlines(facts, summary),
        _accounts(facts),
        split_table(as_given, facts.version),
        class_table(db, scope, period, cluster, groups, whole, facts.version),
        _waits(facts),
        _gpu_types(facts, by_type),
        owner_table(db, energy, idle_policy, cluster, period, (whole, as_given)),
        policies_table(db, energy, cluster, period, whole, own.whole_mj(period)),
        as_reserved(emitted, idle_policy),
        _series(facts, daily, groups),
        _months(facts, monthly),
    ]


def _summary(facts: _Facts, emitted: Table) -> Table:
    use = total(facts.usage.values())
    whole = whole_of(emitted)
    waits = facts.all_waits
    row = (
        facts.account,
        facts.standing.entitled,
        facts.standing.used,
        use.runs_ended,
        use.fge_hours,
        use.device_hours,
        use.billing_hours,
        *(None if use.is_unsized else hours(part) for part in _parts(use)),
        waits.p50_s if waits else None,
        waits.p90_s if waits else None,
        use.energy_mj,
        use.carbon_mg,
        use.measured,
        *(whole[key] for key in ("host_mj", "co2_mg", "market_mg", "embodied_mg")),
    )
    notes = [*size_notes(use), policy_note(facts.idle_policy)]
    return _table(facts, "summary", "Summary", _SUMMARY, [row], notes)


def _parts(use: Usage) -> tuple[int, int, int, int]:
    """Busy, held but idle, unknown, and (of all three) failed."""
    return (
        use.used_milli_s,
        use.util_known_milli_s - use.used_milli_s,
        use.gpu_milli_s - use.util_known_milli_s,
        use.failed_milli_s,
    )


def _headlines(facts: _Facts, summary: Table) -> Table:
    said = {**summary.records()[0], "idle_policy": facts.idle_policy}
    rows = dept_headlines(said, facts.standing.parent)
    return _table(facts, "headlines", "Headlines", HEADLINES, rows)


def _accounts(facts: _Facts) -> Table:
    columns = (
        _ACCOUNT,
        column("entitled", "Entitled to", "ratio", "Shares over those of all siblings."),
        column("used", "Used", "ratio", "Part of the department's full-GPU hours."),
        column("difference", "Difference", "ratio", "Used less entitled; below 0 means less than "
               "its share was used."),
        RUNS_ENDED, FGE_HOURS, DEVICE_HOURS, BILLING_HOURS, ENERGY, CARBON, MEASURED,
    )  # fmt: skip
    whole = total(facts.usage.values())
    rows = [_account_row(facts, group, whole) for group in _group_order(facts)]
    notes = [*_deviation(rows), policy_note(facts.idle_policy)]
    return _table(facts, "accounts", "Share and use by account", columns, rows, notes)


def _account_row(facts: _Facts, group: str, whole: Usage) -> tuple[Any, ...]:
    use = facts.usage.get(group, Usage())
    alone = len(_group_order(facts)) == 1
    entitled = 1.0 if alone else facts.entitled.get(group)
    used = use.gpu_milli_s / whole.gpu_milli_s if whole.gpu_milli_s else None
    known = entitled is not None and used is not None
    return (
        facts.name(group),
        entitled,
        used,
        used - entitled if known else None,  # type: ignore[operator]
        use.runs_ended,
        use.fge_hours,
        use.device_hours,
        use.billing_hours,
        use.energy_mj,
        use.carbon_mg,
        use.measured,
    )


def _deviation(rows: list[tuple[Any, ...]]) -> list[str]:
    """Say how much was used on somebody else's entitlement, among accounts that used any."""
    active = [(row[1], row[2]) for row in rows if row[1] and row[2]]
    if len(active) < 2:
        return []
    deviation = share_deviation([e for e, _ in active], [u for _, u in active])
    if deviation is None:
        return []
    return [
        f"Share deviation {percent(deviation)} among {len(active)} accounts that used GPUs: this "
        "part of the hours was used on another account's entitlement. An account that asks for "
        "less than its share is not wronged by that."
    ]


def _waits(facts: _Facts) -> Table:
    columns = (
        _ACCOUNT,
        column("runs", "Runs", "integer", "Runs that started in the period."),
        column("p50_s", "Median wait", "duration_s", "Half waited no longer (nearest rank)."),
        column("p90_s", "9 in 10 within", "duration_s", "Nine in ten waited no longer."),
        column("max_s", "Longest", "duration_s", "The longest wait."),
    )
    rows = [
        (facts.name(group), *facts.waits[group])
        for group in _group_order(facts)
        if group in facts.waits
    ]
    notes = ["Wait is counted from the moment a run was eligible until it started."]
    return _table(facts, "waits", "Waiting times", columns, rows, notes)


def _gpu_types(facts: _Facts, by_type: Mapping[str, Usage]) -> Table:
    columns = (
        column("gpu_type", "GPU type", "text", "GRES type as Slurm names it."),
        DEVICE_HOURS, FGE_HOURS, ENERGY, CARBON, MEASURED,
    )  # fmt: skip
    rows = [
        (name, use.device_hours, use.fge_hours, use.energy_mj, use.carbon_mg, use.measured)
        for name, use in by_type.items()
        if use.device_s
    ]
    notes = [
        "Slices and whole GPUs are different devices: only full-GPU hours may be added up.",
        *size_notes(total(by_type.values())),
        policy_note(facts.idle_policy),
    ]
    return _table(facts, "gpu_types", "By GPU type", columns, rows, notes)


_STEPS = {
    "day": "The day, local time.",
    "week": "First day of the week, local time.",
    "month": "Calendar month, local time.",
}


def _whole_name(facts: _Facts) -> str:
    return "all accounts" if facts.standing.parent is None else facts.account


def _series(
    facts: _Facts, daily: Mapping[tuple[str, str], Usage], groups: Mapping[str, str]
) -> Table:
    step = "day" if facts.period.days <= 31 else "week" if facts.period.days <= 190 else "month"
    columns = (
        column("step", step.capitalize(), "text", _STEPS[step]),
        _ACCOUNT, FGE_HOURS, ENERGY, CARBON,
    )  # fmt: skip
    bucket = {key: (_bucket(key[0], step), groups[key[1]]) for key in daily}
    sums: dict[Any, Usage] = grouped(dict(daily), dict(bucket))
    steps = sorted({_bucket(str(day), step) for day in _days(facts.period)})
    rows = [
        (start, facts.name(group), use.fge_hours, use.energy_mj, use.carbon_mg)
        for start in steps
        for group in _group_order(facts)
        for use in [sums.get((start, group), Usage())]
    ]
    notes = [policy_note(facts.idle_policy)]
    return _table(facts, "series", f"Full-GPU hours per {step}", columns, rows, notes)


def _months(facts: _Facts, monthly: Mapping[tuple[str, str], Usage]) -> Table:
    columns = (
        column("month", "Month", "text", "Calendar month, local time."),
        FGE_HOURS, ENERGY, CARBON, MEASURED,
    )  # fmt: skip
    sums = grouped(dict(monthly), {key: key[0] for key in monthly})
    rows = [
        (month, use.fge_hours, use.energy_mj, use.carbon_mg, use.measured)
        for month, use in sorted(sums.items(), key=lambda item: str(item[0]))
    ]
    notes = ["Calendar months, whole ones, up to the last of the period; the newest may go on."]
    notes.append(policy_note(facts.idle_policy))
    return _table(facts, "months", "Month by month", columns, rows, notes)


def _group_order(facts: _Facts) -> list[str]:
    """Children by name, the account's own runs last; without shares and use they are left out."""
    names = set(facts.usage) | {g for g, e in facts.entitled.items() if g or e}
    order = sorted(name for name in names if name)
    own = facts.usage.get("", Usage())
    alone = not order
    return [*order, *([""] if alone or own.gpu_milli_s or own.runs_ended else [])]


def _days(period: Period) -> list[date]:
    return [period.first + timedelta(days=n) for n in range(period.days)]


def _bucket(day: str, step: str) -> str:
    if step == "month":
        return day[:7]
    if step == "day":
        return day
    start = date.fromisoformat(day)
    return str(start - timedelta(days=start.weekday()))


def _table(
    facts: _Facts,
    name: str,
    title: str,
    columns: tuple[Column, ...],
    rows: list[tuple[Any, ...]],
    notes: list[str] | None = None,
) -> Table:
    return Table(
        name=name,
        title=title,
        columns=columns,
        rows=rows,
        data_version=facts.version,
        notes=notes or [],
    )
