# SPDX-License-Identifier: Apache-2.0
"""Carbon per hour with the factor valid then, and factors as sites bring them."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairwatt.accounting.carbon.factors import Factor, FactorFile, check_zone, load_factors
from fairwatt.accounting.carbon.grid import Contract, Grid, Row, Span, layers_of, timeline
from fairwatt.accounting.carbon.grid_store import open_grid
from fairwatt.accounting.store import open_store, transaction
from fairwatt.core.errors import ConfigError, StoreError
from tests.unit.carbon.factor import factor_at
from tests.unit.carbon.stored import store_factors, store_pue

HEAD = "# source: a\n# licence: b\n# method: c\n# retrieved: 2025-01-01\n"
COLUMNS = "zone,from,until,g_per_kwh\n"


def ts(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


HOUR, DAY = 3600, 86_400
KWH = 3_600_000_000


def grid(*grams: float, pue: int = 1200, step: int = HOUR, contracts=()) -> Grid:
    spans = tuple(
        Span(n * step, (n + 1) * step, round(g * 1000), False) for n, g in enumerate(grams)
    )
    return Grid(1, "DEU", "m", spans, ((0, pue),), contracts)


def row(from_ts, until_ts, g, step=HOUR, rank=1):
    return Row(step, rank, from_ts, until_ts, round(g * 1000))


def even(energy_mj, from_ts, until_ts):
    """An energy spread evenly over quarters of an hour."""
    count = (until_ts - from_ts) // 900
    return {from_ts + n * 900: energy_mj // count for n in range(count)}


def test_each_hour_has_its_own_factor():
    """B8: 0.5 kWh in each of four hours at 100, 200, 300, 400 g/kWh, PUE 1.2."""
    made = grid(100, 200, 300, 400).carbon(even(2 * KWH, 0, 4 * HOUR))
    assert (made.co2_mg, made.fallback_mj) == (600_000, 0)


def test_half_hours_count_for_what_ran_in_them():
    """1 kWh at 100 in the first half hour, 3 kWh at 300 in the second: 1000 g."""
    made = grid(100, 300, pue=1000, step=1800).carbon(
        even(KWH, 0, 1800) | even(3 * KWH, 1800, 3600)
    )
    assert made.co2_mg == 1_000_000


def test_a_factor_that_changes_within_a_slot_is_weighted_by_time():
    """300 s at 120 and 600 s at 240: 200 on average, so 1 kWh is 200 g."""
    spans = (Span(0, 300, 120_000, False), Span(300, 900, 240_000, True))
    made = Grid(1, "DEU", "m", spans, ((0, 1000),)).carbon({0: KWH})
    assert (made.co2_mg, made.fallback_mj) == (200_000, KWH * 2 // 3)


def test_a_pue_that_changes_within_a_slot_is_weighted_by_time():
    spans = (Span(0, 900, 100_000, False),)
    made = Grid(1, "DEU", "m", spans, ((0, 1000), (450, 2000))).carbon({0: KWH})
    assert made.co2_mg == 150_000


def test_small_amounts_are_added_before_rounding():
    """1000 slots of 10 J at 1000 g/kWh, PUE 1: 2.7778 mg each, 2778 mg in all, not 3000."""
    many = Grid(1, "DEU", "m", (Span(0, 10**9, 10**6, False),), ((0, 1000),))
    assert many.carbon({slot * 900: 10_000 for slot in range(1000)}).co2_mg == 2778


@given(
    st.lists(st.integers(0, 10**7), min_size=8, max_size=8),
    st.lists(st.integers(0, 10**12), min_size=8, max_size=8),
    st.integers(1000, 3000),
)
def test_the_sum_over_slots_is_the_closed_form(factors, energies, pue):
    """Σ E·CI·PUE of slots, as fractions, rounded once; whoever cuts the hours differently."""
    spans = tuple(Span(n * 900, (n + 1) * 900, mg, n % 2 > 0) for n, mg in enumerate(factors))
    made = Grid(1, "DEU", "m", spans, ((0, pue),)).carbon(
        {n * 900: mj for n, mj in enumerate(energies)}
    )
    exact = sum(
        (Fraction(mj * mg * pue, KWH * 1000) for mj, mg in zip(energies, factors, strict=True)),
        Fraction(0),
    )
    assert made.co2_mg == (2 * exact + 1) // 2
    assert made.fallback_mj == sum(energies[1::2])


def test_gaps_take_the_day_then_the_month_then_the_year_then_the_nearest():
    """Of March 2025 half of the 1st is known by the hour, 17 whole days, and nothing else."""
    march = ts("2025-03-01")
    hours = [row(march + h * HOUR, march + (h + 1) * HOUR, 100) for h in range(12)]
    hours += [
        row(march + d * DAY + h * HOUR, march + d * DAY + (h + 1) * HOUR, 200)
        for d in range(5, 22)
        for h in range(24)
    ]
    years = [row(ts("2025-01-01"), ts("2026-01-01"), 50, step=366 * DAY)]
    spans = timeline(layers_of(hours, years), ts("2025-02-01"), ts("2026-06-01"))
    found = Grid(1, "DEU", "m", spans, ((0, 1000),))
    mean = round((12 * 100 + 17 * 24 * 200) * 1000 / (12 + 17 * 24))
    assert [factor_at(found, ts(day)) for day in (
        "2025-03-01T00:30", "2025-03-01T13:00", "2025-03-03", "2025-03-07", "2025-04-01",
        "2025-02-01", "2026-05-31",
    )] == [
        (100_000, False), (100_000, True), (mean, True), (200_000, False), (50_000, True),
        (50_000, True), (50_000, True),
    ]  # fmt: skip


def test_a_day_of_which_less_than_half_is_known_has_no_mean():
    hours = [row(h * HOUR, (h + 1) * HOUR, 100) for h in range(11)]
    years = [row(0, 366 * DAY, 50, step=366 * DAY)]
    found = Grid(1, "D", "m", timeline(layers_of(hours, years), 0, DAY), ((0, 1000),))
    assert factor_at(found, 12 * HOUR) == (50_000, True)


def test_an_import_outranks_a_service_and_that_the_file():
    rows = [row(0, HOUR, 3, rank=2), row(0, HOUR, 2, rank=1), row(0, HOUR, 1, rank=0),
            row(HOUR, 2 * HOUR, 3, rank=2), row(HOUR, 2 * HOUR, 2, rank=1)]  # fmt: skip
    found = Grid(1, "D", "m", timeline(layers_of(rows, []), 0, 2 * HOUR), ((0, 1000),))
    assert [factor_at(found, t) for t in (0, HOUR)] == [(1000, False), (2000, False)]


def test_a_year_between_two_takes_the_one_before_and_says_so():
    years = [row(0, 10, 1, step=366 * DAY), row(20, 30, 2, step=366 * DAY)]
    gappy = Grid(1, "DEU", "m", timeline(layers_of(years, []), -5, 40), ((0, 1000),))
    assert [factor_at(gappy, t) for t in (-5, 0, 10, 19, 20, 30)] == [
        (1000, True), (1000, False), (1000, True), (1000, True), (2000, False), (2000, True),
    ]  # fmt: skip


def test_the_pue_of_the_time():
    dated = Grid(1, "DEU", "m", (Span(0, 10**9, 1, False),), ((100, 1500), (200, 1200)))
    assert [dated.pue_at(t) for t in (0, 100, 199, 200)] == [1500, 1500, 1500, 1200]


def test_market_based_is_what_was_bought_and_the_rest_is_the_residual_mix():
    """60 % hydro certificates at 0, 30 % a supplier at 100, the rest residual at 500: 80 g."""
    bought = (Contract(0, HOUR, 600, 0), Contract(0, HOUR, 300, 100_000),
              Contract(0, HOUR, None, 500_000))  # fmt: skip
    made = grid(300, pue=1000, contracts=bought).carbon(even(KWH, 0, HOUR))
    assert (made.co2_mg, made.market_mg, made.market_unknown_mj) == (300_000, 80_000, 0)


def test_without_a_residual_mix_the_rest_is_the_grid():
    made = grid(300, pue=1000, contracts=(Contract(0, HOUR, 600, 0),)).carbon({0: KWH})
    assert made.market_mg == 120_000


def test_energy_without_a_contract_is_unknown_and_not_zero():
    half = grid(300, 300, contracts=(Contract(0, HOUR, 1000, 0),))
    made = half.carbon(even(KWH, 0, HOUR) | even(KWH, HOUR, 2 * HOUR))
    assert (made.market_mg, made.market_unknown_mj) == (0, KWH)


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
    assert factor_at(open_grid(db.conn, "DEU"), 5) == (310_000, False)
    assert factor_at(open_grid(db.conn, "DEU", 1), 5) == (300_000, False)


def test_a_changed_pue_counts_from_now_on(db):
    for pue, now in [(1.3, 100), (1.3, 200), (1.2, 300)]:
        with transaction(db) as connection:
            store_pue(connection, pue, now)
    assert db.execute("SELECT from_ts, pue_milli FROM dated_pue WHERE until_version IS NULL"
                      ).fetchall() == [(0, 1300), (300, 1200)]  # fmt: skip


def test_an_impossible_pue_is_refused(db):
    with pytest.raises(ConfigError, match=r"carbon\.pue.*0\.9"), transaction(db) as connection:
        store_pue(connection, 0.9, 0)


def test_a_store_without_factors_says_what_to_do(db):
    with pytest.raises(StoreError, match="fairwatt sync --once"):
        open_grid(db.conn, "DEU")
