# SPDX-License-Identifier: Apache-2.0
"""interactive_limits: who is interactive, and what such a job may have."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fairwatt.core.records import JobRequest
from fairwatt.slurm_plugins.engine import decide
from fairwatt.slurm_plugins.rules.interactive_limits import (
    RULE,
    InteractiveOptions,
    interactive_limits,
)
from tests.fakes.gpu_asks import gpu_asks
from tests.fakes.sized_site import ask, only, sized

SITE = sized()
OPTIONS = InteractiveOptions(max_gpus=2, max_hours=4, max_nodes=1, partitions=("gpu", "mig"))
REFUSE = InteractiveOptions(max_hours=4, action="refuse")
GPU = {"tres_per_node": "gres/gpu:a100:4"}


def judged(*args, options=OPTIONS, **fields):
    return interactive_limits(ask(*args, kind="interactive", **fields), SITE, options)


class TestWhoIsInteractive:
    @pytest.mark.parametrize(
        "fields",
        [
            {"client": "srun"},
            {"client": "salloc"},
            {"het_offset": 1, "client": "either"},
        ],
    )
    def test_srun_and_salloc(self, fields):
        assert not decide({**GPU, **fields}, only(RULE, OPTIONS)).accepted

    @pytest.mark.parametrize(
        "fields",
        [
            {"has_script": 1, "std_in": "/dev/null"},
            {"het_offset": 1, "std_in": "/dev/null"},  # a hetjob's second part has no script
            {"has_script": 1, "array_inx": "0-9"},
            {"has_script": 1, "cron_job": 1},
            {"cron_job": 1},
        ],
    )
    def test_what_is_sbatchs_or_scrontabs_is_not(self, fields):
        assert decide({**GPU, **fields}, only(RULE, OPTIONS)).accepted

    def test_a_pending_job_does_not_tell(self):
        record = {**GPU, "job_id": 7, "partition": "gpu"}
        assert decide({"min_nodes": 4}, only(RULE, OPTIONS), record=record).accepted

    def test_without_options_nothing_is_limited(self):
        out = judged("a100", 4, min_nodes=9, options=InteractiveOptions())
        assert (out.rejection, out.notes) == (None, ())


class TestLimits:
    @pytest.mark.parametrize(
        ("args", "fields", "code", "text"),
        [
            (("a100", 3), {}, "FW611", "gpu:a100:3: an interactive job may have at most 2 GPUs; "),
            (("a100", 1), {"min_nodes": 3}, "FW611", "gpu:a100:1: an interactive job may have"),
            (("a100", 1, "task"), {"num_tasks": 3}, "FW611", "gpu:a100:1"),
            (("a100", 1, "job"), {"min_nodes": 2}, "FW611", "2 nodes: an interactive job may"),
            (("a100", 1, "job"), {"max_nodes": 2}, "FW611", "2 nodes"),
            (("a100", 3, "socket"), {}, "FW611", "gpu:a100:3"),
            (("a100", 1), {"partition": "big"}, "FW613", "no interactive jobs in partition big"),
            (("a100", 1), {"partition": "gpu,big"}, "FW613", "no interactive jobs in"),
        ],
    )
    def test_more_than_that_is_refused(self, args, fields, code, text):
        out = judged(*args, **fields)
        assert out.rejection is not None
        assert out.rejection.code == code
        assert out.rejection.text.startswith(text)

    def test_whole_nodes_bring_all_their_gpus(self):
        """`srun --exclusive` got eight H100 where one was the limit."""
        whole = JobRequest(kind="interactive", exclusive=True, partition="gpu")
        out = interactive_limits(whole, SITE, OPTIONS)
        assert out.rejection.code == "FW611"
        assert out.rejection.text == (
            "--exclusive takes all GPUs of its nodes, here up to 8: "
            "an interactive job may have at most 2 GPUs; ask for less, or use sbatch"
        )
        shared = replace(whole, exclusive=False)
        assert interactive_limits(shared, SITE, OPTIONS).rejection is None

    def test_where_to_go(self):
        out = judged("a100", 1, partition="big")
        assert out.rejection.text.endswith("use -p gpu or -p mig, or sbatch")

    def test_all_that_is_allowed(self):
        out = judged("a100", 2, time_limit_min=240, max_nodes=1, min_nodes=1)
        assert (out.rejection, out.notes) == (None, ())


class TestTime:
    def test_too_long_is_lowered(self):
        out = judged("a100", 1, time_limit_min=241)
        assert out.request.time_limit_min == 240
        assert out.notes[0].text == "time limit set to 4 h, the most for an interactive job"

    def test_or_refused(self):
        out = judged("a100", 1, time_limit_min=241, options=REFUSE)
        assert out.rejection.text.startswith("4:01 h: an interactive job may have at most 4 h;")

    def test_a_default_of_slurms_that_is_short_enough_stays(self):
        """Partition gpu gives 10 minutes; big has neither default nor limit."""
        assert judged("a100", 1, options=REFUSE).request.time_limit_min is None
        out = judged("a100", 1, partition="big", options=REFUSE)
        assert out.request.time_limit_min == 240
        assert judged("a100", 1, partition="gpu,big", options=REFUSE).request.time_limit_min == 240

    def test_half_an_hour(self):
        out = judged("a100", 1, time_limit_min=99, options=InteractiveOptions(max_hours=0.5))
        assert out.request.time_limit_min == 30


def test_jobs_without_gpus_too():
    out = decide({"client": "srun", "min_nodes": 2, "partition": "gpu"}, only(RULE, OPTIONS))
    assert out.say == (
        "fairwatt FW611: 2 nodes: an interactive job may have at most 1; "
        "ask for less, or use sbatch",
    )


requests = st.builds(
    JobRequest,
    gpus=gpu_asks([None, "a100"], most=3),
    kind=st.sampled_from(["batch", "interactive", None]),
    partition=st.sampled_from([None, "gpu", "gpu,big", "new"]),
    min_nodes=st.none() | st.integers(1, 2),
    time_limit_min=st.none() | st.integers(0, 500),
)


@settings(max_examples=200, deadline=None)
@given(request=requests, options=st.sampled_from([OPTIONS, REFUSE]))
def test_its_own_output_is_left_as_it_is(request, options):
    out = interactive_limits(request, SITE, options)
    if request.kind != "interactive":
        assert (out.request, out.rejection) == (request, None)
    if out.rejection is None:
        again = interactive_limits(out.request, SITE, options)
        assert (again.request, again.notes, again.rejection) == (out.request, (), None)
