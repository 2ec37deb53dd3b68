# SPDX-License-Identifier: Apache-2.0
"""The store: its rights, its schema, readers beside the writer."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from fairwatt.accounting.store import (
    bump_data_version,
    data_version,
    get_meta,
    open_reader,
    open_store,
    transaction,
)
from fairwatt.core.errors import StoreError


def test_a_new_store_is_private_and_safe(tmp_path):
    db = open_store(tmp_path / "a.db")
    assert stat.S_IMODE((tmp_path / "a.db").stat().st_mode) == 0o640
    pragmas = {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in (
        "journal_mode", "synchronous", "busy_timeout", "foreign_keys", "page_size",
    )}  # fmt: skip
    assert pragmas == {
        "journal_mode": "wal", "synchronous": 1, "busy_timeout": 5000, "foreign_keys": 1,
        "page_size": 4096,
    }  # fmt: skip


def test_a_reader_elsewhere_cannot_take_the_log_away(tmp_path):
    """Two writers in one process and a visitor: closing the visitor must not end the WAL."""
    path = tmp_path / "a.db"
    first, second = open_store(path), open_store(path)
    visit = (
        f"import sqlite3; sqlite3.connect({str(path)!r}).execute('SELECT * FROM meta').fetchall()"
    )
    subprocess.run([sys.executable, "-c", visit], check=True)
    with transaction(first) as connection:
        bump_data_version(connection)
    out = subprocess.run(
        [sys.executable, "-c", visit.replace("sqlite3.connect", "print(sqlite3.connect") + ")"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert "('data_version', '1')" in out
    assert data_version(second.conn) == 1


def test_all_tables_are_strict(tmp_path):
    db = open_store(tmp_path / "a.db")
    loose = [
        name
        for name, strict in db.execute(
            "SELECT name, strict FROM pragma_table_list WHERE type = 'table'"
        )
        if not strict and not name.startswith(("sqlite_", "_sqlite"))
    ]
    assert loose == []


def test_opening_again_keeps_everything(tmp_path):
    db = open_store(tmp_path / "a.db")
    with transaction(db) as connection:
        bump_data_version(connection)
    db.close()
    assert data_version(open_store(tmp_path / "a.db").conn) == 1


def test_several_processes_may_create_it_at_once(tmp_path):
    with ThreadPoolExecutor(4) as pool:
        stores = list(pool.map(lambda _: open_store(tmp_path / "a.db"), range(4)))
    assert all("job_run" in db.table_names() for db in stores)


def test_a_newer_schema_is_refused(tmp_path):
    db = open_store(tmp_path / "a.db")
    db["_sqlite_migrations"].insert(
        {"migration_set": "fairwatt", "name": "m999_future", "applied_at": "2030"}
    )
    db.close()
    with pytest.raises(
        StoreError, match=r"a\.db: written by a newer fairwatt \(got 'm999_future'"
    ):
        open_store(tmp_path / "a.db")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("INSERT INTO _sqlite_migrations (migration_set, name, applied_at)"
         " VALUES ('fairwatt', 'm999_future', '2030')",
         r"a\.db: written by a newer fairwatt \(got 'm999_future'\); update fairwatt"),
        ("DELETE FROM _sqlite_migrations WHERE name LIKE 'm004%'",
         r"a\.db: written by an older fairwatt \(got 'm004_.*'\); restart `fairwatt collector`"),
    ],
)  # fmt: skip
def test_a_reader_refuses_another_schema(tmp_path, change, words):
    db = open_store(tmp_path / "a.db")
    db.execute(change)
    db.conn.commit()
    db.close()
    with pytest.raises(StoreError, match=words):
        open_reader(tmp_path / "a.db")


def test_a_file_that_is_no_store_is_named(tmp_path):
    (tmp_path / "a.db").write_bytes(b"not a database at all" * 100)
    with pytest.raises(StoreError, match=r"a\.db: file is not a database"):
        open_store(tmp_path / "a.db")


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(StoreError, match="create its folder"):
        open_store(tmp_path / "nowhere" / "a.db")


def test_a_reader_cannot_write(tmp_path):
    open_store(tmp_path / "odd name?.db").close()
    reader = open_reader(tmp_path / "odd name?.db")
    with pytest.raises(sqlite3.OperationalError):
        reader.execute("INSERT INTO dirty_day VALUES ('2026-01-01')")


def test_a_reader_of_nothing_says_what_to_do(tmp_path):
    with pytest.raises(StoreError, match="start `fairwatt collector` once"):
        open_reader(tmp_path / "a.db")
    assert not (tmp_path / "a.db").exists()


def test_an_error_undoes_the_whole_transaction(tmp_path):
    db = open_store(tmp_path / "a.db")
    with pytest.raises(ZeroDivisionError):
        _bump_and_fail(db)
    assert data_version(db.conn) == 0
    assert get_meta(db.conn, "nothing") is None


def test_a_locked_store_is_told_and_nothing_is_half_written(tmp_path):
    first, second = open_store(tmp_path / "a.db"), open_store(tmp_path / "a.db")
    second.execute("PRAGMA busy_timeout = 1")
    refused = pytest.raises(StoreError, match=r"locked.*try again")
    with transaction(first), refused, transaction(second):
        pass


def _bump_and_fail(db):
    with transaction(db) as connection:
        bump_data_version(connection)
        raise ZeroDivisionError


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
@pytest.mark.parametrize("writing", [True, False])
def test_a_user_who_can_only_read_reads_with_and_without_a_writer(writing):
    """Without one there is no WAL, and SQLite would have to make one."""
    # Not below pytest's own folder, which another user may not pass.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.db")
        Path(folder).chmod(0o755)
        db = open_store(path)
        if not writing:
            db.close()
        for file in Path(folder).iterdir():
            file.chmod(0o644)
        assert Path(f"{path}-wal").exists() is writing
        os.seteuid(65534)
        try:
            reader = open_reader(path)
            assert data_version(reader) >= 0
            with pytest.raises(sqlite3.OperationalError):
                reader.execute("DELETE FROM meta")
            reader.close()
        finally:
            os.seteuid(0)
            db.close()


def test_another_programs_database_gets_no_tables(tmp_path):
    path = tmp_path / "mail.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE message (text TEXT)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"another program's database .*'message'"):
        open_store(path)
    assert path.read_bytes() == before


def test_a_folder_is_no_store(tmp_path):
    (tmp_path / "s.db").mkdir()
    for opened in (open_store, open_reader):
        with pytest.raises(StoreError, match=r"s\.db: "):
            opened(tmp_path / "s.db")
