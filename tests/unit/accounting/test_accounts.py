# SPDX-License-Identifier: Apache-2.0
"""Accounts, members and shares from sacctmgr's text into the store."""

from __future__ import annotations

import pytest

from fairwatt.accounting.accounts import Account, Membership, parse_accounts, write_accounts
from fairwatt.accounting.store import open_store, transaction

NOW = """campus|root|||1|
campus|root|root||1|
campus|physics||root|50|
campus|physics|hana||1|
campus|qcd||physics|parent|
campus|qcd|ada||7|gpu
campus|qcd|ada||3|
"""
EVER = NOW + "campus|alchemy||root|5|\ncampus|alchemy|ada||1|\n"
DETAILS = """physics|hana|department | of physics
qcd|hana,zoe|lattice
root||default root account
"""
TREE = parse_accounts(now=NOW, ever=EVER, details=DETAILS)


def test_accounts_form_a_tree():
    assert Account("campus", "qcd", "physics", None, "lattice", False) in TREE.accounts
    assert Account("campus", "root", None, 1, "default root account", False) in TREE.accounts


def test_a_description_may_hold_the_separator():
    assert [a.description for a in TREE.accounts if a.name == "physics"] == [
        "department | of physics"
    ]


def test_deleted_ones_are_kept_as_history():
    assert Account("campus", "alchemy", "root", 5, None, True) in TREE.accounts
    assert Membership("campus", "ada", "alchemy", 1, False, True) in TREE.memberships


def test_the_association_of_all_partitions_gives_the_shares():
    assert [m.raw_shares for m in TREE.memberships if (m.user, m.account) == ("ada", "qcd")] == [3]


def test_a_coordinator_need_not_be_a_member():
    assert Membership("campus", "hana", "physics", 1, True, False) in TREE.memberships
    assert Membership("campus", "zoe", "qcd", None, True, False) in TREE.memberships


@pytest.mark.parametrize(("text", "shares"), [("parent", None), ("2147483647", None), ("0", 0)])
def test_parent_shares_are_no_number(text, shares):
    tree = parse_accounts(now="", ever=f"c|a||root|{text}|\n", details="")
    assert tree.accounts[0].raw_shares == shares


def test_a_withdrawn_coordinator_loses_the_right_and_forgotten_accounts_stay(tmp_path):
    db = open_store(tmp_path / "a.db")
    db.execute("INSERT INTO account VALUES ('campus', 'old', 'root', 1, NULL, 0)")
    db.execute("INSERT INTO membership VALUES ('campus', 'eve', 'physics', NULL, 1, 0)")
    db.execute("INSERT INTO membership VALUES ('campus', 'eve', 'old', NULL, 1, 0)")
    for _ in range(2):
        with transaction(db) as connection:
            write_accounts(connection, TREE)
    coordinators = db.execute(
        "SELECT user, account FROM membership WHERE coordinator ORDER BY 1, 2"
    )
    assert coordinators.fetchall() == [
        ("eve", "old"), ("hana", "physics"), ("hana", "qcd"), ("zoe", "qcd"),
    ]  # fmt: skip
    assert db.execute("SELECT deleted FROM account WHERE name = 'old'").fetchone() == (0,)
