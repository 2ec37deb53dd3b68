# SPDX-License-Identifier: Apache-2.0
"""E36: what nobody holds is the cluster's own line, with its energy and its carbon."""

from __future__ import annotations

from datetime import date

from fairwatt.accounting.carbon.factors import Factor, FactorFile
from fairwatt.accounting.carbon.restate import restate
from fairwatt.accounting.days import day_bounds
from fairwatt.accounting.ingest import ingest
from fairwatt.accounting.reports.dept import dept_report
from fairwatt.accounting.reports.period import Period
from fairwatt.accounting.reports.scope import Role, Scope
from fairwatt.accounting.rollup import rollup
from fairwatt.accounting.settle import settle
from fairwatt.accounting.store import open_store, transaction
from fairwatt.core.units import mj_to_kwh
from tests.unit.accounting.samples import UTC, Node
from tests.unit.carbon.stored import store_factors, store_pue

BOARDS, WATT, HOURS = 1000, 60, 24


def test_a_thousand_idle_gpus_for_a_day(tmp_path):
    """E36: 1,000 × 60 W × 24 h = 1,440 kWh unallocated; × 1.2 × 250 g/kWh = 432 kg."""
    db = open_store(tmp_path / "a.db")
    begin = day_bounds("2025-06-01", UTC)[0]
    row = Factor("DEU", begin - 86_400, begin + 86_400, 250_000)
    with transaction(db) as connection:
        store_factors(connection, FactorFile("a book", "CC0", "average", 0, (row,)), now_ts=1)
        store_pue(connection, 1.2, 1)
        connection.execute("INSERT INTO account VALUES ('campus', 'root', NULL, 1, '', 0)")
    ms = begin * 1000
    energy_mj = WATT * 1000 * HOURS * 3600
    for number in range(BOARDS // 8):
        node = Node(f"gpu{number:03}")
        uuids = [f"GPU-{number}-{board}" for board in range(8)]
        windows = [node.window(uuid, ms, ms + HOURS * 3_600_000, idle=energy_mj) for uuid in uuids]
        ingest(db, [node.up(*uuids), *windows])
    settle(db, "campus", UTC)
    rollup(db, "campus", UTC, "DEU", begin + 2 * 86_400)
    restate(db, UTC, "DEU")
    tables = dept_report(
        db.conn, Scope("root", Role.ADMIN), "campus", "root",
        Period(date(2025, 6, 1), date(2025, 6, 2), "UTC"),
    )  # fmt: skip
    db.close()
    by_name = {table.name: table.records() for table in tables}
    (nobody,) = [r for r in by_name["carbon"] if r["owner"].startswith("nobody")]
    assert mj_to_kwh(nobody["energy_mj"]) == 1440
    assert (nobody["co2_mg"], nobody["fallback"]) == (432_000_000, 0)
    assert by_name["carbon"][0]["energy_mj"] == 0
    (line,) = [r for r in by_name["energy"] if r["owner"].startswith("nobody")]
    assert (mj_to_kwh(line["idle_mj"]), line["co2_mg"]) == (1440, 432_000_000)
