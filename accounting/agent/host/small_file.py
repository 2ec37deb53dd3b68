# SPDX-License-Identifier: Apache-2.0
"""Numbers in the small files of /sys and /proc, where anything may stand."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["read_small", "whole_number"]

LONGEST = 65_536
MOST_DIGITS = 19
"""What the store can keep has no more; the kernel's own counters of µJ do not come near it."""


def read_small(path: str | Path) -> str:
    """Return what a file holds, at most 64 KiB of it; a pipe in its place is not waited for.

    Without pathlib and buffers: there are some files of every job, at every look.

    Raises:
        OSError: it cannot be read.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return os.read(file, LONGEST).decode("ascii", "replace")
    finally:
        os.close(file)


def whole_number(text: str) -> int | None:
    """Return the number that a text is, blanks around it aside; None for any other text.

    >>> whole_number(" 42 "), whole_number("-1"), whole_number("4_2"), whole_number("9" * 20)
    (42, None, None, None)
    """
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else None
