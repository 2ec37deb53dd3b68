# SPDX-License-Identifier: Apache-2.0
"""The cluster's facts that rules judge by: nodes, partitions, GPU types. Immutable, in memory.

The same shape is written by `python -m fairwatt.slurm_plugins.facts`, read from `--site FILE`,
and comes with the package as `demo_site.toml`.
"""

from __future__ import annotations

import functools
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from fairwatt.core.catalogue import Catalogue
from fairwatt.core.errors import ConfigError
from fairwatt.core.records import JobRequest
from fairwatt.slurm_plugins.constraint import Groups, groups, holds
from fairwatt.slurm_plugins.hostlist import named

__all__ = [
    "Facts",
    "GpuType",
    "Node",
    "Partition",
    "Pool",
    "Site",
    "Stock",
    "load_facts",
    "decode_facts",
]

MAX_POOLS = 256


class Stock(msgspec.Struct, frozen=True):
    """`count` devices of one GRES type on a node; `type` None when the node gives none."""

    type: str | None
    count: int


class Node(msgspec.Struct, frozen=True):
    """A node as slurm.conf describes it, whatever its present state; None: not known."""

    name: str
    partitions: tuple[str, ...]
    gpus: tuple[Stock, ...] = ()
    cpus: int | None = None
    mem_mib: int | None = None
    features: tuple[str, ...] = ()


class Partition(msgspec.Struct, frozen=True):
    """A partition; `open` when every account, QOS and group may use it.

    Times are in minutes, None: no limit or not known. `accounts` None: all but `denied_accounts`.
    """

    name: str
    default: bool = False
    open: bool = True
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
    """What is read from Slurm, or from a file; `reservations`: name to partition, "" if none."""

    nodes: tuple[Node, ...]
    partitions: tuple[Partition, ...]
    reservations: dict[str, str] = {}


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


class Pool:
    """Some nodes taken together: per type, how many devices each node has, largest first."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes = tuple(nodes)
        counts: dict[str | None, list[int]] = {}
        sums: list[int] = []
        for node in self.nodes:
            held: Counter[str | None] = Counter()
            for stock in node.gpus:
                held[stock.type] += stock.count
            for type_, count in held.items():
                counts.setdefault(type_, []).append(count)
            sums.append(sum(held.values()))
        self._counts = {type_: sorted(c, reverse=True) for type_, c in counts.items()}
        self._sums = sorted(sums, reverse=True)

    @property
    def types(self) -> list[str | None]:
        """The GRES types present, in name order, an unnamed one first."""
        return sorted(self._counts, key=lambda type_: type_ or "")

    def counts(self, type_: str | None) -> list[int]:
        """Devices of a type per node, largest first; None: of any type."""
        return self._sums if type_ is None else self._counts.get(type_, [])

    @functools.cached_property
    def holdings(self) -> Mapping[frozenset[str | None], int]:
        """How many nodes have GPUs of exactly these types."""
        return Counter(held for node in self.nodes if (held := _held(node)))

    @functools.cached_property
    def marks(self) -> Mapping[str, tuple[frozenset[str | None], int]]:
        """Per feature the GPU types that its nodes have, and how many such nodes there are."""
        found: dict[str, tuple[frozenset[str | None], int]] = {}
        for node in self.nodes:
            held = _held(node)
            for feature in node.features if held else ():
                types, count = found.get(feature, (frozenset[str | None](), 0))
                found[feature] = (types | held, count + 1)
        return found


class Site:
    """Facts with the catalogue applied; pools of nodes are kept for the next request."""

    def __init__(self, facts: Facts, catalogue: Catalogue) -> None:
        self.facts = facts
        names = {stock.type for node in facts.nodes for stock in node.gpus}
        self.types = {name: _gpu_type(name, catalogue) for name in names}
        self.catalogue = catalogue
        self.partitions = {part.name: part for part in facts.partitions}
        self._features = frozenset(name for node in facts.nodes for name in node.features)
        self._pools: dict[_PoolKey, Pool] = {}
        self._holders: dict[str | None, tuple[str, ...]] = {}
        self._node_names = frozenset(node.name for node in facts.nodes)

    @property
    def default_partition(self) -> str | None:
        """The partition of a job that names none."""
        return next((part.name for part in self.facts.partitions if part.default), None)

    def is_open(self, partition: str) -> bool:
        """Whether every account and group may use this partition."""
        part = self.partitions.get(partition)
        return part is not None and part.open

    def partition_of(self, request: JobRequest) -> str | None:
        """The partition or comma list in which a request would run; None: not known."""
        reserved = self.facts.reservations.get(request.reservation or "")
        return request.partition or reserved or self.default_partition

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
        if request.req_nodes and not named(request.req_nodes, self._node_names):
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
        key = (
            self.partition_of(request),
            request.req_nodes,
            request.exc_nodes,
            request.max_nodes if request.req_nodes else None,
            self._asked_features(request.features),
        )
        pool = self._pools.get(key)
        if pool is None:
            pool = Pool(self._reachable(*key))
            if len(self._pools) >= MAX_POOLS:  # keys are the users' to choose
                self._pools.clear()
            self._pools[key] = pool
        return pool

    def partitions_with(self, type_: str | None) -> tuple[str, ...]:
        """Partitions that hold a GPU of this type (None: any GPU), open and small ones first."""
        found = self._holders.get(type_)
        if found is None:
            found = self._partitions_with(type_)
            if type_ is None or type_ in self.types:  # other names are the users' to choose
                self._holders[type_] = found
        return found

    def _partitions_with(self, type_: str | None) -> tuple[str, ...]:
        sizes: Counter[str] = Counter()
        holders: set[str] = set()
        for node in self.facts.nodes:
            sizes.update(node.partitions)
            if any(type_ is None or stock.type == type_ for stock in node.gpus):
                holders.update(node.partitions)
        return tuple(
            part.name
            for part in sorted(
                self.facts.partitions, key=lambda p: (not p.open, sizes[p.name], p.name)
            )
            if part.name in holders
        )

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
    ) -> list[Node]:
        wanted = None if partition is None else set(partition.split(","))
        nodes = [n for n in self.facts.nodes if wanted is None or wanted & set(n.partitions)]
        if features:
            nodes = [node for node in nodes if holds(features, node.features)]
        if excluded:
            out = named(excluded, self._node_names)
            nodes = [node for node in nodes if node.name not in out]
        if required:
            must = named(required, self._node_names)
            # Slurm may add nodes to the required ones only where more are wanted.
            if most is None or most <= len(must):
                nodes = [node for node in nodes if node.name in must]
        return nodes


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


def decode_facts(text: str) -> Facts:
    """Read facts from the JSON that the facts program prints.

    Raises:
        msgspec.MsgspecError: it has another shape.
    """
    return msgspec.json.decode(text, type=Facts)


def _listed(name: str | None, allowed: tuple[str, ...] | None, denied: tuple[str, ...]) -> bool:
    if name is None:
        return allowed is None and not denied
    return name not in denied and (allowed is None or name in allowed)


def _held(node: Node) -> frozenset[str | None]:
    return frozenset(stock.type for stock in node.gpus)


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
