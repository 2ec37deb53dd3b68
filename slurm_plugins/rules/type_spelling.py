# SPDX-License-Identifier: Apache-2.0
"""Rule: a GPU type that the cluster spells otherwise is mended.

Mended: another case (`A100`), a name that the catalogue gives to the same model or profile
(`1g.5gb`), where that means exactly one of the cluster's types. It runs before all other rules,
so that they see one name for one thing.
"""

from __future__ import annotations

from fairwatt.core.records import JobRequest
from fairwatt.slurm_plugins.demand import as_text, retyped, wanted
from fairwatt.slurm_plugins.message import Message
from fairwatt.slurm_plugins.outcome import Outcome
from fairwatt.slurm_plugins.rule import Options, RuleSpec
from fairwatt.slurm_plugins.site import Site

__all__ = ["RULE", "type_spelling"]

FW301 = Message(
    "FW301",
    "Type's spelling mended",
    "{asked} -> {given}: {type} is how this cluster spells it",
    "Nothing to do.",
)


def type_spelling(request: JobRequest, site: Site, _: Options | None = None) -> Outcome:
    """Replace each type that is not known here by the one it must mean, if that is clear."""
    meant: dict[str | None, str] = {
        type_: other
        for type_ in dict.fromkeys(ask.type for ask in wanted(request))
        if type_ is not None
        and type_ not in site.types
        and (other := _meant(type_, site, request)) is not None
    }
    if not meant:
        return Outcome(request)
    changed = retyped(request, meant)
    told = FW301.note(
        asked=as_text(ask for ask in request.gpus if ask.type in meant),
        given=as_text(ask for ask in changed.gpus if ask.type in meant.values()),
        type=", ".join(meant.values()),
    )
    return Outcome(changed, (told,))


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


RULE = RuleSpec(
    name="type_spelling",
    title="Mend GPU types that the cluster spells otherwise.",
    judge=type_spelling,
    mode="enforce",
    messages=(FW301,),
)
