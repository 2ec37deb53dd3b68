# SPDX-License-Identifier: Apache-2.0
"""Rule: a time limit for jobs that name none, and no job beyond what its partitions allow.

Slurm accepts a job with more time than any of its partitions allows and leaves it pending for
ever (PartitionTimeLimit), unless EnforcePartLimits says otherwise. Of several partitions the one
that allows most counts. When a job may begin plays no part.
"""

from __future__ import annotations

from typing import Annotated, Literal

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
from fairwatt.slurm_plugins.message import Message
from fairwatt.slurm_plugins.outcome import Outcome
from fairwatt.slurm_plugins.rule import Options, RuleSpec
from fairwatt.slurm_plugins.site import Site, lowered, may_exceed

__all__ = ["RULE", "TimeOptions", "time_limits"]

FW601 = Message(
    "FW601",
    "Time limit filled in",
    "time limit set to {given}, as you named none",
    "Nothing to do; name a time with -t, a short one starts sooner.",
)
FW602 = Message(
    "FW602",
    "Time limit lowered",
    "time limit {asked} -> {given}, the most in {where}",
    "Nothing to do; name a partition that allows more.",
)
FW603 = Message(
    "FW603",
    "More time than the partition allows",
    "time limit {asked}: the most in {where} is {most}; {offer}",
    "Ask for less time with -t, or use the partition that the message names.",
)

Minutes = Annotated[int, msgspec.Meta(ge=1)]


class TimeOptions(Options, frozen=True):
    """Times are in minutes.

    - `default_min`: the limit of a job that names none; not set: Slurm's own default.
    - `by_partition`: that default by partition; of several partitions the shortest.
    - `by_type`: that default by GRES type; it goes before the partition's. Of several types the
      shortest.
    - `max_action`: what becomes of a job with more time than its partitions allow: `refuse`,
      `clamp` (it gets the most) or `none`.
    - `exempt_qos`: more QOS whose jobs may exceed a partition's time; those with the flag
      PartitionTimeLimit do without being named.
    """

    default_min: Minutes | None = None
    by_partition: dict[str, Minutes] = msgspec.field(default_factory=dict)
    by_type: dict[str, Minutes] = msgspec.field(default_factory=dict)
    max_action: Literal["refuse", "clamp", "none"] = "refuse"
    exempt_qos: tuple[str, ...] = ()


def time_limits(request: JobRequest, site: Site, options: TimeOptions) -> Outcome:
    """Fill in a time limit, and hold it to the partitions' longest."""
    if request.time_limit_min is None:
        return _filled(request, site, options)
    most = longest_min(named_partitions(request, site))
    exempt = options.max_action == "none" or _is_exempt(request, site, options)
    if exempt or most is None or (needed_min(request) or 0) <= most:
        return Outcome(request)
    asked = minutes_text(request.time_limit_min)
    if options.max_action == "clamp":
        told = FW602.note(asked=asked, given=minutes_text(most), where=site.where(request))
        return Outcome(replace(request, time_limit_min=most), (told,))
    told = FW603.note(
        asked=asked,
        where=site.where(request),
        most=minutes_text(most),
        offer=_offer(request, site, most),
    )
    return Outcome(request, rejection=told)


def _is_exempt(request: JobRequest, site: Site, options: TimeOptions) -> bool:
    if request.qos in lowered(options.exempt_qos):
        return True
    return may_exceed(request.qos, site.facts.beyond_time)


def _filled(request: JobRequest, site: Site, options: TimeOptions) -> Outcome:
    partitions = named_partitions(request, site)
    default = _default(request, [part.name for part in partitions], options)
    if default is None:
        return Outcome(request)
    most = longest_min(partitions)
    given = default if most is None else min(default, most)
    changed = replace(request, time_limit_min=given)
    return Outcome(changed, (FW601.note(given=minutes_text(given)),))


def _default(request: JobRequest, partitions: list[str], options: TimeOptions) -> int | None:
    types = {ask.type for ask in wanted(request)}
    by_type = [options.by_type[type_] for type_ in types if type_ in options.by_type]
    by_place = [options.by_partition[name] for name in partitions if name in options.by_partition]
    return min(by_type or by_place, default=options.default_min)


def _offer(request: JobRequest, site: Site, most: int) -> str:
    """A partition that allows so long and has what the job asks, else the longest time here."""
    need = needed_min(request) or 0
    types = [ask.type for ask in wanted(request)]
    for part in site.partitions.values():
        long_enough = part.max_time_min is None or part.max_time_min >= need
        has_all = all(part.name in site.partitions_with(type_) for type_ in types)
        if long_enough and has_all and part.open and part.admits(request.account, request.qos):
            return f"partition {part.name} allows it: -p {part.name}"
    return f"write -t {most}"


RULE = RuleSpec(
    name="time_limits",
    title="A time limit where none is named, and none beyond the partition's.",
    judge=time_limits,
    options=TimeOptions,
    cpu_jobs=True,
    watches=frozenset({"time", "place", "owner"}),
    messages=(FW601, FW602, FW603),
)
