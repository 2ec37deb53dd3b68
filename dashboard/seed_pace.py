# SPDX-License-Identifier: Apache-2.0
"""How the GPUs of invented runs kept pace: mostly well, but for one board that went bad."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from fairwatt.accounting.failslow import CLOCK, MIN_RANKS, Pace
from fairwatt.dashboard.invent import SeedRun

__all__ = ["rank_rows", "run_rows"]

STEP_S = 300
CLOCK_MHZ = 1400
BAD_LAG = 0.22
BAD_FOR_S = 45 * 86_400
"""So long before the year's end the board went bad."""

Board = tuple[str, int]
Measured = Sequence[tuple[int, SeedRun]]


def run_rows(measured: Measured) -> Iterator[tuple[Any, ...]]:
    """Yield run_pace rows of the runs on several boards."""
    bad = _bad_board(measured)
    for run_id, run in _whole(measured):
        boards = _boards(run)
        if len(boards) < 2:
            continue
        compared = len(boards) >= MIN_RANKS and _steps(run) >= CLOCK.persist and _busy(run)
        state, swing = _state(run_id, slow=compared and bad(run) in boards, compared=compared)
        steps = _steps(run) if compared else 0
        yield run_id, state, len(boards), len(boards) * compared, steps, STEP_S, swing


def rank_rows(measured: Measured, uuid_of: Callable[[str, int], str]) -> Iterator[tuple[Any, ...]]:
    """Yield rank_pace rows: one a whole board and run; a slow one with its evidence."""
    bad = _bad_board(measured)
    for run_id, run in _whole(measured):
        assert run.pool is not None  # noqa: S101 - _whole
        assert run.start_ts is not None  # noqa: S101 - _is_measured
        rng = random.Random(run_id)  # noqa: S311 - an invented year, not a secret
        boards, steps = _boards(run), _steps(run) if _busy(run) else 0
        for node, board in boards:
            slow = steps >= CLOCK.persist and (node, board) == bad(run)
            factor = rng.uniform(0.985, 1.015) * (1 - BAD_LAG * slow)
            told = slow and len(boards) >= MIN_RANKS
            end_ts = run.start_ts + steps * STEP_S
            yield (
                run_id, uuid_of(node, board), "", node, run.pool.model, 1, steps,
                round(1000 * run.load[0]) if steps else None,
                round(1000 * run.load[1] * run.pool.max_w * factor) if steps else None,
                round(CLOCK_MHZ * factor) if steps else None, end_ts if steps else None,
                *(("clock", round(1000 * (1 - factor)), steps, run.start_ts, end_ts)
                  if told else (None,) * 5),
            )  # fmt: skip


def _whole(measured: Measured) -> Iterator[tuple[int, SeedRun]]:
    return ((run_id, run) for run_id, run in measured if run.pool and run.pool.whole)


def _boards(run: SeedRun) -> list[Board]:
    return sorted({(held.node, held.board) for held in run.held})


def _steps(run: SeedRun) -> int:
    return run.run_s // STEP_S


def _busy(run: SeedRun) -> bool:
    return run.load[0] >= 0.1


def _state(run_id: int, *, slow: bool, compared: bool) -> tuple[str, int | None]:
    """A run in twenty had a load that went up and down."""
    if not compared:
        return Pace.UNKNOWN, None
    if slow:
        return Pace.STRAGGLER, 12
    return (Pace.VARYING, 310) if run_id % 20 == 0 else (Pace.HEALTHY, 10)


def _bad_board(measured: Measured) -> Callable[[SeedRun], Board | None]:
    """Return what tells the board that was bad at a run's time: the one most often among many."""
    last_ts = max((run.end_ts for _, run in measured), default=0)
    counts: dict[Board, int] = {}
    for board in _late_boards(measured, last_ts - BAD_FOR_S):
        counts[board] = counts.get(board, 0) + 1
    bad = max(counts, key=lambda board: (counts[board], board), default=None)
    return lambda run: bad if run.end_ts > last_ts - BAD_FOR_S else None


def _late_boards(measured: Measured, from_ts: int) -> Iterable[Board]:
    for _, run in _whole(measured):
        boards = _boards(run)
        if run.end_ts > from_ts and len(boards) >= MIN_RANKS and _busy(run):
            yield from boards
