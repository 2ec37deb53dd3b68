# SPDX-License-Identifier: Apache-2.0
"""The one engine behind the hook, `explain` and the tests: a job's fields to a Decision.

A rule that fails drops every edit of that request: the job goes on unchanged.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Literal

import msgspec

from fairwatt.core.errors import GrammarError
from fairwatt.core.gres import Spelling
from fairwatt.core.records import JobRequest
from fairwatt.slurm_plugins import jobdesc
from fairwatt.slurm_plugins.demand import as_text, wanted
from fairwatt.slurm_plugins.messages import Note, note, shown
from fairwatt.slurm_plugins.outcome import Outcome, Rule
from fairwatt.slurm_plugins.rules.known_types import known_types
from fairwatt.slurm_plugins.rules.memory_fit import memory_fit
from fairwatt.slurm_plugins.rules.untyped_slices import untyped_slices
from fairwatt.slurm_plugins.site import Site

__all__ = ["COMMENT_PREFIX", "RULES", "Decision", "Mode", "Policy", "Step", "decide"]

_log = logging.getLogger(__name__)

Mode = Literal["off", "audit", "warn", "enforce"]

RULES: Mapping[str, Rule] = {
    "memory_fit": memory_fit,
    "untyped_slices": untyped_slices,
    "known_types": known_types,
}
"""Every rule by its name in the configuration, in the order in which they are applied."""

COMMENT_PREFIX = "fairwatt:"
MAX_COMMENT_BYTES = 1000
MAX_EDIT_BYTES = 1023
_reported: set[tuple[str, str]] = set()


class Policy(msgspec.Struct, frozen=True):
    """What requests are judged by: facts with their age, and each rule's mode.

    `site` None: no facts yet. Facts older than `max_age_s` are not used.
    """

    site: Site | None
    modes: Mapping[str, Mode]
    age_s: float = 0.0
    max_age_s: float = float("inf")

    def mode(self, rule: str) -> Mode:
        """A rule's mode; a rule that the configuration does not name is off."""
        return self.modes.get(rule, "off")


class Step(msgspec.Struct, frozen=True):
    """What one rule did in its mode; `changed`: the request went on as the rule wanted it."""

    rule: str
    mode: Mode
    notes: tuple[Note, ...] = ()
    rejection: Note | None = None
    changed: bool = False


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one job: edits to write (none when refused) and lines for the user.

    `asked` and `given` are the GPU entries before and after, without Slurm's prefix.
    """

    accepted: bool = True
    edits: dict[str, str] = {}
    say: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    asked: str = ""
    given: str = ""


class _RuleFailed(Exception):
    """A rule raised; `rule` is its name."""

    def __init__(self, rule: str) -> None:
        self.rule = rule
        super().__init__(rule)


def decide(
    job: jobdesc.Fields,
    policy: Policy,
    *,
    record: jobdesc.Fields | None = None,
    spelling: Spelling = Spelling.SLASH,
) -> Decision:
    """Judge a submission, or with `record` (the job as it is) a modification. Never raises."""
    try:
        return _decide(job, policy, record, spelling)
    except Exception as error:
        rule = error.rule if isinstance(error, _RuleFailed) else "engine"
        _report(rule, error.__cause__ or error)
        return Decision(say=(_line(note("FW001", rule=rule)),))


def _decide(
    job: jobdesc.Fields, policy: Policy, record: jobdesc.Fields | None, spelling: Spelling
) -> Decision:
    if record is not None and not jobdesc.concerns_gpus(job):
        return Decision()
    fields = jobdesc.overlaid(job, record)
    try:
        parsed = jobdesc.parse(fields, exc_known=record is None or "exc_nodes" in job)
        if not wanted(parsed.request):
            return Decision()
        if _unusable(policy):
            return Decision(say=(_line(note("FW002", age=_age(policy))),))
        if policy.site is not None:
            policy.site.pool(parsed.request)  # reads the node lists
            unknown = policy.site.unknown_place(parsed.request)
            if unknown is not None:
                return Decision(say=(_line(note("FW006", what=unknown)),))
    except GrammarError as error:
        return _malformed(error, policy.mode("known_types"))
    verdict = _judged(parsed, policy, spelling, srun=jobdesc.is_srun(fields))
    return verdict if record is not None else _commented(verdict, fields)


def _judged(parsed: jobdesc.Parsed, policy: Policy, spelling: Spelling, *, srun: bool) -> Decision:
    after, steps = _apply_rules(parsed.request, policy)
    asked, given = as_text(parsed.request.gpus), as_text(after.gpus)
    if steps and steps[-1].rejection is not None and steps[-1].mode == "enforce":
        line = _line(steps[-1].rejection)
        return Decision(accepted=False, say=(line,), steps=steps, asked=asked, given=asked)
    edits = jobdesc.edits(parsed, after, spelling)
    if srun and _renamed(parsed.request, after):
        line = _line(
            note("FW005", asked=asked, given=given, offer=jobdesc.flags(after, parsed.request))
        )
        return Decision(accepted=False, say=(line,), steps=steps, asked=asked, given=asked)
    overlong = next((name for name, text in edits.items() if len(text) > MAX_EDIT_BYTES), None)
    if overlong is not None:
        line = _line(note("FW004", field=overlong))
        return Decision(accepted=False, say=(line,), steps=steps, asked=asked, given=asked)
    say = tuple(_line(each, step) for step, each in _told(steps) if step.mode != "audit")
    return Decision(edits=edits, say=say, steps=steps, asked=asked, given=given)


def _renamed(before: JobRequest, after: JobRequest) -> bool:
    """Whether a type that the user named is gone."""
    left = {(ask.level, ask.type) for ask in after.gpus}
    return any(ask.type and (ask.level, ask.type) not in left for ask in before.gpus)


def _commented(decision: Decision, fields: jobdesc.Fields) -> Decision:
    """Add the record of the decision, unless the job has a comment of somebody else.

    Not in a modification: Slurm takes a user's change for an attempt on the comment, and
    denies it (22.05).
    """
    told = _told(decision.steps)
    comment = str(fields.get("admin_comment") or "")
    if (
        not decision.accepted
        or not told
        or not f"{comment}{COMMENT_PREFIX}".startswith(COMMENT_PREFIX)
    ):
        return decision
    text = _comment(decision.asked, decision.given, told)
    return msgspec.structs.replace(decision, edits={**decision.edits, "admin_comment": text})


def _told(steps: tuple[Step, ...]) -> list[tuple[Step, Note]]:
    return [(step, each) for step in steps for each in _notes(step)]


def _apply_rules(request: JobRequest, policy: Policy) -> tuple[JobRequest, tuple[Step, ...]]:
    """Apply the rules in order; an enforced rejection ends it."""
    steps: list[Step] = []
    for name, rule in RULES.items():
        mode = policy.mode(name)
        if mode == "off" or policy.site is None:
            steps.append(Step(name, mode))
            continue
        outcome = _run(name, rule, request, policy.site)
        enforced = mode == "enforce"
        changed = enforced and outcome.request != request
        steps.append(Step(name, mode, outcome.notes, outcome.rejection, changed))
        if enforced and outcome.rejection is not None:
            break
        if enforced:
            request = outcome.request
    return request, tuple(steps)


def _run(name: str, rule: Rule, request: JobRequest, site: Site) -> Outcome:
    try:
        return rule(request, site)
    except Exception as error:
        raise _RuleFailed(name) from error


def _malformed(error: GrammarError, mode: Mode) -> Decision:
    """What nobody can read could be anything: refused where unknown types are."""
    field, part = (
        shown(text.removeprefix("gres/").removeprefix("gres:"))
        for text in (error.text, error.part)
    )
    at = "" if part == field else f" at {part}"
    told = note("FW304", field=field, at=at, remedy=error.remedy or "mend it")
    step = Step("known_types", mode, rejection=told)
    if mode == "enforce":
        return Decision(accepted=False, say=(_line(told),), steps=(step,))
    return Decision(say=(_line(told, step),) if mode == "warn" else (), steps=(step,))


def _unusable(policy: Policy) -> bool:
    if all(policy.mode(name) == "off" for name in RULES):
        return False
    return policy.site is None or policy.age_s > policy.max_age_s


def _age(policy: Policy) -> str:
    return "not known yet" if policy.site is None else f"{policy.age_s:.0f} s old"


def _notes(step: Step) -> tuple[Note, ...]:
    return step.notes if step.rejection is None else (*step.notes, step.rejection)


def _line(told: Note, step: Step | None = None) -> str:
    if step is None or step.mode == "enforce":
        return f"fairwatt {told.code}: {told.text}"
    would = "would be refused: " if told is step.rejection else "would be changed: "
    return f"fairwatt {told.code} ({step.mode}): {would}{told.text}"


def _comment(asked: str, given: str, told: list[tuple[Step, Note]]) -> str:
    """The decision for accounting in MAX_COMMENT_BYTES; notes that do not fit are left out."""
    notes = [(each.code, _in_mode(step) + each.text) for step, each in told]
    for kept in range(len(notes), -1, -1):
        body = {
            "v": 1,
            "asked": shown(asked, 200),
            "given": shown(given, 200),
            "notes": notes[:kept],
        }
        text = COMMENT_PREFIX + msgspec.json.encode(body).decode("ascii")
        if len(text) <= MAX_COMMENT_BYTES:
            break
    return text


def _in_mode(step: Step) -> str:
    return "" if step.mode == "enforce" else f"{step.mode}: "


def _report(rule: str, error: BaseException) -> None:
    """Log each kind of failure once with its trace; a broken rule meets every job."""
    kind = (rule, type(error).__name__)
    if kind not in _reported:
        _reported.add(kind)
        _log.error("rule %s failed; its jobs go on unchanged", rule, exc_info=error)
