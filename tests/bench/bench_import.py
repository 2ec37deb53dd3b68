# SPDX-License-Identifier: Apache-2.0
"""A million runs from an export of sacct into the store, beside slurm2sql from PyPI.

Both get the same runs from a file, one after the other on this host: slurm2sql through a `sacct`
on its PATH that prints the columns it asks for, which is how it works on a cluster; we through
`import_file`, which is `fairwatt import sacct`. slurm2sql goes into a virtual environment of its
own in the bench's folder.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from zoneinfo import ZoneInfo

from fairwatt.accounting.carbon.factors import load_factors
from fairwatt.accounting.import_file import FileImport, import_file
from fairwatt.accounting.rollup import rollup
from fairwatt.accounting.store import open_store, transaction
from fairwatt.core.catalogue import load_catalogue
from tests.bench.sacct_dump import invented_rows, write_export, write_raw
from tests.unit.carbon.stored import store_factors, store_pue

ROWS = 1_000_000
AGAIN = 20_000
GOAL_TIMES, GOAL_AGAIN_S, GOAL_MB = 5.0, 2.0, 180.0
ZONE = ZoneInfo("Europe/Berlin")
NOW_TS = 1_800_000_000
COLUMNS = (
    "import json, slurm2sql as s; "
    "print(json.dumps([c for c in [*s.COLUMNS, *s.COLUMNS_EXTRA] if not c.startswith('_')]))"
)


@dataclass(frozen=True)
class Took:
    """Wall and CPU seconds of something, and how many rows it was for."""

    rows: int
    wall_s: float
    cpu_s: float

    def __str__(self) -> str:
        rate = f"{self.rows / self.wall_s:,.0f} rows/s"
        return f"{self.wall_s:.1f} s, {self.cpu_s:.1f} s of CPU, {rate}"

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.rows / self.wall_s


def main() -> int:
    """Run the bench; exit status 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    count = parser.parse_args().rows
    with TemporaryDirectory(prefix="fw-bench-") as name:
        folder = Path(name)
        columns = install_slurm2sql(folder)
        make_dumps(folder, count, columns)
        theirs = run_slurm2sql(folder, count) if columns else None
        return report(folder, count, theirs)


def install_slurm2sql(folder: Path) -> list[str]:
    """Install it apart; return the columns it asks sacct for, [] where it is not to be had."""
    venv.create(folder / "venv", with_pip=True)
    python = str(folder / "venv/bin/python")
    argv = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "slurm2sql"]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        print(f"slurm2sql cannot be installed: {done.stderr.strip().splitlines()[-1:]}")
        return []
    version = subprocess.run([python, "-m", "pip", "show", "slurm2sql"], capture_output=True,
                             text=True).stdout.splitlines()[1]  # fmt: skip
    print(f"slurm2sql {version}")
    return json.loads(subprocess.check_output([python, "-c", COLUMNS]))


def make_dumps(folder: Path, count: int, columns: list[str]) -> None:
    """Write the same runs for both, at once."""
    began = time.perf_counter()
    jobs = [multiprocessing.Process(target=_export, args=(count, folder / "export.txt"))]
    if columns:
        args = (count, folder / "raw.txt", columns)
        jobs.append(multiprocessing.Process(target=_raw, args=args))
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
        assert job.exitcode == 0
    sizes = [path.stat().st_size / 1e6 for path in sorted(folder.glob("*.txt"))]
    print(f"{count:,} rows made in {time.perf_counter() - began:.0f} s, MB: {sizes}")


def _export(count: int, path: Path) -> None:
    write_export(invented_rows(count), path)


def _raw(count: int, path: Path, columns: list[str]) -> None:
    write_raw(invented_rows(count), path, columns)


def run_slurm2sql(folder: Path, count: int) -> Took:
    """Its own import of all of them, as its manual says, allocations only."""
    fake = folder / "bin/sacct"
    fake.parent.mkdir()
    fake.write_text(f"#!/bin/sh\nexec cat {folder}/raw.txt\n")
    fake.chmod(0o755)
    argv = [str(folder / "venv/bin/slurm2sql"), str(folder / "theirs.db"), "-q", "-u"]
    env = {**os.environ, "TZ": "UTC", "PATH": f"{fake.parent}:{os.environ['PATH']}"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    with (folder / "theirs.log").open("w") as log:
        subprocess.run([*argv, "--jobs-only", "-a"], env=env, stdout=log, stderr=log)
    wall_s = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = Took(count, wall_s, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    last = (folder / "theirs.log").read_text().splitlines()[-1:]
    size_mb = (folder / "theirs.db").stat().st_size / count
    print(f"slurm2sql: {took}, {size_mb:.0f} MB per M rows; it says {last}")
    return took


def timed(rows: int, step: Callable[[], object]) -> Took:
    """Do something once."""
    wall, cpu = time.perf_counter(), time.process_time()
    step()
    return Took(rows, time.perf_counter() - wall, time.process_time() - cpu)


def report(folder: Path, count: int, theirs: Took | None) -> int:
    """Import, roll up, import a part again; print figures and the last line."""
    path = folder / "ours.db"
    with closing(open_store(path)) as db:
        with transaction(db) as connection:
            store_factors(connection, load_factors())
            store_pue(connection, 1.2, 0)
        ours = timed(count, lambda: _expect(_import(db, folder / "export.txt"), count, count))
        print(f"fairwatt:  {ours}")
        rolled = timed(count, lambda: rollup(db, "campus", ZONE, "DEU", NOW_TS))
        print(f"rollups:   {rolled}")
        part = folder / "part.txt"
        with (folder / "export.txt").open(newline="\n") as whole:
            part.write_text("".join(islice(whole, AGAIN + 1)), newline="\n")
        again = timed(AGAIN, lambda: _expect(_import(db, part), None, 0))
        print(f"again:     {again}")
        db.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    size_mb = path.stat().st_size / count
    times = ours.rate / theirs.rate if theirs else None
    beside = (
        f"{times:.1f} x slurm2sql ({theirs.rate:,.0f})"
        if times and theirs
        else "slurm2sql not to be had"
    )
    missed = [
        name
        for name, is_met in (
            (f"{GOAL_TIMES:g} x", times is None or times >= GOAL_TIMES),
            (f"{GOAL_AGAIN_S:g} s", again.wall_s < GOAL_AGAIN_S),
            (f"{GOAL_MB:g} MB", size_mb <= GOAL_MB),
        )
        if not is_met
    ]
    print(
        f"bench-import: {ours.rate:,.0f} rows/s, {beside}; {AGAIN:,} runs again in"
        f" {again.wall_s:.2f} s; {size_mb:.0f} MB per million runs with indexes and rollups"
        + (f"; missed: {', '.join(missed)}" if missed else "")
    )
    return 1 if missed else 0


def _import(db, path: Path) -> FileImport:
    return import_file(
        db, str(path), cluster="campus", catalogue=load_catalogue(), zone=ZONE, now_ts=NOW_TS
    )


def _expect(done: FileImport, seen: int | None, changed: int) -> None:
    assert (done.rejected, done.changed) == (0, changed), done
    assert seen is None or done.seen == seen, done


if __name__ == "__main__":
    sys.exit(main())
