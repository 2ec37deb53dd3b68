# SPDX-License-Identifier: Apache-2.0
"""Stores of every earlier schema, with rows in all tables, brought up to date by this fairwatt."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlite_utils import Database

from fairwatt.accounting import failslow_store, verify_shares
from fairwatt.accounting.integrity import check_store
from fairwatt.accounting.migrations import migrations
from fairwatt.accounting.store import open_reader, open_store
from fairwatt.core.errors import StoreError

NAMES = [migration.name for migration in migrations.pending(Database(memory=True))]

USAGE = {
    "cluster": "c", "account": "qcd", "user": "ada", "gpu_type": "a100", "runs_ended": 1,
    "runs_failed": 0, "runs_cancelled": 0, "wait_s": 60, "waited_runs": 1, "cpu_s": 400,
    "device_s": 100, "gpu_milli_s": 100_000, "util_known_milli_s": 100_000,
    "used_milli_s": 50_000, "failed_milli_s": 0, "idle_mj": 5, "active_mj": 6,
    "unmeasured_milli_s": 0, "co2_mg": 7,
}  # fmt: skip
RUN = {
    "run_id": 3, "cluster": "c", "job_id": 7, "submit_ts": 1000, "restart_cnt": 0, "user": "ada",
    "uid": 1000, "account": "qcd", "partition": "gpu", "qos": "normal", "name": "a|b\n",
    "state": "COMPLETED", "exit_code": 0, "exit_signal": 0, "eligible_ts": 1000,
    "start_ts": 1060, "end_ts": 1160, "elapsed_s": 100, "suspended_s": 0, "timelimit_s": 600,
    "nnodes": 1, "ncpus": 4, "mem_mib": 4096, "nodelist": "gpu01", "req_tres": "cpu=4",
    "alloc_tres": "cpu=4,mem=4G,gres/gpu:a100=1,billing=8", "gpu_milli": 1000, "cpu_time_s": 33,
    "slurm_energy_j": 77,
    "decision_id": "d1", "db_index": 12, "flags": 1,
}  # fmt: skip
HOST = {"cluster": "c", "owner": "run", "account": "qcd", "user": "ada", "kind": "cpu",
        "idle_mj": 2, "active_mj": 3, "co2_mg": 1, "factor_fallback_mj": 0}  # fmt: skip
NODE_RUN = {"node": "gpu01", "job_id": 7, "start_ms": 1_060_000}
SHARE = {"device_uuid": "GPU-a", "t0_ms": 1_060_000, "node": "gpu01", "job_id": 7,
         "run_start_ms": 1_060_000, "instance_uuid": ""}  # fmt: skip

ROWS: dict[str, list[dict[str, Any]]] = {
    "run": [RUN, {**RUN, "run_id": 5, "job_id": 8, "state": "PENDING", "start_ts": None,
                  "end_ts": None, "elapsed_s": None, "decision_id": None, "alloc_tres": None,
                  "gpu_milli": 0, "suspended_s": None, "cpu_time_s": None,
                  "slurm_energy_j": None, "db_index": None}],
    "run_gpu": [{"run_id": 3, "gpu_type": "a100", "count": 1, "milli": 1000}],
    "account": [{"cluster": "c", "name": "qcd", "parent": "root", "raw_shares": 5}],
    "membership": [{"cluster": "c", "user": "ada", "account": "qcd", "raw_shares": 1}],
    "event": [{"node": "gpu01", "boot_id": "b", "seq": 1, "kind": "agent_started",
               "received_ts": 9, "body": '{"type":"agent_started"}'}],
    "device": [{"device_uuid": "GPU-a", "node": "gpu01", "model": "a100-40", "name": "A100",
                "minor": 0, "mig_enabled": 0, "compute_slices": 7, "seen_ms": 0}],
    "node_run": [{**NODE_RUN, "end_ms": 1_160_000, "restart_cnt": 0, "uid": 1000,
                  "account": "qcd", "mapped_by": "minor", "closed_by": "epilog", "run_id": 3}],
    "hold": [{**NODE_RUN, "device_uuid": "GPU-a", "instance_uuid": "", "numerator": 1,
              "denominator": 1}],
    "window": [
        {"device_uuid": "GPU-a", "t0_ms": 1_060_000, "t1_ms": 1_160_000, "node": "gpu01",
         "measured_mj": 15, "unallocated_idle_mj": 4, "unallocated_active_mj": 0, "flags": 0,
         "method": "counter"},
        {"device_uuid": "GPU-a", "t0_ms": 1_160_000, "t1_ms": 1_170_000, "node": "gpu01",
         "measured_mj": None, "unallocated_idle_mj": None, "unallocated_active_mj": None,
         "flags": 2, "method": "counter"},
    ],
    "window_share": [{**SHARE, "idle_mj": 5, "active_mj": 6, "util_permille": 500}],
    "run_energy": [{"run_id": 3, "device_uuid": "GPU-a", "node": "gpu01", "model": "a100-40",
                    "idle_mj": 5, "active_mj": 6, "util_permille": 500, "measured_s": 100,
                    "flags": 0, "method": "counter"}],
    "run_hour": [{"run_id": 3, "hour_ts": 0, "idle_mj": 5, "active_mj": 6}],
    "carbon_factor": [{"version": version, "zone": "DEU", "from_ts": 0, "until_ts": 9_000_000_000,
                       "g_per_kwh_milli": 380_000 + version, "method": "m", "source": "s",
                       "licence": "l", "retrieved_ts": 5} for version in (1, 2)],
    "pue": [{"from_ts": 0, "pue_milli": 1300, "source": "site"}],
    "usage_daily": [{"day": "1970-01-01", **USAGE}],
    "usage_monthly": [{"month": "1970-01", **USAGE}],
    "unallocated_daily": [{"day": "1970-01-01", "cluster": "c", "model": "a100-40", "idle_mj": 4,
                           "active_mj": 0, "co2_mg": 1}],
    "dirty_day": [{"day": "1970-01-02"}],
    "unsettled": [NODE_RUN],
    "dirty_hour": [{"hour_ts": 0}],
    "rejected_row": [{"source": "sacct", "line": "x", "reason": "y"}],
    "stray_hour": [{"hour_ts": 0, "run_id": 3}],
    "decision": [{"node": "ctl", "boot_id": "p", "seq": 1, "id": "d1", "t_ms": 5, "cluster": "c",
                  "verb": "submit", "uid": 1000, "user": "ada", "account": "qcd",
                  "partition": "gpu", "job_id": 7, "asked": "gpu:1", "given": "gpu:a100:1",
                  "accepted": 1, "edited": 1, "notes": "[]", "took_us": 40}],
    "run_pace": [{"run_id": 3, "state": "healthy", "ranks": 2, "compared": 2, "steps": 3,
                  "step_s": 300, "swing_permille": 10}],
    "rank_pace": [{"run_id": 3, "device_uuid": "GPU-a", "instance_uuid": "", "node": "gpu01",
                   "kind": "a100-40", "whole": 1, "steps": 3}],
    "run_host_hour": [{"run_id": 3, "hour_ts": 0, "kind": "cpu", "idle_mj": 2, "active_mj": 3}],
    "host_daily": [{"day": "1970-01-01", **HOST}],
    "host_monthly": [{"month": "1970-01", **HOST}],
    "contract": [{"name": "wind", "from_ts": 0, "until_ts": 9, "share_permille": 500,
                  "mg_per_kwh": 0, "source": "s", "since_version": 1}],
    "hardware_carbon": [{"hardware": "a100-40", "embodied_g": 150_000, "life_s": 99,
                         "source": "s", "since_version": 1}],
    "carbon_dirty_day": [{"day": "1970-01-01"}],
    "restated_day": [{"version": 2, "day": "1970-01-01", "before_mg": 5, "after_mg": 6}],
    "energy_owner": [{"key_id": 1, "cluster": "c", "owner": "run", "account": "qcd",
                      "user": "ada", "kind": "gpu", "part": "a100"}],
    "energy_hour": [{"hour_ts": 0, "key_id": 1, "q0_mj": 11, "q1_mj": 0, "q2_mj": 0,
                     "q3_mj": 0}],
    "window_month": [{"month": "1969-12", "from_ms": -9, "until_ms": -5, "windows": 0,
                      "dropped_ts": 5}],
    "event_span": [{"node": "gpu02", "boot_id": "b", "first_seq": 1, "last_seq": 4,
                    "until_ms": 5, "received_ts": 5}],
    "moved_hour": [{"hour_ts": 0, "device_uuid": "GPU-a", "moved_mj": 1}],
    "moved_daily": [{"day": "1970-01-01", "cluster": "c", "owner": "run", "account": "qcd",
                     "user": "ada", "gpu_type": "a100", "moved_mj": 1}],
    "use_cell": [{"node": "gpu01", "job_id": 7, "run_start_ms": 1_060_000, "device_uuid": "GPU-a",
                  "hour_ts": 0, "moved_mj": 1, "memory_ms": 0, "memory_mib_ms": 0,
                  "memory_max_mib": 0}],
    "run_gpu_memory": [{"run_id": 3, "device_uuid": "GPU-a", "max_mib": 9, "mean_mib": 5}],
    "run_memory": [{"run_id": 3, "peak_mib": 900}],
    "run_waste": [{"run_id": 3, "class": "healthy", "waste_permille": 0}],
    "unjudged": [{"run_id": 5}],
    "waste_daily": [{"day": "1970-01-01", "cluster": "c", "account": "qcd", "user": "ada",
                     "class": "healthy", "runs_ended": 1, "gpu_milli_s": 5, "wasted_milli_s": 0}],
    "pace_judged": [{"run_id": 3, "until_ms": 1_160_000}],
}  # fmt: skip
"""Rows for the tables that a migration makes empty; what is filled by one needs none."""

GROWS = {"dirty_day", "meta"}
"""Tables to which a migration may add rows: the old ones must still be there."""
GONE = {"carbon_factor", "pue"}
"""Tables whose rows went elsewhere, which a test of their own looks at."""


def relations(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """Tables and views with their columns."""
    names = connection.execute(
        "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
        " AND name NOT LIKE '%sqlite%' ORDER BY 1"
    ).fetchall()
    return {
        name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
        for (name,) in names
    }


def content(connection: sqlite3.Connection, name: str, columns: list[str]) -> list[Any]:
    return sorted(connection.execute(f"SELECT {', '.join(columns)} FROM {name}"), key=repr)


def make(path: Path, name: str) -> None:
    """A store as the fairwatt of that schema left it, with rows in every table."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        db = Database(connection)
        for one, following in zip(NAMES, [*NAMES[1:], None], strict=True):
            before = relations(connection)
            migrations.apply(db, stop_before=following)
            connection.execute("PRAGMA foreign_keys = OFF")
            fill(connection, set(relations(connection)) - set(before))
            connection.commit()
            if one == name:
                break


def fill(connection: sqlite3.Connection, new: set[str]) -> None:
    there = relations(connection)
    for table in new & set(ROWS):
        if connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone():
            continue
        for row in ROWS[table]:
            own = {key: value for key, value in row.items() if key in there[table]}
            marks = ", ".join("?" * len(own))
            connection.execute(
                f"INSERT INTO {table} ({', '.join(own)}) VALUES ({marks})", list(own.values())
            )


def test_every_table_has_rows_in_the_newest_store(tmp_path):
    """Else a table that a later migration adds would go untested: give it rows in ROWS."""
    make(tmp_path / "a.db", NAMES[-1])
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        empty = [
            name
            for name, columns in relations(connection).items()
            if not content(connection, name, columns)
        ]
    assert empty == []


@pytest.mark.parametrize("name", NAMES)
def test_a_store_of_this_schema_reads_the_same_afterwards(tmp_path, name):
    path = tmp_path / "a.db"
    make(path, name)
    with closing(sqlite3.connect(path)) as connection:
        old = relations(connection)
        before = {table: content(connection, table, old[table]) for table in old}
    with closing(open_store(path)) as db:
        new = relations(db.conn)
        assert set(old) - set(new) <= GONE
        for table in set(old) & set(new):
            after = content(db.conn, table, old[table])
            if table in GROWS:
                assert set(before[table]) <= set(after), table
            else:
                assert after == before[table], table
    if name == NAMES[-1]:
        assert check_store(path) == []


@pytest.mark.parametrize("name", NAMES[2:])
def test_totals_are_those_of_then(tmp_path, name):
    """By hand from ROWS: 11 mJ of the run, 4 of nobody, 7 mg; two versions of one factor."""
    path = tmp_path / "a.db"
    make(path, name)
    open_store(path).close()
    with closing(open_reader(path)) as db:
        assert (
            db.execute(
                "SELECT sum(idle_mj + active_mj) FROM run_energy"
                " UNION ALL SELECT sum(idle_mj + active_mj) FROM run_hour"
                " UNION ALL SELECT sum(idle_mj + active_mj) FROM usage_daily"
                " UNION ALL SELECT sum(idle_mj + active_mj) FROM usage_monthly"
                " UNION ALL SELECT sum(idle_mj + active_mj) FROM run_cell"
            ).fetchall()
            == [(11,)] * 5
        )
        assert db.execute("SELECT sum(measured_mj), sum(idle_mj) FROM device_hour").fetchall() == [
            (15, 4)
        ]
        assert db.execute("SELECT sum(co2_mg) FROM usage_daily").fetchone() == (7,)
        factors = db.execute(
            "SELECT mg_per_kwh, since_version, until_version FROM grid_factor ORDER BY 2"
        ).fetchall()
        assert factors == [(380_001, 1, 2), (380_002, 2, None)]
        assert db.execute("SELECT pue_milli FROM dated_pue").fetchall() == [(1300,)]


@pytest.mark.parametrize("name", ["m014_windows_by_device", NAMES[-1]])
def test_shares_are_read_by_device_and_time_and_no_index_by_run_is_left(tmp_path, name):
    """A run's shares, of the store or a month file: never all shares of its windows at once."""
    path = tmp_path / "a.db"
    make(path, name)
    open_store(path).close()
    with closing(open_reader(path)) as db:
        indexes = db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = 'window_share'"
            " AND sql IS NOT NULL"
        ).fetchall()
        assert indexes == []
        for sql in (verify_shares._SHARES, failslow_store._PIECES):
            holes = (None,) * (6 if "?6" in sql else 5)
            plan = db.execute(f"EXPLAIN QUERY PLAN {sql}", holes).fetchall()
            assert [row[3] for row in plan if row[3].startswith("SEARCH")] == [
                "SEARCH w USING PRIMARY KEY (device_uuid=? AND t0_ms>? AND t0_ms<?)",
                "SEARCH window USING PRIMARY KEY (device_uuid=? AND t0_ms<?)",
                "SEARCH s USING PRIMARY KEY (device_uuid=? AND t0_ms=? AND node=? AND job_id=?"
                " AND run_start_ms=?)",
            ]
            assert not any(row[3].startswith("SCAN") for row in plan)


def test_hours_of_a_node_s_devices_lie_beside_each_other(tmp_path):
    """Row ids by hour, node, device; the 4 mJ that nobody had of GPU-a moved to its holder."""
    path = tmp_path / "a.db"
    make(path, "m015_shares_by_device")
    with closing(sqlite3.connect(path)) as connection:
        for uuid, node in (("GPU-b", "gpu02"), ("GPU-c", "gpu01"), ("GPU-x", None)):
            if node:
                connection.execute(
                    "INSERT INTO device (device_uuid, node, name, minor, mig_enabled,"
                    " compute_slices, seen_ms) VALUES (?, ?, 'A100', 0, 0, 7, 0)", (uuid, node)
                )  # fmt: skip
            for hour_ts in (3600, 0):
                connection.execute("INSERT INTO moved_hour VALUES (?, ?, 9)", (hour_ts, uuid))
        connection.commit()
    with closing(open_store(path)) as db:
        assert db.execute(
            "SELECT rowid, hour_ts, device_uuid, moved_mj FROM moved_hour ORDER BY rowid"
        ).fetchall() == [
            (1, 0, "GPU-x", 9), (2, 0, "GPU-a", 4), (3, 0, "GPU-c", 9), (4, 0, "GPU-b", 9),
            (5, 3600, "GPU-x", 9), (6, 3600, "GPU-c", 9), (7, 3600, "GPU-b", 9),
        ]  # fmt: skip
        assert db.execute("SELECT rowid, hour_ts FROM device_hour").fetchall() == [(1, 0)]
        with pytest.raises(sqlite3.IntegrityError):
            db.execute("INSERT INTO device_hour VALUES (0, 'GPU-a', 1, 1, 1, 1)")


_KILLED = """
import os, signal, sqlite3, sys
from fairwatt.accounting import store
left = [int(sys.argv[2])]
real = sqlite3.connect
def count(sql):
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
def connect(*args, **options):
    connection = real(*args, **options)
    connection.set_trace_callback(count)
    return connection
store.sqlite3.connect = connect
store.open_store(sys.argv[1]).close()
print(left[0])
"""


def test_a_killed_migration_is_not_half_applied(tmp_path):
    """SIGKILL before the 10th, 40th … statement: the old schema whole, then the new one."""
    path = tmp_path / "a.db"
    make(path, "m007_pace")
    with closing(sqlite3.connect(path)) as connection:
        old = relations(connection)
        before = {table: content(connection, table, old[table]) for table in old}
    killed = 0
    for statement in (10, 40, 80, 120, 160, 200):
        argv = [sys.executable, "-c", _KILLED, str(path), str(statement)]
        done = subprocess.run(argv, env=dict(os.environ), capture_output=True, text=True)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        if not done.returncode:
            break
        killed += 1
        with closing(sqlite3.connect(path)) as connection:
            assert relations(connection) == old
            assert {table: content(connection, table, old[table]) for table in old} == before
    assert killed >= 4
    with closing(open_store(path)) as db:
        assert content(db.conn, "run", ["job_id", "name"]) == [(7, "a|b\n"), (8, "a|b\n")]


def test_a_migration_that_fails_changes_nothing(tmp_path, monkeypatch):
    path = tmp_path / "a.db"
    make(path, "m008_compact_runs")
    with closing(sqlite3.connect(path)) as connection:
        old = relations(connection)
    last = migrations._migrations[-1]

    def fail(db):
        last_fn(db)
        raise sqlite3.OperationalError("database or disk is full")

    last_fn = last.fn
    monkeypatch.setattr(last, "fn", fail)
    with pytest.raises(StoreError, match="full; make room on its disk"):
        open_store(path)
    with closing(sqlite3.connect(path)) as connection:
        assert relations(connection) == old
    monkeypatch.undo()
    open_store(path).close()


def test_a_store_of_a_newer_fairwatt_is_refused_by_writer_and_reader(tmp_path):
    path = tmp_path / "a.db"
    make(path, NAMES[-1])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "INSERT INTO _sqlite_migrations (migration_set, name, applied_at)"
            " VALUES ('fairwatt', 'm999_future', '2030')"
        )
        connection.commit()
        before = list(connection.iterdump())
    for opening in (open_store, open_reader):
        with pytest.raises(
            StoreError, match=r"a newer fairwatt \(got 'm999_future'\); update fairwatt on this"
        ):
            opening(path)
    with closing(sqlite3.connect(path)) as connection:
        assert list(connection.iterdump()) == before
