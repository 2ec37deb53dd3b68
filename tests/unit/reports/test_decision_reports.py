# SPDX-License-Identifier: Apache-2.0
"""What the submit policy did: to one job, and in a period to all that one may see."""

from __future__ import annotations

import json
from datetime import date

import pytest

from fairwatt.accounting.ingest import ingest
from fairwatt.accounting.reports.decisions import decisions_report, latest_decisions
from fairwatt.accounting.reports.job import job_report
from fairwatt.accounting.reports.period import parse_period, parse_since
from fairwatt.accounting.reports.scope import scope_of
from fairwatt.core.events import RuleNote
from tests.unit.accounting.samples import decision
from tests.unit.reports.tiny import CLUSTER, add_member, add_run, named

DAY = date(2026, 2, 10)
MIDNIGHT_MS = 1_770_681_600_000
"""2026-02-10 00:00 UTC."""
NAMES = {1: "ann", 2: "bob", 3: "cid"}
WEEK = parse_period("7d", DAY, "UTC")


def put(store, seq, **changes):
    values = {"cluster": CLUSTER, "uid": 1, "account": "a1", "t_ms": MIDNIGHT_MS, **changes}
    ingest(store, [decision(seq, **values)], NAMES)


def comment(**fields):
    return json.dumps({"v": 1, "asked": "gpu:20gb:1", "given": "gpu:m:1", "notes": [], **fields})


def job(store, user="ann", **how):
    return job_report(store.conn, scope_of(store.conn, user, **how), CLUSTER, 7)


class TestJob:
    def test_the_whole_decision_comes_from_the_store(self, store):
        notes = (
            RuleNote("memory_fit", "enforce", "FW101", "the smallest"),
            RuleNote("time_default", "warn", "FW601", "no limit was set"),
        )
        put(store, 1, id="17-1", notes=notes, rules={"memory_fit": "enforce", "x": "audit"})
        add_run(store, decision=comment(id="17-1", notes=[["FW101", "the smallest"]]))
        tables = job(store)
        assert named(tables, "rewrite").records() == [
            {"asked": "gpu:20gb:1", "given": "gpu:m:1", "rule": "memory_fit", "mode": "enforce",
             "code": "FW101", "reason": "the smallest"},
            {"asked": "gpu:20gb:1", "given": "gpu:m:1", "rule": "time_default", "mode": "warn",
             "code": "FW601", "reason": "no limit was set"},
        ]  # fmt: skip
        assert named(tables, "decision").records() == [
            {"judged_ts": MIDNIGHT_MS // 1000, "outcome": "rewritten", "took_us": 40,
             "rules": "memory_fit, x (audit)",
             "written": "tres_per_node=gres/gpu:20gb:1",
             "edits": "tres_per_node=gres/gpu:m_3g.20gb:1"},
        ]  # fmt: skip

    def test_an_old_comment_without_an_id_is_enough(self, store):
        notes = [["FW101", "because"], ["FW601", "warn: no limit"]]
        add_run(store, decision=comment(notes=notes))
        tables = job(store)
        told = [(r["mode"], r["code"], r["reason"]) for r in named(tables, "rewrite").records()]
        assert told == [("enforce", "FW101", "because"), ("warn", "FW601", "no limit")]
        assert named(tables, "decision").rows == []

    def test_a_decision_that_has_not_come_yet_leaves_the_comment(self, store):
        add_run(store, decision=comment(id="17-1", notes=[["FW101", "because"]]))
        assert [row["code"] for row in named(job(store), "rewrite").records()] == ["FW101"]

    def test_an_untouched_job_is_as_asked(self, store):
        add_run(store)
        assert all(
            not named(job(store), name).rows
            for name in ("rewrite", "decision", "flavours", "changes")
        )

    def test_flavours_tried_and_left(self, store):
        left = [["big", "gpu2"], ["slice", None]]
        add_run(store, decision=comment(next=left, widened=[[1_000_100, "gpu:m:1", "gpu:n:1"]]))
        assert named(job(store), "flavours").records() == [
            {"at_ts": 1_000_100, "flavour": "gpu:n:1", "before": "gpu:m:1", "what": "tried"},
            {
                "at_ts": None,
                "flavour": "big in gpu2",
                "before": None,
                "what": "to try when it waits on",
            },
            {"at_ts": None, "flavour": "slice", "before": None, "what": "to try when it waits on"},
        ]

    def test_a_job_that_began_needs_no_other_flavour(self, store):
        add_run(store, decision=comment(next=[["big", None]]), start_ts=1_000_010)
        assert [row["what"] for row in named(job(store), "flavours").records()] == ["not needed"]

    def test_changes_are_those_of_this_job_not_of_an_older_one_of_the_same_id(self, store):
        add_run(store, submit_ts=1_000_000, end_ts=1_000_900)
        change = {"verb": "modify", "job_id": 7, "notes": (), "account": "a"}
        put(store, 1, t_ms=999_999_000, **change)
        put(store, 2, t_ms=1_000_100_000, accepted=False, edits={}, **change)
        put(store, 3, t_ms=1_000_200_000, **change)
        put(store, 4, t_ms=1_000_901_000, **change)
        put(store, 5, t_ms=1_000_300_000, **{**change, "job_id": 8})
        rows = named(job(store), "changes").records()
        assert [(row["judged_ts"], row["outcome"]) for row in rows] == [
            (1_000_100, "refused"),
            (1_000_200, "rewritten"),
        ]

    def test_a_change_of_a_whole_array_is_one_of_its_task(self, store):
        add_run(store, array_job_id=5)
        put(store, 1, t_ms=1_000_100_000, verb="modify", job_id=5, account="a")
        assert len(named(job(store), "changes").rows) == 1

    def test_a_foreign_decision_under_a_forged_id_is_not_shown(self, store):
        put(store, 1, id="17-1", uid=3, account="b")
        add_run(store, decision=comment(id="17-1"))
        assert named(job(store), "decision").rows == []

    def test_hostile_fields_are_cut(self, store):
        put(store, 1, id="17-1", job={"features": "x" * 5000})
        add_run(store, decision=comment(id="17-1"))
        assert len(named(job(store), "decision").records()[0]["written"]) == len("features=") + 200


def latest(store, asker, **how):
    admin = how.pop("admin", False)
    table = latest_decisions(store.conn, scope_of(store.conn, asker, admin=admin), WEEK, **how)
    return table.records()


class TestLatest:
    @pytest.fixture(autouse=True)
    def some(self, store):
        put(store, 1)
        put(store, 2, uid=2, account="a2", accepted=False, edits={}, t_ms=MIDNIGHT_MS + 1000)
        put(store, 3, uid=3, account="b", edits={}, notes=(), t_ms=MIDNIGHT_MS + 2000)
        put(store, 4, uid=9, account=None, t_ms=MIDNIGHT_MS + 3000)
        put(store, 5, t_ms=MIDNIGHT_MS - 8 * 86_400_000)

    @pytest.mark.parametrize(
        ("user", "how", "seen"),
        [
            ("ann", {}, ["ann"]),
            ("head", {}, ["bob", "ann"]),
            ("x", {"admin": True}, ["uid 9", "cid", "bob", "ann"]),
            ("x", {"admin": True, "user": "ann"}, ["ann"]),
            ("x", {"admin": True, "refused": True}, ["bob"]),
            ("ann", {"user": "bob"}, []),
            ("nobody", {}, []),
        ],
    )
    def test_newest_first_within_the_scope(self, store, user, how, seen):
        assert [row["user"] for row in latest(store, user, **how)] == seen

    def test_outcomes(self, store):
        outcomes = [row["outcome"] for row in latest(store, "x", admin=True)]
        assert outcomes == ["rewritten", "as asked", "refused", "rewritten"]
        refused = latest(store, "bob")[0]
        assert (refused["asked"], refused["given"], refused["codes"], refused["reason"]) == (
            "gpu:20gb:1", "", "FW101", "because",
        )  # fmt: skip

    def test_a_run_tells_job_and_default_account(self, store):
        put(store, 6, id="17-6", uid=2, account=None, t_ms=MIDNIGHT_MS + 9000)
        add_run(store, job_id=70, user="bob", account="a1", decision_id="17-6")
        row = latest(store, "head")[0]
        assert (row["job_id"], row["account"], row["user"]) == (70, "a1", "bob")

    def test_without_a_run_the_only_membership_is_the_account(self, store):
        put(store, 6, uid=3, account=None, t_ms=MIDNIGHT_MS + 9000)
        assert latest(store, "cid")[0]["account"] == "b"
        add_member(store, "cid", "c", 0)
        assert latest(store, "cid")[0]["account"] is None


def test_the_sums_of_a_period(store):
    """Ten submissions of 1…10 ms and a refused change: median the 6th of 11, 99 % the 11th."""
    for number in range(1, 11):
        put(store, number, took_us=1000 * number, t_ms=MIDNIGHT_MS + number)
    put(store, 11, verb="modify", job_id=1, accepted=False, edits={}, took_us=50_000)
    tables = decisions_report(store.conn, scope_of(store.conn, "ann"), WEEK)
    values = {row["topic"]: row for row in named(tables, "headlines").records()}
    assert values["Requests judged"]["value"] == "11"
    assert values["Requests judged"]["sentence"] == "1 of them were changes of a job."
    assert values["Rewritten"]["value"] == "90.9 %"
    assert values["Refused"]["value"] == "9.1 %"
    assert values["Time taken"]["value"] == "6,000 µs"
    assert "at most 50,000 µs" in values["Time taken"]["sentence"]
    assert named(tables, "days").records() == [
        {"day": "2026-02-10", "rule": "memory_fit", "mode": "enforce", "code": "FW101",
         "count": 11, "refused": 1}
    ]  # fmt: skip
    assert named(tables, "codes").records() == [
        {"rule": "memory_fit", "mode": "enforce", "code": "FW101",
         "title": "Memory became a type", "count": 11, "refused": 1}
    ]  # fmt: skip


def test_what_is_said_most_comes_first_and_the_newest_day(store):
    """A day has 86,400 s; unknown codes, as of a site's own rule, have no title."""
    own = (RuleNote("site_rule", "warn", "XY1", "so"),)
    for number in range(3):
        put(store, number, notes=own, t_ms=MIDNIGHT_MS - 86_400_000 * (number % 2))
    put(store, 3)
    tables = decisions_report(store.conn, scope_of(store.conn, "ann"), WEEK)
    codes = [(row["code"], row["title"], row["count"]) for row in named(tables, "codes").records()]
    assert codes == [("XY1", None, 3), ("FW101", "Memory became a type", 1)]
    days = [(row["day"], row["code"], row["count"]) for row in named(tables, "days").records()]
    assert days == [("2026-02-10", "XY1", 2), ("2026-02-10", "FW101", 1), ("2026-02-09", "XY1", 1)]


def test_days_are_local(store):
    """23:30 UTC is the next day in Calcutta, at half past five in the morning."""
    put(store, 1, t_ms=MIDNIGHT_MS - 1_800_000)
    scope = scope_of(store.conn, "ann")
    for zone, day in (("UTC", "2026-02-09"), ("Asia/Kolkata", "2026-02-10")):
        period = parse_period("7d", DAY, zone)
        days = named(decisions_report(store.conn, scope, period), "days").records()
        assert [row["day"] for row in days] == [day]


def test_an_empty_period(store):
    tables = decisions_report(store.conn, scope_of(store.conn, "ann"), WEEK)
    assert named(tables, "headlines").records()[0]["value"] == "0"
    assert named(tables, "codes").rows == []


def test_since(store):
    assert parse_since("7d", DAY, "UTC") == WEEK
    assert parse_since("2026-02-04", DAY, "UTC") == WEEK
