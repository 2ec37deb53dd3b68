# SPDX-License-Identifier: Apache-2.0
"""What an event has to be like before the ledger takes it: time, balance, room of its own."""

from __future__ import annotations

import sqlite3

from fairwatt.accounting.store import SQLITE_INTEGER_MAX
from fairwatt.core.errors import BalanceError, IngestError
from fairwatt.core.events import Event, RunEnded, WindowClosed

__all__ = ["LAST_MS", "check_apart", "check_conserving", "check_times"]

LAST_MS = 4_102_444_800_000
"""2100-01-01: a later time comes from a broken clock, and no calendar goes on for ever."""
LONGEST_WINDOW_MS = 366 * 24 * 3_600_000


def check_times(event: Event) -> None:
    """Refuse a time beyond all calendars: one would end every later round of settling.

    Raises:
        IngestError: it is before 1970 or after 2099.
    """
    times = _times(event)
    if min(times) < 0 or max(times) > LAST_MS:
        raise IngestError(
            "no time at which this can have been",
            value=times,
            remedy="set the node's clock, then restart its agent",
        )


def _times(event: Event) -> tuple[int, int]:
    match event:
        case WindowClosed():
            return event.t0_ms, event.t1_ms
        case RunEnded():
            return event.run_start_ms, event.t_ms
    return event.t_ms, event.t_ms


def check_conserving(event: WindowClosed) -> None:
    """Refuse a window unless Σ shares + unallocated + system = measured, in mJ, none negative.

    Raises:
        BalanceError: it does not add up.
        IngestError: it is no window at all.
    """
    if event.t1_ms <= event.t0_ms:
        raise IngestError("a window without length", value=(event.t0_ms, event.t1_ms))
    if event.t1_ms - event.t0_ms > LONGEST_WINDOW_MS:
        raise IngestError(
            "a window of more than a year",
            value=(event.t0_ms, event.t1_ms),
            remedy="set the node's clock, then restart its agent",
        )
    rest = (event.unallocated_idle_mj, event.unallocated_active_mj, event.system_mj)
    if event.measured_mj is None:
        if event.shares or rest[:2] != (None, None) or event.system_mj:
            raise IngestError("a window of unknown energy has parts", value=event.device)
        return
    parts = [part for share in event.shares for part in (share.idle_mj, share.active_mj)]
    known = [part for part in (*rest, *parts) if part is not None]
    if None in rest or min(known) < 0 or max(known) > SQLITE_INTEGER_MAX:
        raise IngestError("a part of the window is missing, negative or too large", value=known)
    if sum(known) != event.measured_mj:
        owners = "shares + unallocated" + ("" if event.kind == "gpu" else " + system")
        raise BalanceError(
            f"{owners} = {sum(known)} mJ, measured {event.measured_mj} mJ",
            value=f"{event.device} from {event.t0_ms}",
            remedy="update the node's agent",
        )


def check_apart(connection: sqlite3.Connection, event: WindowClosed) -> None:
    """Refuse a window that overlaps another of its device: energy would count twice.

    Raises:
        IngestError: it does.
    """
    before = connection.execute(
        "SELECT t0_ms, t1_ms FROM window WHERE device_uuid = ? AND t0_ms < ?"
        " ORDER BY t0_ms DESC LIMIT 1",
        (event.device, event.t1_ms),
    ).fetchone()
    if before is not None and before[1] > event.t0_ms:
        raise IngestError(
            f"window [{event.t0_ms}, {event.t1_ms}) overlaps [{before[0]}, {before[1]})",
            value=event.device,
            remedy="two agents report this device, or the node's clock stepped back",
        )
