# SPDX-License-Identifier: Apache-2.0
"""Keeps this node's drain in Slurm as the findings want it: when to look, what came of it.

Slurm is asked in a thread of the caller's (`Task`), never while the checks wait. Between deciding
and doing the caller keeps the record, so that a kill at any point leaves nothing unknown.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec.structs import replace

from fairwatt.core.clock import now_ms
from fairwatt.core.verdict import Finding, one_line
from fairwatt.prolog.health.drain import NodeView, Record, Step, decide, is_beyond_limit

__all__ = ["NodeControl", "Task", "Warden"]

SETTLE_S = 1.5
"""Slurm keeps the time of a reason in whole seconds: after so long all of one second are there."""
FIRST_RETRY_S = 2.0
LAST_RETRY_S = 300.0
_log = logging.getLogger(__name__)


class NodeControl(Protocol):
    """This node in slurmctld; see slurm_node.SlurmNode."""

    def look(self, *, everywhere: bool) -> tuple[NodeView, list[NodeView]]:
        """Return this node and, if `everywhere`, the others."""

    def drain(self, reason: str) -> None:
        """Drain it."""

    def undrain(self) -> None:
        """Take the drain back."""


Task = Callable[[], Step]
"""Asks Slurm; may take as long as its calls may. Raises FairwattError for no answer."""


class Warden:
    """Decides when Slurm is to be asked; one task at a time.

    Args:
        slurm: this node in Slurm.
        record: what an earlier process did.
        limit: health.max_drains_per_hour.
        boot_id: this boot's.
        watch_s: how often a node with a drain, or a wish for one, is looked at again.
        settle_s: SETTLE_S but in tests.
    """

    def __init__(
        self,
        slurm: NodeControl,
        record: Record,
        *,
        limit: int,
        watch_s: float,
        boot_id: str = "",
        settle_s: float = SETTLE_S,
    ) -> None:
        self.record = record
        self.step: Step | None = None
        self.fault = ""
        self.prolog_failed_ms: int | None = None
        self._slurm = slurm
        self._limit = limit
        self._watch_s = watch_s
        self._settle_s = settle_s
        self._boot_id = boot_id
        self._busy = False
        self._decided: tuple[tuple[str, ...], bool] | None = None
        self._next = 0.0
        self._retry_s = FIRST_RETRY_S
        self._to_do: Step | None = None

    def next_task(self, wanted: Sequence[Finding], *, healed: bool, now: float) -> Task | None:
        """Return what is to be asked of Slurm now, None where nothing is.

        Args:
            wanted: the confirmed findings whose action is drain.
            healed: what the record is about has passed often enough.
            now: monotonic seconds.
        """
        if self._busy:
            return None
        if self._to_do is not None:
            step, self._to_do = self._to_do, None
            self._busy = True
            return lambda: self._do(step)
        situation = (tuple(finding.key for finding in wanted), healed)
        if not (wanted or self.record.reason):
            self.step, self._decided = None, None
            return None
        if now < self._next and (self.fault or situation == self._decided):
            return None
        self._decided, self._busy = situation, True
        record, failed_ms = self.record, self.prolog_failed_ms
        return lambda: self._look(list(wanted), record, healed, failed_ms)

    def wait_s(self, now: float) -> float:
        """Return the seconds until `next_task` may have one without anything new."""
        asks = not self._busy and (self.record.reason or self._decided)
        return max(0.0, self._next - now) if asks else 3600.0

    def done(self, step: Step, now: float) -> None:
        """Take a task's result."""
        self._busy, self.fault, self._retry_s = False, "", FIRST_RETRY_S
        if step != self.step and step.why:
            _log.warning("%s: %s", step.drain or step.deed, step.why)
        self.record, self.step = step.record, step
        self._to_do = step if step.deed != "none" else None
        self._next = now if self._to_do else now + self._watch_s

    def failed(self, error: Exception, now: float) -> None:
        """Take a task's failure: it is tried again, later each time."""
        text = one_line(error)
        if text != self.fault:
            _log.error("Slurm cannot be asked about this node: %s", text)
        self._busy, self.fault = False, text
        self._next = now + self._retry_s
        self._retry_s = min(LAST_RETRY_S, 2 * self._retry_s)

    # -- in the caller's thread for Slurm -------------------------------------------------------

    def _look(
        self, wanted: list[Finding], record: Record, healed: bool, failed_ms: int | None
    ) -> Step:
        begins = any(finding.key not in record.yielded for finding in wanted)
        mine, others = self._slurm.look(everywhere=begins and not record.sure)
        return decide(
            wanted,
            record,
            mine,
            others,
            healed=healed,
            limit=self._limit,
            now_ms=now_ms(),
            boot_id=self._boot_id,
            prolog_failed_ms=failed_ms,
        )

    def _do(self, step: Step) -> Step:
        if step.deed == "undrain":
            self._slurm.undrain()
            return Step(record=_without_reason(step.record), why="undrained")
        self._slurm.drain(step.record.reason)
        time.sleep(self._settle_s)
        mine, others = self._slurm.look(everywhere=True)
        if is_beyond_limit(mine.name, [mine, *others], limit=self._limit, now_ms=now_ms()):
            self._slurm.undrain()
            why = f"{self._limit} nodes within an hour: the drain was taken back"
            return Step(record=_without_reason(step.record), drain="limit", why=why)
        return Step(record=replace(step.record, sure=True), drain="drained", why="drained")


def _without_reason(record: Record) -> Record:
    return Record(yielded=record.yielded, boot_id=record.boot_id)
