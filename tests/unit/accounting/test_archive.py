# SPDX-License-Identifier: Apache-2.0
"""Old windows move to month files: never lost, never doubled, wherever it is interrupted."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairwatt.accounting import archive as archive_module
from fairwatt.accounting.archive import archive_windows, drop_months
from fairwatt.accounting.integrity import check_store
from fairwatt.accounting.store import open_store, transaction
from fairwatt.accounting.windows import WindowSources, month_path
from fairwatt.core.errors import StoreError
from tests.unit.accounting.window_rows import add_window, windows_in

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
SEP = int(datetime(2026, 9, 1, tzinfo=UTC).timestamp() * 1000)
OCT = int(datetime(2026, 10, 1, tzinfo=UTC).timestamp() * 1000)
LATER = OCT + 40 * DAY_MS


@pytest.fixture
def db(tmp_path):
    """A store with a window at the end of September, one over the border, one in October."""
    store = open_store(tmp_path / "a.db")
    add_window(store, "GPU-a", OCT - 2 * HOUR_MS, OCT - HOUR_MS)
    add_window(store, "GPU-a", OCT - HOUR_MS, OCT + HOUR_MS, measured=20)
    add_window(store, "GPU-a", OCT + HOUR_MS, OCT + 2 * HOUR_MS, measured=30)
    yield store
    store.close()


def everywhere(db) -> list[tuple[object, ...]]:
    """All windows with their shares, from wherever they are."""
    with WindowSources(db.conn) as sources:
        return sorted(sources.rows(0, 2**62, windows_in), key=lambda row: row[:2])


def moved(db) -> list[tuple[object, ...]]:
    return db.execute("SELECT month, windows, dropped_ts FROM window_month ORDER BY 1").fetchall()


def test_a_window_goes_to_the_month_in_which_it_began(db, tmp_path):
    before = windows_in(db.conn)
    assert archive_windows(db, OCT + HOUR_MS) == 2
    assert [row[1] for row in windows_in(db.conn)] == [OCT + HOUR_MS]
    assert moved(db) == [("2026-09", 2, None)]
    path = tmp_path / "a.windows-2026-09.db"
    with closing(sqlite3.connect(path)) as month:
        assert windows_in(month) == before[:2]
    assert (path.stat().st_mode & 0o777) == 0o640
    assert everywhere(db) == before
    assert check_store(tmp_path / "a.db") == []


def test_a_window_that_ends_later_stays(db):
    """To the millisecond: the one over the border ends an hour into October."""
    assert archive_windows(db, OCT + HOUR_MS - 1) == 1
    assert archive_windows(db, OCT + HOUR_MS) == 1
    assert archive_windows(db, OCT + HOUR_MS) == 0


def test_each_month_has_a_file_and_a_span(db):
    archive_windows(db, LATER)
    assert moved(db) == [("2026-09", 2, None), ("2026-10", 1, None)]
    with WindowSources(db.conn) as sources:
        assert len(sources.over(OCT - 3 * HOUR_MS, OCT - 2 * HOUR_MS)) == 1
        assert len(sources.over(OCT - 2 * HOUR_MS, OCT - 2 * HOUR_MS + 1)) == 2
        # The window that began in September reaches into October.
        assert len(sources.over(OCT, OCT + HOUR_MS)) == 2
        assert len(sources.over(0, LATER)) == 3


def test_a_window_of_unknown_energy_stays_in_the_store(db):
    add_window(db, "GPU-b", SEP, SEP + 5, measured=None)
    archive_windows(db, LATER)
    assert [row[0] for row in windows_in(db.conn)] == ["GPU-b"]


def test_a_late_window_joins_those_of_its_month(db):
    archive_windows(db, LATER)
    add_window(db, "GPU-b", SEP, SEP + HOUR_MS)
    assert archive_windows(db, LATER) == 1
    assert moved(db)[0] == ("2026-09", 3, None)
    (span,) = db.execute("SELECT from_ms, until_ms FROM window_month WHERE month = '2026-09'")
    assert span == (SEP, OCT + HOUR_MS)


def test_more_than_a_batch(tmp_path, monkeypatch):
    monkeypatch.setattr(archive_module, "BATCH", 7)
    with closing(open_store(tmp_path / "a.db")) as db:
        for number in range(40):
            add_window(db, f"GPU-{number % 3}", SEP + number * DAY_MS, SEP + number * DAY_MS + 5)
        before = windows_in(db.conn)
        assert archive_windows(db, LATER) == 40
        assert moved(db) == [("2026-09", 30, None), ("2026-10", 10, None)]
        assert everywhere(db) == before


def test_what_is_in_both_after_a_crash_is_moved_once(db, monkeypatch):
    """The copy was on disk, the deletion was not."""
    before = windows_in(db.conn)
    real = archive_module._copy

    def die(*args):
        real(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(archive_module, "_copy", die)
    with pytest.raises(KeyboardInterrupt):
        archive_windows(db, LATER)
    assert windows_in(db.conn) == before
    assert moved(db) == []
    monkeypatch.undo()
    assert archive_windows(db, LATER) == 3
    assert moved(db) == [("2026-09", 2, None), ("2026-10", 1, None)]
    assert everywhere(db) == before


def test_both_at_once_count_once(db, tmp_path):
    """As after a power cut that took the store's last commit, or a restored older backup."""
    before = windows_in(db.conn)
    archive_windows(db, LATER)
    for path in tmp_path.glob("a.windows-*.db"):
        with closing(sqlite3.connect(path)) as month, transaction(db) as connection:
            for table in ("window", "window_share"):
                rows = month.execute(f"SELECT * FROM {table}").fetchall()
                marks = ", ".join("?" * len(rows[0]))
                connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
    assert everywhere(db) == before
    with transaction(db) as connection:
        connection.execute("DELETE FROM window_month")
    assert archive_windows(db, LATER) == 3
    assert everywhere(db) == before
    assert moved(db) == [("2026-09", 2, None), ("2026-10", 1, None)]


def test_another_window_under_the_same_key_stops_it(db, tmp_path):
    archive_windows(db, LATER)
    add_window(db, "GPU-a", OCT - 2 * HOUR_MS, OCT - HOUR_MS, measured=99)
    with pytest.raises(StoreError, match=r"the month's file holds another window .*nothing was"):
        archive_windows(db, LATER)
    assert [row[4] for row in windows_in(db.conn)] == [99]


def test_a_missing_month_is_named(db, tmp_path):
    archive_windows(db, LATER)
    month_path(tmp_path / "a.db", "2026-09").unlink()
    with WindowSources(db.conn) as sources, pytest.raises(StoreError, match="newest backup"):
        sources.over(0, LATER)
    assert check_store(tmp_path / "a.db") == [
        "a.windows-2026-09.db is missing: take it from the newest backup's folder"
    ]


def test_a_lost_month_is_not_begun_anew(db, tmp_path):
    """Else a backup would replace the only good copy by the new one."""
    archive_windows(db, LATER)
    path = month_path(tmp_path / "a.db", "2026-09")
    path.unlink()
    add_window(db, "GPU-b", SEP, SEP + HOUR_MS)
    with pytest.raises(StoreError, match=r"2026-09\.db: is missing: .*newest backup"):
        archive_windows(db, LATER)
    assert not path.exists()
    assert len(windows_in(db.conn)) == 1


def test_a_month_that_lost_a_window_is_found(db, tmp_path):
    archive_windows(db, LATER)
    with closing(sqlite3.connect(month_path(tmp_path / "a.db", "2026-09"))) as month:
        month.execute("DELETE FROM window_share")
        month.execute("DELETE FROM window WHERE t0_ms = ?", (OCT - HOUR_MS,))
        month.commit()
    assert check_store(tmp_path / "a.db") == ["a.windows-2026-09.db: 1 windows are missing"]


def test_a_column_that_came_later_shows_its_default_and_is_added_when_written(db, tmp_path):
    archive_windows(db, OCT)
    with transaction(db) as connection:
        connection.execute("ALTER TABLE window ADD COLUMN level INTEGER NOT NULL DEFAULT 4")
    add_window(db, "GPU-b", SEP, SEP + 5)
    with transaction(db) as connection:
        connection.execute("UPDATE window SET level = 9 WHERE device_uuid = 'GPU-b'")
    asked = "SELECT device_uuid, level FROM window WHERE t0_ms < ?"
    with WindowSources(db.conn) as sources:
        found = sources.rows(0, OCT, lambda one: one.execute(asked, (OCT - HOUR_MS,)))
    assert found == [("GPU-b", 9), ("GPU-a", 4)]
    archive_windows(db, OCT)
    with WindowSources(db.conn) as sources:
        assert sorted(sources.rows(0, OCT, lambda one: one.execute(asked, (OCT - HOUR_MS,)))) == [
            ("GPU-a", 4), ("GPU-b", 9),
        ]  # fmt: skip


def test_a_month_is_dropped_when_all_of_it_is_old(db, tmp_path):
    archive_windows(db, LATER)
    assert drop_months(db, OCT + HOUR_MS, 5) == []
    assert drop_months(db, OCT + HOUR_MS + 1, 5) == ["2026-09"]
    assert moved(db) == [("2026-09", 0, 5), ("2026-10", 1, None)]
    assert [path.name for path in tmp_path.glob("a.windows-*")] == ["a.windows-2026-10.db"]
    with WindowSources(db.conn) as sources:
        assert sources.are_dropped(OCT - HOUR_MS, OCT)
        assert not sources.are_dropped(OCT + HOUR_MS, LATER)
        assert len(sources.over(0, LATER)) == 2
    assert check_store(tmp_path / "a.db") == []


def test_a_month_with_unsettled_runs_is_not_dropped(db):
    archive_windows(db, LATER)
    with transaction(db) as connection:
        connection.execute(
            "INSERT INTO unsettled (node, job_id, start_ms) VALUES ('g', 7, ?)", (OCT - 5,)
        )
    assert drop_months(db, LATER, 5) == []


def test_a_drop_that_was_interrupted_is_finished(db, tmp_path):
    archive_windows(db, LATER)
    with transaction(db) as connection:
        connection.execute("UPDATE window_month SET dropped_ts = 4, windows = 0")
    assert drop_months(db, LATER, 5) == ["2026-09", "2026-10"]
    assert list(tmp_path.glob("a.windows-*")) == []


def _die_at(line: int) -> str:
    """A program that archives and is killed before a given SQL statement of either file."""
    return (
        "import os, signal, sqlite3, sys\n"
        "from fairwatt.accounting import archive\n"
        "from fairwatt.accounting.store import open_store\n"
        "archive.BATCH = 3\n"
        f"left = [{line}]\n"
        "def count(sql):\n"
        "    left[0] -= 1\n"
        "    if left[0] == 0:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "real = archive._open_month\n"
        "def opened(*args):\n"
        "    connection = real(*args)\n"
        "    connection.set_trace_callback(count)\n"
        "    return connection\n"
        "archive._open_month = opened\n"
        "db = open_store(sys.argv[1])\n"
        "db.conn.set_trace_callback(count)\n"
        "archive.archive_windows(db, int(sys.argv[2]))\n"
        "print(left[0])\n"
    )


def test_killed_at_any_statement_nothing_is_lost_or_doubled(tmp_path):
    """SIGKILL at 12 seeded places, each going on from what the one before left."""
    path = tmp_path / "a.db"
    with closing(open_store(path)) as db:
        for number in range(12):
            add_window(
                db, f"GPU-{number % 2}", SEP + number * 4 * DAY_MS, SEP + number * 4 * DAY_MS + 9
            )
        before = windows_in(db.conn)
    choice = random.Random(6)
    deaths = 0
    for _ in range(12):
        argv = [sys.executable, "-c", _die_at(choice.randrange(1, 40)), str(path), str(LATER)]
        done = subprocess.run(argv, env=dict(os.environ), capture_output=True, text=True)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        deaths += done.returncode != 0
        with closing(open_store(path)) as db:
            assert everywhere(db) == before
    assert deaths >= 3
    with closing(open_store(path)) as db:
        archive_windows(db, LATER)
        assert everywhere(db) == before
        assert windows_in(db.conn) == []
        assert sum(count for _, count, _ in moved(db)) == 12
    assert check_store(path) == []


@settings(max_examples=25, deadline=None)
@given(
    windows=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 90)), unique=True, max_size=25
    ),
    cuts=st.lists(st.integers(0, 100), min_size=1, max_size=4),
)
def test_any_order_of_moves_keeps_all_windows(tmp_path_factory, windows, cuts):
    path = tmp_path_factory.mktemp("move") / "a.db"
    with closing(open_store(path)) as db:
        for device, day in windows:
            add_window(
                db, device, SEP + day * DAY_MS, SEP + day * DAY_MS + HOUR_MS, measured=14 + day
            )
        before = windows_in(db.conn)
        for cut in cuts:
            archive_windows(db, SEP + cut * DAY_MS)
            assert everywhere(db) == before
        left = {row[1] for row in windows_in(db.conn)}
        assert all(t0_ms + HOUR_MS > SEP + max(cuts) * DAY_MS for t0_ms in left)
    assert check_store(path) == []
