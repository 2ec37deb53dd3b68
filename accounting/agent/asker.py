# SPDX-License-Identifier: Apache-2.0
"""Asks slurmctld what part of a shared board a job holds, beside the loop and after the prolog."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from fairwatt.accounting.agent.timers import Timers
from fairwatt.accounting.agent.worker import Worker
from fairwatt.core.errors import CommandError
from fairwatt.core.slurm_cli import CliBackend

__all__ = ["Asker", "JobText", "Keeps", "job_text"]

FIRST_RETRY_S, LAST_RETRY_S = 5.0, 300.0
_log = logging.getLogger(__name__)

JobText = Callable[[int], str | None]
"""Gives what Slurm says of a job, "" where it knows none, None where it does not answer."""


class Keeps(Protocol):
    """What is asked for: `Keeper`."""

    @property
    def assumed(self) -> list[int]:
        """Jobs whose part of a board is not known yet."""

    def told(self, job_id: int, text: str) -> None:
        """Take over what Slurm says of a job."""


class Asker:
    """One question at a time; where slurmctld is away, later and later."""

    def __init__(self, keeper: Keeps, timers: Timers, worker: Worker, ask: JobText) -> None:
        self._keeper = keeper
        self._timers = timers
        self._worker = worker
        self._ask = ask
        self._retry_s = FIRST_RETRY_S

    def ask(self) -> None:
        """Ask for the next job, if one is open and nothing is being asked."""
        jobs = self._keeper.assumed
        if jobs and not self._worker.outstanding:
            job_id, ask = jobs[0], self._ask
            self._worker.submit(lambda: ask(job_id), lambda text: self._answered(job_id, text))

    def _answered(self, job_id: int, text: str | None) -> None:
        if text is None:
            self._timers.set("ask", self._retry_s, self.ask)
            self._retry_s = min(2 * self._retry_s, LAST_RETRY_S)
            return
        self._retry_s = FIRST_RETRY_S
        self._keeper.told(job_id, text)
        self.ask()


def job_text(backend: CliBackend, job_id: int) -> str | None:
    """Ask slurmctld for the job with its part of each node."""
    try:
        return backend.scontrol("show", "job", "-d", str(job_id)).stdout
    except CommandError as error:
        if "Invalid job id" in error.stderr:
            return ""
        _log.warning("job %d: its part of a shared GPU is not known yet: %s", job_id, error)
        return None
