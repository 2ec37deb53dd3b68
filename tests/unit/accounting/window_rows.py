# SPDX-License-Identifier: Apache-2.0
"""Windows written straight into a store, for tests of what becomes of the rows."""

from __future__ import annotations

from fairwatt.accounting.store import transaction


def add_window(db, device: str, t0_ms: int, t1_ms: int, *, measured=14, shares=((7, 5, 6),)):
    """A window whose unallocated idle energy is what the shares (job, idle, active) leave."""
    rest = None if measured is None else measured - sum(i + a for _, i, a in shares)
    with transaction(db) as connection:
        connection.execute(
            "INSERT INTO window (device_uuid, t0_ms, t1_ms, node, measured_mj,"
            " unallocated_idle_mj, unallocated_active_mj, flags, method)"
            " VALUES (?, ?, ?, 'gpu01', ?, ?, ?, 0, 'counter')",
            (device, t0_ms, t1_ms, measured, rest, None if measured is None else 0),
        )
        connection.executemany(
            "INSERT INTO window_share (device_uuid, t0_ms, node, job_id, run_start_ms,"
            " instance_uuid, idle_mj, active_mj) VALUES (?, ?, 'gpu01', ?, 0, '', ?, ?)",
            [(device, t0_ms, *one) for one in shares if measured is not None],
        )


def windows_in(connection) -> list[tuple[object, ...]]:
    """All windows with their shares, in order."""
    return connection.execute(
        "SELECT * FROM window LEFT JOIN window_share USING (device_uuid, t0_ms) ORDER BY 1, 2"
    ).fetchall()
