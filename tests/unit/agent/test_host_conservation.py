# SPDX-License-Identifier: Apache-2.0
"""The host keeper under any history: every millijoule has one owner, and none is lost."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes.host_tree import RANGE_UJ, HostTree
from tests.unit.agent.host_bench import HostBench

actions = st.lists(
    st.one_of(
        st.tuples(st.just("time"), st.integers(1, 10_000), st.integers(0, 400_000)),
        st.tuples(st.sampled_from(["begin", "finish", "vanish"]), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("compute"), st.integers(1, 3), st.integers(0, 10**8)),
        st.tuples(st.sampled_from(["sample", "cut", "crash"]), st.just(0), st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(actions, st.none() | st.integers(0, 100_000))
def test_whatever_happens_every_millijoule_has_one_owner(tmp_path_factory, steps, idle_mw) -> None:
    root = tmp_path_factory.mktemp("host")
    tree = HostTree(root / "host", packages=1, dram=False)
    tree.set_energy("cpu0", RANGE_UJ - 30_000_000)  # so that it passes its end
    bench = HostBench(root, tree, idle={} if idle_mw is None else {"cpu": idle_mw})
    try:
        bench.start()
        used_uj = sum(_do(bench, *step) for step in steps)
        bench.wait(1)
        bench.cut()
        windows = bench.windows("cpu0")
    finally:
        bench.crash()
    assert sum(window.measured_mj for window in windows) == used_uj // 1000
    for window in windows:
        parts = [part for s in window.shares for part in (s.idle_mj, s.active_mj)]
        parts += [window.unallocated_idle_mj, window.unallocated_active_mj, window.system_mj]
        assert sum(parts) == window.measured_mj
        assert min(parts) >= 0
    assert all(one.t1_ms == other.t0_ms for one, other in pairwise(windows))


def _do(bench: HostBench, what: str, a: int, b: int) -> int:
    """Do one step; return the µJ that the package used in it."""
    tree, name = bench.tree, f"job_{a}"
    running = {run.job_id for run in bench.journal.state.runs}
    if what == "time":
        bench.wait(a)
        tree.use("cpu0", a * b)
        return a * b
    if what == "begin" and a not in running:
        bench.begin(a, a)
        tree.job(name, cpus=f"0-{a}")
    elif what == "finish" and a in running:
        bench.finish(a)
    elif what == "vanish" and (tree.cgroup / "system.slice/slurmstepd.scope" / name).exists():
        tree.end(name)
    elif what == "compute" and (tree.cgroup / "system.slice/slurmstepd.scope" / name).exists():
        tree.compute(name, b)
    elif what == "sample":
        bench.keeper.sample()
    elif what == "cut":
        bench.cut()
    elif what == "crash":
        bench.crash()
        bench.start()
    return 0
