# SPDX-License-Identifier: Apache-2.0
"""Rule: jobs without GPUs on nodes with GPUs are refused, moved, capped, or given a GPU.

A partition is for GPU jobs where every node that the job could get has GPUs. Of several
partitions those for other jobs are kept, whatever the action; `cap` leaves all if it fits. An
explicit zero (`--gpus-per-node=0`) is a wish: such a job is neither refused nor given a GPU.

The hook passes jobs without GPUs on only with `jobs = "all"` in fairwatt_hook.lua.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec.structs import replace

from fairwatt.core.records import GpuAsk, JobRequest
from fairwatt.slurm_plugins.demand import as_text, wanted
from fairwatt.slurm_plugins.message import Message, Note
from fairwatt.slurm_plugins.outcome import Outcome
from fairwatt.slurm_plugins.pool import Pool
from fairwatt.slurm_plugins.rule import Options, RuleSpec
from fairwatt.slurm_plugins.site import Site
from fairwatt.slurm_plugins.size import on_a_node

__all__ = ["RULE", "CpuOnlyOptions", "cpu_only"]

FW511 = Message(
    "FW511",
    "No GPU asked on GPU nodes",
    "no GPU asked, but {where} is for GPU jobs; {offer}",
    "Ask for a GPU (--gpus=1), or use a partition without GPUs; "
    "where the site allows it, --gpus=0 says that none is wanted.",
)
FW512 = Message(
    "FW512",
    "Job without GPUs moved",
    "no GPU asked: partition set to {partition}, as {where} is for GPU jobs",
    "Nothing to do; for a GPU ask for one, for example --gpus=1.",
)
FW513 = Message(
    "FW513",
    "Fewer CPUs without GPUs",
    "no GPU asked: {was} -> {given} CPUs per task, so that the GPUs of {where} stay usable",
    "Nothing to do; for more CPUs use a partition without GPUs.",
)
FW514 = Message(
    "FW514",
    "Too many CPUs without GPUs",
    "no GPU asked: {was} CPUs on a node of {where} would keep its GPUs idle; {offer}",
    "Ask for fewer CPUs per node, or use a partition without GPUs.",
)
FW515 = Message(
    "FW515",
    "GPU added",
    "no GPU asked in {where}: {given} added",
    "Nothing to do; where the site allows it, --gpus=0 says that none is wanted.",
)

_Count = Annotated[int, msgspec.Meta(ge=1)]


class CpuOnlyOptions(Options, frozen=True):
    """What becomes of a job without GPUs that could run on GPU nodes only.

    - `action`: `refuse` it, `move` it to `partition`, `cap` its CPUs per node, or `give` it GPUs.
    - `partition`: where `move` sends it.
    - `max_cpus_per_node`: what `cap` leaves it on a node; not set: all but `reserve_per_gpu`.
    - `reserve_per_gpu`: CPUs that `cap` keeps free on a node for each of its GPUs.
    - `type`: the GRES type that `give` adds; not set: the only whole GPU in reach.
    - `count`: how many per node.
    - `zero_is_explicit`: whether `--gpus=0` is a wish, or no more than silence.
    """

    action: Literal["refuse", "move", "cap", "give"] = "refuse"
    partition: str | None = None
    max_cpus_per_node: _Count | None = None
    reserve_per_gpu: _Count = 1
    type: str | None = None
    count: _Count = 1
    zero_is_explicit: bool = True


def cpu_only(request: JobRequest, site: Site, options: CpuOnlyOptions) -> Outcome:
    """Keep a job without GPUs from nodes whose GPUs it would keep idle."""
    if wanted(request):
        return Outcome(request)
    names = (site.partition_of(request) or "").split(",")
    uses = {name: _use(request, site, name) for name in names}
    others = [name for name, use in uses.items() if use == "other"]
    if "gpus" not in uses.values() or (options.action == "cap" and _fits(request, site, options)):
        return Outcome(request)
    if others:
        return _moved(request, site, ",".join(others))
    if options.action == "cap":
        return _capped(request, site, options)
    if options.action == "move" and options.partition and _can_move(request, site, options):
        return _moved(request, site, options.partition)
    if options.zero_is_explicit and request.gpus:
        return Outcome(request)
    if options.action == "give":
        return _given(request, site, options)
    return Outcome(request, rejection=_refusal(request, site))


def _use(request: JobRequest, site: Site, partition: str) -> Literal["gpus", "other", None]:
    """What the nodes are for that the job could get there; None: there are none."""
    kinds = site.pool(replace(request, partition=partition)).kinds
    if not kinds:
        return None
    return "gpus" if all(kind.gpus for kind, _ in kinds) else "other"


def _can_move(request: JobRequest, site: Site, options: CpuOnlyOptions) -> bool:
    """Whether the job can run there: not out of a reservation, nor off the nodes it names."""
    if request.reservation is not None or options.partition not in site.partitions:
        return False
    part = site.partitions[options.partition]
    admitted = part.admits(request.account, request.qos)
    return admitted and _use(request, site, part.name) == "other"


def _moved(request: JobRequest, site: Site, partition: str) -> Outcome:
    told = FW512.note(partition=partition, where=site.where(request))
    return Outcome(replace(request, partition=partition), (told,))


def _given(request: JobRequest, site: Site, options: CpuOnlyOptions) -> Outcome:
    """Add GPUs; without a configured type the choice must be clear, slices are never chosen."""
    pool = site.pool(request)
    whole = [type_ for type_ in pool.types if not site.is_slice(type_)]
    mixed = len(whole) != len(pool.types) or len(whole) > 1
    type_ = options.type or (whole[0] if len(whole) == 1 else None)
    if pool.most(type_) < options.count or (type_ is None and mixed):
        return Outcome(request, rejection=_refusal(request, site))
    gpus = (GpuAsk(level="node", type=type_, count=options.count),)
    told = FW515.note(where=site.where(request), given=as_text(gpus))
    return Outcome(replace(request, gpus=gpus), (told,))


def _refusal(request: JobRequest, site: Site) -> Note:
    names = ", ".join(type_ for type_ in site.pool(request).types if type_)
    without = [
        part.name
        for part in site.partitions.values()
        if part.open and _use(JobRequest(), site, part.name) == "other"
    ]
    offer = f"ask for a GPU ({names})" if names else "ask for a GPU"
    if without:
        offer += f" or use -p {without[0]}"
    return FW511.note(where=site.where(request), offer=offer)


def _fits(request: JobRequest, site: Site, options: CpuOnlyOptions) -> bool:
    """Whether it leaves the GPUs usable on every node that has some."""
    allowed = _allowed(site.pool(request), options)
    return allowed is None or (on_a_node(request).cpus <= allowed and not request.exclusive)


def _capped(request: JobRequest, site: Site, options: CpuOnlyOptions) -> Outcome:
    """Lower the CPUs per task of a batch job; tasks are not taken away."""
    allowed = _allowed(site.pool(request), options) or 0
    lowered = None if request.exclusive else _lowered(request, allowed)
    if lowered is None:
        was = "all" if request.exclusive else on_a_node(request).cpus
        offer = f"ask for at most {allowed} per node, or for a GPU"
        told = FW514.note(was=was, where=site.where(request), offer=offer)
        return Outcome(request, rejection=told)
    told = FW513.note(
        was=request.cpus_per_task, given=lowered.cpus_per_task, where=site.where(request)
    )
    return Outcome(lowered, (told,))


def _allowed(pool: Pool, options: CpuOnlyOptions) -> int | None:
    """CPUs that such a job may have on any node with GPUs; None: some node's are not known."""
    left = [
        options.max_cpus_per_node
        or (kind.cpus and max(1, kind.cpus - options.reserve_per_gpu * kind.count(None)))
        for kind, _ in pool.kinds
        if kind.gpus
    ]
    return None if not left or None in left else min(each for each in left if each)


def _lowered(request: JobRequest, allowed: int) -> JobRequest | None:
    """The request with fewer CPUs per task; None: steps or other numbers would contradict."""
    if not request.cpus_per_task or request.kind != "batch":
        return None
    tasks = -(-on_a_node(request).cpus // request.cpus_per_task)
    per_task = allowed // tasks
    if not per_task:
        return None
    per_node = request.min_cpus_per_node
    changed = replace(
        request,
        cpus_per_task=per_task,
        min_cpus=_scaled(request.min_cpus, per_task, request.cpus_per_task),
        # sbatch sets it to the CPUs per task
        min_cpus_per_node=per_task if per_node == request.cpus_per_task else per_node,
    )
    return changed if on_a_node(changed).cpus <= allowed else None


def _scaled(total: int | None, new: int, old: int) -> int | None:
    return None if total is None else max(1, total * new // old)


RULE = RuleSpec(
    name="cpu_only",
    title="Jobs without GPUs do not fill nodes with GPUs.",
    judge=cpu_only,
    options=CpuOnlyOptions,
    cpu_jobs=True,
    watches=frozenset({"gpus", "place", "size", "owner"}),
    messages=(FW511, FW512, FW513, FW514, FW515),
)
