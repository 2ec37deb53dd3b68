# SPDX-License-Identifier: Apache-2.0
"""Where a cluster's Slurm comes from: this host, or the root of another Debian release.

Such a root is shared by all clusters: each lays an overlay on it, seen in its own namespace only,
with the cluster's folder at the same path inside as outside. Small scripts of the programs' names
stand first on the search path, so that daemons and tests call `scontrol` as on any host.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.ansible.roots import FORKY, TRIXIE, base_root
from tests.lab.daemons import Daemons
from tests.lab.paths import Paths
from tests.lab.waiting import LabError

__all__ = ["HOST_RELEASE", "OTHER_RELEASES", "System", "why_missing"]

HOST_RELEASE = "22.05"
SUITES = {"24.11": TRIXIE, "26.05": FORKY}
OTHER_RELEASES = tuple(SUITES)

SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PROGRAMS = (
    *("munge", "munged", "slurmctld", "slurmd", "slurmdbd"),
    *("sacct", "sacctmgr", "salloc", "sbatch", "scancel", "scontrol", "sdiag", "sinfo"),
    *("sprio", "squeue", "sreport", "srun", "sshare", "sstat"),
)
# Users come from a passwd file inside; the host's preloaded library would not load there.
_OF_HOST = ("LD_PRELOAD", "NSS_WRAPPER_PASSWD", "NSS_WRAPPER_GROUP")

_MOUNT = """
set -eu
lower=$1 over=$2 shared=$3 passwd=$4 group=$5
mount -t tmpfs -o mode=755 tmpfs "$over"
mkdir "$over/upper" "$over/work" "$over/root"
mount -t overlay -o "lowerdir=$lower,upperdir=$over/upper,workdir=$over/work" overlay "$over/root"
cd "$over/root"
mount -t proc proc proc
mount --rbind /dev dev
mount --rbind /sys sys
mount --bind "$passwd" etc/passwd
mount --bind "$group" etc/group
touch etc/hosts
mount --bind /etc/hosts etc/hosts
mkdir -p ".$shared"
mount --bind "$shared" ".$shared"
"""
# Inside the namespace the root is there; from outside one has to step in first.
_PROGRAM = """\
#!/bin/sh
unset {of_host}
export PATH={path}
[ -e {root}/bin ] || exec nsenter --mount={namespace} -- "$0" "$@"
exec chroot {root} {program} "$@"
"""


def why_missing(release: str) -> str | None:
    """Build the release's root where the cache has none; why it cannot be had, None if it can."""
    if release == HOST_RELEASE:
        return None
    try:
        base_root(SUITES[release])
    except (LabError, OSError) as error:
        return f"no root with Slurm {release}: {error}"
    return None


class System:
    """What the Slurm programs of one cluster run on.

    Args:
        release: HOST_RELEASE or one of OTHER_RELEASES, else KeyError.
        paths: of the cluster.
    """

    def __init__(self, release: str, paths: Paths) -> None:
        self._suite = None if release == HOST_RELEASE else SUITES[release]
        self._paths = paths
        self._namespace = Path()

    @property
    def search_path(self) -> str:
        """PATH for root's programs."""
        own = f"{self._programs}:" if self._suite else ""
        return own + SEARCH_PATH

    @property
    def _over(self) -> Path:
        return self._paths.root / "system"

    @property
    def _root(self) -> Path:
        return self._over / "root"

    @property
    def _programs(self) -> Path:
        return self._paths.root / "programs"

    def mount(self, daemons: Daemons, users: Mapping[str, str]) -> None:
        """Lay the root out in the daemons' namespace; on the host's own release do nothing.

        `users` are the variables of `install_users`. LabError where the root cannot be had.
        """
        if self._suite is None:
            return
        lower = base_root(self._suite)
        self._namespace = daemons.mount_namespace
        self._over.mkdir()
        known = [users["NSS_WRAPPER_PASSWD"], users["NSS_WRAPPER_GROUP"]]
        values = [str(each) for each in (lower, self._over, self._paths.root, *known)]
        env = {"PATH": SEARCH_PATH}
        daemons.run("mounts", ["sh", "-c", _MOUNT, "mounts", *values], env)
        self._programs.mkdir(mode=0o755)
        for name in PROGRAMS:
            file = self._programs / name
            file.write_text(self._program(name))
            file.chmod(0o755)

    def _program(self, name: str) -> str:
        return _PROGRAM.format(
            of_host=" ".join(_OF_HOST),
            path=SEARCH_PATH,
            root=shlex.quote(str(self._root)),
            namespace=self._namespace,
            program=name,
        )

    def as_user(self, argv: Sequence[str], uid: int, cwd: str) -> Sequence[str] | None:
        """The command line by which root runs `argv` as a user inside; None on the host's own."""
        if self._suite is None:
            return None
        ids = [f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
        return [
            *("nsenter", f"--mount={self._namespace}", "--", "chroot", str(self._root)),
            *("setpriv", *ids, "--", "env", f"--chdir={cwd}", f"PATH={SEARCH_PATH}", *argv),
        ]

    def user_env(self, env: Mapping[str, str]) -> dict[str, str]:
        """The variables for `as_user`."""
        return {name: value for name, value in env.items() if name not in _OF_HOST}
