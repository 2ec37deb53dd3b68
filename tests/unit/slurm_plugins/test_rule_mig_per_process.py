# SPDX-License-Identifier: Apache-2.0
"""More slices than processes: who is told, and what is offered."""

from __future__ import annotations

import pytest

from fairwatt.core.records import GpuAsk, JobRequest
from fairwatt.slurm_plugins.rules.mig_per_process import MigPerProcessOptions, mig_per_process
from tests.fakes.sites import demo

DEMO = demo()
SMALL = "a100_1g.5gb"


def ask(type_, count=1, level="node", **fields) -> JobRequest:
    return JobRequest(
        gpus=(GpuAsk(level=level, type=type_, count=count),), partition="mig", **fields
    )


def test_three_slices_for_one_process():
    """dorado#812: three slices, one of them visible."""
    out = mig_per_process(ask(SMALL, 3), DEMO)
    assert out.rejection is None
    assert out.request == ask(SMALL, 3)
    assert [(note.code, note.text) for note in out.notes] == [
        (
            "FW211",
            "gpu:a100_1g.5gb:3: a process sees only one MIG slice, and this is 3 for each; "
            "ask for gpu:a100_3g.20gb:1, or start one task per slice: "
            "--ntasks=3 --gpus-per-task=a100_1g.5gb:1",
        )
    ]


def test_or_refused():
    out = mig_per_process(ask(SMALL, 3), DEMO, MigPerProcessOptions(action="refuse"))
    assert out.rejection is not None
    assert out.rejection.code == "FW212"


@pytest.mark.parametrize(
    "request_",
    [
        ask(SMALL, 1),
        ask("a100", 4),
        ask(None, 4),
        ask(SMALL, 3, num_tasks=3),
        ask(SMALL, 3, ntasks_per_node=3),
        ask(SMALL, 1, "task"),
        ask(SMALL, 1, "task", num_tasks=7),
        ask(SMALL, 3, "job", num_tasks=3),
        ask(SMALL, 4, "job", ntasks_per_node=2, min_nodes=2),
        ask(SMALL, 2, num_tasks=4, min_nodes=2),
        ask(SMALL, 0),
    ],
)
def test_as_many_tasks_as_slices_are_fine(request_):
    assert mig_per_process(request_, DEMO).notes == ()


@pytest.mark.parametrize(
    ("request_", "each", "tasks"),
    [
        (ask(SMALL, 2, "task", num_tasks=3), 2, 6),
        (ask(SMALL, 4, "job", num_tasks=2), 2, 4),
        (ask(SMALL, 2, num_tasks=2, min_nodes=2), 2, 4),
        (ask(SMALL, 3, ntasks_per_node=2), 2, 3),
        (ask(SMALL, 2, "socket"), 2, 2),
    ],
)
def test_tasks_are_counted_in_every_form(request_, each, tasks):
    (note,) = mig_per_process(request_, DEMO).notes
    assert f"this is {each} for each" in note.text
    assert note.text.endswith(f"--ntasks={tasks} --gpus-per-task=a100_1g.5gb:1")


@pytest.mark.parametrize(
    ("request_", "offer"),
    [
        (ask(SMALL, 2), "ask for gpu:a100_3g.20gb:1"),
        (ask(SMALL, 2, "task", num_tasks=2), "ask for gpu:a100_3g.20gb:1"),
        (ask(SMALL, 4, num_tasks=2), "ask for gpu:a100_3g.20gb:2"),
        (JobRequest(gpus=(GpuAsk(level="node", type=SMALL, count=4),)), "ask for gpu:a100:1"),
    ],
)
def test_what_is_worth_as_much_is_offered(request_, offer):
    """4 x 1g.5gb is 4/7 of the board: more than 3g.20gb, though less memory."""
    (note,) = mig_per_process(request_, DEMO).notes
    assert f"; {offer}, or" in note.text


def test_a_larger_one_elsewhere_comes_with_its_partition():
    request = JobRequest(gpus=(GpuAsk(level="node", type=SMALL, count=3),))
    (note,) = mig_per_process(request, DEMO).notes
    assert "ask for gpu:a100_3g.20gb:1 with -p mig, or" in note.text


def test_nothing_larger_in_reach():
    (note,) = mig_per_process(ask("a100_3g.20gb", 2), DEMO).notes
    assert "ask for" not in note.text
    assert "; start one task per slice: --ntasks=2" in note.text


def test_a_type_that_the_account_may_not_use_is_not_offered():
    barred = frozenset({"a100_3g.20gb"})
    (note,) = mig_per_process(ask(SMALL, 2, barred_types=barred), DEMO).notes
    assert "ask for" not in note.text
