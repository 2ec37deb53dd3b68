# SPDX-License-Identifier: Apache-2.0
"""Rule: ask by memory. `gpu:20gb:1` becomes the smallest GPU or slice that holds 20 GB.

Sizes are nominal, as profile names say them: 20gb, 20g and 20gib all mean a device sold as
20 GB or more. Smallest: least memory, then least compute, then the type's name. A job that
names no partition stays in the default one if it can, else it moves to one that has the device.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from fairwatt.core.records import JobRequest
from fairwatt.slurm_plugins.demand import as_text, demand, retyped, wanted
from fairwatt.slurm_plugins.message import Message, Note
from fairwatt.slurm_plugins.outcome import Outcome
from fairwatt.slurm_plugins.place import Place, find_place, moved
from fairwatt.slurm_plugins.rule import Options, RuleSpec
from fairwatt.slurm_plugins.site import Site

__all__ = ["RULE", "memory_fit", "memory_mib"]

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

_MEMORY = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)(g|gb|gib|m|mb|mib)", re.IGNORECASE)
_GIB = 1 << 30


def memory_fit(request: JobRequest, site: Site, _: Options | None = None) -> Outcome:
    """Replace each memory size by the smallest GRES type that holds it."""
    current, notes = request, list[Note]()
    for size in _sizes(request):
        found = _smallest(current, site, size)
        if found is None:
            return Outcome(request, rejection=_refusal(request, site, size))
        type_, place = found
        changed = moved(retyped(current, {size: type_}), place)
        notes.append(_explained(current, changed, site, size))
        current = changed
    return Outcome(current, tuple(notes), _mistaken_count(request))


def memory_mib(type_: str | None) -> int | None:
    """Read a type such as `20gb`, `20G` or `4864mib` as MiB, rounded up; None: no memory size."""
    match = _MEMORY.fullmatch(type_ or "")
    if match is None:
        return None
    unit = 1024 if match[2][0] in "gG" else 1
    return -int(-float(match[1]) * unit // 1)


def _sizes(request: JobRequest) -> list[str]:
    """The memory sizes that stand where a type should, each once, in order."""
    types = [ask.type for ask in wanted(request) if memory_mib(ask.type) is not None]
    return [type_ for type_ in dict.fromkeys(types) if type_ is not None]


def _smallest(request: JobRequest, site: Site, size: str) -> tuple[str, Place] | None:
    """The smallest type that holds the size and is there in sufficient number, with the place."""
    need = demand(request, [ask for ask in wanted(request) if ask.type == size])
    for type_ in _by_size(site, memory_mib(size) or 0):
        place = find_place(request, site, type_, need)
        if place is not None:
            return type_, place
    return None


def _by_size(site: Site, need_mib: int) -> list[str]:
    """The cluster's types that hold so much, smallest first."""
    fitting = [
        (known.memory_mib, known.milli, name)
        for name, known in site.types.items()
        if name is not None and known.memory_mib is not None and known.memory_mib >= need_mib
    ]
    return [name for _, _, name in sorted(fitting)]


def _explained(before: JobRequest, after: JobRequest, site: Site, size: str) -> Note:
    asked = as_text(ask for ask in before.gpus if ask.type == size)
    given = as_text(b for b in after.gpus if b not in before.gpus)
    return FW101.note(asked=asked, given=given, memory=_shown(size), where=site.where(after))


def _refusal(request: JobRequest, site: Site, size: str) -> Note:
    """Tell memory that nobody has from counts that nobody has, and offer the nearest."""
    here = {type_ for type_ in site.pool(request).types if type_ is not None}
    fitting = [type_ for type_ in _by_size(site, memory_mib(size) or 0) if type_ in here]
    if not fitting:
        return FW102.note(
            memory=_shown(size), where=site.where(request), offer=_larger(site, size)
        )
    counts = ", ".join(f"gpu:{t}:{site.pool(request).most(t)}" for t in fitting[:3])
    return FW103.note(
        asked=as_text(ask for ask in request.gpus if ask.type == size),
        memory=_shown(size),
        where=site.where(request),
        offer=f"a node has at most {counts}",
    )


def _larger(site: Site, size: str) -> str:
    """Where the size exists, else the largest that exists."""
    fitting = _by_size(site, memory_mib(size) or 0)
    if fitting:
        return f"gpu:{fitting[0]}:1 is in partition {_first(site.partitions_with(fitting[0]))}"
    largest = _by_size(site, 0)[-1:]
    return f"the largest here is gpu:{largest[0]}:1" if largest else "no GPU's memory is known"


def _first(names: Sequence[str]) -> str:
    return names[0] if names else "(none)"


def _shown(size: str) -> str:
    mib = memory_mib(size) or 0
    return f"{mib // 1024} GB" if mib % 1024 == 0 else f"{mib} MB"


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
    mode="enforce",
    messages=(
        FW101,
        FW102,
        FW103,
        FW104,
    ),
)
