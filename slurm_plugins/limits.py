# SPDX-License-Identifier: Apache-2.0
"""How long a job may run: what its partitions allow, and what it gets where it names no time."""

from __future__ import annotations

from fairwatt.core.records import UNLIMITED_MIN, JobRequest
from fairwatt.slurm_plugins.site import Partition, Site

__all__ = ["longest_min", "minutes_text", "named_partitions", "needed_min", "presumed_min"]


def named_partitions(request: JobRequest, site: Site) -> list[Partition]:
    """The partitions in which Slurm would try the job; empty where they are not known."""
    names = (site.partition_of(request) or "").split(",")
    known = [site.partitions[name] for name in names if name in site.partitions]
    return known if len(known) == len(names) else []


def longest_min(partitions: list[Partition]) -> int | None:
    """The longest time that one of them allows, in minutes; None: no limit, or not known."""
    limits = [part.max_time_min for part in partitions]
    known = [limit for limit in limits if limit is not None]
    return max(known) if limits and len(known) == len(limits) else None


def needed_min(request: JobRequest) -> int | None:
    """The time without which Slurm does not start the job: its limit, or that of --time-min."""
    return request.least_time_min or request.time_limit_min


def presumed_min(request: JobRequest, partition: Partition | None) -> int | None:
    """The job's time limit, or what Slurm gives it in this partition; None: no limit known."""
    if request.time_limit_min is not None or partition is None:
        return request.time_limit_min
    if partition.default_time_min is not None:
        return partition.default_time_min
    return partition.max_time_min


def minutes_text(minutes: int) -> str:
    """Write a time for people.

    >>> minutes_text(90), minutes_text(2880), minutes_text(120), minutes_text(45)
    ('1:30 h', '2 days', '2 h', '45 min')
    """
    if minutes == UNLIMITED_MIN:
        return "unlimited"
    if minutes % 1440 == 0 and minutes > 1440:
        return f"{minutes // 1440} days"
    if minutes < 60:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours}:{rest:02d} h" if rest else f"{hours} h"
