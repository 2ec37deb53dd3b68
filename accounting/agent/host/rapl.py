# SPDX-License-Identifier: Apache-2.0
"""The energy counters of CPU packages and DRAM that the kernel shows under powercap (RAPL).

Only `package-*` and the `dram` inside are read: psys, core and uncore overlap the package.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fairwatt.accounting.agent.host.small_file import read_small, whole_number
from fairwatt.accounting.agent.host.source import Reading
from fairwatt.core.clock import now_ms
from fairwatt.core.config import Config

__all__ = ["RaplSource", "source"]

LEAST_MAX_MW = 500_000
"""What firmware names is often the sustained power, which a package passes for seconds."""
HIGHEST_MW = 2_000_000
LOOK_S = 60.0
_PACKAGE = re.compile(r"package-(\d+)(?:-die-(\d+))?")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Zone:
    part: str
    folder: Path
    wrap_uj: int | None
    max_mw: int


class RaplSource:
    """Reads the zones below `powercap`.

    They are looked for again once a minute: their driver may be loaded after the agent.
    """

    name = "rapl"
    slow = False

    def __init__(self, powercap: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._powercap = powercap
        self._clock = clock
        self._zones: tuple[_Zone, ...] = ()
        self._refused = False
        self._look()

    @property
    def parts(self) -> list[str]:
        """Return the parts that this host has."""
        return [zone.part for zone in self._zones]

    def read(self) -> list[Reading]:
        """Return a reading of each zone; one that may not be read has a fault."""
        if self._clock() >= self._due_s:
            self._look()
        t_ms = now_ms()
        return [self._read(zone, t_ms) for zone in self._zones]

    def _look(self) -> None:
        """Add the zones that are new; one that went stays, and has a fault."""
        self._due_s = self._clock() + LOOK_S
        known = {zone.part for zone in self._zones}
        new = tuple(zone for zone in _zones(self._powercap) if zone.part not in known)
        self._zones += new

    def _read(self, zone: _Zone, t_ms: int) -> Reading:
        path = zone.folder / "energy_uj"
        try:
            text = read_small(path)
        except PermissionError:
            self._refuse(path)
            return Reading(zone.part, t_ms, fault=f"{path} is readable by root only")
        except OSError as error:
            return Reading(zone.part, t_ms, fault=f"{path}: {error.strerror}")
        energy_uj = whole_number(text)
        if energy_uj is None:
            return Reading(zone.part, t_ms, fault=f"{path}: no energy in µJ (got {text[:40]!r})")
        return Reading(zone.part, t_ms, energy_uj, zone.wrap_uj, max_mw=zone.max_mw)

    def _refuse(self, path: Path) -> None:
        """Since Linux 5.10 only root may read the counters: say so once, for all zones."""
        if not self._refused:
            self._refused = True
            _log.error(
                "%s may not be read: the energy of CPUs and DRAM is unknown; run the agent as"
                " root or with CAP_DAC_READ_SEARCH",
                path,
            )


def source(config: Config) -> RaplSource | None:
    """Return the source of this host, None where its kernel has no powercap at all."""
    powercap = Path(config["agent.sys_root"]) / "class" / "powercap"
    return RaplSource(powercap) if powercap.is_dir() else None


def _zones(powercap: Path) -> Iterator[_Zone]:
    """Yield each package and its DRAM; where two drivers show one package, the first's."""
    seen: set[str] = set()
    for folder in sorted(powercap.glob("intel-rapl:*")):
        match = _PACKAGE.fullmatch(_text(folder / "name"))
        if match is None:
            continue
        number, die = match.groups()
        suffix = number if die is None else f"{number}d{die}"
        inner = [
            sub for sub in sorted(folder.glob("intel-rapl:*")) if _text(sub / "name") == "dram"
        ]
        for part, place in [
            ("cpu" + suffix, folder),
            *(("dram" + suffix, sub) for sub in inner[:1]),
        ]:
            if part not in seen:
                seen.add(part)
                yield _Zone(part, place, _number(place / "max_energy_range_uj"), _max_mw(place))


def _text(path: Path) -> str:
    try:
        return read_small(path).strip()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    return whole_number(_text(path)) or None


def _max_mw(folder: Path) -> int:
    """Return the most that a zone can draw. Firmware names it, or gives 0, or "no limit"."""
    found = [_number(path) or 0 for path in folder.glob("constraint_*_max_power_uw")]
    named = [power_uw // 1000 for power_uw in found if power_uw // 1000 <= HIGHEST_MW]
    return max([LEAST_MAX_MW, *named])
