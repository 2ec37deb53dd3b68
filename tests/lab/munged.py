# SPDX-License-Identifier: Apache-2.0
"""munged with its own key and socket."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.lab.daemons import Daemon, Daemons, answers_unix
from tests.lab.paths import Paths
from tests.lab.waiting import await_value

__all__ = ["own_munged", "start_munged"]

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


@contextmanager
def own_munged(folder: Path) -> Iterator[str]:
    """Run a munged without a cluster, with its files in `folder`; gives the path of its socket."""
    key = folder / "munge.key"
    key.write_bytes(os.urandom(KEY_BYTES))
    key.chmod(0o600)
    socket = folder / "munge.sock"
    argv = ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={socket}"]
    argv += [f"--{kind}-file={folder / kind}" for kind in ("pid", "log", "seed")]
    with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as daemon:
        try:
            await_value(socket.exists, what="munged's socket", timeout_s=5)
            yield str(socket)
        finally:
            daemon.terminate()
