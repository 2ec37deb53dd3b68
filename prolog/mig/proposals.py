# SPDX-License-Identifier: Apache-2.0
"""From a choice to an ordered list of proposals in plain words; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fairwatt.prolog.mig.demand import Demand, merged
from fairwatt.prolog.mig.layout import GpuSet, MigFile, NodeLayout
from fairwatt.prolog.mig.plan import (
    Choice,
    Option,
    PlanNode,
    best_choice,
    runnable,
    score,
    started,
)
from fairwatt.prolog.mig.starting import Start

__all__ = ["BoardChange", "Plan", "Proposal", "Waiting", "as_text", "make_plan", "proposed_layout"]

_MOST_SHOWN = 6


@dataclass(frozen=True)
class BoardChange:
    """A board, by N of /dev/nvidiaN, its layout now and then."""

    number: int
    before: str
    after: str


@dataclass(frozen=True)
class Proposal:
    """Cut some boards of a node anew.

    `starts`: jobs that then can start here and now cannot, with how many tasks of each.
    `drain_first`: jobs run there, so it takes until they end. `gives`, `takes`: GPUs by type.
    """

    node: str
    boards: tuple[BoardChange, ...]
    drain_first: bool
    starts: tuple[tuple[str, int], ...]
    gives: Mapping[str, int]
    takes: Mapping[str, int]
    why: str


@dataclass(frozen=True)
class Waiting:
    """What waits for one type (None: any GPU): jobs, GPUs, the longest wait, jobs that fit now."""

    type: str | None
    jobs: int
    gpus: int
    oldest_s: int
    can_start: int


@dataclass(frozen=True)
class Plan:
    """Proposals in the order of their worth, what waits, and notes on what is left alone.

    `tried_all`: every choice was compared, so there is no better one.
    """

    proposals: tuple[Proposal, ...]
    waiting: tuple[Waiting, ...]
    notes: tuple[str, ...]
    starts_now: int
    starts_then: int
    tried_all: bool
    dry_run: bool = True


def make_plan(
    nodes: Sequence[PlanNode],
    demands: Sequence[Demand],
    mig: MigFile,
    waits: Mapping[str, float] | None = None,
) -> Plan:
    """Choose what to change for the jobs that wait, and say why."""
    ripe = [each for each in demands if each.wait_s >= mig.plan.min_wait_s]
    kinds, members = merged(ripe)
    choice, tried_all = best_choice(nodes, kinds, mig.plan.keep, waits)
    forgone = _forgone(nodes, (kinds, members), mig, choice)
    return Plan(
        proposals=tuple(_proposals(nodes, kinds, members, choice)),
        waiting=tuple(_waiting(nodes, merged(demands)[0])),
        notes=(*_notes(nodes, demands, ripe), *forgone),
        starts_now=sum(each.copies for each in started(nodes, kinds, {})),
        starts_then=sum(each.copies for each in started(nodes, kinds, choice)),
        tried_all=tried_all,
        dry_run=mig.plan.dry_run,
    )


def proposed_layout(proposal: Proposal, mig: MigFile) -> NodeLayout:
    """Return a proposal as a declared layout, of the boards that it changes only."""
    parts = tuple(
        (GpuSet(numbers=frozenset([change.number])), mig.layouts[change.after])
        for change in proposal.boards
    )
    return NodeLayout(proposal.node, parts, "plan")


def _proposals(
    nodes: Sequence[PlanNode],
    kinds: Sequence[Demand],
    members: Sequence[Sequence[Demand]],
    choice: Choice,
) -> Iterator[Proposal]:
    """One per changed node; first the one that helps most, then most after it, and so on."""
    by_name = {node.name: node for node in nodes}
    final = started(nodes, kinds, choice)
    told: Counter[int] = Counter()
    for each in started(nodes, kinds, {}):
        told[each.demand] += each.copies
    anyway = Counter(told)
    for name in _order(nodes, kinds, choice):
        new: list[tuple[str, int]] = []
        for index, copies in _copies_on(name, final).items():
            # What could start anyway is counted off at the first changed nodes that have it.
            off = min(copies, anyway[index])
            anyway[index] -= off
            new += _named(members[index], told[index], copies - off)
            told[index] += copies - off
        yield _proposal(by_name[name], by_name[name].options[choice[name]], new)


def _copies_on(name: str, final: Sequence[Start]) -> Counter[int]:
    there: Counter[int] = Counter()
    for each in final:
        if name in each.nodes:
            there[each.demand] += each.copies
    return there


def _named(members: Sequence[Demand], skip: int, take: int) -> Iterator[tuple[str, int]]:
    """The jobs behind so many copies of their kind, after those already told."""
    for each in members:
        passed = min(skip, each.copies)
        taken = min(take, each.copies - passed)
        skip, take = skip - passed, take - taken
        if taken > 0:
            yield each.job, taken


def _order(nodes: Sequence[PlanNode], demands: Sequence[Demand], choice: Choice) -> list[str]:
    done: Choice = {}
    while len(done) < len(choice):
        rest = sorted(choice.keys() - done.keys())
        name = max(rest, key=lambda each: score(nodes, demands, {**done, each: choice[each]}))
        done[name] = choice[name]
    return list(done)


def _proposal(node: PlanNode, option: Option, new: Sequence[tuple[str, int]]) -> Proposal:
    present = node.options[0]
    changes = tuple(
        BoardChange(number, before, after)
        for number, before, after in zip(
            node.numbers, present.layouts, option.layouts, strict=True
        )
        if before != after
    )
    gives = {str(t): n for t, n in _less(option.gives, present.gives).items()}
    takes = {str(t): n for t, n in _less(present.gives, option.gives).items()}
    return Proposal(
        node=node.name,
        boards=changes,
        drain_first=option.drains,
        starts=tuple(new),
        gives=gives,
        takes=takes,
        why=_why(node, present, sum(copies for _, copies in new), takes),
    )


def _less(one: Mapping[str | None, int], other: Mapping[str | None, int]) -> dict[str | None, int]:
    return {t: n - other.get(t, 0) for t, n in one.items() if n > other.get(t, 0)}


def _why(
    node: PlanNode,
    present: Option,
    number: int,
    takes: Mapping[str, int],
) -> str:
    idle = sum(min(count, present.free.get(type_, 0)) for type_, count in takes.items())
    state = {
        "idle": "the node is idle",
        "busy": "jobs run on the node: it is drained first",
        "draining": "the node is draining for a new layout",
    }.get(node.state, node.state)
    jobs = f"{number} waiting job{'' if number == 1 else 's'} can start"
    unused = f"; {idle} of the {sum(takes.values())} GPUs it gives up are unused" if idle else ""
    return f"{jobs if number else 'makes room for jobs on other nodes'}; {state}{unused}"


def _waiting(nodes: Sequence[PlanNode], demands: Sequence[Demand]) -> Iterator[Waiting]:
    fit: Counter[int] = Counter()
    for each in started(nodes, demands, {}):
        fit[each.demand] += each.copies
    types = dict.fromkeys(type_ for demand in demands for type_ in demand.needs)
    for type_ in sorted(types, key=str):
        mine = [(i, each) for i, each in enumerate(demands) if type_ in each.needs]
        yield Waiting(
            type=type_,
            jobs=sum(each.copies for _, each in mine),
            gpus=sum(each.needs[type_] * each.nodes * each.copies for _, each in mine),
            oldest_s=max(each.wait_s for _, each in mine),
            can_start=sum(fit[i] for i, _ in mine),
        )


def _notes(
    nodes: Sequence[PlanNode], demands: Sequence[Demand], ripe: Sequence[Demand]
) -> Iterator[str]:
    for node in nodes:
        if node.note is not None:
            yield f"{node.name} is left alone: {node.note}"
    had = {t for node in nodes for option in node.options for t in option.gives}
    wanted = {t for demand in demands for t in demand.needs if t is not None}
    for type_ in sorted(wanted - had):
        yield f"no node has {type_} or may be cut so: add a layout with it to plan.allowed"
    if len(ripe) < len(demands):
        yield f"{len(demands) - len(ripe)} records wait for less than min_wait_s: not counted"
    held = [each.job for each in demands if each.held]
    if held:
        yield (
            f"Slurm holds {_some(held)} (BadConstraints): once the type is there again, run "
            f"scontrol release {','.join(held[:_MOST_SHOWN])}"
        )


def _forgone(
    nodes: Sequence[PlanNode],
    demands: tuple[Sequence[Demand], Sequence[Sequence[Demand]]],
    mig: MigFile,
    choice: Choice,
) -> Iterator[str]:
    """What is not proposed because a waiting job would lose its last node."""
    kinds, members = demands
    bold, _ = best_choice(nodes, kinds, mig.plan.keep, protect=False)
    more = int(score(nodes, kinds, bold)[0] - score(nodes, kinds, choice)[0])
    if more > 0:
        lost = set(runnable(nodes, kinds, {})) - set(runnable(nodes, kinds, bold))
        jobs = _some([each.job for index in sorted(lost) for each in members[index]])
        yield f"{more} more could start, but no node would be left for {jobs}: not proposed"


def as_text(plan: Plan) -> str:
    """Return the plan for people."""
    lines = [_waits_line(each) for each in plan.waiting] or ["no job waits for a GPU"]
    if plan.proposals:
        how = "" if plan.tried_all else " (too many choices to try all: a good one, step by step)"
        lines += ["", f"{plan.starts_now} could start now, {plan.starts_then} then{how}:"]
    else:
        lines += ["", "nothing to change"]
    for number, proposal in enumerate(plan.proposals, start=1):
        lines += _proposal_lines(number, proposal)
    return "\n".join([*lines, *([""] if plan.notes else []), *plan.notes])


def _waits_line(each: Waiting) -> str:
    type_ = each.type or "any GPU"
    return (
        f"{each.jobs} wait for {type_} ({each.gpus} GPUs, the oldest for "
        f"{_duration(each.oldest_s)}); {each.can_start} could start now"
    )


def _proposal_lines(number: int, proposal: Proposal) -> list[str]:
    boards = ", ".join(f"{c.number}: {c.before} -> {c.after}" for c in proposal.boards)
    lines = [
        f"{number}. {proposal.node}{' (drain first)' if proposal.drain_first else ''}  {boards}",
        f"   {proposal.why}",
        f"   gives {_amounts(proposal.gives)}; takes {_amounts(proposal.takes)}",
    ]
    jobs = [f"{job} x{copies}" if copies > 1 else job for job, copies in proposal.starts]
    return [*lines, f"   starts {_some(jobs)}"] if jobs else lines


def _amounts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} x {type_}" for type_, count in counts.items()) or "nothing"


def _some(words: Sequence[str]) -> str:
    more = len(words) - _MOST_SHOWN
    return ", ".join(words[:_MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _duration(seconds: int) -> str:
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
