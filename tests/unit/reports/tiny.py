# SPDX-License-Identifier: Apache-2.0
"""A store of a few rows whose sums are done by hand."""

from __future__ import annotations

from fairwatt.accounting.carbon.factors import Factor, FactorFile
from fairwatt.accounting.carbon.grid_store import FILE, add_factors
from fairwatt.accounting.runs import insert_runs
from fairwatt.accounting.store import open_store, transaction
from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.records import Run
from tests.unit.carbon.stored import store_pue

CLUSTER = "c1"
HOUR_MILLI_S = 3_600_000
"""One full-GPU hour in thousandths of a GPU times seconds."""
KWH = 3_600_000_000

_USAGE = {
    "day": "2026-02-01",
    "cluster": CLUSTER,
    "account": "a",
    "user": "ann",
    "gpu_type": "x",
    "runs_ended": 0,
    "runs_failed": 0,
    "runs_cancelled": 0,
    "wait_s": 0,
    "waited_runs": 0,
    "cpu_s": 0,
    "device_s": 0,
    "gpu_milli_s": 0,
    "util_known_milli_s": 0,
    "used_milli_s": 0,
    "failed_milli_s": 0,
    "idle_mj": 0,
    "active_mj": 0,
    "unmeasured_milli_s": 0,
    "co2_mg": 0,
}
_RUN = {
    "cluster": CLUSTER,
    "job_id": 7,
    "submit_ts": 1_000_000,
    "restart_cnt": 0,
    "state": "COMPLETED",
    "user": "ann",
    "account": "a",
}


def new_store(path):
    """An empty store with the tree root → a 40 (a1, a2), b 30, c 20, d 10."""
    db = open_store(path)
    for name, parent, shares in (
        ("root", None, 1),
        ("a", "root", 40),
        ("a1", "a", 3),
        ("a2", "a", 1),
        ("b", "root", 30),
        ("c", "root", 20),
        ("d", "root", 10),
    ):
        add_account(db, name, parent, shares)
    for user, account, coordinator in (
        ("ann", "a1", 0),
        ("bob", "a2", 0),
        ("cid", "b", 0),
        ("dee", "c", 0),
        ("eve", "d", 0),
        ("head", "a", 1),
    ):
        add_member(db, user, account, coordinator)
    return db


def add_account(db, name, parent, shares, deleted=0):
    db.execute(
        "INSERT INTO account VALUES (?, ?, ?, ?, '', ?)", (CLUSTER, name, parent, shares, deleted)
    )


def add_member(db, user, account, coordinator, shares=0, deleted=0):
    db.execute(
        "INSERT INTO membership VALUES (?, ?, ?, ?, ?, ?)",
        (CLUSTER, user, account, shares, coordinator, deleted),
    )


def add_usage(db, **values):
    """A usage_daily row; `hours` stands for full-GPU hours."""
    row = {**_USAGE, **values}
    hours = row.pop("hours", None)
    if hours is not None:
        row["gpu_milli_s"] = int(hours * HOUR_MILLI_S)
    names = ", ".join(row)
    marks = ", ".join("?" * len(row))
    db.execute(f"INSERT INTO usage_daily ({names}) VALUES ({marks})", tuple(row.values()))
    month = {**row, "month": row["day"][:7]}
    del month["day"]
    names = ", ".join(month)
    db.execute(f"INSERT INTO usage_monthly ({names}) VALUES ({marks})", tuple(month.values()))


def add_run(db, **values):
    seeded = values.pop("origin", "slurm") == "seed"
    decision_id = values.pop("decision_id", None)
    mem_mib = values.pop("mem_mib", None)
    if mem_mib is not None:
        values["alloc_tres"] = f"mem={mem_mib}M,{values['alloc_tres']}"
    with transaction(db) as connection:
        insert_runs(connection, [Run(**{**_RUN, **values})], load_catalogue(), seeded=seeded)
        (run_id,) = connection.execute("SELECT max(run_id) FROM job_run").fetchone()
        if decision_id is not None:
            connection.execute(
                "UPDATE job_run SET decision_id = ? WHERE run_id = ?", (decision_id, run_id)
            )
    return run_id


def add_factor(db, from_ts, until_ts, g_per_kwh, pue=1.2):
    row = Factor("AAA", from_ts, until_ts, g_per_kwh * 1000)
    with transaction(db) as connection:
        add_factors(connection, FactorFile("a book", "CC0", "average", 0, (row,)), FILE, "test", 0)
        store_pue(connection, pue, 0)


def named(tables, name):
    return next(table for table in tables if table.name == name)
