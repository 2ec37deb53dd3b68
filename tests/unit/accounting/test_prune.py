# SPDX-License-Identifier: Apache-2.0
"""Old events become spans of numbers: a node that sends one again changes nothing."""

from __future__ import annotations

import random
from contextlib import closing

import pytest
import time_machine
from hypothesis import given, settings
from hypothesis import strategies as st

from fairwatt.accounting import prune as prune_module
from fairwatt.accounting.ingest import ingest
from fairwatt.accounting.integrity import check_store
from fairwatt.accounting.prune import SKEW_S, prune_events
from fairwatt.accounting.store import open_store, transaction
from fairwatt.core.errors import IngestError
from tests.unit.accounting.samples import BOOT, Node, decision, dump

DAY_S = 86_400
T0_S = 1_790_000_000


@pytest.fixture
def db(tmp_path):
    with closing(open_store(tmp_path / "a.db")) as store:
        yield store


def window(node: Node, number: int):
    t0_ms = (T0_S + 300 * number) * 1000
    return node.window("GPU-a", t0_ms, t0_ms + 300_000, idle=5)


def send(db, *events, at_s: int = T0_S) -> tuple[int, int]:
    with time_machine.travel(at_s, tick=False):
        return ingest(db, events)


def settled(db) -> None:
    with transaction(db) as connection:
        connection.execute("DELETE FROM unsettled")


def spans(db) -> list[tuple[object, ...]]:
    return db.execute(
        "SELECT node, first_seq, last_seq, until_ms, received_ts FROM event_span ORDER BY 1, 2"
    ).fetchall()


def left(db) -> list[int]:
    return [seq for (seq,) in db.execute("SELECT seq FROM event ORDER BY node, seq")]


def test_old_events_become_one_span_and_the_newest_and_starts_stay(db):
    """That an agent began explains a hole between windows to `fairwatt ledger verify`."""
    node = Node()
    send(db, node.up("GPU-a"), *(window(node, n) for n in range(4)))
    assert prune_events(db, T0_S) == 0
    assert prune_events(db, T0_S + 1) == 3
    assert spans(db) == [("gpu01", 2, 4, (T0_S + SKEW_S) * 1000, T0_S)]
    assert left(db) == [1, 5]
    assert db.execute("SELECT count(*) FROM window").fetchone() == (4,)


def test_what_came_since_joins_the_span(db):
    node = Node()
    send(db, window(node, 0), window(node, 1), window(node, 2))
    prune_events(db, T0_S + 1)
    send(db, window(node, 3), window(node, 4), at_s=T0_S + 5)
    assert prune_events(db, T0_S + 1) == 1
    assert prune_events(db, T0_S + 6) == 1
    assert [row[1:3] for row in spans(db)] == [(1, 4)]
    assert spans(db)[0][4] == T0_S + 5


def test_a_number_that_never_came_is_not_in_a_span(db):
    """The node's journal thins series when its disk is full; what is late is still taken."""
    node = Node()
    events = [window(node, n) for n in range(6)]
    late = events.pop(2)
    send(db, *events)
    prune_events(db, T0_S + 1)
    assert [row[1:3] for row in spans(db)] == [(1, 2), (4, 5)]
    assert send(db, late) == (1, 0)
    prune_events(db, T0_S + 1)
    assert [row[1:3] for row in spans(db)] == [(1, 3), (4, 5)]


def test_replay_of_pruned_events_is_harmless(db, tmp_path):
    node = Node()
    events = [node.up("GPU-a"), *(window(node, n) for n in range(5))]
    send(db, *events)
    prune_events(db, T0_S + 1)
    before = dump(db)
    assert send(db, *reversed(events), at_s=T0_S + 3 * DAY_S) == (0, 6)
    assert dump(db) == before
    assert check_store(tmp_path / "a.db") == []


def test_a_node_that_counts_anew_is_told_and_nothing_of_it_is_lost_silently(db):
    """Its journal was deleted: the same boot, numbers from 1 again, but days later."""
    node = Node()
    send(db, *(window(node, n) for n in range(5)))
    prune_events(db, T0_S + 1)
    node.seq = 0
    later = (T0_S + SKEW_S) * 1000 + 1
    again = node.window("GPU-a", later, later + 300_000, idle=5)
    with pytest.raises(IngestError, match=r"gpu01 sent another event .*seq 1 of boot boot-1"):
        send(db, again, at_s=T0_S + 2 * DAY_S)


def test_decisions_and_unsettled_nodes_stay(db):
    node = Node()
    send(
        db, decision(1), decision(2), node.start(7, T0_S * 1000), window(node, 1), window(node, 2)
    )
    assert prune_events(db, T0_S + 1) == 0
    settled(db)
    assert prune_events(db, T0_S + 1) == 2
    assert db.execute("SELECT kind, count(*) FROM event GROUP BY 1").fetchall() == [
        ("decision", 2), ("window_closed", 1),
    ]  # fmt: skip


def test_a_boot_that_is_over_keeps_its_last_event(db):
    node, other = Node(), Node("gpu02")
    send(db, window(node, 0), window(node, 1), other.up("GPU-b"))
    prune_events(db, T0_S + 1)
    assert left(db) == [2, 1]
    assert db.execute("SELECT DISTINCT boot_id FROM event").fetchall() == [(BOOT,)]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), lost=st.sets(st.integers(0, 29)), batch=st.integers(1, 9))
def test_any_order_with_pruning_between_equals_no_pruning(tmp_path_factory, seed, lost, batch):
    """Events in any order, twice, some never: the ledger is that of a store never pruned."""
    folder = tmp_path_factory.mktemp("prune")
    node, choice = Node(), random.Random(seed)
    events = [window(node, n) for n in range(30)]
    order = [event for n, event in enumerate(events) if n not in lost] * 2
    choice.shuffle(order)
    with (
        closing(open_store(folder / "a.db")) as pruned,
        closing(open_store(folder / "b.db")) as whole,
    ):
        limit = prune_module.BATCH
        prune_module.BATCH = batch
        try:
            for event in order:
                assert send(pruned, event) == send(whole, event)
                if choice.random() < 0.3:
                    prune_events(pruned, T0_S + 1)
        finally:
            prune_module.BATCH = limit
        without = ("meta", "event", "event_span", "_sqlite_migrations")
        assert dump(pruned, without=without) == dump(whole, without=without)
        known = set(left(pruned)) | {
            seq for _, first, last, *_ in spans(pruned) for seq in range(first, last + 1)
        }
        assert known == set(left(whole))
    assert check_store(folder / "a.db") == []
