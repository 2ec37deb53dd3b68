# SPDX-License-Identifier: Apache-2.0
"""Which parts of fairwatt a host is expected to run, so that the doctor asks only for those."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from fairwatt.core.config import Config

__all__ = ["Part", "is_expected"]

Part = Literal["policyd", "agent", "collector", "dashboard"]


def is_expected(config: Config, part: Part, detected: Callable[[], bool] = lambda: False) -> bool:
    """Say whether `host.<part>` wants the part here; where it says "detect", ask `detected`."""
    wanted: str = config[f"host.{part}"]
    return detected() if wanted == "detect" else wanted == "yes"
