# SPDX-License-Identifier: Apache-2.0
"""A policy daemon with one fault at a time, for tests of the submit hook in a real slurmctld.

>>> with FaultyPolicyd(Path("/run/p.sock")) as far:  # doctest: +SKIP
...     far.fault("garbage")

Each of its answers carries edits that a test can see in the job, should the hook take them.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["FAULTS", "FaultyPolicyd"]

SAID = "fairwatt FW999: judged"
GIVEN = "gpu:h100:1"
LATE_S = 0.4
"""How long a slow answer takes; the tests' deadline is shorter."""

_Query = dict[str, Any]


def right(query: _Query) -> dict[str, Any]:
    """A right answer: another GPU and a comment, told to the user."""
    prefix = "gres/" if query["spelling"] == "slash" else "gres:"
    edits = {"tres_per_node": prefix + GIVEN, "admin_comment": "judged"}
    return {"v": 1, "id": query["id"], "act": "accept", "set": edits, "say": SAID}


def _with(**changes: Any) -> Callable[[_Query], bytes]:
    """A right answer but for `changes`."""
    return lambda query: _line(right(query) | changes)


def _also(**edits: Any) -> Callable[[_Query], bytes]:
    """A right answer with one more edit."""
    return lambda query: _line(right(query) | {"set": right(query)["set"] | edits})


def _line(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer).encode() + b"\n"


def _slow(query: _Query) -> bytes:
    time.sleep(LATE_S)
    return _line(right(query))


FAULTS: dict[str, Callable[[_Query], bytes]] = {
    "none": _with(),
    "slow": _slow,
    "garbage": lambda _query: b"\x00\xff{]\n",
    "a list": lambda _query: b"[1]\n",
    "half a line": lambda query: _line(right(query))[:40],
    "oversized": _with(say="x" * 200_000),
    "another request": _with(id="1-1"),
    "another version": _with(v=2),
    "no decision": _with(act="perhaps"),
    "forbidden edit": _also(priority=0),
    "overlong edit": _also(partition="x" * 1024),
    "wrong type": _also(partition=7),
    "wrong number": _also(time_limit=4294967294),
    "wrong prefix": _also(tres_per_job="gpu:a100:1"),
    "escape": _with(say="\x1b[31mred"),
    "twice": lambda query: _line(right(query)) * 2,
}
"""What the daemon answers by the fault's name; "half a line" hangs up after it."""


class FaultyPolicyd:
    """The daemon as a process, so that it can be stopped and killed.

    Args:
        path: the socket it listens on.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Start it where it does not run; return when it listens."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(self.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=Path(__file__).parents[2],
            )
            self.fault("none")

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def freeze(self) -> None:
        """Stop it until `thaw`."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def fault(self, name: str) -> int:
        """Answer like that from now on; return how many connections there have been."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(name + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def _signal(self, number: int) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)


class _Server:
    def __init__(self, path: str) -> None:
        self.fault = "none"
        self.connections = 0
        self._listener = socket.socket(socket.AF_UNIX)
        Path(path).unlink(missing_ok=True)
        self._listener.bind(path)
        self._listener.listen()

    def accept(self) -> None:
        """Serve every connection in a thread of its own."""
        while True:
            client, _ = self._listener.accept()
            self.connections += 1
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, client.makefile("rb") as lines:
            for line in lines:
                fault = self.fault
                try:
                    client.sendall(FAULTS[fault](json.loads(line)))
                except OSError:
                    return  # the hook has hung up, as it should on a late answer
                if fault == "half a line":
                    return


def main() -> None:
    """Listen on argv[1]; each line of standard input is the next fault."""
    server = _Server(sys.argv[1])
    threading.Thread(target=server.accept, daemon=True).start()
    for line in sys.stdin:
        server.fault = line.strip()
        sys.stdout.write(f"{server.connections}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
