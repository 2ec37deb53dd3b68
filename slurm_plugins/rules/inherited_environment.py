# SPDX-License-Identifier: Apache-2.0
"""Rule: tells when sbatch inside a job took over variables of that job that this one trips over.

sbatch hands its whole environment on. Slurm sets a job's own values anew, but what the new job
did not ask for stays, and each srun in it takes that for options of its own: the step is then
refused ("mutually exclusive", "Invalid generic resource"), or waits for ever. It only tells.

Which ones matter is measured on Slurm 22.05, 24.11 and 26.05. SLURM_CPUS_PER_TASK and
SLURM_NNODES are always set anew. A variable of what this job asks itself has its value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fairwatt.core.records import JobRequest
from fairwatt.slurm_plugins.demand import wanted
from fairwatt.slurm_plugins.message import Message
from fairwatt.slurm_plugins.outcome import Outcome
from fairwatt.slurm_plugins.rule import Options, RuleSpec
from fairwatt.slurm_plugins.site import Site

__all__ = ["RULE", "inherited_environment"]

FW901 = Message(
    "FW901",
    "Variables of the surrounding job",
    "submitted inside a job: its {names} may break srun in this one; unset them before sbatch",
    "Run `unset NAME ...` or `env -u NAME ... sbatch ...`; --export=NONE keeps SLURM variables.",
)

MAX_NAMES = 3


def inherited_environment(request: JobRequest, site: Site, _: Options | None = None) -> Outcome:
    """Name the inherited variables that can conflict with this request."""
    names = [name for name in request.inherited if name in _CONFLICTS]
    found = [name for name in names if _CONFLICTS[name](request)]
    if not found:
        return Outcome(request)
    shown = ", ".join(found[:MAX_NAMES])
    if len(found) > MAX_NAMES:
        shown += f" and {len(found) - MAX_NAMES} more"
    return Outcome(request, (FW901.note(names=shown),))


def _asks_no(level: str) -> Callable[[JobRequest], bool]:
    return lambda request: all(ask.level != level for ask in wanted(request))


def _asks_nothing_per_task(request: JobRequest) -> bool:
    """Since 23.11 this variable holds the CPUs per task too."""
    return _asks_no("task")(request) and request.cpus_per_task is None


def _has_other_tasks(request: JobRequest) -> bool:
    return request.num_tasks is None and request.ntasks_per_node is None


def _has_tasks_on_nodes(request: JobRequest) -> bool:
    """On one node Slurm passes over a number that does not fit."""
    return request.ntasks_per_node is None and (request.min_nodes or 1) > 1


_CONFLICTS: Mapping[str, Callable[[JobRequest], bool]] = {
    "SLURM_MEM_PER_NODE": lambda request: request.mem_per_node_mib is None,
    "SLURM_MEM_PER_GPU": lambda request: request.mem_per_gpu_mib is None,
    # Mostly set anew, from DefMemPerCPU; but not where the job has another kind of memory.
    "SLURM_MEM_PER_CPU": lambda request: (
        request.mem_per_node_mib is not None or request.mem_per_gpu_mib is not None
    ),
    "SLURM_GPUS": _asks_no("job"),
    "SLURM_GPUS_PER_NODE": _asks_no("node"),
    "SLURM_GPUS_PER_TASK": _asks_no("task"),
    "SLURM_GPUS_PER_SOCKET": _asks_no("socket"),
    "SLURM_TRES_PER_TASK": _asks_nothing_per_task,
    "SLURM_TRES_BIND": _asks_no("task"),
    "SLURM_CPUS_PER_GPU": lambda request: request.cpus_per_gpu is None,
    "SLURM_NTASKS": _has_other_tasks,
    "SLURM_NTASKS_PER_NODE": _has_tasks_on_nodes,
}


RULE = RuleSpec(
    name="inherited_environment",
    title="Tell which variables of a surrounding job may break the steps of this one.",
    judge=inherited_environment,
    mode="enforce",
    cpu_jobs=True,
    watches=frozenset(),
    messages=(FW901,),
)
