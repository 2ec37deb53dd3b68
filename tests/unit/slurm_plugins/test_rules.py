# SPDX-License-Identifier: Apache-2.0
"""Each rule by cases worked out by hand, and what holds for every request."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fairwatt.core.records import GpuAsk, JobRequest
from fairwatt.slurm_plugins.rulebook import BUILT_IN
from fairwatt.slurm_plugins.rules.known_types import known_types
from fairwatt.slurm_plugins.rules.memory_fit import memory_fit, memory_mib
from fairwatt.slurm_plugins.rules.type_spelling import type_spelling
from fairwatt.slurm_plugins.rules.untyped_slices import untyped_slices
from fairwatt.slurm_plugins.site import Facts, Site
from tests.fakes.gpu_asks import LEVELS, gpu_asks
from tests.fakes.sites import demo, mixed, site

DEMO, MIXED = demo(), mixed()


def ask(type_=None, count=1, level="node", **fields) -> JobRequest:
    return JobRequest(gpus=(GpuAsk(level=level, type=type_, count=count),), **fields)


def types(outcome) -> list:
    return [gpu.type for gpu in outcome.request.gpus]


def refused(outcome) -> tuple[str, str]:
    assert outcome.rejection is not None
    return outcome.rejection.code, outcome.rejection.text


class TestMemoryFit:
    @pytest.mark.parametrize(
        ("text", "mib"),
        [
            ("20gb", 20480),
            ("20g", 20480),
            ("20GB", 20480),
            ("20GiB", 20480),
            ("4864mib", 4864),
            ("0.5gb", 512),
            ("4.1gb", 4199),
            ("a100", None),
            ("3g.20gb", None),
            (None, None),
            ("gb", None),
        ],
    )
    def test_sizes(self, text, mib):
        assert memory_mib(text) == mib

    @pytest.mark.parametrize(
        ("size", "count", "partition", "type_", "goes_to"),
        [
            ("5gb", 1, None, "a100_1g.5gb", "mig"),
            ("6gb", 1, None, "a100_3g.20gb", "mig"),
            ("20gb", 1, None, "a100_3g.20gb", "mig"),
            ("20gb", 1, "all", "a100_3g.20gb", "all"),
            ("20gb", 1, "gpu", "a100", "gpu"),
            ("21gb", 1, None, "a100", None),
            ("40gb", 4, None, "a100", None),
            ("41gb", 1, None, "h100", None),
            ("80gb", 8, None, "h100", None),
            ("5gb", 8, None, "h100", None),  # seven slices and four A100 a node are too few
            ("20gb", 3, None, "a100", None),  # a node has two of 20 GB
        ],
    )
    def test_the_smallest_that_holds_it_in_the_number_asked(
        self, size, count, partition, type_, goes_to
    ):
        out = memory_fit(ask(size, count, partition=partition), DEMO)
        assert types(out) == [type_]
        assert out.request.gpus[0].count == count
        assert out.request.partition == goes_to
        assert [note.code for note in out.notes] == ["FW101"]

    def test_more_than_any_has_offers_the_largest(self):
        assert refused(memory_fit(ask("200gb"), DEMO)) == (
            "FW102",
            "no GPU in partition gpu has 200 GB; the largest here is gpu:h100:1",
        )

    def test_a_named_partition_is_never_left(self):
        assert refused(memory_fit(ask("30gb", partition="mig"), DEMO)) == (
            "FW102",
            "no GPU in partition mig has 30 GB; gpu:a100:1 is in partition gpu",
        )

    def test_too_many_for_one_node(self):
        code, text = refused(memory_fit(ask("80gb", 9), DEMO))
        assert code == "FW103"
        assert "a node has at most gpu:h100:8" in text

    def test_per_task_counts_all_tasks(self):
        fits = memory_fit(ask("5gb", 1, "task", num_tasks=7), DEMO)
        assert types(fits) == ["a100_1g.5gb"]
        out = memory_fit(ask("5gb", 1, "task", num_tasks=8), DEMO)
        assert types(out) == ["a100"]

    def test_a_count_with_a_unit_is_taken_for_the_mistake_it_is(self):
        assert refused(memory_fit(ask(None, 20 << 30), DEMO)) == (
            "FW104",
            "gpu:20g asks for 21474836480 GPUs; for memory write gpu:20gb:1",
        )

    def test_equal_memory_is_decided_by_compute_then_name(self):
        both = site({"n": ("p", {"a100_1g.10gb": 4, "a100_2g.10gb": 3, "h100_1g.10gb": 4})}, "p")
        assert types(memory_fit(ask("10gb"), both)) == ["a100_1g.10gb"]
        assert types(memory_fit(ask("10gb", 4), both)) == ["a100_1g.10gb"]


class TestUntypedSlices:
    def test_without_slices_in_reach_nothing_changes(self):
        request = ask(None, 2)
        assert untyped_slices(request, DEMO).request is request

    def test_several_whole_types_leave_out_the_nodes_with_slices(self):
        out = untyped_slices(ask(None, 2, partition="all"), DEMO)
        assert out.request.exc_nodes == "mig01"
        assert types(out) == [None]

    def test_the_users_own_exclusions_stay(self):
        out = untyped_slices(ask(None, 1, partition="all", exc_nodes="gpu01"), DEMO)
        assert out.request.exc_nodes == "gpu01,mig01"

    def test_one_whole_type_becomes_the_type(self):
        out = untyped_slices(ask(None, 2), MIXED)
        assert types(out) == ["a100"]
        assert out.request.exc_nodes is None

    def test_excluding_leaves_one_type_which_is_then_named(self):
        out = untyped_slices(ask(None, 1, partition="all", exc_nodes="h01"), DEMO)
        assert types(out) == ["a100"]

    def test_only_slices_is_refused_with_their_types(self):
        code, text = refused(untyped_slices(ask(None, partition="mig"), DEMO))
        assert code == "FW203"
        assert "gpu:a100_1g.5gb:1 or gpu:a100_3g.20gb:1" in text

    def test_a_required_node_with_slices_is_refused(self):
        code, _ = refused(untyped_slices(ask(None, partition="all", req_nodes="mig01"), DEMO))
        assert code == "FW203"

    def test_required_nodes_of_several_types_cannot_be_excluded(self):
        request = ask(None, partition="all", req_nodes="mig01,gpu01,h01")
        assert refused(untyped_slices(request, DEMO))[0] == "FW204"

    def test_nodes_without_type_are_whole(self):
        untyped = site({"n": ("p", {None: 4}), "m": ("p", {"a100_1g.5gb": 7})}, "p")
        assert untyped_slices(ask(None), untyped).request.exc_nodes == "m"

    def test_an_untyped_entry_follows_the_typed_one(self):
        gpus = (
            GpuAsk(level="job", type=None, count=4),
            GpuAsk(level="node", type="a100", count=2),
        )
        out = untyped_slices(JobRequest(gpus=gpus), DEMO)
        assert types(out) == ["a100", "a100"]
        assert out.notes[0].code == "FW205"
        assert out.notes[0].text.startswith("gpu:4 -> gpu:a100:4: ")

    def test_a_thousand_nodes_with_slices_fit_in_the_field(self):
        nodes = {f"m{i:04d}": ("p", {"a100_1g.5gb": 7}) for i in range(1000)}
        nodes |= {"a": ("p", {"a100": 4}), "h": ("p", {"h100": 4})}
        assert untyped_slices(ask(None), site(nodes, "p")).request.exc_nodes == "m[0000-0999]"


class TestTypeSpelling:
    @pytest.mark.parametrize(
        ("asked", "given"),
        [
            ("A100", "a100"),
            ("H100", "h100"),
            ("nvidia_a100", "a100"),
            ("A100_3G.20GB", "a100_3g.20gb"),
            ("1g.5gb", "a100_1g.5gb"),
            ("nvidia_a100_1g.5gb", "a100_1g.5gb"),
        ],
    )
    def test_other_spellings_are_mended(self, asked, given):
        out = type_spelling(ask(asked, partition="all"), DEMO)
        assert types(out) == [given]
        assert out.notes[0].code == "FW301"


class TestKnownTypes:
    def test_an_unknown_type_is_refused_with_the_nearest(self):
        assert refused(known_types(ask("h10"), DEMO)) == (
            "FW302",
            "no GPU type h10 in partition gpu; nearest: h100 (also here: a100)",
        )

    def test_the_profile_of_another_model_is_not_taken_for_ours(self):
        assert refused(known_types(ask("h100_3g.20gb", partition="mig"), DEMO))[0] == "FW302"

    def test_a_type_of_another_partition(self):
        code, text = refused(known_types(ask("a100", partition="mig"), DEMO))
        assert (code, text) == (
            "FW303",
            "no GPU type a100 in partition mig; it is in gpu, all: add -p gpu",
        )

    @pytest.mark.parametrize(
        ("request_", "where"),
        [
            (ask("a100", partition="gpu", req_nodes="h01"), "partition gpu on h01"),
            (ask("a100", req_nodes="h01"), "partition gpu on h01"),
            (ask("h100", partition="gpu", exc_nodes="h01"), "partition gpu without h01"),
        ],
    )
    def test_a_type_of_other_nodes_of_the_same_partition(self, request_, where):
        """It said `it is in gpu: add -p gpu` to a job in partition gpu."""
        type_ = request_.gpus[0].type
        assert refused(known_types(request_, DEMO)) == (
            "FW309",
            f"no GPU type {type_} in {where}; "
            "the partition has it on other nodes: change -w, -x or -C",
        )

    def test_a_partition_with_hidden_nodes_may_have_any_type(self):
        known = DEMO.facts
        parts = tuple(replace(part, whole=part.name != "mig") for part in known.partitions)
        hidden = Site(replace(known, partitions=parts), DEMO.catalogue)
        for request in (ask("l40s", partition="mig"), ask("a100_3g.20gb", 9, partition="mig")):
            assert known_types(request, DEMO).rejection is not None
            assert known_types(request, hidden).rejection is None
        assert known_types(ask("l40s", partition="gpu"), hidden).rejection is not None

    def test_without_a_partition_the_job_moves_to_the_type(self):
        out = known_types(ask("a100_3g.20gb"), DEMO)
        assert out.request.partition == "mig"
        assert out.notes[0].code == "FW308"

    def test_a_closed_partition_is_not_moved_to(self):
        closed = demo()
        parts = tuple(
            replace(part, open=part.name not in ("mig", "all")) for part in closed.facts.partitions
        )
        closed = Site(Facts(closed.facts.nodes, parts), closed.catalogue)
        assert refused(known_types(ask("a100_3g.20gb"), closed))[0] == "FW303"

    @pytest.mark.parametrize(
        ("request_", "code", "offer"),
        [
            (ask("a100", 5), "FW305", "gpu:h100:5 would fit"),
            (ask("a100", 9), "FW305", "ask for at most 4 per node"),
            (ask(None, 9), "FW305", "ask for at most 8 per node"),
            (ask("a100", 9, "job"), "FW306", "ask for at most 8"),
            (ask("a100", 5, "job", max_nodes=1), "FW305", "gpu:h100:5 would fit"),
            (ask("a100", 4, min_nodes=3), "FW306", "ask for at most 8"),
            (ask("a100", 1, "task", num_tasks=9), "FW306", "ask for at most 8"),
            (ask("a100", 2, "task", ntasks_per_node=3), "FW305", "gpu:h100:6 would fit"),
            (ask("a100", 5, "socket"), "FW305", "gpu:h100:5 would fit"),
        ],
    )
    def test_more_than_there_is(self, request_, code, offer):
        got, text = refused(known_types(request_, DEMO))
        assert got == code
        assert text.endswith(offer)

    @pytest.mark.parametrize(
        "request_",
        [
            ask("a100", 4),
            ask("a100", 8, "job"),
            ask("a100", 4, min_nodes=2),
            ask("h100", 8),
            ask(None, 16, "job"),
            ask("a100", 1, "task", num_tasks=8),
        ],
    )
    def test_all_that_there_is_is_granted(self, request_):
        assert known_types(request_, DEMO).rejection is None

    def test_a_partition_without_gpus(self):
        cpu = site({"c": ("cpu", {}), "g": ("gpu", {"a100": 4})}, "cpu")
        assert refused(known_types(ask(None), cpu)) == (
            "FW307",
            "partition cpu has no GPU; partitions with GPUs: gpu",
        )


TYPES = [
    None,
    "a100",
    "A100",
    "h100",
    "a100_1g.5gb",
    "1g.5gb",
    "a100_3g.20gb",
    "20gb",
    "5GB",
    "80g",
    "200gb",
    "x",
    "nvidia_a100",
    "h100_1g.10gb",
]
small = st.none() | st.integers(1, 9)
requests = st.builds(
    JobRequest,
    gpus=gpu_asks(TYPES, most=9, entries=(1, 3)),
    partition=st.sampled_from([None, "gpu", "mig", "all", "gpu,mig", "nowhere"]),
    req_nodes=st.sampled_from([None, "gpu01", "mig01", "gpu[01-02],mig01", "a1", "m1"]),
    exc_nodes=st.sampled_from([None, "h01", "gpu[01-02]", "mig01", "m2"]),
    num_tasks=small,
    min_nodes=small,
    max_nodes=small,
    ntasks_per_node=small,
)
sites = st.sampled_from([DEMO, MIXED])


def run_all(request, known):
    for rule in BUILT_IN:
        outcome = rule.judge(request, known, rule.options())
        if outcome.rejection is not None:
            return None
        request = outcome.request
    return request


@settings(max_examples=600, deadline=None)
@given(request=requests, known=sites)
def test_rules_applied_to_their_own_output_change_nothing(request, known):
    after = run_all(request, known)
    if after is not None:
        assert run_all(after, known) == after
        for rule in BUILT_IN:
            outcome = rule.judge(after, known, rule.options())
            assert outcome.request == after
            # A warning about what the job is says the same again.
            assert outcome.notes == () or rule.name == "mig_per_process"


@settings(max_examples=600, deadline=None)
@given(request=requests, known=sites)
def test_what_passes_can_be_had_and_untyped_never_reaches_a_slice(request, known):
    after = run_all(request, known)
    if after is None or not any(gpu.count for gpu in after.gpus):
        return
    here = known.pool(after)
    for gpu in after.gpus:
        if gpu.count and gpu.type is not None:
            assert gpu.type in here.types
        elif gpu.count:
            assert not any(known.types[t].is_slice for t in here.types)


@settings(max_examples=300, deadline=None)
@given(request=requests, known=sites)
def test_counts_are_kept(request, known):
    after = run_all(request, known)
    if after is not None:
        for level in LEVELS:
            before = sum(gpu.count for gpu in request.gpus if gpu.level == level)
            assert sum(gpu.count for gpu in after.gpus if gpu.level == level) == before
