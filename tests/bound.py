# SPDX-License-Identifier: Apache-2.0
"""A bound for every test: what hangs fails where it hangs, with its traceback."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

__all__ = ["bounded", "limit_s"]

QUICK_S, SLOW_S = 180.0, 1_800.0
"""Many times what the longest takes on two busy cores; booted nodes first build their roots."""
_HERE = Path(__file__).parent
_QUICK = (_HERE / "unit", _HERE / "docs")


def limit_s(path: Path) -> float:
    """Return how long the set-up, the body or the end of a test in this file may each take."""
    return QUICK_S if any(path.is_relative_to(folder) for folder in _QUICK) else SLOW_S


@contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Fail what runs within after `seconds`; only in the main thread, where pytest runs tests."""

    def end(_number: int, _frame: FrameType | None) -> None:
        pytest.fail(f"hangs: not ended within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
