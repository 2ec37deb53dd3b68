# SPDX-License-Identifier: Apache-2.0
"""Sums of windows by local hour beside those of `cells.py`: memory in use, and moved idle energy.

`moved_mj` is what the idle policy `active` gives a run beyond the idle part that it reserved: of a
board's whole idle energy each run gets the part that its activity has, and what nobody reserved
goes to those who held some of the board. So over a window, Σ moved of the runs + moved of the
unallocated part = 0, to the mJ.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from fairwatt.accounting.days import cut, hour_pieces
from fairwatt.accounting.windows import each_window
from fairwatt.core.events import GpuMemory, Share, WindowClosed
from fairwatt.core.units import split_largest_remainder

__all__ = ["USE_TABLES", "UseCells", "fill_use_cells", "moved_by_share"]

USE_TABLES = (
    # Memory is known for `memory_ms` of the time; nothing stands here of a run without news.
    """CREATE TABLE use_cell (
        node TEXT NOT NULL, job_id INTEGER NOT NULL, run_start_ms INTEGER NOT NULL,
        device_uuid TEXT NOT NULL, hour_ts INTEGER NOT NULL,
        moved_mj INTEGER NOT NULL, memory_ms INTEGER NOT NULL,
        memory_mib_ms INTEGER NOT NULL, memory_max_mib INTEGER NOT NULL,
        PRIMARY KEY (node, job_id, run_start_ms, device_uuid, hour_ts)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX use_cell_moved ON use_cell (hour_ts) WHERE moved_mj <> 0",
    """CREATE TABLE moved_hour (
        hour_ts INTEGER NOT NULL, device_uuid TEXT NOT NULL, moved_mj INTEGER NOT NULL,
        PRIMARY KEY (hour_ts, device_uuid)
    ) STRICT, WITHOUT ROWID""",
)

_Key = tuple[str, int, int, str, int]


@dataclass(slots=True)
class _Cell:
    moved_mj: int = 0
    memory_ms: int = 0
    memory_mib_ms: int = 0
    memory_max_mib: int = 0


@dataclass(frozen=True, slots=True)
class _Window:
    """What of a window the sums need."""

    node: str
    device: str
    t0_ms: int
    t1_ms: int
    idle_mj: int


class UseCells:
    """Sums of windows that are not in the store yet; `zone` is the site's, where hours begin."""

    def __init__(self, zone: ZoneInfo) -> None:
        self._zone = zone
        self._runs: dict[_Key, _Cell] = {}
        self._devices: dict[tuple[int, str], int] = {}

    def add(self, event: WindowClosed) -> None:
        """Add a GPU's window; one of unknown energy adds nothing."""
        if event.kind == "gpu" and event.shares and event.measured_mj is not None:
            window = _Window(
                event.node, event.device, event.t0_ms, event.t1_ms, event.unallocated_idle_mj or 0
            )
            self._add(window, event.shares, event.memory)

    def _add(self, window: _Window, shares: Sequence[Share], memory: Sequence[GpuMemory]) -> None:
        if len(shares) == 1 and not window.idle_mj and not memory:
            return  # a whole board with one holder, as most are: nothing moves
        moved = moved_by_share(window.idle_mj, shares)
        used = _memory_by_share(shares, memory)
        if not any(moved) and not any(used):
            return
        for hour_ts, a_ms, b_ms in hour_pieces(window.t0_ms, window.t1_ms, self._zone):
            span = (window.t0_ms, window.t1_ms, a_ms, b_ms)
            if window.idle_mj:
                key = (hour_ts, window.device)
                self._devices[key] = self._devices.get(key, 0) + cut(window.idle_mj, *span)
            for share, moved_mj, use in zip(shares, moved, used, strict=True):
                if moved_mj or use is not None:
                    part_mj = cut(moved_mj, *span)
                    self._add_share(window, share, hour_ts, part_mj, use, b_ms - a_ms)

    def _add_share(
        self,
        window: _Window,
        share: Share,
        hour_ts: int,
        moved_mj: int,
        use: GpuMemory | None,
        length_ms: int,
    ) -> None:
        key = (window.node, share.job_id, share.run_start_ms, window.device, hour_ts)
        cell = self._runs.setdefault(key, _Cell())
        cell.moved_mj += moved_mj
        if use is not None:
            cell.memory_ms += length_ms
            cell.memory_mib_ms += length_ms * use.mean_mib
            cell.memory_max_mib = max(cell.memory_max_mib, use.max_mib)

    def write(self, connection: sqlite3.Connection) -> None:
        """Add the sums to those in the store, in the caller's transaction, and forget them."""
        connection.executemany(
            _ADD_RUN,
            (
                (*key, c.moved_mj, c.memory_ms, c.memory_mib_ms, c.memory_max_mib)
                for key, c in self._runs.items()
            ),
        )
        connection.executemany(
            _ADD_DEVICE, ((*key, moved_mj) for key, moved_mj in self._devices.items() if moved_mj)
        )
        self._runs.clear()
        self._devices.clear()


def moved_by_share(unallocated_idle_mj: int, shares: Sequence[Share]) -> list[int]:
    """Return what the policy `active` adds to each share's idle part; may be below 0.

    By active energy, or by reserved part where there is none. They sum to the unallocated idle
    energy: under that policy a board that anybody holds leaves nothing unallocated.
    """
    whole_mj = sum(share.idle_mj for share in shares) + unallocated_idle_mj
    weights = [share.active_mj for share in shares]
    if not any(weights):
        weights = [share.idle_mj for share in shares]
    parts = split_largest_remainder(whole_mj, weights)
    return [part - share.idle_mj for part, share in zip(parts, shares, strict=True)]


def fill_use_cells(connection: sqlite3.Connection, zone: ZoneInfo) -> None:
    """Make all sums anew from the windows in the store and its month files.

    Windows there have no memory.

    Raises:
        StoreError: a month file is missing or cannot be read.
    """
    connection.execute("DELETE FROM use_cell")
    connection.execute("DELETE FROM moved_hour")
    cells = UseCells(zone)
    for number, (window, shares) in enumerate(_stored(connection), start=1):
        cells._add(window, shares, ())
        if number % 10_000 == 0:
            cells.write(connection)
    cells.write(connection)


def _memory_by_share(
    shares: Sequence[Share], memory: Sequence[GpuMemory]
) -> list[GpuMemory | None]:
    """What each share used: of its instance; of the board only where nobody else holds it."""
    by_instance = {one.instance: one for one in memory}
    boards = sum(not share.instance for share in shares)
    return [
        by_instance.get(share.instance) if share.instance or boards == 1 else None
        for share in shares
    ]


def _stored(connection: sqlite3.Connection) -> Iterator[tuple[_Window, list[Share]]]:
    """Windows that several shared, or that left a part of a held board free."""
    columns = "device_uuid, t0_ms, node, device_uuid, t0_ms, t1_ms, unallocated_idle_mj"
    shared = (
        "measured_mj IS NOT NULL AND (unallocated_idle_mj > 0 OR (SELECT count(*)"
        " FROM window_share s WHERE s.device_uuid = window.device_uuid"
        " AND s.t0_ms = window.t0_ms) > 1)"
    )
    for source, row in each_window(connection, columns, shared):
        window = _Window(*row[2:])
        shares = source.execute(
            "SELECT job_id, run_start_ms, instance_uuid, idle_mj, active_mj FROM window_share"
            " WHERE device_uuid = ? AND t0_ms = ?",
            (window.device, window.t0_ms),
        ).fetchall()
        if shares:
            yield window, [_share(*one) for one in shares]


def _share(job_id: int, run_start_ms: int, instance: str, idle_mj: int, active_mj: int) -> Share:
    return Share(
        job_id=job_id,
        run_start_ms=run_start_ms,
        instance=instance,
        idle_mj=idle_mj,
        active_mj=active_mj,
    )


_ADD_RUN = (
    "INSERT INTO use_cell VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET moved_mj = moved_mj + excluded.moved_mj,"
    " memory_ms = memory_ms + excluded.memory_ms,"
    " memory_mib_ms = memory_mib_ms + excluded.memory_mib_ms,"
    " memory_max_mib = max(memory_max_mib, excluded.memory_max_mib)"
)
_ADD_DEVICE = (
    "INSERT INTO moved_hour VALUES (?, ?, ?)"
    " ON CONFLICT DO UPDATE SET moved_mj = moved_mj + excluded.moved_mj"
)
