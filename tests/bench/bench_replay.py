# SPDX-License-Identifier: Apache-2.0
"""What nodes measured in a day, into the collector: `make bench-replay`.

Without options 250 and 1,000 nodes for six hours, to compare; `--full` replays 1,000 nodes for 24
hours. A child invents the events (`replay_nodes.py`); this process is the collector: each body is
decoded, put into the inbox with those beside it and written; Slurm's runs are upserted every five
minutes of the replayed time; settling and rollup take turns with that as the collector's Repeater
lets them (to compare: every half hour, so that both do the same), and once more at the end. What
HTTP and munge cost is measured with a sample of 2,000 bodies (`--http`) over real connections into
the real collector.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from zoneinfo import ZoneInfo

from fairwatt.accounting.cycle import Site, pause_s, prepare_store, refresh, site_of
from fairwatt.accounting.decisions import users_of
from fairwatt.accounting.intake import Inbox
from fairwatt.accounting.runs import upsert_runs
from fairwatt.accounting.store import set_meta, transaction
from fairwatt.accounting.sync import _watermark
from fairwatt.accounting.turns import TurnLock
from fairwatt.core import config
from fairwatt.core.events import decode_body
from tests.bench.replay_http import measure_http
from tests.bench.replay_nodes import START_MS, TICK_MS, Tick, ticks

ZONE = ZoneInfo("Europe/Berlin")
TOGETHER = 24
"""Bodies written in one transaction: so many the collector has at work when more wait."""

EVERY = 6

GOAL_S = 600.0
GOAL_MB = 400.0
GOAL_RATIO = 4.4


@dataclass
class Figures:
    """What one replay took, in seconds of the collector's own time."""

    nodes: int
    hours: float
    bodies: int = 0
    events: int = 0
    spent_s: dict[str, float] = field(default_factory=dict)
    cpu_s: dict[str, float] = field(default_factory=dict)
    rounds: int = 0
    last_round_s: float = 0.0
    wall_s: float = 0.0
    rss_mb: float = 0.0
    store_mb: float = 0.0

    @property
    def busy_s(self) -> float:
        """Without waiting for the child."""
        return sum(self.spent_s.values())

    @property
    def core_s(self) -> float:
        """Processor time: what it would take on a core of its own, disk apart."""
        return sum(self.cpu_s.values())

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Add what is done inside."""
        began, began_cpu = time.perf_counter(), time.process_time()
        yield
        self.spent_s[what] = self.spent_s.get(what, 0.0) + time.perf_counter() - began
        self.cpu_s[what] = self.cpu_s.get(what, 0.0) + time.process_time() - began_cpu


def main() -> int:
    """Replay, print figures, return 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="1,000 nodes for 24 hours, once")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--hours", type=float, default=6.0)
    parser.add_argument("--http", type=int, default=2000, help="bodies of the sample; 0: none")
    options = parser.parse_args()
    if options.http:
        # In a process of its own: its memory is not the collector's of the replay.
        sample = multiprocessing.Process(target=_sample, args=(options.nodes, options.http))
        sample.start()
        sample.join()
        if sample.exitcode:
            return 1
    if options.full:
        return report(measure(options.nodes, 24.0, 0), None)
    small = measure(options.nodes // 4, options.hours, EVERY)
    return report(measure(options.nodes, options.hours, EVERY), small)


def _sample(nodes: int, count: int) -> None:
    with tempfile.TemporaryDirectory(prefix="fairwatt-replay-") as folder:
        print(measure_http(Path(folder), nodes, count), flush=True)


def measure(nodes: int, hours: float, every: int) -> Figures:
    """Replay in a process of its own, whose memory is then its own too."""
    here, there = multiprocessing.Pipe(duplex=False)
    job = multiprocessing.Process(target=_measure, args=(there, nodes, hours, every))
    job.start()
    there.close()
    try:
        figures: Figures = here.recv()
    except EOFError:
        sys.exit("bench-replay: the collector's process failed, see above")
    finally:
        job.join()
    parts = ", ".join(
        f"{what} {took_s:.1f} (core {figures.cpu_s[what]:.1f})"
        for what, took_s in figures.spent_s.items()
    )
    print(
        f"{nodes:,} nodes, {hours:g} h: {figures.bodies:,} bodies with {figures.events:,} events"
        f" in {figures.busy_s:.1f} s ({parts}; wall {figures.wall_s:.1f}),"
        f" {figures.rounds} rounds, the last {figures.last_round_s:.2f} s,"
        f" {figures.rss_mb:.0f} MB RSS, store {figures.store_mb:.0f} MB",
        flush=True,
    )
    return figures


def _measure(out: Connection, nodes: int, hours: float, every: int) -> None:
    with tempfile.TemporaryDirectory(prefix="fairwatt-replay-") as folder:
        out.send(replay(Path(folder) / "store.db", nodes, hours, every))


def replay(path: Path, nodes: int, hours: float, every: int = 0) -> Figures:
    """Replay into a new store; every mJ must have its owner at the end.

    `every`: ticks between two rounds; 0: as the Repeater would.
    """
    figures = Figures(nodes, hours)
    began = time.perf_counter()
    site = _site(path)
    with closing(prepare_store(site)) as db:
        inbox = Inbox(db, TurnLock(), ZONE, max_bodies=24, max_bytes=1 << 24)
        measured_mj, now_ts, due = 0, START_MS // 1000, 0.0
        for number, tick in enumerate(_from_child(nodes, hours), start=1):
            now_ts += TICK_MS // 1000
            measured_mj += tick.measured_mj
            _take(inbox, tick, figures)
            _sync(db, site, tick, now_ts, figures)
            if number % every == 0 if every else time.perf_counter() >= due:
                due = _round(db, site, figures)
        _round(db, site, figures)
        _check(db, measured_mj)
        db.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    figures.wall_s = time.perf_counter() - began
    figures.rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures.store_mb = path.stat().st_size / 1e6
    return figures


def _from_child(nodes: int, hours: float) -> Iterator[Tick]:
    here, there = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.Process(target=_invent, args=(there, nodes, hours), daemon=True)
    child.start()
    there.close()
    while (tick := here.recv()) is not None:
        yield tick
    child.join()


def _invent(out: Connection, nodes: int, hours: float) -> None:
    for tick in ticks(nodes, hours):
        out.send(tick)
    out.send(None)


def _take(inbox: Inbox, tick: Tick, figures: Figures) -> None:
    with figures.timed("ingest"):
        for first in range(0, len(tick.bodies), TOGETHER):
            group = []
            for body in tick.bodies[first : first + TOGETHER]:
                events = decode_body(body)
                group.append(inbox.put(events, users_of(events)))
            for waiting in group:
                assert inbox.finish(waiting)[1] == 0
    figures.bodies += len(tick.bodies)
    figures.events += tick.events


def _site(path: Path) -> Site:
    file = path.with_name("fairwatt.toml")
    file.write_text(
        f'[site]\ncluster = "campus"\ntimezone = "{ZONE.key}"\n[collector]\ndatabase = "{path}"\n'
    )
    return site_of(config.load(file))


def _sync(db, site: Site, tick: Tick, now_ts: int, figures: Figures) -> None:
    with figures.timed("sync"), transaction(db) as connection:
        upsert_runs(connection, tick.runs, site.catalogue, ZONE, now_ts)
        set_meta(connection, _watermark("campus"), str(now_ts))


def _round(db, site: Site, figures: Figures) -> float:
    """Settle and roll up; return when the collector would do so again at the earliest."""
    began = time.perf_counter()
    with figures.timed("rounds"):
        refresh(db, site)
    figures.last_round_s = time.perf_counter() - began
    figures.rounds += 1
    return time.perf_counter() + pause_s(figures.last_round_s)


def _check(db, measured_mj: int) -> None:
    """Nodes' own sum = windows = runs + unallocated, by run, by hour and by day, to the mJ."""
    sums = {
        name: db.execute(f"SELECT {what}").fetchone()[0]
        for name, what in {
            "windows": "sum(measured_mj) FROM window",
            "runs": "sum(idle_mj + active_mj) FROM run_energy",
            "hours": "sum(idle_mj + active_mj) FROM run_hour",
            "days": "sum(idle_mj + active_mj) FROM usage_daily",
            "nobody": "sum(unallocated_idle_mj + unallocated_active_mj) FROM window",
            "nobody's days": "sum(idle_mj + active_mj) FROM unallocated_daily",
        }.items()
    }
    assert sums["windows"] == measured_mj, (sums, measured_mj)
    assert sums["runs"] == sums["hours"] == sums["days"], sums
    assert sums["nobody"] == sums["nobody's days"], sums
    assert sums["runs"] + sums["nobody"] == measured_mj, (sums, measured_mj)


def report(large: Figures, small: Figures | None) -> int:
    """Print the last line."""
    missed = []
    if large.busy_s > GOAL_S:
        missed.append(f"{GOAL_S:g} s")
    if large.rss_mb > GOAL_MB:
        missed.append(f"{GOAL_MB:g} MB")
    beside = ""
    if small is not None:
        ratio = large.busy_s / small.busy_s
        beside = (
            f", {ratio:.2f} x the time and {large.core_s / small.core_s:.2f} x the processor time"
            f" of {small.nodes:,} nodes"
        )
        if ratio > GOAL_RATIO:
            missed.append(f"{GOAL_RATIO:g} x")
    print(
        f"bench-replay: {large.nodes:,} nodes x 8 GPUs x {large.hours:g} h in {large.busy_s:.0f}"
        f" s, {large.rss_mb:.0f} MB RSS, balance exact to the mJ{beside}"
        + (f"; missed: {', '.join(missed)}" if missed else "")
    )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
