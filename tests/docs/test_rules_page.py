# SPDX-License-Identifier: Apache-2.0
"""docs/rules.md is what the rules say, and every rule and option is explained there."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairwatt.slurm_plugins import rules_page
from fairwatt.slurm_plugins.rule import own_options
from fairwatt.slurm_plugins.rulebook import BUILT_IN

PAGE = Path(__file__).parents[2] / "docs" / "rules.md"


def test_the_page_is_what_the_rules_say():
    assert PAGE.read_text() == rules_page.as_markdown(), (
        "run: python -m fairwatt.slurm_plugins.rules_page > docs/rules.md"
    )


@pytest.mark.parametrize("spec", BUILT_IN, ids=lambda spec: spec.name)
def test_every_rule_has_an_example_and_every_option_its_meaning(spec):
    assert rules_page.EXAMPLES[spec.name]
    for name in own_options(spec.options):
        assert f"`{name}`" in (spec.options.__doc__ or ""), name


@pytest.mark.parametrize("name", rules_page.EXAMPLES)
def test_every_example_shows_its_rule_at_work(name):
    steps = [
        step
        for example in rules_page.EXAMPLES[name]
        for step in rules_page.example_decision(name, example).steps
        if step.rule == name and (step.notes or step.rejection)
    ]
    assert steps
