# SPDX-License-Identifier: Apache-2.0
"""Files of /sys that hold anything, are pipes, or go: the agent goes on and says unknown."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from fairwatt.accounting.agent.host.cgroup import Cgroups
from fairwatt.accounting.agent.host.topology import cpu_list
from fairwatt.core.events import Flag
from tests.fakes.host_tree import HostTree
from tests.unit.agent.host_bench import HostBench

GARBAGE = ["", "-5", "1_000", "9" * 5_000, "1e9", "0x10", "²", "\x00" * 64, "nan", "9" * 20]


@pytest.fixture
def tree(tmp_path):
    return HostTree(tmp_path / "host", packages=1, cores=16)


@pytest.fixture
def bench(tmp_path, tree):
    made = HostBench(tmp_path, tree)
    made.start()
    yield made
    made.crash()


@pytest.fixture(autouse=True)
def _no_wait():
    """Whatever waits for a file is ended."""
    signal.alarm(20)
    yield
    signal.alarm(0)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


@pytest.mark.parametrize("text", GARBAGE)
def test_a_counter_that_is_no_number_is_unknown_until_it_is_one_again(bench, text):
    """The counter itself went on: 100 J before and 50 J after are one window of 150 J."""
    bench.begin(7, 16)
    bench.wait(10_000)
    good_uj = bench.tree.energy_uj("cpu0")
    bench.tree.counter("cpu0").write_text(text)
    bench.cut()
    bench.wait(10_000)
    bench.tree.set_energy("cpu0", good_uj + 50_000_000)
    bench.cut()
    bench.wait(10_000)
    bench.tree.use("cpu0", 30_000_000)
    bench.finish(7)
    unknown, after, last = bench.windows("cpu0")
    assert (unknown.measured_mj, unknown.shares) == (None, ())
    assert unknown.flags & Flag.LOST
    assert (after.measured_mj, last.measured_mj) == (None, 30_000)


@pytest.mark.parametrize("make", [pipe, folder, loop, Path.unlink])
@pytest.mark.parametrize("name", ["energy_uj", "name", "max_energy_range_uj"])
def test_a_zone_whose_files_are_something_else_stops_nothing(tmp_path, tree, make, name):
    make(tree.counter("cpu0").with_name(name))
    bench = HostBench(tmp_path, tree)
    bench.start()
    bench.wait(10_000)
    bench.cut()
    bench.crash()
    assert all(w.measured_mj in (None, 0) for w in bench.windows())


@pytest.mark.parametrize("text", [*GARBAGE, "usage_usec x\n", "usage_usec " + "9" * 5_000])
def test_groups_that_hold_anything_stop_nothing(bench, text):
    """What the group says is not known: 16 of 16 CPUs are the job's, so all is."""
    bench.begin(7, 16)
    bench.tree.job("job_7", memory=1)
    scope = bench.tree.cgroup / "system.slice/slurmstepd.scope"
    for name in ("cpu.stat", "memory.current", "memory.max", "cpuset.cpus.effective"):
        (scope / "job_7" / name).write_text(text)
    (scope / "cpu.stat").write_text(text)
    (scope.parent / "memory.current").write_text(text)
    bench.wait(10_000)
    bench.tree.use("cpu0", 10_000_000)
    bench.finish(7)
    assert bench.parts("cpu0") == [(10_000, {7: (0, 10_000)}, (0, 0), 0)]


@pytest.mark.parametrize("text", ["0-99999999999", "0-" + "9" * 5_000, "-5", "a", "0-3,x"])
def test_a_list_of_cpus_that_cannot_be_is_none(text):
    assert cpu_list(text) == frozenset()


def test_a_tree_that_goes_while_it_is_read_is_unknown(tree, monkeypatch):
    """systemd may stop Slurm's scope at any moment."""
    groups = Cgroups(tree.cgroup, "n1")
    tree.job("job_7")
    found = Path.iterdir

    def going(path):
        shutil.rmtree(tree.cgroup, ignore_errors=True)
        return found(path)

    monkeypatch.setattr(Path, "iterdir", going)
    assert groups.look().all_jobs_us is None
