# SPDX-License-Identifier: Apache-2.0
"""Boards that several jobs share: which part of one a job holds, by shards or MPS. Pure.

Slurm's prolog tells of MPS a percentage, of shards nothing (22.05 to 26.05): a job with one shard
looks like a job with the whole GPU. Where the node has shards, the agent therefore takes one of
them for granted, asks slurmctld (`scontrol show job -d`), and corrects the run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from fairwatt.accounting.agent.device_map import Place
from fairwatt.core.conf_lines import ConfLine, names_node
from fairwatt.core.errors import ConfigError, GrammarError
from fairwatt.core.events import DeviceHold
from fairwatt.core.gres import Gres, parse_node_gres
from fairwatt.core.gres_conf import GresConf, expand_files

__all__ = [
    "Counts",
    "MPS_VARIABLE",
    "WHOLE",
    "ASSUMED",
    "Part",
    "corrected",
    "mps_part",
    "parts_of_job",
    "counts_of_node",
    "with_part",
]

ASSUMED = "assumed-share"
"""How a run is mapped whose part of a shared board slurmctld has not told yet."""

MPS_VARIABLE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
"""Slurm sets it for MPS jobs and for no others."""

Counts = Mapping[str, Sequence[int]]
"""By kind (shard, mps): into how many parts the GPU at each position is cut; 0: not at all."""

_SHARED = ("shard", "mps")
_NODE_LINE = re.compile(r"^[ ]+Nodes=(\S+) CPU_IDs=\S* Mem=\d+ GRES=(\S*)", re.MULTILINE)
_PART = re.compile(r"(\d+)/(\d+)")


class Part(NamedTuple):
    """`numerator` of `denominator` equal parts of a board."""

    numerator: int
    denominator: int


WHOLE = Part(1, 1)


def counts_of_node(
    lines: Iterable[ConfLine], node: str, gres: GresConf | None, boards: int
) -> Counts:
    """Return into how many shards, and MPS parts, gres.conf's lines cut the GPU at each position.

    A Count= without File= is spread over all GPUs, the remainder to the last, as Slurm does.

    Raises:
        ConfigError: a host list or count that cannot be read.
    """
    positions = gres.positions if gres is not None else ()
    counts = {name: [0] * (len(positions) or boards) for name in _SHARED}
    place_of = {device.files[0]: place for place, device in enumerate(positions) if device.files}
    for line in lines:
        name = line.values.get("name", "").lower()
        if name not in counts or ("nodename" in line.values and not names_node(line, node)):
            continue
        files = expand_files(line.values.get("file", ""))
        places = [place_of[file] for file in files if file in place_of]
        over = places or range(len(counts[name]))
        for place, count in zip(over, _spread(_count(line), len(over)), strict=True):
            counts[name][place] = count
    return counts


def _count(line: ConfLine) -> int:
    text = line.values.get("count", "1")
    if not text.isdigit():
        raise ConfigError(
            "Count is no number", place=line.place, value=text, remedy="mend the line"
        )
    return int(text)


def _spread(count: int, over: int) -> list[int]:
    """Divide as Slurm does: the n-th of N gets the rounded-down mean of what is left."""
    parts = []
    for left in range(over, 0, -1):
        parts.append(count // left)
        count -= parts[-1]
    return parts


def mps_part(env: Mapping[str, str]) -> Part | None:
    """Return the part that MPS limits a job to, None where that is not told.

    slurmd tells 0 where it does not find the GPU's count (22.05 to 26.05).
    """
    text = env.get(MPS_VARIABLE, "")
    if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) <= 100):
        return None
    return Part(int(text), 100)


def parts_of_job(text: str, node: str, counts: Counts) -> dict[int, Part] | None:
    """Return the part of each GPU position that a job holds here, from `scontrol show job -d`.

    None where the text does not say it beyond doubt. A job's name may hold line breaks, so only
    a single line for this node counts.

    Args:
        text: what scontrol printed.
        node: Slurm's name of this node.
        counts: into how many parts each position is cut.
    """
    lines = [gres for nodes, gres in _NODE_LINE.findall(text) if _names(nodes, node)]
    if len(lines) != 1 or text.count("JOB_GRES=") != 1:
        return None
    try:
        items = parse_node_gres(lines[0])
        parts = [part for item in items for part in _parts(item, counts)]
    except (GrammarError, ValueError, IndexError):
        return None
    return dict(parts) if parts and len(dict(parts)) == len(parts) else None


def _names(hostlist: str, node: str) -> bool:
    try:
        return names_node(ConfLine("scontrol", {"nodename": hostlist}), node)
    except ConfigError:
        return False


def _parts(item: Gres, counts: Counts) -> list[tuple[int, Part]]:
    if item.is_gpu:
        return [(position, WHOLE) for position in item.indices]
    if item.name not in _SHARED:
        return []
    if item.indices:  # Slurm before 23.11 names the boards, not how much of each
        total = sum(counts[item.name][position] for position in item.indices)
        return [(position, Part(item.count, total)) for position in item.indices if total]
    told = [_PART.fullmatch(word) for suffix in item.suffixes for word in suffix.split(",")]
    pairs = [(int(match[1]), int(match[2])) for match in told if match]
    return [
        (position, Part(held, total))
        for position, (held, total) in enumerate(pairs)
        if held and total
    ]


def with_part(hold: DeviceHold, part: Part) -> DeviceHold:
    """Return a whole board's hold cut to `part`; a slice stays as it is."""
    if hold.instance:
        return hold
    return msgspec.structs.replace(
        hold, numerator=min(part.numerator, part.denominator), denominator=part.denominator
    )


def corrected(
    holds: Sequence[DeviceHold], places: Iterable[Place], parts: Mapping[int, Part]
) -> tuple[DeviceHold, ...] | None:
    """Return the holds with the parts that slurmctld told; None if a board is not among them."""
    position_of = {place.uuid: place.position for place in places}
    result = []
    for hold in holds:
        position = position_of.get(hold.device)
        if not hold.instance and position not in parts:
            return None
        result.append(hold if hold.instance else with_part(hold, parts[position or 0]))
    return tuple(result)
