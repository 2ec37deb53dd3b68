# SPDX-License-Identifier: Apache-2.0
"""Entitlement against use among siblings of the account tree, as Slurm counts siblings.

Siblings are the accounts under one parent and the users directly in that parent.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass

from fairwatt.accounting.reports.fairness import entitlements
from fairwatt.accounting.reports.period import Period
from fairwatt.accounting.reports.scope import Role, Scope, subtree

__all__ = ["Standing", "child_entitlements", "group_of_accounts", "standing"]

NO_ACCOUNT = "no known account"
"""Group of runs whose account is not in Slurm's tree; no account has a space in its name."""

SMALLEST_CROWD = 3
"""Sums over fewer foreign users than this are not told to somebody outside their account."""

_TOTAL = """
    SELECT COALESCE(SUM(gpu_milli_s), 0),
           COALESCE(SUM(gpu_milli_s) FILTER (WHERE inside), 0),
           COUNT(DISTINCT user) FILTER (WHERE NOT inside AND gpu_milli_s > 0)
    FROM (SELECT user, gpu_milli_s,
                 account IN (SELECT value FROM json_each(:own)) AS inside
          FROM usage_daily
          WHERE cluster = :cluster AND day >= :first AND day < :until
            AND account IN (SELECT value FROM json_each(:around)))"""


@dataclass(frozen=True)
class Standing:
    """A department among its siblings: shares in 0–1, None where unknown or not to be told."""

    parent: str | None
    entitled: float | None
    used: float | None


def standing(
    db: sqlite3.Connection, scope: Scope, cluster: str, account: str, period: Period
) -> Standing:
    """Return what part of its parent's GPU time the account is entitled to, and used."""
    row = db.execute(
        "SELECT parent FROM account WHERE cluster = ? AND name = ?", (cluster, account)
    ).fetchone()
    parent: str | None = row[0] if row else None
    if not parent:
        return Standing(None, None, None)
    entitled = child_entitlements(db, cluster, parent).get(account)
    return Standing(parent, entitled, _used_share(db, scope, cluster, account, parent, period))


def child_entitlements(
    db: sqlite3.Connection, cluster: str, parent: str
) -> dict[str, float | None]:
    """Return NormShares of the children of an account; the key "" stands for its own users."""
    children = db.execute(
        "SELECT name, raw_shares FROM account WHERE cluster = ? AND parent = ? AND NOT deleted"
        " ORDER BY name",
        (cluster, parent),
    ).fetchall()
    users = db.execute(
        "SELECT SUM(raw_shares) FROM membership WHERE cluster = ? AND account = ? AND NOT deleted",
        (cluster, parent),
    ).fetchone()[0]
    names = [name for name, _ in children]
    shares = [share for _, share in children]
    if users:
        names, shares = [*names, ""], [*shares, users]
    return dict(zip(names, entitlements(shares), strict=True))


def group_of_accounts(db: sqlite3.Connection, cluster: str, account: str) -> dict[str, str]:
    """Return for each account of the subtree the child it belongs to; the top belongs to "".

    Accounts that Slurm's tree does not know, and "" for runs without one, are a group of the
    root: the whole cluster is the sum of its groups.
    """
    groups = {account: ""}
    children = db.execute(
        "SELECT name FROM account WHERE cluster = ? AND parent = ? ORDER BY name",
        (cluster, account),
    ).fetchall()
    for (child,) in children:
        groups |= dict.fromkeys(subtree(db, cluster, child), child)
    if account in _roots(db, cluster):
        groups |= dict.fromkeys(_homeless(db, cluster), NO_ACCOUNT)
    return groups


def _roots(db: sqlite3.Connection, cluster: str) -> list[str]:
    rows = db.execute(
        "SELECT name FROM account WHERE cluster = ? AND COALESCE(parent, '') = ''", (cluster,)
    )
    return [name for (name,) in rows]


def _homeless(db: sqlite3.Connection, cluster: str) -> list[str]:
    rows = db.execute(
        "SELECT DISTINCT account FROM usage_monthly WHERE cluster = :cluster"
        " AND account NOT IN (SELECT name FROM account WHERE cluster = :cluster)",
        {"cluster": cluster},
    )
    return [name for (name,) in rows]


def _used_share(
    db: sqlite3.Connection,
    scope: Scope,
    cluster: str,
    account: str,
    parent: str,
    period: Period,
) -> float | None:
    """A department head learns the sum of the others, unless they are too few to hide in it."""
    params = {
        "cluster": cluster,
        "first": str(period.first),
        "until": str(period.until),
        "own": json.dumps(subtree(db, cluster, account)),
        "around": json.dumps(subtree(db, cluster, parent)),
    }
    around, own, others = db.execute(_TOTAL, params).fetchone()
    hidden = scope.role is not Role.ADMIN and (
        (cluster, parent) not in scope.accounts and 0 < others < SMALLEST_CROWD
    )
    return None if hidden or not around else own / around
