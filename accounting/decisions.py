# SPDX-License-Identifier: Apache-2.0
"""The submit policy's decisions in the store, each with the name of the job's owner."""

from __future__ import annotations

import pwd
import sqlite3
from collections.abc import Iterable, Mapping

import msgspec

from fairwatt.core.events import DecisionMade, Event

__all__ = ["store_decision", "users_of"]

_names: dict[int, str] = {}


def users_of(events: Iterable[Event]) -> dict[int, str]:
    """Return the names of the decisions' users by uid, as this host knows them.

    It may ask a name service over the network: call it outside of any transaction.
    """
    uids = {event.uid for event in events if isinstance(event, DecisionMade)}
    found = {uid: name for uid in uids if uid is not None and (name := _name(uid))}
    _names.update(found)
    return found


def store_decision(
    connection: sqlite3.Connection, event: DecisionMade, users: Mapping[int, str]
) -> None:
    """Write one decision, inside the caller's transaction."""
    connection.execute(
        "INSERT INTO decision (node, boot_id, seq, id, t_ms, cluster, verb, uid, user, account,"
        " partition, job_id, asked, given, accepted, edited, notes, took_us)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(event.node, event.boot_id, event.seq, event.id, event.t_ms, event.cluster),
            *(event.verb, event.uid, None if event.uid is None else users.get(event.uid)),
            *(event.account, event.partition, event.job_id, event.asked, event.given),
            *(int(event.accepted), int(bool(event.edits))),
            msgspec.json.encode(event.notes).decode(),
            event.took_us,
        ),
    )


def _name(uid: int) -> str | None:
    """Only what was found is remembered: a user may be made later."""
    if uid in _names:
        return _names[uid]
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OSError, OverflowError):
        return None
