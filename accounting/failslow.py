# SPDX-License-Identifier: Apache-2.0
"""Tells a rank that is persistently slower than its peers from load that varies on all. Pure.

Each value is compared with the median of all ranks at the same step, so whatever moves all ranks
at once (sequence lengths, a slower phase) cancels out. A rank is slow where its smoothed lag
stays above both a fixed limit and three times the ranks' own spread for so many steps on end.

>>> steady, late = [100.0] * 12, [130.0] * 12
>>> skew({"0": steady, "1": steady, "2": late}, STEP_TIMES, slower="higher").slow[0].rank
'2'
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "CLOCK",
    "MIN_RANKS",
    "POWER",
    "STEP_TIMES",
    "UTILISATION",
    "Limits",
    "Pace",
    "Skew",
    "Slow",
    "median",
    "skew",
    "spread",
]

Series = Mapping[str, Sequence[float | None]]
"""Values by rank, all of the same length; None where a rank has none."""

MAD_TO_SIGMA = 1.4826
"""A normal distribution's standard deviation over its median absolute deviation."""

MIN_RANKS = 3
"""Of two that differ nobody can say which one is wrong."""


class Pace(enum.StrEnum):
    """How the ranks of a run kept pace with each other."""

    HEALTHY = "healthy"
    STRAGGLER = "straggler"
    VARYING = "varying load"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Limits:
    """When a rank counts as slow.

    `lag` is a part of the peers' median (0.1: a tenth worse), smoothed over `span` steps by an
    exponential mean, and must be exceeded for `persist` steps on end. `swing` is how far the
    median itself may spread, relatively, before the load counts as varying.
    """

    lag: float
    span: int
    persist: int
    spreads: float = 3.0
    swing: float = 0.15


STEP_TIMES = Limits(lag=0.15, span=10, persist=10)
"""Times per training step, a sample each; the values are those of reference data."""
CLOCK = Limits(lag=0.10, span=1, persist=3)
"""Means over whole windows, as the three below: little noise, so no smoothing."""
POWER = Limits(lag=0.20, span=1, persist=3)
UTILISATION = Limits(lag=0.30, span=1, persist=3)


@dataclass(frozen=True)
class Slow:
    """A slow rank: its median lag over the `steps` in which it was slow, the first and last."""

    rank: str
    lag: float
    steps: int
    first: int
    last: int


@dataclass(frozen=True)
class Skew:
    """The judgement on one kind of value.

    `ranks` and `steps` say what could be compared, `swing` is the relative spread of the median
    over time, `lost` the mean of largest over mean less 1: for step times what ranks wait at
    barriers. Both are None where nothing could be compared.
    """

    state: Pace
    ranks: int
    steps: int
    slow: tuple[Slow, ...] = ()
    swing: float | None = None
    lost: float | None = None


def skew(series: Series, limits: Limits, *, slower: Literal["higher", "lower"]) -> Skew:
    """Judge the ranks of one run by values of one kind, none of them negative.

    Args:
        series: values by rank, aligned by position.
        limits: when a rank counts as slow.
        slower: which values mean slow: "higher" for times, "lower" for clocks or power.
    """
    ranks = [rank for rank, values in series.items() if any(v is not None for v in values)]
    steps = list(_steps(series, ranks))
    if len(ranks) < MIN_RANKS or len(steps) < limits.persist:
        return Skew(Pace.UNKNOWN, len(ranks), len(steps))
    slow = tuple(_slow_ranks(steps, limits, 1 if slower == "higher" else -1))
    swing = relative_spread([peers for _, peers, _ in steps])
    return Skew(
        _state(len(slow), len(ranks), swing > limits.swing),
        len(ranks),
        len(steps),
        slow,
        swing,
        sum(_lost(values) for _, _, values in steps) / len(steps),
    )


def median(values: Sequence[float]) -> float:
    """Return the median of a non-empty sequence."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def spread(values: Sequence[float]) -> float:
    """Return the median absolute deviation on the scale of a standard deviation."""
    middle = median(values)
    return MAD_TO_SIGMA * median([abs(value - middle) for value in values])


def relative_spread(values: Sequence[float]) -> float:
    """Return the spread over the median, 0 if that is not positive."""
    middle = median(values)
    return spread(values) / middle if middle > 0 else 0.0


_Step = tuple[int, float, dict[str, float]]


def _steps(series: Series, ranks: Sequence[str]) -> Iterator[_Step]:
    """Yield (position, median, values by rank) where enough ranks can be compared."""
    for position in range(max((len(series[rank]) for rank in ranks), default=0)):
        values = {
            rank: value
            for rank in ranks
            if position < len(series[rank]) and (value := series[rank][position]) is not None
        }
        if len(values) < MIN_RANKS:
            continue
        peers = median(list(values.values()))
        if peers > 0:
            yield position, peers, values


def _slow_ranks(steps: Sequence[_Step], limits: Limits, sign: int) -> Iterator[Slow]:
    stretches: dict[str, _Stretch] = {}
    smooth: dict[str, float] = {}
    for position, peers, values in steps:
        lags = {rank: sign * (value / peers - 1) for rank, value in values.items()}
        for rank, lag in lags.items():
            before = smooth.get(rank, lag)
            smooth[rank] = before + (lag - before) * 2 / (limits.span + 1)
        limit = max(limits.lag, limits.spreads * spread([smooth[rank] for rank in lags]))
        for rank, lag in lags.items():
            stretch = stretches.setdefault(rank, _Stretch(limits.persist))
            stretch.add(position, lag, slow=smooth[rank] > limit)
    for rank in sorted(stretches):
        found = stretches[rank].found()
        if found:
            lag = median([lag for _, lag in found])
            yield Slow(rank, lag, len(found), found[0][0], found[-1][0])


class _Stretch:
    """Collects the stretches in which one rank was slow for long enough."""

    def __init__(self, persist: int) -> None:
        self._persist = persist
        self._now: list[tuple[int, float]] = []
        self._kept: list[tuple[int, float]] = []

    def add(self, position: int, lag: float, *, slow: bool) -> None:
        """Take the next step; steps without a value are not told and end nothing."""
        if slow:
            self._now.append((position, lag))
        else:
            self._keep()

    def found(self) -> list[tuple[int, float]]:
        """Return (position, lag) of all steps in stretches that lasted."""
        self._keep()
        return self._kept

    def _keep(self) -> None:
        if len(self._now) >= self._persist:
            self._kept += self._now
        self._now = []


def _state(slow: int, ranks: int, swings: bool) -> Pace:
    """Fewer than half are stragglers; where more take turns, it is the load."""
    if slow and 2 * slow < ranks:
        return Pace.STRAGGLER
    return Pace.VARYING if slow or swings else Pace.HEALTHY


def _lost(values: Mapping[str, float]) -> float:
    return max(values.values()) * len(values) / sum(values.values()) - 1
