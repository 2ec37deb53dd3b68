# SPDX-License-Identifier: Apache-2.0
"""GPU entries and sizes of jobs, at random, for tests of what holds whatever is asked."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from fairwatt.core.records import GpuAsk

__all__ = ["LEVELS", "gpu_asks", "sizes"]

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


def sizes(few: int, many: int, mem_mib: int) -> dict[str, st.SearchStrategy[int | None]]:
    """Nodes up to `few`, tasks and CPUs up to `many`, memory, each perhaps not said."""
    at_most = {
        **dict.fromkeys(("ntasks_per_node", "min_nodes", "max_nodes"), st.integers(1, few)),
        **dict.fromkeys(("num_tasks", "cpus_per_task", "cpus_per_gpu"), st.integers(1, many)),
        **dict.fromkeys(("min_cpus", "min_cpus_per_node"), st.integers(1, many)),
        **dict.fromkeys(
            ("mem_per_node_mib", "mem_per_cpu_mib", "mem_per_gpu_mib"), st.integers(0, mem_mib)
        ),
    }
    return {name: st.none() | numbers for name, numbers in at_most.items()}
