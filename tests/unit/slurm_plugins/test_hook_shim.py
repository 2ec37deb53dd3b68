# SPDX-License-Identifier: Apache-2.0
"""job_submit.lua on every Lua, against a faithful job_desc and a far end that misbehaves."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairwatt.core.gres import Spelling
from fairwatt.slurm_plugins import engine, wire
from tests.fakes.job_desc import HOOK, LUAS, RELEASES, Hook, Wire
from tests.fakes.sites import demo, enforcing

POLICY = enforcing(demo())
NOT_APPLIED = "fairwatt: the site's GPU policy could not be applied"


def real(line: str) -> str:
    """What policyd answers."""
    query = wire.decode_query(line.encode("ascii"))
    decision = engine.decide(
        query.job, POLICY, record=query.record, spelling=Spelling(query.spelling)
    )
    return wire.encode(
        wire.Answer(
            v=1,
            id=query.id,
            act="accept" if decision.accepted else "reject",
            set=decision.edits,
            say="\n".join(decision.say) or None,
        )
    ).decode("ascii")


def forged(**changes):
    """An answer that is right except for `changes`; None removes a key."""

    def answer(line: str) -> str:
        body = json.loads(real(line)) | changes
        return json.dumps({key: value for key, value in body.items() if value is not None})

    return answer


@pytest.fixture
def far():
    return Wire(answer=real)


@pytest.fixture(params=LUAS)
def hook(request, tmp_path, far):
    return Hook(tmp_path, far, lua=request.param)


@pytest.mark.parametrize("release", RELEASES)
def test_a_request_by_memory_is_rewritten_in_the_spelling_of_the_server(tmp_path, far, release):
    prefix = "gres/" if RELEASES[release].slash else "gres:"
    hook = Hook(tmp_path, far, release=release)
    out = hook.submit({"tres_per_node": f"{prefix}gpu:20gb:1", "std_in": "/dev/null"}, {})
    assert out.accepted
    assert out.fields["tres_per_node"] == f"{prefix}gpu:a100_3g.20gb:1"
    assert out.fields["partition"] == "mig"
    assert out.fields["admin_comment"].startswith('fairwatt:{"v":1,"asked":"gpu:20gb:1",')
    assert out.said == [
        "fairwatt FW101: gpu:20gb:1 -> gpu:a100_3g.20gb:1: "
        "the smallest with 20 GB in partition mig"
    ]


def test_salloc_is_told_from_srun_by_its_job_name_which_is_the_only_one_to_leave(hook, far):
    """Measured on 24.11 and 26.05: apart from the name salloc sends what srun does."""
    asked = {"tres_per_node": "gres:gpu:20gb:1", "argc": 1}
    assert hook.submit({**asked, "name": "interactive"}).accepted
    assert not hook.submit({**asked, "name": "secret"}).accepted
    assert "secret" not in far.lines[-1]


def test_every_lua_gives_the_same_result(hook):
    out = hook.submit({"tres_per_job": "gres:gpu:20gb:2", "std_in": "/dev/null"}, {})
    assert (out.accepted, out.code) == (True, 0)
    assert out.fields["tres_per_job"] == "gres:gpu:a100_3g.20gb:2"


def test_a_job_without_gpu_is_not_even_asked_about(hook, far):
    for fields in ({}, {"tres_per_node": "gres:shard:2"}, {"licenses": "gpu"}):
        out = hook.submit(dict(fields))
        assert out.accepted
        assert out.fields == {}
        assert out.said == out.logged == []
    assert far.connects == 0


@pytest.mark.parametrize(
    "name", ["tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket"]
)
def test_no_way_of_asking_passes_by_the_policy(tmp_path, far, name):
    out = Hook(tmp_path, far).submit({name: "gres:GPU:1,gres:gpu:h10:1"})
    assert not out.accepted
    assert out.code == 2072
    assert far.lines


def test_a_rejection_shows_its_message_and_changes_nothing(hook):
    out = hook.submit({"tres_per_node": "gres:gpu:h10:1"})
    assert not out.accepted
    assert out.fields == {}
    assert out.said == [
        "fairwatt FW302: no GPU type h10 in partition gpu; nearest: h100 (also here: a100)"
    ]


def test_one_connection_serves_many_jobs(hook, far):
    for _ in range(5):
        hook.submit({"tres_per_node": "gres:gpu:a100:1"})
    assert far.connects == 1
    assert len({json.loads(line)["id"] for line in far.lines}) == 5


def test_a_restarted_policyd_costs_no_job_its_policy(hook, far):
    hook.submit({"tres_per_node": "gres:gpu:a100:1"})
    far.restart()
    out = hook.submit({"tres_per_node": "gres:gpu:A100:1", "std_in": "x"}, {})
    assert out.fields["tres_per_node"] == "gres:gpu:a100:1"
    assert far.connects == 2


@pytest.mark.parametrize("fault", ["absent", "hung", "dead", "backlog", "half"])
@pytest.mark.parametrize("mode", ["open", "closed"])
def test_a_failing_far_end_means_the_chosen_fail_mode_and_one_line(tmp_path, far, fault, mode):
    far.fault = fault
    text = f'return {{ socket = "/x", fail_mode = "{mode}" }}'
    out = Hook(tmp_path, far, settings=text).submit({"tres_per_node": "gres:gpu:20gb:1"})
    assert out.accepted is (mode == "open")
    assert out.fields == {}
    assert len(out.said) == 1
    assert out.said[0].startswith(NOT_APPLIED)
    assert len(out.logged) == 1


def test_a_frozen_policyd_costs_one_deadline_in_each_pause_which_doubles_to_30_s(hook, far):
    far.fault = "hung"
    tries = []
    start = far.now
    while far.now < start + 130:
        before = far.now
        hook.submit({"tres_per_node": "gres:gpu:1"})
        if far.now - before > 0.005:
            tries.append(far.now - start)
            assert far.now - before < 0.0105
        far.now += 0.25
    gaps = [round(b - a) for a, b in pairwise(tries)]
    assert gaps[:6] == [2, 4, 8, 16, 30, 30]
    assert sum(far.waited) <= 0.010 * len(tries)


def test_while_paused_no_call_touches_the_socket_and_success_ends_the_pauses(hook, far):
    far.fault = "absent"
    hook.submit({"tres_per_node": "gres:gpu:1"})
    assert far.connects == 1
    far.fault = None
    out = hook.submit({"tres_per_node": "gres:gpu:1"})
    assert far.connects == 1
    assert out.said[0].startswith(NOT_APPLIED)
    assert out.logged == []
    far.now += 2.1
    assert hook.submit({"tres_per_node": "gres:gpu:1"}).said == []
    far.fault = "absent"
    far.restart()
    hook.submit({"tres_per_node": "gres:gpu:1"})
    far.fault = None
    far.now += 2.1
    assert hook.submit({"tres_per_node": "gres:gpu:1"}).said == []


def test_a_clock_set_back_does_not_prolong_the_pause(hook, far):
    far.fault = "absent"
    hook.submit({"tres_per_node": "gres:gpu:1"})
    far.fault = None
    far.now -= 3600
    assert hook.submit({"tres_per_node": "gres:gpu:1"}).said == []


BAD_ANSWERS = {
    "garbage": "hello",
    "empty": "",
    "list": "[]",
    "null": "null",
    "trailing": '{"v":1}x',
    "deep": '{"a":' * 50 + "1" + "}" * 50,
    "open string": '{"v":1,"id":"',
    "nan": '{"v":NaN}',
    "infinity": '{"v":1e999}',
    "oversized": '{"say":"' + "x" * 70000 + '"}',
}


@pytest.mark.parametrize("name", BAD_ANSWERS)
def test_no_edit_from_an_answer_that_is_none(hook, far, name):
    far.raw = BAD_ANSWERS[name]
    out = hook.submit({"tres_per_node": "gres:gpu:20gb:1"})
    assert out.accepted
    assert out.fields == {}
    assert out.said[0].startswith(NOT_APPLIED)


FORGERIES = {
    "late": {"id": "999-1"},
    "other version": {"v": 2},
    "no decision": {"act": None},
    "odd decision": {"act": "maybe"},
    "unknown field": {"set": {"partition": "mig", "priority": 5}},
    "user field": {"set": {"user_id": "0"}},
    "number for text": {"set": {"partition": 5}},
    "text for number": {"set": {"min_nodes": "2"}},
    "half a node": {"set": {"min_nodes": 1.5}},
    "negative": {"set": {"min_nodes": -1}},
    "too long": {"set": {"partition": "x" * 1024}},
    "control": {"set": {"partition": "a\nb"}},
    "wrong prefix": {"set": {"tres_per_node": "gres/gpu:a100:1"}},
    "no prefix": {"set": {"tres_per_node": "gpu:a100:1"}},
    "second item": {"set": {"tres_per_node": "gres:gpu:a100:1,gpu:1"}},
    "edits a list": {"set": [1]},
    "edits null": {"set": "x"},
    "say a number": {"say": 5},
    "say too long": {"say": "x" * 5000},
    "say an escape": {"say": "\x1b[31m"},
}


@pytest.mark.parametrize("name", FORGERIES)
def test_one_bad_item_and_nothing_is_written(hook, far, name):
    far.answer = forged(**FORGERIES[name])
    out = hook.submit({"tres_per_node": "gres:gpu:20gb:1"})
    assert out.accepted
    assert out.fields == {}
    assert out.said == [out.said[0]]
    assert out.said[0].startswith(NOT_APPLIED)


def test_a_wrong_answer_does_not_pause_the_policy_for_others(hook, far):
    far.answer = forged(id="x")
    hook.submit({"tres_per_node": "gres:gpu:1"})
    far.answer = real
    assert hook.submit({"tres_per_node": "gres:gpu:1"}).said == []


def test_all_writable_kinds_arrive(hook, far):
    edits = {
        "min_nodes": 2,
        "features": "a|b",
        "exc_nodes": "n[1-3]",
        "tres_per_task": "gres:gpu:a100:1",
        "tres_per_node": "",
    }
    far.answer = forged(set=edits)
    out = hook.submit({"tres_per_node": "gres:gpu:20gb:1"})
    assert out.fields == {**edits, "tres_per_node": None}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("failing", ["partition", "tres_per_node", "admin_comment", "SLURM_GPUS"])
def test_a_failing_write_takes_the_others_back(tmp_path, far, release, failing):
    prefix = "gres/" if RELEASES[release].slash else "gres:"
    job = {"tres_per_job": f"{prefix}gpu:20gb:1", "std_in": "x", "__failing__": [failing]}
    if failing == "tres_per_node":
        job["tres_per_node"] = job.pop("tres_per_job")
    out = Hook(tmp_path, far, release=release).submit(job, {"SLURM_GPUS": "20gb:1"})
    assert out.accepted
    assert out.fields == {}
    assert out.environment == {"SLURM_GPUS": "20gb:1"}
    assert any(line.startswith(NOT_APPLIED) for line in out.said)


def lines_of_code() -> list[int]:
    """Lines of the shim's functions before which a statement can stand."""
    text = HOOK.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(text) if "local connection = nil" in line)
    end = next(i for i, line in enumerate(text) if "local function guarded" in line)
    opens = ("  local ", "  if ", "  return", "  for ", "  done, ", "  answer, ")
    return [i for i in range(start, end) if text[i].startswith(opens)]


@pytest.mark.parametrize("line", lines_of_code())
@pytest.mark.parametrize("release", ["22.05", "26.05"])
def test_no_edit_remains_when_any_statement_of_the_shim_raises(tmp_path, far, line, release):
    """An error is injected before one statement; it is armed only once the script is loaded."""

    def patch(text: str) -> str:
        lines = text.splitlines()
        lines[line] = "  if ARMED then error('injected %d') end " + lines[line]
        return "\n".join(lines)

    prefix = "gres/" if RELEASES[release].slash else "gres:"
    hook = Hook(tmp_path, far, release=release, patch=patch)
    hook._lua.globals().ARMED = True
    asked = {"tres_per_job": f"{prefix}gpu:20gb:1", "std_in": "x"}
    out = hook.submit(dict(asked), {"SLURM_GPUS": "20gb:1"})
    whole = {"tres_per_job", "partition", "admin_comment"}
    assert out.accepted
    assert set(out.fields) in (set(), whole)
    if out.fields == {}:
        assert out.environment == {"SLURM_GPUS": "20gb:1"}
        assert out.said == [] or out.said[-1].startswith(NOT_APPLIED)


def test_a_percent_sign_in_a_message_is_only_a_percent_sign(hook, far):
    far.answer = forged(act="reject", say="fairwatt FW302: 100 %s of %d")
    out = hook.submit({"tres_per_node": "gres:gpu:1"})
    assert not out.accepted
    assert out.said == ["fairwatt FW302: 100 %s of %d"]


def test_bytes_that_are_no_utf8_come_back_as_they_were(hook, far):
    bytes_ = "".join(chr(i) for i in range(1, 256))
    seen = {}

    def answer(line):
        query = wire.decode_query(line.encode("ascii"))
        seen.update(query.job)
        return wire.encode(
            wire.Answer(v=1, id=query.id, act="accept", set={"features": "caf\xe9"})
        ).decode("ascii")

    far.answer = answer
    out = hook.submit({"tres_per_node": "gres:gpu:1", "features": bytes_})
    assert seen["features"] == bytes_
    assert out.fields["features"] == "caf\xe9"


def test_unset_numbers_travel_as_whole_numbers(hook, far):
    hook.submit({"tres_per_node": "gres:gpu:1", "num_tasks": 3})
    job = json.loads(far.lines[-1])["job"]
    assert '"num_tasks":3' in far.lines[-1]
    assert job["min_nodes"] == 4294967294


def test_a_field_beyond_16_kib_is_refused_not_passed_by(hook, far):
    out = hook.submit({"tres_per_node": "gres:gpu:1", "req_nodes": "n," * 9000})
    assert not out.accepted
    assert out.said == ["fairwatt FW003: req_nodes is too long; shorten it"]


def test_a_tres_list_that_slurm_would_refuse_does_not_reach_policyd(hook, far):
    """16 KiB of types take longer to judge than the deadline, and would open the breaker."""
    out = hook.submit({"tres_per_job": "gres:gpu:a:1," * 90})
    assert not out.accepted
    assert out.said == ["fairwatt FW003: tres_per_job is too long; shorten it"]
    assert far.lines == []


def test_gpus_implied_by_tasks_are_asked_about(hook, far):
    hook.submit({"num_tasks": 4, "ntasks_per_gpu": 2})
    assert json.loads(far.lines[-1])["job"]["ntasks_per_gpu"] == 2
    far.lines.clear()
    hook.submit({"num_tasks": 4, "ntasks_per_gpu": 65534})
    assert far.lines == []


def test_a_change_of_a_job_with_implied_gpus_is_asked_about(hook, far):
    hook.modify({"partition": "mig"}, {"tres_fmt_req_str": "cpu=4,node=1,gres/gpu=2"})
    assert json.loads(far.lines[-1])["record"]["tres_counted"] == "cpu=4,node=1,gres/gpu=2"
    far.lines.clear()
    hook.modify({"partition": "mig"}, {"tres_fmt_req_str": "cpu=4,node=1"})
    assert far.lines == []


def test_the_other_entries_of_a_mixed_list_stay_as_they_were_written(tmp_path, far):
    hook = Hook(tmp_path, far, release="24.11")
    for cpus in ("cpu:2", "cpu=2", "license/ansys@host=1"):
        out = hook.submit({"tres_per_task": f"{cpus},gres/gpu:A100:1"})
        assert out.fields["tres_per_task"] == f"{cpus},gres/gpu:a100=1"


def test_missing_or_broken_settings_give_defaults_and_a_line_in_the_log(tmp_path, far):
    for text in (None, "return 5", "syntax error here", "return { deadline_ms = 'x' }"):
        hook = Hook(tmp_path, far, settings=text)
        assert hook.submit({"tres_per_node": "gres:gpu:a100:1"}).accepted
        (tmp_path / "fairwatt_hook.lua").unlink(missing_ok=True)


PENDING = {"tres_per_node": "gres:gpu:a100:1", "partition": "gpu", "job_id": 7, "min_nodes": 1}


class TestModify:
    def test_the_merged_job_is_judged(self, hook):
        out = hook.modify({"partition": "mig"}, dict(PENDING))
        assert not out.accepted
        assert out.code == 2072
        assert out.logged == [
            "fairwatt FW303: no GPU type a100 in partition mig; it is in gpu, all: add -p gpu"
        ]

    def test_an_unrelated_change_of_a_gpu_job_passes_unchanged(self, hook):
        out = hook.modify({"time_limit": 5}, {**PENDING, "tres_per_node": "gres:gpu:gone:1"})
        assert out.accepted
        assert out.fields == {}
        assert out.said == out.logged == []

    def test_a_new_request_is_rewritten_without_a_comment(self, hook):
        out = hook.modify({"tres_per_node": "gres:gpu:A100:2"}, dict(PENDING))
        assert out.fields == {"tres_per_node": "gres:gpu:a100:2"}

    def test_clearing_the_gpus_passes(self, hook):
        out = hook.modify({"tres_per_node": ""}, dict(PENDING))
        assert out.accepted
        assert out.fields == {}

    def test_nodes_that_the_job_excludes_are_never_overwritten(self, hook):
        """The record does not show them."""
        untyped = {**PENDING, "tres_per_node": "gres:gpu:1", "exc_nodes": "gpu01"}
        assert hook.modify({"min_nodes": 2}, dict(untyped)).fields == {}
        out = hook.modify({"partition": "all"}, dict(untyped))
        assert (out.accepted, out.fields) == (False, {})
        assert "FW206" in out.logged[0]

    def test_the_reservation_of_the_job_is_told(self, hook, far):
        hook.modify({"partition": "mig"}, {**PENDING, "resv_name": "course"})
        assert json.loads(far.lines[-1])["record"]["reservation"] == "course"

    def test_root_passes(self, hook, far):
        out = hook.modify({"tres_per_node": "gres:gpu:h10:1"}, dict(PENDING), uid=0)
        assert out.accepted
        assert far.connects == 0

    def test_a_job_without_gpus_passes_unasked(self, hook, far):
        assert hook.modify({"partition": "mig"}, {"partition": "gpu"}).accepted
        assert far.connects == 0

    def test_from_23_02_the_user_sees_the_message(self, tmp_path, far):
        hook = Hook(tmp_path, far, release="23.02")
        out = hook.modify({"tres_per_node": "gres:gpu:h10:1"}, dict(PENDING))
        assert out.said[0].startswith("fairwatt FW302")

    def test_an_array_update_is_the_same_each_time(self, hook):
        first = hook.modify({"tres_per_node": "gres:gpu:A100:2"}, dict(PENDING))
        again = hook.modify(dict(first.fields), dict(PENDING))
        assert again.fields == {}


class TestSiteScript:
    def with_site(self, tmp_path, far, body, mode="open"):
        site = tmp_path / "site.lua"
        site.write_text(body)
        text = f'return {{ fail_mode = "{mode}", site_script = "{site}" }}'
        return Hook(tmp_path, far, settings=text)

    def test_it_runs_first_and_ours_judges_the_result(self, tmp_path, far):
        body = 'function slurm_job_submit(j) j.partition = "mig" return slurm.SUCCESS end'
        out = self.with_site(tmp_path, far, body).submit({"tres_per_node": "gres:gpu:a100:1"})
        assert not out.accepted

    def test_its_refusal_stands(self, tmp_path, far):
        body = "function slurm_job_submit() return 2015 end"
        out = self.with_site(tmp_path, far, body).submit({"tres_per_node": "gres:gpu:a100:1"})
        assert out.code == 2015
        assert far.connects == 0

    @pytest.mark.parametrize("body", ["function slurm_job_submit() error('x') end", "syntax ("])
    def test_its_failure_does_not_reach_slurm(self, tmp_path, far, body):
        out = self.with_site(tmp_path, far, body).submit({"tres_per_node": "gres:gpu:A100:1"})
        assert out.accepted
        assert out.fields["tres_per_node"] == "gres:gpu:a100:1"


json_like = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["v", "id", "act", "set", "say", "log", "x"]), inner, max_size=5
        )
    ),
    max_leaves=12,
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(changes=st.dictionaries(st.sampled_from(["v", "id", "act", "set", "say"]), json_like))
def test_whatever_the_answer_the_job_is_whole_or_as_it_was(tmp_path, changes):
    far = Wire(answer=forged(**changes))
    out = Hook(tmp_path, far, lua="lua53").submit(
        {"tres_per_node": "gres:gpu:20gb:1", "std_in": "x"}, {}
    )
    whole = {"tres_per_node", "partition", "admin_comment"}
    assert set(out.fields) in (set(), whole)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=st.text(st.characters(max_codepoint=255, min_codepoint=1), max_size=60))
def test_whatever_the_request_the_hook_returns_a_number_and_says_one_thing(tmp_path, text):
    far = Wire(answer=real)
    out = Hook(tmp_path, far).submit({"tres_per_node": f"gres:gpu:{text}:1", "partition": text})
    assert out.code in (0, 2072)
    assert not any(NOT_APPLIED in line for line in out.said)
