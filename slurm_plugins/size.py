# SPDX-License-Identifier: Apache-2.0
"""How many nodes, tasks, CPUs and how much memory a request needs at least. Pure arithmetic.

A number that the job left open counts as the least that Slurm would take: one task per node, one
CPU per task.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from fairwatt.core.records import JobRequest
from fairwatt.slurm_plugins.demand import demand, wanted

__all__ = [
    "OnANode",
    "cpus_in_all",
    "gpus_in_all",
    "gpus_of_every_node",
    "least_nodes",
    "on_a_node",
    "on_every_node",
    "on_some_node",
    "tasks_in_all",
]


class OnANode(msgspec.Struct, frozen=True):
    """What a node must have at once; memory in MiB, 0 where the request tells nothing."""

    cpus: int
    mem_mib: int
    gpus: Mapping[str | None, int] = {}


def least_nodes(request: JobRequest) -> int:
    """The fewest nodes that the job may run on."""
    return request.min_nodes or 1


def tasks_in_all(request: JobRequest, nodes: int | None = None) -> int:
    """Tasks of the job on its fewest nodes, or on so many."""
    if request.num_tasks:
        return request.num_tasks
    if request.ntasks_per_node:
        return request.ntasks_per_node * (nodes or least_nodes(request))
    job, task = _sum(request, "job"), _sum(request, "task")
    if job and task:
        return max(1, job // task)
    return nodes or least_nodes(request)


def cpus_in_all(request: JobRequest, nodes: int | None = None) -> int:
    """CPUs of the job on its fewest nodes, or on so many; those per GPU left out."""
    nodes = nodes or least_nodes(request)
    return max(
        tasks_in_all(request, nodes) * (request.cpus_per_task or 1),
        request.min_cpus or 1,
        (request.min_cpus_per_node or 1) * nodes,
    )


def gpus_in_all(request: JobRequest, nodes: int) -> dict[str | None, int] | None:
    """GPUs of the job by type when it runs on so many nodes; None: it depends on sockets.

    Where several levels are given, that of the job says how many, then that of the node.
    """
    tasks = tasks_in_all(request, nodes)
    for level, times in (("job", 1), ("node", nodes), ("task", tasks)):
        asks = [ask for ask in wanted(request) if ask.level == level]
        if asks:
            found: dict[str | None, int] = {}
            for ask in asks:
                found[ask.type] = found.get(ask.type, 0) + ask.count * times
            return found
    return None


def gpus_of_every_node(request: JobRequest) -> dict[str | None, int]:
    """GPUs by type that each node of the job must have."""
    found: dict[str | None, int] = {}
    for ask in wanted(request):
        if ask.level == "node":
            found[ask.type] = found.get(ask.type, 0) + ask.count
    return found


def on_every_node(request: JobRequest) -> OnANode:
    """What each node of the job must have."""
    tasks = 1
    if request.ntasks_per_node:
        tasks = min(request.ntasks_per_node, request.num_tasks or request.ntasks_per_node)
    gpus = gpus_of_every_node(request)
    count = sum(gpus.values())
    cpus = max(
        tasks * (request.cpus_per_task or 1),
        request.min_cpus_per_node or 0,
        count * (request.cpus_per_gpu or 0),
    )
    return OnANode(cpus, _memory(request, cpus, count), gpus)


def on_a_node(request: JobRequest) -> OnANode:
    """What a node of the job must have: with a bound on nodes, as even spreading leaves it."""
    return _joined(on_every_node(request), _with_gpus(request), _with_tasks(request))


def on_some_node(request: JobRequest) -> tuple[OnANode, ...]:
    """What at least one node of the job must have; several: it may be another node for each."""
    every, gpus, tasks = on_every_node(request), _with_gpus(request), _with_tasks(request)
    if request.max_nodes == 1:
        return (_joined(every, gpus, tasks),)
    return (_joined(every, gpus), _joined(every, tasks))


def _joined(*parts: OnANode) -> OnANode:
    return OnANode(
        max(part.cpus for part in parts),
        max(part.mem_mib for part in parts),
        next((part.gpus for part in reversed(parts) if part.gpus), {}),
    )


def _with_gpus(request: JobRequest) -> OnANode:
    """The node with most GPUs; of several types only what each node must have is known."""
    gpus = gpus_of_every_node(request)
    asks = wanted(request)
    types = {ask.type for ask in asks}
    if len(types) == 1:
        gpus = {types.pop(): max(1, demand(request, asks).per_node)}
    count = sum(gpus.values())
    cpus = count * (request.cpus_per_gpu or 0)
    return OnANode(cpus, _memory(request, cpus, count), gpus)


def _with_tasks(request: JobRequest) -> OnANode:
    """The node with most tasks."""
    if not request.max_nodes:
        return OnANode(1, 0)
    tasks = -(-tasks_in_all(request) // request.max_nodes)
    total = -(-(request.min_cpus or 1) // request.max_nodes)
    cpus = max(tasks * (request.cpus_per_task or 1), total)
    return OnANode(cpus, _memory(request, cpus, 0))


def _memory(request: JobRequest, cpus: int, gpus: int) -> int:
    """0 per node means all that the node has."""
    if request.mem_per_gpu_mib:
        return request.mem_per_gpu_mib * gpus
    if request.mem_per_node_mib is not None:
        return request.mem_per_node_mib
    return (request.mem_per_cpu_mib or 0) * cpus


def _sum(request: JobRequest, level: str) -> int:
    return sum(ask.count for ask in wanted(request) if ask.level == level)
