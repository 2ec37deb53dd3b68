# SPDX-License-Identifier: Apache-2.0
"""What the submit policy did to one job: rule by rule, its changes, what it may still become."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fairwatt.accounting.reports.columns import column
from fairwatt.accounting.reports.decision import Decision, read_decision, rule_notes
from fairwatt.accounting.reports.scope import Scope, select
from fairwatt.core.errors import IngestError
from fairwatt.core.events import DecisionMade, RuleNote, decode_event
from fairwatt.core.records import Table

__all__ = ["OUTCOME", "TOOK", "outcome_words", "policy_tables", "stored_notes"]

AS_ASKED = "as asked"
LONGEST_VALUE = 200

_DECISION = """
    SELECT t.t_ms / 1000, t.accepted, t.edited, t.notes, t.took_us, e.body
    FROM decision_told t JOIN event e USING (node, boot_id, seq)
    WHERE {scope} AND t.cluster = :cluster AND t.id = :id AND t.verb = 'submit'
    ORDER BY t.t_ms LIMIT 1"""
# Slurm uses job ids again: only what was changed while this very job was there is its own.
_CHANGES = """
    SELECT t.t_ms / 1000, t.accepted, t.edited, t.asked, t.given, t.notes, t.took_us, e.body
    FROM decision_told t JOIN event e USING (node, boot_id, seq)
    WHERE {scope} AND t.cluster = :cluster AND t.verb = 'modify'
      AND t.job_id IN (:job_id, :array_job_id)
      AND t.t_ms >= 1000 * :submit_ts AND t.t_ms < 1000 * (COALESCE(:end_ts, 1 << 40) + 1)
    ORDER BY t.t_ms LIMIT 100"""

TOOK = column("took_us", "Took, µs", "integer", "How long slurmctld waited for the decision.")
OUTCOME = column("outcome", "Outcome", "text", "As asked, rewritten or refused.")
_JUDGED = column("judged_ts", "Judged", "ts", "When the policy was asked.")
_RULE = column("rule", "Rule", "text", "Name of the rule; empty where only its message is known.")
_MODE = column("mode", "Mode", "text", "Whether the rule applies (enforce) or only speaks.")
_CODE = column("code", "Message", "text", "Number of the message.")
_WHY = column("reason", "Why", "text", "The reason in one sentence.")
_WRITTEN = column("written", "Written", "text", "The fields as they were asked for.")
_EDITS = column("edits", "Became", "text", "The fields as the policy set them.")


def policy_tables(
    db: sqlite3.Connection, scope: Scope, runs: Sequence[Mapping[str, Any]], version: int
) -> list[Table]:
    """Return the tables rewrite, decision, flavours and changes of a job.

    `runs` are its runs, newest first. What the store has of the decision goes before the job's
    comment, which is shorter.
    """
    comment = read_decision(runs[0]["decision"])
    key = {"cluster": runs[0]["cluster"]}
    found: list[tuple[Any, ...]] = []
    if comment is not None and comment.id:
        found = select(db, scope, _DECISION, {**key, "id": comment.id})
    span = {
        **key,
        **{name: runs[0][name] for name in ("job_id", "array_job_id", "end_ts")},
        "submit_ts": runs[-1]["submit_ts"],
    }
    notes = stored_notes(found[0][3]) if found else rule_notes(comment) if comment else ()
    return [
        _rewrite(comment, notes, version),
        _decision(found, version),
        _flavours(comment, runs[0], version),
        _changes(select(db, scope, _CHANGES, span), version),
    ]


def stored_notes(text: str) -> tuple[RuleNote, ...]:
    """Read `decision.notes`."""
    return msgspec.json.decode(text, type=tuple[RuleNote, ...])


def outcome_words(accepted: int, edited: int) -> str:
    """Return what became of a request, in a word or two."""
    return "refused" if not accepted else "rewritten" if edited else AS_ASKED


def _rewrite(comment: Decision | None, notes: Sequence[RuleNote], version: int) -> Table:
    columns = (
        column("asked", "You asked", "text", "The request as you wrote it."),
        column("given", "Slurm got", "text", "The request as it was handed to Slurm."),
        _RULE, _MODE, _CODE, _WHY,
    )  # fmt: skip
    asked, given = (comment.asked, comment.given) if comment else (None, None)
    rows = [(asked, given, note.rule or None, note.mode, note.code, note.text) for note in notes]
    return _table("rewrite", "What was changed, and why", columns, rows, version)


def _decision(found: Sequence[tuple[Any, ...]], version: int) -> Table:
    columns = (
        _JUDGED, OUTCOME, TOOK,
        column("rules", "Rules asked", "text", "In their order, with a mode other than enforce."),
        _WRITTEN, _EDITS,
    )  # fmt: skip
    rows = [
        (judged_ts, outcome_words(accepted, edited), took_us, _rules(made), *_fields(made))
        for judged_ts, accepted, edited, _, took_us, body in found
        for made in [_made(body)]
    ]
    return _table("decision", "The decision", columns, rows, version)


def _flavours(comment: Decision | None, run: Mapping[str, Any], version: int) -> Table:
    columns = (
        column("at_ts", "When", "ts", "When the updater changed the job; empty: not yet."),
        column("flavour", "GPUs", "text", "GRES type, and the partition where it is another."),
        column("before", "Instead of", "text", "What it waited for before."),
        column("what", "What", "text", "Tried, to try when the job waits on, or not needed."),
    )
    widened = comment.widened if comment else ()
    left = comment.next if comment else ()
    waits = run["start_ts"] is None and run["end_ts"] is None
    then = "to try when it waits on" if waits else "not needed"
    rows = [
        *((at_ts, after, before, "tried") for at_ts, before, after in widened),
        *((None, _flavour(*flavour), None, then) for flavour in left),
    ]
    return _table("flavours", "What would do as well", columns, rows, version)


def _changes(found: Sequence[tuple[Any, ...]], version: int) -> Table:
    columns = (
        _JUDGED, OUTCOME,
        column("asked", "You asked", "text", "The GPUs as you wrote them."),
        column("given", "Slurm got", "text", "The GPUs as they were handed to Slurm."),
        _CODE, _WHY, _WRITTEN, _EDITS, TOOK,
    )  # fmt: skip
    rows = []
    for judged_ts, accepted, edited, asked, given, notes, took_us, body in found:
        told = stored_notes(notes)
        codes = ", ".join(note.code for note in told)
        why = " ".join(note.text for note in told)
        made = _fields(_made(body))
        outcome = outcome_words(accepted, edited)
        got = given if accepted else ""
        rows.append((judged_ts, outcome, asked, got, codes, why, *made, took_us))
    return _table("changes", "Later changes", columns, rows, version)


def _made(body: str) -> DecisionMade | None:
    try:
        event = decode_event(body.encode())
    except IngestError:
        return None
    return event if isinstance(event, DecisionMade) else None


def _rules(made: DecisionMade | None) -> str | None:
    if made is None:
        return None
    return ", ".join(
        rule if mode == "enforce" else f"{rule} ({mode})" for rule, mode in made.rules.items()
    )


def _fields(made: DecisionMade | None) -> tuple[str | None, str | None]:
    return (_listed(made.job), _listed(made.edits)) if made else (None, None)


def _listed(fields: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={_cut(str(value))}" for name, value in fields.items())


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


def _flavour(gres_type: str, partition: str | None) -> str:
    return f"{gres_type} in {partition}" if partition else gres_type


def _table(
    name: str, title: str, columns: Sequence[Any], rows: Sequence[tuple[Any, ...]], version: int
) -> Table:
    return Table(name=name, title=title, columns=columns, rows=rows, data_version=version)
