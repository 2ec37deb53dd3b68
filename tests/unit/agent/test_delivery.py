# SPDX-License-Identifier: Apache-2.0
"""Delivery to a collector over real HTTP: forgets after 200 only, sets aside what is refused."""

from __future__ import annotations

import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairwatt.accounting.agent.journal import Journal
from fairwatt.accounting.agent.records import Entry
from fairwatt.core.delivery import LONGEST_DELAY_S, Delivery
from fairwatt.core.errors import AuthError
from fairwatt.core.events import RunEnded, decode_body
from fairwatt.core.post import Answer, post_events


class Collector(http.server.ThreadingHTTPServer):
    """Accepts bodies without a poisoned job id; `status` overrules."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.jobs: list[int] = []
        self.status: int | None = None
        self.poison: set[int] = set()
        self.credentials: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        jobs = [event.job_id for event in decode_body(body)]
        credential = self.headers["Authorization"]
        self.server.credentials.append(credential)
        status = self.server.status or (400 if self.server.poison & set(jobs) else 200)
        if credential != f"Munge signed:{hashlib.sha256(body).hexdigest()}":
            status = 403
        if status == 200:
            self.server.jobs += jobs
        self.send_response(status)
        self.end_headers()
        self.wfile.write(b'{"error": "line 1: no"}')

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path / "journal", first_seq=1)
    journal.append([ended(number) for number in range(1, 9)])
    yield journal
    journal.close()


def ended(job_id: int) -> Entry:
    return Entry(
        event=RunEnded(
            node="n1",
            boot_id="b",
            seq=0,
            t_ms=2,
            job_id=job_id,
            run_start_ms=1,
            closed_by="epilog",
        )
    )


def sign(digest: bytes) -> str:
    return f"signed:{digest.decode()}"


def deliver(delivery: Delivery, url: str, tries: int = 40) -> float | None:
    """Send until there is nothing left or the delivery wants to wait."""
    delay: float | None = None
    for _ in range(tries):
        batch = delivery.next_batch()
        if batch is None:
            return None
        delay = delivery.answered(batch, post_events(url, batch.body, sign))
        if delay is None or delay > 0:
            return delay
    raise AssertionError("delivery goes round in circles")


def test_all_is_delivered_once_with_a_credential_for_the_body(
    journal, collector, tmp_path
) -> None:
    assert deliver(Delivery(journal, tmp_path / "refused"), collector.url) is None
    assert collector.jobs == [1, 2, 3, 4, 5, 6, 7, 8]
    assert journal.pending(1000, 10) is None


def test_one_poisoned_event_is_set_aside_and_the_rest_arrives(
    journal, collector, tmp_path, caplog
) -> None:
    collector.poison = {5}
    assert deliver(Delivery(journal, tmp_path / "refused"), collector.url) is None
    assert collector.jobs == [1, 2, 3, 4, 6, 7, 8]
    (aside,) = (tmp_path / "refused").iterdir()
    assert [event.job_id for event in decode_body(aside.read_bytes())] == [5]
    assert "refused an event (400" in caplog.text


@pytest.mark.parametrize("status", [403, 404, 500, 503])
def test_other_answers_keep_the_events_and_wait(journal, collector, tmp_path, status) -> None:
    collector.status = status
    delivery = Delivery(journal, tmp_path / "refused", jitter=lambda: 1.0)
    assert deliver(delivery, collector.url) == 2.0
    assert deliver(delivery, collector.url) == 4.0
    assert not delivery.healthy
    collector.status = None
    assert deliver(delivery, collector.url) is None
    assert delivery.healthy
    assert len(collector.jobs) == 8


def test_an_absent_collector_is_asked_ever_more_rarely(journal, tmp_path, caplog) -> None:
    delivery = Delivery(journal, tmp_path / "refused", jitter=lambda: 0.0)
    batch = delivery.next_batch()
    delays = [delivery.answered(batch, Answer(0, "Connection refused")) for _ in range(9)]
    assert delays == [1, 2, 4, 8, 16, 30, 30, 30, 30]
    assert max(delays) * 2 == LONGEST_DELAY_S
    assert len(caplog.records) == 1
    assert delivery.next_batch() == batch


def test_a_busy_collector_is_asked_again_when_it_says_and_not_by_all_at_once(
    journal, tmp_path
) -> None:
    """Never before the time that it gives, and half as long after it at the latest."""
    for jitter, delays in ((0.0, [7.0, 7.0, 600.0]), (1.0, [10.5, 10.5, 900.0])):
        delivery = Delivery(journal, tmp_path / "refused", jitter=lambda value=jitter: value)
        batch = delivery.next_batch()
        asked = [Answer(429, "", 7), Answer(503, "", 7), Answer(429, "", 86_400)]
        assert [delivery.answered(batch, answer) for answer in asked] == delays
        assert not delivery.healthy
        assert delivery.next_batch() == batch


def test_faults_of_ours_become_an_answer(collector) -> None:
    def no_munge(_: bytes) -> str:
        raise AuthError("munged does not answer")

    assert post_events(collector.url, b"", no_munge).status == 0
    assert "munged" in post_events(collector.url, b"", no_munge).text
    assert post_events("http://127.0.0.1:1", b"", sign, timeout_s=1).status == 0
    assert "agent.collector_url" in post_events("ftp://x", b"", sign).text
