# SPDX-License-Identifier: Apache-2.0
"""Judges a run's ranks while it is settled, and writes how they kept pace into the store."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from fairwatt.accounting.failslow_run import Rank, RankPace, RunPace, Window, judge_run
from fairwatt.accounting.pieces import SHARES_ON_DEVICE, NodeRun, Piece
from fairwatt.accounting.windows import WindowSources
from fairwatt.core.errors import StoreError

__all__ = ["judge_pace", "pace_until"]

_log = logging.getLogger(__name__)

_HOLDS = """
    SELECT h.device_uuid, h.instance_uuid, h.numerator, h.denominator,
           coalesce(d.model, d.name, 'unknown model')
    FROM hold h LEFT JOIN device d USING (device_uuid)
    WHERE h.node = ? AND h.job_id = ? AND h.start_ms = ?"""


HOUR_MS = 3_600_000
FIRST_MS = HOUR_MS // 4
"""Three windows: fewer tell nothing of a pace."""

LONGEST_WAIT_MS = 6 * HOUR_MS


def judge_pace(
    connection: sqlite3.Connection,
    run_id: int,
    node_runs: Sequence[NodeRun],
    from_ms: int,
    sources: WindowSources,
) -> None:
    """Write run_pace and rank_pace of one run anew where windows since `from_ms` may change them.

    A run that goes on is judged by what it did until `pace_until` only: reading all of its
    windows with every new one would take ever longer.
    """
    until_ms = _judged_until(connection, node_runs)
    known = connection.execute(
        "SELECT until_ms FROM pace_judged WHERE run_id = ?", (run_id,)
    ).fetchone()
    if known == (until_ms,) and from_ms >= until_ms:
        return
    begin_ms = min((start_ms for _, _, start_ms in node_runs), default=until_ms)
    if sources.are_dropped(begin_ms, until_ms):
        return  # Its windows are gone for good: what was judged stays.
    try:
        pieces = [
            piece
            for one in node_runs
            for piece in _pieces(connection, one, begin_ms, until_ms, sources)
        ]
    except StoreError as error:
        # A lost month file must not stop the energy of today's runs: what was judged stays.
        _log.error("the pace of run %d is not judged: %s", run_id, error)
        return
    _write_pace(connection, run_id, node_runs, pieces)
    connection.execute("INSERT OR REPLACE INTO pace_judged VALUES (?, ?)", (run_id, until_ms))


def pace_until(start_ms: int, last_ms: int) -> int:
    """Return until when a run that goes on is judged that began and was last measured then.

    At 15, 30 and 60 minutes, then at 1.25, 1.56, … hours, each a quarter more and at most six
    hours after the one before; 0 until the first. A fixed row, so that the order in which windows
    come does not matter.
    """
    step_ms, following_ms = 0, FIRST_MS
    while start_ms + following_ms <= last_ms:
        step_ms = following_ms
        longer_ms = step_ms * 2 if step_ms < HOUR_MS else step_ms * 5 // 4
        following_ms = min(longer_ms, step_ms + LONGEST_WAIT_MS)
    return start_ms + step_ms if step_ms else 0


def _judged_until(connection: sqlite3.Connection, node_runs: Sequence[NodeRun]) -> int:
    ends: list[int | None] = []
    last_ms = 0
    for one in node_runs:
        (end_ms,) = connection.execute(_END, one).fetchone()
        (cell_ms,) = connection.execute(_LAST, one).fetchone()
        ends.append(end_ms)
        last_ms = max(last_ms, cell_ms or 0)
    if None not in ends:
        return max([last_ms, *(end_ms or 0 for end_ms in ends)])
    return pace_until(min(start_ms for _, _, start_ms in node_runs), last_ms)


_END = "SELECT end_ms FROM node_run WHERE node = ? AND job_id = ? AND start_ms = ?"
_LAST = "SELECT max(last_ms) FROM run_cell WHERE node = ? AND job_id = ? AND run_start_ms = ?"
_REACH = (
    "SELECT device_uuid, max(last_ms) FROM run_cell"
    " WHERE node = ?1 AND job_id = ?2 AND run_start_ms = ?3 AND device_uuid IN"
    " (SELECT device_uuid FROM hold WHERE node = ?1 AND job_id = ?2 AND start_ms = ?3)"
    " GROUP BY device_uuid"
)
_PIECES = (
    "SELECT w.device_uuid, w.t0_ms, w.t1_ms, s.idle_mj, s.active_mj, s.util_permille,"
    f" s.instance_uuid, w.clock_mhz{SHARES_ON_DEVICE} AND w.t1_ms <= ?6"
    " ORDER BY w.t0_ms, s.instance_uuid"
)


def _pieces(
    connection: sqlite3.Connection,
    node_run: NodeRun,
    begin_ms: int,
    until_ms: int,
    sources: WindowSources,
) -> list[Piece]:
    reaches = connection.execute(_REACH, node_run).fetchall()

    def read(db: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
        for reach in reaches:
            yield from db.execute(_PIECES, (*node_run, *reach, until_ms))

    return [Piece(*row) for row in sources.rows(begin_ms, until_ms, read)]


def _write_pace(
    connection: sqlite3.Connection,
    run_id: int,
    node_runs: Sequence[NodeRun],
    pieces: Sequence[Piece],
) -> None:
    """Write run_pace and rank_pace of one run anew; a lone rank has no run_pace."""
    windows = _windows(_ranks(connection, node_runs), pieces)
    for table in ("run_pace", "rank_pace"):
        connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))  # noqa: S608
    if not any(windows.values()):
        return
    pace = judge_run(windows)
    if len(pace.ranks) > 1:
        connection.execute(
            "INSERT INTO run_pace VALUES (?, ?, ?, ?, ?, ?, ?)", _run_row(run_id, pace)
        )
    connection.executemany(
        "INSERT INTO rank_pace VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [_rank_row(run_id, rank) for rank in pace.ranks],
    )


def _ranks(
    connection: sqlite3.Connection, node_runs: Sequence[NodeRun]
) -> dict[tuple[str, str], Rank]:
    ranks = {}
    for node_run in node_runs:
        for device, instance, numerator, denominator, model in connection.execute(
            _HOLDS, node_run
        ):
            whole = not instance and numerator == denominator
            kind = model if whole else f"{numerator}/{denominator} of {model}"
            ranks[device, instance] = Rank(device, instance, node_run[0], kind, whole)
    return ranks


def _windows(
    ranks: dict[tuple[str, str], Rank], pieces: Sequence[Piece]
) -> dict[Rank, list[Window]]:
    windows: dict[Rank, list[Window]] = {rank: [] for rank in ranks.values()}
    for piece in pieces:
        rank = ranks.get((piece.device, piece.instance))
        if rank is None:
            continue
        windows[rank].append(
            Window(
                piece.t0_ms,
                piece.t1_ms,
                piece.idle_mj + piece.active_mj,
                piece.util_permille,
                piece.clock_mhz,
            )
        )
    return windows


def _run_row(run_id: int, pace: RunPace) -> tuple[int | str | None, ...]:
    return (
        run_id,
        pace.state,
        len(pace.ranks),
        pace.compared,
        pace.steps,
        pace.step_ms // 1000,
        _permille(pace.swing),
    )


def _rank_row(run_id: int, pace: RankPace) -> tuple[int | str | None, ...]:
    rank = pace.rank
    return (
        run_id,
        rank.device,
        rank.instance,
        rank.node,
        rank.kind,
        int(rank.whole),
        pace.steps,
        pace.util_permille,
        pace.power_mw,
        pace.clock_mhz,
        _seconds(pace.last_ms),
        pace.metric,
        _permille(pace.lag),
        pace.slow_steps,
        _seconds(pace.from_ms),
        _seconds(pace.until_ms),
    )


def _permille(part: float | None) -> int | None:
    return None if part is None else round(1000 * part)


def _seconds(t_ms: int | None) -> int | None:
    return None if t_ms is None else t_ms // 1000
