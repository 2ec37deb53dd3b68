# SPDX-License-Identifier: Apache-2.0
"""What the collector does again and again: import from Slurm, settle, roll up."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from zoneinfo import ZoneInfo

from sqlite_utils import Database

from fairwatt.accounting.audit_nightly import audit_if_due
from fairwatt.accounting.carbon.restate import restate
from fairwatt.accounting.carbon.site import CarbonSite, carbon_site, prepare_carbon
from fairwatt.accounting.days import site_zone
from fairwatt.accounting.rollup import mark_open_days, rollup
from fairwatt.accounting.settle import settle
from fairwatt.accounting.slurmdb import SlurmDb
from fairwatt.accounting.step_memory import read_step_memory
from fairwatt.accounting.store import open_store, transaction
from fairwatt.accounting.sync import AccountingSource, Imported, last_import_ts, sync
from fairwatt.accounting.waste import Limits
from fairwatt.accounting.waste_settings import limits_of
from fairwatt.accounting.waste_store import judge_runs
from fairwatt.accounting.zone import adopt_zone
from fairwatt.core.catalogue import Catalogue, load_catalogue
from fairwatt.core.config import Config
from fairwatt.core.errors import CommandError, FairwattError

__all__ = [
    "Repeater",
    "Site",
    "import_and_refresh",
    "pause_s",
    "prepare_store",
    "refresh",
    "site_of",
]

GATHER_S = 1.0
PAUSE_TIMES = 9

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Site:
    """The settings that import and rollup need, checked once."""

    database: Path
    cluster: str
    zone: ZoneInfo
    carbon: CarbonSite
    catalogue: Catalogue
    slurm_conf: str
    overlap_s: int
    limits: Limits = field(default_factory=Limits)
    audit_days: int = 0
    audit_hour: int = 0


def site_of(config: Config) -> Site:
    """Read what accounting needs from the configuration and the files it names.

    Raises:
        ConfigError: an unknown time zone, a bad factor file, a zone without factors.
        CatalogueError: a bad file in site.catalogue_dir.
    """
    return Site(
        database=Path(config["collector.database"]),
        cluster=config["site.cluster"],
        zone=site_zone(config["site.timezone"]),
        carbon=carbon_site(config),
        catalogue=load_catalogue(config["site.catalogue_dir"] or None),
        slurm_conf=config["site.slurm_conf"],
        overlap_s=config["collector.sync_overlap_s"],
        limits=limits_of(config),
        audit_days=config["collector.audit_days"],
        audit_hour=config["collector.audit_hour"],
    )


def prepare_store(site: Site) -> Database:
    """Open the store and bring what it knows of carbon and of the site's zone up to date.

    Raises:
        StoreError: it cannot be opened.
        ConfigError: the PUE is not possible, or the zone's hours begin elsewhere.
    """
    db = open_store(site.database)
    with transaction(db) as connection:
        adopt_zone(connection, site.zone)
        prepare_carbon(connection, site.carbon, int(time.time()))
    return db


def refresh(db: Database, site: Site, lock: AbstractContextManager[object] | None = None) -> int:
    """Settle what nodes sent and recompute dirty days; returns how many days those were.

    Running jobs count until the last import: then they were known to run.
    """
    settle(db, site.cluster, site.zone, lock)
    judge_runs(db, site.catalogue, site.limits, site.zone, lock)
    with lock or nullcontext():
        now_ts = last_import_ts(db.conn, site.cluster) or int(time.time())
        with transaction(db) as connection:
            mark_open_days(connection, site.zone, now_ts)
        days = rollup(db, site.cluster, site.zone, site.carbon.zone, now_ts)
        return days + restate(db, site.zone, site.carbon.zone)


def import_and_refresh(
    db: Database,
    site: Site,
    *,
    source: AccountingSource | None = None,
    lock: AbstractContextManager[object] | None = None,
    with_audit: bool = False,
) -> Imported:
    """One whole round: import from Slurm, settle, roll up, and once a night compare with Slurm.

    Raises:
        CommandError: Slurm does not answer; what nodes sent is settled nevertheless.
    """
    slurm = source or SlurmDb(site.slurm_conf)
    try:
        done = sync(
            db,
            slurm,
            cluster=site.cluster,
            catalogue=site.catalogue,
            zone=site.zone,
            overlap_s=site.overlap_s,
            lock=lock,
        )
        if isinstance(slurm, SlurmDb):
            imported_ts = last_import_ts(db.conn, site.cluster) or 0
            read_step_memory(db, slurm, site.cluster, imported_ts, lock)
    finally:
        refresh(db, site, lock)
    if with_audit and isinstance(slurm, SlurmDb) and site.audit_days:
        audit_if_due(db, slurm, cluster=site.cluster, count=site.audit_days, zone=site.zone,
                     hour=site.audit_hour, now_ts=int(time.time()), lock=lock)  # fmt: skip
    return done


def pause_s(took_s: float, gather_s: float = GATHER_S) -> float:
    """Return how long to gather deliveries after a round that took so long.

    At least nine times as long: so no more than a tenth of the time is spent on settling, however
    large the cluster, and deliveries have the rest.
    """
    return max(gather_s, PAUSE_TIMES * took_s)


class Repeater:
    """A thread that imports every `interval_s` and settles soon after `wake`.

    A fault is logged once until it changes or goes, and tried again at the next round.

    Args:
        run_import: imports and refreshes.
        run_refresh: refreshes alone.
        interval_s: seconds between imports; 0: none.
        settle_s: how long to gather deliveries before settling them.
    """

    def __init__(
        self,
        run_import: Callable[[], object],
        run_refresh: Callable[[], object],
        interval_s: float,
        settle_s: float = GATHER_S,
    ) -> None:
        self._import = run_import
        self._refresh = run_refresh
        self._interval_s = interval_s
        self._settle_s = min(settle_s, interval_s) if interval_s else settle_s
        self._news = threading.Event()
        self._end = threading.Event()
        self._fault = ""
        self._took_s = 0.0
        self._thread = threading.Thread(target=self._run, name="fairwatt-cycle", daemon=True)

    def start(self) -> None:
        """Begin with an import at once."""
        self._thread.start()

    def wake(self) -> None:
        """Say that there is something to settle."""
        self._news.set()

    def stop(self, timeout_s: float = 10.0) -> None:
        """End after the step that is running now."""
        self._end.set()
        self._news.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        due = time.monotonic() if self._interval_s else float("inf")
        while not self._end.is_set():
            if time.monotonic() >= due:
                self._news.clear()
                self._try(self._import)
                due = time.monotonic() + self._interval_s
            elif self._wait_for_news(due):
                self._try(self._refresh)

    def _wait_for_news(self, due: float) -> bool:
        """Sleep until news or the next import; True after news, once its burst is over."""
        left_s = None if due == float("inf") else max(0.0, due - time.monotonic())
        if not self._news.wait(left_s):
            return False
        pause = min(pause_s(self._took_s, self._settle_s), max(0.0, due - time.monotonic()))
        if self._end.wait(pause):
            return False
        self._news.clear()
        return True

    def _try(self, step: Callable[[], object]) -> None:
        began = time.monotonic()
        try:
            step()
        except FairwattError as error:
            self._report(str(error), "Slurm is away" if isinstance(error, CommandError) else "")
        except Exception:
            # The thread must outlive any surprise: deliveries go on, the next round tries again.
            _log.exception("accounting round failed")
        else:
            if self._fault and step is self._import:
                _log.info("accounting works again")
                self._fault = ""
        finally:
            self._took_s = time.monotonic() - began

    def _report(self, fault: str, head: str) -> None:
        if fault != self._fault:
            _log.warning("%s%s; it is tried again", f"{head}: " if head else "", fault)
            self._fault = fault
