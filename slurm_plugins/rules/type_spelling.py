# SPDX-License-Identifier: Apache-2.0
"""Rule: a GPU type that the cluster spells otherwise is mended.

Mended: another case (`A100`), a name that the catalogue gives to the same model or profile
(`1g.5gb`), where that means exactly one of the cluster's types; the word of `--gpus=gpu:2`, which
Slurm's client makes a type of. It runs before all other rules,
so that they see one name for one thing; a name that means several is left to the rule `need`.
"""

from __future__ import annotations

from fairwatt.core.records import JobRequest
from fairwatt.slurm_plugins.demand import as_text, retyped, wanted
from fairwatt.slurm_plugins.message import Message
from fairwatt.slurm_plugins.outcome import Outcome
from fairwatt.slurm_plugins.rule import Options, RuleSpec
from fairwatt.slurm_plugins.site import Site
from fairwatt.slurm_plugins.words import meant

__all__ = ["RULE", "type_spelling"]

FW301 = Message(
    "FW301",
    "Type's spelling mended",
    "{asked} -> {given}: {type} is how this cluster spells it",
    "Nothing to do.",
)
FW309 = Message(
    "FW309",
    "No type, but the word gpu",
    "{asked} -> {given}: after --gpus and its like there is no word gpu",
    "Nothing to do; shorter: --gpus=2.",
)

WORDS = ("gpu", "gres/gpu")


def type_spelling(request: JobRequest, site: Site, _: Options | None = None) -> Outcome:
    """Replace each type that is not known here by the one it must mean, if that is clear."""
    bare = _without_words(request, site)
    mended = _mended(bare.request, site)
    return Outcome(mended.request, (*bare.notes, *mended.notes))


def _without_words(request: JobRequest, site: Site) -> Outcome:
    words = {ask.type for ask in wanted(request) if ask.type in WORDS} - site.types.keys()
    # For --gpus-per-task=gpu:4gb:1 clients since 23.11 send `gpu:gpu=4`: nobody meant four.
    if not words or any(ask.level == "task" for ask in wanted(request) if ask.type in words):
        return Outcome(request)
    changed = retyped(request, dict.fromkeys(words))
    told = FW309.note(
        asked=as_text(ask for ask in request.gpus if ask.type in words),
        given=as_text(ask for ask in changed.gpus if ask.type is None),
    )
    return Outcome(changed, (told,))


def _mended(request: JobRequest, site: Site) -> Outcome:
    mended: dict[str | None, str | None] = {
        type_: other
        for type_ in dict.fromkeys(ask.type for ask in wanted(request))
        if type_ is not None
        and type_ not in site.types
        and (other := _meant(type_, site, request)) is not None
    }
    if not mended:
        return Outcome(request)
    changed = retyped(request, mended)
    told = FW301.note(
        asked=as_text(ask for ask in request.gpus if ask.type in mended),
        given=as_text(ask for ask in changed.gpus if ask.type in mended.values()),
        type=", ".join(filter(None, mended.values())),
    )
    return Outcome(changed, (told,))


def _meant(type_: str, site: Site, request: JobRequest) -> str | None:
    """The one type of the cluster that this spelling can mean; those in reach go first."""
    for names in (site.pool(request).types, site.types):
        found = meant(type_, (name for name in names if name is not None), site)
        if len(found) == 1:
            return found[0]
    return None


RULE = RuleSpec(
    name="type_spelling",
    title="Mend GPU types that the cluster spells otherwise.",
    judge=type_spelling,
    mode="enforce",
    messages=(FW301, FW309),
)
