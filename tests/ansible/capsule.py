# SPDX-License-Identifier: Apache-2.0
"""What every node of one lab lives in: own processes, mounts, network and control groups.

Nothing of it has a name outside, so that labs cannot clash, and it ends with the process that made
it: a pipe's end closes, the first process inside leaves, the kernel ends all the others and takes
mounts and interfaces with them. The keeper outside then removes the control groups.
"""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from tests.lab.waiting import LabError

__all__ = ["Capsule", "children"]

_READY = "ready\n"
# /run is the capsule's own: systemd-nspawn keeps its locks there. /sys/fs/cgroup becomes cgroup2
# alone: on a host with both kinds, newer systemd would not boot on the old one.
_KEEPER = """
set -eu
mount -t tmpfs -o mode=755 tmpfs /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir "/sys/fs/cgroup/$1"
unshare --net --mount --pid --fork --kill-child --mount-proc sh -euc '
    ip link set lo up
    ip link add br0 type bridge
    ip address add "$1" dev br0
    ip link set br0 up
    echo ready
    exec env --ignore-signal=CHLD cat
' sh "$2" || true
exec find "/sys/fs/cgroup/$1" -depth -type d -exec rmdir {} +
"""


class Capsule:
    """The namespaces of one lab; `bridge` is the address (with prefix) of their bridge br0.

    Raises:
        LabError: the namespaces cannot be made here.
    """

    def __init__(self, bridge: str) -> None:
        self.cgroup = f"fairwatt-lab-{uuid.uuid4().hex[:12]}"
        self._keeper = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", _KEEPER, "keeper", self.cgroup, bridge],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # a Ctrl-C is for the tests, which then close the capsule
        )
        self.init_pid = self._await_init()

    def _await_init(self) -> int:
        assert self._keeper.stdout is not None
        said = self._keeper.stdout.readline()
        if said != _READY:
            said += self._keeper.stdout.read()
            self.close()
            raise LabError(f"no namespaces for a lab: {said}")
        return _only_child(_only_child(self._keeper.pid))

    @property
    def root(self) -> Path:
        """The root folder as the capsule sees it, reached from outside."""
        return Path(f"/proc/{self.init_pid}/root")

    def enter(self, argv: Sequence[str]) -> list[str]:
        """The command line that runs `argv` inside."""
        spaces = ("--mount", "--net", "--pid")
        return ["nsenter", f"--target={self.init_pid}", *spaces, "--", *argv]

    def spawn(self, argv: Sequence[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start `argv` inside; the Popen is of nsenter, whose only child is the program."""
        return subprocess.Popen(
            self.enter(argv),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def call(self, argv: Sequence[str]) -> str:
        """Run `argv` inside, return what it said; LabError when it fails."""
        done = subprocess.run(
            self.enter(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise LabError(f"{' '.join(argv)}: status {done.returncode}\n{done.stdout}")
        return done.stdout

    def close(self) -> None:
        """End all that is inside, wait until nothing is left of it; harmless when done again."""
        with self._keeper as keeper:  # closes its pipes, the first of which is what it lives by
            pass
        keeper.wait()


def children(pid: int) -> list[int]:
    """The child processes of a process, all its threads together."""
    try:
        threads = Path(f"/proc/{pid}/task").iterdir()
        texts = [(thread / "children").read_text() for thread in threads]
    except OSError:
        return []
    return [int(word) for text in texts for word in text.split()]


def _only_child(pid: int) -> int:
    found = children(pid)
    if len(found) != 1:
        raise LabError(f"process {pid} has {len(found)} children where one was expected")
    return found[0]
