# SPDX-License-Identifier: Apache-2.0
"""What waiting jobs want of GPUs, from `squeue --json` of Slurm 22.05 to 26.05; pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import msgspec
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from fairwatt.core.errors import GrammarError
from fairwatt.core.gres import Gres, parse_request
from fairwatt.core.slurm_json import Count, Words, count, raw_jobs, words

__all__ = ["Demand", "merged", "read_demand"]

BAD_CONSTRAINTS = "BadConstraints"
_REASONS = ("", "None", "Resources", "Priority", "ReqNodeNotAvail", BAD_CONSTRAINTS)
_TASKS = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,6}))?)?")
_SIMPLE = re.compile(r"[\w.-]+(?:&[\w.-]+)*")
_MOST_NAMED = 4096


@dataclass(frozen=True)
class Demand:
    """What one waiting record wants: `needs` on each of `nodes` nodes, `copies` times (array).

    A type None is any GPU. `features` are all wanted; a constraint with more than `&` is not
    read, so the job may fit fewer nodes than it seems. `required` None: any node.
    """

    job: str
    needs: Mapping[str | None, int]
    nodes: int = 1
    copies: int = 1
    wait_s: int = 0
    priority: int = 0
    partitions: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()
    required: frozenset[str] | None = None
    excluded: frozenset[str] = field(default_factory=frozenset)
    held: bool = False

    def may_use(self, name: str, partitions: frozenset[str], features: frozenset[str]) -> bool:
        """Whether a node with these partitions and features is one for it."""
        return (
            (not self.partitions or bool(self.partitions & partitions))
            and self.features <= features
            and (self.required is None or name in self.required)
            and name not in self.excluded
        )


def merged(demands: Iterable[Demand]) -> tuple[list[Demand], list[list[Demand]]]:
    """Return demands that are alike as one each, at the place of the most urgent, and of whom.

    A long queue has few kinds of jobs; `copies` add up, `wait_s` is the longest.
    """
    groups: dict[tuple[object, ...], list[Demand]] = {}
    for each in demands:
        needs = tuple(sorted(each.needs.items(), key=str))
        who = (each.partitions, each.features, each.required, each.excluded)
        groups.setdefault((needs, each.nodes, *who), []).append(each)
    ones = [
        replace(
            members[0],
            copies=sum(each.copies for each in members),
            wait_s=max(each.wait_s for each in members),
        )
        for members in groups.values()
    ]
    return ones, list(groups.values())


class _Raw(msgspec.Struct):
    job_id: int
    job_state: Words
    state_reason: str | None = ""
    array_job_id: Count = None
    array_task_id: Count = None
    array_task_string: str | None = ""
    eligible_time: Count = None
    priority: Count = None
    tres_per_node: str | None = ""
    tres_per_job: str | None = ""
    tres_per_task: str | None = ""
    tres_per_socket: str | None = ""
    partition: str | None = ""
    features: str | None = ""
    required_nodes: str | None = ""
    excluded_nodes: str | None = ""
    node_count: Count = None
    tasks: Count = None


def read_demand(text: str, now_ts: int) -> tuple[list[Demand], int]:
    """Return what waiting jobs want, most urgent first, and how many records cannot be read.

    Left out are jobs that no GPU would start (held by a user, dependency, limits, later begin).

    Raises:
        SlurmError: the answer as a whole has no known shape.
    """
    found: list[Demand] = []
    unreadable = 0
    for body in raw_jobs(text):
        try:
            demand = _demand(msgspec.json.decode(body, type=_Raw), now_ts)
        except (msgspec.MsgspecError, UnicodeError, GrammarError, NodeSetException):
            unreadable += 1
            continue
        if demand is not None:
            found.append(demand)
    return sorted(found, key=lambda each: (-each.priority, -each.wait_s, each.job)), unreadable


def _demand(raw: _Raw, now_ts: int) -> Demand | None:
    reason = raw.state_reason or ""
    held = count(raw.priority) == 0
    if "PENDING" not in words(raw.job_state) or not _would_start(reason, held):
        return None
    nodes = max(1, count(raw.node_count) or 1)
    needs = _needs(raw, nodes)
    if not needs:
        return None
    eligible_ts = count(raw.eligible_time) or now_ts
    constraint = raw.features or ""
    return Demand(
        job=_label(raw),
        needs=needs,
        nodes=nodes,
        copies=_copies(raw),
        wait_s=max(0, now_ts - eligible_ts),
        priority=count(raw.priority) or 0,
        partitions=frozenset(words(raw.partition)),
        features=frozenset(constraint.split("&") if _SIMPLE.fullmatch(constraint) else ()),
        required=_hosts(raw.required_nodes) or None,
        excluded=_hosts(raw.excluded_nodes),
        held=held,
    )


def _would_start(reason: str, held: bool) -> bool:
    """Slurm holds a job for whose type no node is left (BadConstraints): that is demand too."""
    head = re.split(r"[,(]", reason)[0].strip()
    return head in _REASONS and (not held or head == BAD_CONSTRAINTS)


def _needs(raw: _Raw, nodes: int) -> dict[str | None, int]:
    """The GPUs on each node, by type; what is asked for the whole job is spread evenly."""
    total: Counter[str | None] = Counter()
    for each in _gpus(raw.tres_per_job):
        total[each.type] += each.count
    for each in _gpus(raw.tres_per_task):
        total[each.type] += each.count * max(1, count(raw.tasks) or 1)
    needs = Counter({type_: -(-amount // nodes) for type_, amount in total.items()})
    for text in (raw.tres_per_node, raw.tres_per_socket):
        for each in _gpus(text):
            needs[each.type] = max(needs[each.type], each.count)
    return {type_: amount for type_, amount in needs.items() if amount > 0}


def _gpus(text: str | None) -> list[Gres]:
    return [each for each in parse_request(text or "") if each.is_gpu]


def _label(raw: _Raw) -> str:
    array, task = count(raw.array_job_id) or 0, count(raw.array_task_id)
    if not array:
        return str(raw.job_id)
    return f"{array}_[...]" if task is None else f"{array}_{task}"


def _copies(raw: _Raw) -> int:
    """The waiting tasks of an array; Slurm cuts a long list short, then they are a few less."""
    if not count(raw.array_job_id) or count(raw.array_task_id) is not None:
        return 1
    tasks = (raw.array_task_string or "").partition("%")[0]
    return max(1, sum(_length(*match.groups()) for match in _TASKS.finditer(tasks)))


def _length(first: str, last: str | None, step: str | None) -> int:
    return max(0, (int(last or first) - int(first)) // max(1, int(step or 1))) + 1


def _hosts(text: str | None) -> frozenset[str]:
    """A user's list of nodes; one that names too many is taken as naming none."""
    spans: Iterable[tuple[str, str]] = re.findall(r"(\d+)-(\d+)", text or "")
    if any(int(last) - int(first) > _MOST_NAMED for first, last in spans):
        return frozenset()
    return frozenset(map(str, NodeSet(text or "", resolver=RESOLVER_NOGROUP)))
