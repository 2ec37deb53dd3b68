# SPDX-License-Identifier: Apache-2.0
"""Adds up what each part of the host used since its last window, reading by reading."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from fairwatt.accounting.agent.host.source import Reading
from fairwatt.accounting.agent.idle_looks import added, low_mw
from fairwatt.accounting.ledger_host import host_delta
from fairwatt.core.events import DeviceKind, Flag

__all__ = ["HostMeter", "Metered", "kind_of"]

STALE_MS = 60_000
"""Beyond this a power says nothing about the time since."""
LEAST_IDLE_MS, MOST_IDLE_MS = 5_000, 60_000
"""A shorter look may catch a moment's peak or dip; in a longer one the clock may have been set,
which would seem to have drawn next to nothing."""
CLOSE_EDGE_MS = 1_000
"""A window's end may be taken for a border half a second before it, and meters move in steps."""
_NONE = Flag(0)
_REASONS = Flag.LOST | Flag.RESET | Flag.IMPLAUSIBLE | Flag.AMBIGUOUS
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Metered:
    """What a part used since its last window in µJ (None: not known), and its counter now."""

    energy_uj: int | None
    flags: Flag
    counter_uj: int | None
    method: str
    idle_mw: int | None


@dataclass(slots=True)
class _Part:
    method: str
    t_ms: int
    counter_uj: int | None = None
    power_mw: int | None = None
    sum_uj: int | None = None
    flags: Flag = _NONE
    lost: bool = False
    idle_looks: list[int] = field(default_factory=list)
    peak_mw: int | None = None
    """The most that it can draw, or drew, since its last window."""


class HostMeter:
    """The parts by name; all of a kind are taken from the first source that gave one."""

    def __init__(self) -> None:
        self.faults: dict[str, str] = {}
        self._parts: dict[str, _Part] = {}

    @property
    def parts(self) -> list[str]:
        """Return the names of the parts that were read at least once."""
        return sorted(self._parts)

    def resume(
        self, part: str, method: str, t_ms: int, counter_uj: int | None, idle_mw: int | None
    ) -> None:
        """Take up a part where its last window ended; `counter_uj` None: its next is unknown."""
        known = None if counter_uj is None else 0
        resumed = _Part(method, t_ms, counter_uj, sum_uj=known, lost=True)
        resumed.idle_looks = [] if idle_mw is None else [idle_mw]
        self._parts[part] = resumed

    def take(self, source: str, readings: Iterable[Reading], *, unused: bool) -> None:
        """Take all readings of one source; `unused`: no job ran since the ones before."""
        told = {reading.part: reading for reading in readings}
        for name, reading in told.items():
            part = self._parts.get(name)
            if reading.fault is not None:
                self._note_fault(f"{source} {name}", reading.fault)
                if part is not None and part.method == source:
                    part.lost = True
                continue
            self._note_fault(f"{source} {name}", None)
            if part is None and self._is_taken(kind_of(name), source):
                continue
            if part is None:
                part = self._parts[name] = _Part(source, reading.t_ms)
            if part.method == source:
                _step(part, reading, unused)
        for name, part in self._parts.items():
            if part.method == source and name not in told:
                part.lost = True

    def _is_taken(self, kind: DeviceKind, source: str) -> bool:
        """Say whether another source gives this kind: packages, perhaps, or all of them in one."""
        return any(
            part.method != source for name, part in self._parts.items() if kind_of(name) == kind
        )

    def close(self, name: str, t_ms: int, since_ms: int | None = None) -> Metered:
        """Return what a part used until `t_ms`, and begin to add up anew.

        `since_ms` is when its window began: where the part cannot have drawn so much since then,
        a clock that was set back hides when it did, and the amount is unknown (IMPLAUSIBLE).
        """
        part = self._parts[name]
        if part.power_mw is not None:
            _hold_power(part, t_ms)
        energy_uj = None if part.lost else part.sum_uj
        flags = part.flags | (Flag.LOST if part.lost else _NONE)
        if energy_uj and since_ms is not None and _is_too_much(part, energy_uj, t_ms - since_ms):
            energy_uj, flags = None, flags | Flag.IMPLAUSIBLE
        if energy_uj is None and not flags & _REASONS:
            flags |= Flag.LOST  # it could not be read when the window began
        if part.lost:
            part.counter_uj = part.power_mw = None
        known = part.counter_uj is not None or part.power_mw is not None
        part.sum_uj, part.flags, part.peak_mw = (0 if known else None), _NONE, part.power_mw
        return Metered(energy_uj, flags, part.counter_uj, part.method, low_mw(part.idle_looks))

    def _note_fault(self, place: str, fault: str | None) -> None:
        """Log a fault when it appears and when it is over, not at every look."""
        before = self.faults.pop(place, None)
        if fault is not None:
            self.faults[place] = fault
        if fault is not None and before is None:
            _log.warning("%s: %s; its energy is unknown until it answers", place, fault)
        elif fault is None and before is not None:
            _log.warning("%s answers again", place)


def kind_of(part: str) -> DeviceKind:
    """Return the kind of device that a part such as cpu0 is."""
    if part.startswith("cpu"):
        return "cpu"
    return "dram" if part.startswith("dram") else "node"


def _step(part: _Part, reading: Reading, unused: bool) -> None:
    if reading.energy_uj is not None:
        _count(part, reading, unused)
    elif reading.power_mw is not None:
        _hold_power(part, reading.t_ms)
        part.flags |= Flag.INTEGRATED
        part.power_mw = reading.power_mw
        part.peak_mw = max(part.peak_mw or 0, reading.power_mw)
        _note_idle(part, reading.power_mw, unused)
    part.t_ms = _later(part, reading)
    part.lost = False


def _is_too_much(part: _Part, energy_uj: int, dt_ms: int) -> bool:
    return part.peak_mw is not None and 2 * energy_uj > 3 * part.peak_mw * (dt_ms + CLOSE_EDGE_MS)


def _later(part: _Part, reading: Reading) -> int:
    """Return the reading's time, but for a power that was asked for before it was counted on.

    A counter, and a power from long before, come from a clock that was set back: it is followed.
    """
    late_ms = part.t_ms - reading.t_ms
    return part.t_ms if reading.energy_uj is None and 0 < late_ms <= STALE_MS else reading.t_ms


def _count(part: _Part, reading: Reading, unused: bool) -> None:
    before_uj, part.counter_uj = part.counter_uj, reading.energy_uj
    part.peak_mw = reading.max_mw
    dt_ms = reading.t_ms - part.t_ms
    if before_uj is None or reading.energy_uj is None:
        return
    max_mw = None if dt_ms < 0 else reading.max_mw  # a clock that was set back tells no power
    delta = host_delta(before_uj, reading.energy_uj, dt_ms, reading.wrap_uj, max_mw)
    part.flags |= delta.flags
    if delta.energy_uj is None:
        part.sum_uj = None
    elif part.sum_uj is not None:
        part.sum_uj += delta.energy_uj
    if delta.energy_uj is not None and LEAST_IDLE_MS <= dt_ms <= MOST_IDLE_MS:
        _note_idle(part, delta.energy_uj // dt_ms, unused)


def _hold_power(part: _Part, t_ms: int) -> None:
    """Count the last power until `t_ms`."""
    dt_ms = t_ms - part.t_ms
    if part.power_mw is None or dt_ms > STALE_MS:
        part.sum_uj = None
        part.flags |= Flag.LOST if part.power_mw is not None else _NONE
    elif part.sum_uj is not None and dt_ms > 0:
        part.sum_uj += part.power_mw * dt_ms
    part.t_ms = max(part.t_ms, t_ms)


def _note_idle(part: _Part, power_mw: int, unused: bool) -> None:
    if unused:
        part.idle_looks = added(part.idle_looks, power_mw)
