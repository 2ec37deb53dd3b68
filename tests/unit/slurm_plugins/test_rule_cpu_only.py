# SPDX-License-Identifier: Apache-2.0
"""cpu_only: jobs without GPUs on GPU nodes, worked out by hand, and what holds for all."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairwatt.core.records import GpuAsk, JobRequest
from fairwatt.slurm_plugins.engine import decide
from fairwatt.slurm_plugins.rules.cpu_only import RULE, CpuOnlyOptions, cpu_only
from fairwatt.slurm_plugins.site import Site
from tests.fakes.sized_site import only, sized

SITE = sized()
REFUSE = CpuOnlyOptions()
MOVE = CpuOnlyOptions(action="move", partition="cpu")
CAP = CpuOnlyOptions(action="cap")
GIVE = CpuOnlyOptions(action="give")
ZERO = (GpuAsk(level="node", type=None, count=0),)


def job(**fields) -> JobRequest:
    return JobRequest(**{"kind": "batch", **fields})


def codes(out) -> list[str]:
    return [note.code for note in (*out.notes, *((out.rejection,) if out.rejection else ()))]


class TestRefuse:
    def test_the_default_partition_counts_too(self):
        out = cpu_only(job(), SITE, REFUSE)
        assert out.rejection is not None
        assert out.rejection.text == (
            "no GPU asked, but partition gpu is for GPU jobs; "
            "ask for a GPU (a100, h100) or use -p cpu"
        )

    @pytest.mark.parametrize("partition", ["cpu", "nowhere"])
    def test_elsewhere_nothing_happens(self, partition):
        assert codes(cpu_only(job(partition=partition), SITE, REFUSE)) == []

    @pytest.mark.parametrize("options", [REFUSE, MOVE, GIVE])
    def test_of_several_partitions_those_without_gpus_are_kept(self, options):
        out = cpu_only(job(partition="gpu,cpu,mig"), SITE, options)
        assert out.request.partition == "cpu"
        assert codes(out) == ["FW512"]

    def test_a_job_with_gpus_is_not_concerned(self):
        gpus = (GpuAsk(level="job", type="a100", count=1),)
        assert codes(cpu_only(job(gpus=gpus), SITE, REFUSE)) == []


class TestExplicitZero:
    """`--gpus-per-node=0` is a wish, not an omission."""

    @pytest.mark.parametrize("options", [REFUSE, GIVE])
    def test_is_neither_refused_nor_given_a_gpu(self, options):
        assert codes(cpu_only(job(gpus=ZERO), SITE, options)) == []

    def test_is_moved_all_the_same(self):
        assert cpu_only(job(gpus=ZERO), SITE, MOVE).request.partition == "cpu"

    def test_unless_the_site_says_that_it_is_silence(self):
        options = CpuOnlyOptions(zero_is_explicit=False)
        assert codes(cpu_only(job(gpus=ZERO), SITE, options)) == ["FW511"]

    def test_through_the_engine(self):
        fields = {"tres_per_node": "gres/gpu:0", "partition": "gpu"}
        assert decide(fields, only(RULE, REFUSE)).accepted
        assert not decide({"partition": "gpu"}, only(RULE, REFUSE)).accepted
        assert decide({"partition": "gpu"}, only(RULE, MOVE)).edits["partition"] == "cpu"


class TestMove:
    def test_to_the_configured_partition(self):
        out = cpu_only(job(), SITE, MOVE)
        assert out.request.partition == "cpu"
        assert out.notes[0].text == (
            "no GPU asked: partition set to cpu, as partition gpu is for GPU jobs"
        )

    def test_never_out_of_a_reservation(self):
        assert codes(cpu_only(job(reservation="night"), SITE, MOVE)) == ["FW511"]

    def test_not_where_the_account_may_not_run(self):
        options = CpuOnlyOptions(action="move", partition="long")
        assert codes(cpu_only(job(account="arts"), SITE, options)) == ["FW511"]

    def test_not_to_another_partition_for_gpu_jobs(self):
        options = CpuOnlyOptions(action="move", partition="big")
        assert codes(cpu_only(job(), SITE, options)) == ["FW511"]

    def test_not_off_the_nodes_that_it_names(self):
        assert codes(cpu_only(job(req_nodes="g1"), SITE, MOVE)) == ["FW511"]


class TestCap:
    def test_all_but_one_cpu_per_gpu(self):
        """g1 has 64 CPUs and 4 GPUs: 60; h1 has 112 and 8: 104. It may come to any of them."""
        assert codes(cpu_only(job(cpus_per_task=60), SITE, CAP)) == []
        out = cpu_only(job(cpus_per_task=64, min_cpus=64, min_cpus_per_node=64), SITE, CAP)
        after = out.request
        assert (after.cpus_per_task, after.min_cpus, after.min_cpus_per_node) == (60, 60, 60)
        assert out.notes[0].text == (
            "no GPU asked: 64 -> 60 CPUs per task, so that the GPUs of partition gpu stay usable"
        )

    def test_a_number_of_the_site(self):
        options = CpuOnlyOptions(action="cap", max_cpus_per_node=16)
        request = job(cpus_per_task=16, ntasks_per_node=2, num_tasks=4, min_cpus=64, max_nodes=2)
        after = cpu_only(request, SITE, options).request
        assert (after.cpus_per_task, after.min_cpus) == (8, 32)

    @pytest.mark.parametrize(
        "fields",
        [
            {"cpus_per_task": 64, "kind": "interactive"},
            {"num_tasks": 64, "max_nodes": 1},
            {"exclusive": True},
            {"min_cpus_per_node": 64},
        ],
    )
    def test_what_cannot_be_lowered_is_refused(self, fields):
        out = cpu_only(job(**fields), SITE, CAP)
        assert codes(out) == ["FW514"]
        assert "at most 60 per node" in out.rejection.text

    def test_other_partitions_are_kept_where_it_does_not_fit(self):
        assert codes(cpu_only(job(partition="gpu,cpu", cpus_per_task=8), SITE, CAP)) == []
        out = cpu_only(job(partition="gpu,cpu", cpus_per_task=100), SITE, CAP)
        assert (out.request.partition, out.request.cpus_per_task) == ("cpu", 100)


class TestGive:
    def test_the_only_whole_type_in_reach(self):
        out = cpu_only(job(partition="short"), SITE, GIVE)
        assert out.request.gpus == (GpuAsk(level="node", type="a100", count=1),)
        assert out.notes[0].text == "no GPU asked in partition short: gpu:a100:1 added"

    def test_a_choice_that_is_not_clear_is_the_users(self):
        assert codes(cpu_only(job(), SITE, GIVE)) == ["FW511"]

    def test_a_slice_is_given_only_by_name(self):
        assert codes(cpu_only(job(partition="mig"), SITE, GIVE)) == ["FW511"]
        options = CpuOnlyOptions(action="give", type="a100_1g.5gb", count=2)
        given_ = cpu_only(job(partition="mig"), SITE, options).request.gpus
        assert given_ == (GpuAsk(level="node", type="a100_1g.5gb", count=2),)

    def test_never_more_than_a_node_has(self):
        options = CpuOnlyOptions(action="give", type="a100", count=5)
        assert codes(cpu_only(job(), SITE, options)) == ["FW511"]

    def test_what_is_written(self):
        out = decide({"partition": "short"}, only(RULE, GIVE))
        assert out.edits["tres_per_node"] == "gres/gpu:a100:1"


def test_a_change_of_a_pending_job():
    record = {"partition": "cpu", "job_id": 7}
    assert not decide({"partition": "gpu"}, only(RULE, REFUSE), record=record).accepted
    assert decide(
        {"time_limit": 5}, only(RULE, REFUSE), record={**record, "partition": "gpu"}
    ) == (decide({}, only(RULE, REFUSE), record=record))


def test_nodes_of_both_kinds_are_left_alone():
    nodes = tuple(SITE.facts.nodes)
    mixed = tuple(
        type(node)(node.name, (*node.partitions, "both"), node.gpus, node.cpus, node.mem_mib)
        for node in nodes
    )
    parts = (*SITE.facts.partitions, type(SITE.facts.partitions[0])("both"))
    site = Site(type(SITE.facts)(mixed, parts), SITE.catalogue)
    assert codes(cpu_only(job(partition="both"), site, REFUSE)) == []


small = st.none() | st.integers(1, 130)
requests = st.builds(
    JobRequest,
    gpus=st.sampled_from([(), (), ZERO]),
    kind=st.sampled_from(["batch", "interactive", None]),
    partition=st.sampled_from([None, "gpu", "cpu", "gpu,cpu", "mig", "short", "long,cpu", "big"]),
    account=st.sampled_from([None, "physics"]),
    reservation=st.sampled_from([None, None, "night"]),
    exclusive=st.booleans(),
    num_tasks=small,
    ntasks_per_node=small,
    max_nodes=st.none() | st.integers(1, 3),
    cpus_per_task=small,
    min_cpus=small,
    min_cpus_per_node=small,
)
all_options = st.sampled_from(
    [REFUSE, MOVE, CAP, GIVE, CpuOnlyOptions(action="cap", max_cpus_per_node=9)]
)


@settings(max_examples=300, deadline=None)
@given(request=requests, options=all_options)
def test_its_own_output_is_left_as_it_is(request, options):
    out = cpu_only(request, SITE, options)
    if out.rejection is None:
        again = cpu_only(out.request, SITE, options)
        assert (again.request, again.notes, again.rejection) == (out.request, (), None)
