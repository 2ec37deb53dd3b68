# SPDX-License-Identifier: Apache-2.0
"""What `fairwatt store check` finds, each fault planted once."""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from fairwatt.accounting.archive import archive_windows
from fairwatt.accounting.integrity import check_store
from fairwatt.accounting.store import open_store
from fairwatt.accounting.store_commands import store as command
from fairwatt.core.errors import StoreError
from tests.unit.accounting.window_rows import add_window

USAGE = (
    "INSERT INTO {table} ({key}, cluster, account, user, gpu_type, runs_ended, runs_failed,"
    " runs_cancelled, wait_s, waited_runs, cpu_s, device_s, gpu_milli_s, util_known_milli_s,"
    " used_milli_s, failed_milli_s, idle_mj, active_mj, unmeasured_milli_s, co2_mg)"
    " VALUES ('{when}', 'c', 'a', 'u', 'g', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {mj}, 0, 0, 0)"
)


@pytest.fixture
def path(tmp_path):
    open_store(tmp_path / "a.db").close()
    return tmp_path / "a.db"


def plant(path, *statements):
    with closing(sqlite3.connect(path)) as connection:
        for sql in statements:
            connection.execute(sql)
        connection.commit()


def usage(table, key, when, mj):
    return USAGE.format(table=table, key=key, when=when, mj=mj)


def test_a_new_store_is_whole(path):
    assert check_store(path) == check_store(path, quick=True) == []


def test_sums_of_months_that_are_those_of_their_days(path):
    plant(
        path,
        usage("usage_daily", "day", "2026-09-01", 5),
        usage("usage_daily", "day", "2026-09-30", 6),
        usage("usage_monthly", "month", "2026-09", 11),
    )
    assert check_store(path) == []


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        ([usage("usage_daily", "day", "2026-09-01", 5),
          usage("usage_monthly", "month", "2026-09", 6)],
         "the sums of 2026-09 are not those of its days"),
        ([usage("usage_daily", "day", "2026-09-01", -5),
          usage("usage_monthly", "month", "2026-09", -5)], "1 daily sums are negative"),
        (["INSERT INTO run_hour (run_id, hour_ts, idle_mj, active_mj) VALUES (4, 0, 5, 6)"],
         "a row of run_hour (None) belongs to no job_run"),
        (["INSERT INTO event_span VALUES ('g', 'b', 1, 5, 0, 0)",
          "INSERT INTO event_span VALUES ('g', 'b', 5, 9, 0, 0)"],
         "1 spans of known events overlap"),
    ],
)  # fmt: skip
def test_a_planted_fault_is_found(path, statements, words):
    plant(path, *statements)
    assert check_store(path) == [words]


def test_a_torn_page_is_found(path):
    plant(path, "CREATE TABLE t (x TEXT) STRICT", "CREATE INDEX ti ON t (x)",
          "INSERT INTO t SELECT 'row ' || value FROM json_each('[1,2,3,4,5,6,7]')",
          "PRAGMA writable_schema = ON",
          "UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM sqlite_master"
          " WHERE name = 'ti') WHERE name = 'run_end'")  # fmt: skip
    assert check_store(path)


def test_a_newer_store_is_refused(path):
    plant(path, "INSERT INTO _sqlite_migrations (migration_set, name, applied_at)"
                " VALUES ('fairwatt', 'm999_future', '2030')")  # fmt: skip
    with pytest.raises(StoreError, match="a newer fairwatt"):
        check_store(path)


def run(tmp_path, monkeypatch, *argv):
    config = tmp_path / "fairwatt.toml"
    config.write_text(f'[collector]\ndatabase = "{tmp_path}/a.db"\n')
    monkeypatch.setenv("FAIRWATT_CONFIG", str(config))
    return CliRunner().invoke(command, argv)


def test_the_command_says_so_and_its_status_too(path, tmp_path, monkeypatch):
    done = run(tmp_path, monkeypatch, "check")
    assert (done.exit_code, done.output) == (0, "the store is whole\n")
    plant(path, "INSERT INTO event_span VALUES ('g', 'b', 7, 5, 0, 0)")
    done = run(tmp_path, monkeypatch, "check", "--json", "--quick")
    assert done.exit_code == 1
    assert json.loads(done.output) == {"ok": False, "faults": ["1 spans of events are empty"]}


def test_backup_and_restore_by_command(path, tmp_path, monkeypatch):
    done = run(tmp_path, monkeypatch, "backup")
    assert "store.backup_dir: no folder for backups" in str(done.exception)
    (tmp_path / "b").mkdir()
    made = json.loads(run(tmp_path, monkeypatch, "backup", str(tmp_path / "b"), "--json").output)
    assert made["removed"] == made["month_files"] == []
    plant(path, "CREATE TABLE later (x) STRICT".replace("(x)", "(x TEXT)"))
    done = run(tmp_path, monkeypatch, "restore", made["file"])
    assert f"{path} is now {made['file']}; the old one is {path}.before-" in done.output
    with closing(sqlite3.connect(path)) as connection:
        assert not connection.execute(
            "SELECT 1 FROM sqlite_master WHERE name = 'later'"
        ).fetchall()


def test_upkeep_by_command(path, tmp_path, monkeypatch):
    done = run(tmp_path, monkeypatch, "upkeep")
    assert done.exit_code == 0, done.output
    results = json.loads(done.stdout)
    assert results["check"]["faults"] == []
    assert results["backup"] is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_a_user_who_can_only_read_sees_no_damage():
    """A month file without a WAL, in a folder where none can be made."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.db")
        Path(folder).chmod(0o755)
        with closing(open_store(path)) as db:
            add_window(db, "GPU-a", 0, 10_000)
            archive_windows(db, 20_000)
        for file in Path(folder).iterdir():
            file.chmod(0o644)
        os.seteuid(65_534)
        try:
            assert check_store(path) == []
        finally:
            os.seteuid(0)


def test_upkeep_makes_no_store(tmp_path, monkeypatch):
    """Where its disk is not mounted an empty one would push out the backups."""
    config = tmp_path / "fairwatt.toml"
    config.write_text(f'[collector]\ndatabase = "{tmp_path}/gone.db"\n')
    monkeypatch.setenv("FAIRWATT_CONFIG", str(config))
    done = CliRunner().invoke(command, ["upkeep"])
    assert isinstance(done.exception, StoreError)
    assert not (tmp_path / "gone.db").exists()
