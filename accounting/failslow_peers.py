# SPDX-License-Identifier: Apache-2.0
"""Finds GPUs that are slow again and again, over the runs they took part in. Pure.

Two kinds of evidence: a GPU was the straggler of several runs; or, run after run, it lay below
other GPUs of its kind that were as busy. Programs differ in power and clock, so the second needs
runs of two users, and more distance than the GPUs have among each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fairwatt.accounting.failslow import CLOCK, MIN_RANKS, POWER, Limits, median, spread

__all__ = ["BELOW_SHARE", "LIKE_RUNS", "SLOW_RUNS", "SLOW_SHARE", "Deed", "History", "histories"]

NEWEST_RUNS = 50
"""So many runs of a GPU are looked at, the newest."""
SLOW_RUNS = 3
SLOW_SHARE = 0.2
"""A repeat offender was slow in so many runs, and in such a part of those that were judged."""
LIKE_RUNS = 5
BELOW_SHARE = 0.8
"""Or it was compared with like GPUs in so many runs, and lay below them in such a part."""
OWNERS = 2
BUSY_PERMILLE = 300
"""Runs that use a GPU less say little about its speed."""

PeerMetric = Literal["clock", "power"]
_METRICS: tuple[tuple[PeerMetric, Limits], ...] = (("clock", CLOCK), ("power", POWER))


class Deed(NamedTuple):
    """What one GPU did in one run: medians, and whether it was the straggler, by what, how far.

    `judged` says whether the run's GPUs could be compared; `lag` is a part of the peers' median.
    """

    device: str
    node: str
    kind: str
    owner: str | None
    at_ts: int
    util_permille: int | None
    power_mw: int | None
    clock_mhz: int | None
    judged: bool
    metric: str | None
    lag: float | None


@dataclass(frozen=True)
class History:
    """One GPU's record; `metric` and `lag` are its worst evidence, None if it has none.

    `slow_runs` of `judged_runs`: it was their straggler. `below_runs` of `like_runs`: it lay
    below GPUs of its kind that were as busy in other runs.
    """

    device: str
    node: str
    kind: str
    judged_runs: int
    slow_runs: int
    slow_ts: int | None
    like_runs: int
    below_runs: int
    metric: str | None
    lag: float | None
    repeat: bool


class _Below(NamedTuple):
    like: int
    lags: tuple[float, ...]
    owners: int
    last_ts: int | None


def histories(deeds: Iterable[Deed]) -> list[History]:
    """Return the record of every GPU, worst first."""
    by_device: dict[str, list[Deed]] = {}
    for deed in sorted(deeds, key=lambda deed: -deed.at_ts):
        mine = by_device.setdefault(deed.device, [])
        if len(mine) < NEWEST_RUNS:
            mine.append(deed)
    kept = [deed for mine in by_device.values() for deed in mine]
    usual = {metric: _usual(kept, metric) for metric, _ in _METRICS}
    found = [_history(mine, usual) for mine in by_device.values()]
    return sorted(found, key=lambda h: (not h.repeat, -h.slow_runs, -(h.lag or 0), h.device))


_Like = tuple[str, int]
"""Kind of GPU and tenth of utilisation: what is compared with each other."""
_Usual = dict[_Like, tuple[float, float]]
"""Median over the GPUs, and their relative spread."""


def _like(deed: Deed) -> _Like | None:
    util = deed.util_permille
    return None if util is None or util < BUSY_PERMILLE else (deed.kind, min(9, util // 100))


def _value(deed: Deed, metric: PeerMetric) -> int | None:
    return deed.clock_mhz if metric == "clock" else deed.power_mw


def _usual(deeds: Iterable[Deed], metric: PeerMetric) -> _Usual:
    """Return what is usual at each load, every GPU counting once; too few GPUs have none."""
    values: dict[_Like, dict[str, list[float]]] = {}
    for deed in deeds:
        like, value = _like(deed), _value(deed, metric)
        if like is not None and value is not None:
            values.setdefault(like, {}).setdefault(deed.device, []).append(value)
    usual = {}
    for like, by_device in values.items():
        each = [median(own) for own in by_device.values()]
        if len(each) > MIN_RANKS and median(each) > 0:
            usual[like] = (median(each), spread(each) / median(each))
    return usual


def _history(deeds: Sequence[Deed], usual: dict[PeerMetric, _Usual]) -> History:
    # A rank that had less to do says nothing about the GPU: only its clock and power count here.
    slow = [deed for deed in deeds if deed.metric in ("clock", "power") and deed.lag is not None]
    judged = sum(deed.judged for deed in deeds)
    belows = [
        (metric, _below(deeds, metric, limits, usual[metric])) for metric, limits in _METRICS
    ]
    metric, below = next(((m, b) for m, b in belows if _is_low(b)), belows[0])
    low = _is_low(below)
    lags = [deed.lag for deed in slow if deed.lag is not None] or (below.lags if low else [])
    often = len(slow) >= SLOW_RUNS and len(slow) >= SLOW_SHARE * judged
    return History(
        device=deeds[0].device,
        node=deeds[0].node,
        kind=deeds[0].kind,
        judged_runs=judged,
        slow_runs=len(slow),
        slow_ts=max((deed.at_ts for deed in slow), default=below.last_ts if low else None),
        like_runs=below.like,
        below_runs=len(below.lags),
        metric=slow[0].metric if slow else metric if low else None,
        lag=median(lags) if lags else None,
        repeat=often or low,
    )


def _below(deeds: Sequence[Deed], metric: PeerMetric, limits: Limits, usual: _Usual) -> _Below:
    """Compare a GPU's runs with what is usual at their load."""
    like, low = 0, []
    for deed in deeds:
        kind, value = _like(deed), _value(deed, metric)
        if kind is None or value is None or kind not in usual:
            continue
        like += 1
        middle, wide = usual[kind]
        lag = 1 - value / middle
        if lag > max(limits.lag, limits.spreads * wide):
            low.append((lag, deed))
    return _Below(
        like,
        tuple(lag for lag, _ in low),
        len({deed.owner for _, deed in low}),
        max((deed.at_ts for _, deed in low), default=None),
    )


def _is_low(below: _Below) -> bool:
    return (
        below.like >= LIKE_RUNS
        and len(below.lags) >= BELOW_SHARE * below.like
        and below.owners >= OWNERS
    )
