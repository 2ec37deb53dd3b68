# SPDX-License-Identifier: Apache-2.0
"""The policy file: order, modes, options, and faults with their lines."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import msgspec
import pytest

from fairwatt.core.errors import ConfigError, PolicyError
from fairwatt.slurm_plugins import policy_file, rulebook
from fairwatt.slurm_plugins.outcome import Outcome
from fairwatt.slurm_plugins.policy_file import inspect_policy, load_policy, parse_policy
from fairwatt.slurm_plugins.rule import Options, RuleSpec


class Limits(Options):
    """`most`: GPUs per job; `per_type`: the same by type."""

    most: int = 4
    per_type: dict[str, int] = msgspec.field(default_factory=dict)


SITE_RULE = RuleSpec("limits", "Limits.", lambda request, site, options: Outcome(request), Limits)


@pytest.fixture
def site_rule(monkeypatch):
    """A rule of the site's own, behind an entry point."""
    _entry_points(monkeypatch, {"limits": SITE_RULE})


def _entry_points(monkeypatch, objects):
    class Entry(EntryPoint):
        def load(self):
            return objects[self.name]

    entries = [Entry(name, f"site.rules:{name}", rulebook.SITE_GROUP) for name in objects]
    monkeypatch.setattr(rulebook, "entry_points", lambda group: entries)
    monkeypatch.setattr(policy_file, "known_rules", rulebook.known_rules.__wrapped__)


def rule(policy, name):
    return next(rule for rule in policy.rules if rule.name == name)


def test_without_a_file_every_rule_has_its_default():
    policy = parse_policy("", "x")
    assert [each.spec for each in policy.rules] == list(rulebook.BUILT_IN)
    assert all(each.mode == each.spec.mode for each in policy.rules)
    assert all(each.options == each.spec.options() for each in policy.rules)


def test_named_rules_go_first_and_the_others_keep_their_order():
    names = [spec.name for spec in rulebook.BUILT_IN]
    policy = parse_policy("order = ['known_types', 'memory_fit']", "x")
    rest = [name for name in names if name not in ("known_types", "memory_fit")]
    assert [each.name for each in policy.rules] == ["known_types", "memory_fit", *rest]


def test_a_rule_of_the_site_has_options_like_any_other(site_rule):
    text = '[rules.limits]\nmode = "warn"\nfail = "closed"\nmost = 2\nper_type = {tesla = 1}\n'
    found = rule(parse_policy(text, "x"), "limits")
    assert (found.mode, found.fail) == ("warn", "closed")
    assert found.options == Limits(most=2, per_type={"tesla": 1})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[rules\n", "p.toml:1: not valid TOML"),
        ("\n[zzz]\n", "p.toml:2: zzz: unknown key; known here: order, rules, words"),
        ("words = 3", "p.toml:1: words: no table (got 3)"),
        ("[words]\nA = ['h100']", "p.toml:2: words.A: no word (got 'A')"),
        ("[words]\n'a|b' = ['h100']", "p.toml:2: words.a|b: no word (got 'a|b')"),
        ("[words]\n\nx = []", "p.toml:3: words.x: no list of types and words (got [])"),
        ("[words]\nx = ['a|b']", "p.toml:2: words.x: no list of types and words"),
        ("[words]\nx = 'h100'", "p.toml:2: words.x: no list of types and words (got 'h100')"),
        ("[rules.need]\nwords = {}", "p.toml:2: rules.need.words: unknown key; did you mean"),
        ("oder = []\n", "p.toml:1: oder: unknown key; did you mean order?"),
        ("order = ['limits', 'limit']", "p.toml:1: order: no such rule (got 'limit')"),
        ("order = ['limits', 'limits']", "p.toml:1: order: named twice (got 'limits')"),
        ("order = 3", "p.toml:1: order: no list of names (got 3)"),
        ("rules = 3", "p.toml:1: rules: no table (got 3)"),
        ("[rules.limit]\n", "p.toml:1: rules.limit: unknown key; did you mean limits?"),
        ("rules.limits = 3", "p.toml:1: rules.limits: no table (got 3)"),
        ("[rules.limits]\n\nmode = 'on'", "p.toml:3: rules.limits.mode: not a choice (got 'on')"),
        ("[rules.limits]\nmode = []", "p.toml:2: rules.limits.mode: not a choice (got [])"),
        ("[rules.limits]\nfail = 'shut'", "p.toml:2: rules.limits.fail: not a choice"),
        ("[rules.limits]\nmust = 3", "p.toml:2: rules.limits.must: unknown key; did you mean"),
        ("[rules]\nlimits.most = 'x'", "p.toml:2: rules.limits.most: Expected `int`, got `str`"),
        (
            "[rules.limits]\n# two\n[rules.limits.per_type]\ntesla = 'x'\n",
            "p.toml:3: rules.limits.per_type",
        ),
    ],
)
def test_a_fault_is_named_with_its_line_value_and_remedy(site_rule, text, message):
    with pytest.raises(ConfigError) as caught:
        parse_policy(text, "p.toml")
    assert message in str(caught.value)


def test_all_faults_are_found_and_the_rest_holds(site_rule):
    text = "x = 1\n[rules.limits]\nmost = 's'\n[rules.memory_fit]\nmode = 'audit'\n[rules.y]\n"
    policy, problems = inspect_policy(text, "p")
    assert [error.place for error in problems] == [
        "p:1: x",
        "p:6: rules.y",
        "p:3: rules.limits.most",
    ]
    assert rule(policy, "memory_fit").mode == "audit"
    assert rule(policy, "limits").options == Limits()


def test_words_reach_every_rule_that_reads_types():
    policy = parse_policy("[words]\ntraining = ['h100', 'a100']\n", "x")
    words = {"training": ("h100", "a100")}
    assert policy.words == words
    given = {r.name for r in policy.rules if getattr(r.options, "words", None) == words}
    assert given == {"need", "account_types", "routing"}


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_policy(tmp_path / "none.toml")
    (tmp_path / "latin").write_bytes(b"# \xe9\n")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_policy(tmp_path / "latin")


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"memory_fit": RuleSpec("memory_fit", "", SITE_RULE.judge)}, "takes a name in use"),
        ({"limits": 3}, "is no RuleSpec"),
    ],
)
def test_a_rule_of_the_site_that_cannot_be_used_is_named(monkeypatch, found, message):
    _entry_points(monkeypatch, found)
    with pytest.raises(PolicyError, match=message):
        parse_policy("", "x")
