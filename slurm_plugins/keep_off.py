# SPDX-License-Identifier: Apache-2.0
"""Keeps an untyped request off nodes with certain GPU types, by excluding these nodes.

Slurm cannot be asked for "any of these types" otherwise, but for a node feature that marks them.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from fairwatt.core.records import JobRequest
from fairwatt.slurm_plugins.demand import wanted
from fairwatt.slurm_plugins.site import Site

__all__ = ["nodes_with", "without"]

MAX_NODE_LIST_BYTES = 1000
"""slurmctld refuses strings of 1024 bytes and more."""


def nodes_with(request: JobRequest, site: Site, unwanted: Callable[[str | None], bool]) -> str:
    """The nodes in reach that have a GPU of an unwanted type, as a host list; "" if none."""
    pool = site.pool(request)
    return pool.nodes_with(frozenset(type_ for type_ in pool.types if unwanted(type_)))


def without(request: JobRequest, site: Site, nodes: str) -> JobRequest | None:
    """The request less these nodes; None: that cannot be, or leaves no GPU, or nothing, to it.

    A change of a pending job cannot add to a list that it does not know, and excluding a node
    that the job requires is an error to Slurm.
    """
    excluded = f"{request.exc_nodes},{nodes}" if request.exc_nodes else nodes
    if request.req_nodes or not request.exc_known or len(excluded) > MAX_NODE_LIST_BYTES:
        return None
    changed = msgspec.structs.replace(request, exc_nodes=excluded)
    pool = site.pool(changed)
    return changed if (pool.types if wanted(request) else len(pool)) else None
