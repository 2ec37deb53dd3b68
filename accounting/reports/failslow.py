# SPDX-License-Identifier: Apache-2.0
"""How a run's GPUs kept pace, and which GPUs are slow again and again."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from fairwatt.accounting.failslow import CLOCK, MIN_RANKS, POWER, UTILISATION, Pace
from fairwatt.accounting.failslow_peers import (
    BELOW_SHARE,
    LIKE_RUNS,
    SLOW_RUNS,
    SLOW_SHARE,
    Deed,
    History,
    histories,
)
from fairwatt.accounting.reports.columns import column
from fairwatt.accounting.reports.period import Period
from fairwatt.accounting.reports.scope import Scope, select
from fairwatt.accounting.reports.words import HEADLINES, Headline, duration_words, percent
from fairwatt.accounting.store import data_version
from fairwatt.core.records import Table

__all__ = ["alerts", "pace_sentence", "pace_tables", "slow_devices_report"]

ALERT_CODE = "FWH390"
LATEST = 100
MOST_DEEDS = 200_000
"""More runs of GPUs are not looked at, the newest first: a page must not take minutes."""

_PACE = """
    SELECT t.restart_cnt, p.state, p.ranks, p.compared, p.steps, p.step_s,
           p.swing_permille / 1000.0, p.run_id
    FROM run t JOIN run_pace p USING (run_id)
    WHERE {scope} AND t.run_id IN (SELECT value FROM json_each(:run_ids))
    ORDER BY t.submit_ts DESC, t.restart_cnt DESC"""
_SLOW = """
    SELECT t.run_id, t.restart_cnt, p.node, p.device_uuid, p.instance_uuid, p.metric,
           p.lag_permille / 1000.0, p.slow_steps, p.steps, p.from_ts, p.until_ts
    FROM run t JOIN rank_pace p USING (run_id)
    WHERE {scope} AND t.run_id IN (SELECT value FROM json_each(:run_ids))
      AND p.metric IS NOT NULL
    ORDER BY t.submit_ts DESC, t.restart_cnt DESC, p.lag_permille DESC LIMIT 1000"""
_WITHIN = (
    "{scope} AND p.last_ts >= :from_ts AND p.last_ts < :until_ts AND p.whole AND p.steps >= 3"
)
_DEEDS = f"""
    SELECT p.device_uuid, p.node, p.kind, t.user, p.last_ts, p.util_permille, p.power_mw,
           p.clock_mhz, coalesce(r.state, 'unknown') <> 'unknown', p.metric,
           p.lag_permille / 1000.0
    FROM rank_pace p JOIN run t USING (run_id) LEFT JOIN run_pace r USING (run_id)
    WHERE {_WITHIN} ORDER BY p.last_ts DESC LIMIT {MOST_DEEDS}"""  # noqa: S608
_STATES = f"""
    SELECT r.state, COUNT(DISTINCT p.run_id)
    FROM rank_pace p JOIN run t USING (run_id) JOIN run_pace r USING (run_id)
    WHERE {_WITHIN} GROUP BY r.state"""  # noqa: S608
_STRAGGLERS = f"""
    SELECT p.until_ts, t.cluster, t.job_id, t.user, t.account, p.node, p.device_uuid, p.metric,
           p.lag_permille / 1000.0, p.slow_steps, p.steps
    FROM rank_pace p JOIN run t USING (run_id)
    WHERE {_WITHIN} AND p.metric IS NOT NULL
    ORDER BY p.until_ts DESC, p.device_uuid LIMIT {LATEST}"""  # noqa: S608

_WHAT = {"clock": "clock", "power": "power draw", "utilisation": "utilisation"}
_NODE = column("node", "Node", "text", "Where the GPU is.")
_GPU = column("device_uuid", "GPU", "text", "UUID of the board.")
_METRIC = column(
    "metric", "What", "text",
    f"Clock (from {CLOCK.lag:.0%} below), power at like utilisation (from {POWER.lag:.0%}), or "
    f"utilisation (from {UTILISATION.lag:.0%}), for {CLOCK.persist} windows on end; the first of "
    "them that shows.",
)  # fmt: skip
_LAG = column(
    "lag", "Below peers", "ratio", "How far below the median of the GPUs it is compared with."
)
_SLOW_STEPS = column("slow_steps", "Windows slow", "integer", "In how many windows it was slow.")
_STEPS = column("steps", "Windows", "integer", "In how many windows it worked.")


def pace_tables(
    db: sqlite3.Connection, scope: Scope, run_ids: Sequence[int], version: int
) -> list[Table]:
    """Return the tables pace (one row per run) and slow (the stragglers' evidence)."""
    key = {"run_ids": json.dumps(list(run_ids))}
    evidence = select(db, scope, _SLOW, key)
    rows = []
    for restart, state, ranks, compared, steps, step_s, swing, run_id in select(
        db, scope, _PACE, key
    ):
        mine = [row[2:] for row in evidence if row[0] == run_id]
        sentence = pace_sentence(state, compared, step_s, mine)
        rows.append((restart, state, sentence, ranks, compared, steps, step_s, swing))
    return [_pace(rows, version), _slow([row[1:] for row in evidence], version)]


def pace_sentence(state: str, compared: int, step_s: int, slow: Sequence[tuple[Any, ...]]) -> str:
    """Return one sentence for the user; `slow` rows begin (node, GPU, MIG, metric, lag, windows).

    >>> pace_sentence("healthy", 8, 300, [])
    'The 8 GPUs kept pace with each other.'
    """
    match state:
        case Pace.STRAGGLER if slow:
            return _straggler_words(slow, step_s)
        case Pace.VARYING:
            return (
                "The load changed on all GPUs together, as with inputs of different length; none "
                "was slower than the others for long."
            )
        case Pace.HEALTHY:
            return f"The {compared} GPUs kept pace with each other."
    return (
        f"Too little to compare: it takes {MIN_RANKS} GPUs of one kind that work in the same "
        f"{CLOCK.persist} windows of {duration_words(step_s)}."
    )


def slow_devices_report(db: sqlite3.Connection, scope: Scope, period: Period) -> list[Table]:
    """Return the tables headlines, devices, nodes and stragglers of the runs within the scope."""
    version = data_version(db)
    span = {"from_ts": period.start_ts, "until_ts": period.end_ts}
    found = _histories(db, scope, span)
    states = dict(select(db, scope, _STATES, span))
    return [
        Table(
            name="headlines",
            title="Headlines",
            columns=HEADLINES,
            rows=_headlines(found, states),
            data_version=version,
        ),
        _devices([history for history in found if history.metric], version),
        _nodes(found, version),
        _stragglers(select(db, scope, _STRAGGLERS, span), version),
    ]


def alerts(db: sqlite3.Connection, scope: Scope, period: Period) -> list[dict[str, Any]]:
    """Return one finding for each repeat offender, in the form of a health check's.

    Keys: code, severity, action (always "alert"), node, device, value, text, since_ms.
    """
    span = {"from_ts": period.start_ts, "until_ts": period.end_ts}
    return [
        {
            "code": ALERT_CODE,
            "severity": "warn",
            "action": "alert",
            "node": history.node,
            "device": history.device,
            "value": percent(history.lag).replace(" ", ""),
            "text": _history_words(history),
            "since_ms": 1000 * (history.slow_ts or 0),
        }
        for history in _histories(db, scope, span)
        if history.repeat
    ]


def _histories(db: sqlite3.Connection, scope: Scope, span: dict[str, int]) -> list[History]:
    rows = select(db, scope, _DEEDS, span)
    return histories(Deed(*row) for row in rows)


def _straggler_words(slow: Sequence[tuple[Any, ...]], step_s: int) -> str:
    node, device, instance, metric, lag, steps = slow[0][:6]
    what = f"its {_WHAT[metric]} was {percent(lag)} below theirs"
    for_long = f"in {steps} windows of {duration_words(step_s)}"
    name = instance or device
    if len(slow) > 1:
        nodes = ", ".join(sorted({row[0] for row in slow}))
        who = f"{len(slow)} GPUs on {nodes} were slower than the others, {name} the most:"
    else:
        who = f"{name} on {node} was slower than the others:"
    if metric == "utilisation":
        why = "Its share of the work, its input or its CPUs may be the reason."
    else:
        why = "Where ranks wait for each other, the whole job goes at its speed: tell your admins."
    return f"{who} {what} {for_long}. {why}"


def _history_words(history: History) -> str:
    """Say in ASCII what is known against a GPU."""
    parts = []
    if history.slow_runs:
        parts.append(f"straggler of {history.slow_runs} of {history.judged_runs} runs")
    if history.below_runs:
        parts.append(
            f"below like GPUs in {history.below_runs} of {history.like_runs} runs as busy"
        )
    lag = f"{_WHAT[history.metric or 'clock']} {percent(history.lag)} low"
    return f"{lag}; {'; '.join(parts)}"


def _pace(rows: Sequence[tuple[Any, ...]], version: int) -> Table:
    columns = (
        column("restart_cnt", "Restart", "integer", "How often the job had been requeued."),
        column(
            "state", "Pace", "text",
            "healthy; straggler: fewer than half of the GPUs persistently slower than the others; "
            "varying load: all changed together, or many in turn; unknown: too little to compare.",
        ),
        column("sentence", "In words", "text", "The same in one sentence."),
        column("ranks", "GPUs", "integer", "GPUs or instances that the run held."),
        column("compared", "Compared", "integer", "How many of one kind could be compared."),
        column("steps", "Windows", "integer", "In how many windows they could be compared."),
        column("step_s", "Window", "duration_s", "Length of a window."),
        column(
            "swing", "Load varied by", "ratio",
            "Spread of the GPUs' median over the windows (scaled MAD over median).",
        ),
    )  # fmt: skip
    return Table(
        name="pace",
        title="Did the GPUs keep pace?",
        columns=columns,
        rows=rows,
        data_version=version,
        notes=[
            "Each GPU is compared, window by window, with the median of the run's GPUs of its "
            "model, so load that changes on all of them cancels out. It counts as slow where it "
            "stays below by more than the limit, and by more than three times the GPUs' own "
            "spread. A GPU that idles is not called slow."
        ],
    )


def _slow(rows: Sequence[tuple[Any, ...]], version: int) -> Table:
    columns = (
        column("restart_cnt", "Restart", "integer", "How often the job had been requeued."),
        _NODE,
        _GPU,
        column("instance_uuid", "MIG instance", "text", "Empty for a whole board."),
        _METRIC,
        _LAG,
        _SLOW_STEPS,
        _STEPS,
        column("from_ts", "From", "ts", "Begin of the first window in which it was slow."),
        column("until_ts", "Until", "ts", "End of the last one."),
    )
    return Table(
        name="slow", title="Slower than the others", columns=columns, rows=rows,
        data_version=version,
    )  # fmt: skip


def _headlines(found: Sequence[History], states: dict[str, int]) -> list[Headline]:
    repeat = [history for history in found if history.repeat]
    judged = sum(count for state, count in states.items() if state != Pace.UNKNOWN)
    stragglers = states.get(Pace.STRAGGLER, 0)
    nodes = ", ".join(sorted({history.node for history in repeat})[:5])
    return [
        ("Repeat offenders", f"{len(repeat):,}",
         f"GPUs that are slow again and again, on {nodes}." if repeat
         else f"None of {len(found):,} GPUs is slow again and again."),
        ("Runs with a straggler", f"{stragglers:,}",
         f"Of {judged:,} runs whose GPUs could be compared."),
        ("Varying load", f"{states.get(Pace.VARYING, 0):,}",
         "Runs whose load changed on all GPUs at once; that is no fault."),
        ("Not comparable", f"{states.get(Pace.UNKNOWN, 0):,}",
         "Runs with several GPUs, but too few of a kind or too short."),
    ]  # fmt: skip


def _devices(found: Iterable[History], version: int) -> Table:
    columns = (
        _NODE,
        _GPU,
        column("kind", "Model", "text", "Model of the board."),
        column(
            "verdict", "Verdict", "text",
            f"Repeat offender: straggler of {SLOW_RUNS} runs or more and of {SLOW_SHARE:.0%} of "
            f"those judged; or below like GPUs in {BELOW_SHARE:.0%} of {LIKE_RUNS} runs or more "
            "of two users. Else it was slow in a run or two.",
        ),
        _METRIC,
        _LAG,
        column("slow_runs", "Straggler in", "integer",
               "Runs in which it was slower than the run's other GPUs, by clock or power."),
        column("judged_runs", "of runs", "integer", "Runs whose GPUs could be compared."),
        column("below_runs", "Low in", "integer",
               "Runs in which it lay below GPUs of its model that were as busy (the same tenth of "
               "utilisation) in other runs."),
        column("like_runs", "of runs", "integer",
               "Runs in which four GPUs of its model or more, it among them, were as busy."),
        column("slow_ts", "Last seen slow", "ts", "End of the newest of these runs."),
    )  # fmt: skip
    rows = [
        (
            *(h.node, h.device, h.kind, "repeat offender" if h.repeat else "slow in a run"),
            *(h.metric, h.lag, h.slow_runs, h.judged_runs, h.below_runs, h.like_runs, h.slow_ts),
        )
        for h in found
    ]
    return Table(
        name="devices", title="Slow devices", columns=columns, rows=rows, data_version=version
    )


def _nodes(found: Iterable[History], version: int) -> Table:
    columns = (
        _NODE,
        column("repeat", "Repeat offenders", "integer", "GPUs that are slow again and again."),
        column("slow", "Slow in a run", "integer", "GPUs that were slow at least once."),
        column("devices", "GPUs", "integer", "GPUs that runs worked on."),
    )
    sums: dict[str, list[int]] = {}
    for history in found:
        counts = sums.setdefault(history.node, [0, 0, 0])
        for place, counted in enumerate((history.repeat, history.metric is not None, True)):
            counts[place] += counted
    bad_first = sorted(sums, key=lambda node: (-sums[node][0], -sums[node][1], node))
    rows = [(node, *sums[node]) for node in bad_first if sums[node][1]]
    return Table(
        name="nodes", title="By node", columns=columns, rows=rows, data_version=version,
        notes=["Several slow GPUs of one node: look at its cooling, power supply and links."],
    )  # fmt: skip


def _stragglers(rows: Sequence[tuple[Any, ...]], version: int) -> Table:
    columns = (
        column("until_ts", "Until", "ts", "End of the last window in which it was slow."),
        column("cluster", "Cluster", "text", "Slurm cluster."),
        column("job_id", "Job", "text", "Slurm job id."),
        column("user", "User", "text", "Who submitted it."),
        column("account", "Account", "text", "Account that is charged."),
        _NODE,
        _GPU,
        _METRIC,
        _LAG,
        _SLOW_STEPS,
        _STEPS,
    )
    notes = [f"Only the newest {LATEST} are listed."] if len(rows) == LATEST else []
    return Table(
        name="stragglers", title="Latest stragglers", columns=columns, rows=rows,
        data_version=version, notes=notes,
    )  # fmt: skip
