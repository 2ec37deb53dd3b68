# SPDX-License-Identifier: Apache-2.0
"""Energy by owner and hour, in quarters: what carbon can be computed from again at any time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from fairwatt.accounting.carbon.slots import SLOT_S, SLOTS

__all__ = ["Owner", "read_hours", "slots_in", "write_hours"]


class Owner(NamedTuple):
    """Whose energy it is: `owner` is run, unallocated or system, `kind` gpu, cpu, dram or node.

    `part` is the GPU type of runs, the model of unallocated GPUs, else "".
    """

    cluster: str
    owner: str
    account: str
    user: str
    kind: str
    part: str


def write_hours(
    connection: sqlite3.Connection,
    from_ts: int,
    until_ts: int,
    cluster: str,
    energy: Mapping[Owner, Mapping[int, int]],
) -> None:
    """Put energies by slot in place of those of [from_ts, until_ts), a local day.

    Those of all runs and of the cluster's own devices are replaced. Runs in the caller's
    transaction.
    """
    connection.execute(
        "DELETE FROM energy_hour WHERE hour_ts >= ? AND hour_ts < ? AND key_id IN"
        " (SELECT key_id FROM energy_owner WHERE owner = 'run' OR cluster = ?)",
        (from_ts, until_ts, cluster),
    )
    for owner, by_slot in sorted(energy.items()):
        if not any(by_slot.values()):
            continue
        key_id = _key_id(connection, owner)
        connection.executemany(
            "INSERT INTO energy_hour VALUES (?, ?, ?, ?, ?, ?)",
            [(hour_ts, key_id, *quarters) for hour_ts, quarters in _by_hour(by_slot, from_ts)],
        )


def read_hours(
    connection: sqlite3.Connection, from_ts: int, until_ts: int
) -> list[tuple[Owner, dict[int, int]]]:
    """Return the energies by slot of each owner from the hours of [from_ts, until_ts)."""
    rows = connection.execute(
        "SELECT cluster, owner, account, user, kind, part, hour_ts, q0_mj, q1_mj, q2_mj, q3_mj"
        " FROM energy_hour JOIN energy_owner USING (key_id) WHERE hour_ts >= ? AND hour_ts < ?",
        (from_ts, until_ts),
    )
    found: dict[Owner, dict[int, int]] = {}
    for row in rows:
        found.setdefault(Owner(*row[:6]), {}).update(slots_in(row[6], row[7:]))
    return sorted(found.items())


def slots_in(hour_ts: int, quarters: Iterable[int]) -> dict[int, int]:
    """Return a stored hour's energies by slot."""
    return {hour_ts + n * SLOT_S: mj for n, mj in enumerate(quarters) if mj}


def _by_hour(by_slot: Mapping[int, int], from_ts: int) -> Iterator[tuple[int, list[int]]]:
    hours: dict[int, list[int]] = {}
    for slot_ts, energy_mj in by_slot.items():
        number = (slot_ts - from_ts) // SLOT_S
        hour_ts = from_ts + number // SLOTS * SLOTS * SLOT_S
        hours.setdefault(hour_ts, [0] * SLOTS)[number % SLOTS] += energy_mj
    yield from sorted(hours.items())


def _key_id(connection: sqlite3.Connection, owner: Owner) -> int:
    connection.execute(
        "INSERT OR IGNORE INTO energy_owner (cluster, owner, account, user, kind, part)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        owner,
    )
    (key_id,) = connection.execute(
        "SELECT key_id FROM energy_owner WHERE cluster = ? AND owner = ? AND account = ?"
        " AND user = ? AND kind = ? AND part = ?",
        owner,
    ).fetchone()
    return int(key_id)
