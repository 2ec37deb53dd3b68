# SPDX-License-Identifier: Apache-2.0
"""What DCGM, processes and the power sensor tell, in the windows that the keeper closes."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from fairwatt.accounting.agent.extras import NO_EXTRAS, Extras, shared_boards, utils_of
from fairwatt.accounting.agent.sources import Observation, Sample
from fairwatt.core.events import DeviceHold, Flag, RunStarted
from tests.unit.agent.keeper_bench import Bench, board

HOUR_S = 3600
GRES = "Name=gpu Type=a100 File=/dev/nvidia0\nName=mps Count=100 File=/dev/nvidia0\n"


def run(job_id: int, *holds: DeviceHold, sluid: str | None = None) -> RunStarted:
    return RunStarted(
        node="n1", boot_id="b", seq=0, t_ms=1, job_id=job_id, restart_cnt=None, sluid=sluid,
        uid=None, account=None, holds=holds, mapped_by="uuid",
    )  # fmt: skip


def part(of: int = 2, instance: str = "") -> DeviceHold:
    return DeviceHold(device="GPU-1", instance=instance, numerator=1, denominator=of)


@pytest.fixture
def shared(tmp_path):
    """A board that jobs 1 and 2 hold half each, by MPS."""
    (tmp_path / "gres.conf").write_text(GRES)
    bench = Bench(tmp_path, board("GPU-1"))
    bench.start()
    for job_id in (1, 2):
        request = bench.request("prolog", job_id, "GPU-1")
        request.env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = "50"
        bench.keeper.hook(request, bench.look())
    yield bench
    bench.crash()


@pytest.fixture
def cut(tmp_path):
    """A board cut 1 : 2 : 4, a slice for each of the jobs 1, 2, 3."""
    bench = Bench(tmp_path, board("GPU-1", 1, 2, 4))
    bench.start()
    for job_id in (1, 2, 3):
        bench.hook("prolog", job_id, f"MIG-{job_id - 1}")
    yield bench
    bench.crash()


def sampled(bench: Bench, power_mw: int, extras: Extras, utils=None, times: int = 30) -> None:
    """Let `times` samples pass, 10 s apart, then cut the windows."""
    for _ in range(times):
        bench.pass_time(10_000, power_mw)
        bench.keeper.sample(replace(bench.look(utils), extras=extras))
    bench.cut_now()


def shares(bench: Bench) -> dict[int, tuple[int, int | None]]:
    """Active energy and utilisation by job, of the last window."""
    return {s.job_id: (s.active_mj, s.util_permille) for s in bench.windows()[-1].shares}


def test_e28_activity_0_at_650_w_is_unknown_and_split_by_reserved_weight(tmp_path) -> None:
    """E28: DCGM says 0 of every slice of an H100 that draws 650 W: nobody is charged nothing."""
    device = msgspec.structs.replace(board("GPU-1", 1, 2, 4), model="h100-80")
    bench = Bench(tmp_path, device)
    bench.start()
    for job_id in (1, 2, 3):
        bench.hook("prolog", job_id, f"MIG-{job_id - 1}")
    zero = Extras(activity={"GPU-1": {"MIG-0": 0, "MIG-1": 0, "MIG-2": 0}})
    sampled(bench, 650_000, zero)
    window = bench.windows()[-1]
    assert window.flags & Flag.NO_UTIL
    assert [s.util_permille for s in window.shares] == [None, None, None]
    one, two, four = (s.active_mj for s in sorted(window.shares, key=lambda s: s.job_id))
    assert abs(two - 2 * one) <= 2
    assert abs(four - 4 * one) <= 4
    assert one + two + four + sum(s.idle_mj for s in window.shares) == window.measured_mj
    bench.crash()


def test_activity_0_at_idle_power_is_0(cut) -> None:
    zero = Extras(activity={"GPU-1": {"MIG-0": 0, "MIG-1": 0, "MIG-2": 0}})
    sampled(cut, 80_000, zero)
    assert [util for _, util in shares(cut).values()] == [0, 0, 0]
    assert not cut.windows()[-1].flags & Flag.NO_UTIL


def test_one_active_slice_is_believed_at_any_power(cut) -> None:
    sampled(cut, 390_000, Extras(activity={"GPU-1": {"MIG-0": 0, "MIG-1": 0, "MIG-2": 900}}))
    assert {job: util for job, (_, util) in shares(cut).items()} == {1: 0, 2: 0, 3: 900}
    assert shares(cut)[1][0] == 0


def test_dcgm_tells_slices_where_nvml_has_no_utilisation(cut) -> None:
    """1/7 × 1.0 : 2/7 × 0 : 4/7 × 0.5 is 1 : 0 : 2, as in E8."""
    sampled(cut, 300_000, Extras(activity={"GPU-1": {"MIG-0": 1000, "MIG-1": 0, "MIG-2": 500}}))
    one, two, three = (shares(cut)[job][0] for job in (1, 2, 3))
    assert two == 0
    assert abs(three - 2 * one) <= 2


def test_gpm_goes_before_dcgm_and_dcgm_before_the_boards_rate() -> None:
    runs = [run(1, part(instance="MIG-0"))]
    extras = Extras(activity={"GPU-1": {"MIG-0": 100, "MIG-1": 200, "": 300}})
    assert utils_of("GPU-1", {"MIG-0": 900}, extras, runs) == {"MIG-0": 900, "MIG-1": 200, "": 300}
    assert utils_of("GPU-1", {"": 900}, extras, runs)[""] == 300
    assert utils_of("GPU-2", {"": 900}, extras, runs) == {"": 900}
    assert utils_of("GPU-1", {"": 900}, NO_EXTRAS, runs) == {"": 900}


def test_processes_divide_a_shared_board(shared) -> None:
    """Job 1 uses 60 %, job 2 30 %: what is active goes 2 : 1, what is idle half and half."""
    assert shared.keeper.shared == {"GPU-1"}
    sampled(shared, 300_000, Extras(jobs={"GPU-1": {"job_1": 600, "job_2": 300}}), {"": 900})
    (first, util_1), (second, util_2) = (shares(shared)[job] for job in (1, 2))
    assert (util_1, util_2) == (600, 300)
    assert abs(first - 2 * second) <= 2
    window = shared.windows()[-1]
    assert not window.flags & Flag.NO_UTIL
    idle = [share.idle_mj for share in window.shares]
    assert abs(idle[0] - idle[1]) <= 1


def test_a_job_without_a_process_used_nothing(shared) -> None:
    sampled(shared, 300_000, Extras(jobs={"GPU-1": {"job_2": 300}}), {"": 300})
    assert shares(shared)[1] == (0, 0)


def test_without_process_samples_a_shared_board_goes_by_reserved_part(shared) -> None:
    sampled(shared, 300_000, NO_EXTRAS, {"": 900})
    first, second = (shares(shared)[job] for job in (1, 2))
    assert abs(first[0] - second[0]) <= 1
    assert first[1] is second[1] is None
    assert shared.windows()[-1].flags & Flag.NO_UTIL


def test_a_run_is_known_by_its_sluid_too() -> None:
    runs = [run(1, part(), sluid="sEKNKTV3WPV500"), run(2, part())]
    extras = Extras(jobs={"GPU-1": {"sEKNKTV3WPV500": 400, "job_2": 100, "job_9": 300}})
    assert utils_of("GPU-1", {}, extras, runs) == {"job 1": 400, "job 2": 100}
    assert shared_boards(runs) == {"GPU-1"}
    assert shared_boards([run(1, part(instance="MIG-0")), run(2, part(instance="MIG-1"))]) == set()


def test_a_counter_that_contradicts_the_power_flags_the_windows(bench) -> None:
    """An idle consumer card: the sensor says 20 W, the counter runs at 60 W."""
    bench.hook("prolog", 1)
    sampled(bench, 60_000, Extras(powers={"GPU-1": 20_000}), {"": 0})
    window = bench.windows()[-1]
    assert window.flags & Flag.DISAGREES
    assert window.measured_mj == 60 * 300_000
    assert "power sensor 20 W" in bench.keeper.status()["doubtful"]["GPU-1"]
    sampled(bench, 60_000, Extras(powers={"GPU-1": 60_000}), {"": 0})
    assert not bench.windows()[-1].flags & Flag.DISAGREES


def test_a_counter_that_agrees_flags_nothing(bench) -> None:
    bench.hook("prolog", 1)
    sampled(bench, 250_000, Extras(powers={"GPU-1": 251_000}), {"": 900})
    assert bench.windows()[-1].flags == 0


def test_e23_a_p100_at_180_w_for_an_hour_is_0_18_kwh(bench) -> None:
    """E23: no counter (Pascal): power is integrated, 648 kJ, and said so; never 0 kWh."""

    def look() -> Observation:
        sample = Sample("GPU-1", bench.now_ms, power_mw=180_000)
        return Observation((bench.device,), (sample,), {"GPU-1": {"": 500}})

    keeper = bench.keeper
    bench.now_ms += 10_000
    keeper.sample(look())
    keeper.border(look(), bench.now_ms)
    keeper.hook(bench.request("prolog", 1, "GPU-1"), look())
    for _ in range(HOUR_S // 10):
        bench.now_ms += 10_000
        keeper.sample(look())
    keeper.hook(bench.request("epilog", 1, "GPU-1"), look())
    mine = [w for w in bench.windows() if w.shares]
    assert bench.job_mj(1) == 648_000_000  # 0.18 kWh
    assert {w.method for w in mine} == {"integrated"}
    assert all(w.flags & Flag.INTEGRATED and not w.flags & Flag.DISAGREES for w in mine)


def test_e29_the_counter_covers_ten_minutes_without_the_agent(tmp_path) -> None:
    """E29: 250 W before, 350 W while it is away inside the job: the counter has both."""
    first = Bench(tmp_path, board("GPU-1"))
    first.start()
    first.hook("prolog", 1)
    sampled(first, 250_000, NO_EXTRAS, {"": 900})
    first.crash()
    first.pass_time(600_000, 350_000)
    again = Bench(tmp_path, first.device)
    again.now_ms, again.energy_mj = first.now_ms, first.energy_mj
    again.start()
    again.pass_time(1_000, 250_000)
    again.hook("epilog", 1)
    assert again.job_mj(1) == 250 * 300_000 + 350 * 600_000 + 250 * 1_000
    gap = [w for w in again.windows() if w.flags & Flag.GAP]
    assert sum(w.measured_mj for w in gap) == 350 * 600_000
    assert all(w.method == "counter" for w in gap)
    again.crash()


def test_e33_what_is_not_measured_is_unknown_not_0(bench) -> None:
    """E33: neither utilisation nor memory is offered: nobody can be told to have used 0 %."""
    bench.hook("prolog", 1)
    sampled(bench, 60_000, NO_EXTRAS)
    window = bench.windows()[-1]
    assert [share.util_permille for share in window.shares] == [None]
    assert window.memory == ()
    assert window.flags == Flag.NO_UTIL
