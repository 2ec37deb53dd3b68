# SPDX-License-Identifier: Apache-2.0
"""Merges neighbouring windows of a journal that takes too much room. Pure.

Only windows of one device with the same holders are merged, never over a moment at which a run
began or ended, and the sums are exact: Σ per run and device stays what it was, to the mJ. What is
lost is when within the merged time it was used. Runs, their ends and the agents' starts are never
touched.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from fairwatt.accounting.agent.records import Entry
from fairwatt.core.events import (
    Flag,
    GpuMemory,
    RunEnded,
    RunStarted,
    Share,
    WindowClosed,
)

__all__ = ["DAY_MS", "HOUR_MS", "thinned"]

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def thinned(entries: Sequence[Entry], step_ms: int, after_seq: int) -> list[Entry]:
    """Return the entries with windows merged up to full steps of `step_ms` (of UTC).

    Events up to `after_seq` stay as they are: the collector may have them already. A merged
    window has the number and the place of its last part, so that numbers still grow.
    """
    edges = {edge for entry in entries for edge in _edges(entry)}
    result: list[Entry | None] = []
    latest: dict[str, int] = {}
    for entry in entries:
        event = entry.event
        if not isinstance(event, WindowClosed) or event.seq <= after_seq:
            result.append(entry)
            continue
        place = latest.get(event.device, -1)
        before = result[place] if place >= 0 else None
        earlier = None if before is None else before.event
        if (
            before is not None
            and isinstance(earlier, WindowClosed)
            and _joins(earlier, event, step_ms, edges)
        ):
            result[place] = _left_of(before, entry)
            entry = msgspec.structs.replace(entry, event=_merged(earlier, event))
        latest[event.device] = len(result)
        result.append(entry)
    return [entry for entry in result if entry is not None]


def _edges(entry: Entry) -> Collection[int]:
    match entry.event:
        case RunStarted():
            return (entry.event.t_ms,)
        case RunEnded():
            return (entry.event.t_ms, entry.event.run_start_ms)
    return ()


def _joins(a: WindowClosed, b: WindowClosed, step_ms: int, edges: Collection[int]) -> bool:
    return (
        a.t1_ms == b.t0_ms
        and a.t0_ms // step_ms == (b.t1_ms - 1) // step_ms
        and b.t0_ms not in edges
        and (a.boot_id, a.node, a.kind, a.method) == (b.boot_id, b.node, b.kind, b.method)
        and [(part is None) for part in _amounts(a)] == [(part is None) for part in _amounts(b)]
        and [_key(share) for share in a.shares] == [_key(share) for share in b.shares]
    )


def _amounts(window: WindowClosed) -> tuple[int | None, ...]:
    return (
        window.measured_mj,
        window.unallocated_idle_mj,
        window.unallocated_active_mj,
        window.system_mj,
    )


def _key(share: Share) -> tuple[int, int, str]:
    return share.job_id, share.run_start_ms, share.instance


def _left_of(before: Entry, entry: Entry) -> Entry | None:
    """What stays in the first one's place: readings that the second one does not bring anew.

    What it taught of idle power goes: the checkpoint behind it has that.
    """
    left = Entry(
        reading=before.reading if entry.reading is None else None,
        host=before.host if entry.host is None else None,
        uses=before.uses if entry.uses is None else None,
    )
    return None if left == Entry() else left


def _merged(a: WindowClosed, b: WindowClosed) -> WindowClosed:
    measured, idle, active, system = (
        None if x is None or y is None else x + y
        for x, y in zip(_amounts(a), _amounts(b), strict=True)
    )
    lengths = a.t1_ms - a.t0_ms, b.t1_ms - b.t0_ms
    return msgspec.structs.replace(
        b,
        t0_ms=a.t0_ms,
        measured_mj=measured,
        unallocated_idle_mj=idle,
        unallocated_active_mj=active,
        system_mj=system,
        shares=tuple(
            msgspec.structs.replace(
                y,
                idle_mj=x.idle_mj + y.idle_mj,
                active_mj=x.active_mj + y.active_mj,
                util_permille=_mean((x.util_permille, y.util_permille), lengths),
            )
            for x, y in zip(a.shares, b.shares, strict=True)
        ),
        flags=a.flags | b.flags | Flag.THINNED,
        clock_mhz=_mean((a.clock_mhz, b.clock_mhz), lengths),
        memory=_memory(a, b, lengths),
    )


def _mean(values: tuple[int | None, int | None], lengths: tuple[int, int]) -> int | None:
    """The mean over both times; one that is unknown leaves the other's."""
    x, y = values
    if x is None or y is None:
        return y if x is None else x
    return round((x * lengths[0] + y * lengths[1]) / sum(lengths))


def _memory(a: WindowClosed, b: WindowClosed, lengths: tuple[int, int]) -> tuple[GpuMemory, ...]:
    old = {one.instance: one for one in a.memory}
    new = {one.instance: one for one in b.memory}
    return tuple(
        _in_both(old[name], new[name], lengths)
        if name in old and name in new
        else (new.get(name) or old[name])
        for name in sorted(old.keys() | new.keys())
    )


def _in_both(x: GpuMemory, y: GpuMemory, lengths: tuple[int, int]) -> GpuMemory:
    mean = _mean((x.mean_mib, y.mean_mib), lengths)
    return GpuMemory(instance=y.instance, max_mib=max(x.max_mib, y.max_mib), mean_mib=mean or 0)
