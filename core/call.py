# SPDX-License-Identifier: Apache-2.0
"""The one place that starts another program.

>>> call(["scontrol", "ping"], timeout_s=5).stdout  # doctest: +SKIP
'Slurmctld(primary) at host is UP'
"""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairwatt.core.errors import CommandError, CommandTimeout

__all__ = ["Completed", "call"]

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
        CommandError: the program is missing or failed.
        CommandTimeout: it did not end in time.
    """
    _log.debug("run %s", list(argv))
    try:
        done = subprocess.run(
            list(argv),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout_s,
            env={**os.environ, **(env or {})},
            check=False,
        )
    except FileNotFoundError as error:
        raise CommandError(argv, 127, f"{argv[0]} not found", remedy="install it") from error
    except subprocess.TimeoutExpired as error:
        raise CommandTimeout(argv, 124, f"no answer within {timeout_s:g} s") from error
    if check and done.returncode != 0:
        raise CommandError(argv, done.returncode, done.stderr)
    return Completed(done.returncode, done.stdout, done.stderr)
