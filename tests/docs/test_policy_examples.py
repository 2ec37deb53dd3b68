# SPDX-License-Identifier: Apache-2.0
"""The policies in the admin docs are valid, and do something."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fairwatt.slurm_plugins.policy_file import parse_policy

PAGE = Path(__file__).parents[2] / "docs" / "for-admins.md"
EXAMPLES = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_there_are_some():
    assert len(EXAMPLES) >= 3


@pytest.mark.parametrize("text", EXAMPLES)
def test_an_example_is_a_valid_policy(text):
    named = re.findall(r"^\[rules\.(\w+)\]", text, re.MULTILINE)
    rules = {rule.name: rule for rule in parse_policy(text, "docs").rules}
    assert named
    for name in named:
        assert rules[name].mode == "enforce"
        assert rules[name].options != rules[name].spec.options()
