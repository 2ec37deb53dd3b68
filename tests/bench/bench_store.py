# SPDX-License-Identifier: Apache-2.0
"""What it takes to keep a store of a million runs: backup beside a writer, check, restore, export.

The runs are those of bench_import, with rollups; beside the backup a writer commits all the time.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from zoneinfo import ZoneInfo

from fairwatt.accounting.archive import archive_windows
from fairwatt.accounting.backup import back_up
from fairwatt.accounting.import_file import import_file
from fairwatt.accounting.integrity import check_store
from fairwatt.accounting.parquet import export_month
from fairwatt.accounting.restore import restore
from fairwatt.accounting.rollup import rollup
from fairwatt.accounting.store import open_reader, open_store, set_meta, transaction
from fairwatt.core.catalogue import load_catalogue
from tests.bench.sacct_dump import invented_rows, write_export
from tests.unit.accounting.samples import new_store

ROWS = 1_000_000
WINDOWS = 200_000
ZONE = ZoneInfo("Europe/Berlin")
NOW_TS = 1_800_000_000


def main() -> int:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    count = parser.parse_args().rows
    with TemporaryDirectory(prefix="fw-bench-") as name:
        report(Path(name), count)
    return 0


def report(folder: Path, count: int) -> None:
    """Make the store, then time each thing once."""
    path = make(folder, count)
    size_mb = path.stat().st_size / 1e6
    print(f"store of {count:,} runs with rollups: {size_mb:.0f} MB")
    (folder / "backups").mkdir()
    beside = Writer(path)
    with beside:
        done = back_up(path, folder / "backups", keep_days=1, now_ts=NOW_TS)
    print(
        f"backup, checked: {done.took_s:.1f} s, {done.size / 1e6:.0f} MB; {len(beside.took_s)}"
        f" commits beside it, median {1000 * median(beside.took_s):.2f} ms, longest"
        f" {1000 * max(beside.took_s):.0f} ms"
    )
    checked_s = timed(lambda: expect(check_store(path) == []))
    quick_s = timed(lambda: expect(check_store(path, quick=True) == []))
    print(f"check: {checked_s:.1f} s, --quick {quick_s:.1f} s")
    month, month_s, month_mb = export(path, folder / "parquet")
    print(f"export of {month}: {month_s:.1f} s, {month_mb:.1f} MB of Parquet")
    restored_s = timed(lambda: restore(path, done.path, NOW_TS))
    print(f"restore: {restored_s:.1f} s")
    moved, moved_s = move(path)
    print(f"windows moved: {moved:,} in {moved_s:.1f} s, {moved / moved_s:,.0f} a second")
    print(
        f"bench-store: backup of {size_mb:.0f} MB in {done.took_s:.1f} s, longest commit beside it"
        f" {1000 * max(beside.took_s):.0f} ms; check {checked_s:.1f} s; restore {restored_s:.1f} s"
    )


def make(folder: Path, count: int) -> Path:
    """A store with runs and rollups."""
    write_export(invented_rows(count), folder / "export.txt")
    with closing(new_store(folder)) as db:
        import_file(db, str(folder / "export.txt"), cluster="campus", catalogue=load_catalogue(),
                    zone=ZONE, now_ts=NOW_TS)  # fmt: skip
        rollup(db, "campus", ZONE, "DEU", NOW_TS)
        db.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (folder / "export.txt").unlink()
    return folder / "store.db"


class Writer:
    """Commits a row every 10 ms and keeps how long each commit took."""

    def __init__(self, path: Path) -> None:
        self.took_s: list[float] = []
        self._path = path
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        with closing(open_store(self._path)) as db:
            while not self._end.wait(0.01):
                began = time.perf_counter()
                with transaction(db) as connection:
                    set_meta(connection, "bench", str(began))
                self.took_s.append(time.perf_counter() - began)


def export(path: Path, folder: Path) -> tuple[str, float, float]:
    """The fullest month: its name, seconds, MB."""
    with closing(open_reader(path)) as db:
        (month,) = db.execute(
            "SELECT month FROM usage_monthly GROUP BY 1 ORDER BY sum(runs_ended) DESC LIMIT 1"
        ).fetchone()
        took_s = timed(lambda: export_month(db, month, folder, zone=ZONE))
    size = sum(file.stat().st_size for file in folder.rglob("*.parquet"))
    return month, took_s, size / 1e6


def move(path: Path) -> tuple[int, float]:
    """Windows of 5 minutes of 200 devices, with a share each, moved to their month's file."""
    with closing(open_store(path)) as db:
        with transaction(db) as connection:
            rows = [(f"GPU-{n % 200:08}", n // 200 * 300_000) for n in range(WINDOWS)]
            connection.executemany(
                "INSERT INTO window (device_uuid, t0_ms, t1_ms, node, measured_mj,"
                " unallocated_idle_mj, unallocated_active_mj, flags, method)"
                " VALUES (?1, ?2, ?2 + 300000, 'node0001', 60000000, 0, 0, 0, 'counter')",
                rows,
            )
            connection.executemany(
                "INSERT INTO window_share (device_uuid, t0_ms, node, job_id, run_start_ms,"
                " instance_uuid, idle_mj, active_mj) VALUES (?, ?, 'node0001', 7, 0, '', 1, 2)",
                rows,
            )
        began = time.perf_counter()
        moved = archive_windows(db, 2**50)
        return moved, time.perf_counter() - began


def timed(step) -> float:
    """Seconds of wall time."""
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def expect(is_so: bool) -> None:
    """Stop the bench where a store is not sound."""
    assert is_so


if __name__ == "__main__":
    sys.exit(main())
