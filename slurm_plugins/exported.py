# SPDX-License-Identifier: Apache-2.0
"""The variables from which srun in a job takes options for its step; pure.

sbatch puts them into the job's environment, salloc into its shell's, and Slurm leaves them as they
are when the policy changes the job: a step would ask for what the user wrote, and fail.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from fairwatt.core.errors import GrammarError
from fairwatt.core.gres import Gres, Spelling, format_request, is_doubled, parse_request
from fairwatt.core.records import GpuAsk

__all__ = ["BY_LEVEL", "NAMES", "PER_GPU", "TRES_PER_TASK", "Level", "as_option", "of_parts"]

Level = Literal["node", "job", "task", "socket"]

BY_LEVEL: dict[Level, str] = {
    "job": "SLURM_GPUS",
    "node": "SLURM_GPUS_PER_NODE",
    "task": "SLURM_GPUS_PER_TASK",
    "socket": "SLURM_GPUS_PER_SOCKET",
}
TRES_PER_TASK = "SLURM_TRES_PER_TASK"
"""What sbatch exports for --gpus-per-task since 23.11, in the spelling of the field itself."""

PER_GPU = {"cpus_per_gpu": "SLURM_CPUS_PER_GPU", "mem_per_gpu_mib": "SLURM_MEM_PER_GPU"}
"""By the request's number; where the user gave the option, a step that asks for more fails."""

NAMES = frozenset((*BY_LEVEL.values(), *PER_GPU.values(), TRES_PER_TASK))

_OF_PART = re.compile(r"(SLURM_[A-Z_]+)_(?:HET|PACK)_GROUP_[0-9]{1,3}")


def as_option(gpus: Iterable[GpuAsk]) -> str:
    """Write entries as the value of --gpus and its like: `a100:2,1`."""
    return ",".join(f"{ask.type}:{ask.count}" if ask.type else f"{ask.count}" for ask in gpus)


def of_parts(
    fields: Mapping[str, str | int | float], known: Collection[str | None], spelling: Spelling
) -> dict[str, str]:
    """The variables of a heterogeneous job's parts to change, so that each part's steps start.

    The first part alone carries them, and each part is judged apart: what the others become is
    not known here. A type that is not one of `known`, and so becomes another one, is left out:
    `20gb:1` to `1`. The step then takes that many of what its part has.
    """
    found: dict[str, str] = {}
    for name, value in fields.items():
        match = _OF_PART.fullmatch(name)
        if match is not None and match[1] in NAMES and isinstance(value, str):
            changed = _known_only(match[1], value, known, spelling)
            if changed is not None:
                found[name] = changed
    return found


def _known_only(
    name: str, value: str, known: Collection[str | None], spelling: Spelling
) -> str | None:
    """The value without types that are not known; None: it stays as it is."""
    per_task = name == TRES_PER_TASK
    if name in PER_GPU.values():
        return None
    text = value if per_task else ",".join(f"gpu:{item}" for item in value.split(","))
    try:
        items = parse_request(text)
    except GrammarError:
        return None
    gpus = [item for item in items if item.is_gpu]
    doubled = is_doubled(value if per_task else f"gpu:{value}")
    if not doubled and all(item.type is None or item.type in known for item in gpus):
        return None
    if any(item.type not in known for item in gpus if item.type is not None):
        gpus = [Gres("gpu", None, sum(item.count for item in gpus))]
    if per_task:
        others = [item for item in items if not item.is_gpu]
        return format_request([*others, *gpus], spelling, per_task=True)
    return ",".join(f"{item.type}:{item.count}" if item.type else f"{item.count}" for item in gpus)
