# SPDX-License-Identifier: Apache-2.0
"""routing: the first route that fits, worked out by hand, and what holds for all."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fairwatt.core.errors import ConfigError
from fairwatt.core.records import JobRequest
from fairwatt.slurm_plugins.engine import decide
from fairwatt.slurm_plugins.policy_file import parse_policy
from fairwatt.slurm_plugins.rules.routing import RULE, Route, RoutingOptions, routing
from fairwatt.slurm_plugins.site import Facts, Site
from tests.fakes.gpu_asks import gpu_asks
from tests.fakes.sized_site import ask, only, sized

SITE = sized()
OPTIONS = RoutingOptions(
    routes=(
        Route(gpus=("a100_1g.5gb", "a100_3g.20gb"), partition="mig"),
        Route(accounts=("physics",), gpus=("h100",), partition="long", qos="night"),
        Route(max_hours=2, max_gpus=4, max_nodes=1, partition="short", qos="quick"),
        Route(gpus=("training",), partition="big"),
        Route(min_hours=25, gpus=("a100",), partition="big"),
    )
)
WORDS = {"training": ("h100", "a100"), "old": ("v100",)}


def routed(request, options=OPTIONS, site=SITE):
    """Where the job goes: (partition, QOS)."""
    out = routing(request, site, options)
    assert out.rejection is None
    changed = (out.request.partition, out.request.qos)
    assert bool(out.notes) == (changed != (request.partition, request.qos))
    assert replace(out.request, partition=request.partition, qos=request.qos) == request
    return changed


class TestRoutes:
    @pytest.mark.parametrize(
        ("request_", "goes_to"),
        [
            (ask("a100_3g.20gb"), ("mig", None)),
            (ask("h100", account="physics"), ("long", "night")),
            (ask("h100", account="arts"), (None, None)),
            (ask("h100"), (None, None)),
            (ask("a100", time_limit_min=120), ("short", "quick")),
            (ask("a100", time_limit_min=121), (None, None)),
            (ask("a100", 1, time_limit_min=120, min_nodes=2), (None, None)),
            (ask("a100", 5, "job", time_limit_min=120), (None, None)),
            (ask("h100", time_limit_min=120), (None, None)),  # short has none
            (ask("a100", time_limit_min=1500), ("big", None)),
            (ask("a100", time_limit_min=1499), (None, None)),
            (ask(None, time_limit_min=60), ("short", "quick")),
        ],
    )
    def test_by_type_account_length_and_size(self, request_, goes_to):
        assert routed(request_) == goes_to

    def test_the_message_says_why(self):
        (told,) = routing(ask("a100", time_limit_min=120), SITE, OPTIONS).notes
        assert (told.code, told.text) == (
            "FW501",
            "gpu:a100:1: partition short and QOS quick (up to 2 h, up to 4 GPUs, up to 1 node)",
        )
        (told,) = routing(ask("h100", account="physics"), SITE, OPTIONS).notes
        assert told.text.endswith("(h100, account physics)")

    def test_of_a_job_without_time_what_the_partition_gives_it_counts(self):
        """short has no default, so its limit of 2 h is what such a job would get."""
        assert routed(ask("a100")) == ("short", "quick")
        hours = RoutingOptions(routes=(Route(max_hours=1, partition="short"),))
        assert routed(ask("a100"), hours) == (None, None)
        assert routed(
            ask("a100"), RoutingOptions(routes=(Route(max_hours=99, partition="big"),))
        ) == (
            None,
            None,
        )

    def test_a_need_matches_the_best_type_for_it_there(self):
        assert routed(ask("20gb")) == ("mig", None)
        assert routed(ask("5gb", time_limit_min=10)) == ("mig", None)
        assert routed(ask("21gb", time_limit_min=10)) == ("short", "quick")
        assert routed(ask("a100_3g.20gb|a100", time_limit_min=10)) == ("mig", None)

    def test_a_type_that_the_account_may_not_use_is_none(self):
        request = ask("20gb", time_limit_min=10, barred_types=frozenset({"a100_3g.20gb"}))
        assert routed(request) == ("short", "quick")

    def test_a_word_of_the_site_matches_itself(self):
        options = replace(OPTIONS, words=WORDS)
        assert routed(ask("training", time_limit_min=600), options) == ("big", None)
        short = ("short", "quick")  # has one of its types
        assert routed(ask("training", time_limit_min=60), options) == short
        assert routed(ask("old", time_limit_min=60), options) == (None, None)

    def test_a_route_by_a_word_of_the_site_takes_its_types(self):
        options = RoutingOptions(routes=(Route(gpus=("training",), partition="big"),))
        assert routed(ask("a100"), replace(options, words=WORDS)) == ("big", None)
        assert routed(ask("a100"), options) == (None, None)

    def test_a_partition_without_room_is_passed_over(self):
        assert routed(ask("a100_3g.20gb", 3)) == (None, None)

    def test_a_route_to_where_the_job_is_anyway_writes_no_partition(self):
        options = RoutingOptions(routes=(Route(partition="gpu", qos="normal"),))
        assert routed(ask("a100"), options) == (None, "normal")

    def test_named_nodes_bind(self):
        assert routed(ask("a100", time_limit_min=10, req_nodes="g1")) == ("short", "quick")
        assert routed(ask("a100", time_limit_min=10, req_nodes="b1")) == (None, None)


class TestWhoIsRouted:
    def test_a_named_partition_stays(self):
        assert routed(ask("a100", time_limit_min=10, partition="gpu")) == ("gpu", None)

    def test_unless_the_site_overrides(self):
        options = replace(OPTIONS, override=True)
        request = ask("a100", time_limit_min=10, partition="gpu", qos="mine")
        assert routed(request, options) == ("short", "quick")

    def test_a_named_qos_stays(self):
        assert routed(ask("a100", time_limit_min=10, qos="mine")) == ("short", "mine")

    def test_never_out_of_a_reservation(self):
        request = ask("a100", time_limit_min=10, reservation="night")
        assert routed(request, replace(OPTIONS, override=True)) == (None, None)

    def test_jobs_without_gpus_are_not_concerned(self):
        assert routed(ask("a100", 0, time_limit_min=10)) == (None, None)

    def test_closed_by_something_that_no_list_shows(self):
        """AllowGroups: only whom the route names is sent there."""
        parts = tuple(replace(part, open=part.name != "short") for part in SITE.facts.partitions)
        site = Site(Facts(SITE.facts.nodes, parts), SITE.catalogue)
        request = ask("a100", time_limit_min=10, account="arts")
        assert routed(request, site=site) == (None, None)
        named = RoutingOptions(routes=(Route(accounts=("arts",), partition="short"),))
        assert routed(request, named, site) == ("short", None)


def test_what_is_written_and_the_policy_file():
    text = """
        [rules.routing]
        mode = "enforce"
        [[rules.routing.routes]]
        gpus = ["a100"]
        max_hours = 1.5
        partition = "short"
        qos = "quick"
    """
    rule = next(each for each in parse_policy(text, "p").rules if each.name == "routing")
    fields = {"tres_per_node": "gres/gpu:a100:1", "time_limit": 90}
    edits = decide(fields, only(RULE, rule.options)).edits
    assert (edits["partition"], edits["qos"]) == ("short", "quick")
    with pytest.raises(ConfigError, match="max_hour"):
        parse_policy(text.replace("max_hours", "max_hour"), "p")


def test_a_change_of_a_pending_job_is_routed_only_where_the_site_overrides():
    record = {
        "tres_per_node": "gres/gpu:a100:1",
        "partition": "gpu",
        "time_limit": 600,
        "job_id": 7,
    }
    change = {"time_limit": 60}
    assert decide(change, only(RULE, OPTIONS), record=record).edits == {}
    override = only(RULE, replace(OPTIONS, override=True))
    assert decide(change, override, record=record).edits == {"partition": "short", "qos": "quick"}


small = st.none() | st.integers(1, 4)
requests = st.builds(
    JobRequest,
    gpus=gpu_asks([None, "a100", "h100", "20gb", "training", "a100|h100", "any"]),
    partition=st.sampled_from([None, None, "gpu", "short", "gpu,big", "nowhere"]),
    qos=st.sampled_from([None, "quick", "mine"]),
    account=st.sampled_from([None, "physics", "arts"]),
    reservation=st.sampled_from([None, None, "night"]),
    features=st.sampled_from([None, "ib", "bigmem"]),
    req_nodes=st.sampled_from([None, None, "g1", "h1"]),
    num_tasks=small,
    min_nodes=small,
    max_nodes=small,
    time_limit_min=st.sampled_from([None, 1, 120, 121, 1500]),
)


@settings(max_examples=300, deadline=None)
@given(request=requests, override=st.booleans())
def test_its_own_output_is_left_as_it_is(request, override):
    options = replace(OPTIONS, override=override)
    out = routing(request, SITE, options)
    again = routing(out.request, SITE, options)
    assert (again.request, again.notes) == (out.request, ())
    if request.reservation is not None:
        assert out.request == request
