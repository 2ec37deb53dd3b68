# SPDX-License-Identifier: Apache-2.0
"""Wasted GPU time: a department's by class, and a person's largest savings run by run."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from fairwatt.accounting.reports.columns import FGE_HOURS, column
from fairwatt.accounting.reports.period import Period
from fairwatt.accounting.reports.scope import Scope, select
from fairwatt.accounting.reports.usage import Usage, hours
from fairwatt.accounting.reports.use import Yardstick, judged_runs
from fairwatt.accounting.reports.words import hours_words, percent
from fairwatt.accounting.waste import Waste
from fairwatt.core.records import Table

__all__ = ["class_table", "savings_table", "split_table"]

MOST_SAVINGS = 10
LONGEST_S = 120 * 86_400
"""Runs that were submitted so long before the period are not looked for: the index is by then."""

_CLASSES = """
    SELECT t.class, SUM(t.runs_ended), SUM(t.gpu_milli_s), SUM(t.wasted_milli_s)
    FROM waste_daily t
    WHERE {scope} AND t.cluster = :cluster AND t.day BETWEEN :first AND :last
      AND t.account IN (SELECT value FROM json_each(:accounts))
    GROUP BY t.class"""
_SAVINGS = """
    SELECT t.run_id, t.cluster, t.job_id, t.name, w.class,
           t.gpu_milli * t.elapsed_s / 1000 * w.waste_permille AS wasted
    FROM run t JOIN run_waste w ON w.run_id = t.run_id
    WHERE {scope} AND t.user = :user AND t.submit_ts >= :since AND t.submit_ts < :b
      AND t.end_ts >= :a AND t.end_ts < :b
      AND w.waste_permille > 0 AND t.gpu_milli > 0
    ORDER BY wasted DESC, t.run_id LIMIT :limit"""
_MEANINGS = {
    Waste.MEMORY: "the memory ran out, or nearly did",
    Waste.IDLE: "the GPUs did next to nothing",
    Waste.OVER: "fewer or smaller would have done",
    Waste.STRAGGLER: "a slow GPU kept the others waiting",
    Waste.OFFLOAD: "the model's state lay in the node's memory",
    Waste.INPUT: "the GPUs waited for data from the CPU cores",
    Waste.COMMUNICATION: "the GPUs waited for each other",
    Waste.HEALTHY: "the GPUs worked",
    Waste.UNKNOWN: "too short, not measured, or no cause seen",
}


def class_table(
    db: sqlite3.Connection,
    scope: Scope,
    period: Period,
    cluster: str,
    accounts: Iterable[str],
    use: Usage,
    version: int,
) -> Table:
    """Return GPU hours held and wasted by class; the first note says the most of it in words.

    `use` is what these accounts held in the period: what has no class is unknown.
    """
    columns = (
        column("class", "Class", "text", "What runs did with what they were given."),
        column("runs", "Runs", "integer", "Runs of the class that ended in the period."),
        FGE_HOURS,
        column("share", "Share", "ratio", "Part of the full-GPU hours."),
        column("wasted_hours", "Wasted", "gpu_hours", "Full-GPU hours that other requests or "
               "mended programs would have saved; for unknown runs nobody can say."),
        column("meaning", "That is", "text", "The class in words."),
    )  # fmt: skip
    params = {**_days(period), "cluster": cluster, "accounts": json.dumps(sorted(accounts))}
    found = {row[0]: row[1:] for row in select(db, scope, _CLASSES, params)}
    whole = use.gpu_milli_s
    rows: list[tuple[Any, ...]] = [
        (kind, runs, hours(held), _part(held, whole), hours(wasted), _MEANINGS[Waste(kind)])
        for kind, (runs, held, wasted) in sorted(
            found.items(), key=lambda item: (-item[1][2], -item[1][1], item[0])
        )
    ]
    left = whole - sum(held for _, held, _ in found.values())
    if left > 0:
        unknown = str(Waste.UNKNOWN)
        meaning = _MEANINGS[Waste.UNKNOWN]
        rows.append((unknown, None, hours(left), _part(left, whole), None, meaning))
    return Table(
        name="waste_classes",
        title="Wasted GPU hours by class",
        columns=columns,
        rows=rows,
        data_version=version,
        notes=[
            _sentence(found, whole, max(0, left)),
            "Wasted is not the same as held but idle: runs that use their GPUs well pause too, "
            "and a run that fails for its memory loses busy hours.",
        ],
    )


def split_table(use: Usage, version: int) -> Table:
    """Return what the hours were used for, by utilisation and by outcome."""
    columns = (
        column("split", "Split", "text", "By what the hours are divided."),
        column("part", "Part", "text", "The part; the parts of one split make the whole."),
        FGE_HOURS,
        column("share", "Share", "ratio", "Part of the full-GPU hours."),
    )
    parts = (
        ("utilisation", "busy", use.used_milli_s),
        ("utilisation", "held but idle", use.util_known_milli_s - use.used_milli_s),
        ("utilisation", "utilisation unknown", use.gpu_milli_s - use.util_known_milli_s),
        ("outcome", "run failed or timed out", use.failed_milli_s),
        ("outcome", "any other outcome", use.gpu_milli_s - use.failed_milli_s),
    )
    whole = use.gpu_milli_s
    rows = [
        (split, part, None if use.is_unsized else hours(amount), amount / whole if whole else None)
        for split, part, amount in parts
    ]
    notes = ["Both splits divide the same hours: a failed run may have kept its GPU busy."]
    return Table(
        name="waste",
        title="How the hours were used",
        columns=columns,
        rows=rows,
        data_version=version,
        notes=notes,
    )


def savings_table(
    db: sqlite3.Connection,
    scope: Scope,
    period: Period,
    yardstick: Yardstick | None,
    version: int,
) -> Table:
    """Return the asker's runs with the most wasted GPU time, each with what to do next time."""
    columns = (
        column("cluster", "Cluster", "text", "Slurm cluster."),
        column("job_id", "Job", "text", "Slurm job id."),
        column("name", "Name", "text", "Job name."),
        column("class", "Class", "text", "What the run did with what it was given."),
        column("wasted_hours", "Could be saved", "gpu_hours", "Full-GPU hours of this run that "
               "other requests, or a mended program, would have saved."),
        column("evidence", "What was seen", "text", "The measurements behind the class."),
        column("advice", "Next time", "text", "What to write next time."),
    )  # fmt: skip
    params = {
        "user": scope.user,
        "a": period.start_ts,
        "b": period.end_ts,
        "since": period.start_ts - LONGEST_S,
        "limit": MOST_SAVINGS,
    }
    found = select(db, scope, _SAVINGS, params)
    judged = judged_runs(db, [row[0] for row in found], yardstick) if found else {}
    rows = [
        (cluster, job_id, name, kind, hours(wasted), words.evidence, words.advice or "")
        for run_id, cluster, job_id, name, kind, wasted in found
        for words in [judged[run_id].words]
    ]
    return Table(
        name="savings",
        title="Your largest savings",
        columns=columns,
        rows=rows,
        data_version=version,
        notes=["Runs that ended in the period, with GPUs that nodes measured, the largest first."],
    )


def _days(period: Period) -> dict[str, str]:
    return {"first": str(period.first), "last": str(period.until - timedelta(days=1))}


def _part(amount: int, whole: int) -> float | None:
    return amount / whole if whole else None


def _said(milli_s: int) -> str:
    return hours_words(milli_s / 3_600_000)


def _sentence(found: Mapping[str, Sequence[Any]], whole: int, unknown: int) -> str:
    """As: Of 1,234 full-GPU hours 210 (17.0 %) were wasted, most of it (150 h) in …."""
    if not whole:
        return "No GPU was held in this period."
    if unknown > 0.999 * whole:
        return "How well the GPUs were used is not known: no node measured these runs."
    wasted = sum(row[2] for row in found.values())
    tail = f" {percent(unknown / whole)} of the hours could not be judged." if unknown else ""
    if not wasted:
        return f"No waste was seen in {_said(whole)} full-GPU hours.{tail}"
    worst = max(found, key=lambda kind: (found[kind][2], kind))
    part = "most of it" if 2 * found[worst][2] > wasted else "the largest part"
    return (
        f"Of {_said(whole)} full-GPU hours {_said(wasted)} "
        f"({percent(wasted / whole)}) were wasted, {part} "
        f"({_said(found[worst][2])} h) in runs of the class {worst}: "
        f"{_MEANINGS[Waste(worst)]}.{tail}"
    )
