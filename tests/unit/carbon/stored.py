# SPDX-License-Identifier: Apache-2.0
"""Parts of what a site says of its carbon brought into a store, each as a version of its own."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Sequence

from fairwatt.accounting.carbon.contracts import Bought, stage_contracts
from fairwatt.accounting.carbon.embodied import Hardware, stage_hardware
from fairwatt.accounting.carbon.factors import FactorFile
from fairwatt.accounting.carbon.grid_store import file_words, stage_file
from fairwatt.accounting.carbon.pue import stage_pue, stage_pue_history
from fairwatt.accounting.carbon.versions import current_version, publish


def store_factors(
    connection: sqlite3.Connection, file: FactorFile, *, now_ts: int | None = None
) -> int:
    """Keep a file's factors in place of its earlier ones; return the version that has them."""
    stage_file(connection, file)
    publish(connection, file_words(file), int(time.time()) if now_ts is None else now_ts)
    version = current_version(connection)
    assert version is not None
    return version


def store_pue(connection: sqlite3.Connection, pue: float, now_ts: int) -> None:
    """Keep the configured PUE; a changed one is a new version."""
    if stage_pue(connection, pue, now_ts):
        publish(connection, f"carbon.pue is {pue:g}", now_ts)


def store_pue_history(
    connection: sqlite3.Connection, entries: Sequence[tuple[int, int]], source: str, now_ts: int
) -> int | None:
    """Keep a history of the PUE × 1000; return the new version, if it is one."""
    stage_pue_history(connection, entries, source)
    return publish(connection, f"PUE from {source}", now_ts)


def store_contracts(
    connection: sqlite3.Connection, parts: Sequence[Bought], source: str, now_ts: int
) -> int | None:
    """Keep what was bought; return the new version, if it is one."""
    stage_contracts(connection, parts)
    return publish(connection, f"electricity contracts from {source}", now_ts)


def store_hardware(
    connection: sqlite3.Connection, items: Iterable[Hardware], now_ts: int
) -> int | None:
    """Keep the hardware's carbon; return the new version, if it is one."""
    stage_hardware(connection, items)
    return publish(connection, "embodied carbon of hardware", now_ts)
