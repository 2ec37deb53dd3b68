# SPDX-License-Identifier: Apache-2.0
"""The nightly upkeep: once a night, each step on its own, told to the doctor."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest

from fairwatt.accounting import upkeep as upkeep_module
from fairwatt.accounting.cells import fill_cells
from fairwatt.accounting.checks import checks
from fairwatt.accounting.collector import serve
from fairwatt.accounting.store import open_store, set_meta, transaction
from fairwatt.accounting.store_files import hold_store
from fairwatt.accounting.upkeep import Keeping, Upkeep, keeping_of, last_result, tend, tend_if_due
from fairwatt.core import config as config_module
from fairwatt.core.doctor import run_checks
from fairwatt.core.errors import ConfigError, StoreError
from tests.unit.accounting.samples import BERLIN
from tests.unit.accounting.window_rows import add_window, windows_in

DAY_S = 86_400
OFF = Keeping(2, None, 14, 0, 0, 0)


@pytest.fixture
def db(tmp_path):
    with closing(open_store(tmp_path / "a.db")) as store:
        yield store


def config_of(tmp_path, **store):
    path = tmp_path / "fairwatt.toml"
    lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in store.items())
    path.write_text(
        f'[collector]\ndatabase = "{tmp_path}/a.db"\nlisten = "127.0.0.1:0"\n[store]\n{lines}\n'
        '[host]\ncollector = "yes"\n'
    )
    return config_module.load(path)


def told(config):
    return [
        (item.level, item.problem)
        for name, item in run_checks(checks, config)
        if name == "accounting.store"
    ]


def test_once_a_night_from_the_hour_on_in_the_sites_zone(db):
    berlin = [datetime(2026, 10, 25, hour, 30, tzinfo=BERLIN).timestamp() for hour in (1, 3, 4)]
    tomorrow = datetime(2026, 10, 26, 2, 0, tzinfo=BERLIN).timestamp()
    due = [tend_if_due(db, OFF, BERLIN, now_ts) for now_ts in (*berlin, tomorrow)]
    assert due == [False, True, False, True]


def test_all_steps(db, tmp_path):
    now_s = 100 * DAY_S
    add_window(db, "GPU-a", (now_s - 63 * DAY_S) * 1000, (now_s - 62 * DAY_S) * 1000)
    add_window(db, "GPU-a", (now_s - 62 * DAY_S) * 1000, (now_s - 61 * DAY_S) * 1000)
    (tmp_path / "b").mkdir()
    tend(db, Keeping(2, tmp_path / "b", 14, 62, 99, 30), now_s, threading.Lock())
    assert len(windows_in(db.conn)) == 1
    assert last_result(db.conn, "check")["faults"] == []
    thin = last_result(db.conn, "thin")
    assert (thin["windows_moved"], thin["months_removed"], thin["events_pruned"]) == (1, [], 0)
    made = last_result(db.conn, "backup")
    assert made["file"] == "a-19700411T000000Z.db"
    assert made["bytes"] == (tmp_path / "b" / made["file"]).stat().st_size
    assert made["good_ts"] == made["ts"] == now_s
    assert (tmp_path / "b" / "a.windows-1970-02.db").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_what_root_makes_belongs_to_the_collectors_user():
    """`fairwatt store upkeep` in a root shell must not lock the collector out the next night."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "b").mkdir()
        with closing(open_store(folder / "a.db")) as db:
            add_window(db, "GPU-a", 0, 5)
            for path in (folder, folder / "a.db", folder / "b"):
                os.chown(path, 65534, 65534)
            with hold_store(folder / "a.db", ""):
                tend(db, Keeping(2, folder / "b", 14, 62, 0, 30), 100 * DAY_S)
        assert {path.name for path in folder.rglob("*.db")} == {
            "a.db", "a.windows-1970-01.db", "a-19700411T000000Z.db",
        }  # fmt: skip
        assert {path.stat().st_uid for path in folder.rglob("*")} == {65534}


def test_a_damaged_store_is_not_thinned(db, monkeypatch):
    monkeypatch.setattr(upkeep_module, "check_store", lambda _path: ["page 7 is torn"])
    add_window(db, "GPU-a", 0, 5)
    tend(db, Keeping(2, None, 14, 62, 0, 30), 100 * DAY_S)
    assert len(windows_in(db.conn)) == 1
    assert last_result(db.conn, "thin") is None


def test_a_step_that_fails_ends_no_other_and_remembers_the_last_good_night(db, tmp_path):
    (tmp_path / "b").mkdir()
    keeping = Keeping(2, tmp_path / "b", 14, 0, 0, 0)
    tend(db, keeping, 5 * DAY_S)
    tend(db, Keeping(2, tmp_path / "no", 14, 0, 0, 0), 6 * DAY_S)
    made = last_result(db.conn, "backup")
    assert "create its folder" in made["error"]
    assert made["good_ts"] == 5 * DAY_S
    assert last_result(db.conn, "thin")["ts"] == 6 * DAY_S


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"upkeep_hour": 24}, "store.upkeep_hour: no hour of a day"),
        ({"window_days": -1}, "store.window_days: out of range"),
        ({"series_days": 30}, "more days than store.window_days"),
        ({"series_days": 30, "window_days": 0}, "more days than store.window_days"),
    ],
)
def test_settings_that_cannot_be_meant(tmp_path, changes, words):
    with pytest.raises(ConfigError, match=words):
        keeping_of(config_of(tmp_path, **changes))


def test_the_defaults_move_and_prune_but_remove_nothing_and_copy_nothing(tmp_path):
    assert keeping_of(config_of(tmp_path)) == Keeping(2, None, 14, 62, 0, 30)


def test_the_doctor_tells_of_no_backup_a_failed_and_an_old_one(db, tmp_path):
    assert told(config_of(tmp_path)) == [("info", "no backup of the store is made")]
    config = config_of(tmp_path, backup_dir=str(tmp_path))
    assert told(config) == []
    for result, words in (
        ({"ts": int(time.time()), "good_ts": 0, "error": "disk full"}, "failed: disk full"),
        ({"ts": int(time.time() - 3 * DAY_S)}, "the last backup is 3 days old"),
    ):
        with transaction(db) as connection:
            set_meta(connection, "store.backup", json.dumps(result))
        ((level, problem),) = told(config)
        assert level == "error"
        assert words in problem


def test_the_doctor_tells_of_damage(db, tmp_path):
    with transaction(db) as connection:
        set_meta(connection, "store.check", json.dumps({"ts": 5, "faults": ["a", "b"]}))
    assert told(config_of(tmp_path))[0] == ("error", "the store is damaged: a (2 faults)")


def test_a_second_collector_is_refused_before_it_serves(db, tmp_path):
    config = config_of(tmp_path)
    with (
        hold_store(tmp_path / "a.db", ""),
        pytest.raises(StoreError, match=r"a\.db: a collector is running on it; stop it"),
    ):
        serve(config)


def test_the_thread_outlives_a_surprise_and_ends_when_told(monkeypatch):
    monkeypatch.setattr(upkeep_module, "LOOK_S", 0.001)
    calls = threading.Semaphore(0)

    def fail():
        calls.release()
        raise ZeroDivisionError

    thread = Upkeep(fail)
    thread.start()
    for _ in range(3):
        assert calls.acquire(timeout=5)
    thread.stop()
    assert not thread._thread.is_alive()


def test_a_clock_that_is_years_ahead_for_a_night_removes_nothing(db):
    """Days are kept from the last measured hour on, not from what this host takes for today."""
    now_ts = 1_790_000_000
    add_window(db, "GPU-a", (now_ts - DAY_S) * 1000, (now_ts - DAY_S + 10) * 1000)
    with transaction(db) as connection:
        fill_cells(connection, BERLIN)
    keeping = Keeping(2, None, 14, 30, 60, 30)
    tend(db, keeping, now_ts + 3650 * DAY_S)
    assert last_result(db.conn, "thin")["windows_moved"] == 0
    assert len(windows_in(db.conn)) == 1
