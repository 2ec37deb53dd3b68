# SPDX-License-Identifier: Apache-2.0
"""Brings factors of a service into the store, slice by slice; what is there is not asked again.

A run that is interrupted has what came until then, and the next one goes on where there are gaps.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple

from sqlite_utils import Database

from fairwatt.accounting.carbon.factors import Factor, FactorFile
from fairwatt.accounting.carbon.grid_store import stage_factors
from fairwatt.accounting.carbon.site import CarbonSite
from fairwatt.accounting.carbon.sources.source import GridSource
from fairwatt.accounting.carbon.versions import publish
from fairwatt.accounting.store import open_store, transaction
from fairwatt.core.errors import FairwattError, SourceError

__all__ = ["FetchTimer", "Fetched", "fetch", "fetch_recent", "fetch_timer", "last_known_ts"]

DAY_S = 86_400
REVISED_S = 3 * DAY_S
"""So long after the hour services still change their figures: it is asked again."""
LONGEST_GAP_S = 92 * DAY_S
WAITS_S = (5.0, 30.0)

_log = logging.getLogger(__name__)


class Fetched(NamedTuple):
    """What came: factors read, rows changed, slices asked, the new version if there is one."""

    read: int
    changed: int
    asked: int
    version: int | None


def fetch(
    db: Database,
    source: GridSource,
    from_ts: int,
    until_ts: int,
    *,
    again: bool = False,
    lock: AbstractContextManager[object] | None = None,
    waits_s: Sequence[float] = WAITS_S,
    sleep: Callable[[float], object] = time.sleep,
    on_slice: Callable[[int], object] = lambda _ts: None,
) -> Fetched:
    """Ask for [from_ts, until_ts) and keep what comes as one new version.

    Args:
        db: the store.
        source: who is asked.
        from_ts: a slice begins here; epoch seconds.
        until_ts: the future has no factors: not beyond now.
        again: ask also for slices of which the store has all and that are old.
        lock: held while the store is written, never while the service is asked.
        waits_s: how long to wait before a slice that failed is tried again.
        sleep: waits.
        on_slice: called with the end of each slice.

    Raises:
        SourceError: a slice failed at every try; what came before it is kept.
    """
    now_ts = int(time.time())
    read = changed = asked = 0
    try:
        for a_ts, b_ts in _slices(from_ts, min(until_ts, now_ts), source.slice_s):
            if again or b_ts > now_ts - REVISED_S or not _is_known(db.conn, source, a_ts, b_ts):
                factors = _ask(source, a_ts, b_ts, waits_s, sleep)
                asked, read = asked + 1, read + len(factors.factors)
                with lock or nullcontext(), transaction(db) as connection:
                    changed += stage_factors(connection, factors, source.name)
            on_slice(b_ts)
    finally:
        with lock or nullcontext(), transaction(db) as connection:
            version = publish(connection, f"{source.name}: factors of {source.zone}", now_ts)
    return Fetched(read, changed, asked, version)


def fetch_recent(
    db: Database,
    source: GridSource,
    lock: AbstractContextManager[object] | None = None,
    waits_s: Sequence[float] = (),
) -> Fetched:
    """Ask for the days that services still change, and for all since the last known factor.

    Raises:
        SourceError: see `fetch`.
    """
    now_ts = int(time.time())
    last_ts = last_known_ts(db.conn, source)
    since_ts = now_ts - REVISED_S if last_ts is None else min(last_ts, now_ts - REVISED_S)
    first_ts = max(since_ts, now_ts - LONGEST_GAP_S) // DAY_S * DAY_S
    return fetch(db, source, first_ts, now_ts, lock=lock, waits_s=waits_s)


def fetch_timer(
    database: Path,
    site: CarbonSite,
    lock: AbstractContextManager[object],
    on_news: Callable[[], object],
) -> FetchTimer:
    """Return the collector's timer; `on_news` is called when days have to be restated."""

    def run() -> None:
        if site.source is None:
            return
        db = open_store(database)
        try:
            if fetch_recent(db, site.source, lock).version:
                on_news()
        finally:
            db.close()

    return FetchTimer(run, site.interval_s)


class FetchTimer:
    """A thread that calls `run` at once and then every `interval_s`; 0: never.

    A fault is logged once until it changes or goes.
    """

    def __init__(self, run: Callable[[], object], interval_s: float) -> None:
        self._run_once = run
        self._interval_s = interval_s
        self._end = threading.Event()
        self._fault = ""
        self._thread = threading.Thread(target=self._run, name="fairwatt-carbon", daemon=True)

    def start(self) -> None:
        """Begin."""
        if self._interval_s > 0:
            self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """End after the question that is open now, or leave it to its deadline."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._end.is_set():
            try:
                self._run_once()
                self._fault = ""
            except FairwattError as error:
                if str(error) != self._fault:
                    _log.warning("grid factors: %s; it is tried again", error)
                self._fault = str(error)
            except Exception:
                # The thread must outlive any surprise: the next round tries again.
                _log.exception("grid factors could not be fetched")
            self._end.wait(self._interval_s)


def _slices(from_ts: int, until_ts: int, slice_s: int) -> Iterator[tuple[int, int]]:
    """Cut the span at multiples of the slice, so that a later run asks for the same ones."""
    at = from_ts
    while at < until_ts:
        end = min(until_ts, (at // slice_s + 1) * slice_s)
        yield at, end
        at = end


def _ask(
    source: GridSource,
    from_ts: int,
    until_ts: int,
    waits_s: Sequence[float],
    sleep: Callable[[float], object],
) -> FactorFile:
    for wait_s in waits_s:
        try:
            return _file(source, source.fetch(from_ts, until_ts))
        except SourceError as error:
            _log.info("%s; tried again in %.0f s", error, wait_s)
            sleep(wait_s)
    return _file(source, source.fetch(from_ts, until_ts))


def _file(source: GridSource, factors: Sequence[Factor]) -> FactorFile:
    now_ts = int(time.time())
    return FactorFile(source.source, source.licence, source.method, now_ts, tuple(factors))


def _is_known(connection: sqlite3.Connection, source: GridSource, a_ts: int, b_ts: int) -> bool:
    (known_s,) = connection.execute(
        "SELECT coalesce(sum(min(until_ts, :b) - max(from_ts, :a)), 0) FROM grid_factor"
        " WHERE zone = :zone AND method = :method AND origin = :origin"
        " AND until_version IS NULL AND from_ts < :b AND until_ts > :a",
        {"a": a_ts, "b": b_ts, **_keys(source)},
    ).fetchone()
    return int(known_s) >= b_ts - a_ts


def last_known_ts(connection: sqlite3.Connection, source: GridSource) -> int | None:
    """Return the end of the newest factor that the store has of the service, None without one."""
    (last_ts,) = connection.execute(
        "SELECT max(until_ts) FROM grid_factor WHERE zone = :zone AND method = :method"
        " AND origin = :origin AND until_version IS NULL",
        _keys(source),
    ).fetchone()
    return None if last_ts is None else int(last_ts)


def _keys(source: GridSource) -> dict[str, str]:
    return {"zone": source.zone, "method": source.method, "origin": source.name}
