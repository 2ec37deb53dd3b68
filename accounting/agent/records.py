# SPDX-License-Identifier: Apache-2.0
"""What the agent writes down: readings, who held what and when, journal entries."""

from __future__ import annotations

from typing import Literal

import msgspec

from fairwatt.core.events import DeviceHold, Event, RunStarted

__all__ = [
    "EndedRun",
    "Entry",
    "HostMark",
    "IdleLook",
    "IdleLooks",
    "Method",
    "Origin",
    "Reading",
    "TimedHold",
    "UseMark",
]

Method = Literal["counter", "integrated", "none"]
"""Where an energy comes from: NVML's counter, integrated power samples, or nowhere."""


class Origin(msgspec.Struct, frozen=True):
    """What stamps this node's events."""

    node: str
    boot_id: str


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """A device's energy so far in mJ at a time; None where it could not be read."""

    device: str
    t_ms: int
    energy_mj: int | None
    method: Method
    boot_id: str


class TimedHold(msgspec.Struct, frozen=True, kw_only=True):
    """A run's hold on a device from a time until another (None: still)."""

    job_id: int
    run_start_ms: int
    hold: DeviceHold
    from_ms: int
    until_ms: int | None = None


class EndedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that ended since the host's last windows: they owe it a part."""

    run: RunStarted
    until_ms: int


class HostMark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of the host at the end of its last window; its counter in µJ, None: not known.

    `rest_uj` < 1000 is what was read but not counted yet; `idle_mw` the least that the part was
    seen to draw while no job ran, but for the least looks of many.
    """

    device: str
    t_ms: int
    energy_uj: int | None
    method: str
    boot_id: str
    rest_uj: int = 0
    idle_mw: int | None = None


class UseMark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """CPU time in µs at the end of the last windows: of (job, run start), all jobs, the system."""

    t_ms: int
    runs: tuple[tuple[int, int, int], ...] = ()
    all_jobs_us: int | None = None
    system_us: int | None = None


class IdleLook(msgspec.Struct, frozen=True, kw_only=True):
    """A board's mean power in a window until `t_ms` in which nobody used it.

    `basis` names model, MIG mode and driver: it says nothing of another.
    """

    device: str
    basis: str
    t_ms: int
    mean_mw: int


class IdleLooks(msgspec.Struct, kw_only=True):
    """The latest looks at a board on one basis; the first of them all was at `since_ms`."""

    basis: str
    since_ms: int
    until_ms: int
    means_mw: list[int]


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One journal line: an event for the collector, a device's new baseline, or both at once.

    A closed window carries the reading it ended with: one line, so neither is ever alone. For a
    part of the host that is `host`; with the last of them comes `uses`. `look` is what the window
    taught of the board's idle power.
    """

    event: Event | None = None
    reading: Reading | None = None
    host: HostMark | None = None
    uses: UseMark | None = None
    look: IdleLook | None = None
