# SPDX-License-Identifier: Apache-2.0
"""Past submissions through two policies: what would change if the second one were enabled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from fairwatt.slurm_plugins.engine import Decision, Policy, decide
from fairwatt.slurm_plugins.history import PastJob
from fairwatt.slurm_plugins.sbatch_flags import as_flags

__all__ = ["Change", "Comparison", "Replay", "as_text"]

MAX_EXAMPLES = 5

Change = Literal["same", "refused", "admitted", "changed"]
"""refused, admitted: only by the new policy; changed: both accept, with other edits."""

_WORDS: Mapping[Change, str] = {
    "same": "as now",
    "refused": "would newly be refused",
    "admitted": "would no longer be refused",
    "changed": "would be rewritten otherwise",
}


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One job that the new policy treats otherwise; `now` and `then` are what the user sees."""

    job_id: str
    change: Change
    asked: str
    now: str
    then: str
    code: str


class Replay:
    """Compares decisions one by one and keeps counts and a few examples of each kind."""

    def __init__(self, now: Policy, then: Policy) -> None:
        self._policies = (now, then)
        self.counts: Counter[Change] = Counter()
        self.codes: Counter[tuple[Change, str]] = Counter()
        self.examples: list[Comparison] = []

    def add(self, jobs: Iterable[PastJob]) -> None:
        """Judge each job by both policies."""
        for job in jobs:
            now, then = (decide(job.fields, policy) for policy in self._policies)
            change = _change(now, then)
            self.counts[change] += 1
            if change != "same":
                self._keep(job, change, now, then)

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return {
            "jobs": self.counts.total(),
            **{change: self.counts[change] for change in _WORDS},
            "codes": [
                {"change": change, "code": code, "jobs": count}
                for (change, code), count in self.codes.most_common()
            ],
            "examples": msgspec.to_builtins(self.examples),
        }

    def _keep(self, job: PastJob, change: Change, now: Decision, then: Decision) -> None:
        code = _code(then if change != "admitted" else now)
        self.codes[change, code] += 1
        if self.codes[change, code] <= MAX_EXAMPLES:
            asked = as_flags(job.fields)
            self.examples.append(
                Comparison(
                    job_id=job.job_id,
                    change=change,
                    asked=asked,
                    now=_seen(now),
                    then=_seen(then),
                    code=code,
                )
            )


def as_text(replay: Replay) -> str:
    """Return the result as lines for people."""
    total = replay.counts.total()
    lines = [f"{total} jobs judged by the policy in use and by the new one"]
    lines += [
        f"{replay.counts[change]:>8} {words}{_share(replay.counts[change], total)}"
        for change, words in _WORDS.items()
    ]
    for (change, code), count in replay.codes.most_common():
        lines.append(f"\n{count} {_WORDS[change]} ({code})")
        for each in replay.examples:
            if (each.change, each.code) == (change, code):
                lines += [f"  job {each.job_id}: {each.asked}"]
                lines += [f"    now   {each.now}", f"    then  {each.then}"]
    return "\n".join(lines)


def _share(count: int, total: int) -> str:
    return f" ({count / total:.1%})" if total else ""


def _change(now: Decision, then: Decision) -> Change:
    if now.accepted != then.accepted:
        return "admitted" if then.accepted else "refused"
    if not now.accepted:
        return "same"
    return "same" if _effect(now) == _effect(then) else "changed"


def _effect(decision: Decision) -> dict[str, str | int]:
    """What the job itself gets; the record in its comment is not part of it."""
    return {name: value for name, value in decision.edits.items() if name != "admin_comment"}


def _code(decision: Decision) -> str:
    """The message that tells why; the last note of an accepted job."""
    told = [note.code for step in decision.steps for note in step.notes]
    refusals = [step.rejection.code for step in decision.steps if step.rejection is not None]
    refusals += [note.code for note in decision.told if not decision.accepted]
    return next(iter([*refusals[-1:], *told[-1:]]), "no message")


def _seen(decision: Decision) -> str:
    if not decision.accepted:
        return f"refused: {' '.join(decision.say)}"
    return as_flags(_effect(decision)) or "unchanged"
