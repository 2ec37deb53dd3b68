# SPDX-License-Identifier: Apache-2.0
"""Rule: ask by need. `gpu:a100|h100:1`, `gpu:any:1`, `gpu:mig-10gb:1`, `gpu:hopper:1`.

A need that several types meet becomes, best first:

* an untyped request with a node feature that marks exactly these types, added to the user's own
  constraint; or without one, where the job can reach no other GPU; for `any` the nodes with
  other devices are excluded. Slurm then starts the job on whichever is free first;
* else the best type, and the others as flavours to which the updater may widen the job.

Best: the order as written for `a|b`, the least memory for the rest. Nothing is chosen that the
job's account may not use, or that is in a partition to which the job may not go.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from fairwatt.core.records import JobRequest
from fairwatt.slurm_plugins.constraint import combined
from fairwatt.slurm_plugins.demand import Demand, as_text, demand, retyped, shortfall, wanted
from fairwatt.slurm_plugins.keep_off import nodes_with, without
from fairwatt.slurm_plugins.marks import marking
from fairwatt.slurm_plugins.message import Message, Note
from fairwatt.slurm_plugins.outcome import Outcome
from fairwatt.slurm_plugins.place import Place, choose, find_place, moved
from fairwatt.slurm_plugins.rule import RuleSpec, WordedOptions
from fairwatt.slurm_plugins.site import Site
from fairwatt.slurm_plugins.words import Kind, Meaning, Order, Vocabulary

__all__ = ["RULE", "NeedOptions", "need"]

FW111 = Message(
    "FW111",
    "Need became a type",
    "{asked} -> {given}: {why} in {where}{also}",
    "Nothing to do; to choose yourself, name a type.",
)
FW112 = Message(
    "FW112",
    "Need left to Slurm",
    "{asked} -> {given}: whichever of {types} in {where} is free first",
    "Nothing to do; to choose yourself, name a type.",
)
FW113 = Message(
    "FW113",
    "Need became a node feature",
    "{asked} -> {given} -C '{features}': whichever of {types} in {where} is free first",
    "Nothing to do; to choose yourself, name a type.",
)
FW114 = Message(
    "FW114",
    "Need kept off other devices",
    "{asked} -> {given}: any of {types}; nodes with other devices are left out ({nodes})",
    "Nothing to do; to choose yourself, name a type.",
)
FW115 = Message(
    "FW115",
    "Nothing here meets the need",
    "no GPU in {where} is {need}; {offer}",
    "Ask for one that is here, or use the partition that the message names.",
)
FW116 = Message(
    "FW116",
    "Not that many",
    "{asked}: {where} has no room for that many of one type; {offer}",
    "Ask for fewer GPUs, or spread them over more nodes.",
)
FW117 = Message(
    "FW117",
    "A word that is not known",
    "{asked}: {word} is no GPU type or word known here; here: {here}",
    "Write types, families or sizes, joined by | without spaces, in quotes.",
)
FW118 = Message(
    "FW118",
    "Two needs in one job",
    "{asked}: {word} may become any of several types and cannot stand beside {others}",
    "Write one GPU entry, or name a type in each.",
)
FW119 = Message(
    "FW119",
    "Account may not use what meets the need",
    "{asked}: account {account} may not use any GPU that is {need}; {offer}",
    "Ask for a type that the account may use, or name another account with -A.",
)

MAX_FLAVOURS = 8
_KINDS: frozenset[Kind] = frozenset({"word", "any", "slice", "family", "alias", "any_of"})


class NeedOptions(WordedOptions, frozen=True):
    """What needs mean, and what they may become.

    - `slices`: whether `any` and families also mean MIG slices.
    - `order`: which type is best for `any`, for a family and for a name of several types: the
      `smallest` or the `largest`.
    - `untyped`: whether a need may become an untyped request. Slurm's limits on single types do
      not count those.
    - `partitions`: whether a job that names no partition may be sent to several at once.
    - `flavours`: whether the updater may give a job that waits long another type.
    """

    slices: bool = False
    order: Order = "smallest"
    untyped: bool = True
    partitions: bool = True
    flavours: bool = True


class _Case(msgspec.Struct, frozen=True):
    """One request with the need in it."""

    request: JobRequest
    site: Site
    word: str
    meaning: Meaning
    options: NeedOptions
    demand: Demand
    allowed: tuple[str | None, ...]

    @property
    def asked(self) -> str:
        return as_text(wanted(self.request))

    def where(self, request: JobRequest | None = None) -> str:
        return self.site.where(self.request if request is None else request)


def need(request: JobRequest, site: Site, options: NeedOptions | None = None) -> Outcome:
    """Replace a need by what Slurm can be asked for."""
    options = NeedOptions() if options is None else options
    vocabulary = Vocabulary(site, options.words, options.slices, options.order)
    found = _needs(request, vocabulary)
    if not found:
        return Outcome(request)
    case = _case(request, site, options, *found[0])
    refusal = _unclear(case) or _forbidden(case)
    if refusal is not None:
        return Outcome(request, rejection=refusal)
    return _left_to_slurm(case) or _chosen(case) or Outcome(request, rejection=_lacking(case))


def _needs(request: JobRequest, vocabulary: Vocabulary) -> list[tuple[str, Meaning]]:
    """The types that are needs, each once, with what they mean.

    Another name of one type is for the rule `type_spelling`, an unknown one for `known_types`.
    """
    types = dict.fromkeys(ask.type for ask in wanted(request) if ask.type is not None)
    meanings = ((type_, vocabulary.read(type_)) for type_ in types)
    return [
        (type_, meaning)
        for type_, meaning in meanings
        if meaning.kind in _KINDS and (meaning.kind != "alias" or len(meaning.types) > 1)
    ]


def _case(
    request: JobRequest, site: Site, options: NeedOptions, word: str, meaning: Meaning
) -> _Case:
    allowed = tuple(t for t in meaning.types if t not in request.barred_types)
    request = retyped(request, {None: word})  # an untyped entry follows the other one
    asks = [ask for ask in wanted(request) if ask.type == word]
    return _Case(request, site, word, meaning, options, demand(request, asks), allowed)


def _unclear(case: _Case) -> Note | None:
    others = [ask for ask in wanted(case.request) if ask.type != case.word]
    if others:
        return FW118.note(asked=case.asked, word=case.word, others=as_text(others))
    if case.meaning.unknown:
        return FW117.note(asked=case.asked, word=case.meaning.unknown[0], here=_here(case))
    return None


def _forbidden(case: _Case) -> Note | None:
    if case.allowed or not case.meaning.types:
        return None
    account = case.request.account or "of the job"
    return FW119.note(
        asked=case.asked, account=account, need=case.meaning.text, offer=f"here: {_here(case)}"
    )


def _left_to_slurm(case: _Case) -> Outcome | None:
    """An untyped request that can only get what is needed, if there is a choice at all."""
    if not case.options.untyped:
        return None
    for place in _places(case):
        there = moved(case.request, place)
        types = [t for t in case.allowed if t in case.site.pool(there).types]
        able = [t for t in types if _has(case, there, t, place)]
        choice = len(able) > 1 or able == [None]
        if choice and not any(map(case.site.is_slice, types)):
            found = _marked(case, there, able) or _alone(case, there) or _excluding(case, there)
            if found is not None:
                return found
    return None


def _places(case: _Case) -> Iterator[Place]:
    """The job's own place, then several partitions where the types are in several."""
    yield Place()
    request, site = case.request, case.site
    free = request.partition is None and request.reservation is None
    if free and case.options.partitions and case.meaning.kind != "any":
        found = (find_place(request, site, t, case.demand) for t in case.allowed if t)
        names = {place.partition or site.default_partition for place in found if place}
        if len(names) > 1 and None not in names:
            yield Place(",".join(name for name in site.partitions if name in names))


def _has(case: _Case, there: JobRequest, type_: str | None, place: Place) -> bool:
    """Whether one of the place's partitions has the demand of a type; no job spans two."""
    parts = [Place(name) for name in (place.partition or "").split(",") if name] or [Place()]
    return any(
        shortfall(case.demand, case.site.pool(moved(there, part)), type_) is None for part in parts
    )


def _marked(case: _Case, there: JobRequest, able: list[str | None]) -> Outcome | None:
    """By a node feature."""
    types = [type_ for type_ in able if type_ is not None]
    if case.meaning.kind == "any" or len(types) < len(able):
        return None
    names = marking(case.site.pool(there), types, case.word, case.site)
    features = names and combined(there.features, names)
    if not features:
        return None
    changed = _untyped(case, msgspec.structs.replace(there, features=features))
    if not _only_allowed(case, changed):
        return None
    return Outcome(changed, (_told(FW113, case, changed, able, features=features),))


def _alone(case: _Case, there: JobRequest) -> Outcome | None:
    """Without more ado, where nothing else can be reached."""
    changed = _untyped(case, there)
    if not _only_allowed(case, changed):
        return None
    return Outcome(changed, (_told(FW112, case, changed, list(case.site.pool(changed).types)),))


def _excluding(case: _Case, there: JobRequest) -> Outcome | None:
    """For `any`: by excluding the nodes with slices or forbidden types."""
    if case.meaning.kind != "any":
        return None
    unwanted = [t for t in case.site.pool(there).types if t not in case.allowed]
    if all(map(case.site.is_slice, unwanted)):
        nodes = case.site.slice_nodes(there)  # kept ready
    else:
        nodes = nodes_with(there, case.site, unwanted.__contains__)
    kept = without(_untyped(case, there), case.site, nodes)
    if kept is None or not _only_allowed(case, kept):
        return None
    types = list(case.site.pool(kept).types)
    return Outcome(kept, (_told(FW114, case, kept, types, nodes=nodes),))


def _untyped(case: _Case, request: JobRequest) -> JobRequest:
    return retyped(request, {case.word: None})


def _only_allowed(case: _Case, changed: JobRequest) -> bool:
    pool = case.site.pool(changed)
    return set(pool.types) <= set(case.allowed) and shortfall(case.demand, pool, None) is None


def _told(
    message: Message, case: _Case, changed: JobRequest, types: list[str | None], **more: str
) -> Note:
    # The place as the user knows it: without what is told beside it.
    where = msgspec.structs.replace(changed, features=None, exc_nodes=None)
    return message.note(
        asked=case.asked,
        given=as_text(wanted(changed)),
        types=_list([type_ or "untyped GPUs" for type_ in types]),
        where=case.where(where),
        **more,
    )


def _chosen(case: _Case) -> Outcome | None:
    """The best type, with the others to follow."""
    most = MAX_FLAVOURS if case.options.flavours else 0
    choice = choose(case.request, case.site, case.allowed, case.demand, most)
    if choice is None:
        return None
    changed = moved(retyped(case.request, {case.word: choice.type}), choice.place)
    others = _list([flavour.type for flavour in choice.flavours])
    told = FW111.note(
        asked=case.asked,
        given=as_text(wanted(changed)),
        why=_why(case),
        where=case.where(changed),
        also=f"; {others} would do too" if others else "",
    )
    return Outcome(msgspec.structs.replace(changed, flavours=choice.flavours), (told,))


def _why(case: _Case) -> str:
    if case.meaning.kind in ("any_of", "word"):
        return "the first of these"
    order = "smallest" if case.meaning.kind == "slice" else case.options.order
    return f"the {order} that is {case.meaning.text}"


def _lacking(case: _Case) -> Note:
    """Tell what is not here from what is not here in that number."""
    pool = case.site.pool(case.request)
    here = [type_ for type_ in case.allowed if type_ in pool.types]
    if here:
        most = ", ".join(f"gpu:{t}:{pool.most(t)}" if t else f"gpu:{pool.most(t)}" for t in here)
        return FW116.note(asked=case.asked, where=case.where(), offer=f"a node has {most}")
    return FW115.note(where=case.where(), need=case.meaning.text, offer=_offer(case))


def _offer(case: _Case) -> str:
    """Where it is, else what is here."""
    for type_ in case.allowed:
        partitions = case.site.partitions_with(type_)
        if type_ is not None and partitions:
            return f"gpu:{type_}:1 is in partition {partitions[0]}"
    return f"here: {_here(case)}"


def _here(case: _Case) -> str:
    types = case.site.pool(case.request).types
    return _list([t for t in types if t and t not in case.request.barred_types]) or "no typed GPU"


def _list(names: list[str]) -> str:
    return ", ".join(names)


RULE = RuleSpec(
    name="need",
    title="Ask by need: any of some types, a family, a whole GPU, a slice of a size.",
    judge=need,
    options=NeedOptions,
    mode="enforce",
    messages=(FW111, FW112, FW113, FW114, FW115, FW116, FW117, FW118, FW119),
)
