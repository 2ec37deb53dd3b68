# SPDX-License-Identifier: Apache-2.0
"""Tends the store once a night: checks it, moves what is old, and makes the backup.

A damaged store is neither thinned nor are its backups removed. What each step found stands in the
table meta, for `fairwatt doctor`.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from sqlite_utils import Database

from fairwatt.accounting.archive import archive_windows, drop_months
from fairwatt.accounting.backup import back_up
from fairwatt.accounting.days import HOUR_S
from fairwatt.accounting.integrity import check_store
from fairwatt.accounting.prune import prune_events
from fairwatt.accounting.store import get_meta, set_meta, transaction
from fairwatt.accounting.windows import file_of
from fairwatt.core.config import Config
from fairwatt.core.errors import ConfigError, FairwattError

__all__ = ["Keeping", "Upkeep", "keeping_of", "last_result", "tend", "tend_if_due"]

DAY_S = 86_400
LOOK_S = 60.0
_DAY_KEY = "upkeep.day"

_log = logging.getLogger(__name__)
_Lock = AbstractContextManager[object] | None


@dataclass(frozen=True)
class Keeping:
    """The settings store.*, checked; days of 0 mean: never."""

    hour: int
    backup_dir: Path | None
    backup_keep_days: int
    window_days: int
    series_days: int
    event_days: int


def keeping_of(config: Config) -> Keeping:
    """Read how the store is to be kept.

    Raises:
        ConfigError: no hour of a day, or months that are removed before their windows are moved.
    """
    hour = config["store.upkeep_hour"]
    names = ("backup_keep_days", "window_days", "series_days", "event_days")
    days = {name: config[f"store.{name}"] for name in names}
    if not 0 <= hour < 24:
        raise ConfigError(
            "no hour of a day", place="store.upkeep_hour", value=hour, remedy="give 0 to 23"
        )
    if 0 < days["series_days"] < days["window_days"] or (
        days["series_days"] and not days["window_days"]
    ):
        raise ConfigError(
            "shorter than windows stay in the store", place="store.series_days",
            value=days["series_days"], remedy="give more days than store.window_days, or 0",
        )  # fmt: skip
    folder = config["store.backup_dir"]
    return Keeping(hour=hour, backup_dir=Path(folder) if folder else None, **days)


def tend_if_due(
    db: Database, keeping: Keeping, zone: ZoneInfo, now_ts: float, lock: _Lock = None
) -> bool:
    """Tend the store once a local day, from its hour on; whether it was done."""
    now = datetime.fromtimestamp(now_ts, zone)
    today = now.date().isoformat()
    if now.hour < keeping.hour or get_meta(db.conn, _DAY_KEY) == today:
        return False
    with lock or nullcontext(), transaction(db) as connection:
        set_meta(connection, _DAY_KEY, today)
    tend(db, keeping, now_ts, lock)
    return True


def tend(db: Database, keeping: Keeping, now_ts: float, lock: _Lock = None) -> None:
    """Check, move, drop, prune and back up; a step that fails is told and ends no other."""
    store = file_of(db.conn)
    checked = _step(db, "check", now_ts, lock, lambda: {"faults": check_store(store)})
    if checked.get("faults") or checked.get("error"):
        _log.error("the store is damaged, nothing is moved: %s", checked)
    else:
        _step(db, "thin", now_ts, lock, lambda: _thin(db, keeping, now_ts, lock))
    folder = keeping.backup_dir
    if folder is not None:
        _step(db, "backup", now_ts, lock, lambda: _back_up(store, folder, keeping, now_ts))


def last_result(connection: sqlite3.Connection, step: str) -> dict[str, Any] | None:
    """Return what a step last found, with the time `ts`; None if it never ran."""
    text = get_meta(connection, f"store.{step}")
    return None if text is None else dict(json.loads(text))


class Upkeep:
    """A thread that calls `jobs` every minute; what is due is for each of them to know."""

    def __init__(self, *jobs: Callable[[], object]) -> None:
        self._jobs = jobs
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fairwatt-upkeep", daemon=True)

    def start(self) -> None:
        """Begin, a minute from now."""
        self._thread.start()

    def stop(self, timeout_s: float = 3.0) -> None:
        """End after the step that is running now; one that takes longer is given up."""
        self._end.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._end.wait(LOOK_S):
            for job in self._jobs:
                self._try(job)

    def _try(self, job: Callable[[], object]) -> None:
        try:
            job()
        except Exception:
            # The thread must outlive any surprise: the next minute tries again.
            _log.exception("the store was not tended")


def _step(
    db: Database, name: str, now_ts: float, lock: _Lock, run: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    began = time.monotonic()
    try:
        result = run()
        _log.info("store %s: %s", name, result)
    except FairwattError as error:
        result = {"error": str(error)}
        _log.error("store %s: %s", name, error)
    result = {"ts": int(now_ts), "took_s": round(time.monotonic() - began, 1), **result}
    if "error" in result:
        before = last_result(db.conn, name) or {}
        result["good_ts"] = before.get("good_ts")
    else:
        result["good_ts"] = result["ts"]
    with lock or nullcontext(), transaction(db) as connection:
        set_meta(connection, f"store.{name}", json.dumps(result))
    return result


def _thin(db: Database, keeping: Keeping, now_ts: float, lock: _Lock) -> dict[str, Any]:
    done: dict[str, Any] = {}
    now_ts = _measured_until(db.conn, now_ts)
    if keeping.window_days:
        before_ms = int(now_ts - keeping.window_days * DAY_S) * 1000
        done["windows_moved"] = archive_windows(db, before_ms, lock=lock)
    if keeping.series_days:
        before_ms = int(now_ts - keeping.series_days * DAY_S) * 1000
        done["months_removed"] = drop_months(db, before_ms, int(now_ts), lock=lock)
    if keeping.event_days:
        before_ts = int(now_ts - keeping.event_days * DAY_S)
        done["events_pruned"] = prune_events(db, before_ts, lock=lock)
    return done


def _measured_until(connection: sqlite3.Connection, now_ts: float) -> float:
    """Return now, or the last measured hour's end if that is before.

    What is kept goes by what nodes measured: this host's clock, years ahead for once, must not
    remove all months.
    """
    (hour_ts,) = connection.execute("SELECT max(hour_ts) FROM device_hour").fetchone()
    return now_ts if hour_ts is None else min(now_ts, float(hour_ts + HOUR_S))


def _back_up(store: Path, folder: Path, keeping: Keeping, now_ts: float) -> dict[str, Any]:
    made = back_up(store, folder, keep_days=keeping.backup_keep_days, now_ts=now_ts)
    return {"file": made.path.name, "bytes": made.size, "removed": len(made.removed)}
