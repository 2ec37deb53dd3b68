# SPDX-License-Identifier: Apache-2.0
"""A host keeper without threads on a host tree: journal on disk, clock moved by the test."""

from __future__ import annotations

from pathlib import Path

from fairwatt.accounting.agent.host.cgroup import Cgroups
from fairwatt.accounting.agent.host.keeper import HostKeeper
from fairwatt.accounting.agent.host.rapl import RaplSource
from fairwatt.accounting.agent.host.source import HostSource, Reading
from fairwatt.accounting.agent.host.topology import read_topology
from fairwatt.accounting.agent.journal import Journal
from fairwatt.accounting.agent.records import Entry, Origin
from fairwatt.accounting.agent.segments import read_entries
from fairwatt.core.events import RunEnded, RunStarted, WindowClosed
from fairwatt.core.segments import segment_numbers, segment_path
from tests.fakes.host_tree import HostTree

HOUR_MS = 3_600_000
NOON_MS = 500_000 * HOUR_MS


class Bmc:
    """A meter of the whole node; `power_mw` None: it does not answer."""

    name = "ipmi"
    slow = True

    def __init__(self) -> None:
        self.power_mw: int | None = None

    def read(self) -> list[Reading]:
        raise AssertionError("read in a thread of its own")


class HostBench:
    """The host's part of an agent on one node."""

    def __init__(self, folder: Path, tree: HostTree, *, idle: dict[str, int] | None = None,
                 bmc: Bmc | None = None) -> None:  # fmt: skip
        self.folder = folder
        self.tree = tree
        self.now_ms = NOON_MS
        self.boot_id = "boot1"
        self.boot_ms = NOON_MS - HOUR_MS
        self.idle = idle or {}
        self.bmc = bmc
        self.energy_gpus: dict[str, int | None] = {}
        self.keeper: HostKeeper | None = None
        self.journal: Journal | None = None

    def start(self) -> None:
        self.journal = Journal(self.folder / "journal", first_seq=1)
        rapl = RaplSource(self.tree.sys / "class" / "powercap")
        read = rapl.read
        rapl.read = lambda: [self._now(r) for r in read()]  # type: ignore[method-assign]
        sources: list[HostSource] = [rapl, *([self.bmc] if self.bmc else [])]
        self.keeper = HostKeeper(
            Origin("n1", self.boot_id), self.journal, sources,
            Cgroups(self.tree.cgroup, "n1").look,
            read_topology(self.tree.sys, self.tree.proc),
            idle_mw=self.idle, clock_ms=lambda: self.now_ms,
        )  # fmt: skip
        self.keeper.resume(self.boot_ms)
        self.cut()

    def _now(self, reading: Reading) -> Reading:
        return Reading(reading.part, self.now_ms, reading.energy_uj, reading.wrap_uj,
                       fault=reading.fault, max_mw=reading.max_mw)  # fmt: skip

    def crash(self) -> None:
        if self.journal is not None:
            self.journal.close()
        self.journal = self.keeper = None

    def cut(self) -> None:
        assert self.keeper is not None
        if self.bmc is not None:
            self.keeper.take_slow(
                "ipmi", [Reading("node", self.now_ms, power_mw=self.bmc.power_mw,
                                 fault=None if self.bmc.power_mw else "no answer")]
            )  # fmt: skip
        self.keeper.cut()

    def wait(self, ms: int) -> None:
        self.now_ms += ms

    def begin(self, job_id: int, ncpus: int | None = None, sluid: str | None = None) -> None:
        """A prolog: the host is cut first, as the daemon does."""
        self.cut()
        self.tell(job_id, ncpus, sluid)

    def tell(self, job_id: int, ncpus: int | None = None, sluid: str | None = None,
             t_ms: int | None = None) -> None:  # fmt: skip
        event = RunStarted(
            node="n1", boot_id=self.boot_id, seq=0, t_ms=t_ms or self.now_ms, job_id=job_id,
            restart_cnt=None, sluid=sluid, uid=1000, account="qcd", holds=(), mapped_by="none",
            ncpus=ncpus,
        )  # fmt: skip
        self.journal.append([Entry(event=event)])

    def finish(self, job_id: int) -> None:
        """An epilog."""
        self.cut()
        self.told_end(job_id, self.now_ms)

    def told_end(self, job_id: int, t_ms: int) -> None:
        run = self.journal.state.open_runs(job_id)[-1]
        event = RunEnded(
            node="n1", boot_id=self.boot_id, seq=0, t_ms=t_ms, job_id=job_id,
            run_start_ms=run.t_ms, closed_by="epilog",
        )  # fmt: skip
        self.journal.append([Entry(event=event)])

    def windows(self, part: str = "") -> list[WindowClosed]:
        folder = self.folder / "journal"
        entries = [
            e for n in segment_numbers(folder) for e in read_entries(segment_path(folder, n))
        ]
        found = [e.event for e in entries if isinstance(e.event, WindowClosed)]
        return [w for w in found if w.device.endswith(f"/{part}")] if part else found

    def parts(self, part: str) -> list[tuple[object, ...]]:
        """Each window of a part: measured, {job: (idle, active)}, unallocated pair, system."""
        return [
            (w.measured_mj, {s.job_id: (s.idle_mj, s.active_mj) for s in w.shares},
             (w.unallocated_idle_mj, w.unallocated_active_mj), w.system_mj)
            for w in self.windows(part)
        ]  # fmt: skip
