# SPDX-License-Identifier: Apache-2.0
"""An invented site with CPUs, memory, features and limits, for the tests of rules that need them.

| partition | nodes | limits; time by default |
|---|---|---|
| gpu (default) | g1, g2 (4 a100, 64 CPUs, 500 GB), h1 (8 h100, 112 CPUs, 2 TB) | 1 day; 10 min |
| mig | m1 (7 a100_1g.5gb, 2 a100_3g.20gb, 32 CPUs, 250 GB) | 1 day |
| short | g1, g2 | 2 h, 1 node |
| long | h1 | accounts physics only |
| cpu | c1, c2 (128 CPUs, 1 TB) | 7 days |
| big | b1 (4 a100, 128 CPUs, 1 TB, feature bigmem) | none |
"""

from __future__ import annotations

from typing import Any

from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.records import GpuAsk, JobRequest
from fairwatt.slurm_plugins.engine import Policy
from fairwatt.slurm_plugins.pool import Node, Stock
from fairwatt.slurm_plugins.rule import ActiveRule, Options, RuleSpec
from fairwatt.slurm_plugins.site import Facts, Partition, Site

__all__ = ["ask", "only", "sized"]

GB = 1024
A100 = (Stock("a100", 4),)
H100 = (Stock("h100", 8),)
SLICES = (Stock("a100_1g.5gb", 7), Stock("a100_3g.20gb", 2))

NODES = (
    Node("g1", ("gpu", "short"), A100, 64, 500 * GB, ("a100", "ib")),
    Node("g2", ("gpu", "short"), A100, 64, 500 * GB, ("a100",)),
    Node("h1", ("gpu", "long"), H100, 112, 2000 * GB, ("h100", "ib")),
    Node("m1", ("mig",), SLICES, 32, 250 * GB, ("a100",)),
    Node("c1", ("cpu",), (), 128, 1000 * GB),
    Node("c2", ("cpu",), (), 128, 1000 * GB),
    Node("b1", ("big",), A100, 128, 1000 * GB, ("a100", "bigmem")),
)
PARTITIONS = (
    Partition("gpu", default=True, max_time_min=1440, default_time_min=10),
    Partition("mig", max_time_min=1440, default_time_min=60),
    Partition("short", max_time_min=120, max_nodes=1),
    Partition("long", open=False, accounts=("physics",)),
    Partition("cpu", max_time_min=7 * 1440),
    Partition("big"),
)


def sized() -> Site:
    """The site of this module's table."""
    return Site(Facts(NODES, PARTITIONS, {"night": ""}), load_catalogue())


def ask(
    type_: str | None = None, count: int = 1, level: Any = "node", **fields: Any
) -> JobRequest:
    """A batch job's request with one GPU entry; other fields by name."""
    gpus = (GpuAsk(level=level, type=type_, count=count),)
    return JobRequest(**{"gpus": gpus, "kind": "batch", **fields})


def only(spec: RuleSpec, options: Options, site: Site | None = None) -> Policy:
    """A policy that enforces this one rule with these options."""
    return Policy(site or sized(), (ActiveRule(spec, "enforce", spec.fail, options),))
