# SPDX-License-Identifier: Apache-2.0
"""`fairwatt policy`: show, check, replay."""

from __future__ import annotations

import itertools
import json

import pytest
from click.testing import CliRunner

from fairwatt.slurm_plugins import history, policy_check, rulebook
from fairwatt.slurm_plugins.explain import DEMO_SITE
from fairwatt.slurm_plugins.history import PastJob
from fairwatt.slurm_plugins.policy_commands import policy
from fairwatt.slurm_plugins.policy_file import PolicyFile, parse_policy
from fairwatt.slurm_plugins.rule import ActiveRule, Options, RuleSpec
from tests.fakes.sites import demo, mixed


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Run a command with an empty configuration; the policy in use is `policy.toml`."""
    config = tmp_path / "fairwatt.toml"
    config.write_text(f'[policyd]\npolicy_file = "{tmp_path / "policy.toml"}"\n')
    monkeypatch.setenv("FAIRWATT_CONFIG", str(config))
    (tmp_path / "policy.toml").write_text("")
    return lambda *args: CliRunner().invoke(policy, list(map(str, args)))


def test_show_lists_rules_in_their_order_with_their_mode(run, tmp_path):
    (tmp_path / "policy.toml").write_text(
        "order = ['known_types']\n[rules.known_types]\nmode='audit'"
    )
    lines = run("show").output.splitlines()
    assert lines[0] == f"from {tmp_path}/policy.toml"
    assert lines[1].split()[:3] == ["1", "known_types", "audit"]
    assert len(lines) == 1 + len(rulebook.BUILT_IN)


def test_check_names_every_fault_with_its_line(run, tmp_path):
    file = tmp_path / "new.toml"
    file.write_text("[rules.known_type]\n[rules.memory_fit]\nmode = 'on'\n")
    result = run("check", file, "--site", DEMO_SITE)
    assert result.exit_code == 1
    assert result.output.splitlines() == [
        f"error: {file}:1: rules.known_type: unknown key; did you mean known_types?",
        f"error: {file}:3: rules.memory_fit.mode: not a choice (got 'on'); "
        "use one of off, audit, warn, enforce",
    ]


def test_words_are_shown_once_and_checked_against_the_site(run, tmp_path):
    file = tmp_path / "new.toml"
    file.write_text("[words]\ntraining = ['h100', 'a1000']\nbig = ['training']\nold = ['v100']\n")
    assert run("show", file).output.splitlines()[1:4] == [
        "word training: h100, a1000",
        "word big: training",
        "word old: v100",
    ]
    assert "words = " not in run("show", file).output
    result = run("check", file, "--site", DEMO_SITE)
    assert result.exit_code == 0
    assert result.output.splitlines()[:-1] == [
        f"warning: {file}: words.training: a1000 is no GPU type or word known here",
    ]


def test_what_rules_name_and_this_cluster_does_not_have_is_told(run, tmp_path):
    file = tmp_path / "policy.toml"
    file.write_text(
        '[words]\nx = ["y"]\ny = ["x"]\n'
        '[rules.account_types]\naccounts = { bio = ["a1000", "hopper", "x"] }\n'
        '[rules.routing]\nmode = "enforce"\n[[rules.routing.routes]]\ngpus = ["h10"]\n'
        'partition = "nowhere"\n'
        '[rules.interactive_limits]\nmode = "off"\npartitions = ["elsewhere"]\n'
    )
    done = run("check", "--site", DEMO_SITE, file)
    said = [line.removeprefix(f"warning: {file}: ") for line in done.stdout.splitlines()]
    assert said == [
        "rules.interactive_limits has options but is off: set mode",
        "words.x means nothing: only words that mean each other",
        "words.y means nothing: only words that mean each other",
        "rules.account_types: a1000 is no GPU type or word known here",
        "rules.routing: h10 is no GPU type or word known here",
        "rules.routing: there is no partition nowhere",
        f"{file}: good; 10 of 15 rules are on",
    ]


def test_check_of_a_good_file(run, tmp_path):
    file = tmp_path / "new.toml"
    file.write_text("[rules.known_types]\nmode = 'warn'\n")
    result = run("check", file, "--site", DEMO_SITE)
    assert (result.exit_code, "good;" in result.output) == (0, True)


def test_a_rule_that_fails_is_found_before_it_judges_a_job():
    def broken(request, site, options):
        return 1 / (request.min_nodes or 0)

    rule = ActiveRule(RuleSpec("site_rule", "Fails.", broken), "audit", "open", Options())
    with pytest.raises(policy_check.PolicyError, match=r"rule site_rule fails on .*division"):
        policy_check.try_rules(PolicyFile((rule,), "p.toml"), demo())


@pytest.mark.parametrize("site", [demo(), mixed()])
def test_our_own_rules_pass_the_trial_in_every_mode(site):
    policy_file = parse_policy("", "p")
    on = tuple(ActiveRule(r.spec, "enforce", r.fail, r.options) for r in policy_file.rules)
    policy_check.try_rules(PolicyFile(on, "p"), site)


def test_replay_tells_what_a_changed_policy_would_do(run, tmp_path, monkeypatch):
    days = []

    def read_day(start_ts, slurm_conf):
        days.append(start_ts)
        return [PastJob(str(len(days)), start_ts, {"tres_per_node": "gres/gpu:20gb:1"}, None)]

    monkeypatch.setattr(history, "read_day", read_day)
    file = tmp_path / "new.toml"
    file.write_text("[rules.memory_fit]\nmode = 'off'\n")
    result = run("replay", file, "--days", "3", "--site", DEMO_SITE, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["jobs"], found["refused"]) == (3, 3)
    assert [b - a for a, b in itertools.pairwise(days)] == [86_400, 86_400]
    assert (
        "would newly be refused (FW302)"
        in run("replay", file, "--days", "1", "--site", DEMO_SITE).output
    )
