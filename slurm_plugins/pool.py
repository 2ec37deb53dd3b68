# SPDX-License-Identifier: Apache-2.0
"""Nodes taken together by what they have, so that rules need not look at each."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from fairwatt.slurm_plugins.hostlist import fold

__all__ = ["Kind", "Node", "Pool", "Stock", "by_kind"]


class Stock(msgspec.Struct, frozen=True, gc=False):
    """`count` devices of one GRES type on a node; `type` None when the node gives none."""

    type: str | None
    count: int


class Node(msgspec.Struct, frozen=True, gc=False):
    """A node as slurm.conf describes it, whatever its present state; None: not known."""

    name: str
    partitions: tuple[str, ...]
    gpus: tuple[Stock, ...] = ()
    cpus: int | None = None
    mem_mib: int | None = None
    features: tuple[str, ...] = ()


class Kind(msgspec.Struct, frozen=True, gc=False):
    """What all nodes of one kind have."""

    gpus: tuple[Stock, ...]
    cpus: int | None
    mem_mib: int | None
    features: tuple[str, ...]

    def count(self, type_: str | None) -> int:
        """Devices of a type on one such node; None: of any type."""
        return sum(stock.count for stock in self.gpus if type_ in (None, stock.type))

    @property
    def types(self) -> frozenset[str | None]:
        """The GRES types of its GPUs."""
        return frozenset(stock.type for stock in self.gpus)


class Pool:
    """Some nodes taken together: which kinds of node there are, and the names of each.

    A cluster of 10,000 nodes has some dozen kinds: what a rule asks of a pool is answered from
    these, not node by node.
    """

    def __init__(self, kinds: Iterable[tuple[Kind, Sequence[str]]]) -> None:
        self.kinds = tuple((kind, names) for kind, names in kinds if names)
        types = {stock.type for kind, _ in self.kinds for stock in kind.gpus}
        self.types = sorted(types, key=lambda type_: type_ or "")
        """The GRES types present, in name order, an unnamed one first."""
        self._groups = {type_: self._grouped(type_) for type_ in (*types, None)}
        self._slices: str | None = None

    def __len__(self) -> int:
        return sum(len(names) for _, names in self.kinds)

    def groups(self, type_: str | None) -> list[tuple[int, int]]:
        """(devices of a type on a node, how many such nodes), largest first; None: any type."""
        return self._groups.get(type_, [])

    def most(self, type_: str | None) -> int:
        """The most devices of a type that one node has; None: of any type."""
        groups = self.groups(type_)
        return groups[0][0] if groups else 0

    @functools.cached_property
    def holdings(self) -> Mapping[frozenset[str | None], int]:
        """How many nodes have GPUs of exactly these types."""
        found: Counter[frozenset[str | None]] = Counter()
        for kind, names in self.kinds:
            if kind.gpus:
                found[kind.types] += len(names)
        return found

    @functools.cached_property
    def marks(self) -> Mapping[str, tuple[frozenset[str | None], int]]:
        """Per feature the GPU types that its nodes have, and how many such nodes there are."""
        found: dict[str, tuple[frozenset[str | None], int]] = {}
        for kind, names in self.kinds:
            for feature in kind.features if kind.gpus else ():
                types, count = found.get(feature, (frozenset[str | None](), 0))
                found[feature] = (types | kind.types, count + len(names))
        return found

    def without(self, names: frozenset[str]) -> Pool:
        """This pool less some nodes."""
        return self._filtered(lambda name: name not in names)

    def only(self, names: frozenset[str]) -> Pool:
        """Of this pool, the nodes that are among the names."""
        return self._filtered(names.__contains__)

    def of_kinds(self, keep: Callable[[Kind], bool]) -> Pool:
        """Of this pool, the kinds to keep."""
        return Pool((kind, names) for kind, names in self.kinds if keep(kind))

    def slice_nodes(self, is_slice: Callable[[str | None], bool]) -> str:
        """The nodes that hold MIG slices, as a host list; worked out once."""
        if self._slices is None:
            self._slices = fold(
                name
                for kind, names in self.kinds
                if any(is_slice(stock.type) for stock in kind.gpus)
                for name in names
            )
        return self._slices

    def _filtered(self, keep: Callable[[str], bool]) -> Pool:
        return Pool((kind, list(filter(keep, names))) for kind, names in self.kinds)

    def _grouped(self, type_: str | None) -> list[tuple[int, int]]:
        nodes: Counter[int] = Counter()
        for kind, names in self.kinds:
            nodes[kind.count(type_)] += len(names)
        return sorted(((count, n) for count, n in nodes.items() if count), reverse=True)


def by_kind(nodes: Iterable[Node]) -> list[tuple[Kind, list[str]]]:
    """The kinds among some nodes, each with the names of its nodes, in the nodes' order."""
    kinds: dict[tuple[object, ...], list[Node]] = {}
    for node in nodes:
        key = (node.gpus, node.cpus, node.mem_mib, node.features)
        kinds.setdefault(key, []).append(node)
    return [
        (
            Kind(alike[0].gpus, alike[0].cpus, alike[0].mem_mib, alike[0].features),
            [node.name for node in alike],
        )
        for alike in kinds.values()
    ]
