# SPDX-License-Identifier: Apache-2.0
"""Decisions on their way: nothing waits, nothing is lost but what is counted, nothing doubled."""

from __future__ import annotations

import errno
import logging
import os
import threading
import time

import pytest

from fairwatt.core.errors import SpoolError
from fairwatt.core.events import decode_body
from fairwatt.core.post import Answer
from fairwatt.slurm_plugins import decision_journal as module
from fairwatt.slurm_plugins.decision_event import Origin
from fairwatt.slurm_plugins.decision_journal import DecisionJournal
from fairwatt.slurm_plugins.decision_spool import DecisionSpool
from fairwatt.slurm_plugins.engine import Decision
from fairwatt.slurm_plugins.wire import Query
from tests.lab.waiting import await_value

MIB = 1 << 20


class Collector:
    """Answers with `status` and remembers what came with 200, as often as it came."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.ids: list[str] = []
        self.bodies = 0
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, body: bytes) -> Answer:
        self.gate.wait(10)
        self.bodies += 1
        if self.status == 200:
            self.ids += [event.id for event in decode_body(body)]
        return Answer(self.status, "")


@pytest.fixture
def collector():
    return Collector()


@pytest.fixture
def journal_at(monkeypatch, collector):
    """`journal_at(folder)` starts a journal that does everything at once."""
    monkeypatch.setattr(module, "WRITE_S", 0.01)
    monkeypatch.setattr(module, "SHIP_S", 0.0)
    made: list[DecisionJournal] = []

    def start(folder, max_bytes=MIB, send=None):
        origin = Origin("ctl", f"policyd-{len(made)}", "campus")
        journal = DecisionJournal(folder, max_bytes, origin, send or collector)
        journal.start()
        made.append(journal)
        return journal

    yield start
    collector.gate.set()
    for journal in made:
        journal.stop()


def offer(journal, *ids, text=""):
    for id_ in ids:
        query = Query(verb="submit", id=str(id_), job={"comment": text})
        journal.offer(query, Decision(), 5)


def wait_for(condition, what):
    await_value(condition, what=what, timeout_s=10)


def segments(folder):
    return sorted(folder.glob("*.journal"))


def test_what_is_offered_arrives_once_and_leaves_the_disk(tmp_path, journal_at, collector):
    journal = journal_at(tmp_path / "d")
    offer(journal, *range(50))
    wait_for(lambda: len(collector.ids) == 50, "50 decisions")
    offer(journal, 50)
    wait_for(lambda: len(collector.ids) == 51, "one more")
    assert collector.ids == [str(number) for number in range(51)]
    wait_for(lambda: not segments(tmp_path / "d"), "an empty folder")
    assert journal.dropped == 0
    assert (tmp_path / "d").stat().st_mode & 0o777 == 0o700


def test_an_absent_collector_is_waited_for_over_a_restart(tmp_path, journal_at, collector):
    collector.status = 0
    first = journal_at(tmp_path)
    offer(first, 1, 2)
    wait_for(lambda: segments(tmp_path) and collector.bodies, "a first try")
    offer(first, 3)
    first.stop()
    collector.status = 200
    offer(journal_at(tmp_path), 4)
    wait_for(lambda: len(collector.ids) == 4, "all decisions")
    assert sorted(collector.ids) == ["1", "2", "3", "4"]


def test_a_hung_collector_stops_no_writing(tmp_path, journal_at, collector):
    collector.gate.clear()
    journal = journal_at(tmp_path)
    offer(journal, 1)
    wait_for(lambda: segments(tmp_path), "the first segment")
    size = segments(tmp_path)[0].stat().st_size
    offer(journal, 2)
    wait_for(lambda: sum(f.stat().st_size for f in segments(tmp_path)) > size, "a second line")
    assert collector.ids == []


def test_a_decision_costs_the_answering_thread_next_to_nothing(tmp_path):
    """Five µs each is what slurmctld may be kept waiting for it; a median, as others run too."""
    journal = DecisionJournal(tmp_path, MIB, Origin("n", "b", "c"), Collector())
    query, decision = Query(verb="submit", id="1"), Decision()
    spans = []
    for _ in range(1000):
        began = time.perf_counter_ns()
        journal.offer(query, decision, 5)
        spans.append(time.perf_counter_ns() - began)
    assert sorted(spans)[500] < 5_000


def test_a_full_queue_drops_counts_and_says_so_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(module, "QUEUE_LENGTH", 3)
    journal = DecisionJournal(tmp_path / "d", MIB, Origin("n", "b", "c"), Collector())
    offer(journal, *range(5))
    assert journal.dropped == 2
    with caplog.at_level(logging.WARNING):
        journal._write_once()
        offer(journal, *range(5))
        journal._write_once()
    assert journal.dropped == 4
    assert [record.getMessage()[:34] for record in caplog.records] == [
        "2 decisions were not recorded, 0 w"
    ]
    journal._spool.close()


def test_a_full_disk_keeps_them_in_memory(tmp_path, monkeypatch, caplog):
    journal = DecisionJournal(tmp_path, MIB, Origin("n", "b", "c"), Collector())

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    offer(journal, 1)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(os, "write", full)
        journal._write_once()
        offer(journal, 2)
        journal._write_once()
    assert "No space left on device" in caplog.text
    assert len(caplog.records) == 1
    journal._write_once()
    journal._write_once()
    spool = journal._spool
    spool.turn()
    assert [event.id for event in decode_body(spool.pending(MIB, 100).body)] == ["1", "2"]
    journal._spool.close()


def test_the_folder_never_takes_more_than_its_limit(tmp_path, caplog):
    journal = DecisionJournal(tmp_path, 20_000, Origin("n", "b", "c"), Collector())
    with caplog.at_level(logging.WARNING):
        for number in range(40):
            offer(journal, number, text="x" * 1000)
            journal._write_once()
    assert 10_000 < sum(file.stat().st_size for file in segments(tmp_path)) <= 20_000
    assert "journal_max_mib" in caplog.text
    journal._spool.close()


def test_a_folder_that_cannot_be_used_is_tried_again(tmp_path, journal_at, collector, caplog):
    (tmp_path / "d").write_text("")
    with caplog.at_level(logging.WARNING):
        journal = journal_at(tmp_path / "d")
        offer(journal, 1)
        wait_for(lambda: "wait in memory" in caplog.text, "the warning")
    (tmp_path / "d").unlink()
    wait_for(lambda: collector.ids == ["1"], "the decision")


def test_what_cannot_be_encoded_is_counted_and_alone(tmp_path, journal_at, collector, caplog):
    journal = journal_at(tmp_path)
    with caplog.at_level(logging.ERROR):
        journal.offer(Query(verb="submit", id="\ud800"), Decision(), 1)
        offer(journal, 2)
        wait_for(lambda: collector.ids == ["2"], "the good one")
    assert journal.dropped == 1
    assert "cannot be recorded" in caplog.text


class TestSpool:
    def test_a_torn_line_is_set_aside(self, tmp_path):
        spool = DecisionSpool(tmp_path, MIB)
        spool.append([b"one", b"two"])
        spool.close()
        (segment,) = segments(tmp_path)
        segment.write_bytes(segment.read_bytes()[:-2])
        again = DecisionSpool(tmp_path, MIB)
        assert again.pending(MIB, 100).body == b"one\n"
        assert segment.with_suffix(".bad").exists()
        again.close()

    def test_batches_are_bounded_and_confirmed_piece_by_piece(self, tmp_path):
        spool = DecisionSpool(tmp_path, MIB)
        spool.append([b"1", b"2", b"3"])
        assert spool.pending(MIB, 100) is None  # still being written
        spool.turn()
        spool.append([b"4"])
        first = spool.pending(MIB, 2)
        assert (first.body, first.count) == (b"1\n2\n", 2)
        assert spool.pending(1, 100).body == b"1\n"
        spool.confirm(first.last_seq)
        rest = spool.pending(MIB, 100)
        assert rest.body == b"3\n"
        spool.confirm(rest.last_seq)
        assert len(segments(tmp_path)) == 1
        spool.turn()
        spool.confirm(spool.pending(MIB, 100).last_seq)
        assert segments(tmp_path) == []
        assert not spool.waiting
        spool.close()

    def test_two_policyds_cannot_share_a_folder(self, tmp_path):
        spool = DecisionSpool(tmp_path, MIB)
        with pytest.raises(SpoolError, match="another policyd writes its decisions there"):
            DecisionSpool(tmp_path, MIB)
        spool.close()
