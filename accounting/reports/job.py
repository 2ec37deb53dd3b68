# SPDX-License-Identifier: Apache-2.0
"""One job: what happened, what it asked, got and used, what was rewritten, energy and carbon."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from fairwatt.accounting.reports.carbon_basis import CarbonAsk
from fairwatt.accounting.reports.columns import column
from fairwatt.accounting.reports.failslow import pace_tables
from fairwatt.accounting.reports.flags import flag_words
from fairwatt.accounting.reports.footprint import Footprint, footprints
from fairwatt.accounting.reports.host import host_tables
from fairwatt.accounting.reports.idle import (
    IdlePolicy,
    as_reserved,
    moved_of_runs,
    policy_note,
)
from fairwatt.accounting.reports.job_carbon import job_carbon_table
from fairwatt.accounting.reports.old_factors import check_version
from fairwatt.accounting.reports.policy import policy_tables
from fairwatt.accounting.reports.scope import Scope, select
from fairwatt.accounting.reports.uncertainty import method_line
from fairwatt.accounting.reports.use import Yardstick, gpu_words, judged_runs, use_tables
from fairwatt.accounting.reports.words import HEADLINES, job_headlines
from fairwatt.accounting.store import data_version
from fairwatt.core.errors import NotFoundError
from fairwatt.core.records import Column, Table

__all__ = ["job_report"]

LATE_S = 60
"""By so much a node may begin or end later than Slurm says."""

_RUN_FIELDS = (
    "run_id", "cluster", "job_id", "restart_cnt", "state", "name", "user", "account",
    "partition", "qos", "submit_ts", "eligible_ts", "start_ts", "end_ts", "elapsed_s",
    "timelimit_s", "nnodes", "ncpus", "mem_mib", "nodelist", "req_tres", "alloc_tres",
    "cpu_time_s", "gpu_milli", "suspended_s", "exit_code", "exit_signal", "decision",
    "array_job_id",
)  # fmt: skip
_RUNS = (
    f"SELECT {', '.join('t.' + name for name in _RUN_FIELDS)} FROM run t"  # noqa: S608
    " WHERE {scope} AND t.cluster = :cluster AND t.job_id = :job_id"
    " ORDER BY t.submit_ts DESC, t.restart_cnt DESC LIMIT 100"
)
MOST_BOARDS = 100_000
"""All restarts of the largest jobs; if there are more, the job's energy says that it is a part."""
_ENERGY = """
    SELECT t.restart_cnt, e.node, e.model, e.device_uuid, e.idle_mj, e.active_mj,
           e.idle_mj + e.active_mj, e.util_permille / 1000.0, e.measured_s, e.method, e.flags
    FROM run t JOIN run_energy e ON e.run_id = t.run_id LEFT JOIN device d USING (device_uuid)
    WHERE {scope} AND t.run_id IN (SELECT value FROM json_each(:run_ids))
      AND COALESCE(d.kind, 'gpu') = 'gpu'
    ORDER BY t.submit_ts DESC, t.restart_cnt DESC, e.node, e.device_uuid LIMIT :most"""
_RESTART = column("restart_cnt", "Restart", "integer", "How often the job had been requeued.")
_FACTS = (
    column("cluster", "Cluster", "text", "Slurm cluster."),
    column("job_id", "Job", "text", "Slurm job id."),
    _RESTART,
    column("state", "State", "text", "Slurm's state of this run."),
    column("name", "Name", "text", "Job name."),
    column("user", "User", "text", "Who submitted it."),
    column("account", "Account", "text", "Account that is charged."),
    column("partition", "Partition", "text", "Slurm partition."),
    column("qos", "QOS", "text", "Quality of service."),
    column("nodelist", "Nodes", "text", "Where it ran."),
    column("submit_ts", "Submitted", "ts", "When it was submitted or requeued."),
    column("eligible_ts", "Eligible", "ts", "When nothing but the queue held it back."),
    column("start_ts", "Started", "ts", "When it started."),
    column("end_ts", "Ended", "ts", "When it ended."),
    column("wait_s", "Waited", "duration_s", "Eligible to start."),
    column("elapsed_s", "Ran for", "duration_s", "Start to end."),
    column("exit", "Exit", "text", "Exit code, and the signal that ended it if any."),
)


def job_report(
    db: sqlite3.Connection,
    scope: Scope,
    cluster: str,
    job_id: int,
    *,
    carbon: CarbonAsk | None = None,
    idle_policy: IdlePolicy = "reserved",
    yardstick: Yardstick | None = None,
) -> list[Table]:
    """Return the tables of a job.

    They are runs, headlines, resources, advice, gpu_time, the policy's, pace, slow, energy and
    carbon.

    Runs come newest first; of an id that Slurm has used again, those of the newest job.
    `carbon` says which version of the factors carbon is made with. `idle_policy` says who gets
    what GPUs draw without work, `yardstick` by what runs are judged (None: the defaults).

    Raises:
        NotFoundError: there is no such job within the scope, or no such version of the factors.
    """
    key = {"cluster": cluster, "job_id": job_id}
    runs = [dict(zip(_RUN_FIELDS, row, strict=True)) for row in select(db, scope, _RUNS, key)]
    if not runs:
        raise NotFoundError("no such job in your view", place="job", value=f"{cluster}/{job_id}")
    all_runs, runs = runs, _newest_job(runs)
    run_ids = [run["run_id"] for run in runs]
    energy = select(db, scope, _ENERGY, {"run_ids": json.dumps(run_ids), "most": MOST_BOARDS})
    energy = _by_policy(db, energy, runs, idle_policy)
    version = data_version(db)
    ask = carbon or CarbonAsk()
    check_version(db, ask.version)
    found = footprints(db, run_ids, ask.zone, ask.version, with_nodes=True)
    shown = _headline_facts(runs, energy, found)
    host = host_tables(db, scope, run_ids, shown["energy_mj"], version)
    headlines = job_headlines({**shown, "has_host": bool(host), "idle_policy": idle_policy})
    facts, notes = [_facts(run) for run in runs], _reuse_notes(len(all_runs) - len(runs))
    return [
        _table("runs", "What happened", _FACTS, facts, version, notes),
        _table("headlines", "Headlines", HEADLINES, headlines, version),
        *use_tables(
            runs, judged_runs(db, run_ids[:1], yardstick), _mean_util(runs[0], energy), version
        ),
        *policy_tables(db, scope, runs, version),
        *pace_tables(db, scope, run_ids, version),
        _energy(energy, version, policy_note(idle_policy)),
        *host,
        as_reserved(job_carbon_table(db, runs, found, ask), idle_policy),
    ]


def _newest_job(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs down to the first try: before it, the id was another job's."""
    job = [runs[0]]
    for older in runs[1:]:
        if older["restart_cnt"] >= job[-1]["restart_cnt"]:
            break
        job.append(older)
    return job


def _reuse_notes(others: int) -> list[str]:
    if not others:
        return []
    return [f"The id was used before: {others} older runs are another job's and not shown here."]


def _facts(run: dict[str, Any]) -> tuple[Any, ...]:
    values = {**run, "wait_s": _span(run["eligible_ts"], run["start_ts"]), "exit": _exit(run)}
    return tuple(values[field.key] for field in _FACTS)


def _span(from_ts: int | None, until_ts: int | None) -> int | None:
    return None if from_ts is None or until_ts is None else max(0, until_ts - from_ts)


def _exit(run: dict[str, Any]) -> str | None:
    code, signal = run["exit_code"], run["exit_signal"]
    if run["end_ts"] is None:
        return "not ended yet"  # sacct tells 0:0 of a running job
    if code is None:
        return None
    return f"{code}, signal {signal}" if signal else str(code)


def _mean_util(run: dict[str, Any], energy: Sequence[tuple[Any, ...]]) -> float | None:
    """Utilisation of the run's boards, weighted by how long each was measured."""
    known = [(e[7], e[8]) for e in energy if e[7] is not None and e[0] == run["restart_cnt"]]
    span_s = sum(measured_s for _, measured_s in known)
    return sum(util * measured_s for util, measured_s in known) / span_s if span_s else None


def _headline_facts(
    runs: Sequence[dict[str, Any]], energy: Sequence[tuple[Any, ...]], found: dict[int, Footprint]
) -> dict[str, Any]:
    """The energy is the boards' as long as one of them is known; carbon has its own sum."""
    run = runs[0]
    known = [row[6] for row in energy if row[6] is not None]
    told = {row[0] for row in energy}
    silent = [r for r in runs if r["restart_cnt"] not in told and gpu_words(r["alloc_tres"])]
    emitted = [footprint.co2_mg for footprint in found.values()]
    return {
        "start_ts": run["start_ts"],
        "end_ts": run["end_ts"],
        "wait_s": _span(run["eligible_ts"], run["start_ts"]),
        "elapsed_s": run["elapsed_s"],
        "gpus": gpu_words(run["alloc_tres"]),
        "holds_none": bool(run["alloc_tres"]) and gpu_words(run["alloc_tres"]) is None,
        "busy": _mean_util(run, energy),
        "energy_mj": sum(known) if known else None,
        "is_part": len(known) < len(energy)
        or len(energy) == MOST_BOARDS
        or bool(silent)
        or _is_cut(runs, energy),
        "co2_mg": None if not emitted or None in emitted else sum(c for c in emitted if c),
    }


def _is_cut(runs: Sequence[dict[str, Any]], energy: Sequence[tuple[Any, ...]]) -> bool:
    """Whether a board was measured for less than its run lasted; nodes begin and end it apart."""
    lasted = {
        run["restart_cnt"]: (run["elapsed_s"] or 0) - (run["suspended_s"] or 0)
        for run in runs
        if run["end_ts"] is not None
    }
    return any(
        measured_s < 0.95 * lasted.get(restart, 0) - LATE_S
        for restart, *_, measured_s, _method, _flags in energy
    )


def _by_policy(
    db: sqlite3.Connection,
    energy: Sequence[tuple[Any, ...]],
    runs: Sequence[dict[str, Any]],
    policy: IdlePolicy,
) -> list[tuple[Any, ...]]:
    """The rows of _ENERGY with the idle part that the policy gives the runs."""
    if policy == "reserved":
        return list(energy)
    run_of = {run["restart_cnt"]: run["run_id"] for run in runs}
    moved = moved_of_runs(db, run_of.values())
    result = []
    for restart, node, model, device, idle_mj, active_mj, *rest in energy:
        if idle_mj is None or active_mj is None:
            result.append((restart, node, model, device, idle_mj, active_mj, *rest))
            continue
        own = idle_mj + moved.get((run_of[restart], device), 0) if policy == "active" else 0
        result.append((restart, node, model, device, own, active_mj, own + active_mj, *rest[1:]))
    return result


def _energy(energy: Sequence[tuple[Any, ...]], version: int, note: str) -> Table:
    columns = (
        _RESTART,
        column("node", "Node", "text", "Where the GPU is."),
        column("model", "Model", "text", "Model of the board."),
        column("device_uuid", "GPU", "text", "UUID of the board."),
        column("idle_mj", "Idle part", "energy_mj", "What the held GPU draws without work."),
        column("active_mj", "Active part", "energy_mj", "What the run's work added."),
        column("energy_mj", "Energy", "energy_mj", "Idle and active part together."),
        column("util", "Busy", "ratio", "Mean utilisation while it was measured."),
        column("measured_s", "Measured", "duration_s", "For how long it was measured."),
        column("method", "Method", "text", "How the energy was found, and between what it lies."),
        column("quality", "Remarks", "text", "What to know about the number."),
    )
    rows = [(*row[:9], method_line(row[9], row[6]), flag_words(row[10])) for row in energy]
    return _table("energy", "Energy by GPU", columns, rows, version, [note])


def _table(
    name: str,
    title: str,
    columns: tuple[Column, ...],
    rows: Sequence[tuple[Any, ...]],
    version: int,
    notes: Sequence[str] = (),
) -> Table:
    return Table(
        name=name, title=title, columns=columns, rows=rows, data_version=version, notes=notes
    )
