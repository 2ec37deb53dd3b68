# SPDX-License-Identifier: Apache-2.0
"""Turns two readings of a device into closed windows of the ledger. Pure.

Normally one window: who held the device did not change since the last reading. After a gap
(the agent or NVML was away) the stretch is cut where holders changed and at full hours, and the
measured energy is apportioned to the pieces, flagged GAP.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from fairwatt.accounting.agent.extras import job_key
from fairwatt.accounting.agent.records import Entry, Origin, Reading, TimedHold
from fairwatt.accounting.agent.state import State
from fairwatt.accounting.ledger import (
    Delta,
    Hold,
    Span,
    apportion_gap,
    counter_delta,
    split_window,
)
from fairwatt.core.events import Flag, GpuMemory, Share, WindowClosed

__all__ = ["BoardPower", "back_by_ms", "close_windows", "reboot_windows", "snapped"]

HOUR_MS = 3_600_000
WORK_SHARE = 4
"""Beyond a quarter of the way from idle to its largest power a board is at work."""
SNAP_MS = 500
"""A reading this soon after a border counts as taken at it, so that windows end at full hours."""
MOST_MW = 10_000_000
"""No board draws more, even one that the catalogue does not know."""
LONGEST_GAP_MS = 31 * 24 * HOUR_MS
"""What was used in a longer gap goes to its end: rather than the agent was away, the clock was
wrong at boot, and decades would be cut into hours."""


@dataclass(frozen=True)
class BoardPower:
    """A board's idle and largest power in mW; None: its model is not in the catalogue."""

    idle_mw: int | None = None
    max_mw: int | None = None


@dataclass(frozen=True)
class _Piece:
    t0_ms: int
    t1_ms: int
    holds: tuple[Hold, ...]


def snapped(reading: Reading, border_ms: int | None) -> Reading:
    """Return the reading as taken at the border, if it was taken soon after it."""
    if border_ms is None or not 0 <= reading.t_ms - border_ms <= SNAP_MS:
        return reading
    return msgspec.structs.replace(reading, t_ms=border_ms)


def back_by_ms(state: State, reading: Reading) -> int:
    """Return by how much the clock is behind the end of the device's last window, 0 if not."""
    before = state.baselines.get(reading.device)
    return 0 if before is None else max(0, before.t_ms - reading.t_ms)


def close_windows(
    state: State,
    now: Reading,
    origin: Origin,
    power: BoardPower,
    utils: Mapping[str, int],
    clock_mhz: int | None = None,
    memory: tuple[GpuMemory, ...] = (),
    *,
    resumed: bool = False,
    doubt: int = 0,
) -> list[Entry]:
    """Return the entries that bring the device's baseline to `now`.

    Args:
        state: the agent's state; only read.
        now: the new reading of the device.
        origin: stamps the events; `seq` is left 0.
        power: idle and largest power of the board.
        utils: mean utilisation since the baseline in thousandths by MIG UUID ("" = board).
        clock_mhz: mean SM clock since then while the board was busy.
        memory: memory in use since then.
        resumed: the agent was away since the baseline: what was sampled before is not used.
        doubt: flags of a counter that is not to be trusted.
    """
    before = state.baselines.get(now.device)
    if before is None:
        return [Entry(reading=now)]
    if now.t_ms <= before.t_ms:
        # A clock that was so far ahead would take as long to be passed: begin anew.
        far = before.t_ms - now.t_ms > LONGEST_GAP_MS
        return [Entry(reading=now)] if far else []
    pieces = _pieces(state.holds, before, now)
    measured = _measured(before, now, power)
    gap = resumed or len(pieces) > 1
    flags = measured.flags | (Flag.GAP if gap else Flag(0))
    flags |= Flag(doubt if measured.energy_mj is not None else 0)
    known_utils, known_mhz, known_mib = ({}, None, ()) if gap else (utils, clock_mhz, memory)
    amounts = _amounts(measured, pieces, power)
    entries = []
    for piece, amount, reading in zip(
        pieces, amounts, _readings(pieces, amounts, now), strict=True
    ):
        event = _window(
            piece, amount, origin, now, power, known_utils, flags, known_mhz, known_mib
        )
        entries.append(Entry(event=event, reading=reading))
    return entries


def reboot_windows(state: State, origin: Origin, boot_ms: int) -> list[Entry]:
    """Return entries that end at `boot_ms` the windows of an earlier boot: amount unknown.

    The counter began again with the boot, so the new baseline is 0 there.
    """
    entries = []
    for before in state.baselines.values():
        if before.boot_id == origin.boot_id:
            continue
        start = Reading(
            device=before.device,
            t_ms=max(boot_ms, before.t_ms),
            energy_mj=0 if before.method == "counter" else None,
            method=before.method,
            boot_id=origin.boot_id,
        )
        event = None
        if start.t_ms > before.t_ms:
            piece = _Piece(before.t_ms, start.t_ms, ())
            flags = Flag.RESET | Flag.GAP
            event = _window(piece, None, origin, before, BoardPower(), {}, flags)
        entries.append(Entry(event=event, reading=start))
    return entries


def _measured(before: Reading, now: Reading, power: BoardPower) -> Delta:
    if now.energy_mj is None:
        return Delta(None, Flag.LOST)
    integrated = Flag.INTEGRATED if now.method == "integrated" else Flag(0)
    if before.energy_mj is None:
        return Delta(None, integrated | (Flag.LOST if before.method == "none" else Flag.GAP))
    if before.method != now.method:
        return Delta(None, integrated | Flag.GAP)
    max_mw, dt_ms = power.max_mw or MOST_MW, now.t_ms - before.t_ms
    delta = counter_delta(before.energy_mj, now.energy_mj, dt_ms, max_mw)
    return Delta(delta.energy_mj, delta.flags | integrated)


def _pieces(held: Sequence[TimedHold], before: Reading, now: Reading) -> list[_Piece]:
    """Cut [before, now) where holders change and, if they do or it is long, at full hours."""
    t0_ms, t1_ms = max(before.t_ms, now.t_ms - LONGEST_GAP_MS), now.t_ms
    mine = [timed for timed in held if timed.hold.device == now.device]
    edges = {timed.from_ms for timed in mine}
    edges |= {timed.until_ms for timed in mine if timed.until_ms is not None}
    edges |= set(range(t0_ms - t0_ms % HOUR_MS + HOUR_MS, t1_ms, HOUR_MS))
    cuts = [t0_ms, *sorted(edge for edge in edges if t0_ms < edge < t1_ms), t1_ms]
    return [_Piece(a, b, tuple(_holds(mine, a, b))) for a, b in pairwise(cuts)]


def _holds(held: Sequence[TimedHold], t0_ms: int, t1_ms: int) -> Iterator[Hold]:
    for timed in held:
        until_ms = t1_ms if timed.until_ms is None else timed.until_ms
        if timed.from_ms <= t0_ms and until_ms >= t1_ms:
            hold = timed.hold
            yield Hold(
                timed.job_id,
                timed.run_start_ms,
                hold.instance,
                hold.numerator,
                hold.denominator,
            )


def _amounts(measured: Delta, pieces: Sequence[_Piece], power: BoardPower) -> list[int | None]:
    if measured.energy_mj is None:
        return [None] * len(pieces)
    spans = [Span(piece.t1_ms - piece.t0_ms, bool(piece.holds)) for piece in pieces]
    return [*apportion_gap(measured.energy_mj, power.idle_mw, spans)]


def _readings(
    pieces: Sequence[_Piece], amounts: Sequence[int | None], now: Reading
) -> list[Reading]:
    """Return the baseline after each piece, so that a journal torn between two still adds up."""
    readings: list[Reading] = []
    energy_mj = now.energy_mj
    for piece, amount in reversed(list(zip(pieces, amounts, strict=True))):
        readings.append(msgspec.structs.replace(now, t_ms=piece.t1_ms, energy_mj=energy_mj))
        known = energy_mj is not None and amount is not None
        energy_mj = energy_mj - amount if known else None  # type: ignore[operator]
    return readings[::-1]


def _known_utils(holds: Sequence[Hold], utils: Mapping[str, int]) -> list[int | None]:
    """Return the utilisation of each hold; a board's own says nothing of one job among several."""
    boards = [hold for hold in holds if not hold.instance]
    return [
        utils.get(hold.instance if hold.instance or len(boards) == 1 else job_key(hold.job_id))
        for hold in holds
    ]


def _contradicts(
    known: Sequence[int | None], amount_mj: int, dt_ms: int, power: BoardPower
) -> bool:
    """Say whether nobody is said to have worked while the board drew what only work draws.

    DCGM's profiling fields may be 0 for weeks, and short work falls between two samples.
    """
    if power.idle_mw is None or power.max_mw is None or any(known):
        return False
    working_mw = power.idle_mw + (power.max_mw - power.idle_mw) // WORK_SHARE
    return 1000 * amount_mj > working_mw * dt_ms


def _window(
    piece: _Piece,
    amount_mj: int | None,
    origin: Origin,
    reading: Reading,
    power: BoardPower,
    utils: Mapping[str, int],
    flags: Flag,
    clock_mhz: int | None = None,
    memory: tuple[GpuMemory, ...] = (),
) -> WindowClosed:
    shares: tuple[Share, ...] = ()
    idle_mj: int | None = None
    active_mj: int | None = None
    if amount_mj is not None:
        dt_ms = piece.t1_ms - piece.t0_ms
        known = _known_utils(piece.holds, utils)
        if _contradicts(known, amount_mj, dt_ms, power):
            known = [None] * len(known)
        split = split_window(amount_mj, dt_ms, power.idle_mw, piece.holds, known)
        shares = split.shares
        idle_mj, active_mj = split.unallocated_idle_mj, split.unallocated_active_mj
        flags |= Flag.NO_UTIL if None in known else Flag(0)
    return WindowClosed(
        node=origin.node,
        boot_id=origin.boot_id,
        seq=0,
        device=reading.device,
        t0_ms=piece.t0_ms,
        t1_ms=piece.t1_ms,
        measured_mj=amount_mj,
        unallocated_idle_mj=idle_mj,
        unallocated_active_mj=active_mj,
        shares=shares,
        flags=int(flags),
        method=reading.method,
        clock_mhz=clock_mhz,
        memory=memory,
    )
