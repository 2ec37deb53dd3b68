# SPDX-License-Identifier: Apache-2.0
"""Rule: an account may use only certain GPU types. Off until its options name accounts.

    [rules.account_types]
    accounts = { physics = ["a100", "mig"], "*" = ["any", "mig"] }

An account that is not listed is held to "*"; without "*" it may use every type. The words are
those of the rule `need`: a type, a family, a size, `any` (every whole GPU), `mig` (every slice),
or the site's own. A type that nobody names is forbidden, so that a slip forbids too much
rather than too little.

A forbidden type is refused with those that are allowed; the rules that choose a type choose an
allowed one. An untyped request, which Slurm would give any type, gets the one whole type that
is allowed, or the nodes with others are excluded, or it is refused. A job with `--exclusive` gets
all GPUs of its nodes whatever it asks for: nodes with a forbidden one are excluded.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from fairwatt.core.records import JobRequest
from fairwatt.slurm_plugins.demand import as_text, retyped, untyped_count, wanted
from fairwatt.slurm_plugins.keep_off import nodes_with, without
from fairwatt.slurm_plugins.message import Message, Note
from fairwatt.slurm_plugins.outcome import Outcome
from fairwatt.slurm_plugins.rule import RuleSpec, WordedOptions
from fairwatt.slurm_plugins.site import Site
from fairwatt.slurm_plugins.words import Vocabulary

__all__ = ["RULE", "AccountTypesOptions", "account_types"]

FW701 = Message(
    "FW701",
    "Type not for this account",
    "{asked}: account {account} may use only {allowed}",
    "Ask for one of the types that the message names, or name another account with -A.",
)
FW702 = Message(
    "FW702",
    "Account must be named",
    "{asked}: which GPUs a job may use depends on its account, and you have no default one; "
    "name it with -A",
    "Add -A with the name of your account.",
)
FW703 = Message(
    "FW703",
    "Untyped request got an allowed type",
    "{asked} -> {given}: what account {account} may use in {where}",
    "Nothing to do; to use another type that your account has, name it.",
)
FW704 = Message(
    "FW704",
    "Untyped request kept off other types",
    "{asked}: nodes with types that account {account} may not use are left out ({nodes})",
    "Nothing to do.",
)
FW705 = Message(
    "FW705",
    "Untyped request could get a forbidden type",
    "{asked}: {where} also has types that account {account} may not use; {offer}",
    "Name a type that your account may use.",
)

FW706 = Message(
    "FW706",
    "Whole nodes kept off other types",
    "--exclusive takes all GPUs of its nodes: those with types that account {account} may not use "
    "are left out ({nodes})",
    "Nothing to do.",
)
FW707 = Message(
    "FW707",
    "Whole nodes with a forbidden type",
    "--exclusive takes all GPUs of its nodes, and {where} has types that account {account} may "
    "not use; leave it out, or exclude these nodes with -x or ExcNodeList=: {nodes}",
    "Ask for the GPUs, CPUs and memory that you need instead of whole nodes.",
)

EVERYONE = "*"


class AccountTypesOptions(WordedOptions, frozen=True):
    """Who may use what.

    - `accounts`: for each account the types that it may use, `"*"` for every other account:
      `{physics = ["a100", "mig"], "*" = ["any", "mig"]}`. The words are those of the rule
      `need`; `any` is every whole GPU, `mig` every slice. The rule does
      nothing while this is empty.
    - `default`: a job that names no account is held to its user's default account. One without
      either, as on a cluster without accounting: `allow` lets it use every type, `refuse` asks to
      name an account.
    """

    accounts: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    default: Literal["allow", "refuse"] = "allow"


def account_types(
    request: JobRequest, site: Site, options: AccountTypesOptions | None = None
) -> Outcome:
    """Hold a job to the types of its account."""
    if options is None or not options.accounts or not _may_hold_gpus(request, site):
        return Outcome(request)
    if request.account is None:
        if options.default == "allow":
            return Outcome(request)
        asked = as_text(wanted(request)) or "--exclusive"
        return Outcome(request, rejection=FW702.note(asked=asked))
    words = _words(request.account, options)
    if words is None:
        return Outcome(request)
    allowed = Vocabulary(site, options.words).types_of(words)
    barred = frozenset(type_ for type_ in site.types if type_ not in allowed)
    if not barred:
        return Outcome(request)
    held = _held(request, site, barred)
    if held.rejection is not None or not request.exclusive:
        return held
    return _whole_held(held, site, barred)


def _may_hold_gpus(request: JobRequest, site: Site) -> bool:
    """Whether a job asks for GPUs, or gets those of its nodes because it takes these whole."""
    return bool(wanted(request)) or (request.exclusive and bool(site.pool(request).types))


def _whole_held(held: Outcome, site: Site, barred: frozenset[str | None]) -> Outcome:
    """Keep a job that takes whole nodes off those with any forbidden GPU."""
    request = held.request
    nodes = nodes_with(request, site, barred.__contains__)
    if not nodes:
        return held
    kept = without(request, site, nodes)
    if kept is None:
        where = site.where(request)
        told = FW707.note(where=where, account=request.account, nodes=nodes)
        return Outcome(request, rejection=told)
    told = FW706.note(account=request.account, nodes=nodes)
    return Outcome(kept, (*held.notes, told))


def _words(account: str, options: AccountTypesOptions) -> tuple[str, ...] | None:
    """What an account may use; the site may have written its name in capitals."""
    found = options.accounts.get(account)
    if found is not None:
        return found
    capitals = (words for name, words in options.accounts.items() if name.lower() == account)
    return next(capitals, options.accounts.get(EVERYONE))


def _held(request: JobRequest, site: Site, barred: frozenset[str | None]) -> Outcome:
    """Refuse what is forbidden, tell the other rules, keep untyped entries off it."""
    forbidden = [ask for ask in wanted(request) if ask.type and ask.type in barred]
    if forbidden:
        told = FW701.note(
            asked=as_text(forbidden),
            account=request.account,
            allowed=_allowed(request, site, barred),
        )
        return Outcome(request, rejection=told)
    marked = msgspec.structs.replace(request, barred_types=barred)
    if not untyped_count(request) or not barred.intersection(site.pool(request).types):
        return Outcome(marked)
    return _untyped_held(marked, site, barred)


def _untyped_held(request: JobRequest, site: Site, barred: frozenset[str | None]) -> Outcome:
    here = [type_ for type_ in site.pool(request).types if type_ not in barred]
    named = {ask.type for ask in wanted(request) if ask.type is not None}
    whole = [type_ for type_ in here if not site.is_slice(type_)]
    for types in (list(named), whole):  # an untyped entry follows a typed one
        if len(types) == 1 and types[0] is not None:
            return _typed(request, site, types[0])
    nodes = nodes_with(request, site, barred.__contains__)
    kept = without(request, site, nodes) if whole else None
    if kept is None:
        return Outcome(request, rejection=_ambiguous(request, site, here))
    told = FW704.note(asked=_untyped(request), account=request.account, nodes=nodes)
    return Outcome(kept, (told,))


def _typed(request: JobRequest, site: Site, type_: str) -> Outcome:
    changed = retyped(request, {None: type_})
    told = FW703.note(
        asked=_untyped(request),
        given=as_text(ask for ask in changed.gpus if ask.type == type_),
        where=site.where(request),
        account=request.account,
    )
    return Outcome(changed, (told,))


def _ambiguous(request: JobRequest, site: Site, here: list[str | None]) -> Note:
    count = untyped_count(request)
    offers = [f"gpu:{type_}:{count}" for type_ in here if type_]
    return FW705.note(
        asked=_untyped(request),
        where=site.where(request),
        account=request.account,
        offer=f"name one, for example {' or '.join(offers[:3])}" if offers else "it has no other",
    )


def _allowed(request: JobRequest, site: Site, barred: frozenset[str | None]) -> str:
    """The allowed types, those in reach first."""
    types = dict.fromkeys([*site.pool(request).types, *sorted(filter(None, site.types))])
    names = [type_ for type_ in types if type_ and type_ not in barred]
    return ", ".join(names) or "GPUs that this cluster does not have"


def _untyped(request: JobRequest) -> str:
    return as_text(ask for ask in wanted(request) if ask.type is None)


RULE = RuleSpec(
    name="account_types",
    title="Hold accounts to the GPU types that they may use.",
    judge=account_types,
    options=AccountTypesOptions,
    mode="enforce",
    fail="closed",
    whole_nodes=True,
    watches=frozenset({"gpus", "place", "owner"}),
    messages=(FW701, FW702, FW703, FW704, FW705, FW706, FW707),
)
