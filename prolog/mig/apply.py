# SPDX-License-Identifier: Apache-2.0
"""Walks the steps of a change, forward or back, from wherever it stands.

A change is finished when it is applied or rolled back. Killed at any point it is open: the next
run takes it up from the journal. What cannot be undone either stays drained, with a code.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from fairwatt.core.clock import now_ms
from fairwatt.core.errors import ConfigError, FairwattError
from fairwatt.core.files import locked
from fairwatt.prolog.mig.cluster import DRAIN_REASON
from fairwatt.prolog.mig.journal import Journal, Mark, Phase, Record, Result, Turned
from fairwatt.prolog.mig.slurm_node import SlurmNode
from fairwatt.prolog.mig.steps import Steps

__all__ = ["Outcome", "finish", "hold_lock", "outage_s", "turn_back"]

_REASON_CHARS = 160
LOCK_WAIT_S = 0.3
AFTER = ("resume", "start", "registered")
"""What brings a stopped node back of which nothing was changed."""


@dataclass(frozen=True)
class Outcome:
    """How a change ended; `outage_s`: from the last job's end until jobs may start again.

    `step_s`: how long each step took that was done now.
    """

    result: Result
    text: str
    outage_s: float | None
    step_s: dict[str, float]


def hold_lock(folder: Path) -> BinaryIO:
    """Return the lock under which a node's layout is changed; it is free when closed.

    Raises:
        ConfigError: another process holds it, or the folder cannot be made.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = _lock(folder / "lock")
    except OSError as error:
        raise ConfigError(
            f"cannot be used: {error.strerror}", place=str(folder), remedy="run it as root"
        ) from error
    if lock is None:
        raise ConfigError(
            "another fairwatt mig apply is at work",
            place=str(folder / "lock"),
            remedy="see fairwatt mig status",
        )
    return lock


def _lock(path: Path) -> BinaryIO | None:
    """A second try: `fairwatt mig status` holds it for a moment to see whether it is free."""
    lock = locked(path)
    if lock is None:
        time.sleep(LOCK_WAIT_S)
        lock = locked(path)
    return lock


def turn_back(journal: Journal, why: str) -> None:
    """From here on the old layout is wanted."""
    if journal.way == "forward":
        journal.append(Turned(t_ms=now_ms(), text=why))


def finish(
    journal: Journal, steps: Steps, slurm: SlurmNode, say: Callable[[str], None]
) -> Outcome:
    """Bring a change to its end: the new layout, else the old one, else drained with a reason."""
    why = ""
    if journal.way == "forward":
        try:
            _walk(journal, steps, say)
        except (FairwattError, KeyboardInterrupt) as error:
            why = str(error) or "interrupted"
            say(f"goes back: {why}")
            turn_back(journal, why)
        else:
            journal.end("applied")
            return _outcome(journal, "applied", "")
    try:
        _walk(journal, steps, say)
    except FairwattError as error:
        _give_up(journal, slurm, str(error))
        return _outcome(journal, "stuck", "; ".join(filter(None, (why, str(error)))))
    journal.end("rolled back", why)
    return _outcome(journal, "rolled back", why)


def outage_s(records: Sequence[Record]) -> float | None:
    """Return the seconds from the node's being free of jobs until it was resumed, if it was."""
    done = [each for each in records if isinstance(each, Mark) and each.phase == "done"]
    idle = [each.t_ms for each in done if each.step == "idle"]
    back = [each.t_ms for each in done if each.step in ("resume", "registered")]
    return (back[-1] - idle[0]) / 1000 if idle and back else None


def _walk(journal: Journal, steps: Steps, say: Callable[[str], None]) -> None:
    for step in _ahead(journal, steps):
        say(step)
        _mark(journal, step, "begin")
        try:
            steps.run(step)
        except (FairwattError, KeyboardInterrupt) as error:
            with contextlib.suppress(FairwattError):
                _mark(journal, step, "failed", str(error))
            raise
        _mark(journal, step, "done")


def _ahead(journal: Journal, steps: Steps) -> tuple[str, ...]:
    """The steps to take: all, unless nothing was changed yet or all but Slurm's view is done."""
    names = steps.names
    if journal.way == "back" and not journal.began("cut"):
        unstopped = ("resume",)
        return (
            tuple(step for step in names if step in AFTER) if journal.began("stop") else unstopped
        )
    if journal.began("cut") and steps.is_cut_and_written():
        return names[names.index("files") + 1 :]
    return names


def _mark(journal: Journal, step: str, phase: Phase, text: str = "") -> None:
    journal.append(Mark(t_ms=now_ms(), way=journal.way, step=step, phase=phase, text=text))


def _give_up(journal: Journal, slurm: SlurmNode, why: str) -> None:
    """The node stays drained; slurmd is left as it is: the boards are not what it would report."""
    with contextlib.suppress(FairwattError):
        node = slurm.show()
        if node is not None and node.foreign_reason is None:
            short = " ".join(why.split())[:_REASON_CHARS]
            slurm.drain(
                f"{DRAIN_REASON}202 re-slice failed, fairwatt mig status tells more: {short}"
            )
    journal.end("stuck", why)


def _outcome(journal: Journal, result: Result, text: str) -> Outcome:
    begun: dict[tuple[str, str], int] = {}
    took: dict[str, float] = {}
    for mark in journal.marks:
        key = (mark.way, mark.step)
        if mark.phase == "begin":
            begun[key] = mark.t_ms
        elif mark.phase == "done" and key in begun:
            took[mark.step] = round((mark.t_ms - begun[key]) / 1000, 3)
    return Outcome(result, text, outage_s(journal.records), took)
