# SPDX-License-Identifier: Apache-2.0
"""The policy daemon: answers the submit hook over a unix socket, from memory.

One thread serves the socket and does nothing else between a request and its answer. Facts come
from the Refresher. SIGTERM and SIGINT end it, SIGHUP reads the configuration again.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import msgspec

from fairwatt.core import config as config_module
from fairwatt.core.config import Config
from fairwatt.core.errors import ConfigError, PolicyError
from fairwatt.core.gres import Spelling
from fairwatt.core.notify import ready
from fairwatt.slurm_plugins import facts, wire
from fairwatt.slurm_plugins.engine import RULES, Decision, Policy, decide
from fairwatt.slurm_plugins.lineserver import LineServer
from fairwatt.slurm_plugins.refresher import Refresher

__all__ = ["PolicyDaemon", "serve"]

_log = logging.getLogger(__name__)

FIRST_FACTS_S = 3.0
"""How long the socket waits for the first facts; slurmctld may be down and is not waited for."""

NICE_STEP = -10

STALE_AFTER = 10
"""Facts older than so many refresh periods are not used."""


class PolicyDaemon:
    """Turns request lines into answer lines.

    Args:
        config: the settings in use; `reload` replaces them.
        refresher: source of facts.
    """

    def __init__(self, config: Config, refresher: Refresher) -> None:
        self.refresher = refresher
        self._decision_log: TextIO | None = None
        self._judged = 0
        self.use(config)

    def use(self, config: Config) -> None:
        """Take over settings.

        Raises:
            PolicyError: the decision log cannot be opened; the old settings stay.
        """
        path = config["policyd.decision_log"]
        opened = _opened(Path(path)) if path else None
        self.close()
        self._decision_log = opened
        self._modes = {name: config[f"rules.{name}"] for name in RULES}
        self._max_age_s = float(STALE_AFTER * config["policyd.refresh_s"])
        self.refresher.refresh_s = config["policyd.refresh_s"]
        self.refresher.catalogue_dir = config["site.catalogue_dir"] or None

    def close(self) -> None:
        """Close the decision log; what a full disk refuses of it is lost."""
        log, self._decision_log = self._decision_log, None
        try:
            if log is not None:
                log.close()
        except OSError as error:
            _log.warning("decision log: %s", error)

    def reload(self) -> None:
        """Read the configuration again; a broken one is reported and the last good one stays."""
        try:
            self.use(config_module.load(config_module.find()))
        except (ConfigError, PolicyError) as error:
            _log.error("configuration not taken over, the last good one stays: %s", error)
            return
        _log.info("configuration read again")
        self.refresher.poke()

    def answer(self, line: bytes) -> bytes | None:
        """Answer one line; None closes the connection (it was no request of ours)."""
        try:
            query = wire.decode_query(line)
        except msgspec.MsgspecError as error:
            _log.warning("not a request: %s", error)
            return None
        if query.verb == "ping":
            return wire.encode(self._pong())
        if query.v != wire.PROTOCOL:
            _log.warning("hook speaks protocol %d, this is %d", query.v, wire.PROTOCOL)
            return None
        decision = decide(
            query.job,
            self._policy(),
            record=(query.record or {}) if query.verb == "modify" else None,
            spelling=Spelling(query.spelling),
        )
        self._judged += 1
        self._record(query, decision)
        return wire.encode(_answer(query, decision))

    def _policy(self) -> Policy:
        now = self.refresher.snapshot
        return Policy(now.site, self._modes, now.age_s or 0.0, self._max_age_s)

    def _pong(self) -> wire.Pong:
        now = self.refresher.snapshot
        nodes = len(now.site.facts.nodes) if now.site else 0
        return wire.Pong(
            ok=True,
            generation=now.generation,
            age_s=now.age_s,
            nodes=nodes,
            judged=self._judged,
        )

    def _record(self, query: wire.Query, decision: Decision) -> None:
        if self._decision_log is None:
            return
        row = {
            "t_ms": time.time_ns() // 1_000_000,
            "verb": query.verb,
            "job": query.job,
            "decision": decision,
        }
        try:
            self._decision_log.write(msgspec.json.encode(row).decode() + "\n")
        except OSError as error:
            _log.warning("decision log: %s", error)


def serve(config: Config, path: Path | None = None) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        PolicyError: the socket is taken by a daemon that answers, or cannot be made.
    """
    slurm_conf = config["site.slurm_conf"] or None
    refresher = Refresher(
        lambda: facts.from_child(slurm_conf),
        config["policyd.refresh_s"],
        config["site.catalogue_dir"] or None,
    )
    daemon = PolicyDaemon(config, refresher)
    refresher.start()
    refresher.wait_first(FIRST_FACTS_S)
    server = LineServer(path or Path(config["policyd.socket"]), daemon.answer)
    _on_signals(server, daemon.reload)
    _quieten_gc()
    _hurry()
    _log.info("policyd answers at %s", server.path)
    ready(f"answers at {server.path}")
    try:
        server.run()
    finally:
        refresher.stop()
        server.close()
        daemon.close()
    _log.info("policyd ended")


def _answer(query: wire.Query, decision: Decision) -> wire.Answer:
    return wire.Answer(
        v=wire.PROTOCOL,
        id=query.id,
        act="accept" if decision.accepted else "reject",
        set=decision.edits if decision.accepted else {},
        say="\n".join(decision.say) or None,
    )


def _on_signals(server: LineServer, reload: Callable[[], None]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: server.stop())
    signal.signal(signal.SIGHUP, lambda _number, _frame: server.call_soon(reload))


def _quieten_gc() -> None:
    """Keep the collector from walking what lives for ever while slurmctld waits."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)


def _hurry() -> None:
    """Go before others on a busy host, where that is allowed: slurmctld holds its locks for us."""
    with contextlib.suppress(OSError):
        os.nice(NICE_STEP)


def _opened(path: Path) -> TextIO:
    try:
        return path.open("a", encoding="utf-8", buffering=1)
    except OSError as error:
        raise PolicyError(
            f"cannot be opened: {error.strerror}",
            place="policyd.decision_log",
            value=str(path),
            remedy="create its folder or clear the setting",
        ) from error
