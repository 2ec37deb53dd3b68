# SPDX-License-Identifier: Apache-2.0
"""What is asked for at the regular samples only: a hook that waits has no time for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fairwatt.accounting.agent.host.cgroup import folder_names
from fairwatt.core.events import RunStarted

__all__ = ["NO_EXTRAS", "Extras", "job_key", "shared_boards", "utils_of"]

_ByDevice = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Extras:
    """By device UUID; what is absent was not asked, or is not known.

    `powers` is the board's power in mW beside its counter. `activity` is DCGM's, in thousandths
    by MIG UUID ("" = board). `jobs` is what processes used of a board in thousandths, by the name
    of their job's control group; a job that is not there used nothing.
    """

    powers: Mapping[str, int] = field(default_factory=dict)
    activity: _ByDevice = field(default_factory=dict)
    jobs: _ByDevice = field(default_factory=dict)


NO_EXTRAS = Extras()


def job_key(job_id: int) -> str:
    """Return under which name the use of a board by one of its jobs is kept.

    >>> job_key(7)
    'job 7'
    """
    return f"job {job_id}"


def shared_boards(runs: Sequence[RunStarted]) -> frozenset[str]:
    """Return the boards that several of the runs hold without MIG."""
    held = [hold.device for run in runs for hold in run.holds if not hold.instance]
    return frozenset(device for device in held if held.count(device) > 1)


def utils_of(
    device: str, utils: Mapping[str, int], extras: Extras, runs: Sequence[RunStarted]
) -> dict[str, int]:
    """Return what is known of one device: DCGM goes before NVML's rate, but not before GPM.

    Args:
        device: its UUID.
        utils: by MIG UUID from GPM, or "" for the board's rate.
        extras: what else was seen.
        runs: the open runs.
    """
    activity = extras.activity.get(device, {})
    known = {**activity, **{name: value for name, value in utils.items() if name}}
    if "" in utils:
        known.setdefault("", utils[""])
    if (used := extras.jobs.get(device)) is not None:
        known |= _of_runs(device, used, runs)
    return known


def _of_runs(device: str, used: Mapping[str, int], runs: Sequence[RunStarted]) -> dict[str, int]:
    held = [
        run for run in runs for hold in run.holds if (hold.device, hold.instance) == (device, "")
    ]
    names = {run.job_id: folder_names(run.job_id, run.sluid) for run in held}
    return {
        job_key(job_id): min(1000, sum(used.get(name, 0) for name in either))
        for job_id, either in names.items()
    }
