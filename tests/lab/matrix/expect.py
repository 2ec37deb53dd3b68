# SPDX-License-Identifier: Apache-2.0
"""What must come of a case, and the few exceptions that Slurm's own clients make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.lab.matrix.cases import Case
from tests.lab.matrix.forms import OWN
from tests.lab.matrix.intents import Intent
from tests.lab.matrix.outcomes import (
    BY_CLIENT,
    BY_SCRONTAB,
    NO_OPTION,
    accepted,
    expected,
)

__all__ = ["Loss", "fault", "loss", "own", "why"]


@dataclass(frozen=True)
class Loss:
    """Something that a client does to a request before the hook can see it."""

    since: str
    entries: tuple[str, ...]
    flags: tuple[str, ...]
    meets: Callable[[Intent], bool]
    outcome: str | None
    reason: str


_SRUN = ("srun", "srun + client filter")
_ALL = ("sbatch", "array", "hetjob", "salloc", *_SRUN, "--test-only")
LOSSES = (
    Loss(
        "23.11", ("scrontab",), ("--gpus-per-task", "--ntasks-per-gpu"), lambda _: True, None,
        "scrontab drops the option: the job has no GPU",
    ),
    Loss(
        "23.11", _ALL, ("--gpus-per-task",),
        lambda intent: intent.count is None and intent.type == "a100", None,
        "the client drops a type without a count: the job has no GPU",
    ),
    Loss(
        "23.11", _ALL, ("--gpus-per-task",), lambda intent: intent.count is None, "FW305",
        "the client reads 20gb without a count as the number 20",
    ),
    Loss(
        "23.11", _ALL, ("--gpus-per-task",), lambda intent: intent.count == 0, None,
        "the client drops a zero, which asks for nothing either",
    ),
)  # fmt: skip
"""In order; the first that fits. `outcome` None: a job without GPUs."""


def loss(case: Case, release: str) -> Loss | None:
    """What this release's client does to the case; None: it passes it on."""
    if case.spelling != OWN:
        return None
    for each in LOSSES:
        if (
            release >= each.since
            and case.entry in each.entries
            and case.form.flag in each.flags
            and each.meets(case.intent)
        ):
            return each
    return None


def fault(case: Case, outcome: str, release: str) -> str | None:
    """What is wrong with an outcome, in a sentence; None: it is as it must be."""
    if outcome in _allowed(case, release):
        return None
    wanted = " or ".join(sorted(_allowed(case, release)))
    return f"{release}: {case.key}: {outcome}; must be: {wanted}"


def _allowed(case: Case, release: str) -> set[str]:
    if case.form.since > release:
        return {NO_OPTION}
    lost = loss(case, release)
    if lost is not None:
        return {lost.outcome or _without_gpus(case)}
    decided = _at_entry(case)
    if case.spelling == OWN or case.entry == "API":
        return {decided}
    # A spelling that is not the manual's: the intent's own decision, or refused as unreadable.
    unread = {BY_CLIENT, "FW302", "FW304"}
    if case.form.flag == "--gpus-per-task" and release >= "23.11":
        unread.add(_without_gpus(case))
    return {decided, *unread}


def _without_gpus(case: Case) -> str:
    intent = case.intent
    if case.entry == "--test-only":
        return accepted(intent.partition or "gpu")
    return accepted(intent.partition or "gpu", intent.exclude, what="no GPU")


def _at_entry(case: Case) -> str:
    intent = case.intent
    if case.entry in _SRUN and intent.renamed and not _mended(case):
        return "FW005"
    if case.entry == "scrontab" and intent.refused:
        return BY_SCRONTAB
    return own(case)


def own(case: Case) -> str:
    """The intent's own outcome, as far as it can be seen at the case's entry point."""
    intent = case.intent
    if case.entry == "--test-only" and not intent.refused:
        return accepted(intent.where)
    if case.entry in ("salloc", *_SRUN):  # the record of a job that has ended lacks its features
        intent = replace(intent, features=None)
    return expected(intent, case.form.level)


def _mended(case: Case) -> bool:
    return case.entry == "srun + client filter" and case.intent.filtered


def why(case: Case, outcome: str, release: str) -> str | None:
    """The reason of an outcome that is not the intent's own; None: it is the intent's own."""
    lost = loss(case, release)
    if lost is not None:
        return lost.reason
    if outcome == "FW005":
        return "srun cannot be rewritten; the message names the options that can be had"
    if outcome == BY_SCRONTAB:
        return "the whole crontab is refused, and the one before stays"
    if outcome == NO_OPTION:
        return f"the option came with {case.form.since}"
    return None
