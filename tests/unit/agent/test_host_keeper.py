# SPDX-License-Identifier: Apache-2.0
"""The host keeper on a host tree: whose a package's, its DRAM's and the node's joules are."""

from __future__ import annotations

from itertools import pairwise

import pytest

from fairwatt.core.events import Flag
from fairwatt.core.records import Device
from tests.fakes.host_tree import HostTree
from tests.unit.agent.host_bench import NOON_MS, Bmc, HostBench

IDLE = {"cpu": 40_000, "dram": 4_000}
GIB = 1 << 30


@pytest.fixture
def tree(tmp_path):
    """Two packages of eight CPUs, 64 GiB."""
    return HostTree(tmp_path / "host")


@pytest.fixture
def bench(tmp_path, tree):
    made = HostBench(tmp_path, tree, idle=IDLE)
    made.start()
    yield made
    made.crash()


def run_two_jobs(bench: HostBench) -> None:
    """Job 7 has CPUs 0-5 and 16 GiB, job 8 CPUs 6-9 and 8 GiB; they run for 10 s."""
    tree = bench.tree
    bench.begin(7, 6)
    bench.begin(8, 4)
    tree.job("job_7", cpus="0-5", memory=12 * GIB, limit=16 * GIB)
    tree.job("job_8", cpus="6-9", memory=4 * GIB, limit=8 * GIB)
    bench.keeper.sample()
    bench.wait(10_000)
    tree.use("cpu0", 1_000_000_000)
    tree.use("cpu1", 500_000_000)
    tree.use("dram0", 100_000_000)
    tree.use("dram1", 60_000_000)
    tree.compute("job_7", 45_000_000)
    tree.compute("job_8", 20_000_000)
    tree.serve(10_000_000)
    bench.keeper.sample()


def test_a_package_is_split_by_cores_and_by_cpu_time(bench):
    """1,000 J of package 0 in 10 s at 40 W idle: 400 J idle, 600 J active.

    Job 7 holds 6 of 8 cores and used all its 45 s there; job 8 holds 2 and used half of its 20 s;
    of the system's 10 s half counts here. Active: 45 : 10 : 5.
    """
    run_two_jobs(bench)
    bench.finish(7)
    assert bench.parts("cpu0") == [
        (1_000_000, {7: (300_000, 450_000), 8: (100_000, 100_000)}, (0, 0), 50_000)
    ]
    # Package 1: 400 J idle, job 8 holds 2 of 8; 100 J active as 10 s to the system's 5.
    assert bench.parts("cpu1") == [
        (500_000, {7: (0, 0), 8: (100_000, 66_667)}, (300_000, 0), 33_333)
    ]


def test_dram_is_split_by_memory_given_and_memory_used(bench):
    """100 J in 10 s at 4 W idle: 40 J by 16 : 8 : 40 of 64 GiB, 60 J by 12 : 4 GiB in use."""
    run_two_jobs(bench)
    bench.finish(7)
    assert bench.parts("dram0") == [
        (100_000, {7: (10_000, 45_000), 8: (5_000, 15_000)}, (25_000, 0), 0)
    ]


def test_how_busy_the_cores_and_how_full_the_memory_was_goes_with_the_share(bench):
    """45 s on 6 cores in 10 s are 75 %; 12 of 16 GiB as well."""
    run_two_jobs(bench)
    bench.finish(7)
    utils = {w.device: {s.job_id: s.util_permille for s in w.shares} for w in bench.windows()}
    assert utils["n1/cpu0"] == {7: 750, 8: 500}
    assert utils["n1/dram0"] == {7: 750, 8: 500}


def test_no_job_leaves_all_to_nobody_and_the_system(bench):
    bench.wait(10_000)
    bench.tree.use("cpu0", 500_000_000)
    bench.tree.serve(2_000_000)
    bench.cut()
    assert bench.parts("cpu0") == [(500_000, {}, (400_000, 0), 100_000)]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("name", "sluid"), [("job_7", None), ("sEKNKTV3WPV500", "sEKNKTV3WPV500")]
)
def test_both_kinds_of_group_names_in_both_versions_are_the_run(tmp_path, version, name, sluid):
    """E35: `job_7` and, since Slurm 26.05, the SLUID are the group of the same run."""
    tree = HostTree(tmp_path / "host", packages=1, version=version)
    bench = HostBench(tmp_path, tree, idle=IDLE)
    bench.start()
    bench.begin(7, 4, sluid)
    bench.begin(8, 4)
    tree.job(name, cpus="0-3")
    tree.job("job_8", cpus="4-7")
    bench.wait(10_000)
    tree.use("cpu0", 1_000_000_000)
    tree.compute(name, 30_000_000)
    tree.compute("job_8", 10_000_000)
    bench.finish(7)
    bench.crash()
    assert bench.parts("cpu0") == [
        (1_000_000, {7: (200_000, 450_000), 8: (200_000, 150_000)}, (0, 0), 0)
    ]
    assert bench.windows("cpu0")[0].flags == 0


def test_what_a_group_used_after_the_last_look_is_its_own(bench):
    """The group is gone when the epilog comes: the scope above it goes on counting."""
    bench.begin(7, 6)
    bench.begin(8, 2)
    bench.tree.job("job_7", cpus="0-5")
    bench.tree.job("job_8", cpus="6-7")
    bench.wait(5_000)
    bench.tree.compute("job_7", 20_000_000)
    bench.keeper.sample()
    bench.wait(5_000)
    bench.tree.compute("job_7", 10_000_000)
    bench.tree.compute("job_8", 10_000_000)
    bench.tree.use("cpu0", 800_000_000)
    bench.tree.end("job_7")
    bench.finish(7)
    ((measured, shares, _, _),) = bench.parts("cpu0")
    assert (measured, shares) == (800_000, {7: (300_000, 300_000), 8: (100_000, 100_000)})


def test_a_job_of_a_moment_has_no_group_and_yet_its_energy(bench):
    bench.begin(7, 4)
    bench.wait(900)
    bench.tree.use("cpu0", 90_000_000)
    bench.tree.job("job_7", cpus="0-3")
    bench.tree.compute("job_7", 3_000_000)
    bench.tree.end("job_7")
    bench.finish(7)
    (window,) = bench.windows("cpu0")
    # 36 J idle by 4 of 16 CPUs, assumed on both packages: 2 of 8 here; 54 J are the job's alone.
    assert [(s.idle_mj, s.active_mj) for s in window.shares] == [(9_000, 54_000)]
    assert window.flags == Flag.SPREAD


def test_without_groups_it_is_split_by_cpus_given_and_says_so(bench):
    import shutil

    shutil.rmtree(bench.tree.cgroup)
    bench.begin(7, 8)
    bench.begin(8, 4)
    bench.wait(10_000)
    bench.tree.use("cpu0", 700_000_000)
    bench.finish(7)
    assert bench.parts("cpu0") == [
        (700_000, {7: (200_000, 200_000), 8: (100_000, 100_000)}, (100_000, 0), 0)
    ]
    assert bench.windows("cpu0")[0].flags == Flag.SPREAD | Flag.NO_UTIL


def test_a_group_with_all_cpus_does_not_bind_a_job_that_was_given_four(bench):
    """Without ConstrainCores."""
    bench.begin(7, 4)
    bench.tree.job("job_7", cpus="0-15")
    bench.wait(10_000)
    bench.tree.use("cpu0", 400_000_000)
    bench.finish(7)
    assert bench.parts("cpu0")[0][1] == {7: (100_000, 0)}
    assert bench.windows("cpu0")[0].flags == Flag.SPREAD


def test_a_reboot_counts_what_was_used_since_and_flags_the_hole(bench):
    """E16: 200,000 J before, 50 J after 40 s and a boot between: 50 J, not a wrapped 62,193 J."""
    bench.tree.set_energy("cpu0", 200_000_000_000)
    bench.wait(1_000_000)
    bench.cut()
    before = len(bench.windows("cpu0"))
    bench.crash()
    bench.tree.set_energy("cpu0", 50_000_000)
    bench.boot_id, bench.boot_ms = "boot2", bench.now_ms + 30_000
    bench.wait(40_000)
    bench.start()
    hole, after = bench.windows("cpu0")[before:]
    assert (hole.measured_mj, hole.flags) == (None, Flag.RESET | Flag.GAP)
    assert (hole.t1_ms, after.t0_ms) == (bench.boot_ms, bench.boot_ms)
    assert (after.measured_mj, after.flags) == (50_000, Flag.GAP)


def test_after_a_reboot_the_groups_begin_at_nothing_too(bench):
    """20 W above idle for 10 s since the boot, all of it by services: 200 J are the system's."""
    bench.tree.serve(500_000_000)
    bench.wait(1_000)
    bench.cut()
    bench.crash()
    bench.tree.set_energy("cpu0", 600_000_000)
    (bench.tree.cgroup / "system.slice" / "cpu.stat").write_text("usage_usec 5000000\n")
    bench.boot_id, bench.boot_ms = "boot2", bench.now_ms + 30_000
    bench.wait(40_000)
    bench.start()
    assert bench.parts("cpu0")[-1] == (600_000, {}, (400_000, 0), 200_000)


def test_an_agent_that_was_killed_has_the_cpu_time_and_energy_of_the_gap(bench):
    run_two_jobs(bench)
    bench.cut()
    bench.wait(10_000)
    bench.crash()
    bench.tree.use("cpu0", 800_000_000)
    bench.tree.compute("job_7", 30_000_000)
    bench.tree.compute("job_8", 20_000_000)
    bench.start()
    assert bench.parts("cpu0")[1] == (
        800_000, {7: (300_000, 300_000), 8: (100_000, 100_000)}, (0, 0), 0
    )  # fmt: skip
    assert bench.windows("cpu0")[1].flags == Flag.GAP


def test_a_run_that_ended_while_the_agent_was_away_gets_its_time(bench):
    """20 s of 100 W, job 7 for the first 5 s: of 800 J idle its 6 of 8 cores for 5 s are 150 J.

    What was active is all its own.
    """
    bench.begin(7, 12)
    bench.tree.job("job_7", cpus="0-5")
    bench.keeper.sample()
    bench.crash()
    bench.tree.use("cpu0", 2_000_000_000)
    bench.tree.compute("job_7", 25_000_000)
    bench.tree.end("job_7")
    ended_ms = bench.now_ms + 5_000
    bench.wait(20_000)
    _restart_with_end(bench, 7, ended_ms)
    assert bench.parts("cpu0") == [(2_000_000, {7: (150_000, 1_200_000)}, (650_000, 0), 0)]
    assert bench.windows("cpu0")[0].flags & Flag.GAP


def test_a_gap_is_cut_at_full_hours(bench):
    """So long without a look the counter may have passed its end: unknown, and it says so."""
    bench.crash()
    bench.wait(9_000_000)
    bench.start()
    windows = bench.windows("cpu0")
    assert [(w.t0_ms - NOON_MS, w.t1_ms - NOON_MS) for w in windows] == [
        (0, 3_600_000), (3_600_000, 7_200_000), (7_200_000, 9_000_000),
    ]  # fmt: skip
    assert {w.measured_mj for w in windows} == {None}
    assert all(w.flags & Flag.AMBIGUOUS for w in windows)


def test_a_crowded_node_is_cut_once_a_minute_and_each_run_has_its_time(bench):
    """Ten runs of one core each; the eleventh comes 10 s and goes 20 s after a cut.

    In 60 s at 40 W idle a core is 300 J for all the time, and 50 J for 10 s.
    """
    for job_id in range(1, 11):
        bench.begin(job_id, 1)
        bench.tree.job(f"job_{job_id}", cpus="7" if job_id == 10 else "15")
    bench.wait(1_000)
    bench.cut()
    before = len(bench.windows("cpu0"))
    bench.wait(10_000)
    bench.keeper.before_change()
    bench.tell(11, 1)
    bench.tree.job("job_11", cpus="6")
    bench.wait(10_000)
    bench.tree.compute("job_11", 6_000_000)
    bench.keeper.before_change()
    bench.tree.end("job_11")
    bench.told_end(11, bench.now_ms)
    assert len(bench.windows("cpu0")) == before
    bench.wait(40_000)
    bench.tree.use("cpu0", 2_400_000_000 + 7_000_000)
    bench.keeper.before_change()
    (window,) = bench.windows("cpu0")[before:]
    shares = {s.job_id: (s.idle_mj, s.active_mj) for s in window.shares}
    assert (shares[10], shares[11]) == ((300_000, 0), (50_000, 7_000))
    assert window.flags == 0


def test_hooks_of_a_crowded_node_look_at_all_groups_once_a_second(bench):
    """200 jobs come within a second: the first at a cut each, then one look for all."""
    looks, groups = [], bench.keeper._groups
    bench.keeper._groups = lambda: looks.append(1) or groups()
    for job_id in range(1, 201):
        bench.wait(5)
        bench.keeper.before_change()
        bench.tell(job_id, 1)
    assert len(looks) <= 11
    bench.wait(1_000)
    bench.keeper.before_change()
    assert len(looks) <= 12


def _restart_with_end(bench: HostBench, job_id: int, t_ms: int) -> None:
    """As the keeper does: messages in the inbox are acted on before the first cut."""
    cut = HostBench.cut

    def told_first(self):
        HostBench.cut = cut
        self.told_end(job_id, t_ms)
        self.cut()

    HostBench.cut = told_first
    bench.start()


def test_microjoules_are_not_lost_between_windows(bench):
    for _ in range(10):
        bench.wait(1_000)
        bench.tree.use("cpu0", 100_300)
        bench.cut()
    assert [w.measured_mj for w in bench.windows("cpu0")] == [100] * 3 + [101] + [100] * 2 + [
        101
    ] + [100] * 2 + [101]


def test_the_rest_of_the_node_is_what_its_parts_are_not(tmp_path, tree):
    """500 W by the BMC for 10 s; packages 100 J each, DRAM 10 J each, a GPU 1,500 J: 3,280 J.

    Job 7 has 8 of 16 CPUs: half of it.
    """
    bench = HostBench(tmp_path, tree, idle=IDLE, bmc=Bmc())
    bench.bmc.power_mw = 500_000
    bench.start()
    _first_gpu(bench, 1_000_000)
    bench.begin(7, 8)
    tree.job("job_7", cpus="0-7")
    bench.wait(10_000)
    for part, energy_uj in (("cpu0", 10**8), ("cpu1", 10**8), ("dram0", 10**7), ("dram1", 10**7)):
        tree.use(part, energy_uj)
    _gpu(bench, 2_500_000)
    bench.finish(7)
    bench.crash()
    assert bench.parts("rest")[1:] == [(3_280_000, {7: (1_640_000, 0)}, (1_640_000, 0), 0)]
    window = bench.windows("rest")[-1]
    assert (window.method, window.kind, window.flags) == ("ipmi", "node", Flag.INTEGRATED)


def test_parts_beyond_the_node_leave_a_rest_of_nothing(tmp_path, tree):
    bench = HostBench(tmp_path, tree, bmc=Bmc())
    bench.bmc.power_mw = 5_000
    bench.start()
    bench.wait(10_000)
    tree.use("cpu0", 100_000_000)
    bench.cut()
    bench.crash()
    assert [w.measured_mj for w in bench.windows("rest")] == [0]


def test_a_gpu_that_is_not_read_leaves_the_rest_unknown(tmp_path, tree):
    bench = HostBench(tmp_path, tree, bmc=Bmc())
    bench.bmc.power_mw = 500_000
    bench.start()
    _first_gpu(bench, 1_000_000)
    bench.wait(10_000)
    _gpu(bench, None)
    bench.cut()
    bench.crash()
    assert bench.windows("rest")[-1].measured_mj is None


def test_a_module_has_its_cpu_and_memory_counted_already(tmp_path, tree):
    """E22: the module's 60 kJ have the CPU's 15 kJ in them: 60 kJ, not 75."""
    bench = HostBench(tmp_path, tree, idle=IDLE, bmc=Bmc())
    bench.bmc.power_mw = 1_000_000
    bench.start()
    _first_gpu(bench, 0, module=True)
    bench.begin(7, 16)
    bench.wait(60_000)
    tree.use("cpu0", 15_000_000_000)
    _gpu(bench, 60_000_000, module=True)
    bench.finish(7)
    bench.crash()
    cpu = bench.windows("cpu0")[-1]
    assert (cpu.measured_mj, cpu.flags, cpu.method) == (None, Flag.INCLUDED, "included")
    # 60 kJ of the BMC less 60 kJ of the module: nothing is added.
    assert bench.windows("rest")[-1].measured_mj == 0


def _first_gpu(bench: HostBench, energy_mj: int, *, module: bool = False) -> None:
    """What the GPU used before the first windows is not known."""
    _gpu(bench, energy_mj, module=module)
    bench.wait(1)
    bench.cut()


def _gpu(bench: HostBench, energy_mj: int | None, *, module: bool = False) -> None:
    more = {"module_energy": True} if module else {}
    device = Device(
        node="n1", uuid="GPU-1", name="x", model=None, minor=0, nvml_index=0, memory_mib=1,
        mig_enabled=False, compute_slices=7, **more,
    )  # fmt: skip
    bench.keeper.note_gpus({"GPU-1": device}, {"GPU-1": energy_mj})


def test_what_was_used_while_the_clock_was_set_back_is_flagged(bench):
    bench.cut()
    bench.wait(-5_000)
    bench.cut()
    bench.wait(10_000)
    bench.tree.use("cpu0", 100_000_000)
    bench.cut()
    bench.wait(1_000)
    bench.cut()
    flagged, after = bench.windows("cpu0")[-2:]
    assert (flagged.measured_mj, flagged.flags & Flag.GAP) == (100_000, Flag.GAP)
    assert not after.flags & Flag.GAP


def test_windows_follow_one_another_and_end_together(bench):
    run_two_jobs(bench)
    bench.finish(7)
    bench.wait(500)
    bench.finish(8)
    bench.cut()
    for part in ("cpu0", "cpu1", "dram0", "dram1"):
        windows = bench.windows(part)
        assert [w.t1_ms - NOON_MS for w in windows] == [10_000, 10_500]
        assert all(a.t1_ms == b.t0_ms for a, b in pairwise(windows))
