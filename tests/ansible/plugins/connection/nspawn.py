# SPDX-License-Identifier: Apache-2.0
"""Run Ansible tasks on a booted systemd-nspawn node, by entering its namespaces."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.connection.local import Connection as LocalConnection

DOCUMENTATION = """
name: nspawn
short_description: enter a booted systemd-nspawn container with nsenter
description:
  - Enters all namespaces of the container's first process. Tasks run as root there, so become
    is not needed and a password for it is refused.
author: [fairwatt]
options:
  leader:
    description: Process id of the container's init, as seen from here.
    type: int
    required: true
    vars:
      - name: nspawn_leader
"""

_CLEAN = "/usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8"


class Connection(LocalConnection):  # type: ignore[misc]  # ansible-core has no types
    """A connection that is a process tree: nothing to open, nothing to close."""

    transport = "nspawn"
    has_pipelining = True

    def _connect(self) -> Connection:
        leader = self.get_option("leader")
        if not Path(f"/proc/{leader}/ns/mnt").exists():
            raise AnsibleConnectionFailure(f"{self._host}: process {leader} (its init) is gone")
        super()._connect()
        return self

    @property
    def _host(self) -> str:
        return str(self._play_context.remote_addr)

    def _enter(self, command: str) -> str:
        leader = self.get_option("leader")
        return f"nsenter --target={leader} --all -- {_CLEAN} /bin/sh -c {shlex.quote(command)}"

    def exec_command(
        self, cmd: str, in_data: bytes | None = None, sudoable: bool = True
    ) -> tuple[int, bytes, bytes]:
        """Run a shell command on the node: status, standard output, standard error."""
        if self.become is not None and self.become.get_option("become_pass"):
            raise AnsibleError(f"{self._host}: the nspawn connection takes no become password")
        answer: tuple[int, bytes, bytes] = super().exec_command(
            self._enter(cmd), in_data=in_data, sudoable=False
        )
        return answer

    def put_file(self, in_path: str, out_path: str) -> None:
        """Copy a file onto the node."""
        with Path(in_path).open("rb") as source:
            self._copy(f"cat >{shlex.quote(out_path)}", out_path, stdin=source)

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """Copy a file from the node."""
        with Path(out_path).open("wb") as target:
            self._copy(f"cat {shlex.quote(in_path)}", in_path, stdout=target)

    def _copy(self, command: str, place: str, **streams: Any) -> None:
        self._connect()
        argv = shlex.split(self._enter(command))
        done = subprocess.run(argv, stderr=subprocess.PIPE, check=False, **streams)
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip()
            raise AnsibleError(f"{self._host}: {place} cannot be copied: {said}")
