# SPDX-License-Identifier: Apache-2.0
"""policyd alone with the facts of a large site: time of a decision, of a round trip, memory.

The real daemon, its real socket; only Slurm is replaced, by a file that a child prints. While
requests come one after the other the facts change once a second. Beside it a server that sends
back what it gets shows what the socket and Python's wake-up cost by themselves.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory

import msgspec

from fairwatt.core.unix_socket import ask_line
from fairwatt.slurm_plugins.facts import encode
from fairwatt.slurm_plugins.lineserver import LineServer
from fairwatt.slurm_plugins.site import Facts
from tests.bench.policy import every_rule
from tests.bench.requests import jobs, wire_line
from tests.bench.sites import BenchSite
from tests.lab.waiting import await_value

MEMO_ENTRIES = 4096
WARM = 200
CHANGE_S = 1.0


@dataclass(frozen=True)
class Figures:
    """What one run gave: round trips in µs, policyd's own answer to a ping, its memory."""

    times_us: list[float]
    pong: dict[str, int]
    rss_mib: float
    peak_mib: float

    def percentile_us(self, percent: int) -> float:
        """Round trip within which so many per cent ended."""
        return quantiles(self.times_us, n=100)[percent - 1]


@contextmanager
def policyd(folder: Path, facts: Facts, memo_entries: int) -> Iterator[tuple[int, Path]]:
    """A running policyd that knows these facts: its pid and its socket."""
    path = folder / "p.sock"
    (folder / "facts.json").write_text(encode(facts))
    config = folder / "fairwatt.toml"
    config.write_text(
        f'[policyd]\nsocket = "{path}"\nrefresh_s = 1\nmemo_entries = {memo_entries}\n'
        f'policy_file = "{folder}/policy.toml"\njournal_dir = "{folder}/journal"\n'
    )
    (folder / "policy.toml").write_text(every_rule())
    argv = [sys.executable, "-m", "tests.bench.policyd_of_file"]
    process = subprocess.Popen([*argv, str(folder / "facts.json"), str(config)])
    try:
        await_value(lambda: _ping(path).get("nodes"), what="policyd's facts", timeout_s=30)
        yield process.pid, path
    finally:
        process.terminate()
        process.wait(10)


def run(facts: Facts, lines: Sequence[bytes], memo_entries: int, *, changing: bool) -> Figures:
    """Ask policyd all these; with `changing` its facts change every second."""
    with (
        TemporaryDirectory(prefix="fw-bench-") as name,
        policyd(Path(name), facts, memo_entries) as (pid, path),
        _changed(Path(name) / "facts.json", facts, on=changing),
    ):
        times_us = ask(path, lines)
        return Figures(times_us, _ping(path), *_memory_mib(pid))


def ask(path: Path, lines: Sequence[bytes]) -> list[float]:
    """Send each line when the last one is answered; return the round trips in µs."""
    times_us = []
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(path))
        for line in lines:
            start_ns = time.perf_counter_ns()
            peer.sendall(line)
            while not peer.recv(1 << 16).endswith(b"\n"):
                pass
            times_us.append((time.perf_counter_ns() - start_ns) / 1000)
    return times_us[WARM:]


def echo_times(lines: Sequence[bytes]) -> list[float]:
    """The same round trips with a server that sends each line back."""
    with TemporaryDirectory(prefix="fw-bench-") as name:
        server = LineServer(Path(name) / "echo.sock", lambda line: line + b"\n")
        child = os.fork()
        if child == 0:
            server.serve()
            os._exit(0)
        try:
            return ask(server.path, lines)
        finally:
            os.kill(child, 9)
            os.waitpid(child, 0)


@contextmanager
def _changed(path: Path, facts: Facts, *, on: bool) -> Iterator[None]:
    """Replace the facts by others and back, every second, while inside."""
    ending = threading.Event()
    fewer = msgspec.structs.replace(facts, nodes=facts.nodes[:-1])
    texts = [encode(fewer), encode(facts)]

    def change() -> None:
        while not ending.wait(CHANGE_S):
            texts.reverse()
            new = path.with_suffix(".new")
            new.write_text(texts[0])
            new.rename(path)

    thread = threading.Thread(target=change)
    if on:
        thread.start()
    yield
    ending.set()
    if on:
        thread.join()


def _ping(path: Path) -> dict[str, int]:
    try:
        answer: dict[str, int] = json.loads(ask_line(path, b'{"verb":"ping"}\n', 5.0))
    except OSError:
        return {}
    return answer


def _memory_mib(pid: int) -> tuple[float, float]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    kib = {
        name: int(rest.split()[0])
        for name, _, rest in (x.partition(":") for x in lines)
        if name in ("VmRSS", "VmHWM")
    }
    return kib["VmRSS"] / 1024, kib["VmHWM"] / 1024


def table(rows: dict[str, Figures], log: Callable[[str], None]) -> None:
    """Print all figures."""
    log(f"{'':<22}{'decision µs':>14}{'round trip µs':>22}{'memo':>7}{'RSS MiB':>14}")
    log(
        f"{'':<22}{'p50':>7}{'p99':>7}{'p50':>7}{'p99':>7}{'max':>8}{'hits':>7}{'now':>7}{'peak':>7}"
    )
    for name, got in rows.items():
        pong, trips = got.pong, [got.percentile_us(50), got.percentile_us(99), max(got.times_us)]
        log(
            f"{name:<22}{pong['p50_us']:>7}{pong['p99_us']:>7}"
            f"{trips[0]:>7.0f}{trips[1]:>7.0f}{trips[2]:>8.0f}"
            f"{pong['memo_hits'] / pong['judged']:>7.0%}{got.rss_mib:>7.1f}{got.peak_mib:>7.1f}"
        )


def main() -> int:
    """Print a table and the line that CI reads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=200)
    parser.add_argument("--requests", type=int, default=20_000)
    asked = parser.parse_args()
    facts = BenchSite(asked.nodes, asked.partitions).facts()
    lines = [wire_line(job, serial) for serial, job in enumerate(jobs(asked.requests, needs=True))]
    echo = quantiles(echo_times(lines), n=100)
    print(
        f"{asked.nodes} nodes, {asked.partitions} partitions, {len(lines)} requests of which "
        f"{len({line.partition(b'verb')[2] for line in lines})} differ"
    )
    print(f"an echo server's round trip: p50 {echo[49]:.0f} µs, p99 {echo[98]:.0f} µs")
    rows = {
        "memo": run(facts, lines, MEMO_ENTRIES, changing=False),
        "memo, facts change": run(facts, lines, MEMO_ENTRIES, changing=True),
        "no memo": run(facts, lines, 0, changing=False),
    }
    table(rows, print)
    worst = max(got.pong["p99_us"] for got in rows.values())
    peak = max(got.peak_mib for got in rows.values())
    print(f"bench-policyd: p99_us={worst} peak_mib={peak:.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
