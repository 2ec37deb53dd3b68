# SPDX-License-Identifier: Apache-2.0
"""Judges one run by its GPUs' clocks, power and utilisation per window. Pure.

GPUs are compared with those of their own kind only. A GPU that idles in a step is not slow in
it: it has nothing to do. Power says something at like utilisation only, clocks under load only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from fairwatt.accounting.failslow import (
    CLOCK,
    POWER,
    UTILISATION,
    Limits,
    Pace,
    Skew,
    Slow,
    median,
    skew,
)

__all__ = ["Metric", "Rank", "RankPace", "RunPace", "Window", "judge_run", "step_ms_of"]

Metric = Literal["clock", "power", "utilisation"]

IDLE_PERMILLE = 50
"""Below this utilisation a GPU has nothing to do."""
LIKE_PERMILLE = 100
"""So far from the peers' median utilisation may a GPU's be for its power to be compared."""
NEWEST_STEPS = 2016
"""So many steps of a long run are judged, a week of five minutes: it is done again and again."""
SHORTEST_STEP_MS = 10_000
LONGEST_STEP_MS = 300_000

_METRICS: tuple[tuple[Metric, Limits], ...] = (
    ("clock", CLOCK),
    ("power", POWER),
    ("utilisation", UTILISATION),
)


class Rank(NamedTuple):
    """A GPU or instance of a run; `kind` names those that are alike, `whole` a whole board."""

    device: str
    instance: str
    node: str
    kind: str
    whole: bool


class Window(NamedTuple):
    """What one rank did in one window: energy in mJ, utilisation in thousandths, clock in MHz."""

    t0_ms: int
    t1_ms: int
    energy_mj: int | None
    util_permille: int | None
    clock_mhz: int | None


class RankPace(NamedTuple):
    """A rank's medians over its busy steps, and where it was slow; None: unknown or not slow.

    `lag` is the part by which `metric` lay below the peers' median in `slow_steps` steps
    between `from_ms` and `until_ms`.
    """

    rank: Rank
    steps: int
    util_permille: int | None
    power_mw: int | None
    clock_mhz: int | None
    last_ms: int | None
    metric: Metric | None = None
    lag: float | None = None
    slow_steps: int | None = None
    from_ms: int | None = None
    until_ms: int | None = None


@dataclass(frozen=True)
class RunPace:
    """The judgement on a run; `ranks` has every rank, `compared` how many had peers."""

    state: Pace
    compared: int
    steps: int
    step_ms: int
    swing: float | None
    ranks: tuple[RankPace, ...]


@dataclass
class _Sum:
    """Sums over the windows of one rank in one step, each with the time it is known for."""

    energy_mj: int = 0
    energy_ms: int = 0
    util: int = 0
    util_ms: int = 0
    clock: int = 0
    clock_ms: int = 0

    def add(self, window: Window) -> None:
        """Add a window."""
        length_ms = window.t1_ms - window.t0_ms
        if window.energy_mj is not None:
            self.energy_mj += window.energy_mj
            self.energy_ms += length_ms
        if window.util_permille is not None:
            self.util += window.util_permille * length_ms
            self.util_ms += length_ms
        if window.clock_mhz is not None:
            self.clock += window.clock_mhz * length_ms
            self.clock_ms += length_ms


@dataclass
class _Line:
    """One rank's values by step; a step without load has none."""

    util: dict[int, float] = field(default_factory=dict)
    power: dict[int, float] = field(default_factory=dict)
    clock: dict[int, float] = field(default_factory=dict)


def judge_run(windows: Mapping[Rank, Sequence[Window]]) -> RunPace:
    """Judge a run by the windows of its ranks, in any order; of a long run by the newest."""
    step_ms = step_ms_of(window for rows in windows.values() for window in rows)
    ends = (window.t1_ms for rows in windows.values() for window in rows)
    from_ms = max(ends, default=0) - NEWEST_STEPS * step_ms
    lines = {
        rank: _line(rank, [window for window in rows if window.t0_ms >= from_ms], step_ms)
        for rank, rows in windows.items()
    }
    kinds: dict[str, dict[Rank, _Line]] = {}
    for rank, line in lines.items():
        kinds.setdefault(rank.kind, {})[rank] = line
    found = [item for alike in kinds.values() for item in _judged(alike)]
    skews = [one for _, one, _ in found]
    slow = _worst(found)
    return RunPace(
        _overall(skews),
        max((one.ranks for one in skews), default=0),
        max((one.steps for one in skews), default=0),
        step_ms,
        max((one.swing for one in skews if one.swing is not None), default=None),
        tuple(_rank_pace(rank, lines[rank], slow.get(rank), step_ms) for rank in sorted(lines)),
    )


def step_ms_of(windows: Iterable[Window]) -> int:
    """Return the usual length of the windows in whole 10 s: hooks cut some of them shorter."""
    lengths = [window.t1_ms - window.t0_ms for window in windows]
    usual = round(median(lengths), -4) if lengths else LONGEST_STEP_MS
    return int(min(LONGEST_STEP_MS, max(SHORTEST_STEP_MS, usual)))


def _line(rank: Rank, windows: Sequence[Window], step_ms: int) -> _Line:
    sums: dict[int, _Sum] = {}
    for window in windows:
        step = (window.t0_ms + window.t1_ms) // 2 // step_ms
        sums.setdefault(step, _Sum()).add(window)
    line = _Line()
    for step, total in sums.items():
        # Less than half a step is a run's ragged edge, not comparable with whole ones.
        if 2 * total.util_ms < step_ms or total.util < IDLE_PERMILLE * total.util_ms:
            continue
        line.util[step] = total.util / total.util_ms
        if rank.whole and total.energy_ms:
            line.power[step] = 1000 * total.energy_mj / total.energy_ms
        if rank.whole and total.clock_ms:
            line.clock[step] = total.clock / total.clock_ms
    return line


_Found = tuple[Metric, Skew, dict[str, tuple[Rank, Slow, tuple[int, int]]]]


def _judged(alike: Mapping[Rank, _Line]) -> list[_Found]:
    """Return each metric's judgement on ranks of one kind, and its slow ranks."""
    names = {f"{rank.device}/{rank.instance}": rank for rank in alike}
    steps = sorted({step for line in alike.values() for step in line.util})
    peers = {step: _peers_at(step, alike.values()) for step in steps}
    found: list[_Found] = []
    for metric, limits in _METRICS:
        series = {name: _values(metric, alike[rank], steps, peers) for name, rank in names.items()}
        one = skew(series, limits, slower="lower")
        slow = {s.rank: (names[s.rank], s, (steps[s.first], steps[s.last])) for s in one.slow}
        found.append((metric, one, slow))
    return found


class _Peers(NamedTuple):
    """The medians of ranks of one kind in one step; `clock_mhz` None where nobody's is known."""

    util: float
    clock_mhz: float | None


def _peers_at(step: int, lines: Iterable[_Line]) -> _Peers:
    present = [line for line in lines if step in line.util]
    clocks = [line.clock[step] for line in present if step in line.clock]
    return _Peers(
        median([line.util[step] for line in present]), median(clocks) if clocks else None
    )


def _values(
    metric: Metric, line: _Line, steps: Sequence[int], peers: Mapping[int, _Peers]
) -> list[float | None]:
    if metric == "utilisation":
        return [line.util.get(step) for step in steps]
    if metric == "clock":
        return [line.clock.get(step) for step in steps]
    return [
        line.power.get(step) if _power_tells(line, step, peers[step]) else None for step in steps
    ]


def _power_tells(line: _Line, step: int, peers: _Peers) -> bool:
    """Whether low power can mean a slow GPU: it is as busy as its peers and clocks no faster.

    A light pipeline stage draws less and is let clock higher: it has less to do.
    """
    if step not in line.util or abs(line.util[step] - peers.util) > LIKE_PERMILLE:
        return False
    clock = line.clock.get(step)
    return clock is None or peers.clock_mhz is None or clock <= peers.clock_mhz


def _overall(skews: Sequence[Skew]) -> Pace:
    states = {one.state for one in skews}
    for state in (Pace.STRAGGLER, Pace.VARYING, Pace.HEALTHY):
        if state in states:
            return state
    return Pace.UNKNOWN


_Slowness = tuple[Metric, Slow, tuple[int, int]]


def _worst(found: Iterable[_Found]) -> dict[Rank, _Slowness]:
    """Return each straggler's evidence: a clock tells most, then power, then utilisation."""
    worst: dict[Rank, _Slowness] = {}
    for metric, one, slow in found:
        for rank, evidence, span in slow.values() if one.state is Pace.STRAGGLER else ():
            worst.setdefault(rank, (metric, evidence, span))
    return worst


def _rank_pace(rank: Rank, line: _Line, slow: _Slowness | None, step_ms: int) -> RankPace:
    last = max(line.util, default=None)
    pace = RankPace(
        rank,
        len(line.util),
        _middle(line.util),
        _middle(line.power),
        _middle(line.clock),
        None if last is None else (last + 1) * step_ms,
    )
    if slow is None:
        return pace
    metric, evidence, (first, until) = slow
    return pace._replace(
        metric=metric,
        lag=evidence.lag,
        slow_steps=evidence.steps,
        from_ms=first * step_ms,
        until_ms=(until + 1) * step_ms,
    )


def _middle(values: Mapping[int, float]) -> int | None:
    return round(median(list(values.values()))) if values else None
