# SPDX-License-Identifier: Apache-2.0
"""job_submit.lua while policyd is away, hangs or restarts: the fail mode, the pauses, one line."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.fakes.job_desc import Hook
from tests.unit.slurm_plugins.far_end import NOT_APPLIED, forged, real


def test_a_restarted_policyd_costs_no_job_its_policy(hook, far):
    hook.submit({"tres_per_node": "gres:gpu:a100:1"})
    far.restart()
    out = hook.submit({"tres_per_node": "gres:gpu:A100:1", "std_in": "x"}, {})
    assert out.fields["tres_per_node"] == "gres:gpu:a100:1"
    assert far.connects == 2


@pytest.mark.parametrize("fault", ["absent", "hung", "dead", "backlog", "half"])
@pytest.mark.parametrize("mode", ["open", "closed"])
def test_a_failing_far_end_means_the_chosen_fail_mode_and_one_line(tmp_path, far, fault, mode):
    far.fault = fault
    text = f'return {{ socket = "/x", fail_mode = "{mode}" }}'
    out = Hook(tmp_path, far, settings=text).submit({"tres_per_node": "gres:gpu:20gb:1"})
    assert out.accepted is (mode == "open")
    assert out.fields == {}
    assert len(out.said) == 1
    assert out.said[0].startswith(NOT_APPLIED)
    assert len(out.logged) == 1


def test_a_frozen_policyd_costs_one_deadline_in_each_pause_which_doubles_to_30_s(hook, far):
    far.fault = "hung"
    tries = []
    start = far.now
    while far.now < start + 130:
        before = far.now
        hook.submit({"tres_per_node": "gres:gpu:1"})
        if far.now - before > 0.005:
            tries.append(far.now - start)
            assert far.now - before < 0.0105
        far.now += 0.25
    gaps = [round(b - a) for a, b in pairwise(tries)]
    assert gaps[:6] == [2, 4, 8, 16, 30, 30]
    assert sum(far.waited) <= 0.010 * len(tries)


def test_an_answer_that_is_there_counts_though_slurmctld_was_held_up_itself(hook, far):
    far.step = 0.020  # each look at the clock is twice the deadline later
    out = hook.submit({"tres_per_node": "gres:gpu:A100:1", "std_in": "x"}, {})
    assert out.fields["tres_per_node"] == "gres:gpu:a100:1"


def test_while_paused_no_call_touches_the_socket_and_success_ends_the_pauses(hook, far):
    far.fault = "absent"
    hook.submit({"tres_per_node": "gres:gpu:1"})
    assert far.connects == 1
    far.fault = None
    out = hook.submit({"tres_per_node": "gres:gpu:1"})
    assert far.connects == 1
    assert out.said[0].startswith(NOT_APPLIED)
    assert out.logged == []
    far.now += 2.1
    assert hook.submit({"tres_per_node": "gres:gpu:1"}).said == []
    far.fault = "absent"
    far.restart()
    hook.submit({"tres_per_node": "gres:gpu:1"})
    far.fault = None
    far.now += 2.1
    assert hook.submit({"tres_per_node": "gres:gpu:1"}).said == []


def test_a_clock_set_back_does_not_prolong_the_pause(hook, far):
    far.fault = "absent"
    hook.submit({"tres_per_node": "gres:gpu:1"})
    far.fault = None
    far.now -= 3600
    assert hook.submit({"tres_per_node": "gres:gpu:1"}).said == []


def test_a_wrong_answer_does_not_pause_the_policy_for_others(hook, far):
    far.answer = forged(id="x")
    hook.submit({"tres_per_node": "gres:gpu:1"})
    far.answer = real
    assert hook.submit({"tres_per_node": "gres:gpu:1"}).said == []
    assert far.connects == 2  # what else lay in the first connection is gone with it
