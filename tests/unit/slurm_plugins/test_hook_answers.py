# SPDX-License-Identifier: Apache-2.0
"""job_submit.lua writes a whole right answer or nothing at all."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes.job_desc import HOOK, Hook, Wire
from tests.fakes.submit_releases import RELEASES
from tests.unit.slurm_plugins.far_end import NOT_APPLIED, forged

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
    "null for text": {"set": {"partition": None}},
    "null for number": {"set": {"min_nodes": None}},
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
