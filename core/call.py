# SPDX-License-Identifier: Apache-2.0
"""The one place that starts another program.

>>> call(["scontrol", "ping"], timeout_s=5).stdout  # doctest: +SKIP
'Slurmctld(primary) at host is UP'
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairwatt.core.errors import CommandError, CommandTimeout

__all__ = ["Completed", "call", "start_child"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Completed:
    """What a finished command left: its exit status and both texts (UTF-8, bad bytes replaced)."""

    returncode: int
    stdout: str
    stderr: str


def call(
    argv: Sequence[str],
    *,
    timeout_s: float,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    check: bool = True,
) -> Completed:
    """Run `argv` without a shell and return what it printed.

    Args:
        argv: program and arguments; never a shell line.
        timeout_s: after this the program is killed; there is no unbounded call.
        stdin: text to feed, else /dev/null.
        env: variables to add to this process's own.
        check: raise CommandError on a non-zero exit status.

    Raises:
        CommandError: the program is missing, may not run, or failed.
        CommandTimeout: it did not end in time.
    """
    _log.debug("run %s", list(argv))
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise CommandError(argv, 127, f"{argv[0]} not found", remedy="install it") from error
    except OSError as error:
        raise CommandError(argv, 126, f"{argv[0]} cannot run: {error.strerror}") from error
    done = _finished(process, argv, stdin, timeout_s)
    if check and done.returncode != 0:
        raise CommandError(argv, done.returncode, done.stderr)
    return done


def start_child(argv: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a program that stays; its stdin and stdout are unbuffered pipes, its stderr is ours.

    Raises:
        CommandError: the program is missing or may not run.
    """
    try:
        return subprocess.Popen(
            list(argv),
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise CommandError(argv, 126, f"{argv[0]} cannot run: {error.strerror}") from error


def _finished(
    process: subprocess.Popen[str], argv: Sequence[str], stdin: str | None, timeout_s: float
) -> Completed:
    """Wait for the end; whatever interrupts this ends the program and its own children."""
    with process:
        try:
            stdout, stderr = process.communicate(stdin, timeout=timeout_s)
        except BaseException as error:
            # A child of the program may hold the pipes: ending the program alone would hang.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise CommandTimeout(argv, 124, f"no answer within {timeout_s:g} s") from error
            raise
    return Completed(process.returncode, stdout, stderr)
