# SPDX-License-Identifier: Apache-2.0
"""munged with its own key and socket."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tests.lab.daemons import Daemon, Daemons, answers_unix
from tests.lab.paths import Paths

__all__ = ["start_munged"]

KEY_BYTES = 128


def start_munged(daemons: Daemons, paths: Paths, env: Mapping[str, str]) -> Daemon:
    """Start munged and wait until its socket answers."""
    key = paths.etc / "munge.key"
    key.write_bytes(os.urandom(KEY_BYTES))
    key.chmod(0o400)
    argv = [
        "munged",
        "--foreground",
        "--force",  # the root folder may lie below a folder that is writable for all, as /tmp is
        "--num-threads=4",
        "--origin=127.0.0.1",  # else munged wants to resolve the host's name
        f"--key-file={key}",
        f"--socket={paths.munge_socket}",
        f"--pid-file={paths.run / 'munged.pid'}",
        f"--seed-file={paths.run / 'munged.seed'}",
        f"--log-file={paths.log / 'munged.own.log'}",
    ]
    daemon = daemons.start("munged", argv, env)
    daemon.ready(lambda: answers_unix(paths.munge_socket))
    return daemon
