# SPDX-License-Identifier: Apache-2.0
"""What was sampled of each device since its window opened, from all that was seen of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairwatt.accounting.agent.extras import utils_of
from fairwatt.accounting.agent.power_check import PowerCheck
from fairwatt.accounting.agent.sources import Observation
from fairwatt.accounting.agent.usage import Usage
from fairwatt.core.events import RunStarted
from fairwatt.core.records import Device

__all__ = ["Sampled"]


class Sampled:
    """Utilisation, clocks and memory by window, and whether counters agree with their power."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.check = PowerCheck()

    def note(
        self,
        seen: Observation,
        devices: Mapping[str, Device],
        runs: Sequence[RunStarted],
        *,
        at_hook: bool = False,
    ) -> None:
        """Take a look at the devices; at a hook only GPM's utilisation.

        GPM gives the mean since the last sample; a rate of this very moment would say "idle" of
        a job that has just ended.
        """
        for sample in seen.samples if seen.utils is not None else ():
            uuid = sample.device
            device = devices.get(uuid)
            if device is not None and (device.mig_enabled or not at_hook):
                utils = utils_of(uuid, (seen.utils or {}).get(uuid, {}), seen.extras, runs)
                clock_mhz, used_mib = seen.clocks.get(uuid), seen.memory.get(uuid)
                self.usage.add(uuid, sample.t_ms, utils, clock_mhz, used_mib)
            power_mw = seen.extras.powers.get(uuid)
            if sample.energy_mj is not None and power_mw is not None:
                self.check.add(uuid, sample.t_ms, sample.energy_mj, power_mw)
