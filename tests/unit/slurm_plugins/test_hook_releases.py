# SPDX-License-Identifier: Apache-2.0
"""job_submit.lua means the same on every release of Slurm and every Lua, though they differ."""

from __future__ import annotations

import pytest

from tests.fakes.job_desc import LUAS, Hook
from tests.fakes.submit_releases import RELEASES
from tests.unit.slurm_plugins.far_end import NOT_APPLIED, real

PAIRS = [(lua, release) for lua in LUAS for release in RELEASES]


@pytest.fixture(params=PAIRS, ids="-".join)
def pair(request, tmp_path, far):
    """The hook on one Lua in one release, open, and that release."""
    lua, release = request.param
    return Hook(tmp_path, far, lua=lua, release=release), RELEASES[release]


def test_each_spelling_is_read_and_written_as_the_server_has_it(pair, far):
    hook, release = pair
    far.answer = real
    for level, per_task in (("node", False), ("job", False), ("task", True)):
        asked = {f"tres_per_{level}": release.gres("gpu:20gb:1", per_task=per_task)}
        out = hook.submit({**asked, "std_in": "/dev/null"}, {})
        given = release.gres("gpu:a100_3g.20gb:1", per_task=per_task)
        assert (out.accepted, out.fields[f"tres_per_{level}"]) == (True, given)


def test_a_refusal_is_a_number_that_slurm_takes_for_one(pair):
    hook, release = pair
    out = hook.submit({"tres_per_node": release.gres("gpu:h10:1")})
    assert (out.accepted, out.code, out.fields) == (False, 2072, {})


def test_a_failing_write_is_no_edit_and_no_refusal(pair):
    """Left to itself 25.11 would keep the job half edited, and 26.05 refuse it."""
    hook, release = pair
    asked = {"tres_per_job": release.gres("gpu:20gb:1"), "__failing__": ["admin_comment"]}
    out = hook.submit({**asked, "std_in": "x"}, {"SLURM_GPUS": "20gb:1"})
    assert (out.accepted, out.fields) == (True, {})
    assert out.environment == {"SLURM_GPUS": "20gb:1"}
    assert out.said[0].startswith(NOT_APPLIED)


def test_a_modify_tells_the_user_where_slurm_lets_it_and_the_log_elsewhere(pair):
    hook, release = pair
    record = {"tres_per_node": release.gres("gpu:a100:1"), "partition": "gpu", "job_id": 7}
    out = hook.modify({"tres_per_node": release.gres("gpu:h10:1")}, record)
    assert not out.accepted
    told = out.said if release.log_user_in_modify else out.logged
    assert told[0].startswith("fairwatt FW302")
    assert not any("discarded" in line for line in out.logged)


def test_tasks_may_be_unset_where_only_those_per_node_are_given(tmp_path, far):
    """So since 23.02."""
    hook = Hook(tmp_path, far, release="24.05")
    hook.submit({"tres_per_node": "gres/gpu:1", "ntasks_per_node": 2})
    assert '"ntasks_per_node":2' in far.lines[-1]
    assert "num_tasks" not in far.lines[-1]
