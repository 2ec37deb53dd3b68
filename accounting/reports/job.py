# SPDX-License-Identifier: Apache-2.0
"""One job: what happened, what it asked, got and used, what was rewritten, energy and carbon."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from fairwatt.accounting.reports.columns import CARBON, column
from fairwatt.accounting.reports.decision import read_decision
from fairwatt.accounting.reports.failslow import pace_tables
from fairwatt.accounting.reports.flags import flag_words, method_words
from fairwatt.accounting.reports.footprint import Footprint, footprints
from fairwatt.accounting.reports.policy import policy_tables
from fairwatt.accounting.reports.scope import Scope, select
from fairwatt.accounting.reports.words import HEADLINES, duration_words, job_headlines
from fairwatt.accounting.store import data_version
from fairwatt.core.errors import GrammarError, NotFoundError
from fairwatt.core.records import Column, Table
from fairwatt.core.tres import parse_tres
from fairwatt.core.units import UNKNOWN

__all__ = ["gpu_words", "job_report"]

_RUN_FIELDS = (
    "run_id", "cluster", "job_id", "restart_cnt", "state", "name", "user", "account",
    "partition", "qos", "submit_ts", "eligible_ts", "start_ts", "end_ts", "elapsed_s",
    "timelimit_s", "nnodes", "ncpus", "mem_mib", "nodelist", "req_tres", "alloc_tres",
    "cpu_time_s", "exit_code", "exit_signal", "decision", "array_job_id",
)  # fmt: skip
_RUNS = (
    f"SELECT {', '.join('t.' + name for name in _RUN_FIELDS)} FROM run t"  # noqa: S608
    " WHERE {scope} AND t.cluster = :cluster AND t.job_id = :job_id"
    " ORDER BY t.submit_ts DESC, t.restart_cnt DESC LIMIT 100"
)
_ENERGY = """
    SELECT t.restart_cnt, e.node, e.model, e.device_uuid, e.idle_mj, e.active_mj,
           e.idle_mj + e.active_mj, e.util_permille / 1000.0, e.measured_s, e.method, e.flags
    FROM run t JOIN run_energy e ON e.run_id = t.run_id
    WHERE {scope} AND t.run_id IN (SELECT value FROM json_each(:run_ids))
    ORDER BY t.submit_ts DESC, t.restart_cnt DESC, e.node, e.device_uuid LIMIT 5000"""
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
    carbon_zone: str | None = None,
) -> list[Table]:
    """Return the tables runs, headlines, resources, pace, slow, energy, carbon, and the policy's.

    Runs come newest first; of an id that Slurm has used again, those of the newest job.
    `carbon_zone` is the setting carbon.zone; without it carbon is unknown.

    Raises:
        NotFoundError: there is no such job within the scope.
    """
    key = {"cluster": cluster, "job_id": job_id}
    runs = [dict(zip(_RUN_FIELDS, row, strict=True)) for row in select(db, scope, _RUNS, key)]
    if not runs:
        raise NotFoundError("no such job in your view", place="job", value=f"{cluster}/{job_id}")
    all_runs, runs = runs, _newest_job(runs)
    run_ids = [run["run_id"] for run in runs]
    energy = select(db, scope, _ENERGY, {"run_ids": json.dumps(run_ids)})
    version = data_version(db)
    found = footprints(db, run_ids, carbon_zone)
    headlines = job_headlines(_headline_facts(runs, energy, found))
    facts, notes = [_facts(run) for run in runs], _reuse_notes(len(all_runs) - len(runs))
    return [
        _table("runs", "What happened", _FACTS, facts, version, notes),
        _table("headlines", "Headlines", HEADLINES, headlines, version),
        _resources(runs[0], energy, version),
        *policy_tables(db, scope, runs, version),
        *pace_tables(db, scope, run_ids, version),
        _energy(energy, version),
        _carbon(runs, found, version),
    ]


def gpu_words(tres_text: str | None) -> str | None:
    """Return the GPUs of a TRES text for people: `2 × a100`; None without a text or GPUs."""
    if not tres_text:
        return None
    try:
        gpus = parse_tres(tres_text).gpus
    except GrammarError:
        return tres_text
    return ", ".join(f"{n} × {kind or 'GPU'}" for kind, n in gpus.items()) or None


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


def _resources(run: dict[str, Any], energy: Sequence[tuple[Any, ...]], version: int) -> Table:
    columns = (
        column("resource", "Resource", "text", "What is counted."),
        column("asked", "Asked for", "text", "What the request said when it reached Slurm."),
        column("given", "Given", "text", "What was allocated."),
        column("used", "Used", "text", "What was used of it."),
        column("used_share", "Used, part", "ratio", "Used over given."),
    )
    rows = [_gpu_row(run, energy), _cpu_row(run), _memory_row(run), _time_row(run)]
    return _table("resources", "Asked, given, used", columns, rows, version)


def _gpu_row(run: dict[str, Any], energy: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    decision = read_decision(run["decision"])
    asked = decision.asked if decision and decision.asked else gpu_words(run["req_tres"])
    given = gpu_words(run["alloc_tres"])
    util = _mean_util(run, energy)
    if given is None and asked is None:
        return ("GPUs", "none", "none", "none", None)
    used = UNKNOWN if util is None else f"busy {util:.0%} of the time".replace("%", " %")
    return ("GPUs", asked or UNKNOWN, given or "none", used, util)


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
        "is_part": len(known) < len(energy) or bool(silent),
        "co2_mg": None if not emitted or None in emitted else sum(c for c in emitted if c),
    }


def _cpu_row(run: dict[str, Any]) -> tuple[Any, ...]:
    asked = _tres_amount(run["req_tres"], "cpu")
    held_s = (run["ncpus"] or 0) * (run["elapsed_s"] or 0)
    share = run["cpu_time_s"] / held_s if held_s and run["cpu_time_s"] is not None else None
    used = UNKNOWN if run["cpu_time_s"] is None else f"{run['cpu_time_s'] / 3600:,.1f} core-hours"
    return ("CPU cores", _shown(asked), _shown(run["ncpus"]), used, share)


def _memory_row(run: dict[str, Any]) -> tuple[Any, ...]:
    asked_bytes = _tres_amount(run["req_tres"], "mem")
    asked = UNKNOWN if asked_bytes is None else f"{asked_bytes / 2**30:,.1f} GiB"
    given = UNKNOWN if run["mem_mib"] is None else f"{run['mem_mib'] / 1024:,.1f} GiB"
    return ("Memory", asked, given, UNKNOWN, None)


def _time_row(run: dict[str, Any]) -> tuple[Any, ...]:
    limit_s, elapsed_s = run["timelimit_s"], run["elapsed_s"]
    limit = "no limit" if limit_s is None else duration_words(limit_s)
    share = elapsed_s / limit_s if limit_s and elapsed_s is not None else None
    return ("Time", limit, limit, duration_words(elapsed_s), share)


def _tres_amount(text: str | None, key: str) -> int | None:
    try:
        return parse_tres(text or "").amount(key)
    except GrammarError:
        return None


def _shown(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)


def _energy(energy: Sequence[tuple[Any, ...]], version: int) -> Table:
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
        column("method", "Method", "text", "How the energy was found."),
        column("quality", "Remarks", "text", "What to know about the number."),
    )
    rows = [(*row[:9], method_words(row[9]), flag_words(row[10])) for row in energy]
    return _table("energy", "Energy by GPU", columns, rows, version)


def _carbon(runs: list[dict[str, Any]], found: dict[int, Footprint], version: int) -> Table:
    columns = (
        _RESTART,
        column("energy_mj", "Energy", "energy_mj", "GPU energy of the run."),
        CARBON,
        column(
            "g_per_kwh", "Grid, g CO2e/kWh", "text", "Factor of the run's hours, mean by energy."
        ),
        column("pue", "PUE", "text", "Power usage effectiveness of the machine room."),
        column("factor", "Factor from", "text", "Zone, kind, source and version of the factor."),
    )
    rows = [
        (run["restart_cnt"], f.energy_mj, f.co2_mg, _plain(f.g_per_kwh), _plain(f.pue), f.source)
        for run in runs
        if (f := found.get(run["run_id"]))
    ]
    return _table("carbon", "Carbon", columns, rows, version)


def _plain(value: float | None) -> str | None:
    return None if value is None else f"{value:g}"


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
