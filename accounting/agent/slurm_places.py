# SPDX-License-Identifier: Apache-2.0
"""Places jobs on this node's devices: Slurm's files and the driver's table, read when asked."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from fairwatt.accounting.agent.device_map import (
    NodeDevices,
    Place,
    Placement,
    map_job,
    places_of_node,
)
from fairwatt.accounting.agent.settings import AgentSettings
from fairwatt.accounting.agent.sharing import (
    ASSUMED,
    MPS_VARIABLE,
    WHOLE,
    Counts,
    Part,
    corrected,
    counts_of_node,
    mps_part,
    parts_of_job,
    with_part,
)
from fairwatt.core.conf_lines import read_conf
from fairwatt.core.errors import ConfigError
from fairwatt.core.events import DeviceHold
from fairwatt.core.gres_conf import gres_of_node, read_gres
from fairwatt.core.mig_minors import read_mig_minors
from fairwatt.core.records import Device

__all__ = ["SlurmPlaces"]

_log = logging.getLogger(__name__)


class SlurmPlaces:
    """Says what a job holds; `minor_of` gives a device file's minor number (tests bring one)."""

    def __init__(self, settings: AgentSettings, minor_of: Callable[[str], int] | None) -> None:
        self._settings = settings
        self._minor_of = minor_of or _device_minor

    def of_job(self, env: Mapping[str, str], devices: Sequence[Device]) -> Placement:
        """Return what the job with this prolog environment holds, parts of boards included."""
        try:
            node = self._node(devices)
            return self._with_parts(map_job(env, node), env, node)
        except ConfigError as error:
            return Placement((), (), "unmapped", str(error))

    def of_node(self, devices: Sequence[Device]) -> list[Place]:
        """Return every device with its position; only the devices if Slurm's files are no help."""
        try:
            return places_of_node(self._node(devices))
        except ConfigError as error:
            _log.error("%s", error)
            return []

    def told(
        self, holds: Sequence[DeviceHold], text: str, devices: Sequence[Device]
    ) -> tuple[DeviceHold, ...] | None:
        """Return the holds as `scontrol show job -d` tells them; None if it does not."""
        try:
            node = self._node(devices)
            parts = parts_of_job(text, self._settings.node, self._counts(node))
        except ConfigError:
            return None
        return None if parts is None else corrected(holds, places_of_node(node), parts)

    def _node(self, devices: Sequence[Device]) -> NodeDevices:
        settings = self._settings
        gres = read_gres(settings.gres_conf, settings.slurm_conf, settings.node)
        return NodeDevices(
            devices=devices,
            gres=gres,
            caps=read_mig_minors(settings.proc_root),
            minor_of=self._minor_of,
            # A prolog waits for this, and slurm.conf may be long.
            configured=self._configured() if gres is None else None,
        )

    def _configured(self) -> int | None:
        conf = self._settings.slurm_conf
        if not conf.exists():  # configless
            return None
        gres = gres_of_node(read_conf(conf), self._settings.node)
        return sum(item.count for item in gres if item.is_gpu) or None

    def _counts(self, node: NodeDevices) -> Counts:
        conf = self._settings.gres_conf
        lines = read_conf(conf) if conf.exists() else ()
        return counts_of_node(lines, self._settings.node, node.gres, len(node.devices))

    def _with_parts(
        self, placement: Placement, env: Mapping[str, str], node: NodeDevices
    ) -> Placement:
        part = mps_part(env)
        if part is not None:
            holds = tuple(with_part(hold, part) for hold in placement.holds)
            return replace(placement, holds=holds)
        parts = self._assumed(placement, "mps" if MPS_VARIABLE in env else "shard", node)
        if all(part == WHOLE for part in parts):
            return placement
        holds = tuple(map(with_part, placement.holds, parts))
        return replace(placement, holds=holds, mapped_by=ASSUMED)

    def _assumed(self, placement: Placement, kind: str, node: NodeDevices) -> list[Part]:
        """Return the least part of each board that is cut so: less than that no job holds."""
        cut = self._counts(node)[kind]
        if not any(cut):
            return [WHOLE] * len(placement.holds)
        position_of = {place.uuid: place.position for place in places_of_node(node)}
        positions = [position_of.get(hold.device) for hold in placement.holds]
        counts = [0 if place is None else cut[place] for place in positions]
        return [Part(1, count) if count else WHOLE for count in counts]


def _device_minor(path: str) -> int:
    return os.minor(os.stat(path).st_rdev)  # noqa: PTH116 -- a device file, not a path to build
