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
from typing import Any, Self

__all__ = ["EDITS", "FAULTS", "GIVEN", "LATE_S", "SAID", "FaultyPolicyd"]

SAID = "fairwatt FW999: judged"
GIVEN = "gpu:h100:1"
LATE_S = 0.4
"""How long a slow answer takes; the tests' deadline is shorter."""

EDITS = {
    "time_limit": 60,
    "min_cpus": 3,
    "num_tasks": 3,
    "shared": 0,
    "features": "h100",
    "min_mem_per_cpu": 500,
}
"""What "many edits" writes beside the GPU, of every kind that a job can do without."""

_Query = dict[str, Any]


def right(query: _Query) -> dict[str, Any]:
    """A right answer: another GPU and a comment, told to the user."""
    prefix = "gres/" if query["spelling"] == "slash" else "gres:"
    edits = {"tres_per_node": prefix + GIVEN}
    if query["verb"] == "submit":  # Slurm refuses a user's change of it
        edits["admin_comment"] = "judged"
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
    "many edits": _also(**EDITS),
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

    def __exit__(self, *_: object) -> None:
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
        return int(self._ask(name))

    def asked(self) -> _Query:
        """The last request."""
        query: _Query = json.loads(self._ask("?"))
        return query

    def _ask(self, word: str) -> str:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def _signal(self, number: int) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)


class _Server:
    def __init__(self, path: str) -> None:
        self.fault = "none"
        self.connections = 0
        self.asked = "{}"
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
                fault, self.asked = self.fault, line.decode()
                try:
                    client.sendall(FAULTS[fault](json.loads(line)))
                except OSError:
                    return  # the hook has hung up, as it should on a late answer
                if fault == "half a line":
                    return


def main() -> None:
    """Listen on argv[1]; a line of input is the next fault, "?" asks for the last query."""
    server = _Server(sys.argv[1])
    threading.Thread(target=server.accept, daemon=True).start()
    for word in map(str.strip, sys.stdin):
        if word != "?":
            server.fault = word
        said = server.asked.strip() if word == "?" else str(server.connections)
        sys.stdout.write(said + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
