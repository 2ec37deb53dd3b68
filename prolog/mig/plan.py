# SPDX-License-Identifier: Apache-2.0
"""Chooses which nodes to cut anew for the jobs that wait; pure, changes nothing.

Each node has options: the layouts it could have, the present one first. A choice takes one option
per node. The best choice is, in this order:

1. the one with which most waiting jobs start (tasks of an array count one each),
2. of these the one with the fewest nodes that must be drained first, then the fewest nodes
   changed, then the fewest boards changed,
3. of these the one that leaves least board memory outside any GPU instance,
4. of these the one with most GPUs of the types for which jobs waited long lately.

Never chosen is what would leave less of a type than `keep` says, or what would leave a waiting job
no nodes at all on which it could ever run, if there are such now: Slurm would hold it.

Up to EXACT_CHOICES choices all are tried (nodes that are alike count once); beyond that, changes
are added one kind at a time while they help.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement, product
from math import comb, prod

from fairwatt.prolog.mig.demand import Demand
from fairwatt.prolog.mig.starting import Place, Start, starts

__all__ = [
    "EXACT_CHOICES",
    "Choice",
    "Option",
    "PlanNode",
    "Score",
    "best_choice",
    "runnable",
    "score",
    "started",
]

EXACT_CHOICES = 2_000
_ROUNDS = 64

Choice = dict[str, int]
"""The index of the option taken, by node; nodes left out keep their present layout."""

Score = tuple[float, ...]


@dataclass(frozen=True)
class Option:
    """What a node could be: a layout per board, the GPUs it has and has free then, its price.

    `drains`: jobs must end first. `changed`: how many boards are cut anew.
    """

    layouts: tuple[str, ...]
    gives: Mapping[str | None, int]
    free: Mapping[str | None, int]
    changed: int = 0
    drains: bool = False
    wasted_mib: int = 0

    @property
    def key(self) -> tuple[object, ...]:
        """What makes two options alike to the search."""
        counts = (tuple(sorted(each.items(), key=str)) for each in (self.gives, self.free))
        return (*counts, self.changed, self.drains, self.wasted_mib)


@dataclass(frozen=True)
class PlanNode:
    """A node and its options, the present layout first; `numbers` are those of its boards."""

    name: str
    options: tuple[Option, ...]
    partitions: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()
    numbers: tuple[int, ...] = ()
    note: str | None = None
    state: str = "idle"


@dataclass(frozen=True)
class _Problem:
    nodes: tuple[PlanNode, ...]
    demands: tuple[Demand, ...]
    floors: tuple[tuple[frozenset[str], int], ...]
    waits: Mapping[str, float] = field(default_factory=dict)
    runnable: set[int] = field(default_factory=set)
    """The demands (by index) for which there are nodes at present, busy or not."""


def best_choice(
    nodes: Sequence[PlanNode],
    demands: Sequence[Demand],
    keep: Mapping[str, int] | None = None,
    waits: Mapping[str, float] | None = None,
    *,
    protect: bool = True,
) -> tuple[Choice, bool]:
    """Return the nodes to change with the option for each, and whether all choices were tried.

    Args:
        nodes: all nodes on which waiting jobs might start.
        demands: what waits, most urgent first.
        keep: the least to remain by type (`a100_1g.5gb`) or profile (`1g.5gb`).
        waits: how long jobs waited lately, in seconds, by type.
        protect: leave every waiting job nodes on which it could run.
    """
    relevant = tuple(_relevant(nodes, demands))
    rest = _total(node.options[0] for node in nodes if node not in relevant)
    floors = tuple(
        (types, least - sum(rest[type_] for type_ in types))
        for types, least in _floors(nodes, keep or {})
    )
    problem = _Problem(relevant, tuple(demands), floors, waits or {})
    if protect:
        problem.runnable.update(runnable(relevant, demands, {}))
    groups = _groups(problem)
    sizes = [comb(len(each) + len(options) - 1, len(each)) for each, options in groups]
    if prod(sizes) <= EXACT_CHOICES:
        return _cheapest(problem, _all_choices(groups)), True
    return _climb(problem, groups), False


def score(
    nodes: Sequence[PlanNode],
    demands: Sequence[Demand],
    choice: Choice,
    waits: Mapping[str, float] | None = None,
) -> Score:
    """Return how good a choice is; the greatest is best."""
    taken = [(node, node.options[choice.get(node.name, 0)]) for node in nodes]
    changed = [option for _, option in taken if option.changed]
    found = started(nodes, demands, choice)
    asked = waits or {}
    return (
        sum(each.copies for each in found),
        -sum(option.drains for option in changed),
        -len(changed),
        -sum(option.changed for option in changed),
        -sum(option.wasted_mib for _, option in taken),
        sum(asked.get(str(t), 0) * n for _, option in taken for t, n in option.gives.items()),
    )


def started(nodes: Sequence[PlanNode], demands: Sequence[Demand], choice: Choice) -> list[Start]:
    """Return what could start once a choice is carried out."""
    places = [
        Place(
            node.name,
            node.options[choice.get(node.name, 0)].free,
            node.partitions,
            node.features,
        )
        for node in nodes
    ]
    return starts(places, demands)


def _relevant(nodes: Sequence[PlanNode], demands: Sequence[Demand]) -> Iterator[PlanNode]:
    """Nodes with a choice, or with something that is asked for."""
    wanted = {type_ for demand in demands for type_ in demand.needs}
    for node in nodes:
        gives = node.options[0].gives
        if len(node.options) > 1 or None in wanted or any(gives.get(t) for t in wanted):
            yield node


def _floors(
    nodes: Sequence[PlanNode], keep: Mapping[str, int]
) -> Iterator[tuple[frozenset[str], int]]:
    """Sets of types of which so many must remain, never more than there are now."""
    present = _total(node.options[0] for node in nodes)
    every = {str(t) for node in nodes for option in node.options for t in option.gives}
    for word, least in keep.items():
        types = frozenset(t for t in every if t == word or t.endswith(f"_{word}"))
        yield types, min(least, sum(present[t] for t in types))


def runnable(
    nodes: Sequence[PlanNode], demands: Sequence[Demand], choice: Choice
) -> Iterator[int]:
    """Yield the demands for which there are enough nodes with all they need, were they idle."""
    for index, demand in enumerate(demands):
        able = sum(
            demand.may_use(node.name, node.partitions, node.features)
            and _gives(node.options[choice.get(node.name, 0)], demand)
            for node in nodes
        )
        if able >= demand.nodes:
            yield index


def _gives(option: Option, demand: Demand) -> bool:
    return all(
        (sum(option.gives.values()) if type_ is None else option.gives.get(type_, 0)) >= count
        for type_, count in demand.needs.items()
    )


def _total(options: Iterable[Option]) -> Counter[str]:
    total: Counter[str] = Counter()
    for option in options:
        for type_, count in option.gives.items():
            total[str(type_)] += count
    return total


def _holds(problem: _Problem, choice: Choice) -> bool:
    total = _total(node.options[choice.get(node.name, 0)] for node in problem.nodes)
    enough = all(sum(total[t] for t in types) >= least for types, least in problem.floors)
    return enough and problem.runnable <= set(runnable(problem.nodes, problem.demands, choice))


_Group = tuple[tuple[PlanNode, ...], tuple[int, ...]]
"""Nodes that are alike, and the indices of the options worth trying on them."""


def _groups(problem: _Problem) -> list[_Group]:
    """Nodes with a choice. Named by a job's own node list, a node is like no other."""
    named = {
        name for each in problem.demands for name in (each.required or frozenset()) | each.excluded
    }
    alike: dict[tuple[object, ...], list[PlanNode]] = {}
    for node in problem.nodes:
        own = node.name if node.name in named else None
        keys = tuple(option.key for option in node.options)
        alike.setdefault((own, node.partitions, node.features, keys), []).append(node)
    groups = [(tuple(nodes), _worth_trying(problem, nodes[0])) for nodes in alike.values()]
    return [group for group in groups if len(group[1]) > 1]


def _worth_trying(problem: _Problem, node: PlanNode) -> tuple[int, ...]:
    """The present option, and those that differ from it in a type that matters.

    Another that does not is never better: it costs a change and starts nothing.
    """
    wanted = {type_ for demand in problem.demands for type_ in demand.needs}
    kept = frozenset().union(*(types for types, _ in problem.floors))

    def matters(option: Option) -> tuple[object, ...]:
        typed = sorted({*kept, *map(str, wanted - {None})})
        counts = [(option.free.get(t, 0), option.gives.get(t, 0)) for t in typed]
        untyped = (sum(option.free.values()), sum(option.gives.values()))
        return (counts, untyped if None in wanted else None)

    present = matters(node.options[0])
    others = (i for i, option in enumerate(node.options) if i and matters(option) != present)
    return (0, *others)


def _all_choices(groups: Sequence[_Group]) -> Iterator[Choice]:
    """Every way to choose, of nodes that are alike only how many take which option."""
    ways = [
        [tuple(zip(nodes, each, strict=True)) for each in _multisets(indices, len(nodes))]
        for nodes, indices in groups
    ]
    for combination in product(*ways):
        yield {node.name: index for way in combination for node, index in way if index}


def _multisets(indices: Sequence[int], count: int) -> Iterator[tuple[int, ...]]:
    return combinations_with_replacement(indices, count)


def _cheapest(problem: _Problem, choices: Iterable[Choice]) -> Choice:
    best: Choice = {}
    most = _score(problem, best)
    for choice in choices:
        if choice and _holds(problem, choice):
            found = _score(problem, choice)
            if found > most:
                best, most = choice, found
    return best


def _climb(problem: _Problem, groups: Sequence[_Group]) -> Choice:
    """Add the change that helps most, until none does; some jobs need several nodes at once."""
    choice: Choice = {}
    sizes = sorted({1, *(each.nodes for each in problem.demands)})
    for _ in range(_ROUNDS):
        steps = [step for step in _steps(groups, choice, sizes) if _holds(problem, step)]
        better = max(steps, key=lambda step: _score(problem, step), default=choice)
        if _score(problem, better) <= _score(problem, choice):
            break
        choice = better
    return choice


def _steps(groups: Sequence[_Group], choice: Choice, sizes: Sequence[int]) -> Iterator[Choice]:
    """All choices one change away; some sizes of jobs need several nodes changed at once."""
    for nodes, indices in groups:
        resting = [node.name for node in nodes if node.name not in choice]
        moved = [node.name for node in nodes if node.name in choice]
        heads = [resting[:size] for size in sizes if size <= len(resting)]
        for index, names in product(indices, [*heads, moved[:1]]):
            step = {**choice, **dict.fromkeys(names, index)}
            yield {name: number for name, number in step.items() if number}


def _score(problem: _Problem, choice: Choice) -> Score:
    return score(problem.nodes, problem.demands, choice, problem.waits)
