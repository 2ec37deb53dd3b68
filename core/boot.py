# SPDX-License-Identifier: Apache-2.0
"""Which boot of the kernel this is, and when it began."""

from __future__ import annotations

import re
from pathlib import Path

from fairwatt.core.errors import DeviceError

__all__ = ["read_boot_id", "read_boot_ms"]

REAL_PROC = Path("/proc")


def read_boot_id(proc_root: Path) -> str:
    """Return the kernel's id of this boot; a test's tree without one takes the real one.

    Raises:
        DeviceError: there is none.
    """
    for root in (proc_root, REAL_PROC):
        try:
            text = (root / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if text:
            return text
    raise DeviceError(
        "no boot id", place=f"{proc_root}/sys/kernel/random/boot_id", remedy="mount /proc"
    )


def read_boot_ms(proc_root: Path) -> int | None:
    """Return when this boot began (UTC epoch milliseconds); None if the kernel does not say."""
    for root in (proc_root, REAL_PROC):
        try:
            text = (root / "stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            continue
        match = re.search(r"^btime (\d+)$", text, re.MULTILINE)
        if match:
            return int(match[1]) * 1000
    return None
