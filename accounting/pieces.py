# SPDX-License-Identifier: Apache-2.0
"""What joins a node's windows to a run: the run on a node, and its part of a window."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NodeRun", "Piece"]

NodeRun = tuple[str, int, int]
"""Node, job id, and when its prolog ran there in epoch milliseconds."""


@dataclass(frozen=True)
class Piece:
    """One run's part of one window of one hold; energies None where the window is unknown."""

    device: str
    t0_ms: int
    t1_ms: int
    idle_mj: int | None
    active_mj: int | None
    util_permille: int | None
    flags: int
    method: str
    instance: str = ""
    clock_mhz: int | None = None
