# SPDX-License-Identifier: Apache-2.0
"""Invents a year of runs: who submits what and when, and how a first-come queue serves it.

Everything is drawn from one seeded generator and the given days: no clock, so the same
arguments give the same year.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, timedelta
from zoneinfo import ZoneInfo

from fairwatt.accounting.days import day_bounds
from fairwatt.dashboard.university import Group, Pool, University

__all__ = ["Held", "SeedRun", "invent_runs"]

_LIMITS_S = (1_800, 3_600, 4 * 3_600, 12 * 3_600, 24 * 3_600, 48 * 3_600)
_OUTCOMES = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL")
_OUTCOME_WEIGHTS = (80, 9, 6, 3.5, 1.2, 0.3)
_WIDTHS, _WIDTH_WEIGHTS = (2, 4, 8), (75, 24, 1)
_MEDIAN_RUN_S, _RUN_SIGMA, _LONGEST_S = 5_400, 1.3, 30 * 3_600


@dataclass(frozen=True)
class Held:
    """One device that a run held: its node and the board's number there."""

    node: str
    board: int


@dataclass(frozen=True)
class SeedRun:
    """One invented run; `load` is (utilisation 0-1, power as part of the board's maximum)."""

    user: str
    account: str
    name: str
    pool: Pool | None
    count: int
    submit_ts: int
    eligible_ts: int
    run_s: int
    limit_s: int
    state: str
    load: tuple[float, float]
    starts: bool = True
    start_ts: int | None = None
    held: tuple[Held, ...] = ()

    @property
    def end_ts(self) -> int:
        """When it ended, or was cancelled while it waited."""
        return (
            self.eligible_ts + self.run_s if self.start_ts is None else self.start_ts + self.run_s
        )


def invent_runs(
    university: University, first: date, until: date, zone: ZoneInfo, seed: int
) -> list[SeedRun]:
    """Return the runs submitted in [first, until) that ended before `until`, by submit time."""
    rng = random.Random(seed)  # noqa: S311 - an invented year, not a secret
    asked = sorted(_submissions(rng, university, first, until, zone), key=lambda r: r.submit_ts)
    end_ts = day_bounds(str(until), zone)[0]
    return [run for run in _served(asked, university.pools) if run.end_ts < end_ts]


def _submissions(
    rng: random.Random, university: University, first: date, until: date, zone: ZoneInfo
) -> Iterator[SeedRun]:
    people = [
        (group, name, weight)
        for group in university.users
        for name, weight in zip(group.names, group.weights, strict=True)
    ]
    weights = [weight for _, _, weight in people]
    for number in range((until - first).days):
        day = first + timedelta(days=number)
        left = _runs_of_day(rng, university, day)
        midnight_ts = day_bounds(str(day), zone)[0]
        while left > 0:
            group, user, _ = rng.choices(people, weights)[0]
            hour = rng.choices(range(24), university.hours)[0]
            submit_ts = midnight_ts + 3_600 * hour + rng.randrange(3_600)
            # One submission in twenty is a sweep: many like runs at once make the queue grow.
            copies = rng.randrange(4, 12) if rng.random() < 0.04 else 1
            yield from _sweep(rng, university, group, user, submit_ts, copies)
            left -= copies


def _runs_of_day(rng: random.Random, university: University, day: date) -> int:
    mean = (
        university.runs_per_day
        * university.weekdays[day.weekday()]
        * university.months[day.month - 1]
    )
    return max(0, round(rng.gauss(mean, mean**0.5)))


def _sweep(
    rng: random.Random,
    university: University,
    group: Group,
    user: str,
    submit_ts: int,
    copies: int,
) -> Iterator[SeedRun]:
    run = _submission(rng, university, group, user, submit_ts)
    for _ in range(copies):
        run_s, limit_s, state = _outcome(rng, group.length, short=copies > 1)
        waits = run.pool is not None and state == "CANCELLED" and rng.random() < 0.5
        yield replace(
            run,
            run_s=run_s,
            limit_s=limit_s,
            state=state,
            load=_load(rng, university, group.busy, state),
            starts=not waits,
        )


def _submission(
    rng: random.Random, university: University, group: Group, user: str, submit_ts: int
) -> SeedRun:
    pool = None if rng.random() < 0.07 else rng.choices(university.pools, group.pools)[0]
    wide = pool is not None and pool.whole and rng.random() < group.wide
    count = rng.choices(_WIDTHS, _WIDTH_WEIGHTS)[0] if wide else 1
    later = rng.randrange(600, 7_200) if rng.random() < 0.03 else 0
    return SeedRun(
        user=user,
        account=group.account,
        name=rng.choice(university.names),
        pool=pool,
        count=count if pool else 0,
        submit_ts=submit_ts,
        eligible_ts=submit_ts + later,
        run_s=0,
        limit_s=0,
        state="COMPLETED",
        load=(0.0, 0.0),
    )


def _outcome(rng: random.Random, length: float, *, short: bool) -> tuple[int, int, str]:
    """Draw run time, limit (often far too long) and state."""
    median = _MEDIAN_RUN_S * length * (0.4 if short else 1.0)
    run_s = int(min(_LONGEST_S, max(20, median * rng.lognormvariate(0, _RUN_SIGMA))))
    state = rng.choices(_OUTCOMES, _OUTCOME_WEIGHTS)[0]
    if state == "TIMEOUT":
        limit_s = next(limit for limit in _LIMITS_S if limit >= min(run_s, 12 * 3_600))
        return limit_s, limit_s, state
    if state != "COMPLETED":
        run_s = max(5, int(run_s * rng.uniform(0.01, 0.6)))
    wanted = run_s * rng.uniform(1.1, 6)
    return run_s, next((limit for limit in _LIMITS_S if limit >= wanted), _LIMITS_S[-1]), state


def _load(
    rng: random.Random, university: University, busy: float, state: str
) -> tuple[float, float]:
    """Draw a place on the load list, moved by the group's habit; failures sit at its low end."""
    place = min(1.0, max(0.0, rng.random() + busy)) * (0.6 if state != "COMPLETED" else 1.0)
    at = place * (len(university.load) - 1)
    low = min(int(at), len(university.load) - 2)
    (util0, power0), (util1, power1) = university.load[low : low + 2]
    step = at - low
    return util0 + (util1 - util0) * step, power0 + (power1 - power0) * step


def _served(asked: list[SeedRun], pools: tuple[Pool, ...]) -> Iterator[SeedRun]:
    """Let each pool serve its queue in order of eligibility, without backfill."""
    free = {pool.type: _devices(pool) for pool in pools}
    for run in sorted(asked, key=lambda run: (run.eligible_ts, run.submit_ts)):
        if not run.starts:
            yield run
        elif run.pool is None:
            yield replace(run, start_ts=run.eligible_ts + 2, held=(Held("gpu01", -1),))
        else:
            yield _started(run, free[run.pool.type])


def _devices(pool: Pool) -> list[tuple[int, str, int, int]]:
    """Return a heap of (free at, node, board, device)."""
    return [
        (0, node, pool.first_board + board, device)
        for node in pool.nodes
        for board in range(pool.boards_per_node)
        for device in range(pool.devices_per_board)
    ]


def _started(run: SeedRun, heap: list[tuple[int, str, int, int]]) -> SeedRun:
    taken = [heapq.heappop(heap) for _ in range(run.count)]
    # The scheduler looks at the queue every few minutes.
    start_ts = max(run.eligible_ts, taken[-1][0]) + 3 + run.submit_ts % 240
    for _, node, board, device in taken:
        heapq.heappush(heap, (start_ts + run.run_s, node, board, device))
    held = tuple(sorted((Held(t[1], t[2]) for t in taken), key=lambda h: (h.node, h.board)))
    return replace(run, start_ts=start_ts, held=held)
