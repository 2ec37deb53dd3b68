# SPDX-License-Identifier: Apache-2.0
"""What the agent needs from a GPU library; `nvml.py` gives it, tests give their own."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fairwatt.accounting.agent.extras import NO_EXTRAS, Extras
from fairwatt.core.records import Device

__all__ = ["MemoryUse", "Observation", "Sample", "Source", "Utilisation"]

Utilisation = Mapping[str, Mapping[str, int]]
"""By device UUID, then MIG UUID ("" = board): utilisation in thousandths; absent = unknown."""


MemoryUse = Mapping[str, Mapping[str, int]]
"""By device UUID, then MIG UUID ("" = board): memory in use in MiB; absent = unknown."""


@dataclass(frozen=True)
class Sample:
    """One look at a device at `t_ms`: counter in mJ and power in mW, each None if not offered.

    `fault` is the library's message if the device could not be read at all.
    """

    device: str
    t_ms: int
    energy_mj: int | None = None
    power_mw: int | None = None
    fault: str | None = None


class Source(Protocol):
    """Devices of this node; every method may be slow, and is called from one thread only."""

    def devices(self) -> tuple[Device, ...]:
        """Return the GPUs with their MIG instances as they are now.

        Raises:
            DeviceError: no GPU library, or its driver is not loaded.
        """

    def driver_version(self) -> str:
        """Return the driver's version, "" where it cannot be told. Never raises."""

    def read(self, devices: Sequence[str]) -> list[Sample]:
        """Return one sample per device UUID; a lost device has `fault` set. Never raises."""

    def utilisation(self, devices: Sequence[str]) -> Utilisation:
        """Return what is known about utilisation now. Never raises."""

    def clocks(self, devices: Sequence[str]) -> Mapping[str, int]:
        """Return the SM clocks in MHz that can be read now, by device. Never raises."""

    def memory(self, devices: Sequence[str]) -> MemoryUse:
        """Return the memory in use that can be read now. Never raises."""

    def extras(self, devices: Sequence[str], shared: Collection[str]) -> Extras:
        """Return what is asked for at regular samples alone; `shared` have several jobs.

        Never raises.
        """


@dataclass(frozen=True)
class Observation:
    """What one visit to the source gave; `devices` None: it could not be asked, see `fault`.

    `clocks`, `memory` and `extras` are asked for at regular samples only; `driver` is the
    driver's version, told with the devices.
    """

    devices: tuple[Device, ...] | None
    samples: tuple[Sample, ...] = ()
    utils: Utilisation | None = None
    fault: str | None = None
    clocks: Mapping[str, int] = field(default_factory=dict)
    memory: MemoryUse = field(default_factory=dict)
    extras: Extras = NO_EXTRAS
    driver: str = ""
