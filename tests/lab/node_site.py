# SPDX-License-Identifier: Apache-2.0
"""A cluster whose nodes are as the role leaves them: its hooks beside those of a site, and shards.

gpu01 has its four GPUs cut into four shards each, gpu02's can be shared by MPS. The node hooks
are the role's own template; before and after them the site runs parts of its own that write down
their turn.
"""

from __future__ import annotations

import shlex
import socket
from pathlib import Path
from typing import Self

import jinja2

from tests.lab.cluster import OneHostCluster
from tests.lab.commands import Completed
from tests.lab.fairwatt_conf import toml
from tests.lab.hooks import NODE_HOOKS
from tests.lab.paths import REPOSITORY
from tests.lab.slurm_conf import SlurmSettings
from tests.lab.system import HOST_RELEASE

__all__ = ["NodeJournal", "NodeSite"]

SHARDS, MPS = 16, 400
TEMPLATE = REPOSITORY / "ansible" / "roles" / "fairwatt_node" / "templates" / "hook.sh.j2"


class NodeJournal:
    """Stands for journald's /dev/log on one node; a context manager."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._lines: list[str] = []

    def __enter__(self) -> Self:
        self._path.unlink(missing_ok=True)
        self._socket.bind(str(self._path))
        self._path.chmod(0o666)
        self._socket.setblocking(False)
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._path.unlink(missing_ok=True)

    @property
    def lines(self) -> list[str]:
        """The lines until now."""
        try:
            while True:
                self._lines.append(self._socket.recv(65_536).decode(errors="replace"))
        except BlockingIOError:
            return self._lines


class NodeSite(OneHostCluster):
    """Slurm of `release` with the node hooks as installed; agents are started apart."""

    def __init__(self, root: Path, release: str) -> None:
        etc = root / "etc"
        slurm: dict[str, object] = {"GresTypes": "gpu,shard,mps"}
        if release == HOST_RELEASE:  # knows one Prolog only: the last line, which may be a glob
            slurm |= {"Prolog": etc / "prolog.d" / "*", "Epilog": etc / "epilog.d" / "*"}
        else:  # the lines in turn, each glob from the last name to the first
            slurm |= {
                "Prolog": (etc / "prolog.d" / "9*", etc / "prolog", etc / "prolog.d" / "1*"),
                "Epilog": (etc / "epilog.d" / "9*", etc / "epilog", etc / "epilog.d" / "1*"),
            }
        super().__init__(root, hook="none", release=release, slurm=slurm, settings={})

    @property
    def turns(self) -> Path:
        """Where the site's parts write `job part`."""
        return self.paths.root / "turns"

    def _write_configuration(self) -> SlurmSettings:
        known = super()._write_configuration()
        text = self.paths.slurm_conf.read_text()
        for more in (f"shard:{SHARDS}", f"mps:{MPS}"):
            assert "Gres=gpu:a100:4 " in text
            text = text.replace("Gres=gpu:a100:4 ", f"Gres=gpu:a100:4,{more} ", 1)
        self.paths.slurm_conf.write_text(text)
        with (self.paths.etc / "gres.conf").open("a") as gres:
            gres.write(f"NodeName=gpu01 Name=shard Count={SHARDS}\n")
            gres.write(f"NodeName=gpu02 Name=mps Count={MPS}\n")
        for node in self.nodes.values():
            with node.config_path.open("a") as settings:
                settings.write(toml({"agent.dcgm_job_dir": str(node.folder / "dcgm")}))
        for name in NODE_HOOKS:
            self._install(name)
        for key in ("prolog", "epilog"):
            self._site_parts(key)
        return known

    def _install(self, name: str) -> None:
        """Write the hook that the role would, with the folders of the node it runs on."""
        hook = jinja2.Template(TEMPLATE.read_text(), keep_trailing_newline=True).render(
            item={"name": name, "site": ""},
            fairwatt_node_spool_dir="$node",
            fairwatt_install_now={"package": str(self.paths.etc / "package")},
        )
        package = self.paths.etc / "package" / "prolog"
        if not package.exists():
            package.parent.mkdir()
            package.symlink_to(self.paths.etc / "node")
        # There is no journal here: each node has a socket of its own in the place of /dev/log.
        hook = hook.replace("logger -t", 'logger -u "$FAIRWATT_LOG_SOCKET" -t')
        wrapper = self.paths.etc / name
        head, _, _ = wrapper.read_text().partition("exec ")
        wrapper.write_text(f"{head}{hook}")

    def _site_parts(self, key: str) -> None:
        folder = self.paths.etc / f"{key}.d"
        folder.mkdir()
        self.turns.touch()
        self.turns.chmod(0o666)
        for name in ("10-site", "90-site"):
            part = folder / name
            part.write_text(
                f'#!/bin/sh\necho "$SLURM_JOB_ID {key} {name}" >>{shlex.quote(str(self.turns))}\n'
                f"[ ! -e {shlex.quote(str(self.paths.root))}/break-$SLURM_JOB_ID ]\n"
            )
            part.chmod(0o755)
        if self.release == HOST_RELEASE:
            (folder / "50-fairwatt").symlink_to(self.paths.etc / key)

    def journal(self, node: str) -> NodeJournal:
        """What the node's hooks tell the journal from now on."""
        return NodeJournal(self.nodes[node].folder / "log")

    def dcgm(self, node: str) -> dict[str, list[str]]:
        """dcgm-exporter's map on a node: job ids by device."""
        folder = self.nodes[node].folder / "dcgm"
        names = list(folder.glob("[0-9]*")) if folder.exists() else []
        return {path.name: path.read_text().split() for path in names}

    def state(self, node: str) -> str:
        """The node's state and reason."""
        return self.run(["sinfo", "-h", "-n", node, "-o", "%T %E"]).stdout.strip()

    def inside(self, *argv: str) -> Completed:
        """Run a command among the cluster's processes, as root, with the host's programs."""
        return self.run(["nsenter", f"--mount={self._programs.mount_namespace}", "--", *argv])
