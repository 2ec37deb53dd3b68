# SPDX-License-Identifier: Apache-2.0
"""European zones from the ENTSO-E Transparency Platform; wants a key (free of charge).

It tells generation by fuel (document A75), not carbon: the factor is the mix weighted by lifecycle
factors of each fuel. Imports are not in it.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from fairwatt.accounting.carbon.factors import DAY_S, Factor
from fairwatt.accounting.carbon.sources.fuels import fuel_factors
from fairwatt.accounting.carbon.sources.source import Access, seconds
from fairwatt.core.errors import ConfigError, SourceError

__all__ = ["EntsoeSource", "factors_of_mix", "read_mix"]

PUBLIC_URL = "https://web-api.tp.entsoe.eu"
PATH = "/api"
NO_DATA = "999"
_STEPS = {"PT15M": 900, "PT30M": 1800, "PT60M": 3600, "PT1H": 3600}
_VARIABLE_BLOCKS = "A03"
SLOT_S = 900

Mix = dict[int, dict[str, float]]
"""MW by fuel code, by start of the quarter of an hour."""


class EntsoeSource:
    """A bidding zone by its EIC code, such as 10Y1001A1001A82H (Germany and Luxembourg)."""

    name = "entsoe"
    method = "lifecycle-production"
    source = (
        "ENTSO-E Transparency Platform, actual generation per type (A75), with the lifecycle"
        " factors of IPCC AR5 by fuel"
    )
    licence = "reuse under the platform's terms"
    slice_s = 7 * DAY_S

    def __init__(self, access: Access) -> None:
        if not (access.zone.isalnum() or "-" in access.zone) or len(access.zone) != 16:
            raise ConfigError(
                "ENTSO-E wants an EIC code of 16 signs", place="carbon.grid_zone",
                value=access.zone, remedy="such as 10Y1001A1001A82H",
            )  # fmt: skip
        self.zone = access.zone
        self._access = access

    def fetch(self, from_ts: int, until_ts: int) -> list[Factor]:
        """Return the quarters of an hour of the span whose mix is wholly known."""
        query = {
            "documentType": "A75", "processType": "A16", "in_Domain": self.zone,
            "periodStart": _stamp(from_ts), "periodEnd": _stamp(until_ts),
        }  # fmt: skip
        key = {"securityToken": self._access.key("ENTSO-E")}
        _, body = self._access.get(PUBLIC_URL, PATH, query, secret=key)
        mix = read_mix(body)
        inside = {ts: fuels for ts, fuels in mix.items() if from_ts <= ts < until_ts}
        return factors_of_mix(self.zone, inside)


def read_mix(body: bytes) -> Mix:
    """Return the generation of an answer; none where it says that it has no data.

    Raises:
        SourceError: it is not the documented XML, or says that something is wrong.
    """
    root = _root(body)
    if _name(root) == "Acknowledgement_MarketDocument":
        codes = [(_text(reason, "code"), _text(reason, "text")) for reason in _all(root, "Reason")]
        if any(code == NO_DATA for code, _ in codes):
            return {}
        raise SourceError("refused", place=PATH, value="; ".join(text or "" for _, text in codes))
    if _name(root) != "GL_MarketDocument":
        raise SourceError("not the documented answer", place=PATH, value=_name(root))
    mix: Mix = defaultdict(dict)
    for series in _all(root, "TimeSeries"):
        # Series out of the zone are what pumps and storage took in.
        if _text(series, "outBiddingZone_Domain.mRID") is not None:
            continue
        fuel = next((_text(node, "psrType") for node in _all(series, "MktPSRType")), None)
        if fuel is None:
            raise SourceError("a series without its fuel", place=PATH)
        for at_ts, megawatt in _series(series):
            mix[at_ts][fuel] = mix[at_ts].get(fuel, 0.0) + megawatt
    return dict(mix)


def factors_of_mix(zone: str, mix: Mix) -> list[Factor]:
    """Return the mix's factors where every fuel that has a value on that day has one."""
    by_day: dict[int, set[str]] = defaultdict(set)
    for at_ts, fuels in mix.items():
        by_day[at_ts // DAY_S] |= fuels.keys()
    known = fuel_factors()
    result = []
    for at_ts in sorted(mix):
        fuels = mix[at_ts]
        parts = [
            (megawatt, factor)
            for fuel, megawatt in fuels.items()
            if (factor := _factor(known, fuel)) is not None
        ]
        whole = sum(megawatt for megawatt, _ in parts)
        if fuels.keys() == by_day[at_ts // DAY_S] and whole > 0:
            mean = round(sum(megawatt * factor for megawatt, factor in parts) / whole)
            result.append(Factor(zone, at_ts, at_ts + SLOT_S, mean))
    return result


def _factor(known: Mapping[str, int | None], fuel: str) -> int | None:
    if fuel not in known:
        raise SourceError(
            "a fuel that has no factor here", place="fuel-factors.csv", value=fuel,
            remedy="a newer fairwatt may know it",
        )  # fmt: skip
    return known[fuel]


def _series(series: ET.Element) -> Iterator[tuple[int, float]]:
    is_variable = _text(series, "curveType") == _VARIABLE_BLOCKS
    for period in _all(series, "Period"):
        interval = next(_all(period, "timeInterval"), None)
        step_s = _STEPS.get(_text(period, "resolution") or "")
        if interval is None or step_s is None:
            raise SourceError("a period without its times", place=PATH)
        start_ts = seconds(_text(interval, "start"), PATH)
        end_ts = seconds(_text(interval, "end"), PATH)
        if not 0 < end_ts - start_ts <= 400 * DAY_S:
            raise SourceError("a period that is too long", place=PATH, value=end_ts - start_ts)
        values = dict(_point(point) for point in _all(period, "Point"))
        last: float | None = None
        for number in range((end_ts - start_ts) // step_s):
            # In variable blocks a value holds until the next one that is told.
            value = values.get(number + 1, last if is_variable else None)
            last = value
            if value is not None:
                at_ts = start_ts + number * step_s
                yield from ((ts, value) for ts in range(at_ts, at_ts + step_s, SLOT_S))


def _point(point: ET.Element) -> tuple[int, float]:
    try:
        position = int(_text(point, "position") or "")
        quantity = float(_text(point, "quantity") or "")
    except ValueError as error:
        raise SourceError("a point without its value", place=PATH) from error
    if not 0 <= quantity < 1e7:
        raise SourceError("not a generation in MW", place=PATH, value=quantity)
    return position, quantity


def _root(body: bytes) -> ET.Element:
    try:
        # As text: another encoding that the answer names could hide a document type.
        text = body.decode("utf-8-sig")
        if "<!" in text.replace("<!--", ""):
            raise SourceError("an answer with a document type", place=PATH, value=text[:60])
        return ET.fromstring(text)  # noqa: S314 - no document type, so nothing can be expanded
    except (ET.ParseError, UnicodeDecodeError) as error:
        raise SourceError("no XML in the answer", place=PATH, value=body[:60]) from error


def _name(node: ET.Element) -> str:
    """The tag without its namespace, which has the version of the schema in it."""
    return node.tag.rpartition("}")[2]


def _all(node: ET.Element, name: str) -> Iterator[ET.Element]:
    return (child for child in node if _name(child) == name)


def _text(node: ET.Element, name: str) -> str | None:
    found = next(_all(node, name), None)
    return None if found is None else (found.text or "").strip()


def _stamp(ts: int) -> str:
    return datetime.fromtimestamp(ts, UTC).strftime("%Y%m%d%H%M")
