# SPDX-License-Identifier: Apache-2.0
"""A process namespace that holds every daemon and job of one cluster.

When the process that made it ends in whatever way, the kernel ends all that ran inside: daemons,
slurmstepd and jobs, also those that put themselves in the background.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

__all__ = ["Namespace"]

CLONE_NEWPID = 0x20000000
_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}; the lab needs root with CAP_SYS_ADMIN")


class Namespace:
    """A pid namespace with its own /proc; `spawn` starts a program in it, `close` ends it.

    Its first process is `cat`: it lives as long as our end of its pipe is open, and it ignores
    SIGCHLD, so that the kernel buries orphans at once.
    """

    def __init__(self) -> None:
        self._init = self._start_init()
        self._pid_ns = os.open(f"/proc/{self._init.pid}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)

    @property
    def mounts(self) -> Path:
        """The file that names its mounts, for nsenter from outside."""
        return Path(f"/proc/{self._init.pid}/ns/mnt")

    def _start_init(self) -> subprocess.Popen[bytes]:
        _checked(_libc.unshare(CLONE_NEWPID), "unshare")
        argv = ["unshare", "--mount-proc", "env", "--ignore-signal=CHLD", "cat"]
        try:
            init = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        finally:
            self._return_home()
        assert init.stdin is not None
        assert init.stdout is not None
        init.stdin.write(b"\n")  # its echo tells that /proc is mounted and SIGCHLD ignored
        if init.stdout.read(1) != b"\n":
            raise OSError("the first process of the namespace did not start; is unshare allowed?")
        return init

    @staticmethod
    def _return_home() -> None:
        home = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _checked(_libc.setns(home, CLONE_NEWPID), "setns")
        finally:
            os.close(home)

    @contextmanager
    def _children_inside(self) -> Iterator[None]:
        _checked(_libc.setns(self._pid_ns, CLONE_NEWPID), "setns")
        try:
            yield
        finally:
            self._return_home()

    def spawn(
        self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, output: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        """Start `argv` inside; the Popen's pid is the program's own, as seen from outside,
        and the id of its process group."""
        enter = ["nsenter", f"--mount={self.mounts}", f"--wd={cwd}", "--"]
        with self._children_inside():
            return subprocess.Popen(
                [*enter, *argv],
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C at the demo's terminal is not for the daemons
            )

    def close(self, children: Sequence[subprocess.Popen[bytes]]) -> None:
        """Kill all that is inside and wait until nothing is left.

        `children` are the Popens from `spawn`: the kernel keeps a namespace until they are waited.
        """
        self._init.kill()
        for child in children:
            child.wait()
        self._init.wait()
        for pipe in (self._init.stdin, self._init.stdout):
            if pipe is not None:
                pipe.close()
        os.close(self._pid_ns)
