# SPDX-License-Identifier: Apache-2.0
"""Supervises the health worker, a child process, and keeps its newest verdict.

Nothing here waits: the child's pipes are non-blocking and files are written in a thread. A child
that is silent, stuck in the driver or dead is started anew, later each time, and the verdict is
unknown; it is never "bad" because of that.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from fairwatt.accounting.agent.worker import Worker
from fairwatt.core.call import start_child
from fairwatt.core.clock import now_ms
from fairwatt.core.config import Config
from fairwatt.core.errors import CommandError, DeviceError
from fairwatt.core.files import write_atomically
from fairwatt.core.verdict import (
    AgentNotice,
    Holder,
    Verdict,
    decode_verdict,
    encode_verdict,
    verdict_unknown,
)
from fairwatt.core.verdict_metrics import as_metrics

__all__ = ["WORKER", "HealthSettings", "HealthWatch", "health_settings"]

WORKER = (sys.executable, "-P", "-m", "fairwatt.prolog.health.worker")
FIRST_RESTART_S = 1.0
LAST_RESTART_S = 300.0
MOST_DYING = 3
"""A process in a hung driver may not even die when it is killed: no more than these at once."""
LAST_WAIT_S = 0.3
LONGEST_LINE = 4 << 20
WRITE_EVERY_S = 60.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HealthSettings:
    """What the agent needs to know of health; see core/settings.py for the meaning of each."""

    node: str
    state_file: Path
    metrics_file: Path | None
    prolog_fails: bool
    hang_s: float
    argv: Sequence[str] = WORKER


def health_settings(config: Config, node: str) -> HealthSettings | None:
    """Return the settings; None where health.enabled is false."""
    if not config["health.enabled"]:
        return None
    metrics = config["health.metrics_file"]
    return HealthSettings(
        node=node,
        state_file=Path(config["health.state_file"]),
        metrics_file=Path(metrics) if metrics else None,
        prolog_fails=config["health.prolog_fails"],
        hang_s=max(0.2, config["health.hang_s"]),
    )


class HealthWatch:
    """One health worker, from `start` to `close`, in the daemon's loop.

    Args:
        settings: as above.
        selector: the daemon's; the child's answers are read when it says so.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        settings: HealthSettings,
        selector: selectors.BaseSelector,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._selector = selector
        self._clock = clock
        self._files = Worker("health")
        selector.register(self._files, selectors.EVENT_READ, self._files.deliver)
        self._child: subprocess.Popen[bytes] | None = None
        self._dying: list[subprocess.Popen[bytes]] = []
        self._buffer = b""
        self._heard = self._began = clock()
        self._restart_at = 0.0
        self._backoff_s = FIRST_RESTART_S
        self._notice = AgentNotice(holders=())
        self._written: tuple[Any, float] = (None, 0.0)
        self._writing_fault = ""
        self.restarts = 0
        self.verdict = self._unknown("the health checks have not answered yet")

    # -- what the rest of the agent asks --------------------------------------------------------

    def answer(self, devices: Collection[str]) -> dict[str, Any]:
        """Return what the prolog of a job with these boards is told."""
        fault = self.verdict.fault_of(devices) if self._settings.prolog_fails else None
        if fault is None:
            return {"state": self.verdict.state, "drain": None}
        self._tell(prolog_failed_ms=now_ms())
        drain = {"code": fault.code, "device": fault.device, "text": fault.text}
        return {"state": self.verdict.state, "drain": drain}

    def status(self) -> dict[str, Any]:
        """Return what `status` tells of health."""
        return {
            "state": self.verdict.state,
            "t_ms": self.verdict.t_ms,
            "findings": [finding.reason for finding in self.verdict.findings],
            "restarts": self.restarts,
            "holders": msgspec.to_builtins(self._notice.holders),
        }

    def tell_holders(self, holders: Iterable[Holder], *, job_ended: bool = False) -> None:
        """Tell the worker what jobs hold now, if that is new."""
        holders = tuple(sorted(set(holders), key=lambda each: (each.device, each.instance)))
        if holders != self._notice.holders or job_ended:
            self._notice = AgentNotice(holders=holders)
            self._tell(job_ended=job_ended)

    # -- the child ------------------------------------------------------------------------------

    def tick(self) -> None:
        """Start what is due, end what hangs; to be called about once a second."""
        now = self._clock()
        self._dying = [child for child in self._dying if child.poll() is None]
        child = self._child
        if child is None:
            if now >= self._restart_at and len(self._dying) < MOST_DYING:
                self._start(now)
        elif child.poll() is not None:
            self._lose(f"the health checks ended with status {child.returncode}")
        elif self.verdict.stuck_s >= self._settings.hang_s:
            self._lose(f"a call into the driver hangs for {self.verdict.stuck_s:.0f} s")
        elif now - self._heard > self._settings.hang_s:
            self._lose(f"the health checks said nothing for {now - self._heard:.0f} s")
        elif now - self._began > 2 * self._settings.hang_s:
            self._backoff_s = FIRST_RESTART_S

    def close(self) -> None:
        """End the child; one that hangs in the driver is not waited for."""
        if self._child is not None:
            child = self._forget(self._child)
            child.kill()
            self._dying.append(child)
        for child in self._dying:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(LAST_WAIT_S)
        self._selector.unregister(self._files)

    def _start(self, now: float) -> None:
        try:
            child = start_child(self._settings.argv)
        except CommandError as error:
            self._lose(str(error))
            return
        assert child.stdout is not None  # noqa: S101 -- start_child makes it
        assert child.stdin is not None  # noqa: S101
        os.set_blocking(child.stdout.fileno(), False)
        os.set_blocking(child.stdin.fileno(), False)
        self._child, self._buffer = child, b""
        self._heard = self._began = now
        self._selector.register(child.stdout, selectors.EVENT_READ, self._read)
        self._tell()

    def _lose(self, why: str) -> None:
        """The child is of no use any more: be without one for a while."""
        if self._child is not None:
            child = self._forget(self._child)
            child.kill()
            if child.poll() is None:
                self._dying.append(child)
        self.restarts += 1
        self._restart_at = self._clock() + self._backoff_s
        _log.error("%s; begun anew in %.0f s", why, self._backoff_s)
        self._backoff_s = min(LAST_RESTART_S, 2 * self._backoff_s)
        self._take(self._unknown(why))

    def _forget(self, child: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        self._child = None
        if child.stdout is not None and child.stdin is not None:
            self._selector.unregister(child.stdout)
            child.stdout.close()
            child.stdin.close()
        return child

    def _read(self) -> None:
        child = self._child
        if child is None or child.stdout is None:
            return
        part = child.stdout.read(LONGEST_LINE)
        if part is None:
            return
        if not part:
            self._lose("the health checks ended")
            return
        *lines, self._buffer = (self._buffer + part).split(b"\n")
        if len(self._buffer) > LONGEST_LINE:
            self._lose("the health checks said more than a line may hold")
        elif lines:
            self._on_line(lines[-1])

    def _on_line(self, line: bytes) -> None:
        try:
            verdict = decode_verdict(line)
        except DeviceError as error:
            self._lose(str(error))
            return
        self._heard = self._clock()
        self._take(verdict)

    def _tell(self, *, job_ended: bool = False, prolog_failed_ms: int | None = None) -> None:
        if self._child is None or self._child.stdin is None:
            return
        notice = msgspec.structs.replace(
            self._notice, job_ended=job_ended, prolog_failed_ms=prolog_failed_ms
        )
        try:
            # A line is shorter than a pipe: it goes whole or, where the child does not read, not
            # at all. The next start tells everything anew.
            self._child.stdin.write(msgspec.json.encode(notice) + b"\n")
        except OSError as error:
            _log.debug("the health checks do not listen: %s", error)

    # -- the verdict ----------------------------------------------------------------------------

    def _unknown(self, why: str) -> Verdict:
        return verdict_unknown(self._settings.node, now_ms(), "FWH908", why)

    def _take(self, verdict: Verdict) -> None:
        before = {finding.key for finding in self.verdict.findings}
        for finding in verdict.findings:
            if finding.key not in before:
                _log.warning("health: %s %s (%s)", finding.severity, finding.reason, finding.value)
        if verdict.state != self.verdict.state:
            _log.info("health of this node: %s", verdict.state)
        self.verdict = verdict
        self._save()

    def _save(self) -> None:
        """Have the files written if they lack something, or are old."""
        verdict = self.verdict
        content = (verdict.state, verdict.findings, [check.state for check in verdict.checks])
        before, written = self._written
        due = content != before or self._clock() - written >= WRITE_EVERY_S
        if due and not self._files.outstanding:
            self._written = (content, self._clock())
            self._files.submit(lambda: self._write(verdict), self._wrote)

    def _write(self, verdict: Verdict) -> str:
        """Write the files, in the thread; return what went wrong."""
        try:
            self._settings.state_file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            write_atomically(self._settings.state_file, encode_verdict(verdict), 0o644)
            if self._settings.metrics_file is not None:
                write_atomically(self._settings.metrics_file, as_metrics(verdict).encode(), 0o644)
        except OSError as error:
            return f"{error.filename}: {error.strerror}"
        return ""

    def _wrote(self, fault: str) -> None:
        if fault != self._writing_fault and fault:
            _log.error("the verdict cannot be kept: %s", fault)
        self._writing_fault = fault
        self._save()  # what came meanwhile
