# SPDX-License-Identifier: Apache-2.0
"""Rule: jobs that name no partition go where the site's routes say, by GPU type, length and size.

The first route counts that the job matches and whose partition can hold it and admits its account.
It runs before needs become types (`gpu:20gb:1`, `gpu:training:1`): such a need matches a route
that names the word itself, or the type that would be the best for it in the route's partition.
A job in a reservation is never moved, nor one that names nodes which the partition lacks.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec.structs import replace

from fairwatt.core.records import GpuAsk, JobRequest
from fairwatt.slurm_plugins.demand import as_text, demand, shortfall, wanted
from fairwatt.slurm_plugins.limits import minutes_text, presumed_min
from fairwatt.slurm_plugins.message import Message, counted
from fairwatt.slurm_plugins.outcome import Outcome
from fairwatt.slurm_plugins.rule import RuleSpec, WordedOptions
from fairwatt.slurm_plugins.site import Partition, Site, lowered
from fairwatt.slurm_plugins.size import gpus_in_all, least_nodes
from fairwatt.slurm_plugins.words import Vocabulary

__all__ = ["RULE", "Route", "RoutingOptions", "routing"]

FW501 = Message(
    "FW501",
    "Routed",
    "{asked}: {given} ({why})",
    "Nothing to do; name a partition with -p to choose yourself, where the site allows it.",
)

_Hours = Annotated[float, msgspec.Meta(gt=0)]
_Count = Annotated[int, msgspec.Meta(ge=1)]


class Route(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of the routes; what is not set does not matter."""

    partition: str | None = None
    qos: str | None = None
    gpus: tuple[str, ...] = ()
    min_hours: _Hours | None = None
    max_hours: _Hours | None = None
    max_nodes: _Count | None = None
    max_gpus: _Count | None = None
    accounts: tuple[str, ...] = ()


class RoutingOptions(WordedOptions, frozen=True):
    """The routes, tried in order.

    - `override`: also jobs that name a partition or QOS are routed.
    - `routes`: each a table with, where it matters: `gpus` (GRES types or words, one of which all
      GPUs of the job are), `min_hours` and `max_hours` (the time limit; of a job that names none
      what the partition gives it), `max_nodes`, `max_gpus` (in all), `accounts`; and with
      `partition`, `qos` or both, which the job then gets.
    """

    override: bool = False
    routes: tuple[Route, ...] = ()


def routing(request: JobRequest, site: Site, options: RoutingOptions) -> Outcome:
    """Send a job along the first route that fits."""
    if request.reservation is not None or not wanted(request):
        return Outcome(request)
    if request.partition is not None and not options.override:
        return Outcome(request)
    for route in options.routes:
        changed = _along(request, site, route, options)
        if _fits(request, changed, route, Vocabulary(site, options.words)):
            return _outcome(request, changed, site, route)
    return Outcome(request)


def _along(request: JobRequest, site: Site, route: Route, options: RoutingOptions) -> JobRequest:
    """The request as this route would have it; the partition in which it is stays as written."""
    partition = route.partition or request.partition
    if partition == site.partition_of(request):
        partition = request.partition
    keeps_qos = route.qos is None or (request.qos is not None and not options.override)
    return replace(request, partition=partition, qos=request.qos if keeps_qos else route.qos)


def _outcome(request: JobRequest, changed: JobRequest, site: Site, route: Route) -> Outcome:
    if changed == request:
        return Outcome(request)
    given = []
    if changed.partition != request.partition:
        given.append(f"partition {changed.partition}")
    if changed.qos != request.qos:
        given.append(f"QOS {changed.qos}")
    told = FW501.note(
        asked=as_text(wanted(request)), given=" and ".join(given), why=_why(changed, route)
    )
    return Outcome(changed, (told,))


def _fits(request: JobRequest, changed: JobRequest, route: Route, words: Vocabulary) -> bool:
    """Whether a job matches the route, and the route's partition can take it."""
    if route.accounts and request.account not in lowered(route.accounts):
        return False
    gpus = gpus_in_all(request, least_nodes(request))
    count = sum((gpus or {}).values()) or sum(ask.count for ask in wanted(request))
    if route.max_gpus is not None and count > route.max_gpus:
        return False
    nodes = max(least_nodes(request), request.max_nodes or 1)
    if route.max_nodes is not None and nodes > route.max_nodes:
        return False
    site = words.site
    names = (site.partition_of(changed) or "").split(",")
    partitions = [site.partitions.get(name) for name in names]
    return all(
        part is not None
        and _admits(part, changed, route)
        and _is_so_long(changed, part, route)
        and _holds(replace(changed, partition=part.name), route, words)
        for part in partitions
    )


def _admits(part: Partition, request: JobRequest, route: Route) -> bool:
    """As far as lists say; where none does, a closed partition takes whom the route names."""
    if not part.admits(request.account, request.qos):
        return False
    lists = (part.accounts, part.qos, part.denied_accounts or None, part.denied_qos or None)
    return part.open or bool(route.accounts) or lists != (None, None, None, None)


def _is_so_long(request: JobRequest, part: Partition, route: Route) -> bool:
    minutes = presumed_min(request, part)
    if minutes is None:
        return route.max_hours is None
    if part.max_time_min is not None and minutes > part.max_time_min:
        return False
    return (route.max_hours is None or minutes <= route.max_hours * 60) and (
        route.min_hours is None or minutes >= route.min_hours * 60
    )


def _holds(request: JobRequest, route: Route, words: Vocabulary) -> bool:
    """Whether every GPU of the job is one of the route's, and there in the number asked."""
    part = words.site.partitions[request.partition or ""]
    if part.max_nodes is not None and least_nodes(request) > part.max_nodes:
        return False
    types = dict.fromkeys(ask.type for ask in wanted(request))
    return all(_holds_type(request, route, words, type_) for type_ in types)


def _holds_type(request: JobRequest, route: Route, words: Vocabulary, type_: str | None) -> bool:
    site = words.site
    asks = [ask for ask in wanted(request) if ask.type == type_]
    named = type_ in route.gpus
    if type_ is None:
        return not route.gpus and _has(request, site, asks, None)
    meaning = words.read(type_)
    allowed = (each for each in meaning.types if each not in request.barred_types)
    found = next((each for each in allowed if _has(request, site, asks, each)), None)
    if found is None:
        return False
    return named or not route.gpus or found in words.types_of(route.gpus)


def _has(request: JobRequest, site: Site, asks: list[GpuAsk], type_: str | None) -> bool:
    pool = site.pool(request)
    return pool.most(type_) > 0 and shortfall(demand(request, asks), pool, type_) is None


def _why(request: JobRequest, route: Route) -> str:
    """What of the route's conditions sent the job along it."""
    parts = [
        " or ".join(route.gpus),
        _hours("from", route.min_hours),
        _hours("up to", route.max_hours),
        f"up to {counted(route.max_gpus, 'GPU')}" if route.max_gpus else "",
        f"up to {counted(route.max_nodes, 'node')}" if route.max_nodes else "",
        f"account {request.account}" if route.accounts else "",
    ]
    return ", ".join(part for part in parts if part) or "the site's route for GPU jobs"


def _hours(word: str, hours: float | None) -> str:
    return f"{word} {minutes_text(round(hours * 60))}" if hours else ""


RULE = RuleSpec(
    name="routing",
    title="Jobs without a partition go where the site's routes say.",
    judge=routing,
    options=RoutingOptions,
    watches=frozenset({"gpus", "place", "size", "time", "owner"}),
    messages=(FW501,),
)
