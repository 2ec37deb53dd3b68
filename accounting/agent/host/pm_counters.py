# SPDX-License-Identifier: Apache-2.0
"""The energy counters of Cray's blade controller in /sys/cray/pm_counters, in whole joules.

They are renewed ten times a second, all at once: `freshness` counts the times. The node's
energy includes its GPUs'; their own files (accel*_energy) are not read: NVML has millijoules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from fairwatt.accounting.agent.host.bmc import MOST_W
from fairwatt.accounting.agent.host.small_file import read_small
from fairwatt.accounting.agent.host.source import Reading
from fairwatt.core.clock import now_ms
from fairwatt.core.config import Config

__all__ = ["PmCountersSource", "source"]

TRIES = 3
STALE_MS = 5_000
"""Ten times a second is promised; a counter that stands so long is of a dead controller."""
_FILE = re.compile(r"(?:(cpu|memory)(\d*)_)?energy")
_ENERGY = re.compile(r"(\d{1,12}) J(?: \d+ us)?")
_PARTS = {"cpu": "cpu", "memory": "dram", None: "node"}


class PmCountersSource:
    """Reads the files of `folder`, which are looked for once."""

    name = "pm_counters"
    slow = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = dict(_files(folder))
        self._fresh: tuple[str, int] | None = None

    @property
    def parts(self) -> list[str]:
        """Return the parts that this node's controller measures."""
        return list(self._files)

    def read(self) -> list[Reading]:
        """Return a reading of each part, all of one renewal; never raises."""
        for _ in range(TRIES):
            t_ms, before = now_ms(), self._freshness()
            readings = [self._reading(part, path, t_ms) for part, path in self._files.items()]
            if self._freshness() == before:
                break
        if self._is_stale(before, t_ms):
            fault = f"{self._folder}: the blade controller renews its counters no more"
            return [Reading(part, t_ms, fault=fault) for part in self._files]
        return readings

    def _freshness(self) -> str:
        """Return the number of the renewal without the time that some put behind it."""
        try:
            text = read_small(self._folder / "freshness")
        except OSError:
            return ""
        return text.strip().partition(" ")[0]

    def _is_stale(self, freshness: str, t_ms: int) -> bool:
        """Say whether `freshness` has stood still; a node that has no such file is not judged."""
        if self._fresh is None or self._fresh[0] != freshness or t_ms < self._fresh[1]:
            self._fresh = (freshness, t_ms)
        return bool(freshness) and t_ms - self._fresh[1] > STALE_MS

    @staticmethod
    def _reading(part: str, path: Path, t_ms: int) -> Reading:
        try:
            text = read_small(path).strip()
        except OSError as error:
            return Reading(part, t_ms, fault=f"{path}: {error.strerror}")
        match = _ENERGY.fullmatch(text)
        if match is None:
            return Reading(part, t_ms, fault=f"{path}: no energy in joules (got {text[:40]!r})")
        return Reading(part, t_ms, 1_000_000 * int(match[1]), max_mw=1000 * MOST_W)


def source(config: Config) -> PmCountersSource | None:
    """Return the source of this host, None where it is no Cray."""
    found = PmCountersSource(Path(config["agent.sys_root"]) / "cray" / "pm_counters")
    return found if found.parts else None


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield each part with its file; a file for all packages goes before one for each."""
    found = [
        (match, path) for path in folder.glob("*energy") if (match := _FILE.fullmatch(path.name))
    ]
    whole = {match[1] for match, _ in found if not match[2]}
    for match, path in sorted(found, key=lambda item: item[1].name):
        if not match[2] or match[1] not in whole:
            yield _PARTS[match[1]] + (match[2] or ""), path
