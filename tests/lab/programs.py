# SPDX-License-Identifier: Apache-2.0
"""How fairwatt's own daemons are started in the cluster, and when they are ready."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from fairwatt.core.unix_socket import ask_line

__all__ = ["answers_http", "answers_ping", "command"]

PROBE_S = 1.0


def command(*args: str) -> Sequence[str]:
    """The argv of `fairwatt …` from the environment that runs us."""
    return [str(Path(sys.executable).with_name("fairwatt")), *args]


def answers_ping(path: Path) -> bool:
    """Whether the daemon at this unix socket answers a ping."""
    try:
        answer = ask_line(path, b'{"v":1,"verb":"ping"}\n', PROBE_S)
    except OSError:
        return False
    return bool(answer.endswith(b"\n") and json.loads(answer))


def answers_http(url: str) -> bool:
    """Whether GET `url` gives 200."""
    try:
        with urllib.request.urlopen(url, timeout=PROBE_S) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.HTTPError):
        return False
