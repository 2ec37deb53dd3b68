# SPDX-License-Identifier: Apache-2.0
"""Which device files stand at which of a node's GPU positions, from gres.conf and slurm.conf.

SLURM_JOB_GPUS holds positions. Slurm (measured on 22.05) orders a node's gpu lines of gres.conf
by the order of their types in slurm.conf's Gres=, and keeps the order of lines within a type;
the numbers in the file names play no part.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairwatt.core.conf_lines import ConfLine, names_node, read_conf
from fairwatt.core.errors import ConfigError, GrammarError
from fairwatt.core.gres import Gres, parse_node_gres

__all__ = [
    "GresConf",
    "GresDevice",
    "devices_of_node",
    "expand_files",
    "gres_of_node",
    "in_slurm_order",
    "read_gres",
    "types_of_node",
]

_BRACKETS = re.compile(r"\[([^\]]*)\]")


@dataclass(frozen=True)
class GresDevice:
    """One GPU of gres.conf: its type and device files (MIG has three; Count= alone has none)."""

    type: str | None
    files: tuple[str, ...]


@dataclass(frozen=True)
class GresConf:
    """A node's GPUs by Slurm's position; `problem` says why the positions cannot be known."""

    positions: tuple[GresDevice, ...]
    problem: str | None = None


def read_gres(gres_conf: Path, slurm_conf: Path, node: str) -> GresConf | None:
    """Return the node's GPUs; None if there is no gres.conf or it has no GPU lines for the node.

    Raises:
        ConfigError: a file or line cannot be read; the message names it.
    """
    if not gres_conf.exists():
        return None
    devices = devices_of_node(read_conf(gres_conf), node)
    if not devices:
        return None
    if len({_key(device.type) for device in devices}) == 1:
        return GresConf(tuple(devices))
    if not slurm_conf.exists():
        return GresConf((), f"{slurm_conf} is missing, so the order of GPU types is unknown")
    types = types_of_node(read_conf(slurm_conf), node)
    return GresConf(tuple(in_slurm_order(devices, types)))


def devices_of_node(lines: Iterable[ConfLine], node: str) -> list[GresDevice]:
    """Return the GPUs that gres.conf lists for `node`, in the order of its lines.

    Raises:
        ConfigError: a host list or count that cannot be read.
    """
    devices: list[GresDevice] = []
    for line in lines:
        if "nodename" in line.values and not names_node(line, node):
            continue
        if line.values.get("name", "").lower() == "gpu":
            type_ = line.values.get("type")
            devices += [GresDevice(type_, files) for files in _files(line)]
    return devices


def types_of_node(lines: Iterable[ConfLine], node: str) -> list[str | None]:
    """Return the GPU types of slurm.conf's Gres= for `node`, in order (None: untyped).

    Raises:
        ConfigError: a host list or Gres value that cannot be read.
    """
    return [item.type for item in gres_of_node(lines, node) if item.name == "gpu"]


def gres_of_node(lines: Iterable[ConfLine], node: str) -> tuple[Gres, ...]:
    """Return what slurm.conf's Gres= says of `node`, in order; empty where it names none.

    Raises:
        ConfigError: a host list or Gres value that cannot be read.
    """
    default = ""
    for line in lines:
        if line.values.get("nodename", "").lower() == "default":
            default = line.values.get("gres", default)
        elif names_node(line, node):
            return _node_gres(line.values.get("gres", default), line.place)
    return ()


def in_slurm_order(devices: Sequence[GresDevice], types: Sequence[str | None]) -> list[GresDevice]:
    """Sort stably by the place of the type in `types`; unlisted types come last."""
    rank = {_key(type_): place for place, type_ in reversed(list(enumerate(types)))}
    return sorted(devices, key=lambda device: rank.get(_key(device.type), len(types)))


def expand_files(text: str) -> list[str]:
    """Expand a File= value (`/dev/nvidia[0-2,5],/dev/x`) in the order it is written."""
    parts = re.split(r",(?![^\[]*\])", text)
    return [name for part in parts for name in _expand(part)]


def _key(type_: str | None) -> str:
    return (type_ or "").lower()


def _node_gres(gres: str, place: str) -> tuple[Gres, ...]:
    try:
        return parse_node_gres(gres)
    except GrammarError as error:
        raise ConfigError(str(error), place=place, remedy="mend the node's Gres=") from error


def _files(line: ConfLine) -> list[tuple[str, ...]]:
    if "multiplefiles" in line.values:
        return [tuple(expand_files(line.values["multiplefiles"]))]
    if "file" in line.values:
        return [(name,) for name in expand_files(line.values["file"])]
    count = line.values.get("count", "0" if "autodetect" in line.values else "1")
    if not count.isdigit():
        raise ConfigError(
            "Count is no number", place=line.place, value=count, remedy="mend the line"
        )
    return [()] * int(count)


def _expand(part: str) -> list[str]:
    match = _BRACKETS.search(part)
    if match is None:
        return [part] if part else []
    head, tail = part[: match.start()], part[match.end() :]
    return [
        f"{head}{number}{rest}"
        for piece in match[1].split(",")
        for number in _range(piece)
        for rest in (_expand(tail) or [""])
    ]


def _range(piece: str) -> list[str]:
    first, _, last = piece.partition("-")
    if not (first.isdigit() and (last or first).isdigit()):
        return [piece]
    width = len(first) if first.startswith("0") else 0
    return [f"{number:0{width}d}" for number in range(int(first), int(last or first) + 1)]
