# SPDX-License-Identifier: Apache-2.0
"""A store from before m008: runs read the same afterwards, and keep what hangs on them."""

from __future__ import annotations

import sqlite3

import pytest
from sqlite_utils import Database

from fairwatt.accounting.migrations import migrations
from fairwatt.accounting.store import open_store
from fairwatt.core.errors import StoreError

RUNS = """
    INSERT INTO run (run_id, cluster, job_id, submit_ts, restart_cnt, sluid, array_job_id,
        user, uid, account, partition, qos, name, state, exit_code, exit_signal,
        eligible_ts, start_ts, end_ts, elapsed_s, suspended_s, timelimit_s, nnodes, ncpus,
        mem_mib, nodelist, req_tres,
        alloc_tres, gpu_milli, cpu_time_s, slurm_energy_j, decision, origin, db_index, flags,
        decision_id) VALUES
    (3, 'c', 7, 1000, 0, NULL, 5, 'ada', 1000, 'qcd', 'gpu', 'normal', 'a|b', 'COMPLETED', 3,
        9, 1001, 1060, 1160, 90, 10, 600, 1, 4, 4096, 'g1', 'cpu=4',
        'mem=4G,gres/gpu:zx81=2', NULL, 33, 77, '{"id":"d1"}', 'slurm', 12, 17, 'd1'),
    (5, 'c', 8, 2000, 0, 's395M8P9NHEF00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'CANCELLED',
        NULL, NULL, NULL, NULL, 2060, NULL, NULL, NULL, NULL, NULL, 2048, NULL, 'cpu=1,mem=2G',
        NULL, 0, NULL, NULL, NULL, 'slurm', 13, 0, NULL),
    (6, 'c', 8, 2001, 0, 'sCWNM8P9MYAP00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'CANCELLED',
        NULL, NULL, NULL, NULL, 2060, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
        0, NULL, NULL, NULL, 'slurm', NULL, 0, NULL),
    (9, 'c', 9, 3000, 0, NULL, NULL, 'ben', 1001, 'qcd', 'gpu', 'normal', 'x', 'RUNNING', 0,
        0, 3000, 3001, NULL, 55, 0, 600, 1, 4, 4096, 'g1', 'cpu=4', 'mem=4G,gres/gpu:a100=1', 1000,
        NULL, NULL, NULL, 'seed', NULL, 1, NULL)
"""


@pytest.fixture
def old(tmp_path):
    """A store as the release before would have left it."""
    path = tmp_path / "s.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA foreign_keys = ON")
    db = Database(connection)
    migrations.apply(db, stop_before="m008_compact_runs")
    connection.execute(RUNS)
    connection.execute("INSERT INTO run_gpu VALUES (3, 'zx81', 2, NULL), (9, 'a100', 1, 1000)")
    connection.execute(
        "INSERT INTO run_energy VALUES (3, 'GPU-1', 'g1', NULL, 5, 6, NULL, 100, 0, 'counter')"
    )
    connection.execute(
        "INSERT INTO run_hour (run_id, hour_ts, idle_mj, active_mj) VALUES (3,0,5,6)"
    )
    connection.commit()
    yield path, connection
    connection.close()


def shown(connection):
    """What the runs say, by name."""
    cursor = connection.execute("SELECT * FROM run ORDER BY run_id")
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def test_runs_read_as_before(old):
    path, connection = old
    before = shown(connection)
    before[1]["db_index"] = None  # the SLUID is the same number
    gpus = connection.execute("SELECT * FROM run_gpu ORDER BY run_id").fetchall()
    connection.close()
    db = open_store(path)
    assert shown(db.conn) == before
    assert db.execute("SELECT * FROM run_gpu ORDER BY run_id").fetchall() == gpus
    assert db.execute("SELECT run_id, active_mj FROM run_energy").fetchall() == [(3, 6)]
    assert db.execute("SELECT * FROM decision_told").fetchall() == []
    db.close()


def test_what_hangs_on_a_run_goes_with_it_as_before(old):
    path, connection = old
    connection.close()
    db = open_store(path)
    db.conn.execute("DELETE FROM job_run WHERE run_id = 3")
    assert db.execute("SELECT count(*) FROM run_hour").fetchone() == (0,)
    with pytest.raises(sqlite3.IntegrityError):
        db.conn.execute(
            "INSERT INTO run_hour (run_id, hour_ts, idle_mj, active_mj) VALUES (4,0,5,6)"
        )
    db.conn.rollback()
    db.close()


def test_rows_that_belong_to_nothing_stop_it_and_change_nothing(old):
    path, connection = old
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute(
        "INSERT INTO run_hour (run_id, hour_ts, idle_mj, active_mj) VALUES (4,0,5,6)"
    )
    connection.commit()
    with pytest.raises(StoreError, match="without the row they belong to"):
        open_store(path)
    assert len(shown(connection)) == 4
    assert connection.execute("SELECT type FROM sqlite_master WHERE name = 'run'").fetchone() == (
        "table",
    )


@pytest.mark.parametrize(
    ("sql", "index"),
    [
        ("SELECT * FROM run t WHERE t.user = 'ada' ORDER BY t.submit_ts DESC LIMIT 5", "run_user"),
        ("SELECT * FROM run t WHERE t.cluster = 'c' AND t.job_id = 7", "run_key"),
        ("SELECT name FROM run t WHERE t.account = 'qcd' AND t.end_ts >= 5", "run_account"),
        ("SELECT run_id FROM run WHERE decision_id = 'd1'", "run_decision"),
        ("SELECT max(end_ts) FROM run", "run_end"),
    ],
)
def test_the_view_uses_the_indexes(tmp_path, sql, index):
    db = open_store(tmp_path / "s.db")
    plan = " ".join(row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}"))
    db.close()
    assert index in plan
    assert "TEMP B-TREE" not in plan
    assert "SCAN r" not in plan or index == "run_end"


def test_an_exit_code_that_no_process_has_becomes_unknown(old):
    """Not another one: 300 has more than the eight bits that are kept."""
    path, connection = old
    connection.execute("UPDATE run SET exit_code = 300 WHERE run_id = 3")
    connection.execute("UPDATE run SET exit_code = 0, exit_signal = 1 << 60 WHERE run_id = 9")
    connection.commit()
    connection.close()
    db = open_store(path)
    codes = db.execute("SELECT run_id, exit_code, exit_signal FROM run ORDER BY 1").fetchall()
    assert codes == [(3, None, None), (5, None, None), (6, None, None), (9, None, None)]
    db.close()
