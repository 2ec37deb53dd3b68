# SPDX-License-Identifier: Apache-2.0
"""Waiting for a condition, with a deadline; nothing in the lab sleeps for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["LabError", "await_value"]

T = TypeVar("T")


class LabError(Exception):
    """The one-host cluster did not do what was awaited; the message shows the log's tail."""


def await_value(
    probe: Callable[[], T | None],
    *,
    what: str,
    timeout_s: float,
    detail: Callable[[], str] = str,
    interval_s: float = 0.02,
) -> T:
    """Call `probe` until it answers something true and return that.

    Raises:
        LabError: `timeout_s` went by; the message has `what` and the text of `detail()`.
    """
    end = time.monotonic() + timeout_s
    while True:
        value = probe()
        if value:
            return value
        if time.monotonic() >= end:
            raise LabError(f"{what}: not within {timeout_s:g} s\n{detail()}")
        time.sleep(interval_s)
