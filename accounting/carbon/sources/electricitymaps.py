# SPDX-License-Identifier: Apache-2.0
"""Hours of a zone from Electricity Maps, flow-traced, with lifecycle factors; wants a key."""

from __future__ import annotations

from fairwatt.accounting.carbon.factors import Factor
from fairwatt.accounting.carbon.sources.source import Access, factor_of, iso, read_json, seconds
from fairwatt.core.errors import ConfigError, SourceError

__all__ = ["ElectricityMapsSource"]

PUBLIC_URL = "https://api.electricitymaps.com"
PATH = "/v3/carbon-intensity/past-range"
HOUR_S = 3600


class ElectricityMapsSource:
    """Measured hours; the service's own estimates are left out: a gap is told, they are not."""

    name = "electricitymaps"
    method = "lifecycle-flow-traced"
    source = "Electricity Maps API v3 (electricitymaps.com), emissionFactorType lifecycle"
    licence = "by contract with Electricity Maps"
    slice_s = 9 * 86_400  # the service gives 10 days of hours at once

    def __init__(self, access: Access) -> None:
        if not access.zone:
            raise ConfigError(
                "Electricity Maps wants a zone", place="carbon.grid_zone",
                remedy="write its key for it, such as DE or US-CAL-CISO",
            )  # fmt: skip
        self.zone = access.zone
        self._access = access

    def fetch(self, from_ts: int, until_ts: int) -> list[Factor]:
        """Return the measured hours of the span."""
        query = {
            "zone": self.zone, "start": iso(from_ts), "end": iso(until_ts),
            "emissionFactorType": "lifecycle", "temporalGranularity": "hourly",
        }  # fmt: skip
        headers = {"auth-token": self._access.key("Electricity Maps")}
        status, body = self._access.get(PUBLIC_URL, PATH, query, headers)
        answer = read_json(body, PATH)
        if status != 200 or not isinstance(answer, dict) or "data" not in answer:
            raise SourceError("not the documented answer", place=PATH, value=str(answer)[:120])
        found = {}
        for entry in answer["data"]:
            factor = self._factor(entry)
            if factor and from_ts <= factor.from_ts < until_ts:
                found[factor.from_ts] = factor
        return [found[ts] for ts in sorted(found)]

    def _factor(self, entry: object) -> Factor | None:
        if not isinstance(entry, dict) or not {"carbonIntensity", "datetime"} <= entry.keys():
            raise SourceError("not the documented answer", place=PATH, value=str(entry)[:120])
        if entry.get("emissionFactorType", "lifecycle") != "lifecycle":
            raise SourceError(
                "factors of another kind than asked for", place=PATH,
                value=entry["emissionFactorType"],
            )  # fmt: skip
        if entry["carbonIntensity"] is None or entry.get("isEstimated"):
            return None
        start_ts = seconds(entry["datetime"], PATH)
        return factor_of(self.zone, start_ts, start_ts + HOUR_S, entry["carbonIntensity"], PATH)
