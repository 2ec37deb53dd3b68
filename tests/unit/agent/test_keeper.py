# SPDX-License-Identifier: Apache-2.0
"""The keeper without threads: hooks, gaps, reboots, crashes; conservation for any history."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairwatt.accounting.agent.journal import Journal
from fairwatt.accounting.agent.keeper import Keeper
from fairwatt.accounting.agent.records import Origin
from fairwatt.accounting.agent.requests import HookRequest
from fairwatt.accounting.agent.segments import read_entries, segment_numbers, segment_path
from fairwatt.accounting.agent.settings import AgentSettings
from fairwatt.accounting.agent.sources import Observation, Sample
from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.events import Flag, RunEnded, RunStarted, WindowClosed
from fairwatt.core.records import Device, GpuInstance

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
        self.keeper: Keeper | None = None
        self.journal: Journal | None = None

    def start(self) -> None:
        settings = AgentSettings(
            node="n1", socket=self.folder / "sock", job_dir=self.folder / "jobs",
            inbox_dir=self.folder / "inbox", spool_dir=self.folder, proc_root=self.folder,
            slurm_conf=self.folder / "slurm.conf", gres_conf=self.folder / "gres.conf",
            collector_url="", munge_socket=None, catalogue_dir=None, sample_s=10.0,
            window_ms=300_000, ship_s=300.0,
        )  # fmt: skip
        (self.folder / "inbox").mkdir(exist_ok=True)
        self.journal = Journal(self.folder / "journal", first_seq=1)
        origin = Origin("n1", self.boot_id)
        self.keeper = Keeper(
            settings, self.journal, origin, load_catalogue(), version="0",
            clock_ms=lambda: self.now_ms,
        )  # fmt: skip
        self.keeper.resume(self.boot_ms)
        self.keeper.begin(self.look())

    def crash(self) -> None:
        if self.journal is not None:
            self.journal.close()
        self.journal = self.keeper = None

    def look(self, utils: dict[str, int] | None = None) -> Observation:
        fault = None if self.energy_mj is not None else "GPU is lost"
        sample = Sample(self.device.uuid, self.now_ms, energy_mj=self.energy_mj, fault=fault)
        return Observation((self.device,), (sample,), {self.device.uuid: utils or {}})

    def pass_time(self, ms: int, power_mw: int) -> None:
        self.now_ms += ms
        if self.energy_mj is not None:
            self.energy_mj += ms * power_mw // 1000

    def hook(self, verb: str, job_id: int, uuid: str = "GPU-1", t_ms: int | None = None) -> None:
        assert self.keeper is not None
        self.keeper.hook(self.request(verb, job_id, uuid, t_ms), self.look())

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


@pytest.fixture
def bench(tmp_path: Path):
    made = Bench(tmp_path, board("GPU-1"))
    made.start()
    yield made
    made.crash()


def test_a_three_second_job_gets_its_energy(bench) -> None:
    """E6: 3 s at 300 W are 900 J, long before the first 10 s sample."""
    bench.pass_time(7_000, 50_000)
    bench.hook("prolog", 1)
    bench.pass_time(3_000, 300_000)
    bench.hook("epilog", 1)
    assert bench.job_mj(1) == 900_000
    assert [w.unallocated_idle_mj + w.unallocated_active_mj for w in bench.windows()] == [
        350_000,
        0,
    ]


def test_windows_end_exactly_at_the_border(bench) -> None:
    bench.pass_time(300_012, 50_000)
    bench.keeper.border(bench.look(), NOON_MS + 300_000)
    (window,) = bench.windows()
    assert (window.t0_ms, window.t1_ms) == (NOON_MS, NOON_MS + 300_000)


def test_utilisation_is_the_mean_over_time(bench) -> None:
    bench.hook("prolog", 1)
    bench.pass_time(1_000, 100_000)
    bench.keeper.sample(bench.look({"": 200}))
    bench.pass_time(3_000, 100_000)
    bench.keeper.sample(bench.look({"": 1_000}))
    bench.pass_time(50, 100_000)
    bench.keeper.hook(bench.request("epilog", 1, ""), bench.look({"": 0}))
    (share,) = bench.windows()[-1].shares
    assert share.util_permille == 800


def test_a_new_prolog_closes_the_run_whose_epilog_was_missed(bench, caplog) -> None:
    bench.hook("prolog", 1)
    bench.pass_time(1_000, 100_000)
    bench.hook("prolog", 2)
    assert bench.ends() == {1: ("claimed", bench.now_ms)}
    bench.pass_time(1_000, 100_000)
    bench.hook("epilog", 2)
    assert (bench.job_mj(1), bench.job_mj(2)) == (100_000, 100_000)
    assert "job 1: no epilog was seen" in caplog.text


def test_instances_of_one_board_do_not_claim_each_other(tmp_path) -> None:
    bench = Bench(tmp_path, board("GPU-1", 3, 4))
    bench.start()
    bench.hook("prolog", 1, "MIG-0")
    bench.pass_time(500, 100_000)
    bench.hook("prolog", 2, "MIG-1")
    bench.pass_time(700, 100_000)
    bench.hook("prolog", 3, "MIG-0")
    assert {job: why for job, (why, _) in bench.ends().items()} == {1: "claimed"}
    bench.crash()


def test_a_requeued_job_is_two_runs(bench) -> None:
    bench.hook("prolog", 1)
    bench.pass_time(1_000, 100_000)
    bench.hook("epilog", 1)
    bench.pass_time(1_000, 50_000)
    bench.hook("prolog", 1)
    bench.pass_time(2_000, 100_000)
    bench.hook("prolog", 1)  # its epilog never came
    starts = bench.events(RunStarted)
    assert len(starts) == 3
    assert [e.closed_by for e in bench.events(RunEnded)] == ["epilog", "requeued"]
    assert bench.job_mj(1) == 300_000


def test_an_epilog_without_prolog_means_nothing(bench) -> None:
    bench.hook("epilog", 99)
    assert bench.events(RunEnded) == []


def test_an_epilog_of_an_earlier_run_does_not_end_the_new_one(bench) -> None:
    bench.pass_time(1_000, 0)
    bench.hook("prolog", 1)
    bench.hook("epilog", 1, t_ms=NOON_MS)
    assert bench.events(RunEnded) == []


def test_job_files_follow_the_runs(bench) -> None:
    bench.hook("prolog", 1)
    assert (bench.folder / "jobs" / "1").read_text() == "-\tgpu\tGPU-1\n"
    bench.pass_time(10, 0)
    bench.hook("prolog", 2)
    assert not (bench.folder / "jobs" / "1").exists()
    bench.crash()
    (bench.folder / "jobs" / "55").write_text("")
    bench.start()
    assert [path.name for path in (bench.folder / "jobs").glob("[0-9]*")] == ["2"]


@pytest.mark.parametrize(("text", "marked"), [("ConstrainDevices=Yes", True), ("", False)])
def test_the_numbering_of_steps_is_told_to_task_prologs(bench, text: str, marked: bool) -> None:
    bench.crash()
    (bench.folder / "cgroup.conf").write_text(f"# devices\nCgroupPlugin=autodetect\n{text}\n")
    bench.start()
    assert (bench.folder / "jobs" / ".counted-from-0").exists() is marked


def test_e29_a_dead_agent_leaves_no_hole(bench) -> None:
    """10 minutes away inside a job of 30: the counter's delta covers them."""
    bench.hook("prolog", 1)
    bench.pass_time(600_000, 200_000)
    bench.crash()
    bench.pass_time(600_000, 300_000)
    bench.start()
    bench.pass_time(600_000, 100_000)
    bench.hook("epilog", 1)
    assert bench.job_mj(1) == 600 * (200 + 300 + 100) * 1000
    assert [bool(w.flags & Flag.GAP) for w in bench.windows()] == [True, False]


def test_a_gap_is_cut_at_hours_and_where_holders_changed(bench) -> None:
    """Half an hour busy at 100 W above idle, then idle until 20 minutes into the next hour."""
    bench.hook("prolog", 1)
    bench.crash()
    bench.pass_time(1_800_000, IDLE_MW + 100_000)
    bench.mail("epilog", 1)
    bench.pass_time(3_000_000, IDLE_MW)
    bench.start()
    windows = bench.windows()
    assert [(w.t0_ms - NOON_MS, w.t1_ms - NOON_MS) for w in windows] == [
        (0, 1_800_000),
        (1_800_000, HOUR_MS),
        (HOUR_MS, 4_800_000),
    ]
    assert bench.job_mj(1) == 1_800 * (IDLE_MW + 100_000)
    assert sum(w.measured_mj for w in windows) == bench.energy_mj - 1_000_000


def test_e16_a_reboot_ends_runs_and_counts_only_what_is_known(bench) -> None:
    bench.hook("prolog", 1)
    bench.pass_time(10_000, 100_000)
    bench.crash()
    bench.boot_id, bench.boot_ms = "boot2", bench.now_ms + 20_000
    bench.now_ms += 60_000
    bench.energy_mj = 2_000
    bench.start()
    assert bench.ends() == {1: ("reboot", bench.boot_ms)}
    before, after = bench.windows()
    assert (before.t1_ms, before.measured_mj, before.shares) == (bench.boot_ms, None, ())
    assert before.flags == Flag.RESET | Flag.GAP
    assert (after.measured_mj, after.shares) == (2_000, ())
    assert after.flags & Flag.GAP
    assert after.boot_id == "boot2"


def test_an_unmapped_job_is_recorded_and_its_energy_left_unknown(bench, caplog) -> None:
    bench.hook("prolog", 1, "GPU-9")
    (start,) = bench.events(RunStarted)
    assert (start.mapped_by, start.holds) == ("unmapped", ())
    assert "NVML shows no device GPU-9" in caplog.text


def test_bad_mail_is_set_aside_and_the_rest_goes_on(bench, caplog) -> None:
    (bench.folder / "inbox" / "00000000000001-broken.json").write_text('{"v":1,"verb":"pro')
    bench.mail("prolog", 4)
    bench.keeper.sample(bench.look())
    assert [run.job_id for run in bench.events(RunStarted)] == [4]
    assert [path.name for path in (bench.folder / "inbox").iterdir()] == [
        "00000000000001-broken.bad"
    ]
    assert "set aside: not a hook's message" in caplog.text


def test_what_is_no_file_is_set_aside_and_said_once(bench, caplog) -> None:
    inbox = bench.folder / "inbox"
    (inbox / "1.json").mkdir()
    (inbox / "2.json").symlink_to("nowhere")
    for _ in range(3):
        bench.keeper.sample(bench.look())
    assert sorted(path.name for path in inbox.iterdir()) == ["1.bad", "2.bad"]
    assert caplog.text.count("cannot be read") == 2
    assert not bench.keeper.has_mail


def test_a_message_that_breaks_us_is_tried_once(bench, monkeypatch, caplog) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(bench.keeper, "_start", broken)
    bench.mail("prolog", 4)
    bench.now_ms += 1
    bench.mail("epilog", 4)
    bench.keeper.sample(bench.look())
    assert [path.suffix for path in (bench.folder / "inbox").iterdir()] == [".bad"]
    assert "a fault of ours" in caplog.text


def test_a_clock_set_back_waits_instead_of_going_wrong(bench) -> None:
    bench.hook("prolog", 1)
    bench.now_ms -= 5_000
    bench.energy_mj += 7_000
    bench.keeper.border(bench.look(), bench.now_ms)
    assert bench.windows() == []
    bench.now_ms += 6_000
    bench.hook("epilog", 1)
    assert bench.job_mj(1) == 7_000


def test_a_clock_set_back_leaves_no_run_open(bench) -> None:
    """The epilog's time is before the prolog's; the run must not go on for ever."""
    bench.hook("prolog", 1)
    bench.now_ms -= 5_000
    bench.energy_mj += 7_000
    bench.hook("epilog", 1)
    assert [end.job_id for end in bench.events(RunEnded)] == [1]
    assert bench.keeper.status()["jobs"] == []
    bench.pass_time(10_000, 0)
    _cut_now(bench)
    assert sum(window.measured_mj for window in bench.windows()) == 7_000


def test_a_clock_that_was_decades_off_makes_no_million_windows(bench) -> None:
    """A node without a battery boots in 1970; the time daemon then sets the clock."""
    bench.hook("prolog", 1)
    bench.now_ms += 50 * 365 * 24 * HOUR_MS
    bench.energy_mj += 744_000
    bench.hook("epilog", 1)
    windows = bench.windows()
    assert len(windows) <= 745
    assert sum(window.measured_mj for window in windows) == bench.job_mj(1) == 744_000
    assert windows[-1].t1_ms == bench.now_ms


def test_bad_mail_that_cannot_be_set_aside_ends_nothing(bench, monkeypatch, caplog) -> None:
    (bench.folder / "inbox" / "1-1-prolog.json").write_text("{")
    bench.mail("prolog", 7)

    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "rename", refuse)
    bench.keeper.sample(bench.look())
    assert bench.keeper.status()["jobs"] == [7]
    assert "cannot be set aside: Read-only file system" in caplog.text


def test_an_impossible_jump_is_unknown_and_the_next_window_is_sound(bench) -> None:
    bench.hook("prolog", 1)
    bench.pass_time(1_000, 9_000_000)
    bench.keeper.border(bench.look(), bench.now_ms)
    bench.pass_time(1_000, 100_000)
    bench.hook("epilog", 1)
    first, second = bench.windows()
    assert (first.measured_mj, first.flags) == (None, Flag.IMPLAUSIBLE)
    assert second.measured_mj == 100_000


def test_a_reset_costs_only_the_time_between_two_samples(bench) -> None:
    """300 J before the last sample, 50 J after the reset; then the counter overtakes its value."""
    bench.energy_mj = 0
    bench.crash()
    bench.folder = bench.folder / "fresh"
    bench.folder.mkdir()
    bench.start()
    bench.hook("prolog", 1)
    bench.pass_time(3_000, 100_000)
    bench.keeper.sample(bench.look())
    bench.energy_mj = 0
    bench.pass_time(500, 100_000)
    bench.keeper.sample(bench.look())
    bench.pass_time(10_000, 100_000)
    bench.hook("epilog", 1)
    assert [(w.measured_mj, w.flags & Flag.RESET) for w in bench.windows()] == [
        (300_000, 0),
        (50_000, Flag.RESET),
        (1_000_000, 0),
    ]


actions = st.lists(
    st.one_of(
        st.tuples(st.just("time"), st.integers(1, 2_000_000), st.integers(0, 400_000)),
        st.tuples(st.sampled_from(["prolog", "epilog"]), st.integers(1, 4), st.integers(0, 2)),
        st.tuples(st.sampled_from(["mail-prolog", "mail-epilog"]), st.integers(1, 4),
                  st.integers(0, 2)),
        st.tuples(st.sampled_from(["sample", "border", "crash", "reset"]), st.just(0), st.just(0)),
    ),
    max_size=25,
)  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(actions)
def test_whatever_happens_every_millijoule_has_one_owner(tmp_path_factory, steps) -> None:
    bench = Bench(tmp_path_factory.mktemp("bench"), board("GPU-1", 1, 2, 4))
    try:
        bench.start()
        total = sum(_do(bench, *step) for step in steps)
        _cut_now(bench)
        windows = bench.windows()
    finally:
        bench.crash()
    assert sum(window.measured_mj for window in windows) == total
    for window in windows:
        parts = [share.idle_mj for share in window.shares]
        parts += [share.active_mj for share in window.shares]
        parts += [window.unallocated_idle_mj, window.unallocated_active_mj]
        assert sum(parts) == window.measured_mj
        assert min(parts) >= 0
        instances = [share.instance for share in window.shares]
        assert len(instances) == len(set(instances))
    assert all(one.t1_ms == other.t0_ms for one, other in pairwise(windows))


def _do(bench: Bench, what: str, a: int, b: int) -> int:
    """Do one step; return the energy the device used in it."""
    before = bench.energy_mj
    if what == "time":
        bench.pass_time(a, b)
        return bench.energy_mj - before
    if what == "crash":
        bench.crash()
        bench.start()
    elif what == "reset":
        bench.keeper.sample(bench.look())
        bench.energy_mj = 0
        bench.now_ms += 1
        bench.keeper.sample(bench.look())
    elif what.startswith("mail-"):
        bench.mail(what.removeprefix("mail-"), a, f"MIG-{b}")
    elif what == "sample":
        bench.keeper.sample(bench.look({f"MIG-{n}": 300 * n for n in range(3)}))
    elif what == "border":
        _cut_now(bench)
    else:
        bench.hook(what, a, f"MIG-{b}")
    return 0


def _cut_now(bench: Bench) -> None:
    bench.pass_time(1, 0)
    bench.keeper.border(bench.look(), bench.now_ms)
