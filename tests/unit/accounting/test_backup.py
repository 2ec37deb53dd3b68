# SPDX-License-Identifier: Apache-2.0
"""Backups while the store is in use, what a kill leaves, and the way back."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections import namedtuple
from contextlib import closing
from pathlib import Path

import pytest
from sqlite_utils import Database

from fairwatt.accounting import backup as backup_module
from fairwatt.accounting import restore as restore_module
from fairwatt.accounting.archive import archive_windows
from fairwatt.accounting.backup import LOCK, back_up, back_up_before_update, backups_in
from fairwatt.accounting.integrity import check_store
from fairwatt.accounting.migrations import migrations
from fairwatt.accounting.restore import restore
from fairwatt.accounting.store import get_meta, open_reader, open_store, set_meta, transaction
from fairwatt.accounting.store_files import hold_store, lock_file
from fairwatt.core.errors import StoreError
from tests.unit.accounting.samples import dump
from tests.unit.accounting.window_rows import add_window

DAY_S = 86_400
NOW_TS = 1_790_000_000  # 2026-09-21 14:13:20 UTC
NAME = "a-20260921T141320Z.db"


@pytest.fixture
def store(tmp_path):
    """A store with a window of two parts, and a folder for its backups."""
    (tmp_path / "backups").mkdir()
    db = open_store(tmp_path / "a.db")
    add_window(db, "GPU-a", 0, 10_000)
    yield db
    db.close()


def make(tmp_path, **changes):
    values = {"keep_days": 14, "now_ts": NOW_TS, **changes}
    return back_up(tmp_path / "a.db", tmp_path / "backups", **values)


def mark(db, value: str) -> None:
    with transaction(db) as connection:
        set_meta(connection, "mark", value)


def content(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def test_a_backup_is_the_whole_store_in_one_file(store, tmp_path):
    done = make(tmp_path)
    assert done.path.name == NAME
    assert [path.name for path in sorted((tmp_path / "backups").iterdir())] == [LOCK, NAME]
    assert stat.S_IMODE(done.path.stat().st_mode) == 0o640
    assert done.size == done.path.stat().st_size
    assert content(done.path) == dump(store, without=())


def test_a_backup_can_be_read_where_nothing_can_be_written(store, tmp_path):
    done = make(tmp_path)
    with closing(sqlite3.connect(f"file:{done.path}?immutable=1", uri=True)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert connection.execute("SELECT measured_mj FROM window").fetchall() == [(14,)]


def test_writing_beside_it_neither_waits_nor_begins_it_anew(store, tmp_path, monkeypatch):
    """The copy is of the moment at which it began, although each step sees a new commit."""
    with transaction(store) as connection:
        connection.execute("CREATE TABLE filler (x BLOB) STRICT")
        connection.executemany("INSERT INTO filler VALUES (zeroblob(8000))", [()] * 200)
    mark(store, "before")
    steps = []

    def meanwhile(_status, remaining, _total):
        steps.append(remaining)
        store.execute("PRAGMA busy_timeout = 0")  # a wait would be an error
        mark(store, f"step {len(steps)}")

    monkeypatch.setattr(backup_module, "STEP_PAGES", 20)
    monkeypatch.setattr(backup_module, "_rest", meanwhile)
    done = make(tmp_path)
    assert len(steps) > 5
    assert steps == sorted(steps, reverse=True)
    assert get_meta(store.conn, "mark") == f"step {len(steps)}"
    with closing(open_reader(done.path)) as copy:
        assert get_meta(copy, "mark") == "before"


@pytest.mark.parametrize(
    ("keep_days", "ages", "kept"),
    [
        (14, [15, 14, 13, 1], [14, 13, 1, 0]),
        (0, [2, 1], [0]),
    ],
)
def test_old_backups_go_and_the_newest_stays(store, tmp_path, keep_days, ages, kept):
    for age in ages:
        make(tmp_path, now_ts=NOW_TS - age * DAY_S, keep_days=9999)
    (tmp_path / "backups" / "a-of-mine.db").write_text("keep")
    make(tmp_path, keep_days=keep_days)
    found = backups_in(tmp_path / "backups", tmp_path / "a.db")
    assert [round((NOW_TS - made_ts) / DAY_S) for made_ts, _ in found] == kept
    assert (tmp_path / "backups" / "a-of-mine.db").exists()


def test_a_failed_backup_leaves_the_old_ones(store, tmp_path, monkeypatch):
    make(tmp_path, now_ts=NOW_TS - 30 * DAY_S)
    monkeypatch.setattr(backup_module, "faults_of_file", lambda _path: ["page 7 is torn"])
    with pytest.raises(StoreError, match=r"not sound: page 7 is torn; run `fairwatt store check`"):
        make(tmp_path)
    assert len(backups_in(tmp_path / "backups", tmp_path / "a.db")) == 1
    assert not list((tmp_path / "backups").glob(".*.part*"))


@pytest.mark.parametrize("point", ["_copy_to", "faults_of_file", "_put_on_disk"])
def test_a_kill_leaves_nothing_under_the_final_name(store, tmp_path, point):
    """At each step; the next backup removes what the kill left."""
    code = (
        "import os, signal\n"
        "from pathlib import Path\n"
        "from fairwatt.accounting import backup\n"
        f"real = backup.{point}\n"
        "def die(*args):\n"
        "    real(*args)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        f"backup.{point} = die\n"
        f"backup.back_up(Path({str(tmp_path / 'a.db')!r}), Path({str(tmp_path / 'backups')!r}),"
        f" keep_days=1, now_ts={NOW_TS})\n"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    assert backups_in(tmp_path / "backups", tmp_path / "a.db") == []
    assert list((tmp_path / "backups").glob(".*.part"))
    done = make(tmp_path)
    assert [path.name for path in sorted((tmp_path / "backups").iterdir())] == [LOCK, NAME]
    assert content(done.path) == dump(store, without=())


def test_a_full_disk_is_told_before_it_is_full(store, tmp_path, monkeypatch):
    usage = backup_module.shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(backup_module.shutil, "disk_usage", lambda _folder: usage)
    with pytest.raises(StoreError, match=r"takes 0\.\d MB, 0\.0 MB are free; make room"):
        make(tmp_path)
    assert [path.name for path in (tmp_path / "backups").iterdir()] == [LOCK]


def test_one_backup_at_a_time(store, tmp_path):
    with lock_file(tmp_path / "backups" / LOCK), pytest.raises(StoreError, match="is running"):
        make(tmp_path)


def test_a_missing_folder_is_told(store, tmp_path):
    with pytest.raises(StoreError, match="create its folder"):
        back_up(tmp_path / "a.db", tmp_path / "no", keep_days=1, now_ts=NOW_TS)


def test_month_files_are_copied_once_and_kept_when_the_own_is_lost(store, tmp_path):
    archive_windows(store, 20_000)
    assert make(tmp_path).months == ("a.windows-1970-01.db",)
    assert make(tmp_path, now_ts=NOW_TS + 1).months == ()
    (tmp_path / "a.windows-1970-01.db").unlink()
    make(tmp_path, now_ts=NOW_TS + 2)
    assert content(tmp_path / "backups" / "a.windows-1970-01.db")


def test_restored_is_what_was_backed_up_and_the_old_one_stays(store, tmp_path):
    before = dump(store, without=())
    done = make(tmp_path)
    mark(store, "later")
    after = dump(store, without=())
    store.close()
    aside, months = restore(tmp_path / "a.db", done.path, NOW_TS)
    assert (aside, months) == (tmp_path / "a.db.before-20260921T141320Z", [])
    assert content(aside) == after
    with closing(open_store(tmp_path / "a.db")) as db:
        assert dump(db, without=()) == before
    assert stat.S_IMODE((tmp_path / "a.db").stat().st_mode) == 0o640


def test_a_store_in_use_is_not_replaced(store, tmp_path):
    done = make(tmp_path)
    with (
        hold_store(tmp_path / "a.db", ""),
        pytest.raises(StoreError, match="a collector is running"),
    ):
        restore(tmp_path / "a.db", done.path, NOW_TS)
    before = (tmp_path / "a.db").stat().st_ino
    with pytest.raises(StoreError, match=r"in use: database is locked; stop fairwatt-collector"):
        restore(tmp_path / "a.db", done.path, NOW_TS)
    assert (tmp_path / "a.db").stat().st_ino == before
    mark(store, "it goes on")


def test_a_damaged_store_is_replaced(store, tmp_path):
    done = make(tmp_path)
    before = dump(store, without=())
    store.close()
    (tmp_path / "a.db").write_bytes(b"nonsense" * 2000)
    (tmp_path / "a.db-wal").write_bytes(b"rest of a log")
    aside, _ = restore(tmp_path / "a.db", done.path, NOW_TS)
    assert aside.read_bytes().startswith(b"nonsense")
    assert not (tmp_path / "a.db-wal").exists()
    with closing(open_store(tmp_path / "a.db")) as db:
        assert dump(db, without=()) == before


def test_a_lost_store_comes_back_with_its_months(store, tmp_path):
    archive_windows(store, 20_000)
    done = make(tmp_path)
    store.close()
    for path in tmp_path.glob("a.*"):
        path.unlink()
    assert restore(tmp_path / "a.db", done.path, NOW_TS) == (None, ["a.windows-1970-01.db"])
    assert "GPU-a" in "".join(content(tmp_path / "a.windows-1970-01.db"))


def test_a_damaged_backup_is_refused(store, tmp_path):
    done = make(tmp_path)
    store.close()
    with done.path.open("r+b") as file:
        file.seek(3 * 8192)
        file.write(os.urandom(8192))
    before = (tmp_path / "a.db").read_bytes()
    with pytest.raises(StoreError, match=r"20260921T141320Z.db is damaged: .*; take an older one"):
        restore(tmp_path / "a.db", done.path, NOW_TS)
    assert (tmp_path / "a.db").read_bytes() == before


def test_a_backup_of_a_newer_fairwatt_is_refused(store, tmp_path):
    store["_sqlite_migrations"].insert(
        {"migration_set": "fairwatt", "name": "m999_future", "applied_at": "2030"}
    )
    store.close()
    newer = (tmp_path / "a.db").rename(tmp_path / "backups" / NAME)
    with pytest.raises(StoreError, match="of a newer fairwatt; update fairwatt"):
        restore(tmp_path / "a.db", newer, NOW_TS)
    assert not (tmp_path / "a.db").exists()


def older(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        migrations.apply(Database(connection), stop_before="m008_compact_runs")
        connection.commit()


def test_a_backup_of_an_older_fairwatt_is_taken_and_brought_up_to_date(tmp_path):
    older(tmp_path / NAME)
    restore(tmp_path / "a.db", tmp_path / NAME, NOW_TS)
    with closing(open_store(tmp_path / "a.db")) as db:
        assert "job_run" in db.table_names()


def test_before_an_update_the_older_store_is_backed_up(tmp_path):
    (tmp_path / "b").mkdir()
    path = tmp_path / "a.db"
    options = {"keep_days": 1, "now_ts": NOW_TS}
    back_up_before_update(path, tmp_path / "b", **options)
    older(path)
    before = content(path)
    back_up_before_update(path, tmp_path / "b", **options)
    open_store(path).close()
    back_up_before_update(path, tmp_path / "b", **{**options, "now_ts": NOW_TS + 60})
    assert [file.name for _, file in backups_in(tmp_path / "b", path)] == [NAME]
    assert content(tmp_path / "b" / NAME) == before


def test_an_update_goes_on_without_a_backup_that_cannot_be_made(tmp_path, caplog):
    older(tmp_path / "a.db")
    back_up_before_update(tmp_path / "a.db", tmp_path / "no", keep_days=1, now_ts=NOW_TS)
    assert "no backup before the update: " in caplog.text


def test_a_long_read_and_writes_go_on_beside_each_other(store, tmp_path):
    """Readers are never blocked, and block nobody: each sees one state from begin to end."""
    path = tmp_path / "a.db"
    with closing(open_reader(path)) as reader:
        reader.execute("PRAGMA busy_timeout = 0")
        store.execute("PRAGMA busy_timeout = 0")
        reader.execute("BEGIN")
        assert get_meta(reader, "mark") is None
        for number in range(50):
            mark(store, str(number))
            assert get_meta(reader, "mark") is None
        reader.rollback()
        assert get_meta(reader, "mark") == "49"
        with transaction(store) as connection:
            set_meta(connection, "mark", "unseen")
            seen = []
            thread = threading.Thread(target=lambda: seen.append(get_meta(reader, "mark")))
            thread.start()
            thread.join(5)
            assert seen == ["49"]
    assert get_meta(store.conn, "mark") == "unseen"


def test_a_month_file_that_was_only_read_is_not_copied_again(store, tmp_path):
    """The nightly check comes before the backup, and leaves an empty WAL beside each file."""
    archive_windows(store, 20_000)
    assert len(make(tmp_path).months) == 1
    for night in (1, 2):
        assert check_store(tmp_path / "a.db") == []
        assert make(tmp_path, now_ts=NOW_TS + night).months == ()


def linked(tmp_path):
    """A store behind a link, with a month file."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "backups").mkdir()
    (tmp_path / "a.db").symlink_to(tmp_path / "disk" / "a.db")
    db = open_store(tmp_path / "a.db")
    add_window(db, "GPU-a", 0, 10_000)
    archive_windows(db, 20_000)
    return db


def test_a_store_behind_a_link_keeps_its_month_files_and_its_place(tmp_path):
    with closing(linked(tmp_path)):
        done = make(tmp_path)
    assert done.months == ("a.windows-1970-01.db",)
    (tmp_path / "disk" / "a.windows-1970-01.db").unlink()
    aside, months = restore(tmp_path / "a.db", done.path, NOW_TS)
    assert months == ["a.windows-1970-01.db"]
    assert aside is not None
    assert aside.parent == tmp_path / "disk"
    assert (tmp_path / "a.db").is_symlink()


def test_a_stores_name_is_no_pattern(tmp_path):
    (tmp_path / "backups").mkdir()
    path = tmp_path / "a[1]**?.db"
    with closing(open_store(path)) as db:
        add_window(db, "GPU-a", 0, 10_000)
        archive_windows(db, 20_000)
        done = back_up(path, tmp_path / "backups", keep_days=14, now_ts=NOW_TS)
    assert done.months == ("a[1]**?.windows-1970-01.db",)
    (tmp_path / done.months[0]).unlink()
    assert restore(path, done.path, NOW_TS)[1] == list(done.months)


def test_no_backups_in_the_stores_own_folder(store, tmp_path):
    """Its month files would be replaced under their writers."""
    (tmp_path / "link").symlink_to(tmp_path)
    for folder in (tmp_path, tmp_path / "link"):
        with pytest.raises(StoreError, match="the store's own folder"):
            back_up(tmp_path / "a.db", folder, keep_days=14, now_ts=NOW_TS)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_is_not_led_to_another_file_by_a_link(store, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("root's")
    os.chown(tmp_path / "backups", 1234, 1234)
    (tmp_path / "backups" / LOCK).symlink_to(victim)
    with pytest.raises(StoreError, match="a lock is no link"):
        make(tmp_path)
    assert victim.stat().st_uid == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_store_that_root_made_belongs_to_the_owner_of_its_folder(tmp_path):
    os.chown(tmp_path, 1234, 1234)
    with closing(open_store(tmp_path / "new.db")):
        pass
    assert (tmp_path / "new.db").stat().st_uid == 1234


def test_the_store_itself_is_no_backup(store, tmp_path):
    store.close()
    (tmp_path / "link.db").symlink_to(tmp_path / "a.db")
    for file in ("a.db", "link.db"):
        with pytest.raises(StoreError, match="the store itself"):
            restore(tmp_path / "a.db", tmp_path / file, NOW_TS)


def test_a_copy_with_its_wal_is_restored_to_its_last_write(store, tmp_path):
    """As `cp` makes it of a store in use."""
    store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    mark(store, "last")
    for end in ("", "-wal"):
        (tmp_path / "backups" / f"copy.db{end}").write_bytes(
            (tmp_path / f"a.db{end}").read_bytes()
        )
    store.close()
    restore(tmp_path / "a.db", tmp_path / "backups" / "copy.db", NOW_TS)
    with closing(open_reader(tmp_path / "a.db")) as reader:
        assert get_meta(reader, "mark") == "last"


@pytest.mark.parametrize("missing", [10, 4096, 100_000])
def test_a_backup_that_is_cut_off_is_refused(store, tmp_path, missing):
    done = make(tmp_path)
    mark(store, "kept")
    store.close()
    done.path.write_bytes(done.path.read_bytes()[:-missing])
    with pytest.raises(StoreError, match=r"damaged: .*take an older one"):
        restore(tmp_path / "a.db", done.path, NOW_TS)
    with closing(open_reader(tmp_path / "a.db")) as reader:
        assert get_meta(reader, "mark") == "kept"


def test_what_cannot_be_put_in_place_is_told(store, tmp_path):
    """Twice in one second: the old store's other name is taken."""
    done = make(tmp_path)
    store.close()
    restore(tmp_path / "a.db", done.path, NOW_TS)
    with pytest.raises(StoreError, match="before-20260921T141320Z: cannot be written"):
        restore(tmp_path / "a.db", done.path, NOW_TS)


def test_without_room_for_a_month_file_the_old_store_stays(store, tmp_path, monkeypatch):
    archive_windows(store, 20_000)
    done = make(tmp_path)
    mark(store, "old")
    store.close()
    (tmp_path / "a.windows-1970-01.db").unlink()
    copy = restore_module.copy_database

    def full(source, path, *words):
        if "windows" in path.name:
            raise StoreError("cannot be copied: disk is full", place=str(path))
        copy(source, path, *words)

    monkeypatch.setattr(restore_module, "copy_database", full)
    with pytest.raises(StoreError, match="disk is full"):
        restore(tmp_path / "a.db", done.path, NOW_TS)
    with closing(open_reader(tmp_path / "a.db")) as reader:
        assert get_meta(reader, "mark") == "old"


def test_backups_that_are_kept_too_long_make_room_for_the_next(store, tmp_path, monkeypatch):
    """Else a disk that is full of them stays full; the newest stays in any case."""
    for days in (60, 50, 40):
        make(tmp_path, now_ts=NOW_TS - days * DAY_S, keep_days=99)
    free = iter([0, 10**9, 10**9])
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(backup_module.shutil, "disk_usage", lambda _: usage(next(free)))
    done = make(tmp_path)
    assert len(done.removed) == 3
    assert [path for _, path in backups_in(tmp_path / "backups", tmp_path / "a.db")] == [done.path]


def test_without_any_room_the_newest_backup_stays(store, tmp_path, monkeypatch):
    for days in (60, 50):
        make(tmp_path, now_ts=NOW_TS - days * DAY_S, keep_days=99)
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(backup_module.shutil, "disk_usage", lambda _: usage(0))
    with pytest.raises(StoreError, match=r"a backup takes 0\.\d MB, 0\.0 MB are free"):
        make(tmp_path)
    assert len(backups_in(tmp_path / "backups", tmp_path / "a.db")) == 1
