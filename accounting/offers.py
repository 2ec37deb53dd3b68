# SPDX-License-Identifier: Apache-2.0
"""Which GPU types a cluster gives, as its past runs show, and what the catalogue says of them."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass

from fairwatt.accounting.advice import UNTYPED, Names
from fairwatt.accounting.waste import Offer
from fairwatt.core.catalogue import Catalogue, GpuModel
from fairwatt.core.errors import CatalogueError

__all__ = ["Held", "Offers", "read_offers"]

WHOLE = 1000
_EXTRA = re.compile(r"^NVIDIA | [0-9]+ GB$")


@dataclass(frozen=True)
class _Kind:
    """A GRES type: its model's key and title, its memory, and its parts of the board."""

    gres_type: str
    model: str
    title: str
    memory_mib: int
    compute_permille: int
    memory_permille: int

    @property
    def is_slice(self) -> bool:
        """Whether it is a part of a board."""
        return self.memory_permille < WHOLE or self.compute_permille < WHOLE


@dataclass(frozen=True)
class Held:
    """What a run held: the GRES type of its devices, and the model of their boards if known."""

    gres_type: str | None
    model: str | None = None


class Offers:
    """The types that runs of the cluster were given; what the catalogue lacks is left out."""

    def __init__(self, kinds: dict[str, _Kind], catalogue: Catalogue, *, by_size: bool) -> None:
        self._kinds = kinds
        self._catalogue = catalogue
        self._by_size = by_size

    def memory_mib(self, held: Held) -> int | None:
        """Return the nominal memory of a device, None if it is not known."""
        kind = self._of(held)
        return kind.memory_mib if kind else None

    def names(self, held: Held, *, slow_node: str | None = None) -> Names:
        """Return what sentences call the device, and the next one with more memory."""
        kind = self._of(held)
        known = held.gres_type if held.gres_type != UNTYPED else None
        if kind is None:
            return Names(gres_type=known, by_size=self._by_size, slow_node=slow_node)
        more = [one for one in self._kinds.values() if one.memory_mib > kind.memory_mib]
        larger = min(more, key=lambda one: (one.memory_mib, one.gres_type), default=None)
        return Names(
            gpu=kind.title,
            gres_type=known,
            larger=larger.gres_type if larger else None,
            by_size=self._by_size,
            slow_node=slow_node,
        )

    def smaller_than(self, held: Held) -> tuple[Offer, ...]:
        """Return the smaller devices of the same model, with their part of this one."""
        mine = self._of(held)
        if mine is None:
            return ()
        return tuple(
            Offer(other.gres_type, other.memory_mib, part)
            for other in self._kinds.values()
            if other.model == mine.model and (part := _part(other, mine)) < WHOLE
        )

    def _of(self, held: Held) -> _Kind | None:
        """What a device is: an untyped GPU and a type of several models are what nodes told."""
        kind = self._kinds.get(held.gres_type or "")
        if held.model is None or held.gres_type is None or (kind and kind.is_slice):
            return kind
        try:
            model = self._catalogue.model(held.model)
        except CatalogueError:
            return kind
        return _whole(held.gres_type, model)


def read_offers(connection: sqlite3.Connection, catalogue: Catalogue) -> Offers:
    """Return what the store's runs were given; sizes count where the policy judges requests."""
    types = [row[0] for row in connection.execute("SELECT DISTINCT gpu_type FROM tres_gpu")]
    kinds = {name: kind for name in types if (kind := _kind(name, catalogue)) is not None}
    judged = connection.execute("SELECT 1 FROM decision LIMIT 1").fetchone()
    return Offers(kinds, catalogue, by_size=judged is not None)


def _kind(gres_type: str, catalogue: Catalogue) -> _Kind | None:
    cut = catalogue.slice_type(gres_type)
    if cut is not None:
        model, profile = cut
        return _Kind(
            gres_type,
            model.key,
            f"{profile.name} slice",
            profile.memory_mib,
            WHOLE * profile.compute_slices // model.compute_slices,
            WHOLE * profile.memory_slices // model.memory_slices,
        )
    model_ = catalogue.model_of_type(gres_type)
    if model_ is None:
        return None
    return _whole(gres_type, model_)


def _whole(gres_type: str, model: GpuModel) -> _Kind:
    title = _EXTRA.sub("", model.title)
    return _Kind(gres_type, model.key, title, model.memory_mib, WHOLE, WHOLE)


def _part(other: _Kind, mine: _Kind) -> int:
    return min(
        WHOLE * other.compute_permille // mine.compute_permille,
        WHOLE * other.memory_permille // mine.memory_permille,
    )
