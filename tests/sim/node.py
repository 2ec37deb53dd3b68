# SPDX-License-Identifier: Apache-2.0
"""The agent's own keepers on simulated boards and hosts, on a clock that leaps.

Everything that judges is the product's: keepers, meters, windows, ledger, journal. Only the GPU
library, the hooks and the waiting are invented; the plan of readings is the daemon's.
"""

from __future__ import annotations

import heapq
import itertools
import json
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from fairwatt.accounting.agent.host.keeper import HostKeeper
from fairwatt.accounting.agent.journal import Journal
from fairwatt.accounting.agent.keeper import Keeper
from fairwatt.accounting.agent.records import Origin
from fairwatt.accounting.agent.requests import parse_request
from fairwatt.accounting.agent.segments import read_entries
from fairwatt.accounting.agent.settings import AgentSettings
from fairwatt.accounting.agent.sources import Observation, Sample
from fairwatt.accounting.agent.timers import next_border_ms
from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.events import Event
from fairwatt.core.segments import segment_numbers, segment_path
from tests.sim.boards import SimBoard
from tests.sim.host import SimHost, SimRapl
from tests.sim.load import Job

__all__ = ["NODE", "SimNode"]

NODE, DRIVER = "sim01", "550.54"
FIRST_SAMPLE_MS, SAMPLE_MS, WINDOW_MS = 1_000, 10_000, 300_000
_Action = Callable[[], None]


class SimNode:
    """Runs jobs past the keepers; `run` returns what they would send to the collector."""

    def __init__(
        self,
        folder: Path,
        boards: Sequence[SimBoard] = (),
        host: SimHost | None = None,
        *,
        seed: int,
    ) -> None:
        self.now_ms = 0
        self._sim_host = host
        self._boards = {board.device.uuid: board for board in boards}
        self._rng = random.Random(seed)
        self._queue: list[tuple[int, int, _Action]] = []
        self._count = itertools.count()
        self._sample_ms = SAMPLE_MS
        self._sample_no = 0
        self._gpm_ms: dict[str, int] = {}
        self._folder = folder
        self._journal: Journal | None = None
        self._keeper: Keeper | None = None
        self._host: HostKeeper | None = None
        self._settings = AgentSettings(
            node=NODE, socket=folder / "sock", job_dir=folder / "jobs",
            inbox_dir=folder / "inbox", spool_dir=folder, proc_root=folder,
            slurm_conf=folder / "slurm.conf", gres_conf=folder / "gres.conf",
            collector_url="", munge_socket=None, catalogue_dir=None,
            sample_s=SAMPLE_MS / 1000, window_ms=WINDOW_MS, ship_s=300.0,
        )  # fmt: skip
        (folder / "inbox").mkdir()

    def run(
        self,
        jobs: Iterable[Job],
        t0_ms: int,
        t1_ms: int,
        away: Sequence[tuple[int, int]] = (),
    ) -> list[Event]:
        """Let the time pass from `t0_ms` to `t1_ms`; the agent is dead in the spans `away`."""
        self._at(t0_ms, self._start)
        for job in jobs:
            self._plan_hook("prolog", job, job.start_ms)
            self._plan_hook("epilog", job, job.end_ms)
        for from_ms, until_ms in away:
            self._at(from_ms, self._die)
            self._at(until_ms, self._start)
        self._at(t1_ms, self._finish)
        while self._queue and self.now_ms <= t1_ms:
            self.now_ms, _, action = heapq.heappop(self._queue)
            action()
        return self._events()

    def _at(self, t_ms: int, action: _Action) -> None:
        heapq.heappush(self._queue, (t_ms, next(self._count), action))

    # -- the agent's life ----------------------------------------------------------------------

    def _start(self) -> None:
        self._journal = Journal(self._folder / "journal", first_seq=1)
        origin = Origin(NODE, "boot")
        self._keeper = Keeper(
            self._settings, self._journal, origin, load_catalogue(), version="0",
            clock_ms=lambda: self.now_ms,
        )  # fmt: skip
        self._gpm_ms = {}
        with self._journal.synced_at_end():
            self._keeper.resume(0)
            self._start_host(origin)
            self._keeper.begin(self._look(with_utils=False))
            self._cut_host()
        self._sample_soon()
        self._plan_border()

    def _start_host(self, origin: Origin) -> None:
        sim = self._sim_host
        if sim is None or self._journal is None:
            return
        self._host = HostKeeper(
            origin, self._journal, [SimRapl(sim, lambda: self.now_ms)],
            lambda: sim.look(self.now_ms), sim.topology, clock_ms=lambda: self.now_ms,
        )  # fmt: skip
        self._host.resume(0)

    def _cut_host(self, border_ms: int | None = None) -> None:
        if self._host is not None:
            self._host.cut(border_ms)

    def _die(self) -> None:
        assert self._journal is not None
        self._journal.close()
        self._journal = self._keeper = self._host = None

    def _finish(self) -> None:
        if self._keeper is not None and self._journal is not None:
            with self._journal.synced_at_end():
                self._keeper.late(self._look(with_utils=False), self._keeper.watched)
                self._cut_host()
            self._die()

    # -- the daemon's plan ---------------------------------------------------------------------

    def _sample_soon(self) -> None:
        self._sample_ms = FIRST_SAMPLE_MS
        self._plan_sample()

    def _plan_sample(self) -> None:
        self._sample_no += 1
        number = self._sample_no
        self._at(self.now_ms + self._sample_ms, lambda: self._sample(number))

    def _sample(self, number: int) -> None:
        """Sample unless a hook has planned another one since."""
        if number != self._sample_no or self._keeper is None or self._journal is None:
            return
        with self._journal.synced_at_end():
            self._keeper.sample(self._look())
            if self._host is not None:
                self._host.sample()
        self._sample_ms = min(2 * self._sample_ms, SAMPLE_MS)
        self._plan_sample()

    def _plan_border(self) -> None:
        border_ms = next_border_ms(self.now_ms, WINDOW_MS)
        keeper = self._keeper
        self._at(border_ms + self._rng.randint(0, 8), lambda: self._border(border_ms, keeper))

    def _border(self, border_ms: int, planned_by: Keeper | None) -> None:
        if self._keeper is None or self._journal is None or self._keeper is not planned_by:
            return
        with self._journal.synced_at_end():
            self._keeper.border(self._look(), border_ms)
            self._cut_host(border_ms)
        self._plan_border()

    # -- hooks ---------------------------------------------------------------------------------

    def _plan_hook(self, verb: str, job: Job, t_ms: int) -> None:
        """The agent reads the boards 2 to 15 ms after the hook noted its time."""
        env = {"SLURM_JOB_ID": str(job.job_id)}
        if self._sim_host is not None:
            env["SLURM_JOB_CPUS_PER_NODE"] = str(len(self._sim_host.cpus[job.place]))
        else:
            env["CUDA_VISIBLE_DEVICES"] = job.place
        line = json.dumps({"v": 1, "verb": verb, "t_ms": t_ms, "env": env})
        name = f"{t_ms:014d}-{job.job_id}-{verb}.json"
        self._at(t_ms + self._rng.randint(2, 15), lambda: self._hook(line, name))

    def _hook(self, line: str, name: str) -> None:
        if self._keeper is None or self._journal is None:
            (self._folder / "inbox" / name).write_text(line)
            return
        with self._journal.synced_at_end():
            self._cut_host()
            self._keeper.hook(parse_request(line.encode()), self._look())
        self._sample_soon()

    # -- what the GPU library shows ------------------------------------------------------------

    def _look(self, *, with_utils: bool = True) -> Observation:
        devices = tuple(board.device for board in self._boards.values())
        samples = tuple(self._read(board) for board in self._boards.values())
        if not with_utils:
            return Observation(devices, samples, driver=DRIVER)
        utils = {uuid: self._utils(board) for uuid, board in self._boards.items()}
        return Observation(devices, samples, utils, driver=DRIVER)

    def _read(self, board: SimBoard) -> Sample:
        uuid, t_ms = board.device.uuid, self.now_ms
        if board.has_counter:
            return Sample(uuid, t_ms, energy_mj=board.counter_mj(t_ms))
        return Sample(uuid, t_ms, power_mw=board.power_mw(t_ms))

    def _utils(self, board: SimBoard) -> dict[str, int]:
        """NVML's rate of a whole board; GPM's mean since the last look at each instance."""
        uuid, t_ms = board.device.uuid, self.now_ms
        if not board.device.mig_enabled:
            return {"": 10 * (board.busy[uuid].mean(t_ms - 500, t_ms) // 10)}
        before_ms = self._gpm_ms.get(uuid)
        if not board.has_gpm or (before_ms is not None and t_ms - before_ms < 100):
            return {}
        self._gpm_ms[uuid] = t_ms
        if before_ms is None:
            return {}
        return {place: trace.mean(before_ms, t_ms) for place, trace in board.busy.items()}

    def _events(self) -> list[Event]:
        folder = self._folder / "journal"
        entries = (
            entry
            for number in segment_numbers(folder)
            for entry in read_entries(segment_path(folder, number))
        )
        return [entry.event for entry in entries if entry.event is not None]
