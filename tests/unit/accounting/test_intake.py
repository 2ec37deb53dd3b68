# SPDX-License-Identifier: Apache-2.0
"""The inbox: bounds, whole bodies, groups, and when to come again."""

from __future__ import annotations

import threading

import pytest

from fairwatt.accounting import intake
from fairwatt.accounting.intake import Inbox
from fairwatt.accounting.store import open_store
from fairwatt.accounting.turns import TurnLock
from fairwatt.core.errors import BusyError, FairwattError, IngestError, StoreError
from tests.unit.accounting.samples import UTC, Node


@pytest.fixture
def db(tmp_path):
    return open_store(tmp_path / "a.db")


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def inbox_of(db, **changes):
    how = {"max_bodies": 3, "max_bytes": 1000, "clock": Clock(), **changes}
    return Inbox(db, TurnLock(), UTC, **how)


def windows(db):
    return db.execute("SELECT device_uuid, t0_ms FROM window ORDER BY 1, 2").fetchall()


def test_bodies_that_wait_are_written_together_each_whole_or_not_at_all(db):
    inbox, node = inbox_of(db), Node()
    good = inbox.put([node.window("GPU-a", 0, 5), node.window("GPU-b", 0, 5)], {})
    bad = inbox.put([node.window("GPU-c", 0, 5), node.window("GPU-a", 3, 8)], {})
    last = inbox.put([node.window("GPU-d", 0, 5)], {})
    before = db.conn.total_changes
    assert inbox.finish(last) == (1, 0)
    assert db.conn.total_changes > before
    assert inbox.finish(good) == (2, 0)
    with pytest.raises(IngestError, match=r"line 2: window .* overlaps"):
        inbox.finish(bad)
    assert windows(db) == [("GPU-a", 0), ("GPU-b", 0), ("GPU-d", 0)]
    assert (inbox.counts.bodies, inbox.counts.events) == (2, 3)


def test_one_that_we_cannot_digest_does_not_keep_out_the_others(db, monkeypatch):
    """A fault of ours in one body: its node comes again, those beside it are written."""
    inbox, node, real = inbox_of(db), Node(), intake.ingest_body

    def stumble(connection, events, users, zone):
        real(connection, events, users, zone)
        if events[0].device == "GPU-odd":
            raise ZeroDivisionError("odd")
        return len(events), 0

    monkeypatch.setattr(intake, "ingest_body", stumble)
    odd = inbox.put([node.window("GPU-odd", 0, 5)], {})
    good = inbox.put([node.window("GPU-a", 0, 5)], {})
    assert inbox.finish(good) == (1, 0)
    with pytest.raises(FairwattError, match="a fault of ours: ZeroDivisionError: odd") as caught:
        inbox.finish(odd)
    assert not isinstance(caught.value, IngestError)  # that would make the node set it aside
    assert windows(db) == [("GPU-a", 0)]


def test_savepoints_are_for_groups_with_a_body_that_cannot_be_taken(db):
    """SQLite copies each page that a savepoint's writes touch."""
    inbox, node, said = inbox_of(db), Node(), []
    db.conn.set_trace_callback(said.append)
    inbox.finish(inbox.put([node.window("GPU-a", 0, 5)], {}))
    assert [sql for sql in said if "SAVEPOINT" in sql] == []
    bad, good = (inbox.put([node.window(name, 3, 8)], {}) for name in ("GPU-a", "GPU-b"))
    assert inbox.finish(good) == (1, 0)
    assert isinstance(bad.result, IngestError)
    assert len([sql for sql in said if sql == "SAVEPOINT body"]) == 2
    assert windows(db) == [("GPU-a", 0), ("GPU-b", 3)]


def test_a_store_that_cannot_be_written_takes_none_of_them(db):
    inbox, node = inbox_of(db), Node()
    waiting = [inbox.put([node.window(f"GPU-{n}", 0, 5)], {}) for n in range(2)]
    db.execute("PRAGMA query_only = ON")
    for one in waiting:
        with pytest.raises(StoreError, match="readonly"):
            inbox.finish(one)
    db.execute("PRAGMA query_only = OFF")
    assert inbox.take([node.window("GPU-a", 0, 5)], {}) == (1, 0)


def test_a_group_is_bounded(db, monkeypatch):
    monkeypatch.setattr(intake, "GROUP_EVENTS", 3)
    inbox, node = inbox_of(db), Node()
    waiting = [
        inbox.put([node.window(f"GPU-{n}", t, t + 1) for t in range(2)], {}) for n in range(3)
    ]
    inbox.finish(waiting[0])
    assert [one.result for one in waiting] == [(2, 0), None, None]
    huge = inbox.put([node.window("GPU-h", t, t + 1) for t in range(9)], {})
    assert inbox.finish(huge) == (9, 0)  # alone, however large
    assert waiting[2].result == (2, 0)


def test_bodies_and_bytes_are_bounded_but_one_is_always_taken(db):
    inbox = inbox_of(db)
    with inbox.room(5000):
        assert inbox.load == (1, 5000)
        with pytest.raises(BusyError), inbox.room(1):
            pass
    assert inbox.load == (0, 0)
    with inbox.room(400), inbox.room(400):
        with pytest.raises(BusyError), inbox.room(201):
            pass
        with inbox.room(200), pytest.raises(BusyError), inbox.room(0):
            pass  # three bodies are at work
    assert inbox.load == (0, 0)
    assert (inbox.counts.busy, inbox.counts.largest_bytes) == (3, 5000)


def test_those_that_are_sent_away_come_again_one_after_the_other(db):
    """0.5 s a body, one is at work: the first may come in 1 s, each next 0.5 s later."""
    inbox = inbox_of(db, max_bodies=1)
    inbox._body_s = 0.5
    asked = []
    with inbox.room(1):
        for _ in range(6):
            with pytest.raises(BusyError) as caught, inbox.room(1):
                pass
            asked.append(caught.value.retry_after_s)
        assert asked == [1, 2, 2, 3, 3, 4]
        for _ in range(1000):
            with pytest.raises(BusyError) as caught, inbox.room(1):
                pass
    assert caught.value.retry_after_s == intake.LONGEST_RETRY_S
    assert caught.value.status == 429


def test_a_lock_that_is_taken_in_turn():
    """A loop that lets go and takes it again does not keep another thread out."""
    lock, order, waits = TurnLock(), [], threading.Event()

    def other():
        waits.set()
        with lock:
            order.append("other")

    thread = threading.Thread(target=other)
    with lock:
        thread.start()
        waits.wait(5)
        while not lock._waiting:
            pass
    with lock:
        order.append("again")
    thread.join(5)
    assert order == ["other", "again"]


def test_many_threads_are_all_taken(db):
    inbox = inbox_of(db, max_bodies=100, max_bytes=1 << 20)
    nodes = [Node(f"n{number}") for number in range(20)]
    results = []

    def deliver(node):
        for t in range(5):
            with inbox.room(10):
                results.append(inbox.take([node.window(f"GPU-{node.name}", t, t + 1)], {}))

    threads = [threading.Thread(target=deliver, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results == [(1, 0)] * 100
    assert len(windows(db)) == 100
