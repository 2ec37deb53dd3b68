# SPDX-License-Identifier: Apache-2.0
"""What a store does when site.timezone is another one than its days were cut in."""

from __future__ import annotations

import logging
import sqlite3
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from fairwatt.accounting.cells import fill_cells
from fairwatt.accounting.days import HOUR_S
from fairwatt.accounting.store import get_meta, set_meta
from fairwatt.accounting.use_cells import fill_use_cells
from fairwatt.core.errors import ConfigError

__all__ = ["adopt_zone"]

_KEY = "site.timezone"
_DAYS = (
    "SELECT day FROM usage_daily UNION SELECT day FROM unallocated_daily"
    " UNION SELECT day FROM host_daily"
)

_log = logging.getLogger(__name__)


def adopt_zone(connection: sqlite3.Connection, zone: ZoneInfo) -> None:
    """Mark every day for the rollups if the zone has changed; else days of both would be mixed.

    Runs in the caller's transaction.

    Raises:
        ConfigError: the new zone's hours begin elsewhere than those that the store has sums of.
    """
    known = get_meta(connection, _KEY)
    if known == zone.key:
        return
    if known is None:
        _adopt_upgraded(connection, zone)
    elif _hours_begin(ZoneInfo(known)) != _hours_begin(zone):
        raise ConfigError(
            f"its hours begin elsewhere than those of {known}, in which the store's are cut",
            place="site.timezone",
            value=zone.key,
            remedy=f"set {known} or a zone that differs from it by whole hours",
        )
    else:
        _log.warning("site.timezone was %s: all days are rolled up again", known)
        _mark_all(connection)
    set_meta(connection, _KEY, zone.key)


def _adopt_upgraded(connection: sqlite3.Connection, zone: ZoneInfo) -> None:
    """A migration does not know the zone: it took the hours as UTC has them."""
    has_sums = connection.execute("SELECT 1 FROM device_hour LIMIT 1").fetchone()
    if has_sums and _hours_begin(zone) != _hours_begin(ZoneInfo("UTC")):
        fill_cells(connection, zone)
        fill_use_cells(connection, zone)
        _mark_all(connection)


def _hours_begin(zone: ZoneInfo) -> set[int]:
    """Return where in an hour the zone's hours have begun, in s, in these years."""
    months = (datetime(year, month, 1, tzinfo=UTC) for year in (2020, 2026) for month in (1, 7))
    offsets = (month.astimezone(zone).utcoffset() or timedelta() for month in months)
    return {int(offset.total_seconds()) % HOUR_S for offset in offsets}


def _mark_all(connection: sqlite3.Connection) -> None:
    """Mark the days that have sums, and their neighbours, into which their hours may move."""
    days = [date.fromisoformat(day) for (day,) in connection.execute(_DAYS)]
    marked = {day + timedelta(days=n) for day in days for n in (-1, 0, 1)}
    connection.executemany(
        "INSERT OR IGNORE INTO dirty_day VALUES (?)", [(str(day),) for day in sorted(marked)]
    )
