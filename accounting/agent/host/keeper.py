# SPDX-License-Identifier: Apache-2.0
"""The agent's judgement on the host: readings of its parts become windows in the journal.

All parts are cut together, when a job comes or goes and at every border. What the node draws
beside CPUs, DRAM and GPUs is a part of its own, `rest`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from fairwatt.accounting.agent.host.cgroup import CgroupLook
from fairwatt.accounting.agent.host.meter import HostMeter, Metered, kind_of
from fairwatt.accounting.agent.host.source import HostSource, Reading
from fairwatt.accounting.agent.host.topology import Topology
from fairwatt.accounting.agent.host.uses import Present, RunUse, SystemUse, Uses
from fairwatt.accounting.agent.host.weights import (
    PPM,
    Weights,
    cpu_weights,
    dram_weights,
    node_weights,
)
from fairwatt.accounting.agent.host.windows import (
    LONGEST_GAP_MS,
    Stretch,
    closing,
    reboot_windows,
    stretches,
)
from fairwatt.accounting.agent.journal import Journal
from fairwatt.accounting.agent.meter import CLOCK_BACK
from fairwatt.accounting.agent.records import Entry, HostMark, Origin, UseMark
from fairwatt.accounting.ledger_host import ALL_IDLE
from fairwatt.core.clock import now_ms
from fairwatt.core.events import DeviceKind, Flag
from fairwatt.core.records import Device

__all__ = ["HostKeeper"]

MANY_RUNS = 8
CROWDED_MS = 60_000
HURRY_MS = 1_000
"""So soon after a look a hook does without one: the kernel takes its time for each job's group."""
SNAP_MS = 500
"""As for GPUs: a reading so soon after a border counts as taken at it."""
_log = logging.getLogger(__name__)


class HostKeeper:
    """Owns the windows of the host's parts; without a source it does nothing.

    Args:
        origin: stamps the events.
        journal: the node's, whose state holds the runs.
        sources: in order of preference.
        groups: reads the control groups.
        topology: of this host.
        idle_mw: idle power of a package or its DRAM by kind, where the site knows it.
        has_gpus: whether the node's own power has that of its GPUs in it.
        clock_ms: UTC epoch milliseconds.
    """

    def __init__(
        self,
        origin: Origin,
        journal: Journal,
        sources: Sequence[HostSource],
        groups: Callable[[], CgroupLook],
        topology: Topology,
        *,
        idle_mw: Mapping[str, int] | None = None,
        has_gpus: bool = True,
        clock_ms: Callable[[], int] | None = None,
    ) -> None:
        self._origin = origin
        self._journal = journal
        self._quick = [source for source in sources if not source.slow]
        self._slow = [source for source in sources if source.slow]
        self._order = {source.name: place for place, source in enumerate(sources)}
        self._groups = groups
        self._topology = topology
        self._idle_mw = idle_mw or {}
        self._has_gpus = has_gpus
        self._clock_ms = clock_ms or now_ms
        self._meter = HostMeter()
        self._uses = Uses()
        self._used: dict[tuple[Present, ...], tuple[list[RunUse], SystemUse]] = {}
        self._looked_ms = 0
        self._resumed = False
        self._behind = False
        self._module = False
        self._gpus: dict[str, int | None] = {}
        self._gpus_before: dict[str, int | None] | None = None

    @property
    def measures(self) -> bool:
        """Whether there is any source."""
        return bool(self._order)

    @property
    def slow_sources(self) -> Sequence[HostSource]:
        """Return the sources to be read in a thread; hand what they say to `take_slow`."""
        return self._slow

    @property
    def faults(self) -> Mapping[str, str]:
        """Return what cannot be read now, by place."""
        return self._meter.faults

    def resume(self, boot_ms: int) -> None:
        """Take up the parts where they were left; those of an earlier boot ended at `boot_ms`."""
        known = [m for m in self._journal.state.host.values() if m.method in self._order]
        old = [mark for mark in known if mark.boot_id != self._origin.boot_id]
        kinds = [kind_of(_part_of(mark.device)) for mark in old]
        self._append(reboot_windows(old, self._origin, boot_ms, kinds))
        if old:
            self._append([Entry(uses=UseMark(t_ms=boot_ms, all_jobs_us=0, system_us=0))])
        for mark in known:
            mark = self._journal.state.host[mark.device]
            part = _part_of(mark.device)
            self._meter.resume(part, mark.method, mark.t_ms, mark.energy_uj, mark.idle_mw)
        self._resumed = bool(known)

    def note_gpus(self, devices: Mapping[str, Device], energies: Mapping[str, int | None]) -> None:
        """Take what the GPUs used so far in mJ: it is no part of the rest of the node."""
        self._gpus = {uuid: energies.get(uuid) for uuid in devices}
        self._module = any(device.module_energy is True for device in devices.values())

    def miss_gpus(self) -> None:
        """What the GPUs used is not known now: they did not answer in time."""
        self._gpus = dict.fromkeys(self._gpus)

    def take_slow(self, source: str, readings: Sequence[Reading]) -> None:
        """Take what a slow source said."""
        self._meter.take(source, readings, unused=self._unused)

    def sample(self) -> None:
        """Read everything that is quick; counters pass their end, and groups go."""
        if self.measures:
            self._look()

    def before_change(self) -> None:
        """Close the windows of all parts, as a run is about to be opened or closed.

        Where many runs share the node, only once a minute: each window has a share of each run,
        and a run counts for the time that it was there anyway. So as well where the GPUs do not
        answer, without which the rest of the node is not known.
        """
        uses, t_ms = self._journal.state.uses, self._clock_ms()
        rare = len(self._journal.state.runs) > MANY_RUNS or self._lacks_gpus
        if not rare or uses is None or not 0 <= t_ms - uses.t_ms < CROWDED_MS:
            self.cut()
        elif not 0 <= t_ms - self._looked_ms < HURRY_MS:
            self.sample()

    def cut(self, border_ms: int | None = None) -> None:
        """Close the windows of all parts now; `border_ms` is the border that it is for."""
        if not self.measures:
            return
        t_ms = self._look()
        if border_ms is not None and 0 <= t_ms - border_ms <= SNAP_MS:
            t_ms = border_ms
        marks = self._journal.state.host
        t0_ms = max((marks[d].t_ms for d in self._devices() if d in marks), default=None)
        if t0_ms is None or t_ms > t0_ms:
            self._append(self._closed(t_ms))
            self._note_clock(0)
        elif t_ms < t0_ms:
            self._resumed = True  # the clock was set back: no window can tell the stretch apart
            self._note_clock(t0_ms - t_ms)
            if t0_ms - t_ms > LONGEST_GAP_MS:
                self._begin_anew(t_ms)

    @property
    def _lacks_gpus(self) -> bool:
        return "node" in self._meter.parts and self._has_gpus and None in self._gpus.values()

    @property
    def _unused(self) -> bool:
        return not self._journal.state.runs

    def _look(self) -> int:
        for source in self._quick:
            self._meter.take(source.name, source.read(), unused=self._unused)
        t_ms = self._looked_ms = self._clock_ms()
        if self._meter.parts:
            self._uses.look(self._groups(), t_ms, self._journal.state.runs)
        return t_ms

    def _devices(self) -> dict[str, str]:
        """Return the parts by device id."""
        return {_device(self._origin.node, part): part for part in self._meter.parts}

    def _note_clock(self, back_ms: int) -> None:
        """Log when the clock is behind the last windows, and when it has passed them."""
        if bool(back_ms) != self._behind:
            self._behind = bool(back_ms)
            if self._behind:
                _log.warning(CLOCK_BACK, "CPUs and DRAM", back_ms / 1000)

    def _begin_anew(self, t_ms: int) -> None:
        """Leave windows of a clock that was far ahead: it would take as long to pass them."""
        for device, part in self._devices().items():
            first = self._first(device, self._meter.close(part, t_ms), t_ms)
            self._append([first])
        self._gpus_uj()
        self._append([Entry(uses=self._uses.mark(t_ms, self._journal.state.runs))])

    # -- windows -------------------------------------------------------------------------------

    def _closed(self, t_ms: int) -> list[Entry]:
        state, devices = self._journal.state, self._devices()
        since = {part: state.host[dev].t_ms for dev, part in devices.items() if dev in state.host}
        metered = self._without_rest(
            {p: self._meter.close(p, t_ms, since.get(p)) for p in devices.values()}
        )
        entries: list[Entry] = []
        self._used.clear()
        for device, part in devices.items():
            before = state.host.get(device)
            if before is None:
                entries.append(self._first(device, metered[part], t_ms))
            elif before.t_ms < t_ms:
                entries += self._window(device, part, metered[part], before, t_ms)
        self._resumed = False
        if entries:
            uses = self._uses.mark(t_ms, state.runs)
            entries.append(Entry(uses=uses))
        return entries

    def _first(self, device: str, part: Metered, t_ms: int) -> Entry:
        mark = HostMark(
            device=device,
            t_ms=t_ms,
            energy_uj=part.counter_uj,
            method=part.method,
            boot_id=self._origin.boot_id,
            idle_mw=part.idle_mw,
        )
        return Entry(host=mark)

    def _window(
        self, device: str, part: str, metered: Metered, before: HostMark, t_ms: int
    ) -> list[Entry]:
        state, kind = self._journal.state, kind_of(part)
        cuts = stretches(state.runs, state.host_ended, before.t_ms, t_ms)
        weights = self._weights(part, kind, _present(cuts))
        flags = Flag.GAP if self._resumed else Flag(0)
        flags |= Flag.SPREAD if weights.spread and metered.energy_uj is not None else Flag(0)
        return closing(
            metered,
            before,
            device,
            kind,
            cuts,
            weights,
            self._origin,
            ALL_IDLE if kind == "node" else self._idle_mw.get(kind, metered.idle_mw),
            flags,
        )

    def _weights(self, part: str, kind: DeviceKind, present: Sequence[Present]) -> Weights:
        key = tuple(present)
        if key not in self._used:
            self._used[key] = self._uses.since(self._journal.state.uses, present)
        used, system = self._used[key]
        if kind == "cpu":
            return cpu_weights(part, self._topology, present, used, system)
        if kind == "dram":
            return dram_weights(self._topology, present, used, system)
        return node_weights(self._topology, present, used, self._gpu_shares())

    def _gpu_shares(self) -> dict[tuple[int, int], int]:
        """Return each run's share of the GPUs here in millionths."""
        shares: dict[tuple[int, int], int] = {}
        for timed in self._journal.state.holds:
            hold, key = timed.hold, (timed.job_id, timed.run_start_ms)
            part = PPM * hold.numerator // max(1, hold.denominator * len(self._gpus))
            shares[key] = min(PPM, shares.get(key, 0) + part)
        return shares

    # -- parts that lie within others ----------------------------------------------------------

    def _without_rest(self, metered: dict[str, Metered]) -> dict[str, Metered]:
        """Take from the node's energy what is counted in its parts; on a module, from those."""
        if self._module:
            metered = {p: m if kind_of(p) == "node" else _included(m) for p, m in metered.items()}
        gpus_uj = self._gpus_uj()
        if "node" in metered:
            inner = [m for p, m in metered.items() if p != "node" and not _is_included(m)]
            metered["node"] = _rest(metered["node"], inner, gpus_uj)
        return metered

    def _gpus_uj(self) -> int | None:
        """Return what the GPUs used since the last windows; None where one of them is unknown."""
        before, self._gpus_before = self._gpus_before, dict(self._gpus)
        if not self._has_gpus or not self._gpus:
            return 0
        if before is None or before.keys() != self._gpus.keys():
            return None
        spent = [_difference(before[uuid], now) for uuid, now in self._gpus.items()]
        known = [one for one in spent if one is not None]
        return 1000 * sum(known) if len(known) == len(spent) else None

    def _append(self, entries: Sequence[Entry]) -> None:
        if entries:
            self._journal.append(entries)


def _device(node: str, part: str) -> str:
    return f"{node}/{'rest' if part == 'node' else part}"


def _part_of(device: str) -> str:
    name = device.rpartition("/")[2]
    return "node" if name == "rest" else name


def _present(cuts: Sequence[Stretch]) -> list[Present]:
    """Return the runs of all stretches with the time each was there."""
    there: dict[tuple[int, int], Present] = {}
    for cut in cuts:
        for run, ms in zip(cut.runs, cut.present_ms, strict=True):
            before = there.get((run.job_id, run.t_ms))
            there[run.job_id, run.t_ms] = Present(run, ms + (before.ms if before else 0))
    return list(there.values())


def _difference(before: int | None, now: int | None) -> int | None:
    return None if before is None or now is None or now < before else now - before


def _included(part: Metered) -> Metered:
    return Metered(None, Flag.INCLUDED, part.counter_uj, "included", part.idle_mw)


def _is_included(part: Metered) -> bool:
    return bool(part.flags & Flag.INCLUDED)


def _rest(node: Metered, inner: Sequence[Metered], gpus_uj: int | None) -> Metered:
    parts = [gpus_uj, *(part.energy_uj for part in inner)]
    known = [part for part in parts if part is not None]
    if node.energy_uj is None or len(known) < len(parts):
        return Metered(None, node.flags | Flag.LOST, node.counter_uj, node.method, node.idle_mw)
    energy_uj = max(0, node.energy_uj - sum(known))
    return Metered(energy_uj, node.flags, node.counter_uj, node.method, node.idle_mw)
