# SPDX-License-Identifier: Apache-2.0
"""A request and its decision as the event that the collector keeps; pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from fairwatt.core.events import DecisionMade, RuleNote
from fairwatt.slurm_plugins.engine import Decision
from fairwatt.slurm_plugins.wire import Query

__all__ = ["Origin", "decision_event"]

ENGINE = "engine"
FIRST_UNSET_UID = 0xFFFF_FFFE
"""Slurm's NO_VAL: what a change that does not name its user sends."""


class Origin(msgspec.Struct, frozen=True):
    """What stamps the events of one policyd: its host, its run, and the cluster it serves."""

    node: str
    boot_id: str
    cluster: str


def decision_event(
    origin: Origin, seq: int, t_ms: int, query: Query, decision: Decision, took_us: int
) -> DecisionMade:
    """Return the event; `seq` numbers those of an origin, `t_ms` is when the answer was given."""
    record = query.record or {}
    whole = {**record, **query.job}
    change = query.verb == "modify"
    return DecisionMade(
        node=origin.node,
        boot_id=origin.boot_id,
        seq=seq,
        t_ms=t_ms,
        cluster=origin.cluster,
        id=query.id,
        verb="modify" if change else "submit",
        uid=_uid(record if change else query.job),
        job_id=_number(whole, "job_id") if change else None,
        account=_text(whole, "account") or _text(whole, "default_account"),
        partition=_text(whole, "partition"),
        asked=decision.asked,
        given=decision.given,
        accepted=decision.accepted,
        # The comment is made of the other fields.
        edits={name: value for name, value in decision.edits.items() if name != "admin_comment"},
        notes=_notes(decision),
        rules={step.rule: step.mode for step in decision.steps if step.mode != "off"},
        job=query.job,
        took_us=took_us,
    )


def _notes(decision: Decision) -> tuple[RuleNote, ...]:
    """What the rules said; then what the engine itself did."""
    of_rules = [
        RuleNote(step.rule, step.mode, note.code, note.text)
        for step in decision.steps
        for note in (*step.notes, *((step.rejection,) if step.rejection else ()))
    ]
    return (*of_rules, *(RuleNote(ENGINE, "enforce", n.code, n.text) for n in decision.told))


def _uid(fields: Mapping[str, object]) -> int | None:
    uid = _number(fields, "user_id")
    return uid if uid is not None and uid < FIRST_UNSET_UID else None


def _number(fields: Mapping[str, object], name: str) -> int | None:
    value = fields.get(name)
    return int(value) if isinstance(value, int | float) and value >= 0 else None


def _text(fields: Mapping[str, object], name: str) -> str | None:
    value = fields.get(name)
    return value if isinstance(value, str) and value else None
