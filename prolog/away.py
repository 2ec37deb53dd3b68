# SPDX-License-Identifier: Apache-2.0
"""What a hook does while the agent is away, with the files that the agent left (client.py).

Prolog writes the job's table of devices from `.devices`, so that TaskProlog can name MIG
instances, and puts the job into dcgm-exporter's map; Epilog takes both back. The agent does the
same again from the inbox when it returns. Standard library only.
"""

# ruff: noqa: PTH105, PTH108, PTH118, PTH119, PTH120, PTH123

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Mapping

DEVICES = ".devices"
LONGEST_TABLE = 1 << 20
LOCK_TRIES, LOCK_WAIT_S = 5, 0.005

Row = tuple[str, str, str]
"""Position (`-`: none), kind (gpu, mig or dcgm) and UUID, or the path of a dcgm file."""


def begin(folder: str, env: Mapping[str, str]) -> None:
    """Write the table of the job that begins, unless a device of it is not known.

    Raises:
        OSError: the folder cannot be written; FileNotFoundError (no agent ever ran) is none.
    """
    job = _job(env)
    rows = job and _chosen(_rows(os.path.join(folder, DEVICES)), env)
    if not job or not rows:
        return
    table = os.path.join(folder, job)
    if not os.path.lexists(table):
        _replace(table, "".join("\t".join(row) + "\n" for row in rows).encode())
    for path in _maps(rows):
        _edit(path, lambda lines: lines if job in lines else [*lines, job])


def end(folder: str, env: Mapping[str, str]) -> None:
    """Take the job that ends out of dcgm-exporter's map and remove its table.

    Raises:
        OSError: a file cannot be written.
    """
    job = _job(env)
    if not job:
        return
    table = os.path.join(folder, job)
    for path in _maps(_rows(table)):
        _edit(path, lambda lines: [line for line in lines if line != job])
    if os.path.lexists(table):
        os.unlink(table)


def _job(env: Mapping[str, str]) -> str:
    job = env.get("SLURM_JOB_ID", "")
    return job if job.isascii() and job.isdigit() else ""


def _rows(path: str) -> list[Row]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read(LONGEST_TABLE).split("\n")
    except FileNotFoundError:
        return []
    cells = [line.split("\t") for line in lines]
    return [(row[0], row[1], row[2]) for row in cells if len(row) == 3]


def _chosen(rows: list[Row], env: Mapping[str, str]) -> list[Row]:
    """Return the rows of the job's devices, each with its map; none if one is not known."""
    groups: dict[str, list[Row]] = {}
    last: list[Row] = []
    for row in rows:
        if row[1] != "dcgm":
            last = groups[row[2]] = [row]
            groups.setdefault(row[0], last)
        else:
            last.append(row)
    words = env.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if not any(word.startswith(("GPU-", "MIG-")) for word in words):
        words = env.get("SLURM_JOB_GPUS", "").split(",")
    found = [groups.get(word) for word in words if word != "-"]
    return [] if None in found else [row for group in found if group for row in group]


def _maps(rows: list[Row]) -> list[str]:
    return [path for _, kind, path in rows if kind == "dcgm" and path.startswith("/")]


def _edit(path: str, change: Callable[[list[str]], list[str]]) -> None:
    """Change the lines of a map file under the lock that the agent takes too."""
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        _lock(folder)
        before = _read(path)
        text = before.decode("utf-8", "surrogateescape")
        lines = change(text.removesuffix("\n").split("\n") if text else [])
        after = "".join(line + "\n" for line in lines).encode("utf-8", "surrogateescape")
        if after != before:
            _replace(path, after)
    finally:
        os.close(folder)


def _lock(folder: int) -> None:
    """Wait for the agent, which takes a millisecond, but not for a user: anybody may lock."""
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOCK_WAIT_S)
        else:
            return


def _read(path: str) -> bytes:
    """Return a map file; one that is none (a link, a pipe) is refused, nobody waits for it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return b""
    try:
        there = os.fstat(descriptor)
        if not stat.S_ISREG(there.st_mode) or there.st_size > LONGEST_TABLE:
            raise OSError(errno.EINVAL, "no plain file, or too large", path)
        return os.read(descriptor, LONGEST_TABLE)
    finally:
        os.close(descriptor)


def _replace(path: str, content: bytes) -> None:
    """Put `content` there in one step; nothing: remove the file."""
    if not content:
        try:
            os.unlink(path)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
        return
    temporary = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{os.getpid()}")
    try:
        if os.path.lexists(temporary):
            os.unlink(temporary)
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), 0o644)
        os.replace(temporary, path)
    except OSError:
        if os.path.lexists(temporary):
            os.unlink(temporary)
        raise
