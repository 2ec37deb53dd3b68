# SPDX-License-Identifier: Apache-2.0
"""What was seen of the boards becomes windows of the ledger: readings, samples, idle power.

It decides nothing about runs; the keeper does, and says which windows are to be closed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec

from fairwatt.accounting.agent.idle_power import (
    basis_of,
    can_be_idle,
    learnt_mw,
    listed_power,
    mean_mw,
    with_look,
)
from fairwatt.accounting.agent.journal import Journal
from fairwatt.accounting.agent.meter import Meter
from fairwatt.accounting.agent.records import Entry, IdleLook, Origin, Reading
from fairwatt.accounting.agent.sampled import Sampled
from fairwatt.accounting.agent.sources import Observation
from fairwatt.accounting.agent.windows import (
    BoardPower,
    back_by_ms,
    close_windows,
    reboot_windows,
    snapped,
)
from fairwatt.core.catalogue import Catalogue
from fairwatt.core.events import WindowClosed
from fairwatt.core.records import Device

__all__ = ["BoardWindows"]


class BoardWindows:
    """The open windows of all boards; `devices` are those that NVML showed last.

    Args:
        origin: stamps the events.
        journal: the node's, whose state is read.
        catalogue: the known models.
        steady_ms: milliseconds on a clock that nobody sets.
        commit: puts entries in the journal.
    """

    def __init__(
        self,
        origin: Origin,
        journal: Journal,
        catalogue: Catalogue,
        steady_ms: Callable[[], int],
        commit: Callable[[Iterable[Entry]], object],
    ) -> None:
        self.devices: Mapping[str, Device] = {}
        self.meter = Meter(origin.boot_id)
        self._origin = origin
        self._journal = journal
        self._catalogue = catalogue
        self._steady_ms = steady_ms
        self._commit = commit
        self._driver = ""
        self._sampled = Sampled()
        self._resumed: set[str] = set()
        self._began: dict[str, tuple[int, str]] = {}

    def resume(self, boot_ms: int) -> None:
        """Take up the windows as they were left; those of an earlier boot ended at `boot_ms`."""
        state = self._journal.state
        self._commit(reboot_windows(state, self._origin, boot_ms))
        self._commit(
            Entry(reading=msgspec.structs.replace(reading, energy_mj=None))
            for reading in list(state.baselines.values())
            if reading.method == "integrated"
        )
        self._resumed = set(state.baselines)

    def take_devices(self, devices: Mapping[str, Device], driver: str) -> None:
        """Take over a new enumeration."""
        self.devices, self._driver = devices, driver

    def note(self, seen: Observation, *, at_hook: bool = False) -> None:
        """Take the samples of a look."""
        self._sampled.note(seen, self.devices, self._journal.state.runs, at_hook=at_hook)

    def readings(self, seen: Observation | None) -> dict[str, Reading]:
        """Return a reading of each device in a look."""
        return self.meter.readings(seen.samples if seen else ())

    def catch_resets(self, readings: dict[str, Reading]) -> set[str]:
        """Close windows of counters that fell with the reading before; return the devices."""
        fallen = self.meter.before_resets(readings)
        for last in fallen:
            self._commit(self._closed(last))
        return {last.device for last in fallen}

    def closing(
        self, seen: Observation | None, devices: Collection[str], *, border_ms: int | None = None
    ) -> list[Entry]:
        """Return the entries that close the windows of `devices` as far as they were read."""
        readings = self.readings(seen)
        self.catch_resets(readings)
        entries: list[Entry] = []
        for uuid in sorted(devices):
            if uuid in readings:
                back_ms = back_by_ms(self._journal.state, readings[uuid])
                self.meter.note_clock(uuid, back_ms)
                if back_ms:
                    self._resumed.add(uuid)  # no window can tell the stretch apart: as a gap
                entries += self._closed(snapped(readings[uuid], border_ms))
        return entries

    def begin(self, reading: Reading) -> None:
        """A window of the reading's device begins with it, as is written in the journal."""
        self._resumed.discard(reading.device)
        self._sampled.usage.open(reading.device, reading.t_ms)
        self._began[reading.device] = self._steady_ms(), self._basis(reading.device)

    def status(self) -> dict[str, Any]:
        """Return for `status` which counters are doubtful, and each board's idle power."""
        return {
            "doubtful": self._sampled.check.status(),
            "idle_power": {uuid: self._idle_status(uuid) for uuid in sorted(self.devices)},
        }

    def _closed(self, reading: Reading) -> list[Entry]:
        usage, uuid = self._sampled.usage, reading.device
        entries = close_windows(
            self._journal.state,
            reading,
            self._origin,
            self._power(uuid),
            usage.means(uuid),
            usage.clock_mhz(uuid),
            usage.memory(uuid),
            resumed=uuid in self._resumed,
            doubt=self._sampled.check.flag(uuid),
        )
        return self._taught(entries, uuid) if len(entries) == 1 else entries

    # -- idle power ----------------------------------------------------------------------------

    def _basis(self, uuid: str) -> str:
        """Return on what a board's idle power is learnt, "" where that cannot be told."""
        device = self.devices.get(uuid)
        return basis_of(device, self._driver) if device is not None and self._driver else ""

    def _power(self, uuid: str) -> BoardPower:
        """Return the power of a board: its idle power as learnt, else as the catalogue says."""
        listed = listed_power(self.devices.get(uuid), self._catalogue)
        learnt = learnt_mw(self._journal.state.idle.get(uuid), self._basis(uuid), listed)
        return listed if learnt is None else BoardPower(learnt, listed.max_mw)

    def _taught(self, entries: list[Entry], uuid: str) -> list[Entry]:
        """Return the entries of one window with what it teaches of the board's idle power."""
        window, device, began = entries[0].event, self.devices.get(uuid), self._began.get(uuid)
        if not isinstance(window, WindowClosed) or device is None or began is None:
            return entries
        began_ms, basis = began
        runs = self._journal.state.runs
        if not basis or basis != self._basis(uuid) or not can_be_idle(device, runs):
            return entries
        listed = listed_power(device, self._catalogue)
        elapsed_ms = self._steady_ms() - began_ms
        power_mw = mean_mw(window, self._sampled.usage.means(uuid), elapsed_ms, listed)
        if power_mw is None:
            return entries
        look = IdleLook(device=uuid, basis=basis, t_ms=window.t1_ms, mean_mw=power_mw)
        return with_look(entries, look)

    def _idle_status(self, uuid: str) -> dict[str, Any]:
        looks, power = self._journal.state.idle.get(uuid), self._power(uuid)
        if looks is not None and looks.basis != self._basis(uuid):
            looks = None
        listed = listed_power(self.devices.get(uuid), self._catalogue)
        learnt = learnt_mw(looks, self._basis(uuid), listed) is not None
        return {
            "mw": power.idle_mw,
            "by": "unknown" if power.idle_mw is None else "learnt" if learnt else "catalogue",
            "looks": len(looks.means_mw) if looks else 0,
            "since_ms": looks.since_ms if looks else None,
            "catalogue_mw": listed.idle_mw,
        }
