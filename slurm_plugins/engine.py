# SPDX-License-Identifier: Apache-2.0
"""The one engine behind the hook, `explain` and the tests: a job's fields to a Decision.

A rule that fails drops every edit of that request: the job goes on unchanged.
"""

from __future__ import annotations

import logging

import msgspec

from fairwatt.core.errors import GrammarError
from fairwatt.core.gres import Spelling
from fairwatt.core.records import JobRequest
from fairwatt.slurm_plugins import clients, exported, jobdesc
from fairwatt.slurm_plugins.demand import as_text, wanted
from fairwatt.slurm_plugins.engine_messages import FW001, FW002, FW004, FW006, FW007, FW304
from fairwatt.slurm_plugins.message import Note, shown
from fairwatt.slurm_plugins.outcome import Outcome
from fairwatt.slurm_plugins.rule import ActiveRule, Mode, own_options
from fairwatt.slurm_plugins.site import Site

__all__ = ["COMMENT_PREFIX", "Decision", "Policy", "Step", "decide"]

_log = logging.getLogger(__name__)

COMMENT_PREFIX = "fairwatt:"
MAX_COMMENT_BYTES = 940
"""Slurm takes 1023; policyd adds the id of the decision."""
MAX_EDIT_BYTES = 1023
_reported: set[tuple[str, str]] = set()


class Policy(msgspec.Struct, frozen=True):
    """What requests are judged by: facts with their age, and the rules in order.

    `site` None: no facts yet. Facts older than `max_age_s` are not used.
    """

    site: Site | None
    rules: tuple[ActiveRule, ...]
    age_s: float = 0.0
    max_age_s: float = float("inf")

    def mode(self, rule: str) -> Mode:
        """A rule's mode; one that is not there is off."""
        return next((each.mode for each in self.rules if each.name == rule), "off")


class Step(msgspec.Struct, frozen=True, gc=False):
    """What one rule did in its mode; `changed`: the request went on as the rule wanted it."""

    rule: str
    mode: Mode
    notes: tuple[Note, ...] = ()
    rejection: Note | None = None
    changed: bool = False


class Decision(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The verdict on one job: edits to write (none when refused) and lines for the user.

    `told` is what the engine itself has to say, beside the steps of the rules; `say` is all of
    both that the user sees. `asked` and `given` are the GPU entries before and after, without
    Slurm's prefix; `flavours` are (GRES type, partition) that the updater may try when the job
    waits long.
    """

    accepted: bool = True
    edits: dict[str, str | int] = {}
    say: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    told: tuple[Note, ...] = ()
    asked: str = ""
    given: str = ""
    flavours: tuple[tuple[str, str | None], ...] = ()


class _RuleFailed(Exception):
    """An enforced rule raised."""

    def __init__(self, rule: ActiveRule) -> None:
        self.rule = rule
        super().__init__(rule.name)


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
    except _RuleFailed as error:
        _report(error.rule.name, error.__cause__ or error)
        closed = error.rule.fail == "closed"
        told = (FW007 if closed else FW001).note(rule=error.rule.name)
        return Decision(accepted=not closed, say=(_line(told),), told=(told,))
    except Exception as error:
        _report("engine", error)
        told = FW001.note(rule="engine")
        return Decision(say=(_line(told),), told=(told,))


def _decide(
    job: jobdesc.Fields, policy: Policy, record: jobdesc.Fields | None, spelling: Spelling
) -> Decision:
    rules = policy.rules if record is None else _watching(policy, job)
    if not rules:
        return Decision()
    fields = jobdesc.overlaid(job, record)
    try:
        parsed = jobdesc.parse(fields, exc_known=record is None or "exc_nodes" in job)
        on_gpus = bool(wanted(parsed.request))
        if not on_gpus:
            rules = _without_gpus(parsed.request, rules)
        if all(rule.mode == "off" for rule in rules):
            return _respelt(parsed, spelling, record)
        site = _usable(policy)
        if site is None:
            told = (FW002.note(age=_age(policy)),) if on_gpus else ()
            return _respelt(parsed, spelling, record, *told)
        site.pool(parsed.request)  # reads the node lists
        unknown = site.unknown_place(parsed.request)
        if unknown is not None:
            told = (FW006.note(what=unknown),) if on_gpus else ()
            return _respelt(parsed, spelling, record, *told)
    except GrammarError as error:
        return _malformed(error, _mode_of_malformed(policy))
    verdict = _judged(parsed, fields, rules, site, spelling)
    return verdict if record is not None else _commented(verdict, fields, rules)


def _without_gpus(request: JobRequest, rules: tuple[ActiveRule, ...]) -> tuple[ActiveRule, ...]:
    """The rules that concern a job which asks for no GPU."""
    whole = request.exclusive
    return tuple(rule for rule in rules if rule.spec.cpu_jobs or (whole and rule.spec.whole_nodes))


def _watching(policy: Policy, job: jobdesc.Fields) -> tuple[ActiveRule, ...]:
    """The rules that a modification concerns."""
    changed = jobdesc.changed_aspects(job)
    return tuple(rule for rule in policy.rules if rule.spec.watches & changed)


def _respelt(
    parsed: jobdesc.Parsed, spelling: Spelling, record: jobdesc.Fields | None, *told: Note
) -> Decision:
    """What no rule judges; a client that spells GRES otherwise than the server is still helped."""
    say = tuple(_line(each) for each in told)
    if record is not None:
        return Decision(say=say, told=told)
    asked = as_text(wanted(parsed.request))
    edits = jobdesc.edits(parsed, parsed.request, spelling)
    return Decision(edits=edits, say=say, told=told, asked=asked, given=asked)


def _judged(
    parsed: jobdesc.Parsed,
    fields: jobdesc.Fields,
    rules: tuple[ActiveRule, ...],
    site: Site,
    spelling: Spelling,
) -> Decision:
    after, steps = _apply_rules(parsed.request, rules, site)
    asked, given = as_text(parsed.request.gpus), as_text(after.gpus)

    def refused(why: Note, *own: Note) -> Decision:
        say = (_line(why),)
        return Decision(accepted=False, say=say, steps=steps, told=own, asked=asked, given=asked)

    if steps and steps[-1].rejection is not None and steps[-1].mode == "enforce":
        return refused(steps[-1].rejection)
    no_step = clients.srun_refusal(fields, parsed, after)
    if no_step is not None:
        return refused(no_step, no_step)
    edits = jobdesc.edits(parsed, after, spelling)
    if fields.get("het_offset") == 0:
        edits |= exported.of_parts(fields, site.types, spelling)
    overlong = next((name for name, text in edits.items() if _is_overlong(text)), None)
    if overlong is not None:
        told = FW004.note(field=overlong)
        return refused(told, told)
    own = clients.told(fields, parsed, after, spelling)
    say = [_line(each, step) for step, each in _told(steps) if step.mode != "audit"]
    say += [_line(each) for each in own]
    return Decision(
        edits=edits,
        say=tuple(say),
        steps=steps,
        told=own,
        asked=asked,
        given=given,
        flavours=tuple((flavour.type, flavour.partition) for flavour in after.flavours),
    )


def _is_overlong(value: str | int) -> bool:
    return isinstance(value, str) and len(value) > MAX_EDIT_BYTES


def _commented(
    decision: Decision, fields: jobdesc.Fields, rules: tuple[ActiveRule, ...]
) -> Decision:
    """Add the record of the decision, unless the job has a comment of somebody else.

    Not in a modification: Slurm takes a user's change for an attempt on the comment, and
    denies it (22.05).
    """
    told = _told(decision.steps)
    whole = fields.get("shared") == 0 and any(_holds_whole_nodes(rule) for rule in rules)
    comment = str(fields.get("admin_comment") or "")
    if (
        not decision.accepted
        or not (told or whole)
        or not f"{comment}{COMMENT_PREFIX}".startswith(COMMENT_PREFIX)
    ):
        return decision
    text = _comment(decision, told, whole=whole)
    return msgspec.structs.replace(decision, edits={**decision.edits, "admin_comment": text})


def _holds_whole_nodes(rule: ActiveRule) -> bool:
    """Whether a change of the job, too, must be judged as one of a job with whole nodes."""
    return rule.spec.whole_nodes and rule.mode == "enforce" and _has_work(rule)


def _told(steps: tuple[Step, ...]) -> list[tuple[Step, Note]]:
    speaking = (step for step in steps if step.notes or step.rejection is not None)
    return [(step, each) for step in speaking for each in _notes(step)]


def _apply_rules(
    request: JobRequest, rules: tuple[ActiveRule, ...], site: Site
) -> tuple[JobRequest, tuple[Step, ...]]:
    """Apply the rules in order; an enforced rejection ends it."""
    steps: list[Step] = []
    for rule in rules:
        if rule.mode == "off":
            steps.append(Step(rule.name, rule.mode))
            continue
        outcome = _run(rule, request, site)
        enforced = rule.mode == "enforce"
        same = outcome.request is request or outcome.request == request
        steps.append(
            Step(rule.name, rule.mode, outcome.notes, outcome.rejection, enforced and not same)
        )
        if enforced and outcome.rejection is not None:
            break
        if enforced:
            request = outcome.request
    return request, tuple(steps)


def _run(rule: ActiveRule, request: JobRequest, site: Site) -> Outcome:
    """A rule's outcome; one that is not enforced and fails has nothing to say."""
    try:
        return rule.spec.judge(request, site, rule.options)
    except Exception as error:
        if rule.mode == "enforce":
            raise _RuleFailed(rule) from error
        _report(rule.name, error)
        return Outcome(request)


def _mode_of_malformed(policy: Policy) -> Mode:
    """That of known_types, unless a rule that must not be evaded has something to hold jobs to."""
    strict = (rule for rule in policy.rules if rule.mode == "enforce" and rule.fail == "closed")
    return "enforce" if any(map(_has_work, strict)) else policy.mode("known_types")


def _has_work(rule: ActiveRule) -> bool:
    """Whether the site has set what a rule goes by, if there is anything to set."""
    names = own_options(rule.spec.options)
    plain = rule.spec.options()
    return not names or any(getattr(rule.options, n) != getattr(plain, n) for n in names)


def _malformed(error: GrammarError, mode: Mode) -> Decision:
    """What nobody can read could be anything: refused where unknown types are."""
    field, part = (
        shown(text.removeprefix("gres/").removeprefix("gres:"))
        for text in (error.text, error.part)
    )
    at = "" if part == field else f" at {part}"
    told = FW304.note(field=field, at=at, remedy=error.remedy or "mend it")
    step = Step("known_types", mode, rejection=told)
    if mode == "enforce":
        return Decision(accepted=False, say=(_line(told),), steps=(step,))
    return Decision(say=(_line(told, step),) if mode == "warn" else (), steps=(step,))


def _usable(policy: Policy) -> Site | None:
    """The facts, unless there are none or they are too old."""
    return None if policy.age_s > policy.max_age_s else policy.site


def _age(policy: Policy) -> str:
    return "not known yet" if policy.site is None else f"{policy.age_s:.0f} s old"


def _notes(step: Step) -> tuple[Note, ...]:
    return step.notes if step.rejection is None else (*step.notes, step.rejection)


def _line(told: Note, step: Step | None = None) -> str:
    if step is None or step.mode == "enforce":
        return f"fairwatt {told.code}: {told.text}"
    would = "would be refused: " if told is step.rejection else "would be changed: "
    return f"fairwatt {told.code} ({step.mode}): {would}{told.text}"


def _comment(decision: Decision, told: list[tuple[Step, Note]], *, whole: bool) -> str:
    """The decision for accounting in MAX_COMMENT_BYTES; notes that do not fit are left out."""
    notes = [(each.code, _in_mode(step) + each.text) for step, each in told]
    for kept in range(len(notes), -1, -1):
        body = {
            "v": 1,
            "id": "",  # policyd fills it in, so that equal requests have equal decisions
            "asked": shown(decision.asked, 200),
            "given": shown(decision.given, 200),
            "notes": notes[:kept],
        }
        if whole:
            body["whole"] = 1  # jobdesc.WHOLE_MARK
        if decision.flavours:
            body["next"] = decision.flavours
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
