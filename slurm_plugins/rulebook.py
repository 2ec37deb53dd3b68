# SPDX-License-Identifier: Apache-2.0
"""All rules that there are: fairwatt's own in their order, then the site's by entry point."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points

from fairwatt.core.errors import PolicyError
from fairwatt.slurm_plugins.rule import RuleSpec
from fairwatt.slurm_plugins.rules import (
    account_types,
    cpu_only,
    homogeneous,
    inherited_environment,
    interactive_limits,
    known_types,
    memory_fit,
    mig_per_process,
    need,
    routing,
    satisfiable,
    share_per_gpu,
    time_limits,
    type_spelling,
    untyped_slices,
)

__all__ = ["BUILT_IN", "SITE_GROUP", "known_rules"]

SITE_GROUP = "fairwatt.rules"

BUILT_IN: tuple[RuleSpec, ...] = (
    inherited_environment.RULE,
    cpu_only.RULE,
    type_spelling.RULE,
    account_types.RULE,
    routing.RULE,
    need.RULE,
    memory_fit.RULE,
    untyped_slices.RULE,
    known_types.RULE,
    mig_per_process.RULE,
    homogeneous.RULE,
    share_per_gpu.RULE,
    time_limits.RULE,
    interactive_limits.RULE,
    satisfiable.RULE,
)
"""fairwatt's rules in the order in which they are applied."""


@functools.cache
def known_rules() -> Mapping[str, RuleSpec]:
    """Return every rule by name, in built-in order, the site's last.

    Raises:
        PolicyError: a site's entry point cannot be loaded, is no rule, or takes a name in use.
    """
    rules = {spec.name: spec for spec in BUILT_IN}
    for entry in sorted(entry_points(group=SITE_GROUP), key=lambda entry: entry.name):
        spec = _loaded(entry)
        if spec.name in rules:
            raise _refused(entry, "takes a name in use", "rename the rule")
        rules[spec.name] = spec
    return rules


def _loaded(entry: EntryPoint) -> RuleSpec:
    try:
        spec = entry.load()
    except Exception as error:
        reason = f"cannot be loaded: {type(error).__name__}: {error}"
        raise _refused(entry, reason, "mend or uninstall its package") from error
    if not isinstance(spec, RuleSpec):
        raise _refused(entry, "is no RuleSpec", "name a RuleSpec object in the entry point")
    return spec


def _refused(entry: EntryPoint, reason: str, remedy: str) -> PolicyError:
    place = f"entry point {SITE_GROUP}: {entry.name}"
    return PolicyError(f"the site's rule {reason}", place=place, value=entry.value, remedy=remedy)
