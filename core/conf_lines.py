# SPDX-License-Identifier: Apache-2.0
"""Lines of Slurm's configuration files: comments, continuation, Include, key=value pairs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from fairwatt.core.errors import ConfigError

__all__ = ["ConfLine", "constrains_devices", "names_node", "read_conf"]

_PAIR = re.compile(r'(\w+)\s*=\s*("[^"]*"|\S+)')
_DEEPEST_INCLUDE = 5


@dataclass(frozen=True)
class ConfLine:
    """One line: where it stands (`file:line`), its values by lower-case key, its text.

    The text is without comments; continued lines are joined.
    """

    place: str
    values: dict[str, str]
    text: str = ""


def read_conf(path: Path, *, depth: int = 0) -> Iterator[ConfLine]:
    """Yield the lines of a file and of those it includes, in order.

    Raises:
        ConfigError: a file cannot be read, or includes go in a circle.
    """
    if depth > _DEEPEST_INCLUDE:
        raise ConfigError("included too deep", place=str(path), remedy="break the circle")
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", place=str(path)) from error
    for number, line in _logical_lines(text):
        words = line.split()
        if words[0].lower() == "include" and len(words) == 2:
            yield from read_conf(path.parent / words[1], depth=depth + 1)
        else:
            pairs = {key.lower(): value.strip('"') for key, value in _PAIR.findall(line)}
            yield ConfLine(f"{path}:{number}", pairs, line)


def names_node(line: ConfLine, node: str) -> bool:
    """Say whether the line's NodeName= contains `node`; a line without one does not.

    Raises:
        ConfigError: the value is no host list.
    """
    hostlist = line.values.get("nodename", "")
    try:
        return bool(hostlist) and node in NodeSet(hostlist, resolver=RESOLVER_NOGROUP)
    except NodeSetException as error:
        raise ConfigError(
            f"not a host list: {error}", place=line.place, value=hostlist, remedy="mend the line"
        ) from error


def constrains_devices(cgroup_conf: Path) -> bool:
    """Say whether Slurm numbers a step's devices from 0 (ConstrainDevices=yes in cgroup.conf).

    Raises:
        ConfigError: the file is there but cannot be read.
    """
    if not cgroup_conf.exists():
        return False
    words = [line.values.get("constraindevices", "no") for line in read_conf(cgroup_conf)]
    return any(word.lower() in ("yes", "true", "1") for word in words)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    held = ""
    for number, line in enumerate(text.splitlines(), start=1):
        held += line.split("#", 1)[0]
        if held.endswith("\\"):
            held = held[:-1] + " "
        elif held.strip():
            yield number, held.strip()
            held = ""
        else:
            held = ""
