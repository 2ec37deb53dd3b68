# SPDX-License-Identifier: Apache-2.0
"""Turns old events of nodes into spans of numbers: what they told is in the ledger since long.

A span (node, boot_id, first to last) says that these events are known, so that a node which sends
one of them again changes nothing. Decisions and the agents' starts are kept as they came: reports
show the ones, the others explain holes between windows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import takewhile

from sqlite_utils import Database

from fairwatt.accounting.store import transaction
from fairwatt.core.errors import IngestError
from fairwatt.core.events import Event, RunEnded, WindowClosed

__all__ = ["PrunedEvents", "prune_events"]

BATCH = 2000
SKEW_S = 86_400
"""A node's clock may be so far ahead: an event tells of no later time than it came, and this."""

_NEXT = (
    "SELECT node, boot_id FROM event WHERE (node, boot_id) > (?, ?) ORDER BY node, boot_id LIMIT 1"
)
_SPANS = "SELECT first_seq, last_seq, until_ms FROM event_span WHERE node = ? AND boot_id = ?"
_Row = tuple[int, int]  # seq, received_ts


def prune_events(
    db: Database, before_ts: int, *, lock: AbstractContextManager[object] | None = None
) -> int:
    """Replace the settled events that came before a time; return how many.

    Of each node's boots all but the newest event may go; a node with unsettled runs waits.
    """
    pruned = 0
    for boot in _boots(db.conn):
        count = BATCH
        while count == BATCH:
            with lock or nullcontext(), transaction(db) as connection:
                count = _prune_batch(connection, boot, before_ts)
            pruned += count
    return pruned


class PrunedEvents:
    """Tells which events the store knew and has pruned; each boot's spans are read once."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._spans: dict[tuple[str, str], list[tuple[int, int, int]]] = {}

    def have(self, event: Event) -> bool:
        """Whether an event is one of them.

        Raises:
            IngestError: its number is one of theirs, but it tells of a time after them all: the
                node counts from the beginning again.
        """
        boot = (event.node, event.boot_id)
        if boot not in self._spans:
            self._spans[boot] = self._connection.execute(_SPANS, boot).fetchall()
        for first, last, until_ms in self._spans[boot]:
            if first <= event.seq <= last:
                if _latest_ms(event) <= until_ms:
                    return True
                raise IngestError(
                    f"node {event.node} sent another event under the same number",
                    value=f"seq {event.seq} of boot {event.boot_id}",
                    remedy="its journal's numbering was lost: see the node's log",
                )
        return False


def _boots(connection: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """Each (node, boot_id) that has events; one look at the index for each."""
    boot = ("", "")
    while found := connection.execute(_NEXT, boot).fetchone():
        boot = (found[0], found[1])
        yield boot


def _prune_batch(connection: sqlite3.Connection, boot: tuple[str, str], before_ts: int) -> int:
    waits = connection.execute(
        "SELECT 1 FROM unsettled WHERE node = ? LIMIT 1", boot[:1]
    ).fetchone()
    if waits:
        return 0
    rows: list[_Row] = connection.execute(
        "SELECT seq, received_ts FROM event WHERE node = ? AND boot_id = ?"
        " AND kind NOT IN ('agent_started', 'decision') ORDER BY seq LIMIT ?",
        (*boot, BATCH + 1),
    ).fetchall()
    # Not the newest: that the node went on shows that it knows of our receipt.
    old = list(takewhile(lambda row: row[1] < before_ts, rows[:-1]))
    for run in _contiguous(old):
        _add_span(connection, boot, run)
    connection.executemany(
        "DELETE FROM event WHERE node = ? AND boot_id = ? AND seq = ?",
        [(*boot, seq) for seq, _ in old],
    )
    return len(old)


def _contiguous(rows: Iterable[_Row]) -> Iterator[list[_Row]]:
    run: list[_Row] = []
    for row in rows:
        if run and row[0] != run[-1][0] + 1:
            yield run
            run = []
        run.append(row)
    if run:
        yield run


def _add_span(connection: sqlite3.Connection, boot: tuple[str, str], rows: Sequence[_Row]) -> None:
    first, last = rows[0][0], rows[-1][0]
    received_ts = max(row[1] for row in rows)
    until_ms = (received_ts + SKEW_S) * 1000
    done = connection.execute(
        "UPDATE event_span SET last_seq = ?, until_ms = max(until_ms, ?),"
        " received_ts = max(received_ts, ?) WHERE node = ? AND boot_id = ? AND last_seq = ?",
        (last, until_ms, received_ts, *boot, first - 1),
    )
    if not done.rowcount:
        connection.execute(
            "INSERT INTO event_span VALUES (?, ?, ?, ?, ?, ?)",
            (*boot, first, last, until_ms, received_ts),
        )


def _latest_ms(event: Event) -> int:
    match event:
        case WindowClosed():
            return event.t1_ms
        case RunEnded():
            return max(event.run_start_ms, event.t_ms)
    return event.t_ms
