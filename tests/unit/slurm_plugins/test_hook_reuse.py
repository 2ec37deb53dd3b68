# SPDX-License-Identifier: Apache-2.0
"""job_submit.lua gives equal jobs an answer again by itself, within the terms policyd set."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from fairwatt.slurm_plugins import memo, policyd
from tests.fakes.job_desc import HOOK, LUAS, NO_VAL, Hook
from tests.unit.slurm_plugins.far_end import NOT_APPLIED, forged

NEED = {"tres_per_node": "gres:gpu:20gb:1", "std_in": "/dev/null"}
TERMS = {"s": 30, "ref": 7}


def with_terms(terms: object) -> Callable[[str], str]:
    """policyd's answers with these terms, with the request's id in the comment as it puts it."""
    plain = forged(keep=terms)

    def answer(line: str) -> str:
        id_ = json.loads(line)["id"]
        return plain(line).replace(r"\"id\":\"\"", rf"\"id\":\"{id_}\"")

    return answer


@pytest.fixture(params=LUAS)
def submit(request, tmp_path, far) -> Callable:
    """Submit a batch job of user 1000 through one hook; policyd lets it reuse answers."""
    far.answer = with_terms(TERMS)
    hook = Hook(tmp_path, far, lua=request.param)
    return lambda fields, **changes: hook.submit({**fields, **changes}, {})


def verbs(far) -> list[str]:
    return [json.loads(line)["verb"] for line in far.lines]


def test_the_second_equal_job_is_edited_without_waiting_and_policyd_is_told_of_it(submit, far):
    first, second = submit(NEED), submit(NEED)
    assert verbs(far) == ["submit", "reused"]
    told = json.loads(far.lines[1])
    assert (told["ref"], told["job"]) == (7, {"user_id": 1000})
    assert (
        second.fields["tres_per_node"]
        == first.fields["tres_per_node"]
        == "gres:gpu:a100_3g.20gb:1"
    )
    assert (second.said, second.accepted) == (first.said, True)


def test_each_job_s_comment_names_its_own_decision(submit, far):
    comments = [submit(NEED).fields["admin_comment"] for _ in range(3)]
    ids = [json.loads(line)["id"] for line in far.lines]
    assert [json.loads(c.removeprefix("fairwatt:"))["id"] for c in comments] == ids


def test_a_refusal_is_reused_too(submit, far):
    nothing = {"tres_per_node": "gres:gpu:nothing:1", "std_in": "/dev/null"}
    first, second = submit(nothing), submit(nothing)
    assert verbs(far) == ["submit", "reused"]
    assert (second.accepted, second.said) == (False, first.said)


@pytest.mark.parametrize(
    "change",
    [
        {"tres_per_node": "gres:gpu:20gb:2"},
        {"partition": "gpu"},
        {"features": "x"},
        {"min_cpus": 2},
        {"het_job_offset": 1},
    ],
    ids=str,
)
def test_what_differs_in_anything_is_asked(submit, far, change):
    submit(NEED)
    submit(NEED, **change)
    assert verbs(far) == ["submit", "submit"]


def test_another_user_s_equal_job_has_the_answer_too_unless_it_is_for_one_user(submit, far):
    submit(NEED)
    submit(NEED, user_id=1001)
    assert json.loads(far.lines[1])["job"] == {"user_id": 1001}
    far.answer = with_terms({**TERMS, "uid": 1000})
    submit(NEED, partition="gpu")
    submit(NEED, partition="gpu", user_id=1001)
    assert verbs(far) == ["submit", "reused", "submit", "submit"]


def with_limits(low: int | None, high: int | None) -> Callable[[str], str]:
    return with_terms({**TERMS, "lo": low, "hi": high})


def test_an_answer_for_a_range_of_time_limits_is_given_within_it(submit, far):
    far.answer = with_limits(30, 60)
    for limit_min in (45, 30, 60):
        submit(NEED, time_limit=limit_min)
    assert verbs(far) == ["submit", "reused", "reused"]
    assert [json.loads(line)["job"].get("time_limit") for line in far.lines] == [45, 30, 60]
    for limit_min in (29, 61, NO_VAL):
        far.answer = with_terms(TERMS)
        submit(NEED, time_limit=limit_min)
    assert verbs(far)[3:] == ["submit"] * 3


def test_answers_for_several_ranges_stand_side_by_side_up_to_four(submit, far):
    for low in (0, 10, 20, 30, 40):
        far.answer = with_limits(low, low + 9)
        submit(NEED, time_limit=low)
    far.lines.clear()
    for limit_min in (49, 19, 25, 31, 5):
        submit(NEED, time_limit=limit_min)
    assert verbs(far) == ["reused"] * 4 + ["submit"]


@pytest.mark.parametrize(
    "limits", [(46, 60), (30, 44), (60, 30), ("30", 60), (None, 44), ({}, 60)], ids=str
)
def test_ranges_that_are_none_keep_nothing(submit, far, limits):
    far.answer = with_limits(*limits)
    for _ in range(2):
        assert submit(NEED, time_limit=45).accepted
    assert verbs(far) == ["submit", "submit"]


def test_a_job_without_a_time_limit_is_in_no_range(submit, far):
    far.answer = with_limits(0, 60)
    for limit_min in (NO_VAL, 30, NO_VAL):
        submit(NEED, time_limit=limit_min)
    assert verbs(far) == ["submit", "submit", "submit"]
    assert "time_limit" not in json.loads(far.lines[0])["job"]


@pytest.mark.parametrize("by_s", [30.5, -5], ids=["too old", "clock set back"])
def test_an_answer_ends_with_its_time(submit, far, by_s):
    submit(NEED)
    far.now += by_s
    submit(NEED)
    assert verbs(far) == ["submit", "submit"]


def test_when_policyd_ends_the_connection_all_its_answers_are_forgotten(submit, far):
    submit(NEED)
    far.restart()
    assert submit(NEED).fields["tres_per_node"] == "gres:gpu:a100_3g.20gb:1"
    assert verbs(far) == ["submit", "submit"]
    assert far.connects == 2
    submit(NEED)
    assert verbs(far)[2:] == ["reused"]


def test_a_policyd_that_is_gone_means_the_fail_mode_not_an_old_answer(submit, far):
    submit(NEED)
    far.restart()
    far.fault = "absent"
    out = submit(NEED)
    assert (out.fields, out.accepted) == ({}, True)
    assert out.said[0].startswith(NOT_APPLIED)


def open_reports(far) -> int:
    """How many connections for reports are open."""
    return sum(stream.reports for stream in far.streams.values())


@pytest.mark.parametrize("fault", ["full", "cut"])
def test_a_report_that_is_not_taken_whole_means_asking(submit, far, fault):
    submit(NEED)
    far.fault = fault
    assert submit(NEED).fields["tres_per_node"] == "gres:gpu:a100_3g.20gb:1"
    assert verbs(far) == ["submit", "submit"]
    assert far.connects == 1
    assert open_reports(far) == (fault == "full")  # behind a part of a line nothing may follow
    far.fault = None
    submit(NEED)
    assert verbs(far) == ["submit", "submit", "reused"]
    assert open_reports(far) == 1


def test_reports_go_over_one_connection_of_their_own(submit, far):
    for _ in range(4):
        submit(NEED)
    assert [stream.reports for stream in far.streams.values()] == [False, True]
    far.restart()
    submit(NEED)
    assert open_reports(far) == 0


def test_a_connection_for_reports_that_died_alone_is_replaced(submit, far):
    """policyd lets a client go that is one too many, and later has room for it."""
    for _ in range(2):
        submit(NEED)
    (dead,) = (stream for stream in far.streams.values() if stream.reports)
    dead.epoch = -1
    submit(NEED)
    submit(NEED)
    assert verbs(far) == ["submit", "reused", "submit", "reused"]
    assert far.connects == 1
    assert open_reports(far) == 1


def test_a_policyd_that_takes_no_further_connection_is_asked(submit, far):
    submit(NEED)
    far.most_streams = 1
    submit(NEED)
    submit(NEED)
    assert verbs(far) == ["submit"] * 3
    assert far.connects == 1


def test_a_daemon_that_takes_no_line_means_the_fail_mode(submit, far):
    submit(NEED)
    far.fault = "backlog"
    out = submit(NEED)
    assert out.said[0].startswith(NOT_APPLIED)
    assert verbs(far) == ["submit"]


@pytest.mark.parametrize(
    "terms",
    [
        *(None, "x", {}, {"s": 30}, {"ref": 7}, {"s": 61, "ref": 7}, {"s": -1, "ref": 7}),
        *({"s": 0, "ref": 7}, {"s": 30, "ref": 1.5}, {"s": "30", "ref": 7}),
    ],
    ids=str,
)
def test_terms_that_are_none_keep_nothing(submit, far, terms):
    far.answer = with_terms(terms)
    submit(NEED)
    assert submit(NEED).accepted
    assert verbs(far) == ["submit", "submit"]


def test_a_change_of_a_job_is_always_asked(tmp_path, far):
    far.answer = with_terms(TERMS)
    hook = Hook(tmp_path, far)
    record = {"tres_per_node": "gres:gpu:a100:1", "partition": "gpu", "job_id": 5}
    for _ in range(2):
        hook.modify({"tres_per_node": "gres:gpu:20gb:1"}, record)
    assert verbs(far) == ["modify", "modify"]


def test_the_memory_it_takes_is_bounded(tmp_path, far):
    far.answer = with_terms(TERMS)
    hook = Hook(tmp_path, far, patch=lambda text: text.replace("MAX_KEPT = 512", "MAX_KEPT = 2"))
    for tasks in (1, 2, 3, 4, 5):
        hook.submit({**NEED, "num_tasks": tasks}, {})
    far.lines.clear()
    for tasks in (5, 4, 3, 1):
        hook.submit({**NEED, "num_tasks": tasks}, {})
    assert verbs(far) == ["reused", "reused", "reused", "submit"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("MAX_BANDS", memo.MAX_BANDS),
        ("MAX_KEPT_BYTES", memo.MAX_REFERRED_KEY_BYTES),
        ("MAX_KEPT_S", policyd.MAX_REUSE_S),
        ("NO_LIMIT", memo.NO_LIMIT),
    ],
)
def test_hook_and_policyd_have_the_same_bounds(name, expected):
    assert f"local {name} = {expected}\n" in HOOK.read_text(encoding="utf-8")
