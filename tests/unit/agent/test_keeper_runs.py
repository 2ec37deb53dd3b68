# SPDX-License-Identifier: Apache-2.0
"""The keeper: which runs begin and end, and the windows and job files that come of it."""

from __future__ import annotations

import pytest

from fairwatt.core.events import RunEnded, RunStarted
from tests.unit.agent.keeper_bench import NOON_MS, Bench, board


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


def test_an_unmapped_job_is_recorded_and_its_energy_left_unknown(bench, caplog) -> None:
    bench.hook("prolog", 1, "GPU-9")
    (start,) = bench.events(RunStarted)
    assert (start.mapped_by, start.holds) == ("unmapped", ())
    assert "NVML shows no device GPU-9" in caplog.text


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
