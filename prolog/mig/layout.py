# SPDX-License-Identifier: Apache-2.0
"""Declared MIG layouts, and how the GPU instances of one are placed on a board; pure.

>>> from fairwatt.core.catalogue import load_catalogue
>>> large = Layout("large", (Piece("3g.20gb"), Piece("3g.20gb")))
>>> resolve(large, load_catalogue().model("a100-40"))
(Placed(profile='3g.20gb', start=0), Placed(profile='3g.20gb', start=4))
"""

from __future__ import annotations

import difflib
import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fairwatt.core.catalogue import GpuModel, MigProfile, layout_is_legal
from fairwatt.core.errors import ConfigError

__all__ = [
    "ALL",
    "WHOLE",
    "GpuSet",
    "Layout",
    "MigFile",
    "NodeLayout",
    "Piece",
    "Placed",
    "PlanRules",
    "memory_left_mib",
    "pack",
    "resolve",
    "why_not",
]

WHOLE = "whole"
"""The layout that is always there: MIG off, the board is one GPU."""


class Piece(NamedTuple):
    """A GPU instance as declared; `start` None leaves its first memory slice to the packing."""

    profile: str
    start: int | None = None

    def __str__(self) -> str:
        return self.profile if self.start is None else f"{self.profile}@{self.start}"


class Placed(NamedTuple):
    """A GPU instance on a board: its profile and its first memory slice."""

    profile: str
    start: int


@dataclass(frozen=True)
class GpuSet:
    """Some of a node's boards: by N of /dev/nvidiaN, by UUID, or all of them."""

    numbers: frozenset[int] = frozenset()
    uuids: frozenset[str] = frozenset()
    all: bool = False

    def holds(self, minor: int, uuid: str) -> bool:
        """Whether the board with this device minor and UUID is one of them."""
        return self.all or minor in self.numbers or uuid in self.uuids

    def overlaps(self, other: GpuSet) -> bool:
        """Whether a board is in both for certain: numbers and UUIDs cannot be compared here."""
        if self.all or other.all:
            return bool(self) and bool(other)
        return bool(self.numbers & other.numbers or self.uuids & other.uuids)

    def __bool__(self) -> bool:
        return bool(self.all or self.numbers or self.uuids)

    def __str__(self) -> str:
        words = [*map(str, sorted(self.numbers)), *sorted(self.uuids)]
        return "all" if self.all else ",".join(words)


ALL = GpuSet(all=True)


@dataclass(frozen=True)
class Layout:
    """How a board is cut; no pieces: MIG off. `gpus`: the boards of a node that it is for.

    `model` is the catalogue's key of the board that it is written for, None: any that fits.
    """

    name: str
    pieces: tuple[Piece, ...] = ()
    gpus: GpuSet = ALL
    model: str | None = None
    place: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether the board stays one GPU, with MIG off."""
        return not self.pieces


@dataclass(frozen=True)
class NodeLayout:
    """What a node's boards shall be: sets of boards, each with its layout; others are let be."""

    node: str
    parts: tuple[tuple[GpuSet, Layout], ...]
    place: str = ""

    def of_gpu(self, minor: int, uuid: str) -> Layout | None:
        """Return the layout of one board; None where none is declared for it."""
        return next((layout for gpus, layout in self.parts if gpus.holds(minor, uuid)), None)


@dataclass(frozen=True)
class PlanRules:
    """What `plan` may do.

    Attributes:
        allowed: the layouts that it may choose from, by node; no others are touched.
        keep: the least that must remain of a GRES type in the whole cluster.
        idle_s: a node must have been without jobs for so long.
        min_hold_s: a node that was changed stays as it is for so long.
        min_wait_s: jobs that wait for less are not reason enough.
        drain: whether nodes with jobs may be proposed, to be drained first.
        dry_run: whether proposals are only shown.
    """

    allowed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    keep: Mapping[str, int] = field(default_factory=dict)
    idle_s: int = 60
    min_hold_s: int = 3600
    min_wait_s: int = 300
    drain: bool = False
    dry_run: bool = True


@dataclass(frozen=True)
class MigFile:
    """All that mig.toml says; `types` is how the site spells a model in GRES types, by its key."""

    layouts: Mapping[str, Layout]
    nodes: Mapping[str, NodeLayout]
    plan: PlanRules
    types: Mapping[str, str]
    place: str

    def of_node(self, node: str) -> NodeLayout | None:
        """Return what is declared for a node; None if nothing is."""
        return self.nodes.get(node)


def resolve(layout: Layout, model: GpuModel) -> tuple[Placed, ...]:
    """Return where each GPU instance of a layout stands on a board, by first memory slice.

    Raises:
        ConfigError: the board cannot be cut so; the message says what would be possible.
    """
    problem = why_not(model, layout.pieces)
    if problem is not None:
        what, value, remedy = problem
        where = f"{layout.place}: layout {layout.name}" if layout.place else layout.name
        raise ConfigError(f"{what} on {model.title}", place=where, value=value, remedy=remedy)
    placed = pack(model, layout.pieces)
    assert placed is not None, "why_not found nothing"  # noqa: S101
    return placed


def pack(model: GpuModel, pieces: Iterable[Piece]) -> tuple[Placed, ...] | None:
    """Place GPU instances on a board; None if they do not fit, or a profile is not the model's.

    Of all placements the one is taken that leaves most room for others (the number of places
    that stay possible, counted in memory slices), then the one with the lowest starts.
    """
    return _packed(model, tuple(sorted(pieces, key=lambda piece: _rank(model, piece))))


def why_not(model: GpuModel, pieces: Sequence[Piece]) -> tuple[str, str, str] | None:
    """Say why a board cannot be cut so: what is wrong, the value, the remedy; None: it can."""
    for piece in pieces:
        profile = model.profile(piece.profile)
        if profile is None:
            return _unknown(model, piece.profile)
        if piece.start is not None and piece.start not in profile.placements:
            starts = ", ".join(map(str, profile.placements))
            return f"{profile.name} cannot begin there", str(piece), f"possible: {starts}"
    if pack(model, pieces) is not None:
        return None
    profiles = [profile for profile in map(model.profile, _names(pieces)) if profile is not None]
    return _too_much(model, pieces, profiles)


def memory_left_mib(model: GpuModel, layout: Layout) -> int:
    """Return how much of a board's memory no GPU instance of a layout can use, in MiB."""
    if layout.is_whole:
        return 0
    found = map(model.profile, _names(layout.pieces))
    return max(0, model.memory_mib - sum(profile.memory_mib for profile in found if profile))


def _names(pieces: Iterable[Piece]) -> list[str]:
    return [piece.profile for piece in pieces]


def _unknown(model: GpuModel, name: str) -> tuple[str, str, str]:
    known = [profile.name for profile in model.profiles]
    if not known:
        return "no MIG", name, f'use the layout "{WHOLE}"'
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}? known: " if near else "known: "
    return "no such MIG profile", name, hint + ", ".join(known)


def _too_much(
    model: GpuModel, pieces: Sequence[Piece], profiles: Sequence[MigProfile]
) -> tuple[str, str, str]:
    value = _shown(pieces)
    if sum(profile.media for profile in profiles) > 1:
        return "more than one +me instance", value, "a board has one: leave +me off the others"
    for what, has, asked in (
        ("compute", model.compute_slices, sum(item.compute_slices for item in profiles)),
        ("memory", model.memory_slices, sum(item.memory_slices for item in profiles)),
    ):
        if asked > has:
            return f"too many {what} slices ({asked} of {has})", value, "leave some out"
    return "no placement for all of these at once", value, _hint(model, pieces)


def _hint(model: GpuModel, pieces: Sequence[Piece]) -> str:
    """What most of the pieces would be, dropping as few as it takes, largest kept."""
    if any(piece.start is not None for piece in pieces):
        return "leave the @ off to have them placed, or see docs/mig.md for the table"
    kept: list[Piece] = []
    for piece in sorted(pieces, key=lambda piece: _rank(model, piece)):
        if pack(model, [*kept, piece]) is not None:
            kept.append(piece)
    return f"possible: {_shown(kept)}"


def _shown(pieces: Iterable[Piece]) -> str:
    counts = Counter(map(str, pieces))
    return " + ".join(f"{count} x {name}" if count > 1 else name for name, count in counts.items())


def _rank(model: GpuModel, piece: Piece) -> tuple[int, int, str, int]:
    """Fixed and large ones first: they have the fewest places."""
    profile = model.profile(piece.profile)
    size = profile.size if profile else 0
    fixed = -1 if piece.start is None else piece.start
    return (fixed < 0, -size, piece.profile, fixed)


@functools.lru_cache(maxsize=1024)
def _packed(model: GpuModel, pieces: tuple[Piece, ...]) -> tuple[Placed, ...] | None:
    if any(model.profile(piece.profile) is None for piece in pieces):
        return None
    found = {tuple(sorted(each, key=_by_start)) for each in _placements(model, pieces)}
    if not found:
        return None
    return min(found, key=lambda each: (-_room(model, each), [(p.start, p.profile) for p in each]))


def _placements(
    model: GpuModel,
    pieces: tuple[Piece, ...],
    placed: tuple[Placed, ...] = (),
    before: Piece | None = None,
) -> Iterator[tuple[Placed, ...]]:
    """All legal ways to place `pieces` besides `placed`; equal pieces only in rising order.

    `before` is the piece that was placed last.
    """
    if not pieces:
        yield placed
        return
    first, rest = pieces[0], pieces[1:]
    profile = model.profile(first.profile)
    assert profile is not None, "_packed looked"  # noqa: S101
    least = placed[-1].start + 1 if before == first else 0
    for start in profile.placements if first.start is None else (first.start,):
        more = (*placed, Placed(first.profile, start))
        if start >= least and layout_is_legal(model, more):
            yield from _placements(model, rest, more, first)


def _room(model: GpuModel, placed: Sequence[Placed]) -> int:
    return sum(
        profile.size
        for profile in model.profiles
        for start in profile.placements
        if layout_is_legal(model, [*placed, Placed(profile.name, start)])
    )


def _by_start(placed: Placed) -> tuple[int, str]:
    return (placed.start, placed.profile)
