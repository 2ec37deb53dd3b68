# SPDX-License-Identifier: Apache-2.0
"""Takes events into the store: each exactly once, a whole body or none of it."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Mapping, Sequence
from zoneinfo import ZoneInfo

from sqlite_utils import Database

from fairwatt.accounting.cells import Cells
from fairwatt.accounting.decisions import store_decision
from fairwatt.accounting.event_checks import LAST_MS, check_apart, check_conserving, check_times
from fairwatt.accounting.pieces import AND_EARLIER, UNSETTLE_FROM
from fairwatt.accounting.prune import PrunedEvents
from fairwatt.accounting.store import transaction
from fairwatt.accounting.use_cells import UseCells
from fairwatt.accounting.windows import WindowSources, moved_until_ms
from fairwatt.core.errors import IngestError
from fairwatt.core.events import (
    AgentStarted,
    DecisionMade,
    Event,
    RunEnded,
    RunStarted,
    WindowClosed,
    encode_event,
)

__all__ = ["ingest", "ingest_body"]

HOUR_S = 3600
HOUR_MS = 1000 * HOUR_S
DIGEST_BYTES = 16

_UTC = ZoneInfo("UTC")
_UNSETTLE = f"{UNSETTLE_FROM} VALUES (?, ?, ?, ?) {AND_EARLIER}"
_DIRTY_HOUR = "INSERT OR IGNORE INTO dirty_hour VALUES (?)"


def ingest(
    db: Database,
    events: Sequence[Event],
    users: Mapping[int, str] | None = None,
    zone: ZoneInfo | None = None,
) -> tuple[int, int]:
    """Store events and what they say, in one transaction; see `ingest_body`.

    Raises:
        IngestError: an event contradicts itself or the store; nothing of the body is kept.
        StoreError: the store cannot be written now.
    """
    with transaction(db) as connection:
        return ingest_body(connection, events, users, zone)


def ingest_body(
    connection: sqlite3.Connection,
    events: Sequence[Event],
    users: Mapping[int, str] | None = None,
    zone: ZoneInfo | None = None,
) -> tuple[int, int]:
    """Store events and what they say, in the caller's transaction.

    Args:
        connection: the store's, in a transaction.
        events: of one body, in its order.
        users: names by uid; decisions of other users are stored without a name.
        zone: the site's, in which hours begin; UTC if not given.

    Returns:
        How many were new and how many the store had already.

    Raises:
        IngestError: an event contradicts itself or the store; the place is `line N`, and the
            caller has to undo what was written of the body.
    """
    accepted = 0
    received_ts = int(time.time())
    dirt, pruned = _Dirt(zone or _UTC, moved_until_ms(connection)), PrunedEvents(connection)
    for number, event in enumerate(events, start=1):
        try:
            check_times(event)
            if not pruned.have(event) and _remember(connection, event, received_ts):
                _apply(connection, event, users or {}, dirt)
                accepted += 1
        except IngestError as error:
            raise _at_line(number, error) from error
        except (OverflowError, sqlite3.IntegrityError) as error:
            raise _at_line(number, _unstorable(event, error)) from error
    try:
        dirt.write(connection)
    except (OverflowError, sqlite3.IntegrityError) as error:
        raise IngestError(f"its sums cannot be stored: {error}") from error
    return accepted, len(events) - accepted


class _Dirt:
    """What a body's windows add to the sums, and what they leave to be settled."""

    def __init__(self, zone: ZoneInfo, moved_until_ms: int) -> None:
        self.moved_until_ms = moved_until_ms
        self._cells = Cells(zone)
        self._use = UseCells(zone)
        self._runs: dict[tuple[str, int, int], int] = {}
        self._hours: set[int] = set()

    def window(self, event: WindowClosed) -> None:
        self._cells.add(event)
        self._use.add(event)
        self._hours.update(_hours(event.t0_ms, event.t1_ms))
        for share in event.shares:
            key = (event.node, share.job_id, share.run_start_ms)
            self._runs[key] = min(event.t0_ms, self._runs.get(key, event.t0_ms))

    def write(self, connection: sqlite3.Connection) -> None:
        self._cells.write(connection)
        self._use.write(connection)
        connection.executemany(_UNSETTLE, ((*key, from_ms) for key, from_ms in self._runs.items()))
        connection.executemany(_DIRTY_HOUR, ((hour_ts,) for hour_ts in self._hours))


def _remember(connection: sqlite3.Connection, event: Event, received_ts: int) -> bool:
    """Write the event itself; False if the store has it already."""
    key = (event.node, event.boot_id, event.seq)
    body, kept = _kept(event)
    done = connection.execute(
        "INSERT INTO event (node, boot_id, seq, kind, received_ts, body)"
        " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (*key, str(event.__struct_config__.tag), received_ts, kept),
    )
    if done.rowcount:
        return True
    (known,) = connection.execute(
        "SELECT body FROM event WHERE node = ? AND boot_id = ? AND seq = ?", key
    ).fetchone()
    if known not in (kept, body):
        raise IngestError(
            f"node {event.node} sent another event under the same number",
            value=f"seq {event.seq} of boot {event.boot_id}",
            remedy="two agents share one spool, or its numbering was lost: see the node's log",
        )
    return False


def _kept(event: Event) -> tuple[str, str]:
    """The event's text, and what the store keeps of it.

    Of a window that is a digest, which tells a duplicate as well: all that it says stands in
    `window` and `window_share`, and the text would be most of the store.
    """
    body = encode_event(event)
    if not isinstance(event, WindowClosed):
        return body.decode(), body.decode()
    return body.decode(), hashlib.blake2b(body, digest_size=DIGEST_BYTES).hexdigest()


def _apply(
    connection: sqlite3.Connection, event: Event, users: Mapping[int, str], dirt: _Dirt
) -> None:
    match event:
        case AgentStarted():
            _devices(connection, event)
        case RunStarted():
            _run_started(connection, event)
        case RunEnded():
            _run_ended(connection, event)
        case WindowClosed():
            _window(connection, event, dirt.moved_until_ms)
            dirt.window(event)
        case DecisionMade():
            store_decision(connection, event, users)


def _devices(connection: sqlite3.Connection, event: AgentStarted) -> None:
    before = _models(connection, event)
    connection.executemany(
        "INSERT INTO device (device_uuid, node, model, name, minor, mig_enabled, compute_slices,"
        " seen_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (device_uuid) DO UPDATE SET"
        " node = excluded.node, model = excluded.model, name = excluded.name,"
        " minor = excluded.minor, mig_enabled = excluded.mig_enabled,"
        " compute_slices = excluded.compute_slices, seen_ms = excluded.seen_ms"
        " WHERE excluded.seen_ms >= device.seen_ms",
        [
            (
                device.uuid,
                event.node,
                device.model,
                device.name,
                device.minor,
                int(device.mig_enabled),
                device.compute_slices,
                event.t_ms,
            )
            for device in event.devices
        ],
    )
    for device_uuid, model in _models(connection, event).items():
        if before.get(device_uuid) != model:
            _unsettle_device(connection, device_uuid)


def _models(
    connection: sqlite3.Connection, event: AgentStarted
) -> dict[str, tuple[str | None, str]]:
    """Model and name of those of the event's devices that the store knows."""
    found = {}
    for device in event.devices:
        row = connection.execute(
            "SELECT model, name FROM device WHERE device_uuid = ?", (device.uuid,)
        ).fetchone()
        if row is not None:
            found[device.uuid] = row
    return found


def _unsettle_device(connection: sqlite3.Connection, device_uuid: str) -> None:
    """What was settled before the model was known names it too, as in any other order."""
    connection.execute(
        f"{UNSETTLE_FROM} SELECT node, job_id, start_ms, 0 FROM hold WHERE device_uuid = ?"  # noqa: S608
        f" {AND_EARLIER}",
        (device_uuid,),
    )
    with WindowSources(connection) as sources:
        for db in sources.readable(0, LAST_MS):
            runs = db.execute(_RUNS_OF_DEVICE, (device_uuid,))
            connection.executemany(_UNSETTLE, ((*run, 0) for run in runs.fetchall()))
            windows = db.execute(_WINDOWS_OF_DEVICE, (device_uuid,))
            hours = {hour_ts for window in windows for hour_ts in _hours(*window)}
            connection.executemany(_DIRTY_HOUR, ((hour_ts,) for hour_ts in hours))


_RUNS_OF_DEVICE = (
    "SELECT DISTINCT node, job_id, run_start_ms FROM window_share WHERE device_uuid = ?"
)
_WINDOWS_OF_DEVICE = "SELECT t0_ms, t1_ms FROM window WHERE device_uuid = ?"


def _run_started(connection: sqlite3.Connection, event: RunStarted) -> None:
    key = (event.node, event.job_id, event.t_ms)
    connection.execute(
        "INSERT INTO node_run"
        " (node, job_id, start_ms, restart_cnt, sluid, uid, account, mapped_by)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (node, job_id, start_ms) DO UPDATE SET"
        " restart_cnt = excluded.restart_cnt, sluid = excluded.sluid, uid = excluded.uid,"
        " account = excluded.account, mapped_by = excluded.mapped_by",
        (*key, event.restart_cnt, event.sluid, event.uid, event.account, event.mapped_by),
    )
    connection.executemany(
        "INSERT OR REPLACE INTO hold VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (*key, hold.device, hold.instance, hold.numerator, hold.denominator)
            for hold in event.holds
        ],
    )
    _unsettle(connection, key)


def _run_ended(connection: sqlite3.Connection, event: RunEnded) -> None:
    if event.t_ms < event.run_start_ms:
        raise IngestError("a run ends before it starts", value=event.t_ms)
    key = (event.node, event.job_id, event.run_start_ms)
    connection.execute(
        "INSERT INTO node_run (node, job_id, start_ms, end_ms, mapped_by, closed_by)"
        " VALUES (?, ?, ?, ?, '', ?)"
        " ON CONFLICT (node, job_id, start_ms) DO UPDATE SET"
        " end_ms = excluded.end_ms, closed_by = excluded.closed_by",
        (*key, event.t_ms, event.closed_by),
    )
    _unsettle(connection, key)


def _window(connection: sqlite3.Connection, event: WindowClosed, moved_until_ms: int) -> None:
    check_conserving(event)
    check_apart(connection, event)
    if event.t0_ms < moved_until_ms:
        with WindowSources(connection) as sources:
            for month in sources.readable(event.t0_ms, event.t1_ms):
                check_apart(month, event)
    if event.kind != "gpu":
        _host_part(connection, event)
    connection.execute(
        "INSERT INTO window (device_uuid, t0_ms, t1_ms, node, measured_mj, unallocated_idle_mj,"
        " unallocated_active_mj, flags, method, clock_mhz, system_mj)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            event.device,
            event.t0_ms,
            event.t1_ms,
            event.node,
            event.measured_mj,
            event.unallocated_idle_mj,
            event.unallocated_active_mj,
            event.flags,
            event.method,
            event.clock_mhz,
            event.system_mj,
        ),
    )
    for share in event.shares:
        connection.execute(
            "INSERT INTO window_share VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(event.device, event.t0_ms, event.node, share.job_id, share.run_start_ms),
                *(share.instance, share.idle_mj, share.active_mj, share.util_permille),
            ),
        )
    if event.measured_mj is None:
        _unsettle_holders(connection, event)


def _host_part(connection: sqlite3.Connection, event: WindowClosed) -> None:
    """A part of a host is known by its windows alone: `NODE/cpu0` of NODE."""
    if event.device != f"{event.node}/{event.device.rpartition('/')[2]}":
        raise IngestError(
            "a part of another host",
            value=event.device,
            remedy="two agents have one node name: see agent.node",
        )
    connection.execute(
        "INSERT OR IGNORE INTO device (device_uuid, node, model, name, minor, mig_enabled,"
        " compute_slices, seen_ms, kind) VALUES (?, ?, NULL, ?, 0, 0, 0, ?, ?)",
        (event.device, event.node, event.kind, event.t1_ms, event.kind),
    )


def _hours(t0_ms: int, t1_ms: int) -> range:
    return range(t0_ms // HOUR_MS * HOUR_S, -(-t1_ms // 1000), HOUR_S)


def _unsettle(connection: sqlite3.Connection, key: tuple[str, int, int]) -> None:
    connection.execute(_UNSETTLE, (*key, 0))


def _unsettle_holders(connection: sqlite3.Connection, event: WindowClosed) -> None:
    """Runs that held the device while it could not be read learn of the hole."""
    if event.kind != "gpu":
        connection.execute(
            f"{UNSETTLE_FROM} SELECT node, job_id, start_ms, 0 FROM node_run WHERE node = ?"  # noqa: S608
            f" AND start_ms < ? AND (end_ms IS NULL OR end_ms > ?) {AND_EARLIER}",
            (event.node, event.t1_ms, event.t0_ms),
        )
        return
    connection.execute(
        f"{UNSETTLE_FROM} SELECT DISTINCT node, job_id, start_ms, 0 FROM hold JOIN node_run"  # noqa: S608
        " USING (node, job_id, start_ms)"
        " WHERE device_uuid = ? AND start_ms < ?"
        f" AND (end_ms IS NULL OR end_ms > ?) {AND_EARLIER}",
        (event.device, event.t1_ms, event.t0_ms),
    )


def _unstorable(event: Event, error: Exception) -> IngestError:
    return IngestError(f"cannot be stored: {error}", value=f"seq {event.seq} of {event.node}")


def _at_line(number: int, error: IngestError) -> IngestError:
    return type(error)(
        error.problem, place=f"line {number}", value=error.value, remedy=error.remedy
    )
