# SPDX-License-Identifier: Apache-2.0
"""Groups that no run is known of, and groups that are made anew under a running job."""

from __future__ import annotations

import pytest

from fairwatt.accounting.agent.host.cgroup import CgroupLook
from tests.fakes.host_tree import HostTree
from tests.unit.agent.host_bench import HostBench

GIB = 1 << 30


@pytest.fixture
def tree(tmp_path):
    """One package of 16 CPUs, 64 GiB."""
    return HostTree(tmp_path / "host", packages=1, cores=16)


@pytest.fixture
def bench(tmp_path, tree):
    made = HostBench(tmp_path, tree)
    made.start()
    yield made
    made.crash()


def test_what_an_unknown_job_computes_is_nobodys_not_its_neighbours(bench):
    """The agent came to a node on which job 99 ran already: it was told of job 7 alone.

    150 J active; 10 s of CPU time of job 7, 30 s of job 99, 10 s of the system: 30, 90 and 30 J.
    """
    bench.tree.job("job_99", cpus="0-7", memory=GIB)
    bench.tree.compute("job_99", 5_000_000_000)
    bench.crash()
    bench.start()
    bench.begin(7, 8)
    bench.tree.job("job_7", cpus="8-15", memory=GIB)
    bench.wait(10_000)
    bench.tree.use("cpu0", 150_000_000)
    bench.tree.compute("job_7", 10_000_000)
    bench.tree.compute("job_99", 30_000_000)
    bench.tree.serve(10_000_000)
    bench.finish(7)
    assert bench.parts("cpu0") == [(150_000, {7: (0, 30_000)}, (0, 90_000), 30_000)]


def test_the_first_look_of_an_agent_does_not_count_what_unknown_jobs_used_before(bench):
    """Job 99 computed for an hour before the agent began anew; since then 30 s each."""
    bench.begin(7, 8)
    bench.tree.job("job_7", cpus="8-15", memory=GIB)
    bench.tree.job("job_99", cpus="0-7", memory=GIB)
    bench.tree.compute("job_99", 3_600_000_000)
    bench.crash()
    bench.start()
    bench.wait(10_000)
    bench.tree.use("cpu0", 100_000_000)
    bench.tree.compute("job_7", 30_000_000)
    bench.tree.compute("job_99", 30_000_000)
    bench.finish(7)
    assert bench.parts("cpu0") == [(100_000, {7: (0, 50_000)}, (0, 50_000), 0)]


def test_an_unknown_jobs_memory_is_nobodys(bench):
    """40 J; 12 GiB of job 7, 4 GiB of job 99: 30 and 10 J."""
    bench.tree.job("job_99", memory=4 * GIB)
    bench.begin(7, 8)
    bench.tree.job("job_7", memory=12 * GIB, limit=16 * GIB)
    bench.keeper.sample()
    bench.wait(10_000)
    bench.tree.use("dram0", 40_000_000)
    bench.finish(7)
    assert bench.parts("dram0") == [(40_000, {7: (0, 30_000)}, (0, 10_000), 0)]


def test_a_run_whose_group_went_does_not_get_what_an_unknown_job_computed(bench):
    """Job 7's group goes with 10 s, 4 s of it after the last look; 99 has 30 s."""
    bench.tree.job("job_99", memory=GIB)
    bench.begin(7, 8)
    bench.tree.job("job_7", memory=GIB)
    bench.wait(10_000)
    bench.tree.use("cpu0", 40_000_000)
    bench.tree.compute("job_99", 30_000_000)
    bench.tree.compute("job_7", 6_000_000)
    bench.keeper.sample()
    bench.tree.compute("job_7", 4_000_000)
    bench.tree.end("job_7")
    bench.finish(7)
    assert bench.parts("cpu0") == [(40_000, {7: (0, 10_000)}, (0, 30_000), 0)]


def test_a_group_that_outlives_its_epilog_is_not_charged_twice(bench):
    """Job 7 computed 100 s and is over; its group stays with 5 s more while job 8 uses 15 s."""
    bench.begin(7, 8)
    bench.tree.job("job_7", memory=GIB)
    bench.wait(10_000)
    bench.tree.compute("job_7", 100_000_000)
    bench.finish(7)
    bench.begin(8, 8)
    bench.tree.job("job_8", memory=GIB)
    bench.wait(10_000)
    bench.tree.use("cpu0", 40_000_000)
    bench.tree.compute("job_7", 5_000_000)
    bench.tree.compute("job_8", 15_000_000)
    bench.finish(8)
    assert bench.parts("cpu0")[-1] == (40_000, {8: (0, 30_000)}, (0, 10_000), 0)


@pytest.mark.parametrize("again_us", [5_000_000, 120_000_000])
def test_a_group_made_anew_counts_on(bench, again_us):
    """Without PrologFlags=contain a job's group goes with each srun and comes with the next.

    100 s before the cut; then 20 s, gone, anew with 5 s (or 120 s, more than the old count):
    25 s (140 s), as long as the system's, so half of the 80 J.
    """
    bench.begin(7, 8)
    bench.tree.job("job_7", memory=GIB)
    bench.wait(10_000)
    bench.tree.compute("job_7", 100_000_000)
    bench.cut()
    bench.wait(5_000)
    bench.tree.compute("job_7", 20_000_000)
    bench.keeper.sample()
    bench.tree.end("job_7")
    bench.keeper.sample()
    bench.tree.job("job_7", memory=GIB)
    bench.tree.compute("job_7", again_us)
    bench.tree.serve(20_000_000 + again_us)
    bench.tree.use("cpu0", 80_000_000)
    bench.wait(5_000)
    bench.cut()
    assert bench.parts("cpu0")[-1] == (80_000, {7: (0, 40_000)}, (0, 0), 40_000)
    bench.wait(10_000)
    bench.tree.compute("job_7", 10_000_000)
    bench.tree.serve(30_000_000)
    bench.tree.use("cpu0", 40_000_000)
    bench.finish(7)
    assert bench.parts("cpu0")[-1] == (40_000, {7: (0, 10_000)}, (0, 0), 30_000)


def test_an_agent_that_begins_anew_sees_that_a_group_did_too(bench):
    """100 s at the mark, 5 s at the first look after a crash: 5 s, as long as the system."""
    bench.begin(7, 8)
    bench.tree.job("job_7", memory=GIB)
    bench.wait(10_000)
    bench.tree.compute("job_7", 100_000_000)
    bench.cut()
    bench.crash()
    bench.tree.end("job_7")
    bench.tree.job("job_7", memory=GIB)
    bench.tree.compute("job_7", 5_000_000)
    bench.tree.serve(5_000_000)
    bench.tree.use("cpu0", 80_000_000)
    bench.wait(5_000)
    bench.start()
    assert bench.parts("cpu0")[-1] == (80_000, {7: (0, 40_000)}, (0, 0), 40_000)


def test_a_group_that_goes_while_it_is_read_keeps_what_it_said(bench):
    """Its folder was listed, its files are gone: the 10 s seen before count, the system has 30."""
    bench.begin(7, 8)
    bench.tree.job("job_7", memory=GIB)
    bench.wait(10_000)
    bench.tree.compute("job_7", 10_000_000)
    bench.tree.serve(30_000_000)
    bench.tree.use("cpu0", 40_000_000)
    bench.keeper.sample()
    for path in (bench.tree.cgroup / "system.slice/slurmstepd.scope/job_7").iterdir():
        path.unlink()
    bench.finish(7)
    assert bench.parts("cpu0") == [(40_000, {7: (0, 10_000)}, (0, 0), 30_000)]


def test_a_look_at_which_nothing_could_be_read_makes_no_group_anew(bench):
    """10 s of job 7 before it and 10 s after it, 20 s of the system: half of 40 J."""
    bench.begin(7, 8)
    bench.tree.job("job_7", memory=GIB)
    bench.wait(5_000)
    bench.tree.compute("job_7", 10_000_000)
    bench.keeper.sample()
    groups, bench.keeper._groups = bench.keeper._groups, lambda: CgroupLook({})
    bench.keeper.sample()
    bench.keeper._groups = groups
    bench.wait(5_000)
    bench.tree.compute("job_7", 10_000_000)
    bench.tree.serve(20_000_000)
    bench.tree.use("cpu0", 40_000_000)
    bench.finish(7)
    assert bench.parts("cpu0") == [(40_000, {7: (0, 20_000)}, (0, 0), 20_000)]
