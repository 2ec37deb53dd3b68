# SPDX-License-Identifier: Apache-2.0
"""Quantiles of waiting times."""

from __future__ import annotations

from datetime import date

from fairwatt.accounting.reports.period import Period
from fairwatt.accounting.reports.scope import scope_of
from fairwatt.accounting.reports.waits import Waits, waits_by_group, waits_of_user
from tests.unit.reports.tiny import CLUSTER, add_run

FEBRUARY = Period(date(2026, 2, 1), date(2026, 3, 1), "UTC")
START = FEBRUARY.start_ts


def add_waits(store, waits, **values):
    for number, wait_s in enumerate(waits):
        add_run(store, **{"job_id": 100 + number, "eligible_ts": START + 5, **values,
                          "start_ts": START + 5 + wait_s, "end_ts": START + 90_000})  # fmt: skip


def test_nearest_rank(store):
    add_waits(store, [10, 20, 30, 40, 50, 60, 70, 80, 90, 1000], account="a1")
    found = waits_by_group(
        store.conn, scope_of(store.conn, "head"), CLUSTER, {"a1": "a1"}, FEBRUARY
    )
    assert found == ({"a1": Waits(10, 50, 90, 1000)}, Waits(10, 50, 90, 1000))


def test_groups_and_all_of_them(store):
    """7 of a1 and 3 of a2: the median of all is the fifth of ten, ties counted one by one."""
    add_waits(store, [10, 10, 10, 10, 20, 30, 40], account="a1", user="ann")
    add_waits(store, [5, 50, 60], account="a2", user="bob", cluster=CLUSTER, submit_ts=2_000_000)
    groups, whole = waits_by_group(
        store.conn, scope_of(store.conn, "head"), CLUSTER, {"a1": "g", "a2": "h"}, FEBRUARY
    )
    assert groups == {"g": Waits(7, 10, 40, 40), "h": Waits(3, 50, 60, 60)}
    assert whole == Waits(10, 10, 50, 60)


def test_no_start_no_waits(store):
    found = waits_by_group(
        store.conn, scope_of(store.conn, "head"), CLUSTER, {"a1": "a1"}, FEBRUARY
    )
    assert found == ({}, None)


def test_one_and_two_runs(store):
    add_waits(store, [7], account="a1", user="one")
    add_waits(store, [3, 9], account="a2", user="two", cluster="other")
    assert waits_of_user(store.conn, scope_of(store.conn, "one"), FEBRUARY) == Waits(1, 7, 7, 7)
    assert waits_of_user(store.conn, scope_of(store.conn, "two"), FEBRUARY) == Waits(2, 3, 9, 9)
    assert waits_of_user(store.conn, scope_of(store.conn, "none"), FEBRUARY) is None


def test_what_counts(store):
    """Only starts inside [start, end), with a known eligibility; running jobs count."""
    add_run(store, job_id=1, eligible_ts=START - 60, start_ts=START, end_ts=None)
    add_run(store, job_id=2, eligible_ts=START, start_ts=FEBRUARY.end_ts, end_ts=None)
    add_run(store, job_id=3, eligible_ts=None, start_ts=START + 9, end_ts=START + 10)
    add_run(store, job_id=4, eligible_ts=START - 9, start_ts=START - 1, end_ts=START + 10)
    add_run(store, job_id=5, eligible_ts=START, start_ts=None, end_ts=START + 10)
    assert waits_of_user(store.conn, scope_of(store.conn, "ann"), FEBRUARY) == Waits(1, 60, 60, 60)


def test_a_clock_that_ran_backwards_is_no_wait(store):
    add_waits(store, [-4])
    assert waits_of_user(store.conn, scope_of(store.conn, "ann"), FEBRUARY) == Waits(1, 0, 0, 0)
