# SPDX-License-Identifier: Apache-2.0
"""1,000 nodes whose collector comes back: real spools, real munge, real HTTP, real collector.

64 connections at once stand for the thousand; each node has a journal of its own on disk, its own
Delivery with its own jitter, and waits as long as it is told to.
"""

from __future__ import annotations

import heapq
import os
import resource
import subprocess
import sys
import threading
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest

from fairwatt.accounting.agent.journal import Journal
from fairwatt.accounting.agent.records import Entry
from fairwatt.accounting.store import open_reader
from fairwatt.core import munge
from fairwatt.core.delivery import Delivery
from fairwatt.core.post import Answer, post_events
from tests.lab.munged import own_munged
from tests.lab.ports import PortBlock
from tests.lab.waiting import await_value
from tests.unit.accounting.samples import Node, share, whole

pytestmark = pytest.mark.lab

NODES = 1000
CONNECTIONS = 64
WINDOWS = 24
"""Two hours of one GPU, or a quarter of an hour of eight."""


@dataclass
class Spooled:
    """One node's agent, as far as it delivers."""

    number: int
    journal: Journal
    delivery: Delivery
    due_s: float = 0.0
    tries: int = 0
    busy: int = 0
    done_s: float | None = None

    def __lt__(self, other: Spooled) -> bool:
        return self.due_s < other.due_s


@pytest.fixture
def many_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def munge_socket(tmp_path):
    with own_munged(tmp_path) as socket:
        yield socket


@pytest.fixture
def nodes(tmp_path, many_files):
    made = [_spooled(tmp_path / f"n{number}", number) for number in range(NODES)]
    yield made
    for one in made:
        one.journal.close()


def _spooled(folder: Path, number: int) -> Spooled:
    folder.mkdir()
    journal, node, device = Journal(folder / "journal", first_seq=1), Node(f"n{number}"), (
        f"GPU-{number}"
    )  # fmt: skip
    events = [node.up(device), node.start(number + 1, 1000, whole(device))]
    for step in range(WINDOWS):
        part = share(number + 1, 1000, 100, 900 + step, 500)
        events.append(node.window(device, 1000 + 300 * step, 1300 + 300 * step, part, idle=7))
    with journal.synced_at_end():
        journal.append([Entry(event=event) for event in events])
    return Spooled(number, journal, Delivery(journal, folder / "refused"))


class Collector:
    """The real one, started and stopped."""

    def __init__(self, folder: Path, munge_socket: str) -> None:
        self._ports = PortBlock()
        port = self._ports.take()
        self.url = f"http://127.0.0.1:{port}"
        self.store = folder / "store.db"
        self._config = folder / "fairwatt.toml"
        self._config.write_text(
            f'[site]\ncluster = "c"\nmunge_socket = "{munge_socket}"\n'
            f'[collector]\nlisten = "127.0.0.1:{port}"\ndatabase = "{self.store}"\n'
            f"node_uids = [{os.geteuid()}]\nsync_s = 0\n"
        )
        self._log = folder / "collector.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Collector:
        program = Path(sys.executable).with_name("fairwatt")
        env = {**os.environ, "FAIRWATT_CONFIG": str(self._config)}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen([program, "collector"], env=env, stderr=log)
        await_value(self._answers, what="the collector", timeout_s=30)
        return self

    def _answers(self) -> bool:
        try:
            return bool(self._page())
        except OSError:
            return False

    def _page(self) -> str:
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as answer:
            return str(answer.read(), "utf-8")

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(30)
        self._ports.release()

    def metric(self, name: str) -> float:
        lines = self._page().splitlines()
        values = [line.split()[1] for line in lines if line.startswith(f"{name} ")]
        return float(values[0])

    def peak_mib(self) -> float:
        """The most memory that its worker has had."""
        assert self._process is not None
        pid = self._process.pid
        (worker,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        status = Path(f"/proc/{worker}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024


def deliver_all(nodes, url, munge_socket, *, until_s):
    """Let CONNECTIONS threads send for whichever node is due, until all are done."""
    heap = list(nodes)
    heapq.heapify(heap)
    guard, began = threading.Condition(), time.monotonic()
    left = [len(nodes)]

    def send(body: bytes) -> Answer:
        return post_events(url, body, lambda digest: munge.encode(digest, munge_socket))

    def next_due() -> Spooled | None:
        with guard:
            while left[0] and time.monotonic() - began < until_s:
                wait_s = heap[0].due_s - time.monotonic() if heap else 1.0
                if wait_s <= 0:
                    return heapq.heappop(heap)
                guard.wait(min(wait_s, 1.0))
            return None

    def work() -> None:
        while (one := next_due()) is not None:
            batch = one.delivery.next_batch()
            answer = send(batch.body)
            delay_s = one.delivery.answered(batch, answer)
            one.tries += 1
            one.busy += answer.status == 429
            with guard:
                if delay_s is None:
                    one.done_s = time.monotonic() - began
                    left[0] -= 1
                else:
                    one.due_s = time.monotonic() + delay_s
                    heapq.heappush(heap, one)
                guard.notify()

    threads = [threading.Thread(target=work) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.monotonic() - began


def test_a_thousand_nodes_come_back_at_once(tmp_path, nodes, munge_socket):
    collector = Collector(tmp_path, munge_socket)
    for one in nodes:  # the outage: each has tried once
        assert one.delivery.answered(one.delivery.next_batch(), Answer(0, "refused")) <= 2.0
    with collector:
        took_s = deliver_all(nodes, collector.url, munge_socket, until_s=240)
        peak_mib = collector.peak_mib()
        busy = collector.metric("fairwatt_collector_busy_total")
        assert collector.metric("fairwatt_collector_nodes") == NODES
        assert collector.metric("fairwatt_collector_duplicates_total") == 0
    assert [one.number for one in nodes if one.done_s is None] == []
    connection = open_reader(collector.store)
    (events, windows, measured) = connection.execute(
        "SELECT (SELECT count(*) FROM event), count(*), sum(measured_mj) FROM window"
    ).fetchone()
    per_node = sum(1000 + step + 7 for step in range(WINDOWS))
    assert (events, windows) == (NODES * (WINDOWS + 2), NODES * WINDOWS)
    assert measured == NODES * per_node
    connection.close()
    most = max(one.tries for one in nodes)
    print(
        f"{NODES} nodes, {CONNECTIONS} connections: {took_s:.1f} s, {busy:.0f} times asked to come"
        f" again, at most {most} tries of one node, {peak_mib:.0f} MiB"
    )
    assert sum(one.busy for one in nodes) == busy > 0  # it was too much, and it said so
    assert peak_mib < 200
    assert most <= 12
