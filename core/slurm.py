# SPDX-License-Identifier: Apache-2.0
"""The Slurm client: nodes, partitions and settings of a cluster through scontrol.

One adapter per record takes the shapes of 22.05 (plain values) and of 23.02 to 26.05
(`{set, infinite, number}` objects, lists instead of comma texts).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from fairwatt.core.call import Completed, call
from fairwatt.core.errors import CommandError, GrammarError, SlurmError
from fairwatt.core.gres import Gres, Spelling, parse_node_gres

__all__ = [
    "NodeFacts",
    "PartitionFacts",
    "SlurmClient",
    "node_facts",
    "partition_facts",
    "spelling_of_version",
]

TIMEOUT_S = 20.0
_NO_VAL = {2**16 - 2, 2**32 - 2, 2**32 - 1, 2**64 - 2, 2**64 - 1}
_Fact = TypeVar("_Fact")


@dataclass(frozen=True)
class NodeFacts:
    """A node as the controller sees it; `state` is upper case, its flags apart."""

    name: str
    state: str
    flags: tuple[str, ...]
    gres: tuple[Gres, ...]
    cpus: int
    mem_mib: int
    partitions: tuple[str, ...]
    features: tuple[str, ...]


@dataclass(frozen=True)
class PartitionFacts:
    """A partition: its hostlist, whether it is the default, its time limit in s (None: none)."""

    name: str
    nodes: str
    state: str
    default: bool
    max_time_s: int | None
    billing_weights: str


class SlurmClient:
    """Asks one cluster; `slurm_conf` None or "" means SLURM_CONF or Slurm's own default.

    Every method starts one process and may raise CommandError (no answer) or SlurmError
    (an answer in no known shape).
    """

    def __init__(self, slurm_conf: str | None = None) -> None:
        self._env = {"SLURM_CONF": slurm_conf} if slurm_conf else {}

    def nodes(self) -> list[NodeFacts]:
        """Return all nodes."""
        return self._show("nodes", node_facts)

    def partitions(self) -> list[PartitionFacts]:
        """Return all partitions that this user may see."""
        return self._show("partitions", partition_facts)

    def config(self) -> dict[str, str]:
        """Return the controller's settings by the names of slurm.conf, as texts."""
        lines = self._scontrol("show", "config").stdout.splitlines()
        pairs = (line.partition("=") for line in lines if "=" in line)
        return {name.strip(): value.strip() for name, _, value in pairs}

    def version(self) -> tuple[int, int, int]:
        """Return the controller's version, (22, 5, 8)."""
        text = self.config().get("SLURM_VERSION", "")
        match = re.match(r"(\d+)\.(\d+)\.(\d+)", text)
        if match is None:
            raise SlurmError("no version", place="scontrol show config", value=text)
        return int(match[1]), int(match[2]), int(match[3])

    def is_up(self) -> bool:
        """Tell whether a controller answers; never raises CommandError."""
        try:
            return " is UP" in self._scontrol("ping").stdout
        except CommandError:
            return False

    def _show(self, what: str, read: Callable[[Mapping[str, Any]], _Fact]) -> list[_Fact]:
        place = f"scontrol show {what} --json"
        try:
            answer = msgspec.json.decode(self._scontrol("show", what, "--json").stdout)
            return [read(item) for item in answer[what]]
        except (msgspec.DecodeError, KeyError, TypeError, ValueError, GrammarError) as error:
            raise SlurmError(
                f"unknown shape: {type(error).__name__} {error}",
                place=place,
                remedy="report the output; known are Slurm 22.05 to 26.05",
            ) from error

    def _scontrol(self, *args: str) -> Completed:
        return call(["scontrol", *args], timeout_s=TIMEOUT_S, env=self._env)


def spelling_of_version(version: tuple[int, int, int]) -> Spelling:
    """Return how a server of this version spells GRES in requests."""
    if version[:2] < (21, 8):
        return Spelling.BARE
    return Spelling.COLON if version[:2] < (23, 11) else Spelling.SLASH


def node_facts(item: Mapping[str, Any]) -> NodeFacts:
    """Read one element of `nodes`; KeyError, TypeError or ValueError on a foreign shape."""
    states = _words(item["state"])
    flags = [*states[1:], *_words(item.get("state_flags", []))]
    return NodeFacts(
        name=_text(item["name"]),
        state=states[0].upper() if states else "UNKNOWN",
        flags=tuple(flag.upper() for flag in flags),
        gres=parse_node_gres(_text(item["gres"])),
        cpus=_number(item["cpus"]) or 0,
        mem_mib=_number(item["real_memory"]) or 0,
        partitions=tuple(_words(item["partitions"])),
        features=tuple(_words(item["features"])),
    )


def partition_facts(item: Mapping[str, Any]) -> PartitionFacts:
    """Read one element of `partitions`; KeyError, TypeError or ValueError on a foreign shape."""
    new = isinstance(item.get("nodes"), dict)
    return _new_partition(item) if new else _partition_of_22_05(item)


def _new_partition(item: Mapping[str, Any]) -> PartitionFacts:
    minutes = _number(item["maximums"]["time"])
    return PartitionFacts(
        name=_text(item["name"]),
        nodes=_text(item["nodes"]["configured"]),
        state=(_words(item["partition"]["state"]) or ["UNKNOWN"])[0].upper(),
        default="DEFAULT" in _words(item.get("flags", [])),
        max_time_s=None if minutes is None else minutes * 60,
        billing_weights=_text(item["tres"]["billing_weights"]),
    )


def _partition_of_22_05(item: Mapping[str, Any]) -> PartitionFacts:
    minutes = _number(item["max_time_limit"])
    return PartitionFacts(
        name=_text(item["name"]),
        nodes=_text(item["nodes"]),
        state=_text(item["state"]).upper(),
        default="default" in (flag.lower() for flag in _words(item["flags"])),
        max_time_s=None if minutes is None else minutes * 60,
        billing_weights=_text(item["billing_weights"]),
    )


def _number(value: object) -> int | None:
    """Read a number of any version; unset, infinite and NO_VAL are None."""
    if isinstance(value, Mapping):
        if not value["set"] or value["infinite"]:
            return None
        value = value["number"]
    if not isinstance(value, (int, float, str)) or isinstance(value, bool):
        raise TypeError(f"not a number: {value!r}")
    number = int(value)
    return None if number in _NO_VAL or number < 0 else number


def _text(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError(f"not a text: {value!r}")
    return value


def _words(value: object) -> list[str]:
    """Read a list of words: a JSON list, or a text with commas."""
    if isinstance(value, list):
        return [_text(item) for item in value]
    return [word for word in _text(value).split(",") if word]
