# SPDX-License-Identifier: Apache-2.0
"""Rule: limits for srun and salloc outside a job: GPUs, hours, nodes, partitions.

Interactive is what comes without a script and is not sbatch's: parts of a batch job beyond its
first, arrays and scrontab are batch jobs. In a change of a pending job nothing tells, and it is
not limited. Only time is lowered; srun's and salloc's steps would repeat the rest.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec.structs import replace

from fairwatt.core.records import JobRequest
from fairwatt.slurm_plugins.demand import as_text, wanted
from fairwatt.slurm_plugins.limits import minutes_text, named_partitions, presumed_min
from fairwatt.slurm_plugins.message import Message, Note, counted
from fairwatt.slurm_plugins.outcome import Outcome
from fairwatt.slurm_plugins.rule import Options, RuleSpec
from fairwatt.slurm_plugins.site import Site
from fairwatt.slurm_plugins.size import gpus_in_all, least_nodes

__all__ = ["RULE", "InteractiveOptions", "interactive_limits"]

FW611 = Message(
    "FW611",
    "Too much for an interactive job",
    "{asked}: an interactive job may have {limit}; ask for less, or use sbatch",
    "Ask for less, or put the commands into a script for sbatch.",
)
FW612 = Message(
    "FW612",
    "Interactive job shortened",
    "time limit set to {given}, the most for an interactive job",
    "Nothing to do; for longer jobs use sbatch.",
)
FW613 = Message(
    "FW613",
    "Not interactively here",
    "no interactive jobs in {where}; use -p {allowed}, or sbatch",
    "Use a partition that the message names, or sbatch.",
)


class InteractiveOptions(Options, frozen=True):
    """What is not set is not limited.

    - `max_gpus`: GPUs or slices in all.
    - `max_hours`: the time limit; a job that names none is held to it too.
    - `max_nodes`: nodes.
    - `partitions`: where interactive jobs may run; empty: everywhere.
    - `action`: too long a time is lowered (`clamp`) or refused (`refuse`). All else is refused.
    """

    max_gpus: Annotated[int, msgspec.Meta(ge=0)] | None = None
    max_hours: Annotated[float, msgspec.Meta(gt=0)] | None = None
    max_nodes: Annotated[int, msgspec.Meta(ge=1)] | None = None
    partitions: tuple[str, ...] = ()
    action: Literal["clamp", "refuse"] = "clamp"


def interactive_limits(request: JobRequest, site: Site, options: InteractiveOptions) -> Outcome:
    """Hold an interactive job to its limits."""
    if request.kind != "interactive" or request.cron or request.array:
        return Outcome(request)
    refusal = (
        _misplaced(request, site, options)
        or _too_many_gpus(request, options)
        or _too_whole(request, site, options)
        or _too_many_nodes(request, options)
    )
    if refusal is not None:
        return Outcome(request, rejection=refusal)
    return _timed(request, site, options)


def _misplaced(request: JobRequest, site: Site, options: InteractiveOptions) -> Note | None:
    names = (site.partition_of(request) or "").split(",")
    if not options.partitions or all(name in options.partitions for name in names):
        return None
    return FW613.note(where=site.where(request), allowed=" or -p ".join(options.partitions))


def _too_many_gpus(request: JobRequest, options: InteractiveOptions) -> Note | None:
    gpus = gpus_in_all(request, least_nodes(request))
    asks = wanted(request)
    count = sum((gpus or {None: sum(ask.count for ask in asks)}).values())
    if options.max_gpus is None or count <= options.max_gpus:
        return None
    return FW611.note(asked=as_text(asks), limit=f"at most {counted(options.max_gpus, 'GPU')}")


def _too_whole(request: JobRequest, site: Site, options: InteractiveOptions) -> Note | None:
    """A job that takes whole nodes has all their GPUs, whatever it asks for."""
    if options.max_gpus is None or not request.exclusive:
        return None
    count = site.pool(request).most(None) * least_nodes(request)
    if count <= options.max_gpus:
        return None
    asked = f"--exclusive takes all GPUs of its nodes, here up to {count}"
    return FW611.note(asked=asked, limit=f"at most {counted(options.max_gpus, 'GPU')}")


def _too_many_nodes(request: JobRequest, options: InteractiveOptions) -> Note | None:
    nodes = max(least_nodes(request), request.max_nodes or 1)
    if options.max_nodes is None or nodes <= options.max_nodes:
        return None
    return FW611.note(asked=counted(nodes, "node"), limit=f"at most {options.max_nodes}")


def _timed(request: JobRequest, site: Site, options: InteractiveOptions) -> Outcome:
    if options.max_hours is None:
        return Outcome(request)
    most = max(1, int(options.max_hours * 60))
    if all(time is not None and time <= most for time in _times(request, site)):
        return Outcome(request)
    if request.time_limit_min is not None and options.action == "refuse":
        asked = f"{minutes_text(request.time_limit_min)}"
        return Outcome(
            request, rejection=FW611.note(asked=asked, limit=f"at most {minutes_text(most)}")
        )
    told = FW612.note(given=minutes_text(most))
    return Outcome(replace(request, time_limit_min=most), (told,))


def _times(request: JobRequest, site: Site) -> list[int | None]:
    """How long the job may run in each of its partitions; as it says where none is known."""
    partitions = named_partitions(request, site)
    return [presumed_min(request, part) for part in partitions] or [request.time_limit_min]


RULE = RuleSpec(
    name="interactive_limits",
    title="srun and salloc jobs have limits of their own.",
    judge=interactive_limits,
    options=InteractiveOptions,
    cpu_jobs=True,
    watches=frozenset({"gpus", "place", "size", "time"}),
    messages=(FW611, FW612, FW613),
)
