# SPDX-License-Identifier: Apache-2.0
"""A real agent process on a host tree: hooks cut its parts, a kill loses nothing."""

from __future__ import annotations

import pytest

from fairwatt.core.events import Flag
from tests.fakes.host_tree import HostTree


@pytest.fixture
def tree(lab):
    """One package of 16 CPUs, before the agent starts."""
    return HostTree(lab.root, packages=1, cores=16)


def test_hooks_cut_the_parts_and_a_kill_loses_nothing(lab, tree, wait_until, job_mj):
    """10 J before the kill and 20 J after it, CPU time 3 : 1 with the system: 22.5 J."""
    lab.start()
    lab.hook("prolog", 7)
    tree.job("job_7", cpus="0-7", memory=1 << 30, limit=2 << 30)
    tree.use("cpu0", 10_000_000)
    tree.compute("job_7", 1_000_000)
    lab.kill()
    tree.use("cpu0", 20_000_000)
    tree.compute("job_7", 2_000_000)
    tree.serve(1_000_000)
    lab.start()
    wait_until(lambda: len(lab.windows("n1/cpu0")) == 2, "the window of the gap")
    tree.end("job_7")
    lab.hook("epilog", 7)
    wait_until(lambda: len(lab.windows("n1/dram0")) == 3, "the window of the end")
    windows = lab.windows("n1/cpu0")
    assert sum(w.measured_mj for w in windows) == 30_000
    assert job_mj(windows, 7) == 22_500
    assert sum(w.system_mj for w in windows) == 7_500
    assert [bool(w.flags & Flag.GAP) for w in windows] == [False, True, False]
    assert {(w.kind, w.method) for w in windows} == {("cpu", "rapl")}


def test_a_stop_closes_the_windows(lab, tree, wait_until):
    lab.start()
    journal = lab.root / "spool" / "journal"
    wait_until(
        lambda: any(b'"n1/cpu0"' in path.read_bytes() for path in journal.glob("*.journal")),
        "the first look at the counters",
    )
    tree.use("cpu0", 5_000_000)
    lab.stop()
    assert [w.measured_mj for w in lab.windows("n1/cpu0")] == [5_000]


def test_a_host_without_counters_has_no_windows_and_says_so_once(lab, wait_until):
    lab.start()
    lab.hook("prolog", 7)
    lab.hook("epilog", 7)
    lab.stop()
    assert [e for e in lab.events() if getattr(e, "kind", "gpu") != "gpu"] == []
    assert lab.log.read_text().count("rapl") == 1  # that it is not on this host
