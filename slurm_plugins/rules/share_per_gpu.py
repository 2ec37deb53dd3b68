# SPDX-License-Identifier: Apache-2.0
"""Rule: CPUs and memory per GPU, by type, so that a job leaves the node's other GPUs usable.

What the user left open is filled in, what is more is lowered or refused. Counted is what the job
asks in any form: tasks times CPUs per task, CPUs per GPU or node; memory per node, CPU or GPU.
It is written in the form that the user used. An exclusive job has whole nodes and is left alone.

Tasks are never taken away. Nor is anything lowered that srun, salloc and the script of a
heterogeneous job repeat for their steps (CPUs per task or GPU, memory per GPU: the step would
fail), nor in a change of a pending job,
whose form Slurm does not show: these are refused with what to write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Literal

import msgspec
from msgspec.structs import replace

from fairwatt.core.records import JobRequest
from fairwatt.slurm_plugins import gpu_share
from fairwatt.slurm_plugins.demand import as_text, wanted
from fairwatt.slurm_plugins.gpu_share import Share
from fairwatt.slurm_plugins.message import Message, Note, counted
from fairwatt.slurm_plugins.outcome import Outcome
from fairwatt.slurm_plugins.rule import Options, RuleSpec
from fairwatt.slurm_plugins.site import Site
from fairwatt.slurm_plugins.size import cpus_in_all, gpus_in_all, least_nodes, tasks_in_all
from fairwatt.slurm_plugins.words import memory_text

__all__ = ["RULE", "ShareOptions", "share_per_gpu"]

FW401 = Message(
    "FW401",
    "CPUs and memory filled in",
    "{asked}: {given} per GPU, as you named none",
    "Nothing to do; to choose yourself, use -c or --cpus-per-gpu, --mem or --mem-per-gpu.",
)
FW402 = Message(
    "FW402",
    "CPUs or memory lowered",
    "{asked}: {was} -> {given}, the share of {count} here ({share} each)",
    "Nothing to do; for more, ask for more GPUs.",
)
FW403 = Message(
    "FW403",
    "More than the GPUs' share",
    "{asked}: {was} is more than the share of {count} here ({share} each); {offer}",
    "Ask for less, as the message says, or for more GPUs.",
)

_Cpus = Annotated[int, msgspec.Meta(ge=1)]
_Gb = Annotated[float, msgspec.Meta(gt=0)]


class ShareOptions(Options, frozen=True):
    """What belongs to one GPU.

    - `cpus`: CPUs per GPU by GRES type; `default` holds for every other type. A slice that is not
      named gets its part of its board's CPUs.
    - `mem_gb`: memory per GPU in GB, likewise.
    - `from_nodes`: where a table says nothing, a node's CPUs and memory divided by its GPUs.
    - `action`: what becomes of a job that asks for more: `default` leaves it, `clamp` lowers it,
      `refuse` refuses it.
    - `fill`: whether a job that names no CPUs, or no memory, gets the share.
    """

    cpus: dict[str, _Cpus] = msgspec.field(default_factory=dict)
    mem_gb: dict[str, _Gb] = msgspec.field(default_factory=dict)
    from_nodes: bool = False
    action: Literal["default", "clamp", "refuse"] = "default"
    fill: bool = True


class _Asked(msgspec.Struct, frozen=True):
    """What a request comes to on the fewest nodes that can hold it."""

    nodes: int
    tasks: int
    gpus: int
    cpus: int
    mem_mib: int | None
    share: Share
    """Of all its GPUs together."""


class _Measure(msgspec.Struct, frozen=True):
    """CPUs or memory: how much is asked, how it is lowered, and what a user writes instead."""

    amount: Callable[[_Asked], int | None]
    limit: Callable[[_Asked], int | None]
    lower: Callable[[JobRequest, _Asked], JobRequest | None]
    offer: Callable[[JobRequest, _Asked], str]
    text: Callable[[int], str]

    def is_over(self, asked: _Asked) -> bool:
        """Whether more than the share is asked; what is not known is not."""
        amount, limit = self.amount(asked), self.limit(asked)
        return amount is not None and limit is not None and amount > limit

    def shown(self, asked: _Asked) -> str:
        """What is asked, for people."""
        return self.text(self.amount(asked) or 0)


def share_per_gpu(request: JobRequest, site: Site, options: ShareOptions) -> Outcome:
    """Fill in, lower or refuse CPUs and memory by the share of the job's GPUs."""
    if request.exclusive or not wanted(request):
        return Outcome(request)
    current, notes = request, list[Note]()
    if options.fill and request.job_id is None:
        current = _filled(request, site, options)
        if current != request:
            notes.append(_told_filled(request, current))
    if options.action == "default":
        return Outcome(current, tuple(notes))
    for measure in _MEASURES:
        found = _lowered(current, site, options, measure)
        if isinstance(found, Note):
            return Outcome(request, rejection=found)
        current, told = found
        notes += told
    return Outcome(current, tuple(notes))


def _lowered(
    request: JobRequest, site: Site, options: ShareOptions, measure: _Measure
) -> tuple[JobRequest, list[Note]] | Note:
    """The request within its share, with a note where it changed, or why it is refused."""
    first = asked = _asked(request, site, options)
    current = request
    # Fewer CPUs may fit on fewer nodes, which then have fewer GPUs: until it is stable.
    while first is not None and asked is not None and measure.is_over(asked):
        lowered = measure.lower(current, asked) if options.action == "clamp" else None
        if lowered is None or lowered == current:
            return FW403.note(
                **_texts(request, first, measure), offer=measure.offer(request, first)
            )
        current, asked = lowered, _asked(lowered, site, options)
    if current == request or first is None or asked is None:
        return request, []
    texts = _texts(request, asked, measure) | {"was": measure.shown(first)}
    return current, [FW402.note(**texts, given=measure.shown(asked))]


def _texts(request: JobRequest, asked: _Asked, measure: _Measure) -> dict[str, str]:
    return {
        "asked": as_text(wanted(request)),
        "was": measure.shown(asked),
        "count": counted(asked.gpus, "GPU"),
        "share": _share_text(asked),
    }


def _share(request: JobRequest, site: Site, options: ShareOptions, type_: str | None) -> Share:
    """The share of one GPU of a type; an untyped one may be any in reach: the largest share."""
    pool = site.pool(request)
    types = [type_] if type_ is not None else pool.types
    shares = [_share_of_type(each, site, options, request) for each in types]
    return Share(
        _most([share.cpus for share in shares]), _most([share.mem_mib for share in shares])
    )


def _share_of_type(
    type_: str | None, site: Site, options: ShareOptions, request: JobRequest
) -> Share:
    cpus = gpu_share.of_table(options.cpus, type_, site)
    mem_gb = gpu_share.of_table(options.mem_gb, type_, site)
    nodes = gpu_share.of_node(site.pool(request), type_, site) if options.from_nodes else Share()
    return Share(
        nodes.cpus if cpus is None else max(1, int(cpus)),
        nodes.mem_mib if mem_gb is None else _memory_share(mem_gb, options),
    )


def _memory_share(mem_gb: float, options: ShareOptions) -> int:
    """In MiB; what was worked out for a slice in whole GB, as people write it."""
    mib = max(1, int(mem_gb * 1024))
    return mib if mem_gb in options.mem_gb.values() else gpu_share.whole_gb(mib)


def _most(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return max(known) if values and len(known) == len(values) else None


def _least(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return min(known) if values and len(known) == len(values) else None


def _asked(request: JobRequest, site: Site, options: ShareOptions) -> _Asked | None:
    """Add up a request; None: what it comes to depends on sockets."""
    nodes = _nodes(request, site)
    gpus = gpus_in_all(request, nodes)
    if not gpus:
        return None
    count = sum(gpus.values())
    cpus = max(cpus_in_all(request, nodes), (request.cpus_per_gpu or 0) * count)
    shares = {type_: _share(request, site, options, type_) for type_ in gpus}
    total = Share(
        _total(gpus, {type_: share.cpus for type_, share in shares.items()}),
        _total(gpus, {type_: share.mem_mib for type_, share in shares.items()}),
    )
    memory = _memory(request, site, nodes, cpus, count)
    return _Asked(nodes, tasks_in_all(request, nodes), count, cpus, memory, total)


def _total(gpus: Mapping[str | None, int], shares: Mapping[str | None, int | None]) -> int | None:
    """The share of all GPUs; None where that of a type is not known."""
    parts = [(gpus[type_], share) for type_, share in shares.items()]
    if any(share is None for _, share in parts):
        return None
    return sum(count * share for count, share in parts if share is not None)


def _nodes(request: JobRequest, site: Site) -> int:
    """The fewest nodes whose CPUs suffice."""
    most = max((kind.cpus or 0 for kind, _ in site.pool(request).kinds), default=0)
    least = least_nodes(request)
    return max(least, -(-cpus_in_all(request, least) // most)) if most else least


def _memory(request: JobRequest, site: Site, nodes: int, cpus: int, gpus: int) -> int | None:
    """The memory asked; a change of a pending job shows as asked per CPU what Slurm filled in."""
    if request.mem_per_gpu_mib is not None:
        return request.mem_per_gpu_mib * gpus
    if request.mem_per_node_mib is not None:
        per_node = request.mem_per_node_mib or _whole_memory(request, site)
        return None if per_node is None else per_node * nodes
    if request.mem_per_cpu_mib is not None and request.job_id is None:
        return request.mem_per_cpu_mib * cpus
    return None


def _whole_memory(request: JobRequest, site: Site) -> int | None:
    """What `--mem=0` gets on the smallest node that has the GPUs."""
    kinds = [kind for kind, _ in site.pool(request).kinds if kind.gpus]
    return _least([kind.mem_mib for kind in kinds])


def _filled(request: JobRequest, site: Site, options: ShareOptions) -> JobRequest:
    gpus = gpus_in_all(request, least_nodes(request))
    if not gpus:
        return request
    types = list(gpus) if None not in gpus else site.pool(request).types
    shares = [_share_of_type(type_, site, options, request) for type_ in types]
    changed = _filled_cpus(request, _least([s.cpus for s in shares]), sum(gpus.values()))
    memory = _least([share.mem_mib for share in shares])
    named = (request.mem_per_node_mib, request.mem_per_cpu_mib, request.mem_per_gpu_mib)
    if memory is None or named != (None, None, None):
        return changed
    return replace(changed, mem_per_gpu_mib=memory)


def _filled_cpus(request: JobRequest, share: int | None, gpus: int) -> JobRequest:
    named = (request.cpus_per_task, request.cpus_per_gpu, request.min_cpus_per_node)
    more = (request.min_cpus or 0) > tasks_in_all(request)
    if share is None or named != (None, None, None) or more:
        return request
    if cpus_in_all(request) > share * gpus:
        return request
    per_task = [ask.count for ask in wanted(request) if ask.level == "task"]
    if not per_task:
        return replace(request, cpus_per_gpu=share)
    # Slurm 22.05 gives twice the GPUs where CPUs per GPU meet GPUs per task.
    cpus = share * sum(per_task)
    return replace(request, cpus_per_task=cpus, min_cpus=cpus * tasks_in_all(request))


def _lower_cpus(request: JobRequest, asked: _Asked) -> JobRequest | None:
    """As many CPUs as the share; None: it cannot be done here."""
    allowed = asked.share.cpus or 0
    per_gpu, per_task = request.cpus_per_gpu, request.cpus_per_task
    if per_gpu and per_gpu * asked.gpus > allowed:
        per_gpu = allowed // asked.gpus
    if per_task and per_task * asked.tasks > allowed:
        per_task = allowed // asked.tasks
    # sbatch sets the CPUs per node to those per task.
    per_node = per_task if request.min_cpus_per_node == request.cpus_per_task else None
    per_node = per_node or request.min_cpus_per_node
    if per_node and per_node * asked.nodes > allowed:
        per_node = allowed // asked.nodes
    repeated = (per_gpu, per_task) != (request.cpus_per_gpu, request.cpus_per_task)
    if 0 in (per_gpu, per_task, per_node) or not _may_lower(request, in_steps=repeated):
        return None
    least = max(
        asked.tasks * (per_task or 1),
        (per_gpu or 0) * asked.gpus,
        (per_node or 0) * asked.nodes,
        0 if repeated else allowed,
    )
    return replace(
        request,
        cpus_per_gpu=per_gpu,
        cpus_per_task=per_task,
        min_cpus_per_node=per_node,
        min_cpus=None if request.min_cpus is None else min(request.min_cpus, least),
    )


def _lower_memory(request: JobRequest, asked: _Asked) -> JobRequest | None:
    allowed = asked.share.mem_mib or 0
    per_gpu = request.mem_per_gpu_mib is not None
    if not _may_lower(request, in_steps=per_gpu):
        return None
    if per_gpu:
        return _if_any(request, "mem_per_gpu_mib", allowed // asked.gpus)
    if request.mem_per_node_mib is not None:
        return _if_any(request, "mem_per_node_mib", allowed // asked.nodes)
    return _if_any(request, "mem_per_cpu_mib", allowed // asked.cpus)


def _may_lower(request: JobRequest, *, in_steps: bool) -> bool:
    """Whether lowering leaves a job whose steps still start, and that Slurm can write."""
    alone = request.kind == "batch" and request.part is None
    return request.job_id is None and (alone or not in_steps)


def _if_any(request: JobRequest, name: str, value: int) -> JobRequest | None:
    return replace(request, **{name: value}) if value else None


def _cpu_offer(request: JobRequest, asked: _Asked) -> str:
    allowed = asked.share.cpus or 0
    if request.cpus_per_gpu and allowed >= asked.gpus:
        return f"write --cpus-per-gpu={allowed // asked.gpus}"
    if request.cpus_per_task and allowed >= asked.tasks:
        return f"write -c {allowed // asked.tasks}"
    return f"ask for at most {counted(allowed, 'CPU')}, or for more GPUs"


def _memory_offer(request: JobRequest, asked: _Asked) -> str:
    allowed = asked.share.mem_mib or 0
    if request.mem_per_gpu_mib:
        return f"write --mem-per-gpu={allowed // asked.gpus}M"
    if request.mem_per_node_mib is not None:
        return f"write --mem={allowed // asked.nodes}M"
    return f"write --mem-per-cpu={max(1, allowed // asked.cpus)}M"


def _told_filled(before: JobRequest, after: JobRequest) -> Note:
    given = []
    if after.cpus_per_gpu != before.cpus_per_gpu:
        given.append(counted(after.cpus_per_gpu or 0, "CPU"))
    elif after.cpus_per_task != before.cpus_per_task:
        per_task = sum(ask.count for ask in wanted(after) if ask.level == "task")
        given.append(counted((after.cpus_per_task or 0) // per_task, "CPU"))
    if after.mem_per_gpu_mib != before.mem_per_gpu_mib:
        given.append(memory_text(after.mem_per_gpu_mib or 0))
    return FW401.note(asked=as_text(wanted(after)), given=" and ".join(given))


def _share_text(asked: _Asked) -> str:
    """The share of one GPU, for people."""
    cpus, memory = asked.share.cpus, asked.share.mem_mib
    parts = [
        None if cpus is None else counted(cpus // asked.gpus, "CPU"),
        None if memory is None else memory_text(memory // asked.gpus),
    ]
    return ", ".join(part for part in parts if part)


_MEASURES = (
    _Measure(
        lambda asked: asked.cpus,
        lambda asked: asked.share.cpus,
        _lower_cpus,
        _cpu_offer,
        lambda count: counted(count, "CPU"),
    ),
    _Measure(
        lambda asked: asked.mem_mib,
        lambda asked: asked.share.mem_mib,
        _lower_memory,
        _memory_offer,
        memory_text,
    ),
)

RULE = RuleSpec(
    name="share_per_gpu",
    title="A GPU comes with its share of CPUs and memory; more is lowered or refused.",
    judge=share_per_gpu,
    options=ShareOptions,
    watches=frozenset({"gpus", "place", "size"}),
    messages=(FW401, FW402, FW403),
)
