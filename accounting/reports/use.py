# SPDX-License-Identifier: Apache-2.0
"""What one job asked, got and used, its GPU time in three units, and what to ask next time."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairwatt.accounting.reports.columns import BILLING_HOURS, DEVICE_HOURS, FGE_HOURS, column
from fairwatt.accounting.reports.decision import read_decision
from fairwatt.accounting.reports.words import duration_words
from fairwatt.accounting.run_rows import billing_of
from fairwatt.accounting.waste import Evidence, Limits
from fairwatt.accounting.waste_settings import limits_of
from fairwatt.accounting.waste_store import Judged, judgements
from fairwatt.core.catalogue import Catalogue, load_catalogue
from fairwatt.core.config import Config
from fairwatt.core.errors import GrammarError
from fairwatt.core.records import Column, Table
from fairwatt.core.tres import parse_tres
from fairwatt.core.units import UNKNOWN

__all__ = ["Yardstick", "gpu_words", "judged_runs", "use_tables", "yardstick_of"]

_COLUMNS = (
    column("resource", "Resource", "text", "What is counted."),
    column("asked", "Asked for", "text", "What the request said when it reached Slurm."),
    column("given", "Given", "text", "What was allocated."),
    column("used", "Used", "text", "What was used of it."),
    column("used_share", "Used, part", "ratio", "Used over given."),
    column("why", "Why unknown", "text", "Why the use is not known; empty where it is."),
    column("unit", "Unit", "text", "Of the two amounts that follow."),
    column("given_amount", "Given, amount", "integer", "Given, times the run's time for GPUs and "
           "cores."),
    column("used_amount", "Used, amount", "integer", "Used, in the same unit."),
)  # fmt: skip
_RESTART = column("restart_cnt", "Restart", "integer", "How often the job had been requeued.")
_GPU_TIME = (
    _RESTART,
    DEVICE_HOURS,
    FGE_HOURS,
    BILLING_HOURS,
)
_ADVICE = (
    column("class", "Class", "text", "What the run did with what it was given."),
    column("evidence", "What was seen", "text", "The measurements behind the class."),
    column("advice", "Next time", "text", "What to write next time; empty where there is nothing "
           "to say, or too little is known to say it."),
    column("wasted_hours", "Could be saved", "gpu_hours", "Full-GPU hours of this run that other "
           "requests, or a mended program, would have saved."),
)  # fmt: skip


@dataclass(frozen=True)
class Yardstick:
    """By what runs are judged: the site's limits, and the catalogue of GPUs."""

    catalogue: Catalogue
    limits: Limits


def yardstick_of(config: Config) -> Yardstick:
    """Return by what a site judges runs.

    Raises:
        ConfigError: a limit that is none.
        CatalogueError: a bad file in site.catalogue_dir.
    """
    catalogue = load_catalogue(config["site.catalogue_dir"] or None)
    return Yardstick(catalogue, limits_of(config))


def judged_runs(
    db: sqlite3.Connection, run_ids: Sequence[int], yardstick: Yardstick | None
) -> dict[int, Judged]:
    """Return the judgements on runs that the asker may see."""
    by = yardstick or Yardstick(load_catalogue(), Limits())
    return judgements(db, run_ids, by.catalogue, by.limits)


def use_tables(
    runs: Sequence[Mapping[str, Any]],
    judged: Mapping[int, Judged],
    busy: float | None,
    version: int,
) -> list[Table]:
    """Return the tables resources and advice of the newest run, and gpu_time of all runs.

    `busy` is the mean utilisation of the newest run's boards while each was measured.
    """
    run = runs[0]
    one = judged[run["run_id"]]
    rows = [
        _gpu_row(run, one.run, busy), _gpu_memory_row(one.run), _cpu_row(run, one.run),
        _memory_row(run, one.run), _time_row(run),
    ]  # fmt: skip
    if one.run.gpu_count == 0:
        del rows[1]
    advice = (str(one.verdict.kind), one.words.evidence, one.words.advice or "", _wasted(run, one))
    return [
        _table("resources", "What you asked, got and used", _COLUMNS, rows, version),
        _table("advice", "Used well?", _ADVICE, [advice], version),
        _table("gpu_time", "GPU time", _GPU_TIME, [_time_of(one) for one in runs], version),
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


def _wasted(run: Mapping[str, Any], one: Judged) -> float | None:
    milli, permille = run["gpu_milli"], one.verdict.waste_permille
    if milli is None or permille is None or run["elapsed_s"] is None:
        return None
    return float(round(milli * run["elapsed_s"] * permille / 3_600_000_000, 6))


def _time_of(run: Mapping[str, Any]) -> tuple[Any, ...]:
    """A suspended run keeps its GPUs, but is not billed: Slurm's elapsed time is without that."""
    elapsed_s = run["elapsed_s"]
    if elapsed_s is None:
        return (run["restart_cnt"], None, None, None)
    held_s = elapsed_s + (run["suspended_s"] or 0)
    count, milli = _gpu_count(run["alloc_tres"]), run["gpu_milli"]
    billing = billing_of(run["alloc_tres"] or "")
    return (
        run["restart_cnt"],
        None if count is None else round(count * held_s / 3600, 6),
        None if milli is None else round(milli * held_s / 3_600_000, 6),
        None if billing is None else round(billing * elapsed_s / 3600, 6),
    )


def _gpu_count(tres_text: str | None) -> int | None:
    if tres_text is None:
        return None
    try:
        return parse_tres(tres_text).gpu_count
    except GrammarError:
        return None


def _gpu_row(run: Mapping[str, Any], seen: Evidence, busy: float | None) -> tuple[Any, ...]:
    decision = read_decision(run["decision"])
    asked = decision.asked if decision and decision.asked else gpu_words(run["req_tres"])
    given = gpu_words(run["alloc_tres"])
    if given is None and asked is None:
        return ("GPUs", "none", "none", "none", None, "", "milli-GPU-hours", 0, 0)
    hours = _milli_hours(run)
    return (
        "GPUs",
        asked or UNKNOWN,
        given or "none",
        UNKNOWN if busy is None else f"busy {busy:.0%} of the time".replace("%", " %"),
        busy,
        _why_no_util(run, seen) if busy is None else "",
        "milli-GPU-hours",
        hours,
        None if busy is None or hours is None else round(hours * busy),
    )


def _milli_hours(run: Mapping[str, Any]) -> int | None:
    milli, elapsed_s = run["gpu_milli"], run["elapsed_s"]
    return None if milli is None or elapsed_s is None else round(milli * elapsed_s / 3600)


def _why_no_util(run: Mapping[str, Any], seen: Evidence) -> str:
    if run["start_ts"] is None:
        return "It has not started."
    if not seen.gpus:
        return "No node measured this run."
    return "The node reads no utilisation of this GPU or slice."


def _gpu_memory_row(seen: Evidence) -> tuple[Any, ...]:
    whole, used = seen.gpu_mem_mib, seen.gpu_mem_max_mib
    given = UNKNOWN if whole is None else f"{whole / 1024:,.0f} GB each"
    why = ""
    if used is None:
        why = "The node's agent did not read it." if seen.gpus else "No node measured this run."
    return (
        "GPU memory",
        "with the GPU",
        given,
        UNKNOWN if used is None else f"at most {used / 1024:,.1f} GB of one",
        None if used is None or not whole else min(1.0, used / whole),
        why,
        "MiB of one GPU",
        whole,
        used,
    )


def _cpu_row(run: Mapping[str, Any], seen: Evidence) -> tuple[Any, ...]:
    asked = _tres_amount(run["req_tres"], "cpu")
    used_s, elapsed_s = run["cpu_time_s"], run["elapsed_s"]
    held_s = None if not run["ncpus"] or elapsed_s is None else run["ncpus"] * elapsed_s
    share = used_s / held_s if held_s and used_s is not None else None
    return (
        "CPU cores",
        _shown(asked),
        _shown(run["ncpus"]),
        UNKNOWN if used_s is None else f"{used_s / 3600:,.1f} core-hours",
        share,
        _why_not_gathered(run) if used_s is None else "",
        "core-seconds",
        held_s,
        used_s,
    )


def _memory_row(run: Mapping[str, Any], seen: Evidence) -> tuple[Any, ...]:
    asked_bytes = _tres_amount(run["req_tres"], "mem")
    given, peak = run["mem_mib"], seen.mem_peak_mib
    return (
        "Memory",
        UNKNOWN if asked_bytes is None else f"{asked_bytes / 2**30:,.1f} GiB",
        UNKNOWN if given is None else f"{given / 1024:,.1f} GiB",
        UNKNOWN if peak is None else f"at most {peak / 1024:,.1f} GiB",
        None if peak is None or not given else peak / given,
        _why_not_gathered(run) if peak is None else "",
        "MiB",
        given,
        peak,
    )


def _why_not_gathered(run: Mapping[str, Any]) -> str:
    if run["end_ts"] is None:
        return "Slurm tells it when the run has ended."
    return "Slurm did not gather it (JobAcctGatherType)."


def _time_row(run: Mapping[str, Any]) -> tuple[Any, ...]:
    limit_s, elapsed_s = run["timelimit_s"], run["elapsed_s"]
    limit = "no limit" if limit_s is None else duration_words(limit_s)
    return (
        "Time",
        limit,
        limit,
        duration_words(elapsed_s),
        elapsed_s / limit_s if limit_s and elapsed_s is not None else None,
        "It has not started." if elapsed_s is None else "",
        "seconds",
        limit_s,
        elapsed_s,
    )


def _tres_amount(text: str | None, key: str) -> int | None:
    try:
        return parse_tres(text or "").amount(key)
    except GrammarError:
        return None


def _shown(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)


def _table(
    name: str, title: str, columns: Sequence[Column], rows: Sequence[Any], version: int
) -> Table:
    return Table(name=name, title=title, columns=columns, rows=rows, data_version=version)
