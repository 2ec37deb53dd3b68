# SPDX-License-Identifier: Apache-2.0
"""A keeper without threads: its journal on disk, its clock and counter moved by the test."""

from __future__ import annotations

import json
from pathlib import Path

from fairwatt.accounting.agent.journal import Journal
from fairwatt.accounting.agent.keeper import Keeper
from fairwatt.accounting.agent.records import Origin
from fairwatt.accounting.agent.requests import HookRequest
from fairwatt.accounting.agent.segments import read_entries
from fairwatt.accounting.agent.settings import AgentSettings
from fairwatt.accounting.agent.sources import Observation, Sample
from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.events import RunEnded, WindowClosed
from fairwatt.core.records import Device, GpuInstance
from fairwatt.core.segments import segment_numbers, segment_path

HOUR_MS = 3_600_000
NOON_MS = 500_000 * HOUR_MS
IDLE_MW = load_catalogue().model("a100-40").idle_mw


def board(uuid: str, *slices: int) -> Device:
    """An A100; with `slices` it is cut into instances of that many compute slices."""
    return Device(
        node="n1", uuid=uuid, name="NVIDIA A100-SXM4-40GB", model="a100-40", minor=0,
        nvml_index=0, memory_mib=40_960, mig_enabled=bool(slices), compute_slices=7,
        instances=tuple(
            GpuInstance(uuid=f"MIG-{n}", gi=n, ci=0, profile=f"{size}g", compute_slices=size,
                        memory_mib=4_864)
            for n, size in enumerate(slices)
        ),
    )  # fmt: skip


class Bench:
    """A keeper with its journal on disk, and a clock and counter that the test moves."""

    def __init__(self, folder: Path, device: Device, boot_id: str = "boot1") -> None:
        self.folder = folder
        self.device = device
        self.now_ms = NOON_MS
        self.energy_mj: int | None = 1_000_000
        self.boot_id = boot_id
        self.boot_ms = NOON_MS - HOUR_MS
        self.dcgm_job_dir: Path | None = None
        self.driver = "550.54"
        self.steady_ms: int | None = None
        self.keeper: Keeper | None = None
        self.journal: Journal | None = None

    def start(self) -> None:
        settings = AgentSettings(
            node="n1", socket=self.folder / "sock", job_dir=self.folder / "jobs",
            inbox_dir=self.folder / "inbox", spool_dir=self.folder, proc_root=self.folder,
            slurm_conf=self.folder / "slurm.conf", gres_conf=self.folder / "gres.conf",
            collector_url="", munge_socket=None, catalogue_dir=None, sample_s=10.0,
            window_ms=300_000, ship_s=300.0, dcgm_job_dir=self.dcgm_job_dir,
        )  # fmt: skip
        (self.folder / "inbox").mkdir(exist_ok=True)
        self.journal = Journal(self.folder / "journal", first_seq=1)
        origin = Origin("n1", self.boot_id)
        self.keeper = Keeper(
            settings, self.journal, origin, load_catalogue(), version="0",
            clock_ms=lambda: self.now_ms,
            steady_ms=lambda: self.now_ms if self.steady_ms is None else self.steady_ms,
        )  # fmt: skip
        self.keeper.resume(self.boot_ms)
        self.keeper.begin(self.look())

    def crash(self) -> None:
        if self.journal is not None:
            self.journal.close()
        self.journal = self.keeper = None

    def look(
        self,
        utils: dict[str, int] | None = None,
        clock: int | None = None,
        used_mib: dict[str, int] | None = None,
    ) -> Observation:
        fault = None if self.energy_mj is not None else "GPU is lost"
        sample = Sample(self.device.uuid, self.now_ms, energy_mj=self.energy_mj, fault=fault)
        clocks = {} if clock is None else {self.device.uuid: clock}
        known = {self.device.uuid: utils or {}}
        memory = {self.device.uuid: used_mib or {}}
        return Observation(
            (self.device,), (sample,), known, clocks=clocks, memory=memory, driver=self.driver
        )

    def pass_time(self, ms: int, power_mw: int) -> None:
        self.now_ms += ms
        if self.energy_mj is not None:
            self.energy_mj += ms * power_mw // 1000

    def hook(self, verb: str, job_id: int, uuid: str = "GPU-1", t_ms: int | None = None) -> None:
        assert self.keeper is not None
        self.keeper.hook(self.request(verb, job_id, uuid, t_ms), self.look())

    def cut_now(self) -> None:
        """Let a millisecond pass and end the windows there."""
        self.pass_time(1, 0)
        self.keeper.border(self.look(), self.now_ms)

    def request(self, verb: str, job_id: int, uuid: str, t_ms: int | None = None) -> HookRequest:
        env = {"SLURM_JOB_ID": str(job_id), "CUDA_VISIBLE_DEVICES": uuid}
        return HookRequest(v=1, verb=verb, t_ms=t_ms or self.now_ms, env=env)

    def mail(self, verb: str, job_id: int, uuid: str = "GPU-1") -> None:
        text = {"v": 1, "verb": verb, "t_ms": self.now_ms,
                "env": {"SLURM_JOB_ID": str(job_id), "CUDA_VISIBLE_DEVICES": uuid}}  # fmt: skip
        path = self.folder / "inbox" / f"{self.now_ms:014d}-{job_id}-{verb}.json"
        path.write_text(json.dumps(text))

    def events(self, kind: type) -> list:
        folder = self.folder / "journal"
        entries = [
            e for n in segment_numbers(folder) for e in read_entries(segment_path(folder, n))
        ]
        return [entry.event for entry in entries if isinstance(entry.event, kind)]

    def windows(self) -> list[WindowClosed]:
        return self.events(WindowClosed)

    def job_mj(self, job_id: int) -> int:
        return sum(
            share.idle_mj + share.active_mj
            for window in self.windows()
            for share in window.shares
            if share.job_id == job_id
        )

    def ends(self) -> dict[int, tuple[str, int]]:
        return {e.job_id: (e.closed_by, e.t_ms) for e in self.events(RunEnded)}
