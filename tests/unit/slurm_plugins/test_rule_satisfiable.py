# SPDX-License-Identifier: Apache-2.0
"""satisfiable: what no node can give, worked out by hand, and what may never be refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fairwatt.core.records import GpuAsk, JobRequest
from fairwatt.slurm_plugins.engine import decide
from fairwatt.slurm_plugins.rules.satisfiable import RULE, SatisfiableOptions, satisfiable
from fairwatt.slurm_plugins.site import Facts, Site
from tests.fakes.gpu_asks import gpu_asks, sizes
from tests.fakes.sized_site import ask, only, sized

SITE = sized()
OPTIONS = SatisfiableOptions()
GB = 1024


def cpus(**fields) -> JobRequest:
    return JobRequest(kind="batch", **fields)


def refused(request, options=OPTIONS, site=SITE):
    out = satisfiable(request, site, options)
    assert out.rejection is not None
    assert out.request == request
    return out.rejection.code, out.rejection.text


def is_fine(request, options=OPTIONS, site=SITE):
    out = satisfiable(request, site, options)
    assert out.rejection is None, out.rejection
    assert out.notes == ()
    return out.request == request


class TestOneNode:
    def test_memory_beside_the_gpus_names_the_most_and_who_has_it(self):
        request = ask("a100", 4, partition="short", mem_per_node_mib=900 * GB)
        assert refused(request) == (
            "FW801",
            "no node in partition short has 900 GB and 4 x a100; "
            "the most on such a node is 500 GB; partition big can: -p big",
        )
        assert is_fine(replace(request, partition="big"))

    def test_memory_of_another_node_does_not_help(self):
        """h1 of the same partition has 2 TB, but no a100."""
        code, text = refused(ask("a100", 1, mem_per_node_mib=1500 * GB))
        assert code == "FW801"
        assert text.endswith("the most on such a node is 500 GB")
        assert is_fine(ask("h100", 1, mem_per_node_mib=1500 * GB))

    def test_cpus_beside_the_gpus(self):
        assert refused(ask("a100", 1, cpus_per_task=100)) == (
            "FW801",
            "no node in partition gpu has 100 CPUs and 1 x a100; "
            "the most on a node with these GPUs is 64 CPUs; partition big can: -p big",
        )
        assert is_fine(ask("h100", 1, cpus_per_task=100))

    @pytest.mark.parametrize(
        ("fields", "asked"),
        [
            ({"ntasks_per_node": 5, "cpus_per_task": 16}, "80 CPUs"),
            ({"num_tasks": 10, "max_nodes": 2, "cpus_per_task": 16}, "80 CPUs"),
            ({"cpus_per_gpu": 40}, "80 CPUs"),
            ({"min_cpus_per_node": 80}, "80 CPUs"),
            ({"min_cpus": 80, "max_nodes": 1}, "80 CPUs"),
            ({"mem_per_gpu_mib": 300 * GB}, "600 GB"),
            ({"mem_per_cpu_mib": 10 * GB, "cpus_per_task": 60}, "600 GB, 60 CPUs"),
        ],
    )
    def test_every_form_of_asking(self, fields, asked):
        _, text = refused(ask("a100", 2, partition="short", **fields))
        assert f"has {asked} and 2 x a100;" in text

    def test_all_that_a_node_has_is_granted(self):
        assert is_fine(ask("a100", 4, cpus_per_task=64, mem_per_node_mib=500 * GB))
        assert is_fine(ask("a100", 4, mem_per_node_mib=0))
        assert is_fine(cpus(num_tasks=256, min_cpus=256, partition="cpu"))

    def test_peaks_of_gpus_and_tasks_may_be_on_different_nodes(self):
        """9 a100 never fit, 5 do with 3 on one node; 112 CPUs are on h1, which has none."""
        request = ask(None, 6, "job", max_nodes=2, num_tasks=150, cpus_per_task=1)
        assert is_fine(request)
        assert refused(replace(request, max_nodes=1))[0] == "FW801"

    def test_a_job_of_two_types_on_one_node(self):
        gpus = (
            GpuAsk(level="node", type="a100", count=1),
            GpuAsk(level="node", type="h100", count=1),
        )
        assert refused(JobRequest(gpus=gpus)) == (
            "FW801",
            "no node in partition gpu has 1 x a100 and 1 x h100; no node has all these GPUs",
        )

    def test_two_types_of_the_job_may_be_on_two_nodes(self):
        gpus = (
            GpuAsk(level="job", type="a100", count=1),
            GpuAsk(level="job", type="h100", count=1),
        )
        assert is_fine(JobRequest(gpus=gpus))


class TestFeatures:
    def test_a_feature_of_other_nodes(self):
        assert refused(ask("a100", 1, partition="gpu", features="bigmem")) == (
            "FW801",
            "no node in partition gpu has -C bigmem; its nodes lack these features; "
            "partition big can: -p big",
        )

    def test_with_a_feature_the_most_is_that_of_its_nodes(self):
        request = ask(None, 1, features="a100", mem_per_node_mib=600 * GB)
        assert "the most on such a node is 500 GB" in refused(request)[1]
        assert is_fine(replace(request, features="ib"))

    @pytest.mark.parametrize("text", ["nosuch", "a100&h100|ib", "[a100*2&h100*3]", "bigmem|a100"])
    def test_what_cannot_be_read_or_is_not_known_is_left_to_slurm(self, text):
        assert is_fine(ask(None, 1, features=text))


class TestNodes:
    def test_more_nodes_than_the_partition_allows(self):
        assert refused(ask("a100", 1, partition="short", min_nodes=2, max_nodes=2)) == (
            "FW802",
            "2 nodes: partition short allows at most 1 node; partition gpu can: -p gpu",
        )

    def test_unless_a_qos_is_known_to_lift_it(self):
        request = ask("a100", 1, partition="short", min_nodes=2, qos="wide")
        assert refused(request)[0] == "FW802"
        assert is_fine(request, SatisfiableOptions(exempt_qos=("wide",)))

    def test_more_nodes_than_have_it(self):
        assert refused(ask("a100", 4, min_nodes=3)) == (
            "FW802",
            "3 nodes: partition gpu has 2 nodes with 4 x a100",
        )
        assert is_fine(ask(None, 4, min_nodes=3))

    def test_a_node_list_narrows_it(self):
        code, text = refused(ask(None, 4, req_nodes="g[1-2]", max_nodes=2, cpus_per_task=65))
        assert (code, "partition gpu on g[1-2]" in text) == ("FW801", True)
        assert is_fine(ask(None, 4, req_nodes="h1", cpus_per_task=65))
        assert is_fine(ask(None, 4, req_nodes="c1", cpus_per_task=65))  # Slurm says that better

    def test_cpus_in_all(self):
        assert refused(cpus(num_tasks=241)) == (
            "FW804",
            "241 CPUs: partition gpu has 240; partition cpu can: -p cpu",
        )
        assert is_fine(cpus(num_tasks=240))
        assert refused(cpus(num_tasks=257, partition="cpu"))[0] == "FW804"
        assert refused(ask("a100", 1, num_tasks=129, min_cpus=129))[1].startswith(
            "129 CPUs: partition gpu has 128"
        )

    def test_overcommitted_tasks_need_no_cpu_each(self):
        """`-O -n 1000` comes with min_cpus 1."""
        assert is_fine(ask("a100", 1, num_tasks=1000, min_cpus=1, max_nodes=1))


class TestPartitions:
    def test_one_of_several_is_enough(self):
        request = ask("a100", 1, cpus_per_task=100, partition="gpu,big")
        assert is_fine(request)
        assert refused(replace(request, partition="gpu,short"))[0] == "FW801"

    def test_the_one_that_is_nearest_is_told(self):
        request = ask("a100", 1, min_nodes=2, mem_per_node_mib=600 * GB, partition="gpu,big")
        assert refused(request)[0] == "FW802"

    def test_nobody_is_sent_where_the_account_may_not_run(self):
        request = ask("h100", 1, min_nodes=2, account="arts", time_limit_min=2000)
        assert "long" not in refused(request)[1]
        late = ask("h100", 1, time_limit_min=2000)
        assert refused(replace(late, account="arts"))[1].endswith("wait for ever")
        assert refused(replace(late, account="physics"))[1].endswith("long can: -p long")

    @pytest.mark.parametrize(
        "request_", [ask("gone"), ask("a100", 9), ask("h100", partition="mig")]
    )
    def test_types_and_counts_alone_are_for_known_types(self, request_):
        """It may be off, or only warn."""
        assert is_fine(request_)

    def test_a_partition_that_is_not_known(self):
        assert is_fine(ask("a100", 400, partition="new"))


class TestTime:
    def test_beyond_every_partition(self):
        assert refused(ask("a100", 1, partition="short,gpu", time_limit_min=1441)) == (
            "FW803",
            "time limit 24:01 h: the most in partition short,gpu is 24 h, "
            "the job would wait for ever; partition big can: -p big",
        )
        assert is_fine(ask("a100", 1, partition="short,gpu", time_limit_min=1440))

    def test_where_one_has_no_limit(self):
        assert is_fine(ask("a100", 1, partition="short,big", time_limit_min=10**6))

    def test_a_job_that_slurm_may_cut_down_needs_its_least_time_only(self):
        """--time-min=60 -t 3-0 starts with what the partition allows (live on 22.05 and 26.05)."""
        late = ask("a100", 1, partition="gpu", time_limit_min=4320, least_time_min=60)
        assert is_fine(late)
        assert refused(replace(late, least_time_min=1441))[0] == "FW803"

    def test_options(self):
        late = ask("a100", 1, time_limit_min=1441, qos="long")
        assert is_fine(late, SatisfiableOptions(time=False))
        assert is_fine(late, SatisfiableOptions(exempt_qos=("Long",)))
        assert refused(replace(late, qos="other"))[0] == "FW803"


def changed(part: str = "gpu", **facts) -> Site:
    """The site with other facts; `whole` is a partition's."""
    whole = facts.pop("whole", True)
    known = SITE.facts.partitions
    parts = tuple(replace(p, whole=whole) if p.name == part else p for p in known)
    return Site(replace(SITE.facts, partitions=parts, **facts), SITE.catalogue)


class TestWhatIsNotKnown:
    def test_a_partition_with_hidden_nodes_refuses_nothing(self):
        big = ask("a100", 1, partition="gpu", mem_per_node_mib=9000 * GB)
        assert refused(big)[0] == "FW801"
        assert is_fine(big, site=changed(whole=False))

    @pytest.mark.parametrize("qos", ["long", None])
    def test_a_qos_that_lifts_the_time(self, qos):
        """Live on 22.05 and 24.11: -q long -t 3-0 starts where the partition allows one day."""
        late = ask("a100", 1, partition="gpu", time_limit_min=4320, qos=qos)
        assert refused(late)[0] == "FW803"
        assert is_fine(late, site=changed(beyond_time=("long",)))
        assert is_fine(late, site=changed(beyond_time=None))

    def test_a_qos_without_the_flag_lifts_nothing(self):
        late = ask("a100", 1, partition="gpu", time_limit_min=4320, qos="normal")
        assert refused(late, site=changed(beyond_time=("long",)))[0] == "FW803"

    def test_a_qos_that_lifts_the_nodes(self):
        wide = ask("a100", 1, partition="short", min_nodes=2, qos="wide")
        assert refused(wide)[0] == "FW802"
        assert refused(wide, site=changed(beyond_time=("wide",)))[0] == "FW802"
        assert is_fine(wide, site=changed(beyond_nodes=("wide",)))


def test_unset_numbers_refuse_nothing():
    fields = {
        "tres_per_node": "gres/gpu:a100:1",
        "num_tasks": 4294967294,
        "cpus_per_task": 65534,
        "min_cpus": 4294967294,
        "pn_min_cpus": 65535,
        "min_mem_per_node": 4294967294,
        "max_nodes": 0,
        "time_limit": 4294967294,
    }
    assert decide(fields, only(RULE, OPTIONS)).accepted


def test_a_change_of_a_pending_job():
    record = {
        "tres_per_node": "gres/gpu:a100:1",
        "partition": "big",
        "min_mem_per_node": 900 * GB,
        "job_id": 7,
    }
    policy = only(RULE, OPTIONS)
    assert not decide({"partition": "gpu"}, policy, record=record).accepted
    assert not decide({"min_mem_per_node": 1100 * GB}, policy, record=record).accepted
    assert decide({"min_mem_per_node": 950 * GB}, policy, record=record).accepted
    assert decide({"account": "x"}, policy, record={**record, "partition": "gpu"}).accepted


def _forgetful(site: Site) -> Site:
    """The same site without any number of CPUs, memory or time."""
    nodes = tuple(replace(node, cpus=None, mem_mib=None) for node in site.facts.nodes)
    parts = tuple(
        replace(part, max_time_min=None, max_nodes=None) for part in site.facts.partitions
    )
    return Site(Facts(nodes, parts, site.facts.reservations), site.catalogue)


UNKNOWING = _forgetful(SITE)
requests = st.builds(
    JobRequest,
    gpus=gpu_asks([None, "a100", "h100", "a100_3g.20gb"]),
    partition=st.sampled_from([None, "gpu", "mig", "cpu", "gpu,big", "short"]),
    features=st.sampled_from([None, "a100", "ib", "bigmem", "x"]),
    req_nodes=st.sampled_from([None, None, "g1", "g[1-2]"]),
    **sizes(9, 300, 3000 * GB),
    time_limit_min=st.none() | st.integers(0, 10**6),
)


@settings(max_examples=300, deadline=None)
@given(request=requests)
def test_it_changes_nothing_and_says_one_printable_line(request):
    out = satisfiable(request, SITE, OPTIONS)
    assert (out.request, out.notes) == (request, ())
    if out.rejection is not None:
        assert out.rejection.text.isascii()
        assert "\n" not in out.rejection.text


@settings(max_examples=300, deadline=None)
@given(request=requests)
def test_what_is_not_known_never_refuses(request):
    """With numbers of GPUs and nodes alone, only these can be too many."""
    plain = replace(request, features=None, req_nodes=None)
    out = satisfiable(plain, UNKNOWING, OPTIONS)
    if out.rejection is not None:
        fewer = JobRequest(
            gpus=plain.gpus,
            partition=plain.partition,
            min_nodes=plain.min_nodes,
            max_nodes=plain.max_nodes,
            num_tasks=plain.num_tasks,
            ntasks_per_node=plain.ntasks_per_node,
        )
        assert satisfiable(fewer, UNKNOWING, OPTIONS).rejection is not None


@settings(max_examples=300, deadline=None)
@given(request=requests)
def test_asking_for_less_is_never_refused_where_more_is_granted(request):
    if satisfiable(request, SITE, OPTIONS).rejection is None:
        less = replace(
            request,
            mem_per_node_mib=request.mem_per_node_mib and request.mem_per_node_mib // 2,
            cpus_per_gpu=request.cpus_per_gpu and max(1, request.cpus_per_gpu // 2),
            time_limit_min=request.time_limit_min and request.time_limit_min // 2,
        )
        assert satisfiable(less, SITE, OPTIONS).rejection is None
