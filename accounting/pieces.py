# SPDX-License-Identifier: Apache-2.0
"""What joins a node's windows to a run: the run on a node, and its part of a window."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["AND_EARLIER", "UNSETTLE_FROM", "NodeRun", "Piece"]

NodeRun = tuple[str, int, int]
"""Node, job id, and when its prolog ran there in epoch milliseconds."""


UNSETTLE_FROM = "INSERT INTO unsettled (node, job_id, start_ms, from_ms)"
"""Runs on nodes that are to be settled anew from a time on; 0: from their beginning."""

AND_EARLIER = "ON CONFLICT DO UPDATE SET from_ms = min(from_ms, excluded.from_ms)"
"""Ends an UNSETTLE_FROM; one with a SELECT needs a WHERE before it."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One run's part of one window of one hold."""

    device: str
    t0_ms: int
    t1_ms: int
    idle_mj: int
    active_mj: int
    util_permille: int | None
    instance: str = ""
    clock_mhz: int | None = None
