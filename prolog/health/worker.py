# SPDX-License-Identifier: Apache-2.0
"""`python -m fairwatt.prolog.health.worker`: the agent's child that checks the node's health.

Writes one verdict a line to stdout, at least every heartbeat; reads what jobs hold from stdin and
ends when that closes. NVML and Slurm are asked in threads, so that a hang of either is told.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

import msgspec

from fairwatt.core import config, logs
from fairwatt.core.boot import read_boot_id
from fairwatt.core.errors import FairwattError
from fairwatt.core.verdict import (
    AgentNotice,
    CheckState,
    Finding,
    Verdict,
    encode_verdict,
    state_of,
)
from fairwatt.prolog.health.baseline import recorded_gpus
from fairwatt.prolog.health.drain import stamped
from fairwatt.prolog.health.history import History
from fairwatt.prolog.health.memory import Memory, MemoryFile
from fairwatt.prolog.health.read_nvml import NvmlReader
from fairwatt.prolog.health.round import HostReader, Round
from fairwatt.prolog.health.schedule import Schedule
from fairwatt.prolog.health.settings import HealthSettings, health_settings
from fairwatt.prolog.health.site import site_checks
from fairwatt.prolog.health.slurm_node import SlurmNode
from fairwatt.prolog.health.spec import CheckSpec
from fairwatt.prolog.health.threads import Event, Runner, follow_lines
from fairwatt.prolog.health.warden import Warden

__all__ = ["HealthWorker", "main"]

AFTER_JOB_S = 2.0
"""A job's processes may take a moment to end."""
_log = logging.getLogger(__name__)


class HealthWorker:
    """Rounds, history and warden around one queue of events; see `run`."""

    def __init__(self, settings: HealthSettings, out: BinaryIO, lines: BinaryIO) -> None:
        self._settings = settings
        self._out = out
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        follow_lines(lines, self._events)
        self._nvml = Runner("nvml", self._events)
        self._slurm = Runner("slurm", self._events)
        self._file = MemoryFile(settings.folder)
        memory = self._file.memory
        boards = memory.boards or recorded_gpus(settings.folder)
        self._reader = NvmlReader(settings.proc_root, boards)
        self._host = HostReader(settings, memory.position, memory.xids, boards)
        self._history = History(settings.confirm_rounds, settings.heal_rounds, memory.since)
        self._warden = Warden(
            SlurmNode(settings.node, str(settings.slurm_conf)),
            memory.record,
            limit=settings.max_drains_per_hour,
            watch_s=settings.hang_s / 2,
            boot_id=read_boot_id(settings.proc_root),
        )
        self._round: Round | None = None
        self._rounds = 0
        self._file_stamp: object = None
        self._config_fault: Finding | None = None
        self._specs: dict[str, CheckSpec] = {}
        self._load_checks()

    def run(self) -> None:
        """Check until the parent closes stdin or no longer reads."""
        said = 0.0
        while True:
            now = time.monotonic()
            changed = self._step(now)
            self._ward(now)
            if changed or now - said >= self._settings.heartbeat_s:
                said = now
                self._load_checks()
                self._say()
            event = self._next_event(said)
            if event is not None and not self._handle(event):
                return

    def _next_event(self, said: float) -> Event | None:
        now = time.monotonic()
        waits = [
            said + self._settings.heartbeat_s - now,
            self._round.wait_s(now) if self._round else self._schedule.wait_s(now),
            self._warden.wait_s(now) if self._settings.drains else 3600.0,
        ]
        try:
            return self._events.get(timeout=max(0.01, min(waits)))
        except queue.Empty:
            return None

    # -- rounds ---------------------------------------------------------------------------------

    def _step(self, now: float) -> bool:
        """Begin what is due and judge what is late; say whether a verdict came of it."""
        if self._round is None:
            due = self._schedule.take(now)
            if due:
                self._round = Round(due, now)
                if not self._nvml.is_busy:  # else an earlier call hangs: nothing will come
                    self._nvml.submit(partial(self._reader.read, self._round.draft))
        return self._judge(now, ready=False)

    def _judge(self, now: float, *, ready: bool) -> bool:
        if self._round is None:
            return False
        outcomes = self._round.judge(now, self._host.complete, ready=ready)
        for outcome in outcomes:
            self._history.update(outcome)
        if self._round.is_over:
            self._round = None
            self._rounds += 1
        return bool(outcomes)

    # -- events ---------------------------------------------------------------------------------

    def _handle(self, event: Event) -> bool:
        """Act on an event; False: it is time to end."""
        now = time.monotonic()
        if event.source == "line":
            return self._on_line(event.result, now)
        if event.source == "nvml":
            if event.error is not None:
                _log.error("reading NVML: %s: %s", type(event.error).__name__, event.error)
            mine = self._round is not None and event.result is self._round.draft
            if self._judge(now, ready=mine):
                self._ward(now)
                self._say()
        elif event.error is not None:
            self._warden.failed(event.error, now)
        else:
            self._warden.done(event.result, now)
            self._remember()
            self._ward(now)
            self._say()
        return True

    def _on_line(self, line: bytes | None, now: float) -> bool:
        if line is None:
            return False
        try:
            notice = msgspec.json.decode(line, type=AgentNotice)
        except msgspec.MsgspecError as error:
            _log.error("the agent's line is not understood: %s", error)
            return True
        self._host.holders = notice.holders
        if notice.job_ended:
            self._schedule.hasten("epilog", now, AFTER_JOB_S)
        if notice.prolog_failed_ms is not None:
            self._warden.prolog_failed_ms = notice.prolog_failed_ms
        return True

    # -- Slurm ----------------------------------------------------------------------------------

    def _ward(self, now: float) -> None:
        """Let the warden ask Slurm, if there is something to ask."""
        if not self._settings.drains or self._config_fault is not None:
            return
        record = self._warden.record
        if record.reason:
            self._history.watch(record.code, record.device)
        task = self._warden.next_task(self._wanted(), healed=self._is_healed(), now=now)
        if task is not None:
            self._slurm.submit(task)

    def _wanted(self) -> list[Finding]:
        return [
            finding
            for finding in self._history.troubles()
            if finding.action == "drain" and finding.confirmed
        ]

    def _is_healed(self) -> bool:
        record = self._warden.record
        drains = any(
            spec.code == record.code and spec.enabled and spec.action == "drain"
            for spec in self._specs.values()
        )
        return not drains or self._history.is_healed(record.code, record.device)

    # -- what is said and kept ------------------------------------------------------------------

    def _say(self) -> None:
        self._remember()
        self._out.write(encode_verdict(self._verdict()))
        self._out.flush()

    def _verdict(self) -> Verdict:
        now_ms = time.time_ns() // 1_000_000
        drains, step = self._settings.drains, self._warden.step
        findings = stamped(self._history.troubles(), step, enabled=drains)
        findings += self._history.unknowns(now_ms)
        findings += self._own_findings(now_ms)
        stuck_s = self._nvml.busy_s
        return Verdict(
            t_ms=now_ms,
            node=self._settings.node,
            state=state_of(findings),
            findings=tuple(findings),
            checks=tuple(self._states()),
            stuck_s=round(stuck_s, 1),
            rounds=self._rounds,
        )

    def _states(self) -> Iterator[CheckState]:
        known = {state.name: state for state in self._history.states()}
        for spec in self._specs.values():
            if not spec.enabled:
                yield CheckState(code=spec.code, name=spec.name, state="off", note="switched off")
            else:
                fresh = CheckState(code=spec.code, name=spec.name, state="unknown", note="not yet")
                yield known.get(spec.name, fresh)

    def _own_findings(self, now_ms: int) -> Iterator[Finding]:
        if self._config_fault is not None:
            yield self._config_fault
        if self._warden.fault:
            text = f"Slurm cannot be asked about this node: {self._warden.fault}"
            yield Finding(code="FWH906", severity="unknown", text=text, since_ms=now_ms)
        step = self._warden.step
        if step is not None and step.drain == "limit":
            text = f"not drained: {step.why} (health.max_drains_per_hour)"
            yield Finding(code="FWH907", severity="warn", text=text, since_ms=now_ms)

    def _remember(self) -> None:
        self._file.keep(
            Memory(
                position=self._host.position,
                xids=self._host.xids,
                since=self._history.since(),
                boards=self._reader.known,
                record=self._warden.record,
            )
        )

    def _load_checks(self) -> None:
        """Read the site's file if it is another than before."""
        stamp = _stamp(self._settings.file)
        if self._specs and stamp == self._file_stamp:
            return
        self._file_stamp = stamp
        self._specs, self._config_fault = site_checks(self._settings.file)
        self._schedule = Schedule(list(self._specs.values()), time.monotonic())
        there = [spec for spec in self._specs.values() if spec.enabled]
        self._history.keep_only({spec.name for spec in there}, {spec.code for spec in there})


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def main(argv: Iterable[str] = ()) -> None:
    """Run as the agent's child; our own faults end it with one line on stderr."""
    logs.setup("-v" in argv)
    try:
        settings = health_settings(config.load(config.find()))
        HealthWorker(settings, sys.stdout.buffer, sys.stdin.buffer).run()
    except BrokenPipeError:
        pass
    except FairwattError as error:
        _log.error("%s", error)
        os._exit(1)
    os._exit(0)  # a thread may hang in the driver: do not wait for it


if __name__ == "__main__":
    main(sys.argv[1:])
