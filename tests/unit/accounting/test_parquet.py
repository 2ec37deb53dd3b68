# SPDX-License-Identifier: Apache-2.0
"""Closed months as Parquet: the reports' own code over DuckDB gives what SQLite gives."""

from __future__ import annotations

import fcntl
import os
import stat
import sys
from contextlib import closing
from datetime import date

import pytest
import time_machine
from click.testing import CliRunner

from fairwatt.accounting import parquet as parquet_module
from fairwatt.accounting.archive import archive_windows, drop_months
from fairwatt.accounting.parquet import EXPORTED, INTERNAL, export_month, open_parquet
from fairwatt.accounting.reports.dept import dept_report
from fairwatt.accounting.reports.period import Period
from fairwatt.accounting.reports.scope import Role, Scope, scope_of
from fairwatt.accounting.reports.usage import usage_by
from fairwatt.accounting.rollup import rollup
from fairwatt.accounting.runs import upsert_runs
from fairwatt.accounting.store import open_reader, open_store, set_meta, transaction
from fairwatt.accounting.store_commands import store as store_command
from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.errors import ReportError, StoreError
from fairwatt.dashboard.seed import seed_year
from tests.unit.accounting.samples import BERLIN, UTC, new_store, sacct_run
from tests.unit.accounting.window_rows import add_window

UNTIL = date(2026, 3, 8)
NOW_TS = 1_772_928_000  # 2026-03-08
ADMIN = Scope("root", Role.ADMIN)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Two weeks of the invented university over the end of February, rolled up."""
    folder = tmp_path_factory.mktemp("seeded")
    with closing(new_store(folder)) as db:
        seed_year(db, UNTIL, "Europe/Berlin", days=14)
        rollup(db, "campus", BERLIN, "DEU", NOW_TS)
    return folder / "store.db"


@pytest.fixture(scope="module")
def exported(store, tmp_path_factory):
    """Both months, exported in April."""
    pytest.importorskip("duckdb", reason="duckdb is not installed")
    folder = tmp_path_factory.mktemp("it's out")
    with time_machine.travel(NOW_TS + 30 * 86_400), closing(open_reader(store)) as db:
        for month in ("2026-02", "2026-03"):
            export_month(db, month, folder, zone=BERLIN, with_windows=True)
    return folder


@pytest.fixture
def both(store, exported):
    """The store, and the exported months behind the same two methods."""
    with closing(open_reader(store)) as sqlite, closing(open_parquet(exported)) as duck:
        yield sqlite, duck


PERIODS = [
    Period(date(2026, 2, 24), UNTIL, "Europe/Berlin"),
    Period(date(2026, 2, 1), date(2026, 3, 1), "Europe/Berlin"),
    Period(date(2026, 3, 2), date(2026, 3, 3), "Europe/Berlin"),
]


@pytest.mark.parametrize("period", PERIODS, ids=str)
def test_a_departments_whole_report_is_the_same(both, period):
    sqlite, _ = both
    cluster = sqlite.execute("SELECT DISTINCT cluster FROM usage_daily").fetchone()[0]
    accounts = [row[0] for row in sqlite.execute("SELECT name FROM account ORDER BY 1")]
    assert len(accounts) > 5
    for account in accounts:
        tables = [dept_report(db, ADMIN, cluster, account, period) for db in both]
        assert tables[0] == tables[1]
    assert any(row[-1] for table in tables[0] for row in table.rows)


@pytest.mark.parametrize("key", ["account", "user", "gpu_type", "day"])
def test_sums_by_any_key_within_a_scope(both, key):
    sqlite, duck = both
    heads = sqlite.execute("SELECT user FROM membership WHERE coordinator ORDER BY 1 LIMIT 2")
    for scope in (ADMIN, *(scope_of(sqlite, user) for (user,) in heads.fetchall())):
        mine = usage_by(sqlite, scope, PERIODS[0], key)
        assert mine
        assert usage_by(duck, scope, PERIODS[0], key) == mine


@pytest.mark.parametrize("table", [
    "run", "run_gpu", "run_energy", "run_hour", "usage_daily", "usage_monthly",
    "unallocated_daily", "window", "account", "membership", "device_hour", "run_pace",
])  # fmt: skip
def test_every_row_is_there_with_its_type(both, table):
    """Hostile names, NULLs and numbers: row for row, as Python sees them."""
    sqlite, duck = both
    names = [row[1] for row in sqlite.execute(f"PRAGMA table_info({table})")]
    where = " WHERE end_ts IS NOT NULL" if table == "run" else ""
    sql = f'SELECT {", ".join(names)} FROM "{table}"{where}'
    mine = sorted(sqlite.execute(sql).fetchall(), key=repr)
    assert mine
    assert sorted(duck.execute(sql).fetchall(), key=repr) == mine


def test_every_table_is_exported_or_named_as_internal(tmp_path):
    """Whoever adds a table decides: a row in parquet.py's lists."""
    with closing(open_store(tmp_path / "a.db")) as db:
        names = db.execute(
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
            " AND name NOT LIKE '%sqlite%'"
        )
        there = {name for (name,) in names}
    assert there - EXPORTED - INTERNAL == set()
    assert there >= EXPORTED
    assert not EXPORTED & INTERNAL


def test_exporting_again_replaces_and_leaves_nothing_behind(store, exported):
    before = {path: path.read_bytes() for path in exported.rglob("*.parquet")}
    with time_machine.travel(NOW_TS + 30 * 86_400), closing(open_reader(store)) as db:
        export_month(db, "2026-02", exported, zone=BERLIN, with_windows=True)
    assert {path: path.read_bytes() for path in exported.rglob("*.parquet")} == before
    assert [path.name for path in exported.iterdir() if path.name.startswith(".")] == []


def test_moved_windows_are_exported_too_and_once(tmp_path):
    pytest.importorskip("duckdb", reason="duckdb is not installed")
    with closing(open_store(tmp_path / "a.db")) as db:
        add_window(db, "GPU-a", 0, 5)
        add_window(db, "GPU-a", 5, 10, measured=20)
        archive_windows(db, 7)
    with closing(open_reader(tmp_path / "a.db")) as db:
        export_month(db, "1970-01", tmp_path / "out", zone=UTC, with_windows=True)
    with closing(open_parquet(tmp_path / "out")) as duck:
        assert duck.execute('SELECT t0_ms, measured_mj FROM "window"').fetchall() == [
            (0, 14), (5, 20),
        ]  # fmt: skip
        assert duck.execute("SELECT sum(idle_mj) FROM window_share").fetchone() == (10,)


def test_the_command(store, tmp_path, monkeypatch):
    pytest.importorskip("duckdb", reason="duckdb is not installed")
    config = tmp_path / "fairwatt.toml"
    config.write_text(f'[collector]\ndatabase = "{store}"\n[site]\ntimezone = "Europe/Berlin"\n')
    monkeypatch.setenv("FAIRWATT_CONFIG", str(config))
    argv = ["export", "--month", "2026-02", str(tmp_path / "out")]
    with time_machine.travel(NOW_TS + 30 * 86_400):
        done = CliRunner().invoke(store_command, argv)
    assert done.exit_code == 0, done.output
    assert done.output.startswith("2026-02: ")
    assert (tmp_path / "out" / "usage_daily" / "2026-02.parquet").exists()
    views = (tmp_path / "out" / "views.sql").read_text()
    assert "CREATE OR REPLACE VIEW \"run\" AS SELECT * FROM read_parquet('run/*.parquet'" in views


@pytest.mark.parametrize(
    ("month", "words"),
    [
        ("2026-13", "no month"),
        ("2026-1", "no month"),
        ("2026-03'; --", "no month"),
        ("2026-04", "not over, or not imported"),
        ("2026-02", "1 days of this month wait"),
    ],
)
def test_only_closed_months(tmp_path, month, words):
    with closing(open_store(tmp_path / "a.db")) as db, transaction(db) as connection:
        set_meta(connection, "sync.campus.until_ts", str(NOW_TS + 30 * 86_400))
        connection.execute("INSERT INTO dirty_day VALUES ('2026-02-28')")
    with closing(open_reader(tmp_path / "a.db")) as db, pytest.raises(ReportError, match=words):
        export_month(db, month, tmp_path / "out", zone=BERLIN)
    assert not (tmp_path / "out").exists()


def test_a_cluster_that_was_renamed_is_not_waited_for(tmp_path):
    with closing(open_store(tmp_path / "a.db")) as db, transaction(db) as connection:
        set_meta(connection, "sync.campus.until_ts", str(NOW_TS + 30 * 86_400))
        set_meta(connection, "sync.other.until_ts", str(NOW_TS + 10 * 86_400))
        set_meta(connection, "sync.old.until_ts", str(NOW_TS - 90 * 86_400))
    with closing(open_reader(tmp_path / "a.db")) as db:
        assert export_month(db, "2026-02", tmp_path / "out", zone=BERLIN)
        with pytest.raises(ReportError, match="not imported"):
            export_month(db, "2026-04", tmp_path / "out", zone=BERLIN)


def test_without_the_extra_there_is_one_clear_message(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    open_store(tmp_path / "a.db").close()
    with (
        closing(open_reader(tmp_path / "a.db")) as db,
        pytest.raises(StoreError, match=r"DuckDB is not installed; .*fairwatt\[parquet\]"),
    ):
        export_month(db, "1970-01", tmp_path / "out", zone=UTC)


def test_a_folder_without_an_export_is_told(tmp_path):
    with pytest.raises(StoreError, match="run `fairwatt store export` first"):
        open_parquet(tmp_path)


@pytest.fixture
def small(tmp_path):
    """A store whose September 2025 has one run and one window that was moved."""
    pytest.importorskip("duckdb", reason="duckdb is not installed")
    with closing(new_store(tmp_path)) as db:
        with transaction(db) as connection:
            run = sacct_run(Submit="1757000000", Start="1757000060", End="1757000160",
                            JobName=HOSTILE, User="u'; DROP TABLE run")  # fmt: skip
            upsert_runs(connection, [run], load_catalogue(), UTC, NOW_TS)
            connection.execute("DELETE FROM dirty_day")
        add_window(db, "GPU-a", 1_757_000_000_000, 1_757_000_010_000)
        archive_windows(db, 1_757_100_000_000)
        yield db


HOSTILE = "a\0b'\"\n\x1b[31m\\ */ -- \U0001f600"


def test_hostile_texts_and_folders(small, tmp_path):
    folder = tmp_path / "it's [a] *new* folder?"
    export_month(small.conn, "2025-09", folder, zone=UTC)
    with closing(open_parquet(folder)) as duck:
        rows = duck.execute("SELECT name, user FROM run").fetchall()
    assert rows == [(HOSTILE, "u'; DROP TABLE run")]


def test_an_export_is_for_owner_and_group(small, tmp_path):
    """It names users, as the store does; a link in the folder leads nowhere."""
    folder, victim = tmp_path / "out", tmp_path / "victim"
    folder.mkdir(mode=0o750)
    victim.write_text("precious")
    (folder / "views.sql").symlink_to(victim)
    export_month(small.conn, "2025-09", folder, zone=UTC, with_windows=True)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}
    assert modes == {0o640, 0o750}
    assert victim.read_text() == "precious"


def test_windows_that_were_removed_are_not_exported_as_none(small, tmp_path):
    drop_months(small, 1_770_000_000_000, NOW_TS)
    with pytest.raises(StoreError, match="windows of this month were removed"):
        export_month(small.conn, "2025-09", tmp_path / "out", zone=UTC, with_windows=True)
    assert not (tmp_path / "out").exists()
    assert export_month(small.conn, "2025-09", tmp_path / "out", zone=UTC)


def test_what_a_killed_export_left_is_removed(small, tmp_path):
    out = tmp_path / "out"
    (out / ".export-killed").mkdir(parents=True)
    (out / ".export-killed" / "rows.json").write_text("{}")
    (out / ".export-running").mkdir()
    descriptor = os.open(out / ".export-running", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    export_month(small.conn, "2025-09", out, zone=UTC)
    os.close(descriptor)
    assert [path.name for path in out.glob(".export-*")] == [".export-running"]


def test_a_fault_of_duckdb_names_the_folder(small, tmp_path, monkeypatch):
    import duckdb

    def full(*_):
        raise duckdb.IOException("Could not write file: No space left on device")

    monkeypatch.setattr(parquet_module, "_fill", full)
    with pytest.raises(StoreError, match=r"out: cannot be written: .*No space left"):
        export_month(small.conn, "2025-09", tmp_path / "out", zone=UTC)
