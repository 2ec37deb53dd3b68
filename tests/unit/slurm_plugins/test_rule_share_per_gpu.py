# SPDX-License-Identifier: Apache-2.0
"""share_per_gpu: every form of asking, worked out by hand, and what holds for all requests."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict

from fairwatt.core.gres import Spelling
from fairwatt.core.records import JobRequest
from fairwatt.slurm_plugins.engine import decide
from fairwatt.slurm_plugins.policy_file import parse_policy
from fairwatt.slurm_plugins.rules.share_per_gpu import RULE, ShareOptions, share_per_gpu
from fairwatt.slurm_plugins.size import cpus_in_all, gpus_in_all
from tests.fakes.gpu_asks import gpu_asks, sizes
from tests.fakes.sized_site import ask, only, sized

SITE = sized()
TABLE = ShareOptions(cpus={"default": 8, "h100": 14}, mem_gb={"default": 64, "h100": 200})
CLAMP = ShareOptions(cpus=TABLE.cpus, mem_gb=TABLE.mem_gb, action="clamp", fill=False)
REFUSE = ShareOptions(cpus=TABLE.cpus, mem_gb=TABLE.mem_gb, action="refuse", fill=False)
GB = 1024


def changes(request, options=TABLE, site=SITE):
    """What the rule changed: field to value."""
    out = share_per_gpu(request, site, options)
    assert out.rejection is None, out.rejection
    before, after = asdict(request), asdict(out.request)
    return {name: after[name] for name in after if after[name] != before[name]}


def refused(request, options=REFUSE):
    out = share_per_gpu(request, SITE, options)
    assert out.request == request
    assert out.rejection is not None
    assert out.rejection.code == "FW403"
    return out.rejection.text


class TestFill:
    def test_both_per_gpu(self):
        out = share_per_gpu(ask("a100", 2), SITE, TABLE)
        assert (out.request.cpus_per_gpu, out.request.mem_per_gpu_mib) == (8, 64 * GB)
        assert [note.text for note in out.notes] == [
            "gpu:a100:2: 8 CPUs and 64 GB per GPU, as you named none"
        ]

    def test_its_own_type_goes_before_the_default(self):
        assert changes(ask("h100")) == {"cpus_per_gpu": 14, "mem_per_gpu_mib": 200 * GB}

    def test_a_slice_gets_its_part_of_its_board(self):
        """3 of 7 slices are 429 thousandths: 8 x 0.429 CPUs, 64 GB x 0.429, in whole GB."""
        found = changes(ask("a100_3g.20gb", partition="mig"))
        assert found == {"cpus_per_gpu": 3, "mem_per_gpu_mib": 27 * GB}

    def test_gpus_per_task_are_filled_per_task(self):
        """Slurm 22.05 gives twice the GPUs where CPUs per GPU meet GPUs per task."""
        found = changes(ask("a100", 2, "task", num_tasks=2, min_cpus=2))
        assert found == {"cpus_per_task": 16, "min_cpus": 32, "mem_per_gpu_mib": 64 * GB}

    @pytest.mark.parametrize(
        "named", [{"cpus_per_task": 2}, {"cpus_per_gpu": 1}, {"min_cpus_per_node": 4}]
    )
    def test_cpus_that_were_named_stay(self, named):
        assert changes(ask("a100", **named)) == {"mem_per_gpu_mib": 64 * GB}

    @pytest.mark.parametrize(
        "named", [{"mem_per_node_mib": 0}, {"mem_per_cpu_mib": 10}, {"mem_per_gpu_mib": 10}]
    )
    def test_memory_that_was_named_stays(self, named):
        assert changes(ask("a100", **named)) == {"cpus_per_gpu": 8}

    def test_more_tasks_than_the_share_are_left(self):
        """24.11 refuses 20 tasks with 2 x 4 CPUs per GPU as a configuration that is nowhere."""
        assert "cpus_per_gpu" not in changes(ask("a100", 2, num_tasks=20, min_cpus=20))
        assert changes(ask("a100", 2, num_tasks=16, min_cpus=16))["cpus_per_gpu"] == 8

    def test_untyped_gets_what_every_type_in_reach_can_give(self):
        assert changes(ask(None)) == {"cpus_per_gpu": 8, "mem_per_gpu_mib": 64 * GB}

    def test_an_exclusive_job_is_left_alone(self):
        assert changes(ask("a100", exclusive=True)) == {}

    def test_a_change_of_a_pending_job_fills_nothing(self):
        assert changes(ask("a100", job_id=7)) == {}

    def test_without_options_nothing_happens(self):
        assert changes(ask("a100", cpus_per_task=64), ShareOptions()) == {}

    def test_default_leaves_what_is_more(self):
        assert changes(ask("a100", cpus_per_task=64, mem_per_node_mib=500 * GB)) == {}


class TestFromNodes:
    OPTIONS = ShareOptions(from_nodes=True)

    def test_whole_boards(self):
        """64 CPUs and 500 GB by 4 boards; 112 CPUs and 2000 GB by 8."""
        assert changes(ask("a100"), self.OPTIONS) == {
            "cpus_per_gpu": 16,
            "mem_per_gpu_mib": 125 * GB,
        }
        assert changes(ask("h100"), self.OPTIONS)["cpus_per_gpu"] == 14

    def test_slices_by_their_thousandths_of_the_two_boards_that_they_fill(self):
        """32 CPUs x 0.143 / 2 and x 0.429 / 2: seven and two of them leave some over."""
        small = changes(ask("a100_1g.5gb", partition="mig"), self.OPTIONS)
        large = changes(ask("a100_3g.20gb", partition="mig"), self.OPTIONS)
        assert (small["cpus_per_gpu"], large["cpus_per_gpu"]) == (2, 6)
        assert 7 * 2 + 2 * 6 <= 32
        assert large["mem_per_gpu_mib"] == 53 * GB

    def test_the_table_goes_before_the_nodes(self):
        options = ShareOptions(from_nodes=True, cpus={"a100": 4})
        assert changes(ask("a100"), options)["cpus_per_gpu"] == 4

    def test_of_different_nodes_the_least(self):
        found = changes(ask("a100", partition="gpu,big"), self.OPTIONS)
        assert found["cpus_per_gpu"] == 16
        assert changes(ask("a100", partition="big"), self.OPTIONS)["cpus_per_gpu"] == 32


class TestClamp:
    def test_cpus_per_task_with_all_that_must_agree(self):
        """-c 16 on 2 GPUs may be 16; -c 32 becomes 16, the least CPUs of node and job too."""
        assert changes(ask("a100", 2, cpus_per_task=16, min_cpus=16), CLAMP) == {}
        out = share_per_gpu(
            ask("a100", 2, cpus_per_task=32, min_cpus=32, min_cpus_per_node=32), SITE, CLAMP
        )
        after = out.request
        assert (after.cpus_per_task, after.min_cpus, after.min_cpus_per_node) == (16, 16, 16)
        assert [note.text for note in out.notes] == [
            "gpu:a100:2: 32 CPUs -> 16 CPUs, the share of 2 GPUs here (8 CPUs, 64 GB each)"
        ]

    def test_tasks_times_cpus_per_task(self):
        """4 tasks of 16 CPUs on 2 GPUs: 16 CPUs in all are 4 each."""
        found = changes(ask("a100", 2, num_tasks=4, cpus_per_task=16, min_cpus=64), CLAMP)
        assert found == {"cpus_per_task": 4, "min_cpus": 16}

    def test_tasks_per_node_and_nodes(self):
        """2 nodes of 2 GPUs, 4 tasks of 16 CPUs each: 32 CPUs in all by 8 tasks."""
        request = ask(
            "a100", 2, ntasks_per_node=4, min_nodes=2, max_nodes=2, cpus_per_task=16, min_cpus=128
        )
        assert changes(request, CLAMP) == {"cpus_per_task": 4, "min_cpus": 32}

    def test_a_job_too_large_for_one_node_has_the_gpus_of_more(self):
        """8 tasks of 16 CPUs need two nodes of 64: eight GPUs, 64 CPUs, 8 each. Then one node
        does, with four GPUs: 4 each."""
        request = ask("a100", 4, num_tasks=8, cpus_per_task=16, partition="short")
        assert changes(request, CLAMP) == {"cpus_per_task": 4}
        options = ShareOptions(cpus={"default": 16}, action="clamp", fill=False)
        assert changes(request, options) == {}

    def test_cpus_per_gpu(self):
        """26.05 counts them in min_cpus, 22.05 does not."""
        new = changes(ask("a100", 2, "job", cpus_per_gpu=16, min_cpus=32), CLAMP)
        assert new == {"cpus_per_gpu": 8, "min_cpus": 16}
        assert changes(ask("a100", 2, "job", cpus_per_gpu=16, min_cpus=1), CLAMP) == {
            "cpus_per_gpu": 8
        }

    def test_cpus_per_node(self):
        assert changes(ask("a100", 2, min_cpus_per_node=64, min_cpus=1), CLAMP) == {
            "min_cpus_per_node": 16
        }

    def test_cpus_in_all_alone(self):
        """An API client may ask so."""
        assert changes(ask("a100", 2, min_cpus=64), CLAMP) == {"min_cpus": 16}

    def test_gpus_per_task(self):
        request = ask("a100", 1, "task", num_tasks=4, cpus_per_task=32, min_cpus=128)
        assert changes(request, CLAMP) == {"cpus_per_task": 8, "min_cpus": 32}

    @pytest.mark.parametrize(
        ("field", "asked", "given"),
        [
            ("mem_per_node_mib", 200 * GB, 128 * GB),
            ("mem_per_node_mib", 0, 128 * GB),
            ("mem_per_gpu_mib", 100 * GB, 64 * GB),
            ("mem_per_cpu_mib", 33 * GB, 32 * GB),
        ],
    )
    def test_memory_in_the_users_form(self, field, asked, given):
        request = ask("a100", 2, cpus_per_task=4, **{field: asked})
        assert changes(request, CLAMP) == {field: given}

    def test_memory_per_cpu_after_the_cpus(self):
        """32 CPUs of 4 GB become 16 CPUs: 64 GB are within the 128 of two GPUs."""
        request = ask("a100", 2, cpus_per_task=32, mem_per_cpu_mib=4 * GB)
        assert changes(request, CLAMP) == {"cpus_per_task": 16}

    def test_all_memory_of_a_node_whose_gpus_all_are_asked(self):
        options = ShareOptions(from_nodes=True, action="clamp", fill=False)
        assert changes(ask("a100", 4, mem_per_node_mib=0, partition="short"), options) == {}

    def test_tasks_are_not_taken_away(self):
        text = refused(ask("a100", 2, num_tasks=32, min_cpus=32), CLAMP)
        assert text == (
            "gpu:a100:2: 32 CPUs is more than the share of 2 GPUs here (8 CPUs, 64 GB each); "
            "ask for at most 16 CPUs, or for more GPUs"
        )

    @pytest.mark.parametrize(
        ("request_", "offer"),
        [
            (ask("a100", 2, cpus_per_task=32, kind="interactive"), "write -c 16"),
            (ask("a100", 2, cpus_per_gpu=32, kind="interactive"), "write --cpus-per-gpu=8"),
            (ask("a100", mem_per_gpu_mib=65 * GB, kind="interactive"), "--mem-per-gpu=65536M"),
            (ask("a100", 2, cpus_per_gpu=32, job_id=7, kind=None), "write --cpus-per-gpu=8"),
        ],
    )
    def test_what_steps_repeat_or_a_change_hides_is_refused(self, request_, offer):
        assert refused(request_, CLAMP).endswith(offer)

    def test_memory_that_steps_do_not_repeat_is_lowered_for_srun_too(self):
        request = ask("a100", mem_per_node_mib=65 * GB, kind="interactive")
        assert changes(request, CLAMP) == {"mem_per_node_mib": 64 * GB}

    def test_memory_that_slurm_filled_into_a_pending_job_is_not_held_against_it(self):
        """DefMemPerCPU shows in the record as if it had been asked."""
        assert changes(ask("a100", job_id=7, min_cpus=8, mem_per_cpu_mib=10 * GB), CLAMP) == {}


class TestRefuse:
    def test_an_unset_number_is_never_multiplied(self):
        """Public scripts charged tasks x 4294967294."""
        fields = {
            "tres_per_node": "gres/gpu:a100:1",
            "num_tasks": 4294967294,
            "cpus_per_task": 65534,
            "pn_min_cpus": 65534,
            "min_cpus": 4294967294,
            "min_mem_per_node": 4294967294,
            "shared": 65534,
        }
        assert decide(fields, only(RULE, REFUSE)).accepted

    def test_the_untyped_may_have_the_largest_share(self):
        assert changes(ask(None, cpus_per_task=14), REFUSE) == {}
        assert "share of 1 GPU here (14 CPUs, 200 GB each)" in refused(ask(None, cpus_per_task=15))

    def test_gpus_per_socket_are_not_judged(self):
        assert changes(ask("a100", 1, "socket", cpus_per_task=64), REFUSE) == {}

    def test_a_pending_job_whose_partition_changes(self):
        """The record has no tasks and no CPUs per task, only the least in all."""
        record = {"tres_per_node": "gres/gpu:a100:2", "partition": "gpu", "min_cpus": 64}
        out = decide({"partition": "big"}, only(RULE, CLAMP), record={**record, "job_id": 7})
        assert not out.accepted
        assert "FW403" in out.say[0]
        fits = {**record, "min_cpus": 16, "job_id": 7}
        assert decide({"partition": "big"}, only(RULE, CLAMP), record=fits).accepted
        assert decide(
            {"time_limit": 5}, only(RULE, CLAMP), record={**record, "job_id": 7}
        ).accepted


class TestEdits:
    def test_what_is_written(self):
        job = {"tres_per_node": "gres:gpu:a100:2", "min_cpus": 1, "has_script": 1}
        out = decide(job, only(RULE, TABLE), spelling=Spelling.COLON)
        assert out.edits["cpus_per_tres"] == "gres:gpu:8"
        assert out.edits["mem_per_tres"] == "gres:gpu:65536"
        assert "min_cpus" not in out.edits

    def test_from_the_policy_file(self):
        text = """
            [rules.share_per_gpu]
            mode = "enforce"
            cpus = { default = 8, "a100_1g.5gb" = 2 }
            mem_gb = { default = 62.5 }
            action = "clamp"
        """
        (rule,) = [r for r in parse_policy(text, "p").rules if r.name == "share_per_gpu"]
        found = share_per_gpu(ask("a100_1g.5gb", partition="mig"), SITE, rule.options)
        assert found.request.cpus_per_gpu == 2
        assert share_per_gpu(ask("a100"), SITE, rule.options).request.mem_per_gpu_mib == 64000


requests = st.builds(
    JobRequest,
    gpus=gpu_asks(
        ["a100", "h100", "a100_3g.20gb"], levels=("node", "job", "task"), entries=(1, 2)
    ),
    kind=st.sampled_from(["batch", "interactive", None]),
    job_id=st.sampled_from([None, None, 7]),
    partition=st.sampled_from([None, "mig", "big", "gpu,big"]),
    **sizes(5, 80, 600 * GB),
)
all_options = st.builds(
    ShareOptions,
    cpus=st.sampled_from([{}, {"default": 8}, {"a100": 3, "h100": 14}]),
    mem_gb=st.sampled_from([{}, {"default": 64.0}]),
    from_nodes=st.booleans(),
    action=st.sampled_from(["default", "clamp", "refuse"]),
    fill=st.booleans(),
)


@settings(max_examples=300, deadline=None)
@given(request=requests, options=all_options)
def test_its_own_output_is_left_as_it_is(request, options):
    out = share_per_gpu(request, SITE, options)
    if out.rejection is None:
        again = share_per_gpu(out.request, SITE, options)
        assert (again.request, again.notes, again.rejection) == (out.request, (), None)


@settings(max_examples=300, deadline=None)
@given(request=requests)
def test_after_a_clamp_no_job_has_more_than_its_gpus_share(request):
    options = ShareOptions(cpus={"default": 8}, action="clamp", fill=False)
    out = share_per_gpu(request, SITE, options)
    nodes = out.request.min_nodes or 1
    gpus = gpus_in_all(out.request, nodes)
    if out.rejection is None and gpus and cpus_in_all(out.request) <= 32:
        # A slice's share is smaller, that of 3g.20gb 3 CPUs; one node is enough for 32 CPUs.
        per_type = {"a100": 8, "h100": 8, "a100_3g.20gb": 3}
        allowed = sum(count * per_type[type_] for type_, count in gpus.items())
        assert cpus_in_all(out.request) <= allowed
        assert (out.request.cpus_per_gpu or 0) * sum(gpus.values()) <= allowed
    for name in ("num_tasks", "cpus_per_task", "cpus_per_gpu", "min_cpus", "min_cpus_per_node"):
        before, after = getattr(request, name), getattr(out.request, name)
        assert (before is None) == (after is None)
        assert before is None or after <= before
