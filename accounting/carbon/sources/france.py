# SPDX-License-Identifier: Apache-2.0
"""France's quarters of an hour: RTE's éCO2mix on the open data portal ODRÉ; no key."""

from __future__ import annotations

import itertools

from fairwatt.accounting.carbon.factors import Factor
from fairwatt.accounting.carbon.sources.source import Access, factor_of, iso, read_json, seconds
from fairwatt.core.errors import ConfigError, SourceError

__all__ = ["FranceSource"]

PUBLIC_URL = "https://odre.opendatasoft.com"
PATH = "/api/explore/v2.1/catalog/datasets/{dataset}/exports/json"
CONSOLIDATED, REAL_TIME = "eco2mix-national-cons-def", "eco2mix-national-tr"
ZONE = "FR"
STEP_S = 900
LONGEST_S = 1800
"""Until a few years ago every other quarter of an hour had no value of its own."""


class FranceSource:
    """The field taux_co2: consolidated where it is published, else the real-time estimate."""

    name = "france"
    method = "operational-production"
    source = "RTE éCO2mix on ODRÉ (odre.opendatasoft.com), field taux_co2"
    licence = "Licence Ouverte / Etalab"
    slice_s = 31 * 86_400

    def __init__(self, access: Access) -> None:
        if access.zone not in ("", ZONE):
            raise ConfigError(
                "only the whole country is known", place="carbon.grid_zone", value=access.zone,
                remedy=f"write {ZONE}",
            )  # fmt: skip
        self.zone = ZONE
        self._access = access

    def fetch(self, from_ts: int, until_ts: int) -> list[Factor]:
        """Return the quarters of an hour of the span that have a value."""
        values = self._values(CONSOLIDATED, from_ts, until_ts)
        # The real-time set holds the last months only, and more than the other there.
        if not values or max(values) < until_ts - LONGEST_S:
            values = self._values(REAL_TIME, from_ts, until_ts) | values
        return _factors(values, until_ts)

    def _values(self, dataset: str, from_ts: int, until_ts: int) -> dict[int, object]:
        path = PATH.format(dataset=dataset)
        query = {
            "select": "date_heure,taux_co2",
            "where": f"date_heure >= '{iso(from_ts)}' AND date_heure < '{iso(until_ts)}'",
            "order_by": "date_heure",
            "timezone": "UTC",
        }
        status, body = self._access.get(PUBLIC_URL, path, query)
        answer = read_json(body, path)
        if status != 200 or not isinstance(answer, list):
            raise SourceError("not the documented answer", place=path, value=str(answer)[:120])
        found: dict[int, object] = {}
        for entry in answer:
            if not isinstance(entry, dict) or "date_heure" not in entry:
                raise SourceError("not the documented answer", place=path, value=str(entry)[:120])
            at_ts = seconds(entry["date_heure"], path)
            if entry.get("taux_co2") is not None and from_ts <= at_ts < until_ts:
                found[at_ts] = entry["taux_co2"]
        return found


def _factors(values: dict[int, object], until_ts: int) -> list[Factor]:
    """A value holds until the next one, half an hour at most, in rows of a quarter each."""
    starts = sorted(values)
    result = []
    for start_ts, next_ts in itertools.zip_longest(starts, starts[1:], fillvalue=until_ts):
        end_ts = min(next_ts, start_ts + LONGEST_S)
        for at_ts in range(start_ts, end_ts, STEP_S):
            stop_ts = min(at_ts + STEP_S, end_ts)
            result.append(factor_of(ZONE, at_ts, stop_ts, values[start_ts], "taux_co2"))
    return result
