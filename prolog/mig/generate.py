# SPDX-License-Identifier: Apache-2.0
"""The Gres= value and the gres.conf lines that belong to a node's boards; pure.

Hand-written lines name the capability files of each GPU instance and of its compute instance,
which the driver numbers when it makes them: such lines exist only for what is on the board.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from fairwatt.core.catalogue import Catalogue, GpuModel
from fairwatt.core.errors import ConfigError
from fairwatt.core.gres import Gres, format_node_gres
from fairwatt.prolog.mig.layout import Layout, NodeLayout, Placed, resolve
from fairwatt.prolog.mig.live import LiveGpu, LiveInstance, LiveNode
from fairwatt.prolog.mig.names import Spelling, detected_name

__all__ = [
    "Board",
    "Generated",
    "Style",
    "boards_declared",
    "boards_live",
    "generate",
    "gres_counts",
    "unlike",
]

Style = Literal["nvml", "files"]


@dataclass(frozen=True)
class Board:
    """A board and how it shall be cut; `placed` (): one whole GPU, MIG off.

    `layout` is the declared one, None where nothing is declared: then it is as it is.
    """

    gpu: LiveGpu
    model: GpuModel | None
    placed: tuple[Placed, ...] = ()
    layout: Layout | None = None


@dataclass(frozen=True)
class Generated:
    """What belongs in Slurm's files: Gres=, the node's gres.conf lines, the count of each type."""

    gres: str
    lines: tuple[str, ...]
    counts: Mapping[str, int]


def boards_declared(
    declared: NodeLayout | None, live: LiveNode, catalogue: Catalogue
) -> tuple[list[Board], list[ConfigError]]:
    """Return the node's boards as they are declared, and what cannot be done on them.

    A board with a fault, or without a declared layout, stays as it is.
    """
    boards: list[Board] = []
    faults: list[ConfigError] = []
    for gpu in live.gpus:
        layout = declared.of_gpu(gpu.minor, gpu.uuid) if declared else None
        model = gpu.model(catalogue)
        try:
            boards.append(_declared(gpu, model, layout))
        except ConfigError as error:
            faults.append(error)
            boards.append(_as_is(gpu, model))
    return boards, faults


def boards_live(live: LiveNode, catalogue: Catalogue) -> list[Board]:
    """Return the node's boards as they are now."""
    return [_as_is(gpu, gpu.model(catalogue)) for gpu in live.gpus]


def generate(
    node: str,
    boards: Sequence[Board],
    spelling: Spelling,
    style: Style = "nvml",
    *,
    live: LiveNode | None = None,
    others: Iterable[Gres] = (),
    dev: str = "/dev",
) -> Generated:
    """Return what Slurm's files must say of a node.

    Args:
        node: its name in Slurm.
        boards: as declared or as they are.
        spelling: how types are written.
        style: "nvml" for AutoDetect=nvml, "files" for lines with device files.
        live: with "files": the instances and the driver's numbers of their files.
        others: entries of Gres= that are no GPUs; they are kept.
        dev: the folder of the device files.

    Raises:
        ConfigError: with "files", a declared instance that is not on the board yet.
    """
    counts = gres_counts(boards, spelling)
    entries = [Gres("gpu", type_, count) for type_, count in counts.items()]
    gres = format_node_gres([*entries, *others])
    if style == "nvml":
        return Generated(gres, (f"NodeName={node} AutoDetect=nvml",), counts)
    caps = live.caps if live else {}
    lines = [line for board in boards for line in _lines(node, board, spelling, caps, dev)]
    return Generated(gres, tuple(lines), counts)


def gres_counts(boards: Iterable[Board], spelling: Spelling) -> dict[str, int]:
    """Return how many of each GRES type boards give: whole ones first, large slices next."""
    found: Counter[tuple[int, str]] = Counter()
    for board in boards:
        if not board.placed and not _is_empty_mig(board):
            found[-100, _whole_type(board, spelling)] += 1
        for placed in board.placed:
            found[-_compute(board, placed), _slice_type(board, placed, spelling)] += 1
    counts: dict[str, int] = {}
    for (_, type_), count in sorted(found.items()):
        counts[type_] = counts.get(type_, 0) + count
    return counts


def unlike(board: Board) -> str | None:
    """Say in words how a board differs from what is declared for it; None: it does not."""
    gpu, layout = board.gpu, board.layout
    if layout is None:
        return None
    if gpu.mig != bool(board.placed):
        return f"MIG is {'on' if gpu.mig else 'off'}, {layout.name} wants it {_on(not gpu.mig)}"
    if gpu.mig and gpu.placed != board.placed:
        return f"it holds {_shown(gpu)}, {layout.name} wants {_listed(board.placed)}"
    return None


def _declared(gpu: LiveGpu, model: GpuModel | None, layout: Layout | None) -> Board:
    if layout is None:
        return _as_is(gpu, model)
    if layout.is_whole:
        return Board(gpu, model, (), layout)
    if model is None:
        raise ConfigError(
            "the catalogue does not know this board",
            place=f"/dev/nvidia{gpu.minor}",
            value=gpu.name,
            remedy="add its model to a file in site.catalogue_dir",
        )
    if layout.model not in (None, model.key):
        raise ConfigError(
            f"layout {layout.name} is for {layout.model}",
            place=layout.place or layout.name,
            value=model.key,
            remedy=f"declare another layout for /dev/nvidia{gpu.minor}",
        )
    return Board(gpu, model, resolve(layout, model), layout)


def _as_is(gpu: LiveGpu, model: GpuModel | None) -> Board:
    usable = [each for each in gpu.instances if each.profile is not None]
    starts = (
        Placed(each.profile or "", -1 if each.start is None else each.start) for each in usable
    )
    placed = sorted(starts, key=lambda each: (each.start, each.profile))
    return Board(gpu, model, tuple(placed) if gpu.mig else ())


def _is_empty_mig(board: Board) -> bool:
    return board.layout is None and board.gpu.mig


def _whole_type(board: Board, spelling: Spelling) -> str:
    name = detected_name(board.gpu.name) if board.gpu.name else None
    if board.model is None:
        return (name or "unknown").removeprefix("nvidia_")
    return spelling.type_of(board.model, None, name)


def _slice_type(board: Board, placed: Placed, spelling: Spelling) -> str:
    name = _seen_as(board, placed)
    if board.model is None:
        return (name or placed.profile).removeprefix("nvidia_")
    return spelling.type_of(board.model, placed.profile, name)


def _seen_as(board: Board, placed: Placed) -> str | None:
    if not board.gpu.name:
        return None
    same = _instance(board.gpu, placed)
    return detected_name(board.gpu.name, same.seen_profile if same else placed.profile)


def _compute(board: Board, placed: Placed) -> int:
    profile = board.model.profile(placed.profile) if board.model else None
    return profile.compute_slices if profile else 0


def _instance(gpu: LiveGpu, placed: Placed) -> LiveInstance | None:
    for each in gpu.instances:
        start = -1 if each.start is None else each.start
        if (each.profile, start) == tuple(placed):
            return each
    return None


def _lines(
    node: str,
    board: Board,
    spelling: Spelling,
    caps: Mapping[tuple[int, int, int | None], int],
    dev: str,
) -> list[str]:
    device = f"{dev}/nvidia{board.gpu.minor}"
    head = f"NodeName={node} Name=gpu Type="
    if not board.placed:
        whole = f"{head}{_whole_type(board, spelling)} File={device}"
        return [] if _is_empty_mig(board) else [whole]
    lines = []
    for placed in board.placed:
        files = ",".join([device, *_cap_files(board, placed, caps, dev)])
        lines.append(f"{head}{_slice_type(board, placed, spelling)} MultipleFiles={files}")
    return lines


def _cap_files(
    board: Board,
    placed: Placed,
    caps: Mapping[tuple[int, int, int | None], int],
    dev: str,
) -> list[str]:
    minor = board.gpu.minor
    found = _instance(board.gpu, placed)
    if found is None or found.ci is None:
        raise ConfigError(
            "not on the board yet, so its device files have no numbers",
            place=f"{dev}/nvidia{minor}",
            value=f"{placed.profile}@{placed.start}",
            remedy="apply the layout first, or use --style nvml",
        )
    keys = [(minor, found.gi, None), (minor, found.gi, found.ci)]
    if any(key not in caps for key in keys):
        raise ConfigError(
            "the driver's table has no files for it",
            place="/proc/driver/nvidia-caps/mig-minors",
            value=f"gpu{minor}/gi{found.gi}/ci{found.ci}",
            remedy="reload the driver's table (nvidia-modprobe), or use --style nvml",
        )
    return [f"{dev}/nvidia-caps/nvidia-cap{caps[key]}" for key in keys]


def _shown(gpu: LiveGpu) -> str:
    if not gpu.instances:
        return "no instances"
    names = [
        f"{each.profile or 'unknown'}@{'?' if each.start is None else each.start}"
        for each in gpu.instances
    ]
    return ", ".join(sorted(names, key=lambda name: (name.partition("@")[2], name)))


def _listed(placed: Iterable[Placed]) -> str:
    return ", ".join(f"{each.profile}@{each.start}" for each in placed)


def _on(mig: bool) -> str:
    return "on" if mig else "off"
