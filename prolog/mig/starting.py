# SPDX-License-Identifier: Apache-2.0
"""Which waiting jobs could start on given free GPUs: most urgent first, best fit; pure.

Only GPUs count: CPUs, memory and limits are Slurm's affair.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fairwatt.prolog.mig.demand import Demand

__all__ = ["Place", "Start", "starts"]

_Free = dict[str | None, int]


@dataclass(frozen=True)
class Place:
    """A node's free GPUs by type, and what jobs ask of a node."""

    name: str
    free: Mapping[str | None, int]
    partitions: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Start:
    """So many copies of a demand (its index) start on these nodes."""

    demand: int
    nodes: tuple[str, ...]
    copies: int


def starts(places: Sequence[Place], demands: Sequence[Demand]) -> list[Start]:
    """Return what starts, demand by demand in their order; each takes the tightest nodes."""
    free: dict[str, _Free] = {place.name: dict(place.free) for place in places}
    wanted = {type_ for demand in demands for type_ in demand.needs}
    found: list[Start] = []
    for index, demand in enumerate(demands):
        able = [
            place.name
            for place in places
            if demand.may_use(place.name, place.partitions, place.features)
        ]
        found += _start(index, demand, able, free, wanted)
    return found


def _start(
    index: int,
    demand: Demand,
    able: Sequence[str],
    free: dict[str, _Free],
    wanted: set[str | None],
) -> Iterator[Start]:
    left = demand.copies
    while left > 0:
        fitting = [name for name in able if _times(demand.needs, free[name]) > 0]
        if len(fitting) < demand.nodes:
            return
        fitting.sort(key=lambda name: (_spare(demand.needs, free[name]), name))
        chosen = tuple(fitting[: demand.nodes])
        copies = min(left, *(_times(demand.needs, free[name]) for name in chosen))
        for name in chosen:
            _take(demand.needs, free[name], copies, wanted)
        left -= copies
        yield Start(index, chosen, copies)


def _times(needs: Mapping[str | None, int], free: _Free) -> int:
    return min(_has(free, type_) // count for type_, count in needs.items())


def _spare(needs: Mapping[str | None, int], free: _Free) -> int:
    return sum(_has(free, type_) for type_ in needs)


def _has(free: _Free, type_: str | None) -> int:
    return sum(free.values()) if type_ is None else free.get(type_, 0)


def _take(
    needs: Mapping[str | None, int], free: _Free, copies: int, wanted: set[str | None]
) -> None:
    for type_, count in needs.items():
        if type_ is not None:
            free[type_] -= count * copies
    for _ in range(needs.get(None, 0) * copies):
        # Any GPU does: one that nobody asks for by name, if there is one.
        left = [each for each, count in free.items() if count > 0]
        free[min(left, key=lambda each: (each in wanted, str(each)))] -= 1
