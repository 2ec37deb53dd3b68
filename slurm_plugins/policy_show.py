# SPDX-License-Identifier: Apache-2.0
"""A policy as a table for people: each rule in order with its mode and its own options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from fairwatt.slurm_plugins.policy_file import PolicyFile
from fairwatt.slurm_plugins.rule import ActiveRule, own_options

__all__ = ["as_table", "changed_options"]


def as_table(policy: PolicyFile) -> str:
    """Return one line per rule: place in order, name, mode, what it does, options that are set."""
    lines = [f"from {policy.place}"]
    lines += [f"word {word}: {', '.join(members)}" for word, members in policy.words.items()]
    for number, rule in enumerate(policy.rules, 1):
        lines.append(f"{number:>2} {rule.name:<22} {rule.mode:<8} {rule.spec.title}")
        lines += [f"{'':>35}{name} = {value!r}" for name, value in changed_options(rule).items()]
    return "\n".join(lines)


def changed_options(rule: ActiveRule) -> Mapping[str, Any]:
    """Return the options of the rule's own that differ from their defaults."""
    defaults, now = (
        msgspec.to_builtins(options) for options in (rule.spec.options(), rule.options)
    )
    names = own_options(rule.spec.options)
    return {name: now[name] for name in names if now[name] != defaults[name]}
