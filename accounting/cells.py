# SPDX-License-Identifier: Apache-2.0
"""Sums of windows by local hour: of each run on each device, and of each device; and of all.

They grow with every window that is taken, in the same transaction, and each window is taken once.
So a run's energy is a sum over hours, however many windows it has, and equals the sum over the
windows. Method and flags are part of the key: what is in a cell does not depend on the order in
which windows came.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from zoneinfo import ZoneInfo

from fairwatt.accounting.days import cut, hour_pieces
from fairwatt.accounting.windows import each_window
from fairwatt.core.events import Share, WindowClosed

__all__ = ["CELL_TABLES", "Cells", "fill_cells"]

CELL_TABLES = (
    """CREATE TABLE run_cell (
        node TEXT NOT NULL, job_id INTEGER NOT NULL, run_start_ms INTEGER NOT NULL,
        device_uuid TEXT NOT NULL, hour_ts INTEGER NOT NULL,
        method TEXT NOT NULL, flags INTEGER NOT NULL,
        idle_mj INTEGER NOT NULL, active_mj INTEGER NOT NULL,
        measured_ms INTEGER NOT NULL, util_ms INTEGER NOT NULL, busy_permille_ms INTEGER NOT NULL,
        window_ms INTEGER NOT NULL, last_ms INTEGER NOT NULL,
        PRIMARY KEY (node, job_id, run_start_ms, device_uuid, hour_ts, method, flags)
    ) STRICT, WITHOUT ROWID""",
    # Since migration 16 with row ids, as moved_hour: a node's devices beside each other.
    """CREATE TABLE device_hour (
        hour_ts INTEGER NOT NULL, device_uuid TEXT NOT NULL,
        measured_mj INTEGER NOT NULL, idle_mj INTEGER NOT NULL, active_mj INTEGER NOT NULL,
        system_mj INTEGER NOT NULL,
        PRIMARY KEY (hour_ts, device_uuid)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE ledger_total (
        kind TEXT PRIMARY KEY, windows INTEGER NOT NULL, unknown_windows INTEGER NOT NULL,
        measured_mj INTEGER NOT NULL, idle_mj INTEGER NOT NULL, active_mj INTEGER NOT NULL,
        system_mj INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID""",
)

QUARTER_S = 900
"""No zone's hours begin elsewhere than at a quarter of a UTC hour."""

_RunKey = tuple[str, int, int, str, int, str, int]


class _Window(NamedTuple):
    """What of a window the sums need."""

    node: str
    device: str
    t0_ms: int
    t1_ms: int
    measured_mj: int
    idle_mj: int
    active_mj: int
    system_mj: int
    method: str
    flags: int


@dataclass(slots=True)
class _RunCell:
    idle_mj: int = 0
    active_mj: int = 0
    measured_ms: int = 0
    util_ms: int = 0
    busy_permille_ms: int = 0
    window_ms: int = 0
    last_ms: int = 0

    def row(self) -> tuple[int, ...]:
        return (
            *(self.idle_mj, self.active_mj, self.measured_ms, self.util_ms),
            *(self.busy_permille_ms, self.window_ms, self.last_ms),
        )


class Cells:
    """Sums of windows that are not in the store yet.

    Args:
        zone: the site's, in which hours begin.
    """

    def __init__(self, zone: ZoneInfo) -> None:
        self._zone = zone
        self._runs: dict[_RunKey, _RunCell] = {}
        self._devices: dict[tuple[int, str], list[int]] = {}
        self._totals: dict[str, list[int]] = {}

    def add(self, event: WindowClosed) -> None:
        """Add a window; of one of unknown energy only that there is one."""
        if event.measured_mj is None:
            self._total(event.kind)[1] += 1
        else:
            window = _Window(
                event.node,
                event.device,
                event.t0_ms,
                event.t1_ms,
                event.measured_mj,
                event.unallocated_idle_mj or 0,
                event.unallocated_active_mj or 0,
                event.system_mj or 0,
                event.method,
                event.flags,
            )
            self._add(window, event.shares, event.kind)

    def _total(self, kind: str) -> list[int]:
        return self._totals.setdefault(kind, [0] * 6)

    def _add(self, window: _Window, shares: Sequence[Share], kind: str) -> None:
        total = self._total(kind)
        amounts = (window.measured_mj, window.idle_mj, window.active_mj, window.system_mj)
        for place, amount in enumerate((1, 0, *amounts)):
            total[place] += amount
        for hour_ts, a_ms, b_ms in _pieces(window.t0_ms, window.t1_ms, self._zone):
            self._add_device(window, hour_ts, a_ms, b_ms)
            seen: set[int] = set()
            for share in shares:
                cell = self._run_cell(window, share, hour_ts)
                _add_share(cell, window, share, a_ms, b_ms)
                # Two slices that a run holds of one board cover the same time.
                if id(cell) not in seen:
                    seen.add(id(cell))
                    cell.window_ms += b_ms - a_ms

    def _add_device(self, window: _Window, hour_ts: int, a_ms: int, b_ms: int) -> None:
        sums = self._devices.setdefault((hour_ts, window.device), [0, 0, 0, 0])
        amounts = (window.measured_mj, window.idle_mj, window.active_mj, window.system_mj)
        for place, amount in enumerate(amounts):
            sums[place] += cut(amount, window.t0_ms, window.t1_ms, a_ms, b_ms)

    def _run_cell(self, window: _Window, share: Share, hour_ts: int) -> _RunCell:
        key = (
            *(window.node, share.job_id, share.run_start_ms, window.device, hour_ts),
            *(window.method, window.flags),
        )
        cell = self._runs.get(key)
        if cell is None:
            cell = self._runs[key] = _RunCell()
        return cell

    def write(self, connection: sqlite3.Connection) -> None:
        """Add the sums to those in the store, in the caller's transaction, and forget them."""
        connection.executemany(_ADD_RUN, ((*key, *c.row()) for key, c in self._runs.items()))
        connection.executemany(_ADD_DEVICE, ((*key, *sums) for key, sums in self._devices.items()))
        connection.executemany(_ADD_TOTAL, ((kind, *sums) for kind, sums in self._totals.items()))
        self._runs.clear()
        self._devices.clear()
        self._totals.clear()


def fill_cells(connection: sqlite3.Connection, zone: ZoneInfo) -> None:
    """Make all sums anew from the windows in the store and in its month files.

    Runs in the caller's transaction.

    Raises:
        StoreError: a month file is missing or cannot be read.
    """
    for table in ("run_cell", "device_hour", "ledger_total"):
        connection.execute(f"DELETE FROM {table}")  # noqa: S608 - our own names
    cells = Cells(zone)
    connection.execute(_COUNT_UNKNOWN)
    for number, (window, shares, kind) in enumerate(_stored(connection), start=1):
        cells._add(window, shares, kind)
        if number % 10_000 == 0:
            cells.write(connection)
    cells.write(connection)


def _stored(connection: sqlite3.Connection) -> Iterator[tuple[_Window, list[Share], str]]:
    kinds = dict(connection.execute("SELECT device_uuid, kind FROM device").fetchall())
    columns = (
        "device_uuid, t0_ms, node, device_uuid, t0_ms, t1_ms, measured_mj,"
        " unallocated_idle_mj, unallocated_active_mj, system_mj, method, flags"
    )
    for source, row in each_window(connection, columns, "measured_mj IS NOT NULL"):
        window = _Window(*row[2:])
        shares = source.execute(
            "SELECT job_id, run_start_ms, instance_uuid, idle_mj, active_mj, util_permille"
            " FROM window_share WHERE device_uuid = ? AND t0_ms = ?",
            (window.device, window.t0_ms),
        )
        yield window, [_share(*one) for one in shares], kinds.get(window.device, "gpu")


def _share(
    job_id: int, run_start_ms: int, instance: str, idle_mj: int, active_mj: int, util: int | None
) -> Share:
    return Share(
        job_id=job_id,
        run_start_ms=run_start_ms,
        instance=instance,
        idle_mj=idle_mj,
        active_mj=active_mj,
        util_permille=util,
    )


def _add_share(cell: _RunCell, window: _Window, share: Share, a_ms: int, b_ms: int) -> None:
    length_ms = b_ms - a_ms
    cell.idle_mj += cut(share.idle_mj, window.t0_ms, window.t1_ms, a_ms, b_ms)
    cell.active_mj += cut(share.active_mj, window.t0_ms, window.t1_ms, a_ms, b_ms)
    cell.measured_ms += length_ms
    cell.last_ms = max(cell.last_ms, b_ms)
    if share.util_permille is not None:
        cell.util_ms += length_ms
        cell.busy_permille_ms += length_ms * share.util_permille


def _pieces(t0_ms: int, t1_ms: int, zone: ZoneInfo) -> Iterator[tuple[int, int, int]]:
    """As `hour_pieces`; a window within one hour, as nearly all are, needs no calendar."""
    hour_ts, until_ms = _hour(t0_ms // 1000 // QUARTER_S, zone)
    if t1_ms <= until_ms:
        return iter(((hour_ts, t0_ms, t1_ms),))
    return hour_pieces(t0_ms, t1_ms, zone)


@functools.lru_cache(maxsize=4096)
def _hour(quarter: int, zone: ZoneInfo) -> tuple[int, int]:
    """The local hour that a quarter of an hour lies in, and its end in ms."""
    at_ms = quarter * QUARTER_S * 1000
    hour_ts, _, end_ms = next(hour_pieces(at_ms, at_ms + 2 * 3_600_000, zone))
    return hour_ts, end_ms


_ADD_RUN = (
    "INSERT INTO run_cell VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET idle_mj = idle_mj + excluded.idle_mj,"
    " active_mj = active_mj + excluded.active_mj,"
    " measured_ms = measured_ms + excluded.measured_ms, util_ms = util_ms + excluded.util_ms,"
    " busy_permille_ms = busy_permille_ms + excluded.busy_permille_ms,"
    " window_ms = window_ms + excluded.window_ms, last_ms = max(last_ms, excluded.last_ms)"
)
_ADD_DEVICE = (
    "INSERT INTO device_hour VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET measured_mj = measured_mj + excluded.measured_mj,"
    " idle_mj = idle_mj + excluded.idle_mj, active_mj = active_mj + excluded.active_mj,"
    " system_mj = system_mj + excluded.system_mj"
)
_ADD_TOTAL = (
    "INSERT INTO ledger_total VALUES (?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET windows = windows + excluded.windows,"
    " unknown_windows = unknown_windows + excluded.unknown_windows,"
    " measured_mj = measured_mj + excluded.measured_mj,"
    " idle_mj = idle_mj + excluded.idle_mj, active_mj = active_mj + excluded.active_mj,"
    " system_mj = system_mj + excluded.system_mj"
)
_COUNT_UNKNOWN = (
    "INSERT INTO ledger_total SELECT coalesce(d.kind, 'gpu'), 0, count(*), 0, 0, 0, 0"
    " FROM window w LEFT JOIN device d USING (device_uuid) WHERE w.measured_mj IS NULL GROUP BY 1"
)
