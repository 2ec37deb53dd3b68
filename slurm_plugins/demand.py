# SPDX-License-Identifier: Apache-2.0
"""How many GPUs a request needs on one node and in all, and whether some nodes have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from fairwatt.core.records import GpuAsk, JobRequest
from fairwatt.slurm_plugins.site import Pool

__all__ = [
    "Demand",
    "Shortfall",
    "as_text",
    "demand",
    "may_span_nodes",
    "retyped",
    "shortfall",
    "untyped_count",
    "wanted",
]


class Demand(msgspec.Struct, frozen=True):
    """The least that a request needs of one type: on one node, on how many nodes, in all."""

    per_node: int
    nodes: int
    total: int


class Shortfall(msgspec.Struct, frozen=True):
    """What is missing: `most` on one node or in all, where `need` are needed."""

    kind: Literal["node", "all"]
    need: int
    most: int


def wanted(request: JobRequest) -> list[GpuAsk]:
    """The GPU entries that ask for at least one."""
    return [ask for ask in request.gpus if ask.count > 0]


def untyped_count(request: JobRequest) -> int:
    """The count of the first untyped entry; 0 if there is none."""
    return next((ask.count for ask in wanted(request) if ask.type is None), 0)


def demand(request: JobRequest, asks: Iterable[GpuAsk]) -> Demand:
    """The least that these entries, which are of one type, need."""
    sums = {"node": 0, "job": 0, "task": 0, "socket": 0}
    for ask in asks:
        sums[ask.level] += ask.count
    nodes = request.min_nodes or 1
    tasks = sums["task"] * (request.num_tasks or 1)
    per_node = max(
        sums["node"],
        sums["socket"],
        sums["task"] * (request.ntasks_per_node or 1),
        _spread(sums["job"], request.max_nodes),
        _spread(tasks, request.max_nodes),
    )
    return Demand(per_node, nodes if sums["node"] else 1, max(sums["job"], tasks))


def shortfall(need: Demand, pool: Pool, type_: str | None) -> Shortfall | None:
    """Say what the pool lacks for a demand of one type (None: any type); None: nothing."""
    groups, most = pool.groups(type_), pool.most(type_)
    if need.per_node > most:
        return Shortfall("node", need.per_node, most)
    able = sum(nodes for count, nodes in groups if count >= need.per_node)
    if need.nodes > able:
        return Shortfall("all", need.per_node * need.nodes, need.per_node * able)
    total = sum(count * nodes for count, nodes in groups)
    if need.total > total:
        return Shortfall("all", need.total, total)
    return None


def retyped(request: JobRequest, types: Mapping[str | None, str | None]) -> JobRequest:
    """The request with GPU types replaced; entries that become alike are added up."""
    merged: dict[tuple[str, str | None], GpuAsk] = {}
    for ask in request.gpus:
        type_ = types.get(ask.type, ask.type)
        same = merged.get((ask.level, type_))
        count = ask.count + (same.count if same else 0)
        merged[ask.level, type_] = GpuAsk(level=ask.level, type=type_, count=count)
    return msgspec.structs.replace(request, gpus=tuple(merged.values()))


def as_text(asks: Iterable[GpuAsk]) -> str:
    """Write entries for people, without Slurm's prefix: `gpu:a100:2`."""
    return ",".join(
        f"gpu:{ask.type}:{ask.count}" if ask.type else f"gpu:{ask.count}" for ask in asks
    )


def _spread(count: int, max_nodes: int | None) -> int:
    """The least that one node must hold when `count` is spread over at most so many nodes."""
    if count == 0:
        return 0
    return -(-count // max_nodes) if max_nodes else 1


def may_span_nodes(request: JobRequest) -> bool:
    """Whether Slurm may give a request GPUs on more than one node.

    Without a number of nodes it takes as many as there are tasks, or GPUs of a job that gives
    no number of tasks, at the most.
    """
    if request.max_nodes == 1:
        return False
    if (request.min_nodes or 1) > 1:
        return True
    if request.num_tasks is not None:
        return request.num_tasks > 1
    return any(ask.level == "job" and ask.count > 1 for ask in request.gpus)
