# SPDX-License-Identifier: Apache-2.0
"""How a run lies in the table job_run: texts by number, times as distances from the submission.

The view `run` shows the same in plain columns; a run takes a third of the room that they would.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from fairwatt.accounting.quality import RunFlag
from fairwatt.core.catalogue import Catalogue
from fairwatt.core.errors import GrammarError
from fairwatt.core.records import Run
from fairwatt.core.tres import parse_tres

__all__ = ["COLUMNS", "GpuPart", "Row", "gpu_parts", "rows_of"]

COLUMNS = (
    *("cluster_id", "job_id", "submit_ts", "sluid", "db_index"),
    *("array_job_id", "array_task_id", "het_job_id", "het_offset"),
    *("user_id", "uid", "account_id", "partition_id", "qos_id", "name"),
    *("state_id", "exit_code", "exit_signal"),
    *("eligible_off_s", "start_off_s", "end_ts", "elapsed_off_s", "suspended_s"),
    *("timelimit_min", "nnodes", "ncpus", "nodelist_id", "req_tres_id", "alloc_tres_id"),
    *("cpu_time_s", "slurm_energy_j", "decision", "decision_id", "flags", "restart_cnt"),
)
"""The columns of job_run that an import writes; restart_cnt is last, as other runs decide it."""

UNTYPED = "untyped"
WHOLE_MILLI = 1000

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


def rows_of(
    connection: sqlite3.Connection, runs: Sequence[Run], catalogue: Catalogue
) -> tuple[list[Row], list[int]]:
    """Return the runs as rows of job_run, and the TRES that mean something else than before.

    Texts that are new are written. Runs in the caller's transaction, and is only good in it.
    """
    if not runs:
        return [], []
    words, tres = _Words(connection), _TresTexts(connection, catalogue)
    told: Any = Run._make(zip(*runs, strict=True))  # whose fields are columns
    columns: tuple[Sequence[Any], ...] = (
        words.of(told.cluster), told.job_id, told.submit_ts, told.sluid, told.db_index,
        told.array_job_id, told.array_task_id, told.het_job_id, told.het_offset,
        words.of(told.user), told.uid, words.of(told.account), words.of(told.partition),
        words.of(told.qos), told.name, words.of(told.state), told.exit_code, told.exit_signal,
        list(map(_distance, told.eligible_ts, told.submit_ts)),
        list(map(_distance, told.start_ts, told.submit_ts)), told.end_ts,
        list(map(_elapsed_off, told.elapsed_s, told.start_ts, told.end_ts)), told.suspended_s,
        [None if limit_s is None else limit_s // 60 for limit_s in told.timelimit_s],
        told.nnodes, told.ncpus, words.of(told.nodelist),
        tres.of(told.req_tres), tres.of(told.alloc_tres), told.cpu_time_s, told.slurm_energy_j,
        told.decision, list(map(_decision_id, told.decision)), told.flags,
        [count or 0 for count in told.restart_cnt],
    )  # fmt: skip
    return list(zip(*columns, strict=True)), tres.restated


def gpu_parts(alloc_tres: str | None, catalogue: Catalogue) -> tuple[list[GpuPart], RunFlag]:
    """Return a run's GPUs by type and what is doubtful about them; never raises."""
    try:
        gpus = parse_tres(alloc_tres or "").gpus
    except GrammarError:
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

    def of(self, texts: Any) -> list[int | None]:  # noqa: ANN401 - a column of a Run of columns
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

    def of(self, texts: Any) -> list[int | None]:  # noqa: ANN401 - a column of a Run of columns
        return list(map(self.__getitem__, texts))

    def __missing__(self, text: str) -> int:
        parts, flags = gpu_parts(text, self._catalogue)
        millis = [part.milli for part in parts]
        known = [milli for milli in millis if milli is not None]
        doubtful = RunFlag.TRES_UNREADABLE in flags or len(known) < len(millis)
        facts = (_mem_mib(text), None if doubtful else sum(known), int(flags))
        number = self._written(text, facts, parts)
        self[text] = number
        return number

    def _written(self, text: str, facts: tuple[Any, ...], parts: Iterable[GpuPart]) -> int:
        execute = self._connection.execute
        old = execute(
            "SELECT id, mem_mib, gpu_milli, flags FROM tres WHERE text = ?", (text,)
        ).fetchone()
        if old is not None and old[1:] == facts:
            return int(old[0])
        if old is not None:
            self.restated.append(int(old[0]))
        number = execute(
            "INSERT INTO tres (text, mem_mib, gpu_milli, flags) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (text) DO UPDATE SET mem_mib = excluded.mem_mib,"
            " gpu_milli = excluded.gpu_milli, flags = excluded.flags RETURNING id",
            (text, *facts),
        ).fetchone()[0]
        execute("DELETE FROM tres_gpu WHERE tres_id = ?", (number,))
        self._connection.executemany(
            "INSERT INTO tres_gpu (tres_id, gpu_type, count, milli) VALUES (?, ?, ?, ?)",
            [(number, part.gpu_type, part.count, part.milli) for part in parts],
        )
        return int(number)


def _mem_mib(text: str) -> int | None:
    try:
        mem_bytes = parse_tres(text).mem_bytes
    except GrammarError:
        return None
    return None if mem_bytes is None else mem_bytes // 2**20


def _distance(ts: int | None, from_ts: int) -> int | None:
    return None if ts is None else ts - from_ts


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
