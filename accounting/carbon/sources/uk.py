# SPDX-License-Identifier: Apache-2.0
"""Great Britain's half-hours from the Carbon Intensity API of its system operator; no key."""

from __future__ import annotations

from fairwatt.accounting.carbon.factors import Factor
from fairwatt.accounting.carbon.sources.source import Access, factor_of, iso, read_json, seconds
from fairwatt.core.errors import ConfigError, SourceError

__all__ = ["UkSource"]

PUBLIC_URL = "https://api.carbonintensity.org.uk"
ZONE = "GB"


class UkSource:
    """The national figure as it turned out; forecasts are left out, and regions have no other."""

    name = "uk"
    method = "operational-consumption"
    source = "Carbon Intensity API, National Energy System Operator (carbonintensity.org.uk)"
    licence = "CC BY 4.0"
    slice_s = 13 * 86_400  # the service gives 14 days at once

    def __init__(self, access: Access) -> None:
        if access.zone not in ("", ZONE):
            raise ConfigError(
                "only the national figure is measured", place="carbon.grid_zone",
                value=access.zone, remedy=f"write {ZONE}",
            )  # fmt: skip
        self.zone = ZONE
        self._access = access

    def fetch(self, from_ts: int, until_ts: int) -> list[Factor]:
        """Return the half-hours of the span that have an actual value."""
        path = f"/intensity/{iso(from_ts)}/{iso(until_ts)}"
        status, body = self._access.get(PUBLIC_URL, path)
        answer = read_json(body, path)
        if status != 200 or not isinstance(answer, dict) or "data" not in answer:
            raise SourceError("not the documented answer", place=path, value=str(answer)[:120])
        found = {}
        for entry in answer["data"]:
            factor = self._factor(entry, path)
            # The half-hour before the asked span comes too.
            if factor and from_ts <= factor.from_ts < until_ts:
                found[factor.from_ts] = factor
        return [found[ts] for ts in sorted(found)]

    def _factor(self, entry: object, place: str) -> Factor | None:
        try:
            actual = entry["intensity"]["actual"]  # type: ignore[index]
            start, end = entry["from"], entry["to"]  # type: ignore[index]
        except (TypeError, KeyError, IndexError) as error:
            raise SourceError(
                "not the documented answer", place=place, value=str(entry)[:120]
            ) from error
        if actual is None:
            return None
        return factor_of(ZONE, seconds(start, place), seconds(end, place), actual, place)
