# SPDX-License-Identifier: Apache-2.0
"""What slurm.conf and gres.conf say of one node's GPUs, each with the line it stands in; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from fairwatt.core.conf_lines import ConfLine, names_node
from fairwatt.core.errors import ConfigError, GrammarError
from fairwatt.core.gres import Gres, parse_node_gres
from fairwatt.core.gres_conf import expand_files

__all__ = ["GpuLine", "NodeConf", "conf_of_node", "conf_of_slurm", "with_value"]


@dataclass(frozen=True)
class GpuLine:
    """One gpu line of gres.conf: its type, the devices of File= or the files of MultipleFiles=."""

    line: ConfLine
    type: str | None
    files: tuple[str, ...] = ()
    multiple: bool = False
    count: int = 1

    @property
    def place(self) -> str:
        """Return `file:line`."""
        return self.line.place


@dataclass(frozen=True)
class NodeConf:
    """A node's Gres=, and its part of gres.conf.

    `gres` is None where Slurm knows no such node. `gres_line` is the NodeName line, None for a
    dynamic node, whose Gres= stands in the slurmd's own options. `autodetect` is in lower case,
    "off" where nothing is said; `autodetect_line` says where.
    """

    node: str
    gres: tuple[Gres, ...] | None
    gres_line: ConfLine | None = None
    lines: tuple[GpuLine, ...] = ()
    autodetect: str = "off"
    autodetect_line: ConfLine | None = None
    slurm_conf: str = "slurm.conf"
    gres_conf: str = "gres.conf"

    @property
    def gpus(self) -> tuple[Gres, ...]:
        """The gpu entries of Gres=."""
        return tuple(each for each in self.gres or () if each.is_gpu)

    @property
    def others(self) -> tuple[Gres, ...]:
        """The entries of Gres= that are no GPUs (shard, mps, …)."""
        return tuple(each for each in self.gres or () if not each.is_gpu)

    @property
    def types(self) -> tuple[str, ...]:
        """The GPU types in use here, each once."""
        found = [*(each.type for each in self.gpus), *(line.type for line in self.lines)]
        return tuple(dict.fromkeys(type_ for type_ in found if type_))

    @property
    def other_nodes(self) -> int:
        """How many other nodes the NodeName line is for."""
        hosts = self.gres_line.values.get("nodename", "") if self.gres_line else ""
        try:
            return max(0, len(NodeSet(hosts, resolver=RESOLVER_NOGROUP)) - 1)
        except NodeSetException:
            return 0

    def line_with_gres(self, gres: str) -> str | None:
        """Return the NodeName line as it must be for another Gres=; None for a dynamic node."""
        if self.gres_line is None or self.gres_line.values.get("nodename", "") == "":
            return None
        return with_value(self.gres_line.text, "Gres", gres)


def conf_of_node(
    node: str,
    slurm_lines: Iterable[ConfLine],
    gres_lines: Iterable[ConfLine],
    slurm_conf: str = "slurm.conf",
    gres_conf: str = "gres.conf",
) -> NodeConf:
    """Read a node's part of both files; the last two arguments name them in messages.

    Raises:
        ConfigError: a host list, Gres= or Count= that cannot be read.
    """
    line, gres = _node_line(node, slurm_lines)
    here = [each for each in gres_lines if _is_for(each, node)]
    gpus = [each for each in here if each.values.get("name", "").lower() == "gpu"]
    said = [each for each in here if "autodetect" in each.values]
    return NodeConf(
        node=node,
        gres=None if line is None else _gres(gres, line.place),
        gres_line=line,
        lines=tuple(_gpu_line(each) for each in gpus if _has_devices(each)),
        autodetect=said[-1].values["autodetect"].lower() if said else "off",
        autodetect_line=said[-1] if said else None,
        slurm_conf=slurm_conf,
        gres_conf=gres_conf,
    )


def conf_of_slurm(node: str, gres: tuple[Gres, ...], conf: NodeConf) -> NodeConf:
    """Return `conf` with the Gres that slurmctld has for a dynamic node, which no file names."""
    return NodeConf(
        node,
        gres,
        None,
        conf.lines,
        conf.autodetect,
        conf.autodetect_line,
        conf.slurm_conf,
        conf.gres_conf,
    )


def with_value(text: str, key: str, value: str) -> str:
    """Return a line of Slurm's configuration with `key` set to `value`, added if it was not there.

    >>> with_value("NodeName=n1 Gres=gpu:2 CPUs=4", "Gres", "gpu:a100:2")
    'NodeName=n1 Gres=gpu:a100:2 CPUs=4'
    """
    pattern = re.compile(rf'(?i)(?<!\w){re.escape(key)}\s*=\s*("[^"]*"|\S+)')
    written = f"{key}={value}"
    if pattern.search(text) is None:
        return f"{text} {written}"
    return pattern.sub(lambda _: written, text, count=1)


def _node_line(node: str, lines: Iterable[ConfLine]) -> tuple[ConfLine | None, str]:
    default = ""
    for line in lines:
        if line.values.get("nodename", "").lower() == "default":
            default = line.values.get("gres", default)
        elif names_node(line, node):
            return line, line.values.get("gres", default)
    return None, ""


def _gres(text: str, place: str) -> tuple[Gres, ...]:
    try:
        return parse_node_gres(text)
    except GrammarError as error:
        raise ConfigError(str(error), place=place, remedy="mend the node's Gres=") from error


def _is_for(line: ConfLine, node: str) -> bool:
    return "nodename" not in line.values or names_node(line, node)


def _has_devices(line: ConfLine) -> bool:
    return any(key in line.values for key in ("file", "multiplefiles", "count", "type"))


def _gpu_line(line: ConfLine) -> GpuLine:
    values = line.values
    type_ = values.get("type")
    if "multiplefiles" in values:
        return GpuLine(line, type_, tuple(expand_files(values["multiplefiles"])), multiple=True)
    files = tuple(expand_files(values.get("file", "")))
    count = values.get("count", str(len(files) or 1))
    if not count.isdigit():
        raise ConfigError(
            "Count is no number", place=line.place, value=count, remedy="mend the line"
        )
    return GpuLine(line, type_, files, count=len(files) or int(count))
