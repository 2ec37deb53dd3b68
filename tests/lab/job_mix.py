# SPDX-License-Identifier: Apache-2.0
"""The 24 jobs of the demo: what each asks, what it does, and what must come of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Fate = Literal["done", "rejected", "cancelled", "requeued"]


@dataclass(frozen=True)
class Spec:
    """One submission. `seconds` of load at `watts` per device; `tasks` > 1 is an array."""

    label: str
    user: str
    account: str
    args: tuple[str, ...]
    watts: int = 0
    seconds: float = 4.0
    fate: Fate = "done"
    tasks: int = 1
    nodes: int = 1
    gpus: int = 1
    given: str | None = None
    after: str | None = None

    @property
    def runs(self) -> int:
        """How many runs the store must hold for it."""
        return {"rejected": 0, "requeued": 2}.get(self.fate, self.tasks)


MIX: tuple[Spec, ...] = (
    Spec("whole GPU", "ada", "qcd", ("--gres=gpu:a100:1",), 310, 6.0),
    Spec("two whole GPUs", "ben", "qcd", ("--gres=gpu:a100:2",), 280, 5.0, gpus=2),
    Spec("untyped", "cleo", "optics", ("--gpus=1",), 220, 4.0),
    Spec("alias in capitals", "dora", "chemistry", ("--gres=gpu:A100:1",), 330, 5.0, given="a100"),
    Spec("two H100", "emil", "chemistry", ("--gpus-per-node=h100:2",), 540, 5.0, gpus=2),
    Spec("one H100", "fay", "medicine", ("--gres=gpu:h100:1",), 610, 4.0),
    Spec("slice by need 1", "ada", "qcd", ("--gres=gpu:5gb:1",), 22, 6.0, given="a100_1g.5gb"),
    Spec("slice by need 2", "cleo", "optics", ("--gres=gpu:5gb:1",), 30, 5.0, given="a100_1g.5gb"),
    Spec("slice by need 3", "dora", "chemistry", ("--gres=gpu:5gb:1",), 15, 4.0, given="a100_1g.5gb"),
    Spec("slice by need 4", "fay", "medicine", ("--gres=gpu:5gb:1",), 26, 7.0, given="a100_1g.5gb"),
    Spec("20 GB by need 1", "ben", "qcd", ("--gres=gpu:20gb:1",), 95, 6.0, given="a100_3g.20gb"),
    Spec("20 GB by need 2", "emil", "chemistry", ("--gres=gpu:20gb:1",), 80, 4.0, given="a100_3g.20gb"),
    Spec("3 seconds", "ada", "qcd", ("--gres=gpu:a100:1",), 300, 3.0),
    Spec("3 seconds on a slice", "fay", "medicine", ("--gres=gpu:a100_1g.5gb:1",), 24, 3.0),
    Spec("first on the board", "hana", "physics", ("--gres=gpu:h100:8",), 450, 3.0, gpus=8),
    Spec("next on the same board", "dora", "chemistry", ("--gres=gpu:h100:8",), 520, 3.0, gpus=8,
         after="first on the board"),
    Spec("array of three", "ben", "qcd", ("--gres=gpu:a100:1", "--array=0-2"), 260, 4.0, tasks=3),
    Spec("two nodes", "emil", "chemistry", ("-N2", "--gres=gpu:a100:1"), 290, 4.0, nodes=2, gpus=2),
    Spec("no GPU", "cleo", "optics", ("--cpus-per-task=2",), 0, 3.0, gpus=0),
    Spec("type that is not here", "dora", "chemistry", ("--gres=gpu:h10:1",), fate="rejected", gpus=0),
    Spec("cancelled while pending", "fay", "medicine", ("--gres=gpu:a100:1", "--begin=now+1hour"),
         fate="cancelled", gpus=0),
    Spec("requeued", "ada", "qcd", ("--gres=gpu:a100:1", "--requeue"), 270, 3.0, fate="requeued"),
)  # fmt: skip

JOBS = sum(spec.tasks for spec in MIX)
"""24: the array counts as its three tasks."""


def script(spec: Spec, root: str) -> str:
    """Return the batch script: the load on the devices that TaskProlog's file names."""
    if not spec.watts:
        return f"#!/bin/sh\nexec sleep {spec.seconds:g}\n"
    load = f"sh {root}/bin/use-gpu {spec.watts} {spec.seconds:g}"
    body = f"srun {load}" if spec.nodes > 1 else f"exec {load}"
    if spec.fate == "requeued":
        body = f'[ "${{SLURM_RESTART_COUNT:-0}}" -gt 0 ] || exec sh {root}/bin/use-gpu {spec.watts} 60\n{body}'
    return f"#!/bin/sh\n{body}\n"


USE_GPU = """#!/bin/sh
# use-gpu WATTS SECONDS: the program that uses the GPUs which this job holds on this node.
node={root}/nodes/$SLURMD_NODENAME
watts=$1 seconds=$2
set --
while IFS="$(printf '\\t')" read -r position kind uuid; do set -- "$@" --uuid "$uuid"; done \\
    < "$node/jobs/$SLURM_JOB_ID"
exec /usr/bin/python3 {root}/bin/gpu_load.py --control "$node/nvml.control" "$@" \\
    --watts "$watts" --seconds "$seconds"
"""
"""Installed as root/bin/use-gpu; job users cannot read the project's own folder."""
