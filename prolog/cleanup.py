# SPDX-License-Identifier: Apache-2.0
"""Ends what a job left behind on its node: its own processes and nothing else (client.py).

A process is the job's if it runs as the job's user and either lies in the job's cgroup (`job_N`,
or the SLUID from Slurm 26.05 on) or, outside any job's cgroup and any login session, was started
with this SLURM_JOB_ID. Another job of the same user, a login shell and any other user's process
survive whatever their environment says. Standard library only; bounded in time.
"""

# This runs after every job: re, signal and even collections would double the time of its start.
# ruff: noqa: PTH106, PTH116, PTH118, PTH123, PTH208, RUF007, SIM105

from __future__ import annotations

import os
import stat
import time
from _collections_abc import Callable, Iterator, Mapping

PROC = "/proc"
GRACE_S, KILL_S, TEMP_S = 1.0, 0.5, 1.0
"""How long SIGTERM has, SIGKILL has, and the job's folder takes at most to be removed."""
ROUNDS, LAST_ROUND_S = 3, 2.0
"""How often is looked again for processes that were born meanwhile, and for how long."""
STEP_S = 0.02
LONGEST_ENVIRON = 1 << 17
"""Linux takes 2 MiB; a user's hundreds of such processes would use up the epilog's time."""

SIGTERM, SIGKILL = 15, 9

Process = tuple[int, str]
"""A process id and when it started, in the kernel's words: an id alone may be another's soon."""


def after_job(env: Mapping[str, str], settings_file: str) -> Iterator[str]:
    """Clean up after the job of this epilog; yield lines about what was done or could not be.

    `settings_file` has lines `name<TAB>value`: `clean` yes, `temp` a path with %j. No file (no
    agent ran since boot): nothing is done.
    """
    settings = _settings(settings_file)
    job, uid = env.get("SLURM_JOB_ID", ""), env.get("SLURM_JOB_UID", "")
    if not (_is_number(job) and _is_number(uid)) or int(uid) == 0:
        return
    if settings.get("clean") == "yes":
        sluid = env.get("SLURM_JOB_SLUID") or env.get("SLURM_SLUID") or ""
        yield from _end_processes(job, sluid, int(uid))
    if settings.get("temp"):
        yield from _remove_temp(settings["temp"], job, env)


def _settings(path: str) -> dict[str, str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read(65_536).splitlines()
    except OSError:
        return {}
    return {name: value for name, _, value in (line.partition("\t") for line in lines)}


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10


# -- processes ---------------------------------------------------------------------------------


def _end_processes(job: str, sluid: str, uid: int) -> Iterator[str]:
    """SIGTERM first; SIGKILL for what is left, and for what is born meanwhile."""
    last_round = time.monotonic() + LAST_ROUND_S
    left = processes_of(job, sluid, uid)
    if not left:
        return
    ended = set(left)
    _signal(left, SIGTERM)
    _wait(left, GRACE_S)
    for _ in range(ROUNDS):
        left = processes_of(job, sluid, uid)
        if not left:
            break
        ended.update(left)
        _signal(left, SIGKILL)
        _wait(left, KILL_S)
        if time.monotonic() > last_round:
            break
    left = [(pid, start) for pid, start in left if _start(str(pid)) == start]
    yield f"ended {len(ended) - len(left)} processes that the job had left behind"
    if left:
        pids = " ".join(str(pid) for pid, _ in left[:20])
        yield f"{len(left)} processes of the job do not end: {pids}"


def processes_of(job: str, sluid: str, uid: int) -> list[Process]:
    """Return the living processes that are the job's, by the rule at the head of this module."""
    mine = {job, sluid} - {""}
    found = []
    for name in os.listdir(PROC):
        if not name.isdigit() or _owner(name) != uid:
            continue
        start = _start(name)
        if start is not None and _belongs(name, mine, f"SLURM_JOB_ID={job}".encode()):
            found.append((int(name), start))
    return found


def _owner(pid: str) -> int | None:
    try:
        return os.stat(os.path.join(PROC, pid)).st_uid
    except OSError:
        return None


def _start(pid: str) -> str | None:
    """Return when it started; None where it is gone or only waits to be reaped."""
    # The name in brackets may hold anything, even `) Z 1`: what follows the last bracket counts.
    fields = _read(pid, "stat", 4096).rpartition(b")")[2].split()
    return None if len(fields) < 20 or fields[0] in (b"Z", b"X") else fields[19].decode("ascii")


def _belongs(pid: str, mine: set[str], named: bytes) -> bool:
    paths = _cgroups(_read(pid, "cgroup", 65_536).decode("utf-8", "replace"))
    owners = {owner for path in paths for owner in [job_of_cgroup(path)] if owner}
    if owners:
        return bool(owners & mine)
    if any(_is_session(path) for path in paths):
        return False
    return named in _read(pid, "environ", LONGEST_ENVIRON).split(b"\0")


def _is_session(path: str) -> bool:
    """Say whether the cgroup is one of logind's: a login, or a user's own service manager."""
    return any(
        (part.startswith("session-") and part.endswith(".scope"))
        or (part.startswith("user@") and part.endswith(".service"))
        for part in path.split("/")
    )


def _cgroups(text: str) -> list[str]:
    return [line.split(":", 2)[2] for line in text.splitlines() if line.count(":") >= 2]


def job_of_cgroup(path: str) -> str | None:
    """Return the job id or SLUID of Slurm's folder in a cgroup path, None outside any job's.

    >>> job_of_cgroup("/slurm/uid_1000/job_12/step_0/task_0")
    '12'
    >>> job_of_cgroup("/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/user")
    'sEKNKTV3WPV500'
    """
    parts = path.split("/")
    for before, part in zip(parts, parts[1:], strict=False):
        below_scope = before.endswith("slurmstepd.scope")
        if (
            part.startswith("job_")
            and part[4:].isdigit()
            and (below_scope or before[:4] == "uid_")
        ):
            return part[4:]
        if below_scope and part.isalnum() and part != "system":
            return part
    return None


def _read(pid: str, name: str, longest: int) -> bytes:
    try:
        with open(os.path.join(PROC, pid, name), "rb") as file:
            return file.read(longest)
    except OSError:
        return b""


def _signal(processes: list[Process], number: int) -> None:
    for pid, start in processes:
        try:
            _send(pid, start, number)
        except OSError:
            pass  # it has ended meanwhile


def _send(pid: int, start: str, number: int) -> None:
    """Signal this very process: a descriptor holds it where Linux has them (from 5.3)."""
    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):
        if _start(str(pid)) == start:
            os.kill(pid, number)
        return
    try:
        if _start(str(pid)) == start:
            from signal import pidfd_send_signal

            pidfd_send_signal(descriptor, number)
    finally:
        os.close(descriptor)


def _wait(processes: list[Process], longest_s: float) -> None:
    _until(lambda: all(_start(str(pid)) != start for pid, start in processes), longest_s)


def _until(done: Callable[[], bool], longest_s: float) -> bool:
    end = time.monotonic() + longest_s
    while not done():
        if time.monotonic() >= end:
            return False
        time.sleep(STEP_S)
    return True


# -- the job's folder --------------------------------------------------------------------------


def _remove_temp(pattern: str, job: str, env: Mapping[str, str]) -> Iterator[str]:
    """Remove the job's folder with the rights of its user: whatever lies there is the user's."""
    user, gid = env.get("SLURM_JOB_USER", ""), env.get("SLURM_JOB_GID", "")
    uid = int(env["SLURM_JOB_UID"])
    if not pattern.startswith("/") or "%j" not in pattern or not _is_number(gid):
        yield f"epilog.temp_dir {pattern!r} is not used: write an absolute path with %j"
        return
    if "%u" in pattern and not _is_user_name(user):
        return
    path = pattern.replace("%j", job).replace("%u", user)
    try:
        there = os.lstat(path)
    except OSError:
        return
    if not stat.S_ISDIR(there.st_mode) or there.st_uid != uid:
        yield f"{path} is left: it is not a folder of the job's user"
        return
    if not _as_user(uid, int(gid), path):
        yield f"{path} is not removed in {TEMP_S:g} s; the rest is left"
        return
    try:
        os.rmdir(path)  # the folder above may be root's alone
    except FileNotFoundError:
        pass
    except OSError as error:
        yield f"{path} is left: {error.strerror}"


def _is_user_name(text: str) -> bool:
    letters = text.translate(dict.fromkeys(map(ord, "._-")))
    return text.isascii() and text[:1] not in (".", "-") and letters.replace("_", "a").isalnum()


def _as_user(uid: int, gid: int, path: str) -> bool:
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
            import shutil  # few sites have such folders

            shutil.rmtree(path, ignore_errors=True)
        finally:
            os._exit(0)
    if _until(lambda: os.waitpid(child, os.WNOHANG)[0] == child, TEMP_S):
        return True
    os.kill(child, SIGKILL)
    os.waitpid(child, 0)
    return False
