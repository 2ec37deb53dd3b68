# SPDX-License-Identifier: Apache-2.0
"""The updater's two commands: read the queue, change a waiting job."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from fairwatt.core.call import call
from fairwatt.slurm_plugins.engine import COMMENT_PREFIX
from fairwatt.slurm_plugins.pending import QueuedJob, decode_jobs

__all__ = ["SCONTROL_NAMES", "JobQueue"]

_log = logging.getLogger(__name__)

TIMEOUT_S = 60.0
_OURS = f'"{COMMENT_PREFIX}'

SCONTROL_NAMES = {
    "tres_per_node": "TresPerNode",
    "tres_per_job": "TresPerJob",
    "tres_per_task": "TresPerTask",
    "tres_per_socket": "TresPerSocket",
    "partition": "Partition",
    "qos": "QOS",
    "features": "Features",
    "exc_nodes": "ExcNodeList",
    "time_limit": "TimeLimit",
    "min_mem_per_node": "MinMemoryNode",
    "min_mem_per_cpu": "MinMemoryCPU",
    "admin_comment": "AdminComment",
}
"""The fields of a job that can be changed, by job_desc's name, and what scontrol calls them."""


class JobQueue:
    """The jobs of one cluster that have a comment of ours.

    `slurm_conf` None means SLURM_CONF or Slurm's own default.

    Every method starts one process and may raise CommandError (no answer, or a refusal).
    """

    def __init__(self, slurm_conf: str | None = None) -> None:
        self._env = {"SLURM_CONF": slurm_conf} if slurm_conf else {}
        self._said_unreadable = False

    def jobs(self, *, started: bool = False) -> list[QueuedJob]:
        """Return those that wait; with `started` those that run too.

        Raises:
            SlurmError: the answer has no known shape.
        """
        return self._read([] if started else ["--states=PENDING"])

    def job(self, job: QueuedJob) -> QueuedJob | None:
        """Return the same record as it is now; None when it is gone.

        Raises:
            SlurmError: the answer has no known shape.
        """
        found = self._read([f"--jobs={job.job_id}"])
        return next((each for each in found if each.job_id == job.job_id), None)

    def update(self, address: str, changes: Mapping[str, str | int]) -> None:
        """Change a job, or some tasks of an array, in one request to slurmctld.

        Raises:
            CommandError: Slurm refuses; of one job nothing is then changed, of several tasks
                perhaps some are.
        """
        words = [f"{SCONTROL_NAMES[name]}={value}" for name, value in changes.items()]
        self._run(["scontrol", "update", f"JobId={address}", *words])

    def _read(self, options: list[str]) -> list[QueuedJob]:
        answer = self._run(["squeue", "--all", "--json", *options])
        jobs, unreadable = decode_jobs(answer, containing=_OURS)
        if unreadable and not self._said_unreadable:
            _log.warning("%d jobs of squeue --json cannot be read and are left alone", unreadable)
            self._said_unreadable = True
        return jobs

    def _run(self, argv: list[str]) -> str:
        return call(argv, timeout_s=TIMEOUT_S, env=self._env).stdout
