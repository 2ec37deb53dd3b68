# SPDX-License-Identifier: Apache-2.0
"""Which CPUs belong to which package and die of this host, and how much memory it has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Topology", "cpu_list", "read_topology"]

_PART = re.compile(r"(?:cpu|dram)(\d+)?(?:d(\d+))?")
_MEM_TOTAL = re.compile(r"^MemTotal:[ \t]+(\d{1,15}) kB$", re.MULTILINE)
_RANGE = re.compile(r"(\d{1,5})(?:-(\d{1,5})?)?")


@dataclass(frozen=True)
class Topology:
    """The host's logical CPUs by (package, die), how many cores they are, its memory in bytes."""

    places: dict[int, tuple[int, int]]
    cores: int
    memory_bytes: int | None

    @property
    def all_cpus(self) -> frozenset[int]:
        """Return all CPUs."""
        return frozenset(self.places)

    def cpus_of(self, part: str) -> frozenset[int]:
        """Return the CPUs of a part such as cpu0, dram0, cpu0d1 or cpu; of others, all."""
        match = _PART.fullmatch(part)
        if match is None or match.group(1) is None:
            return self.all_cpus
        package, die = int(match.group(1)), match.group(2)
        found = frozenset(
            cpu
            for cpu, place in self.places.items()
            if place[0] == package and die in (None, str(place[1]))
        )
        return found or self.all_cpus


def read_topology(sys_root: Path, proc_root: Path) -> Topology:
    """Read it from sysfs and /proc/meminfo; what cannot be read is absent."""
    places: dict[int, tuple[int, int]] = {}
    cores: set[tuple[int, int, int]] = set()
    for cpu, folder in _cpus(sys_root / "devices" / "system" / "cpu"):
        place = (_number(folder / "physical_package_id"), _number(folder / "die_id"))
        places[cpu] = place
        cores.add((*place, _number(folder / "core_id")))
    return Topology(places, len(cores), _memory(proc_root / "meminfo"))


def cpu_list(text: str) -> frozenset[int]:
    """Return the CPUs of the kernel's list format: `0-3,8` is 0, 1, 2, 3, 8; others are none."""
    cpus: set[int] = set()
    for item in text.strip().split(","):
        match = _RANGE.fullmatch(item)
        if match is None:
            return frozenset()
        first, last = match.groups()
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def _cpus(folder: Path) -> Iterator[tuple[int, Path]]:
    for path in folder.glob("cpu[0-9]*/topology"):
        name = path.parent.name.removeprefix("cpu")
        if name.isdigit():
            yield int(name), path


def _number(path: Path) -> int:
    """Old kernels name no die, and some machines no package (-1): that is the first."""
    try:
        return max(0, int(path.read_bytes()))
    except (OSError, ValueError):
        return 0


def _memory(path: Path) -> int | None:
    try:
        found = _MEM_TOTAL.search(path.read_text(encoding="ascii", errors="replace"))
    except OSError:
        return None
    return int(found.group(1)) * 1024 if found else None
