# SPDX-License-Identifier: Apache-2.0
"""The agent's memory: the fold of its journal, so that a crash loses nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from fairwatt.accounting.agent.idle_looks import added
from fairwatt.accounting.agent.records import (
    EndedRun,
    Entry,
    HostMark,
    IdleLook,
    IdleLooks,
    Reading,
    TimedHold,
    UseMark,
)
from fairwatt.core.events import Event, RunEnded, RunStarted

__all__ = ["State", "apply", "numbered"]

REMEMBERED_RUNS = 1024
"""How many ended runs are kept to recognise a hook's message that comes twice."""


class State(msgspec.Struct, kw_only=True):
    """What must survive a crash; `runs` are open, `ended` the latest (job_id, start_ms) closed.

    `host` are the parts of the host by device, `host_ended` the runs that their next windows owe
    something to. `idle` is what was seen of boards that nobody used.
    """

    next_seq: int = 0
    runs: list[RunStarted] = []
    holds: list[TimedHold] = []
    baselines: dict[str, Reading] = {}
    ended: list[tuple[int, int]] = []
    host: dict[str, HostMark] = {}
    host_ended: list[EndedRun] = []
    uses: UseMark | None = None
    idle: dict[str, IdleLooks] = {}

    def knows(self, job_id: int, start_ms: int) -> bool:
        """Say whether this very run was already opened, or opened and closed."""
        return (job_id, start_ms) in self.ended or any(
            run.job_id == job_id and run.t_ms == start_ms for run in self.runs
        )

    def open_runs(self, job_id: int) -> list[RunStarted]:
        """Return the open runs of a job, oldest first."""
        return [run for run in self.runs if run.job_id == job_id]


def numbered(entries: Iterable[Entry], first_seq: int) -> list[Entry]:
    """Return the entries with their events' sequence numbers filled in from `first_seq` on."""
    result = []
    for entry in entries:
        if entry.event is not None:
            event = msgspec.structs.replace(entry.event, seq=first_seq)
            entry = msgspec.structs.replace(entry, event=event)
            first_seq += 1
        result.append(entry)
    return result


def apply(state: State, entries: Sequence[Entry]) -> None:
    """Fold journal entries into `state`, in place."""
    for entry in entries:
        if entry.event is not None:
            _apply_event(state, entry.event)
        if entry.reading is not None:
            _apply_reading(state, entry.reading)
        if entry.host is not None:
            state.host[entry.host.device] = entry.host
        if entry.uses is not None:
            _apply_uses(state, entry.uses)
        if entry.look is not None:
            _apply_look(state, entry.look)


def _apply_event(state: State, event: Event) -> None:
    state.next_seq = max(state.next_seq, event.seq + 1)
    if isinstance(event, RunStarted):
        _open(state, event)
    elif isinstance(event, RunEnded):
        _close(state, event)


def _open(state: State, run: RunStarted) -> None:
    """Open a run, or give an open one the holds that it is now told to have."""
    key = (run.job_id, run.t_ms)
    if key in state.ended:
        return
    state.runs = [other for other in state.runs if (other.job_id, other.t_ms) != key] + [run]
    state.holds = [timed for timed in state.holds if (timed.job_id, timed.run_start_ms) != key]
    state.holds.extend(
        TimedHold(job_id=run.job_id, run_start_ms=run.t_ms, hold=hold, from_ms=run.t_ms)
        for hold in run.holds
    )


def _close(state: State, end: RunEnded) -> None:
    key = (end.job_id, end.run_start_ms)
    if state.uses is not None and state.uses.t_ms < end.t_ms:
        closed = [run for run in state.runs if (run.job_id, run.t_ms) == key]
        state.host_ended += [EndedRun(run=run, until_ms=end.t_ms) for run in closed]
        state.host_ended = state.host_ended[-REMEMBERED_RUNS:]
    state.runs = [run for run in state.runs if (run.job_id, run.t_ms) != key]
    state.holds = [
        msgspec.structs.replace(timed, until_ms=end.t_ms)
        if (timed.job_id, timed.run_start_ms) == key
        else timed
        for timed in state.holds
    ]
    state.ended = [*state.ended, key][-REMEMBERED_RUNS:]


def _apply_reading(state: State, reading: Reading) -> None:
    state.baselines[reading.device] = reading
    state.holds = [
        timed
        for timed in state.holds
        if timed.hold.device != reading.device
        or timed.until_ms is None
        or timed.until_ms > reading.t_ms
    ]


def _apply_uses(state: State, uses: UseMark) -> None:
    state.uses = uses
    state.host_ended = [ended for ended in state.host_ended if ended.until_ms > uses.t_ms]


def _apply_look(state: State, look: IdleLook) -> None:
    """Add a look; those of another model, MIG mode or driver are forgotten."""
    before = state.idle.get(look.device)
    kept = before if before is not None and before.basis == look.basis else None
    state.idle[look.device] = IdleLooks(
        basis=look.basis,
        since_ms=kept.since_ms if kept else look.t_ms,
        until_ms=look.t_ms,
        means_mw=added(kept.means_mw if kept else (), look.mean_mw),
    )
