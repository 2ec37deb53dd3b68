# SPDX-License-Identifier: Apache-2.0
"""The Slurm client: nodes, partitions and settings of a cluster through its command line.

Nodes come as JSON, because their text holds free text with spaces: `scontrol show nodes --json`
from 23.02, `sinfo --json` before. Numbers may be plain or `{set, infinite, number}`, words a list
or a text with commas. Partitions come as text, which has not changed from 20.11 to 26.05, while
their JSON is missing in 22.05 and later says nowhere which one is the default.
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
    "spelling_of_version",
]

TIMEOUT_S = 20.0
_PAIR = re.compile(r"([A-Za-z]+)=(\S*)")
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
    open_to_all: bool = True
    """No list of accounts, groups or QOS limits who may use it, and it is not for root only."""


class SlurmClient:
    """Asks one cluster; `slurm_conf` None or "" means SLURM_CONF or Slurm's own default.

    Every method starts one process and may raise CommandError (no answer) or SlurmError
    (an answer in no known shape).
    """

    def __init__(self, slurm_conf: str | None = None) -> None:
        self._env = {"SLURM_CONF": slurm_conf} if slurm_conf else {}

    def nodes(self) -> list[NodeFacts]:
        """Return all nodes."""
        return self._read("nodes", self._nodes_json, _nodes)

    def partitions(self) -> list[PartitionFacts]:
        """Return all partitions that this user may see."""
        return self._read("partitions", self._partitions_text, _partitions)

    def reservations(self) -> dict[str, str]:
        """Return the partition of each reservation by its name; "" where it has none.

        Raises:
            CommandError: slurmctld does not answer.
        """
        text = self._scontrol("--oneliner", "show", "reservations").stdout
        rows = [dict(_PAIR.findall(line)) for line in text.splitlines()]
        return {
            row["ReservationName"]: row.get("PartitionName", "").replace("(null)", "")
            for row in rows
            if "ReservationName" in row
        }

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

    def _nodes_json(self) -> str:
        try:
            return self._scontrol("show", "nodes", "--json").stdout
        except CommandError as error:
            if "unrecognized option" not in error.stderr:
                raise
        return call(["sinfo", "--json"], timeout_s=TIMEOUT_S, env=self._env).stdout

    def _partitions_text(self) -> str:
        return self._scontrol("--oneliner", "--all", "show", "partitions").stdout

    def _read(
        self, what: str, ask: Callable[[], str], read: Callable[[str], list[_Fact]]
    ) -> list[_Fact]:
        text = ask()
        try:
            return read(text)
        except (msgspec.DecodeError, KeyError, TypeError, ValueError, GrammarError) as error:
            raise SlurmError(
                f"an answer in no known shape ({type(error).__name__}: {error})",
                place=f"Slurm's {what}",
                remedy="report the output of scontrol and sinfo; known are Slurm 22.05 to 26.05",
            ) from error

    def _scontrol(self, *args: str) -> Completed:
        return call(["scontrol", *args], timeout_s=TIMEOUT_S, env=self._env)


def spelling_of_version(version: tuple[int, int, int]) -> Spelling:
    """Return how a server of this version spells GRES in requests."""
    if version[:2] < (21, 8):
        return Spelling.BARE
    return Spelling.COLON if version[:2] < (23, 11) else Spelling.SLASH


def _nodes(text: str) -> list[NodeFacts]:
    return [_node(item) for item in msgspec.json.decode(text)["nodes"]]


def _node(item: Mapping[str, Any]) -> NodeFacts:
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


def _partitions(text: str) -> list[PartitionFacts]:
    return [_partition(line) for line in text.splitlines() if line.startswith("PartitionName=")]


def _partition(line: str) -> PartitionFacts:
    facts = dict(_PAIR.findall(line))
    nodes = facts["Nodes"]
    return PartitionFacts(
        name=facts["PartitionName"],
        nodes="" if nodes == "(null)" else nodes,
        state=facts["State"].upper(),
        default=facts["Default"] == "YES",
        max_time_s=_seconds(facts["MaxTime"]),
        billing_weights=facts.get("TRESBillingWeights", ""),
        open_to_all=_is_open(facts),
    )


def _is_open(facts: Mapping[str, str]) -> bool:
    """Whether nothing but limits stands between a user and this partition."""
    lists = [facts.get(f"Allow{who}", "ALL") for who in ("Groups", "Accounts", "Qos")]
    denied = [facts.get(f"Deny{who}", "") for who in ("Accounts", "Qos")]
    return set(lists) == {"ALL"} and not any(denied) and facts.get("RootOnly", "NO") == "NO"


def _seconds(text: str) -> int | None:
    """Read `1-00:00:00` or `00:10:00`; UNLIMITED is None."""
    if text == "UNLIMITED":
        return None
    days, _, clock = text.rpartition("-")
    hours, minutes, seconds = clock.split(":")
    return ((int(days or 0) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(seconds)


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
