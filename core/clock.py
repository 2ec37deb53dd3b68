# SPDX-License-Identifier: Apache-2.0
"""The time of day by this host's clock, in the unit of all events."""

from __future__ import annotations

import time

__all__ = ["now_ms"]


def now_ms() -> int:
    """Return the time in UTC epoch milliseconds; it leaps where the host's clock is set."""
    return time.time_ns() // 1_000_000
