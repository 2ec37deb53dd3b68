# SPDX-License-Identifier: Apache-2.0
"""policyd as a process: its socket, its threads, signals, its place among the host's processes.

One thread serves the socket and does nothing else between a request and its answer. Facts come
from the Refresher. SIGTERM and SIGINT end it; SIGHUP reads the configuration again, in a thread
of its own.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from fairwatt.core import config as config_module
from fairwatt.core.config import Config
from fairwatt.core.errors import ConfigError, PolicyError
from fairwatt.core.notify import ready
from fairwatt.slurm_plugins.decision_journal import journal_of
from fairwatt.slurm_plugins.facts import ChildReader
from fairwatt.slurm_plugins.lineserver import LineServer
from fairwatt.slurm_plugins.memo import Memo
from fairwatt.slurm_plugins.policy_check import try_rules
from fairwatt.slurm_plugins.policyd import PolicyDaemon, Settings, read_settings
from fairwatt.slurm_plugins.refresher import Refresher
from fairwatt.slurm_plugins.site import Site

__all__ = ["Reloader", "serve"]

_log = logging.getLogger(__name__)

FIRST_FACTS_S = 3.0
"""How long the socket waits for the first facts; slurmctld may be down and is not waited for."""

NICE_STEP = -10

SWITCH_S = 0.0002
"""How long another thread may compute while a request waits; Python's own value is 5 ms."""


def serve(config: Config, path: Path | None = None) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        ConfigError: the policy file is wrong.
        PolicyError: the socket is taken by a daemon that answers, or cannot be made.
    """
    sys.setswitchinterval(SWITCH_S)
    settings = read_settings(config)
    read = ChildReader(config["site.slurm_conf"] or None, config["site.slurm_backend"])
    refresher = Refresher(read, settings.refresh_s, settings.catalogue_dir)
    journal = journal_of(config)
    memo = Memo(config["policyd.memo_entries"])
    daemon = PolicyDaemon(settings, refresher, journal=journal, memo=memo)
    if journal is not None:
        journal.start()
    refresher.start()
    refresher.wait_first(FIRST_FACTS_S)
    _report_failing_rules(settings, refresher.snapshot.site)
    server = LineServer(path or Path(config["policyd.socket"]), daemon.answer)
    daemon.outdate = lambda: server.call_soon(server.part)
    refresher.on_change = lambda: server.call_soon(daemon.look)
    _on_signals(server, Reloader(daemon, server.call_soon))
    _quieten_gc()
    _hurry()
    _log.info("policyd answers at %s", server.path)
    ready(f"answers at {server.path}")
    try:
        server.run()
    finally:
        refresher.stop()
        server.close()
        if journal is not None:
            journal.stop()
    _log.info("policyd ended")


def _report_failing_rules(settings: Settings, site: Site | None) -> None:
    """At the start no good policy can stay: a rule that fails meets jobs as its `fail` says."""
    try:
        if site is not None:
            try_rules(settings.policy, site)
    except PolicyError as error:
        _log.error("%s", error)


class Reloader:
    """Reads the configuration again while the daemon goes on answering.

    Args:
        daemon: gets the new settings.
        between: runs a task between two requests.
    """

    def __init__(
        self, daemon: PolicyDaemon, between: Callable[[Callable[[], None]], None]
    ) -> None:
        self._daemon = daemon
        self._between = between
        self._one_at_a_time = threading.Lock()

    def start(self) -> None:
        """Read in a thread of its own; safe in a signal handler."""
        threading.Thread(target=self.read, name="reload", daemon=True).start()

    def read(self) -> None:
        """Read now; a broken configuration is reported and the last good one stays."""
        with self._one_at_a_time:
            try:
                site = self._daemon.refresher.snapshot.site
                settings = read_settings(config_module.load(config_module.find()), site)
            except (ConfigError, PolicyError) as error:
                _log.error("configuration not taken over, the last good one stays: %s", error)
                return
            self._between(lambda: self._daemon.use(settings))
            self._daemon.refresher.use(settings.refresh_s, settings.catalogue_dir)
        _log.info("configuration read again")


def _on_signals(server: LineServer, reloader: Reloader) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: server.stop())
    signal.signal(signal.SIGHUP, lambda _number, _frame: reloader.start())


def _quieten_gc() -> None:
    """Keep the collector from walking what lives for ever while slurmctld waits."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)


def _hurry() -> None:
    """Go before others on a busy host, where that is allowed: slurmctld holds its locks for us.

    The answering thread most; then the other threads of now, since one that is left without a
    core while it holds the interpreter's lock would hold up the answering one. That includes
    starting a child, which is as quick until it makes itself an ordinary process (facts.py). The
    kernel takes a core away from real-time threads that never wait (sched_rt_runtime_us).
    """
    try:
        for thread in Path("/proc/self/task").iterdir():
            os.sched_setscheduler(int(thread.name), os.SCHED_RR, os.sched_param(1))
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(2))
    except OSError:
        with contextlib.suppress(OSError):
            os.nice(NICE_STEP)
