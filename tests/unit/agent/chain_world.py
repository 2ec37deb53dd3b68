# SPDX-License-Identifier: Apache-2.0
"""A node of many kinds of boards on which anything may happen, down to the report.

The keeper is the product's; the boards, hooks and the clock are the test's. `Node.events` goes
into a store with `in_store`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from zoneinfo import ZoneInfo

from fairwatt.accounting.agent.journal import Journal
from fairwatt.accounting.agent.keeper import Keeper
from fairwatt.accounting.agent.records import Origin
from fairwatt.accounting.agent.requests import HookRequest
from fairwatt.accounting.agent.segments import read_entries
from fairwatt.accounting.agent.settings import AgentSettings
from fairwatt.accounting.agent.sources import Observation, Sample
from fairwatt.accounting.ingest import ingest
from fairwatt.accounting.runs import insert_runs
from fairwatt.accounting.settle import settle
from fairwatt.accounting.store import open_store, transaction
from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.events import Event
from fairwatt.core.records import Device, GpuInstance, Run
from fairwatt.core.segments import segment_numbers, segment_path
from tests.unit.agent.keeper_bench import NOON_MS

SHARDS = 4
DAY_MS = 86_400_000
LAYOUTS: dict[str, tuple[int, ...]] = {
    "GPU-whole": (),
    "GPU-shared": (),
    "GPU-124": (1, 2, 4),
    "GPU-34": (3, 4),
    "GPU-sevenths": (1,) * 7,
    "GPU-old": (),
}
NO_COUNTER = "GPU-old"
PLACES = tuple(
    f"MIG-{uuid}-{number}" if slices else uuid
    for uuid, slices in LAYOUTS.items()
    for number in range(len(slices) or 1)
)


def device(minor: int, uuid: str, slices: Sequence[int]) -> Device:
    """A board of a known model, cut as told."""
    return Device(
        node="n1", uuid=uuid, name="NVIDIA A100-SXM4-40GB", model="a100-40", minor=minor,
        nvml_index=minor, memory_mib=40_960, mig_enabled=bool(slices), compute_slices=7,
        instances=tuple(
            GpuInstance(uuid=f"MIG-{uuid}-{n}", gi=n, ci=0, profile=f"{size}g",
                        compute_slices=size, memory_mib=4_864)
            for n, size in enumerate(slices)
        ),
    )  # fmt: skip


@dataclass
class Board:
    """A device's counter in mJ, its power, what it really used; `lost`: it does not answer."""

    device: Device
    counter_mj: int = 0
    used_mj: int = 0
    power_mw: int = 0
    lost: bool = False
    forgot: bool = False
    """Some of what it used cannot be known: it was reset or lost, or the clock jumped."""


@dataclass
class Node:
    """The node: what happens to it, and what its agent wrote."""

    folder: Path
    now_ms: int = NOON_MS
    boot: int = 1
    jobs: dict[int, str] = field(default_factory=dict)
    boards: dict[str, Board] = field(default_factory=dict)
    starts_ms: dict[int, int] = field(default_factory=dict)
    keeper: Keeper | None = None
    journal: Journal | None = None
    boot_ms: int = NOON_MS - DAY_MS

    def __post_init__(self) -> None:
        self.boards = {
            uuid: Board(device(minor, uuid, slices), counter_mj=1_000 * minor)
            for minor, (uuid, slices) in enumerate(LAYOUTS.items())
        }
        (self.folder / "inbox").mkdir()
        (self.folder / "gres.conf").write_text(
            f"AutoDetect=nvml Name=gpu\nName=shard Count={SHARDS} File=/dev/nvidia1\n"
        )
        self.start()

    def start(self) -> None:
        """Start the agent, or start it again."""
        settings = AgentSettings(
            node="n1", socket=self.folder / "sock", job_dir=self.folder / "jobs",
            inbox_dir=self.folder / "inbox", spool_dir=self.folder, proc_root=self.folder,
            slurm_conf=self.folder / "slurm.conf", gres_conf=self.folder / "gres.conf",
            collector_url="", munge_socket=None, catalogue_dir=None, sample_s=10.0,
            window_ms=300_000, ship_s=300.0,
        )  # fmt: skip
        self.journal = Journal(self.folder / "journal", first_seq=1)
        self.keeper = Keeper(
            settings, self.journal, Origin("n1", f"boot{self.boot}"), load_catalogue(),
            version="0", clock_ms=lambda: self.now_ms,
        )  # fmt: skip
        with self.journal.synced_at_end():
            self.keeper.resume(self.boot_ms)
            self.keeper.begin(self.look())

    def stop(self) -> None:
        """Kill the agent."""
        if self.journal is not None:
            self.journal.close()
        self.journal = self.keeper = None

    def look(self, util: int | None = None) -> Observation:
        """Return what a visit sees; `util`: of every second place, in thousandths."""
        samples = tuple(self._sample(uuid, board) for uuid, board in self.boards.items())
        utils: dict[str, dict[str, int]] = {}
        if util is not None:
            for uuid, board in self.boards.items():
                places = [one.uuid for one in board.device.instances] or [""]
                utils[uuid] = {place: util * (n % 3) // 2 for n, place in enumerate(places)}
        return Observation(tuple(board.device for board in self.boards.values()), samples, utils)

    def _sample(self, uuid: str, board: Board) -> Sample:
        if board.lost:
            return Sample(uuid, self.now_ms, fault="GPU is lost")
        if uuid == NO_COUNTER:
            return Sample(uuid, self.now_ms, power_mw=board.power_mw)
        return Sample(uuid, self.now_ms, energy_mj=board.counter_mj)

    def pass_time(self, ms: int, power_mw: int) -> None:
        """Let time pass; each board draws another multiple of the power."""
        self.now_ms += ms
        for number, board in enumerate(self.boards.values()):
            drawn_mj = ms * power_mw * (number + 1) // len(self.boards) // 1000
            board.power_mw = power_mw * (number + 1) // len(self.boards)
            board.counter_mj += drawn_mj
            board.used_mj += drawn_mj

    def request(self, verb: str, job_id: int, share: int | None = None) -> HookRequest:
        """Return a hook's message; `share`: an MPS percentage, on the board that is shared."""
        place = self.jobs[job_id]
        env = {"SLURM_JOB_ID": str(job_id), "CUDA_VISIBLE_DEVICES": place}
        if place == "GPU-shared" and share:
            env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(share)
        return HookRequest(v=1, verb=verb, t_ms=self.now_ms, env=env)

    def mail(self, verb: str, job_id: int) -> None:
        """Leave a message in the inbox."""
        request = self.request(verb, job_id)
        text = json.dumps({"v": 1, "verb": verb, "t_ms": request.t_ms, "env": request.env})
        (self.folder / "inbox" / f"{self.now_ms:014d}-{job_id}-{verb}.json").write_text(text)

    def events(self) -> list[Event]:
        """Return all that the agent wrote for the collector."""
        folder = self.folder / "journal"
        entries = [
            e for n in segment_numbers(folder) for e in read_entries(segment_path(folder, n))
        ]
        return [entry.event for entry in entries if entry.event is not None]


def in_store(node: Node, path: Path, events: Sequence[Event]):
    """Return a store that has the events twice, and Slurm's word on each job."""
    db = open_store(path)
    runs = [
        Run(cluster="c1", job_id=job_id, submit_ts=start_ms // 1000, restart_cnt=0,
            state="RUNNING", user="ann", account="a", start_ts=start_ms // 1000,
            alloc_tres="cpu=1,gres/gpu=1")
        for job_id, start_ms in node.starts_ms.items()
    ]  # fmt: skip
    with transaction(db) as connection:
        insert_runs(connection, runs, load_catalogue(), seeded=False)
    assert ingest(db, events)[0] == len(events)
    assert ingest(db, events) == (0, len(events))
    settle(db, "c1", ZoneInfo("UTC"))
    return db
