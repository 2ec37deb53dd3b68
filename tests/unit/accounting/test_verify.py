# SPDX-License-Identifier: Apache-2.0
"""`fairwatt ledger verify`: a sound store balances, and one mJ planted anywhere is found."""

from __future__ import annotations

import json
import sqlite3
from datetime import date

import msgspec
import pytest
from click.testing import CliRunner

from fairwatt.accounting.archive import archive_windows, drop_months
from fairwatt.accounting.days import day_bounds
from fairwatt.accounting.ingest import ingest
from fairwatt.accounting.ledger_commands import ledger
from fairwatt.accounting.rollup import mark_open_days, rollup
from fairwatt.accounting.runs import upsert_runs
from fairwatt.accounting.settle import settle
from fairwatt.accounting.store import open_store, transaction
from fairwatt.accounting.verify import span_of, verify
from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.errors import ReportError
from tests.unit.accounting.samples import BERLIN, Node, new_store, sacct_run, share, whole

DAY = day_bounds("2024-10-27", BERLIN)  # summer time ends: 25 hours
START = DAY[0] + 3600
MS = START * 1000
HOUR_MS = 3_600_000


def checked(path, span=None):
    return verify(path, cluster="campus", zone=BERLIN, carbon_zone="DEU",
                  span=span or span_of(None, None, BERLIN))  # fmt: skip


def host_window(node, part, t0_ms, t1_ms, *shares, idle, system):
    """A window of a CPU package, whose system has a part too."""
    event = node.window(part, t0_ms, t1_ms, *shares, idle=idle, method="rapl")
    return msgspec.structs.replace(
        event, kind="cpu", system_mj=system, measured_mj=event.measured_mj + system
    )


@pytest.fixture
def path(tmp_path):
    """Two boards: job 7 on one over a window of 90 minutes and one of 30; job 8 on the other."""
    db, node = new_store(tmp_path), Node()
    rows = [
        sacct_run(JobIDRaw=str(job), JobID=str(job), Submit=str(START - 60), User=user,
                  Eligible=str(START - 60), Start=str(START), End=str(START + 7200))
        for job, user in ((7, "ada"), (8, "ben"))
    ]  # fmt: skip
    with transaction(db) as connection:
        upsert_runs(connection, rows, load_catalogue(), BERLIN, DAY[1])
    a, b, end = MS, MS + 5_400_000, MS + 7_200_000
    ingest(db, [
        node.up("GPU-a", "GPU-b", t_ms=MS - HOUR_MS),
        node.start(7, MS, whole("GPU-a")),
        node.start(8, MS, whole("GPU-b")),
        node.window("GPU-a", MS - HOUR_MS, a, idle=1000, active=10),
        node.window("GPU-a", a, b, share(7, MS, 100, 201, 500), idle=7),
        node.window("GPU-a", b, end, share(7, MS, 40, 60, 500), active=3),
        node.window("GPU-a", end, end + 2 * 86_400_000, idle=777),
        node.window("GPU-b", a, end, share(8, MS, 11, 13)),
        node.window("GPU-b", end, end + HOUR_MS, measured=None, idle=None, active=None),
        host_window(node, "gpu01/cpu0", MS - HOUR_MS, MS, idle=300, system=21),
        host_window(node, "gpu01/cpu0", MS, end, share(7, MS, 30, 40), idle=50, system=5),
        node.end(7, MS, end),
        node.end(8, MS, end),
    ], zone=BERLIN)  # fmt: skip
    settle(db, "campus", BERLIN)
    with transaction(db) as connection:
        mark_open_days(connection, BERLIN, DAY[1] + 86_400)
    rollup(db, "campus", BERLIN, "DEU", DAY[1] + 86_400)
    db.close()
    return tmp_path / "store.db"


def change(path, *statements):
    """Write as no code of ours does."""
    db = sqlite3.connect(path)
    for statement in statements:
        assert db.execute(statement).rowcount == 1, statement
    db.commit()
    db.close()


def test_a_sound_store_balances(path):
    done = checked(path)
    assert done.findings.faults == []
    assert [(b.device, b.windows, b.measured_mj, b.runs_mj, b.unallocated_mj, b.unknown_ms)
            for b in done.balances] == [
        ("GPU-a", 4, 2198, 401, 1797, 0),
        ("GPU-b", 2, 24, 24, 0, HOUR_MS),
        ("gpu01/cpu0", 2, 446, 70, 350, 0),
    ]  # fmt: skip
    assert [(b.kind, b.system_mj) for b in done.balances] == [("gpu", 0), ("gpu", 0), ("cpu", 26)]
    owners = done.owners["gpu"]
    assert (owners.run_idle_mj, owners.run_active_mj, owners.unjoined_mj) == (151, 274, 0)
    assert owners.total_mj == 2198 + 24
    assert (done.runs, done.days) == (2, 3)


PLANTS = {
    "window.measured_mj": "UPDATE window SET measured_mj = measured_mj + 1 WHERE t0_ms = {a}"
    " AND device_uuid = 'GPU-a'",
    "window.unallocated_idle_mj": "UPDATE window SET unallocated_idle_mj = unallocated_idle_mj + 1"
    " WHERE t0_ms = {a} AND device_uuid = 'GPU-a'",
    "window.unallocated_active_mj": "UPDATE window SET unallocated_active_mj ="
    " unallocated_active_mj - 1 WHERE t0_ms = {before}"
    " AND device_uuid = 'GPU-a'",
    "window.system_mj": "UPDATE window SET system_mj = 1 WHERE t0_ms = {before}"
    " AND device_uuid = 'GPU-a'",
    "window_share.idle_mj": "UPDATE window_share SET idle_mj = idle_mj + 1 WHERE t0_ms = {a}"
    " AND device_uuid = 'GPU-a'",
    "window_share.active_mj": "UPDATE window_share SET active_mj = active_mj - 1 WHERE t0_ms = {a}"
    " AND device_uuid = 'GPU-b'",
    "run_cell.idle_mj": "UPDATE run_cell SET idle_mj = idle_mj + 1 WHERE job_id = 8"
    " AND hour_ts = {start}",
    "run_cell.active_mj": "UPDATE run_cell SET active_mj = active_mj + 1 WHERE job_id = 8"
    " AND hour_ts = {start}",
    "device_hour.measured_mj": "UPDATE device_hour SET measured_mj = measured_mj + 1"
    " WHERE hour_ts = {start} AND device_uuid = 'GPU-a'",
    "device_hour.idle_mj": "UPDATE device_hour SET idle_mj = idle_mj + 1"
    " WHERE hour_ts = {start} AND device_uuid = 'GPU-b'",
    "device_hour.active_mj": "UPDATE device_hour SET active_mj = active_mj + 1"
    " WHERE hour_ts = {start} AND device_uuid = 'GPU-b'",
    "device_hour.system_mj": "UPDATE device_hour SET system_mj = system_mj + 1"
    " WHERE hour_ts = {start} AND device_uuid = 'gpu01/cpu0'",
    **{
        f"ledger_total.{name}_mj": f"UPDATE ledger_total SET {name}_mj = {name}_mj + 1"
        " WHERE kind = 'cpu'"
        for name in ("measured", "idle", "active", "system")
    },
    "run_host_hour.idle_mj": "UPDATE run_host_hour SET idle_mj = idle_mj + 1"
    " WHERE hour_ts = {start}",
    "run_host_hour.active_mj": "UPDATE run_host_hour SET active_mj = active_mj + 1"
    " WHERE hour_ts = {start}",
    "host_daily.idle_mj": "UPDATE host_daily SET idle_mj = idle_mj + 1 WHERE owner = 'run'",
    "host_daily.active_mj": "UPDATE host_daily SET active_mj = active_mj + 1"
    " WHERE owner = 'system'",
    "host_monthly.idle_mj": "UPDATE host_monthly SET idle_mj = idle_mj + 1 WHERE owner = 'run'",
    "host_monthly.active_mj": "UPDATE host_monthly SET active_mj = active_mj + 1"
    " WHERE owner = 'system'",
    **{
        f"energy_hour.q{n}_mj": f"UPDATE energy_hour SET q{n}_mj = q{n}_mj + 1 WHERE hour_ts ="
        " (SELECT min(hour_ts) FROM energy_hour) AND key_id = (SELECT key_id FROM energy_owner"
        " WHERE owner = 'unallocated' AND kind = 'gpu')"
        for n in range(4)
    },
    "run_energy.idle_mj": "UPDATE run_energy SET idle_mj = idle_mj + 1 WHERE run_id = 1"
    " AND device_uuid = 'GPU-a'",
    "run_energy.active_mj": "UPDATE run_energy SET active_mj = active_mj - 1 WHERE run_id = 2",
    "run_hour.idle_mj": "UPDATE run_hour SET idle_mj = idle_mj + 1 WHERE run_id = 1"
    " AND hour_ts = {start}",
    "run_hour.active_mj": "UPDATE run_hour SET active_mj = active_mj + 1 WHERE run_id = 2"
    " AND hour_ts = {start}",
    "usage_daily.idle_mj": "UPDATE usage_daily SET idle_mj = idle_mj + 1 WHERE user = 'ada'",
    "usage_daily.active_mj": "UPDATE usage_daily SET active_mj = active_mj + 1 WHERE user = 'ben'",
    "usage_monthly.idle_mj": "UPDATE usage_monthly SET idle_mj = idle_mj + 1 WHERE user = 'ada'",
    "usage_monthly.active_mj": "UPDATE usage_monthly SET active_mj = active_mj - 1"
    " WHERE user = 'ben'",
    "unallocated_daily.idle_mj": "UPDATE unallocated_daily SET idle_mj = idle_mj + 1"
    " WHERE day = '2024-10-28'",
    "unallocated_daily.active_mj": "UPDATE unallocated_daily SET active_mj = active_mj + 1"
    " WHERE day = '2024-10-28'",
}
"""One mJ in each column that holds energy: the statement that plants it."""


@pytest.mark.parametrize("place", PLANTS)
def test_one_mj_planted_wrong_is_found_and_named(path, place):
    table, column = place.split(".")
    change(path, PLANTS[place].format(a=MS, before=MS - HOUR_MS, start=START))
    done = checked(path)
    assert not done.ok
    named = [
        fault for fault in done.findings.faults
        if table.removesuffix("_share") in fault.where
        and (table in ("window", "window_share", "energy_hour")
             or column.removesuffix("_mj") in fault.what)
    ]  # fmt: skip
    assert named, done.findings.faults
    assert all(abs(int(fault.expected) - int(fault.found)) == 1 for fault in named)
    assert all(fault.remedy for fault in named)


def test_every_column_of_energy_has_its_plant(path):
    """A column that somebody adds must be verified too."""
    db = sqlite3.connect(path)
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")]
    columns = {
        f"{table}.{name}"
        for table in tables
        for name, pk in db.execute("SELECT name, pk FROM pragma_table_info(?)", (table,))
        if name.endswith("_mj") and not pk
    }
    db.close()
    assert columns - PLANTS.keys() - ELSEWHERE.keys() == set()


ELSEWHERE = {
    **dict.fromkeys(
        (f"{table}.{name}" for table in ("usage_daily", "usage_monthly", "unallocated_daily",
                                         "host_daily", "host_monthly")
         for name in ("factor_fallback_mj", "market_unknown_mj")),
        "compared with the recomputed row",
    ),
    "moved_daily.moved_mj": "compared with the recomputed row",
    "use_cell.moved_mj": "no energy of the ledger: what another idle policy would move",
    "moved_hour.moved_mj": "no energy of the ledger: what another idle policy would move",
}  # fmt: skip


def test_energy_moved_between_two_owners_is_found(path):
    """The window still adds up; the runs do not."""
    change(
        path,
        "UPDATE window_share SET idle_mj = idle_mj - 1 WHERE job_id = 7 AND device_uuid = 'GPU-a'"
        f" AND t0_ms = {MS}",
        "UPDATE window SET unallocated_idle_mj = unallocated_idle_mj + 1"
        f" WHERE t0_ms = {MS} AND device_uuid = 'GPU-a'",
    )
    found = {fault.where.split()[0] for fault in checked(path).findings.faults}
    assert {"run_energy", "run_hour", "usage_daily", "unallocated_daily"} <= found


def test_energy_moved_between_two_devices_or_hours_is_found(path):
    change(
        path,
        f"UPDATE device_hour SET idle_mj = idle_mj - 1 WHERE hour_ts = {START}"
        " AND device_uuid = 'GPU-a'",
        f"UPDATE device_hour SET idle_mj = idle_mj + 1 WHERE hour_ts = {START}"
        " AND device_uuid = 'GPU-b'",
    )
    faults = [f for f in checked(path).findings.faults if f.where.startswith("device_hour")]
    assert [(f.subject, f.found) for f in faults if f.what.startswith("idle")] == [
        ("GPU-a", faults[0].expected - 1), ("GPU-b", 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("job_id", "what"),
    [(8, "a run that holds another board"), (99, "a run that no table knows")],
)
def test_a_planted_share_that_no_run_would_look_for_is_found(path, job_id, what):
    """On GPU-a, of whose idle 7 mJ nobody's part is now 2: the window balances, no cell has it."""
    change(
        path,
        "UPDATE window SET unallocated_idle_mj = 2"
        f" WHERE t0_ms = {MS} AND device_uuid = 'GPU-a' AND unallocated_idle_mj = 7",
        "INSERT INTO window_share (device_uuid, t0_ms, node, job_id, run_start_ms, instance_uuid,"
        f" idle_mj, active_mj) VALUES ('GPU-a', {MS}, 'gpu01', {job_id}, {MS}, '', 5, 0)",
    )
    named = [f for f in checked(path).findings.faults if f.what.startswith("share of job")]
    assert [(f.subject, f.found) for f in named] == [("GPU-a", 5)], what
    assert str(MS) in named[0].where


@pytest.mark.parametrize("t0_ms", [MS - HOUR_MS, MS + 7_200_000])
def test_a_planted_share_before_or_after_its_run_is_found(path, t0_ms):
    """GPU-a's windows before job 7 began and after it ended, 5 mJ of nobody's now the job's."""
    change(
        path,
        "UPDATE window SET unallocated_idle_mj = unallocated_idle_mj - 5"
        f" WHERE t0_ms = {t0_ms} AND device_uuid = 'GPU-a'",
        "INSERT INTO window_share (device_uuid, t0_ms, node, job_id, run_start_ms, instance_uuid,"
        f" idle_mj, active_mj) VALUES ('GPU-a', {t0_ms}, 'gpu01', 7, {MS}, '', 5, 0)",
    )
    named = [f for f in checked(path).findings.faults if f.what.startswith("share of job 7")]
    assert [(f.subject, f.found) for f in named] == [("GPU-a", 5)]
    assert str(t0_ms) in named[0].where


@pytest.mark.parametrize("part", ["GPU-a", "gpu01/cpu0"])
def test_cells_that_are_gone_are_found_and_told_by_hour(path, part):
    """The run's shares are looked for on what it held and on its node, cells or not."""
    db = sqlite3.connect(path)
    assert db.execute(
        "DELETE FROM run_cell WHERE job_id = 7 AND device_uuid = ?", (part,)
    ).rowcount
    db.commit()
    db.close()
    faults = [f for f in checked(path).findings.faults if f.where.startswith("run_cell of gpu01")]
    told = sum(f.expected for f in faults if part in f.where and f.found is None)
    assert told == {"GPU-a": 100 + 201 + 40 + 60, "gpu01/cpu0": 30 + 40}[part]


def test_windows_before_and_after_a_run_s_own_time_are_looked_for(path):
    """The agent was away at the prolog, and a late window came hours after the epilog."""
    db, node = new_store(path.parent), Node()
    node.seq = 50
    begin = MS + 7_200_000 + HOUR_MS
    ingest(db, [
        node.start(7, begin + 60_000, whole("GPU-b")),
        node.window("GPU-b", begin, begin + 90_000, share(7, begin + 60_000, 5, 6)),
        node.end(7, begin + 60_000, begin + 80_000),
        node.window("GPU-b", begin + 90_000, begin + 5 * HOUR_MS, share(7, begin + 60_000, 1, 2)),
    ], zone=BERLIN)  # fmt: skip
    with transaction(db) as connection:
        upsert_runs(connection, [sacct_run(
            JobIDRaw="7", JobID="7", Restarts="1", Submit=str(begin // 1000), User="ada",
            Eligible=str(begin // 1000), Start=str(begin // 1000 + 60),
            End=str(begin // 1000 + 80))],
            load_catalogue(), BERLIN, DAY[1])  # fmt: skip
    settle(db, "campus", BERLIN)
    rollup(db, "campus", BERLIN, "DEU", DAY[1] + 86_400)
    db.close()
    done = checked(path)
    assert done.findings.faults == []
    assert (done.runs, done.owners["gpu"].unjoined_mj) == (3, 0)
    change(path, f"UPDATE window_share SET active_mj = 3 WHERE t0_ms = {begin + 90_000}")
    assert "run_energy" in {f.where.split()[0] for f in checked(path).findings.faults}


@pytest.mark.parametrize("lost", ["run_energy WHERE run_id = 2", "usage_daily WHERE user = 'ben'",
                                  "usage_monthly WHERE user = 'ada'",
                                  "unallocated_daily WHERE day = '2024-10-28'"])  # fmt: skip
def test_a_row_that_is_gone_is_found(path, lost):
    change(path, f"DELETE FROM {lost}")
    assert lost.split()[0] in {f.where.split()[0] for f in checked(path).findings.faults}


def test_windows_that_overlap(path):
    change(
        path,
        f"UPDATE window SET t1_ms = t1_ms + 1 WHERE t0_ms = {MS - HOUR_MS}"
        " AND device_uuid = 'GPU-a'",
    )
    (fault, *_) = checked(path).findings.faults
    assert fault.subject == "GPU-a"
    assert fault.what.startswith("overlaps")
    assert (fault.expected, fault.found) == (MS + 1, MS)


def hole(path, *, flags=0, told_ms=None):
    """Two hours between two windows of GPU-b."""
    db, node = new_store(path.parent), Node()
    node.seq = 50
    begin = MS + 7_200_000 + 3 * HOUR_MS
    events = [node.window("GPU-b", begin, begin + 1000, flags=flags)]
    if told_ms is not None:
        events.insert(0, node.up("GPU-b", t_ms=begin + told_ms))
    ingest(db, events, zone=BERLIN)
    db.close()
    return [f for f in checked(path).findings.faults if "hole" in f.what], begin


def test_a_hole_that_nobody_told_of_is_found(path):
    (fault,), begin = hole(path)
    assert (fault.subject, fault.expected, fault.found) == ("GPU-b", begin - 2 * HOUR_MS, begin)
    assert "gpu01" in fault.remedy


@pytest.mark.parametrize("how", [{"flags": 8}, {"flags": 1}, {"told_ms": -20}, {"told_ms": 900}])
def test_a_hole_that_the_agent_told_of_is_none(path, how):
    """It was away for over a month, or it began anew with an empty spool."""
    faults, _ = hole(path, **how)
    assert faults == []
    assert [b.told_holes for b in checked(path).balances] == [0, 1, 0]


def test_a_hole_long_after_the_agent_began_is_found(path):
    faults, _ = hole(path, told_ms=120_000)
    assert len(faults) == 1


def test_what_waits_to_be_settled_is_no_fault(path):
    db, node = new_store(path.parent), Node()
    node.seq = 50
    at = MS + 7_200_000 + HOUR_MS
    ingest(db, [node.window("GPU-b", at, at + 1000, share(8, MS, 5, 5))], zone=BERLIN)
    db.close()
    done = checked(path)
    assert done.findings.faults == []
    assert any("settled" in note for note in done.findings.notes)
    assert any("rolled up" in note for note in done.findings.notes)


def test_a_run_that_slurm_does_not_know_owns_its_energy_all_the_same(path):
    db, node = new_store(path.parent), Node()
    node.seq = 50
    at = MS + 7_200_000 + HOUR_MS
    ingest(db, [
        node.start(99, at, whole("GPU-b")),
        node.window("GPU-b", at, at + 1000, share(99, at, 5, 6)),
        node.end(99, at, at + 1000),
    ], zone=BERLIN)  # fmt: skip
    settle(db, "campus", BERLIN)
    rollup(db, "campus", BERLIN, "DEU", DAY[1] + 86_400)
    db.close()
    done = checked(path)
    assert done.findings.faults == []
    assert done.owners["gpu"].unjoined_mj == 11


def test_a_span_verifies_its_days_alone(path):
    """The window that began the day before is cut at midnight and still seen as its neighbour."""
    last = date(2024, 10, 28)
    span = span_of(last, last, BERLIN)
    done = checked(path, span)
    assert done.findings.faults == []
    assert done.days == 1
    assert [b.windows for b in done.balances] == [0, 0, 0]
    # 24 of the 48 hours of a window of 777 mJ, which began 22 hours before that day's midnight.
    assert done.owners["gpu"].total_mj == 777 * 46 // 48 - 777 * 22 // 48
    change(path, f"UPDATE window SET measured_mj = 9999 WHERE t0_ms = {MS}"
           " AND device_uuid = 'GPU-a'")  # fmt: skip
    assert checked(path, span).ok
    assert not checked(path).ok


def test_reading_is_all_it_does(path):
    before = path.read_bytes()
    path.chmod(0o400)
    checked(path)
    assert path.read_bytes() == before


def test_the_command_prints_balances_and_fails_loudly(path, tmp_path, monkeypatch):
    config = tmp_path / "fairwatt.toml"
    config.write_text(
        f"[site]\ncluster = 'campus'\ntimezone = 'Europe/Berlin'\n"
        f"[collector]\ndatabase = '{path}'\n[carbon]\nzone = 'DEU'\n"
    )
    monkeypatch.setenv("FAIRWATT_CONFIG", str(config))
    good = CliRunner().invoke(ledger, ["verify", "--from", "2024-10-27", "--to", "2024-10-27"])
    assert good.exit_code == 0, good.output
    assert "GPU-a" in good.output
    assert "rows/s" in good.output
    change(path, f"UPDATE window SET measured_mj = measured_mj + 1 WHERE t0_ms = {MS}"
           " AND device_uuid = 'GPU-a'")  # fmt: skip
    bad = CliRunner().invoke(ledger, ["verify", "--json"])
    assert bad.exit_code == 1
    (fault, *_) = json.loads(bad.output)["faults"]["rows"]
    assert (fault["subject"], fault["expected"], fault["found"]) == ("GPU-a", "309", "308")
    assert str(MS) in fault["where"]
    assert fault["remedy"]


@pytest.fixture
def archived(path):
    """The same store, with all windows in their month's file."""
    db = open_store(path)
    # The one of unknown energy stays.
    assert archive_windows(db, (DAY[1] + 10 * 86_400) * 1000) == 7
    db.close()
    return path


def test_windows_in_a_month_s_file_are_verified_there(archived):
    done = checked(archived)
    assert done.findings.faults == []
    assert [b.measured_mj for b in done.balances] == [2198, 24, 446]
    assert (done.runs, done.days) == (2, 3)
    month = archived.with_name("store.windows-2024-10.db")
    change(month, f"UPDATE window_share SET idle_mj = idle_mj + 1 WHERE t0_ms = {MS}"
           " AND device_uuid = 'GPU-a'")  # fmt: skip
    (fault, *_) = checked(archived).findings.faults
    assert (fault.subject, fault.expected, fault.found) == ("GPU-a", 308, 309)


def test_a_window_in_both_files_counts_once(archived):
    """As after a crash between the copy and the removal."""
    db = sqlite3.connect(archived)
    db.execute("ATTACH ? AS month", (str(archived.with_name("store.windows-2024-10.db")),))
    for table in ("window", "window_share"):
        db.execute(f"INSERT INTO main.{table} SELECT * FROM month.{table}")
    db.commit()
    db.close()
    done = checked(archived)
    assert done.findings.faults == []
    assert [b.windows for b in done.balances] == [4, 2, 2]


def test_what_was_measured_in_a_removed_month_stays_and_is_no_fault(archived):
    db = open_store(archived)
    assert drop_months(db, (DAY[1] + 40 * 86_400) * 1000, 0) == ["2024-10"]
    db.close()
    done = checked(archived)
    assert done.findings.faults == []
    assert any("2 runs have windows of removed months" in note for note in done.findings.notes)
    change(archived, "UPDATE usage_monthly SET idle_mj = idle_mj + 1 WHERE user = 'ada'")
    assert [fault.where.split()[0] for fault in checked(archived).findings.faults] == [
        "usage_monthly"
    ]


@pytest.mark.parametrize(
    ("first", "last", "words"),
    [
        (date(2026, 9, 2), date(2026, 9, 1), "--to: ends before it begins"),
        (date(9999, 12, 31), None, "beyond the calendar"),
        (None, date(9999, 12, 31), "beyond the calendar"),
    ],
)
def test_a_span_that_is_none_is_told(first, last, words):
    with pytest.raises(ReportError, match=words):
        span_of(first, last, BERLIN)


def test_a_store_without_factors_of_the_zone_is_verified_but_for_its_sums_by_day(path):
    change(path, "UPDATE window SET measured_mj = measured_mj + 1 WHERE device_uuid = 'GPU-a'"
                 f" AND t0_ms = {MS}")  # fmt: skip
    done = verify(
        path, cluster="campus", zone=BERLIN, carbon_zone="XXX", span=span_of(None, None, BERLIN)
    )
    assert done.findings.count > 0
    (note,) = [n for n in done.findings.notes if "by day" in n]
    assert "no carbon factors" in note
    assert done.days == 0
