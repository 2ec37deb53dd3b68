# SPDX-License-Identifier: Apache-2.0
"""How much memory invented runs used, on their GPUs and on their nodes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

from fairwatt.core.catalogue import Catalogue
from fairwatt.dashboard.invent import SeedRun

__all__ = ["gpu_memory_rows", "memory_rows"]

_UNREAD = 0.03
CONTEXT_MIB = 450
"""What a program's mere start takes."""
_GPU_PARTS, _GPU_WEIGHTS = (0.06, 0.15, 0.35, 0.6, 0.85), (10, 15, 25, 30, 20)
_PARTS, _WEIGHTS = (0.05, 0.2, 0.4, 0.7, 0.9), (10, 25, 35, 25, 5)


def gpu_memory_rows(
    measured: Sequence[tuple[int, SeedRun]],
    catalogue: Catalogue,
    uuid_of: Callable[[str, int], str],
) -> Iterator[tuple[int, str, int, int]]:
    """Yield run_gpu_memory rows; an idle run has little more than started."""
    for run_id, run in measured:
        rng = random.Random(run_id)  # noqa: S311 - an invented year, not a secret
        whole_mib = catalogue.memory_mib_of_type(run.pool.type) if run.pool else None
        if whole_mib is None or rng.random() < _UNREAD:
            continue
        part = rng.choices(_GPU_PARTS, _GPU_WEIGHTS)[0] * rng.uniform(0.8, 1.1)
        most = CONTEXT_MIB if run.load[0] < 0.01 else round(whole_mib * part)
        for node, board in sorted({(held.node, held.board) for held in run.held}):
            yield run_id, uuid_of(node, board), most, most * 9 // 10


def memory_rows(
    runs: Sequence[tuple[int, SeedRun]], mem_mib_of: Callable[[SeedRun], int]
) -> Iterator[tuple[int, int]]:
    """Yield run_memory rows of runs that ran; one that was ended for its memory used it all."""
    for run_id, run in runs:
        if run.start_ts is None or run.run_s == 0:
            continue
        rng = random.Random(-run_id)  # noqa: S311 - an invented year, not a secret
        part = rng.choices(_PARTS, _WEIGHTS)[0] * rng.uniform(0.8, 1.1)
        yield run_id, round(mem_mib_of(run) * (1.0 if run.state == "OUT_OF_MEMORY" else part))
