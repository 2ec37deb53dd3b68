# SPDX-License-Identifier: Apache-2.0
"""The policy daemon: answers the submit hook over a unix socket, from memory.

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
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from fairwatt.core import config as config_module
from fairwatt.core.config import Config
from fairwatt.core.errors import ConfigError, PolicyError
from fairwatt.core.gres import Spelling
from fairwatt.core.notify import ready
from fairwatt.slurm_plugins import wire
from fairwatt.slurm_plugins.decision_journal import journal_of
from fairwatt.slurm_plugins.durations import Durations
from fairwatt.slurm_plugins.engine import Decision, Policy, decide
from fairwatt.slurm_plugins.facts import ChildReader
from fairwatt.slurm_plugins.lineserver import LineServer
from fairwatt.slurm_plugins.memo import Memo, Remembered
from fairwatt.slurm_plugins.policy_check import try_rules
from fairwatt.slurm_plugins.policy_file import PolicyFile, load_policy
from fairwatt.slurm_plugins.refresher import Refresher
from fairwatt.slurm_plugins.rule import ActiveRule
from fairwatt.slurm_plugins.site import Site

__all__ = ["Journal", "PolicyDaemon", "Settings", "read_settings", "serve"]

_log = logging.getLogger(__name__)

FIRST_FACTS_S = 3.0
"""How long the socket waits for the first facts; slurmctld may be down and is not waited for."""

NICE_STEP = -10

STALE_AFTER = 10
"""Facts older than so many refresh periods are not used."""

SWITCH_S = 0.0002
"""How long another thread may compute while a request waits; Python's own value is 5 ms."""


class Journal(Protocol):
    """Where decisions are kept."""

    def offer(self, query: wire.Query, decision: Decision, took_us: int) -> None:
        """Take one decision while slurmctld waits. Its `admin_comment` has no id in it yet."""


@dataclass(frozen=True)
class Settings:
    """What the daemon works by, read whole before it replaces what is in use."""

    policy: PolicyFile
    refresh_s: int
    catalogue_dir: str | None

    @property
    def rules(self) -> tuple[ActiveRule, ...]:
        """The rules in order."""
        return self.policy.rules

    @property
    def max_age_s(self) -> float:
        """Older facts are not used."""
        return float(STALE_AFTER * self.refresh_s)


def read_settings(config: Config, site: Site | None = None) -> Settings:
    """Read the policy file; where a site is known, each rule is tried on it before any real job.

    Raises:
        ConfigError: it is wrong.
        PolicyError: a site's rule cannot be used, or a rule raises on a trial request.
    """
    policy = load_policy(Path(config["policyd.policy_file"]))
    if site is not None:
        try_rules(policy, site)
    return Settings(
        policy,
        refresh_s=config["policyd.refresh_s"],
        catalogue_dir=config["site.catalogue_dir"] or None,
    )


class PolicyDaemon:
    """Turns request lines into answer lines.

    Args:
        settings: what to work by; `use` replaces them.
        refresher: source of facts.
        journal: where decisions are kept, if anywhere.
        memo: keeps answers; one without room for any makes each request judged anew.
    """

    def __init__(
        self,
        settings: Settings,
        refresher: Refresher,
        *,
        journal: Journal | None = None,
        memo: Memo | None = None,
    ) -> None:
        self.refresher = refresher
        self._settings = settings
        self._journal = journal
        self._memo = Memo() if memo is None else memo
        self._site = refresher.snapshot.site
        self._durations = Durations()
        self._judged = 0
        self._hits = 0

    def use(self, settings: Settings) -> None:
        """Take over settings; call it between two requests."""
        self._settings = settings
        self._memo.forget()

    def answer(self, line: bytes) -> bytes | None:
        """Answer one line; None closes the connection (it was no request of ours)."""
        start_ns = time.perf_counter_ns()
        policy = self._policy()
        # Answers without usable facts tell how old these are: never kept.
        usable = policy.site is not None and policy.age_s <= policy.max_age_s
        id_, key = wire.split_id(line) if usable else (b"", b"")
        known = self._memo.get(key) if key else None
        if known is not None:
            self._hits += 1
        else:
            query = _query(line, id_)
            if query is None:
                return None
            if query.verb == "ping":
                return wire.encode(self._pong())
            id_ = query.id.encode()
            known = _remembered(query, policy)
            if key and _is_lasting(known.decision):
                self._memo.put(key, known)
        answer = id_.join(known.pieces)
        self._count(id_, known, (time.perf_counter_ns() - start_ns) // 1000)
        return answer

    def _policy(self) -> Policy:
        now = self.refresher.snapshot
        if now.site is not self._site:
            self._site = now.site
            self._memo.forget()
        settings = self._settings
        return Policy(now.site, settings.rules, now.age_s or 0.0, settings.max_age_s)

    def _pong(self) -> wire.Pong:
        now = self.refresher.snapshot
        return wire.Pong(
            ok=True,
            generation=now.generation,
            age_s=now.age_s,
            nodes=len(now.site.facts.nodes) if now.site else 0,
            judged=self._judged,
            memo_hits=self._hits,
            p50_us=self._durations.percentile_us(50),
            p99_us=self._durations.percentile_us(99),
        )

    def _count(self, id_: bytes, known: Remembered, took_us: int) -> None:
        self._judged += 1
        self._durations.add(took_us)
        if self._journal is not None:
            query = msgspec.structs.replace(known.query, id=id_.decode())
            self._journal.offer(query, known.decision, took_us)


def _query(line: bytes, id_: bytes) -> wire.Query | None:
    """Read a request; None: it is none of ours. `id_` is what was taken for its id, if any."""
    try:
        query = wire.decode_query(line)
    except msgspec.MsgspecError as error:
        _log.warning("not a request: %s", error)
        return None
    if query.verb == "ping":
        return query
    if query.v != wire.PROTOCOL:
        _log.warning("hook speaks protocol %d, this is %d", query.v, wire.PROTOCOL)
        return None
    if not wire.is_id(query.id) or (id_ and id_ != query.id.encode()):
        _log.warning("not a request: its id is not as the hook makes them")
        return None
    return query


def _remembered(query: wire.Query, policy: Policy) -> Remembered:
    decision = decide(
        query.job,
        policy,
        record=(query.record or {}) if query.verb == "modify" else None,
        spelling=Spelling(query.spelling),
    )
    answer = wire.Answer(
        v=wire.PROTOCOL,
        id="",
        act="accept" if decision.accepted else "reject",
        set=decision.edits if decision.accepted else {},
        say="\n".join(decision.say) or None,
    )
    return Remembered(wire.pieces(answer), query, decision)


def _is_lasting(decision: Decision) -> bool:
    """Whether the next equal request may have this answer: not when judging broke off."""
    return bool(decision.steps) or not decision.say


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
