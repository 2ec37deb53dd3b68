# SPDX-License-Identifier: Apache-2.0
"""job_submit.lua and changes of a pending job."""

from __future__ import annotations

import json

import pytest

from tests.fakes.job_desc import Hook

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
        assert "exc_nodes" not in hook.modify({"min_nodes": 2}, dict(untyped)).fields
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


def test_a_change_of_a_job_with_implied_gpus_is_asked_about(hook, far):
    hook.modify({"partition": "mig"}, {"tres_fmt_req_str": "cpu=4,node=1,gres/gpu=2"})
    assert json.loads(far.lines[-1])["record"]["tres_counted"] == "cpu=4,node=1,gres/gpu=2"
    far.lines.clear()
    hook.modify({"partition": "mig"}, {"tres_fmt_req_str": "cpu=4,node=1"})
    assert far.lines == []


@pytest.mark.parametrize(
    ("comment", "asked"),
    [('fairwatt:{"v":1,"whole":1}', 1), ('fairwatt:{"asked":"\\"whole\\":1"}', 0), (None, 0)],
)
def test_a_change_of_a_job_with_whole_nodes_is_judged_though_it_names_no_gpu(
    hook, far, comment, asked
):
    record = {"partition": "gpu", "job_id": 7} | ({"admin_comment": comment} if comment else {})
    hook.modify({"exc_nodes": ""}, record)
    assert len(far.lines) == asked
