# SPDX-License-Identifier: Apache-2.0
"""job_submit.lua on every Lua and release: what policyd is asked, and what is written."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairwatt.slurm_plugins import wire
from tests.fakes.job_desc import Hook, Wire
from tests.fakes.submit_releases import RELEASES
from tests.unit.slurm_plugins.far_end import NOT_APPLIED, real


@pytest.mark.parametrize("release", RELEASES)
def test_a_request_by_memory_is_rewritten_in_the_spelling_of_the_server(tmp_path, far, release):
    prefix = "gres/" if RELEASES[release].slash else "gres:"
    hook = Hook(tmp_path, far, release=release)
    out = hook.submit({"tres_per_node": f"{prefix}gpu:20gb:1", "std_in": "/dev/null"}, {})
    assert out.accepted
    assert out.fields["tres_per_node"] == f"{prefix}gpu:a100_3g.20gb:1"
    assert out.fields["partition"] == "mig"
    assert out.fields["admin_comment"].startswith('fairwatt:{"v":1,"id":"","asked":"gpu:20gb:1",')
    assert out.said == [
        "fairwatt FW101: gpu:20gb:1 -> gpu:a100_3g.20gb:1: "
        "the smallest with 20 GB in partition mig"
    ]


@pytest.mark.parametrize(("shared", "asked"), [(0, 1), (1, 0), (2, 0), (65534, 0)])
def test_a_job_that_takes_whole_nodes_is_judged_for_it_gets_their_gpus(hook, far, shared, asked):
    hook.submit({"shared": shared, "partition": "gpu", "std_in": "/dev/null"}, {})
    assert len(far.lines) == asked


CLIENTS = [
    ({"argc": 0, "name": "secret"}, "salloc", "salloc"),
    ({"argc": 2, "name": "interactive", "argv": ["secret", "-x"]}, "salloc", "salloc"),
    ({"argc": 1, "name": "secret", "argv": ["secret"]}, "srun", "srun"),
    ({"argc": 1, "name": "secret", "argv": ["/bin/secret"]}, "srun", "srun"),
    ({"argc": 1, "name": "secret", "argv": ["true"]}, "srun", "either"),
    ({"std_in": "/dev/null", "name": "secret"}, None, None),
    ({"script": "#!/bin/sh\n", "name": "interactive"}, None, None),
]


@pytest.mark.parametrize(("asked", "old", "new"), CLIENTS)
@pytest.mark.parametrize("release", RELEASES)
def test_who_asks_is_told_by_what_the_clients_send(tmp_path, far, release, asked, old, new):
    """Measured live: from 24.11 on salloc sends its command as srun does, and no field differs
    but the name; the name itself does not leave."""
    slash = RELEASES[release].slash
    job = {"tres_per_node": RELEASES[release].gres("gpu:a100:1"), **asked}
    out = Hook(tmp_path, far, release=release).submit(job, {} if "std_in" in asked else None)
    assert json.loads(far.lines[-1])["job"].get("client") == (new if slash else old)
    assert "secret" not in far.lines[-1]
    assert (out.accepted, out.said, out.logged) == (True, [], [])


def test_the_default_account_is_sent_where_none_is_named(hook, far):
    job = {"tres_per_node": "gres:gpu:a100:1", "default_account": "qcd"}
    hook.submit(dict(job))
    assert json.loads(far.lines[-1])["job"]["default_account"] == "qcd"
    hook.submit({**job, "account": "lab"})
    assert "default_account" not in json.loads(far.lines[-1])["job"]


def test_every_lua_gives_the_same_result(hook):
    out = hook.submit({"tres_per_job": "gres:gpu:20gb:2", "std_in": "/dev/null"}, {})
    assert (out.accepted, out.code) == (True, 0)
    assert out.fields["tres_per_job"] == "gres:gpu:a100_3g.20gb:2"


def test_a_job_without_gpu_is_not_even_asked_about(hook, far):
    for fields in ({}, {"tres_per_node": "gres:shard:2"}, {"licenses": "gpu"}):
        out = hook.submit(dict(fields))
        assert out.accepted
        assert out.fields == {}
        assert out.said == out.logged == []
    assert far.connects == 0


@pytest.mark.parametrize(
    "name", ["tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket"]
)
def test_no_way_of_asking_passes_by_the_policy(tmp_path, far, name):
    out = Hook(tmp_path, far).submit({name: "gres:GPU:1,gres:gpu:h10:1"})
    assert not out.accepted
    assert out.code == 2072
    assert far.lines


def test_a_rejection_shows_its_message_and_changes_nothing(hook):
    out = hook.submit({"tres_per_node": "gres:gpu:h10:1"})
    assert not out.accepted
    assert out.fields == {}
    assert out.said == [
        "fairwatt FW302: no GPU type h10 in partition gpu; nearest: h100 (also here: a100)"
    ]


def test_one_connection_serves_many_jobs(hook, far):
    for _ in range(5):
        hook.submit({"tres_per_node": "gres:gpu:a100:1"})
    assert far.connects == 1
    assert len({json.loads(line)["id"] for line in far.lines}) == 5


def test_bytes_that_are_no_utf8_come_back_as_they_were(hook, far):
    bytes_ = "".join(chr(i) for i in range(1, 256))
    seen = {}

    def answer(line):
        query = wire.decode_query(line.encode("ascii"))
        seen.update(query.job)
        return wire.encode(
            wire.Answer(v=1, id=query.id, act="accept", set={"features": "caf\xe9"})
        ).decode("ascii")

    far.answer = answer
    out = hook.submit({"tres_per_node": "gres:gpu:1", "features": bytes_})
    assert seen["features"] == bytes_
    assert out.fields["features"] == "caf\xe9"


def test_what_is_not_set_does_not_travel_and_numbers_are_whole(hook, far):
    hook.submit({"tres_per_node": "gres:gpu:1", "num_tasks": 3})
    job = json.loads(far.lines[-1])["job"]
    assert '"num_tasks":3' in far.lines[-1]
    assert job == {
        "client": "salloc",
        "tres_per_node": "gres:gpu:1",
        "user_id": 1000,
        "num_tasks": 3,
        "min_cpus": 1,
    }


def test_a_field_beyond_16_kib_is_refused_not_passed_by(hook, far):
    out = hook.submit({"tres_per_node": "gres:gpu:1", "req_nodes": "n," * 9000})
    assert not out.accepted
    assert out.said == ["fairwatt FW003: req_nodes is too long; shorten it"]


def test_a_tres_list_that_slurm_would_refuse_does_not_reach_policyd(hook, far):
    """16 KiB of types take longer to judge than the deadline, and would open the breaker."""
    out = hook.submit({"tres_per_job": "gres:gpu:a:1," * 90})
    assert not out.accepted
    assert out.said == ["fairwatt FW003: tres_per_job is too long; shorten it"]
    assert far.lines == []


def test_gpus_implied_by_tasks_are_asked_about(hook, far):
    hook.submit({"num_tasks": 4, "ntasks_per_gpu": 2})
    assert json.loads(far.lines[-1])["job"]["ntasks_per_gpu"] == 2
    far.lines.clear()
    hook.submit({"num_tasks": 4, "ntasks_per_gpu": 65534})
    assert far.lines == []


def test_the_other_entries_of_a_mixed_list_stay_as_they_were_written(tmp_path, far):
    hook = Hook(tmp_path, far, release="24.11")
    for cpus in ("cpu:2", "cpu=2", "license/ansys@host=1"):
        out = hook.submit({"tres_per_task": f"{cpus},gres/gpu:A100:1"})
        assert out.fields["tres_per_task"] == f"{cpus},gres/gpu:a100=1"


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=st.text(st.characters(max_codepoint=255, min_codepoint=1), max_size=60))
def test_whatever_the_request_the_hook_returns_a_number_and_says_one_thing(tmp_path, text):
    far = Wire(answer=real)
    out = Hook(tmp_path, far).submit({"tres_per_node": f"gres:gpu:{text}:1", "partition": text})
    assert out.code in (0, 2072)
    assert not any(NOT_APPLIED in line for line in out.said)
