# SPDX-License-Identifier: Apache-2.0
"""Merged windows: by hand, and that no mJ of any run on any device moves."""

from __future__ import annotations

import errno
import os
import random
from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairwatt.accounting.agent import journal as journal_module
from fairwatt.accounting.agent import spool_room
from fairwatt.accounting.agent.journal import Journal
from fairwatt.accounting.agent.records import Entry, Reading
from fairwatt.accounting.agent.thinning import DAY_MS, HOUR_MS, thinned
from fairwatt.accounting.ingest import ingest
from fairwatt.accounting.store import open_store
from fairwatt.core import line_file
from fairwatt.core.events import Flag, GpuMemory, RunEnded, RunStarted, WindowClosed, decode_body
from tests.unit.accounting.samples import Node, share, whole

STEP = 300_000


def entries_of(*events):
    return [Entry(event=event) for event in events]


def windows_of(entries):
    return [entry.event for entry in entries if isinstance(entry.event, WindowClosed)]


def test_two_windows_become_one_by_hand():
    """One third of 300 and two thirds of 900 thousandths are 700; 1,000 and 1,600 MHz 1,400."""
    node = Node()
    a = node.window("GPU-a", 0, 1000, share(7, 0, 1, 20, 300), idle=3, active=4, flags=16,
                    clock=1000)  # fmt: skip
    b = node.window("GPU-a", 1000, 3000, share(7, 0, 5, 60, 900), idle=7, active=8, clock=1600)
    a = msgspec.structs.replace(a, memory=(GpuMemory(instance="", max_mib=9, mean_mib=3),))
    b = msgspec.structs.replace(b, memory=(GpuMemory(instance="", max_mib=6, mean_mib=6),))
    (one,) = windows_of(thinned(entries_of(a, b), HOUR_MS, 0))
    assert (one.t0_ms, one.t1_ms, one.measured_mj, one.seq) == (0, 3000, 108, b.seq)
    assert (one.unallocated_idle_mj, one.unallocated_active_mj) == (10, 12)
    assert one.shares == (share(7, 0, 6, 80, 700),)
    assert one.flags == Flag.NO_UTIL | Flag.THINNED
    assert (one.clock_mhz, one.memory) == (1400, (GpuMemory(instance="", max_mib=9, mean_mib=5),))


def test_what_is_not_merged():
    node = Node()
    other_holder = [node.window("GPU-a", 0, 5, share(7, 0, 1, 1)), node.window("GPU-a", 5, 9)]
    hole = [node.window("GPU-b", 0, 5), node.window("GPU-b", 6, 9)]
    hour = [node.window("GPU-c", HOUR_MS - 5, HOUR_MS), node.window("GPU-c", HOUR_MS, HOUR_MS + 5)]
    unknown = [node.window("GPU-d", 0, 5, idle=None, active=None, measured=None),
               node.window("GPU-d", 5, 9)]  # fmt: skip
    method = [node.window("GPU-e", 0, 5), node.window("GPU-e", 5, 9, method="integrated")]
    entries = entries_of(*other_holder, *hole, *hour, *unknown, *method)
    assert thinned(entries, HOUR_MS, 0) == entries
    assert len(thinned(entries, DAY_MS, 0)) == len(entries) - 1  # the hour's edge alone


def test_nothing_is_merged_over_the_edge_of_a_run():
    """Two holes beside a run's start would reach into the run: they stay two."""
    node = Node()
    holes = [node.window("GPU-a", t, t + 5, idle=None, active=None, measured=None)
             for t in (0, 5, 10)]  # fmt: skip
    entries = entries_of(holes[0], holes[1], node.start(7, 10, whole("GPU-a")), holes[2])
    result = thinned(entries, HOUR_MS, 0)
    assert [(w.t0_ms, w.t1_ms) for w in windows_of(result)] == [(0, 10), (10, 15)]
    assert sum(isinstance(entry.event, RunStarted) for entry in result) == 1


def test_what_the_collector_may_have_stays_as_it_was():
    node = Node()
    entries = entries_of(*[node.window("GPU-a", t, t + 1) for t in range(6)])
    result = thinned(entries, HOUR_MS, entries[2].event.seq)
    assert result[:3] == entries[:3]
    assert [(w.t0_ms, w.t1_ms) for w in windows_of(result[3:])] == [(3, 6)]


def test_the_baseline_is_the_last_one_and_none_is_lost():
    node = Node()
    marks = [Reading(device="GPU-a", t_ms=t, energy_mj=t, method="counter", boot_id="b")
             for t in (5, 9)]  # fmt: skip
    a, b = (Entry(event=node.window("GPU-a", t, t + 5), reading=mark)
            for t, mark in zip((0, 5), marks, strict=True))  # fmt: skip
    assert [entry.reading for entry in thinned([a, b], HOUR_MS, 0)] == [marks[1]]
    bare = Entry(event=b.event)
    assert [entry.reading for entry in thinned([a, bare], HOUR_MS, 0)] == [marks[0], None]


def random_node(seed):
    """A node of two boards: runs on one, both or a slice; holes; windows of 5 minutes and odd."""
    rng = random.Random(seed)
    node, entries = Node(), []
    at = dict.fromkeys(("GPU-a", "GPU-b"), rng.randint(0, HOUR_MS))
    entries += entries_of(node.up(*at))
    for job in range(1, rng.randint(2, 5)):
        devices = rng.sample(sorted(at), rng.randint(1, 2))
        start_ms = max(at.values()) + rng.choice((0, 1, STEP))
        for device, t0_ms in list(at.items()):
            if t0_ms < start_ms:
                entries += entries_of(node.window(device, t0_ms, start_ms, idle=rng.randint(0, 9)))
            at[device] = start_ms
        entries += entries_of(node.start(job, start_ms, *map(whole, devices)))
        for _ in range(rng.randint(0, 30)):
            for device in at:
                t0_ms, at[device] = at[device], at[device] + rng.choice((STEP, STEP, 7, 999))
                entries += entries_of(_window(rng, node, device, t0_ms, at[device], job, start_ms,
                                              device in devices))  # fmt: skip
        entries += entries_of(node.end(job, start_ms, max(at.values())))
    return entries


def _window(rng, node, device, t0_ms, t1_ms, job, start_ms, held):
    if rng.random() < 0.1:
        return node.window(device, t0_ms, t1_ms, idle=None, active=None, measured=None, flags=32)
    parts = [share(job, start_ms, rng.randint(0, 10**7), rng.randint(0, 10**7),
                   rng.choice((None, 0, 500, 1000)))] if held else []  # fmt: skip
    return node.window(device, t0_ms, t1_ms, *parts, idle=rng.randint(0, 99),
                       active=rng.randint(0, 99), flags=rng.choice((0, 0, 8)))  # fmt: skip


def sums(entries):
    """mJ and measured ms by owner and device, idle and active apart; unknown ms by device."""
    total = Counter()
    for window in windows_of(entries):
        length_ms = window.t1_ms - window.t0_ms
        if window.measured_mj is None:
            total[window.device, "unknown"] += length_ms
            continue
        total[window.device, "measured"] += window.measured_mj
        total[window.device, "ms"] += length_ms
        total[window.device, "idle"] += window.unallocated_idle_mj
        total[window.device, "active"] += window.unallocated_active_mj
        for part in window.shares:
            total[window.device, part.job_id, "idle"] += part.idle_mj
            total[window.device, part.job_id, "active"] += part.active_mj
            total[window.device, part.job_id, "ms"] += length_ms
    return total


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from((HOUR_MS, DAY_MS)))
def test_no_mj_of_any_run_on_any_device_moves(seed, step_ms):
    entries = random_node(seed)
    after_seq = random.Random(seed).choice((0, 3, 40))
    result = thinned(entries, step_ms, after_seq)
    assert sums(result) == sums(entries)
    assert thinned(result, step_ms, after_seq) == result
    kept = [entry for entry in entries if not isinstance(entry.event, WindowClosed)]
    assert [entry for entry in result if not isinstance(entry.event, WindowClosed)] == kept
    numbers = [entry.event.seq for entry in result]
    assert numbers == sorted(set(numbers))
    for window in windows_of(result):
        parts = [window.unallocated_idle_mj, window.unallocated_active_mj]
        parts += [mj for part in window.shares for mj in (part.idle_mj, part.active_mj)]
        if window.measured_mj is not None:
            assert sum(parts) == window.measured_mj


def test_the_collector_takes_them_and_has_the_same_energies(tmp_path):
    entries = random_node(11)
    stores = []
    for name, those in (("plain", entries), ("thin", thinned(entries, HOUR_MS, 0))):
        db = open_store(tmp_path / f"{name}.db")
        ingest(db, [entry.event for entry in those])
        stores.append(db)
    for sql in (
        "SELECT job_id, device_uuid, hour_ts, sum(idle_mj), sum(active_mj), sum(measured_ms)"
        " FROM run_cell GROUP BY 1, 2, 3",
        "SELECT * FROM device_hour ORDER BY hour_ts, device_uuid",
        "SELECT * FROM node_run",
    ):
        plain, thin = (db.execute(sql).fetchall() for db in stores)
        assert plain == thin
    plain, thin = (db.execute("SELECT count(*) FROM window").fetchone()[0] for db in stores)
    assert thin < plain / 2


# -- the journal ----------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", 20_000)
    monkeypatch.setattr(spool_room, "RESERVE_BYTES", 30_000)


def fill(journal, hours, node=None):
    """One job, windows of 5 minutes; returns the events as they were appended."""
    node = node or Node()
    events = [node.up("GPU-a"), node.start(7, 0, whole("GPU-a"))]
    for t0_ms in range(0, hours * HOUR_MS, STEP):
        events.append(node.window("GPU-a", t0_ms, t0_ms + STEP, share(7, 0, t0_ms % 997, 12_345)))
    with journal.synced_at_end():
        for event in events:
            journal.append([Entry(event=event)])
    return events


def everything(journal):
    """All events, delivered to a collector that takes them in small batches."""
    events = []
    while batch := journal.pending(4096, 10):
        events += decode_body(batch.body)
        journal.confirm(batch.last_seq)
    return events


def keep(journal, times=200):
    for _ in range(times):
        journal.keep_room()


def test_a_journal_over_its_limit_is_thinned_oldest_first(tmp_path, small):
    journal = Journal(tmp_path, first_seq=1, max_bytes=100_000)
    events = fill(journal, 100)
    assert journal.size > 200_000
    journal.keep_room()
    first = len((tmp_path / "0000000001.journal").read_bytes())
    assert first < 20_000 / 5
    assert len((tmp_path / "0000000002.journal").read_bytes()) > 20_000 * 0.9
    keep(journal)
    assert journal.size <= 100_000
    newest = sorted(tmp_path.glob("*.journal"))[-2]
    assert newest.stat().st_size > 20_000 * 0.9  # what is not needed is left alone
    told = everything(journal)
    journal.close()
    assert sums(entries_of(*told)) == sums(entries_of(*events))
    assert next(e for e in told if isinstance(e, RunStarted)).job_id == 7
    assert 0 < journal.merged_windows == len(events) - len(told)


def test_then_days_are_merged_and_at_the_end_nothing_more(tmp_path, small, caplog):
    journal = Journal(tmp_path, first_seq=1, max_bytes=1)
    events = fill(journal, 100)
    keep(journal)
    told = everything(journal)
    journal.close()
    assert sums(entries_of(*told)) == sums(entries_of(*events))
    assert len(windows_of(entries_of(*told))) < 100
    assert len([r for r in caplog.records if "no windows are left to merge" in r.message]) == 1


def test_a_restart_in_between_changes_nothing(tmp_path, small):
    journal = Journal(tmp_path, first_seq=1, max_bytes=60_000)
    events = fill(journal, 60)
    for _ in range(3):
        journal.keep_room()
        state = journal.state
        journal.close()
        journal = Journal(tmp_path, first_seq=1, max_bytes=60_000)
        assert journal.state == state
    keep(journal)
    told = everything(journal)
    journal.close()
    assert sums(entries_of(*told)) == sums(entries_of(*events))


def test_what_is_on_its_way_is_not_touched_though_no_answer_came(tmp_path, small):
    """The collector has the batch, its answer was lost, the agent was killed: sent again as is."""
    journal = Journal(tmp_path, first_seq=1, max_bytes=1)
    fill(journal, 50)
    batch = journal.pending(30_000, 10_000)
    keep(journal)
    journal.close()
    again = Journal(tmp_path, first_seq=1, max_bytes=1)
    keep(again)
    resent = again.pending(len(batch.body), batch.count)
    again.close()
    assert resent.body == batch.body
    assert again.merged_windows == 0 or resent.last_seq == batch.last_seq


def test_a_full_disk_is_made_room_on(tmp_path, small, monkeypatch):
    """Nothing can be written beyond 120 kB, temporary files included; all is told in the end."""
    journal = Journal(tmp_path, first_seq=1)
    keep(journal, 1)
    assert (tmp_path / "reserve").stat().st_size == 30_000
    limit = 120_000

    def used():
        return sum(path.stat().st_size for path in tmp_path.iterdir())

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    real_write, real_atomic, real_allocate = os.write, spool_room.write_atomically, (
        os.posix_fallocate
    )  # fmt: skip

    def write(descriptor, data):
        return full() if used() + len(data) > limit else real_write(descriptor, data)

    def atomic(path, content, *rest, **how):
        return (
            full() if used() + len(content) > limit else real_atomic(path, content, *rest, **how)
        )

    def allocate(descriptor, start, length):
        return full() if used() + length > limit else real_allocate(descriptor, start, length)

    monkeypatch.setattr(line_file.os, "write", write)
    monkeypatch.setattr(spool_room, "write_atomically", atomic)
    monkeypatch.setattr(journal_module, "write_atomically", atomic)
    monkeypatch.setattr(os, "posix_fallocate", allocate)
    node, events = Node(), []
    failed = 0
    monkeypatch.setattr(line_file.os, "fdatasync", lambda _: None)
    events.append(node.start(7, 0, whole("GPU-a")))
    journal.append([Entry(event=events[0])])
    for t0_ms in range(0, 80 * HOUR_MS, STEP):
        event = node.window("GPU-a", t0_ms, t0_ms + STEP, share(7, 0, t0_ms % 997, 12_345))
        events.append(event)
        failed += not journal.append([Entry(event=event)])
        journal.keep_room()
    events.append(node.end(7, 0, 80 * HOUR_MS))
    journal.append([Entry(event=events[-1])])
    keep(journal)
    assert failed  # the disk was full, for a moment each time
    assert failed < 30
    assert not journal.failing
    assert used() <= limit
    told = everything(journal)
    journal.close()
    assert sums(entries_of(*told)) == sums(entries_of(*events))
    assert [type(e) for e in told if not isinstance(e, WindowClosed)] == [RunStarted, RunEnded]


def test_a_disk_that_is_full_for_a_day_takes_no_work_and_few_lines(tmp_path, small, monkeypatch,
                                                                    caplog):  # fmt: skip
    """Not even the smaller segments can be written; when they can, all is told."""
    journal = Journal(tmp_path, first_seq=1)
    events = fill(journal, 100)
    before, tries, disk_is_full = journal.size, [], [True]
    real_write, real_atomic = os.write, spool_room.write_atomically

    def refuse(real):
        def write(*args, **how):
            if disk_is_full[0]:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*args, **how)

        return write

    def thin(*args):
        tries.append(1)
        return thinned(*args)

    monkeypatch.setattr(line_file.os, "write", refuse(real_write))
    monkeypatch.setattr(spool_room, "write_atomically", refuse(real_atomic))
    monkeypatch.setattr(os, "posix_fallocate", refuse(os.posix_fallocate))
    monkeypatch.setattr(spool_room, "thinned", thin)
    last = Node().end(7, 0, 100 * HOUR_MS)
    last = msgspec.structs.replace(last, seq=journal.state.next_seq)
    assert not journal.append([Entry(event=last)])
    for _ in range(3_600):
        journal.retry()
        journal.keep_room()
    assert len(tries) < 100
    assert len(caplog.records) < 100
    disk_is_full[0] = False
    assert journal.retry()
    keep(journal)
    assert journal.size <= before + 200
    told = everything(journal)
    journal.close()
    assert sums(entries_of(*told)) == sums(entries_of(*events))
    assert told[-1] == last
