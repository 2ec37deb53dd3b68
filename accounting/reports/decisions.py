# SPDX-License-Identifier: Apache-2.0
"""What the submit policy did in a period: how much, by which rules, and the latest requests."""

from __future__ import annotations

import math
import sqlite3
from collections import defaultdict
from typing import Any

from fairwatt.accounting.days import day_of, site_zone
from fairwatt.accounting.reports.columns import column
from fairwatt.accounting.reports.period import Period
from fairwatt.accounting.reports.policy import OUTCOME, TOOK, outcome_words, stored_notes
from fairwatt.accounting.reports.scope import Scope, select
from fairwatt.accounting.reports.words import HEADLINES, Headline, percent
from fairwatt.accounting.store import data_version
from fairwatt.core.coded import coded_messages
from fairwatt.core.records import Table

__all__ = ["decisions_report", "latest_decisions"]

LATEST = 100
LATEST_REFUSALS = 20
QUARTER_MS = 900_000
"""Every zone's days begin at a quarter of an hour."""

_SAID = (
    column("day", "Day", "text", "Local day."),
    column("rule", "Rule", "text", "Name of the rule; engine: the policy itself."),
    column("mode", "Mode", "text", "Whether the rule applies (enforce) or only speaks."),
    column("code", "Message", "text", "Number of the message."),
    column("count", "Times", "integer", "How often it was said."),
    column("refused", "Refused", "integer", "In how many of these the request was refused."),
)
_WITHIN = "{scope} AND t.t_ms >= :from_ms AND t.t_ms < :until_ms"
_COUNTS = f"""
    SELECT COUNT(*), COALESCE(SUM(t.verb = 'modify'), 0), COALESCE(SUM(NOT t.accepted), 0),
           COALESCE(SUM(t.accepted AND t.edited), 0)
    FROM decision_told t WHERE {_WITHIN}"""  # noqa: S608
_TOOK = f"""
    SELECT t.took_us FROM decision_told t WHERE {_WITHIN}
    ORDER BY t.took_us LIMIT 1 OFFSET :rank"""  # noqa: S608
_CODES = f"""
    SELECT t.t_ms / {QUARTER_MS}, note.value ->> 0, note.value ->> 1, note.value ->> 2,
           COUNT(*), SUM(NOT t.accepted)
    FROM decision_told t, json_each(t.notes) note WHERE {_WITHIN}
    GROUP BY 1, 2, 3, 4"""  # noqa: S608
_LATEST = f"""
    SELECT t.t_ms / 1000, t.cluster, t.job_id, t.user, t.uid, t.account, t.partition, t.verb,
           t.asked, t.given, t.accepted, t.edited, t.notes, t.took_us
    FROM decision_told t WHERE {_WITHIN}
      AND (:refused = 0 OR NOT t.accepted) AND (:user IS NULL OR t.user = :user)
    ORDER BY t.t_ms DESC, t.seq DESC LIMIT :limit"""  # noqa: S608


def decisions_report(db: sqlite3.Connection, scope: Scope, period: Period) -> list[Table]:
    """Return the tables headlines, codes, days and refusals of the decisions within the scope."""
    version = data_version(db)
    return [
        Table(
            name="headlines",
            title="Headlines",
            columns=HEADLINES,
            rows=_headlines(db, scope, period),
            data_version=version,
        ),
        *_said(db, scope, period, version),
        latest_decisions(db, scope, period, refused=True, name="refusals", limit=LATEST_REFUSALS),
    ]


def latest_decisions(
    db: sqlite3.Connection,
    scope: Scope,
    period: Period,
    *,
    user: str | None = None,
    refused: bool = False,
    name: str = "decisions",
    limit: int = LATEST,
) -> Table:
    """Return the newest decisions within the scope: all, one user's, or refusals alone."""
    columns = (
        column("judged_ts", "When", "ts", "When the policy was asked."),
        column("cluster", "Cluster", "text", "Slurm cluster."),
        column("job_id", "Job", "text", "Slurm job id; a refused submission has none."),
        column("user", "User", "text", "Whose job it is, or was to be."),
        column("account", "Account", "text", "Account that was or would be charged, if certain."),
        column("partition", "Partition", "text", "Partition that was asked for."),
        column("verb", "What", "text", "A submission, or a change of a job."),
        column("asked", "Asked", "text", "The GPUs as they were written."),
        column("given", "Given", "text", "The GPUs as they were handed to Slurm."),
        OUTCOME,
        column("codes", "Messages", "text", "Numbers of the messages."),
        column("reason", "Why", "text", "What was said, rule after rule."),
        TOOK,
    )
    asked = {**_span(period), "refused": int(refused), "user": user, "limit": limit}
    rows = [_latest_row(*row) for row in select(db, scope, _LATEST, asked)]
    notes = [f"Only the newest {limit} are listed."] if len(rows) == limit else []
    return Table(
        name=name,
        title="Latest refusals" if refused else "Latest decisions",
        columns=columns,
        rows=rows,
        data_version=data_version(db),
        notes=notes,
    )


def _latest_row(
    judged_ts: int, cluster: str, job_id: int | None, user: str | None, uid: int | None,
    account: str | None, partition: str | None, verb: str, asked: str, given: str,
    accepted: int, edited: int, notes: str, took_us: int,
) -> tuple[Any, ...]:  # fmt: skip
    """What there is none of is empty: the job of a refused submission, a partition not named."""
    told = stored_notes(notes)
    job = job_id if accepted or job_id is not None else ""
    return (
        *(judged_ts, cluster, job, user or (None if uid is None else f"uid {uid}"), account),
        *(partition or "", "change" if verb == "modify" else "submission", asked),
        *(given if accepted else "", outcome_words(accepted, edited)),
        *(", ".join(note.code for note in told), " ".join(note.text for note in told), took_us),
    )


def _headlines(db: sqlite3.Connection, scope: Scope, period: Period) -> list[Headline]:
    span = _span(period)
    ((count, changes, refused, rewritten),) = select(db, scope, _COUNTS, span)
    if not count:
        return [("Requests judged", "0", "The policy judged no request in this period.")]
    p50, p99 = (
        select(db, scope, _TOOK, {**span, "rank": math.ceil(part * count) - 1})[0][0]
        for part in (0.5, 0.99)
    )
    return [
        ("Requests judged", f"{count:,}", f"{changes:,} of them were changes of a job."),
        ("Rewritten", percent(rewritten / count), f"{rewritten:,} were given in another form."),
        ("Refused", percent(refused / count), f"{refused:,} were refused, with a reason each."),
        ("Time taken", f"{p50:,} µs", f"Half took no longer, 99 in 100 at most {p99:,} µs."),
    ]


def _said(db: sqlite3.Connection, scope: Scope, period: Period, version: int) -> list[Table]:
    """What each rule said: over the whole period, and day by day."""
    zone = site_zone(period.zone)
    by_code: dict[tuple[str, ...], list[int]] = defaultdict(lambda: [0, 0])
    by_day: dict[tuple[str, ...], list[int]] = defaultdict(lambda: [0, 0])
    for quarter, rule, mode, code, count, refused in select(db, scope, _CODES, _span(period)):
        day = day_of(quarter * QUARTER_MS // 1000, zone)
        for sums in (by_code[rule, mode, code], by_day[day, rule, mode, code]):
            sums[0] += count
            sums[1] += refused
    known = coded_messages()
    often = sorted(by_code, key=lambda key: (-by_code[key][0], key))
    codes = [
        (*key, known[key[2]].title if key[2] in known else None, *by_code[key]) for key in often
    ]
    newest = sorted(sorted(by_day, key=lambda key: -by_day[key][0]), key=_day, reverse=True)
    days = [(*key, *by_day[key]) for key in newest]
    title = column("title", "When", "text", "When the message appears.")
    return [
        Table(
            name="codes",
            title="What each rule said",
            columns=(*_SAID[1:4], title, *_SAID[4:]),
            rows=codes,
            data_version=version,
        ),
        Table(
            name="days",
            title="The same day by day",
            columns=_SAID,
            rows=days,
            data_version=version,
        ),
    ]


def _day(key: tuple[str, ...]) -> str:
    return key[0]


def _span(period: Period) -> dict[str, int]:
    return {"from_ms": 1000 * period.start_ts, "until_ms": 1000 * period.end_ts}
