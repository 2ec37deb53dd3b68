# SPDX-License-Identifier: Apache-2.0
"""What job_submit.lua lets an answer write, and how it takes back what was half written."""

from __future__ import annotations

import pytest

from tests.fakes.job_desc import Hook
from tests.fakes.submit_releases import RELEASES
from tests.unit.slurm_plugins.far_end import NOT_APPLIED, forged

ASKED = {"tres_per_node": "gres:gpu:a100:1", "std_in": "x"}
EXPORTED = {"SLURM_GPUS": "1"}

GOOD = {
    "qos": "long",
    "time_limit": 4294967293,
    "min_cpus": 4294967293,
    "num_tasks": 70000,
    "cpus_per_tres": "gres:gpu:4",
    "mem_per_tres": "gres:gpu:4096",
    "min_mem_per_node": 0,
    "min_mem_per_cpu": 4000,
    "shared": 65533,
    "cpus_per_task": 1,
    "SLURM_GPUS": "a100:1",
}
BAD = {
    "time_limit": [4294967294, 4294967295, -1, 1.5, "60", True],
    "min_cpus": [4294967294],
    "shared": [65534, 4294967294, -1],
    "cpus_per_task": [65534],
    "qos": ["a\nb", 5, "x" * 1024],
    "cpus_per_tres": ["gpu:4", "gres/gpu:4", 4],
    "mem_per_tres": ["gres/gpu:4096"],
    "min_mem_per_node": ["4G", 4294967294, 0.5],
    "min_mem_per_cpu": [-1],
    "SLURM_GPUS_PER_NODE": ["a100:1"],  # sbatch did not export it: it could not be taken back
    "SLURM_JOB_ID": ["1"],
    "priority": [1],
    "array_inx": ["1-2"],
    "begin_time": [5],
    "account": ["x"],
    "script": ["x"],
}


@pytest.mark.parametrize("name", GOOD)
def test_a_right_value_is_written(hook, far, name):
    far.answer = forged(act="accept", say=None, set={name: GOOD[name]})
    out = hook.submit(dict(ASKED), dict(EXPORTED))
    assert out.said == []
    changed = {**out.fields, **{k: v for k, v in out.environment.items() if v != "1"}}
    assert changed == {name: GOOD[name]}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in BAD.items() for v in values])
def test_a_wrong_one_is_not_nor_is_its_neighbour(hook, far, name, value):
    far.answer = forged(act="accept", say=None, set={"partition": "mig", name: value})
    out = hook.submit(dict(ASKED), dict(EXPORTED))
    assert (out.accepted, out.fields, out.environment) == (True, {}, EXPORTED)
    assert out.said[0].startswith(f"{NOT_APPLIED} (policyd: bad edit of {name})")
    assert (len(out.said), len(out.logged)) == (1, 1)


def test_two_memories_are_one_too_many(hook, far):
    """Slurm keeps them in one place."""
    far.answer = forged(
        act="accept", say=None, set={"min_mem_per_node": 4000, "min_mem_per_cpu": 4000}
    )
    out = hook.submit(dict(ASKED))
    assert out.fields == {}
    assert "two edits of the memory" in out.said[0]


EDITS = {
    "tres_per_node": "gres:gpu:h100:1",
    "tres_per_job": "gres:gpu:h100:1",
    "partition": "mig",
    "features": "a100",
    "exc_nodes": "n1",
    "qos": "long",
    "admin_comment": "{}",
    "num_tasks": 2,
    "min_nodes": 2,
    "time_limit": 60,
    "min_cpus": 2,
    "cpus_per_task": 2,
    "shared": 1,
    "cpus_per_tres": "gres:gpu:4",
    "mem_per_tres": "gres:gpu:4096",
    "SLURM_GPUS": "h100:1",
    "min_mem_per_node": 5000,
}
SET = {
    "tres_per_node": "gres:gpu:a100:1",
    "partition": "gpu",
    "features": "h100",
    "exc_nodes": "n2",
    "num_tasks": 1,
    "min_nodes": 1,
    "time_limit": 4294967295,
    "cpus_per_task": 65535,
    "shared": 0,
    "min_mem_per_cpu": 100,
}


@pytest.mark.parametrize("failing", EDITS)
@pytest.mark.parametrize("before", [{}, SET], ids=["unset", "set"])
def test_whichever_write_fails_every_kind_is_as_it_was(tmp_path, far, failing, before):
    far.answer = forged(act="accept", say=None, set=EDITS)
    hook = Hook(tmp_path, far)
    asked = {**ASKED, **before, "__failing__": [failing]}
    out = hook.submit(asked, dict(EXPORTED))
    assert (out.accepted, out.fields, out.environment) == (True, {}, EXPORTED)
    assert out.said == [f"{NOT_APPLIED} (error in the hook); the job is submitted unchanged"]
    assert len(out.logged) == 1
    assert f"injected at {failing}" in out.logged[0]


def test_the_user_is_not_told_of_edits_that_were_taken_back(hook, far):
    far.answer = forged(act="accept", set={"partition": "mig"}, say="fairwatt FW101: moved to mig")
    out = hook.submit({**ASKED, "__failing__": ["partition"]})
    assert len(out.said) == 1
    assert "FW101" not in out.said[0]


class TestModify:
    """In a modify some releases cannot be given back what was there."""

    def modify(self, tmp_path, far, release, change):
        edits = {
            "tres_per_node": RELEASES[release].gres("gpu:h100:1"),
            "partition": "mig",
        }
        far.answer = forged(act="accept", say=None, set=edits)
        record = {"tres_per_job": RELEASES[release].gres("gpu:a100:1")}
        hook = Hook(tmp_path, far, release=release)
        return hook.modify({**change, "__failing__": ["partition"]}, record)

    @pytest.mark.parametrize("release", [name for name in RELEASES if name <= "26.05"])
    def test_a_field_that_was_not_set_is_not_set_again(self, tmp_path, far, release):
        out = self.modify(tmp_path, far, release, {"time_limit": 5})
        assert (out.accepted, out.fields) == (True, {})

    def test_where_an_empty_text_would_clear_the_job_the_change_is_refused(self, tmp_path, far):
        out = self.modify(tmp_path, far, "26.11", {"time_limit": 5})
        assert not out.accepted
        assert "the change is refused" in out.said[0]

    def test_so_is_one_that_clears_where_slurm_cannot_say_so_again(self, tmp_path, far):
        out = self.modify(tmp_path, far, "25.05", {"tres_per_node": ""})
        assert not out.accepted
        assert self.modify(tmp_path, far, "26.11", {"tres_per_node": ""}).accepted
