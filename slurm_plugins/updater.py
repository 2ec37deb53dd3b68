# SPDX-License-Identifier: Apache-2.0
"""The updater: changes jobs that have waited long to the next flavour of GPU that would do.

It remembers nothing: what a job may fall back to and what was tried stands in the job's admin
comment, and is changed together with the request. So it may be killed at any point, and a second
one (on a backup controller) finds the job already changed. SIGTERM and SIGINT end it.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.config import Config
from fairwatt.core.errors import CommandError, FairwattError
from fairwatt.core.gres import Spelling
from fairwatt.core.notify import notify, ready
from fairwatt.core.slurm import SlurmClient, spelling_of_version
from fairwatt.slurm_plugins import facts
from fairwatt.slurm_plugins.engine import Policy
from fairwatt.slurm_plugins.jobqueue import JobQueue
from fairwatt.slurm_plugins.pending import QueuedJob
from fairwatt.slurm_plugins.policy_file import load_policy
from fairwatt.slurm_plugins.site import Site
from fairwatt.slurm_plugins.widening import (
    MENDABLE,
    Change,
    Left,
    Record,
    finish,
    may_widen,
    plan,
    read_record,
    waits_since,
)

__all__ = ["FAILING", "Outcome", "Queue", "Updater", "from_config", "pass_safely", "serve"]

_log = logging.getLogger(__name__)

FAILING = "no job is changed for now"
"""How log and status begin while passes fail."""

MAX_REMEMBERED = 10_000
REST_S = 300
"""Pause after a job could not be changed."""
Candidate = tuple[QueuedJob, Record]


class Outcome(msgspec.Struct, frozen=True):
    """What became of one job: changed (or, in a dry run, would be), or left for a reason."""

    job_id: int
    changed: bool
    text: str


class Queue(Protocol):
    """Reads and changes jobs; JobQueue, or a test's."""

    def jobs(self, *, started: bool = False) -> list[QueuedJob]:
        """Return the jobs that wait; with `started` those that run too."""

    def job(self, job: QueuedJob) -> QueuedJob | None:
        """Return the same record as it is now; None when it is gone."""

    def update(self, address: str, changes: dict[str, str | int]) -> None:
        """Change a job; CommandError when Slurm refuses."""


class Updater:
    """Makes one pass after the other.

    Args:
        queue: the jobs.
        rules: returns the policy and the server's spelling; asked only when a job is due.
        wait_s: how long a job waits for each flavour.
        max_changes: most changes of one pass; each takes slurmctld's write lock.
        dry_run: say what would be done and do nothing.
        clock: UTC epoch seconds.
    """

    def __init__(
        self,
        queue: Queue,
        rules: Callable[[], tuple[Policy, Spelling]],
        *,
        wait_s: int,
        max_changes: int,
        dry_run: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._queue = queue
        self._rules = rules
        self._wait_s = wait_s
        self._max_changes = max_changes
        self._dry_run = dry_run
        self._clock = clock
        self._said: set[tuple[int, str]] = set()
        self._not_before: dict[tuple[int, str], float] = {}
        self._unfinished = True  # a predecessor may have been killed in between

    def run_pass(self) -> list[Outcome]:
        """Look at the queue once and change what is due.

        Raises:
            FairwattError: Slurm does not answer, or its answer, the policy or the catalogue
                cannot be used.
        """
        candidates = _with_record(self._queue.jobs(started=self._unfinished))
        outcomes = self._finish(candidates)
        due = [each for each in candidates if self._is_due(*each)]
        if due:
            policy, spelling = self._rules()
            outcomes += self._widen(due, policy, spelling)
        if self._unfinished and not self._dry_run:
            noted = self._finish(_with_record(self._queue.jobs(started=True)))
            self._unfinished = len(noted) == self._max_changes  # there may be more
            outcomes += noted
        return outcomes

    def _is_due(self, job: QueuedJob, record: Record) -> bool:
        now = self._clock()
        rests = self._not_before.get((job.job_id, job.comment), 0) > now
        return not rests and may_widen(job, record, int(now), self._wait_s)

    def _widen(self, due: list[Candidate], policy: Policy, spelling: Spelling) -> list[Outcome]:
        """Change the jobs that wait longest; more than `max_changes` are for the next pass."""
        outcomes: list[Outcome] = []
        tries = 0
        for job, record in sorted(due, key=lambda each: (waits_since(*each), each[0].job_id)):
            if tries == self._max_changes:
                break
            change = plan(job, record, policy, spelling, int(self._clock()))
            if isinstance(change, Left):
                outcomes.append(self._left(job, change.reason))
                continue
            tries += 1
            outcomes.append(self._change(job, record, change))
        return outcomes

    def _change(self, job: QueuedJob, record: Record, change: Change) -> Outcome:
        waited = f"after {int(self._clock()) - (waits_since(job, record) or 0)} s of waiting"
        if self._dry_run:
            return Outcome(job.job_id, changed=True, text=f"{change.told} {waited}")
        # Slurm has no "change if it is still so": look again just before.
        if not self._still(job, self._queue.job(job)):
            return Outcome(job.job_id, changed=False, text="it has changed meanwhile")
        self._unfinished |= change.apart
        return self._write(job, change, change.at_once, waited)

    def _still(self, job: QueuedJob, fresh: QueuedJob | None) -> bool:
        """Whether a fresh look shows the same job; Resources and Priority come and go."""
        if fresh is None or fresh.reason not in MENDABLE:
            return False
        return msgspec.structs.replace(fresh, reason=job.reason) == job

    def _finish(self, candidates: list[Candidate]) -> list[Outcome]:
        """Note the change in array tasks that have it, also in those that have started."""
        changes = ((job, finish(job, record, int(self._clock()))) for job, record in candidates)
        due = [(job, change) for job, change in changes if change is not None]
        return [
            Outcome(job.job_id, changed=True, text=change.told)
            if self._dry_run
            else self._write(job, change, {"admin_comment": change.comment}, "")
            for job, change in due[: self._max_changes]
        ]

    def _write(
        self, job: QueuedJob, change: Change, words: dict[str, str | int], waited: str
    ) -> Outcome:
        try:
            self._queue.update(change.address, words)
        except CommandError as error:
            return self._left(job, f"{change.told}: Slurm refuses: {error}")
        text = f"{change.told} {waited}".strip()
        _log.info("job %s: %s", change.address, text)
        return Outcome(job.job_id, changed=True, text=text)

    def _rest(self, job: QueuedJob) -> None:
        """Let others come first for a while, and Slurm's facts and the policy change."""
        if len(self._not_before) >= MAX_REMEMBERED:
            self._not_before.clear()
        self._not_before[job.job_id, job.comment] = self._clock() + REST_S

    def _left(self, job: QueuedJob, reason: str) -> Outcome:
        """Say once why a job that is due stays as it is; look at it again later."""
        self._rest(job)
        if (job.job_id, reason) not in self._said:
            if len(self._said) >= MAX_REMEMBERED:
                self._said.clear()
            self._said.add((job.job_id, reason))
            _log.info("job %d stays as it is: %s", job.job_id, reason)
        return Outcome(job.job_id, changed=False, text=reason)


def from_config(config: Config, *, dry_run: bool = False) -> Updater:
    """Make an updater of the cluster that the settings name."""
    slurm_conf = config["site.slurm_conf"] or None
    return Updater(
        JobQueue(slurm_conf),
        lambda: _rules(config, slurm_conf),
        wait_s=config["updater.wait_s"],
        max_changes=config["updater.max_changes"],
        dry_run=dry_run,
    )


def serve(config: Config) -> None:
    """Make a pass every `updater.interval_s` until SIGTERM or SIGINT."""
    updater = from_config(config)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    at_work = f"looks at the queue every {config['updater.interval_s']:g} s"
    ready(at_work)
    _log.info("updater started")
    failing = False
    while not stop.is_set():
        failing = pass_safely(updater, failing, at_work)
        stop.wait(config["updater.interval_s"])
    _log.info("updater ended")


def pass_safely(updater: Updater, failing: bool, at_work: str = "") -> bool:
    """Make a pass; say once when it cannot be made, and when it can again. True: it failed.

    `at_work` is the service's status while all is well.
    """
    try:
        updater.run_pass()
    except (FairwattError, msgspec.MsgspecError) as error:
        if not failing:
            _log.warning("%s: %s", FAILING, error)
            notify(f"STATUS={FAILING}: {' '.join(str(error).split())}")
        return True
    if failing:
        _log.info("jobs are looked at again")
        notify(f"STATUS={at_work}")
    return False


def _with_record(jobs: list[QueuedJob]) -> list[Candidate]:
    found = ((job, read_record(job.comment)) for job in jobs)
    return [(job, record) for job, record in found if record is not None]


def _rules(config: Config, slurm_conf: str | None) -> tuple[Policy, Spelling]:
    """Read policy, facts and release anew: passes with a job that is due are rare."""
    rules = load_policy(Path(config["policyd.policy_file"])).rules
    catalogue = load_catalogue(config["site.catalogue_dir"] or None)
    read = facts.ChildReader(slurm_conf, config["site.slurm_backend"])
    site = Site(read(), catalogue)
    return Policy(site, rules), spelling_of_version(SlurmClient(slurm_conf).version())
