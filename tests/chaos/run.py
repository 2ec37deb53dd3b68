# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.chaos.run POINTS [SEED]`: kills the parts at random points, compares stores.

Ends with status 1 if a store differs from the undisturbed one, does not verify,
or a part never came to its end. The seed makes the same rounds again.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

STEPS_SOURCE = Path(__file__).with_name("steps.c")
KILLS = 5
SCRIPTS = 5
"""Of so many rounds each the script is the same."""
WORKERS = 2
SHOWN = 12


@dataclass
class Result:
    """What the rounds came to."""

    seed: int
    rounds: int = 0
    deaths: int = 0
    faults: list[str] = field(default_factory=list)


def build(folder: Path) -> Path:
    """Compile what counts the steps; returns the library to preload."""
    library = folder / "steps.so"
    flags = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-fPIC", "-shared")
    subprocess.run(
        ["gcc", *flags, "-o", str(library), str(STEPS_SOURCE), "-ldl"], check=True, timeout=60
    )
    return library


def main(argv: list[str]) -> int:
    """Start the workers with the library preloaded, or be one of them."""
    points = int(argv[0])
    seed = int(argv[1]) if len(argv) > 1 and argv[1] else random.SystemRandom().randrange(10**6)
    if "CHAOS_WORKER" in os.environ:
        from tests.chaos.rounds import worker

        print(json.dumps(asdict(worker(points, seed))))
        return 0
    print(f"chaos: {points} points, seed {seed}", flush=True)
    began = time.monotonic()
    with _scratch() as folder:
        results = _workers(build(folder), points, seed, folder)
    total = Result(seed)
    for one in results:
        total.rounds += one.rounds
        total.deaths += one.deaths
        total.faults += one.faults
    for fault in total.faults[:SHOWN]:
        print(fault)
    took_s = time.monotonic() - began
    print(
        f"chaos: {total.deaths} deaths in {total.rounds} rounds, {len(total.faults)} faults, "
        f"{took_s:.0f} s, seed {seed}"
    )
    return 1 if total.faults or total.deaths < points else 0


def _workers(library: Path, points: int, seed: int, folder: Path) -> list[Result]:
    """Each draws its own rounds: what one does depends on the seed and its number alone."""
    running = []
    for number in range(WORKERS):
        share = points // WORKERS + (number < points % WORKERS)
        own = str(seed * WORKERS + number)
        command = [sys.executable, "-m", "tests.chaos.run", str(share), own]
        env = {**os.environ, "LD_PRELOAD": str(library), "CHAOS_WORKER": str(folder)}
        running.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True))
    said = [process.communicate()[0] for process in running]
    for process, out in zip(running, said, strict=True):
        if process.returncode:
            raise SystemExit(f"a worker ended with status {process.returncode}: {out}")
    return [Result(**json.loads(out.splitlines()[-1])) for out in said]


@contextmanager
def _scratch() -> Iterator[Path]:
    """In memory where there is such a place: a kill does not lose what the system has."""
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="fairwatt-chaos-", dir=place))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
