# SPDX-License-Identifier: Apache-2.0
"""What the agent writes down: readings, who held what and when, journal entries."""

from __future__ import annotations

from typing import Literal

import msgspec

from fairwatt.core.events import DeviceHold, Event

__all__ = ["Entry", "Method", "Origin", "Reading", "TimedHold"]

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


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One journal line: an event for the collector, a device's new baseline, or both at once.

    A closed window carries the reading it ended with: one line, so neither is ever alone.
    """

    event: Event | None = None
    reading: Reading | None = None
