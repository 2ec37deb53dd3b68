# SPDX-License-Identifier: Apache-2.0
"""Starts, awaits and stops the programs of one cluster, each with its log in a file."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.lab.namespace import Namespace
from tests.lab.waiting import LabError, await_value

__all__ = ["Daemon", "Daemons", "answers_tcp", "answers_unix"]

TAIL_BYTES = 3000


@dataclass
class Daemon:
    """A running program: its name, process and log file."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def tail(self) -> str:
        """The last lines of its log, under a headline that names the file."""
        text = self.log.read_bytes()[-TAIL_BYTES:].decode(errors="replace")
        return f"--- {self.log} (end)\n{text}"

    def ready(self, probe: Callable[[], bool], timeout_s: float = 15) -> None:
        """Wait until `probe()` is true; LabError when the program ends before or time runs out."""

        def look() -> bool:
            if self.process.poll() is not None:
                status = self.process.returncode
                raise LabError(f"{self.name} ended with status {status}\n{self.tail()}")
            return probe()

        await_value(look, what=f"{self.name} ready", timeout_s=timeout_s, detail=self.tail)


class Daemons:
    """All programs of one cluster, in one namespace."""

    def __init__(self, log_dir: Path, cwd: Path) -> None:
        self._log_dir = log_dir
        self._cwd = cwd
        self._namespace = Namespace()
        self._running: dict[str, Daemon] = {}
        self._ended: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, argv: Sequence[str], env: Mapping[str, str]) -> Daemon:
        """Start `argv` under `name`; its output is appended to `<log_dir>/<name>.log`."""
        if name in self._running:
            raise LabError(f"{name} runs already; stop it first")
        log = self._log_dir / f"{name}.log"
        with log.open("ab") as output:
            process = self._namespace.spawn(argv, env=env, cwd=self._cwd, output=output)
        self._running[name] = Daemon(name, process, log)
        return self._running[name]

    def run(self, name: str, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Run `argv` to its end inside; LabError unless its status is 0."""
        daemon = self.start(name, argv, env)
        status = daemon.process.wait()
        self._forget(name)
        if status != 0:
            raise LabError(f"{name} ended with status {status}\n{daemon.tail()}")

    @property
    def mount_namespace(self) -> Path:
        """The file by which a program outside enters the mounts inside."""
        return self._namespace.mounts

    def get(self, name: str) -> Daemon | None:
        """The daemon of that name, if one was started and not yet stopped."""
        return self._running.get(name)

    def end(self, name: str, timeout_s: float = 10) -> None:
        """End one daemon by SIGTERM; nothing happens where none of that name runs.

        Raises:
            LabError: it did not end in time (it has been killed), or not with status 0.
        """
        daemon = self._forget(name)
        if daemon is None:
            return
        daemon.process.terminate()
        try:
            status = daemon.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            daemon.process.kill()
            status = daemon.process.wait()
        if status != 0:
            raise LabError(f"{name} ended with status {status} after SIGTERM\n{daemon.tail()}")

    def kill(self, name: str) -> None:
        """End one daemon by SIGKILL, with its workers, as systemd would when the main one dies.

        Nothing happens where none of that name runs.
        """
        daemon = self._forget(name)
        if daemon is not None:
            os.killpg(daemon.process.pid, signal.SIGKILL)
            daemon.process.wait()

    def _forget(self, name: str) -> Daemon | None:
        daemon = self._running.pop(name, None)
        if daemon is not None:
            self._ended.append(daemon.process)
        return daemon

    def close(self) -> None:
        """End everything at once, jobs included."""
        self._namespace.close([*self._ended, *(d.process for d in self._running.values())])
        self._running.clear()


def answers_unix(path: Path) -> bool:
    """Whether something accepts on the unix socket at `path`."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def answers_tcp(port: int) -> bool:
    """Whether something accepts on this loopback port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
