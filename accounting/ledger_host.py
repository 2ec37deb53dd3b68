# SPDX-License-Identifier: Apache-2.0
"""Splits what a part of a host used between the runs on it, the system and nobody. Pure.

Every joule has exactly one owner: Σ shares + unallocated + system = measured, in integer mJ.

>>> job = HostUse(job_id=7, run_start_ms=0, held=8, used=3_000_000)
>>> split = split_host(100_000, 5_000, 16, [HostSpan(10_000, (0,))], [job], 1_000_000)[0]
>>> split.shares[0].idle_mj, split.unallocated_idle_mj, split.shares[0].active_mj, split.system_mj
(25000, 25000, 37500, 12500)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fairwatt.core.events import Flag, Share
from fairwatt.core.units import split_largest_remainder

__all__ = ["ALL_IDLE", "HostDelta", "HostSpan", "HostSplit", "HostUse", "host_delta", "split_host"]

ALL_IDLE = 1 << 40
"""As idle power: all energy goes by what is held, as fans and boards draw for whoever is there."""

READ_EDGE_MS = 200
"""Reading takes a moment, and meters move in steps: a window may see one step more."""


@dataclass(frozen=True, slots=True)
class HostUse:
    """What one run held and used of a part: cores and CPU time, or bytes and mean bytes.

    `used` None: not known. `util_permille` is what it used of what it held.
    """

    job_id: int
    run_start_ms: int
    held: int
    used: int | None
    util_permille: int | None = None


@dataclass(frozen=True, slots=True)
class HostSpan:
    """A stretch of a window; `runs` are the places in the list of uses of those that were there.

    `present_ms` is for how long each of them was; empty: all the time.
    """

    dt_ms: int
    runs: tuple[int, ...]
    present_ms: tuple[int, ...] = ()

    @property
    def presence(self) -> dict[int, int]:
        """Return for how many ms each run was there, by its place."""
        return dict(zip(self.runs, self.present_ms or [self.dt_ms] * len(self.runs), strict=True))


@dataclass(frozen=True, slots=True)
class HostSplit:
    """The parts of one span, all in mJ."""

    shares: tuple[Share, ...]
    unallocated_idle_mj: int
    unallocated_active_mj: int
    system_mj: int

    @property
    def measured_mj(self) -> int:
        """Return what all owners have together."""
        owned = sum(share.idle_mj + share.active_mj for share in self.shares)
        return owned + self.unallocated_idle_mj + self.unallocated_active_mj + self.system_mj


@dataclass(frozen=True, slots=True)
class HostDelta:
    """What a counter counted between two readings in µJ (None: unknown), and its flags."""

    energy_uj: int | None
    flags: Flag


def split_host(
    delta_mj: int,
    idle_mw: int | None,
    whole: int,
    spans: Sequence[HostSpan],
    uses: Sequence[HostUse],
    system_used: int,
    nobody_used: int = 0,
) -> list[HostSplit]:
    """Split `delta_mj` ≥ 0 of one part over its owners and, if there are several, its spans.

    Idle energy goes by what each run holds of `whole` and for how long, what nobody holds being
    unallocated; active energy by what runs, system and nobody used in all spans together, and
    then by time. Where any run's use is unknown, or nothing was used, it goes by what was held
    and for how long. Shares come in the order of the runs' names, which also settles ties: the
    order of `uses` plays no part.

    Args:
        delta_mj: measured energy.
        idle_mw: idle power of the part; None (not known) counts all energy as active.
        whole: all that can be held of the part.
        spans: stretches of time, between which runs came or went.
        uses: the runs that are present in any of them.
        system_used: what the system used, in the unit of `used`.
        nobody_used: what was used by jobs that no run is known of.
    """
    uses, spans = _in_order(uses, spans)
    times = [span.dt_ms for span in spans]
    idle_mj = min(delta_mj, (idle_mw or 0) * sum(times) // 1000)
    idle = split_largest_remainder(idle_mj, times)
    active = _active(delta_mj - idle_mj, spans, uses, (system_used, nobody_used))
    return [
        _split(span, idle[place], whole, uses, [parts[place] for parts in active])
        for place, span in enumerate(spans)
    ]


def _in_order(
    uses: Sequence[HostUse], spans: Sequence[HostSpan]
) -> tuple[list[HostUse], list[HostSpan]]:
    """Return the uses by the names of their runs, and the spans with their places there."""
    order = sorted(range(len(uses)), key=lambda at: (uses[at].job_id, uses[at].run_start_ms))
    place_of = {old: new for new, old in enumerate(order)}
    moved = []
    for span in spans:
        there = sorted((place_of[place], ms) for place, ms in span.presence.items())
        places, present_ms = tuple(p for p, _ in there), tuple(ms for _, ms in there)
        moved.append(HostSpan(span.dt_ms, places, present_ms))
    return [uses[place] for place in order], moved


def _active(
    active_mj: int,
    spans: Sequence[HostSpan],
    uses: Sequence[HostUse],
    beside: tuple[int, int],
) -> list[list[int]]:
    """Return each run's active energy by span, then the system's, then nobody's."""
    times = [span.dt_ms for span in spans]
    there = [span.presence for span in spans]
    present = [[one.get(place, 0) for one in there] for place in range(len(uses))]
    weights = _weights(uses, [sum(spent) for spent in present], beside)
    amounts = split_largest_remainder(active_mj, weights)
    return [
        split_largest_remainder(amount, spent)
        for amount, spent in zip(amounts, [*present, times, times], strict=True)
    ]


def _weights(
    uses: Sequence[HostUse], present_ms: Sequence[int], beside: tuple[int, int]
) -> list[int]:
    """Return the weight of each run, then the system's and nobody's."""
    told = [use.used if spent else 0 for use, spent in zip(uses, present_ms, strict=True)]
    known = [used for used in told if used is not None]
    if len(known) == len(uses) and (any(beside) or any(known)):
        return [*known, *beside]
    held = [use.held * spent for use, spent in zip(uses, present_ms, strict=True)]
    if not any(held):
        held = list(present_ms)
    return [*held, 0, 0 if any(held) else 1]


def _split(
    span: HostSpan, idle_mj: int, whole: int, uses: Sequence[HostUse], active: Sequence[int]
) -> HostSplit:
    held = [uses[place].held * ms for place, ms in span.presence.items()]
    free = max(0, whole * span.dt_ms - sum(held))
    *idle, idle_free = split_largest_remainder(idle_mj, [*held, free if any(held) else 1])
    shares = tuple(
        Share(
            job_id=uses[place].job_id,
            run_start_ms=uses[place].run_start_ms,
            instance="",
            idle_mj=part,
            active_mj=active[place],
            util_permille=uses[place].util_permille,
        )
        for place, part in zip(span.runs, idle, strict=True)
    )
    return HostSplit(shares, idle_free, active[-1], active[-2])


def host_delta(
    before_uj: int, after_uj: int, dt_ms: int, wrap_uj: int | None, max_mw: int | None
) -> HostDelta:
    """Return what a counter that begins again at `wrap_uj` counted between two readings.

    A fall is one passage of the end, flagged WRAPPED; where the end is not known, the amount is
    unknown, flagged RESET. It is unknown as well where the part cannot draw so much
    (IMPLAUSIBLE), or could have passed the end once more (AMBIGUOUS; already from half that time
    on the amount is flagged so). Never negative.
    """
    flags = Flag(0)
    delta_uj = after_uj - before_uj
    if delta_uj < 0:
        if wrap_uj is None:
            return HostDelta(None, Flag.RESET)
        delta_uj += wrap_uj
        flags |= Flag.WRAPPED
    # µJ over mW are ms.
    if max_mw and wrap_uj and 2 * dt_ms * max_mw > wrap_uj:
        flags |= Flag.AMBIGUOUS
        if dt_ms * max_mw > wrap_uj:
            return HostDelta(None, flags)
    too_much = max_mw is not None and 2 * delta_uj > 3 * max_mw * (dt_ms + READ_EDGE_MS)
    if delta_uj < 0 or too_much:
        return HostDelta(None, flags | Flag.IMPLAUSIBLE)
    return HostDelta(delta_uj, flags)
