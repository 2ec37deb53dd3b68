# SPDX-License-Identifier: Apache-2.0
"""A change of factors is a new version: days are restated, old reports come out as before."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date

import pytest

from fairwatt.accounting.carbon.contracts import OPEN_END_TS, Bought
from fairwatt.accounting.carbon.embodied import YEAR_S, Hardware
from fairwatt.accounting.carbon.factors import Factor, FactorFile
from fairwatt.accounting.carbon.grid_store import IMPORTED, add_factors, open_grid
from fairwatt.accounting.carbon.pue import set_pue
from fairwatt.accounting.carbon.restate import mark_every_day, restate, restatements
from fairwatt.accounting.carbon.versions import current_version, store_choice
from fairwatt.accounting.days import day_bounds
from fairwatt.accounting.ingest import ingest
from fairwatt.accounting.render import as_json, as_text
from fairwatt.accounting.reports.carbon_basis import CarbonAsk
from fairwatt.accounting.reports.carbon_versions import versions_report
from fairwatt.accounting.reports.dept import dept_report
from fairwatt.accounting.reports.job import job_report
from fairwatt.accounting.reports.me import me_report
from fairwatt.accounting.reports.period import Period
from fairwatt.accounting.reports.scope import Role, Scope
from fairwatt.accounting.rollup import rollup
from fairwatt.accounting.runs import upsert_runs
from fairwatt.accounting.settle import settle
from fairwatt.accounting.store import data_version, open_store, transaction
from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.errors import NotFoundError
from tests.unit.accounting.samples import BERLIN, UTC, Node, sacct_run, share, whole
from tests.unit.carbon.factor import factor_at
from tests.unit.carbon.stored import store_contracts, store_factors, store_hardware, store_pue

CATALOGUE = load_catalogue()
DAYS = ("2025-03-30", "2025-03-31", "2025-04-01")  # the first one has 23 hours
NOW = day_bounds("2025-05-01", BERLIN)[0]
KWH = 3_600_000_000
EVERYTHING = Scope("root", Role.ADMIN)
ADA = Scope("ada", Role.RESEARCHER)
PERIOD = Period(date(2025, 3, 30), date(2025, 4, 2), "Europe/Berlin")


def year(grams, name="first"):
    begin, end = day_bounds("2025-01-01", BERLIN)[0], day_bounds("2026-01-01", BERLIN)[0]
    row = Factor("DEU", begin, end, round(grams * 1000))
    return FactorFile(f"a book, {name} edition", "CC0", "lifecycle-average", 0, (row,))


def hourly(grams, first, count):
    rows = tuple(
        Factor("DE", first + n * 3600, first + (n + 1) * 3600, round(g * 1000))
        for n, g in enumerate([grams] * count if isinstance(grams, int) else grams)
    )
    return FactorFile("a service", "free", "flow-traced", 0, rows)


@pytest.fixture
def db(tmp_path):
    """Three days: ada's run took 1 kWh on each, from 10:00 to 12:00; nobody 2 kWh after it."""
    db = open_store(tmp_path / "a.db")
    with transaction(db) as connection:
        store_factors(connection, year(300), now_ts=1)
        store_pue(connection, 1.5, 1)
        store_choice(connection, "DEU", "", "", 1)
        connection.execute("INSERT INTO account VALUES ('campus', 'root', NULL, 1, '', 0)")
        connection.execute("INSERT INTO account VALUES ('campus', 'qcd', 'root', 1, '', 0)")
    node = Node()
    events, runs = [node.up("GPU-a")], []
    for number, day in enumerate(DAYS):
        start = day_bounds(day, BERLIN)[1] - 14 * 3600
        ms, job = start * 1000, 7 + number
        runs.append(sacct_run(JobIDRaw=str(job), JobID=str(job), Submit=str(start - 60),
                              Eligible=str(start - 60), Start=str(start), End=str(start + 7200),
                              ElapsedRaw="7200"))  # fmt: skip
        events += [
            node.start(job, ms, whole("GPU-a")),
            node.window("GPU-a", ms, ms + 7_200_000, share(job, ms, KWH // 4, KWH * 3 // 4, 500)),
            node.end(job, ms, ms + 7_200_000),
            node.window("GPU-a", ms + 7_200_000, ms + 14_400_000, idle=2 * KWH),
        ]
    with transaction(db) as connection:
        upsert_runs(connection, runs, CATALOGUE, BERLIN, NOW)
    ingest(db, events)
    roll(db)
    yield db
    db.close()


def roll(db):
    settle(db, "campus", BERLIN)
    rollup(db, "campus", BERLIN, "DEU", NOW)
    return restate(db, BERLIN, "DEU")


def change(db, act, *args):
    with transaction(db) as connection:
        result = act(connection, *args)
    return result, restate(db, BERLIN, "DEU")


def sums(db):
    return db.execute(
        "SELECT (SELECT sum(co2_mg) FROM usage_daily), (SELECT sum(co2_mg) FROM usage_monthly),"
        " (SELECT sum(co2_mg) FROM unallocated_daily)"
    ).fetchone()


def reports(db, version=None):
    """All reports as text and JSON, but for the number of the data's own version."""
    ask = CarbonAsk(version)
    tables = [
        *dept_report(db.conn, EVERYTHING, "campus", "root", PERIOD, ask),
        *me_report(db.conn, ADA, PERIOD, carbon=ask),
        *job_report(db.conn, EVERYTHING, "campus", 8, carbon=ask),
    ]
    text = f"{as_text(tables)}\n{as_json(tables)}"
    return text.replace(f'"data_version": {data_version(db.conn)}', "")


def carbon(db, version=None, account="root"):
    tables = dept_report(db.conn, EVERYTHING, "campus", account, PERIOD, CarbonAsk(version))
    table = next(table for table in tables if table.name == "carbon")
    return {row["owner"]: row for row in table.records()}, table.notes


def test_a_new_edition_gives_the_new_number_and_the_old_report_stays(db):
    """E34: 3 kWh × 1.5 × 300 g = 1350 g; the next edition says 280: 1260 g."""
    assert sums(db) == (1_350_000, 1_350_000, 2_700_000)
    old = reports(db, 1)
    version, days = change(db, lambda c: store_factors(c, year(280, "second"), now_ts=9))
    assert (version, days) == (2, 3)
    assert sums(db) == (1_260_000, 1_260_000, 2_520_000)
    assert reports(db, 1).replace(", an older one", "") == old
    assert "280" not in old
    assert reports(db, 2) == reports(db)


def test_the_old_report_is_the_same_to_the_byte_however_often_factors_change(db):
    """E34, with every kind of change after it."""
    first = day_bounds(DAYS[0], BERLIN)[0]
    change(db, store_choice, "DEU", "DE", "flow-traced", 2)
    shown = [reports(db, version) for version in range(1, current_version(db.conn) + 1)]
    change(db, add_factors, hourly([100, 200, 400] * 20, first, 60), "service", "x", 3)
    shown.append(reports(db, current_version(db.conn)))
    for act, *args in (
        (set_pue, first + 86_400, 1.2, 4),
        (store_contracts, [Bought("hydro", 0, OPEN_END_TS, 500, 0, "c")], "c.csv", 5),
        (store_hardware, [Hardware("a100-40", 318_000, 4 * YEAR_S, "a paper")], 6),
        (add_factors, hourly(7, first + 36_000, 5), IMPORTED, "y", 7),
        (add_factors, hourly(50, first, 70), "service", "z", 8),
        (store_choice, "DEU", "", "", 9),
    ):
        (_, days) = change(db, act, *args)
        shown.append(reports(db, current_version(db.conn)))
        assert len(shown) == current_version(db.conn)
        newest = [text.replace(", an older one", "") for text in shown]
        again = [
            reports(db, number).replace(", an older one", "")
            for number in range(1, len(shown) + 1)
        ]
        assert again == newest
        assert reports(db).replace(", an older one", "") == newest[-1]
        assert days in (0, 2, 3)


def test_an_unknown_version_is_told(db):
    for version in (0, 99):
        with pytest.raises(NotFoundError, match="no such version"):
            reports(db, version)


def test_finer_factors_count_by_the_hour_and_gaps_are_told(db):
    """1 kWh evenly over two hours of 100 and 200 g: 150 g × 1.5; the other days stay at 300 g."""
    start = day_bounds(DAYS[1], BERLIN)[0] + 10 * 3600
    change(db, store_choice, "DEU", "DE", "flow-traced", 2)
    change(db, add_factors, hourly([100, 200], start, 2), "service", "x", 3)
    rows, notes = carbon(db)
    assert rows["qcd"]["co2_mg"] == 225_000 + 2 * 450_000
    assert rows["qcd"]["fallback"] == pytest.approx(2 / 3)
    nobody = rows["nobody (whole cluster, unallocated)"]
    assert nobody["co2_mg"] == 3 * 2 * 450_000
    assert nobody["fallback"] == 1
    assert any("flow-traced" in note and "a service" in note for note in notes)
    assert any("66.7 %" in note for note in notes)


def test_what_a_version_changed_is_kept(db):
    change(db, lambda c: store_factors(c, year(280, "second"), now_ts=9))
    changed = restatements(db.conn)[2]
    assert changed == (2, 3, 4_050_000, 3_780_000)
    assert db.execute(
        "SELECT day, before_mg, after_mg FROM restated_day WHERE version = 2 ORDER BY day"
    ).fetchall() == [(day, 1_350_000, 1_260_000) for day in DAYS]
    tables = {table.name: table for table in versions_report(db.conn)}
    newest = tables["versions"].records()[0]
    assert (newest["version"], newest["days"], newest["before_mg"]) == (2, 3, 4_050_000)
    assert tables["factors"].records()[0]["source"] == "a book, second edition"
    assert tables["pue"].records()[0]["pue"] == "1.5"


def test_only_days_near_a_finer_factor_are_looked_at(db):
    far = day_bounds("2025-08-01", BERLIN)[0]
    change(db, add_factors, hourly(100, far, 24), "service", "x", 2)
    assert change(db, add_factors, hourly(90, far, 24), "service", "x", 3)[1] == 0
    assert change(db, set_pue, far, 1.4, 4)[1] == 3


def test_restating_without_a_change_changes_nothing(db):
    before = reports(db)
    with transaction(db) as connection:
        mark_every_day(connection)
    assert restate(db, BERLIN, "DEU") == 3
    assert reports(db) == before
    assert restatements(db.conn) == {}


def test_market_based_stands_beside_and_is_unknown_without_a_contract(db):
    rows, notes = carbon(db)
    assert rows["qcd"]["market_mg"] is None
    assert any("Market-based is unknown" in note for note in notes)
    begin = day_bounds(DAYS[0], BERLIN)[0]
    bought = [Bought("hydro", begin, OPEN_END_TS, 600, 0, "c"),
              Bought("rest", begin, OPEN_END_TS, None, 500_000, "mix")]  # fmt: skip
    assert change(db, store_contracts, bought, "c.csv", 5)[1] == 3
    rows, notes = carbon(db)
    assert (rows["qcd"]["co2_mg"], rows["qcd"]["market_mg"]) == (1_350_000, 900_000)
    assert rows["nobody (whole cluster, unallocated)"]["market_mg"] == 1_800_000
    late = [part._replace(from_ts=day_bounds(DAYS[1], BERLIN)[0]) for part in bought]
    change(db, store_contracts, late, "c.csv", 6)
    assert carbon(db)[0]["qcd"]["market_mg"] is None


def test_hardware_and_sci_of_a_department_and_of_a_run(db):
    """Two hours of a GPU of 318 kg over four years: 18.138 g a day; SCI adds the electricity."""
    assert carbon(db)[0]["qcd"]["embodied_mg"] is None
    change(db, store_hardware, [Hardware("a100-40", 318_000, 4 * YEAR_S, "a paper")], 6)
    row = carbon(db)[0]["qcd"]
    assert row["embodied_mg"] == round(318_000_000 * 21_600 / (4 * YEAR_S))
    assert row["sci_mg"] == round((1_350_000 + row["embodied_mg"]) / 6)
    tables = job_report(db.conn, EVERYTHING, "campus", 8)
    run = next(table for table in tables if table.name == "carbon").records()[0]
    assert run["embodied_mg"] == 18_138
    assert run["sci_mg"] == 450_000 + 18_138
    assert run["market_mg"] is None


def test_the_json_of_a_report_names_its_version(db):
    body = json.loads(as_json(dept_report(db.conn, EVERYTHING, "campus", "qcd", PERIOD)))
    assert "carbon factors version 1" in json.dumps(body)


def test_energy_by_the_quarter_sums_to_the_daily_energy(db):
    quarters = db.execute(
        "SELECT owner, sum(q0_mj + q1_mj + q2_mj + q3_mj) FROM energy_hour"
        " JOIN energy_owner USING (key_id) GROUP BY owner ORDER BY owner"
    ).fetchall()
    assert quarters == [("run", 3 * KWH), ("unallocated", 6 * KWH)]


def test_a_run_of_twenty_minutes_counts_in_its_quarters(db):
    """From 10:00 to 10:20 at 100 g until 10:15, then 400 g: 3/4 at 100 and 1/4 at 400."""
    start = day_bounds("2025-04-02", BERLIN)[0] + 36_000
    node = Node("gpu02")
    with transaction(db) as connection:
        store_choice(connection, "DEU", "DE", "quarters", 2)
        rows = tuple(
            Factor("DE", start + n * 900, start + (n + 1) * 900, grams * 1000)
            for n, grams in enumerate([100, 400, 400, 400])
        )
        file = FactorFile("a service", "free", "quarters", 0, rows)
        add_factors(connection, file, "service", "x", 3)
        run = sacct_run(JobIDRaw="90", JobID="90", Submit=str(start), Eligible=str(start),
                        Start=str(start), End=str(start + 1200), ElapsedRaw="1200")  # fmt: skip
        upsert_runs(connection, [run], CATALOGUE, BERLIN, NOW)
    ms = start * 1000
    ingest(db, [
        node.up("GPU-b"), node.start(90, ms, whole("GPU-b")),
        node.window("GPU-b", ms, ms + 1_200_000, share(90, ms, 0, KWH)),
    ])  # fmt: skip
    roll(db)
    assert db.execute(
        "SELECT co2_mg, factor_fallback_mj FROM usage_daily WHERE day = '2025-04-02'"
    ).fetchall() == [(262_500, 0)]
    tables = job_report(db.conn, EVERYTHING, "campus", 90)
    run = next(table for table in tables if table.name == "carbon").records()[0]
    assert (run["co2_mg"], run["g_per_kwh"]) == (262_500, "175")


def test_what_stands_in_for_a_gap_does_not_depend_on_the_span(tmp_path):
    """The same quarter under the same version, asked with its day, its month, or all time."""
    db = open_store(tmp_path / "b.db")
    begin = day_bounds("2025-01-01", UTC)[0]
    with transaction(db) as connection:
        store_factors(connection, hourly([100, 200, 300], begin + 100 * 86_400, 3), now_ts=1)
        store_pue(connection, 1.0, 1)
        add_factors(connection, hourly(50, begin + 200 * 86_400, 13), IMPORTED, "x", 2)
    for day in (0, 50, 100, 105, 128, 150, 200, 220, 300):
        ts = begin + day * 86_400 + 5 * 3600
        spans = [(ts, ts + 900), (ts - 86_400, ts + 86_400), (begin, begin + 400 * 86_400)]
        found = {factor_at(open_grid(db.conn, "DE", span=span), ts) for span in spans}
        assert len(found) == 1, (day, found)
    db.close()


def test_a_finer_factor_anywhere_makes_a_year_of_the_same_method_a_substitute(db):
    """Hours of the file's own method in August: for March its year then stands in."""
    hours = hourly(100, day_bounds("2025-08-01", BERLIN)[0], 24)
    rows = tuple(replace(row, zone="DEU") for row in hours.factors)
    file = FactorFile("hours", "free", "lifecycle-average", 0, rows)
    assert change(db, add_factors, file, IMPORTED, "x", 2)[1] == 3
    version = current_version(db.conn)
    assert carbon(db)[0]["qcd"]["fallback"] == 1
    assert carbon(db, version)[0] == carbon(db)[0]
    assert carbon(db, 1)[0]["qcd"]["fallback"] == 0


def add_nodes(db):
    """On the second day, from 10:00: CPUs took 2 kWh, of it 1 the run's, 0.75 nobody's, 0.25 the
    system's."""
    hour_ts = day_bounds(DAYS[1], BERLIN)[0] + 10 * 3600
    with transaction(db) as connection:
        connection.execute(
            "INSERT INTO device (device_uuid, node, model, name, minor, mig_enabled,"
            " compute_slices, seen_ms, kind) VALUES ('gpu01/cpu0', 'gpu01', NULL, 'cpu0', 0, 0, 1,"
            " 0, 'cpu')"
        )
        connection.execute(
            "INSERT INTO run_host_hour SELECT run_id, ?, 'cpu', ?, ? FROM run WHERE job_id = 8",
            (hour_ts, KWH // 4, KWH * 3 // 4),
        )
        connection.execute(
            "INSERT INTO device_hour (hour_ts, device_uuid, measured_mj, idle_mj, active_mj,"
            " system_mj) VALUES (?, 'gpu01/cpu0', ?, ?, 0, ?)",
            (hour_ts, 2 * KWH, KWH * 3 // 4, KWH // 4),
        )
        connection.execute("INSERT INTO dirty_day VALUES (?)", (DAYS[1],))
    rollup(db, "campus", BERLIN, "DEU", NOW)


def test_carbon_is_of_nodes_too_where_they_are_measured(db):
    """1 kWh more for the run and the department: 450 g; nobody's and the system's apart."""
    assert carbon(db)[0]["qcd"]["host_mj"] is None
    add_nodes(db)
    rows, _ = carbon(db)
    assert (rows["qcd"]["host_mj"], rows["qcd"]["co2_mg"]) == (KWH, 1_350_000 + 450_000)
    nobody = rows["nobody (whole cluster, unallocated)"]
    assert (nobody["host_mj"], nobody["co2_mg"]) == (KWH * 3 // 4, 2_700_000 + 337_500)
    system = rows["the nodes' own services (whole cluster)"]
    assert (system["energy_mj"], system["host_mj"], system["co2_mg"]) == (None, KWH // 4, 112_500)
    tables = job_report(db.conn, EVERYTHING, "campus", 8)
    run = next(table for table in tables if table.name == "carbon").records()[0]
    assert (run["energy_mj"], run["co2_mg"]) == (2 * KWH, 900_000)
    mine = me_report(db.conn, ADA, PERIOD)[0].records()[0]
    assert (mine["host_mj"], mine["all_co2_mg"]) == (KWH, 1_800_000)


def test_nodes_are_restated_and_old_versions_of_them_stay(db):
    add_nodes(db)
    old = reports(db, 1)
    change(db, lambda c: store_factors(c, year(280, "second"), now_ts=9))
    assert carbon(db)[0]["qcd"]["co2_mg"] == 1_260_000 + 420_000
    assert db.execute("SELECT sum(co2_mg) FROM host_monthly").fetchone() == (840_000,)
    assert reports(db, 1).replace(", an older one", "") == old
    assert reports(db, 2) == reports(db)
