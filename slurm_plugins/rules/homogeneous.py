# SPDX-License-Identifier: Apache-2.0
"""Rule: a job on several nodes gets GPUs of one type.

An untyped request may get an A on one node and a B on the next; a parallel program then runs at
the pace of the slower. Where the nodes in reach have several whole types, such a job gets

* a constraint `[a|b]`, one feature for all of its nodes, if node features mark the types and the
  job has no other constraint: Slurm then takes whichever is free first;
* else one type that suffices: the smallest, or the one of which there are most.

A job that cannot span nodes is left alone, and so is one that no single type can satisfy. It
runs after `untyped_slices`, which keeps slices away.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from fairwatt.core.records import JobRequest
from fairwatt.slurm_plugins.constraint import groups, same_for_all
from fairwatt.slurm_plugins.demand import (
    as_text,
    demand,
    may_span_nodes,
    retyped,
    shortfall,
    untyped_count,
    wanted,
)
from fairwatt.slurm_plugins.marks import marking
from fairwatt.slurm_plugins.message import Message
from fairwatt.slurm_plugins.outcome import Outcome
from fairwatt.slurm_plugins.rule import Options, RuleSpec
from fairwatt.slurm_plugins.site import Site

__all__ = ["RULE", "HomogeneousOptions", "homogeneous"]

FW311 = Message(
    "FW311",
    "One type for all nodes",
    "{asked} -> {given}: one type for all nodes of the job, of {types} in {where}",
    "Nothing to do; to choose yourself, name a type.",
)
FW312 = Message(
    "FW312",
    "One feature for all nodes",
    "{asked} with -C '{features}': all nodes of the job get the same type of {types}",
    "Nothing to do; to choose yourself, name a type.",
)


class HomogeneousOptions(Options, frozen=True):
    """How one type is chosen.

    - `order`: which of several types that suffice: the `smallest` (least memory), or that of
      which there are `most`.
    - `features`: whether a constraint on node features may be used instead.
    """

    order: Literal["smallest", "most"] = "smallest"
    features: bool = True


def homogeneous(
    request: JobRequest, site: Site, options: HomogeneousOptions | None = None
) -> Outcome:
    """Give an untyped request that may span nodes one type."""
    options = HomogeneousOptions() if options is None else options
    untyped = untyped_count(request) and all(ask.type is None for ask in wanted(request))
    if not untyped or not may_span_nodes(request) or _settled(request, site):
        return Outcome(request)
    types = _sufficient(request, site)
    if len(site.pool(request).types) < 2 or not types:
        return Outcome(request)
    by_feature = _by_feature(request, site, types) if options.features else None
    return by_feature or _one_type(request, site, types, options)


def _settled(request: JobRequest, site: Site) -> bool:
    """Whether the constraint asks for one feature for all nodes, each of which means one type."""
    if not same_for_all(request.features):
        return False
    marks = site.pool(request).marks
    names = (name for group in groups(request.features) or () for name in group)
    return all(name in marks and len(marks[name][0]) == 1 for name in names)


def _sufficient(request: JobRequest, site: Site) -> list[str]:
    """The whole types in reach that can satisfy the request alone."""
    need, pool = demand(request, wanted(request)), site.pool(request)
    return [
        type_
        for type_ in pool.types
        if type_ is not None
        and not site.is_slice(type_)
        and type_ not in request.barred_types
        and shortfall(need, pool, type_) is None
    ]


def _by_feature(request: JobRequest, site: Site, types: list[str]) -> Outcome | None:
    """A constraint that takes all nodes from one type, if there is no other constraint."""
    marks = [marking(site.pool(request), [type_], type_, site) for type_ in types]
    names = [found[0] for found in marks if found]
    own = groups(request.features)
    # What the rule `need` wrote says no more than the new one.
    free = own == () or own == (frozenset(names),)
    if not free or len(names) < len(types) or len(types) < 2:
        return None
    features = f"[{'|'.join(names)}]"
    changed = msgspec.structs.replace(request, features=features)
    asked, among = as_text(wanted(request)), ", ".join(types)
    return Outcome(changed, (FW312.note(asked=asked, features=features, types=among),))


def _one_type(
    request: JobRequest, site: Site, types: list[str], options: HomogeneousOptions
) -> Outcome:
    pool = site.pool(request)

    def rank(name: str) -> tuple[int, int, str]:
        known = site.types[name]
        if options.order == "most":
            return -sum(count * nodes for count, nodes in pool.groups(name)), 0, name
        return known.memory_mib or 0, known.milli, name

    changed = retyped(request, {None: min(types, key=rank)})
    told = FW311.note(
        asked=as_text(wanted(request)),
        given=as_text(wanted(changed)),
        types=", ".join(types),
        where=site.where(request),
    )
    return Outcome(changed, (told,))


RULE = RuleSpec(
    name="homogeneous",
    title="Give an untyped job on several nodes GPUs of one type.",
    judge=homogeneous,
    options=HomogeneousOptions,
    mode="off",
    watches=frozenset({"gpus", "place", "size"}),
    messages=(FW311, FW312),
)
