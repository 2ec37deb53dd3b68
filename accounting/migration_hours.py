# SPDX-License-Identifier: Apache-2.0
"""The migration that lays the devices' sums by hour down by node: device_hour and moved_hour.

Its own file for its length; `migrations.py` gives it its place in the series.
"""

from __future__ import annotations

from sqlite_utils import Database

__all__ = ["hours_by_node"]

_TABLES = {
    "device_hour": """
        hour_ts INTEGER NOT NULL, device_uuid TEXT NOT NULL,
        measured_mj INTEGER NOT NULL, idle_mj INTEGER NOT NULL, active_mj INTEGER NOT NULL,
        system_mj INTEGER NOT NULL""",
    "moved_hour": """
        hour_ts INTEGER NOT NULL, device_uuid TEXT NOT NULL, moved_mj INTEGER NOT NULL""",
}


def hours_by_node(db: Database) -> None:
    """Give the two tables row ids, so that rows lie in the order in which they first came.

    A body has all devices of one node, whose UUIDs are far apart: by UUID each of its windows
    wrote another page of the hour, the more of them the more nodes there are.
    """
    for table, columns in _TABLES.items():
        db.execute(f"CREATE TABLE by_node ({columns}, PRIMARY KEY (hour_ts, device_uuid)) STRICT")
        db.execute(
            f"INSERT INTO by_node SELECT h.* FROM {table} h LEFT JOIN device d"  # noqa: S608
            " USING (device_uuid) ORDER BY h.hour_ts, d.node, h.device_uuid"
        )
        db.execute(f"DROP TABLE {table}")
        db.execute(f"ALTER TABLE by_node RENAME TO {table}")
