# SPDX-License-Identifier: Apache-2.0
"""Keeps policyd's facts fresh in a thread of its own: a failure keeps the last good ones."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.errors import FairwattError
from fairwatt.slurm_plugins.site import Facts, Site

__all__ = ["Refresher", "Snapshot"]

_log = logging.getLogger(__name__)

RETRY_S = 1.0
"""Pause after a failure while there are no facts at all: slurmctld itself waits for the hook."""


@dataclass(frozen=True)
class Snapshot:
    """The facts in use: `read_at` is monotonic seconds, generation 0 means none yet."""

    site: Site | None = None
    generation: int = 0
    read_at: float = 0.0

    @property
    def age_s(self) -> float | None:
        """Seconds since these facts were read; None: there are none."""
        return None if self.site is None else time.monotonic() - self.read_at


class Refresher:
    """Reads facts every `refresh_s`, and at once after `use`.

    A Site is made anew only when its facts or the catalogue changed: who holds on to one knows
    by its identity.

    Args:
        read: returns the facts; FairwattError or MsgspecError when it cannot.
        refresh_s: seconds between readings.
        catalogue_dir: the site's folder of GPU models, or None.

    `on_change` is called in the reading thread after there is another Site.
    """

    def __init__(
        self, read: Callable[[], Facts], refresh_s: float, catalogue_dir: str | None
    ) -> None:
        self.snapshot = Snapshot()
        self.refresh_s = refresh_s
        self.read = read
        self.catalogue_dir = catalogue_dir
        self.on_change: Callable[[], None] = lambda: None
        self._wake = threading.Event()
        self._stopping = False
        self._failing = False
        self._outdated = False
        self._tried = threading.Event()
        self._thread = threading.Thread(target=self._run, name="facts", daemon=True)

    def start(self) -> None:
        """Start reading."""
        self._thread.start()

    def wait_first(self, timeout_s: float) -> None:
        """Wait until facts were read once, or could not be."""
        self._tried.wait(timeout_s)

    def use(self, refresh_s: float, catalogue_dir: str | None) -> None:
        """Take over settings, read the catalogue again and the facts at once."""
        self.refresh_s = refresh_s
        self.catalogue_dir = catalogue_dir
        self._outdated = True
        self._wake.set()

    def stop(self) -> None:
        """Stop; a reading in progress is abandoned with the process."""
        self._stopping = True
        self._wake.set()

    def refresh(self) -> None:
        """Read once; on failure keep what there is and say so once."""
        try:
            facts = self.read()
            site = self.snapshot.site
            if site is None or self._outdated or facts != site.facts:
                if self._outdated:
                    load_catalogue.cache_clear()
                self._outdated = False
                site = Site(facts, load_catalogue(self.catalogue_dir))
        except (FairwattError, msgspec.MsgspecError) as error:
            if not self._failing:
                _log.warning("facts cannot be read, the last good ones stay: %s", error)
            self._failing = True
            return
        if self._failing or self.snapshot.site is None:
            _log.info("facts read: %d nodes", len(facts.nodes))
        self._failing = False
        before = self.snapshot.site
        self.snapshot = Snapshot(site, self.snapshot.generation + 1, time.monotonic())
        if site is not before:
            self.on_change()

    def _run(self) -> None:
        while not self._stopping:
            self.refresh()
            self._tried.set()
            gc.collect()
            self._wake.wait(RETRY_S if self.snapshot.site is None else self.refresh_s)
            self._wake.clear()
