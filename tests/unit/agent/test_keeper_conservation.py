# SPDX-License-Identifier: Apache-2.0
"""The keeper under any history: every millijoule has one owner."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.agent.keeper_bench import Bench, board

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
        bench.cut_now()
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
        bench.cut_now()
    else:
        bench.hook(what, a, f"MIG-{b}")
    return 0


plain = st.lists(
    st.one_of(
        st.tuples(st.just("time"), st.integers(2, 400_000), st.integers(0, 400_000)),
        st.tuples(st.sampled_from(["prolog", "epilog"]), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("sample"), st.just(0), st.just(0)),
    ),
    max_size=20,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plain, st.data())
def test_windows_may_be_cut_anywhere(tmp_path_factory, steps, data) -> None:
    """A board that one job at a time holds: cuts between move no millijoule between jobs."""
    cuts = data.draw(st.lists(st.booleans(), min_size=len(steps), max_size=len(steps)))
    sums = []
    for wanted in ([False] * len(steps), cuts):
        bench = Bench(tmp_path_factory.mktemp("bench"), board("GPU-1"))
        bench.start()
        for (what, a, b), is_cut in zip(steps, wanted, strict=True):
            if what in ("prolog", "epilog"):
                bench.pass_time(1, 90_000)
                bench.hook(what, a)
            elif what == "sample":
                bench.keeper.sample(bench.look({"": 300}))
            else:
                _two_halves(bench, a, b, is_cut)
        bench.pass_time(1, 0)
        bench.keeper.border(bench.look(), bench.now_ms)
        sums.append([bench.job_mj(job_id) for job_id in (1, 2, 3)])
        bench.crash()
    assert sums[0] == sums[1]


def _two_halves(bench: Bench, ms: int, power_mw: int, is_cut: bool) -> None:
    """Let the time pass in two steps, whose powers differ, with a cut between them or without."""
    bench.pass_time(ms // 2, power_mw)
    if is_cut:
        bench.keeper.border(bench.look(), bench.now_ms)
    bench.pass_time(ms - ms // 2, power_mw // 3)
