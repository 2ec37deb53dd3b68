# SPDX-License-Identifier: Apache-2.0
"""Reads what scontrol and sinfo of Slurm 22.05 to 26.05 print; pure.

Nodes come as JSON, because their text holds free text with spaces. Numbers may be plain or
`{set, infinite, number}`, words a list or a text with commas. Partitions come as text, which has
not changed from 20.11 to 26.05, while their JSON is missing in 22.05 and later says nowhere which
one is the default.

>>> partitions_of_text("PartitionName=a Default=YES MaxTime=00:10:00 Nodes=n1 State=UP")[0].nodes
'n1'
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from fairwatt.core.gres import parse_node_gres
from fairwatt.core.slurm_facts import NodeFacts, PartitionFacts

__all__ = [
    "config_of_text",
    "nodes_of_json",
    "partitions_of_text",
    "qos_flags_of_text",
    "reservations_of_text",
]

_PAIR = re.compile(r"(?<!\S)([A-Za-z]+)=(\S*)")
_NO_VAL = {2**16 - 2, 2**32 - 2, 2**32 - 1, 2**64 - 2, 2**64 - 1}
_NONE = ("", "(null)")


def nodes_of_json(text: str) -> list[NodeFacts]:
    """Read `scontrol show nodes --json` or `sinfo --json`; many errors for an unknown shape."""
    return [_node(item) for item in msgspec.json.decode(text)["nodes"]]


def partitions_of_text(text: str) -> list[PartitionFacts]:
    """Read `scontrol --oneliner show partitions`; KeyError or ValueError for an unknown shape."""
    rows = [_pairs(line) for line in text.splitlines() if line.startswith("PartitionName=")]
    return [_partition(row) for row in rows]


def reservations_of_text(text: str) -> dict[str, str]:
    """Read `scontrol --oneliner show reservations`: the partition of each, "" for none."""
    rows = [_pairs(line) for line in text.splitlines() if line.startswith("ReservationName=")]
    return {row["ReservationName"]: _value(row.get("PartitionName", "")) for row in rows}


def qos_flags_of_text(text: str) -> dict[str, tuple[str, ...]]:
    r"""Read `sacctmgr -nP show qos format=name,flags`: the flags of each QOS by its name.

    >>> qos_flags_of_text("normal|\nlong|DenyOnLimit,PartitionTimeLimit\n")["long"]
    ('DenyOnLimit', 'PartitionTimeLimit')
    """
    rows = (line.partition("|") for line in text.splitlines() if "|" in line)
    return {name: tuple(_words(flags)) for name, _, flags in rows}


def config_of_text(text: str) -> dict[str, str]:
    """Read `scontrol show config`: settings by the names of slurm.conf, as texts."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _pairs(line: str) -> dict[str, str]:
    """The `Key=value` pairs; of two with one name the first, for a comment may hold another."""
    facts: dict[str, str] = {}
    for name, value in _PAIR.findall(line):
        facts.setdefault(name, value)
    return facts


def _node(item: Mapping[str, Any]) -> NodeFacts:
    states = _words(item["state"])
    flags = [*states[1:], *_words(item.get("state_flags", []))]
    return NodeFacts(
        name=_text(item["name"]),
        state=states[0].upper() if states else "UNKNOWN",
        flags=tuple(sorted(flag.upper() for flag in flags)),
        gres=parse_node_gres(_text(item["gres"])),
        cpus=_number(item["cpus"]),
        mem_mib=_number(item["real_memory"]),
        partitions=tuple(_words(item["partitions"])),
        features=tuple(_words(item["features"])),
        active_features=tuple(_words(item.get("active_features", item["features"]))),
        sockets=_number(item["sockets"]) if "sockets" in item else None,
    )


def _partition(facts: Mapping[str, str]) -> PartitionFacts:
    allow = {who: _allowed(facts, f"Allow{who}") for who in ("Accounts", "Qos", "Groups")}
    deny = {who: _denied(facts, f"Deny{who}") for who in ("Accounts", "Qos")}
    is_open = not any(deny.values()) and all(names is None for names in allow.values())
    return PartitionFacts(
        name=facts["PartitionName"],
        nodes=_value(facts["Nodes"]),
        state=facts["State"].upper(),
        default=facts["Default"] == "YES",
        max_time_s=_seconds(facts["MaxTime"]),
        billing_weights=facts.get("TRESBillingWeights", ""),
        open_to_all=is_open and facts.get("RootOnly", "NO") == "NO",
        default_time_s=_seconds(facts.get("DefaultTime", "NONE")),
        max_nodes=_limit(facts.get("MaxNodes", "UNLIMITED")),
        max_cpus_per_node=_limit(facts.get("MaxCPUsPerNode", "UNLIMITED")),
        allow_accounts=allow["Accounts"],
        deny_accounts=deny["Accounts"],
        allow_qos=allow["Qos"],
        deny_qos=deny["Qos"],
        allow_groups=allow["Groups"],
    )


def _allowed(facts: Mapping[str, str], key: str) -> tuple[str, ...] | None:
    text = facts.get(key, "ALL")
    return None if text == "ALL" else tuple(_words(_value(text)))


def _denied(facts: Mapping[str, str], key: str) -> tuple[str, ...]:
    return tuple(_words(_value(facts.get(key, ""))))


def _value(text: str) -> str:
    return "" if text in _NONE else text


def _limit(text: str) -> int | None:
    return None if text == "UNLIMITED" else int(text)


def _seconds(text: str) -> int | None:
    """Read `1-00:00:00` or `00:10:00`; UNLIMITED and NONE are None."""
    if text in ("UNLIMITED", "NONE"):
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
