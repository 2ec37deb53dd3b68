# SPDX-License-Identifier: Apache-2.0
"""Services of grid data: what their documented answers mean, and that no other one is believed."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from fairwatt.accounting.carbon.factors import Factor
from fairwatt.accounting.carbon.sources.electricitymaps import ElectricityMapsSource
from fairwatt.accounting.carbon.sources.entsoe import EntsoeSource, read_mix
from fairwatt.accounting.carbon.sources.france import FranceSource
from fairwatt.accounting.carbon.sources.registry import make_source
from fairwatt.accounting.carbon.sources.source import Access
from fairwatt.accounting.carbon.sources.uk import UkSource
from fairwatt.core.errors import ConfigError, SourceError
from tests.unit.carbon.grid_service import GridService

DATA = Path(__file__).parents[2] / "data" / "carbon"
EIC = "10Y1001A1001A82H"


def ts(text: str) -> int:
    return int(datetime.fromisoformat(f"{text}+00:00").timestamp())


DAY = (ts("2026-01-05"), ts("2026-01-06"))


def data(name: str) -> bytes:
    return (DATA / name).read_bytes()


@pytest.fixture
def service():
    made = []

    def start(answers):
        made.append(GridService(answers))
        return made[-1]

    yield start
    for one in made:
        one.close()


@pytest.fixture
def key_file(tmp_path):
    file = tmp_path / "key"
    file.write_text("s3cret\n")
    file.chmod(0o600)
    return str(file)


def row(zone, start, length_s, grams):
    return Factor(zone, ts(start), ts(start) + length_s, round(grams * 1000))


def test_uk_half_hours_as_they_turned_out(service):
    """A forecast is none, and the half-hour before the span is left out."""
    here = service({"/intensity/2026-01-05T00:00Z/2026-01-06T00:00Z": (200, data("uk.json"))})
    assert UkSource(Access(url=here.url)).fetch(*DAY) == [
        row("GB", "2026-01-05T00:00", 1800, 101),
        row("GB", "2026-01-05T00:30", 1800, 112),
    ]


def test_france_consolidated_first_then_real_time(service):
    """Half-hours are two equal quarters; the last value holds half an hour at most."""
    sets = "/api/explore/v2.1/catalog/datasets/{}/exports/json"
    here = service({
        sets.format("eco2mix-national-cons-def"): (200, data("france-consolidated.json")),
        sets.format("eco2mix-national-tr"): (200, data("france-real-time.json")),
    })  # fmt: skip
    found = FranceSource(Access(url=here.url)).fetch(ts("2023-01-05"), ts("2023-01-06"))
    grams = [40, 40, 44, 44, 30, 32, 34, 34]
    assert found == [
        Factor("FR", ts("2023-01-05") + n * 900, ts("2023-01-05") + (n + 1) * 900, g * 1000)
        for n, g in enumerate(grams)
    ]
    query = here.asked[0][1]
    assert query["where"] == (
        "date_heure >= '2023-01-05T00:00Z' AND date_heure < '2023-01-06T00:00Z'"
    )


def test_entsoe_weights_fuels_by_their_lifecycle(service, key_file):
    """100 MW gas and 300 MW wind: (490·100 + 11·300) / 400 = 130.75 g/kWh; pumps are left out."""
    here = service({"/api": (200, data("entsoe.xml"))})
    found = EntsoeSource(Access(EIC, here.url, key_file)).fetch(*DAY)
    mixes = [130.75, 130.75, 250.5, 250.5, *([370.25] * 4)]
    assert [f.g_per_kwh_milli / 1000 for f in found] == mixes
    assert {f.until_ts - f.from_ts for f in found} == {900}
    query = here.asked[0][1]
    assert (query["periodStart"], query["periodEnd"]) == ("202601050000", "202601060000")
    assert query["securityToken"] == "s3cret"


def test_entsoe_gives_no_factor_where_a_fuel_of_the_day_is_missing():
    mix = read_mix(data("entsoe.xml"))
    del mix[ts("2026-01-05T01:00")]["B19"]
    from fairwatt.accounting.carbon.sources.entsoe import factors_of_mix

    starts = [f.from_ts for f in factors_of_mix("Z", mix)]
    assert ts("2026-01-05T01:00") not in starts
    assert len(starts) == 7


def test_entsoe_says_that_there_is_nothing_or_that_it_refuses(service, key_file):
    here = service({"/api": (400, data("entsoe-none.xml"))})
    source = EntsoeSource(Access(EIC, here.url, key_file))
    assert source.fetch(*DAY) == []
    here.answers["/api"] = (400, data("entsoe-refused.xml"))
    with pytest.raises(SourceError, match=r"refused.*time interval is not valid"):
        source.fetch(*DAY)


@pytest.mark.parametrize(
    "body",
    [
        b'<!DOCTYPE x [<!ENTITY a "b">]><GL_MarketDocument>&a;</GL_MarketDocument>',
        '<?xml version="1.0" encoding="utf-16"?><!DOCTYPE x><a/>'.encode("utf-16"),
        b"<html><body>login</body></html>",
        b"<unclosed",
        b"",
        b"<GL_MarketDocument><TimeSeries/></GL_MarketDocument>",
        data("entsoe.xml").replace(b"PT60M", b"P1Y"),
        data("entsoe.xml").replace(b">100<", b">-100<"),
        data("entsoe.xml").replace(b">100<", b">much<"),
        data("entsoe.xml").replace(b"2026-01-05T02:00Z", b"2926-01-05T02:00Z"),
    ],
)
def test_entsoe_believes_no_other_xml(body):
    with pytest.raises(SourceError):
        read_mix(body)


def test_a_fuel_without_a_factor_is_an_error_and_not_left_out(service, key_file):
    here = service({"/api": (200, data("entsoe.xml").replace(b"B19", b"B99"))})
    with pytest.raises(SourceError, match="B99"):
        EntsoeSource(Access(EIC, here.url, key_file)).fetch(*DAY)


def test_electricity_maps_hours_without_its_estimates(service, key_file):
    path = "/v3/carbon-intensity/past-range"
    here = service({path: (200, data("electricitymaps.json"))})
    found = ElectricityMapsSource(Access("DE", here.url, key_file)).fetch(*DAY)
    assert found == [
        row("DE", "2026-01-05T00:00", 3600, 302),
        row("DE", "2026-01-05T02:00", 3600, 320),
    ]
    _, query, headers = here.asked[0]
    assert headers["auth-token"] == "s3cret"
    assert query["emissionFactorType"] == "lifecycle"


def test_electricity_maps_factors_of_another_kind_are_not_mixed_in(service, key_file):
    body = data("electricitymaps.json").replace(b'"lifecycle"', b'"direct"')
    here = service({"*": (200, body)})
    with pytest.raises(SourceError, match=r"another kind.*direct"):
        ElectricityMapsSource(Access("DE", here.url, key_file)).fetch(*DAY)


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        ((429, b"slow down"), "too many questions.*429"),
        ((500, b""), "the service failed.*500"),
        ((503, b"<html>"), "the service failed"),
        ((401, b""), "does not accept the key"),
        ((302, b"", [("Location", "https://elsewhere.example/")]), "redirects are not followed"),
        ((200, b"<html>sign in</html>"), "no JSON"),
        ((200, b"[" * 100_000), "no JSON"),
        ((200, b"{}"), "not the documented answer"),
        ((200, b"[]"), "not the documented answer"),
        ((200, b'{"data": [7]}'), "not the documented answer"),
        ((200, b'{"data": [{"from": 1, "to": 2, "intensity": {"actual": 3}}]}'), "not a time"),
        ((200, data("uk.json").replace(b"101", b'"101"')), "not a factor"),
        ((200, data("uk.json").replace(b"101", b"-1")), "not a factor"),
        ((200, data("uk.json").replace(b"101", b"NaN")), "not a factor"),
        ((200, data("uk.json").replace(b"101", b"1e99")), "not a factor"),
        ((200, data("uk.json").replace(b"101", b"true")), "not a factor"),
        ((200, data("uk.json").replace(b"05T00:30Z\", \"to", b"05T00:30\", \"to")), "zone"),
        ((200, b"x" * 300_000), "more than"),
        ((200, None), "no answer"),
    ],
)  # fmt: skip
def test_whatever_else_comes_is_one_error_that_names_the_place(service, answer, match):
    here = service({"*": answer})
    source = UkSource(Access(url=here.url, timeout_s=0.3, longest=100_000))
    with pytest.raises(SourceError, match=match) as raised:
        source.fetch(*DAY)
    assert raised.value.place


def test_a_service_that_is_away(service):
    here = service({})
    here.close()
    gone = UkSource(Access(url=here.url))
    with pytest.raises(SourceError, match="no answer"):
        gone.fetch(*DAY)
    here.close = lambda: None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_key_that_others_may_read_is_refused(service, key_file, mode):
    Path(key_file).chmod(mode)
    here = service({})
    with pytest.raises(ConfigError, match="others may read"):
        ElectricityMapsSource(Access("DE", here.url, key_file)).fetch(*DAY)
    assert here.asked == []


def test_no_key_goes_over_the_network_in_the_clear(key_file):
    source = EntsoeSource(Access(EIC, "http://198.51.100.7", key_file))
    with pytest.raises(ConfigError, match="in the clear") as raised:
        source.fetch(*DAY)
    assert "s3cret" not in str(raised.value)


def test_the_key_is_in_no_message(service, key_file):
    here = service({"*": (500, b"")})
    with pytest.raises(SourceError) as raised:
        EntsoeSource(Access(EIC, here.url, key_file)).fetch(*DAY)
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "zone", "match"),
    [
        ("uk", "13", "national figure"),
        ("france", "DE", "whole country"),
        ("entsoe", "DE", "EIC code"),
        ("electricitymaps", "", "wants a zone"),
        ("astrology", "", "no such service.*uk, france"),
    ],
)
def test_a_zone_that_a_service_does_not_know(name, zone, match):
    with pytest.raises(ConfigError, match=match):
        make_source(name, Access(zone))


def test_a_bad_url_is_named():
    with pytest.raises(ConfigError, match=r"carbon\.source_url.*ftp"):
        UkSource(Access(url="ftp://x")).fetch(*DAY)
