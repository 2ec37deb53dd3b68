# SPDX-License-Identifier: Apache-2.0
"""The real agent for so many samplings of 8 GPUs × 7 slices, on a clock that leaps over waits.

Daemon, keeper, journal on disk, NVML binding, hook socket and HTTP to a collector are the real
ones. A job begins every half minute on one slice and ends five minutes later. Run as a child:
`python -m tests.bench.node_soak CONFIG CONTROL TICKS`, it prints one JSON line per mark.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
from collections import deque
from pathlib import Path
from typing import Any

from tests.bench.node_clock import LeapingClock
from tests.bench.node_memory import memory_kib

JOB_EVERY_S, JOB_S = 30.0, 300.0
TELL_DRIVER_S = 1.0
MARKS = 10


class Soak:
    """Jobs, the driver's clock and the figures, between the leaps of the agent's loop."""

    def __init__(self, clock: LeapingClock, config: Path, control: Path, ticks: int) -> None:
        self._clock = clock
        self._control = os.open(control, os.O_WRONLY | os.O_APPEND)
        self._path = _setting(config, "agent.socket")
        self._instances = _instances(control)
        self._marks = deque(ticks * (n + 1) // MARKS for n in range(MARKS))
        self._ticks = self._job = 0
        self._told_s = self._job_s = 0.0
        self._ends: deque[tuple[float, int]] = deque()
        self._asked: list[socket.socket] = []
        self._begun: tuple[float, float] | None = None

    def ticked(self) -> None:
        """Count a sampling."""
        self._ticks += 1

    def leapt(self) -> None:
        """Let happen what is due by now."""
        now_s = self._clock.monotonic()
        if now_s - self._told_s >= TELL_DRIVER_S:
            self._told_s = now_s
            os.write(self._control, b"clock %d\n" % (self._clock.time_ns() // 1_000_000))
        self._read_answers()
        if now_s - self._job_s >= JOB_EVERY_S:
            self._job_s = now_s
            self._job += 1
            self._ends.append((now_s + JOB_S, self._job))
            self._hook("prolog", self._job)
        elif self._ends and self._ends[0][0] <= now_s:
            self._hook("epilog", self._ends.popleft()[1])
        if self._ticks >= self._marks[0]:
            self._report(now_s)

    def _hook(self, verb: str, job_id: int) -> None:
        env = {
            "SLURM_JOB_ID": str(job_id),
            "SLURM_JOB_UID": "1000",
            "CUDA_VISIBLE_DEVICES": self._instances[job_id % len(self._instances)],
        }
        message = {"v": 1, "verb": verb, "t_ms": self._clock.time_ns() // 1_000_000, "env": env}
        peer = socket.socket(socket.AF_UNIX)
        peer.connect(self._path)
        peer.sendall(json.dumps(message).encode() + b"\n")
        peer.setblocking(False)
        self._asked.append(peer)

    def _read_answers(self) -> None:
        """A hook's answer is there before the loop leaps again."""
        for peer in self._asked:
            answer = peer.recv(65_536)
            assert b'"ok":true' in answer, answer
            peer.close()
        self._asked.clear()

    def _report(self, now_s: float) -> None:
        self._marks.popleft()
        used = resource.getrusage(resource.RUSAGE_SELF)
        cpu_s = used.ru_utime + used.ru_stime
        begun_s, begun_cpu_s = self._begun or (now_s, cpu_s)
        self._begun = (begun_s, begun_cpu_s)
        figures = {
            "ticks": self._ticks,
            "jobs": self._job,
            "virtual_s": now_s - begun_s,
            "cpu_s": cpu_s - begun_cpu_s,
            **memory_kib("self"),
        }
        sys.stdout.write(json.dumps(figures) + "\n")
        sys.stdout.flush()
        if not self._marks:
            signal.raise_signal(signal.SIGTERM)


def _setting(config: Path, key: str) -> str:
    lines = dict(line.split(" = ", 1) for line in config.read_text().splitlines())
    value: str = json.loads(lines[key])
    return value


def _instances(control: Path) -> list[str]:
    words = [line.split() for line in control.read_text().splitlines()]
    return [fact[1] for fact in words if fact[0] == "instance"]


def main(argv: list[str]) -> None:
    """Run the agent to the last mark."""
    config, control, ticks = Path(argv[0]), Path(argv[1]), int(argv[2])
    clock = LeapingClock()
    clock.install()
    from fairwatt.accounting.agent import main as agent
    from fairwatt.accounting.agent import nvml
    from fairwatt.core import munge

    soak = Soak(clock, config, control, ticks)
    clock.on_leap = soak.leapt
    utilisation = nvml.NvmlSource.utilisation

    def counted(self: nvml.NvmlSource, devices: Any) -> Any:
        soak.ticked()
        return utilisation(self, devices)

    vars_of = {"utilisation": counted}
    for name, value in vars_of.items():
        setattr(nvml.NvmlSource, name, value)
    # munged is not part of what is weighed.
    munge.encode = lambda _payload, _socket: "none"
    agent.main(["0"])


if __name__ == "__main__":
    main(sys.argv[1:])
