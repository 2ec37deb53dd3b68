# SPDX-License-Identifier: Apache-2.0
"""The cluster's facts that rules judge by: nodes, partitions, GPU types. Immutable, in memory.

The same shape is written by `python -m fairwatt.slurm_plugins.facts`, read from `--site FILE`,
and comes with the package as `demo_site.toml`.
"""

from __future__ import annotations

import tomllib
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from fairwatt.core.catalogue import Catalogue
from fairwatt.core.errors import ConfigError
from fairwatt.core.records import JobRequest
from fairwatt.slurm_plugins.constraint import Groups, groups, holds
from fairwatt.slurm_plugins.hostlist import NodeNames
from fairwatt.slurm_plugins.pool import Kindred, Node, Pool, Stock

__all__ = [
    "Facts",
    "GpuType",
    "Node",
    "Partition",
    "Pool",
    "Site",
    "Stock",
    "load_facts",
    "lowered",
    "may_exceed",
]

MAX_POOLS = 64
"""Pools of node lists that are kept; on the largest clusters each takes some 100 KB."""


class Partition(msgspec.Struct, frozen=True, gc=False):
    """A partition; `open` when every account, QOS and group may use it.

    `whole` is False where some of its nodes are not among those known: slurmctld may not show
    nodes that are in the cloud and off. Times are in minutes, None: no limit or not known.
    `accounts` None: all but `denied_accounts`.
    """

    name: str
    default: bool = False
    open: bool = True
    whole: bool = True
    max_time_min: int | None = None
    default_time_min: int | None = None
    max_nodes: int | None = None
    accounts: tuple[str, ...] | None = None
    denied_accounts: tuple[str, ...] = ()
    qos: tuple[str, ...] | None = None
    denied_qos: tuple[str, ...] = ()

    def admits(self, account: str | None, qos: str | None) -> bool:
        """Whether a job of this account and QOS may run here as far as lists say.

        An account or QOS that the job does not name is Slurm's to fill in: then only an open
        partition is sure.
        """
        return _listed(account, self.accounts, self.denied_accounts) and _listed(
            qos, self.qos, self.denied_qos
        )


class Facts(msgspec.Struct, frozen=True):
    """What is read from Slurm, or from a file; `reservations`: name to partition, "" if none.

    `beyond_time` and `beyond_nodes` are the QOS whose jobs may exceed a partition's time or
    nodes (flags PartitionTimeLimit, PartitionMaxNodes); None: not known, any may be one.
    """

    nodes: tuple[Node, ...]
    partitions: tuple[Partition, ...]
    reservations: dict[str, str] = {}
    beyond_time: tuple[str, ...] | None = ()
    beyond_nodes: tuple[str, ...] | None = ()


class GpuType(msgspec.Struct, frozen=True):
    """What the catalogue knows of a GRES type; memory None when it does not know it.

    `milli` is the compute share of a whole board × 1000, `profile` the MIG profile of a slice,
    `model` the catalogue's key.
    """

    name: str | None
    memory_mib: int | None = None
    milli: int = 1000
    profile: str | None = None
    model: str | None = None

    @property
    def is_slice(self) -> bool:
        """Whether this is a MIG slice."""
        return self.profile is not None


_PoolKey = tuple[str | None, str | None, str | None, int | None, Groups]


class Site:
    """Facts with the catalogue applied, pooled by partition; pools of node lists are kept."""

    def __init__(self, facts: Facts, catalogue: Catalogue) -> None:
        self.facts = facts
        names = {stock.type for node in facts.nodes for stock in node.gpus}
        self.types = {name: _gpu_type(name, catalogue) for name in names}
        self.catalogue = catalogue
        self.partitions = {part.name: part for part in facts.partitions}
        self.default_partition = next((p.name for p in facts.partitions if p.default), None)
        """The partition of a job that names none."""
        self._is_whole = all(part.whole for part in facts.partitions)
        self._features = frozenset(name for node in facts.nodes for name in node.features)
        self._node_names = NodeNames(node.name for node in facts.nodes)
        self._slices = frozenset(name for name, type_ in self.types.items() if type_.is_slice)
        kindred = Kindred()
        self._all = kindred.pool(facts.nodes)
        self._pools = _by_partition(facts.nodes, kindred)
        self._listed: OrderedDict[_PoolKey, Pool] = OrderedDict()
        self._holders = {type_: self._partitions_with(type_) for type_ in (*names, None)}
        for pool in (self._all, *self._pools.values()):
            pool.nodes_with(self._slices)  # not while a job waits

    def is_slice(self, type_: str | None) -> bool:
        """Whether a GRES type of this cluster is a MIG slice."""
        return type_ in self._slices

    def is_open(self, partition: str) -> bool:
        """Whether every account and group may use this partition."""
        part = self.partitions.get(partition)
        return part is not None and part.open

    def partition_of(self, request: JobRequest) -> str | None:
        """The partition or comma list in which a request would run; None: not known."""
        reserved = self.facts.reservations.get(request.reservation or "")
        return request.partition or reserved or self.default_partition

    def is_whole(self, request: JobRequest) -> bool:
        """Whether all nodes that Slurm may give to a request are known, by its partitions."""
        if self._is_whole:
            return True
        names = (self.partition_of(request) or "").split(",")
        return all(self.partitions[name].whole for name in names if name in self.partitions)

    def unknown_place(self, request: JobRequest) -> str | None:
        """What of the places that a request names these facts do not hold; None: nothing.

        It may be a mistake, or newer than the facts: Slurm knows.

        Raises:
            GrammarError: its node lists cannot be read.
        """
        for name in (request.partition or "").split(","):
            if name and name not in self.partitions:
                return f"partition {name}"
        for name in (request.reservation or "").split(","):
            if name and name not in self.facts.reservations:
                return f"reservation {name}"
        if request.req_nodes and not self._node_names.named(request.req_nodes):
            return f"node {request.req_nodes}"
        return None

    def where(self, request: JobRequest) -> str:
        """Name the place for people: `partition gpu on h01`, or `this cluster`."""
        partition = self.partition_of(request)
        place = f"partition {partition}" if partition else "this cluster"
        if request.req_nodes:
            place += f" on {request.req_nodes}"
        if self._asked_features(request.features):
            place += f" with -C {request.features}"
        return f"{place} without {request.exc_nodes}" if request.exc_nodes else place

    def pool(self, request: JobRequest) -> Pool:
        """The nodes that Slurm may give to a request.

        Raises:
            GrammarError: its node lists cannot be read.
        """
        partition = self.partition_of(request)
        required, excluded = request.req_nodes, request.exc_nodes
        features = self._asked_features(request.features) if request.features else ()
        if not (required or excluded or features or (partition and "," in partition)):
            return self._in(partition)
        if partition and "," in partition:
            partition = ",".join(sorted(set(partition.split(","))))  # orders are many
        key = (partition, required, excluded, request.max_nodes if required else None, features)
        pool = self._listed.get(key)
        if pool is None:
            pool = self._listed[key] = self._reachable(*key)
            if len(self._listed) > MAX_POOLS:  # keys are the users' to choose
                self._listed.popitem(last=False)
        return pool

    def partitions_with(self, type_: str | None) -> tuple[str, ...]:
        """Partitions that hold a GPU of this type (None: any GPU), open and small ones first."""
        return self._holders.get(type_, ())

    def slice_nodes(self, request: JobRequest) -> str:
        """The nodes with MIG slices that Slurm may give to a request, as a host list."""
        return self.pool(request).nodes_with(self._slices)

    def _partitions_with(self, type_: str | None) -> tuple[str, ...]:
        found = [part for part in self.partitions.values() if self._in(part.name).most(type_)]
        found.sort(key=lambda part: (not part.open, len(self._in(part.name)), part.name))
        return tuple(part.name for part in found)

    def _in(self, partition: str | None) -> Pool:
        """The nodes of one partition, or of some in a comma list; None: all nodes."""
        if partition is None:
            return self._all
        if "," not in partition:
            return self._pools.get(partition, _NOWHERE)
        pools = [self._in(name) for name in set(partition.split(","))]
        largest = max(pools, key=len)
        return largest if len(largest) == len(self._all) else Pool.union(pools)

    def _asked_features(self, constraint: str | None) -> Groups:
        """The groups of a constraint that these facts can judge: those of known features."""
        known = (group for group in groups(constraint) or () if group <= self._features)
        return tuple(known)

    def _reachable(
        self,
        partition: str | None,
        required: str | None,
        excluded: str | None,
        most: int | None,
        features: Groups,
    ) -> Pool:
        pool = self._in(partition)
        if features:
            pool = pool.with_features(lambda held: holds(features, held))
        if excluded:
            pool = pool.without(self._node_names.named(excluded))
        if required:
            must = self._node_names.named(required)
            # Slurm may add nodes to the required ones only where more are wanted.
            if most is None or most <= len(must):
                pool = pool.only(must)
        return pool


def may_exceed(qos: str | None, beyond: tuple[str, ...] | None) -> bool:
    """Whether a job of this QOS may be among those `beyond` a limit, as far as is known.

    A job that names no QOS gets a default that only slurmdbd knows.
    """
    if beyond is None:
        return True
    return bool(beyond) if qos is None else qos in beyond


def load_facts(path: Path) -> Facts:
    """Read facts from a JSON or TOML file.

    Raises:
        ConfigError: the file cannot be read or has another shape; the message says where.
    """
    try:
        text = path.read_text(encoding="utf-8")
        tree: Any = tomllib.loads(text) if path.suffix == ".toml" else msgspec.json.decode(text)
        return msgspec.convert(tree, Facts)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", place=str(path)) from error
    except (tomllib.TOMLDecodeError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"not a site file: {error}",
            place=str(path),
            remedy="write one with `python -m fairwatt.slurm_plugins.facts`",
        ) from error


def lowered(names: Iterable[str]) -> tuple[str, ...]:
    """Names of accounts or QOS as requests have them: Slurm keeps them in small letters."""
    return tuple(name.lower() for name in names)


def _listed(name: str | None, allowed: tuple[str, ...] | None, denied: tuple[str, ...]) -> bool:
    if name is None:
        return allowed is None and not denied
    return name not in denied and (allowed is None or name in allowed)


def _by_partition(nodes: Iterable[Node], kindred: Kindred) -> dict[str, Pool]:
    members: dict[str, list[Node]] = {}
    for node in nodes:
        for partition in node.partitions:
            members.setdefault(partition, []).append(node)
    return {name: kindred.pool(held) for name, held in members.items()}


_NOWHERE = Pool(())


def _gpu_type(name: str | None, catalogue: Catalogue) -> GpuType:
    if name is None:
        return GpuType(None)
    found = catalogue.slice_type(name)
    model = found[0] if found else catalogue.model_of_type(name)
    return GpuType(
        name,
        memory_mib=catalogue.memory_mib_of_type(name),
        milli=catalogue.milli_of_type(name) or 1000,
        profile=found[1].name if found else None,
        model=model.key if model else None,
    )
