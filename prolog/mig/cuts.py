# SPDX-License-Identifier: Apache-2.0
"""How a node's boards are cut, and the fewest changes from one cut to another; pure.

>>> from fairwatt.prolog.mig.live import LiveGpu, LiveInstance
>>> gpu = LiveGpu("GPU-1", 0, "A100", mig=True, instances=(LiveInstance(9, "1g.5gb", 2, 0),))
>>> changes([gpu], [Cut("GPU-1", 0, True, (("3g.20gb", 0),))])
[Destroy(gpu='GPU-1', gi=9), Create(gpu='GPU-1', profile='3g.20gb', start=0)]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from fairwatt.prolog.mig.generate import Board
from fairwatt.prolog.mig.live import LiveGpu, LiveInstance

__all__ = ["Change", "Create", "Cut", "Destroy", "SetMode", "changes", "cuts_of", "is_cut"]


class Cut(msgspec.Struct, frozen=True):
    """A board and how it is cut: MIG mode, and (profile, first memory slice) of each instance."""

    gpu: str
    minor: int
    mig: bool
    placed: tuple[tuple[str, int], ...] = ()


class Destroy(NamedTuple):
    """Destroy a GPU instance with all in it."""

    gpu: str
    gi: int


class SetMode(NamedTuple):
    """Turn a board's MIG mode on or off."""

    gpu: str
    mig: bool


class Create(NamedTuple):
    """Create a GPU instance with a compute instance of all of it."""

    gpu: str
    profile: str
    start: int


Change: TypeAlias = Destroy | SetMode | Create


def cuts_of(boards: Iterable[Board]) -> tuple[Cut, ...]:
    """Return boards, as declared or as they are, as cuts; a board let be keeps its MIG mode."""
    return tuple(
        Cut(
            board.gpu.uuid,
            board.gpu.minor,
            bool(board.placed) if board.layout is not None else board.gpu.mig,
            tuple((each.profile, each.start) for each in board.placed),
        )
        for board in boards
    )


def changes(live: Sequence[LiveGpu], wanted: Sequence[Cut]) -> list[Change]:
    """Return what to do to boards: all that goes, then modes, then all that comes.

    Instances that are wanted and complete stay. Boards without a cut are left alone.
    """
    pairs = [(gpu, cut) for gpu in live for cut in wanted if cut.gpu == gpu.uuid]
    gone = [change for gpu, cut in pairs for change in _gone(gpu, cut)]
    modes = [SetMode(gpu.uuid, cut.mig) for gpu, cut in pairs if _mode(gpu) != cut.mig]
    made = [change for gpu, cut in pairs for change in _made(gpu, cut)]
    return [*gone, *modes, *made]


def is_cut(live: Sequence[LiveGpu], wanted: Sequence[Cut]) -> bool:
    """Say whether all boards are there and cut so."""
    known = {gpu.uuid for gpu in live}
    return all(cut.gpu in known for cut in wanted) and not changes(live, wanted)


def _gone(gpu: LiveGpu, cut: Cut) -> Iterator[Destroy]:
    for each in gpu.instances:
        if not cut.mig or not _stays(each, cut):
            yield Destroy(gpu.uuid, each.gi)


def _made(gpu: LiveGpu, cut: Cut) -> Iterator[Create]:
    kept = {(each.profile, each.start) for each in gpu.instances if _stays(each, cut)}
    for profile, start in cut.placed:
        if cut.mig and (profile, start) not in kept:
            yield Create(gpu.uuid, profile, start)


def _stays(instance: LiveInstance, cut: Cut) -> bool:
    return instance.ci is not None and (instance.profile, instance.start) in cut.placed


def _mode(gpu: LiveGpu) -> bool | None:
    """The MIG mode; None while another one waits for a reset."""
    return gpu.mig if gpu.mig_pending in (None, gpu.mig) else None
