# SPDX-License-Identifier: Apache-2.0
"""Rule: what no node can ever give is refused, with the nearest that some can.

Slurm accepts much of this and leaves the job pending for ever. One node must have at once the
GPUs, CPUs, memory and features that the job wants of each of its nodes; there must be as many such
nodes as it wants, within one of its partitions, its node list and the partition's limits; and
the time must be within a partition's. The present state of nodes plays no part. What is not known
never refuses: a constraint that cannot be read, a node without a number, a job's own default.
Types and counts of GPUs alone are the matter of known_types.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from fairwatt.core.records import JobRequest
from fairwatt.slurm_plugins.demand import wanted
from fairwatt.slurm_plugins.limits import (
    longest_min,
    minutes_text,
    named_partitions,
    needed_min,
)
from fairwatt.slurm_plugins.message import Message, Note, counted
from fairwatt.slurm_plugins.outcome import Outcome
from fairwatt.slurm_plugins.pool import Kind, Kinds, Pool
from fairwatt.slurm_plugins.rule import Options, RuleSpec
from fairwatt.slurm_plugins.site import Site, lowered, may_exceed
from fairwatt.slurm_plugins.size import (
    OnANode,
    cpus_in_all,
    least_nodes,
    on_every_node,
    on_some_node,
)
from fairwatt.slurm_plugins.words import memory_text

__all__ = ["RULE", "SatisfiableOptions", "satisfiable"]

FW801 = Message(
    "FW801",
    "No node can give it",
    "no node in {where} has {asked}; {most}{elsewhere}",
    "Ask for less on a node, or use the partition that the message names.",
)
FW802 = Message(
    "FW802",
    "Not so many nodes",
    "{asked}: {where} {most}{elsewhere}",
    "Ask for fewer nodes, or use the partition that the message names.",
)
FW803 = Message(
    "FW803",
    "More time than any partition allows",
    "time limit {asked}: the most in {where} is {most}, the job would wait for ever{elsewhere}",
    "Ask for less time with -t, or use the partition that the message names.",
)
FW804 = Message(
    "FW804",
    "Not so many CPUs",
    "{asked} CPUs: {where} has {most}{elsewhere}",
    "Ask for fewer tasks or CPUs per task, or use the partition that the message names.",
)


class SatisfiableOptions(Options, frozen=True):
    """What is judged.

    - `time`: also the time limit against that of the partitions.
    - `exempt_qos`: more QOS whose jobs may exceed a partition's time and nodes; those with the
      flags PartitionTimeLimit and PartitionMaxNodes do without being named.
    """

    time: bool = True
    exempt_qos: tuple[str, ...] = ()


class _Need(msgspec.Struct, frozen=True):
    """What a job wants of each of its nodes, of one at least, and in all."""

    every: OnANode
    some: tuple[OnANode, ...]
    nodes: int
    most_nodes: int | None
    cpus: int
    types: frozenset[str | None]


def satisfiable(request: JobRequest, site: Site, options: SatisfiableOptions) -> Outcome:
    """Refuse what no node can ever give."""
    partitions = (site.partition_of(request) or "").split(",")
    if any(name not in site.partitions for name in partitions):
        return Outcome(request)
    exempt = request.qos in lowered(options.exempt_qos)
    need = _need(request)
    faults = [_fault(request, site, name, need, exempt=exempt) for name in partitions]
    if faults and None not in faults:
        return Outcome(request, rejection=_nearest(fault for fault in faults if fault))
    free = exempt or may_exceed(request.qos, site.facts.beyond_time)
    late = None if free or not options.time else _too_long(request, site, need)
    return Outcome(request, rejection=late)


def _need(request: JobRequest) -> _Need:
    """With fewer CPUs than tasks (--overcommit) no task needs a CPU of its own."""
    least = request.min_cpus
    if least is not None and least < (request.num_tasks or 0) * (request.cpus_per_task or 1):
        request = replace(request, num_tasks=None, ntasks_per_node=None, cpus_per_task=None)
    return _Need(
        on_every_node(request),
        on_some_node(request),
        least_nodes(request),
        request.max_nodes,
        cpus_in_all(request) if least is None else least,
        frozenset(ask.type for ask in wanted(request)),
    )


class _Fault(msgspec.Struct, frozen=True):
    """Why a partition cannot take the job; the one that is nearest has the highest rank."""

    rank: int
    note: Note


def _nearest(faults: Iterable[_Fault]) -> Note:
    return max(faults, key=lambda fault: fault.rank).note


def _fault(
    request: JobRequest, site: Site, partition: str, need: _Need, *, exempt: bool
) -> _Fault | None:
    """What keeps the job from ever starting in one partition; None: nothing known."""
    there = replace(request, partition=partition)
    if not site.is_whole(there):
        return None
    pool = site.pool(there)
    if not pool.kinds:
        return _no_such_features(there, site, need)
    if any(pool.most(type_) < max(1, need.every.gpus.get(type_, 0)) for type_ in need.types):
        return None  # known_types tells that better
    missing = next((each for each in need.some if not _any_gives(pool, each)), None)
    if missing is not None:
        return _Fault(1, _no_node(there, site, pool, need, missing))
    able = _able(pool, need.every)
    free = exempt or may_exceed(request.qos, site.facts.beyond_nodes)
    limit = None if free else site.partitions[partition].max_nodes
    if limit is not None and need.nodes > limit:
        told = f"allows at most {counted(limit, 'node')}"
        return _Fault(3, _few_nodes(there, site, told, need))
    if need.nodes > len(able):
        asked = _asked(need.every)
        told = f"has {counted(len(able), 'node')}" + (f" with {asked}" if asked else "")
        return _Fault(2, _few_nodes(there, site, told, need))
    cpus = _cpus(able, min(need.most_nodes or len(able), limit or len(able)))
    if cpus is None or need.cpus <= cpus:
        return None
    elsewhere = _elsewhere(there, site, need)
    told_cpus = FW804.note(
        asked=need.cpus, where=site.where(there), most=cpus, elsewhere=elsewhere
    )
    return _Fault(4, told_cpus)


def _no_such_features(request: JobRequest, site: Site, need: _Need) -> _Fault | None:
    """The constraint leaves no node, though the place has some; node lists are Slurm's to read."""
    plain = replace(request, features=None)
    if request.features is None or not site.pool(plain).kinds:
        return None
    told = FW801.note(
        where=site.where(plain),
        asked=f"-C {request.features}",
        most="its nodes lack these features",
        elsewhere=_elsewhere(request, site, need),
    )
    return _Fault(0, told)


def _any_gives(pool: Kinds, need: OnANode) -> bool:
    return any(_gives(kind, need) for kind, _ in pool.kinds)


def _able(pool: Kinds, need: OnANode) -> Kinds:
    return pool.of_kinds(lambda kind: _gives(kind, need))


def _gives(kind: Kind, need: OnANode) -> bool:
    """Whether one node of this kind has all of that at once; what is not known it has."""
    for type_, count in need.gpus.items():
        if kind.count(type_) < count:
            return False
    return (kind.cpus is None or kind.cpus >= need.cpus) and (
        kind.mem_mib is None or kind.mem_mib >= need.mem_mib
    )


def _cpus(pool: Kinds, nodes: int) -> int | None:
    """CPUs of the pool's largest nodes, so many; None: some are not known."""
    held = [(kind.cpus, count) for kind, count in pool.kinds]
    total, left = 0, nodes
    for cpus, count in sorted(held, key=lambda pair: pair[0] or 0, reverse=True):
        if cpus is None:
            return None
        total += cpus * min(count, left)
        left -= min(count, left)
    return total


def _no_node(request: JobRequest, site: Site, pool: Pool, need: _Need, missing: OnANode) -> Note:
    return FW801.note(
        where=site.where(request),
        asked=_asked(missing),
        most=_most(pool, missing),
        elsewhere=_elsewhere(request, site, need),
    )


def _asked(need: OnANode) -> str:
    """What one node must have, for people: `512 GB, 32 CPUs and 4 x TYPE`."""
    parts = [memory_text(need.mem_mib)] if need.mem_mib else []
    if need.cpus > 1:
        parts.append(counted(need.cpus, "CPU"))
    parts += [_gpus_text(type_, count) for type_, count in need.gpus.items() if count]
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)


def _gpus_text(type_: str | None, count: int) -> str:
    return f"{count} x {type_}" if type_ else counted(count, "GPU")


def _most(pool: Pool, need: OnANode) -> str:
    """The most that there is of what is missing, on nodes that have the rest."""
    with_gpus = _able(pool, OnANode(0, 0, need.gpus))
    if not with_gpus.kinds:
        return "no node has all these GPUs"
    there = " with these GPUs" if need.gpus else ""
    with_cpus = _able(with_gpus, OnANode(need.cpus, 0))
    if not with_cpus.kinds:
        cpus = max(kind.cpus or 0 for kind, _ in with_gpus.kinds)
        return f"the most on a node{there} is {counted(cpus, 'CPU')}"
    memory = max(kind.mem_mib or 0 for kind, _ in with_cpus.kinds)
    return f"the most on such a node is {memory_text(memory)}"


def _few_nodes(request: JobRequest, site: Site, most: str, need: _Need) -> Note:
    return FW802.note(
        asked=counted(need.nodes, "node"),
        where=site.where(request),
        most=most,
        elsewhere=_elsewhere(request, site, need),
    )


def _too_long(request: JobRequest, site: Site, need: _Need) -> Note | None:
    most = longest_min(named_partitions(request, site))
    needed = needed_min(request)
    if needed is None or most is None or needed <= most:
        return None
    return FW803.note(
        asked=minutes_text(needed),
        where=site.where(request),
        most=minutes_text(most),
        elsewhere=_elsewhere(request, site, need),
    )


def _elsewhere(request: JobRequest, site: Site, need: _Need) -> str:
    """A partition, as far as lists tell, where it could run: `; use -p NAME`."""
    if request.reservation is not None or request.req_nodes is not None:
        return ""
    here = (site.partition_of(request) or "").split(",")
    for part in site.partitions.values():
        if part.name in here or not part.admits(request.account, request.qos):
            continue
        there = replace(request, partition=part.name)
        if _can(there, site, need):
            return f"; partition {part.name} can: -p {part.name}"
    return ""


def _can(request: JobRequest, site: Site, need: _Need) -> bool:
    part = site.partitions[request.partition or ""]
    pool = site.pool(request)
    able = _able(pool, need.every)
    minutes, longest = needed_min(request) or 0, part.max_time_min
    most = min(part.max_nodes or len(able), need.most_nodes or len(able))
    cpus = _cpus(able, most)
    return (
        all(_any_gives(pool, each) for each in need.some)
        and need.nodes <= min(len(able), part.max_nodes or len(able))
        and (longest is None or minutes <= longest)
        and all(pool.most(type_) > 0 for type_ in need.types)
        and (cpus is None or cpus >= need.cpus)
    )


RULE = RuleSpec(
    name="satisfiable",
    title="Refuse what no node can ever give, with the nearest that some can.",
    judge=satisfiable,
    options=SatisfiableOptions,
    mode="enforce",
    cpu_jobs=True,
    watches=frozenset({"gpus", "place", "size", "time"}),
    messages=(FW801, FW802, FW803, FW804),
)
