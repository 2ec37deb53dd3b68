# SPDX-License-Identifier: Apache-2.0
"""One type for all nodes of a job."""

from __future__ import annotations

import pytest

from fairwatt.core.records import GpuAsk, JobRequest
from fairwatt.slurm_plugins.demand import may_span_nodes
from fairwatt.slurm_plugins.rules.homogeneous import HomogeneousOptions, homogeneous
from tests.fakes.sites import demo, featured, site

DEMO, FEATURED = demo(), featured()
BY_TYPE = HomogeneousOptions(features=False)


def ask(count=1, level="node", type_=None, **fields) -> JobRequest:
    return JobRequest(gpus=(GpuAsk(level=level, type=type_, count=count),), **fields)


@pytest.mark.parametrize(
    ("request_", "spans"),
    [
        (ask(), False),
        (ask(4, "job", max_nodes=1), False),
        (ask(1, min_nodes=1, max_nodes=1, num_tasks=8), False),
        (ask(4, num_tasks=1), False),
        (ask(4, "job", num_tasks=1), False),
        (ask(1, "job"), False),
        (ask(4, "job"), True),
        (ask(1, num_tasks=2), True),
        (ask(1, min_nodes=2), True),
        (ask(1, "task", num_tasks=2), True),
    ],
)
def test_only_what_can_span_nodes_is_changed(request_, spans):
    assert may_span_nodes(request_) is spans
    assert (homogeneous(request_, DEMO, BY_TYPE).request != request_) is spans


def test_the_smallest_that_suffices():
    out = homogeneous(ask(1, "task", num_tasks=4), DEMO, BY_TYPE)
    assert [gpu.type for gpu in out.request.gpus] == ["a100"]
    assert out.notes[0].text == (
        "gpu:1 -> gpu:a100:1: one type for all nodes of the job, of a100, h100 in partition gpu"
    )


def test_or_the_one_of_which_there_are_most():
    more = site({"a": ("p", {"a100": 4}), "h": ("p", {"h100": 8})}, "p")
    out = homogeneous(
        ask(1, "task", num_tasks=4), more, HomogeneousOptions(features=False, order="most")
    )
    assert [gpu.type for gpu in out.request.gpus] == ["h100"]


def test_one_node_of_h100_is_not_two():
    out = homogeneous(ask(1, min_nodes=2), DEMO, BY_TYPE)
    assert [gpu.type for gpu in out.request.gpus] == ["a100"]


def test_features_leave_the_choice_to_slurm():
    out = homogeneous(ask(1, "task", num_tasks=2), FEATURED)
    assert out.request.features == "[a100|h100|v100]"
    assert out.notes[0].code == "FW312"
    assert homogeneous(out.request, FEATURED).request == out.request


def test_what_need_wrote_is_made_stricter():
    out = homogeneous(ask(1, num_tasks=2, features="(a100|h100)"), FEATURED)
    assert out.request.features == "[a100|h100]"


@pytest.mark.parametrize("own", ["ib", "[ib|eth]", "ib&(a100|h100)"])
def test_beside_another_constraint_it_is_a_type(own):
    out = homogeneous(ask(1, num_tasks=2, features=own), FEATURED)
    assert [gpu.type for gpu in out.request.gpus] == ["v100" if own == "[ib|eth]" else "a100"]
    assert out.request.features == own


@pytest.mark.parametrize(
    "request_",
    [
        ask(1, type_="a100", min_nodes=2),
        ask(1, min_nodes=2, partition="mig"),
        ask(8, min_nodes=3),  # no type has it: Slurm may mix, or refuse
        ask(0, min_nodes=2),
    ],
)
def test_left_alone(request_):
    assert homogeneous(request_, DEMO).request is request_


def test_never_a_barred_type():
    out = homogeneous(ask(1, num_tasks=4, barred_types=frozenset({"a100"})), DEMO, BY_TYPE)
    assert [gpu.type for gpu in out.request.gpus] == ["h100"]
