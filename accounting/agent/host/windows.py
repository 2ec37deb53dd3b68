# SPDX-License-Identifier: Apache-2.0
"""Turns what a part of the host used into closed windows of the ledger. Pure.

One window, in which some runs may have come or gone: each counts for the time that it was there. A
stretch over a full hour, as after a gap, is cut there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from fairwatt.accounting.agent.host.meter import Metered
from fairwatt.accounting.agent.host.weights import Weights
from fairwatt.accounting.agent.records import EndedRun, Entry, HostMark, Origin
from fairwatt.accounting.ledger_host import HostSpan, HostSplit, split_host
from fairwatt.core.events import DeviceKind, Flag, RunStarted, WindowClosed

__all__ = ["LONGEST_GAP_MS", "Stretch", "closing", "reboot_windows", "stretches"]

HOUR_MS = 3_600_000
LONGEST_GAP_MS = 31 * 24 * HOUR_MS
"""As for GPUs: a longer gap is a wrong clock at boot."""
EDGE_MS = 500
"""A run that came or went so near to a window's end did so at it: hook and reading are two
moments."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the time, with the runs that were there in it and for how many ms each."""

    t0_ms: int
    t1_ms: int
    runs: tuple[RunStarted, ...]
    present_ms: tuple[int, ...]


def stretches(
    runs: Sequence[RunStarted], ended: Sequence[EndedRun], t0_ms: int, t1_ms: int
) -> list[Stretch]:
    """Cut [t0, t1) at full hours, with the runs that were there in each piece."""
    t0_ms = max(t0_ms, t1_ms - LONGEST_GAP_MS)
    there = [(run, _snapped(run.t_ms, t0_ms, t1_ms), t1_ms) for run in runs]
    there += [
        (one.run, _snapped(one.run.t_ms, t0_ms, t1_ms), _snapped(one.until_ms, t0_ms, t1_ms))
        for one in ended
    ]
    cuts = [t0_ms, *range(t0_ms - t0_ms % HOUR_MS + HOUR_MS, t1_ms, HOUR_MS), t1_ms]
    return [_stretch(a, b, there) for a, b in pairwise(cuts)]


def _stretch(t0_ms: int, t1_ms: int, there: Sequence[tuple[RunStarted, int, int]]) -> Stretch:
    spent = [(run, min(t1_ms, end) - max(t0_ms, begin)) for run, begin, end in there]
    present = [(run, ms) for run, ms in spent if ms > 0]
    return Stretch(t0_ms, t1_ms, tuple(r for r, _ in present), tuple(ms for _, ms in present))


def _snapped(edge_ms: int, t0_ms: int, t1_ms: int) -> int:
    if edge_ms - t0_ms < EDGE_MS:
        return t0_ms
    return t1_ms if t1_ms - edge_ms < EDGE_MS else edge_ms


def closing(
    part: Metered,
    before: HostMark,
    device: str,
    kind: DeviceKind,
    cuts: Sequence[Stretch],
    weights: Weights,
    origin: Origin,
    idle_mw: int | None,
    flags: Flag,
) -> list[Entry]:
    """Return the entries that bring a part's mark to the end of the last stretch.

    `weights` are of all runs that are there in any stretch, in the order of their first.
    """
    known_uj = None if part.energy_uj is None else part.energy_uj + before.rest_uj
    flags |= part.flags | (Flag.GAP if len(cuts) > 1 else Flag(0))
    splits: Sequence[HostSplit | None] = [None] * len(cuts)
    if known_uj is not None:
        places = {(use.job_id, use.run_start_ms): place for place, use in enumerate(weights.uses)}
        spans = [
            HostSpan(
                cut.t1_ms - cut.t0_ms,
                tuple(places[run.job_id, run.t_ms] for run in cut.runs),
                cut.present_ms,
            )
            for cut in cuts
        ]
        splits = split_host(
            known_uj // 1000,
            idle_mw,
            weights.whole,
            spans,
            weights.uses,
            weights.system_used,
            weights.nobody_used,
        )
        flags |= Flag.NO_UTIL if any(use.used is None for use in weights.uses) else Flag(0)
    entries = []
    for cut, split in zip(cuts, splits, strict=True):
        last = cut is cuts[-1]
        mark = HostMark(
            device=device,
            t_ms=cut.t1_ms,
            energy_uj=part.counter_uj if last else None,
            method=part.method,
            boot_id=origin.boot_id,
            rest_uj=known_uj % 1000 if last and known_uj is not None else 0,
            idle_mw=part.idle_mw,
        )
        event = _window(origin, device, kind, cut, split, part.method, flags)
        entries.append(Entry(event=event, host=mark))
    return entries


def reboot_windows(
    marks: Sequence[HostMark], origin: Origin, boot_ms: int, kinds: Sequence[DeviceKind]
) -> list[Entry]:
    """Return entries that end at `boot_ms` the windows of an earlier boot: amount unknown.

    A counter began again with the boot, so its mark is 0 there.
    """
    entries = []
    for mark, kind in zip(marks, kinds, strict=True):
        start = HostMark(
            device=mark.device,
            t_ms=max(boot_ms, mark.t_ms),
            energy_uj=None if mark.energy_uj is None else 0,
            method=mark.method,
            boot_id=origin.boot_id,
            idle_mw=mark.idle_mw,
        )
        event = None
        if start.t_ms > mark.t_ms:
            cut = Stretch(mark.t_ms, start.t_ms, (), ())
            flags = Flag.RESET | Flag.GAP
            event = _window(origin, mark.device, kind, cut, None, mark.method, flags)
        entries.append(Entry(event=event, host=start))
    return entries


def _window(
    origin: Origin,
    device: str,
    kind: DeviceKind,
    cut: Stretch,
    split: HostSplit | None,
    method: str,
    flags: Flag,
) -> WindowClosed:
    return WindowClosed(
        node=origin.node,
        boot_id=origin.boot_id,
        seq=0,
        device=device,
        t0_ms=cut.t0_ms,
        t1_ms=cut.t1_ms,
        measured_mj=split.measured_mj if split else None,
        unallocated_idle_mj=split.unallocated_idle_mj if split else None,
        unallocated_active_mj=split.unallocated_active_mj if split else None,
        system_mj=split.system_mj if split else None,
        shares=split.shares if split else (),
        flags=int(flags),
        method=method,
        kind=kind,
    )
