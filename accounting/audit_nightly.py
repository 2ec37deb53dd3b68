# SPDX-License-Identifier: Apache-2.0
"""The collector's nightly comparison with slurmdbd: differences go to the log."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from zoneinfo import ZoneInfo

from sqlite_utils import Database

from fairwatt.accounting.audit import AuditSource, audit, past_days
from fairwatt.accounting.store import get_meta, set_meta, transaction

__all__ = ["audit_if_due"]

MAX_LOGGED = 10

_log = logging.getLogger(__name__)


def audit_if_due(
    db: Database,
    source: AuditSource,
    *,
    cluster: str,
    count: int,
    zone: ZoneInfo,
    hour: int,
    now_ts: int,
    lock: AbstractContextManager[object] | None = None,
) -> bool:
    """Compare the last `count` days once a local day, from that hour on; whether it was done.

    Raises:
        CommandError: Slurm does not answer; it is tried again at the next call.
    """
    now, key = datetime.fromtimestamp(now_ts, zone), f"audit.{cluster}.day"
    today = now.date().isoformat()
    if now.hour < hour or get_meta(db.conn, key) == today:
        return False
    done = audit(db.conn, source, cluster=cluster, days=past_days(count, now_ts, zone), zone=zone)
    for one in done.differences[:MAX_LOGGED]:
        _log.warning(
            "%s: %s: Slurm has %.2f, the store %.2f (%s)",
            one.day, one.what, one.slurm, one.here, one.why,
        )  # fmt: skip
    for note in done.notes:
        _log.info("%s", note)
    _log.log(
        logging.WARNING if done.differences else logging.INFO,
        "audit of %d days with %d runs: %d differences%s",
        len(done.days), done.runs, len(done.differences),
        "; `fairwatt audit` shows them" if done.differences else "",
    )  # fmt: skip
    with lock or nullcontext(), transaction(db) as connection:
        set_meta(connection, key, today)
    return True
