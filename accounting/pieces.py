# SPDX-License-Identifier: Apache-2.0
"""What joins a node's windows to a run: the run on a node, and its part of a window."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["AND_EARLIER", "SHARES_ON_DEVICE", "UNSETTLE_FROM", "NodeRun", "Piece"]

NodeRun = tuple[str, int, int]
"""Node, job id, and when its prolog ran there in epoch milliseconds."""


UNSETTLE_FROM = "INSERT INTO unsettled (node, job_id, start_ms, from_ms)"
"""Runs on nodes that are to be settled anew from a time on; 0: from their beginning."""

AND_EARLIER = "ON CONFLICT DO UPDATE SET from_ms = min(from_ms, excluded.from_ms)"
"""Ends an UNSETTLE_FROM; one with a SELECT needs a WHERE before it."""

# CROSS JOIN and `+` keep SQLite from reading the shares of all these windows for each of them.
SHARES_ON_DEVICE = (
    " FROM window w CROSS JOIN window_share s"
    " ON s.device_uuid = w.device_uuid AND s.t0_ms = +w.t0_ms"
    " AND s.node = ?1 AND s.job_id = ?2 AND s.run_start_ms = ?3"
    " WHERE w.device_uuid = ?4 AND w.t0_ms < ?5"
    # The window that holds the run's start may begin before it.
    " AND w.t0_ms >= coalesce("
    "(SELECT max(t0_ms) FROM window WHERE device_uuid = ?4 AND t0_ms <= ?3), ?3)"
)
"""Follows a SELECT of columns of `w` and `s`: a run's shares of a device's windows.

?1 to ?3 are the NodeRun, ?4 the device; the windows begin before ?5. No index names runs.
"""


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
