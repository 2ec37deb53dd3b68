# SPDX-License-Identifier: Apache-2.0
"""Who sees which runs."""

from __future__ import annotations

import dataclasses

import pytest

from fairwatt.accounting.reports.scope import (
    Role,
    Scope,
    departments,
    predicate,
    require_account,
    scope_of,
    select,
    subtree,
)
from fairwatt.core.errors import NotFoundError, ReportError
from tests.unit.reports.tiny import CLUSTER, add_account, add_member, add_run

USERS = "SELECT t.user FROM run t WHERE {scope} ORDER BY 1"


@pytest.fixture
def runs(store):
    for number, (user, account) in enumerate(
        [("ann", "a1"), ("bob", "a2"), ("cid", "b"), ("head", "d"), (None, None)]
    ):
        add_run(store, job_id=number, user=user, account=account)
    add_run(store, job_id=99, user="far", account="a1", cluster="other")
    return store.conn


def seen(db, scope):
    return [user for (user,) in select(db, scope, USERS, {})]


def test_researcher_sees_own_runs_only(runs):
    assert seen(runs, scope_of(runs, "ann")) == ["ann"]


def test_head_sees_own_runs_and_the_subtree_of_that_cluster(runs):
    assert seen(runs, scope_of(runs, "head")) == ["ann", "bob", "head"]


def test_admin_sees_everything(runs):
    assert seen(runs, scope_of(runs, "root", admin=True)) == [
        None, "ann", "bob", "cid", "far", "head",
    ]  # fmt: skip


def test_a_run_without_user_belongs_to_no_researcher(runs):
    assert seen(runs, scope_of(runs, "")) == []


def test_deleted_coordinators_lose_their_view(runs, store):
    add_member(store, "old", "b", 1, deleted=1)
    assert scope_of(runs, "old") == Scope("old", Role.RESEARCHER)


def test_an_unforeseen_role_sees_nothing(runs):
    odd = dataclasses.replace(Scope("ann", Role.ADMIN), role="owner")
    assert seen(runs, odd) == []


def test_no_query_without_scope(db):
    with pytest.raises(ReportError, match="without scope"):
        select(db, Scope("ann", Role.ADMIN), "SELECT * FROM run t", {})
    with pytest.raises(ReportError, match="needs a scope"):
        select(db, None, USERS, {})


def test_user_names_are_values_never_sql(runs):
    assert seen(runs, scope_of(runs, "ann' OR 1=1 --")) == []
    assert predicate(Scope("x'", Role.RESEARCHER))[1] == {"scope_user": "x'"}


def test_tree_of_depth_five_is_complete_and_a_cycle_ends(store):
    for depth in range(5):
        add_account(store, f"deep{depth}", f"deep{depth - 1}" if depth else "b", 1)
    add_account(store, "left", "deep4", 1, deleted=1)
    assert subtree(store.conn, CLUSTER, "b") == [
        "b", "deep0", "deep1", "deep2", "deep3", "deep4", "left",
    ]  # fmt: skip
    add_account(store, "x", "y", 1)
    add_account(store, "y", "x", 1)
    assert subtree(store.conn, CLUSTER, "x") == ["x", "y"]


@pytest.mark.parametrize("account", ["b", "root", "nothing", "a' OR 1=1"])
def test_missing_and_out_of_scope_accounts_look_the_same(db, account):
    scope = scope_of(db, "head")
    with pytest.raises(NotFoundError) as error:
        require_account(db, scope, CLUSTER, account)
    assert error.value.problem == "no such account in your view"
    require_account(db, scope, CLUSTER, "a2")


def test_departments_are_the_tops_of_what_one_answers_for(db):
    assert departments(db, scope_of(db, "head"), CLUSTER) == ["a"]
    assert departments(db, scope_of(db, "head"), "other") == []
    assert departments(db, scope_of(db, "ann"), CLUSTER) == []
    assert departments(db, scope_of(db, "x", admin=True), CLUSTER) == ["root"]
