# SPDX-License-Identifier: Apache-2.0
"""MariaDB with its own data folder and socket, and no network."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.lab.daemons import Daemon, Daemons, answers_unix
from tests.lab.paths import Paths
from tests.lab.waiting import LabError

__all__ = ["start_mariadb"]

# Durability is worth nothing here; starting and ending fast is.
_FAST = (
    "--skip-name-resolve",
    "--innodb-log-file-size=8M",
    "--innodb-buffer-pool-size=32M",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=0",
    "--innodb-use-native-aio=0",
    "--performance-schema=0",
)


def start_mariadb(daemons: Daemons, paths: Paths, env: Mapping[str, str]) -> Daemon:
    """Start mariadbd on a copy of the cached empty database; `ready_mariadb` waits for it."""
    shutil.copytree(_template(), paths.database_dir)
    argv = [
        "mariadbd",
        "--no-defaults",
        "--user=root",
        f"--datadir={paths.database_dir}",
        f"--socket={paths.database_socket}",
        f"--pid-file={paths.run / 'mariadbd.pid'}",
        f"--tmpdir={paths.run}",
        "--skip-networking",
        *_FAST,
    ]
    return daemons.start("mariadbd", argv, env)


def ready_mariadb(daemon: Daemon, paths: Paths) -> None:
    """Wait until MariaDB accepts connections."""
    daemon.ready(lambda: answers_unix(paths.database_socket))


def _template() -> Path:
    """The empty data folder of this MariaDB release, built once into the user's cache."""
    folder = _cache_dir() / f"mariadb-{_version()}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _build_template(folder)
    return folder


def _cache_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "/var/cache") / "fairwatt" / "lab"


def _version() -> str:
    shown = subprocess.run(["mariadbd", "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"Ver (\S+)", shown.stdout)
    if found is None:
        raise LabError(f"mariadbd --version: no version in {shown.stdout!r}")
    return found[1]


def _build_template(folder: Path) -> None:
    draft = folder.with_suffix(".draft")
    shutil.rmtree(draft, ignore_errors=True)
    argv = [
        "mariadb-install-db",
        "--no-defaults",
        "--user=root",
        f"--datadir={draft}",
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        *_FAST[:2],
    ]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode != 0:
        raise LabError(f"mariadb-install-db failed\n{done.stdout}{done.stderr}")
    draft.rename(folder)
