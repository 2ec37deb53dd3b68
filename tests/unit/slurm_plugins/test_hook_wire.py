# SPDX-License-Identifier: Apache-2.0
"""The request line of job_submit.lua: which fields travel, in which order, and which never do."""

from __future__ import annotations

import json

import pytest

from tests.fakes.job_desc import LUAS, NO_VAL, Hook
from tests.fakes.submit_releases import RELEASES

GPU = {"tres_per_node": "gres:gpu:1"}
BATCH = {**GPU, "std_in": "/dev/null", "script": "#!/bin/sh\n"}
ALL = 'return { socket = "/x.sock", jobs = "all" }'


def sent(far):
    return json.loads(far.lines[-1])


FULL = {
    "time_limit": 60,
    "time_min": 30,
    "tres_per_node": "gres:gpu:a100:1",
    "qos": "normal",
    "user_id": 1000,
    "partition": "gpu",
    "std_in": "/dev/null",
    "script": "#!/bin/sh\n",
    "cpus_per_tres": "gres:gpu:2",
    "mem_per_tres": "gres:gpu:2048",
    "array_inx": "1-3%2",
    "begin_time": 1796053520,
    "shared": 0,
    "min_cpus": 2,
    "num_tasks": 2,
    "cron_job": True,
    "het_job_offset": 1,
    "features": 'a"\xe9',
}
LINE = (
    '"verb":"submit","spelling":"colon","job":{"user_id":1000,"time_limit":60,"cron_job":1,'
    '"het_offset":1,"inherited":"SLURM_JOB_ID,SLURM_MEM_PER_NODE,SLURM_GPUS","tres_per_node":"gres:gpu:a100:1",'
    '"partition":"gpu","features":"a\\u0022\\u00e9","qos":"normal","std_in":"/dev/null",'
    '"cpus_per_tres":"gres:gpu:2","mem_per_tres":"gres:gpu:2048","array_inx":"1-3%2",'
    '"num_tasks":2,"min_cpus":2,"shared":0,'
    '"time_min":30,"begin_time":1796053520,"SLURM_GPUS":"a100:1"}}\n'
)
INSIDE = {"SLURM_JOB_ID": "12", "SLURM_GPUS": "a100:1", "SLURM_MEM_PER_NODE": "2048", "HOME": "/h"}


@pytest.mark.parametrize("lua", LUAS)
def test_equal_jobs_are_equal_bytes_after_the_id(tmp_path, far, lua):
    hook = Hook(tmp_path, far, lua=lua)
    hook.submit(dict(FULL), dict(INSIDE))
    hook.submit(dict(reversed(FULL.items())), dict(reversed(INSIDE.items())))
    heads, rests = zip(*(line.split(",", 2)[1:] for line in far.lines), strict=True)
    assert rests == (LINE, LINE)
    assert heads[0] != heads[1]
    assert all(line.startswith('{"v":1,"id":"') for line in far.lines)


@pytest.mark.parametrize(
    ("asked", "field", "value"),
    [
        ({"min_mem_per_node": 4096}, "min_mem_per_node", 4096),
        ({"min_mem_per_node": 0}, "min_mem_per_node", 0),
        ({"min_mem_per_cpu": 500}, "min_mem_per_cpu", 500),
        ({"time_limit": 4294967295}, "time_limit", 4294967295),  # UNLIMITED is no "not set"
        ({"shared": 1}, "shared", 1),
        ({"het_job_offset": 0}, "het_offset", 0),
    ],
)
def test_what_is_set_travels(hook, far, asked, field, value):
    hook.submit({**GPU, **asked})
    assert sent(far)["job"][field] == value


@pytest.mark.parametrize("release", RELEASES)
def test_what_is_not_set_does_not_travel_on_any_release(tmp_path, far, release):
    asked = {"tres_per_node": RELEASES[release].gres("gpu:1")}
    Hook(tmp_path, far, release=release).submit(dict(asked))
    assert sent(far)["job"] == {"client": "salloc", **asked, "user_id": 1000, "min_cpus": 1}


def test_a_batch_job_is_told_by_its_standard_input_or_its_script(hook, far):
    hook.submit({**GPU, "std_in": "/dev/null", "script": "#!/bin/sh\n"}, {})
    assert "has_script" not in sent(far)["job"]  # not read: it may be megabytes
    hook.submit({**GPU, "script": "#!/bin/sh\n"}, {})
    assert sent(far)["job"]["has_script"] == 1
    hook.submit({**GPU, "argc": 1})
    assert "has_script" not in sent(far)["job"]
    assert "#!/bin/sh" not in "".join(far.lines)


class TestInherited:
    def test_only_names_travel_and_only_known_ones(self, hook, far):
        inside = {"SLURM_JOB_ID": "12", "SLURM_CPUS_PER_TASK": "7", "SECRET": "s", "SLURM_X": "1"}
        hook.submit(dict(BATCH), inside)
        assert sent(far)["job"]["inherited"] == "SLURM_JOB_ID,SLURM_CPUS_PER_TASK"
        assert not {"SECRET", "SLURM_X", "7", "12"} & set(far.lines[-1].split('"'))

    def test_what_sbatch_itself_exports_is_not_inherited(self, hook, far):
        """Outside of a job sbatch sets these from its own options."""
        hook.submit(dict(BATCH), {"SLURM_MEM_PER_GPU": "2048", "SLURM_GPUS": "a100:1"})
        assert "inherited" not in sent(far)["job"]

    def test_an_interactive_job_has_no_environment_to_look_into(self, hook):
        assert hook.submit(dict(GPU)).logged == []


RECORD = {
    **GPU,
    "partition": "gpu",
    "job_id": 7,
    "min_mem_per_cpu": 1000,
    "mem_per_tres": "gres:gpu:1024",
    "time_limit": 10,
    "script": "never read: it is on disk",
}


class TestModify:
    def test_the_record_is_sent_as_far_as_slurm_shows_it(self, hook, far):
        out = hook.modify({"partition": "all"}, {**RECORD, "num_tasks": 3, "shared": 0})
        assert out.said == []
        body = sent(far)
        assert body["job"] == {"partition": "all", "user_id": 1000}
        assert body["record"] == {
            **{name: value for name, value in RECORD.items() if name != "script"},
            "user_id": 1000,
            "min_cpus": 1,
        }

    def test_the_offset_means_nothing_but_in_a_component(self, hook, far):
        hook.modify({"partition": "all"}, dict(RECORD))
        assert "het_offset" not in far.lines[-1]
        hook.modify({"partition": "all"}, {**RECORD, "het_job_id": 7, "het_job_offset": 2})
        assert sent(far)["record"]["het_offset"] == 2
        assert "het_offset" not in sent(far)["job"]

    def test_an_unset_time_limit_of_the_change_is_not_sent(self, hook, far):
        hook.modify({"time_limit": NO_VAL, "partition": "all"}, dict(RECORD))
        assert "time_limit" not in sent(far)["job"]


class TestAllJobs:
    @pytest.fixture
    def all_jobs(self, tmp_path, far):
        return Hook(tmp_path, far, settings=ALL)

    def test_a_job_without_gpus_is_asked_about(self, all_jobs, far):
        assert all_jobs.submit({"num_tasks": 2}).accepted
        assert sent(far)["job"]["num_tasks"] == 2

    def test_a_change_of_such_a_job_too(self, all_jobs, far):
        assert all_jobs.modify({"time_limit": 5}, {"partition": "gpu"}).accepted
        assert sent(far)["record"]["partition"] == "gpu"
