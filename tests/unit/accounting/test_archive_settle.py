# SPDX-License-Identifier: Apache-2.0
"""Runs whose windows were moved to month files settle as if nothing had been moved."""

from __future__ import annotations

import random
from contextlib import closing

import pytest
import time_machine
from hypothesis import given, settings
from hypothesis import strategies as st

from fairwatt.accounting.archive import archive_windows, drop_months
from fairwatt.accounting.ingest import ingest
from fairwatt.accounting.prune import prune_events
from fairwatt.accounting.rollup import rollup
from fairwatt.accounting.runs import upsert_runs
from fairwatt.accounting.settle import settle
from fairwatt.accounting.store import transaction
from fairwatt.accounting.verify import span_of, verify
from fairwatt.accounting.windows import WindowSources, month_path
from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.errors import IngestError
from fairwatt.core.events import Flag
from tests.unit.accounting.samples import BERLIN, Node, dump, new_store, sacct_run, share, whole
from tests.unit.accounting.window_rows import windows_in

CATALOGUE = load_catalogue()
T0_S = 1_788_210_000  # 2026-08-31 21:00 UTC: the first run reaches into September
DAY_S = 86_400
MOVED = ("window", "window_share", "window_month", "event", "event_span", "meta",
         "_sqlite_migrations", "carbon_version")  # fmt: skip


def story(choice: random.Random) -> tuple[list[object], list[object]]:
    """What a node told of six runs in three months, and what Slurm says of them, late."""
    node = Node()
    events: list[object] = [node.up("GPU-a", "GPU-b", t_ms=T0_S * 1000)]
    runs = []
    for number in range(6):
        start_s = T0_S + number * 14 * DAY_S + choice.randrange(3600)
        events += run_of(node, number + 1, start_s * 1000, choice)
        ends_s = start_s + 4 * 5400
        runs.append(
            sacct_run(
                JobIDRaw=str(number + 1), JobID=str(number + 1), Submit=str(start_s - 60),
                Eligible=str(start_s - 60), Start=str(start_s), End=str(ends_s),
                ElapsedRaw=str(ends_s - start_s),
                AllocTRES="cpu=4,mem=4G,gres/gpu=2,gres/gpu:a100=2",
            )
        )  # fmt: skip
    return events, runs


def run_of(node: Node, job: int, start_ms: int, choice: random.Random) -> list[object]:
    """Four windows of 90 min on two GPUs, some of unknown energy, some with clocks."""
    events: list[object] = [node.start(job, start_ms, whole("GPU-a"), whole("GPU-b"))]
    for step in range(4):
        t0_ms, t1_ms = start_ms + step * 5_400_000, start_ms + (step + 1) * 5_400_000
        for device in ("GPU-a", "GPU-b"):
            if choice.random() < 0.2:
                events.append(node.window(device, t0_ms, t1_ms, measured=None, idle=None,
                                          active=None, flags=Flag.GAP))  # fmt: skip
                continue
            part = share(job, start_ms, choice.randrange(10**6), choice.randrange(10**6),
                         choice.choice([None, 300, 900]))  # fmt: skip
            facts = {"idle": choice.randrange(99), "clock": choice.choice([None, 1400])}
            events.append(node.window(device, t0_ms, t1_ms, part, flags=Flag.GAP, **facts))
    return [*events, node.end(job, start_ms, start_ms + 4 * 5_400_000)]


def tell(db, runs) -> None:
    with transaction(db) as connection:
        upsert_runs(connection, runs, CATALOGUE, BERLIN, T0_S + 200 * DAY_S)


def refresh(db) -> None:
    settle(db, "campus", BERLIN)
    rollup(db, "campus", BERLIN, "DEU", T0_S + 200 * DAY_S)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), early=st.sets(st.integers(0, 5)), cuts=st.lists(
    st.integers(0, 120), min_size=1, max_size=4))  # fmt: skip
def test_energy_never_changes_by_moving(tmp_path_factory, seed, early, cuts):
    """Some runs are told in time, some after their windows were moved, all are told again."""
    choice = random.Random(seed)
    events, runs = story(choice)
    stores = []
    for _ in range(2):
        stores.append(new_store(tmp_path_factory.mktemp("archive")))
    moving, still = stores
    with closing(moving), closing(still):
        for db in stores:
            with time_machine.travel(T0_S, tick=False):
                ingest(db, events, zone=BERLIN)
            tell(db, [run for n, run in enumerate(runs) if n in early])
            refresh(db)
        for cut in cuts:
            archive_windows(moving, (T0_S + cut * DAY_S) * 1000)
            prune_events(moving, T0_S + 1)
            assert dump(moving, without=MOVED) == dump(still, without=MOVED)
        for db in stores:
            tell(db, runs)
            for run in runs:
                with transaction(db) as connection:
                    connection.execute(
                        "INSERT OR REPLACE INTO unsettled (node, job_id, start_ms, from_ms)"
                        " SELECT node, job_id, start_ms, 0 FROM node_run WHERE job_id = ?",
                        (run.job_id,),
                    )
            refresh(db)
        assert dump(moving, without=MOVED) == dump(still, without=MOVED)
        with WindowSources(moving.conn) as sources:
            everywhere = sources.rows(0, 2**62, windows_in)
        assert sorted(everywhere, key=repr) == sorted(windows_in(still.conn), key=repr)


@pytest.fixture
def told(tmp_path):
    """All six runs, settled, all windows but the last months' moved."""
    events, runs = story(random.Random(1))
    with closing(new_store(tmp_path)) as db:
        ingest(db, events, zone=BERLIN)
        tell(db, runs)
        refresh(db)
        archive_windows(db, (T0_S + 60 * DAY_S) * 1000)
        yield db, events, runs


def test_late_news_of_a_run_whose_windows_are_gone_change_nothing(told):
    db, _, runs = told
    before = dump(db, without=MOVED)
    assert drop_months(db, (T0_S + 50 * DAY_S) * 1000, 5) == ["2026-08", "2026-09"]
    tell(db, runs)
    with transaction(db) as connection:
        connection.execute(
            "INSERT INTO unsettled (node, job_id, start_ms, from_ms)"
            " SELECT node, job_id, start_ms, 0 FROM node_run"
        )
    refresh(db)
    assert dump(db, without=MOVED) == before


def test_the_ledger_verifies_before_and_after_moving_and_dropping(told, tmp_path):
    db, _, _ = told
    assert faults(tmp_path) == []
    with transaction(db) as connection, WindowSources(db.conn) as sources:
        # As after a crash: a window is in the store and in its month's file.
        (_, month, *_) = sources.over(0, (T0_S + DAY_S) * 1000)
        for table in ("window", "window_share"):
            for row in month.execute(f"SELECT * FROM {table} LIMIT 1").fetchall():
                marks = ", ".join("?" * len(row))
                connection.execute(f"INSERT INTO {table} VALUES ({marks})", row)
    assert faults(tmp_path) == []
    drop_months(db, (T0_S + 50 * DAY_S) * 1000, 5)
    assert faults(tmp_path) == []


def faults(folder) -> list[object]:
    span = span_of(None, None, BERLIN)
    done = verify(folder / "store.db", cluster="campus", zone=BERLIN, carbon_zone="DEU", span=span)
    return [] if done.ok else [done.findings]


def test_an_overlap_with_a_moved_window_is_refused(told):
    """Two agents report one device, or its clock stepped back by months: it counts once."""
    db, events, _ = told
    moved = next(event for event in events if getattr(event, "measured_mj", None))
    assert windows_in(db.conn)[0][1] > moved.t0_ms
    node = Node()
    node.seq = 900
    with pytest.raises(IngestError, match=r"overlaps \["):
        ingest(db, [node.window(moved.device, moved.t0_ms - 5, moved.t0_ms + 5, idle=1)])
    assert ingest(db, [node.window(moved.device, moved.t0_ms - 5, moved.t0_ms, idle=1)]) == (1, 0)


def test_a_missing_month_does_not_stop_deliveries(told, tmp_path, caplog):
    db, _, _ = told
    month_path(tmp_path / "store.db", "2026-09").unlink()
    node = Node()
    node.seq = 900
    day_ms = (T0_S + 15 * DAY_S) * 1000
    assert ingest(db, [node.window("GPU-c", day_ms, day_ms + 5, idle=1)]) == (1, 0)
    assert "no readable file of 2026-09's windows" in caplog.text


def test_a_model_that_is_known_late_reaches_moved_windows(told):
    """As with windows in the store: what was settled under the old name is settled anew."""
    db, _, _ = told
    node = Node()
    node.seq = 900
    late_ms = (T0_S + 190 * DAY_S) * 1000
    ingest(db, [node.up("GPU-a", "GPU-b", model="h100-80", t_ms=late_ms)], zone=BERLIN)
    refresh(db)
    assert db.execute("SELECT DISTINCT model FROM run_energy").fetchall() == [("h100-80",)]
    assert db.execute("SELECT DISTINCT model FROM unallocated_daily").fetchall() == [("h100-80",)]


def test_a_missing_month_does_not_stop_the_energy_of_runs(told, tmp_path, caplog):
    """Sums by hour give it without windows; only the pace needs them, and stays as judged."""
    db, _, runs = told
    before = dump(db, without=MOVED)
    month_path(tmp_path / "store.db", "2026-09").unlink()
    with transaction(db) as connection:
        connection.execute("DELETE FROM pace_judged")
        connection.execute("DELETE FROM run_energy")
        connection.execute(
            "INSERT INTO unsettled (node, job_id, start_ms, from_ms)"
            " SELECT node, job_id, start_ms, 0 FROM node_run"
        )
    tell(db, runs)
    refresh(db)
    without = (*MOVED, "pace_judged")
    assert dump(db, without=without) == [
        line for line in before if not line.startswith('INSERT INTO "pace_judged"')
    ]
    assert db.execute("SELECT count(*) FROM unsettled").fetchone() == (0,)
    assert "the pace of run 1 is not judged: " in caplog.text
