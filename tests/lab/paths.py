# SPDX-License-Identifier: Apache-2.0
"""Where everything of one cluster lies below its root folder."""

from __future__ import annotations

import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["REPOSITORY", "Paths", "temporary_root"]

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Paths:
    """The layout below `root`. Socket paths must stay below 108 bytes: keep `root` short."""

    root: Path

    @property
    def etc(self) -> Path:
        """slurm.conf and its companions, and fairwatt's files."""
        return self.root / "etc"

    @property
    def slurm_conf(self) -> Path:
        """The file that SLURM_CONF names."""
        return self.etc / "slurm.conf"

    @property
    def log(self) -> Path:
        """One log per daemon."""
        return self.root / "log"

    @property
    def run(self) -> Path:
        """Sockets and pid files."""
        return self.root / "run"

    @property
    def munge_socket(self) -> Path:
        """munged's socket."""
        return self.run / "munge.sock"

    @property
    def database_socket(self) -> Path:
        """MariaDB's socket."""
        return self.run / "mysql.sock"

    @property
    def database_dir(self) -> Path:
        """MariaDB's data."""
        return self.root / "mysql"

    @property
    def home(self) -> Path:
        """Home folders of the local users, and where their jobs write."""
        return self.root / "home"

    @property
    def state(self) -> Path:
        """slurmctld's state."""
        return self.root / "state"

    @property
    def store(self) -> Path:
        """fairwatt's SQLite file."""
        return self.root / "store" / "fairwatt.db"

    @property
    def policyd_socket(self) -> Path:
        """policyd's socket."""
        return self.run / "policyd.sock"

    @property
    def decisions(self) -> Path:
        """policyd's decisions on their way to the collector."""
        return self.root / "decisions"

    def node(self, name: str) -> Path:
        """Everything that would lie on that node's own disk."""
        return self.root / "nodes" / name

    def dev(self, name: str) -> Path:
        """The node's /dev."""
        return self.root / "dev" / name

    def make(self) -> None:
        """Create the folders; other users may pass through."""
        self.root.mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o755)
        for folder in self.root.resolve().parents:
            if not folder.stat().st_mode & stat.S_IXOTH:
                raise PermissionError(
                    f"{folder}: closed to the cluster's users; choose a root folder elsewhere"
                )
        for folder in (self.etc, self.log, self.run, self.home, self.state, self.store.parent):
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)


@contextmanager
def temporary_root(parent: Path | None = None) -> Iterator[Path]:
    """A short temporary folder that every user may pass, removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="fw-", dir=parent))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
