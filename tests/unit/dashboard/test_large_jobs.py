# SPDX-License-Identifier: Apache-2.0
"""A job of a thousand nodes: its sum has every board, its page a screen of them."""

from __future__ import annotations

import csv
import io

import pytest

from fairwatt.dashboard.app import create_app
from fairwatt.dashboard.demo import demo_config
from tests.unit.dashboard.conftest import switch
from tests.unit.reports.tiny import KWH, add_run, new_store

BOARDS = 8000


@pytest.fixture
def client(tmp_path):
    store = new_store(tmp_path / "s.db")
    store.execute("UPDATE account SET cluster = 'campus'")
    store.execute("UPDATE membership SET cluster = 'campus'")
    run_id = add_run(
        store, cluster="campus", start_ts=1_000_000, end_ts=1_003_600, elapsed_s=3600,
        alloc_tres=f"gres/gpu={BOARDS},gres/gpu:m={BOARDS}",
    )  # fmt: skip
    store.conn.executemany(
        "INSERT INTO run_energy VALUES (?, ?, ?, 'm', ?, ?, 900, 3600, 0, 'counter')",
        [(run_id, f"GPU-{n}", f"n{n // 8}", KWH // 4, KWH // 4) for n in range(BOARDS)],
    )
    store.conn.commit()
    store.close()
    path = tmp_path / "s.db"
    app = create_app(demo_config("127.0.0.1:0", path), path, clock=lambda: 1_010_000)
    client = app.test_client()
    switch(client, "ann")
    return client


def test_the_sum_has_every_board_and_the_page_a_screen_of_them(client):
    """8,000 boards of half a kilowatt-hour are 4 MWh; 24 of them stand on the page."""
    page = client.get("/jobs/campus/7").text
    assert ">4.00 MWh<" in page
    assert "All runs of this job together." in page
    assert page.count("GPU-") == 24
    assert "7,976 more rows are in the CSV and the JSON." in page
    rows = csv.DictReader(io.StringIO(client.get("/jobs/campus/7?format=csv&table=energy").text))
    assert sum(int(row["energy_mj"]) for row in rows) == 4_000 * KWH
