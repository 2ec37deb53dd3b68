# SPDX-License-Identifier: Apache-2.0
"""Several jobs on one board: shards and MPS, what Slurm tells later, and exact conservation."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairwatt.accounting.agent.records import Entry
from fairwatt.accounting.agent.requests import HookRequest
from fairwatt.accounting.agent.state import State, apply
from fairwatt.core.events import Flag, RunEnded, RunStarted
from tests.unit.agent.keeper_bench import Bench, board

IDLE_MW = 50_000  # of the bench's board


def shared(folder: Path, shards: int = 4) -> Bench:
    folder.mkdir(exist_ok=True)
    (folder / "gres.conf").write_text(f"AutoDetect=nvml Name=gpu\nName=shard Count={shards}\n")
    bench = Bench(folder, board("GPU-1"))
    bench.start()
    return bench


def prolog(bench: Bench, job_id: int, percentage: int | None = None) -> None:
    env = {"SLURM_JOB_ID": str(job_id), "SLURM_JOB_GPUS": "0", "CUDA_VISIBLE_DEVICES": "0"}
    if percentage is not None:
        env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(percentage)
    request = HookRequest(v=1, verb="prolog", t_ms=bench.now_ms, env=env)
    bench.keeper.hook(request, bench.look())


def told(bench: Bench, job_id: int, gres: str) -> None:
    text = f"   JOB_GRES=x\n     Nodes=n1 CPU_IDs=0 Mem=1 GRES={gres}\n"
    bench.keeper.told(job_id, text)


def holds(bench: Bench) -> dict[int, tuple[Fraction, str]]:
    """The last word on each job's part."""
    return {
        run.job_id: (Fraction(run.holds[0].numerator, run.holds[0].denominator), run.mapped_by)
        for run in bench.events(RunStarted)
    }


def test_two_shard_jobs_share_a_board_and_do_not_close_each_other(tmp_path) -> None:
    """Shards 1 and 2 of 4 at 150 W for 10 s: idle 50 W by quarters, the rest 1 : 2."""
    bench = shared(tmp_path)
    prolog(bench, 1)
    prolog(bench, 2)
    assert bench.keeper.assumed == [1, 2]
    assert holds(bench) == {
        1: (Fraction(1, 4), "assumed-share"),
        2: (Fraction(1, 4), "assumed-share"),
    }
    told(bench, 1, "shard:1(1/4)")
    told(bench, 2, "shard:2(2/4)")
    assert holds(bench) == {1: (Fraction(1, 4), "slurmctld"), 2: (Fraction(1, 2), "slurmctld")}
    assert bench.keeper.assumed == []
    bench.pass_time(10_000, 150_000)
    bench.hook("epilog", 1)
    bench.hook("epilog", 2)
    (window,) = [w for w in bench.windows() if w.measured_mj]
    assert window.measured_mj == 1_500_000
    # by hand, idle 500 J: 125, 250, 125 unallocated; active 1000 J: 333.333 and 666.667
    assert {s.job_id: (s.idle_mj, s.active_mj) for s in window.shares} == {
        1: (125_000, 333_333),
        2: (250_000, 666_667),
    }
    assert window.unallocated_idle_mj == 125_000
    assert {s.util_permille for s in window.shares} == {None}
    assert window.flags & Flag.NO_UTIL
    assert {why for why, _ in bench.ends().values()} == {"epilog"}
    bench.crash()


def test_what_a_job_was_taken_to_hold_does_not_count_beside_what_it_holds(tmp_path) -> None:
    """1/4 and 3/4 fill the board; the quarter that the second was first given is not there too."""
    bench = shared(tmp_path)
    prolog(bench, 1)
    prolog(bench, 2)
    told(bench, 1, "shard:1(1/4)")
    told(bench, 2, "shard:3(3/4)")
    assert bench.ends() == {}
    bench.crash()


def test_the_board_s_utilisation_is_that_of_a_job_alone_on_it(tmp_path) -> None:
    bench = shared(tmp_path)
    prolog(bench, 1)
    bench.pass_time(1_000, 150_000)
    bench.keeper.sample(bench.look({"": 800}))
    bench.cut_now()
    assert [s.util_permille for w in bench.windows() for s in w.shares] == [800]
    bench.crash()


def test_a_board_s_utilisation_says_nothing_of_two_jobs_on_it(tmp_path) -> None:
    bench = shared(tmp_path)
    for job_id in (1, 2):
        prolog(bench, job_id)
        told(bench, job_id, f"shard:{job_id}({job_id}/4)")
    bench.pass_time(1_000, 50_000 + 9_000)
    bench.keeper.sample(bench.look({"": 800}))
    bench.cut_now()
    (window,) = [w for w in bench.windows() if w.measured_mj]
    assert {s.util_permille for s in window.shares} == {None}
    # 59,000 mJ - 50 W for 1.001 s = 8,950 mJ, two thirds of it
    assert [s.active_mj for s in window.shares if s.job_id == 2] == [5_967]
    bench.crash()


def test_a_start_told_again_after_the_end_opens_nothing(tmp_path) -> None:
    """A journal that was torn may be read with a line twice."""
    bench = shared(tmp_path)
    prolog(bench, 1)
    (start,) = bench.events(RunStarted)
    bench.hook("epilog", 1)
    (end,) = bench.events(RunEnded)
    bench.crash()
    state = State()
    apply(state, [Entry(event=event) for event in (start, end, start)])
    assert (state.runs, [timed.until_ms for timed in state.holds]) == ([], [end.t_ms])


def test_mps_by_percentage(tmp_path) -> None:
    bench = Bench(tmp_path, board("GPU-1"))
    bench.start()
    prolog(bench, 1, percentage=25)
    prolog(bench, 2, percentage=50)
    assert bench.keeper.assumed == []
    assert {job: part for job, (part, _) in holds(bench).items()} == {
        1: Fraction(1, 4),
        2: Fraction(1, 2),
    }
    assert bench.ends() == {}
    bench.crash()


def test_mps_without_a_percentage_is_asked_for(tmp_path) -> None:
    """slurmd of 22.05 to 26.05 says 0 where gres.conf has Count= without File=."""
    (tmp_path / "gres.conf").write_text("AutoDetect=nvml Name=gpu\nName=mps Count=100\n")
    bench = Bench(tmp_path, board("GPU-1"))
    bench.start()
    prolog(bench, 1, percentage=0)
    prolog(bench, 2, percentage=0)
    assert bench.keeper.assumed == [1, 2]
    told(bench, 2, "mps:50(50/100)")
    assert holds(bench) == {
        1: (Fraction(1, 100), "assumed-share"),
        2: (Fraction(1, 2), "slurmctld"),
    }
    bench.hook("epilog", 2)
    env = {"SLURM_JOB_ID": "3", "SLURM_JOB_GPUS": "0", "CUDA_VISIBLE_DEVICES": "0"}
    bench.pass_time(1, 0)
    request = HookRequest(v=1, verb="prolog", t_ms=bench.now_ms, env=env)
    bench.keeper.hook(request, bench.look())
    assert holds(bench)[3][0] == 1  # no such variable: no MPS job
    bench.crash()


def test_a_job_with_the_whole_board_ends_what_an_epilog_left_open(tmp_path) -> None:
    bench = shared(tmp_path)
    prolog(bench, 1)
    bench.pass_time(1_000, 100_000)
    prolog(bench, 2)
    told(bench, 2, "gpu:1(IDX:0)")
    assert holds(bench)[2] == (Fraction(1), "slurmctld")
    assert bench.ends()[1][0] == "claimed"
    bench.pass_time(1_000, 100_000)
    prolog(bench, 3)  # whatever it holds: it is not beside a whole board
    assert bench.ends()[2][0] == "claimed"
    bench.crash()


def test_of_too_many_parts_the_oldest_are_over(tmp_path) -> None:
    bench = shared(tmp_path, shards=2)
    for job_id in (1, 2, 3):
        prolog(bench, job_id)
        bench.pass_time(1_000, 100_000)
    assert {job: why for job, (why, _) in bench.ends().items()} == {1: "claimed"}
    bench.crash()


def test_what_slurm_does_not_tell_stays_assumed_and_is_not_asked_again(tmp_path, caplog) -> None:
    bench = shared(tmp_path)
    prolog(bench, 1)
    bench.keeper.told(1, "")
    assert bench.keeper.assumed == []
    assert holds(bench)[1] == (Fraction(1, 4), "assumed-share")
    assert "does not tell its part" in caplog.text
    bench.crash()
    bench.start()
    assert bench.keeper.assumed == [1]  # a new agent asks once more
    bench.crash()


def test_a_job_is_asked_for_again_by_the_agent_that_comes_after_a_crash(tmp_path) -> None:
    bench = shared(tmp_path)
    prolog(bench, 1)
    bench.crash()
    bench.pass_time(5_000, 100_000)
    bench.start()
    assert bench.keeper.assumed == [1]
    told(bench, 1, "shard:3(3/4)")
    bench.crash()
    bench.start()
    assert bench.keeper.assumed == []
    assert holds(bench)[1] == (Fraction(3, 4), "slurmctld")
    bench.crash()


def test_boards_without_shards_ask_nothing(tmp_path) -> None:
    bench = Bench(tmp_path, board("GPU-1"))
    bench.start()
    prolog(bench, 1)
    assert bench.keeper.assumed == []
    assert holds(bench)[1][0] == 1
    bench.crash()


steps = st.lists(
    st.one_of(
        st.tuples(st.just("time"), st.integers(1, 100_000), st.integers(0, 400_000)),
        st.tuples(st.just("prolog"), st.integers(1, 5), st.sampled_from([None, 10, 33, 100])),
        st.tuples(st.just("told"), st.integers(1, 5), st.integers(1, 7)),
        st.tuples(st.just("epilog"), st.integers(1, 5), st.just(0)),
        st.tuples(st.sampled_from(["sample", "border", "crash"]), st.just(0), st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps, st.integers(1, 7))
def test_whatever_is_shared_every_millijoule_has_one_owner(tmp_path_factory, todo, shards) -> None:
    bench = shared(tmp_path_factory.mktemp("bench"), shards)
    used = 0
    try:
        for what, a, b in todo:
            before = bench.energy_mj
            _do(bench, what, a, b, shards)
            used += bench.energy_mj - before
        bench.cut_now()
        windows = bench.windows()
    finally:
        bench.crash()
    assert sum(window.measured_mj for window in windows) == used
    for window in windows:
        parts = [amount for share in window.shares for amount in (share.idle_mj, share.active_mj)]
        parts += [window.unallocated_idle_mj, window.unallocated_active_mj]
        assert sum(parts) == window.measured_mj
        assert min(parts) >= 0
        assert len({share.job_id for share in window.shares}) == len(window.shares)


def _do(bench: Bench, what: str, a: int, b: int | None, shards: int) -> None:
    if what == "time":
        bench.pass_time(a, b or 0)
    elif what == "prolog":
        prolog(bench, a, b)
    elif what == "told":
        held = min(b or 1, shards)
        told(bench, a, "gpu:1(IDX:0)" if b == 7 else f"shard:{held}({held}/{shards})")
    elif what == "epilog":
        bench.hook("epilog", a)
    elif what == "sample":
        bench.keeper.sample(bench.look({"": 500}))
    elif what == "border":
        bench.cut_now()
    else:
        bench.crash()
        bench.start()


@pytest.mark.parametrize("job_id", [1, 2])
def test_the_map_of_dcgm_exporter_outlives_the_agent(tmp_path, job_id: int) -> None:
    """Killed agents: lines of jobs that ended meanwhile go, lines of running jobs are there."""
    bench = shared(tmp_path)
    maps = tmp_path / "map"
    bench.dcgm_job_dir = maps
    bench.crash()
    bench.start()
    prolog(bench, 1)
    prolog(bench, 2)
    assert (maps / "0").read_text() == "1\n2\n"
    bench.crash()
    (maps / "0").write_text("1\n2\n99\n")  # another program's line
    bench.mail("epilog", job_id)
    bench.start()
    assert (maps / "0").read_text() == f"{3 - job_id}\n99\n"
    bench.crash()
    (maps / "0").unlink()  # a volatile folder
    bench.start()
    assert (maps / "0").read_text() == f"{3 - job_id}\n"
    bench.hook("epilog", 3 - job_id)
    assert not (maps / "0").exists()
    bench.crash()
    (maps / "0").write_text(f"{3 - job_id}\n99\n")  # killed between journal and map
    bench.start()
    assert (maps / "0").read_text() == "99\n"
    bench.crash()
