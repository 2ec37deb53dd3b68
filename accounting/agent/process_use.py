# SPDX-License-Identifier: Apache-2.0
"""Which job's processes used how much of a board that jobs share without MIG, by NVML.

The driver takes 50 to 100 ms for an answer, so this is asked for only where a site wants it, and
only of boards that are shared. Under MIG there are no such samples.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pynvml

from fairwatt.accounting.agent.host.cgroup import JOB_FOLDER
from fairwatt.core.files import read_plain

__all__ = ["ProcessMeter", "job_folder"]

_Handle = Any
_ABSENT = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
_JOB = re.compile(rf"(?:slurmstepd\.scope|/uid_\d+)/({JOB_FOLDER})(?:/|$)", re.MULTILINE)
LONGEST_CGROUP = 65_536
_log = logging.getLogger(__name__)


class ProcessMeter:
    """Asks for the processes' use since the last question; remembers whose they are.

    A process that has ended since it was sampled has no control group any more: it belongs to
    the job that it was seen in before.
    """

    def __init__(self, proc_root: Path) -> None:
        self._proc_root = proc_root
        self._since_us: dict[str, int] = {}
        self._jobs: dict[str, dict[int, str]] = {}
        self._absent: set[str] = set()

    def by_job(self, uuid: str, handle: _Handle) -> dict[str, int] | None:
        """Return thousandths of the board by control group; None where that is not known.

        Raises:
            pynvml.NVMLError: the device or driver is gone.
        """
        if uuid in self._absent:
            return None
        since_us = self._since_us.get(uuid, time.time_ns() // 1000 - 1_000_000)
        try:
            samples = pynvml.nvmlDeviceGetProcessUtilization(handle, since_us)
        except pynvml.NVMLError as error:
            return self._without_samples(uuid, error)
        self._since_us[uuid] = max([since_us, *(int(one.timeStamp) for one in samples)])
        return self._by_job(uuid, _means(samples))

    def _without_samples(self, uuid: str, error: pynvml.NVMLError) -> dict[str, int] | None:
        # Without any process the driver says SUCCESS, which nvidia-ml-py takes for an error.
        if error.value == pynvml.NVML_SUCCESS:
            self._jobs.pop(uuid, None)
            return {}
        if error.value in _ABSENT:
            _log.warning("%s: NVML offers no use by process here: %s", uuid, error)
            self._absent.add(uuid)
        elif error.value != pynvml.NVML_ERROR_NOT_FOUND:  # no news since the last question
            raise error
        return None

    def _by_job(self, uuid: str, use_of: dict[int, float]) -> dict[str, int]:
        before = self._jobs.get(uuid, {})
        jobs = {pid: self._job_of(pid) or before.get(pid, "") for pid in use_of}
        self._jobs[uuid] = jobs
        used: dict[str, float] = {}
        for pid, percent in use_of.items():
            if jobs[pid]:
                used[jobs[pid]] = used.get(jobs[pid], 0.0) + percent
        return {job: min(1000, round(10 * percent)) for job, percent in used.items()}

    def _job_of(self, pid: int) -> str | None:
        try:
            text = read_plain(self._proc_root / str(pid) / "cgroup", LONGEST_CGROUP)
        except OSError:
            return None
        return job_folder(text.decode("utf-8", "replace"))


def job_folder(text: str) -> str | None:
    """Return the name of a job's control group from /proc/PID/cgroup, None outside any job.

    >>> job_folder("0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0")
    'job_12'
    >>> job_folder("0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/user")
    'sEKNKTV3WPV500'
    """
    found = _JOB.search(text)
    return found[1] if found else None


def _means(samples: Iterable[Any]) -> dict[int, float]:
    """Return each process's mean of its samples in percent."""
    rates: dict[int, list[int]] = {}
    for one in samples:
        rates.setdefault(int(one.pid), []).append(min(100, int(one.smUtil)))
    return {pid: sum(values) / len(values) for pid, values in rates.items()}
