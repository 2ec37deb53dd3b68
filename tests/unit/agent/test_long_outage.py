# SPDX-License-Identifier: Apache-2.0
"""A collector that is away for a day, and for a week; the clock is the windows' own."""

from __future__ import annotations

import hashlib

import pytest

from fairwatt.accounting.agent import journal as journal_module
from fairwatt.accounting.agent.journal import Journal
from fairwatt.accounting.agent.records import Entry
from fairwatt.accounting.collector import CollectorSettings, create_app
from fairwatt.accounting.ingest import ingest
from fairwatt.accounting.runs import upsert_runs
from fairwatt.accounting.settle import settle
from fairwatt.accounting.store import open_store, transaction
from fairwatt.core import delivery as delivery_module
from fairwatt.core import munge
from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.delivery import LONGEST_DELAY_S, Delivery
from fairwatt.core.events import Flag
from fairwatt.core.post import Answer
from tests.unit.accounting.samples import UTC, Node, sacct_run, share, whole

DAY_TS = 1_770_681_600
STEP_MS = 300_000
JOB_S = 5 * 3600
BATCH_BYTES = 100_000
"""What is on its way is never thinned: here a twentieth of a week's, as it is of a full spool."""

SETTINGS = CollectorSettings(node_uids={0}, policyd_uids=set(), max_body_bytes=1 << 23)


@pytest.fixture(autouse=True)
def _credentials(monkeypatch):
    monkeypatch.setattr(munge, "decode", lambda cred, _: munge.Credential(cred.encode(), 0, 0))
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", 100_000)
    monkeypatch.setattr(delivery_module, "MAX_BYTES", BATCH_BYTES)


def life(days):
    """Two GPUs, a job of five hours on one after the other: yields events, 5 minutes at a time."""
    node, job, start_ms = Node(), 0, 0
    yield [node.up("GPU-a", "GPU-b", t_ms=1000 * DAY_TS)]
    for t0_ms in range(1000 * DAY_TS, 1000 * (DAY_TS + 86_400 * days), STEP_MS):
        events = []
        if (t0_ms // 1000 - DAY_TS) % JOB_S == 0:
            if job:
                events.append(node.end(job, start_ms, t0_ms))
            job, start_ms = job + 1, t0_ms
            events.append(node.start(job, start_ms, whole("GPU-a")))
        part = share(job, start_ms, 15_000_000, 60_000_000 + job, 800)
        events.append(node.window("GPU-a", t0_ms, t0_ms + STEP_MS, part))
        events.append(node.window("GPU-b", t0_ms, t0_ms + STEP_MS, idle=15_000_000))
        yield events


def runs(days):
    count = -(-days * 86_400 // JOB_S)
    for job in range(1, count + 1):
        start_ts = DAY_TS + (job - 1) * JOB_S
        end = "Unknown" if job == count else str(start_ts + JOB_S)
        yield sacct_run(
            JobIDRaw=str(job), JobID=str(job), Submit=str(start_ts), Eligible=str(start_ts),
            Start=str(start_ts), End=end, State="RUNNING" if job == count else "COMPLETED",
        )  # fmt: skip


def collector(path):
    db = open_store(path)
    client = create_app(db, SETTINGS).test_client()

    def send(body):
        sign = {"Authorization": "Munge " + hashlib.sha256(body).hexdigest()}
        done = client.post("/v1/events", data=body, headers=sign)
        return Answer(done.status_code, done.text)

    return db, send


def settled(db, days):
    with transaction(db) as connection:
        upsert_runs(connection, list(runs(days)), load_catalogue(), UTC, DAY_TS + days * 86_400)
    settle(db, "campus", UTC)
    return {
        table: db.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3").fetchall()
        for table in ("run_energy", "run_hour", "device_hour", "node_run")
    }


def flagless(tables):
    """Without flags, which say that windows were merged."""
    energy = [[*row[:-2], row[-2] & ~Flag.THINNED, row[-1]] for row in tables["run_energy"]]
    return {**tables, "run_energy": energy}


@pytest.mark.parametrize(("days", "max_bytes"), [(1, 0), (7, 0), (7, 700_000)])
def test_all_arrives_as_if_it_had_never_been_away(tmp_path, days, max_bytes):
    straight = open_store(tmp_path / "straight.db")
    journal = Journal(tmp_path / "journal", first_seq=1, max_bytes=max_bytes)
    delivery = Delivery(journal, tmp_path / "refused", jitter=lambda: 1.0)
    delays, told = [], []
    for round_, events in enumerate(life(days)):
        with journal.synced_at_end():
            journal.append([Entry(event=event) for event in events])
        journal.keep_room()
        if round_ % 12 == 0:  # tried once an hour here; the agent would every minute
            batch = delivery.next_batch()
            assert len(batch.body) <= BATCH_BYTES
            delays.append(delivery.answered(batch, Answer(0, "Connection refused")))
        told += events
    ingest(straight, told)
    assert delays[:6] == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0]
    assert max(delays) == LONGEST_DELAY_S
    db, send = collector(tmp_path / "late.db")
    sent = 0
    while (batch := delivery.next_batch()) is not None:
        assert send(batch.body).status == 200
        delivery.answered(batch, Answer(200, ""))
        sent += batch.count
    assert len(list((tmp_path / "journal").glob("*.journal"))) == 1
    assert not list(tmp_path.glob("refused/*"))
    assert sent + journal.merged_windows == len(told)
    assert bool(journal.merged_windows) == bool(max_bytes)
    journal.close()
    assert flagless(settled(db, days)) == flagless(settled(straight, days))
