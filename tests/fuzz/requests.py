# SPDX-License-Identifier: Apache-2.0
"""Requests near the grammar, and an oracle of our own that says whether one asks for GPUs."""

from __future__ import annotations

import re

from tests.fuzz.source import Source

__all__ = [
    "FIELDS",
    "asks_for_gpus",
    "exported_parts",
    "gres_text",
    "job_fields",
    "origin_fields",
]

FIELDS = ("tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket")
_PREFIXES = ("", "gres:", "gres/", "GRES/", "gres//", "gres")
_NAMES = ("gpu", "gpu", "gpu", "GPU", "gpus", "shard", "mps", "cpu", "license/x", "")
_TYPES = ("", "a100", "A100", "20gb", "a100|h100", "any", "mig-10gb", "hopper", "1g.5gb", ">=40G")
_PARTS = ("SLURM_GPUS_HET_GROUP_1", "SLURM_TRES_PER_TASK_PACK_GROUP_0")
_COUNTS = (
    "",
    "1",
    "0",
    "2",
    "-1",
    "4294967295",
    "1k",
    "20g",
    "1.5",
    "+3",
    "x",
    "18446744073709551615",
)
_MARKS = (":", "=", "::", " ", ",", "")


def gres_text(source: Source) -> str:
    """One tres_per_* text: entries of likely pieces, or anything."""
    entries = [_entry(source) for _ in range(source.number(1, 3))]
    return ",".join(entries)


def job_fields(source: Source) -> dict[str, str | int]:
    """A submission's fields."""
    fields: dict[str, str | int] = {
        name: gres_text(source) for name in FIELDS if source.number(0, 2) == 0
    }
    for name in ("partition", "features", "req_nodes", "exc_nodes", "account", "qos"):
        if source.number(0, 3) == 0:
            fields[name] = source.pick(
                ("gpu", "mig", "all", "mig01", "gpu[01-02]", source.text(8))
            )
    for name in ("num_tasks", "min_nodes", "max_nodes", "ntasks_per_node", "cpus_per_task"):
        if source.number(0, 3) == 0:
            fields[name] = source.pick((0, 1, 2, 65534, 65535, 4294967294, source.number(0, 9)))
    return fields


def origin_fields(source: Source) -> dict[str, str | int]:
    """Who submits, and what the first part of a heterogeneous job exports for all."""
    fields: dict[str, str | int] = {}
    if source.number(0, 1):
        fields["client"] = source.pick(("srun", "salloc", "either", source.text(8)))
    if source.number(0, 1):
        fields["het_offset"] = source.number(0, 2)
        fields |= exported_parts(source)
    return fields


def exported_parts(source: Source) -> dict[str, str]:
    """The variables of a part."""
    values = ("20gb:1", "a100:2,any", "gpu:2", "cpu=1,gres/gpu:20gb:1", source.text(12))
    return {name: source.pick(values) for name in _PARTS}


def asks_for_gpus(text: str) -> bool:
    """Whether Slurm could read a GPU in a tres_per_* text, by the plainest reading there is."""
    return any(_is_gpu(entry) for entry in text.split(","))


def _is_gpu(entry: str) -> bool:
    bare = re.sub(r"^gres[:/]", "", entry)
    name, *rest = re.split("[:=]", bare)
    return name == "gpu" and (not rest or rest[-1].strip("+0kKmMgGtTpP") != "")


def _entry(source: Source) -> str:
    if source.number(0, 9) == 0:
        return source.text(20)
    parts = [source.pick(_PREFIXES), source.pick(_NAMES)]
    for values in (_TYPES, _COUNTS):
        value = source.pick((*values, source.text(4)))
        if value:
            parts += [source.pick(_MARKS), value]
    return "".join(parts)
