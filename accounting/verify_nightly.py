# SPDX-License-Identifier: Apache-2.0
"""Verifies the ledger's last days once a night; what is wrong goes to the log and to doctor."""

from __future__ import annotations

import json
import logging
import sqlite3
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from typing import Any

from sqlite_utils import Database

from fairwatt.accounting.cycle import Site
from fairwatt.accounting.store import get_meta, set_meta, transaction
from fairwatt.accounting.verify import Verified, span_of, verify

__all__ = ["last_verified", "verify_if_due"]

MAX_LOGGED = 10
_KEY = "ledger.verified"

_log = logging.getLogger(__name__)


def verify_if_due(
    db: Database,
    site: Site,
    *,
    days: int,
    hour: int,
    now_ts: float,
    lock: AbstractContextManager[object] | None = None,
) -> bool:
    """Verify the days before today once a local day, from an hour on; whether it was done.

    Args:
        db: the store; it is written only to keep the result.
        site: whose ledger it is.
        days: so many; 0 is never.
        hour: of the local day.
        now_ts: the time.
        lock: held while the result is written.

    Raises:
        StoreError: the store or a month file cannot be read.
    """
    now = datetime.fromtimestamp(now_ts, site.zone)
    today = now.date().isoformat()
    if not days or now.hour < hour or (last_verified(db.conn) or {}).get("day") == today:
        return False
    span = span_of(now.date() - timedelta(days), now.date() - timedelta(1), site.zone)
    done = verify(
        site.database, cluster=site.cluster, zone=site.zone, carbon_zone=site.carbon.zone,
        span=span,
    )  # fmt: skip
    _tell(done)
    result = {"day": today, "first": span.first, "last": span.last, "faults": done.findings.count}
    with lock or nullcontext(), transaction(db) as connection:
        set_meta(connection, _KEY, json.dumps(result))
    return True


def last_verified(connection: sqlite3.Connection) -> dict[str, Any] | None:
    """Return day, first and last day, and number of faults of the last nightly verification."""
    text = get_meta(connection, _KEY)
    return None if text is None else dict(json.loads(text))


def _tell(done: Verified) -> None:
    found = done.findings
    for fault in found.faults[:MAX_LOGGED]:
        _log.error(
            "ledger: %s, %s: %s: expected %s, found %s; %s",
            fault.subject, fault.where, fault.what, fault.expected, fault.found, fault.remedy,
        )  # fmt: skip
    _log.log(
        logging.ERROR if found.count else logging.INFO,
        "ledger of %d days verified: %d devices, %d runs, %d rows in %.1f s, %d faults%s",
        done.days, len(done.balances), done.runs, found.rows, done.took_s, found.count,
        "; `fairwatt ledger verify` shows them" if found.count else "",
    )  # fmt: skip
