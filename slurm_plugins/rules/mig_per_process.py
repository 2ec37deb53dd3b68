# SPDX-License-Identifier: Apache-2.0
"""Rule: a process sees one MIG slice only, however many its job holds.

CUDA enumerates a single MIG instance per process. A task with three slices leaves two of them
idle, unless it starts further processes itself. Such a job is told, or refused, with the larger
slice or GPU that is worth as much, and with the options for one task per slice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from fairwatt.core.records import GpuAsk, JobRequest
from fairwatt.slurm_plugins.demand import Demand, as_text, wanted
from fairwatt.slurm_plugins.message import Message, Note
from fairwatt.slurm_plugins.outcome import Outcome
from fairwatt.slurm_plugins.place import Place, find_place
from fairwatt.slurm_plugins.rule import Options, RuleSpec
from fairwatt.slurm_plugins.site import Site

__all__ = ["RULE", "MigPerProcessOptions", "mig_per_process"]

FW211 = Message(
    "FW211",
    "More slices than processes",
    "{asked}: a process sees only one MIG slice, and this is {most} for each; "
    "{larger}start one task per slice: {tasks}",
    "Ask for the larger device, or start one task per slice. A program that starts a process "
    "for each slice itself can ignore this.",
)
FW212 = Message(
    "FW212",
    "More slices than processes, refused",
    "{asked}: a process sees only one MIG slice, and this is {most} for each; "
    "{larger}start one task per slice: {tasks}",
    "Ask for the larger device, or start one task per slice.",
)


class MigPerProcessOptions(Options, frozen=True):
    """`action`: whether to `warn` the user or to `refuse` the job."""

    action: Literal["warn", "refuse"] = "warn"


def mig_per_process(
    request: JobRequest, site: Site, options: MigPerProcessOptions | None = None
) -> Outcome:
    """Say so when a job holds more slices than it has tasks."""
    wasteful = next(_wasteful(request, site), None)
    if wasteful is None:
        return Outcome(request)
    ask, tasks = wasteful
    if options is not None and options.action == "refuse":
        return Outcome(request, rejection=_told(FW212, request, site, ask, tasks))
    return Outcome(request, (_told(FW211, request, site, ask, tasks),))


def _wasteful(request: JobRequest, site: Site) -> Iterator[tuple[GpuAsk, int]]:
    """The entries with more slices than tasks, with the number of tasks that share them."""
    for ask in wanted(request):
        tasks = _sharing(request, ask)
        if site.is_slice(ask.type) and ask.count > tasks:
            yield ask, tasks


def _sharing(request: JobRequest, ask: GpuAsk) -> int:
    """How many tasks share the devices of one entry, at least: those of a node, or of the job."""
    nodes = request.min_nodes or 1
    in_all = request.num_tasks or (request.ntasks_per_node or 1) * nodes
    if ask.level == "task":
        return 1
    if ask.level == "job":
        return in_all
    return request.ntasks_per_node or -(-in_all // nodes)


def _told(message: Message, request: JobRequest, site: Site, ask: GpuAsk, tasks: int) -> Note:
    return message.note(
        asked=as_text([ask]),
        most=-(-ask.count // tasks),
        larger="".join(f"{offer}, or " for offer in _larger(request, site, ask, tasks)),
        tasks=_one_each(request, ask),
    )


def _larger(request: JobRequest, site: Site, ask: GpuAsk, tasks: int) -> Iterator[str]:
    """The smallest device that is worth a task's slices in memory and compute, where it is."""
    each = -(-ask.count // tasks)
    held = site.types[ask.type]
    if held.memory_mib is None:
        return
    # Shares of a board are rounded to a thousandth: 3 x 143 are the 3/7 that are 429.
    fitting = sorted(
        (known.memory_mib, known.milli, name)
        for name, known in site.types.items()
        if name is not None
        and name not in request.barred_types
        and known.memory_mib is not None
        and known.memory_mib >= each * held.memory_mib
        and known.milli + each >= each * held.milli
    )
    count = 1 if ask.level == "task" else tasks
    need = Demand(1 if ask.level == "job" else count, 1, count)
    for _, _, name in fitting:
        place = find_place(request, site, name, need)
        if place is not None:
            yield f"ask for gpu:{name}:{count}{_at(place, request, site)}"
            return


def _at(place: Place, request: JobRequest, site: Site) -> str:
    elsewhere = place.partition not in (None, site.partition_of(request))
    return f" with -p {place.partition}" if elsewhere else ""


def _one_each(request: JobRequest, ask: GpuAsk) -> str:
    times = {"task": request.num_tasks, "job": 1}.get(ask.level, request.min_nodes) or 1
    return f"--ntasks={ask.count * times} --gpus-per-task={ask.type}:1"


RULE = RuleSpec(
    name="mig_per_process",
    title="Tell who holds more MIG slices than processes can see.",
    judge=mig_per_process,
    options=MigPerProcessOptions,
    mode="enforce",
    watches=frozenset({"gpus", "size"}),
    messages=(FW211, FW212),
)
