# SPDX-License-Identifier: Apache-2.0
"""Makes runs of the cells of sacct rows, column by column: a year has a million rows.

Pure. Cells are as sacct prints them with epoch times; TRES texts stay text here, the store reads
each distinct one once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from fairwatt.accounting.quality import RunFlag
from fairwatt.core.records import Run

__all__ = [
    "LAST_TS",
    "OPEN_STATES",
    "Columns",
    "Rejected",
    "Table",
    "columns_of",
    "parse_duration_ms",
    "runs_of",
]

OPEN_STATES = frozenset({"PENDING", "RUNNING", "SUSPENDED"})

SQLITE_INTEGER_MAX = 2**63 - 1
LAST_COUNT = 2**32 - 3
"""Slurm's counts have 32 bits, of which the last two numbers mean "unknown" and "no limit"."""
LAST_TS = 4_102_444_800
"""2100-01-01; Slurm's NO_VAL as a time is later."""

DECISION_MARK = "fairwatt:"
_NOTHING = frozenset({"", "None", "Unknown", "N/A", "(null)", "None assigned", "INVALID"})
_DIGITS = r"(\d{1,10})"
_JOB_ID = re.compile(rf"{_DIGITS}(?:_(?:{_DIGITS}|\[.*\]))?(?:\+{_DIGITS})?", re.ASCII)
_CLOCK = re.compile(
    rf"(?:{_DIGITS}-)?(?:{_DIGITS}:)?{_DIGITS}:{_DIGITS}(?:\.(\d{{1,3}})\d*)?", re.ASCII
)
_SLUID = re.compile(r"s[0-9A-HJKMNP-TV-Z]{13}")
_CROCKFORD = str.maketrans("ABCDEFGHJKMNPQRSTVWXYZ", "abcdefghijklmnopqrstuv")
_CPU_SLACK_S = 2
_SAFE_DIGITS = 18
"""A number of so many digits is an integer that SQLite holds."""

_ENERGY_UNKNOWN = int(RunFlag.SLURM_ENERGY_UNKNOWN)
_CPU_IMPLAUSIBLE = int(RunFlag.CPU_TIME_IMPLAUSIBLE)
_DECISION_UNREADABLE = int(RunFlag.DECISION_UNREADABLE)

Cells = Sequence[str]
Columns = dict[str, Sequence[Any]]
"""Runs by column: for each field of Run its value in every run."""


class Rejected(NamedTuple):
    """A row that is no run, and why."""

    line: str
    reason: str


class _Place(NamedTuple):
    """Where a job stands in an array or a heterogeneous job."""

    array_job_id: int | None
    array_task_id: int | None
    het_job_id: int | None
    het_offset: int | None


_ALONE = _Place(None, None, None, None)


class Table(dict[str, Cells]):
    """Cells by sacct's column; one that is not there is empty in every row."""

    def __init__(self, rows: Sequence[Sequence[str]], fields: Sequence[str]) -> None:
        cells = zip(*rows, strict=True) if rows else ((),) * len(fields)
        super().__init__(zip(fields, cells, strict=True))
        self.height = len(rows)

    def __missing__(self, field: str) -> Cells:
        return ("",) * self.height

    def row(self, number: int) -> list[str]:
        """Return the cells of one row."""
        return [cells[number] for cells in self.values()]

    def without(self, numbers: Container[int]) -> Table:
        """Return the table without these rows."""
        kept = [self.row(number) for number in range(self.height) if number not in numbers]
        return Table(kept, list(self))


def runs_of(
    rows: Sequence[Sequence[str]], fields: Sequence[str], delimiter: str
) -> tuple[list[Run], list[Rejected]]:
    """As `columns_of`, but one Run a row."""
    columns, rejected = columns_of(Table(rows, fields), delimiter)
    return list(map(Run._make, zip(*map(columns.__getitem__, Run._fields), strict=True))), rejected


def columns_of(table: Table, delimiter: str) -> tuple[Columns, list[Rejected]]:
    """Return the runs of a table, by column, and the rows that are no runs.

    A column that is not there is unknown for every row; JobIDRaw, JobID, Submit, State and
    Cluster have to be there. `delimiter` joins a rejected row's cells again.
    """
    places = _places(table)
    if _all_runs(table, places):
        return _columns(table, places), []
    faults = _faults(table)
    rejected = [Rejected(delimiter.join(table.row(number)), faults[number]) for number in faults]
    good = table.without(faults)
    return _columns(good, _places(good)), rejected


def parse_duration_ms(text: str) -> int | None:
    """Return `[days-][hours:]minutes:seconds[.fraction]` in ms, None if it is no such text."""
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, seconds, fraction = match.groups()
    whole = ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes)) * 60 + int(seconds)
    return whole * 1000 + int((fraction or "").ljust(3, "0"))


def _all_runs(table: Table, places: Sequence[_Place | None]) -> bool:
    """Whether no row needs a second look: nearly always, so that it has to be quick."""
    raws = table["JobIDRaw"]
    return (
        all(places)
        and all(map(str.isdecimal, raws))
        and max(map(len, raws), default=0) <= _SAFE_DIGITS
        and all(_times(table["Submit"]))
        and all(table["State"])
    )


def _faults(table: Table) -> dict[int, str]:
    """Why rows are no runs, by row number."""
    parts = (table["JobIDRaw"], table["JobID"], table["Submit"], table["State"])
    checked = zip(*parts, _times(table["Submit"]), strict=True)
    return {
        number: _fault(raw, shown, submit, submit_ts, state)
        for number, (raw, shown, submit, state, submit_ts) in enumerate(checked)
        if not (submit_ts and state and raw.isdecimal() and (raw == shown or _place(shown)))
        or len(raw) > _SAFE_DIGITS
    }


def _fault(raw: str, shown: str, submit: str, submit_ts: int | None, state: str) -> str:
    if submit_ts is None or not state:
        return f"no submit time ({submit[:40]!r}) or no state"
    return f"JobID {shown[:40]!r} is no job" if _number(raw) else f"{raw[:40]!r} is no job number"


def _columns(table: Table, places: Sequence[_Place | None]) -> Columns:
    states = list(map(_state, table["State"]))
    nodelists = list(map(_text, table["NodeList"]))
    submits, told_starts = _times(table["Submit"]), _times(table["Start"])
    # A job cancelled while pending may carry its end as start: without nodes it never ran. And
    # 22.05 tells the later records of a resized job, submitted later, with the start of the first.
    starts = [
        max(start_ts, submit_ts or 0) if start_ts and nodes else None
        for start_ts, submit_ts, nodes in zip(told_starts, submits, nodelists, strict=True)
    ]
    ncpus, elapsed = _numbers(table["NCPUS"]), _counts(table["ElapsedRaw"])
    cpu_times = list(map(_cpu_time, table["TotalCPU"], states, elapsed, ncpus))
    energies = list(map(_energy, table["ConsumedEnergyRaw"]))
    decisions = [_decision(text) if text else (None, 0) for text in table["AdminComment"]]
    flags = zip(energies, cpu_times, decisions, strict=True)
    return {
        "cluster": table["Cluster"],
        "job_id": list(map(int, table["JobIDRaw"])),
        "submit_ts": submits,
        "restart_cnt": _counts(table["Restarts"]),
        "state": states,
        "record_id": _records(table),
        **_unzipped(_Place._fields, [place or _ALONE for place in places]),
        "user": list(map(_text, table["User"])),
        "uid": _counts(table["UID"]),
        "account": list(map(_text, table["Account"])),
        "partition": list(map(_text, table["Partition"])),
        "qos": list(map(_text, table["QOS"])),
        "name": table["JobName"],
        **_unzipped(("exit_code", "exit_signal"), list(map(_exit, table["ExitCode"]))),
        "eligible_ts": _times(table["Eligible"]),
        "start_ts": starts,
        "end_ts": _times(table["End"]),
        "elapsed_s": [
            None if start_ts is None or length_s is None else length_s - start_ts + (told_ts or 0)
            for start_ts, told_ts, length_s in zip(starts, told_starts, elapsed, strict=True)
        ],
        "suspended_s": list(map(_seconds, table["Suspended"])),
        "timelimit_s": list(map(_minutes, table["TimelimitRaw"])),
        "nnodes": _numbers(table["NNodes"]),
        "ncpus": ncpus,
        "nodelist": nodelists,
        "req_tres": list(map(_text, table["ReqTRES"])),
        "alloc_tres": list(map(_text, table["AllocTRES"])),
        "cpu_time_s": [used_s for used_s, _ in cpu_times],
        "slurm_energy_j": [energy_j for energy_j, _ in energies],
        "decision": [text for text, _ in decisions],
        "flags": [one | two | three for (_, one), (_, two), (_, three) in flags],
    }


def _unzipped(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Columns:
    parts = zip(*rows, strict=True) if rows else ((),) * len(names)
    return dict(zip(names, parts, strict=True))


def _places(table: Table) -> list[_Place | None]:
    """Where each job stands; None is no job."""
    pairs = zip(table["JobIDRaw"], table["JobID"], strict=True)
    return [_ALONE if raw == shown else _place(shown) for raw, shown in pairs]


def _place(shown: str) -> _Place | None:
    match = _JOB_ID.fullmatch(shown)
    if match is None:
        return None
    base, task, offset = match.groups()
    return _Place(
        int(base) if "_" in shown else None,
        None if task is None else int(task),
        None if offset is None else int(base),
        None if offset is None else int(offset),
    )


@lru_cache(maxsize=65_536)
def _text(value: str) -> str | None:
    return None if value in _NOTHING else value


@lru_cache(maxsize=4096)
def _state(value: str) -> str:
    return value.split(" ", 1)[0].rstrip("+").upper()


def _number(value: str) -> int | None:
    """A number that SQLite can hold, and not 0: to Slurm that mostly means "not set"."""
    if not (value.isascii() and value.isdigit() and len(value) <= _SAFE_DIGITS + 1):
        return None
    number = int(value)
    return number if 0 < number <= SQLITE_INTEGER_MAX else None


def _numbers(cells: Cells) -> list[int | None]:
    """Counts whose 0 means "not set"."""
    return list(map(_cached_count, cells))


@lru_cache(maxsize=65_536)
def _cached_count(value: str) -> int | None:
    number = _number(value)
    return None if number is None or number > LAST_COUNT else number


def _counts(cells: Cells) -> list[int | None]:
    """Counts whose 0 is a number."""
    return [
        number
        if cell.isdecimal() and len(cell) <= _SAFE_DIGITS and (number := int(cell)) <= LAST_COUNT
        else None
        for cell in cells
    ]


def _times(cells: Cells) -> list[int | None]:
    """Epoch seconds; a number that no calendar holds is no time."""
    return [
        ts
        if cell.isdecimal() and len(cell) <= _SAFE_DIGITS and 0 < (ts := int(cell)) <= LAST_TS
        else None
        for cell in cells
    ]


def _records(table: Table) -> list[int | None]:
    """Slurm's number of each record; a column of SLUIDs alone says the same."""
    if "DBIndex" not in table and "SLUID" in table:
        return [_sluid_number(cell) for cell in table["SLUID"]]
    return [
        _signed(int(cell)) if cell.isdecimal() and len(cell) <= _SAFE_DIGITS + 2 else None
        for cell in table["DBIndex"]
    ]


def _sluid_number(sluid: str) -> int | None:
    if _SLUID.fullmatch(sluid) is None:
        return None
    return _signed(int(sluid[1:].translate(_CROCKFORD), 32))


def _signed(number: int) -> int | None:
    """64 bits as SQLite holds them; 0 is no number of a record."""
    if number >= 2**64:
        return None
    return (number if number < 2**63 else number - 2**64) or None


@lru_cache(maxsize=4096)
def _minutes(value: str) -> int | None:
    number = _number(value)
    return None if number is None or number > LAST_TS else number * 60


@lru_cache(maxsize=4096)
def _seconds(value: str) -> int | None:
    length_ms = parse_duration_ms(value)
    return None if length_ms is None else length_ms // 1000


@lru_cache(maxsize=4096)
def _exit(value: str) -> tuple[int | None, int | None]:
    code, _, signal = value.partition(":")
    return _counts([code])[0], _counts([signal])[0]


@lru_cache(maxsize=4096)
def _energy(value: str) -> tuple[int | None, int]:
    """Joules; 0 is what Slurm writes where nothing measures, so it is unknown too."""
    known = _number(value)
    lost = known is None and value.isdecimal() and value.strip("0") != ""
    return known, _ENERGY_UNKNOWN if lost else 0


def _cpu_time(
    text: str, state: str, elapsed_s: int | None, ncpus: int | None
) -> tuple[int | None, int]:
    """CPU seconds used; exactly 0 means that no plugin gathered them."""
    used_ms = _clock_ms(text)
    if not used_ms or state in OPEN_STATES:
        return None, 0
    if used_ms > ((elapsed_s or 0) + _CPU_SLACK_S) * 1000 * (ncpus or 1):
        return None, _CPU_IMPLAUSIBLE
    return round(used_ms / 1000), 0


def _clock_ms(text: str) -> int | None:
    """As `parse_duration_ms`; the two forms that nearly all rows have go the short way."""
    try:
        if len(text) == 9 and text[5] == ".":
            return int(text[:2]) * 60_000 + int(text[3:5]) * 1000 + int(text[6:])
        if len(text) == 8 and text[2] == ":":
            return (int(text[:2]) * 3600 + int(text[3:5]) * 60 + int(text[6:])) * 1000
    except ValueError:
        return None
    return parse_duration_ms(text)


def _decision(comment: str) -> tuple[str | None, int]:
    """The JSON object after the first `fairwatt:`; other text around it belongs to the site."""
    _, mark, rest = comment.partition(DECISION_MARK)
    if not mark:
        return None, 0
    parse: Callable[[str], tuple[object, int]] = json.JSONDecoder().raw_decode
    try:
        value, end = parse(rest)
    except (ValueError, RecursionError):
        return None, _DECISION_UNREADABLE
    if not isinstance(value, dict):
        return None, _DECISION_UNREADABLE
    return rest[:end], 0
