# SPDX-License-Identifier: Apache-2.0
"""Reads the text of `sacct -X -P` into runs, whatever users put into their job names.

Pure: `sync.py` runs the command. Expected: epoch times (SLURM_TIME_FORMAT=%s, TZ=UTC), no
header, JobName last, and a delimiter that no field contains.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fairwatt.accounting.quality import RunFlag
from fairwatt.accounting.store import SQLITE_INTEGER_MAX
from fairwatt.core.errors import GrammarError
from fairwatt.core.records import Run, RunKey
from fairwatt.core.tres import parse_tres

__all__ = [
    "OPEN_STATES",
    "TERMINAL_STATES",
    "Rejected",
    "SacctRun",
    "choose_fields",
    "parse_duration_ms",
    "parse_sacct",
]

FIELDS = (
    *("JobIDRaw", "JobID", "Cluster", "UID", "User", "Account", "Partition", "QOS"),
    *("Submit", "Eligible", "Start", "End", "ElapsedRaw", "Suspended", "State", "ExitCode"),
    *("NNodes", "NCPUS", "ReqTRES", "AllocTRES", "TimelimitRaw", "TotalCPU"),
    *("ConsumedEnergyRaw", "NodeList"),
)
# SLUID and Restarts are offered by 24.11, not by 22.05; a site may lack others.
OPTIONAL_FIELDS = ("SLUID", "DBIndex", "Restarts", "AdminComment")
LAST_FIELD = "JobName"

OPEN_STATES = frozenset({"PENDING", "RUNNING", "SUSPENDED"})
TERMINAL_STATES = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"),
    *("OUT_OF_MEMORY", "PREEMPTED", "REQUEUED", "RESIZING", "REVOKED", "TIMEOUT"),
)

LAST_TS = 4_102_444_800
"""2100-01-01; Slurm's NO_VAL as a time is later."""

DECISION_MARK = "fairwatt:"
_NOTHING = frozenset({"", "None", "Unknown", "N/A", "(null)", "None assigned", "INVALID"})
_JOB_ID = re.compile(r"(\d+)(?:_(?:(\d+)|\[.*\]))?(?:\+(\d+))?")
_CLOCK = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.(\d{1,3})\d*)?")
_CPU_SLACK_S = 2


@dataclass(frozen=True)
class SacctRun:
    """One row: the run, Slurm's database index of the record, and `RunFlag` bits.

    `restarts_known` is False where sacct offers no Restarts: the key's count is then 0.
    """

    run: Run
    db_index: int | None
    flags: RunFlag
    restarts_known: bool


@dataclass(frozen=True)
class Rejected:
    """A row that is no run, and why."""

    line: str
    reason: str


def choose_fields(helpformat: str) -> list[str]:
    """Return the fields to ask for, of those that `sacct --helpformat` lists; JobName is last."""
    offered = {word.lower() for word in helpformat.split()}
    optional = [field for field in OPTIONAL_FIELDS if field.lower() in offered]
    return [*FIELDS, *optional, LAST_FIELD]


def parse_sacct(
    text: str, fields: Sequence[str], delimiter: str
) -> tuple[list[SacctRun], list[Rejected]]:
    """Return the runs of a sacct output and the rows that cannot be read.

    A row begins at a line that starts with a job number and the delimiter; everything up to
    the next such line belongs to it, newlines included.
    """
    runs: list[SacctRun] = []
    rejected: list[Rejected] = []
    for chunk in _rows(text, delimiter):
        values = chunk.split(delimiter, len(fields) - 1)
        if len(values) < len(fields):
            rejected.append(Rejected(chunk, f"{len(values)} of {len(fields)} fields"))
            continue
        try:
            runs.append(_run(dict(zip(fields, values, strict=True))))
        except ValueError as error:
            rejected.append(Rejected(chunk, str(error)))
    return runs, rejected


def parse_duration_ms(text: str) -> int | None:
    """Return `[days-][hours:]minutes:seconds[.fraction]` in ms, None if it is no such text."""
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, seconds, fraction = match.groups()
    whole = ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes)) * 60 + int(seconds)
    return whole * 1000 + int((fraction or "").ljust(3, "0"))


def _rows(text: str, delimiter: str) -> Iterator[str]:
    body = text.removesuffix("\n")
    start = re.compile(rf"(?:\A|\n)(?=\d+{re.escape(delimiter)})")
    yield from (chunk for chunk in start.split(body) if chunk)


def _run(row: Mapping[str, str]) -> SacctRun:
    job = _JOB_ID.fullmatch(row["JobID"])
    submit_ts = _time(row["Submit"])
    state = row["State"].split(" ", 1)[0].rstrip("+").upper()
    if job is None:
        raise ValueError(f"JobID {row['JobID'][:40]!r} is no job")
    if submit_ts is None or not state:
        raise ValueError(f"no submit time ({row['Submit'][:40]!r}) or no state")
    flags = RunFlag(0)
    nodelist = _text(row["NodeList"])
    # A job cancelled while pending may carry its end as start: without nodes it never ran.
    start_ts = _time(row["Start"]) if nodelist else None
    energy_j, flag = _energy(row["ConsumedEnergyRaw"])
    flags |= flag
    cpu_time_s, flag = _cpu_time(row, state)
    flags |= flag
    mem_mib, flag = _memory(row)
    flags |= flag
    decision, flag = _decision(row.get("AdminComment", ""))
    flags |= flag
    job_id, suspended_ms = int(row["JobIDRaw"]), parse_duration_ms(row["Suspended"])
    base, task, offset = job.groups()
    exit_code, exit_signal = _exit(row["ExitCode"])
    run = Run(
        key=RunKey(
            row["Cluster"], job_id, submit_ts, _integer(row.get("Restarts", ""), zero=True) or 0
        ),
        state=state,
        sluid=_text(row.get("SLUID", "")),
        array_job_id=int(base) if "_" in row["JobID"] else None,
        array_task_id=None if task is None else int(task),
        het_job_id=int(base) if offset is not None else None,
        het_offset=None if offset is None else int(offset),
        user=_text(row["User"]),
        uid=_integer(row["UID"], zero=True),
        account=_text(row["Account"]),
        partition=_text(row["Partition"]),
        qos=_text(row["QOS"]),
        name=row[LAST_FIELD],
        exit_code=exit_code,
        exit_signal=exit_signal,
        eligible_ts=_time(row["Eligible"]),
        start_ts=start_ts,
        end_ts=_time(row["End"]),
        elapsed_s=None if start_ts is None else _integer(row["ElapsedRaw"], zero=True),
        suspended_s=None if suspended_ms is None else suspended_ms // 1000,
        timelimit_s=_scaled(row["TimelimitRaw"], 60),
        nnodes=_integer(row["NNodes"]),
        ncpus=_integer(row["NCPUS"]),
        mem_mib=mem_mib,
        nodelist=nodelist,
        req_tres=_text(row["ReqTRES"]),
        alloc_tres=_text(row["AllocTRES"]),
        cpu_time_s=cpu_time_s,
        slurm_energy_j=energy_j,
        decision=decision,
    )
    return SacctRun(run, _integer(row.get("DBIndex", "")), flags, "Restarts" in row)


def _text(value: str) -> str | None:
    return None if value in _NOTHING else value


def _integer(value: str, *, zero: bool = False) -> int | None:
    """A number that SQLite can hold; Slurm's zero mostly means "not set"."""
    if not (value.isascii() and value.isdigit()):
        return None
    number = int(value)
    if number > SQLITE_INTEGER_MAX or (number == 0 and not zero):
        return None
    return number


def _time(value: str) -> int | None:
    """Epoch seconds; a number that no calendar holds is no time."""
    number = _integer(value)
    return None if number is None or number > LAST_TS else number


def _scaled(value: str, factor: int) -> int | None:
    number = _integer(value)
    return None if number is None else min(number * factor, SQLITE_INTEGER_MAX)


def _energy(value: str) -> tuple[int | None, RunFlag]:
    """Joules; 0 is what Slurm writes where nothing measures, so it is unknown too."""
    known = _integer(value)
    lost = known is None and value.isdigit() and int(value) != 0
    return known, RunFlag.SLURM_ENERGY_UNKNOWN if lost else RunFlag(0)


def _exit(value: str) -> tuple[int | None, int | None]:
    code, _, signal = value.partition(":")
    return _integer(code, zero=True), _integer(signal, zero=True)


def _cpu_time(row: Mapping[str, str], state: str) -> tuple[int | None, RunFlag]:
    """CPU seconds used; exactly 0 means that no plugin gathered them."""
    used_ms = parse_duration_ms(row["TotalCPU"])
    if not used_ms or state in OPEN_STATES:
        return None, RunFlag(0)
    wall_s = (_integer(row["ElapsedRaw"]) or 0) + _CPU_SLACK_S
    if used_ms > wall_s * 1000 * max(1, _integer(row["NCPUS"]) or 1):
        return None, RunFlag.CPU_TIME_IMPLAUSIBLE
    return round(used_ms / 1000), RunFlag(0)


def _memory(row: Mapping[str, str]) -> tuple[int | None, RunFlag]:
    try:
        bytes_ = parse_tres(row["AllocTRES"] or row["ReqTRES"]).mem_bytes
    except GrammarError:
        return None, RunFlag.TRES_UNREADABLE
    return None if bytes_ is None else bytes_ // 2**20, RunFlag(0)


def _decision(comment: str) -> tuple[str | None, RunFlag]:
    """The JSON object after the first `fairwatt:`; other text around it belongs to the site."""
    _, mark, rest = comment.partition(DECISION_MARK)
    if not mark:
        return None, RunFlag(0)
    parse: Callable[[str], tuple[object, int]] = json.JSONDecoder().raw_decode
    try:
        value, end = parse(rest)
    except (ValueError, RecursionError):
        return None, RunFlag.DECISION_UNREADABLE
    if not isinstance(value, dict):
        return None, RunFlag.DECISION_UNREADABLE
    return rest[:end], RunFlag(0)
