# SPDX-License-Identifier: Apache-2.0
"""What the collector tells of itself and of its store, as samples of `core.metrics`."""

from __future__ import annotations

import ipaddress
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

from fairwatt.accounting.intake import Inbox
from fairwatt.accounting.store import open_reader
from fairwatt.accounting.sync import last_import_ts
from fairwatt.core.errors import ConfigError
from fairwatt.core.metrics import Sample

__all__ = ["Peers", "collector_samples"]

SILENT_S = 900

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Peers:
    """Who may read the metrics.

    Args:
        listed: addresses or networks, the value of collector.metrics_from.

    Raises:
        ConfigError: one is neither.
    """

    def __init__(self, listed: Iterable[str]) -> None:
        self._networks = [_network(text) for text in listed]

    def have(self, peer: str | None) -> bool:
        """Whether an address is among them."""
        try:
            address = ipaddress.ip_address(peer or "")
        except ValueError:
            return False
        # A socket for both families shows IPv4 peers as ::ffff:a.b.c.d.
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self._networks)


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise ConfigError(
            f"not an address or network ({error})",
            place="collector.metrics_from",
            value=text,
            remedy='write addresses such as "10.0.0.5" or networks such as "10.0.0.0/28"',
        ) from error


def collector_samples(
    inbox: Inbox, store: Path, cluster: str, clock: Callable[[], float] = time.time
) -> list[Sample]:
    """Return all samples of a collector now.

    Raises:
        StoreError: the store cannot be read.
    """
    with closing(open_reader(store)) as connection:
        return [
            *_of_inbox(inbox, clock()),
            *_of_store(connection, cluster),
            *_of_ledger(connection),
            *_of_files(store),
        ]


def _of_inbox(inbox: Inbox, now_ts: float) -> Iterator[Sample]:
    counts, (bodies, size) = inbox.counts, inbox.load
    heard = list(counts.heard_ts.values())
    yield Sample("collector_bodies", counts.bodies)
    yield Sample("collector_events", counts.events)
    yield Sample("collector_duplicates", counts.duplicates)
    for why, count in counts.refused.items():
        yield Sample("collector_refused", count, (why,))
    yield Sample("collector_busy", counts.busy)
    yield Sample("collector_inbox_bodies", bodies)
    yield Sample("collector_inbox_bytes", size)
    yield Sample("collector_nodes", len(heard))
    yield Sample("collector_silent_nodes", sum(now_ts - ts > SILENT_S for ts in heard))
    if counts.last_ts:
        yield Sample("collector_last_delivery_timestamp_seconds", counts.last_ts)
    if counts.newest_ms:
        yield Sample("collector_lag_seconds", counts.last_ts - counts.newest_ms / 1000)


def _of_store(connection: sqlite3.Connection, cluster: str) -> Iterator[Sample]:
    synced_ts = last_import_ts(connection, cluster)
    if synced_ts is not None:
        yield Sample("collector_last_sync_timestamp_seconds", synced_ts)
    for name, table in (
        ("collector_rejected_rows", "rejected_row"),
        ("collector_unsettled_runs", "unsettled"),
        ("collector_dirty_days", "dirty_day"),
    ):
        (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608
        yield Sample(name, count)


def _of_ledger(connection: sqlite3.Connection) -> Iterator[Sample]:
    """What runs own is what nobody else does: each window was taken only because it balanced."""
    rows: Sequence[tuple[str, int, int, int, int, int]] = connection.execute(
        "SELECT kind, windows, unknown_windows, measured_mj, idle_mj + active_mj, system_mj"
        " FROM ledger_total ORDER BY kind"
    ).fetchall()
    for kind, windows, unknown, measured_mj, unallocated_mj, system_mj in rows:
        run_mj = measured_mj - unallocated_mj - system_mj
        for owner, amount_mj in (
            ("run", run_mj),
            ("unallocated", unallocated_mj),
            ("system", system_mj),
        ):
            yield Sample("ledger_energy_joules", amount_mj / 1000, (kind, owner))
        yield Sample("ledger_windows", windows, (kind, "known"))
        yield Sample("ledger_windows", unknown, (kind, "unknown"))


def _of_files(store: Path) -> Iterator[Sample]:
    """Sizes by stat: opening the store's file would drop SQLite's locks on it."""
    for label, path in (("main", store), ("wal", store.with_name(f"{store.name}-wal"))):
        with suppress(OSError):
            yield Sample("collector_store_bytes", path.stat().st_size, (label,))
