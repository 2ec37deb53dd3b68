# SPDX-License-Identifier: Apache-2.0
"""When a job may fall back, to what, and what its comment says then. On the demo site.

It has 2 × 4 a100 and 8 h100 in partition gpu, 7 small and 2 large slices in partition mig.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairwatt.core.gres import Spelling
from fairwatt.slurm_plugins.pending import QueuedJob
from fairwatt.slurm_plugins.widening import (
    Change,
    Left,
    finish,
    may_widen,
    plan,
    read_record,
    waits_since,
)
from tests.unit.slurm_plugins.campus import POLICY

SMALL = "a100_3g.20gb"
NOW = 1_796_052_000


def note(**more: Any) -> str:
    body: dict[str, Any] = {
        "v": 1,
        "id": "7-1",
        "asked": "gpu:20gb:1",
        "given": f"gpu:{SMALL}:1",
        "notes": [["FW101", "the smallest"]],
        "next": [["a100", "gpu"], ["h100", "gpu"]],
    }
    return "fairwatt:" + json.dumps({**body, **more}, separators=(",", ":"))


def job(fields: dict[str, str | int] | None = None, **more: Any) -> QueuedJob:
    known = {
        "job_id": 7,
        "has_script": 1,
        "user_id": 1000,
        "account": "qcd",
        "partition": "mig",
        "num_tasks": 1,
        "min_nodes": 1,
    }
    asked = fields or {"tres_per_node": f"gres/gpu:{SMALL}:1"}
    base = QueuedJob(
        job_id=7,
        address="7",
        states=("PENDING",),
        reason="Resources",
        comment=note(),
        fields={**known, **asked},
        eligible_ts=NOW - 100,
        submit_ts=NOW - 100,
    )
    return msgspec.structs.replace(base, **more)


def due(one: QueuedJob, wait_s: int = 60, now: int = NOW) -> bool:
    record = read_record(one.comment)
    return record is not None and may_widen(one, record, now, wait_s)


def planned(one: QueuedJob, spelling: Spelling = Spelling.SLASH) -> Change | Left:
    record = read_record(one.comment)
    assert record is not None
    return plan(one, record, POLICY, spelling, NOW)


def left(one: QueuedJob, spelling: Spelling = Spelling.SLASH) -> str:
    result = planned(one, spelling)
    assert isinstance(result, Left), result
    return result.reason


def said(change: Change | Left | None) -> dict[str, Any]:
    assert isinstance(change, Change)
    return json.loads(change.comment.removeprefix("fairwatt:"))


class TestDue:
    def test_after_the_wait_and_not_a_second_before(self):
        assert due(job(), wait_s=100)
        assert not due(job(), wait_s=101)

    def test_the_next_wait_counts_from_the_last_change(self):
        one = job(comment=note(widened=[[NOW - 30, "gpu:x:1", "gpu:y:1"]]))
        assert due(one, wait_s=30)
        assert not due(one, wait_s=31)

    def test_a_job_of_an_array_counts_from_when_it_could_start(self):
        record = read_record(note())
        assert record is not None
        assert waits_since(job(eligible_ts=NOW - 5, submit_ts=NOW - 900), record) == NOW - 5

    @pytest.mark.parametrize("reason", ["Resources", "Priority"])
    def test_reasons_that_a_flavour_mends(self, reason):
        assert due(job(reason=reason))

    @pytest.mark.parametrize(
        "more",
        [
            *(
                {"reason": reason}
                for reason in (
                    "None",
                    "Dependency",
                    "BeginTime",
                    "JobHeldUser",
                    "JobHeldAdmin",
                    "QOSMaxJobsPerUserLimit",
                    "AssocGrpGRES",
                    "Licenses",
                    "Reservation",
                    "JobArrayTaskLimit",
                    "BadConstraints",
                )
            ),
            {"states": ("RUNNING",)},
            {"states": ("PENDING", "REQUEUED")},
            {"states": ("SUSPENDED",)},
            {"states": ("COMPLETING",)},
            {"held": True},
            {"restarts": 1},
            {"batch": False},
            {"in_hetjob": True},
            {"cron": True},
            {"eligible_ts": None},
            {"comment": ""},
            {"comment": "somebody's"},
        ],
    )
    def test_jobs_that_are_left_alone(self, more):
        assert not due(job(**more))

    def test_a_job_in_a_reservation_is_left_alone(self):
        one = job()
        assert not due(msgspec.structs.replace(one, fields={**one.fields, "reservation": "r"}))


class TestRecord:
    def test_one_without_flavours_is_done(self):
        assert read_record(note(next=[])) is None

    @pytest.mark.parametrize(
        "comment",
        [
            "fairwatt:",
            "fairwatt:{",
            "fairwatt:[]",
            'fairwatt:{"v":2,"given":"gpu:1","next":[["a100",null]]}',
            'fairwatt:{"v":1,"given":7,"next":[["a100",null]]}',
            'fairwatt:{"v":1,"given":"gpu:1","next":[["a100"]]}',
            'fairwatt:{"v":1,"given":"gpu:1","next":{"a":1}}',
            'fairwatt:{"v":1,"given":"gpu:1","next":[["a100",null]],"widened":[["x","a","b"]]}',
            "x" + 'fairwatt:{"v":1,"given":"gpu:1","next":[["a100",null]]}',
        ],
    )
    def test_anything_else_is_not_ours(self, comment):
        assert read_record(comment) is None

    @given(st.text())
    def test_no_text_raises(self, text):
        read_record(text)
        read_record("fairwatt:" + text)


class TestPlan:
    @pytest.mark.parametrize(
        ("field", "before", "after"),
        [
            ("tres_per_node", f"gres/gpu:{SMALL}:1", "gres/gpu:a100:1"),
            ("tres_per_job", f"gres/gpu:{SMALL}:1", "gres/gpu:a100:1"),
            ("tres_per_socket", f"gres/gpu:{SMALL}:1", "gres/gpu:a100:1"),
            ("tres_per_task", f"cpu=3,gres/gpu:{SMALL}=1", "cpu=3,gres/gpu:a100=1"),
        ],
    )
    def test_the_field_that_was_asked_is_changed_and_nothing_else(self, field, before, after):
        change = planned(job({field: before}))
        assert isinstance(change, Change)
        assert change.fields == {field: after, "partition": "gpu"}
        assert (change.address, change.apart) == ("7", False)

    def test_the_comment_moves_on(self):
        told = said(planned(job()))
        assert told == {
            "v": 1,
            "id": "7-1",
            "asked": "gpu:20gb:1",
            "given": "gpu:a100:1",
            "notes": [["FW101", "the smallest"]],
            "next": [["h100", "gpu"]],
            "widened": [[NOW, f"gpu:{SMALL}:1", "gpu:a100:1 in partition gpu"]],
        }

    def test_a_second_change_adds_to_what_was_changed(self):
        first = [[NOW - 99, f"gpu:{SMALL}:1", "gpu:a100:1 in partition gpu"]]
        comment = note(given="gpu:a100:1", next=[["h100", None]], widened=first)
        fields = {"tres_per_node": "gres/gpu:a100:1", "partition": "gpu"}
        change = planned(job(fields, comment=comment))
        assert isinstance(change, Change)
        assert change.fields == {"tres_per_node": "gres/gpu:h100:1"}
        told = said(change)
        assert told["next"] == []
        assert told["widened"] == [*first, [NOW, "gpu:a100:1", "gpu:h100:1"]]

    def test_a_later_flavour_without_a_partition_is_where_the_job_was_put_first(self):
        """Rules say each partition from there; after a move it has to be named."""
        change = planned(job(comment=note(next=[["a100", "gpu"], ["a100_1g.5gb", None]])))
        assert said(change)["next"] == [["a100_1g.5gb", "mig"]]

    def test_of_an_array_it_is_named_before_the_move(self):
        comment = note(next=[["a100", "gpu"], ["a100_1g.5gb", None]])
        change = planned(job(address="7_[1-3]", in_array=True, many_tasks=True, comment=comment))
        assert isinstance(change, Change)
        meanwhile = read_record(str(change.at_once["admin_comment"]))
        assert meanwhile is not None
        assert meanwhile.given == f"gpu:{SMALL}:1"
        assert meanwhile.next == (("a100", "gpu"), ("a100_1g.5gb", "mig"))

    def test_a_long_comment_loses_notes_not_facts(self):
        change = planned(job(comment=note(notes=[["FW1", "x" * 300]] * 3, extra="kept")))
        told = said(change)
        assert isinstance(change, Change)
        assert len(change.comment) <= 1000
        assert len(told["notes"]) == 2
        assert (told["given"], told["extra"]) == ("gpu:a100:1", "kept")

    def test_one_that_is_full_ends_it(self):
        comment = note(widened=[[NOW - 99, "gpu:x:1" * 40, "gpu:y:1" * 90]])
        assert "admin comment" in left(job(comment=comment))

    def test_waiting_tasks_of_an_array_get_the_comment_apart(self):
        change = planned(job(address="7_[1-3]", in_array=True, many_tasks=True))
        assert isinstance(change, Change)
        assert (change.address, change.apart) == ("7_[1-3]", True)

    def test_an_array_whose_tasks_slurm_does_not_show_is_left(self):
        assert "too long" in left(job(address=None, in_array=True, many_tasks=True))


class TestLeft:
    @pytest.mark.parametrize(
        "request_",
        [
            f"gres/gpu:{SMALL}:2",
            "gres/gpu:a100:1",
            "gres/gpu:1",
            "gres/shard:1",
            f"gres/gpu:{SMALL}:1,gres/gpu:a100:1",
        ],
    )
    def test_a_request_that_was_changed_meanwhile(self, request_):
        assert "no longer" in left(job({"tres_per_node": request_}))

    def test_several_types(self):
        both = f"gpu:{SMALL}:1,gpu:a100_1g.5gb:1"
        fields = {"tres_per_node": f"gres/gpu:{SMALL}:1,gres/gpu:a100_1g.5gb:1"}
        assert "several types" in left(job(fields, comment=note(given=both)))

    def test_what_cannot_be_read(self):
        assert "cannot be read" in left(job({"tres_per_node": "gres/gpu:a:b:c:d"}))

    @pytest.mark.parametrize("type_", ["gone", "x y", "a100,gpu:h100:8", "a100:9", "", "1", "\n"])
    def test_a_type_that_no_node_has_or_that_is_no_type(self, type_):
        assert left(job(comment=note(next=[[type_, "gpu"]])))

    def test_more_than_the_place_has(self):
        fields = {"tres_per_node": f"gres/gpu:{SMALL}:5"}
        comment = note(given=f"gpu:{SMALL}:5")
        assert "does not have gpu:a100:5" in left(job(fields, comment=comment))

    @pytest.mark.parametrize("partition", ["gone", "gpu,mig,gone", "a b", "x\ny", ""])
    def test_a_partition_that_is_none(self, partition):
        assert left(job(comment=note(next=[["a100", partition]])))

    def test_no_partition_is_chosen_where_none_is_named(self):
        assert "does not have" in left(job(comment=note(next=[["a100", None]])))

    def test_a_required_node_without_the_type(self):
        fields = {"tres_per_node": f"gres/gpu:{SMALL}:1", "req_nodes": "mig01"}
        assert left(job(fields))

    def test_the_flavour_that_it_has(self):
        assert "present one" in left(job(comment=note(next=[[SMALL, None]])))

    @pytest.mark.parametrize("spelling", [Spelling.COLON, Spelling.BARE])
    def test_a_server_that_would_join_the_types(self, spelling):
        fields = {"tres_per_node": f"gres:gpu:{SMALL}:1"}
        assert "23.11" in left(job(fields), spelling)

    def test_such_a_server_can_still_change_the_partition(self):
        fields = {"tres_per_node": f"gres:gpu:{SMALL}:1"}
        change = planned(job(fields, comment=note(next=[[SMALL, "all"]])), Spelling.COLON)
        assert isinstance(change, Change)
        assert change.fields == {"partition": "all"}
        assert said(change)["given"] == f"gpu:{SMALL}:1"


class TestFinish:
    def task(self, request_: str, **more: Any) -> Change | None:
        fields = {"tres_per_node": request_, "partition": "gpu"}
        one = job(fields, address="7_2", in_array=True, **more)
        record = read_record(one.comment)
        assert record is not None
        return finish(one, record, NOW)

    @pytest.mark.parametrize("state", ["PENDING", "RUNNING", "COMPLETING"])
    def test_a_task_that_has_the_next_flavour_gets_its_comment(self, state):
        change = self.task("gres/gpu:a100:1", states=(state,))
        assert change is not None
        assert (change.address, change.fields) == ("7_2", {})
        assert said(change)["given"] == "gpu:a100:1"

    def test_one_that_has_the_old_flavour_is_left_alone(self):
        assert self.task(f"gres/gpu:{SMALL}:1", states=("RUNNING",)) is None

    def test_one_in_another_partition_is_somebody_elses_doing(self):
        assert self.task("gres/gpu:a100:1", comment=note(next=[["a100", "all"]])) is None

    def test_a_single_job_is_never_finished(self):
        record = read_record(note())
        assert record is not None
        one = job({"tres_per_node": "gres/gpu:a100:1", "partition": "gpu"})
        assert finish(one, record, NOW) is None
