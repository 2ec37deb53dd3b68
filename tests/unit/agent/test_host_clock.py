# SPDX-License-Identifier: Apache-2.0
"""Clocks that are set by a day or by years, and GPUs that do not answer a hook in time."""

from __future__ import annotations

import pytest

from fairwatt.accounting.agent.host.source import Reading
from fairwatt.core.events import Flag
from fairwatt.core.records import Device
from tests.fakes.host_tree import HostTree
from tests.unit.agent.host_bench import Bmc, HostBench

DAY_MS = 86_400_000


@pytest.fixture
def bench(tmp_path):
    made = HostBench(tmp_path, HostTree(tmp_path / "host", packages=1, cores=16), bmc=Bmc())
    made.bmc.power_mw = 500_000
    made.start()
    yield made
    made.crash()


def work(bench: HostBench, ms: int, power_mw: int) -> None:
    """Let the package draw a power for a time, with a sample every 10 s at most."""
    for _ in range(max(1, ms // 10_000)):
        bench.wait(min(ms, 10_000))
        bench.tree.use("cpu0", power_mw * min(ms, 10_000))
        bench.keeper.take_slow("ipmi", [_power(bench)])
        bench.keeper.sample()


def _power(bench: HostBench) -> Reading:
    return Reading("node", bench.now_ms, power_mw=bench.bmc.power_mw)


def gpu(bench: HostBench, energy_mj: int | None) -> None:
    device = Device(node="n1", uuid="GPU-1", name="A", model=None, minor=0, nvml_index=0,
                    memory_mib=1, mig_enabled=False, compute_slices=1)  # fmt: skip
    bench.keeper.note_gpus({"GPU-1": device}, {} if energy_mj is None else {"GPU-1": energy_mj})


def test_what_was_used_on_a_clock_set_back_is_no_later_runs(bench):
    """An hour at 100 W while the clock is an hour behind; then job 7 comes for 10 s at 50 W.

    The window that ends after the step cannot tell: unknown, not 360 kJ of whoever comes then.
    """
    work(bench, 60_000, 50_000)
    bench.cut()
    bench.wait(-3_600_000)
    work(bench, 3_600_000, 100_000)
    bench.cut()
    bench.begin(7, 8)
    work(bench, 10_000, 50_000)
    bench.finish(7)
    for part in ("cpu0", "rest"):
        *_, hidden = [w for w in bench.windows(part) if w.flags & Flag.IMPLAUSIBLE]
        assert (hidden.measured_mj, hidden.shares) == (None, ())
    of_job = [s.idle_mj + s.active_mj for w in bench.windows("cpu0") for s in w.shares]
    assert sum(of_job) <= 500_000


def test_a_small_step_back_loses_nothing(bench):
    """2 s back, then 60 s at 50 W: all 3,000 J are there, flagged."""
    work(bench, 60_000, 50_000)
    bench.cut()
    bench.wait(-2_000)
    bench.cut()
    work(bench, 60_000, 50_000)
    bench.cut()
    window = bench.windows("cpu0")[-1]
    assert (window.measured_mj, bool(window.flags & Flag.GAP)) == (3_000_000, True)
    assert window.t1_ms - window.t0_ms == 58_000


def test_a_clock_that_was_years_ahead_does_not_stop_the_windows_for_years(bench, caplog):
    """It says so once, and begins anew: 10 s at 50 W are 500 J."""
    work(bench, 60_000, 50_000)
    bench.wait(4_000 * DAY_MS)
    bench.cut()
    bench.wait(-4_000 * DAY_MS)
    bench.cut()
    bench.cut()
    before = len(bench.windows("cpu0"))
    bench.begin(7, 16)
    work(bench, 10_000, 50_000)
    bench.finish(7)
    (window,) = bench.windows("cpu0")[before:]
    assert window.measured_mj == 500_000
    assert sum(s.idle_mj + s.active_mj for s in window.shares) == 500_000
    assert sum("clock" in record.message for record in caplog.records) == 1


def test_gpus_that_answer_too_late_for_a_hook_are_not_in_the_rest_of_the_node(bench):
    """500 W by the BMC, the GPU 300 W, the package 100 W: the rest has 100 W, here for 20 s."""
    gpu(bench, 1_000_000)
    work(bench, 10_000, 100_000)
    bench.begin(7, 16)
    work(bench, 10_000, 100_000)
    bench.keeper.miss_gpus()
    bench.keeper.before_change()
    work(bench, 10_000, 100_000)
    gpu(bench, 1_000_000 + 6_000_000)
    bench.cut()
    assert [w.measured_mj for w in bench.windows("rest")][1:] == [2_000_000]


@pytest.mark.parametrize("untold", [True, False])
def test_where_gpus_do_not_answer_for_long_the_rest_is_unknown_not_theirs(bench, untold):
    """70 s without an answer: CPUs are cut all the same; the rest before and after is unknown."""
    gpu(bench, 1_000_000)
    bench.cut()
    work(bench, 70_000, 100_000)
    bench.keeper.miss_gpus() if untold else gpu(bench, None)
    bench.keeper.before_change()
    work(bench, 10_000, 100_000)
    gpu(bench, 25_000_000)
    bench.cut()
    work(bench, 10_000, 100_000)
    gpu(bench, 28_000_000)
    bench.cut()
    rest = bench.windows("rest")
    assert [w.measured_mj for w in rest] == [None, None, 1_000_000]
    assert all(w.flags & Flag.LOST for w in rest[:2])
    assert [w.measured_mj for w in bench.windows("cpu0")] == [7_000_000, 1_000_000, 1_000_000]
