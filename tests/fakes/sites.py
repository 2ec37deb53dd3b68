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


def site(
    nodes: dict[str, tuple[str, dict[str | None, int]]],
    default: str,
    features: dict[str, str] | None = None,
) -> Site:
    """A site from {node: ("part1,part2", {type: count})} and {node: "feature1,feature2"}."""
    made = tuple(
        Node(
            name,
            tuple(parts.split(",")),
            tuple(Stock(t, c) for t, c in gpus.items()),
            features=tuple(filter(None, (features or {}).get(name, "").split(","))),
        )
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


def featured() -> Site:
    """Partition gpu of three whole types, each with its feature, and slices; others elsewhere.

    `ib` and `eth` are the networks; the feature a100 of the node with slices is in mig only.
    """
    return site(
        {
            "a1": ("gpu", {"a100": 4}),
            "a2": ("gpu", {"a100": 4}),
            "h1": ("gpu", {"h100": 8}),
            "v1": ("gpu,old", {"v100": 2}),
            "t1": ("old", {"t4": 4}),
            "m1": ("mig", {"a100_1g.5gb": 7, "a100_3g.20gb": 2}),
            "g1": ("grace", {"gh200": 1}),
        },
        "gpu",
        {
            "a1": "a100,ib",
            "a2": "a100,eth",
            "h1": "h100,ib",
            "v1": "v100,eth",
            "m1": "a100,ib",
        },
    )


def enforcing(known: Site | None, **modes: Mode) -> Policy:
    """A policy with every built-in rule in its default mode and options, save those named."""
    rules = (ActiveRule(s, modes.get(s.name, s.mode), s.fail, s.options()) for s in BUILT_IN)
    return Policy(known, tuple(rules))
