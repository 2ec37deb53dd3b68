# SPDX-License-Identifier: Apache-2.0
"""A node's boards and GPU instances as the driver shows them; plain data, read elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fairwatt.core.catalogue import Catalogue, GpuModel
from fairwatt.core.mig_minors import CapMinors
from fairwatt.prolog.mig.layout import Placed

__all__ = ["LiveGpu", "LiveInstance", "LiveNode", "cap_table"]


@dataclass(frozen=True)
class LiveInstance:
    """A GPU instance; `ci` and `uuid` are its first compute instance's, None when it has none.

    `profile` is the catalogue's name (`1g.5gb+me`); None when the catalogue has none such. Of a
    board whose library tells no placements `start` is None.
    """

    gi: int
    profile: str | None
    start: int | None = None
    ci: int | None = None
    uuid: str | None = None
    slices: int | None = None
    memory_mib: int | None = None

    @property
    def seen_profile(self) -> str:
        """The profile as slurmd works it out from NVML's slices and memory."""
        if self.slices is None or self.memory_mib is None:
            return self.profile or "unknown"
        # roundl() rounds halves up, Python's round() to even.
        return f"{self.slices}g.{int(self.memory_mib / 1024 + 0.5)}gb"


@dataclass(frozen=True)
class LiveGpu:
    """A board: NVML's name for it, its device minor (N of /dev/nvidiaN), MIG on or off.

    `mig_pending` is the mode after the next reset, where it differs from now.
    """

    uuid: str
    minor: int
    name: str
    memory_mib: int | None = None
    mig: bool = False
    instances: tuple[LiveInstance, ...] = ()
    mig_pending: bool | None = None

    def model(self, catalogue: Catalogue) -> GpuModel | None:
        """Return the catalogue's model of this board; None when it knows none."""
        return catalogue.model_of_name(self.name, self.memory_mib)

    @property
    def placed(self) -> tuple[Placed, ...] | None:
        """The GPU instances by first memory slice; None when a profile or place is unknown."""
        found = [
            Placed(each.profile, each.start)
            for each in self.instances
            if each.profile is not None and each.start is not None
        ]
        if len(found) != len(self.instances):
            return None
        return tuple(sorted(found, key=lambda each: (each.start, each.profile)))


@dataclass(frozen=True)
class LiveNode:
    """All boards of a node; `caps` is the driver's table of capability device minors.

    Its keys are (device minor of the board, GI, CI), with CI None for the GI's own file.
    """

    node: str
    gpus: tuple[LiveGpu, ...]
    caps: Mapping[tuple[int, int, int | None], int] = field(default_factory=dict)


def cap_table(minors: CapMinors) -> dict[tuple[int, int, int | None], int]:
    """Turn the driver's table (cap minor to instance) round."""
    table: dict[tuple[int, int, int | None], int] = {
        (gpu, gi, None): cap for cap, (gpu, gi) in minors.gpu_instances.items()
    }
    table |= {(gpu, gi, ci): cap for cap, (gpu, gi, ci) in minors.compute_instances.items()}
    return table
