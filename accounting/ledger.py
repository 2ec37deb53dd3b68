# SPDX-License-Identifier: Apache-2.0
"""Splits what one device used in one window between the runs that held it. Pure.

Every joule has exactly one owner: Σ shares + unallocated = measured, exactly, in integer mJ.

>>> whole = Hold(job_id=7, run_start_ms=0, instance="", numerator=1, denominator=1)
>>> split_window(3_000, 10_000, 60, [whole], [1_000]).shares[0].active_mj
2400
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fairwatt.core.events import Flag, Share
from fairwatt.core.units import split_largest_remainder

__all__ = ["Delta", "Hold", "Span", "Split", "apportion_gap", "counter_delta", "split_window"]

COUNTER_EDGE_MS = 200
"""NVML's counter moves in steps of about 100 ms, so a window may see one step more at each end."""


@dataclass(frozen=True, slots=True)
class Hold:
    """One run's reserved fraction of a board; `instance` is the MIG UUID, "" for the whole."""

    job_id: int
    run_start_ms: int
    instance: str
    numerator: int
    denominator: int


@dataclass(frozen=True, slots=True)
class Split:
    """The parts of one window; idle and active energy are kept apart, all in mJ."""

    shares: tuple[Share, ...]
    unallocated_idle_mj: int
    unallocated_active_mj: int


@dataclass(frozen=True, slots=True)
class Delta:
    """What a counter counted between two readings in mJ (None: unknown), and its flags."""

    energy_mj: int | None
    flags: Flag


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time without a reading at its inner edges; `occupied`: some run held it."""

    dt_ms: int
    occupied: bool


def split_window(
    delta_mj: int,
    dt_ms: int,
    idle_mw: int | None,
    holds: Sequence[Hold],
    utils: Sequence[int | None],
) -> Split:
    """Split `delta_mj` ≥ 0 of one board over the runs that held it for the whole window.

    Idle energy goes by reserved fraction, the rest of the board staying unallocated; active
    energy goes by fraction × utilisation, or by fraction where any utilisation is unknown or
    all are 0. Fractions that sum to more than the board share it in proportion. Shares come in
    the order of the runs' names, which also settles ties: the order of `holds` plays no part.

    Args:
        delta_mj: measured energy.
        dt_ms: length of the window.
        idle_mw: idle power of the board; None (model unknown) counts all energy as active.
        holds: the runs' holds.
        utils: utilisation of each hold in thousandths, None if unknown.
    """
    order = sorted(range(len(holds)), key=lambda place: _name(holds[place]))
    holds, utils = [holds[place] for place in order], [utils[place] for place in order]
    idle_mj = min(delta_mj, (idle_mw or 0) * dt_ms // 1000)
    weights, free = _weights(holds)
    *idle, idle_free = split_largest_remainder(idle_mj, [*weights, free])
    active_mj = delta_mj - idle_mj
    active = split_largest_remainder(active_mj, _activity(weights, utils))
    shares = tuple(
        Share(
            job_id=hold.job_id,
            run_start_ms=hold.run_start_ms,
            instance=hold.instance,
            idle_mj=idle_part,
            active_mj=active_part,
            util_permille=util,
        )
        for hold, idle_part, active_part, util in zip(holds, idle, active, utils, strict=True)
    )
    return Split(shares, idle_free, 0 if holds else active_mj)


def _name(hold: Hold) -> tuple[int, int, str]:
    return hold.job_id, hold.run_start_ms, hold.instance


def _weights(holds: Sequence[Hold]) -> tuple[list[int], int]:
    """Return the holds' fractions over a common denominator, and what is left of the board."""
    board = math.lcm(*(hold.denominator for hold in holds))
    weights = [hold.numerator * (board // hold.denominator) for hold in holds]
    return weights, max(0, board - sum(weights))


def _activity(weights: Sequence[int], utils: Sequence[int | None]) -> list[int]:
    known = [util for util in utils if util is not None]
    if len(known) < len(weights) or not any(known):
        return list(weights)
    return [weight * util for weight, util in zip(weights, known, strict=True)]


def counter_delta(
    before_mj: int, after_mj: int, dt_ms: int, max_mw: int | None, *, restarted: bool = False
) -> Delta:
    """Return what an energy counter counted in a window.

    A counter that fell, or is known to have restarted, gives the part since its restart,
    flagged RESET. An amount beyond 1.5 × `max_mw` (None: not checked) is unknown and flagged
    IMPLAUSIBLE: never negative, never silently 0.
    """
    reset = restarted or after_mj < before_mj
    energy_mj = after_mj if reset else after_mj - before_mj
    flags = Flag.RESET if reset else Flag(0)
    if energy_mj < 0 or not _plausible(energy_mj, dt_ms, max_mw):
        return Delta(None, flags | Flag.IMPLAUSIBLE)
    return Delta(energy_mj, flags)


def _plausible(energy_mj: int, dt_ms: int, max_mw: int | None) -> bool:
    return max_mw is None or 2 * energy_mj * 1000 <= 3 * max_mw * (dt_ms + COUNTER_EDGE_MS)


def apportion_gap(delta_mj: int, idle_mw: int | None, spans: Sequence[Span]) -> list[int]:
    """Divide what was measured over several spans without a reading between them, exactly.

    Idle energy goes by time; the rest by time over the occupied spans (over all, if none is).
    """
    times = [span.dt_ms for span in spans]
    idle_mj = min(delta_mj, (idle_mw or 0) * sum(times) // 1000)
    busy = [span.dt_ms if span.occupied else 0 for span in spans]
    active = split_largest_remainder(delta_mj - idle_mj, busy if any(busy) else times)
    idle = split_largest_remainder(idle_mj, times)
    return [a + b for a, b in zip(idle, active, strict=True)]
