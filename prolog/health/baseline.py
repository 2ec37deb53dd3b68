# SPDX-License-Identifier: Apache-2.0
"""The recorded baseline: what a node has when it is as it should be."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from fairwatt.core.errors import ConfigError
from fairwatt.core.files import write_atomically
from fairwatt.prolog.health.reading import Gpu, Reading

__all__ = ["Baseline", "Board", "baseline_of", "read_baseline", "recorded_gpus", "write_baseline"]

FILE_NAME = "baseline.json"


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU, `index` being NVML's; None: could not be read. `links`: how many NVLinks are up."""

    uuid: str
    index: int
    minor: int
    pci: str
    name: str
    links: int | None = None
    limit_mw: int | None = None
    profiles: tuple[str, ...] | None = None


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """All GPUs of a node at `t_ms` (UTC epoch milliseconds)."""

    v: Literal[1] = 1
    t_ms: int
    node: str
    boards: tuple[Board, ...]


def baseline_of(node: str, reading: Reading) -> Baseline:
    """Return what is there now.

    Raises:
        ConfigError: a GPU does not answer, or none is there: that is no state to keep.
    """
    sick = [gpu.uuid for gpu in reading.gpus or () if gpu.state != "ok"]
    if sick or not reading.gpus:
        gap = reading.gaps.get(("", "devices"))
        why = f"does not answer: {', '.join(sick)}" if sick else "no GPU can be seen"
        remedy = "record the baseline when all GPUs work"
        raise ConfigError(gap.why if gap else why, place=f"node {node}", remedy=remedy)
    boards = tuple(_board(gpu) for gpu in reading.gpus)
    return Baseline(t_ms=reading.t_ms, node=node, boards=boards)


def _board(gpu: Gpu) -> Board:
    return Board(
        uuid=gpu.uuid,
        index=gpu.index,
        minor=gpu.minor,
        pci=gpu.pci,
        name=gpu.name,
        links=None if gpu.links is None else sum(link.active for link in gpu.links),
        limit_mw=gpu.power.limit_mw if gpu.power else None,
        profiles=gpu.profiles,
    )


def read_baseline(folder: Path) -> Baseline | None:
    """Return the recorded baseline; None where none was recorded.

    Raises:
        ConfigError: the file cannot be read or is damaged.
    """
    path = folder / FILE_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=Baseline)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(
            f"cannot be read: {error}",
            place=str(path),
            remedy="record it anew: fairwatt health baseline --write",
        ) from error


def recorded_gpus(folder: Path) -> tuple[Gpu, ...]:
    """Return the baseline's boards without their parts; none where it cannot be read."""
    try:
        baseline = read_baseline(folder)
    except ConfigError:  # the reading says so
        return ()
    return tuple(
        Gpu(uuid=each.uuid, index=each.index, minor=each.minor, pci=each.pci, name=each.name)
        for each in (baseline.boards if baseline else ())
    )


def write_baseline(folder: Path, baseline: Baseline) -> Path:
    """Keep a baseline; return its file.

    Raises:
        ConfigError: the folder cannot be written.
    """
    path = folder / FILE_NAME
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        write_atomically(path, msgspec.json.format(msgspec.json.encode(baseline)), 0o644)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", place=str(path)) from error
    return path
