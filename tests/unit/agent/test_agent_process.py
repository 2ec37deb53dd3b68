# SPDX-License-Identifier: Apache-2.0
"""The agent as a process on the fake NVML: every joule has one owner, whatever happens."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from fairwatt.core.call import call
from fairwatt.core.events import AgentStarted, Flag, RunStarted
from tests.fakes.machines import a100_node, h100_mig_node, mig_node

STEP_MJ_AT_400_W = 40_000
HOOKS = Path(__file__).parents[3] / "prolog" / "hooks"


def pause(ms: int) -> None:
    """Let the fake devices use energy for a while; nothing else can be awaited here."""
    time.sleep(ms / 1000)


def counter_span(windows) -> tuple[int, int]:
    return windows[0].t0_ms, windows[-1].t1_ms


def test_two_jobs_in_a_row_on_one_gpu(lab, job_mj, assert_conserved) -> None:
    (gpu, *_) = a100_node(lab.fake, "n1", count=2)
    lab.start()
    lab.hook("prolog", 1, gpu.uuid)
    begun = lab.fake.set_power(gpu.uuid, 300_000)
    pause(600)
    changed = lab.fake.set_power(gpu.uuid, 100_000)
    pause(250)
    lab.hook("epilog", 1)
    lab.hook("prolog", 2, gpu.uuid)
    pause(400)
    lab.hook("epilog", 2)
    windows = lab.windows(gpu.uuid)
    assert_conserved(windows)
    starts = [e for e in lab.events() if isinstance(e, RunStarted)]
    assert [(s.job_id, s.mapped_by, s.uid) for s in starts] == [
        (1, "uuid", 1000),
        (2, "uuid", 1000),
    ]
    first = [w for w in windows if any(s.job_id == 1 for s in w.shares)]
    t0, t1 = counter_span(first)
    truth = lab.fake.energy_mj(gpu.uuid, t1) - lab.fake.energy_mj(gpu.uuid, t0)
    assert job_mj(windows, 1) == sum(w.measured_mj for w in first)
    assert abs(job_mj(windows, 1) - truth) <= 2 * STEP_MJ_AT_400_W
    assert 300 * (changed - begun) < job_mj(windows, 1)
    assert 100 * 300 < job_mj(windows, 2) < 100 * 1_500
    assert all(w.flags & ~Flag.NO_UTIL == 0 for w in windows)
    assert {w.method for w in windows} == {"counter"}


def test_mig_side_by_side(lab, job_mj, assert_conserved) -> None:
    """A job with one and a job with two instances of a board without NVML utilisation: 1 : 2."""
    (board, _) = mig_node(lab.fake, "n1")
    one, two, three = (instance.uuid for instance in board.instances[:3])
    lab.start()
    lab.hook("prolog", 11, one)
    lab.hook("prolog", 12, two, three)
    before = lab.windows(board.uuid)
    for uuid in (one, two, three):
        lab.fake.set_power(uuid, 40_000)
    pause(500)
    lab.hook("epilog", 11)
    both = lab.windows(board.uuid)[len(before) :]
    lab.hook("epilog", 12)
    assert_conserved(lab.windows(board.uuid))
    (window,) = both
    energies = [s.idle_mj + s.active_mj for s in sorted(window.shares, key=lambda s: s.job_id)]
    assert max(energies) - min(energies) <= 2
    idle_mj = 60_000 * (window.t1_ms - window.t0_ms) // 1000
    assert abs(window.unallocated_idle_mj - idle_mj * 4 / 7) <= 1
    assert window.unallocated_active_mj == 0
    assert window.flags == Flag.NO_UTIL
    assert (lab.jobs / "12").exists() is False
    assert job_mj(lab.windows(board.uuid), 12) > job_mj(lab.windows(board.uuid), 11)


def test_kill_9_in_mid_job_loses_and_doubles_nothing(lab, job_mj, assert_conserved) -> None:
    (gpu, *_) = a100_node(lab.fake, "n1", count=1)
    lab.start()
    lab.hook("prolog", 5, gpu.uuid)
    lab.fake.set_power(gpu.uuid, 250_000)
    pause(300)
    lab.kill()
    pause(300)
    lab.start()
    assert lab.ask(verb="status")["jobs"] == [5]
    pause(200)
    lab.hook("epilog", 5)
    windows = lab.windows(gpu.uuid)
    assert_conserved(windows)
    mine = [w for w in windows if w.shares]
    t0, t1 = counter_span(mine)
    truth = lab.fake.energy_mj(gpu.uuid, t1) - lab.fake.energy_mj(gpu.uuid, t0)
    assert abs(job_mj(windows, 5) - truth) <= 2 * STEP_MJ_AT_400_W
    assert any(w.flags & Flag.GAP for w in mine)
    seqs = [event.seq for event in lab.events()]
    assert seqs == sorted(set(seqs))
    assert sum(isinstance(e, AgentStarted) for e in lab.events()) == 2


def test_jobs_change_while_the_agent_is_away(lab, job_mj, assert_conserved, wait_until) -> None:
    """Job 6 ends and job 7 comes and goes in the gap: the counter's delta is apportioned."""
    (gpu, *_) = a100_node(lab.fake, "n1", count=1)
    lab.start()
    lab.hook("prolog", 6, gpu.uuid)
    lab.fake.set_power(gpu.uuid, 200_000)
    lab.kill()
    pause(200)
    lab.leave("epilog", 6)
    pause(5)
    begun = time.monotonic()
    lab.leave("prolog", 7, gpu.uuid)
    pause(200)
    lab.leave("epilog", 7)
    held_s = time.monotonic() - begun
    lab.fake.set_power(gpu.uuid, 50_000)  # idle: what is used until the start is nobody's
    lab.start()
    wait_until(lambda: set(lab.ends()) == {6, 7}, "both runs closed")
    assert lab.ends() == {6: "inbox", 7: "inbox"}
    wait_until(lambda: job_mj(lab.windows(gpu.uuid), 7), "the gap cut after the runs were closed")
    windows = lab.windows(gpu.uuid)
    assert_conserved(windows)
    gap = [w for w in windows if w.flags & Flag.GAP]
    assert len(gap) >= 3
    assert 200 * 120 < job_mj(windows, 7) < 200 * (1000 * held_s + 200)
    assert list(lab.inbox.iterdir()) == []


def test_a_message_that_comes_twice_counts_once(lab, wait_until) -> None:
    (gpu, *_) = a100_node(lab.fake, "n1", count=1)
    lab.start()
    t_ms = 1_800_000_000_000
    lab.hook("prolog", 8, gpu.uuid, t_ms=t_ms)
    lab.leave("prolog", 8, gpu.uuid, t_ms=t_ms)
    wait_until(lambda: not list(lab.inbox.iterdir()), "an empty inbox")
    assert [e.job_id for e in lab.events() if isinstance(e, RunStarted)] == [8]


def test_counter_reset_is_flagged_and_never_negative(lab, assert_conserved) -> None:
    (gpu, *_) = a100_node(lab.fake, "n1", count=1)
    lab.start()
    lab.hook("prolog", 9, gpu.uuid)
    lab.fake.set_power(gpu.uuid, 200_000)
    at = lab.fake.reset(gpu.uuid)
    pause(500)
    lab.hook("epilog", 9)
    windows = lab.windows(gpu.uuid)
    assert_conserved(windows)
    (window,) = [w for w in windows if w.flags & Flag.RESET]
    assert 0 < window.measured_mj <= 200 * (window.t1_ms - at)
    assert all(w.measured_mj >= 0 for w in windows)


def test_a_lost_gpu_leaves_amounts_unknown(lab, assert_conserved, wait_until) -> None:
    (gpu, other) = a100_node(lab.fake, "n1", count=2)
    lab.start()
    lab.hook("prolog", 10, gpu.uuid, other.uuid)
    lab.fake.lose(gpu.uuid)
    pause(250)
    answer = lab.hook("epilog", 10)
    assert answer["ok"] is True
    lost = lab.windows(gpu.uuid)[-1]
    assert (lost.measured_mj, lost.shares, lost.method) == (None, (), "none")
    assert lost.flags & Flag.LOST
    assert lab.windows(other.uuid)[-1].measured_mj > 0
    lab.fake.heal(gpu.uuid)
    wait_until(lambda: not lab.ask(verb="status")["faults"], "the GPU to answer again")
    lab.hook("prolog", 11, gpu.uuid)
    pause(250)
    lab.hook("epilog", 11)
    assert_conserved(lab.windows(gpu.uuid))
    assert lab.windows(gpu.uuid)[-1].measured_mj > 0


def test_without_a_driver_jobs_start_and_are_marked_unmapped(lab, wait_until) -> None:
    (gpu, *_) = a100_node(lab.fake, "n1", count=1)
    lab.fake.driver(False)
    lab.start()
    assert lab.hook("prolog", 3, gpu.uuid)["ok"] is True
    (start,) = [e for e in lab.events() if isinstance(e, RunStarted)]
    assert (start.mapped_by, start.holds) == ("unmapped", ())
    lab.hook("epilog", 3)
    lab.fake.driver(True)
    wait_until(lambda: lab.ask(verb="status")["devices"] == 1, "the driver to be seen")
    lab.hook("prolog", 4, gpu.uuid)
    pause(150)
    lab.hook("epilog", 4)
    assert lab.windows(gpu.uuid)[-1].shares[0].job_id == 4


def test_a_hung_driver_never_blocks_the_hooks(lab, job_mj, assert_conserved, wait_until) -> None:
    (gpu, *_) = a100_node(lab.fake, "n1", count=1)
    lab.start()
    lab.fake.set_power(gpu.uuid, 200_000)
    lab.fake.slow("nvmlDeviceGetTotalEnergyConsumption", 3000)
    begun = time.monotonic()
    answer = lab.hook("prolog", 21, gpu.uuid)
    assert time.monotonic() - begun < 3.0  # while the driver still hangs; the deadline is 0.2 s
    assert (answer["ok"], answer["read"]) == (True, False)
    lab.fake.slow("nvmlDeviceGetTotalEnergyConsumption", 0)
    wait_until(lambda: job_mj(lab.windows(gpu.uuid), 21), "the late reading")
    lab.hook("epilog", 21)
    windows = lab.windows(gpu.uuid)
    assert_conserved(windows)
    assert any(w.flags & Flag.GAP for w in windows)


def test_a_clean_stop_leaves_no_more_than_the_way_to_the_next_start(lab, assert_conserved) -> None:
    (gpu, *_) = a100_node(lab.fake, "n1", count=1)
    lab.start()
    pause(200)
    lab.stop()
    assert not lab.socket.exists()
    (window,) = lab.windows(gpu.uuid)
    assert window.flags == 0
    assert window.unallocated_idle_mj > 0


def test_a_second_agent_on_the_same_spool_is_refused(lab) -> None:
    a100_node(lab.fake, "n1", count=1)
    lab.start()
    second = call(lab.command, timeout_s=10, env=lab.env, check=False)
    assert second.returncode == 1
    assert "another agent uses this spool" in second.stderr
    assert "Traceback" not in second.stderr
    assert lab.answers()


def test_gpm_gives_each_instance_its_own_activity(lab, wait_until, assert_conserved) -> None:
    """Hopper: two equal instances, 90 % and 30 % busy, share the active energy 3 : 1."""
    (board,) = h100_mig_node(lab.fake, "n1")
    one, two = (instance.uuid for instance in board.instances)
    lab.start()
    for uuid, percent in ((one, 90), (two, 30)):
        lab.fake.set_util(uuid, percent)
        lab.fake.set_power(uuid, 100_000)
    pause(300)
    lab.hook("prolog", 31, one)
    lab.hook("prolog", 32, two)
    pause(1_400)
    lab.hook("epilog", 31)
    assert_conserved(lab.windows(board.uuid))
    window = lab.windows(board.uuid)[-1]
    by_job = {share.job_id: share for share in window.shares}
    assert (by_job[31].util_permille, by_job[32].util_permille) == (900, 300)
    assert abs(by_job[31].active_mj - 3 * by_job[32].active_mj) <= 3
    assert window.flags == 0


def test_e23_without_a_counter_power_is_integrated_and_said_so(lab, assert_conserved) -> None:
    (gpu, *_) = a100_node(lab.fake, "n1", count=1)
    lab.fake.set_power(gpu.uuid, 180_000)
    lab.fake.unsupport("energy", gpu.uuid)
    pause(120)
    lab.start()
    lab.hook("prolog", 41, gpu.uuid)
    pause(700)
    lab.hook("epilog", 41)
    windows = lab.windows(gpu.uuid)
    assert_conserved(windows)
    (window,) = [w for w in windows if w.shares]
    assert window.method == "integrated"
    assert window.flags & Flag.INTEGRATED
    assert abs(window.measured_mj - 180 * (window.t1_ms - window.t0_ms)) <= 2


def test_hooks_through_the_shell_reach_the_agent(lab, tmp_path) -> None:
    """The real prolog and epilog scripts; the job's file for TaskProlog comes and goes."""
    (board, _) = mig_node(lab.fake, "n1")
    lab.start()
    env = {
        "FAIRWATT_PYTHON": sys.executable,
        "FAIRWATT_AGENT_SOCKET": str(lab.socket),
        "FAIRWATT_INBOX_DIR": str(tmp_path / "unused"),
        "SLURM_JOB_ID": "77",
        "SLURM_JOB_GPUS": "2",
        "SLURM_JOB_ACCOUNT": "(null)",
        "SLURM_JOB_RESTART_COUNT": "1",
        "CUDA_VISIBLE_DEVICES": board.instances[2].uuid,
    }
    argv = ["env", "-i", *(f"{name}={value}" for name, value in env.items())]
    call([*argv, str(HOOKS / "prolog")], timeout_s=10)
    job_file = lab.jobs / "77"
    assert job_file.read_text() == f"2\tmig\t{board.instances[2].uuid}\n"
    assert job_file.stat().st_mode & 0o777 == 0o644
    call([*argv, str(HOOKS / "epilog")], timeout_s=10)
    assert not job_file.exists()
    assert lab.ends() == {77: "epilog"}
    (start,) = [e for e in lab.events() if isinstance(e, RunStarted)]
    assert (start.restart_cnt, start.account, start.holds[0].numerator) == (1, None, 1)
    assert not (tmp_path / "unused").exists()
