# SPDX-License-Identifier: Apache-2.0
"""What of a host is where: CPUs of a job, of packages and dies, groups, and named sources."""

from __future__ import annotations

import pytest

from fairwatt.accounting.agent.host.cgroup import Cgroups, folder_names
from fairwatt.accounting.agent.host.cpus import allocated_cpus
from fairwatt.accounting.agent.host.places import host_places, made
from fairwatt.accounting.agent.host.topology import cpu_list, read_topology
from fairwatt.accounting.agent.settings import idle_powers
from fairwatt.core import config
from fairwatt.core.errors import ConfigError
from tests.fakes.host_tree import HostTree


@pytest.mark.parametrize(
    ("counts", "nodes", "cpus"),
    [
        ("24", "n[1-9]", 24),
        ("24(x3)", "", 24),  # equal on all: the order does not matter
        ("24(x2),8", "n[1-3]", 24),
        ("8,24(x2)", "n[1-3]", 24),
        ("24,8", "n[1-2]", 8),
        ("24,8", "n1,m[1-3]", None),  # not one of them
        ("24,8", "", None),
        ("", "n2", None),
        ("x", "n2", None),
        ("4,,4", "n2", None),
        ("4(x", "n2", None),
        ("1(x999999999),2", "n2", None),
        ("2,1", "n[1-", None),
    ],
)
def test_the_cpus_of_a_job_on_this_node(counts, nodes, cpus):
    env = {"SLURM_JOB_CPUS_PER_NODE": counts, "SLURM_JOB_NODELIST": nodes}
    assert allocated_cpus(env, "n2") == cpus


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0-3,8\n", {0, 1, 2, 3, 8}), ("5", {5}), ("", set()), ("a-b", set()), ("1-", {1})],
)
def test_the_kernels_list_of_cpus(text, cpus):
    assert cpu_list(text) == cpus


def test_cpus_of_packages_and_dies(tmp_path):
    tree = HostTree(tmp_path, packages=2, cores=4, dies=2, memory_bytes=1 << 30)
    found = read_topology(tree.sys, tree.proc)
    parts = {part: sorted(found.cpus_of(part)) for part in ("cpu0", "dram1", "cpu1d0", "cpu1d1")}
    assert parts == {
        "cpu0": [0, 1, 2, 3], "dram1": [4, 5, 6, 7], "cpu1d0": [4, 5], "cpu1d1": [6, 7],
    }  # fmt: skip
    assert found.cpus_of("cpu") == found.cpus_of("node") == found.all_cpus
    assert (found.cores, found.memory_bytes) == (8, 1 << 30)


def test_a_host_that_shows_nothing_has_nothing(tmp_path):
    found = read_topology(tmp_path, tmp_path)
    assert (found.all_cpus, found.cores, found.memory_bytes) == (frozenset(), 0, None)
    assert Cgroups(tmp_path, "n1").look().jobs == {}


@pytest.mark.parametrize("version", [1, 2])
def test_groups_of_both_versions(tmp_path, version):
    tree = HostTree(tmp_path, version=version)
    tree.job("job_7", cpus="0-3", memory=5, limit=9)
    tree.job("sEKNKTV3WPV500", cpus="4", memory=6)
    tree.compute("job_7", 11)
    tree.serve(3)
    look = Cgroups(tree.cgroup, "n1").look()
    job, other = look.jobs["job_7"], look.jobs["sEKNKTV3WPV500"]
    assert (job.cpu_us, job.memory_bytes, job.cpus, job.memory_limit) == (11, 5, {0, 1, 2, 3}, 9)
    assert (other.cpu_us, other.memory_bytes, other.memory_limit) == (0, 6, None)
    assert (look.all_jobs_us, look.system_us) == (11, 3)


def test_version_1_leaves_out_the_cache_that_nobody_uses(tmp_path):
    tree = HostTree(tmp_path, version=1)
    tree.job("job_7", memory=100)
    stat = tree.cgroup / "memory" / "slurm" / "uid_1000" / "job_7" / "memory.stat"
    stat.write_text("inactive_file 1\ntotal_inactive_file 30\n")
    assert Cgroups(tree.cgroup, "n1").look().jobs["job_7"].memory_bytes == 70


def test_several_slurmd_on_one_host_have_a_scope_each(tmp_path):
    tree = HostTree(tmp_path)
    tree.job("job_7")
    scope = tree.cgroup / "system.slice" / "slurmstepd.scope"
    scope.rename(scope.with_name("n1_slurmstepd.scope"))
    assert set(Cgroups(tree.cgroup, "n1").look().jobs) == {"job_7"}
    assert Cgroups(tree.cgroup, "n2").look().jobs == {}


def test_a_run_is_known_by_its_sluid_or_its_job_id():
    """E35."""
    assert folder_names(123, "sEKNKTV3WPV500") == ("sEKNKTV3WPV500", "job_123")
    assert folder_names(123, None) == ("job_123",)


def configured(tmp_path, *lines):
    path = tmp_path / "fairwatt.toml"
    path.write_text("\n".join(["[agent]", f"sys_root = '{tmp_path}/sys'", *lines]))
    return config.load(path)


def test_sources_are_found_by_name_and_made_where_the_host_has_them(tmp_path):
    known = configured(tmp_path)
    options = [f"--host={name}={place}" for name, place in host_places(known)]
    assert made(options, known) == []
    HostTree(tmp_path)
    assert [source.name for source in made(options, known)] == ["rapl"]
    assert host_places(configured(tmp_path, "host_sources = []")) == []


def test_an_unknown_source_is_refused_with_the_nearest_name(tmp_path):
    with pytest.raises(ConfigError, match=r"no such source.*rappl.*use rapl"):
        host_places(configured(tmp_path, "host_sources = ['rappl']"))


def test_a_source_that_cannot_be_made_does_not_stop_the_agent(tmp_path, caplog):
    assert made(["--host=x=fairwatt.nowhere:source"], configured(tmp_path)) == []
    assert "without it the agent goes on" in caplog.text


def test_idle_powers_of_the_site():
    assert idle_powers(["cpu=45", "dram=6.5"]) == {"cpu": 45_000, "dram": 6_500}
    with pytest.raises(ConfigError, match="not an idle power"):
        idle_powers(["cpu 45"])
