# SPDX-License-Identifier: Apache-2.0
"""The health child for many days, on a clock that leaps over its waits.

The real worker with the real NVML binding on the fake library; only where it would wait for an
event, and none of its threads is at work, the clock is set forward instead. Run as a child:
`python -m tests.bench.node_health_soak SECONDS`, it prints one JSON line per mark.
"""

from __future__ import annotations

import json
import os
import queue
import resource
import sys
import time
from collections import deque
from contextlib import suppress
from typing import Any

from tests.bench.node_clock import LONGEST_WORK_S, LeapingClock
from tests.bench.node_memory import memory_kib

MARKS = 10


class Output:
    """Takes the verdicts and prints the figures at each mark; ends the worker after the last."""

    def __init__(self, seconds: float) -> None:
        begin_s = time.monotonic()
        self._begin_s, self._core_s = begin_s, _core_s()
        self._marks = deque(begin_s + seconds * (n + 1) / MARKS for n in range(MARKS))

    def write(self, verdict: bytes) -> None:
        """Look at the time with each verdict.

        Raises:
            BrokenPipeError: it is over.
        """
        now_s = time.monotonic()
        if now_s < self._marks[0]:
            return
        self._marks.popleft()
        known = json.loads(verdict)
        figures = {
            "rounds": known.get("rounds", 0),
            "state": known["state"],
            "virtual_s": now_s - self._begin_s,
            "cpu_s": _core_s() - self._core_s,
            **memory_kib("self"),
        }
        sys.stdout.write(json.dumps(figures) + "\n")
        sys.stdout.flush()
        if not self._marks:
            raise BrokenPipeError

    def flush(self) -> None:
        """Do nothing."""


def _core_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main(argv: list[str]) -> None:
    """Run the worker for so many seconds of its own time."""
    clock = LeapingClock()
    clock.install()
    from fairwatt.core import config
    from fairwatt.prolog.health import threads, worker
    from fairwatt.prolog.health.settings import health_settings

    runners: list[threads.Runner] = []

    class Events:
        """The worker's queue of events; a wait leaps."""

        def __init__(self) -> None:
            self._real: queue.SimpleQueue[Any] = queue.SimpleQueue()
            self.put = self._real.put

        def get(self, timeout: float) -> Any:
            with suppress(queue.Empty):
                at_work = any(runner.is_busy for runner in runners)
                return self._real.get(timeout=LONGEST_WORK_S if at_work else 0.0)
            clock.leapt_s += timeout
            raise queue.Empty

    class Runner(threads.Runner):
        """Is known here, so that nothing leaps while it works."""

        def __init__(self, name: str, events: Any) -> None:
            super().__init__(name, events)
            runners.append(self)

    class WorkerQueue:
        """Stands for the module `queue` in the worker's."""

        SimpleQueue = Events
        Empty = queue.Empty

    vars(worker).update(queue=WorkerQueue, Runner=Runner)
    lines, _parent = os.pipe()
    output: Any = Output(float(argv[0]))
    settings = health_settings(config.load(config.find()))
    with suppress(BrokenPipeError):
        worker.HealthWorker(settings, output, os.fdopen(lines, "rb")).run()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
