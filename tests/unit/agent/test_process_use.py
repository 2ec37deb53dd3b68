# SPDX-License-Identifier: Apache-2.0
"""Use of a shared board by the processes of each job, with NVML's traps, on the fake library."""

from __future__ import annotations

import pynvml
import pytest

from fairwatt.accounting.agent.process_use import ProcessMeter, job_folder
from tests.fakes.loaded import build_library, loaded_nvml, missing_tools
from tests.fakes.nvml_control import FakeNvml

GPU = "GPU-shared"
CGROUPS = {
    100: "0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0",
    101: "0::/system.slice/slurmstepd.scope/job_12/step_1/user/task_0",
    200: "5:cpuacct,cpu:/slurm/uid_1000/job_13/step_batch/task_0\n4:memory:/\n",
    300: "0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/user/task_0",
    400: "0::/system.slice/dcgm-exporter.service",
    500: "0::/user.slice/job_12/x",
}


@pytest.fixture
def proc(tmp_path):
    for pid, text in CGROUPS.items():
        (tmp_path / "proc" / str(pid)).mkdir(parents=True)
        (tmp_path / "proc" / str(pid) / "cgroup").write_text(text + "\n")
    return tmp_path / "proc"


@pytest.fixture
def fake(tmp_path):
    if reason := missing_tools():
        pytest.skip(reason)
    build_library()
    node = FakeNvml(tmp_path / "control")
    node.add_gpu(0, GPU, 0, "NVIDIA A100-SXM4-40GB", 40_960, "ga100")
    return node


@pytest.fixture
def ask(fake, proc):
    """Ask for the board's use; the library's clock is a second ahead each time."""
    with loaded_nvml(fake.path) as nvml:
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByIndex(0)
        meter = ProcessMeter(proc)
        now_ms = [4_000_000_000_000]

        def asked():
            now_ms[0] += 1000
            fake.set_clock(now_ms[0])
            return meter.by_job(GPU, handle)

        yield asked


def test_each_jobs_processes_are_added_up(fake, ask) -> None:
    """Two processes of job 12; what is in no job's group, or only looks so, is nobody's."""
    for pid, percent in {100: 20, 101: 15, 200: 30, 300: 5, 400: 10, 500: 7}.items():
        fake.add_process(GPU, pid, 100, percent)
    assert ask() == {"job_12": 350, "job_13": 300, "sEKNKTV3WPV500": 50}


def test_no_process_is_a_success_that_the_binding_raises(ask) -> None:
    """NVMLError(0): nobody used the board, which is known, unlike an answer without news."""
    assert ask() == {}


def test_no_news_is_unknown_not_0(fake, ask) -> None:
    fake.add_process(GPU, 100, 100, 40)
    assert ask() == {"job_12": 400}
    fake.fail("nvmlDeviceGetProcessUtilization", pynvml.NVML_ERROR_NOT_FOUND)
    assert ask() is None
    fake.fail("nvmlDeviceGetProcessUtilization", 0)
    assert ask() == {"job_12": 400}


def test_where_it_is_not_offered_it_is_not_asked_again(fake, ask) -> None:
    """As under MIG."""
    fake.add_process(GPU, 100, 100, 40)
    fake.unsupport("nvmlDeviceGetProcessUtilization")
    assert ask() is None
    fake.support("nvmlDeviceGetProcessUtilization")
    assert ask() is None


def test_a_lost_board_is_the_callers_matter(fake, ask) -> None:
    fake.lose(GPU)
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        ask()


def test_a_process_that_has_ended_belongs_to_the_job_it_was_seen_in(fake, ask, proc) -> None:
    fake.add_process(GPU, 100, 100, 40)
    fake.add_process(GPU, 200, 100, 10)
    assert ask() == {"job_12": 400, "job_13": 100}
    (proc / "100" / "cgroup").unlink()
    assert ask() == {"job_12": 400, "job_13": 100}


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        (CGROUPS[200], "job_13"),
        ("0::/system.slice/n1_slurmstepd.scope/job_7", "job_7"),
        ("4:memory:/slurm_n1/uid_7/sEKNKTV3WPV500/step_0", "sEKNKTV3WPV500"),
        ("0::/system.slice/slurmstepd.scope/system", None),
        ("0::/job_12/step_0", None),
        ("0::/user.slice/uid_1000.scope/job_12x/y", None),
        ("", None),
    ],
)
def test_the_jobs_group_of_a_process(text, folder) -> None:
    assert job_folder(text) == folder
