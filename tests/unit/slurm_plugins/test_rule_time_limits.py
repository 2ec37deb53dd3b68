# SPDX-License-Identifier: Apache-2.0
"""time_limits: defaults and the partitions' limits, worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fairwatt.core.records import GpuAsk, JobRequest
from fairwatt.slurm_plugins.engine import decide
from fairwatt.slurm_plugins.limits import minutes_text
from fairwatt.slurm_plugins.rules.time_limits import RULE, TimeOptions, time_limits
from fairwatt.slurm_plugins.site import Site
from tests.fakes.sized_site import ask, only, sized

SITE = sized()
FILL = TimeOptions(default_min=60, by_partition={"mig": 30, "cpu": 600}, by_type={"h100": 240})
CLAMP = TimeOptions(max_action="clamp")


class TestDefault:
    @pytest.mark.parametrize(
        ("request_", "minutes"),
        [
            (ask("a100"), 60),
            (ask("h100"), 240),
            (ask("h100", partition="mig"), 240),
            (ask("a100_3g.20gb", partition="mig"), 30),
            (JobRequest(partition="cpu"), 600),
            (JobRequest(partition="cpu,mig"), 30),
            (ask("a100", time_limit_min=7), 7),
        ],
    )
    def test_by_type_then_partition_then_for_all(self, request_, minutes):
        assert time_limits(request_, SITE, FILL).request.time_limit_min == minutes

    def test_it_says_so(self):
        (told,) = time_limits(ask("h100"), SITE, FILL).notes
        assert told.text == "time limit set to 4 h, as you named none"

    def test_never_more_than_the_partition_allows(self):
        out = time_limits(ask("a100", partition="short"), SITE, TimeOptions(default_min=600))
        assert out.request.time_limit_min == 120

    def test_without_options_a_job_without_a_time_is_slurms(self):
        assert time_limits(ask("a100"), SITE, TimeOptions()).request.time_limit_min is None


class TestLimit:
    def test_refused_with_a_partition_that_allows_it(self):
        out = time_limits(ask("a100", time_limit_min=1500), SITE, TimeOptions())
        assert out.rejection is not None
        assert out.rejection.text == (
            "time limit 25 h: the most in partition gpu is 24 h; partition big allows it: -p big"
        )

    def test_where_no_partition_allows_it(self):
        request = ask("a100_3g.20gb", time_limit_min=2880, partition="mig")
        out = time_limits(request, SITE, TimeOptions())
        assert out.rejection.text.endswith("is 24 h; write -t 1440")

    def test_clamped(self):
        out = time_limits(ask("a100", time_limit_min=1500), SITE, CLAMP)
        assert out.request.time_limit_min == 1440
        assert out.notes[0].text == "time limit 25 h -> 24 h, the most in partition gpu"

    @pytest.mark.parametrize(
        ("partition", "minutes"), [("short,gpu", 1440), ("short", 120), ("gpu,big", 10**6)]
    )
    def test_of_several_partitions_the_longest_counts(self, partition, minutes):
        fits = ask("a100", time_limit_min=minutes, partition=partition)
        assert time_limits(fits, SITE, TimeOptions()).rejection is None
        if partition != "gpu,big":
            over = replace(fits, time_limit_min=minutes + 1)
            assert time_limits(over, SITE, TimeOptions()).rejection is not None

    def test_a_qos_that_may_exceed_it(self):
        request = ask("a100", time_limit_min=1500, qos="long")
        options = TimeOptions(exempt_qos=("long",))
        assert time_limits(request, SITE, options).rejection is None
        assert time_limits(request, SITE, TimeOptions(max_action="none")).rejection is None

    def test_a_partition_that_is_not_known_limits_nothing(self):
        request = ask("a100", time_limit_min=10**6, partition="gpu,new")
        assert time_limits(request, SITE, TimeOptions()).rejection is None


class TestFields:
    """`begin_time` 0 and `time_limit` 4294967294 are unset."""

    @pytest.mark.parametrize("begin", [0, 1_900_000_000])
    def test_when_it_may_begin_plays_no_part(self, begin):
        fields = {"tres_per_job": "gres/gpu:1", "time_limit": 4294967294, "begin_time": begin}
        assert decide(fields, only(RULE, FILL)).edits["time_limit"] == 60

    def test_an_infinite_time_limit_is_left(self):
        """4294967295 is INFINITE: a partition's MaxTime then holds."""
        fields = {"partition": "gpu", "time_limit": 4294967295}
        assert decide(fields, only(RULE, CLAMP)).accepted

    def test_jobs_without_gpus_too(self):
        out = decide({"partition": "cpu"}, only(RULE, FILL))
        assert out.edits["time_limit"] == 600

    def test_a_change_of_a_pending_job(self):
        record = {"partition": "gpu", "time_limit": 600, "job_id": 7}
        policy = only(RULE, TimeOptions())
        assert not decide({"time_limit": 1500}, policy, record=record).accepted
        assert not decide({"partition": "short"}, policy, record=record).accepted
        assert decide({"time_limit": 1500, "partition": "big"}, policy, record=record).accepted
        late = {**record, "time_limit": 1500}
        assert decide({"num_tasks": 2}, policy, record=late).accepted
        edits = decide({"partition": "short"}, only(RULE, CLAMP), record=record).edits
        assert edits == {"time_limit": 120}


@pytest.mark.parametrize("options", [TimeOptions(), CLAMP])
def test_a_job_that_slurm_may_cut_down_is_left_to_it(options):
    late = JobRequest(partition="gpu", time_limit_min=4320, least_time_min=60)
    out = time_limits(late, SITE, options)
    assert (out.request, out.rejection) == (late, None)


def test_a_job_whose_qos_lifts_the_time_is_left_alone():
    late = JobRequest(partition="gpu", time_limit_min=4320, qos="long")
    free = Site(replace(SITE.facts, beyond_time=("long",)), SITE.catalogue)
    assert time_limits(late, SITE, TimeOptions()).rejection is not None
    assert time_limits(late, free, TimeOptions()).rejection is None


@pytest.mark.parametrize(
    ("minutes", "text"),
    [
        (1, "1 min"),
        (60, "1 h"),
        (1440, "24 h"),
        (2880, "2 days"),
        (4294967295, "unlimited"),
    ],
)
def test_times_for_people(minutes, text):
    assert minutes_text(minutes) == text


requests = st.builds(
    JobRequest,
    gpus=st.sampled_from([(), (GpuAsk(level="node", type="h100", count=1),)]),
    partition=st.sampled_from([None, "gpu", "short", "gpu,big", "new"]),
    qos=st.sampled_from([None, "long"]),
    time_limit_min=st.none() | st.integers(0, 3000),
)
all_options = st.builds(
    TimeOptions,
    default_min=st.none() | st.integers(1, 3000),
    by_type=st.sampled_from([{}, {"h100": 5000}]),
    max_action=st.sampled_from(["refuse", "clamp", "none"]),
)


@settings(max_examples=200, deadline=None)
@given(request=requests, options=all_options)
def test_its_own_output_is_left_as_it_is(request, options):
    out = time_limits(request, SITE, options)
    if out.rejection is None:
        again = time_limits(out.request, SITE, options)
        assert (again.request, again.notes, again.rejection) == (out.request, (), None)
