# SPDX-License-Identifier: Apache-2.0
"""How many CPUs a job got on this node, from what its prolog is told."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

__all__ = ["allocated_cpus"]

_COUNT = re.compile(r"(\d{1,9})(?:\(x(\d{1,9})\))?")
MOST_NODES = 1_000_000


def allocated_cpus(env: Mapping[str, str], node: str) -> int | None:
    """Return the CPUs on `node` of SLURM_JOB_CPUS_PER_NODE (`24(x2),8`); None if not told.

    The counts follow the order of the job's nodes; where all are equal, that does not matter.
    """
    text = env.get("SLURM_JOB_CPUS_PER_NODE", "")
    groups = list(_groups(text)) if text else []
    if not groups or sum(times for _, times in groups) > MOST_NODES:
        return None
    if len({count for count, _ in groups}) == 1:
        return groups[0][0]
    place = _place(env.get("SLURM_JOB_NODELIST") or env.get("SLURM_NODELIST", ""), node)
    return None if place is None else _at(groups, place)


def _at(groups: list[tuple[int, int]], place: int) -> int | None:
    for count, times in groups:
        if place < times:
            return count
        place -= times
    return None


def _groups(text: str) -> Iterator[tuple[int, int]]:
    """Yield (CPUs, on how many nodes in a row); what is no such text yields nothing."""
    matches = [_COUNT.fullmatch(item) for item in text.split(",")]
    if all(matches):
        for match in matches:
            if match is not None:
                yield int(match.group(1)), int(match.group(2) or 1)


def _place(nodes: str, node: str) -> int | None:
    """Slurm keeps a job's nodes sorted, and so does NodeSet."""
    try:
        names = NodeSet(nodes, resolver=RESOLVER_NOGROUP)
        return list(names).index(node) if node in names else None
    except NodeSetException:
        return None
