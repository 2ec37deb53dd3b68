# SPDX-License-Identifier: Apache-2.0
"""Turns samples of the devices into readings; notices faults and counters that began again."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from fairwatt.accounting.agent.integrate import PowerIntegrator
from fairwatt.accounting.agent.records import Method, Reading
from fairwatt.accounting.agent.sources import Sample

__all__ = ["CLOCK_BACK", "Meter"]

CLOCK_BACK = (
    "%s: the clock is %.0f s before the end of their last windows: until it has passed that no"
    " window can be closed; what is used meanwhile is then flagged, or unknown"
)

_log = logging.getLogger(__name__)


class Meter:
    """The devices' energy so far; `faults` has what cannot be read now, by place."""

    def __init__(self, boot_id: str) -> None:
        self.faults: dict[str, str] = {}
        self._boot_id = boot_id
        self._integrator = PowerIntegrator()
        self._last: dict[str, Reading] = {}
        self._behind: set[str] = set()

    def readings(self, samples: Iterable[Sample]) -> dict[str, Reading]:
        """Return a reading per device; asking again for the same samples changes nothing."""
        return {sample.device: self._reading(sample) for sample in samples}

    def before_resets(self, readings: dict[str, Reading]) -> list[Reading]:
        """Return the last reading before the reset of each counter that fell since.

        Compared only with a window's start, a counter that restarted could have overtaken its
        old value: then nothing would tell, and what was used before the fall would be lost.
        """
        last = [self._last[uuid] for uuid in readings if uuid in self._last]
        fallen = [before for before in last if _fell(before, readings[before.device])]
        for before in fallen:
            _log.warning("%s: its energy counter began again", before.device)
        self._last |= {uuid: r for uuid, r in readings.items() if r.energy_mj is not None}
        return fallen

    def note_clock(self, device: str, back_ms: int) -> None:
        """Log when the clock is behind a device's last window: once for all devices."""
        if not back_ms:
            self._behind.discard(device)
            return
        if not self._behind:
            _log.warning(CLOCK_BACK, "the GPUs", back_ms / 1000)
        self._behind.add(device)

    def note_fault(self, place: str, fault: str | None) -> None:
        """Log a fault when it appears and when it is over, not at every visit."""
        before = self.faults.pop(place, None)
        if fault is not None:
            self.faults[place] = fault
        if fault is not None and before is None:
            _log.error("%s: %s; amounts are unknown until it answers again", place, fault)
        elif fault is None and before is not None:
            _log.warning("%s answers again", place)

    def _reading(self, sample: Sample) -> Reading:
        self.note_fault(sample.device, sample.fault)
        if sample.energy_mj is not None:
            return self._made(sample, sample.energy_mj, "counter")
        if sample.power_mw is not None:
            energy_mj = self._integrator.energy_mj(sample.device, sample.t_ms, sample.power_mw)
            return self._made(sample, energy_mj, "integrated")
        self._integrator.forget(sample.device)
        return self._made(sample, None, "none")

    def _made(self, sample: Sample, energy_mj: int | None, method: Method) -> Reading:
        return Reading(
            device=sample.device,
            t_ms=sample.t_ms,
            energy_mj=energy_mj,
            method=method,
            boot_id=self._boot_id,
        )


def _fell(last: Reading, now: Reading) -> bool:
    if last.energy_mj is None or now.energy_mj is None or last.method != now.method:
        return False
    return now.energy_mj < last.energy_mj
