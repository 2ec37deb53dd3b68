# SPDX-License-Identifier: Apache-2.0
"""Where a job can get a GPU type: its own partition, or another if it named none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from fairwatt.core.records import Flavour, JobRequest
from fairwatt.slurm_plugins.demand import Demand, shortfall
from fairwatt.slurm_plugins.limits import needed_min
from fairwatt.slurm_plugins.site import Site

__all__ = ["Choice", "Place", "choose", "find_place", "may_enter", "moved"]


class Place(msgspec.Struct, frozen=True):
    """The partition to write into the job; None: it stays as it is."""

    partition: str | None = None


class Choice(msgspec.Struct, frozen=True):
    """The type that a job gets, where, and what would do as well, best first."""

    type: str
    place: Place
    flavours: tuple[Flavour, ...] = ()


def find_place(request: JobRequest, site: Site, type_: str, need: Demand) -> Place | None:
    """Find where `need` devices of a type exist; None: nowhere that this job may go.

    A partition or reservation that the user named is never changed. Other partitions are tried
    only if they are open to all and take the job's time and nodes, those with the fewest nodes
    first.
    """
    for place in _places(request, site, type_):
        if shortfall(need, site.pool(moved(request, place)), type_) is None:
            return place
    return None


def choose(
    request: JobRequest, site: Site, types: Iterable[str | None], need: Demand, most: int
) -> Choice | None:
    """Choose the first of `types` that this job can get, and at most so many that can follow.

    Types that the job's account may not use are passed over. None: it can get none of them.
    """
    found: list[tuple[str, Place]] = []
    for type_ in types:
        if type_ is None or type_ in request.barred_types:
            continue
        place = find_place(request, site, type_, need)
        if place is not None:
            found.append((type_, place))
            if len(found) > most:
                break
    if not found:
        return None
    type_, place = found[0]
    return Choice(type_, place, tuple(_flavours(found[1:], place, site)))


def moved(request: JobRequest, place: Place) -> JobRequest:
    """The request at that place."""
    if place.partition is None:
        return request
    return msgspec.structs.replace(request, partition=place.partition)


def may_enter(request: JobRequest, site: Site, partition: str) -> bool:
    """Whether a job may be moved to a partition as far as the facts tell."""
    part = site.partitions.get(partition)
    return (
        part is not None
        and part.open
        and _within(needed_min(request), part.max_time_min)
        and _within(request.min_nodes, part.max_nodes)
    )


def _places(request: JobRequest, site: Site, type_: str) -> Iterator[Place]:
    yield Place()
    if request.partition is None and request.reservation is None:
        for name in site.partitions_with(type_):
            if may_enter(request, site, name):
                yield Place(name)


def _flavours(found: Iterable[tuple[str, Place]], chosen: Place, site: Site) -> Iterator[Flavour]:
    """Say where each is from where the job was put."""
    for type_, place in found:
        stays = place.partition or site.default_partition
        if place.partition == chosen.partition:
            yield Flavour(type_)
        elif stays is not None:
            yield Flavour(type_, stays)


def _within(value: int | None, limit: int | None) -> bool:
    return value is None or limit is None or value <= limit
