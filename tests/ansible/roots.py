# SPDX-License-Identifier: Apache-2.0
"""Base roots: Debian systems with Slurm, made by mmdebstrap once and kept outside the checkout.

A root is never written to again: nodes boot from an overlay on it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.lab.waiting import LabError

__all__ = ["BOOKWORM", "FORKY", "TRIXIE", "base_root", "base_roots", "cache_folder"]

FORKY, TRIXIE, BOOKWORM = "forky", "trixie", "bookworm"
PACKAGES = (
    "dbus",
    "iproute2",
    "lua-socket",
    "lua5.1",
    "mariadb-server",
    "munge",
    "procps",
    "python3",
    "python3-apt",
    "python3-packaging",
    "python3-venv",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "slurm-wlm-mysql-plugin",
    "slurmctld",
    "slurmd",
    "slurmdbd",
    "systemd-sysv",
)
RECIPE = "2"
"""Raise it when what is done to a root changes in another way than by its packages."""
_NOT_NEEDED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")


def cache_folder() -> Path:
    """Where base roots are kept: `$XDG_CACHE_HOME/fairwatt-lab`, else below /var/cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "/var/cache") / "fairwatt-lab"


def base_roots(suites: Iterable[str]) -> dict[str, Path]:
    """Return the root of each suite, building in parallel those that are not there."""
    wanted = tuple(dict.fromkeys(suites))
    with ThreadPoolExecutor(len(wanted)) as pool:
        return dict(zip(wanted, pool.map(base_root, wanted), strict=True))


def base_root(suite: str) -> Path:
    """Return the folder of the suite's base root; it is built when the cache has none.

    Raises:
        LabError: mmdebstrap failed; the message has the end of what it said.
    """
    root = cache_folder() / f"{suite}-{_key(suite)}"
    root.parent.mkdir(parents=True, exist_ok=True)
    with root.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.is_dir():
            _build(suite, root)
    return root


def _key(suite: str) -> str:
    return hashlib.sha256("\n".join([RECIPE, suite, *PACKAGES]).encode()).hexdigest()[:12]


def _build(suite: str, root: Path) -> None:
    making = root.with_suffix(".making")
    _remove_tree(making)
    done = _run(
        [
            "mmdebstrap",
            "--variant=minbase",
            "--skip=cleanup/apt/lists",
            # A suite in testing is signed for a week: a mirror that lags is still good enough.
            '--aptopt=Acquire::Check-Valid-Until "false"',
            f"--include={','.join(PACKAGES)}",
            *(f"--dpkgopt=path-exclude={path}" for path in _NOT_NEEDED),
            "--dpkgopt=force-unsafe-io",
            suite,
            str(making),
            _mirror(),
        ]
    )
    if done.returncode != 0:
        _remove_tree(making)
        raise LabError(f"base root of {suite}: mmdebstrap failed\n{done.stdout[-4000:]}")
    making.rename(root)


def _remove_tree(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _mirror() -> str:
    """The mirror that this host's own apt uses for its own release."""
    release = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    codename = next(line[17:] for line in release if line.startswith("VERSION_CODENAME="))
    filters = ["Created-By: Packages", f"Codename: {codename}"]
    done = _run(["apt-get", "indextargets", "--format", "$(REPO_URI)", *filters])
    if done.returncode != 0 or not done.stdout.strip():
        raise LabError(f"no apt source for {codename} on this host\n{done.stdout}")
    return done.stdout.split()[0]


def _run(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
