# SPDX-License-Identifier: Apache-2.0
"""Accounts and the GPU types that they may use."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fairwatt.core.records import GpuAsk, JobRequest
from fairwatt.slurm_plugins.engine import Policy, decide
from fairwatt.slurm_plugins.rule import ActiveRule
from fairwatt.slurm_plugins.rules.account_types import (
    RULE,
    AccountTypesOptions,
    account_types,
)
from tests.fakes.sites import demo, enforcing, site

DEMO = demo()
LISTS = AccountTypesOptions(
    accounts={"physics": ("a100", "mig"), "bio": ("hopper",), "*": ("any",), "slices": ("mig",)}
)


def ask(type_=None, count=1, level="node", **fields) -> JobRequest:
    return JobRequest(gpus=(GpuAsk(level=level, type=type_, count=count),), **fields)


def refused(outcome) -> tuple[str, str]:
    assert outcome.rejection is not None
    return outcome.rejection.code, outcome.rejection.text


def test_without_lists_it_does_nothing():
    request = ask("h100", account="physics")
    assert account_types(request, DEMO).request is request
    assert account_types(request, DEMO, AccountTypesOptions()).request is request


def test_a_forbidden_type_is_refused_with_those_allowed():
    assert refused(account_types(ask("h100", account="physics"), DEMO, LISTS)) == (
        "FW701",
        "gpu:h100:1: account physics may use only a100, a100_1g.5gb, a100_3g.20gb",
    )


@pytest.mark.parametrize(
    ("account", "type_"),
    [
        ("physics", "a100"),
        ("physics", "a100_1g.5gb"),
        ("bio", "h100"),
        ("other", "h100"),
        ("other", "a100"),
    ],
)
def test_allowed_types(account, type_):
    assert account_types(ask(type_, account=account), DEMO, LISTS).rejection is None


class TestWholeNodes:
    """--exclusive gets every GPU of a node, asked for or not (live on 22.05, 24.11, 26.05)."""

    def test_without_gpus_it_is_kept_off_nodes_with_forbidden_ones(self):
        whole = JobRequest(account="physics", partition="all", exclusive=True)
        out = account_types(whole, DEMO, LISTS)
        assert (out.request.exc_nodes, out.rejection) == ("h01", None)
        assert [(note.code, note.text) for note in out.notes] == [
            (
                "FW706",
                "--exclusive takes all GPUs of its nodes: those with types that account physics "
                "may not use are left out (h01)",
            )
        ]
        assert account_types(out.request, DEMO, LISTS).notes == ()

    @pytest.mark.parametrize("exclusive", [True, False])
    def test_beside_an_allowed_type_of_the_same_node(self, exclusive):
        known = site({"n1": ("gpu", {"a100": 2, "h100": 2}), "n2": ("gpu", {"a100": 4})}, "gpu")
        request = ask("a100", account="physics", exclusive=exclusive)
        out = account_types(request, known, LISTS)
        assert out.request.exc_nodes == ("n1" if exclusive else None)

    def test_on_a_forbidden_node_it_is_refused(self):
        whole = JobRequest(account="physics", partition="gpu", req_nodes="h01", exclusive=True)
        assert refused(account_types(whole, DEMO, LISTS)) == (
            "FW707",
            "--exclusive takes all GPUs of its nodes, and partition gpu on h01 has types that "
            "account physics may not use; leave it out, or exclude these nodes with -x or "
            "ExcNodeList=: h01",
        )

    @pytest.mark.parametrize(
        "request_",
        [
            JobRequest(account="physics", partition="all"),
            JobRequest(account="physics", partition="mig", exclusive=True),
            JobRequest(account="bio", partition="gpu", exc_nodes="gpu[01-02]", exclusive=True),
        ],
    )
    def test_others_are_left_alone(self, request_):
        assert account_types(request_, DEMO, LISTS).request.exc_nodes == request_.exc_nodes

    def test_where_no_gpu_is_nothing_is_asked(self):
        known = site({"c1": ("cpu", {}), "h1": ("gpu", {"h100": 8})}, "cpu")
        whole = JobRequest(partition="cpu", exclusive=True)
        strict = AccountTypesOptions(accounts={"physics": ("a100",)}, default="refuse")
        assert account_types(whole, known, strict).rejection is None
        assert refused(account_types(replace(whole, partition="gpu"), known, strict))[0] == "FW702"

    def test_the_engine_asks_it_though_no_gpu_is_wanted(self):
        policy = Policy(DEMO, (ActiveRule(RULE, "enforce", "closed", LISTS),))
        job = {"account": "physics", "partition": "gpu", "shared": 0}
        assert decide(job, policy).edits["exc_nodes"] == "h01"
        assert decide({**job, "shared": 1}, policy).edits == {}

    def test_a_change_of_a_pending_job_is_held_to_it_too(self):
        """Slurm shows no record's --exclusive: `scontrol update ExcNodeList=` undid the rule."""
        policy = Policy(DEMO, (ActiveRule(RULE, "enforce", "closed", LISTS),))
        submitted = {"account": "physics", "partition": "mig", "shared": 0}
        comment = decide(submitted, policy).edits["admin_comment"]
        record = {"job_id": 7, "account": "physics", "partition": "mig", "admin_comment": comment}
        assert not decide({"partition": "gpu"}, policy, record=record).accepted
        both = decide({"partition": "gpu", "exc_nodes": "h01"}, policy, record=record)
        assert (both.accepted, both.edits) == (True, {})
        cleared = decide({"partition": "gpu", "exc_nodes": ""}, policy, record=record)
        assert cleared.edits == {"exc_nodes": "h01"}
        plain = {**record, "admin_comment": 'fairwatt:{"asked":"\\"whole\\":1"}'}
        assert decide({"partition": "gpu"}, policy, record=plain).accepted

    def test_no_comment_where_no_account_has_a_list(self):
        idle = Policy(DEMO, (ActiveRule(RULE, "enforce", "closed", AccountTypesOptions()),))
        assert decide({"partition": "gpu", "shared": 0}, idle).edits == {}


def test_others_are_held_to_the_star():
    assert refused(account_types(ask("a100_1g.5gb", account="other"), DEMO, LISTS))[0] == "FW701"
    free = AccountTypesOptions(accounts={"bio": ("h100",)})
    request = ask("a100", account="other")
    assert account_types(request, DEMO, free).request is request


def test_the_lists_may_name_words_of_the_site():
    words = {"small": ("a100", "mig")}
    options = AccountTypesOptions(accounts={"physics": ("small",)}, words=words)
    assert account_types(ask("a100", account="physics"), DEMO, options).rejection is None
    assert refused(account_types(ask("h100", account="physics"), DEMO, options))[0] == "FW701"
    bare = AccountTypesOptions(accounts={"physics": ("small",)})
    assert refused(account_types(ask("a100", account="physics"), DEMO, bare))[0] == "FW701"


def test_the_other_rules_are_told():
    out = account_types(ask("20gb", account="physics"), DEMO, LISTS)
    assert out.request.barred_types == {"h100"}


def test_a_job_without_account():
    request = ask("h100")
    assert account_types(request, DEMO, LISTS).request is request
    strict = AccountTypesOptions(accounts=LISTS.accounts, default="refuse")
    assert refused(account_types(request, DEMO, strict))[0] == "FW702"


def test_the_default_account_counts_where_none_is_named_and_is_not_written():
    policy = Policy(DEMO, (ActiveRule(RULE, "enforce", "closed", LISTS),))
    job = {"tres_per_node": "gres/gpu:h100:1", "default_account": "physics"}
    assert "FW701: gpu:h100:1: account physics" in decide(job, policy).say[0]
    out = decide({**job, "account": "bio"}, policy)
    assert (out.accepted, out.edits) == (True, {})
    strict = AccountTypesOptions(accounts=LISTS.accounts, default="refuse")
    policy = Policy(DEMO, (ActiveRule(RULE, "enforce", "closed", strict),))
    assert "FW701" in decide(job, policy).say[0]


class TestUntyped:
    def test_the_one_whole_type_that_is_allowed(self):
        out = account_types(ask(None, 2, account="physics"), DEMO, LISTS)
        assert [gpu.type for gpu in out.request.gpus] == ["a100"]
        assert out.notes[0].code == "FW703"

    def test_several_exclude_the_nodes_with_others(self):
        three = site(
            {"a": ("p", {"a100": 1}), "h": ("p", {"h100": 1}), "v": ("p", {"v100": 1})}, "p"
        )
        options = AccountTypesOptions(accounts={"x": ("a100", "v100")})
        out = account_types(ask(account="x"), three, options)
        assert out.request.exc_nodes == "h"
        assert account_types(out.request, three, options).request == out.request

    def test_only_slices_allowed_is_refused_with_them(self):
        code, text = refused(account_types(ask(account="slices", partition="all"), DEMO, LISTS))
        assert code == "FW705"
        assert text.endswith("name one, for example gpu:a100_1g.5gb:1 or gpu:a100_3g.20gb:1")

    def test_nothing_allowed_here(self):
        code, text = refused(account_types(ask(account="slices"), DEMO, LISTS))
        assert (code, text.endswith("it has no other")) == ("FW705", True)

    def test_a_change_of_a_pending_job_must_name_a_type(self):
        three = site(
            {"a": ("p", {"a100": 1}), "h": ("p", {"h100": 1}), "v": ("p", {"v100": 1})}, "p"
        )
        options = AccountTypesOptions(accounts={"x": ("a100", "v100")})
        assert refused(account_types(ask(account="x", exc_known=False), three, options)) == (
            "FW705",
            "gpu:1: partition p also has types that account x may not use; "
            "name one, for example gpu:a100:1 or gpu:v100:1",
        )

    def test_an_untyped_entry_follows_the_typed_one(self):
        gpus = (
            GpuAsk(level="node", type="a100", count=1),
            GpuAsk(level="job", type=None, count=2),
        )
        out = account_types(JobRequest(gpus=gpus, account="physics"), DEMO, LISTS)
        assert [gpu.type for gpu in out.request.gpus] == ["a100", "a100"]

    def test_gpus_without_a_type_are_whole_ones(self):
        plain = site({"n": ("p", {None: 2}), "m": ("p", {"a100_1g.5gb": 7})}, "p")
        out = account_types(ask(account="other"), plain, LISTS)
        assert out.request.exc_nodes == "m"
        assert refused(account_types(ask(account="bio"), plain, LISTS))[0] == "FW705"


def policy() -> Policy:
    rules = (
        ActiveRule(rule.spec, "enforce", rule.fail, LISTS) if rule.name == RULE.name else rule
        for rule in enforcing(DEMO).rules
    )
    return Policy(DEMO, tuple(rules))


@pytest.mark.parametrize(
    ("asked", "account", "given"),
    [
        ("gpu:any:1", "physics", "gpu:a100:1"),
        ("gpu:a100|h100:1", "physics", "gpu:a100:1"),
        ("gpu:80gb:1", "bio", "gpu:h100:1"),
        ("gpu:20gb:1", "bio", "gpu:h100:1"),
        ("gpu:20gb:1", "physics", "gpu:a100_3g.20gb:1"),
        ("gpu:1", "bio", "gpu:h100:1"),
    ],
)
def test_every_rule_chooses_only_what_is_allowed(asked, account, given):
    out = decide({"tres_per_node": f"gres/{asked}", "account": account, "has_script": 1}, policy())
    assert (out.accepted, out.given) == (True, given)


def test_a_change_of_the_account_is_judged():
    record = {"tres_per_node": "gres/gpu:h100:1", "account": "bio", "partition": "gpu"}
    out = decide({"account": "physics"}, policy(), record=record)
    assert not out.accepted
    assert out.say[0].startswith("fairwatt FW701")


def test_a_failure_of_the_rule_refuses():
    assert RULE.fail == "closed"
