# SPDX-License-Identifier: Apache-2.0
"""One import from Slurm into the store: accounts, ended runs since the last time, open runs."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import Protocol
from zoneinfo import ZoneInfo

from sqlite_utils import Database

from fairwatt.accounting.accounts import AccountTree, write_accounts
from fairwatt.accounting.quality import RunFlag
from fairwatt.accounting.runs import Changes, upsert_runs
from fairwatt.accounting.sacct import Rejected
from fairwatt.accounting.store import get_meta, set_meta, transaction
from fairwatt.core.catalogue import Catalogue
from fairwatt.core.records import Run

__all__ = [
    "AccountingSource",
    "Imported",
    "flag_runaways",
    "keep_rejected",
    "last_import_ts",
    "sync",
]

FIRST_IMPORT_S = 366 * 86_400
"""How far back the first import looks."""

RUNAWAY_GRACE_S = 60
BATCH = 5_000
REJECTED_CHARS = 500
MAX_VANISHED = 500  # Slurm scans its whole history for such a list

_log = logging.getLogger(__name__)


class AccountingSource(Protocol):
    """Where runs and accounts come from; `slurmdb.SlurmDb` is the real one."""

    def ended(self, since_ts: int, until_ts: int) -> Iterator[tuple[list[Run], list[Rejected]]]:
        """Yield the runs that ended in [since, until]."""

    def open(self, now_ts: int) -> tuple[list[Run], list[Rejected]]:
        """Return the runs that have not ended."""

    def by_id(self, job_ids: Sequence[int]) -> tuple[list[Run], list[Rejected]]:
        """Return all runs of these jobs."""

    def running_job_ids(self) -> frozenset[int] | None:
        """Return the jobs that the controller has started, None if it is away."""

    def accounts(self) -> AccountTree:
        """Return accounts and memberships."""


@dataclass(frozen=True)
class Imported:
    """What one import did: runs read, runs new or changed, rows that were no runs."""

    seen: int
    changed: int
    rejected: int


def sync(
    db: Database,
    source: AccountingSource,
    *,
    cluster: str,
    catalogue: Catalogue,
    zone: ZoneInfo,
    overlap_s: int,
    lock: AbstractContextManager[object] | None = None,
) -> Imported:
    """Import what is new; doing it twice changes nothing.

    Args:
        db: the store.
        source: Slurm.
        cluster: whose watermark is used.
        catalogue: knows what part of a board a GPU type is.
        zone: in which changed days are marked.
        overlap_s: how far before the last import this one begins.
        lock: held while the store is written, not while Slurm is asked.

    Raises:
        CommandError: Slurm does not answer; what was written before stays, and the next import
            goes on from there, as after SIGKILL.
        StoreError: the store cannot be written.
    """
    guard = lock or nullcontext()
    now_ts = int(time.time())
    # The controller first: what started after this question is no runaway.
    alive = source.running_job_ids()
    tree = source.accounts()
    with guard, transaction(db) as connection:
        write_accounts(connection, tree)
    total = Imported(0, 0, 0)
    for runs, rejected, reached_ts in _pages(db, source, cluster, overlap_s, now_ts):
        flagged = flag_runaways(runs, alive, now_ts - RUNAWAY_GRACE_S)
        with guard, transaction(db) as connection:
            changes = upsert_runs(connection, flagged, catalogue, zone, now_ts)
            keep_rejected(connection, "sacct", rejected)
            if reached_ts is not None:
                set_meta(connection, _reached(cluster), str(reached_ts))
        total = _sum(total, changes, len(rejected))
    with guard, transaction(db) as connection:
        set_meta(connection, _watermark(cluster), str(now_ts))
        connection.execute("DELETE FROM meta WHERE key = ?", (_reached(cluster),))
    return total


def last_import_ts(connection: sqlite3.Connection, cluster: str) -> int | None:
    """Return when the last complete import of a cluster began, None if there was none."""
    text = get_meta(connection, _watermark(cluster))
    return None if text is None else int(text)


def flag_runaways(runs: Iterable[Run], alive: frozenset[int] | None, before_ts: int) -> list[Run]:
    """Mark runs that slurmdbd calls running but the controller does not know; how long is unknown.

    Nothing is marked when the controller is away (`alive` None), or started after `before_ts`.
    """
    if alive is None:
        return list(runs)
    return [
        run._replace(flags=run.flags | RunFlag.RUNAWAY, elapsed_s=None)
        if _lost(run, alive, before_ts)
        else run
        for run in runs
    ]


def _lost(run: Run, alive: frozenset[int], before_ts: int) -> bool:
    return (
        run.end_ts is None
        and run.start_ts is not None
        and run.start_ts < before_ts
        and run.job_id not in alive
    )


def _pages(
    db: Database, source: AccountingSource, cluster: str, overlap_s: int, now_ts: int
) -> Iterator[tuple[list[Run], list[Rejected], int | None]]:
    """Runs to write together, and up to which end time all are read once they are written."""
    since_ts = _since_ts(db.conn, cluster, overlap_s, now_ts)
    seen: set[int] = set()
    # Open runs first: one that ends meanwhile is then found as ended, never lost between.
    for runs, rejected in chain([source.open(now_ts)], source.ended(since_ts, now_ts)):
        seen.update(run.job_id for run in runs)
        reached_ts = max((run.end_ts for run in runs if run.end_ts), default=None)
        for start in range(0, max(1, len(runs)), BATCH):
            page = runs[start : start + BATCH]
            is_last = start + BATCH >= len(runs)
            yield page, rejected if start == 0 else [], reached_ts if is_last else None
    vanished = _open_jobs(db.conn, cluster, seen)
    if vanished:
        yield *source.by_id(vanished), None


def _since_ts(connection: sqlite3.Connection, cluster: str, overlap_s: int, now_ts: int) -> int:
    """Where to begin: before the last import, or where one was interrupted if that is later."""
    last_ts = last_import_ts(connection, cluster)
    since_ts = now_ts - FIRST_IMPORT_S if last_ts is None else last_ts - overlap_s
    reached = get_meta(connection, _reached(cluster))
    return since_ts if reached is None else max(since_ts, int(reached) - overlap_s)


def _open_jobs(connection: sqlite3.Connection, cluster: str, seen: set[int]) -> list[int]:
    """Jobs that are open here and were not told of: an admin mended them with a past end."""
    rows = connection.execute(
        "SELECT DISTINCT job_id FROM run WHERE end_ts IS NULL AND cluster = ? AND origin = 'slurm'"
        " ORDER BY job_id",
        (cluster,),
    )
    return [job_id for (job_id,) in rows if job_id not in seen][:MAX_VANISHED]


def keep_rejected(
    connection: sqlite3.Connection, source: str, rejected: Iterable[Rejected]
) -> None:
    """Keep and log each row that is no run once: the overlap brings it back at every import.

    Runs in the caller's transaction.
    """
    for item in rejected:
        line = item.line[:REJECTED_CHARS]
        done = connection.execute(
            "INSERT OR IGNORE INTO rejected_row VALUES (?, ?, ?)", (source, line, item.reason)
        )
        if done.rowcount:
            _log.warning("sacct row left out: %s: %r", item.reason, line[:120])


def _sum(total: Imported, changes: Changes, rejected: int) -> Imported:
    return Imported(
        total.seen + changes.seen, total.changed + changes.changed, total.rejected + rejected
    )


def _reached(cluster: str) -> str:
    return f"sync.{cluster}.reached_ts"


def _watermark(cluster: str) -> str:
    return f"sync.{cluster}.until_ts"
