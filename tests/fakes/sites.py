# SPDX-License-Identifier: Apache-2.0
"""Invented sites for the tests of rules, and a policy that enforces all rules on one."""

from __future__ import annotations

from fairwatt.core.catalogue import load_catalogue
from fairwatt.slurm_plugins.engine import Policy
from fairwatt.slurm_plugins.explain import DEMO_SITE
from fairwatt.slurm_plugins.rule import ActiveRule, Mode
from fairwatt.slurm_plugins.rulebook import BUILT_IN
from fairwatt.slurm_plugins.site import Facts, Node, Partition, Site, Stock, load_facts


def demo() -> Site:
    """The site of `make demo`: partitions gpu (whole, default), mig (slices), all."""
    return Site(load_facts(DEMO_SITE), load_catalogue())


def site(nodes: dict[str, tuple[str, dict[str | None, int]]], default: str) -> Site:
    """A site from {node: ("part1,part2", {type: count})}."""
    made = tuple(
        Node(name, tuple(parts.split(",")), tuple(Stock(t, c) for t, c in gpus.items()))
        for name, (parts, gpus) in nodes.items()
    )
    names = dict.fromkeys(part for node in made for part in node.partitions)
    partitions = tuple(Partition(name, default=name == default) for name in names)
    return Site(Facts(made, partitions), load_catalogue())


def mixed() -> Site:
    """One partition of whole A100 and slices, one node of it holding both."""
    return site(
        {
            "a1": ("all", {"a100": 4}),
            "m1": ("all", {"a100": 2, "a100_1g.5gb": 7}),
            "m2": ("all", {"a100_3g.20gb": 2}),
        },
        "all",
    )


def enforcing(known: Site | None, **modes: Mode) -> Policy:
    """A policy with every built-in rule in its default mode and options, save those named."""
    rules = (ActiveRule(s, modes.get(s.name, s.mode), s.fail, s.options()) for s in BUILT_IN)
    return Policy(known, tuple(rules))
