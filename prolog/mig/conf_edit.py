# SPDX-License-Identifier: Apache-2.0
"""Changes one node's GPUs in slurm.conf, gres.conf and slurmd's options; text in, text out.

Only what belongs to the node is changed; a line that it shares with other nodes is parted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

from fairwatt.core.conf_lines import ConfLine, names_node
from fairwatt.core.errors import ConfigError

__all__ = ["gres_in_options", "with_gres", "with_gres_in_options", "with_gres_lines"]

_PAIR = re.compile(r'(\w+)\s*=\s*("[^"]*"|\S+)')
_NODE_NAME = re.compile(r'(?i)(?<!\w)NodeName\s*=\s*("[^"]*"|\S+)')
_GRES = re.compile(r'(?i)(?<!\w)Gres\s*=\s*("[^"]*"|\S+)')
_OWN_KEYS = ("nodeaddr", "nodehostname", "port", "bcastaddr")
"""Keys whose value lists go with those of NodeName=."""
_OPTION_GRES = re.compile(r"""(?i)(?<=[\s'"])Gres=([^\s'"]+)""")


def with_gres(text: str, node: str, gres: str, place: str = "slurm.conf") -> str:
    """Return slurm.conf with the node's Gres= set.

    Raises:
        ConfigError: no NodeName line is the node's, or its line cannot be parted.
    """
    chunks = list(_chunks(text))
    for index, chunk in enumerate(chunks):
        if _is_of(chunk, node, place):
            chunks[index] = _line_with_gres(chunk, node, gres, place)
            return "".join(chunks)
    raise ConfigError("no NodeName line is for this node", place=place, value=node)


def with_gres_lines(text: str, node: str, lines: Sequence[str], place: str = "gres.conf") -> str:
    """Return gres.conf with the node's lines for GPU devices replaced, in the place of the first.

    Lines without NodeName= count as the node's in a file that names no node: it is its own.

    Raises:
        ConfigError: such a line stands among those of named nodes.
    """
    chunks = list(_chunks(text))
    new = "".join(f"{line}\n" for line in lines)
    kept: list[str] = []
    at: int | None = None
    for chunk in chunks:
        if not _has_gpus(chunk, node, place, chunks):
            kept.append(chunk)
            continue
        at = len(kept) if at is None else at
        rest = _without(chunk, node)
        kept += [rest] if rest else []
    if at is None and kept and not kept[-1].endswith("\n"):
        kept.append("\n")
    kept.insert(len(kept) if at is None else at, new)
    return "".join(kept)


def gres_in_options(text: str, place: str) -> str:
    """Return the Gres= of slurmd's --conf in a file of options.

    Raises:
        ConfigError: there is none, or more than one.
    """
    found = [m[1] for line in _option_lines(text) for m in _OPTION_GRES.finditer(line)]
    if len(found) != 1:
        raise ConfigError(
            f"{len(found)} times Gres= in slurmd's --conf, not once",
            place=place,
            remedy="write SLURMD_OPTIONS=\"-Z --conf 'Gres=gpu:TYPE:N Feature=…'\" there",
        )
    return found[0]


def with_gres_in_options(text: str, gres: str, place: str, *, drained: bool = False) -> str:
    """Return slurmd's options with another Gres= in --conf; `drained`: the node begins so.

    Raises:
        ConfigError: there is no Gres=, or more than one.
    """
    gres_in_options(text, place)
    plain = text.replace(_DRAINED, "")
    value = f"Gres={gres}{_DRAINED if drained else ''}"
    return "".join(
        line if line.lstrip().startswith("#") else _OPTION_GRES.sub(lambda _: value, line)
        for line in plain.splitlines(keepends=True)
    )


_DRAINED = " State=DRAIN"


def _option_lines(text: str) -> Iterator[str]:
    return (line for line in text.splitlines() if not line.lstrip().startswith("#"))


def _chunks(text: str) -> Iterator[str]:
    """The lines as they stand; a continued line with all that continues it is one."""
    held = ""
    for line in text.splitlines(keepends=True):
        held += line
        if not line.split("#", 1)[0].rstrip("\r\n").endswith("\\"):
            yield held
            held = ""
    if held:
        yield held


def _read(chunk: str, place: str) -> ConfLine:
    joined = " ".join(line.split("#", 1)[0].rstrip().rstrip("\\") for line in chunk.splitlines())
    values = {key.lower(): value.strip('"') for key, value in _PAIR.findall(joined)}
    return ConfLine(place, values, joined)


def _is_of(chunk: str, node: str, place: str) -> bool:
    line = _read(chunk, place)
    return line.values.get("nodename", "").lower() != "default" and names_node(line, node)


def _others(chunk: str, node: str) -> str:
    """The host list without the node; "" where it is the only one, or none is named."""
    hosts = NodeSet(_read(chunk, "").values.get("nodename", ""), resolver=RESOLVER_NOGROUP)
    return str(hosts - NodeSet(node, resolver=RESOLVER_NOGROUP))


def _line_with_gres(chunk: str, node: str, gres: str, place: str) -> str:
    others = _others(chunk, node)
    if not others:
        return _set_gres(chunk, gres)
    shared = [key for key in _OWN_KEYS if _is_list(_read(chunk, place).values.get(key, ""))]
    if shared:
        raise ConfigError(
            f"the line is for several nodes, each with its {shared[0]}",
            place=place,
            value=node,
            remedy=f"give {node} a NodeName line of its own",
        )
    rest = _named(chunk, others)
    return (rest if rest.endswith("\n") else rest + "\n") + _set_gres(_named(chunk, node), gres)


def _is_list(value: str) -> bool:
    return any(sign in value for sign in ",[")


def _named(chunk: str, hosts: str) -> str:
    return _NODE_NAME.sub(lambda _: f"NodeName={hosts}", chunk, count=1)


def _set_gres(chunk: str, gres: str) -> str:
    if _GRES.search(chunk):
        return _GRES.sub(lambda _: f"Gres={gres}", chunk, count=1)
    return _NODE_NAME.sub(lambda match: f"{match[0]} Gres={gres}", chunk, count=1)


def _has_gpus(chunk: str, node: str, place: str, chunks: Sequence[str]) -> bool:
    line = _read(chunk, place)
    if line.values.get("name", "").lower() != "gpu":
        return False
    if "nodename" in line.values:
        return names_node(line, node)
    if any("nodename" in _read(each, place).values for each in chunks):
        raise ConfigError(
            "GPU lines with and without NodeName=: whose is this one?",
            place=place,
            value=line.text.strip(),
            remedy="write NodeName= in each GPU line",
        )
    return True


def _without(chunk: str, node: str) -> str:
    if "nodename" not in _read(chunk, "").values:
        return ""
    others = _others(chunk, node)
    return _named(chunk, others) if others else ""
