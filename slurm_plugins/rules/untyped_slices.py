# SPDX-License-Identifier: Apache-2.0
"""Rule: an untyped request never lands on a MIG slice by accident.

Stock Slurm gives `--gpus=1` any device, also a seventh of one. Slurm cannot ask for "one of
these types", hence, where the nodes in reach have slices:

* the job's other entries name one type: the untyped ones get it (Slurm refuses a mixture);
* one whole type: the request gets that type;
* several whole types: the nodes with slices are excluded, which Slurm enforces; a change of a
  pending job has to name them itself, since the list that it has is not shown;
* only slices, or nothing left after that: refused, naming the types to choose from.

A job that wants a slice names its type, or its memory.
"""

from __future__ import annotations

from fairwatt.core.records import JobRequest
from fairwatt.slurm_plugins.demand import as_text, retyped, untyped_count, wanted
from fairwatt.slurm_plugins.keep_off import without
from fairwatt.slurm_plugins.message import Message
from fairwatt.slurm_plugins.outcome import Outcome
from fairwatt.slurm_plugins.rule import Options, RuleSpec
from fairwatt.slurm_plugins.site import Site

__all__ = ["RULE", "untyped_slices"]
FW201 = Message(
    "FW201",
    "Untyped request got a type",
    "{asked} -> {given}: {where} also has MIG slices, and {type} is its only whole GPU",
    "Nothing to do; to use a slice, name its type.",
)
FW202 = Message(
    "FW202",
    "Untyped request kept off slices",
    "{asked}: nodes with MIG slices are left out ({nodes})",
    "Nothing to do; to use a slice, name its type.",
)
FW203 = Message(
    "FW203",
    "Only slices here",
    "{asked}: {where} has only MIG slices; name one, for example {offer}",
    "Name a slice type, or use a partition with whole GPUs.",
)
FW204 = Message(
    "FW204",
    "Untyped request is ambiguous",
    "{asked}: {where} mixes whole GPUs and MIG slices; name a type, for example {offer}",
    "Name a GPU type.",
)
FW205 = Message(
    "FW205",
    "Untyped entry follows the typed one",
    "{asked} -> {given}: one job cannot mix typed and untyped GPUs",
    "Nothing to do; write the type in every GPU option.",
)
FW206 = Message(
    "FW206",
    "Change would reach slices",
    "{asked}: {where} has MIG slices; name a type, or exclude them: ExcNodeList={nodes}",
    "Change the nodes to exclude in the same scontrol update, together with your own.",
)


def untyped_slices(request: JobRequest, site: Site, _: Options | None = None) -> Outcome:
    """Keep the untyped entries of a request away from MIG slices."""
    if not any(ask.type is None for ask in wanted(request)):
        return Outcome(request)
    named = {ask.type for ask in wanted(request) if ask.type is not None}
    if len(named) == 1:
        return _typed(request, site, named.pop() or "", FW205)
    types = [type_ for type_ in site.pool(request).types if type_ not in request.barred_types]
    slices = [type_ for type_ in types if site.is_slice(type_)]
    whole = [type_ for type_ in types if not site.is_slice(type_)]
    if not slices:
        return Outcome(request)
    if not whole:
        return _refused(request, site, FW203, slices)
    if len(whole) == 1 and whole[0] is not None:
        return _typed(request, site, whole[0], FW201)
    return _kept_off(request, site, whole)


def _typed(request: JobRequest, site: Site, type_: str, message: Message) -> Outcome:
    changed = retyped(request, {None: type_})
    told = message.note(
        asked=_untyped(request),
        given=as_text(ask for ask in changed.gpus if ask not in request.gpus),
        type=type_,
        where=site.where(request),
    )
    return Outcome(changed, (told,))


def _kept_off(request: JobRequest, site: Site, whole: list[str | None]) -> Outcome:
    """Exclude the nodes with slices; a mixed node loses its whole GPUs for this job."""
    nodes = site.slice_nodes(request)
    if not request.exc_known:
        told = FW206.note(asked=_untyped(request), where=site.where(request), nodes=nodes)
        return Outcome(request, rejection=told)
    changed = without(request, site, nodes)
    if changed is None:
        return _refused(request, site, FW204, whole)
    return Outcome(changed, (FW202.note(asked=_untyped(request), nodes=nodes),))


def _refused(
    request: JobRequest, site: Site, message: Message, types: list[str | None]
) -> Outcome:
    count = untyped_count(request)
    offers = [f"gpu:{type_}:{count}" for type_ in types if type_]
    offer = " or ".join(offers[:4]) or "another partition"
    told = message.note(asked=_untyped(request), where=site.where(request), offer=offer)
    return Outcome(request, rejection=told)


def _untyped(request: JobRequest) -> str:
    return as_text(ask for ask in wanted(request) if ask.type is None)


RULE = RuleSpec(
    name="untyped_slices",
    title="An untyped request never lands on a MIG slice by accident.",
    judge=untyped_slices,
    mode="enforce",
    messages=(FW201, FW202, FW203, FW204, FW205, FW206),
)
