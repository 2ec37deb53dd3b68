# SPDX-License-Identifier: Apache-2.0
"""How old the data is, and whether some of it is invented."""

from __future__ import annotations

import sqlite3

from fairwatt.accounting.store import get_meta

__all__ = ["INVENTED_KEY", "as_of_ts", "invented_by"]

INVENTED_KEY = "invented"
"""Key of the meta table that names the invented university; absent in a real store."""


def as_of_ts(db: sqlite3.Connection) -> int | None:
    """Return the end of the newest run in the store, UTC epoch seconds; None if it is empty."""
    newest: int | None = db.execute("SELECT MAX(end_ts) FROM run").fetchone()[0]
    return newest


def invented_by(db: sqlite3.Connection) -> str | None:
    """Return the name of the invented university whose rows the store holds, else None."""
    return get_meta(db, INVENTED_KEY)
