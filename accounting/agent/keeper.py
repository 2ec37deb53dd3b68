# SPDX-License-Identifier: Apache-2.0
"""The agent's judgement: turns hooks' messages and observations into journal entries.

No thread, socket or clock of its own: the daemon brings what it saw, tests bring what they like.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from fairwatt.accounting.agent.board_windows import BoardWindows
from fairwatt.accounting.agent.dcgm_map import DcgmMap
from fairwatt.accounting.agent.extras import shared_boards
from fairwatt.accounting.agent.inbox import Inbox
from fairwatt.accounting.agent.job_files import JobFiles
from fairwatt.accounting.agent.journal import Journal
from fairwatt.accounting.agent.pace import LivePace
from fairwatt.accounting.agent.records import Entry, Origin
from fairwatt.accounting.agent.requests import HookRequest, job_id_of
from fairwatt.accounting.agent.runs import correcting, ending, lost_with_boot, starting
from fairwatt.accounting.agent.settings import AgentSettings
from fairwatt.accounting.agent.sharing import ASSUMED
from fairwatt.accounting.agent.slurm_places import SlurmPlaces
from fairwatt.accounting.agent.sources import Observation
from fairwatt.core.catalogue import Catalogue
from fairwatt.core.clock import now_ms
from fairwatt.core.conf_lines import constrains_devices
from fairwatt.core.errors import ConfigError
from fairwatt.core.events import AgentStarted, RunEnded
from fairwatt.core.records import Device
from fairwatt.core.verdict import Holder

__all__ = ["Keeper"]

_log = logging.getLogger(__name__)


class Keeper:
    """Owns the ledger of one node; all it decides goes through the journal.

    Args:
        settings: the agent's.
        journal: the node's.
        origin: stamps the events.
        catalogue: the known models.
        version: of this program.
        minor_of: device node to minor number; None: from the kernel.
        clock_ms: UTC epoch milliseconds.
        steady_ms: milliseconds on a clock that nobody sets; None: the kernel's, or `clock_ms`.
    """

    def __init__(
        self,
        settings: AgentSettings,
        journal: Journal,
        origin: Origin,
        catalogue: Catalogue,
        *,
        version: str,
        minor_of: Callable[[str], int] | None = None,
        clock_ms: Callable[[], int] | None = None,
        steady_ms: Callable[[], int] | None = None,
    ) -> None:
        self.wants_enumeration = True
        self.ship_soon = False
        self.pace = LivePace()
        self._begun = False
        self._settings = settings
        self._journal = journal
        self._origin = origin
        self._version = version
        self._places = SlurmPlaces(settings, minor_of)
        self._clock_ms = clock_ms or now_ms
        self._boards = BoardWindows(
            origin, journal, catalogue, steady_ms or clock_ms or _steady_ms, self._commit
        )
        self._untold: set[int] = set()
        self._job_files = JobFiles(settings.job_dir, settings.dcgm_job_dir)
        self._dcgm = DcgmMap(settings.dcgm_job_dir)
        self._inbox = Inbox(settings.inbox_dir)

    @property
    def devices(self) -> Mapping[str, Device]:
        """The devices that NVML showed last, by UUID."""
        return self._boards.devices

    @property
    def watched(self) -> list[str]:
        """The devices to read: those NVML shows, and those that runs still hold."""
        held = {timed.hold.device for timed in self._journal.state.holds}
        return sorted(held | self.devices.keys())

    @property
    def shared(self) -> frozenset[str]:
        """The boards that several jobs hold without MIG."""
        return shared_boards(self._journal.state.runs)

    @property
    def wants_change_detection(self) -> bool:
        """Whether a prolog should enumerate again: MIG instances may have been re-created."""
        return self.wants_enumeration or any(d.mig_enabled for d in self.devices.values())

    @property
    def has_mail(self) -> bool:
        """Whether hooks left messages in the inbox."""
        return self._begun and self._inbox.has_mail

    def resume(self, boot_ms: int) -> None:
        """Take up the ledger where it was left; runs of an earlier boot end at `boot_ms`."""
        state = self._journal.state
        self._commit(lost_with_boot(state, self._origin, boot_ms))
        self._boards.resume(boot_ms)
        self._note_numbering()
        self._job_files.note_settings(self._settings.hook)
        open_jobs = {run.job_id for run in state.runs}
        gone = self._job_files.keep_only(open_jobs)
        self._dcgm.remove({*gone, *(job_id for job_id, _ in state.ended)} - open_jobs)
        for run in state.runs:
            _log.info("job %d still runs here as far as is known", run.job_id)

    def _note_numbering(self) -> None:
        cgroup_conf = self._settings.slurm_conf.with_name("cgroup.conf")
        try:
            self._job_files.note_numbering(local=constrains_devices(cgroup_conf))
        except ConfigError as error:
            _log.error("%s", error)

    def begin(self, seen: Observation) -> None:
        """Take the first look at the devices: announce them, read the inbox, close the gap."""
        self._begun = True
        self._learn(seen, announce=True)
        self._map_open_runs()
        self._drain()
        self._cut(seen, self.watched)

    def sample(self, seen: Observation) -> None:
        """Note utilisation and power between cuts, and messages that wait in the inbox."""
        self._learn(seen)
        reset = self._boards.catch_resets(self._boards.readings(seen))
        self._boards.note(seen)
        self._cut(seen, self._drain() | reset)
        self.pace.look(seen, self._journal.state.runs, self.devices)

    def border(self, seen: Observation, border_ms: int) -> None:
        """Cut all windows at a wall-clock border."""
        self._learn(seen)
        self._boards.note(seen)
        self._drain()  # else who came or went before now would be charged with the others' part
        self._cut(seen, self.watched, border_ms=border_ms)

    def hook(self, request: HookRequest, seen: Observation | None) -> bool:
        """Act on a prolog or epilog; `seen` None: the devices did not answer in time.

        Returns whether all is on disk.
        """
        if seen is not None:
            self._learn(seen)
            self._boards.note(seen, at_hook=True)
        self._cut(seen, self._drain())
        return self._act(request, seen, "epilog")

    def late(self, seen: Observation, devices: Collection[str]) -> None:
        """Cut the windows that a hook left open because the devices were slow."""
        self._learn(seen)
        self._cut(seen, self._drain() | {*devices})

    def energies(self, seen: Observation) -> dict[str, int | None]:
        """Return what each device used so far in mJ, by the observation."""
        return {uuid: reading.energy_mj for uuid, reading in self._boards.readings(seen).items()}

    def devices_of(self, job_id: int) -> set[str]:
        """Return the devices that a job holds, or held since their last reading."""
        state = self._journal.state
        return {t.hold.device for t in state.holds if t.job_id == job_id}

    def holders(self) -> set[Holder]:
        """Return what the running jobs hold, for the health checks."""
        holds = [timed.hold for timed in self._journal.state.holds if timed.until_ms is None]
        return {Holder(hold.device, hold.instance) for hold in holds}

    def status(self) -> dict[str, Any]:
        """Return what `status` answers."""
        state = self._journal.state
        return {
            "node": self._origin.node,
            "boot_id": self._origin.boot_id,
            "devices": len(self.devices),
            "jobs": sorted({run.job_id for run in state.runs}),
            "next_seq": state.next_seq,
            "delivered_seq": self._journal.delivered_seq,
            "on_disk": not self._journal.failing,
            "faults": self._boards.meter.faults,
            "slow": self.pace.status(),
            **self._boards.status(),
        }

    # -- hooks ---------------------------------------------------------------------------------

    def _drain(self) -> set[str]:
        """Act on the messages in the inbox; return the devices whose holders changed."""
        touched: set[str] = set()
        if not self._begun:
            return touched
        for path, request in self._inbox.waiting():
            job_id = job_id_of(request) or 0
            held = self.devices_of(job_id)
            try:
                if self._act(request, None, "inbox"):
                    self._inbox.done(path)
            except Exception:
                # Else this one message would end the agent again after every restart.
                _log.exception("%s: a fault of ours", path)
                self._inbox.set_aside(path)
            touched |= held | self.devices_of(job_id)
        return touched

    def _act(self, request: HookRequest, seen: Observation | None, closed_by: str) -> bool:
        if request.verb == "prolog":
            return self._start(request, seen)
        return self._end(request, seen, closed_by)

    def _start(self, request: HookRequest, seen: Observation | None) -> bool:
        state, job_id = self._journal.state, job_id_of(request) or 0
        if state.knows(job_id, request.t_ms or 0):
            return not self._journal.failing
        placement = self._places.of_job(request.env, list(self.devices.values()))
        if placement.problem:
            _log.error(
                "job %d: its devices are unknown, so is its energy: %s", job_id, placement.problem
            )
        entries = self._boards.closing(seen, {share.device for share in placement.holds})
        entries += starting(state, request, placement.holds, placement.mapped_by, self._origin)
        durable = self._commit(entries)
        self._job_files.write(job_id, placement.places)
        self._dcgm.add(job_id, {place.dcgm for place in placement.places})
        return durable

    def _end(self, request: HookRequest, seen: Observation | None, closed_by: str) -> bool:
        state = self._journal.state
        entries = self._boards.closing(seen, self.devices_of(job_id_of(request) or 0))
        read_ms = max((e.reading.t_ms for e in entries if e.reading), default=0)
        ends = ending(state, request, closed_by, self._origin, read_ms, self._clock_ms())
        return self._commit(entries + ends)

    @property
    def assumed(self) -> list[int]:
        """The jobs whose part of a shared board Slurm has still to tell."""
        runs = self._journal.state.runs
        return [r.job_id for r in runs if r.mapped_by == ASSUMED and r.job_id not in self._untold]

    def told(self, job_id: int, text: str) -> None:
        """Take over the parts of boards that `scontrol show job -d` tells of a job."""
        for run in self._journal.state.open_runs(job_id)[-1:]:
            holds = self._places.told(run.holds, text, list(self.devices.values()))
            if holds is None:
                self._untold.add(job_id)
                _log.warning("job %d: Slurm does not tell its part of a shared GPU", job_id)
                continue
            state, now_ms = self._journal.state, self._clock_ms()
            self._commit(correcting(state, run, holds, "slurmctld", self._origin, now_ms))

    # -- devices -------------------------------------------------------------------------------

    def _learn(self, seen: Observation, *, announce: bool = False) -> None:
        """Take over a new enumeration; a change of it is announced to the collector."""
        if seen.devices is not None:
            fresh = {device.uuid: device for device in seen.devices}
            announce = announce or fresh != self.devices
            self._boards.take_devices(fresh, seen.driver)
            self.wants_enumeration = not fresh or self._has_faults(seen)
            if announce:
                self._job_files.note_devices(self._places.of_node(list(fresh.values())))
            for device in fresh.values() if announce else ():
                self._warn_unknown_model(device)
            self._boards.meter.note_fault("NVML", None)
        elif seen.fault:
            self.wants_enumeration = True
            self._boards.meter.note_fault("NVML", seen.fault)
        elif self._has_faults(seen):
            self.wants_enumeration = True
        if announce:
            self._commit([Entry(event=self._started_event())])

    def _map_open_runs(self) -> None:
        """Write dcgm-exporter's map anew for running jobs: it may be gone, or lack the last."""
        names = {
            place.uuid: place.dcgm for place in self._places.of_node([*self.devices.values()])
        }
        for run in self._journal.state.runs:
            held = {hold.instance or hold.device for hold in run.holds}
            self._dcgm.add(run.job_id, {names[uuid] for uuid in held if uuid in names})

    @staticmethod
    def _has_faults(seen: Observation) -> bool:
        return any(sample.fault for sample in seen.samples)

    def _started_event(self) -> AgentStarted:
        return AgentStarted(
            node=self._origin.node,
            boot_id=self._origin.boot_id,
            seq=0,
            t_ms=self._clock_ms(),
            devices=tuple(self.devices.values()),
            version=self._version,
        )

    def _warn_unknown_model(self, device: Device) -> None:
        if device.model is None:
            _log.warning(
                "%s (%s, %d MiB) is not in the catalogue: all its energy counts as active; "
                "add the model to a file in site.catalogue_dir",
                device.uuid,
                device.name,
                device.memory_mib,
            )

    # -- the journal ---------------------------------------------------------------------------

    def _cut(
        self, seen: Observation | None, devices: Collection[str], *, border_ms: int | None = None
    ) -> None:
        self._commit(self._boards.closing(seen, devices, border_ms=border_ms))

    def _commit(self, entries: Iterable[Entry]) -> bool:
        """Put entries in the journal and do what follows from them."""
        entries = list(entries)
        if not entries:
            return not self._journal.failing
        durable = self._journal.append(entries)
        for entry in entries:
            if entry.reading is not None:
                self._boards.begin(entry.reading)
            if isinstance(entry.event, RunEnded):
                self._job_files.remove(entry.event.job_id)
                self._dcgm.remove({entry.event.job_id})
                self._untold.discard(entry.event.job_id)
                self._log_end(entry.event)
                self.ship_soon = True
        return durable

    def _log_end(self, event: RunEnded) -> None:
        if event.closed_by not in ("epilog", "inbox"):
            _log.warning(
                "job %d: no epilog was seen; closed because: %s", event.job_id, event.closed_by
            )


def _steady_ms() -> int:
    return time.monotonic_ns() // 1_000_000
