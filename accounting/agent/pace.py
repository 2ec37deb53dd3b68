# SPDX-License-Identifier: Apache-2.0
"""Notices within two minutes that a GPU of a running job falls behind the job's others here.

Only clocks of whole boards under load are compared, and only with boards of the same model in the
same job on this node: what needs no other node's word. The collector judges the whole run later.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from fairwatt.accounting.agent.sources import Observation
from fairwatt.accounting.agent.usage import BUSY_PERMILLE
from fairwatt.accounting.failslow import MIN_RANKS, Limits, Pace, skew
from fairwatt.core.events import RunStarted
from fairwatt.core.records import Device

__all__ = ["LIVE", "Late", "LivePace"]

LIVE = Limits(lag=0.10, span=3, persist=6)
"""A clock a fifth below is told after seven samples, 70 s at agent.sample_s = 10."""
TICKS = 30

_log = logging.getLogger(__name__)


class Late(NamedTuple):
    """A GPU that is slow now: of which job, how far below its peers, since when."""

    device: str
    job_id: int
    lag: float
    since_ms: int

    @property
    def text(self) -> str:
        """One ASCII line."""
        return f"job {self.job_id}: clock {self.lag:.0%} below the job's other GPUs here"


class _Tick(NamedTuple):
    t_ms: int
    clocks: dict[str, int]


class LivePace:
    """Keeps the last samples' clocks; `late` has the GPUs that are slow now, by UUID."""

    def __init__(self) -> None:
        self.late: dict[str, Late] = {}
        self._ticks: deque[_Tick] = deque(maxlen=TICKS)

    def look(
        self, seen: Observation, runs: Iterable[RunStarted], devices: Mapping[str, Device]
    ) -> None:
        """Take the sample just seen and judge the runs anew."""
        if seen.utils is None or not seen.samples:
            return
        self._ticks.append(_Tick(max(sample.t_ms for sample in seen.samples), _busy(seen)))
        late = {
            one.device: one
            for run in runs
            for alike in _alike(run, devices)
            for one in self._late_of(run, alike)
        }
        self._tell(late)

    def status(self) -> list[dict[str, str | int]]:
        """Return what `status` tells of GPUs that are slow now."""
        return [
            {
                "device": late.device,
                "job_id": late.job_id,
                "below_permille": round(1000 * late.lag),
                "since_ms": late.since_ms,
                "text": late.text,
            }
            for late in self.late.values()
        ]

    def _late_of(self, run: RunStarted, alike: Sequence[str]) -> Iterator[Late]:
        ticks = [tick for tick in self._ticks if tick.t_ms > run.t_ms]
        series = {uuid: [tick.clocks.get(uuid) for tick in ticks] for uuid in alike}
        found = skew(series, LIVE, slower="lower")
        for slow in found.slow if found.state is Pace.STRAGGLER else ():
            # What was slow once and is not any more is the collector's to tell.
            if slow.last == len(ticks) - 1:
                before = self.late.get(slow.rank)
                since_ms = ticks[slow.first].t_ms
                if before is not None and before.job_id == run.job_id:
                    since_ms = min(since_ms, before.since_ms)
                yield Late(slow.rank, run.job_id, slow.lag, since_ms)

    def _tell(self, late: dict[str, Late]) -> None:
        for uuid in late.keys() - self.late.keys():
            _log.warning("%s: %s", uuid, late[uuid].text)
        for uuid in self.late.keys() - late.keys():
            _log.info("%s is not slow any more", uuid)
        self.late = late


def _busy(seen: Observation) -> dict[str, int]:
    utils = seen.utils or {}
    return {
        uuid: mhz
        for uuid, mhz in seen.clocks.items()
        if utils.get(uuid, {}).get("", 0) >= BUSY_PERMILLE
    }


def _alike(run: RunStarted, devices: Mapping[str, Device]) -> Iterator[list[str]]:
    """Yield the whole boards of a run by model, where there are enough to compare."""
    by_model: dict[str, list[str]] = {}
    for hold in run.holds:
        device = devices.get(hold.device)
        if device is not None and not hold.instance and hold.numerator == hold.denominator:
            by_model.setdefault(device.model or device.name, []).append(hold.device)
    yield from (alike for alike in by_model.values() if len(alike) >= MIN_RANKS)
