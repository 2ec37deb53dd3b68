# SPDX-License-Identifier: Apache-2.0
"""Rule: ask by memory. `gpu:20gb:1` becomes the smallest GPU or slice that holds 20 GB.

Sizes are nominal, as profile names say them: 20gb, 20g and 20gib all mean a device sold as
20 GB or more. Smallest: least memory, then least compute, then the type's name. A job that
names no partition stays in the default one if it can, else it moves to one that has the device.
Larger types that would do as well are noted as flavours, to which the updater may widen the job.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from fairwatt.core.records import JobRequest
from fairwatt.slurm_plugins.demand import as_text, demand, retyped, wanted
from fairwatt.slurm_plugins.message import Message, Note
from fairwatt.slurm_plugins.outcome import Outcome
from fairwatt.slurm_plugins.place import choose, moved
from fairwatt.slurm_plugins.rule import Options, RuleSpec
from fairwatt.slurm_plugins.site import Site
from fairwatt.slurm_plugins.words import Vocabulary, memory_mib, memory_text

__all__ = ["RULE", "MemoryOptions", "memory_fit", "memory_mib"]

FW101 = Message(
    "FW101",
    "Memory became a type",
    "{asked} -> {given}: the smallest with {memory} in {where}",
    "Nothing to do; to choose yourself, name a type.",
)
FW102 = Message(
    "FW102",
    "No GPU has that memory",
    "no GPU in {where} has {memory}; {offer}",
    "Ask for less, or use the partition that the message names.",
)
FW103 = Message(
    "FW103",
    "Not that many with that memory",
    "{asked}: {where} has no room for that many GPUs with {memory}; {offer}",
    "Ask for fewer GPUs, or spread them over more nodes.",
)
FW104 = Message(
    "FW104",
    "A count that looks like memory",
    "{asked} asks for {count} GPUs; for memory write {offer}",
    "Write the unit as gb and add a count: gpu:20gb:1.",
)

MAX_FLAVOURS = 4
_GIB = 1 << 30


class MemoryOptions(Options, frozen=True):
    """`widen`: whether the updater may give a job that waits long a larger type."""

    widen: bool = True


def memory_fit(request: JobRequest, site: Site, options: MemoryOptions | None = None) -> Outcome:
    """Replace each memory size by the smallest GRES type that holds it."""
    widen = MAX_FLAVOURS if options is None or options.widen else 0
    current, notes = request, list[Note]()
    for size in _sizes(request, site):
        need = demand(current, [ask for ask in wanted(current) if ask.type == size])
        choice = choose(current, site, _by_size(site, size), need, widen)
        if choice is None:
            return Outcome(request, rejection=_refusal(request, site, size))
        changed = moved(retyped(current, {size: choice.type}), choice.place)
        notes.append(_explained(current, changed, site, size))
        # Of several types in one job none can be exchanged alone.
        alone = all(ask.type == choice.type for ask in wanted(changed))
        current = replace(changed, flavours=choice.flavours if alone else ())
    return Outcome(current, tuple(notes), _mistaken_count(request))


def _sizes(request: JobRequest, site: Site) -> list[str]:
    """The memory sizes that stand where a type should, each once, in order."""
    types = dict.fromkeys(ask.type for ask in wanted(request) if ask.type not in site.types)
    return [type_ for type_ in types if type_ is not None and memory_mib(type_) is not None]


def _by_size(site: Site, size: str) -> tuple[str | None, ...]:
    """The cluster's types that hold so much, smallest first."""
    return Vocabulary(site).read(size).types


def _explained(before: JobRequest, after: JobRequest, site: Site, size: str) -> Note:
    asked = as_text(ask for ask in before.gpus if ask.type == size)
    given = as_text(b for b in after.gpus if b not in before.gpus)
    return FW101.note(asked=asked, given=given, memory=_shown(size), where=site.where(after))


def _refusal(request: JobRequest, site: Site, size: str) -> Note:
    """Tell memory that nobody has from counts that nobody has, and offer the nearest."""
    here = site.pool(request).types
    fitting = [type_ for type_ in _permitted(request, site, size) if type_ in here]
    if not fitting:
        return FW102.note(
            memory=_shown(size), where=site.where(request), offer=_larger(request, site, size)
        )
    counts = ", ".join(f"gpu:{t}:{site.pool(request).most(t)}" for t in fitting[:3])
    return FW103.note(
        asked=as_text(ask for ask in request.gpus if ask.type == size),
        memory=_shown(size),
        where=site.where(request),
        offer=f"a node has at most {counts}",
    )


def _permitted(request: JobRequest, site: Site, size: str) -> list[str]:
    barred = request.barred_types
    return [type_ for type_ in _by_size(site, size) if type_ and type_ not in barred]


def _larger(request: JobRequest, site: Site, size: str) -> str:
    """Where the size exists, else the largest that exists."""
    fitting = _permitted(request, site, size)
    if fitting:
        return f"gpu:{fitting[0]}:1 is in partition {_first(site.partitions_with(fitting[0]))}"
    largest = _permitted(request, site, "0gb")[-1:]
    return f"the largest here is gpu:{largest[0]}:1" if largest else "no GPU's memory is known"


def _first(names: Sequence[str]) -> str:
    return names[0] if names else "(none)"


def _shown(size: str) -> str:
    return memory_text(memory_mib(size) or 0)


def _mistaken_count(request: JobRequest) -> Note | None:
    """`gpu:20g` without a count: Slurm reads it as 20 x 2^30 GPUs."""
    for ask in request.gpus:
        if ask.type is None and ask.count >= _GIB and ask.count % _GIB == 0:
            size = f"{ask.count // _GIB}g"
            offer = f"gpu:{size}b:1"
            return FW104.note(asked=f"gpu:{size}", count=ask.count, offer=offer)
    return None


RULE = RuleSpec(
    name="memory_fit",
    title="Ask by memory: the smallest GPU or slice that holds it.",
    judge=memory_fit,
    options=MemoryOptions,
    mode="enforce",
    messages=(
        FW101,
        FW102,
        FW103,
        FW104,
    ),
)
