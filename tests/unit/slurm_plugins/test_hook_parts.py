# SPDX-License-Identifier: Apache-2.0
"""job_submit.lua and the variables of a heterogeneous job's parts: its first part carries all."""

from __future__ import annotations

import json

import pytest

from tests.unit.slurm_plugins.far_end import NOT_APPLIED, forged

FIRST = {"het_job_offset": 0, "std_in": "/dev/null", "num_tasks": 1}
EXPORTED = {
    "SLURM_GPUS_HET_GROUP_1": "20gb:1",
    "SLURM_GPUS_PACK_GROUP_1": "20gb:1",
    "SLURM_GPUS_PER_NODE_HET_GROUP_31": "1",
    "SLURM_GPUS_HET_GROUP_32": "20gb:1",
    "SLURM_GPUS_PER_NODE_HET_GROUP_2": "x" * 256,
    "SLURM_JOB_NAME_HET_GROUP_1": "secret",
    "HOME": "/h",
}


def sent(far):
    return json.loads(far.lines[-1])["job"]


def test_the_first_part_is_asked_about_for_the_others_sake(hook, far):
    """Its own options name no GPU."""
    out = hook.submit(dict(FIRST), dict(EXPORTED))
    parts = {name: value for name, value in sent(far).items() if "GROUP" in name}
    names = ("HET_GROUP_1", "PACK_GROUP_1", "PER_NODE_HET_GROUP_31")
    assert parts == {f"SLURM_GPUS_{name}": EXPORTED[f"SLURM_GPUS_{name}"] for name in names}
    assert out.environment == EXPORTED | {
        "SLURM_GPUS_HET_GROUP_1": "1",
        "SLURM_GPUS_PACK_GROUP_1": "1",
    }
    assert (out.accepted, out.fields, out.said, out.logged) == (True, {}, [], [])


@pytest.mark.parametrize("offset", [1, 4294967294])
def test_no_other_job_is(hook, far, offset):
    hook.submit({**FIRST, "het_job_offset": offset}, dict(EXPORTED))
    assert far.lines == []
    hook.submit({**FIRST, "het_job_offset": offset, "tres_per_job": "gres:gpu:1"}, dict(EXPORTED))
    assert not any("GROUP" in name for name in sent(far))


def test_nor_is_one_without_an_environment_looked_into(hook, far):
    out = hook.submit({"het_job_offset": 0, "argc": 1, "tres_per_job": "gres:gpu:1"})
    assert out.logged == []
    assert sent(far)["het_offset"] == 0


def test_a_failed_write_is_taken_back_with_all_others(hook, far):
    edits = {"SLURM_GPUS_HET_GROUP_1": "1", "SLURM_GPUS_PACK_GROUP_1": "1", "partition": "mig"}
    far.answer = forged(act="accept", say=None, set=edits)
    for failing in edits:
        out = hook.submit({**FIRST, "__failing__": [failing]}, dict(EXPORTED))
        assert (out.accepted, out.fields, out.environment) == (True, {}, EXPORTED)


@pytest.mark.parametrize(
    "name",
    [
        "SLURM_GPUS_HET_GROUP_0",  # not exported
        "SLURM_GPUS_HET_GROUP_32",
        "SLURM_JOB_NAME_HET_GROUP_1",
        "HOME",
    ],
)
def test_an_answer_can_write_only_what_was_sent(hook, far, name):
    far.answer = forged(act="accept", say=None, set={name: "1"})
    out = hook.submit(dict(FIRST), dict(EXPORTED))
    assert out.environment == EXPORTED
    assert out.said[0].startswith(f"{NOT_APPLIED} (policyd: bad edit of {name})")
