# SPDX-License-Identifier: Apache-2.0
"""The nodes as slurmctld has them, with what is in use, from its JSON of 22.05 to 26.05; pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

import msgspec

from fairwatt.core.errors import GrammarError
from fairwatt.core.gres import Gres, parse_node_gres
from fairwatt.core.slurm_json import Count, Words, count, no_known_shape, words

__all__ = ["DRAIN_REASON", "NodeRecord", "NodeUse", "read_nodes"]

DRAIN_REASON = "fairwatt FWM"
"""How the reason of a node begins that is drained for a new layout."""

NodeUse = Literal["idle", "busy", "draining", "out"]
_RUNS = {"IDLE", "MIXED", "ALLOCATED", "COMPLETING"}
_OFF = {
    *("DOWN", "FAIL", "FAILING", "ERROR", "UNKNOWN", "FUTURE", "NOT_RESPONDING", "NO_RESPOND"),
    *("INVALID", "INVALID_REG", "MAINT", "MAINTENANCE", "REBOOT", "REBOOT_ISSUED"),
    *("REBOOT_REQUESTED", "POWERED_DOWN", "POWER_DOWN", "POWERING_DOWN", "POWERING_UP"),
    *("PLANNED_DOWN", "RES", "RESERVED"),
}


@dataclass(frozen=True)
class NodeRecord:
    """A node: its GPUs by type, how many are in use, since when it is so.

    `use`: "idle", "busy" (jobs run), "draining" (for a new layout, by us), "out" (no jobs start).
    """

    name: str
    use: NodeUse
    has_jobs: bool
    gpus: dict[str | None, int]
    used: dict[str | None, int]
    partitions: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()
    idle_since_ts: int | None = None
    started_ts: int | None = None
    gres: tuple[Gres, ...] = ()


class _Raw(msgspec.Struct):
    name: str
    state: Words
    state_flags: Words = None
    reason: str | None = ""
    gres: str | None = ""
    gres_used: str | None = ""
    partitions: Words = None
    features: Words = None
    active_features: Words = None
    alloc_cpus: Count = None
    last_busy: Count = None
    slurmd_start_time: Count = None


class _Answer(msgspec.Struct):
    nodes: list[_Raw]


def read_nodes(text: str) -> list[NodeRecord]:
    """Read `scontrol show nodes --json` or `sinfo --json`.

    Raises:
        SlurmError: the answer has no known shape.
    """
    try:
        return [_record(raw) for raw in msgspec.json.decode(text, type=_Answer).nodes]
    except (msgspec.MsgspecError, UnicodeError, GrammarError) as error:
        raise no_known_shape("scontrol show nodes --json", error) from error


def _record(raw: _Raw) -> NodeRecord:
    gres = parse_node_gres(raw.gres or "")
    used = _by_type(parse_node_gres(raw.gres_used or ""))
    states = {word.upper() for word in (*words(raw.state), *words(raw.state_flags))}
    has_jobs = bool(count(raw.alloc_cpus)) or any(used.values()) or "COMPLETING" in states
    return NodeRecord(
        name=raw.name,
        use=_use(states, raw.reason or "", has_jobs),
        has_jobs=has_jobs,
        gpus=_by_type(gres),
        used=used,
        partitions=frozenset(words(raw.partitions)),
        features=frozenset(words(raw.active_features or raw.features)),
        idle_since_ts=count(raw.last_busy) or None,
        started_ts=count(raw.slurmd_start_time) or None,
        gres=gres,
    )


def _use(states: set[str], reason: str, has_jobs: bool) -> NodeUse:
    if not states & _RUNS or states & _OFF:
        return "out"
    if states & {"DRAIN", "DRAINED", "DRAINING"}:
        return "draining" if reason.startswith(DRAIN_REASON) else "out"
    return "busy" if has_jobs else "idle"


def _by_type(gres: tuple[Gres, ...]) -> dict[str | None, int]:
    counts: Counter[str | None] = Counter()
    for each in gres:
        if each.is_gpu:
            counts[each.type] += each.count
    return dict(counts)
