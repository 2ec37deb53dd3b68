# SPDX-License-Identifier: Apache-2.0
"""How a run lies in the table job_run: texts by number, times as distances from the submission.

The view `run` shows the same in plain columns; a run takes a third of the room that they would.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from fairwatt.accounting.quality import RunFlag
from fairwatt.accounting.sacct_columns import LAST_COUNT, Columns
from fairwatt.core.catalogue import Catalogue
from fairwatt.core.errors import GrammarError
from fairwatt.core.tres import parse_tres

__all__ = [
    "COLUMNS",
    "LAST_BYTES",
    "SEED_BIT",
    "GpuPart",
    "Row",
    "Texts",
    "billing_of",
    "gpu_parts",
    "rows_of",
]

COLUMNS = (
    *("cluster_id", "job_id", "submit_ts", "record_id"),
    *("group_job_id", "group_index"),
    *("user_id", "uid", "account_id", "partition_id", "qos_id", "name"),
    *("state_id", "exit_status"),
    *("eligible_off_s", "start_off_s", "end_ts", "elapsed_off_s", "suspended_s"),
    *("timelimit_min", "nnodes", "ncpus", "nodelist_id", "req_tres_id", "alloc_tres_id"),
    *("cpu_time_s", "slurm_energy_j", "decision", "decision_id", "flags", "restart_cnt"),
)
"""The columns of job_run that an import writes; restart_cnt is last, as other runs decide it."""

HET_BIT, SEED_BIT = 1 << 29, 1 << 30
"""In job_run.flags beside those of RunFlag: the group is a heterogeneous job; invented."""

CODE_BITS, MAX_CODE = 8, 255
UNTYPED = "untyped"
WHOLE_MILLI = 1000
LAST_BYTES = 2**63
LAST_BILLING = 10**12
"""Amounts beyond are none, and could not be summed."""

Row = tuple[Any, ...]
"""One value for each of COLUMNS."""


class _WithId(msgspec.Struct):
    id: str = ""


@dataclass(frozen=True)
class GpuPart:
    """A run's devices of one GRES type; `milli` is for all of them, None if unknown."""

    gpu_type: str
    count: int
    milli: int | None


class Texts:
    """Numbers of the texts in runs; new ones are written.

    Good for one transaction, and for the next ones while none is rolled back.

    Attributes:
        restated: numbers of the TRES that mean something else than before, since the catalogue
            has changed.
    """

    def __init__(self, connection: sqlite3.Connection, catalogue: Catalogue) -> None:
        self.words = _Words(connection)
        self.tres = _TresTexts(connection, catalogue)
        self.restated = self.tres.restated


def rows_of(told: Columns, texts: Texts) -> list[Row]:
    """Return the runs as rows of job_run. Runs in the caller's transaction."""
    words, tres, submit = texts.words.of, texts.tres.of, told["submit_ts"]
    decisions = told["decision"]
    columns: tuple[Sequence[Any], ...] = (
        words(told["cluster"]), told["job_id"], submit, told["record_id"],
        *_groups(told),
        words(told["user"]), told["uid"], words(told["account"]), words(told["partition"]),
        words(told["qos"]), told["name"], words(told["state"]),
        list(map(_exit_status, told["exit_code"], told["exit_signal"])),
        _distances(told["eligible_ts"], submit), _distances(told["start_ts"], submit),
        told["end_ts"],
        list(map(_elapsed_off, told["elapsed_s"], told["start_ts"], told["end_ts"])),
        told["suspended_s"],
        [None if limit_s is None else limit_s // 60 for limit_s in told["timelimit_s"]],
        told["nnodes"], told["ncpus"], words(told["nodelist"]),
        tres(told["req_tres"]), tres(told["alloc_tres"]), told["cpu_time_s"],
        told["slurm_energy_j"], decisions,
        list(map(_decision_id, decisions)) if any(decisions) else decisions, _flags(told),
        [count or 0 for count in told["restart_cnt"]],
    )  # fmt: skip
    return list(zip(*columns, strict=True))


def gpu_parts(alloc_tres: str | None, catalogue: Catalogue) -> tuple[list[GpuPart], RunFlag]:
    """Return a run's GPUs by type and what is doubtful about them; never raises."""
    try:
        gpus = parse_tres(alloc_tres or "").gpus
    except GrammarError:
        return [], RunFlag.TRES_UNREADABLE
    if any(count > LAST_COUNT for count in gpus.values()):
        return [], RunFlag.TRES_UNREADABLE
    parts, flags = [], RunFlag(0)
    for gpu_type, count in gpus.items():
        milli = WHOLE_MILLI if gpu_type is None else catalogue.milli_of_type(gpu_type)
        if gpu_type is None:
            flags |= RunFlag.GPU_TYPE_ASSUMED
        elif milli is None:
            flags |= RunFlag.GPU_TYPE_UNKNOWN
        parts.append(GpuPart(gpu_type or UNTYPED, count, None if milli is None else milli * count))
    return parts, flags


class _Words(dict[str | None, int | None]):
    """Numbers of the texts that repeat: users, accounts, states, node lists."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__({None: None})
        self._connection = connection

    def of(self, texts: Iterable[str | None]) -> list[int | None]:
        return list(map(self.__getitem__, texts))

    def __missing__(self, text: str) -> int:
        found = self._connection.execute("SELECT id FROM word WHERE text = ?", (text,)).fetchone()
        if found is None:
            number = self._connection.execute(
                "INSERT INTO word (text) VALUES (?)", (text,)
            ).lastrowid
        else:
            number = found[0]
        self[text] = number
        return int(number or 0)


class _TresTexts(dict[str | None, int | None]):
    """Numbers of the TRES texts; what one says is written beside it, by today's catalogue."""

    def __init__(self, connection: sqlite3.Connection, catalogue: Catalogue) -> None:
        super().__init__({None: None})
        self._connection = connection
        self._catalogue = catalogue
        self.restated: list[int] = []

    def of(self, texts: Iterable[str | None]) -> list[int | None]:
        return list(map(self.__getitem__, texts))

    def __missing__(self, text: str) -> int:
        parts, flags = gpu_parts(text, self._catalogue)
        millis = [part.milli for part in parts]
        known = [milli for milli in millis if milli is not None]
        doubtful = RunFlag.TRES_UNREADABLE in flags or len(known) < len(millis)
        milli = None if doubtful else sum(known)
        facts = (_mem_mib(text), milli, billing_of(text), int(flags))
        number = self._written(text, facts, parts)
        self[text] = number
        return number

    def _written(self, text: str, facts: tuple[Any, ...], parts: Iterable[GpuPart]) -> int:
        execute = self._connection.execute
        old = execute(
            "SELECT id, mem_mib, gpu_milli, billing, flags FROM tres WHERE text = ?", (text,)
        ).fetchone()
        if old is not None and old[1:] == facts:
            return int(old[0])
        if old is not None:
            self.restated.append(int(old[0]))
        number = execute(
            "INSERT INTO tres (text, mem_mib, gpu_milli, billing, flags) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (text) DO UPDATE SET mem_mib = excluded.mem_mib,"
            " gpu_milli = excluded.gpu_milli, billing = excluded.billing,"
            " flags = excluded.flags RETURNING id",
            (text, *facts),
        ).fetchone()[0]
        execute("DELETE FROM tres_gpu WHERE tres_id = ?", (number,))
        self._connection.executemany(
            "INSERT INTO tres_gpu (tres_id, gpu_type, count, milli) VALUES (?, ?, ?, ?)",
            [(number, part.gpu_type, part.count, part.milli) for part in parts],
        )
        return int(number)


def billing_of(text: str) -> int | None:
    """Return the billing units of a TRES text, None if it has none or cannot be read."""
    try:
        billing = parse_tres(text).amount("billing")
    except GrammarError:
        return None
    return None if billing is None or billing > LAST_BILLING else billing


def _mem_mib(text: str) -> int | None:
    try:
        mem_bytes = parse_tres(text).mem_bytes
    except GrammarError:
        return None
    return None if mem_bytes is None or mem_bytes > LAST_BYTES else mem_bytes // 2**20


def _groups(told: Columns) -> tuple[Sequence[int | None], Sequence[int | None]]:
    """The job and the place in it, of an array's task or a heterogeneous job's part."""
    if not any(told["het_job_id"]):
        return told["array_job_id"], told["array_task_id"]
    return (
        [
            het or array
            for het, array in zip(told["het_job_id"], told["array_job_id"], strict=True)
        ],
        [
            task if het is None else offset
            for het, task, offset in zip(
                told["het_job_id"], told["array_task_id"], told["het_offset"], strict=True
            )
        ],
    )


def _flags(told: Columns) -> Sequence[int]:
    if not any(told["het_job_id"]):
        return told["flags"]
    pairs = zip(told["flags"], told["het_job_id"], strict=True)
    return [flags if het is None else flags | HET_BIT for flags, het in pairs]


@lru_cache(maxsize=4096)
def _exit_status(code: int | None, signal: int | None) -> int | None:
    return None if code is None or code > MAX_CODE else code | (signal or 0) << CODE_BITS


def _distances(times: Sequence[int | None], submits: Sequence[int]) -> list[int | None]:
    return [
        None if ts is None else ts - submit_ts
        for ts, submit_ts in zip(times, submits, strict=True)
    ]


def _elapsed_off(elapsed_s: int | None, start_ts: int | None, end_ts: int | None) -> int | None:
    """Slurm's elapsed time less the time from start to end: 0 but for suspended and open runs."""
    if elapsed_s is None or start_ts is None:
        return None
    return elapsed_s if end_ts is None else elapsed_s - (end_ts - start_ts)


def _decision_id(decision: str | None) -> str | None:
    """The id of the submit policy's decision; older ones have none."""
    if decision is None:
        return None
    try:
        found = msgspec.json.decode(decision, type=_WithId)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return None
    return found.id or None
