# SPDX-License-Identifier: Apache-2.0
"""GPU entries of jobs, at random, for tests of what holds whatever is asked."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from fairwatt.core.records import GpuAsk

__all__ = ["LEVELS", "gpu_asks"]

LEVELS = ("node", "job", "task", "socket")


def gpu_asks(
    types: Sequence[str | None],
    *,
    most: int = 8,
    levels: Sequence[str] = LEVELS,
    entries: tuple[int, int] = (0, 2),
) -> st.SearchStrategy[tuple[GpuAsk, ...]]:
    """Entries of these types, each with a count from 0 to `most`; how many is within `entries`."""
    entry = st.builds(
        GpuAsk,
        level=st.sampled_from(levels),
        type=st.sampled_from(types),
        count=st.integers(0, most),
    )
    return st.lists(entry, min_size=entries[0], max_size=entries[1]).map(tuple)
