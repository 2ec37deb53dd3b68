# SPDX-License-Identifier: Apache-2.0
"""Finds a run's shares of windows by device and time, for `verify_runs.py`: no index names runs.

What a run's time, holds and cells tell only narrows the search: `check_reach` sees every share of
every window, and one that the search of its run would miss is a fault.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime

from fairwatt.accounting.pieces import SHARES_ON_DEVICE, NodeRun
from fairwatt.accounting.verify_fault import Fault, Findings
from fairwatt.accounting.verify_windows import RESTORE, Window

__all__ = ["Reaches", "ShareRow", "check_reach", "shares_of"]

FOREVER_MS = 1 << 62
KNOWN_RUNS = 4096
"""A device's windows are read in order: few runs are on it at a time."""

ShareRow = tuple[str, int, int, str, int, int]
"""Device, begin and end of the window in ms, instance, idle and active energy in mJ."""

_CELLS = (
    "SELECT device_uuid, max(last_ms) FROM run_cell"
    " WHERE node = ? AND job_id = ? AND run_start_ms = ? GROUP BY device_uuid"
)
_END = "SELECT end_ms FROM node_run WHERE node = ? AND job_id = ? AND start_ms = ?"
# A run is on all of its node's host parts: no hold says so.
_DEVICES = (
    "SELECT device_uuid FROM hold WHERE node = ?1 AND job_id = ?2 AND start_ms = ?3"
    " UNION SELECT device_uuid FROM device WHERE node = ?1 AND kind <> 'gpu'"
)
_SHARES = (
    "SELECT w.device_uuid, w.t0_ms, w.t1_ms, s.instance_uuid, s.idle_mj, s.active_mj"
    + SHARES_ON_DEVICE
)


class Reaches:
    """Says of a run on a node where its shares are looked for; remembers the last few runs."""

    def __init__(self, store: sqlite3.Connection) -> None:
        self._store = store
        self.of = functools.lru_cache(KNOWN_RUNS)(self._of)

    def _of(self, node: str, job_id: int, start_ms: int) -> dict[str, int]:
        """Return by device before which time its windows begin: the run's end, or later cells'."""
        node_run = (node, job_id, start_ms)
        known = self._store.execute(_END, node_run).fetchone()
        end_ms = None if known is None else known[0]
        found = {
            device: max(last_ms, end_ms or 0)
            for device, last_ms in self._store.execute(_CELLS, node_run)
        }
        for (device,) in self._store.execute(_DEVICES, node_run):
            found.setdefault(device, FOREVER_MS if end_ms is None else end_ms)
        return found


def shares_of(
    db: sqlite3.Connection, node_run: NodeRun, reaches: dict[str, int]
) -> Iterator[ShareRow]:
    """Yield a run's shares of windows in the store or in a month file."""
    for device, until_ms in reaches.items():
        yield from db.execute(_SHARES, (*node_run, device, until_ms))


def check_reach(reaches: Reaches, device: str, window: Window, found: Findings) -> None:
    """Note the shares that are not looked for where they are: their run lacks their energy."""
    for part in window.parts:
        until_ms = reaches.of(part.node, part.job_id, part.run_start_ms).get(device, 0)
        if window.t0_ms >= until_ms or window.t1_ms <= part.run_start_ms:
            at = datetime.fromtimestamp(window.t0_ms / 1000, UTC)
            where = f"window {window.t0_ms} ({at:%Y-%m-%d %H:%M:%S} UTC)"
            what = f"share of job {part.job_id} on {part.node}, which had no part of it then"
            energy_mj = part.idle_mj + part.active_mj
            found.add(Fault(device, where, what, None, energy_mj, RESTORE))
