# SPDX-License-Identifier: Apache-2.0
"""Windows of CPUs, DRAM and the rest of nodes in the store: runs, days, owners, reports."""

from __future__ import annotations

import pytest

from fairwatt.accounting.ingest import ingest
from fairwatt.accounting.reports.host import host_tables
from fairwatt.accounting.reports.job import job_report
from fairwatt.accounting.reports.scope import scope_of
from fairwatt.accounting.rollup import rollup
from fairwatt.accounting.runs import upsert_runs
from fairwatt.accounting.settle import settle
from fairwatt.accounting.store import transaction
from fairwatt.accounting.verify import span_of, verify
from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.errors import IngestError
from fairwatt.core.events import Flag, WindowClosed
from tests.unit.accounting.samples import UTC, Node, new_store, sacct_run, share, whole

CATALOGUE = load_catalogue()
KINDS = {"cpu0": "cpu", "cpu1": "cpu", "dram0": "dram", "rest": "node"}


@pytest.fixture
def db(tmp_path):
    return new_store(tmp_path)


def put(db, *rows):
    with transaction(db) as connection:
        upsert_runs(connection, rows, CATALOGUE, UTC, 10_000)


def part(node, name, t0_ms, t1_ms, *shares, idle=0, active=0, system=0, known=True, **more):
    """The window of a part; its measured energy is what its owners have."""
    owned = sum(s.idle_mj + s.active_mj for s in shares)
    return WindowClosed(
        **{"node": node.name, "boot_id": "boot-1", "seq": _next(node), "flags": 0,
           "method": "rapl", **more},
        device=f"{node.name}/{name}", kind=KINDS[name], t0_ms=t0_ms, t1_ms=t1_ms, shares=shares,
        measured_mj=owned + idle + active + system if known else None,
        unallocated_idle_mj=idle if known else None,
        unallocated_active_mj=active if known else None, system_mj=system if known else None,
    )  # fmt: skip


def _next(node):
    node.seq += 1
    return node.seq


def a_shared_hour(db):
    """Two jobs on one node for 100 s: GPU of job 7, both packages, DRAM and the rest."""
    node = Node()
    put(db, sacct_run(), sacct_run(JobIDRaw="8", JobID="8", User="ben", Account="optics"))
    ingest(db, [
        node.up("GPU-a"),
        node.start(7, 1_060_000, whole("GPU-a")),
        node.start(8, 1_060_000),
        node.window("GPU-a", 1_060_000, 1_160_000, share(7, 1_060_000, 5, 50, 900)),
        part(node, "cpu0", 1_060_000, 1_160_000, share(7, 1_060_000, 10, 100, 750),
             share(8, 1_060_000, 20, 200), idle=7, system=3),
        part(node, "cpu1", 1_060_000, 1_160_000, share(8, 1_060_000, 1, 2), idle=9, active=4),
        part(node, "dram0", 1_060_000, 1_160_000, share(7, 1_060_000, 30, 44), system=1),
        part(node, "rest", 1_060_000, 1_160_000, share(8, 1_060_000, 500, 0), idle=600,
             method="ipmi", flags=Flag.INTEGRATED),
        node.end(7, 1_060_000, 1_160_000),
        node.end(8, 1_060_000, 1_160_000),
    ])  # fmt: skip
    settle(db, "campus", UTC)
    rollup(db, "campus", UTC, "DEU", 10_000)
    return node


def test_parts_of_hosts_are_devices_of_their_kind(db):
    a_shared_hour(db)
    assert db.execute("SELECT device_uuid, node, kind FROM device ORDER BY 1").fetchall() == [
        ("GPU-a", "gpu01", "gpu"), ("gpu01/cpu0", "gpu01", "cpu"), ("gpu01/cpu1", "gpu01", "cpu"),
        ("gpu01/dram0", "gpu01", "dram"), ("gpu01/rest", "gpu01", "node"),
    ]  # fmt: skip


def test_a_run_has_its_energy_of_every_part(db):
    a_shared_hour(db)
    assert db.execute(
        "SELECT r.job_id, e.device_uuid, e.idle_mj, e.active_mj, e.util_permille, e.method"
        " FROM run_energy e JOIN run r USING (run_id) ORDER BY 1, 2"
    ).fetchall() == [
        (7, "GPU-a", 5, 50, 900, "counter"),
        (7, "gpu01/cpu0", 10, 100, 750, "rapl"),
        (7, "gpu01/dram0", 30, 44, None, "rapl"),
        (8, "gpu01/cpu0", 20, 200, None, "rapl"),
        (8, "gpu01/cpu1", 1, 2, None, "rapl"),
        (8, "gpu01/rest", 500, 0, None, "ipmi"),
    ]
    # What means GPUs is theirs alone, in energy and in time.
    assert db.execute(
        "SELECT r.job_id, h.idle_mj, h.active_mj, h.measured_ms FROM run_hour h"
        " JOIN run r USING (run_id)"
    ).fetchall() == [(7, 5, 50, 100_000)]


def test_days_and_months_have_every_owner(db):
    a_shared_hour(db)
    for table in ("host_daily", "host_monthly"):
        assert db.execute(
            f"SELECT owner, account, user, kind, idle_mj, active_mj FROM {table} ORDER BY 1, 2, 4"
        ).fetchall() == [
            ("run", "optics", "ben", "cpu", 21, 202), ("run", "optics", "ben", "node", 500, 0),
            ("run", "qcd", "ada", "cpu", 10, 100), ("run", "qcd", "ada", "dram", 30, 44),
            ("system", "", "", "cpu", 0, 3), ("system", "", "", "dram", 0, 1),
            ("unallocated", "", "", "cpu", 16, 4), ("unallocated", "", "", "node", 600, 0),
        ]  # fmt: skip
    (owned,) = db.execute("SELECT sum(idle_mj + active_mj) FROM host_daily").fetchone()
    (measured,) = db.execute(
        "SELECT sum(measured_mj) FROM window WHERE device_uuid LIKE '%/%'"
    ).fetchone()
    assert owned == measured
    # The boards' sums are as without hosts.
    boards = db.execute("SELECT user, idle_mj, active_mj FROM usage_daily ORDER BY 1").fetchall()
    assert boards == [("ada", 5, 50), ("ben", 0, 0)]
    assert db.execute("SELECT sum(idle_mj + active_mj) FROM unallocated_daily").fetchone() == (0,)


def test_the_books_balance(db, tmp_path):
    """`fairwatt ledger verify` finds no fault in them, and the owners it names are ours."""
    a_shared_hour(db)
    done = verify(tmp_path / "store.db", cluster="campus", zone=UTC, carbon_zone="DEU",
                  span=span_of(None, None, UTC))  # fmt: skip
    assert done.findings.faults == []
    assert (done.owners["cpu"].system_mj, done.owners["cpu"].unallocated_idle_mj) == (3, 16)


def test_settling_and_rolling_up_again_changes_nothing(db):
    a_shared_hour(db)
    rows = [db.execute(f"SELECT * FROM {t}").fetchall() for t in ("host_daily", "run_host_hour")]
    db.execute("INSERT INTO unsettled (node, job_id, start_ms) VALUES ('gpu01', 8, 1060000)")
    db.execute("INSERT INTO dirty_day SELECT DISTINCT day FROM host_daily")
    db.conn.commit()
    settle(db, "campus", UTC)
    rollup(db, "campus", UTC, "DEU", 10_000)
    again = [db.execute(f"SELECT * FROM {t}").fetchall() for t in ("host_daily", "run_host_hour")]
    assert again == rows


def test_a_part_that_could_not_be_read_is_unknown_for_all_runs_on_the_node(db):
    node = Node()
    put(db, sacct_run())
    ingest(db, [
        node.start(7, 1_060_000),
        part(node, "cpu0", 1_060_000, 1_160_000, known=False, flags=Flag.LOST),
        node.end(7, 1_060_000, 1_160_000),
    ])  # fmt: skip
    settle(db, "campus", UTC)
    assert db.execute("SELECT device_uuid, idle_mj, flags FROM run_energy").fetchall() == [
        ("gpu01/cpu0", None, 32)
    ]


def test_an_unknown_window_that_comes_late_reaches_the_run(db):
    node = Node()
    put(db, sacct_run())
    ingest(db, [node.start(7, 1_060_000), node.end(7, 1_060_000, 1_160_000)])
    settle(db, "campus", UTC)
    ingest(db, [part(node, "cpu0", 1_000_000, 1_100_000, known=False, flags=Flag.INCLUDED,
                     method="included")])  # fmt: skip
    assert settle(db, "campus", UTC) == 1
    assert db.execute("SELECT idle_mj, method FROM run_energy").fetchall() == [(None, "included")]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"system_mj": 4}, "shares \\+ unallocated \\+ system = 4 mJ, measured 3 mJ"),
        ({"system_mj": None}, "missing, negative or too large"),
        ({"system_mj": -1, "unallocated_idle_mj": 4}, "missing, negative or too large"),
        ({"device": "gpu02/cpu0"}, "a part of another host"),
        ({"device": "cpu0"}, "a part of another host"),
    ],
)
def test_a_window_that_cannot_be_is_refused(db, change, match):
    import msgspec

    window = part(Node(), "cpu0", 0, 10, system=3)
    with pytest.raises(IngestError, match=match):
        ingest(db, [msgspec.structs.replace(window, **change)])


def test_the_job_report_shows_the_parts_and_their_sum(db):
    a_shared_hour(db)
    admin = scope_of(db, "root", admin=True)
    tables = {t.name: t for t in job_report(db, admin, "campus", 7)}
    shown = [
        (row["part"], row["idle_mj"], row["active_mj"], row["energy_mj"], row["used"],
         row["method"].partition(",")[0])
        for row in tables["host_energy"].records()
    ]  # fmt: skip
    assert shown == [
        ("CPUs", 10, 100, 110, 0.75, "CPU's own energy counter (RAPL)"),
        ("memory", 30, 44, 74, None, "CPU's own energy counter (RAPL)"),
    ]
    assert tables["host_energy"].notes == ["Beside the GPUs: < 0.01 Wh; with them: < 0.01 Wh."]
    assert [row["device_uuid"] for row in tables["energy"].records()] == ["GPU-a"]


def test_a_job_without_such_measurements_has_no_such_table(db):
    assert host_tables(db.conn, scope_of(db, "root", admin=True), [1], None, 0) == []
