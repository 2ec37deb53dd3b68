# SPDX-License-Identifier: Apache-2.0
"""Nodes taken together by what they have, so that rules need not look at each."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from fairwatt.slurm_plugins.hostlist import fold

__all__ = ["Cell", "Kind", "Kindred", "Kinds", "Node", "Pool", "Stock"]


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


class Kind(msgspec.Struct, frozen=True, gc=False, eq=False):
    """What all nodes of one kind have; `counts` are its devices per GRES type, None: in all."""

    gpus: tuple[Stock, ...]
    cpus: int | None
    mem_mib: int | None
    counts: Mapping[str | None, int]

    def count(self, type_: str | None) -> int:
        """Devices of a type on one such node; None: of any type."""
        return self.counts.get(type_, 0)

    @property
    def types(self) -> frozenset[str | None]:
        """The GRES types of its GPUs."""
        return frozenset(stock.type for stock in self.gpus)


class Kinds:
    """Kinds of node, and how many nodes of each there are.

    A cluster of 10,000 nodes has some dozen kinds: what a rule asks is answered from these, not
    node by node.
    """

    def __init__(self, kinds: Iterable[tuple[Kind, int]]) -> None:
        self.kinds = tuple(kinds)
        self._groups: dict[str | None, list[tuple[int, int]]] = {}

    def __len__(self) -> int:
        return sum(count for _, count in self.kinds)

    @functools.cached_property
    def types(self) -> list[str | None]:
        """The GRES types present, in name order, an unnamed one first."""
        types = {stock.type for kind, _ in self.kinds for stock in kind.gpus}
        return sorted(types, key=lambda type_: type_ or "")

    def groups(self, type_: str | None) -> list[tuple[int, int]]:
        """(devices of a type on a node, how many such nodes), largest first; None: any type."""
        found = self._groups.get(type_)
        if found is None:
            if type_ is not None and type_ not in self.types:
                return []  # names are the users' to choose
            found = self._groups[type_] = self._grouped(type_)
        return found

    def most(self, type_: str | None) -> int:
        """The most devices of a type that one node has; None: of any type."""
        groups = self.groups(type_)
        return groups[0][0] if groups else 0

    @functools.cached_property
    def holdings(self) -> Mapping[frozenset[str | None], int]:
        """How many nodes have GPUs of exactly these types."""
        found: Counter[frozenset[str | None]] = Counter()
        for kind, count in self.kinds:
            if kind.gpus:
                found[kind.types] += count
        return found

    def of_kinds(self, keep: Callable[[Kind], bool]) -> Kinds:
        """Of these, the kinds to keep."""
        return Kinds(each for each in self.kinds if keep(each[0]))

    def _grouped(self, type_: str | None) -> list[tuple[int, int]]:
        nodes: Counter[int] = Counter()
        for kind, count in self.kinds:
            nodes[kind.count(type_)] += count
        return sorted(((count, n) for count, n in nodes.items() if count), reverse=True)


class Cell(msgspec.Struct, frozen=True, gc=False):
    """Nodes of one kind that also have the same features: their names."""

    kind: Kind
    features: tuple[str, ...]
    names: Sequence[str]


class Pool(Kinds):
    """Some nodes taken together, by name."""

    def __init__(self, cells: Iterable[Cell]) -> None:
        self.cells = tuple(cell for cell in cells if cell.names)
        counts: dict[Kind, int] = {}
        for cell in self.cells:
            counts[cell.kind] = counts.get(cell.kind, 0) + len(cell.names)
        super().__init__(counts.items())
        self._folded: dict[frozenset[str | None], str] = {}
        self.shares: dict[str | None, object] = {}
        """What gpu_share has worked out of this pool, by type; it goes with the pool."""

    @classmethod
    def union(cls, pools: Iterable[Pool]) -> Pool:
        """All nodes that are in any of them, each once."""
        found: dict[tuple[Kind, tuple[str, ...]], dict[str, None]] = {}
        for pool in pools:
            for cell in pool.cells:
                found.setdefault((cell.kind, cell.features), {}).update(dict.fromkeys(cell.names))
        return cls(Cell(kind, features, list(names)) for (kind, features), names in found.items())

    @functools.cached_property
    def marks(self) -> Mapping[str, tuple[frozenset[str | None], int]]:
        """Per feature the GPU types that its nodes have, and how many such nodes there are."""
        found: dict[str, tuple[frozenset[str | None], int]] = {}
        for cell in self.cells:
            for feature in cell.features if cell.kind.gpus else ():
                types, count = found.get(feature, (frozenset[str | None](), 0))
                found[feature] = (types | cell.kind.types, count + len(cell.names))
        return found

    def without(self, names: frozenset[str]) -> Pool:
        """This pool less some nodes."""
        return self._filtered(lambda name: name not in names)

    def only(self, names: frozenset[str]) -> Pool:
        """Of this pool, the nodes that are among the names."""
        return self._filtered(names.__contains__)

    def with_features(self, holds: Callable[[Sequence[str]], bool]) -> Pool:
        """Of this pool, the nodes whose features pass."""
        return Pool(cell for cell in self.cells if holds(cell.features))

    def nodes_with(self, types: frozenset[str | None]) -> str:
        """The nodes that hold any of these GRES types, as a host list; worked out once."""
        found = self._folded.get(types)
        if found is None:
            holding = (cell for cell in self.cells if not types.isdisjoint(cell.kind.types))
            found = self._folded[types] = fold(name for cell in holding for name in cell.names)
        return found

    def _filtered(self, keep: Callable[[str], bool]) -> Pool:
        return Pool(
            Cell(cell.kind, cell.features, list(filter(keep, cell.names))) for cell in self.cells
        )


class Kindred:
    """Tells which nodes are of one kind, the same Kind object for all of them."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[object, ...], Kind] = {}

    def pool(self, nodes: Iterable[Node]) -> Pool:
        """Take nodes together, in their order."""
        cells: dict[tuple[Kind, tuple[str, ...]], list[str]] = {}
        for node in nodes:
            cells.setdefault((self._kind(node), node.features), []).append(node.name)
        return Pool(Cell(kind, features, names) for (kind, features), names in cells.items())

    def _kind(self, node: Node) -> Kind:
        key = (node.gpus, node.cpus, node.mem_mib)
        kind = self._kinds.get(key)
        if kind is None:
            counts: Counter[str | None] = Counter()
            for stock in node.gpus:
                counts[stock.type] += stock.count
            counts[None] = sum(stock.count for stock in node.gpus)
            kind = self._kinds[key] = Kind(node.gpus, node.cpus, node.mem_mib, dict(counts))
        return kind
