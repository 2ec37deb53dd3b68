# SPDX-License-Identifier: Apache-2.0
"""Who is asking, and the one predicate that decides which rows they may see.

Every query of a report runs through `select`, which refuses a query without the `{scope}`
mark: a report cannot forget it. The scoped table is always aliased `t` and has the columns
`user`, `account` and `cluster`.
"""

from __future__ import annotations

import enum
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairwatt.core.errors import NotFoundError, ReportError

__all__ = [
    "Role",
    "Scope",
    "departments",
    "predicate",
    "require_account",
    "scope_of",
    "select",
    "subtree",
]

_MARK = "{scope}"
_SUBTREE = """
    WITH RECURSIVE sub(name) AS (
        SELECT name FROM account WHERE cluster = :cluster AND name = :account
        UNION
        SELECT a.name FROM account a JOIN sub ON a.parent = sub.name WHERE a.cluster = :cluster
    )
    SELECT name FROM sub"""


class Role(enum.StrEnum):
    """How far a person sees: own runs, own departments, everything."""

    RESEARCHER = "researcher"
    HEAD = "head"
    ADMIN = "admin"


@dataclass(frozen=True)
class Scope:
    """Who is asking: a user, a role, and the (cluster, account) pairs a head answers for."""

    user: str
    role: Role
    accounts: frozenset[tuple[str, str]] = frozenset()


def scope_of(db: sqlite3.Connection, user: str, *, admin: bool = False) -> Scope:
    """Return the scope of a user: coordinators see their accounts and everything below."""
    if admin:
        return Scope(user, Role.ADMIN)
    granted = db.execute(
        "SELECT cluster, account FROM membership WHERE user = ? AND coordinator AND NOT deleted",
        (user,),
    ).fetchall()
    accounts = frozenset(
        (cluster, name) for cluster, account in granted for name in subtree(db, cluster, account)
    )
    return Scope(user, Role.HEAD if accounts else Role.RESEARCHER, accounts)


def predicate(scope: Scope) -> tuple[str, dict[str, Any]]:
    """Return the SQL condition on table `t` and its parameters; anything unforeseen sees nothing.

    Raises:
        ReportError: there is no scope.
    """
    if not isinstance(scope, Scope):
        raise ReportError("a report needs a scope", remedy="resolve the visitor first")
    own = "t.user = :scope_user"
    match scope.role:
        case Role.ADMIN:
            return "1", {}
        case Role.HEAD:
            pairs = json.dumps(sorted(scope.accounts))
            granted = (
                "(t.cluster, t.account) IN (SELECT json_extract(value, '$[0]'), "
                "json_extract(value, '$[1]') FROM json_each(:scope_accounts))"
            )
            return f"({own} OR {granted})", {"scope_user": scope.user, "scope_accounts": pairs}
        case Role.RESEARCHER:
            return own, {"scope_user": scope.user}
    return "0", {}


def select(
    db: sqlite3.Connection, scope: Scope, sql: str, params: Mapping[str, Any]
) -> list[tuple[Any, ...]]:
    """Run a query whose `{scope}` mark is replaced by the predicate; return its rows.

    Raises:
        ReportError: the query lacks the mark.
    """
    if _MARK not in sql:
        raise ReportError("a query without scope", value=sql, remedy="add the {scope} mark")
    condition, own = predicate(scope)
    return db.execute(sql.replace(_MARK, condition), {**params, **own}).fetchall()


def subtree(db: sqlite3.Connection, cluster: str, account: str) -> list[str]:
    """Return the account and all below it, deleted ones too: their use stays part of history."""
    rows = db.execute(_SUBTREE, {"cluster": cluster, "account": account})
    return sorted(name for (name,) in rows)


def departments(db: sqlite3.Connection, scope: Scope, cluster: str) -> list[str]:
    """Return the topmost accounts of a cluster whose reports the asker may see."""
    granted = sorted(name for where, name in scope.accounts if where == cluster)
    rows = db.execute(
        "SELECT name FROM account WHERE cluster = :cluster"
        " AND CASE WHEN :all THEN COALESCE(parent, '') = '' ELSE"
        " name IN (SELECT value FROM json_each(:granted))"
        " AND COALESCE(parent, '') NOT IN (SELECT value FROM json_each(:granted)) END"
        " ORDER BY name",
        {
            "cluster": cluster,
            "all": scope.role is Role.ADMIN,
            "granted": json.dumps(granted),
        },
    )
    return [name for (name,) in rows]


def require_account(db: sqlite3.Connection, scope: Scope, cluster: str, account: str) -> None:
    """Pass if the account exists and its totals may be seen.

    Raises:
        NotFoundError: missing or out of scope; the two look the same.
    """
    exists = db.execute(
        "SELECT 1 FROM account WHERE cluster = ? AND name = ?", (cluster, account)
    ).fetchone()
    visible = scope.role is Role.ADMIN or (
        scope.role is Role.HEAD and (cluster, account) in scope.accounts
    )
    if not (exists and visible):
        raise NotFoundError("no such account in your view", place="department", value=account)
