# SPDX-License-Identifier: Apache-2.0
"""Where a job can get a GPU type: its own partition, or another if it named none."""

from __future__ import annotations

import msgspec

from fairwatt.core.records import JobRequest
from fairwatt.slurm_plugins.demand import Demand, shortfall
from fairwatt.slurm_plugins.site import Site

__all__ = ["Place", "find_place", "moved"]


class Place(msgspec.Struct, frozen=True):
    """The partition to write into the job; None: it stays as it is."""

    partition: str | None = None


def find_place(request: JobRequest, site: Site, type_: str, need: Demand) -> Place | None:
    """Find where `need` devices of a type exist; None: nowhere that this job may go.

    A partition or reservation that the user named is never changed. Other partitions are tried
    only if they are open to all, those with the fewest nodes first.
    """
    places = [Place()]
    if request.partition is None and request.reservation is None:
        places += [Place(name) for name in site.partitions_with(type_) if site.is_open(name)]
    for place in places:
        if shortfall(need, site.pool(moved(request, place)), type_) is None:
            return place
    return None


def moved(request: JobRequest, place: Place) -> JobRequest:
    """The request at that place."""
    if place.partition is None:
        return request
    return msgspec.structs.replace(request, partition=place.partition)
