# SPDX-License-Identifier: Apache-2.0
"""dcgm-exporter's job map: our lines alone, several jobs a file, whole at every moment."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest

from fairwatt.accounting.agent.dcgm_map import DcgmMap
from fairwatt.accounting.agent.device_map import Place
from fairwatt.accounting.agent.job_files import JobFiles
from fairwatt.prolog import away


def content(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_one_job_a_line_for_gpus_and_slices(tmp_path: Path) -> None:
    """J15: a mixed node, two jobs on one board."""
    folder = tmp_path / "map"
    known = DcgmMap(folder)
    known.add(7, {"0", "1.7"})
    known.add(8, {"0"})
    known.add(8, {"0"})
    assert content(folder) == {"0": "7\n8\n", "1.7": "7\n"}
    assert oct((folder / "0").stat().st_mode & 0o777) == "0o644"
    known.remove({7})
    assert content(folder) == {"0": "8\n"}
    known.remove({8, 9})
    assert content(folder) == {}


def test_lines_and_files_of_others_stay(tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(b"77\nmine \xff\n7 1001")
    (tmp_path / "notes").write_text("7\n")
    known = DcgmMap(tmp_path)
    known.add(7, {"0"})
    assert (tmp_path / "0").read_bytes() == b"77\nmine \xff\n7 1001\n7\n"
    known.remove({7})
    assert (tmp_path / "0").read_bytes() == b"77\nmine \xff\n7 1001\n"
    assert (tmp_path / "notes").read_text() == "7\n"


def test_no_folder_wanted_and_none_to_be_had(tmp_path: Path, caplog) -> None:
    DcgmMap(None).add(7, {"0"})
    (tmp_path / "file").write_text("")
    known = DcgmMap(tmp_path / "file" / "map")
    for job_id in (7, 8):
        known.add(job_id, {"0"})
    assert caplog.text.count("job map for dcgm-exporter is wrong") == 1  # not for every job


@pytest.fixture
def left(tmp_path: Path) -> tuple[Path, Path]:
    """What an agent left that is away now: its folder, and dcgm-exporter's."""
    jobs, maps = tmp_path / "jobs", tmp_path / "map"
    files = JobFiles(jobs, maps)
    slices = [Place(0, "mig", "MIG-a", "0.7"), Place(None, "mig", "MIG-c", "0.9")]
    files.note_devices([*slices, Place(1, "gpu", "GPU-b", "1")])
    maps.mkdir()
    return jobs, maps


@pytest.mark.parametrize(
    ("env", "table", "maps"),
    [
        ({"SLURM_JOB_GPUS": "0"}, "0\tmig\tMIG-a\n", {"0.7"}),
        ({"SLURM_JOB_GPUS": "1,0"}, "1\tgpu\tGPU-b\n0\tmig\tMIG-a\n", {"1", "0.7"}),
        ({"SLURM_JOB_GPUS": "2", "CUDA_VISIBLE_DEVICES": "MIG-c"}, "-\tmig\tMIG-c\n", {"0.9"}),
        ({"SLURM_JOB_GPUS": "0,2"}, None, set()),  # one is not known: nothing is said
        ({"SLURM_JOB_GPUS": "-"}, None, set()),
        ({"SLURM_JOB_GPUS": "/etc/passwd"}, None, set()),
        ({}, None, set()),
    ],
)
def test_without_the_agent_the_hooks_do_the_same(left, env, table, maps) -> None:
    jobs, folder = left
    (folder / "1").write_text("5\n")
    env = {"SLURM_JOB_ID": "9", **env}
    away.begin(str(jobs), env)
    text = (jobs / "9").read_text() if table else ""
    assert "".join(f"{x}\n" for x in text.splitlines() if "\tdcgm\t" not in x) == (table or "")
    assert {name for name, jobs_ in content(folder).items() if "9\n" in jobs_} == maps
    away.end(str(jobs), env)
    assert content(folder) == {"1": "5\n"}
    assert not (jobs / "9").exists()


def test_a_table_that_the_agent_wrote_is_not_written_over(left) -> None:
    jobs, _ = left
    (jobs / "9").write_text("0\tmig\tMIG-better\n")
    away.begin(str(jobs), {"SLURM_JOB_ID": "9", "SLURM_JOB_GPUS": "0"})
    assert (jobs / "9").read_text() == "0\tmig\tMIG-better\n"


def test_where_no_agent_ever_ran_there_is_nothing_to_do(tmp_path: Path) -> None:
    away.begin(str(tmp_path / "none"), {"SLURM_JOB_ID": "9", "SLURM_JOB_GPUS": "0"})
    away.end(str(tmp_path / "none"), {"SLURM_JOB_ID": "../9"})
    assert list(tmp_path.iterdir()) == []


def _strange(folder: Path) -> None:
    """What a user could put there, were the folder open to all: nothing may wait or follow."""
    os.mkfifo(folder / "0")
    (folder / "1").symlink_to(folder / "secret")
    (folder / "2").mkdir()
    (folder / "secret").write_text("5\n")
    (folder / ".3.fairwatt").symlink_to(folder / "secret")


def test_a_pipe_a_link_or_a_folder_there_spoils_only_itself(tmp_path: Path, caplog) -> None:
    _strange(tmp_path)
    known = DcgmMap(tmp_path)
    known.add(7, {"0", "1", "2", "3"})
    assert (tmp_path / "3").read_text() == "7\n"
    assert (tmp_path / "secret").read_text() == "5\n"
    known.remove({7, 5})
    assert not (tmp_path / "3").exists()
    assert (tmp_path / "secret").read_text() == "5\n"
    assert caplog.text.count("is wrong") == 3


def test_a_hook_waits_neither_for_a_pipe_nor_for_a_user_s_lock(left) -> None:
    jobs, folder = left
    os.mkfifo(folder / "0.7")
    anybody = os.open(folder, os.O_RDONLY)
    fcntl.flock(anybody, fcntl.LOCK_EX)
    began = time.monotonic()
    away.begin(str(jobs), {"SLURM_JOB_ID": "9", "SLURM_JOB_GPUS": "1"})
    with pytest.raises(OSError, match="no plain file"):
        away.begin(str(jobs), {"SLURM_JOB_ID": "10", "SLURM_JOB_GPUS": "0"})
    assert time.monotonic() - began < 1
    os.close(anybody)
    assert (folder / "1").read_text() == "9\n"
    assert (jobs / "10").exists()
