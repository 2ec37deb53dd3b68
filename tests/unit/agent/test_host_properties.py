# SPDX-License-Identifier: Apache-2.0
"""The host's part of the agent under random histories: every millijoule has one owner.

Two packages, memory and the whole node; jobs with and without groups, counters that pass their
end, meters that do not answer, dead agents, reboots, clocks that jump.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairwatt.accounting.agent.host.cgroup import CgroupLook, JobCgroup
from fairwatt.accounting.agent.host.keeper import HostKeeper
from fairwatt.accounting.agent.host.source import Reading
from fairwatt.accounting.agent.host.topology import Topology
from fairwatt.accounting.agent.journal import Journal
from fairwatt.accounting.agent.records import Entry, Origin
from fairwatt.accounting.agent.segments import read_entries
from fairwatt.accounting.ingest import ingest
from fairwatt.accounting.store import open_store
from fairwatt.core.events import Flag, RunEnded, RunStarted, WindowClosed
from fairwatt.core.segments import segment_numbers, segment_path
from tests.unit.agent.keeper_bench import NOON_MS

WRAP_UJ = 262_143_328_850
PARTS = {"cpu0": 3, "cpu1": 2, "dram0": 1}
"""Of each eighth of what the node draws, so many are the part's."""
WHY = Flag.LOST | Flag.GAP | Flag.IMPLAUSIBLE | Flag.RESET | Flag.AMBIGUOUS
HOUR_MS = 3_600_000
numbers = st.integers(0, 2**20)
quiet = st.one_of(
    st.tuples(st.just("time"), st.integers(1, 50_000), st.integers(0, 500_000)),
    st.tuples(st.sampled_from(["begin", "begin", "end", "sample", "cut", "crash"]), numbers,
              numbers),
)  # fmt: skip
wild = st.one_of(
    quiet,
    st.tuples(st.sampled_from(["reboot", "mute", "late"]), numbers, numbers),
    st.tuples(st.just("clock"), st.integers(-2 * HOUR_MS, 2 * HOUR_MS), numbers),
)


class Host:
    """A host that the test drives; counters in µJ, CPU time in µs by job."""

    def __init__(self, folder) -> None:
        self.folder = folder
        self.now_ms, self.boot_ms, self.boot = NOON_MS, NOON_MS - HOUR_MS, 1
        self.counter_uj = dict.fromkeys([*PARTS, "node"], WRAP_UJ - 1_000_000_000)
        self.used_uj = dict.fromkeys(self.counter_uj, 0)
        self.forgot = self.mute = False
        self.spent_us: dict[int, int] = {}
        self.gone_us = self.system_us = 0
        self.jobs = 0
        self.start()

    def start(self) -> None:
        self.journal = Journal(self.folder / "journal", first_seq=1)
        topology = Topology({cpu: (cpu // 8, 0) for cpu in range(16)}, 16, 64 << 30)
        self.keeper = HostKeeper(
            Origin("n1", f"boot{self.boot}"), self.journal, [self], self.groups, topology,
            idle_mw={"cpu": 20_000}, has_gpus=False, clock_ms=lambda: self.now_ms,
        )  # fmt: skip
        with self.journal.synced_at_end():
            self.keeper.resume(self.boot_ms)
            self.keeper.cut()

    name, slow = "meter", False

    def read(self) -> list[Reading]:
        if self.mute:
            return [Reading(part, self.now_ms, fault="no answer") for part in self.counter_uj]
        return [
            Reading(part, self.now_ms, uj % WRAP_UJ, WRAP_UJ, max_mw=600_000)
            for part, uj in self.counter_uj.items()
        ]

    def groups(self) -> CgroupLook:
        """Every third job has no group, every second no limits."""
        jobs = {
            f"job_{job}": JobCgroup(us, job * 1_000_000, frozenset(range(job % 16))
                                    if job % 2 else frozenset(), job << 30 if job % 2 else None)
            for job, us in self.spent_us.items()
            if job % 3
        }  # fmt: skip
        return CgroupLook(
            jobs, self.gone_us + sum(self.spent_us.values()), self.system_us, 1 << 30
        )

    def pass_time(self, ms: int, power_mw: int) -> None:
        self.now_ms += ms
        for part in self.counter_uj:
            drawn_uj = ms * power_mw * PARTS.get(part, 8) // 8
            self.counter_uj[part] += drawn_uj
            self.used_uj[part] += drawn_uj
        self.system_us += ms * 10
        for job in self.spent_us:
            self.spent_us[job] += ms * 1_000 * (job % 4)

    def events(self) -> list:
        folder = self.folder / "journal"
        entries = [
            e for n in segment_numbers(folder) for e in read_entries(segment_path(folder, n))
        ]
        return [entry.event for entry in entries if entry.event is not None]


def _begin(host: Host, a: int, b: int) -> None:
    host.keeper.cut()
    host.jobs += 1
    host.spent_us[host.jobs] = 0
    event = RunStarted(
        node="n1", boot_id="b", seq=0, t_ms=host.now_ms, job_id=host.jobs, restart_cnt=None,
        sluid=None, uid=1, account="a", holds=(), mapped_by="none",
        ncpus=None if a % 5 == 0 else 1 + b % 16,
    )  # fmt: skip
    host.journal.append([Entry(event=event)])


def _end(host: Host, a: int, b: int) -> None:
    """The group goes first, then the epilog comes."""
    runs = host.journal.state.runs
    if runs:
        run = runs[a % len(runs)]
        host.gone_us += host.spent_us.pop(run.job_id, 0)
        host.keeper.cut()
        _tell_end(host, run, host.now_ms)


def _late(host: Host, a: int, b: int) -> None:
    """An end that is told some time after it was."""
    runs = host.journal.state.runs
    if runs:
        run = runs[a % len(runs)]
        host.gone_us += host.spent_us.pop(run.job_id, 0)
        _tell_end(host, run, max(run.t_ms, host.now_ms - b % 30_000))


def _tell_end(host: Host, run: RunStarted, t_ms: int) -> None:
    event = RunEnded(
        node="n1", boot_id="b", seq=0, t_ms=max(t_ms, run.t_ms), job_id=run.job_id,
        run_start_ms=run.t_ms, closed_by="epilog",
    )  # fmt: skip
    host.journal.append([Entry(event=event)])


def _cut(host: Host, a: int, b: int) -> None:
    host.keeper.cut(host.now_ms - a % 700)


def _sample(host: Host, a: int, b: int) -> None:
    host.keeper.sample()


def _crash(host: Host, a: int, b: int) -> None:
    host.journal.close()
    if a % 2:
        host.pass_time(1 + b % 50_000, 200_000)
    host.start()


def _reboot(host: Host, a: int, b: int) -> None:
    host.journal.close()
    host.pass_time(1 + a % 100_000, 100_000)
    host.boot, host.boot_ms, host.forgot = host.boot + 1, host.now_ms, True
    host.counter_uj = dict.fromkeys(host.counter_uj, 0)
    host.gone_us = host.system_us = 0
    host.spent_us = {}
    host.pass_time(b % 50_000, 100_000)
    host.start()


def _mute(host: Host, a: int, b: int) -> None:
    host.mute, host.forgot = not host.mute, True


def _clock(host: Host, a: int, b: int) -> None:
    host.now_ms += a
    host.forgot = True


_STEPS = {
    "time": lambda host, a, b: host.pass_time(a, b), "begin": _begin, "end": _end, "late": _late,
    "cut": _cut, "sample": _sample, "crash": _crash, "reboot": _reboot, "mute": _mute,
    "clock": _clock,
}  # fmt: skip


def play(host: Host, steps) -> list:
    """Let the steps happen, then read everything once more."""
    for what, a, b in steps:
        if what in ("crash", "reboot"):
            _STEPS[what](host, a, b)
            continue
        with host.journal.synced_at_end():
            _STEPS[what](host, a, b)
    host.mute = False
    host.pass_time(1, 0)
    host.keeper.cut()
    return host.events()


def by_part(events) -> dict[str, list[WindowClosed]]:
    windows = defaultdict(list)
    for event in events:
        if isinstance(event, WindowClosed):
            windows[event.device.rpartition("/")[2]].append(event)
    return windows


def check_window(window: WindowClosed) -> None:
    assert window.t0_ms < window.t1_ms
    rest = (window.unallocated_idle_mj, window.unallocated_active_mj, window.system_mj)
    if window.measured_mj is None:
        assert (window.shares, rest) == ((), (None, None, None))
        assert window.flags & WHY
        return
    parts = [part for share in window.shares for part in (share.idle_mj, share.active_mj)]
    assert min([*parts, *rest]) >= 0
    assert sum([*parts, *rest]) == window.measured_mj
    keys = [(share.job_id, share.run_start_ms) for share in window.shares]
    assert len(set(keys)) == len(keys)


def check(host: Host, events) -> None:
    """Windows follow one another, add up, and say why where they do not know."""
    windows = by_part(events)
    for part, some in windows.items():
        for one, other in pairwise(some):
            assert one.t1_ms == other.t0_ms
        for window in some:
            check_window(window)
        measured_mj = sum(window.measured_mj or 0 for window in some)
        if part != "rest":
            assert 1000 * measured_mj <= host.used_uj[part]
            if not host.forgot:
                assert host.used_uj[part] - 1000 * measured_mj < 1000
    for at, window in enumerate(windows["rest"] if not host.forgot else ()):
        beside = [some[at] for part, some in windows.items() if part != "rest"]
        assert {(w.t0_ms, w.t1_ms) for w in beside} == {(window.t0_ms, window.t1_ms)}


SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=80, deadline=None, suppress_health_check=SLOW)
@given(st.lists(quiet, max_size=30))
def test_without_faults_all_that_was_used_is_measured(tmp_path_factory, steps) -> None:
    host = Host(tmp_path_factory.mktemp("host"))
    try:
        check(host, play(host, steps))
    finally:
        host.journal.close()


@settings(max_examples=120, deadline=None, suppress_health_check=SLOW)
@given(st.lists(wild, max_size=30))
def test_whatever_happens_the_windows_hold(tmp_path_factory, steps) -> None:
    host = Host(tmp_path_factory.mktemp("host"))
    try:
        check(host, play(host, steps))
    finally:
        host.journal.close()


@settings(max_examples=15, deadline=None, suppress_health_check=SLOW)
@given(st.lists(wild, max_size=20))
def test_the_collector_takes_all_of_it_once(tmp_path_factory, steps) -> None:
    folder = tmp_path_factory.mktemp("host")
    host = Host(folder)
    try:
        events = play(host, steps)
    finally:
        host.journal.close()
    db = open_store(folder / "store.db")
    assert ingest(db, events) == (len(events), 0)
    assert ingest(db, events) == (0, len(events))
    db.close()
