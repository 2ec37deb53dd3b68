# SPDX-License-Identifier: Apache-2.0
"""Carbon per hour with the factor valid then, and factors as sites bring them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from fairwatt.accounting.carbon import (
    Factor,
    FactorFile,
    Grid,
    check_zone,
    load_factors,
    open_grid,
    store_factors,
    store_pue,
)
from fairwatt.accounting.store import open_store, transaction
from fairwatt.core.errors import ConfigError, StoreError

HEAD = "# source: a\n# licence: b\n# method: c\n# retrieved: 2025-01-01\n"
COLUMNS = "zone,from,until,g_per_kwh\n"


def ts(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def grid(*grams: float, pue: int = 1200) -> Grid:
    factors = tuple(
        Factor("DEU", hour * 3600, hour * 3600 + 3600, round(g * 1000))
        for hour, g in enumerate(grams)
    )
    return Grid(1, "DEU", factors, ((0, pue),))


def test_each_hour_has_its_own_factor():
    """B8: 0.5 kWh in each of four hours at 100, 200, 300, 400 g/kWh, PUE 1.2."""
    half_kwh_mj = 1_800_000_000
    mg, fallback = grid(100, 200, 300, 400).carbon({h * 3600: half_kwh_mj for h in range(4)})
    assert (mg, fallback) == (600_000, 0)


def test_small_hours_are_added_before_rounding():
    """1000 hours of 10 J at 1000 g/kWh, PUE 1: 2.7778 mg each, 2778 mg in all, not 3000."""
    many = Grid(1, "DEU", (Factor("DEU", 0, 10**9, 10**6),), ((0, 1000),))
    assert many.carbon({hour * 3600: 10_000 for hour in range(1000)})[0] == 2778


def test_a_gap_takes_the_factor_before_and_says_so():
    gappy = Grid(1, "DEU", (Factor("DEU", 0, 10, 1), Factor("DEU", 20, 30, 2)), ((0, 1000),))
    assert [gappy.factor_at(t) for t in (-5, 0, 10, 19, 20, 30)] == [
        (1, True), (1, False), (1, True), (1, True), (2, False), (2, True),
    ]  # fmt: skip
    assert gappy.carbon({15: 7, 25: 5})[1] == 7


def test_the_pue_of_the_time():
    dated = Grid(1, "DEU", (Factor("DEU", 0, 10**9, 1),), ((100, 1500), (200, 1200)))
    assert [dated.pue_at(t) for t in (0, 100, 199, 200)] == [1500, 1500, 1500, 1200]


@pytest.mark.parametrize(("zone", "grams"), [("FRA", 44.2), ("DEU", 344.1), ("USA", 383.5)])
def test_the_bundled_file_has_the_published_values_of_2024(zone, grams):
    file = load_factors()
    (factor,) = [
        f for f in file.factors if f.zone == zone and f.from_ts <= ts("2024-07-01") < f.until_ts
    ]
    assert factor.g_per_kwh_milli == round(grams * 1000)
    assert (factor.from_ts, factor.until_ts) == (ts("2024-01-01"), ts("2025-01-01"))


def test_the_bundled_file_says_where_it_is_from():
    file = load_factors()
    assert file.licence == "CC BY 4.0"
    assert "Our World in Data" in file.source
    assert "lifecycle" in file.method
    assert len({factor.zone for factor in file.factors}) > 40
    check_zone(file, "WLD")


def test_an_unknown_zone_offers_near_ones():
    with pytest.raises(ConfigError, match=r"carbon\.zone: no carbon factors.*'DUE'.*DEU"):
        check_zone(load_factors(), "DUE")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (COLUMNS, r"no line `# source: …`"),
        (HEAD + "zone,year\n", "wrong columns"),
        (HEAD + COLUMNS + "DEU,2024-01-01,2025-01-01\n", r"line 6: not 4 columns"),
        (
            HEAD + COLUMNS + "DEU,2024-01-01,2025-13-01,1\n",
            r"line 6: not a date \(got '2025-13-01",
        ),
        (HEAD + COLUMNS + "DEU,2024-01-01,2025-01-01,x\n", r"line 6: not a factor"),
        (HEAD + COLUMNS + "DEU,2024-01-01,2025-01-01,-1\n", r"line 6: not a factor"),
        (HEAD + COLUMNS + "DEU,2024-01-01,2025-01-01,nan\n", r"line 6: not a factor"),
        (HEAD + COLUMNS + "DEU,2024-01-01,2025-01-01,1\nDEU,2024-06-01,2025-06-01,1\n", "overlap"),
    ],
)
def test_a_bad_file_is_named_with_its_line(tmp_path, text, match):
    (tmp_path / "f.csv").write_text(text)
    with pytest.raises(ConfigError, match=r"f\.csv.*" + match):
        load_factors(tmp_path / "f.csv")


def test_hours_are_possible_too(tmp_path):
    (tmp_path / "f.csv").write_text(HEAD + COLUMNS + "GBR,2024-01-01T00:00Z,2024-01-01T00:30Z,9\n")
    assert load_factors(tmp_path / "f.csv").factors == (
        Factor("GBR", ts("2024-01-01"), ts("2024-01-01") + 1800, 9000),
    )


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"gone\.csv: cannot be read"):
        load_factors(tmp_path / "gone.csv")


@pytest.fixture
def db(tmp_path):
    return open_store(tmp_path / "a.db")


def version_of(db, *factors):
    with transaction(db) as connection:
        return store_factors(connection, FactorFile("s", "l", "m", 0, factors))


def test_a_changed_file_is_a_new_version_and_the_old_one_stays(db):
    """E34"""
    old, new = Factor("DEU", 0, 10, 300_000), Factor("DEU", 0, 10, 310_000)
    assert version_of(db, old) == 1
    assert version_of(db, old) == 1
    assert version_of(db, new) == 2
    with transaction(db) as connection:
        store_pue(connection, 1.3, 5)
    assert open_grid(db.conn, "DEU").factor_at(5) == (310_000, False)
    assert open_grid(db.conn, "DEU", 1).factor_at(5) == (300_000, False)


def test_a_changed_pue_counts_from_now_on(db):
    for pue, now in [(1.3, 100), (1.3, 200), (1.2, 300)]:
        with transaction(db) as connection:
            store_pue(connection, pue, now)
    assert db.execute("SELECT from_ts, pue_milli FROM pue").fetchall() == [(0, 1300), (300, 1200)]


def test_an_impossible_pue_is_refused(db):
    with pytest.raises(ConfigError, match=r"carbon\.pue.*0\.9"), transaction(db) as connection:
        store_pue(connection, 0.9, 0)


def test_a_store_without_factors_says_what_to_do(db):
    with pytest.raises(StoreError, match="fairwatt sync --once"):
        open_grid(db.conn, "DEU")
