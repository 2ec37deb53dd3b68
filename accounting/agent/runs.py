# SPDX-License-Identifier: Apache-2.0
"""Opens and closes runs: which events a prolog or an epilog means for the state. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

import msgspec

from fairwatt.accounting.agent.host.cpus import allocated_cpus
from fairwatt.accounting.agent.records import Entry, Origin, TimedHold
from fairwatt.accounting.agent.requests import HookRequest, job_id_of, whole_number
from fairwatt.accounting.agent.state import State
from fairwatt.core.events import DeviceHold, RunEnded, RunStarted

__all__ = ["correcting", "ending", "lost_with_boot", "starting"]


def starting(
    state: State,
    request: HookRequest,
    holds: Sequence[DeviceHold],
    mapped_by: str,
    origin: Origin,
) -> list[Entry]:
    """Return the events of a prolog: runs it proves to be over are closed first.

    A message that comes twice (socket and inbox) gives none.
    """
    job_id, t_ms = job_id_of(request) or 0, request.t_ms or 0
    if state.knows(job_id, t_ms):
        return []
    closed = [
        _ended(run, max(t_ms, run.t_ms), "requeued", origin) for run in state.open_runs(job_id)
    ]
    claimed = [
        _ended(run, max(t_ms, run.t_ms), "claimed", origin)
        for run in _holders(state, holds, job_id)
    ]
    event = RunStarted(
        node=origin.node,
        boot_id=origin.boot_id,
        seq=0,
        t_ms=t_ms,
        job_id=job_id,
        restart_cnt=whole_number(request.env, "SLURM_JOB_RESTART_COUNT", "SLURM_RESTART_COUNT"),
        sluid=_text(request, "SLURM_JOB_SLUID") or _text(request, "SLURM_SLUID"),
        uid=whole_number(request.env, "SLURM_JOB_UID"),
        account=_text(request, "SLURM_JOB_ACCOUNT"),
        holds=tuple(holds),
        mapped_by=mapped_by,
        ncpus=allocated_cpus(request.env, origin.node),
    )
    return [*closed, *claimed, Entry(event=event)]


def correcting(
    state: State,
    run: RunStarted,
    holds: Sequence[DeviceHold],
    mapped_by: str,
    origin: Origin,
    now_ms: int,
) -> list[Entry]:
    """Return the events that give an open run other holds: its start, told anew.

    Older runs that cannot hold the devices beside it are over; they are closed first.
    """
    claimed = [
        _ended(other, max(now_ms, other.t_ms), "claimed", origin)
        for other in _holders(state, holds, run.job_id)
        if other.t_ms <= run.t_ms
    ]
    anew = msgspec.structs.replace(run, seq=0, holds=tuple(holds), mapped_by=mapped_by)
    return [*claimed, Entry(event=anew)]


def ending(
    state: State,
    request: HookRequest,
    closed_by: str,
    origin: Origin,
    read_ms: int,
    now_ms: int,
) -> list[Entry]:
    """Return the events of an epilog; none for a run that is not open.

    The run ends with the devices' reading at `read_ms` (0: they were not read). An epilog from
    before a run began belongs to an earlier run of the job; but a run that began later than
    `now_ms` shows that the clock was set back meanwhile.
    """
    t_ms = request.t_ms or 0
    return [
        _ended(run, max(t_ms, read_ms, run.t_ms), closed_by, origin)
        for run in state.open_runs(job_id_of(request) or 0)
        if run.t_ms <= t_ms or run.t_ms > now_ms
    ]


def lost_with_boot(state: State, origin: Origin, boot_ms: int) -> list[Entry]:
    """Return events that close the runs of an earlier boot of this node."""
    return [
        _ended(run, max(boot_ms, run.t_ms), "reboot", origin)
        for run in state.runs
        if run.boot_id != origin.boot_id
    ]


def _ended(run: RunStarted, t_ms: int, closed_by: str, origin: Origin) -> Entry:
    event = RunEnded(
        node=origin.node,
        boot_id=origin.boot_id,
        seq=0,
        t_ms=t_ms,
        job_id=run.job_id,
        run_start_ms=run.t_ms,
        closed_by=closed_by,
    )
    return Entry(event=event)


def _holders(state: State, holds: Sequence[DeviceHold], job_id: int) -> list[RunStarted]:
    """Return other jobs' open runs that hold what this job holds now: their epilog was missed."""
    others = [timed for timed in _open(state.holds) if timed.job_id != job_id]
    keys = {
        (timed.job_id, timed.run_start_ms)
        for hold in holds
        for timed in _conflicting(others, hold)
    }
    return [run for run in state.runs if (run.job_id, run.t_ms) in keys]


def _conflicting(held: Sequence[TimedHold], hold: DeviceHold) -> list[TimedHold]:
    """Return what cannot be held beside `hold`; of parts that are too many, the oldest."""
    same = [timed for timed in held if timed.hold.device == hold.device]
    clashing = [timed for timed in same if _overlap(timed.hold, hold)]
    parts = sorted(
        (timed for timed in same if _is_part(timed.hold) and _is_part(hold)),
        key=lambda timed: timed.from_ms,
    )
    while parts and _fraction(hold) + sum(_fraction(timed.hold) for timed in parts) > 1:
        clashing.append(parts.pop(0))
    return clashing


def _open(held: Iterable[TimedHold]) -> list[TimedHold]:
    return [timed for timed in held if timed.until_ms is None]


def _overlap(one: DeviceHold, other: DeviceHold) -> bool:
    if _is_part(one) and _is_part(other):
        return False
    return one.instance == other.instance or "" in (one.instance, other.instance)


def _is_part(hold: DeviceHold) -> bool:
    """Say whether it is a part of a board without instances: shards or MPS."""
    return not hold.instance and hold.numerator < hold.denominator


def _fraction(hold: DeviceHold) -> Fraction:
    return Fraction(hold.numerator, hold.denominator)


def _text(request: HookRequest, name: str) -> str | None:
    """Return a variable; Slurm writes `(null)` where it has no value."""
    value = request.env.get(name, "")
    return None if value in ("", "(null)") else value[:256]
