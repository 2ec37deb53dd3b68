# SPDX-License-Identifier: Apache-2.0
"""What the updater reads of the queue, from recorded answers of three releases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairwatt.core.errors import SlurmError
from fairwatt.slurm_plugins.pending import QueuedJob, decode_jobs

DATA = Path(__file__).parents[2] / "data"
RELEASES = ("22.05", "24.11", "26.05")
PREFIX = {"22.05": "gres:"}


@pytest.fixture(params=RELEASES)
def release(request) -> str:
    return request.param


@pytest.fixture
def jobs(release) -> dict[int, QueuedJob]:
    """The jobs in the order of tests/lab/record.py: 1 holds both slices, the others wait."""
    found, unreadable = decode_jobs((DATA / release / "squeue.json").read_text())
    assert unreadable == 0
    return {job.job_id: job for job in found}


class TestRecorded:
    def test_a_job_that_waits_for_resources(self, jobs, release):
        job = jobs[2]
        slice_ = f"{PREFIX.get(release, 'gres/')}gpu:a100_3g.20gb:1"
        assert (job.states, job.reason) == (("PENDING",), "Resources")
        assert job.address == "2"
        assert job.comment.startswith('fairwatt:{"v":1,"id":"1-1","asked":"gpu:20gb:1"')
        assert job.fields["tres_per_node"] == slice_
        assert job.fields["partition"] == "mig"
        assert (job.fields["account"], job.fields["qos"]) == ("qcd", "normal")
        assert (job.fields["num_tasks"], job.fields["time_limit"]) == (1, 10)
        assert job.fields["min_mem_per_cpu"] == 1000
        assert "tres_per_job" not in job.fields
        assert "exc_nodes" not in job.fields
        assert job.eligible_ts is not None
        assert 0 <= job.eligible_ts - (job.submit_ts or 0) <= 2
        assert (job.held, job.restarts, job.batch, job.in_hetjob) == (False, 0, True, False)

    def test_the_levels_of_a_request(self, jobs, release):
        slash = release != "22.05"
        assert jobs[3].fields["tres_per_job"].endswith("gpu:a100_3g.20gb:1")
        wanted = "gres/gpu:a100_3g.20gb=1" if slash else "gres:gpu:a100_3g.20gb:1"
        assert jobs[4].fields["tres_per_task"] == wanted

    def test_reasons_that_no_flavour_mends(self, jobs):
        assert [jobs[number].reason for number in (8, 9, 10)] == [
            "JobHeldUser",
            "Dependency",
            "BeginTime",
        ]
        assert jobs[8].held

    def test_tasks_of_an_array_are_named_never_the_array_as_a_whole(self, jobs):
        assert (jobs[5].address, jobs[5].many_tasks) == ("5_[0-3]", True)
        started, waiting = jobs[14], jobs[6]
        assert (started.states[0], started.address, started.many_tasks) == (
            "RUNNING",
            "6_0",
            False,
        )
        assert (waiting.address, waiting.reason) == ("6_[1-2]", "JobArrayTaskLimit")
        assert all(job.in_array for job in (jobs[5], started, waiting))

    def test_a_list_of_tasks_that_slurm_cuts_is_no_address(self, jobs):
        assert jobs[7].address is None

    def test_components_of_a_hetjob(self, jobs):
        assert [job.job_id for job in jobs.values() if job.in_hetjob] == [12, 13]

    def test_an_exclusive_job_where_slurm_tells(self, jobs, release):
        assert jobs[11].fields.get("shared") == (None if release == "26.05" else 0)


def one(**more) -> str:
    return json.dumps({"jobs": [{"job_id": 7, "job_state": "PENDING", **more}]})


def test_records_without_a_word_are_not_even_read(release):
    text = (DATA / release / "squeue.json").read_text()
    jobs, _ = decode_jobs(text, containing='"fairwatt:')
    # The one that holds the slices and both parts of the hetjob have no comment.
    assert [job.job_id for job in jobs if job.job_id in (1, 2, 12, 13)] == [2]
    assert all(job.comment.startswith("fairwatt:") for job in jobs)


class TestHostile:
    def test_a_record_of_another_shape_costs_only_itself(self):
        good = {"job_id": 8, "job_state": ["PENDING"]}
        bad = {"job_id": 7, "job_state": {"x": 1}}
        jobs, unreadable = decode_jobs(json.dumps({"jobs": [bad, good]}))
        assert ([job.job_id for job in jobs], unreadable) == ([8], 1)

    @pytest.mark.parametrize("text", ["", "{}", "[]", '{"jobs": 1}', "\ufffd", '{"jobs": [{'])
    def test_an_answer_that_is_none(self, text):
        with pytest.raises(SlurmError, match="squeue --json"):
            decode_jobs(text)

    @pytest.mark.parametrize("tasks", ["1,2;reboot", "1-3 AdminComment=x", "*", "1\n2"])
    def test_a_list_of_tasks_with_anything_else_is_no_address(self, tasks):
        ((job,), _) = decode_jobs(one(array_job_id=7, array_task_string=tasks))
        assert job.address is None

    @pytest.mark.parametrize(
        "number",
        [
            4294967294,
            {"set": False, "infinite": False, "number": 5},
            {"set": True, "infinite": True},
        ],
    )
    def test_a_number_that_is_unset_is_absent(self, number):
        ((job,), _) = decode_jobs(one(max_nodes=number, eligible_time=number))
        assert "max_nodes" not in job.fields
        assert job.eligible_ts is None
