# SPDX-License-Identifier: Apache-2.0
"""Epilog's cleaning: which processes are the job's, and that they end, in bounded time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairwatt.prolog import cleanup

JOB, OTHER = (str(first + os.getpid()) for first in (4_000_000_000, 4_100_000_000))
"""No jobs of this host, nor of another run of these tests: their real processes carry them."""
ME = os.getuid()


@pytest.fixture
def proc(tmp_path: Path, monkeypatch) -> Path:
    folder = tmp_path / "proc"
    folder.mkdir()
    monkeypatch.setattr(cleanup, "PROC", str(folder))
    return folder


def process(
    proc: Path, pid: int, *, cgroup: str = "0::/init.scope", environ: bytes = b"", state: str = "S"
) -> None:
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "stat").write_bytes(
        b"%d (a) Z 1) b) " % pid + state.encode() + b" 1" * 18 + b" 777" + b" 0" * 20
    )
    (folder / "cgroup").write_bytes(cgroup.encode("utf-8", "surrogateescape") + b"\n")
    (folder / "environ").write_bytes(environ)


def named(job: str) -> bytes:
    return b"PATH=/bin\0SLURM_JOB_ID=" + job.encode() + b"\0X=1\0"


@pytest.mark.parametrize(
    ("cgroup", "environ", "belongs"),
    [
        ("0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0", b"", True),  # v2
        ("4:devices:/slurm/uid_9/job_12/step_0\n0::/", b"", True),  # v1
        ("0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0", b"", True),  # 26.05
        ("0::/system.slice/slurmstepd.scope/job_13/step_0", named("12"), False),  # J20
        ("0::/system.slice/slurmstepd.scope/sOTHER00000000/step_0", named("12"), False),
        ("0::/user.slice/user-9.slice/session-3.scope", named("12"), False),  # a login shell
        ("0::/user.slice/user-9.slice/user@9.service/tmux", named("12"), False),
        ("0::/init.scope", named("12"), True),  # no cgroups: as slurmstepd started it
        ("0::/system.slice/slurmd.service", named("12"), True),
        ("", named("12"), True),
        ("0::/init.scope", named("123"), False),
        ("0::/init.scope", b"A=\nSLURM_JOB_ID=12\0", False),  # inside another variable
        ("0::/init.scope", b"XSLURM_JOB_ID=12\0", False),
        ("0::/job_12", b"", False),  # a folder that is not Slurm's
        ("0::/home/uid_x/job_x12", named("13"), False),
        ("0::/system.slice/slurmstepd.scope/system", named("12"), True),
    ],
)
def test_what_is_the_job_s(proc: Path, cgroup: str, environ: bytes, belongs: bool) -> None:
    process(proc, 50, cgroup=cgroup, environ=environ)
    found = cleanup.processes_of("12", "sEKNKTV3WPV500", ME)
    assert found == ([(50, "777")] if belongs else [])
    assert cleanup.processes_of("12", "sEKNKTV3WPV500", ME + 1) == []  # another user's


def test_hostile_neighbours_are_harmless(proc: Path) -> None:
    """Endless, binary and missing texts of other processes change nothing."""
    process(proc, 50, environ=named("12"))
    process(proc, 51, environ=b"SLURM_JOB_ID=" + b"12" * 2_000_000)
    process(proc, 52, environ=os.urandom(5_000), cgroup="\udcff:" * 9)
    process(proc, 53, environ=named("12"), state="Z")
    (proc / "54").mkdir()
    (proc / "self").mkdir()
    assert cleanup.processes_of("12", "", ME) == [(50, "777")]


STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); import time; time.sleep(60)"  # noqa: E501


@pytest.fixture
def sleeper() -> Iterator:
    started: list[subprocess.Popen] = []

    def start(code: str = "print(flush=True); import time; time.sleep(60)", job: str = JOB):
        env = {"SLURM_JOB_ID": job}
        child = subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE)
        started.append(child)
        child.stdout.readline()
        return child

    yield start
    for child in started:
        child.kill()
        child.wait()
        child.stdout.close()


def test_term_then_kill_and_only_the_job(sleeper) -> None:
    mild, stubborn, other = sleeper(), sleeper(STUBBORN), sleeper(job=OTHER)
    begun = time.monotonic()
    (line,) = list(cleanup._end_processes(JOB, "", ME))
    took = time.monotonic() - begun
    assert line == "ended 2 processes that the job had left behind"
    assert mild.wait(1) == -signal.SIGTERM
    assert stubborn.wait(1) == -signal.SIGKILL
    assert other.poll() is None
    assert took < cleanup.GRACE_S + cleanup.ROUNDS * cleanup.KILL_S + 1
    assert list(cleanup._end_processes(JOB, "", ME)) == []


def test_where_looking_takes_long_what_is_known_is_killed_once_and_no_more(
    sleeper, monkeypatch
) -> None:
    """Hundreds of processes with megabytes of environment: two looks, TERM and KILL, an end."""
    stubborn = sleeper(STUBBORN)
    seen = [(stubborn.pid, cleanup._start(str(stubborn.pid)))]
    looks: list[str] = []

    def look(job: str, _sluid: str, _uid: int) -> list[tuple[int, str | None]]:
        looks.append(job)
        return seen  # as if born anew each time

    monkeypatch.setattr(cleanup, "processes_of", look)
    monkeypatch.setattr(cleanup, "LAST_ROUND_S", 0.0)
    lines = list(cleanup._end_processes(JOB, "", ME))
    assert lines == ["ended 1 processes that the job had left behind"]
    assert stubborn.wait(1) == -signal.SIGKILL
    assert len(looks) == 2


def test_a_huge_environment_is_not_read_to_its_end(proc: Path, monkeypatch) -> None:
    process(proc, 7, environ=named(JOB) + b"A=" + b"x" * (2 << 20))
    read: list[int] = []
    whole = cleanup._read

    def counted(pid: str, name: str, longest: int) -> bytes:
        content = whole(pid, name, longest)
        read.append(len(content))
        return content

    monkeypatch.setattr(cleanup, "_read", counted)
    assert [pid for pid, _ in cleanup.processes_of(JOB, "", ME)] == [7]
    assert sum(read) < 200_000


@pytest.mark.parametrize("pidfd", [True, False])
def test_a_pid_that_is_another_s_by_now_is_not_signalled(sleeper, monkeypatch, pidfd) -> None:
    if not pidfd:
        monkeypatch.delattr(os, "pidfd_open")
    child = sleeper()
    cleanup._send(child.pid, "1", signal.SIGKILL)  # an older process had this number
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.1)
    cleanup._send(child.pid, cleanup._start(str(child.pid)), signal.SIGKILL)
    assert child.wait(5) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("settings", "uid"),
    [(None, "1000"), ("clean\tno\n", "1000"), ("clean\tyes\n", "0"), ("clean\tyes\n", "x")],
)
def test_nothing_is_done_unasked_nor_for_root(sleeper, tmp_path, settings, uid) -> None:
    if settings is not None:
        (tmp_path / ".hook").write_text(settings)
    child = sleeper()
    env = {"SLURM_JOB_ID": JOB, "SLURM_JOB_UID": str(ME) if ME and uid == "1000" else uid}
    assert list(cleanup.after_job(env, str(tmp_path / ".hook"))) == []
    assert child.poll() is None


def temp_env(user: str = "ada") -> dict[str, str]:
    return {
        "SLURM_JOB_ID": "12",
        "SLURM_JOB_UID": str(ME or 1000),
        "SLURM_JOB_GID": str(os.getgid() or 1000),
        "SLURM_JOB_USER": user,
    }


@pytest.mark.parametrize(
    ("pattern", "why"),
    [("/scratch/mine", "absolute path with %j"), ("tmp/%j", "absolute path with %j")],
)
def test_a_folder_that_is_not_one_job_s_is_never_removed(tmp_path, pattern, why) -> None:
    (tmp_path / ".hook").write_text(f"clean\tno\ntemp\t{pattern}\n")
    assert why in "".join(cleanup.after_job(temp_env(), str(tmp_path / ".hook")))


def test_the_job_s_folder_is_removed_with_the_user_s_rights(tmp_path: Path) -> None:
    """Run as root the folder is the user's 1000; a link in it leads to what stays."""
    tmp_path.chmod(0o755)
    kept = tmp_path / "kept"
    kept.mkdir(mode=0o700)
    (kept / "file").write_text("x")
    mine = tmp_path / "ada.12"
    (mine / "deep").mkdir(parents=True)
    (mine / "deep" / "link").symlink_to(kept)
    for path in (mine, mine / "deep"):
        os.chown(path, int(temp_env()["SLURM_JOB_UID"]), int(temp_env()["SLURM_JOB_GID"]))
    (tmp_path / "ada.13").mkdir()
    for folder in tmp_path.parents:  # pytest's are closed to others
        if folder != Path("/tmp") and folder.is_relative_to("/tmp"):
            folder.chmod(0o755)
    (tmp_path / ".hook").write_text(f"temp\t{tmp_path}/%u.%j\n")
    assert list(cleanup.after_job(temp_env(), str(tmp_path / ".hook"))) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == [".hook", "ada.13", "kept"]
    assert (kept / "file").exists()
    assert list(cleanup.after_job(temp_env("../kept"), str(tmp_path / ".hook"))) == []


@pytest.mark.skipif(ME != 0, reason="only root can make another's folder")
def test_what_the_user_could_not_remove_stays(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if folder != Path("/tmp") and folder.is_relative_to("/tmp"):
            folder.chmod(0o755)
    (tmp_path / "12" / "roots").mkdir(parents=True, mode=0o700)
    (tmp_path / "12" / "roots" / "file").write_text("x")
    os.chown(tmp_path / "12", 1000, 1000)
    (tmp_path / "12").chmod(0o755)
    (tmp_path / ".hook").write_text(f"temp\t{tmp_path}/%j\n")
    (line,) = list(cleanup.after_job(temp_env(), str(tmp_path / ".hook")))
    assert line.endswith("is left: Directory not empty")
    assert (tmp_path / "12" / "roots" / "file").exists()


@pytest.mark.skipif(ME != 0, reason="only root can make another's folder")
def test_a_folder_of_somebody_else_stays(tmp_path: Path) -> None:
    (tmp_path / "12").mkdir()
    (tmp_path / ".hook").write_text(f"temp\t{tmp_path}/%j\n")
    (line,) = list(cleanup.after_job(temp_env(), str(tmp_path / ".hook")))
    assert "not a folder of the job's user" in line
    assert (tmp_path / "12").exists()
