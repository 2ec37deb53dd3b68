# SPDX-License-Identifier: Apache-2.0
"""Who gets what GPUs draw without work: chosen when a report is made, as both parts are stored.

Whatever the policy, Σ runs + unallocated (+ the owner "idle" of the policy none) is what was
measured, to the mJ.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal, TypeVar

import msgspec

from fairwatt.accounting.reports.columns import column
from fairwatt.accounting.reports.period import Period
from fairwatt.accounting.reports.scope import Scope, select
from fairwatt.accounting.reports.usage import Usage
from fairwatt.core.records import Table

__all__ = [
    "IdlePolicy",
    "PolicyView",
    "as_reserved",
    "by_policy",
    "moved_by",
    "moved_of_runs",
    "owner_table",
    "policies_table",
    "policy_note",
]

IdlePolicy = Literal["reserved", "active", "none"]
K = TypeVar("K", bound=Hashable)

_WORDS: Mapping[IdlePolicy, str] = {
    "reserved": "what a GPU draws without work counts for whoever reserved it, and the part that "
    "nobody reserved is unallocated",
    "active": "what a GPU draws without work counts for the runs that work on it, by their part "
    "of the work; it is unallocated only while nobody holds the GPU",
    "none": "runs count only what their work added; what held GPUs draw without work is the owner "
    '"idle"',
}
_MOVED = """
    SELECT {key}, SUM(t.moved_mj) FROM moved_daily t
    WHERE {scope} AND t.owner = 'run' AND t.day BETWEEN :first AND :last
      AND (:cluster IS NULL OR t.cluster = :cluster)
      AND (:accounts IS NULL OR t.account IN (SELECT value FROM json_each(:accounts)))
      AND (:user IS NULL OR t.user = :user)
    GROUP BY {key}"""
_OF_RUNS = """
    SELECT n.run_id, c.device_uuid, SUM(c.moved_mj)
    FROM node_run n JOIN use_cell c
      ON c.node = n.node AND c.job_id = n.job_id AND c.run_start_ms = n.start_ms
    WHERE n.run_id IN (SELECT value FROM json_each(?)) AND c.moved_mj <> 0
    GROUP BY n.run_id, c.device_uuid"""
_KEYS = {"month": "substr(t.day, 1, 7)"}


def policy_note(policy: IdlePolicy) -> str:
    """Return the sentence that names the policy below a table of energy."""
    note = f"Idle policy {policy}: {_WORDS[policy]}."
    if policy == "reserved":
        return note
    return f"{note} CO2e is always that of the reserved energy, as SCI asks."


def as_reserved(carbon: Table, policy: IdlePolicy) -> Table:
    """Return a table of carbon that says whose energy it has, where the page's is another."""
    if policy == "reserved":
        return carbon
    note = (
        "The energy in this table is as reserved, idle parts included, as SCI asks; elsewhere it "
        f"is by the idle policy {policy}."
    )
    return msgspec.structs.replace(carbon, notes=[*carbon.notes, note])


def by_policy(
    usage: Mapping[K, Usage], policy: IdlePolicy, moved: Mapping[K, int]
) -> dict[K, Usage]:
    """Return usages whose idle part is what the policy gives them.

    `moved` is what `active` adds to each (`moved_by`); it is not looked at for the others.
    """
    if policy == "active":
        return {k: replace(u, idle_mj=u.idle_mj + moved.get(k, 0)) for k, u in usage.items()}
    if policy == "none":
        return {key: replace(use, idle_mj=0) for key, use in usage.items()}
    return dict(usage)


def owner_table(
    db: sqlite3.Connection,
    energy: Table,
    policy: IdlePolicy,
    cluster: str,
    period: Period,
    use: tuple[Usage, Usage],
) -> Table:
    """Return the table of energy and its owners as a policy gives it.

    Args:
        db: the store.
        energy: of the policy reserved: the department first, then nobody.
        policy: how the idle parts are given.
        cluster: whose devices nobody held.
        period: which days.
        use: of the department, as reserved and as the policy gives it.
    """
    reserved, given = use
    known = reserved.energy_mj is not None
    (name, idle_mj, *own), (nobody, free_mj, *rest) = energy.rows
    rows: list[tuple[Any, ...]] = [
        (name, given.idle_mj if known else None, *own), (nobody, free_mj, *rest)
    ]  # fmt: skip
    if policy == "active" and free_mj is not None:
        rows[1] = (nobody, free_mj - _freed_mj(db, cluster, period), *rest)
    if policy == "none" and known:
        rows.insert(1, (f"idle (held by {name})", idle_mj, 0, *(None for _ in own[1:])))
    return msgspec.structs.replace(energy, rows=rows, notes=[*energy.notes, policy_note(policy)])


def policies_table(
    db: sqlite3.Connection,
    energy: Table,
    cluster: str,
    period: Period,
    use: Usage,
    moved_mj: int,
) -> Table:
    """Return the energy of the owners under each idle policy, side by side; `use` is as reserved.

    `moved_mj` is what the policy active adds to the department.
    """
    columns = (
        column("owner", "Owner", "text", "Whose energy it is."),
        *(
            column(
                f"{policy}_mj", policy.capitalize(), "energy_mj", f"{words[0].upper()}{words[1:]}."
            )
            for policy, words in _WORDS.items()
        ),
    )
    name, nobody = energy.rows[0][0], energy.rows[1]
    known = use.energy_mj is not None
    whole_mj = use.idle_mj + use.active_mj
    free_mj = None if nobody[1] is None else nobody[1] + nobody[2]
    freed_mj = _freed_mj(db, cluster, period)
    own = (whole_mj, whole_mj + moved_mj, use.active_mj) if known else (None, None, None)
    rows = [
        (name, *own),
        ("idle", *((0, 0, use.idle_mj) if known else (None, None, None))),
        (nobody[0], free_mj, None if free_mj is None else free_mj - freed_mj, free_mj),
    ]
    return Table(
        name="policies",
        title="GPU energy by idle policy",
        columns=columns,
        rows=rows,
        data_version=energy.data_version,
        notes=["The site's setting report.idle_policy says which one the pages use."],
    )


def _freed_mj(db: sqlite3.Connection, cluster: str, period: Period) -> int:
    """What nobody reserved of boards that somebody held: active gives it to the holders."""
    row = db.execute(
        "SELECT -SUM(moved_mj) FROM moved_daily WHERE owner = 'unallocated' AND cluster = ?"
        " AND day >= ? AND day < ?",
        (cluster, str(period.first), str(period.until)),
    ).fetchone()
    return int(row[0] or 0)


def moved_by(
    db: sqlite3.Connection,
    scope: Scope,
    period: Period,
    key: Literal["account", "user", "gpu_type", "day"],
    *,
    cluster: str | None = None,
    accounts: Iterable[str] | None = None,
    user: str | None = None,
) -> dict[str, int]:
    """Return what the policy `active` moves to the runs of each value of `key`, in mJ."""
    rows = _rows(db, scope, f"t.{key}", period, cluster, accounts, user)
    return {str(name): moved_mj for name, moved_mj in rows}


def _moved_series(
    db: sqlite3.Connection,
    scope: Scope,
    period: Period,
    step: Literal["day", "month"],
    *,
    cluster: str,
    accounts: Iterable[str],
) -> dict[tuple[str, str], int]:
    """As `moved_by` by (day or month, account); months are those that the period touches."""
    if step == "month":
        period = period.whole_months()
    key = _KEYS.get(step, f"t.{step}")
    rows = _rows(db, scope, f"{key}, t.account", period, cluster, accounts, None)
    return {(step_, account): moved_mj for step_, account, moved_mj in rows}


@dataclass(frozen=True)
class PolicyView:
    """Gives the usages of some accounts the idle parts of a policy."""

    db: sqlite3.Connection
    scope: Scope
    cluster: str
    accounts: Mapping[str, str]
    policy: IdlePolicy

    def by(
        self, usage: dict[str, Usage], period: Period, key: Literal["account", "gpu_type"]
    ) -> dict[str, Usage]:
        """Return sums by account or type as the policy gives them."""
        moved = self._by(period, key) if self.policy == "active" else {}
        return by_policy(usage, self.policy, moved)

    def series(
        self, usage: dict[tuple[str, str], Usage], period: Period, step: Literal["day", "month"]
    ) -> dict[tuple[str, str], Usage]:
        """Return sums by (day or month, account) as the policy gives them."""
        moved: dict[tuple[str, str], int] = {}
        if self.policy == "active":
            moved = _moved_series(
                self.db, self.scope, period, step, cluster=self.cluster, accounts=self.accounts
            )
        return by_policy(usage, self.policy, moved)

    def whole_mj(self, period: Period) -> int:
        """Return what the policy active adds to all of them, in mJ."""
        return sum(self._by(period, "account").values())

    def _by(self, period: Period, key: Literal["account", "gpu_type"]) -> dict[str, int]:
        return moved_by(
            self.db, self.scope, period, key, cluster=self.cluster, accounts=self.accounts
        )


def moved_of_runs(db: sqlite3.Connection, run_ids: Iterable[int]) -> dict[tuple[int, str], int]:
    """Return what `active` moves to runs by (run, board). The caller has checked the scope."""
    rows = db.execute(_OF_RUNS, (json.dumps(list(run_ids)),))
    return {(run_id, device): moved_mj for run_id, device, moved_mj in rows}


def _rows(
    db: sqlite3.Connection,
    scope: Scope,
    key: str,
    period: Period,
    cluster: str | None,
    accounts: Iterable[str] | None,
    user: str | None,
) -> list[tuple[Any, ...]]:
    params = {
        "first": str(period.first),
        "last": str(period.until - timedelta(days=1)),
        "cluster": cluster,
        "accounts": None if accounts is None else json.dumps(sorted(accounts)),
        "user": user,
    }
    return select(db, scope, _MOVED.replace("{key}", key), params)
