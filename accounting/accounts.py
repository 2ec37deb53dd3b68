# SPDX-License-Identifier: Apache-2.0
"""Accounts, memberships, shares and coordinators, as sacctmgr prints them, into the store."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Account", "AccountTree", "Membership", "parse_accounts", "write_accounts"]

FAIRSHARE_PARENT = 0x7FFFFFFF
"""What Slurm stores for `Fairshare=parent`; some releases print the number."""


@dataclass(frozen=True)
class Account:
    """One account; `raw_shares` None means `parent`: its users compete in the account above."""

    cluster: str
    name: str
    parent: str | None
    raw_shares: int | None
    description: str | None
    deleted: bool


@dataclass(frozen=True)
class Membership:
    """A user in an account; a coordinator may be no member, then there are no shares."""

    cluster: str
    user: str
    account: str
    raw_shares: int | None
    coordinator: bool
    deleted: bool


@dataclass(frozen=True)
class AccountTree:
    """All accounts and memberships of the clusters that slurmdbd knows."""

    accounts: tuple[Account, ...]
    memberships: tuple[Membership, ...]


_Row = tuple[str, str, str, str, str, str]


def parse_accounts(*, now: str, ever: str, details: str) -> AccountTree:
    """Return the tree of `sacctmgr -nP show associations` and `show accounts`.

    Args:
        now: associations as Cluster|Account|User|ParentName|Fairshare|Partition.
        ever: the same with deleted ones; those that are not in `now` are deleted.
        details: Account|Coordinators|Description.
    """
    alive = {row[:3] for row in _rows(now)}
    facts = _details(details)
    accounts: dict[tuple[str, str], Account] = {}
    members: dict[tuple[str, str, str], Membership] = {}
    for cluster, name, user, parent, shares, _partition in _rows(ever):
        deleted = (cluster, name, user) not in alive
        if user:
            key = (cluster, user, name)
            coordinator = user in facts.get(name, ((), ""))[0]
            members.setdefault(
                key, Membership(cluster, user, name, _shares(shares), coordinator, deleted)
            )
        else:
            description = facts.get(name, ((), ""))[1] or None
            accounts.setdefault(
                (cluster, name),
                Account(cluster, name, parent or None, _shares(shares), description, deleted),
            )
    for cluster, name in accounts:
        for user in facts.get(name, ((), ""))[0]:
            outside = Membership(cluster, user, name, None, coordinator=True, deleted=False)
            members.setdefault((cluster, user, name), outside)
    return AccountTree(tuple(accounts.values()), tuple(members.values()))


def write_accounts(connection: sqlite3.Connection, tree: AccountTree) -> None:
    """Insert or update accounts and memberships; what Slurm has forgotten stays as it was.

    Runs in the caller's transaction.
    """
    connection.executemany(
        "INSERT INTO account (cluster, name, parent, raw_shares, description, deleted)"
        " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (cluster, name) DO UPDATE SET"
        " parent = excluded.parent, raw_shares = excluded.raw_shares,"
        " description = excluded.description, deleted = excluded.deleted",
        [
            (item.cluster, item.name, item.parent, item.raw_shares, item.description, item.deleted)
            for item in tree.accounts
        ],
    )
    connection.executemany(
        "INSERT INTO membership (cluster, user, account, raw_shares, coordinator, deleted)"
        " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (cluster, user, account) DO UPDATE SET"
        " raw_shares = excluded.raw_shares, coordinator = excluded.coordinator,"
        " deleted = excluded.deleted",
        [
            (
                item.cluster,
                item.user,
                item.account,
                item.raw_shares,
                item.coordinator,
                item.deleted,
            )
            for item in tree.memberships
        ],
    )
    _withdraw_coordinators(connection, tree)


def _withdraw_coordinators(connection: sqlite3.Connection, tree: AccountTree) -> None:
    """Nobody keeps a right that Slurm no longer gives: it decides what a person may see."""
    given = {(item.cluster, item.user, item.account) for item in tree.memberships}
    clusters = {item.cluster for item in tree.accounts}
    names = {(item.cluster, item.name) for item in tree.accounts}
    held = connection.execute("SELECT cluster, user, account FROM membership WHERE coordinator")
    lost = [
        row
        for row in held.fetchall()
        if row not in given and row[0] in clusters and (row[0], row[2]) in names
    ]
    connection.executemany(
        "UPDATE membership SET coordinator = 0 WHERE cluster = ? AND user = ? AND account = ?",
        lost,
    )


def _rows(text: str) -> list[_Row]:
    rows = []
    for line in text.split("\n"):
        parts = line.split("|")
        if len(parts) == 6:
            cluster, name, user, parent, shares, partition = parts
            rows.append((cluster, name, user, parent, shares, partition))
    # An association of all partitions speaks for the membership, then the first by name.
    return sorted(rows, key=lambda row: (row[:3], row[5] != "", row[5]))


def _details(text: str) -> Mapping[str, tuple[tuple[str, ...], str]]:
    found = {}
    for line in text.split("\n"):
        parts = line.split("|", 2)
        if len(parts) == 3:
            name, coordinators, description = parts
            found[name] = (tuple(filter(None, coordinators.split(","))), description)
    return found


def _shares(text: str) -> int | None:
    if not text.isdigit() or int(text) >= FAIRSHARE_PARENT:
        return None
    return int(text)
