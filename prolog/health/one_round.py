# SPDX-License-Identifier: Apache-2.0
"""One round of all checks at once, for `fairwatt health run` and `baseline`; never drains."""

from __future__ import annotations

import contextlib
import json
import queue
import time
from collections.abc import Iterable
from functools import partial

import msgspec

from fairwatt.core.unix_socket import ask_line
from fairwatt.core.verdict import Finding, Holder, Verdict, state_of
from fairwatt.prolog.health.baseline import recorded_gpus
from fairwatt.prolog.health.history import History
from fairwatt.prolog.health.memory import MemoryFile
from fairwatt.prolog.health.read_kernel import Position
from fairwatt.prolog.health.read_nvml import NvmlReader
from fairwatt.prolog.health.reading import NVML_PARTS, Gpu, Reading
from fairwatt.prolog.health.round import HostReader, Round
from fairwatt.prolog.health.settings import HealthSettings
from fairwatt.prolog.health.spec import CheckSpec
from fairwatt.prolog.health.threads import Event, Runner

__all__ = ["one_reading", "one_round"]

PATIENCE_S = 10.0
AGENT_S = 1.0


def one_round(
    settings: HealthSettings, specs: Iterable[CheckSpec], config_fault: Finding | None
) -> Verdict:
    """Run every check that is on, once, and return the verdict."""
    enabled = [spec for spec in specs if spec.enabled]
    history = History(1, 1)
    now = time.monotonic()
    started = Round(enabled, now)
    host = _host(settings)
    ready = _filled(settings, started)
    for outcome in started.judge(time.monotonic(), host.complete, ready=True):
        history.update(outcome)
    now_ms = time.time_ns() // 1_000_000
    findings = history.troubles() + history.unknowns(now_ms)
    findings += [config_fault] if config_fault else []
    return Verdict(
        t_ms=now_ms,
        node=settings.node,
        state=state_of(findings),
        findings=tuple(findings),
        checks=tuple(history.states()),
        stuck_s=0.0 if ready else PATIENCE_S,
        rounds=1,
    )


def one_reading(settings: HealthSettings, specs: Iterable[CheckSpec]) -> Reading:
    """Return what can be read of this node now."""
    started = Round(specs, time.monotonic())
    started.draft.wanted = list(NVML_PARTS)
    _filled(settings, started)
    why_not = f"the driver did not answer within {PATIENCE_S:g} s"
    return _host(settings).complete(started.draft, why_not)


def _filled(settings: HealthSettings, started: Round) -> bool:
    """Have NVML fill the round's draft; say whether it did so in time."""
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    reader = NvmlReader(settings.proc_root, _known(settings))
    Runner("nvml", events).submit(partial(reader.read, started.draft))
    try:
        return events.get(timeout=PATIENCE_S).error is None
    except queue.Empty:
        return False


def _known(settings: HealthSettings) -> tuple[Gpu, ...]:
    return MemoryFile(settings.folder).memory.boards or recorded_gpus(settings.folder)


def _host(settings: HealthSettings) -> HostReader:
    host = HostReader(settings, Position(), (), _known(settings))
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, msgspec.ValidationError):
        answer = json.loads(ask_line(settings.agent_socket, b'{"v":1,"verb":"status"}\n', AGENT_S))
        host.holders = msgspec.convert(answer["health"]["holders"], tuple[Holder, ...])
    return host
