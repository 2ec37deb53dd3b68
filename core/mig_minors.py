# SPDX-License-Identifier: Apache-2.0
"""The driver's table of capability device minors: which /dev/nvidia-caps file is which GI, CI."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CapMinors", "parse_mig_minors", "read_mig_minors"]

_LINE = re.compile(r"gpu(\d+)/gi(\d+)(?:/ci(\d+))?/access\s+(\d+)")


@dataclass(frozen=True)
class CapMinors:
    """Cap device minor → (GPU minor, GI), or → (GPU minor, GI, CI)."""

    gpu_instances: Mapping[int, tuple[int, int]]
    compute_instances: Mapping[int, tuple[int, int, int]]


def parse_mig_minors(text: str) -> CapMinors:
    """Read the table; lines of other kinds (`config 1`, `monitor 2`) do not matter."""
    gis: dict[int, tuple[int, int]] = {}
    cis: dict[int, tuple[int, int, int]] = {}
    for gpu, gi, ci, minor in _LINE.findall(text):
        if ci:
            cis[int(minor)] = (int(gpu), int(gi), int(ci))
        else:
            gis[int(minor)] = (int(gpu), int(gi))
    return CapMinors(gis, cis)


def read_mig_minors(proc_root: Path) -> CapMinors:
    """Read the table of the running driver; empty without a driver that has one."""
    try:
        path = proc_root / "driver" / "nvidia-caps" / "mig-minors"
        return parse_mig_minors(path.read_text(encoding="ascii", errors="replace"))
    except OSError:
        return CapMinors({}, {})
