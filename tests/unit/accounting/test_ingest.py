# SPDX-License-Identifier: Apache-2.0
"""Events into the store: each once, a body whole or not at all."""

from __future__ import annotations

import msgspec
import pytest

from fairwatt.accounting.ingest import ingest
from fairwatt.accounting.settle import settle
from fairwatt.accounting.store import open_store
from fairwatt.core.errors import IngestError
from tests.unit.accounting.samples import BERLIN, Node, decision, dump, share, whole


@pytest.fixture
def db(tmp_path):
    return open_store(tmp_path / "a.db")


def body(node: Node):
    return [
        node.up("GPU-a", "GPU-b"),
        node.start(7, 1000, whole("GPU-a")),
        node.window("GPU-a", 1000, 5000, share(7, 1000, 100, 900), idle=3, active=4),
        node.window("GPU-b", 1000, 5000, idle=240),
        node.end(7, 1000, 5000),
    ]


def test_a_body_is_stored_once(db):
    events = body(Node())
    assert ingest(db, events) == (5, 0)
    before = dump(db)
    assert ingest(db, events) == (0, 5)
    assert dump(db) == before


def test_what_is_stored(db):
    ingest(db, body(Node()))
    assert list(db.query("SELECT job_id, start_ms, end_ms, closed_by FROM node_run")) == [
        {"job_id": 7, "start_ms": 1000, "end_ms": 5000, "closed_by": "epilog"}
    ]
    assert db.execute("SELECT count(*) FROM device").fetchone() == (2,)
    assert db.execute("SELECT sum(s.idle_mj + s.active_mj) FROM window_share s").fetchone() == (
        1000,
    )
    assert db.execute("SELECT measured_mj FROM window ORDER BY device_uuid").fetchall() == [
        (1007,),
        (240,),
    ]
    assert db.execute("SELECT hour_ts FROM dirty_hour").fetchall() == [(0,)]


def test_parts_of_a_body_may_overlap_with_the_last_one(db):
    events = body(Node())
    ingest(db, events[:3])
    assert ingest(db, events) == (2, 3)


def test_the_end_may_come_before_the_start(db):
    first, second = body(Node()), Node()
    start, end = first[1], first[4]
    ingest(db, [end])
    ingest(db, [start])
    assert second.seq == 0
    assert db.execute("SELECT start_ms, end_ms, mapped_by FROM node_run").fetchall() == [
        (1000, 5000, "minor")
    ]


def test_another_event_under_a_used_number_is_refused(db):
    node = Node()
    up = node.up("GPU-a")
    ingest(db, [up])
    other = msgspec.structs.replace(up, version="2")
    with pytest.raises(IngestError, match=r"line 1: node gpu01 sent another event.*seq 1 of boot"):
        ingest(db, [other])


def refused(db, match, *events):
    before = dump(db)
    with pytest.raises(IngestError, match=match) as caught:
        ingest(db, events)
    assert caught.value.status == 400
    assert dump(db) == before


def test_a_window_that_does_not_conserve_refuses_the_whole_body(db):
    node = Node()
    refused(
        db,
        r"line 2: shares \+ unallocated = 1007 mJ, measured 1008 mJ \(got 'GPU-a from 1000'\)",
        node.up("GPU-a"),
        node.window(
            "GPU-a", 1000, 2000, share(7, 1000, 100, 900), idle=3, active=4, measured=1008
        ),
    )


def test_windows_of_one_device_may_touch_but_not_overlap(db):
    node = Node()
    ingest(db, [node.window("GPU-a", 1000, 2000), node.window("GPU-a", 2000, 3000)])
    refused(db, r"line 1: window \[1500, 1600\) overlaps \[1000, 2000\)",
            node.window("GPU-a", 1500, 1600))  # fmt: skip
    refused(db, "overlaps", node.window("GPU-a", 500, 1001))
    refused(db, "overlaps", node.window("GPU-a", 0, 9000))
    refused(db, "line 2: .*overlaps", node.window("GPU-b", 0, 10), node.window("GPU-b", 9, 20))
    assert ingest(db, [node.window("GPU-a", 500, 1000), node.window("GPU-c", 1500, 1600)])[0] == 2


def test_other_nonsense_is_refused(db):
    node = Node()
    refused(db, "without length", node.window("GPU-a", 5, 5))
    refused(db, "negative", node.window("GPU-a", 0, 5, share(7, 0, -1, 2)))
    refused(db, "missing", node.window("GPU-a", 0, 5, idle=None, measured=0))
    refused(db, "unknown energy has parts", node.window("GPU-a", 0, 5, measured=None))
    refused(db, "ends before it starts", node.end(7, 1000, 999))
    refused(db, "too large", node.window("GPU-a", 0, 5, idle=2**63))
    refused(db, "cannot be stored", node.window("GPU-a", 0, 5, flags=2**63))


def test_an_unknown_window_is_kept_as_unknown(db):
    node = Node()
    ingest(db, [node.window("GPU-a", 0, 5, idle=None, active=None, measured=None, flags=34)])
    assert db.execute("SELECT measured_mj, flags FROM window").fetchall() == [(None, 34)]


def test_a_device_remembers_the_newest_facts(db):
    node = Node()
    new, old = node.up("GPU-a", model="new", t_ms=9), node.up("GPU-a", model="old", t_ms=5)
    ingest(db, [new, old])
    assert db.execute("SELECT model, seen_ms FROM device").fetchall() == [("new", 9)]


@pytest.mark.parametrize("t_ms", [-1, 4_102_444_800_001, 2**62, 2**63 - 1])
def test_a_wild_clock_is_refused_before_it_reaches_a_calendar(db, t_ms):
    node = Node()
    wild = r"no time at which this can have been .*set the node's clock"
    refused(db, wild, node.window("GPU-a", min(t_ms, 0), max(t_ms, 1)))
    refused(db, wild, node.start(7, t_ms))
    refused(db, wild, node.end(7, min(t_ms, 0), max(t_ms, 1)))
    refused(db, wild, node.up("GPU-a", t_ms=t_ms))


def test_a_window_of_more_than_a_year_is_refused(db):
    day_ms, node = 86_400_000, Node()
    ingest(db, [node.window("GPU-a", 0, 366 * day_ms)])
    refused(db, "a window of more than a year", node.window("GPU-b", 0, 366 * day_ms + 1))


def test_the_last_moment_that_is_taken_can_be_settled(db):
    node = Node()
    ingest(db, [node.window("GPU-a", 4_102_444_799_000, 4_102_444_800_000)])
    assert settle(db, "campus", BERLIN) == 0


def test_a_decision_is_stored_once_with_its_users_name(db):
    events = [decision(1), decision(2, uid=5, accepted=False)]
    assert ingest(db, events, {1000: "ada"}) == (2, 0)
    before = dump(db)
    assert ingest(db, events, {1000: "ada"}) == (0, 2)
    assert dump(db) == before
    rows = list(db.query("SELECT id, user, account, accepted, notes, took_us FROM decision"))
    notes = '[["memory_fit","enforce","FW101","because"]]'
    assert rows == [
        {"id": "id-1", "user": "ada", "account": "qcd", "accepted": 1, "notes": notes,
         "took_us": 40},
        {"id": "id-2", "user": None, "account": "qcd", "accepted": 0, "notes": notes,
         "took_us": 40},
    ]  # fmt: skip


def test_a_decision_of_no_time_is_refused(db):
    refused(db, "no time at which", decision(1, t_ms=-1))
