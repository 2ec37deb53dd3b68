# SPDX-License-Identifier: Apache-2.0
"""Rule: what the cluster does not have is refused, with the nearest that it has.

Unknown types, types of other partitions, more than any node or all nodes have. A job that names
no partition is moved to one that has its type.
"""

from __future__ import annotations

import difflib

from fairwatt.core.records import GpuAsk, JobRequest
from fairwatt.slurm_plugins.demand import (
    Shortfall,
    as_text,
    demand,
    shortfall,
    wanted,
)
from fairwatt.slurm_plugins.message import Message, Note
from fairwatt.slurm_plugins.outcome import Outcome
from fairwatt.slurm_plugins.place import find_place, moved
from fairwatt.slurm_plugins.rule import Options, RuleSpec
from fairwatt.slurm_plugins.site import Pool, Site

__all__ = ["RULE", "known_types"]

FW302 = Message(
    "FW302",
    "Unknown type",
    "no GPU type {asked} in {where}; nearest: {near}",
    "Use one of the types that the message names.",
)
FW303 = Message(
    "FW303",
    "Type in another partition",
    "no GPU type {asked} in {where}; it is in {partitions}: add -p {first}",
    "Use a partition that has the type.",
)
FW305 = Message(
    "FW305",
    "More than a node has",
    "{asked}: that is {need} on one node, the most in {where} is {most}; {offer}",
    "Ask for fewer per node and for more nodes.",
)
FW306 = Message(
    "FW306",
    "More than there are",
    "{asked}: that is {need} in all, {where} has {most}; {offer}",
    "Ask for fewer, or use another partition.",
)
FW307 = Message(
    "FW307",
    "No GPU here",
    "{where} has no GPU; partitions with GPUs: {partitions}",
    "Use a partition that has GPUs.",
)
FW308 = Message(
    "FW308",
    "Partition set",
    "{asked}: partition set to {partition}, as {default} has no such GPU",
    "Nothing to do; name a partition with -p to choose yourself.",
)

FW309 = Message(
    "FW309",
    "Type on other nodes",
    "no GPU type {asked} in {where}; the partition has it on other nodes: change -w, -x or -C",
    "Name other nodes or features, or use one of the types that these nodes have.",
)


def known_types(request: JobRequest, site: Site, _: Options | None = None) -> Outcome:
    """Refuse what the cluster cannot give, as far as its nodes are known."""
    if not wanted(request):
        return Outcome(request)
    placed, notes = _placed(request, site)
    if not site.is_whole(placed):
        return Outcome(placed, notes)
    refusal = _unknown(placed, site) or _impossible(placed, site)
    if refusal is not None:
        return Outcome(request, rejection=refusal)
    return Outcome(placed, notes)


def _placed(request: JobRequest, site: Site) -> tuple[JobRequest, tuple[Note, ...]]:
    """Move a job that named no partition to one that has its one type."""
    types = _types(request)
    here = site.pool(request)
    if request.partition is not None or len(types) != 1 or types[0] in here.types:
        return request, ()
    place = find_place(request, site, types[0], demand(request, wanted(request)))
    if place is None or place.partition is None:
        return request, ()
    told = FW308.note(
        asked=as_text(wanted(request)),
        partition=place.partition,
        default=site.where(request),
    )
    return moved(request, place), (told,)


def _unknown(request: JobRequest, site: Site) -> Note | None:
    here = site.pool(request)
    if not here.types:
        partitions = ", ".join(site.partitions_with(None)) or "none"
        return FW307.note(where=site.where(request), partitions=partitions)
    for type_ in _types(request):
        if type_ not in here.types:
            return _no_such_type(type_, request, site, here)
    return None


def _no_such_type(type_: str, request: JobRequest, site: Site, here: Pool) -> Note:
    partitions = site.partitions_with(type_)
    named = (site.partition_of(request) or "").split(",")
    if any(name in partitions for name in named):
        return FW309.note(asked=type_, where=site.where(request))
    if partitions:
        return FW303.note(
            asked=type_,
            where=site.where(request),
            partitions=", ".join(partitions),
            first=partitions[0],
        )
    return FW302.note(asked=type_, where=site.where(request), near=_nearest(type_, here))


def _nearest(type_: str, here: Pool) -> str:
    """The most similar type in reach, then the others."""
    names = [name for name in here.types if name is not None]
    if not names:
        return "GPUs here have no type, write gpu:1"
    close = difflib.get_close_matches(type_.casefold(), names, n=1, cutoff=0.0)
    others = [name for name in names if name not in close]
    return f"{close[0]} (also here: {', '.join(others)})" if others else close[0]


def _impossible(request: JobRequest, site: Site) -> Note | None:
    here = site.pool(request)
    for type_ in dict.fromkeys(ask.type for ask in wanted(request)):
        asks = [ask for ask in wanted(request) if ask.type == type_]
        missing = shortfall(demand(request, asks), here, type_)
        if missing is not None:
            return _too_many(request, site, asks, missing)
    return None


def _too_many(request: JobRequest, site: Site, asks: list[GpuAsk], missing: Shortfall) -> Note:
    message = FW305 if missing.kind == "node" else FW306
    return message.note(
        asked=as_text(asks),
        need=missing.need,
        most=missing.most,
        where=site.where(request),
        offer=_offer(site, site.pool(request), missing),
    )


def _offer(site: Site, here: Pool, missing: Shortfall) -> str:
    """A type in reach that has so many on a node, else the most that there is."""
    able = [t for t in here.types if t is not None and here.most(t) >= missing.need]
    if missing.kind == "node" and able:
        return f"gpu:{able[0]}:{missing.need} would fit"
    if missing.most == 0:
        return "choose another type"
    return f"ask for at most {missing.most}" + (" per node" if missing.kind == "node" else "")


def _types(request: JobRequest) -> list[str]:
    types = dict.fromkeys(ask.type for ask in wanted(request))
    return [type_ for type_ in types if type_ is not None]


RULE = RuleSpec(
    name="known_types",
    title="Refuse types and counts that the cluster cannot give, with the nearest it can.",
    judge=known_types,
    mode="enforce",
    messages=(
        FW302,
        FW303,
        FW305,
        FW306,
        FW307,
        FW308,
        FW309,
    ),
)
