# SPDX-License-Identifier: Apache-2.0
"""Rule: a type that the cluster spells otherwise is mended; what cannot be had is refused.

Mended: another case (`A100`), a name that the catalogue gives to the same model or profile
(`1g.5gb`), where that means exactly one of the cluster's types. A job that names no partition
is moved to one that has the type. Refused: unknown types, types of other partitions, more than
any node or all nodes have; the message offers the nearest that can be had.
"""

from __future__ import annotations

import difflib

from fairwatt.core.records import GpuAsk, JobRequest
from fairwatt.slurm_plugins.demand import (
    Shortfall,
    as_text,
    demand,
    retyped,
    shortfall,
    wanted,
)
from fairwatt.slurm_plugins.messages import Note, note
from fairwatt.slurm_plugins.outcome import Outcome
from fairwatt.slurm_plugins.place import find_place, moved
from fairwatt.slurm_plugins.site import Pool, Site

__all__ = ["known_types"]


def known_types(request: JobRequest, site: Site) -> Outcome:
    """Mend spellings, then refuse what the cluster cannot give."""
    if not wanted(request):
        return Outcome(request)
    mended, notes = _mended(request, site)
    placed, more = _placed(mended, site)
    refusal = _unknown(placed, site) or _impossible(placed, site)
    if refusal is not None:
        return Outcome(request, rejection=refusal)
    return Outcome(placed, (*notes, *more))


def _mended(request: JobRequest, site: Site) -> tuple[JobRequest, tuple[Note, ...]]:
    meant: dict[str | None, str] = {
        type_: other
        for type_ in _types(request)
        if type_ not in site.types and (other := _meant(type_, site, request)) is not None
    }
    if not meant:
        return request, ()
    changed = retyped(request, meant)
    told = note(
        "FW301",
        asked=as_text(ask for ask in request.gpus if ask.type in meant),
        given=as_text(ask for ask in changed.gpus if ask.type in meant.values()),
        type=", ".join(meant.values()),
    )
    return changed, (told,)


def _meant(type_: str, site: Site, request: JobRequest) -> str | None:
    """The one type of the cluster that this spelling can mean; those in reach go first."""
    here = {name for name in site.pool(request).types if name is not None}
    everywhere = {name for name in site.types if name is not None}
    for names in (here, everywhere):
        for same in (_same_letters, _same_device):
            found = [name for name in names if same(type_, name, site)]
            if len(found) == 1:
                return found[0]
    return None


def _same_letters(asked: str, name: str, site: Site) -> bool:
    return asked.casefold() == name.casefold()


def _same_device(asked: str, name: str, site: Site) -> bool:
    """Whether the catalogue takes both for the same board, or for the same MIG profile."""
    known = site.types[name]
    part = site.catalogue.slice_type(asked)
    if part is not None:
        bare = asked.casefold() == part[1].name
        return known.profile == part[1].name and (bare or known.model == part[0].key)
    model = site.catalogue.model_of_type(asked)
    return model is not None and not known.is_slice and known.model == model.key


def _placed(request: JobRequest, site: Site) -> tuple[JobRequest, tuple[Note, ...]]:
    """Move a job that named no partition to one that has its one type."""
    types = _types(request)
    here = site.pool(request)
    if request.partition is not None or len(types) != 1 or types[0] in here.types:
        return request, ()
    place = find_place(request, site, types[0], demand(request, wanted(request)))
    if place is None or place.partition is None:
        return request, ()
    told = note(
        "FW308",
        asked=as_text(wanted(request)),
        partition=place.partition,
        default=site.where(request),
    )
    return moved(request, place), (told,)


def _unknown(request: JobRequest, site: Site) -> Note | None:
    here = site.pool(request)
    if not any(here.counts(None)):
        partitions = ", ".join(site.partitions_with(None)) or "none"
        return note("FW307", where=site.where(request), partitions=partitions)
    for type_ in _types(request):
        if type_ not in here.types:
            return _no_such_type(type_, request, site, here)
    return None


def _no_such_type(type_: str, request: JobRequest, site: Site, here: Pool) -> Note:
    partitions = site.partitions_with(type_)
    if partitions:
        return note(
            "FW303",
            asked=type_,
            where=site.where(request),
            partitions=", ".join(partitions),
            first=partitions[0],
        )
    return note("FW302", asked=type_, where=site.where(request), near=_nearest(type_, here))


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
    code = "FW305" if missing.kind == "node" else "FW306"
    return note(
        code,
        asked=as_text(asks),
        need=missing.need,
        most=missing.most,
        where=site.where(request),
        offer=_offer(site, site.pool(request), missing),
    )


def _offer(site: Site, here: Pool, missing: Shortfall) -> str:
    """A type in reach that has so many on a node, else the most that there is."""
    able = [t for t in here.types if t is not None and here.counts(t)[0] >= missing.need]
    if missing.kind == "node" and able:
        return f"gpu:{able[0]}:{missing.need} would fit"
    if missing.most == 0:
        return "choose another type"
    return f"ask for at most {missing.most}" + (" per node" if missing.kind == "node" else "")


def _types(request: JobRequest) -> list[str]:
    types = dict.fromkeys(ask.type for ask in wanted(request))
    return [type_ for type_ in types if type_ is not None]
