# SPDX-License-Identifier: Apache-2.0
"""Sites as large ones are: node groups of eight GPU types, whole and in slices, many partitions.

The same description gives the facts that policyd knows, and the lines of slurm.conf for a live
slurmctld.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fairwatt.slurm_plugins.hostlist import fold
from fairwatt.slurm_plugins.site import Facts, Node, Partition, Stock

__all__ = ["BenchSite", "Group", "TYPES"]

TYPES = (
    "a100",
    "h100",
    "a40",
    "l40s",
    "a100_1g.5gb",
    "a100_3g.20gb",
    "h100_1g.10gb",
    "h100_3g.40gb",
)
RACK = 40
DEBUG_NODES = 4


@dataclass(frozen=True)
class Group:
    """Nodes that are alike: `share` per mille of the site, GPUs as {type: count}."""

    stem: str
    share: int
    gpus: dict[str, int]
    cpus: int
    mem_mib: int
    feature: str

    @property
    def gres(self) -> str:
        """As slurm.conf writes it; empty without GPUs."""
        return ",".join(f"gpu:{type_}:{count}" for type_, count in self.gpus.items())


GROUPS = (
    Group("cpu", 300, {}, 128, 512_000, "epyc"),
    Group("ga", 250, {"a100": 4}, 64, 512_000, "ampere"),
    Group("gh", 150, {"h100": 8}, 96, 1_024_000, "hopper"),
    Group("gv", 100, {"a40": 8}, 64, 512_000, "ampere"),
    Group("gl", 80, {"l40s": 4}, 64, 256_000, "ada"),
    Group("ma", 60, {"a100_1g.5gb": 14, "a100_3g.20gb": 4}, 64, 512_000, "ampere"),
    Group("mh", 40, {"h100_1g.10gb": 28, "h100_3g.40gb": 8}, 96, 1_024_000, "hopper"),
    Group("mx", 20, {"a100": 2, "a100_1g.5gb": 14}, 64, 512_000, "ampere"),
)


@dataclass(frozen=True)
class BenchSite:
    """`nodes` nodes in `partitions` partitions.

    gpu (the default: all nodes with whole GPUs, some of them mixed), cpu, mig, all, debug, one
    per group, and departments that own a slice of every group.
    """

    nodes: int
    partitions: int

    def groups(self) -> list[tuple[Group, list[str]]]:
        """Each group with the names of its nodes."""
        return [
            (group, [f"{group.stem}{i:05d}" for i in range(self.nodes * group.share // 1000)])
            for group in GROUPS
        ]

    def members(self) -> dict[str, list[str]]:
        """The nodes of each partition."""
        groups = self.groups()
        parts = {
            "gpu": [n for g, names in groups if g.stem in ("ga", "gh", "gv", "mx") for n in names],
            "cpu": [n for g, names in groups if not g.gpus for n in names],
            "mig": [n for g, names in groups if g.stem in ("ma", "mh") for n in names],
            "all": [n for _, names in groups for n in names],
            "debug": [n for _, names in groups for n in names[:DEBUG_NODES]],
        }
        parts |= {f"only-{group.stem}": names for group, names in groups if group.gpus}
        departments = self.partitions - len(parts)
        for number in range(departments):
            parts[f"dept{number + 1:03d}"] = [
                name for _, names in groups for name in _part(names, number, departments)
            ]
        return parts

    def facts(self) -> Facts:
        """What policyd knows of such a site."""
        held: dict[str, list[str]] = {}
        for partition, names in self.members().items():
            for name in names:
                held.setdefault(name, []).append(partition)
        nodes = tuple(
            Node(
                name,
                tuple(held[name]),
                tuple(Stock(type_, count) for type_, count in group.gpus.items()),
                group.cpus,
                group.mem_mib,
                (group.feature, _rack(i)),
            )
            for group, names in self.groups()
            for i, name in enumerate(names)
        )
        return Facts(nodes, tuple(_partition(name) for name in self.members()))

    def slurm_conf(self, hostname: str) -> Iterator[str]:
        """Lines for slurm.conf; no slurmd answers for these nodes, they are down."""
        for group, names in self.groups():
            gres = f" Gres={group.gres}" if group.gres else ""
            for first in range(0, len(names), RACK):
                yield (
                    f"NodeName={fold(names[first : first + RACK])} NodeHostname={hostname}"
                    f" NodeAddr=127.0.0.1 Sockets=2 CoresPerSocket={group.cpus // 2}"
                    f" ThreadsPerCore=1 RealMemory={group.mem_mib}{gres}"
                    f" Feature={group.feature},{_rack(first)} State=DOWN"
                )
        for name, names in self.members().items():
            default = "YES" if name == "gpu" else "NO"
            yield (
                f"PartitionName={name} Nodes={fold(names)} Default={default} MaxTime=7-0"
                " DefaultTime=60 State=UP"
            )


def _rack(place: int) -> str:
    return f"rack{place // RACK:03d}"


def _part(names: list[str], number: int, parts: int) -> list[str]:
    return names[len(names) * number // parts : len(names) * (number + 1) // parts]


def _partition(name: str) -> Partition:
    return Partition(name, default=name == "gpu", max_time_min=7 * 1440, default_time_min=60)
