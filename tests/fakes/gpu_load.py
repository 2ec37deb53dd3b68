#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program that "uses" fake GPUs: raises their power for a while, then sets it back to idle.

It stands alone on the standard library, because job users run a copy of this one file. The few
functions that append to the control file are here for the same reason; `nvml_control` uses them.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

__all__ = ["STEP_MS", "append", "ceil_step", "frozen_ms", "main", "next_step"]

STEP_MS = 100
"""NVML's energy counter moves once in this many milliseconds."""
_RESTORE_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def next_step(now_ms: int) -> int:
    """Return the first step after now_ms: nothing that a reader saw until now can change there."""
    return (now_ms // STEP_MS + 1) * STEP_MS


def ceil_step(t_ms: int) -> int:
    """Return t_ms rounded up to a step."""
    return -(-t_ms // STEP_MS) * STEP_MS


def frozen_ms(text: str) -> int | None:
    """Return the time at which the file's last `clock` fact stops the clock, None if it runs."""
    value = "real"
    for line in text.splitlines():
        if line.startswith("clock "):
            value = line.split()[1]
    return None if value == "real" else int(value)


def append(path: Path, compose: Callable[[int], Sequence[str]]) -> None:
    """Append the facts that `compose(now_ms)` returns, in one write, under the file's lock.

    Readers take their time under the same lock, so that a fact's time is never in their past.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        text = path.read_text(encoding="utf-8")
        frozen = frozen_ms(text)
        lines = compose(time.time_ns() // 1_000_000 if frozen is None else frozen)
        torn = "\n" if text and not text.endswith("\n") else ""
        data = (torn + "".join(f"{line}\n" for line in lines)).encode()
        if os.write(descriptor, data) != len(data):
            raise OSError(f"{path}: short write; is the disk full?")
    finally:
        os.close(descriptor)


def _begin(uuids: Sequence[str], milliwatts: int, util: int, now_ms: int) -> list[str]:
    at_ms, pid = next_step(now_ms), os.getpid()
    return [
        line
        for uuid in uuids
        for line in (
            f"process {uuid} {pid} 1024 {util}",
            f"power {uuid} {at_ms} {milliwatts}",
            f"util {uuid} {at_ms} {util} {util // 2} {util} {util // 2} {util // 2}",
        )
    ]


def _end(uuids: Sequence[str], now_ms: int) -> list[str]:
    at_ms, pid = next_step(now_ms), os.getpid()
    return [
        line
        for uuid in uuids
        for line in (
            f"power {uuid} {at_ms} idle",
            f"util {uuid} {at_ms} 0 0 0 0 0",
            f"process-gone {uuid} {pid}",
        )
    ]


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def use(control: Path, uuids: Sequence[str], watts: float, seconds: float, util: int) -> None:
    """Hold the devices at so many watts and percent for so long; always set them back to idle.

    Watts are the whole board's for a GPU, and come on top of the board's for a MIG instance.
    """
    for number in _RESTORE_ON:
        signal.signal(number, _stop)
    try:
        append(control, lambda now_ms: _begin(uuids, round(watts * 1000), util, now_ms))
        time.sleep(seconds)
    finally:
        for number in _RESTORE_ON:
            signal.signal(number, signal.SIG_IGN)
        append(control, lambda now_ms: _end(uuids, now_ms))


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and use the devices; the exit status is 128 + N after signal N."""
    parser = argparse.ArgumentParser(description="Use fake GPUs or MIG instances for a while.")
    parser.add_argument("--control", type=Path, required=True, help="the fake's control file")
    parser.add_argument("--uuid", action="append", required=True, help="may be repeated")
    parser.add_argument("--watts", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--util", type=int, default=95, help="percent, 95 if not given")
    options = parser.parse_args(arguments)
    use(options.control, options.uuid, options.watts, options.seconds, options.util)
    return 0


if __name__ == "__main__":
    sys.exit(main())
