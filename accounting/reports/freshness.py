# SPDX-License-Identifier: Apache-2.0
"""How old the data is, and whether some of it is invented."""

from __future__ import annotations

import sqlite3

from fairwatt.accounting.store import get_meta
from fairwatt.accounting.sync import last_import_ts

__all__ = ["INVENTED_KEY", "as_of_ts", "invented_by"]

INVENTED_KEY = "invented"
"""Key of the meta table that names the invented university; absent in a real store."""


def as_of_ts(db: sqlite3.Connection, cluster: str) -> int | None:
    """Return when the last import began, UTC epoch seconds: until then runs are known.

    Before the first import, as in an invented year, the end of the newest run; None without any.
    """
    imported_ts = last_import_ts(db, cluster)
    if imported_ts is not None:
        return imported_ts
    newest: int | None = db.execute("SELECT MAX(end_ts) FROM run").fetchone()[0]
    return newest


def invented_by(db: sqlite3.Connection) -> str | None:
    """Return the name of the invented university whose rows the store holds, else None."""
    return get_meta(db, INVENTED_KEY)
