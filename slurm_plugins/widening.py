# SPDX-License-Identifier: Apache-2.0
"""When a waiting job may fall back to its next flavour of GPU, and what is then changed. Pure.

All that is known of a job's flavours stands in its admin comment, which only Slurm's admins and
our own hook can write: `next` has the flavours that were not tried, best first; `given` the
present one; `widened` the changes that were made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from fairwatt.core.errors import GrammarError
from fairwatt.core.gres import Spelling, parse_request
from fairwatt.core.records import JobRequest
from fairwatt.slurm_plugins import jobdesc
from fairwatt.slurm_plugins.demand import as_text, demand, retyped, shortfall, wanted
from fairwatt.slurm_plugins.engine import COMMENT_PREFIX, Policy, decide
from fairwatt.slurm_plugins.jobqueue import SCONTROL_NAMES
from fairwatt.slurm_plugins.message import shown
from fairwatt.slurm_plugins.pending import QueuedJob
from fairwatt.slurm_plugins.place import may_enter
from fairwatt.slurm_plugins.site import Site

__all__ = [
    "MENDABLE",
    "Change",
    "Left",
    "Record",
    "finish",
    "may_widen",
    "plan",
    "read_record",
    "waits_since",
]

MAX_COMMENT_BYTES = 1000
MENDABLE = frozenset({"Resources", "Priority"})
"""Reasons of waiting that another flavour can end."""

_JOINS = (
    "Slurm before 23.11 keeps the old GPU type beside the new one, so the job could never start"
)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What an admin comment of ours says; `body` is all of it."""

    given: str
    next: tuple[tuple[str, str | None], ...]
    widened: tuple[tuple[int, str, str], ...]
    body: dict[str, Any]


class Left(msgspec.Struct, frozen=True):
    """The job stays as it is, for this reason."""

    reason: str


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What to write to `address`: `fields` by job_desc's names, then or with them the comment.

    `apart`: the comment comes when it is seen which tasks have the fields. Slurm gives the fields
    to the first record only, so a task that starts meanwhile would get the comment alone. What
    goes along with the fields then is `meanwhile`, which says the same as the present comment.
    """

    address: str
    fields: Mapping[str, str | int]
    comment: str
    told: str
    apart: bool = False
    meanwhile: str | None = None

    @property
    def at_once(self) -> dict[str, str | int]:
        """What the first request to slurmctld changes."""
        comment = self.meanwhile if self.apart else self.comment
        return {**self.fields, **({"admin_comment": comment} if comment else {})}


class _Body(msgspec.Struct):
    v: int
    given: str
    next: list[tuple[str, str | None]] = []
    widened: list[tuple[int, str, str]] = []


def read_record(comment: str) -> Record | None:
    """Read an admin comment; None unless it is ours, readable and names flavours not tried."""
    if not comment.startswith(COMMENT_PREFIX):
        return None
    text = comment.removeprefix(COMMENT_PREFIX)
    try:
        body = msgspec.json.decode(text, type=dict[str, Any])
        known = msgspec.convert(body, _Body)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    if known.v != 1 or not known.next:
        return None
    return Record(
        given=known.given, next=tuple(known.next), widened=tuple(known.widened), body=body
    )


def waits_since(job: QueuedJob, record: Record) -> int | None:
    """When the present wait began, as epoch seconds: eligible, or last widened."""
    if job.eligible_ts is None:
        return None
    last = max((at for at, _, _ in record.widened), default=0)
    return max(job.eligible_ts, job.submit_ts or 0, last)


def may_widen(job: QueuedJob, record: Record, now_ts: int, wait_s: int) -> bool:
    """Whether the job has waited long enough, for a reason that another flavour can end.

    Never one that has run before, is held, reserved, part of a hetjob or of scrontab, or
    interactive: the step of a waiting srun repeats the request as it was typed.
    """
    since = waits_since(job, record)
    return (
        job.states == ("PENDING",)
        and job.reason in MENDABLE
        and not job.held
        and job.restarts == 0
        and job.batch
        and not job.in_hetjob
        and not job.cron
        and "reservation" not in job.fields
        and since is not None
        and now_ts - since >= wait_s
    )


def plan(
    job: QueuedJob, record: Record, policy: Policy, spelling: Spelling, now_ts: int
) -> Change | Left:
    """Work out the change to the next flavour, judged by the policy as a modification."""
    if job.address is None:
        return Left("its list of array tasks is too long for Slurm to show")
    try:
        parsed = jobdesc.parse(job.fields)
        after = _next_request(parsed.request, record)
        problem = after if isinstance(after, str) else _impossible(parsed, after, policy, spelling)
        if isinstance(after, str) or problem:
            return Left(str(problem))
        fields = _allowed_fields(job, parsed, after, policy, spelling)
    except GrammarError as error:
        return Left(f"its request cannot be read: {error}")
    if isinstance(fields, str):
        return Left(fields)
    exact = _from_here(record, parsed.request.partition)
    comment = _widened_comment(exact, as_text(after.gpus), now_ts)
    if comment is None:
        return Left("its new admin comment would be too long")
    return Change(
        address=job.address,
        fields=fields,
        comment=comment,
        told=f"{record.given} -> {_described(after, record.next[0][1])}",
        apart=job.many_tasks,
        meanwhile=_encoded(exact.body) if exact != record else None,
    )


def finish(job: QueuedJob, record: Record, now_ts: int) -> Change | None:
    """The comment that is due to array tasks which have the next flavour already; else None."""
    if not job.in_array or job.address is None:
        return None
    type_, partition = record.next[0]
    try:
        now = as_text(jobdesc.parse(job.fields).request.gpus)
        target = _retyped_text(record.given, type_)
    except GrammarError:
        return None
    moved = partition is not None and partition == job.fields.get("partition")
    there = moved if target == record.given else moved or partition is None
    comment = _widened_comment(record, target, now_ts) if there and now == target else None
    if comment is None:
        return None
    return Change(address=job.address, fields={}, comment=comment, told=f"now noted: {target}")


def _next_request(request: JobRequest, record: Record) -> JobRequest | str:
    """The request with the next flavour, or why there is none."""
    if as_text(request.gpus) != record.given:
        return "its request is no longer the one in its admin comment"
    types = {ask.type for ask in wanted(request)}
    if len(types) != 1:
        return "it asks for several types"
    type_, partition = record.next[0]
    after = retyped(request, {types.pop(): type_})
    if partition is not None:
        after = msgspec.structs.replace(after, partition=partition)
    return after if after != request else "the next flavour is the present one"


def _impossible(
    parsed: jobdesc.Parsed, after: JobRequest, policy: Policy, spelling: Spelling
) -> str | None:
    """Why the cluster cannot give this; the comment is no proof of what exists."""
    site = policy.site
    if site is None:
        return "nothing is known of the cluster"
    if spelling is not Spelling.SLASH and after.gpus != parsed.request.gpus:
        return _JOINS
    unknown = site.unknown_place(after)
    if unknown is not None:
        return f"there is no {unknown}"
    moves = after.partition != parsed.request.partition
    if moves and not may_enter(parsed.request, site, after.partition or ""):
        return f"the job may not be moved to partition {after.partition}"
    return _missing(after, site)


def _missing(after: JobRequest, site: Site) -> str | None:
    asks = wanted(after)
    if shortfall(demand(after, asks), site.pool(after), asks[0].type) is None:
        return None
    return f"{site.where(after)} does not have {as_text(after.gpus)}"


def _allowed_fields(
    job: QueuedJob,
    parsed: jobdesc.Parsed,
    after: JobRequest,
    policy: Policy,
    spelling: Spelling,
) -> dict[str, str | int] | str:
    """The fields to write, with what the policy adds; or why it does not allow them."""
    fields = jobdesc.edits(parsed, after, spelling)
    # The queue shows what a job excludes; saying it again tells the engine that it is known.
    asked = {**fields, "exc_nodes": job.fields.get("exc_nodes", "")}
    decision = decide(asked, policy, record=job.fields, spelling=spelling)
    said = "; ".join(decision.say)
    if not decision.accepted:
        return f"the policy refuses it: {said}"
    if decision.say and not decision.steps:
        return f"the policy did not judge it: {said}"
    if decision.given not in ("", as_text(after.gpus)):
        return f"the policy would make {decision.given} of it"
    fields |= decision.edits
    foreign = sorted(fields.keys() - SCONTROL_NAMES.keys())
    return f"the policy would set {', '.join(foreign)}" if foreign else fields


def _from_here(record: Record, partition: str | None) -> Record:
    """The same record, where a change to another partition does not change what None means."""
    first, *rest = record.next
    moves = first[1] is not None and first[1] != partition
    if partition is None or not moves or all(place for _, place in rest):
        return record
    next_ = (first, *((type_, place or partition) for type_, place in rest))
    return msgspec.structs.replace(record, next=next_, body={**record.body, "next": next_})


def _widened_comment(record: Record, given: str, now_ts: int) -> str | None:
    """The comment after the change; None if it would be too long."""
    partition = record.next[0][1]
    to = f"{given} in partition {partition}" if partition else given
    widened = [*record.widened, (now_ts, record.given, to)]
    return _encoded({**record.body, "given": given, "next": record.next[1:], "widened": widened})


def _encoded(body: Mapping[str, Any]) -> str | None:
    """The text of a comment; notes that do not fit are left out, None if it is too long then."""
    notes = body.get("notes")
    kept = notes if isinstance(notes, list) else []
    for count in range(len(kept), -1, -1):
        text = msgspec.json.encode({**body, "notes": kept[:count]}).decode()
        if len(text) + len(COMMENT_PREFIX) <= MAX_COMMENT_BYTES and text.isascii():
            return COMMENT_PREFIX + text
    return None


def _retyped_text(given: str, type_: str) -> str:
    return ",".join(f"gpu:{type_}:{item.count}" for item in parse_request(given))


def _described(after: JobRequest, partition: str | None) -> str:
    where = f" in partition {partition}" if partition else ""
    return shown(as_text(after.gpus) + where, 200)
