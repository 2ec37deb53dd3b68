# SPDX-License-Identifier: Apache-2.0
"""A sample of the replay over real HTTP with real munge into the real collector process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path

from fairwatt.accounting.store import open_reader
from fairwatt.core import munge
from fairwatt.core.post import post_events
from tests.bench.replay_nodes import ticks
from tests.lab.munged import own_munged
from tests.lab.ports import PortBlock
from tests.lab.waiting import await_value

__all__ = ["measure_http"]

CONNECTIONS = 16


def measure_http(folder: Path, nodes: int, count: int) -> str:
    """Deliver the first `count` bodies; return figures in words.

    Raises:
        AssertionError: not all was taken, or not once.
    """
    sample = [tick for tick in islice(ticks(nodes, 2.0), 24) if tick.bodies]
    bodies = [body for tick in sample for body in tick.bodies][:count]
    events = sum(body.count(b"\n") for body in bodies)
    with own_munged(folder) as socket, _collector(folder, socket) as (url, store, process):
        began, busy = time.perf_counter(), _deliver(url, socket, bodies)
        took_s = time.perf_counter() - began
        core_s = _core_s(process)
    with closing(open_reader(store)) as db:
        assert db.execute("SELECT count(*) FROM event").fetchone() == (events,)
    return (
        f"over HTTP with munge: {len(bodies):,} bodies with {events:,} events in {took_s:.1f} s by"
        f" {CONNECTIONS} connections ({took_s / len(bodies) * 1000:.2f} ms a body, {core_s:.1f} s"
        f" of the collector's processor time, settling included; {busy} times asked to come again)"
    )


def _deliver(url: str, socket: str, bodies: Sequence[bytes]) -> int:
    queue, guard, busy = iter(bodies), threading.Lock(), [0]

    def work() -> None:
        while True:
            with guard:
                body = next(queue, None)
            if body is None:
                return
            while True:
                answer = post_events(url, body, lambda digest: munge.encode(digest, socket))
                if answer.status == 200:
                    break
                assert answer.status in (429, 503), answer
                busy[0] += 1
                time.sleep(answer.retry_after_s or 1)

    threads = [threading.Thread(target=work) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return busy[0]


@contextmanager
def _collector(folder: Path, socket: str) -> Iterator[tuple[str, Path, int]]:
    ports = PortBlock()
    port, store, config = ports.take(), folder / "http.db", folder / "http.toml"
    config.write_text(
        f'[site]\ncluster = "campus"\nmunge_socket = "{socket}"\n[collector]\nsync_s = 0\n'
        f'listen = "127.0.0.1:{port}"\ndatabase = "{store}"\nnode_uids = [{os.geteuid()}]\n'
    )
    url = f"http://127.0.0.1:{port}"
    argv = [str(Path(sys.executable).with_name("fairwatt")), "collector"]
    with subprocess.Popen(argv, env={**os.environ, "FAIRWATT_CONFIG": str(config)}) as process:
        try:
            await_value(lambda: _answers(url), what="the collector", timeout_s=60)
            yield url, store, process.pid
        finally:
            process.terminate()
            process.wait(30)
            ports.release()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/healthz", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def _core_s(pid: int) -> float:
    """Processor time of a process's children, from /proc."""
    total = 0.0
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total
