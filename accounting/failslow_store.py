# SPDX-License-Identifier: Apache-2.0
"""Judges a run's ranks while it is settled, and writes how they kept pace into the store."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from fairwatt.accounting.failslow_run import Rank, RankPace, RunPace, Window, judge_run
from fairwatt.accounting.pieces import NodeRun, Piece

__all__ = ["write_pace"]

_HOLDS = """
    SELECT h.device_uuid, h.instance_uuid, h.numerator, h.denominator,
           coalesce(d.model, d.name, 'unknown model')
    FROM hold h LEFT JOIN device d USING (device_uuid)
    WHERE h.node = ? AND h.job_id = ? AND h.start_ms = ?"""


def write_pace(
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
        if rank is None or piece.idle_mj is None or piece.active_mj is None:
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
