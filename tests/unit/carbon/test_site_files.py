# SPDX-License-Identifier: Apache-2.0
"""Contracts, hardware and PUE histories as sites write them, and embodied carbon by hand."""

from __future__ import annotations

import pytest

from fairwatt.accounting.carbon.contracts import OPEN_END_TS, Bought, load_contracts
from fairwatt.accounting.carbon.embodied import (
    YEAR_S,
    Hardware,
    embodied_mg,
    embodied_of_types,
    load_hardware,
    sci_mg,
)
from fairwatt.accounting.carbon.pue import load_pue_history, set_pue
from fairwatt.accounting.carbon.versions import current_version
from fairwatt.accounting.store import open_store, transaction
from fairwatt.core.catalogue import load_catalogue
from fairwatt.core.errors import ConfigError
from tests.unit.carbon.stored import store_pue, store_pue_history

HOUR_MILLI_S = 3_600_000
BOUGHT = "name,from,until,share_percent,g_per_kwh,source\n"
HARD = "hardware,kg,life_years,source\n"


def test_sci_of_its_own_example():
    """SCI's example: 1000 kg over four years, one hour: about 28 g."""
    server = Hardware("server", 1_000_000, 4 * YEAR_S, "SCI")
    assert embodied_mg(server, HOUR_MILLI_S) == 28_519
    assert sci_mg(100_000, 28_519, 1) == 128_519
    assert sci_mg(100_000, 28_519, 2) == 64_259.5


@pytest.mark.parametrize("parts", [(None, 5, 1), (5, None, 1), (5, 5, 0)])
def test_sci_of_something_unknown_is_unknown(parts):
    assert sci_mg(*parts) is None


def test_a_slice_has_its_part_and_an_unknown_board_makes_it_unknown():
    """A 3g of 7 for an hour has 429 thousandths of 700 kg over 10 years: 3.426 g."""
    hardware = {"a100-40": Hardware("a100-40", 700_000, 10 * YEAR_S, "x")}
    known = {"a100_3g.20gb": 429 * 3600}
    catalogue = load_catalogue()
    assert embodied_of_types(hardware, known, catalogue) == 3426
    assert embodied_of_types(hardware, {**known, "v100": 1000}, catalogue) is None
    assert embodied_of_types(hardware, {**known, "v100": 0}, catalogue) is not None
    assert embodied_of_types(hardware, {}, catalogue) == 0


def test_a_type_of_its_own_counts_before_its_model():
    hardware = {
        "a100-40": Hardware("a100-40", 1, YEAR_S, "x"),
        "a100": Hardware("a100", 1000, YEAR_S, "y"),
    }
    found = embodied_of_types(hardware, {"a100": 1000 * YEAR_S}, load_catalogue())
    assert found == 1_000_000


def test_the_bundled_hardware_names_models_of_the_catalogue_and_says_where_it_is_from():
    known = {model.key for model in load_catalogue().models}
    hardware = load_hardware()
    assert hardware
    assert set(hardware) <= known
    assert all(len(item.source) > 20 for item in hardware.values())


def test_a_site_changes_and_adds_hardware(tmp_path):
    (tmp_path / "h.csv").write_text(f"{HARD}h100-80,200,5,our own\nv100-16,150,5,our own\n")
    hardware = load_hardware(tmp_path / "h.csv")
    assert hardware["h100-80"] == Hardware("h100-80", 200_000, 5 * YEAR_S, "our own")
    assert {"v100-16", "a100-40"} <= set(hardware)


@pytest.mark.parametrize(
    "line", ["x,1,0,s", "x,-1,4,s", ",1,4,s", "x,1,4,", "x,y,4,s", "x,1,nan,s", "x,inf,4,s"]
)
def test_bad_hardware_is_named_with_its_line(tmp_path, line):
    (tmp_path / "h.csv").write_text(f"{HARD}{line}\n")
    with pytest.raises(ConfigError, match=r"h\.csv, line 2: not a hardware"):
        load_hardware(tmp_path / "h.csv")


def test_contracts_with_an_open_end_and_a_residual_mix(tmp_path):
    (tmp_path / "c.csv").write_text(
        f"{BOUGHT}hydro,2026-01-01,2027-01-01,60,0,certificate 7\nrest,2026-01-01,,,500,AIB 2025\n"
    )
    assert load_contracts(tmp_path / "c.csv") == [
        Bought("hydro", 1767225600, 1798761600, 600, 0, "certificate 7"),
        Bought("rest", 1767225600, OPEN_END_TS, None, 500_000, "AIB 2025"),
    ]


@pytest.mark.parametrize(
    ("lines", "match"),
    [
        ("a,2026-01-01,,60,0,x\nb,2026-02-01,,60,0,x\n", "more than everything"),
        ("a,2026-01-01,,,0,x\nb,2026-02-01,,,0,x\n", "more than everything"),
        ("a,2026-01-01,2027-01-01,30,0,x\na,2026-06-01,,30,0,x\n", "one name"),
        ("a,2026-01-01,2025-01-01,30,0,x\n", "line 2: not a part"),
        ("a,2026-01-01,,0,0,x\n", "line 2: not a part"),
        ("a,2026-01-01,,101,0,x\n", "line 2: not a part"),
        ("a,2026-01-01,,x,0,x\n", "line 2: not a part"),
        ("a,2026-01-01,,50,-1,x\n", "line 2: not a part"),
        ("a,soon,,50,1,x\n", "line 2: not a date"),
        ("a,2026-01-01,50,1,x\n", "line 2: not 6 columns"),
        ('a,2026-01-01,,50,1,"x\n', "not CSV"),
    ],
)
def test_bad_contracts_are_named(tmp_path, lines, match):
    (tmp_path / "c.csv").write_text(BOUGHT + lines)
    with pytest.raises(ConfigError, match=match):
        load_contracts(tmp_path / "c.csv")


@pytest.mark.parametrize("line", ["2026-01-01,0.9", "2026-01-01,x", "2026-01-01,11", "x,1.2"])
def test_bad_pue_histories_are_named(tmp_path, line):
    (tmp_path / "p.csv").write_text(f"from,pue\n{line}\n")
    with pytest.raises(ConfigError, match=r"p\.csv, line 2"):
        load_pue_history(tmp_path / "p.csv")


def test_an_empty_history_and_a_date_twice(tmp_path):
    (tmp_path / "p.csv").write_text("from,pue\n")
    with pytest.raises(ConfigError, match="no PUE"):
        load_pue_history(tmp_path / "p.csv")
    (tmp_path / "p.csv").write_text("from,pue\n2026-01-01,1.2\n2026-01-01,1.3\n")
    with pytest.raises(ConfigError, match="the same date twice"):
        load_pue_history(tmp_path / "p.csv")


@pytest.fixture
def db(tmp_path):
    db = open_store(tmp_path / "a.db")
    yield db
    db.close()


def pues(db):
    return db.execute(
        "SELECT from_ts, pue_milli FROM dated_pue WHERE until_version IS NULL ORDER BY 1"
    ).fetchall()


def test_a_history_counts_and_the_setting_no_longer(db):
    with transaction(db) as connection:
        store_pue(connection, 1.3, 0)
        assert store_pue_history(connection, [(0, 1500), (100, 1200)], "p.csv", 5)
        assert store_pue_history(connection, [(0, 1500), (100, 1200)], "p.csv", 6) is None
        store_pue(connection, 1.3, 7)
    assert pues(db) == [(0, 1500), (100, 1200)]


def test_a_pue_by_hand_stands_beside_the_setting_until_the_next_one(db):
    with transaction(db) as connection:
        store_pue(connection, 1.3, 0)
        assert set_pue(connection, 1000, 1.25, 5) == 1
        assert set_pue(connection, 1000, 1.25, 6) is None
        store_pue(connection, 1.3, 7)
    assert pues(db) == [(0, 1300), (1000, 1250)]
    assert current_version(db.conn) == 1
