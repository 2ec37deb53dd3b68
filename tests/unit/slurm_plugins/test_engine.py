# SPDX-License-Identifier: Apache-2.0
"""The engine: spellings, modes, facts that are missing or old, and rules that fail."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairwatt.core.gres import Spelling
from fairwatt.slurm_plugins import engine
from fairwatt.slurm_plugins.engine import Policy, decide
from fairwatt.slurm_plugins.rule import ActiveRule, Options, RuleSpec
from fairwatt.slurm_plugins.rules import account_types
from fairwatt.slurm_plugins.rules.account_types import AccountTypesOptions
from tests.fakes.sites import enforcing
from tests.unit.slurm_plugins.campus import DEMO, POLICY, UNSET

MENDED = "gpu:A100:1 -> gpu:a100:1: a100 is how this cluster spells it"


FORMS = [
    ("tres_per_node", "gpu:20gb:1"),
    ("tres_per_job", "gpu:20gb:1"),
    ("tres_per_task", "gpu:20gb:1"),
    ("tres_per_socket", "gpu:20gb:1"),
]


@pytest.mark.parametrize("field", [form[0] for form in FORMS])
@pytest.mark.parametrize("prefix", ["", "gres:", "gres/"])
@pytest.mark.parametrize("separator", [":", "="])
def test_one_intent_one_decision_whatever_the_spelling(field, prefix, separator):
    """J1, J3, J5: per node, job, task or socket, any prefix, `:` or `=`."""
    out = decide(
        {field: f"{prefix}gpu:20gb{separator}1", **UNSET}, POLICY, spelling=Spelling.COLON
    )
    assert out.edits[field] == "gres:gpu:a100_3g.20gb:1"
    assert out.given == "gpu:a100_3g.20gb:1"


def test_a_bare_request_of_an_api_client_gets_the_prefix_of_the_server():
    """J4."""
    out = decide({"tres_per_node": "gpu:a100:1"}, POLICY, spelling=Spelling.SLASH)
    assert out.edits == {"tres_per_node": "gres/gpu:a100:1"}
    assert out.say == ()


def test_a_fitting_request_is_left_alone():
    out = decide({"tres_per_node": "gres:gpu:a100:1"}, POLICY, spelling=Spelling.COLON)
    assert (out.accepted, out.edits, out.say) == (True, {}, ())


def test_other_tres_stay_where_they_are():
    out = decide({"tres_per_task": "cpu=3,gres/gpu:20gb=1,gres/shard=2"}, POLICY)
    assert out.edits["tres_per_task"] == "cpu=3,gres/gpu:a100_3g.20gb=1,gres/shard=2"


@pytest.mark.parametrize("other", ["<", "shard:2", "license:ansys=1"])
def test_a_list_without_gpus_stays_as_it_was_written(other):
    """It is not even put into the server's spelling: that is for the GPU entries."""
    job = {"tres_per_task": other, "tres_per_node": "gres/gpu:20gb:1"}
    edits = decide(job, POLICY, spelling=Spelling.SLASH).edits
    assert edits["tres_per_node"] == "gres/gpu:a100_3g.20gb:1"
    assert "tres_per_task" not in edits


@pytest.mark.parametrize(
    "job",
    [{}, {"tres_per_node": "gres:shard:1"}, {"tres_per_node": "gres/gpu:0"}, {"tres_per_job": ""}],
)
def test_a_job_without_gpu_is_never_touched(job):
    out = decide(job, POLICY)
    assert (out.accepted, out.edits, out.say) == (True, {}, ())


def test_the_environment_that_sbatch_exports_follows():
    job = {"tres_per_job": "gres/gpu:A100:1", "SLURM_GPUS": "A100:1", "std_in": "/dev/null"}
    assert decide(job, POLICY).edits["SLURM_GPUS"] == "a100:1"


def test_steps_of_a_job_that_may_get_another_type_name_none():
    job = {"tres_per_job": "gres/gpu:20gb:1", "SLURM_GPUS": "20gb:1", "std_in": "/dev/null"}
    out = decide(job, POLICY)
    assert out.flavours
    assert out.edits["SLURM_GPUS"] == "1"


def test_newer_releases_export_what_a_task_gets_as_the_field_says_it():
    """24.11 keeps sbatch's SLURM_TRES_PER_TASK: srun in the job would still ask for A100."""
    text = "cpu=3,gres/gpu:A100=1"
    job = {"tres_per_task": text, "SLURM_TRES_PER_TASK": text, "std_in": "/dev/null"}
    edits = decide(job, POLICY).edits
    assert edits["tres_per_task"] == "cpu=3,gres/gpu:a100=1"
    assert edits["SLURM_TRES_PER_TASK"] == edits["tres_per_task"]
    assert "SLURM_GPUS_PER_TASK" not in edits


def test_srun_is_told_what_to_write_since_its_step_repeats_the_request():
    out = decide({"tres_per_node": "gres/gpu:20gb:1", "client": "srun"}, POLICY)
    assert not out.accepted
    assert out.say[0].startswith("fairwatt FW005: ")
    assert out.say[0].endswith("write --gpus-per-node=a100_3g.20gb:1 -p mig")
    assert [note.code for note in out.told] == ["FW005"]
    out = decide({"tres_per_node": "gres/gpu:a100:1", "client": "srun"}, POLICY)
    assert (out.accepted, out.told) == (True, ())


def test_the_comment_carries_the_decision_and_spares_those_of_others():
    job = {"tres_per_node": "gres/gpu:20gb:1"}
    comment = decide(job, POLICY).edits["admin_comment"]
    body = json.loads(comment.removeprefix("fairwatt:"))
    assert (body["v"], body["asked"], body["given"]) == (1, "gpu:20gb:1", "gpu:a100_3g.20gb:1")
    assert body["notes"][0][0] == "FW101"
    assert "admin_comment" in decide({**job, "admin_comment": comment}, POLICY).edits
    assert "admin_comment" not in decide({**job, "admin_comment": "ours"}, POLICY).edits


@pytest.mark.parametrize(
    ("mode", "accepted", "edited", "says"),
    [
        (
            "enforce",
            True,
            True,
            "fairwatt FW301: " + MENDED,
        ),
        (
            "warn",
            True,
            False,
            "fairwatt FW301 (warn): would be changed: " + MENDED,
        ),
        ("audit", True, False, None),
        ("off", True, False, None),
    ],
)
def test_modes_of_a_change(mode, accepted, edited, says):
    policy = enforcing(DEMO, type_spelling=mode, known_types="off")
    out = decide({"tres_per_node": "gres/gpu:A100:1"}, policy)
    assert out.accepted is accepted
    assert ("tres_per_node" in out.edits) is edited
    assert out.say == ((says,) if says else ())
    assert ("admin_comment" in out.edits) is (mode != "off")


@pytest.mark.parametrize(
    ("mode", "accepted"), [("enforce", False), ("warn", True), ("audit", True)]
)
def test_modes_of_a_refusal(mode, accepted):
    out = decide({"tres_per_node": "gres/gpu:h10:1"}, enforcing(DEMO, known_types=mode))
    assert out.accepted is accepted
    assert "tres_per_node" not in out.edits
    assert bool(out.say) is (mode != "audit")


def test_a_malformed_request_is_refused_with_its_part():
    out = decide({"tres_per_node": "gres/gpu:a:b:c:d"}, POLICY)
    assert not out.accepted
    assert out.say[0].startswith("fairwatt FW304: gpu:a:b:c:d cannot be read;")
    one_of_two = decide({"tres_per_node": "gres/gpu:1,gres/gpu:a:b:c:d"}, POLICY)
    assert "gpu:1,gres/gpu:a:b:c:d cannot be read at gpu:a:b:c:d;" in one_of_two.say[0]
    assert decide(
        {"tres_per_node": "gres/gpu::", "x": 1}, enforcing(DEMO, known_types="off")
    ).accepted


@pytest.mark.parametrize("name", ["account", "default_account"])
def test_an_account_in_capitals_is_the_same_account(name):
    """slurmctld makes it small after the hook: `-A PHYSICS` runs as physics."""
    lists = AccountTypesOptions(accounts={"Physics": ("a100",)})
    rule = ActiveRule(account_types.RULE, "enforce", "closed", lists)
    job = {"tres_per_node": "gres/gpu:h100:1", name: "PHYSICS"}
    out = decide(job, Policy(DEMO, (rule,)))
    assert out.say == ("fairwatt FW701: gpu:h100:1: account physics may use only a100",)
    assert decide({**job, name: "bio"}, Policy(DEMO, (rule,))).accepted


def test_what_nobody_can_read_does_not_pass_by_a_rule_that_must_not_be_evaded():
    """Slurm reads longer node lists than we do; with known_types in audit they went unjudged."""
    unread = ",".join(["mig[01]"] * 1000)
    job = {"tres_per_node": "gres/gpu:h100:1", "exc_nodes": unread, "account": "physics"}
    lenient = enforcing(DEMO, known_types="audit")
    assert decide(job, lenient).accepted  # no account has a list here
    lists = AccountTypesOptions(accounts={"physics": ("a100",)})
    rule = ActiveRule(account_types.RULE, "enforce", "closed", lists)
    strict = Policy(DEMO, (*(r for r in lenient.rules if r.name != rule.name), rule))
    out = decide(job, strict)
    assert (out.accepted, out.say[0].split(":")[0]) == (False, "fairwatt FW304")


def test_a_malformed_node_list_is_refused_and_a_huge_one_costs_nothing():
    for text in ("n[1-", "n[[1]]", "n[1][2][3][4]", ",".join(f"n{i}[1-2]" for i in range(201))):
        out = decide({"tres_per_node": "gres/gpu:1", "exc_nodes": text}, POLICY)
        assert not out.accepted
    assert decide(
        {"tres_per_node": "gres/gpu:1", "exc_nodes": "n[1-999999999999]"}, POLICY
    ).accepted


@pytest.mark.parametrize("policy", [enforcing(None), Policy(DEMO, POLICY.rules, 301.0, 300.0)])
def test_without_fresh_facts_the_policy_stands_aside_and_says_so(policy):
    out = decide({"tres_per_node": "gres/gpu:20gb:1"}, policy)
    assert (out.accepted, out.edits) == (True, {})
    assert out.say[0].startswith("fairwatt FW002: the site's GPU policy could not be applied")


def failing(mode="enforce", fail="open"):
    def broken(request, site, options):
        raise ZeroDivisionError("boom")

    rule = ActiveRule(RuleSpec("site_rule", "Fails.", broken), mode, fail, Options())
    return Policy(DEMO, (*POLICY.rules, rule))


def test_a_failing_rule_drops_all_edits_and_is_logged_once(monkeypatch, caplog):
    monkeypatch.setattr(engine, "_reported", set())
    with caplog.at_level(logging.ERROR):
        outs = [decide({"tres_per_node": "gres/gpu:20gb:1"}, failing()) for _ in range(3)]
    assert all((out.accepted, out.edits) == (True, {}) for out in outs)
    assert outs[0].say == (
        "fairwatt FW001: the site's GPU policy could not be applied "
        "(internal error in rule site_rule); the job goes on unchanged",
    )
    assert len(caplog.records) == 1


def test_a_failing_rule_that_fails_closed_refuses():
    out = decide({"tres_per_node": "gres/gpu:20gb:1"}, failing(fail="closed"))
    assert (out.accepted, out.edits) == (False, {})
    assert out.say[0].startswith("fairwatt FW007: ")


@pytest.mark.parametrize("mode", ["audit", "warn"])
def test_a_failing_rule_that_is_not_enforced_stops_nothing(mode):
    job = {"tres_per_node": "gres/gpu:20gb:1"}
    out = decide(job, failing(mode, "closed"))
    assert (out.accepted, out.edits, out.say) == (True, *_of(decide(job, POLICY)))


def _of(out):
    return out.edits, out.say


def test_messages_show_hostile_text_as_printable_ascii():
    out = decide({"tres_per_node": "gres/gpu:<b>%s\x1b\n\xe9:1"}, POLICY)
    assert not out.accepted
    assert all(" " <= char <= "~" for char in out.say[0])


text = st.text(st.characters(min_codepoint=1, max_codepoint=255), max_size=30)


@settings(max_examples=400, deadline=None)
@given(
    job=st.dictionaries(
        st.sampled_from(
            [
                "tres_per_node",
                "tres_per_job",
                "tres_per_task",
                "partition",
                "exc_nodes",
                "req_nodes",
                "admin_comment",
                "features",
            ]
        ),
        text
        | st.builds(lambda t: f"gres/gpu:{t}:1", text)
        | st.sampled_from(["gres/gpu:20gb:1", "gres/gpu:a100:1", "mig", "all"]),
        max_size=4,
    ),
    spelling=st.sampled_from(list(Spelling)),
)
def test_every_decision_is_one_that_the_hook_accepts(job, spelling):
    out = decide(job, POLICY, spelling=spelling)
    assert all("\n" not in line and line.isascii() and len(line) < 1000 for line in out.say)
    assert not any("internal error" in line for line in out.say)
    for name, value in out.edits.items():
        assert len(value) <= 1023
        assert value.isprintable() or name == "exc_nodes"
    if "admin_comment" in out.edits:
        assert len(out.edits["admin_comment"]) <= 1000
    if out.accepted and out.edits:
        again = decide({**job, **out.edits}, POLICY, spelling=spelling)
        assert again.accepted
        assert again.edits == {}
